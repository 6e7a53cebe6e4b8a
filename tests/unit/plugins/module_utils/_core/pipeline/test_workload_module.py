# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module workload as Ansible runs it: admitted at run time beside those of the profile, refused, taken back."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
import typing as t

import node
import pytest
import runs
from _core.host import state
from _core.host.lock import Lock
from shared_data import REPOSITORY

pytest.importorskip("ansible.module_utils.basic")

DROPIN = "/etc/systemd/system/{}.d/10-corral-workloads.conf"
SLICE = "corral_dataplane.slice"
UNIT = {"unit": "dataplane.service"}
WHOLE = {"cpu": 2, "memory": "64Mi"}
FEED = {"name": "feed", "match": {"unit": "feed.service"}, "limits": {"cpu": "500m"}}
CPU = {"reserved": {"count": 2}, "policy": "static", "options": {"full-pcpus-only": True}}


def shell() -> t.Any:
    """The module's own code, as a package of another name; it brings a core of its own, which works on the same nodes."""
    package = types.ModuleType("corral_shell")
    package.__path__ = [str(REPOSITORY / "plugins" / "module_utils")]
    sys.modules.setdefault(package.__name__, package)
    return importlib.import_module(f"{package.__name__}._workload")


WORKLOAD = shell()


class Module:
    """What AnsibleModule is to the code: parameters in, warnings out."""

    def __init__(self, *, check: bool = False, **params: t.Any) -> None:
        common = {
            "state": "present",
            "hold": "declared",
            "lock_timeout": 1,
            "confirm_timeout": 0,
            "force": False,
            "adopt": None,
        }
        self.params: dict[str, t.Any] = {**dict.fromkeys(WORKLOAD.OPTIONS), **common, **params}
        self.check_mode, self._diff, self._verbosity = check, True, 0
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def task(fake: node.Node, name: str = "dataplane", *, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
    """One task of the module; its warnings come with the result."""
    module = Module(check=check, name=name, **params)
    result = t.cast("dict[str, t.Any]", WORKLOAD.workload_task(module, fake.host()))
    return {**result, "warnings": module.warnings}


def refused(fake: node.Node, name: str = "dataplane", **params: t.Any) -> str:
    """What the module says when it refuses."""
    before = fake.fingerprint("run/corral")
    with pytest.raises(WORKLOAD.CorralError) as error:
        task(fake, name, **params)
    assert fake.fingerprint("run/corral") == before
    return str(error.value)


def make_machine(fake: node.Node) -> None:
    """A node whose profile has pools and a workload that shares; a service that it does not name is there."""
    fake.put("/etc/systemd/system/dataplane.service", "[Service]\nExecStart=/bin/true\n")
    fake.put("/etc/systemd/system/feed.service", "[Service]\nExecStart=/bin/true\n")
    outcome = runs.declare(fake.host(), cpu=CPU, workloads=[FEED])
    assert (outcome.error, outcome.remaining) == ("", ())


@pytest.fixture
def machine(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_machine)


def grants(fake: node.Node) -> dict[str, str]:
    """The checkpoint: who has which CPUs of its own."""
    return {one["workload"]: one["cpus"] for one in state.checked(fake.host(), state.CHECKPOINT)["grants"]}


def admitted(fake: node.Node) -> list[str]:
    """Who was admitted at run time, in order."""
    return [one["name"] for one in state.checked(fake.host(), state.ADMITTED)] if fake.has(state.ADMITTED) else []


def test_a_workload_gets_its_own_and_the_same_again_changes_nothing(machine: node.Node) -> None:
    result = task(machine, match=UNIT, limits=WHOLE)
    assert (result["changed"], result["in_sync"], result["warnings"]) == (True, True, [])
    grant = result["grant"]
    assert (grant["state"], grant["cpus"], grant["qos"], grant["hold"]) == ("granted", "1,5", "Guaranteed", "declared")
    assert grant["requests"] == grant["limits"] == {"cpu": "2", "memory": "64Mi"}
    assert result["explanation"][0] == "dataplane: granted"
    assert result["report"][-1].startswith(f"{len(result['changes'])} changed (cpu, workloads)")
    assert (grants(machine), admitted(machine)) == ({"feed": "", "dataplane": "1,5"}, ["dataplane"])
    assert machine.cpus(SLICE) == {1, 5}
    assert machine.cpus("corral.slice") == {2, 3, 6, 7}
    assert f"Slice={SLICE}\n" in machine.get(DROPIN.format("dataplane.service"))
    before = machine.fingerprint()
    again = task(machine, match=UNIT, limits=WHOLE)
    assert (again["changed"], again["changes"], again["grant"]) == (False, [], grant)
    assert machine.fingerprint() == before
    assert machine.overlaps == []


def test_what_is_taken_back_leaves_nothing(machine: node.Node) -> None:
    before = machine.fingerprint(*node.STATE)
    task(machine, match=UNIT, limits=WHOLE)
    planned = task(machine, state="absent", check=True)
    result = task(machine, state="absent")
    assert (planned["changed"], result["changed"], result["in_sync"]) == (True, True, True)
    assert planned["changes"] == result["changes"]
    assert (result["grant"], result["explanation"]) == (None, [])
    assert (grants(machine), admitted(machine)) == ({"feed": ""}, [])
    assert node.different(before, machine.fingerprint(*node.STATE)) == []


def test_check_mode_says_the_same_and_writes_nothing(machine: node.Node) -> None:
    before = machine.fingerprint()
    planned = task(machine, check=True, match=UNIT, limits=WHOLE)
    assert machine.fingerprint() == before
    result = task(machine, match=UNIT, limits=WHOLE)
    assert planned["changed"]
    assert (planned["changes"], planned["diff"]) == (result["changes"], result["diff"])
    assert (planned["grant"], planned["explanation"]) == (result["grant"], result["explanation"])
    assert "workloads dataplane grant: CPUs 1,5\n" in planned["diff"]["after"]
    assert task(machine, check=True, match=UNIT, limits=WHOLE)["changed"] is False


def test_the_first_workload_of_a_node_needs_no_other(fake: node.Node) -> None:
    runs.declare(fake.host(), cpu=CPU)
    assert task(fake, match=UNIT, limits=WHOLE)["grant"]["cpus"] == "1,5"


def test_what_was_not_admitted_need_not_be_taken_back(fake: node.Node) -> None:
    before = fake.fingerprint()
    result = task(fake, state="absent")
    assert (result["changed"], result["changes"], result["grant"]) == (False, [], None)
    assert fake.fingerprint() == before


def test_what_is_declared_anew_replaces_what_was_and_keeps_its_place(machine: node.Node) -> None:
    task(machine, match=UNIT, limits=WHOLE)
    task(machine, "web", match={"pod": "web"}, limits={"cpu": "500m"})
    result = task(machine, match=UNIT, requests={"cpu": 1}, limits={"cpu": 2, "memory": "64Mi"})
    assert (result["grant"]["qos"], result["grant"]["cpus"]) == ("Burstable", "")
    assert result["grant"]["slice"] == "corral-dataplane.slice"
    assert (grants(machine), admitted(machine)) == ({"feed": "", "dataplane": "", "web": ""}, ["dataplane", "web"])
    assert machine.cpus("corral.slice") == {1, 2, 3, 5, 6, 7}
    assert task(machine, match=UNIT, requests={"cpu": 1}, limits={"cpu": 2, "memory": "64Mi"})["changed"] is False


def test_containers_of_a_pod_share_what_it_gets(machine: node.Node) -> None:
    containers = [
        {"name": "load", "role": "init", "requests": None, "limits": {"cpu": 2, "memory": "32Mi"}},
        {"name": "app", "role": "app", "requests": None, "limits": {"cpu": 2, "memory": "32Mi"}},
    ]
    grant = task(machine, "web", match={"pod": "web"}, containers=containers)["grant"]
    assert (grant["cpus"], grant["containers"]) == ("1,5", {"load": "1,5", "app": "1,5"})
    assert task(machine, "web", match={"pod": "web"}, containers=containers)["changed"] is False


def test_a_fraction_of_a_cpu_shares_and_is_warned_about(machine: node.Node) -> None:
    result = task(machine, match=UNIT, limits={"cpu": "1500m", "memory": "64Mi"})
    said = "workload dataplane: not a whole number of CPUs: it runs on the shared pool, as in the kubelet"
    assert (result["grant"]["cpus"], result["warnings"]) == ("", [said])


def test_a_refusal_names_the_options(machine: node.Node) -> None:
    assert refused(machine, match={"unit": "a.service", "pod": "b"}, limits=WHOLE) == (
        "match: declares unit and pod together: write exactly one of unit, container, pod, label"
    )
    assert (
        refused(machine, match=UNIT, limits={"cpu": "1/2", "memorry": "1Gi"})
        .splitlines()[0]
        .startswith("limits.cpu: 1/2: ")
    )
    assert refused(machine, match=UNIT, requests={"cpu": 3}, limits={"cpu": 2}) == (
        "requests.cpu: 3: is more than its limit (2): write at most that, or raise the limit"
    )
    assert refused(machine, match=UNIT, limits={"cpu": 6, "memory": "64Mi"}) == (
        "requests.cpu: 6: 500m missing: this node can give 6 in all, feed has 500m: "
        "ask for less, reserve less, or release one of them"
    )
    assert refused(machine, match=UNIT, limits={"cpu": 1, "memory": "64Mi"}).startswith(
        "requests.cpu: 1: SMT Alignment"
    )
    assert refused(machine, match=UNIT) == "requests: asks for nothing: write requests, limits or containers"
    assert refused(machine, match={"unit": "data*.service"}, limits=WHOLE).startswith(
        "match.unit: data*.service: may mean several units: "
    )
    assert refused(machine, match={"unit": "feed.service"}, limits=WHOLE).startswith(
        "match.unit: feed.service: is what the workload feed matches: change it in the node's profile, "
    )
    containers = [{"name": "app", "role": "app", "requests": {"cpu": 3}, "limits": {"cpu": 2}}]
    assert refused(machine, match={"pod": "web"}, containers=containers).startswith("containers[0].requests.cpu: 3: ")
    assert refused(machine, match=UNIT, containers=containers).startswith("containers: belong to a pod: ")


@pytest.mark.parametrize(
    ("match", "declared", "asked", "said"),
    [
        ("container", "x-1", "x-*", "meets x-1, which the workload feed matches: change it in the node's profile, "),
        ("container", "x-*", "*-1", "meets x-*, which the workload feed matches: change it in the node's profile, "),
        ("container", "x-*", "x-1", "is what the workload feed matches: change it in the node's profile, "),
        ("pod", "x-1", "x-?", "meets x-1, which the workload feed matches: change it in the node's profile, "),
        ("label", "app=x", "app", "meets app=x, which the workload feed matches: change it in the node's profile, "),
        ("container", "x-1", "y-*", ""),
        ("label", "app=x", "app=y", ""),
    ],
)
def test_one_that_may_match_what_a_declared_one_matches_is_refused(
    fake: node.Node, match: str, declared: str, asked: str, said: str
) -> None:
    feed = {"name": "feed", "match": {match: declared}, "limits": {"cpu": "500m"}}
    assert runs.declare(fake.host(), cpu=CPU, workloads=[feed]).error == ""
    if said:
        assert refused(fake, match={match: asked}, limits=WHOLE) == (
            f"match.{match}: {asked}: {said}or match something else"
        )
    else:
        assert task(fake, match={match: asked}, limits=WHOLE)["grant"]["state"] == "granted"


def test_one_that_may_match_what_another_admitted_one_matches_is_refused(machine: node.Node) -> None:
    assert task(machine, "web", match={"container": "web-1"}, limits={"cpu": "500m"})["changed"]
    assert refused(machine, "webs", match={"container": "web-*"}, limits={"cpu": "500m"}) == (
        "match.container: web-*: meets web-1, which the workload web matches: release that one, or match something else"
    )


def test_a_unit_that_somebody_elses_file_keeps_elsewhere_is_refused(machine: node.Node) -> None:
    machine.put("/etc/systemd/system/dataplane.service.d/99-site.conf", "[Service]\nSlice=system.slice\n")
    said = refused(machine, match=UNIT, limits=WHOLE)
    assert said.startswith("match.unit: dataplane.service: ")
    assert "99-site.conf" in said


def test_a_workload_of_the_profile_is_its_own(machine: node.Node) -> None:
    assert refused(machine, "feed", match=UNIT, limits=WHOLE) == (
        "name: feed: is declared in the node's profile: change it there, or admit it under another name"
    )
    assert (
        refused(machine, "feed", state="absent") == "name: feed: is declared in the node's profile: take it out there"
    )


def test_a_node_without_a_profile_or_pools_is_refused(fake: node.Node) -> None:
    assert refused(fake, match=UNIT, limits=WHOLE).endswith("no profile is declared here: apply one first")
    runs.declare(fake.host(), cpu=None)
    assert "declare cpu.reserved" in refused(fake, match=UNIT, limits=WHOLE)


def test_a_run_is_admitted_by_its_unit_or_by_a_task(machine: node.Node) -> None:
    result = task(machine, match=UNIT, limits=WHOLE, hold="running")
    assert (result["grant"]["cpus"], result["grant"]["run"]) == ("1,5", "by-hand:first:5000")
    assert "Requires=corral-grant@dataplane.service\n" in machine.get(DROPIN.format("dataplane.service"))
    assert task(machine, match=UNIT, limits=WHOLE, hold="running")["changed"] is False
    batch = {"match": {"container": "batch"}, "limits": WHOLE, "hold": "running"}
    assert task(machine, "batch", **batch)["changed"]
    machine.wait(121)
    runs.tick(machine.host())
    assert grants(machine) == {"feed": ""}, "neither has started"
    waiting = task(machine, match=UNIT, limits=WHOLE, hold="running")
    assert (waiting["changed"], waiting["grant"]["state"]) == (False, "waiting"), "its unit asks when it starts"
    again = task(machine, "batch", **batch)
    assert (again["changed"], again["grant"]["run"]) == (True, "by-hand:first:5121")
    assert grants(machine) == {"feed": "", "batch": "1,5"}


def test_a_unit_that_runs_moves_at_its_next_start(machine: node.Node) -> None:
    place = "/sys/fs/cgroup/system.slice/dataplane.service"
    machine.put(f"{place}/cgroup.events", "populated 1\nfrozen 0\n")
    result = task(machine, match=UNIT, limits=WHOLE)
    assert (result["changed"], result["in_sync"]) == (True, False)
    assert [(one["property"], one["when"], one["reason"]) for one in result["drift"]] == [
        ("slice", "next start", "a unit moves when it starts: systemctl restart dataplane.service")
    ]
    assert task(machine, match=UNIT, limits=WHOLE)["changed"] is False


@pytest.mark.parametrize("how", ["paused", "audit"])
def test_an_admission_is_a_start_and_no_enforcement(machine: node.Node, how: str) -> None:
    if how == "paused":
        runs.command(machine.host(), "pause", "--for", "1h")
    else:
        runs.declare(machine.host(), cpu=CPU, workloads=[FEED], mode="audit")
    machine.put("/proc/sys/kernel/pid_max", "32768\n")
    assert task(machine, match=UNIT, limits=WHOLE)["in_sync"]
    assert machine.cpus(SLICE) == {1, 5}
    assert machine.get("/proc/sys/kernel/pid_max") == "32768\n", "other drift is left alone"
    assert task(machine, state="absent")["changed"]


def test_what_the_node_refuses_is_undone(machine: node.Node) -> None:
    admitted = machine.clone(machine.root.parent / "whole")
    whole = admitted.host()
    WORKLOAD.workload_task(Module(name="dataplane", match=UNIT, limits=WHOLE), whole)
    ours = ("run/corral", "var/lib/corral/journal")
    before, after = machine.fingerprint(*ours), admitted.fingerprint(*ours)
    for number in range(1, len(whole.acts) + 1):
        # Once it is admitted, a status that cannot be written fails the task and takes nothing back. The mark for a run that dies
        # ends no run that lives.
        mark = whole.acts[number - 1] == f"write_file {state.RELOAD_DUE}"
        wanted = after if mark or whole.acts[number - 1].endswith(state.PUBLISHED) else before
        twin = machine.clone(machine.root.parent / f"twin{number}")
        host = twin.host("error", number)
        with contextlib.nullcontext() if mark else pytest.raises((WORKLOAD.CorralError, OSError)):
            WORKLOAD.workload_task(Module(name="dataplane", match=UNIT, limits=WHOLE), host)
        assert node.different(wanted, twin.fingerprint(*ours)) == [], whole.acts[number - 1]


def test_another_run_is_waited_for(machine: node.Node) -> None:
    held = Lock(machine.host())
    assert held.take()
    try:
        assert refused(machine, match=UNIT, limits=WHOLE, lock_timeout=0).endswith("try again, or raise lock_timeout")
        assert task(machine, match=UNIT, limits=WHOLE, check=True)["changed"], "a look is in nobody's way"
    finally:
        held.release()
