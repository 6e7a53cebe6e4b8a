# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Reads the state that a step of a plan replaces, and runs the step.

A return code of 0 proves nothing (systemd accepts CPUs that do not exist), so each step reads its result back.
"""

from __future__ import annotations

import errno
import time
import typing as t

from ...model.cpu import partitions
from ...model.plan.plan import RELEASE, Step
from ...model.plan.undo import Original
from ...model.profile.schema_types import is_own
from ...model.systemd import unit_limits
from ...model.systemd.unit_property import DEVICE_ALLOW
from ...model.workload.grants import is_exclusive, is_workloads
from .. import cgroup, kernel_text, mounts, state, systemd
from ..files import Host
from ..workload import workload_state

if t.TYPE_CHECKING:
    from ...model.values.vocabulary import StepKind
    from ..cpu.thread_masks import Masks

READ_BACK_SECONDS = 3.0
MOUNT_SECONDS = 30.0


class StepFailed(Exception):
    """The kernel or systemd refused a step; the text says which step, and why."""


def observe(host: Host, step: Step) -> Original:
    """The state before a step: enough for undo.py to restore this state."""
    before = Original(step.kind, step.target, step.name)
    before = before._replace(made=missing_folders(host, before.location))
    if step.kind in ("file", "link"):
        link = host.link(step.target)
        text = None if link is not None else host.read_bytes(step.target)
        shown = None if text is None else text.decode("utf-8", "surrogateescape")
        return before._replace(value=shown, link=link, mode=host.mode(step.target) or step.mode)
    if step.kind == "compile":
        # One original stands for all files of a new program.
        missing = [name for name in step.name.splitlines() if not host.exists(f"{step.target}/{name}")]
        return before._replace(name="\n".join(missing))
    if step.kind in ("value", "pool"):
        return before._replace(value=(host.read(step.target) or "").strip())
    if step.kind == "partition":
        # An invalid partition reads as "root invalid (reason)". Only the first word, the requested kind, can be written back.
        return before._replace(value=(host.read(step.target) or partitions.MEMBER).split()[0])
    if step.kind == "cpuset":
        cpus = host.read(f"{step.target}/cpuset.cpus")
        return before._replace(value=None if cpus is None else cpus.strip())
    if step.kind == "property":
        is_list = step.name == DEVICE_ALLOW
        value = "\n".join(devices_allowed(host, step.target)) if is_list else live_value(host, step.target, step.name)
        active = cgroup.exists(host, step.target)
        return before._replace(value=value, runtime=host.read(before.location), active=active)
    if step.kind == "unit":
        slice_there = step.target.endswith(".slice") and cgroup.exists(host, step.target)
        return before._replace(active=slice_there or bool(step.target and systemd.active(host, [step.target])))
    if step.kind == "controller":
        return before._replace(active=step.name in cgroup.delegated(host, step.target.rpartition("/")[0]))
    if step.kind == "driver":
        from ..devices import pci_driver

        return before._replace(value=pci_driver.bound_by_corral(host, step.target))
    return before._replace(active=step.kind == "mount" and mounts.at(host, step.name) is not None)


def perform(host: Host, step: Step, masks: t.Optional[Masks] = None) -> None:
    """Run a step and read the result back. Raises StepFailed, or OSError from the write itself.

    ``masks`` has the CPUs that threads chose for themselves; all steps of a plan share this mapping.
    """
    PERFORM[step.kind](host, step, {} if masks is None else masks)


def write_file(host: Host, step: Step, dummy: Masks) -> None:
    """Write or remove a file or link."""
    if step.value is None:
        host.remove(step.target)
    elif step.kind == "link":
        host.write_link(step.target, step.value)
    else:
        host.write_file(step.target, step.value, step.mode)


def take_part(host: Host, step: Step, dummy: Masks) -> None:
    """Run a program of the administrator, or wait for a service."""
    from ..agent import node_hooks

    said = node_hooks.refused(host, step)
    if said:
        raise StepFailed(said)


def bind_driver(host: Host, step: Step, dummy: Masks) -> None:
    """Bind a PCI function to a driver, or back to its former driver."""
    from ..devices import pci_driver  # Few nodes have drivers to bind.

    try:
        if step.value is None:
            pci_driver.give_back(host, step.target)
        else:
            pci_driver.bind(host, step.target, step.value)
    except pci_driver.BindingRefused as refused:
        raise StepFailed(str(refused)) from None


def missing_folders(host: Host, path: str) -> tuple[str, ...]:
    """The folders above ``path`` that a write would make, the outermost first."""
    missing = []
    folder = path.rpartition("/")[0]
    while folder and not host.is_dir(folder):
        missing.append(folder)
        folder = folder.rpartition("/")[0]
    return tuple(reversed(missing))


def live_value(host: Host, unit: str, name: str) -> t.Optional[str]:
    """The kernel's value for a property of a unit; None without a kernel file."""
    if name == "TasksMax":
        return cgroup.pids_max(host, unit)
    text = host.read(f"{cgroup.path_of(unit)}/{unit_limits.FILES[name]}")
    return None if text is None else text.strip()


def write_value(host: Host, step: Step, dummy: Masks) -> None:
    """Write a kernel file whose content reads back as written."""
    wanted = step.value or ""
    host.write_value(step.target, wanted)
    got = (host.read(step.target) or "").split()
    if got != wanted.split():
        raise StepFailed(f"{step.target}: {wanted} was written and the kernel keeps {' '.join(got) or 'nothing'}")


def set_partition(host: Host, step: Step, dummy: Masks) -> None:
    """Make a control group a partition, or end its partition.

    The kernel accepts an impossible partition without an error: the next observation reads the state of the partition. A missing file is no
    failure either: the kernel has no partitions, or the control group is gone.
    """
    wanted, now = step.value or "", host.read(step.target)
    if now is None:
        return
    if wanted != partitions.MEMBER and ("invalid" in now or now.strip() == wanted):
        # An invalid partition stays invalid until "member" is written (6.1).
        write_partition(host, step.target, partitions.MEMBER)
    write_partition(host, step.target, wanted)


def write_partition(host: Host, path: str, kind: str) -> None:
    """Write the kind of a partition. Raises OSError.

    Linux 5.10 answers EBUSY while the control group has children; the children of a container that has just ended go within moments.
    """
    deadline = time.monotonic() + READ_BACK_SECONDS
    while True:
        try:
            return host.write_value(path, kind)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def fill_pool(host: Host, step: Step, dummy: Masks) -> None:
    """Request hugepages; if the kernel finds too few, compact the memory once and request the hugepages again.

    A pool that is filled in part is no failure here: the next observation reads its pages.
    """
    wanted = int(step.value or 0)
    host.write_value(step.target, str(wanted))
    if pages(host, step.target) >= wanted:
        return
    # The compact file of .../node/nodeN/hugepages/hugepages-2048kB/nr_hugepages is in nodeN.
    node = step.target.rpartition("/hugepages/hugepages-")[0]
    compact = f"{node}/compact" if "/node/" in node else "/proc/sys/vm/compact_memory"
    if host.exists(compact):
        host.write_value(compact, "1")
        host.write_value(step.target, str(wanted))


def pages(host: Host, path: str) -> int:
    """The number in a kernel file; 0 if the file has no number."""
    text = (host.read(path) or "").strip()
    return kernel_text.count(text) or 0


def set_property(host: Host, step: Step, masks: Masks) -> None:
    """Set a property live, then read the kernel file until it has the value."""
    assignment, name, value = step.text or "", step.name, step.value or ""
    if (not value or step.phase == RELEASE) and not cgroup.exists(host, step.target):
        return  # systemd would make a control group for a slice that does not run, and nothing would remove it.
    if name == "AllowedCPUs" and not cgroup.unified(host):
        return  # This step restores an original from a boot with v2. On v1 systemd accepts the property and does nothing.
    path = cgroup.path_of(step.target)
    if name == "AllowedCPUs":
        from ..cpu import thread_masks

        thread_masks.record(host, path, masks)
    answer = systemd.set_property(host, step.target, assignment)
    if answer.code:
        raise StepFailed(f"systemctl set-property {step.target} {assignment}: {systemd.complaint(answer.err)}")
    if not value or not cgroup.exists(host, step.target):
        return
    if step.target.endswith(".slice") and not (has_value(host, step) and asks(host, step)):
        # The control group exists although the slice does not run: systemd keeps the value, but the control group has no value of its own,
        # and at most gets the same CPUs from its parent.
        host.run("systemctl", "start", "--", step.target)
    deadline = time.monotonic() + READ_BACK_SECONDS
    while not has_value(host, step):
        if time.monotonic() > deadline:
            raise StepFailed(
                f"{step.target}: {assignment} was set and the kernel shows "
                f"{seen(host, step.target, name)} (see cpuset.cpus.effective in {path})"
            )
        time.sleep(0.02)
    if name == "AllowedCPUs":
        thread_masks.give_back(host, path, masks)


def set_devices(host: Host, step: Step, dummy: Masks) -> None:
    """Replace the list of devices that a unit may open; the value has one entry a line.

    The kernel does not show the list (a BPF program), so systemd's own file is read back. A unit that is gone has no list.
    """
    wanted = (step.value or "").splitlines()
    # Entries add up, also in systemd's memory: so an empty entry, which clears the list, comes first.
    answer = systemd.set_properties(host, step.target, [f"{step.name}={entry}" for entry in ("", *wanted)])
    if answer.code and wanted:
        raise StepFailed(f"systemctl set-property {step.target} {step.name}=: {systemd.complaint(answer.err)}")
    got = devices_allowed(host, step.target)
    if not answer.code and set(got) != set(wanted):
        shown = ", ".join(got) or "nothing"
        raise StepFailed(f"{step.target}: {step.name}={', '.join(wanted)} was set and systemd's files show {shown}")


def devices_allowed(host: Host, unit: str) -> tuple[str, ...]:
    """The value of a unit's DeviceAllow= by the unit's files."""
    from ...model.systemd import device_allow  # Only units with devices need this module.

    return device_allow.added_up(systemd.unit_settings(host, unit, DEVICE_ALLOW), unit)


def set_cpuset(host: Host, step: Step, dummy: Masks) -> None:
    """Write the CPUs of a directory in v1's cpuset hierarchy and move processes there, or remove the directory."""
    from ..cpu import cgroup_v1_cpuset  # Imported here: most nodes have v2, and a workload's start waits for imports.

    if not cgroup_v1_cpuset.mounted(host):
        return  # This step restores an original from a boot with v1.
    try:
        if step.value is None:
            cgroup_v1_cpuset.dissolve(host, step.target)
        else:
            cgroup_v1_cpuset.set_cpus(host, step.target, cgroup.cpu_list(step.value) or frozenset(), step.name)
    except OSError as error:
        hint = cgroup_v1_cpuset.REFUSALS.get(error.errno or 0, "see cpuset(7)")
        raise StepFailed(f"{step.target}: {step.value or 'removal'}: {error.strerror} ({hint})") from None
    if step.value is not None:
        read_back(host, step)


def read_back(host: Host, step: Step) -> None:
    """Check that a directory's CPUs are in force, and that its unit runs on no other CPUs."""
    from ..cpu import cgroup_v1_cpuset

    wanted = cgroup.cpu_list(step.value)
    got = cgroup_v1_cpuset.cpus(host, step.target).effective
    if got != wanted:
        raise StepFailed(f"{step.target}: {step.value} was written and the kernel shows {sorted(got or ())}")
    left = cgroup_v1_cpuset.outside(host, step.name) if step.name else {}
    if any(cgroup_v1_cpuset.cpus(host, where).effective != wanted for where in left):
        raise StepFailed(f"{step.name}: its processes start faster than they can be moved into {step.target}")


def has_value(host: Host, step: Step) -> bool:
    """Whether the kernel has the value of a step in force; of requested CPUs, only the online CPUs have to be in force.

    For CPUs that a step restores (phase RELEASE) the request is enough: another unit may have some of these CPUs.
    """
    if shows(host, step.target, step.name, step.value or ""):
        return True
    if step.name != "AllowedCPUs" or not asks(host, step):
        return False
    online = cgroup.cpu_list(host.read("/sys/devices/system/cpu/online")) or frozenset()
    asked = cgroup.cpu_list(step.value) or frozenset()
    return step.phase == RELEASE or cgroup.cpus(host, step.target).effective == asked & online


def shows(host: Host, unit: str, name: str, value: str) -> bool:
    """Whether the kernel has the value of a property in force."""
    if name == "AllowedCPUs":
        return cgroup.cpus(host, unit).effective == cgroup.cpu_list(value)
    got = live_value(host, unit, name)
    return got is not None and unit_limits.meaning(name, got) == unit_limits.kernel(name, value)


def asks(host: Host, step: Step) -> bool:
    """Whether a control group itself requests the CPUs of a step, and does not only get these CPUs from its parent."""
    return step.name != "AllowedCPUs" or cgroup.cpus(host, step.target).requested == cgroup.cpu_list(step.value)


def seen(host: Host, unit: str, name: str) -> str:
    """The value of a property in force, as text for an error."""
    if name == "AllowedCPUs":
        return (host.read(f"{cgroup.path_of(unit)}/cpuset.cpus.effective") or "").strip() or "nothing"
    return live_value(host, unit, name) or "nothing"


def control_unit(host: Host, step: Step, dummy: Masks) -> None:
    """Start, stop or restart a unit, or reload systemd when no unit is named."""
    verb = step.value or ""
    if verb == "stop" and step.target.endswith(".slice") and cgroup.populated(host, step.target):
        if not is_own(step.target):
            return  # Other processes use the slice by now.
        raise StepFailed(in_use(host, step))
    if verb == "stop" and is_workloads(step.target):
        unit = workload_state.unit_to_be_in(host, step.target)
        if unit:
            raise StepFailed(f"{step.target}: {unit} runs elsewhere and would end with it: it stays")
    # If the slice requests no CPUs, the start below takes no CPUs from other slices.
    ends_grant = verb == "stop" and (is_workloads(step.target) or is_exclusive(step.target))
    is_bare = ends_grant and is_without_cpus(host, step)
    # A stop would end units that are about to start in the slice: with the mode "fail" the slice stays.
    mode = "fail" if verb == "stop" and is_workloads(step.target) else "replace"
    answer = systemd.control(host, verb, step.target, mode=mode, timeout=120.0)
    # Code 5: the unit is not loaded, so there is nothing to stop (systemctl(1), EXIT STATUS).
    if answer.code and not (verb == "stop" and answer.code == 5):
        said = f"systemctl {verb} {step.target}: {systemd.complaint(answer.err, answer.out)}".rstrip()
        if verb == "start" and step.target.endswith(".service"):
            from ..agent import node_hooks

            said = f"{said}; its last log lines: {node_hooks.last_lines(host, step.target)}"
        raise StepFailed(said)
    if verb == "daemon-reload" and state.there(host, state.RELOAD_DUE):
        host.remove(state.RELOAD_DUE)
    if is_bare and cgroup.exists(host, step.target):
        # A daemon-reload makes a control group for a stopped slice in which a unit is to start: a start and stop remove it.
        for again in ("start", "stop"):
            systemd.control(host, again, step.target, mode="fail", timeout=120.0)


def is_without_cpus(host: Host, step: Step) -> bool:
    """Whether a slice requests no CPUs, neither now nor, by its files, at its next start."""
    if cgroup.cpus(host, step.target).requested:
        return False
    return not systemd.merged_cpus(systemd.unit_settings(host, step.target, "AllowedCPUs"))


def in_use(host: Host, step: Step) -> str:
    """Why a slice of Corral's cannot stop now; an empty string for a slice that can stop, and for any other step."""
    stops = step.kind == "unit" and step.value == "stop" and step.target.endswith(".slice") and is_own(step.target)
    if not stops or not cgroup.populated(host, step.target):
        return ""
    return f"{step.target}: still holds processes, which a stop would end: {stop_hint(host, step.target)}"


def stop_hint(host: Host, unit: str) -> str:
    """The advice for a slice that still has processes."""
    import shlex  # Imported here: only the refusal of a stop needs it.

    named = " ".join(map(shlex.quote, cgroup.units_in(host, unit)))
    if named:
        return f"stop what runs in it (systemctl stop {named}), then repeat this"
    return f"it stays, and no unit is known: see cgroup.procs in and below {cgroup.path_of(unit)}"


def control_mount(host: Host, step: Step, dummy: Masks) -> None:
    """Start, stop or restart a mount unit and check that the mount exists or is gone."""
    verbs = ("stop", "start") if step.value == "restart" else (step.value or "",)
    for verb in verbs:
        answer = systemd.control(host, verb, step.target, timeout=MOUNT_SECONDS)
        mounted = mounts.at(host, step.name) is not None
        if (answer.code and not (verb == "stop" and answer.code == 5)) or mounted != (verb == "start"):
            raise StepFailed(
                f"{step.name}: systemctl {verb} {step.target}: "
                f"{systemd.complaint(answer.err, answer.out)}; see journalctl -u {step.target}"
            )


def compile_folder(host: Host, step: Step, dummy: Masks) -> None:
    """Compile the agent for the Python that runs the agent, whose path is ``value``; an empty ``value`` removes the compiled files.

    ``name`` lists the agent's files: other files in the folder might not compile. A link is never followed: it may lead to foreign files.
    """
    if step.value:
        files = [f"{step.target}/{name}" for name in step.name.splitlines() if name.endswith(".py")] or [step.target]
        words = (step.value, "-I", "-m", "compileall", "-q", "-f", *map(host.at, files))
        answer = host.run(*words, timeout=120.0)
        if answer.code:
            raise StepFailed(f"{step.target}: not compiled: {systemd.complaint(answer.err, answer.out)}")
        # compileall syncs nothing, and Python checks only a file's header: after a power cut, a truncated file would fail each import.
        for path in compiled_folders(host, step.target):
            host.sync(path)
        from ..agent import program_check

        program_check.record(host, step.target, step.name.splitlines())
        return
    for path in compiled_folders(host, step.target):
        for file in host.names(path):
            if file.endswith(".pyc"):
                host.remove(f"{path}/{file}")
        host.remove_dir(path)


def compiled_folders(host: Host, top: str) -> list[str]:
    """The folders with compiled files below ``top``; no link is followed."""
    compiled, folders = [], [top] if host.link(top) is None else []
    while folders:
        folder = folders.pop()
        inside = {name: f"{folder}/{name}" for name in host.folders(folder)}
        compiled += [path for name, path in inside.items() if name == "__pycache__"]
        folders += [path for name, path in inside.items() if name != "__pycache__"]
    return compiled


PERFORM: t.Mapping[StepKind, t.Callable[[Host, Step, Masks], None]] = {
    "file": write_file,
    "link": write_file,
    "folder": lambda host, step, dummy: host.remove_dir(step.target),
    "value": write_value,
    "pool": fill_pool,
    "partition": set_partition,
    "cpuset": set_cpuset,
    "property": lambda *args: (set_devices if args[1].name == DEVICE_ALLOW else set_property)(*args),
    "controller": lambda host, step, dummy: host.write_value(step.target, step.text or ""),
    "unit": control_unit,
    "mount": control_mount,
    "compile": compile_folder,
    "hook": take_part,
    "health": take_part,
    "driver": bind_driver,
}
