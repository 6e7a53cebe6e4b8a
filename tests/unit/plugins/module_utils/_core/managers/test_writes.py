# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where each manager may write, on both sides of the line; no other manager may write there, but for what several share."""

from __future__ import annotations

import pytest
from _core.managers import registry
from _core.model.plan import undo, validate
from _core.model.plan.places import covering
from _core.model.plan.plan import Step
from _core.model.plan.undo import Original
from text_step import step

CGROUP = "/sys/fs/cgroup"
SYSTEM = "/etc/systemd/system"
POOL = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"


ALLOWED: dict[str, list[Step]] = {
    "profile": [step("file", "/etc/corral/profile.json"), step("file", "/etc/corral/origins.json", None)],
    "cpu": [
        step("file", f"{SYSTEM}/user.slice.d/10-corral-cpu.conf"),
        step("file", "/run/systemd/system.control/system.slice.d/50-AllowedCPUs.conf", None),
        step("property", "system.slice", "AllowedCPUs=0-1"),
        step("property", "mine.service", "AllowedCPUs=0-1"),
        step("partition", f"{CGROUP}/corral_a.slice/cpuset.cpus.partition", "root"),
        step("cpuset", f"{CGROUP}/cpuset/system.slice", "0-1", "system.slice"),
        step("unit", "machine.slice", "start"),
    ],
    "memory": [
        step("pool", POOL, "1"),
        step("pool", "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1"),
        step("file", f"{SYSTEM}/dev-huge.mount"),
        step("mount", "dev-huge.mount", "restart"),
    ],
    "pids": [
        step("value", "/proc/sys/kernel/pid_max"),
        step("file", "/etc/sysctl.d/90-corral.conf"),
        step("file", "/etc/systemd/system.conf.d/10-corral.conf"),
        step("file", f"{SYSTEM}/user.slice.d/10-corral-pids.conf"),
        step("property", "user.slice", "TasksMax=9"),
    ],
    "gc": [
        step("file", f"{SYSTEM}/corral-gc.timer"),
        step("link", f"{SYSTEM}/timers.target.wants/corral-gc.timer"),
        step("unit", "corral-gc.timer", "restart"),
        step("file", "/run/corral/gc.json", None),
        step("file", "/var/lib/corral/gc.json.previous", None),
    ],
    "conflicts": [],
    "kubelet": [
        step("file", "/etc/kubernetes/kubelet.conf.d/20-corral.conf"),
        step("file", "/var/lib/kubelet/config.yaml"),
        step("file", "/etc/kubernetes/kubelet-config.yaml"),
        step("file", "/etc/kubernetes/kubelet/config.json"),
        step("file", "/var/lib/kubelet/cpu_manager_state", None),
        step("file", "/mnt/kubelet/memory_manager_state.corral-memory-20261125T170000Z"),
        step("file", "/var/lib/corral/kubelet.json"),
        step("file", "/run/corral/kubelet-due", None),
        step("unit", "kubelet.service", "stop"),
        step("health", "kubelet.service", "127.0.0.1:10248"),
        step("hook", "/usr/local/sbin/drain-node", "drain"),
    ],
    "workloads": [
        step("file", "/var/lib/corral/checkpoint.json"),
        step("file", "/var/lib/corral/admitted.json.previous", None),
        step("file", f"{SYSTEM}/web@.service.d/10-corral-workloads.conf"),
        step("file", f"{SYSTEM}/corral-grant@.service"),
        step("file", f"{SYSTEM}/corral-regrant@.service"),
        step("file", "/run/corral/granted-x", None),
        step("property", "corral-a.slice", "MemoryMax=1024"),
        step("value", "/proc/77/oom_score_adj"),
        step("value", f"{CGROUP}/corral_a.slice/hugetlb.2MB.max"),
        step("controller", f"{CGROUP}/cgroup.subtree_control", "+hugetlb"),
        step("value", f"{CGROUP}/corral.slice/corral-t.slice/corral-t-a.slice/hugetlb.2MB.max"),
        step("controller", f"{CGROUP}/corral.slice/corral-t.slice/cgroup.subtree_control", "+hugetlb"),
        step("property", "corral-t.slice", "MemoryMax=1"),
    ],
    "devices": [
        step("file", "/run/corral/devices/a.service.env"),
        step("file", "/run/cdi/corral.node-grant.json", None),
        step("property", "a.service", "DeviceAllow=/dev/vfio/7 rwm\nchar-tun rw"),
        step("property", "a.service", "DeviceAllow="),
        step("driver", "/sys/bus/pci/devices/0000:3b:00.0", "vfio-pci"),
        step("driver", "/sys/bus/pci/devices/10000:e1:00.0", None),
        step("file", "/run/systemd/system.control/a.service.d/50-DeviceAllow.conf", None),
    ],
    "checks": [
        step("file", f"{SYSTEM}/corral-device-checks.timer"),
        step("file", f"{SYSTEM}/corral-device-checks.service"),
        step("link", f"{SYSTEM}/timers.target.wants/corral-device-checks.timer"),
        step("unit", "corral-device-checks.timer", "restart"),
        step("file", "/run/corral/device-checks.json", None),
    ],
    "agent": [
        step("file", f"{SYSTEM}/corral-reconcile.timer"),
        step("link", f"{SYSTEM}/timers.target.wants/corral-reconcile.timer"),
        step("unit", "corral-reconcile.timer", "start"),
        step("file", "/usr/libexec/corral/_core/main.py"),
        step("compile", "/usr/libexec/corral"),
        step("link", "/usr/local/bin/corral"),
        step("link", "/etc/ansible/facts.d/corral.fact"),
        step("file", "/etc/corral/agent.json"),
        step("file", "/srv/metrics/corral.prom", None),
    ],
}
REFUSED = [
    step("driver", "/sys/bus/pci/devices/0000:3b:00.0", "i40e"),
    step("driver", "/sys/bus/pci/devices/0000:3b:00.0/../0000:3b:00.1", "vfio-pci"),
    step("driver", "/sys/bus/pci/drivers/i40e", None),
    step("file", "/usr/bin/kubelet"),
    step("file", "/etc/systemd/system/kubelet.service"),
    step("file", "/etc/kubernetes/kubelet.conf.d/99-cloud.conf"),
    step("file", "/var/lib/kubelet/cpu_manager_state"),  # It may be removed, not written.
    step("file", "/etc/containerd/config.yaml"),
    step("unit", "kubelet.service", "restart"),
    step("health", "sshd.service", "127.0.0.1:22"),
    step("hook", "/usr/local/sbin/drain-node", "reboot"),
    step("hook", "drain-node", "drain"),
    step("file", "/etc/passwd"),
    step("file", "/etc/systemd/system.conf"),
    step("file", f"{SYSTEM}/a.service.d/more/10-corral.conf"),
    step("file", f"{SYSTEM}/a.service.d/20-mine.conf"),
    step("file", f"{SYSTEM}/sshd.service", None),
    step("file", f"{SYSTEM}/../../cron.d"),
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
    step("link", "/etc/ansible/facts.d/other.fact"),
    step("value", "/proc/sys/kernel/core_pattern"),
    step("value", "/proc/self/oom_score_adj"),
    step("value", f"{CGROUP}/system.slice/hugetlb.2MB.max"),
    step("value", f"{CGROUP}/corral.slice/corral-t.slice/other/corral-t-a.slice/hugetlb.2MB.max"),
    step("value", f"{CGROUP}/system.slice/cpuset.cpus"),
    step("pool", "/proc/sys/vm/nr_hugepages", "1"),
    step("compile", "/usr/lib/python3"),
    step("partition", f"{CGROUP}/system.slice/cpuset.cpus.partition", "root"),
    step("partition", f"{CGROUP}/corral_a.slice/inner/cpuset.cpus.partition", "root"),
    step("partition", f"{CGROUP}/corral_a.slice/cpuset.cpus.partition", "root invalid"),
    step("controller", f"{CGROUP}/system.slice/cgroup.subtree_control", "+hugetlb"),
    step("controller", f"{CGROUP}/cgroup.subtree_control", "-cpuset"),
    step("cpuset", f"{CGROUP}/cpuset/docker", "0-1"),
    step("cpuset", f"{CGROUP}/cpuset/..slice/../a.slice", "0-1"),
    step("property", "system", "AllowedCPUs=0-1"),
    step("property", "a.slice", "DeviceAllow=/dev/vfio/7 rwm"),
    step("property", "a.service", "DeviceAllow=/etc/shadow rwm"),
    step("property", "a.service", "DeviceAllow=/dev/a rwm\n\n/etc/b r"),
    step("property", "a.service", "DevicePolicy=auto"),
    step("file", "/run/corral/devices/../status.json"),
    step("file", "/run/corral/devices/a.conf"),
    step("file", "/run/cdi/vendor.json", None),
    step("property", "system.slice", "Delegate=yes"),
    step("property", "system.slice", "MemoryMax=1"),
    step("unit", "sshd.service", "stop"),
    step("unit", "", "poweroff"),
]
CASES = [(name, one) for name, steps in ALLOWED.items() for one in steps]


def allowed(one: Step) -> set[str]:
    """The managers that may plan a step."""
    return {
        manager.name for manager in registry.every() if not validate.place_problems(manager.name, one, manager.writes)
    }


def test_every_manager_is_looked_at() -> None:
    assert tuple(ALLOWED) == registry.names()


@pytest.mark.parametrize(("name", "one"), CASES, ids=lambda part: part if isinstance(part, str) else part.target)
def test_a_place_is_one_managers(name: str, one: Step) -> None:
    assert allowed(one) == {name}


@pytest.mark.parametrize("one", REFUSED, ids=lambda one: f"{one.kind} {one.target!r} {one.value}")
def test_a_place_that_is_no_managers(one: Step) -> None:
    assert allowed(one) == set()


ORIGINALS = {
    "absent": {},
    "a value": {"value": "7", "active": True},
    "a link": {"link": "/dev/null"},
    "set by systemctl": {"value": "7", "runtime": "[Slice]\nTasksMax=7\n", "active": True},
    "folders were made": {"made": ("/etc/a", "/etc/a/b")},
}


@pytest.mark.parametrize("was", ORIGINALS)
@pytest.mark.parametrize(("name", "one"), CASES, ids=lambda part: part if isinstance(part, str) else part.target)
def test_a_manager_may_bring_back_what_it_may_write(name: str, one: Step, was: str) -> None:
    written = registry.manager(name).writes
    place = covering(written, one)
    assert place is not None
    if place.volatile:
        return
    before = Original(one.kind, one.target, "/huge" if one.kind == "mount" else one.name, **ORIGINALS[was])
    if one.kind == "partition" and before.value:
        before = before._replace(value="root")
    back = undo.restore_recorded(before, "0-7")
    assert [step for step in back if validate.place_problems(name, step, written)] == []


VOLATILE = {
    step("file", "/var/lib/corral/checkpoint.json.damaged"): "workloads",
    step("value", "/proc/7/oom_score_adj"): "workloads",
    step("value", f"{CGROUP}/corral.slice/corral-a.slice/hugetlb.2MB.max"): "workloads",
    step("controller", f"{CGROUP}/corral.slice/cgroup.subtree_control", "+hugetlb"): "workloads",
    step("unit", "corral_a.slice", "stop"): "cpu",
    step("unit", "corral-a.slice", "stop"): "workloads",
    step("file", "/run/corral/gc-drift.json", None): "gc",
}
LASTING = {
    step("controller", f"{CGROUP}/cgroup.subtree_control", "+hugetlb"): "workloads",
    step("unit", "corral-a.slice", "start"): "workloads",
    step("unit", "corral_isolated.slice", "stop"): "cpu",
    step("unit", "corral_a.slice", "start"): "cpu",
    step("partition", f"{CGROUP}/corral_a.slice/cpuset.cpus.partition", "root"): "cpu",
    step("value", "/proc/sys/kernel/pid_max"): "pids",
}


@pytest.mark.parametrize("one", [*VOLATILE, *LASTING], ids=lambda one: f"{one.kind} {one.target} {one.value}")
def test_what_has_no_original(one: Step) -> None:
    place = covering(registry.manager({**VOLATILE, **LASTING}[one]).writes, one)
    assert place is not None
    assert place.volatile == (one in VOLATILE)
