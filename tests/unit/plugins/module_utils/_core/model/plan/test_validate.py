# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The validator: where a plan may write, and how many pages it may ask for; each kind of step, on both sides of the line."""

from __future__ import annotations

import pytest
from _core.model.plan import validate
from _core.model.plan.plan import FILES, Step
from machines import GIB_KIB, machine

CGROUP = "/sys/fs/cgroup"
NODE = "/sys/devices/system/node/node{}/hugepages/hugepages-{}kB/nr_hugepages"
EVERYWHERE = "/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages"


def step(kind: str, target: str, value: str | None = "x", where: str = "") -> Step:
    return Step(kind, target, value, FILES, where=where)


ALLOWED = [
    step("file", "/etc/systemd/system/user.slice.d/10-corral-cpu.conf"),
    step("file", "/etc/systemd/system/corral-reconcile.timer"),
    step("link", "/etc/systemd/system/timers.target.wants/corral-reconcile.timer"),
    step("file", "/etc/systemd/system.conf.d/10-corral-pids.conf"),
    step("file", "/run/systemd/system.control/system.slice.d/50-AllowedCPUs.conf", None),
    step("file", "/etc/sysctl.d/90-corral.conf"),
    step("file", "/etc/corral/profile.json"),
    step("file", "/var/lib/corral/checkpoint.json"),
    step("file", "/run/corral/gc.json", None),
    step("file", "/srv/metrics/corral.prom", None),
    step("link", "/usr/local/bin/corral"),
    step("compile", "/usr/libexec/corral"),
    step("value", "/proc/sys/kernel/pid_max"),
    step("value", "/proc/77/oom_score_adj"),
    step("value", f"{CGROUP}/corral_a.slice/hugetlb.2MB.max"),
    step("pool", NODE.format(0, 2048), "1"),
    step("folder", "/mnt/huge", None),
    step("partition", f"{CGROUP}/corral_a.slice/cpuset.cpus.partition", "root"),
    step("controller", f"{CGROUP}/cgroup.subtree_control", "+hugetlb"),
    step("cpuset", f"{CGROUP}/cpuset/system.slice", "0-1", "system.slice"),
    step("property", "system.slice", "AllowedCPUs=0-1"),
    step("unit", "corral-reconcile.timer", "start"),
    step("unit", "", "daemon-reload"),
]

REFUSED = [
    step("file", "/etc/passwd"),
    step("file", "/etc/systemd/system.conf"),
    step("file", "/etc/systemd/system/a.service.d/more/10-corral.conf"),
    step("file", "/etc/systemd/system/../../cron.d"),
    step("file", "/etc/corral/../shadow"),
    step("file", "/etc/sysctl.d/99-admin.conf", None),
    step("file", "/usr/libexec/corral/../../bin/sh"),
    step("file", "/usr/libexec/corral2/main.py"),
    step("file", "/run/systemd/system.control/system.slice.d/50-Delegate.conf", None),
    step("file", "/run/corral/gc.json"),  # A plan may remove it, not write it.
    step("file", "/srv/metrics/corral.prom"),
    step("file", "/srv/metrics/node.prom", None),
    step("file", "/var/lib/corral/checkpoint.json\n", None),
    step("link", "/usr/local/bin/corral2"),
    step("value", "/proc/sys/kernel/core_pattern"),
    step("value", "/proc/self/oom_score_adj"),
    step("value", f"{CGROUP}/system.slice/hugetlb.2MB.max"),
    step("value", f"{CGROUP}/system.slice/cpuset.cpus"),
    step("pool", "/proc/sys/vm/nr_hugepages", "1"),
    step("compile", "/usr/lib/python3"),
    step("folder", "mnt/huge", None),
    step("folder", "/mnt/../etc", None),
    step("partition", f"{CGROUP}/system.slice/cpuset.cpus.partition", "root"),
    step("partition", f"{CGROUP}/corral_a.slice/inner/cpuset.cpus.partition", "root"),
    step("partition", f"{CGROUP}/corral_a.slice/cpuset.cpus.partition", "root invalid"),
    step("controller", f"{CGROUP}/system.slice/cgroup.subtree_control", "+hugetlb"),
    step("controller", f"{CGROUP}/cgroup.subtree_control", "-cpuset"),
    step("cpuset", f"{CGROUP}/cpuset/docker", "0-1"),
    step("cpuset", f"{CGROUP}/cpuset/system.slice", "0-1", "user.slice"),
    step("cpuset", f"{CGROUP}/cpuset/..slice/../a.slice", "0-1"),
    step("property", "--now.slice", "AllowedCPUs=0-1"),
    step("property", "system", "AllowedCPUs=0-1"),
    step("property", "a b.slice", "AllowedCPUs=0-1"),
    step("unit", "sshd.socket", "stop"),
    step("unit", "", "poweroff"),
    step("anything", "/etc/passwd"),
]


@pytest.mark.parametrize("one", ALLOWED, ids=lambda one: f"{one.kind} {one.target}")
def test_a_step_within_corrals_places(one: Step) -> None:
    assert validate.problems([one], machine()) == []


@pytest.mark.parametrize("one", REFUSED, ids=lambda one: f"{one.kind} {one.target!r} {one.value}")
def test_a_step_outside_corrals_places(one: Step) -> None:
    (problem,) = validate.problems([*ALLOWED, one], machine())
    assert (problem.path, problem.value) == (one.target, one.value)
    assert f"({one.kind})" in problem.message


def pools(*asked: tuple[str, int]) -> list[str]:
    """What is said of pools of so many pages on the lab's machine: 1 GiB on each of two nodes."""
    found = validate.problems([step("pool", path, str(count)) for path, count in asked], machine())
    return [problem.line() for problem in found]


def test_pools_of_all_sizes_together_fit_their_nodes_memory() -> None:
    half = GIB_KIB // 2048 // 2
    whole = [(NODE.format(0, 2048), 2 * half), (NODE.format(1, 2048), 2 * half)]
    assert pools(*whole, (EVERYWHERE.format(2048), 4 * half)) == []
    (line,) = pools(*whole, (NODE.format(0, 1048576), 1))
    assert "NUMA node 0 has 1048576 KiB" in line
    (line,) = pools((EVERYWHERE.format(2048), 4 * half + 1))
    assert "this machine has 2097152 KiB" in line


def test_a_pool_of_a_node_that_is_not_there() -> None:
    (line,) = pools((NODE.format(7, 2048), 1))
    assert "this machine has no NUMA node 7" in line


def test_a_machine_that_does_not_tell_its_memory_refuses_no_pool() -> None:
    asked = [step("pool", NODE.format(0, 2048), "999999999")]
    assert validate.problems(asked, machine(memory_kib=None)) == []
    assert validate.problems(asked, None) == []
