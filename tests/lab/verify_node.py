# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the lab's node after a rollout of examples/edge.yml: is the node what the profile declares?

By the node's own files and by processes' own masks, with nothing of Corral's. The arguments are the CPU lists of the
pools: RESERVED SHARED ISOLATED. Prints what is not so and exits 1, or counts what was looked at.
"""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t

from on_node import PATIENCE

ROOT = "/sys/fs/cgroup"
# With cgroup v1 each controller has a hierarchy of its own, and what systemd starts is placed by the next tick.
LEGACY = not os.path.exists(f"{ROOT}/cgroup.controllers")
CPUSETS, PIDS = (f"{ROOT}/cpuset", f"{ROOT}/pids") if LEGACY else (ROOT, ROOT)
EFFECTIVE = "cpuset.effective_cpus" if LEGACY else "cpuset.cpus.effective"

failures: list[str] = []
looked = 0


def expect(what: str, got: object, wanted: object) -> None:
    global looked  # noqa: PLW0603 - a script of one pass
    looked += 1
    if got != wanted:
        failures.append(f"{what}: got {got!r}, wanted {wanted!r}")


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        return f"error {error.errno}"


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60 * PATIENCE).stdout.strip()


def mask(pid: str) -> str:
    """The CPUs on which a process may run, in its own words."""
    return next(line.split()[1] for line in read(f"/proc/{pid}/status").splitlines() if "Cpus_allowed_list" in line)


def masks_in(slices: t.Iterable[str]) -> dict[str, str]:
    """The mask of a process that starts in a slice, for each of them; with cgroup v1 after a tick that began later."""
    if not LEGACY:
        words = ("systemd-run", "--quiet", "--pipe", "--wait")
        look = ("grep", "Cpus_allowed_list", "/proc/self/status")
        return {one: run(*words, f"--slice={one}", *look).split()[-1] for one in slices}
    units = {one: f"looked-at-{one.partition('.')[0]}.service" for one in slices}
    for one, unit in units.items():
        run("systemd-run", "--quiet", f"--unit={unit}", f"--slice={one}", "sleep", "infinity")
    for dummy in range(2):  # The first may join a tick that had looked already.
        run("systemctl", "start", "corral-reconcile.service")
    found = {one: mask(run("systemctl", "show", "--property=MainPID", "--value", unit)) for one, unit in units.items()}
    run("systemctl", "stop", *units.values())
    return found


def shown(*units: str) -> list[dict[str, str]]:
    """Whether each unit runs, whether it is enabled, and its limit of tasks."""
    text = run("systemctl", "show", "--property=ActiveState,UnitFileState,TasksMax", *units)
    return [dict(line.split("=", 1) for line in one.splitlines()) for one in text.split("\n\n")]


def main(reserved: str, shared: str, isolated: str) -> int:
    for unit, cpus in (
        ("system.slice", reserved),
        ("user.slice", reserved),
        ("init.scope", reserved),
        ("corral.slice", shared),
        ("corral_isolated.slice", isolated),
    ):
        expect(f"{unit} cpuset.cpus", read(f"{CPUSETS}/{unit}/cpuset.cpus"), cpus)
        expect(f"{unit} effective", read(f"{CPUSETS}/{unit}/{EFFECTIVE}"), cpus)
    expect("PID 1 runs on", mask("1"), reserved)
    expect("sshd runs on", mask(run("systemctl", "show", "--property=MainPID", "--value", "ssh.service")), reserved)
    expect("this process runs on", mask("self"), reserved)
    wanted_masks = {
        "system.slice": reserved, "corral.slice": shared, "corral_isolated.slice": isolated, "machine.slice": shared,
    }  # fmt: skip
    for one, found in masks_in(wanted_masks).items():
        expect(f"a unit in {one}", found, wanted_masks[one])
    for node in sorted(one for one in os.listdir("/sys/devices/system/node") if one[4:].isdigit()):
        pool = f"/sys/devices/system/node/{node}/hugepages/hugepages-2048kB/nr_hugepages"
        expect(f"{node} hugepages", read(pool), "32")
    mounts = [line.split() for line in read("/proc/mounts").splitlines()]
    options = next((set(line[3].split(",")) for line in mounts if line[1] == "/dev/hugepages-2Mi"), set())
    wanted = {"pagesize=2M", "size=67108864", "mode=770"}
    expect("hugetlbfs on /dev/hugepages-2Mi", options & wanted, wanted)
    expect("kernel.pid_max", read("/proc/sys/kernel/pid_max"), "65536")
    expect("kernel.threads-max", read("/proc/sys/kernel/threads-max"), "16384")
    expect("corral.slice pids.max", read(f"{PIDS}/corral.slice/pids.max"), "4096")
    own = ("corral-reconcile.timer", "corral-reconcile.path", "corral-boot.service")
    machine, *agent = shown("machine.slice", *own)
    expect("machine.slice TasksMax", machine.get("TasksMax"), "4096")
    for unit, found in zip(own, agent):
        expect(f"{unit} is enabled", found.get("UnitFileState"), "enabled")
    for unit, found in zip(own[:2], agent):
        expect(unit, found.get("ActiveState"), "active")
    expect("failed units", run("systemctl", "list-units", "--failed", "--no-legend", "--plain"), "")
    print("\n".join(failures) or f"{looked} facts are as declared")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:4]))
