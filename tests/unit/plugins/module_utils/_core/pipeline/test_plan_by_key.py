# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan by the keys that were edited: what each makes of the node, and what is drift."""

from __future__ import annotations

import typing as t

import fake_kubelet
import node
import runs
from _core.host import state
from _core.model.profile import profile
from _core.pipeline import planning
from _core.reports import plan_by_key


def plan(fake: node.Node, **sections: t.Any) -> list[t.Any]:
    host = fake.host()
    declared = profile.parse(node.edge(**sections))
    context = planning.compile_profile(host, declared, fresh=True)
    found = planning.plan_profile(host, context, declare=True)
    applied = state.read_json(host, state.APPLIED)
    drifted = planning.drifted_from(host, applied) if applied is not None else frozenset[tuple[str, str, str]]()
    return t.cast("list[t.Any]", plan_by_key.of_plan(context, found.changes, applied, drifted))


def test_a_first_profile_is_told_by_its_sections(fake: node.Node) -> None:
    found = plan(fake)
    assert {one["kind"] for one in found} == {"first"}
    assert {"cpu.reserved", "cpu.isolated", "memory.hugepages", "memory.mounts[0]"} <= {one["key"] for one in found}
    assert [one["key"] for one in found if not one["changes"]] == [], "each section has its own"
    shared = next(one for one in found if one["key"] == "cpu")
    assert any("machine.slice AllowedCPUs" in line for line in shared["changes"])
    changes = [line for one in found for line in one["changes"]]
    assert changes and len(changes) == len(set(changes)), "each change once"
    assert not [line for line in changes if "/etc/corral/" in line], "the declaration itself follows from every key"


def test_an_edited_key_has_what_follows_from_it(converged: node.Node) -> None:
    isolated = {"cores": 1, "numa": 0}
    found = plan(converged, cpu={"reserved": {"cores_per_numa": 1}, "isolated": isolated, "whole_cores": True})
    keys = {one["key"]: one for one in found}
    assert set(keys) == {"cpu.isolated.numa", "cpu.isolated.optional"}, "what was edited, and no drift"
    numa = keys["cpu.isolated.numa"]
    assert (numa["kind"], numa["before"], numa["after"]) == ("edited", "last", 0)
    assert any("corral_isolated.slice AllowedCPUs" in line for one in found for line in one["changes"])


def test_an_upgrade_of_corrals_own_units_is_no_drift_of_the_profile(fake: node.Node) -> None:
    sections = {"gc": {"containers": {"interval": "1h"}}, "cpu": {"reserved": {"cores_per_numa": 1}}}
    assert not runs.declare(fake.host(), **sections).error
    unit = "/etc/systemd/system/corral-gc.service"
    text = fake.host().read(unit) or ""
    fake.put(unit, text.replace("NoNewPrivileges=yes\n", ""))  # as an earlier release wrote it
    (found,) = plan(fake, **sections)
    assert (found["kind"], found["key"], len(found["changes"])) == ("own", "", 1)
    assert unit in found["changes"][0]
    assert "NoNewPrivileges" in text


def test_only_units_of_corrals_own_are_no_drift() -> None:
    """Drift stops a rollout where it is to be asked for."""
    for name in ("web.service", "corral-gc.service.d/50-x.conf", "corral.slice", "corral-grant@.service/x"):
        assert plan_by_key.OWN_UNIT.fullmatch(f"/etc/systemd/system/{name}") is None
    assert plan_by_key.OWN_UNIT.fullmatch("/etc/systemd/system/corral-grant@.service")


def workload(name: str, cpu: int) -> dict[str, t.Any]:
    return {"name": name, "match": {"unit": f"{name}.service"}, "limits": {"cpu": cpu, "memory": "16Mi"}}


def test_a_workload_is_the_same_in_another_place_of_the_list(fake: node.Node) -> None:
    lane, extra = workload("lane", 1), workload("extra", 1)
    cpu = {"reserved": {"cores_per_numa": 1}, "policy": "static"}
    assert not runs.declare(fake.host(), cpu=cpu, workloads=[lane]).error
    found = plan(fake, cpu=cpu, workloads=[extra, lane])
    assert {one["key"].partition(".")[0] for one in found} == {"workloads[extra]"}
    found = plan(fake, cpu=cpu, workloads=[workload("lane", 2)])
    assert {one["key"] for one in found} == {"workloads[lane].limits.cpu", "workloads[lane].requests.cpu"}
    assert any("corral_lane.slice" in line for one in found for line in one["changes"])
    assert {one["key"].partition(".")[0] for one in plan(fake, cpu=cpu)} == {"workloads[lane]"}


def test_what_no_edited_key_explains_is_drift(converged: node.Node) -> None:
    converged.put("/proc/sys/kernel/pid_max", "70000\n")
    assert [(one["kind"], one["key"]) for one in plan(converged)] == [("drift", "")]
    found = plan(
        converged, pids={"pid_max": 65536, "threads_max": 16384, "reserved": 4096, "slices": {"machine.slice": 4000}}
    )
    assert [(one["kind"], one["key"]) for one in found] == [
        ("edited", 'pids.slices["corral.slice"]'), ("edited", 'pids.slices["machine.slice"]'), ("drift", ""),
    ]  # fmt: skip
    assert "kernel.pid_max" in found[-1]["changes"][0]


def test_nothing_edited_and_no_drift_is_nothing(converged: node.Node) -> None:
    assert plan(converged) == []


def test_what_follows_from_a_key_of_another_section_is_no_drift(fake: node.Node) -> None:
    """More reserved CPUs move the isolated ones, whose own keys were not edited."""
    isolated = {"cores": 1}
    assert not runs.declare(fake.host(), cpu={"reserved": {"cpus": "0,4"}, "isolated": isolated}).error
    found = plan(fake, cpu={"reserved": {"cpus": "0-1,4-5"}, "isolated": isolated})
    assert [(one["kind"], one["key"]) for one in found] == [("edited", "cpu.reserved.cpus")]
    assert any("corral_isolated.slice AllowedCPUs: 1,5 -> " in line for line in found[0]["changes"])


def test_a_setting_that_was_changed_by_hand_and_edited_is_drift(converged: node.Node) -> None:
    converged.put("/proc/sys/kernel/pid_max", "70000\n")
    pids = {
        "pid_max": 80000,
        "threads_max": 16384,
        "reserved": 4096,
        "slices": {"machine.slice": 4096, "corral.slice": 4096},
    }
    found = {one["kind"]: one for one in plan(converged, pids=pids)}
    assert set(found) == {"edited", "drift"}
    assert "kernel.pid_max value: 70000 -> 80000" in found["drift"]["changes"][0]


def test_a_key_has_the_most_that_its_changes_disturb(fake: node.Node) -> None:
    fake_kubelet.install(fake)
    runs.converged(fake)
    found = {one["key"]: one for one in plan(fake, kubelet={"max_pods": 50}, pids=None)}
    pods = found["kubelet.max_pods"]
    assert (pods["before"], pods["after"], pods["disruption"]) == (None, 50, "service restart")
    assert any("[service restart]" in line for line in pods["changes"])
    assert {one["disruption"] for key, one in found.items() if key.startswith("pids.")} == {"none"}
