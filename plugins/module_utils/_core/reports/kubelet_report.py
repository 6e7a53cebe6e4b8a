# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The inspection of a node's kubelet, as data and as text."""

from __future__ import annotations

import json
import typing as t

from ..constants import SCHEMA
from ..model.kubelet import state_files
from ..model.kubelet.inspected import Inspection, Mended, StateFile
from ..model.kubelet.kubelet_config import DEFAULT, Setting
from ..model.kubelet.kubelet_drift import Difference
from ..model.kubelet.kubelet_sizing import Amount
from ..model.kubelet.pod_findings import Finding
from ..model.kubelet.state_files import CpuState, DeviceEntry
from ..model.plan.plan import Change
from ..model.values import cpuset, printable_text
from ..model.values.errors import shown as printable
from . import change_text
from .text_table import aligned

# What the kubelet's device manager does with a state file that it cannot read.
BEGIN_WITHOUT = "begin without it"

if t.TYPE_CHECKING:
    from ..model.status.kubelet_shapes import (
        KubeletAmount,
        KubeletCpus,
        KubeletDevice,
        KubeletDevices,
        KubeletDifference,
        KubeletFile,
        KubeletFinding,
        KubeletReport,
        KubeletSetting,
    )


def to_data(found: Inspection, mended: t.Sequence[str] = ()) -> KubeletReport:
    """The inspection as JSON, with the lines of mended_lines() as ``mended``."""
    settings = found.config.settings()
    return {
        "schema": SCHEMA,
        "running": found.pid is not None,
        "pid": found.pid,
        "since": None if found.began is None else int(found.began),
        "config": {name: setting_data(found, one) for name, one in settings.items()},
        "config_problems": list(found.config.problems),
        "config_newer": list(found.newer),
        "config_running": None if found.unlike is None else [difference_data(one) for one in found.unlike],
        "files": [file_data(one) for one in found.files],
        "cpus": None if found.cpus is None else cpus_data(found.cpus),
        "devices": [device_data(one) for one in (found.devices.entries if found.devices else ())],
        "findings": [finding_data(found, one) for one in found.findings],
        "allocatable": [amount_data(*both) for both in amounts(found)],
        "drift": change_text.dated(found.drift, found.drift_since),
        "mended": list(mended),
    }


def devices_data(file: StateFile, entries: t.Iterable[DeviceEntry]) -> KubeletDevices:
    """The device manager's file and assignments as JSON."""
    return {"schema": SCHEMA, "file": file_data(file), "devices": [device_data(one) for one in entries]}


def devices_lines(file: StateFile, entries: t.Sequence[DeviceEntry]) -> list[str]:
    """The device manager's assignments as text, below its file."""
    given = device_assignments(entries) if entries else ["the kubelet has given out no devices"]
    return [printable_text.printable(f"{file.path}: {of_file(file)}"), *([] if file.refusal else given)]


def file_data(one: StateFile) -> KubeletFile:
    """A state file as JSON."""
    return {
        "path": one.path,
        "exists": one.exists,
        "version": one.version or None,
        "refusal": one.refusal or None,
        "starts": one.starts,
    }


def setting_data(found: Inspection, one: Setting) -> KubeletSetting:
    """A configuration key as JSON. ``since``: the last change of the file that sets the key, or the start of the process with its flag."""
    since = found.began if one.origin.startswith("--") else found.changed.get(one.origin)
    return {"value": one.value, "origin": one.origin, "since": int(since) if since else None}


def difference_data(one: Difference) -> KubeletDifference:
    """A key whose value in the running kubelet differs from its files and flags, as JSON."""
    return {"key": one.key, "running": one.wanted, "configured": one.actual, "origin": one.origin}


def mended_lines(mended: t.Iterable[Mended]) -> list[str]:
    """A line for each container: its CPUs before and after, or why the CPUs could not be set."""
    return [
        f"{one.container.pod_name} {one.container.name}: "
        + (one.error or f"CPUs {cpuset.format(one.container.cpus)} -> {cpuset.format(one.wanted)}")
        for one in mended
    ]


def amounts(found: Inspection) -> list[tuple[Amount, t.Optional[Amount]]]:
    """The amount of each resource now, and the amount after the profile is applied (None: not known)."""
    if found.outlook is None:
        return []
    then = {one.resource: one for one in found.outlook.then or ()}
    return [(one, then.get(one.resource)) for one in found.outlook.now]


def amount_data(now: Amount, then: t.Optional[Amount]) -> KubeletAmount:
    """The amounts of a resource as JSON."""
    return {
        "resource": now.resource,
        "capacity": now.text(now.capacity),
        "allocatable": now.text(now.allocatable),
        "wanted": None if then is None else then.text(then.allocatable),
    }


def cpus_data(state: CpuState) -> KubeletCpus:
    """The CPU manager's assignments as JSON."""
    return {
        "policy": state.policy,
        "default": cpuset.format(state.default),
        "containers": {
            pod: {name: cpuset.format(own) for name, own in containers.items()}
            for pod, containers in state.containers.items()
        },
        "pods": {pod: cpuset.format(own) for pod, own in state.pods.items()},
    }


def device_data(one: DeviceEntry) -> KubeletDevice:
    """A container's devices as JSON."""
    devices = {str(node): list(ids) for node, ids in one.devices.items()}
    return {"pod": one.pod, "container": one.container, "resource": one.resource, "devices": devices}


def finding_data(found: Inspection, one: Finding) -> KubeletFinding:
    """A finding as JSON, with its line, and when it was first seen."""
    return {
        "kind": one.kind,
        "subject": one.subject,
        "container": one.container,
        "cpus": one.cpus,
        "wanted": one.wanted,
        "message": one.message,
        "text": finding_text(one),
        "since": found.since.get(one.item()),
    }


def finding_text(one: Finding) -> str:
    """A finding on one line."""
    return f"{' '.join(filter(None, (one.subject, one.container)))}: {one.message}"


def dated_text(found: Inspection, one: Finding) -> str:
    """A finding on one line, with the time when it was first seen, if known."""
    first = found.since.get(one.item())
    return finding_text(one) + ("" if first is None else f" [since {change_text.moment(first)}]")


def lines(found: Inspection) -> list[str]:
    """The inspection as text: the kubelet, its settings with their origins, its files, and the findings."""
    said = [*configuration_lines(found), *assignment_lines(found)]
    if found.outlook is not None:
        said += ["", "allocatable to pods:", *(f"  {line}" for line in aligned(sizing_rows(found)))]
    if found.drift:
        said += ["", "differs from the declared profile:", *(f"  {drift_text(found, one)}" for one in found.drift)]
    said += ["", *(finding_lines(found) or ["no assignment leaks, no CPUs overlap"])]
    return list(map(printable_text.printable, said))  # The path of a file may have any character.


def configuration_lines(found: Inspection) -> list[str]:
    """Lines on the kubelet's process, the problems of its configuration, and the keys that a file or a flag sets."""
    said = [f"kubelet: process {found.pid}" if found.pid else "kubelet: does not run"]
    said += [f"{path} was changed after the running kubelet began: restart it to have it read" for path in found.newer]
    said += [
        f"the running kubelet has {one.key} {one.wanted or 'unset'}, and {one.origin} says {one.actual or 'unset'}"
        for one in found.unlike or ()
    ]
    said += list(found.config.problems)
    settings = found.config.settings()
    configured = [(name, shown(one.value), one.origin) for name, one in settings.items() if one.origin != DEFAULT]
    if configured:
        said += ["", "configuration that is not the default:", *(f"  {line}" for line in aligned(configured))]
    return said


def assignment_lines(found: Inspection) -> list[str]:
    """Lines on the state files, and on the CPUs and devices that these files assign."""
    said = ["", "state files:", *(f"  {line}" for line in aligned([(one.path, of_file(one)) for one in found.files]))]
    if found.cpus is not None:
        said += ["", *assignments(found.cpus)]
    if found.devices is not None and found.devices.entries:
        said += ["", *device_assignments(found.devices.entries)]
    return said


def finding_lines(found: Inspection) -> list[str]:
    """A line for each finding. If the CPU assignments cannot be read, a line says that some findings are unknown."""
    unread = [one.path for one in found.refusals if found.cpus is None and one.path.endswith("/cpu_manager_state")]
    unknown = [f"unknown whether assignments leak or CPUs overlap: {path} cannot be read" for path in unread]
    return [dated_text(found, one) for one in found.findings] + unknown


def drift_text(found: Inspection, one: Change) -> str:
    """An item of drift on one line, with the time when it was first seen, if known."""
    return change_text.line(one) + change_text.seen(one, found.drift_since)


def sizing_rows(found: Inspection) -> list[tuple[str, str, str]]:
    """Each resource with the amount that pods may have, and the amount by the declared profile if that amount differs."""
    rows = []
    for now, then in amounts(found):
        changes = then is not None and then.allocatable != now.allocatable
        after = f"-> {then.about(then.allocatable)} by the declared profile" if then is not None and changes else ""
        rows.append((now.resource, f"{now.about(now.allocatable)} of {now.about(now.capacity)}", after))
    return rows


def of_file(one: StateFile) -> str:
    """The version of a state file, or what the kubelet would do with the file, and why."""
    if one.refusal:
        return f"the kubelet would {BEGIN_WITHOUT if one.starts else 'not start'}: {one.refusal}"
    if one.version == f"checksum {state_files.WRONG}":
        return f"{one.version}: the kubelet would {BEGIN_WITHOUT}"
    return (one.version or "empty") if one.exists else "not there"


def assignments(state: CpuState) -> list[str]:
    """Lines on the shared CPUs, and on the exclusive CPUs of pods and containers."""
    rows = [("shared", cpuset.format(state.default) or "none", "")]
    rows += [("pod", cpuset.format(own), pod) for pod, own in sorted(state.pods.items())]
    rows += [
        ("exclusive", cpuset.format(own), f"{pod} {name}")
        for pod, containers in sorted(state.containers.items())
        for name, own in sorted(containers.items())
    ]
    return [f"CPUs by policy {state.policy}:", *(f"  {line}" for line in aligned(rows))]


def device_assignments(entries: t.Iterable[DeviceEntry]) -> list[str]:
    """A line for each container and resource: the assigned devices with their NUMA nodes."""
    rows = []
    for one in sorted(entries, key=lambda one: (one.resource, one.pod, one.container)):
        own = [f"{name} (NUMA node {node})" if node >= 0 else name for node, ids in one.devices.items() for name in ids]
        rows.append(tuple(map(printable, (one.resource, ", ".join(own) or "none", f"{one.pod} {one.container}"))))
    return ["devices:", *(f"  {line}" for line in aligned(rows))]


def shown(value: object) -> str:
    """A value of the configuration on one line."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
