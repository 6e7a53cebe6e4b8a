# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with examples/edge.yml in mode enforce: tampers, looks, and lets one tick mend.

For each tampering the report must hold exactly one item, with what is, what was wanted and where: so what one tick
mended is mended when the next look finds one item again, and the last one none. The journal has one line more each
time. The lock keeps the timer's own ticks out while we look.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import typing as t

from on_node import PATIENCE

POOL = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
DROPIN = "/etc/systemd/system/user.slice.d/10-corral-cpu.conf"
CGROUP = "/sys/fs/cgroup"


class Tampering(t.NamedTuple):
    """What is done by a careless hand, and the one item that must come of it."""

    command: str
    subject: str
    property: str
    actual: str
    wanted: str
    place: str


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


def drift() -> tuple[int, list[dict[str, t.Any]]]:
    """What `corral drift` answers."""
    done = subprocess.run(
        ["corral", "drift", "--json"], capture_output=True, text=True, check=False, timeout=60 * PATIENCE
    )
    return done.returncode, json.loads(done.stdout)["changes"]


def journal() -> list[str]:
    """What the agent told the journal."""
    subprocess.run(["journalctl", "--sync"], check=False, timeout=60 * PATIENCE)
    command = ["journalctl", "--unit=corral-reconcile.service", "--output=cat", "--quiet", "--no-pager"]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60 * PATIENCE
    ).stdout.splitlines()


def tamper(one: Tampering, told: list[str]) -> list[str]:
    """Tamper, look, mend; what was not as it must be. ``told`` grows by what the journal has."""
    with open("/run/corral/lock", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["sh", "-c", one.command], check=True, capture_output=True, timeout=60 * PATIENCE)
        code, items = drift()
    found = [tuple(str(item[key]) for key in ("subject", "property", "actual", "wanted", "place")) for item in items]
    wrong = [] if (code, found) == (2, [tuple(one[1:])]) else [f"{one.command}: exit {code}, items {found}"]
    subprocess.run(["systemctl", "start", "corral-reconcile.service"], check=False, timeout=120 * PATIENCE)
    lines = journal()[len(told) :]
    told += lines
    if len(lines) != 1 or not lines[0].startswith("changed ") or f" {one.subject} {one.property}: " not in lines[0]:
        wrong.append(f"{one.command}: the journal has {lines}")
    return wrong


def main() -> int:
    tamperings = TAMPERINGS if os.path.exists(f"{CGROUP}/cgroup.controllers") else LEGACY
    told = journal()
    wrong = [line for one in tamperings for line in tamper(one, told)]
    if (left := drift()) != (0, []):
        wrong.append(f"after the last tick: {left}")
    print("\n".join(wrong) or f"{len(tamperings)} tamperings: each was one item, and one tick mended it")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
