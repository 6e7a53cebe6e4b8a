# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lost is not empty: what becomes of a node whose state files somebody deleted, and when state goes by itself."""

from __future__ import annotations

import copy
import json
import shutil
import typing as t

import failing
import node
import pytest
import runs
import services
import test_workload_module
from _core.host import state, workload_files
from _core.managers import registry
from _core.managers.agent import agent_install
from _core.model.agent import agent_units
from _core.model.plan.plan import UNCHANGEABLE, Outcome
from _core.model.profile import profile
from _core.model.systemd.unit_property import ETC
from _core.model.values import cpuset
from _core.pipeline import applying, planning

STATE = "/var/lib/corral"
CHECKPOINT, ADMITTED, BEFORE = f"{STATE}/checkpoint.json", f"{STATE}/admitted.json", f"{STATE}/journal/before.json"
APPLIED, HISTORY = f"{STATE}/applied.json", f"{STATE}/journal/profiles.json"
DATAPLANE = "dataplane.service"
PROFILE: dict[str, t.Any] = {
    "name": "lost",
    "cpu": {"reserved": {"cpus": "0,4"}, "policy": "static"},
    "workloads": [{"name": "dataplane", "match": {"unit": DATAPLANE}, "limits": {"cpu": 2, "memory": "64Mi"}}],
}


def declare(fake: node.Node, host: node.NodeHost | None = None, **sections: t.Any) -> Outcome:
    data = {**copy.deepcopy(PROFILE), **sections}
    parsed = profile.parse({key: value for key, value in data.items() if value is not None})
    return applying.declare(host or fake.host(), parsed)


def admit(fake: node.Node, name: str) -> None:
    words = ("--unit", f"{name}.service", "--limits", "cpu=1,memory=64Mi")
    assert runs.command(fake.host(), "admit", name, *words) == 0


def held(fake: node.Node) -> dict[str, str]:
    return {row["workload"]: row["cpus"] for row in json.loads(fake.get(CHECKPOINT))["data"]["grants"]}


def drifted(fake: node.Node) -> list[str]:
    return [item["subject"] for item in json.loads(fake.get(state.STATUS))["items"]]


def by_hand(fake: node.Node, outcome: Outcome) -> None:
    """Delete what a removal has named; kernel values and mounts are not files."""
    for path in {change.location for change in outcome.remaining if change.property == "content"}:
        file = fake.root / path.lstrip("/")
        shutil.rmtree(file) if file.is_dir() else fake.drop(path)


def make_rolled(fake: node.Node) -> None:
    """A node with its agent, a profile that is the second one, and a workload that runs."""
    services.add(fake, DATAPLANE, "one.service", "two.service", "three.service")
    assert not runs.install(fake.host()).error
    assert not declare(fake, pids={"pid_max": 50000}).error
    assert not declare(fake).error
    assert services.start(fake, DATAPLANE)
    assert runs.tick(fake.host()) == 0


@pytest.fixture
def rolled(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_rolled)


@pytest.mark.parametrize("changes", [0, 1])
def test_before_values_that_are_gone_are_there_a_second_time(changes: int, fake: node.Node) -> None:
    before = fake.fingerprint()
    assert not declare(fake, workloads=None).error
    for number in range(changes):
        assert not declare(fake, workloads=None, pids={"pid_max": 50000 + number}).error
    fake.drop(BEFORE)
    plan = planning.plan_removal(fake.host(), registry.names())
    assert any(f"{BEFORE}: is gone: its second copy is used" in note for note in plan.notes)
    assert not runs.remove(fake.host()).error
    assert node.different(before, fake.fingerprint()) == []


def test_a_removal_that_is_killed_while_it_forgets_leaves_nothing_that_looks_lost(fake: node.Node) -> None:
    assert not declare(fake, workloads=None).error
    twin = fake.clone(fake.root.with_name("twin"))
    host = twin.host()
    assert not runs.remove(host).error
    for number in [number for number, act in enumerate(host.acts, 1) if BEFORE in act]:
        killed = fake.clone(fake.root.with_name(f"killed-{number}"))
        with pytest.raises(node.Killed):
            runs.remove(killed.host("killed", number))
        assert state.records(killed.host())[1] is None, host.acts[number - 1]


@pytest.mark.parametrize("previous", [True, False])
def test_a_refused_step_deletes_no_state_of_a_node_whose_before_values_are_gone(
    previous: bool, rolled: node.Node
) -> None:
    fingerprint = {path: rolled.get(path) for path in (CHECKPOINT, APPLIED, HISTORY)}
    rolled.drop(BEFORE)
    if not previous:
        rolled.drop(f"{BEFORE}.previous")
    number = failing.number_of(
        rolled, lambda host: declare(host.node, host, pids={"pid_max": 40000}), "write_value /proc/sys/kernel/pid_max"
    )
    assert declare(rolled, rolled.host("error", number), pids={"pid_max": 40000}).error
    assert {path: rolled.get(path) for path in fingerprint} == fingerprint
    runs.tick(rolled.host())
    assert runs.tick(rolled.host()) == (0 if previous else 2)
    assert drifted(rolled) == ([] if previous else [BEFORE])
    assert held(rolled) == {"dataplane": "1,5"}


def test_removing_the_agent_forgets_nothing_of_a_profile_that_stays(rolled: node.Node) -> None:
    for path in (BEFORE, f"{BEFORE}.previous"):
        rolled.drop(path)
    assert not runs.remove(rolled.host(), (agent_install.NAME,)).error
    assert held(rolled) == {"dataplane": "1,5"}
    assert rolled.has(APPLIED)


@pytest.mark.parametrize("lost", [ADMITTED, CHECKPOINT])
def test_whoever_was_admitted_keeps_what_he_has_when_a_file_is_gone(
    lost: str, rolled: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    admit(rolled, "one")
    assert services.start(rolled, "one.service")
    admit(rolled, "two")
    before = held(rolled)
    assert sorted(before) == ["dataplane", "one", "two"]
    rolled.drop(lost)
    runs.tick(rolled.host())
    assert held(rolled) == before
    said = capsys.readouterr().err
    if lost == ADMITTED:
        assert (
            f"{ADMITTED} content: damaged -> readable (is gone: it is written again from {ADMITTED}.previous)" in said
        )
        assert rolled.get(lost) == rolled.get(f"{lost}.previous")
    admit(rolled, "three")
    assert {name: held(rolled)[name] for name in before} == before, "neither is the next one's to take"


def test_a_list_of_admissions_that_is_damaged_is_the_one_before(
    rolled: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    admit(rolled, "one")
    admit(rolled, "two")
    before = held(rolled)
    rolled.put(ADMITTED, rolled.get(ADMITTED)[:20])
    runs.tick(rolled.host())
    assert held(rolled)["one"] == before["one"]
    assert f"{ADMITTED} content: damaged -> readable (is not JSON: truncated, or not Corral's: it is written again" in (
        capsys.readouterr().err
    )


def test_who_is_taken_back_last_leaves_no_file_that_looks_like_a_lost_one(rolled: node.Node) -> None:
    admit(rolled, "one")
    admit(rolled, "two")
    for name in ("one", "two"):
        twin = rolled.clone(rolled.root.with_name(f"without-{name}"))
        host = twin.host()
        assert runs.command(host, "release", name) == 0
        for number, act in enumerate(host.acts, 1):
            if ADMITTED in act:
                killed = rolled.clone(rolled.root.with_name(f"killed-{name}-{number}"))
                with pytest.raises(node.Killed):
                    runs.command(killed.host("killed", number), "release", name)
                assert workload_files.admitted_or_damage(killed.host())[1] == "", act
        assert runs.command(rolled.host(), "release", name) == 0
    assert not rolled.has(ADMITTED)
    assert not rolled.has(f"{ADMITTED}.previous")
    assert workload_files.admitted_or_damage(rolled.host()) == ((), "")


def test_an_admission_takes_the_cpus_of_a_grant_from_its_slice_where_only_an_earlier_checkpoint_is_left(
    rolled: node.Node,
) -> None:
    granted = held(rolled)
    earlier = json.loads(rolled.get(CHECKPOINT))["data"]
    earlier["grants"][0]["cpus"] = "3"
    rolled.put(f"{CHECKPOINT}.previous", state.checked_text(earlier))
    rolled.put(CHECKPOINT, "{")
    found = workload_files.grants_in_force(rolled.host())
    assert {one.workload: cpuset.format(one.cpus) for one in found} == granted != {"dataplane": "3"}


def test_a_profile_that_is_removed_takes_grants_and_admissions_with_it(rolled: node.Node) -> None:
    admit(rolled, "one")
    services.stop(rolled, DATAPLANE)
    assert not runs.remove(rolled.host(), registry.of_profile()).error
    for path in (CHECKPOINT, ADMITTED):
        assert not rolled.has(path)
        assert not rolled.has(f"{path}.previous")
    assert not declare(rolled, cpu=None, workloads=None, pids={"pid_max": 40000}).error
    assert not declare(rolled).error
    assert sorted(held(rolled)) == ["dataplane"], "nobody is revived"


def test_a_second_copy_that_is_gone_or_behind_is_written_again(rolled: node.Node) -> None:
    copy = f"{CHECKPOINT}.previous"
    for damage in (lambda: rolled.drop(copy), lambda: rolled.put(copy, "{}")):
        damage()
        rolled.wait(10)
        runs.tick(rolled.host())
        assert rolled.get(copy) == rolled.get(CHECKPOINT)
        assert runs.tick(rolled.host()) == 0


@pytest.mark.parametrize("how", ["gone", "damaged", "with the whole folder"])
def test_a_removal_without_originals_names_what_is_left(how: str, rolled: node.Node) -> None:
    services.stop(rolled, DATAPLANE)
    copies = (BEFORE, f"{BEFORE}.previous")
    for path in copies if how != "with the whole folder" else []:
        rolled.drop(path) if how == "gone" else rolled.put(path, rolled.get(path)[:20])
    if how == "with the whole folder":
        shutil.rmtree(f"{rolled.root}{STATE}")
    seen = [path.lstrip("/") for path in (state.STATUS, state.SINCE)]  # The loss itself is told there.
    before = rolled.fingerprint(*seen)
    host = rolled.host()
    outcome = runs.remove(host)
    assert node.different(before, rolled.fingerprint(*seen)) == []
    told = {change.location for change in outcome.remaining}
    assert {"/etc/corral/profile.json", "/etc/corral/agent.json", agent_units.COMMAND, agent_units.LAUNCHER} <= told
    assert any(path.endswith("/10-corral-cpu.conf") for path in told)
    assert {f"{ETC}/{unit}" for unit in (agent_units.TIMER, agent_units.SERVICE)} <= told
    assert {change.verdict for change in outcome.remaining} == {UNCHANGEABLE}
    assert outcome.plan.lost
    assert {one for one in told if one.startswith(f"{agent_units.RELEASES}/")} == {
        f"{agent_units.RELEASES}/{name}" for name in rolled.host().names(agent_units.RELEASES)
    }
    by_hand(rolled, outcome)
    assert not runs.remove(rolled.host()).remaining, "by hand it is over"
    assert not rolled.has(STATE)


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_run_after_the_loss_does_not_take_what_it_finds_for_originals(how: str, rolled: node.Node) -> None:
    services.stop(rolled, DATAPLANE)
    damaged = rolled.get(BEFORE)[:20]
    for path in (BEFORE, f"{BEFORE}.previous"):
        rolled.drop(path) if how == "gone" else rolled.put(path, damaged)
    rolled.drop(f"{ETC}/system.slice.d/10-corral-cpu.conf")
    rolled.wait(10)
    assert runs.tick(rolled.host()) == 2
    assert state.records(rolled.host())[0], "the tick recorded what it found"
    outcome = runs.remove(rolled.host())
    assert outcome.plan.lost
    assert "/etc/corral/profile.json" in {change.location for change in outcome.remaining}
    assert rolled.get(state.LOST) == ("" if how == "gone" else damaged), "it may be mended by hand"
    by_hand(rolled, outcome)
    assert not runs.remove(rolled.host()).remaining
    assert not rolled.has(STATE)


def test_a_profile_that_changed_nothing_lost_no_original(fake: node.Node) -> None:
    assert not declare(fake, cpu=None, workloads=None).error
    assert state.records(fake.host())[1] is None
    assert not planning.plan_removal(fake.host(), registry.names()).lost


@pytest.mark.parametrize("check", [True, False])
def test_the_module_fails_where_it_cannot_remove(check: bool, rolled: node.Node) -> None:
    for path in (BEFORE, f"{BEFORE}.previous"):
        rolled.drop(path)
    module = test_workload_module.Module(check=check, state="absent", during_pause="refuse", lock_timeout=1)
    result = test_workload_module.WORKLOAD._module.profile_task(module, rolled.host())
    assert (result["failed"], result["changed"], result["in_sync"]) == (True, False, False)
    assert "/etc/corral/profile.json" in result["msg"]
    assert f"the originals were lost with {BEFORE}" in result["msg"]
    assert held(rolled) == {"dataplane": "1,5"}, "no grant is given up"


@pytest.mark.parametrize("declared", [True, False])
def test_a_node_without_agent_whose_state_folder_is_gone_is_not_removed_silently(
    declared: bool, fake: node.Node
) -> None:
    assert not declare(fake, workloads=None).error
    shutil.rmtree(f"{fake.root}{STATE}")
    if not declared:
        fake.drop(state.DECLARED)
    outcome = runs.remove(fake.host())
    assert outcome.plan.lost
    assert any(change.location.endswith("/10-corral-cpu.conf") for change in outcome.remaining)


def test_a_profile_that_an_image_brought_is_no_sign_of_a_loss(fake: node.Node) -> None:
    fake.put(state.DECLARED, json.dumps(profile.to_data(profile.parse(PROFILE))))
    assert not planning.plan_removal(fake.host(), registry.names()).lost
    assert not state.originals_lost(fake.host())


def test_what_a_profile_no_longer_declares_is_named_where_its_original_is_lost(fake: node.Node) -> None:
    assert not declare(fake, workloads=None, pids={"pid_max": 50000}).error
    shutil.rmtree(f"{fake.root}{STATE}/journal")
    outcome = declare(fake, workloads=None)
    assert [(one.location, one.verdict) for one in outcome.remaining] == [
        ("/etc/sysctl.d/90-corral.conf", UNCHANGEABLE),
        (BEFORE, UNCHANGEABLE),
    ]
    assert "the originals were lost" in outcome.remaining[0].reason
    fake.drop("/etc/sysctl.d/90-corral.conf")
    assert [one.location for one in declare(fake, workloads=None).remaining] == [BEFORE]


@pytest.mark.parametrize("how", ["gone", "damaged"])
@pytest.mark.parametrize("mode", ["enforce", "audit"])
def test_a_loss_is_drift_until_the_originals_are_back(how: str, mode: str, rolled: node.Node) -> None:
    assert not declare(rolled, mode=mode).error
    text = rolled.get(BEFORE)
    for path in (BEFORE, f"{BEFORE}.previous"):
        rolled.drop(path) if how == "gone" else rolled.put(path, text[:20])
    for dummy in range(2):
        rolled.wait(10)
        assert runs.tick(rolled.host()) == 2
        [item] = json.loads(rolled.get(state.STATUS))["items"]
        assert (item["subject"], item["verdict"]) == (BEFORE, UNCHANGEABLE)
        assert "put a backup of it back" in item["reason"]
    rolled.put(BEFORE, text)
    rolled.wait(10)
    assert runs.tick(rolled.host()) == 2, "the second copy is made again"
    assert drifted(rolled) == ([] if mode == "enforce" else [f"{BEFORE}.previous"])
    assert runs.tick(rolled.host()) == (0 if mode == "enforce" else 2)


def test_a_removal_without_originals_names_kernel_values_and_mounts(fake: node.Node) -> None:
    assert not runs.declare(fake.host()).error
    shutil.rmtree(f"{fake.root}{STATE}")
    before = fake.fingerprint()
    told = {change.location: change for change in runs.remove(fake.host()).remaining}
    assert node.different(before, fake.fingerprint()) == []
    pool = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
    for path in ("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", pool):
        assert told[path].actual == fake.get(path).strip()
    assert told["/dev/hugepages-2Mi"].property == "mounted"
    outcome = runs.remove(fake.host(), registry.of_profile())
    by_hand(fake, outcome)
    assert not runs.remove(fake.host()).remaining, "without the declared profile no value is known as Corral's"


def test_a_file_that_holds_no_list_has_no_originals(fake: node.Node) -> None:
    assert not declare(fake, workloads=None).error
    for path in (BEFORE, f"{BEFORE}.previous"):
        fake.put(path, state.checked_text({}))
    assert state.originals_lost(fake.host())
    assert planning.plan_removal(fake.host(), registry.names()).lost


def spoil(fake: node.Node, key: str, damage: t.Callable[[dict[str, t.Any]], None]) -> None:
    """Damage one record in both copies of the originals, with a checksum that is right."""
    rows = json.loads(fake.get(BEFORE))["data"]
    [row] = [row for row in rows if f"{row['before']['kind']}:{row['before']['target']}" == key]
    damage(row)
    for path in (BEFORE, f"{BEFORE}.previous"):
        fake.put(path, state.checked_text(rows))


DAMAGES: dict[str, t.Callable[[dict[str, t.Any]], t.Any]] = {
    "no manager": lambda row: row.pop("manager"),
    "folders are none": lambda row: row["before"].update(made=None),
    "a value that is none": lambda row: row["before"].update(value=4194304),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_record_that_cannot_be_read_is_named_and_nothing_else_is_lost(damage: str, fake: node.Node) -> None:
    before = fake.fingerprint()
    assert not declare(fake, workloads=None, pids={"pid_max": 50000}).error
    pid_max = "/proc/sys/kernel/pid_max"
    spoil(fake, f"value:{pid_max}", DAMAGES[damage])
    planned = planning.plan_profile(fake.host(), planning.compile_profile(fake.host(), profile.parse(PROFILE)))
    assert pid_max in {change.location for change in planned.changes if change.verdict == UNCHANGEABLE}
    for dummy in range(2):
        outcome = declare(fake, workloads=None, pids={"pid_max": 60000})
        [item] = outcome.remaining
        assert (item.location, item.verdict) == (pid_max, UNCHANGEABLE)
        assert state.UNREADABLE in item.reason
    assert json.loads(fake.get(state.UNREADABLE))[0]["before"]["target"] == pid_max
    keys = {record.before.key for record in state.records(fake.host())[0]}
    assert f"value:{pid_max}" not in keys, "what Corral set is no original"
    host = fake.host()
    assert [one.location for one in declare(fake, host, workloads=None, pids={"pid_max": 60000}).remaining] == [pid_max]
    assert not [path for path in host.writes if "journal" in path], "it is set aside once"
    [item] = runs.remove(fake.host()).remaining
    assert (item.location, item.verdict) == (pid_max, UNCHANGEABLE)
    fake.put(pid_max, "4194304\n")
    fake.drop(state.UNREADABLE)
    assert not runs.remove(fake.host()).remaining
    assert not fake.has(STATE)
    differing = node.different(before, fake.fingerprint())
    assert [one for one in differing if "pid_max" not in str(one)] == []
