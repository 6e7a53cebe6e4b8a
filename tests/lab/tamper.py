# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with examples/edge.yml in mode enforce: tampers with several things, looks, and lets one tick mend.

For each tampering the report must hold exactly one item, with what is, what was wanted and where, and the journal has
one line more; with cgroup v1 what systemd itself started meanwhile does not count. Whether it was tampered with and
mended says the place itself: the kernel's file, the mount, the unit. Timer and path unit start no tick meanwhile: one that
found the node's lock taken while we look would be the one that our own start joins, and would mend nothing.

At last the program itself is changed, which no tick mends.

With the argument audit, in that mode: ticks report it all, and each place stays as it was left.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import typing as t

from on_node import PATIENCE, SERVICE, agent_journal, expect, run, status, wait, without_timer

POOL = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
DROPIN = "/etc/systemd/system/user.slice.d/10-corral-cpu.conf"
CGROUP = "/sys/fs/cgroup"
TIMER = "corral-reconcile.timer"
ISOLATED = "corral_isolated.slice"
V1 = not os.path.exists(f"{CGROUP}/cgroup.controllers")
MOVED = re.compile(r"changed cpu (system|user)\.slice placement: ")


class Tampering(t.NamedTuple):
    """What is done by a careless hand, and the one item that must come of it."""

    command: str
    subject: str
    property: str
    actual: str
    wanted: str
    location: str


# fmt: off
TAMPERINGS = (
    Tampering("systemctl set-property --runtime system.slice AllowedCPUs=0-5",
              "system.slice", "AllowedCPUs", "0-5", "0-1,4-5", f"{CGROUP}/system.slice/cpuset.cpus"),
    Tampering("systemctl set-property user.slice AllowedCPUs=0-3",
              "user.slice", "AllowedCPUs", "0-3", "0-1,4-5", f"{CGROUP}/user.slice/cpuset.cpus"),
    # systemd 257 itself puts CPUs right that were written behind its back, once anything starts; not a partition.
    Tampering(f"echo member >{CGROUP}/corral_isolated.slice/cpuset.cpus.partition",
              "corral_isolated.slice", "cpuset.cpus.partition", "member", "root",
              f"{CGROUP}/corral_isolated.slice/cpuset.cpus.partition"),
    Tampering(f"echo 5 >{POOL}", "hugepages-2Mi node 1", "nr_hugepages", "5", "32", POOL),
    Tampering("umount /dev/hugepages-2Mi", "/dev/hugepages-2Mi", "mounted", "None",
              "pagesize=2M,mode=770,size=67108864", "/dev/hugepages-2Mi"),
    Tampering("echo 100000 >/proc/sys/kernel/pid_max",
              "kernel.pid_max", "value", "100000", "65536", "/proc/sys/kernel/pid_max"),
    Tampering(f"sed -i s/4-5/4-7/ {DROPIN}", DROPIN, "content", "[Slice]; AllowedCPUs=; AllowedCPUs=0-1,4-7",
              "[Slice]; AllowedCPUs=; AllowedCPUs=0-1,4-5", DROPIN),
    Tampering(f"rm {DROPIN}", DROPIN, "content", "None", "[Slice]; AllowedCPUs=; AllowedCPUs=0-1,4-5", DROPIN),
    Tampering("systemctl set-property corral.slice TasksMax=100",
              "corral.slice", "TasksMax", "100", "4096", f"{CGROUP}/corral.slice/pids.max"),
    Tampering("systemctl disable --now corral-reconcile.timer",
              "corral-reconcile.timer", "state", "disabled, inactive", "enabled, active",
              "/etc/systemd/system/timers.target.wants/corral-reconcile.timer"),
)
# With cgroup v1: Corral's own directories, and processes where systemd starts them.
LEGACY = (
    Tampering(f"echo 0-7 >{CGROUP}/cpuset/system.slice/cpuset.cpus",
              "system.slice", "cpuset.cpus", "0-7", "0-1,4-5", f"{CGROUP}/cpuset/system.slice/cpuset.cpus"),
    Tampering(f"echo 2 >{CGROUP}/cpuset/corral.slice/cpuset.cpus",
              "corral.slice", "cpuset.cpus", "2", "2-3",
              f"{CGROUP}/cpuset/corral.slice/cpuset.cpus"),
    Tampering("systemd-run --quiet --slice=corral_isolated.slice sleep 600",
              "corral_isolated.slice", "placement", "1 process on 0-1,4-5", "all on 6-7",
              f"{CGROUP}/cpuset/corral_isolated.slice/cgroup.procs"),
    Tampering("systemctl set-property corral.slice TasksMax=100",
              "corral.slice", "TasksMax", "100", "4096", f"{CGROUP}/pids/corral.slice/pids.max"),
)
# fmt: on
# Those that can stand beside each other; the last one of these leaves no ticks but ours.
AUDITED = tuple(TAMPERINGS[number] for number in (0, 3, 4, 5, 7, 9))
TOGETHER = (AUDITED, tuple(one for one in TAMPERINGS if one not in AUDITED))


def held(place: str) -> str:
    """What is at a place: a file's text, a mount, where a link leads and whether its unit runs; "" for nothing."""
    if place.endswith("/cgroup.procs"):
        return " ".join(sorted(masks(place.split("/")[-2])))
    if os.path.islink(place) or place.endswith(f".wants/{TIMER}"):
        link = os.readlink(place) if os.path.islink(place) else ""
        return f"{link} {run('systemctl', 'is-active', TIMER, code=None).strip()}"
    if os.path.isdir(place):
        with open("/proc/mounts", encoding="ascii") as file:
            return "".join(line for line in file if line.split()[1] == place)
    try:
        with open(place, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def masks(unit: str) -> set[str]:
    """The CPU lists on which a slice's processes may run, by where systemd started them (cgroup v1)."""
    found = set()
    for folder, dummy, dummy_names in os.walk(f"{CGROUP}/systemd/{unit}"):
        with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
            pids = file.read().split()
        for pid in pids:
            # One that has ended meanwhile runs nowhere.
            with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8") as file:
                found |= {line.split()[1] for line in file if line.startswith("Cpus_allowed_list")}
    return found


def shown(item: dict[str, t.Any]) -> tuple[str, ...]:
    """A drift item as a tampering has it."""
    return tuple(str(item[key]) for key in Tampering._fields[1:])


def begun_meanwhile(subject: str, prop: str) -> bool:
    """Whether a change is of what systemd itself started: with cgroup v1 a login, or a service of systemd's own, begins
    on init.scope's CPUs, whatever is tampered with, and waits there for the next tick."""
    return V1 and prop == "placement" and subject in ("system.slice", "user.slice")


def drift() -> tuple[int, list[dict[str, t.Any]]]:
    """What `corral drift` answers, but for what systemd started in the meantime."""
    done = subprocess.run(
        ["corral", "drift", "--json"], capture_output=True, text=True, check=False, timeout=60 * PATIENCE
    )
    items = json.loads(done.stdout)["changes"]
    ours = [item for item in items if not begun_meanwhile(item["subject"], item["property"])]
    return (0 if items and not ours else done.returncode), ours


def journal() -> list[str]:
    """What the agent told the journal, but for what systemd started in the meantime."""
    return [line for line in agent_journal() if not (V1 and MOVED.match(line))]


def tamper(together: t.Sequence[Tampering], told: list[str]) -> list[str]:
    """Tamper, look, mend; what was not as it must be. ``told`` grows by what the journal has."""
    before = {one.location: held(one.location) for one in together}
    for one in together:
        run("sh", "-c", one.command)
    code, items = drift()
    tampered = {one.location: held(one.location) for one in together}
    found = sorted(shown(item) for item in items)
    expected = sorted(tuple(one[1:]) for one in together)
    wrong = [] if (code, found) == (2, expected) else [f"exit {code}, items {found}, expected {expected}"]
    wrong += [
        f"{one.command}: nothing was tampered with"
        for one in together
        if tampered[one.location] == before[one.location]
    ]
    run("systemctl", "start", SERVICE, code=None)
    lines = journal()[len(told) :]
    told += lines
    for one in together:
        now = held(one.location)
        if now != before[one.location]:
            wrong.append(f"{one.command}: {one.location} was {before[one.location]!r}, is {now!r} after a tick")
        own = [line for line in lines if line.startswith("changed ") and f" {one.subject} {one.property}: " in line]
        if len(own) != 1:
            wrong.append(f"{one.command}: the journal has {own} of it")
    if len(lines) != len(together):
        wrong.append(f"the journal has {lines}")
    return wrong


def occupy() -> None:
    """One process of the isolated slice is where it must be (cgroup v1): another one is then told from it."""
    run("systemd-run", "--quiet", f"--slice={ISOLATED}", "sleep", "6000")

    def placed() -> bool:
        run("systemctl", "start", SERVICE, code=None)
        return masks(ISOLATED) == {"6-7"}

    wait("the process is on isolated CPUs", placed)


def in_sync() -> bool:
    """Whether nothing differs after a tick. On cgroup v1 this very login may have begun since the last one."""
    run("systemctl", "start", SERVICE, code=None)
    return drift() == (0, [])


def program_files() -> tuple[str, str]:
    """A source of the program that runs, and what Python compiled of it."""
    release = os.path.dirname(os.path.realpath("/usr/libexec/corral/corral"))
    folder = f"{release}/_core/managers/memory"
    compiled = next(name for name in os.listdir(f"{folder}/__pycache__") if name.startswith("memory.cpython-"))
    return f"{folder}/memory.py", f"{folder}/__pycache__/{compiled}"


def sha(path: str) -> str:
    """A file's digest, as an item shows it."""
    with open(path, "rb") as file:
        return f"sha256 {hashlib.sha256(file.read()).hexdigest()[:16]}"


def tampered_program() -> list[str]:
    """The program that root runs is changed in every way: each is an item, no tick mends it; what was not as it must be."""
    source, compiled = program_files()
    planted = f"{os.path.dirname(os.path.dirname(os.path.dirname(source)))}/zipapp.py"
    before = {path: sha(path) for path in (source, compiled)}
    for path in before:
        shutil.copy2(path, f"/root/{os.path.basename(path)}")
    times = os.stat(compiled)
    with open(source, "a", encoding="utf-8") as file:
        file.write("# changed by hand\n")
    with open(compiled, "r+b") as binary:  # as long as it was, and with its time: Python takes it
        binary.seek(-1, os.SEEK_END)
        binary.write(b"!")
    os.utime(compiled, ns=(times.st_atime_ns, times.st_mtime_ns))
    with open(planted, "w", encoding="utf-8") as file:
        file.write("raise SystemExit(1)\n")
    os.chmod(source, 0o666)
    expected = sorted(
        [
            (source, "mode", "0666", "0644", source),
            (source, "content", sha(source), before[source], source),
            (compiled, "content", sha(compiled), before[compiled], compiled),
            (planted, "file", "present", "absent", planted),
        ]
    )
    code, items = drift()
    found = sorted(shown(item) for item in items)
    wrong = [] if (code, found) == (2, expected) else [f"program: exit {code}, items {found}, expected {expected}"]
    run("systemctl", "start", SERVICE, code=None)
    if sha(source) == before[source] or not os.path.exists(planted):
        wrong.append("a tick has changed the program")
    os.unlink(planted)
    for path in before:
        shutil.copy2(f"/root/{os.path.basename(path)}", path)
    if (left := drift()) != (0, []):
        wrong.append(f"once the program is as it was: {left}")
    return wrong


def audit() -> int:
    """Tamper in mode audit; what the next ticks do to it."""
    before = {one.location: held(one.location) for one in AUDITED}
    for one in AUDITED:
        run("sh", "-c", one.command)
    tampered = {one.location: held(one.location) for one in AUDITED}
    expect("places that are as before", [place for place in before if before[place] == tampered[place]], [])
    told = len(journal())
    for dummy in range(2):  # The first may join a tick that had looked already.
        run("systemctl", "start", SERVICE, code=None)
    said = status()
    expect("the mode, and whether it is paused", (said["mode"], said.get("paused")), ("audit", None))
    expect("items", sorted(shown(item) for item in said["items"]), sorted(tuple(one[1:]) for one in AUDITED))
    expect("places after two ticks", {one.location: held(one.location) for one in AUDITED}, tampered)
    expect("changes in the journal", [line for line in journal()[told:] if line.startswith("changed ")], [])
    print(f"{len(AUDITED)} tamperings in mode audit: each is one item, and stays")
    return 0


def main(words: list[str]) -> int:
    if words == ["audit"]:
        return audit()
    groups = (LEGACY,) if V1 else TOGETHER
    with without_timer():
        if V1:
            occupy()
        wait("the node is in sync before the first tampering", in_sync)
        told = journal()
        wrong = [line for together in groups for line in tamper(together, told)]
        if (left := drift()) != (0, []):
            wrong.append(f"after the last tick: {left}")
        wrong += tampered_program()
    print("\n".join(wrong) or f"{sum(map(len, groups))} tamperings: each was one item, and one tick mended it")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
