# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other owners of the same values: who fights is a drift item with a way out, who is merely there is a note."""

from __future__ import annotations

import typing as t

import node
import pytest
import runs
from _core.host.agent import other_agents
from _core.model.plan.plan import Change, Plan
from _core.pipeline import planning, preflight_notes

SYSTEM_SLICE = "/sys/fs/cgroup/system.slice"

# As tuned 2.x installs and runs them.
CPU_PARTITIONING = """\
[main]
summary=Optimize for CPU partitioning
include=network-latency

[variables]
# User is responsible for updating variables.conf with variable content such as isolated_cores=X-Y
include=/etc/tuned/cpu-partitioning-variables.conf
isolated_cores_assert_check = \\\\${isolated_cores}

[sysctl]
kernel.hung_task_timeout_secs = 600
kernel.nmi_watchdog = 0
vm.stat_interval = 10
kernel.timer_migration = 1
"""
NETWORK_LATENCY = (
    "[main]\nsummary=Latency\n\n[sysctl]\nkernel.pid_max=70000\nvm.nr_hugepages = 500\nkernel.threads-max=>1000\n"
)
VARIABLES = "# Examples:\n# isolated_cores=2,4-7\nisolated_cores=3,5-7\n"

# Debian 12's /etc/default/irqbalance, a line set.
IRQBALANCE = """\
# irqbalance is a daemon process that distributes interrupts across
# CPUs on SMP systems.
#IRQBALANCE_ONESHOT=

#
# IRQBALANCE_BANNED_CPUS
#    64 bit bitmask which allows you to indicate which CPUs should be skipped
#
#IRQBALANCE_BANNED_CPUS=
{line}
"""

# What kubeadm writes, with a CPU manager.
KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
cgroupDriver: systemd
cpuManagerPolicy: {policy} # set by the platform team
cpuManagerReconcilePeriod: 0s
kind: KubeletConfiguration
reservedSystemCPUs: "{reserved}"
"""


def run_service(fake: node.Node, name: str) -> None:
    fake.put(f"{SYSTEM_SLICE}/{name}/cgroup.events", "populated 1\nfrozen 0\n")


def run_tuned(fake: node.Node, network: str = NETWORK_LATENCY) -> None:
    run_service(fake, "tuned.service")
    fake.put("/etc/tuned/active_profile", "cpu-partitioning\n")
    fake.put("/usr/lib/tuned/cpu-partitioning/tuned.conf", CPU_PARTITIONING)
    fake.put("/usr/lib/tuned/network-latency/tuned.conf", network)
    fake.put("/etc/tuned/cpu-partitioning-variables.conf", VARIABLES)
    fake.put("/proc/meminfo", fake.get("/proc/meminfo") + "Hugepagesize:       2048 kB\n")


def run_kubelet(fake: node.Node, policy: str = "static", reserved: str = "0-1") -> None:
    run_service(fake, "kubelet.service")
    fake.put("/var/lib/kubelet/config.yaml", KUBELET.format(policy=policy, reserved=reserved))


def run_irqbalance(fake: node.Node, line: str = "") -> None:
    run_service(fake, "irqbalance.service")
    fake.put("/etc/default/irqbalance", IRQBALANCE.format(line=line))


def planned(fake: node.Node, **sections: t.Any) -> Plan:
    context = planning.compile_profile(fake.host(), node.parsed(**sections))
    plan = planning.plan_profile(fake.host(), context)
    return plan._replace(notes=preflight_notes.notes(fake.host(), context))


def named(changes: t.Iterable[Change]) -> list[tuple[str, str, str | None, str | None, str]]:
    ours = [row for row in changes if "tuned" in row.property or "kubelet" in row.subject]
    return [(row.manager, row.subject, row.actual, row.wanted, row.location) for row in ours]


def test_tuned_that_sets_other_values_is_drift_and_names_its_files(fake: node.Node) -> None:
    run_tuned(fake)
    plan = planned(fake)
    file = "/usr/lib/tuned/network-latency/tuned.conf"
    assert named(plan.changes) == [
        ("pids", "kernel.pid_max", "70000", "65536", file),
        ("memory", "vm.nr_hugepages", "500", "64", file),
    ]
    assert all(row.verdict == "unchangeable" for row in plan.changes if "tuned" in row.reason)
    assert any("tuned runs with the profile cpu-partitioning" in note for note in plan.notes)
    assert any("isolated_cores=3,5-7, the profile isolates 3,7" in note for note in plan.notes)


def test_tuned_that_sets_the_same_values_is_a_note(fake: node.Node) -> None:
    run_tuned(fake, "[sysctl]\nkernel.pid_max=65536\nvm.nr_hugepages=64\nkernel.threads-max=>9000\n")
    plan = planned(fake)
    assert named(plan.changes) == []
    assert "tuned runs" in plan.notes[0]


def test_a_tuned_that_does_not_run_is_nobody(fake: node.Node) -> None:
    run_tuned(fake)
    fake.put(f"{SYSTEM_SLICE}/tuned.service/cgroup.events", "populated 0\n")
    assert (named(planned(fake).changes), planned(fake).notes) == ([], ())


def test_profiles_of_tuned_that_include_each_other_come_to_an_end(fake: node.Node) -> None:
    run_tuned(fake, "[main]\ninclude=cpu-partitioning\n[sysctl]\nkernel.pid_max=7\n")
    found = other_agents.tuned(fake.host())
    assert found is not None
    assert found.sysctls["kernel.pid_max"].value == "7"


KUBELETS = {
    "grants what is not for workloads": ("static", "0-1", [("cpu", "kubelet.service", "0-1", "0,2-4,6-7")]),
    "grants what the shared pool has": ("static", "0,2-4,6-7", []),
    "reserves more than that": ("static", "0-4,6-7", []),
    "no policy": ("none", "0-1", []),
}


@pytest.mark.parametrize("name", KUBELETS)
def test_a_kubelet(name: str, fake: node.Node) -> None:
    policy, reserved, wanted = KUBELETS[name]
    run_kubelet(fake, policy, reserved)
    assert [row[:4] for row in named(planned(fake).changes)] == wanted
    assert any("a kubelet runs" in note for note in planned(fake).notes) == (policy == "none")
    assert named(planned(fake, cpu=None).changes) == []


def test_a_kubelet_with_json(fake: node.Node) -> None:
    run_kubelet(fake)
    fake.put(
        "/var/lib/kubelet/config.yaml",
        '{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",\n'
        '"cpuManagerPolicy": "static",\n"reservedSystemCPUs": "0-3"}',
    )
    found = other_agents.kubelet(fake.host())
    assert found is not None
    assert (found.policy, found.reserved) == ("static", frozenset(range(4)))


IRQBALANCES = {
    "": "3,7",
    "IRQBALANCE_BANNED_CPULIST=7": "3",
    'IRQBALANCE_BANNED_CPULIST="3,7"': None,
    "IRQBALANCE_BANNED_CPUS=00000088": None,
    "IRQBALANCE_BANNED_CPUS=00000000,00000008": "7",
    "IRQBALANCE_BANNED_CPULIST=-": "3,7",
}


@pytest.mark.parametrize("line", IRQBALANCES)
def test_irqbalance_is_named_for_the_isolated_cpus_that_it_may_use(line: str, fake: node.Node) -> None:
    run_irqbalance(fake, line)
    exposed = [
        note.partition("isolated CPUs ")[2].partition(":")[0] for note in planned(fake).notes if "irqbalance" in note
    ]
    assert exposed == ([IRQBALANCES[line]] if IRQBALANCES[line] else [])


def test_irqbalance_leaves_the_cpus_alone_that_its_unit_or_the_kernel_bans(
    fake: node.Node, make: t.Callable[..., node.Node]
) -> None:
    run_irqbalance(fake)
    fake.put(
        "/etc/systemd/system/irqbalance.service.d/cpus.conf", '[Service]\nEnvironment="IRQBALANCE_BANNED_CPULIST=3,7"\n'
    )
    assert planned(fake).notes == ()
    nobody_isolated = make()
    run_irqbalance(nobody_isolated)
    assert planned(nobody_isolated, cpu={"reserved": {"count": 2}}).notes == ()


def test_numad_and_a_sysctl_of_hugepages_are_notes(fake: node.Node) -> None:
    run_service(fake, "numad.service")
    fake.put("/proc/meminfo", fake.get("/proc/meminfo") + "Hugepagesize:       2048 kB\n")
    fake.put("/etc/sysctl.d/30-db.conf", "vm.nr_hugepages=100\n")
    notes = planned(fake).notes
    assert [note.split()[0] for note in notes] == ["numad", "/etc/sysctl.d/30-db.conf"]
    fake.put("/etc/sysctl.d/30-db.conf", "vm.nr_hugepages=64\n")
    assert len(planned(fake).notes) == 1


def test_control_groups_that_systemd_does_not_know_are_out_of_place(converged: node.Node) -> None:
    converged.put("/sys/fs/cgroup/cset/cgroup.events", "populated 1\n")
    converged.put("/sys/fs/cgroup/empty/cgroup.events", "populated 0\n")
    converged.put("/sys/fs/cgroup/dev-x.mount/cgroup.events", "populated 1\n")
    item, mount = runs.plan(converged.host())
    assert (item.subject, item.verdict, "cset" in item.reason) == ("cset", "unchangeable", True)
    assert (mount.subject, mount.verdict) == ("dev-x.mount", "unchangeable")


def test_a_fight_lasts_in_the_drift_report_and_the_node_is_mended_all_the_same(with_agent: node.Node) -> None:
    run_tuned(with_agent)
    with_agent.kernel_write("/proc/sys/kernel/pid_max", "70000")
    assert runs.tick(with_agent.host()) == 2
    assert with_agent.get("/proc/sys/kernel/pid_max") == "65536\n"
    assert [row[1] for row in named(runs.plan(with_agent.host()))] == ["kernel.pid_max", "vm.nr_hugepages"]
