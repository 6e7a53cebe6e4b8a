# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A manager that is added as CONTRIBUTING.md says: its file, its section, its keys and one line are all that it takes."""

from __future__ import annotations

import collections
import json
import sys
import typing as t

import node
import pytest
import runs
import toy_manager
from _core import main
from _core.managers import registry
from _core.model.plan.places import Place
from _core.model.plan.plan import UNKNOWN, Change, Step
from _core.model.profile import profile, schema, schema_key, schema_types, section_data
from _core.model.values.errors import CorralError
from _core.pipeline import describing, planning

VALUE = toy_manager.VALUE
TOY = {"swappiness": 10}
KEYS = (
    schema_key.Key("toy", None, "A toy."),
    schema_key.Key("toy.swappiness", schema_types.integer(0, 100), "vm.swappiness", required=True),
)
# The section, in model/: the field of a profile is the number, or None.
SHAPE = section_data.Shape(lambda values: values["swappiness"], lambda number: {"swappiness": number})


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a commit that adds the manager would change."""
    # managers/toy.py, and its line in managers/registry.py
    monkeypatch.setitem(sys.modules, "_core.managers.toy", toy_manager)
    monkeypatch.setitem(registry.FILES, "toy", "toy")
    # its keys, a file beside model/profile/schema.py
    monkeypatch.setattr(schema, "KEYS", (*schema.KEYS, *KEYS))
    monkeypatch.setitem(schema.TREE, "toy", schema.Node(KEYS[0], {"swappiness": schema.Node(KEYS[1], {})}))
    # its section, a field of the profile
    fields, defaults = (*profile.Profile._fields, "toy"), (*profile.Profile._field_defaults.values(), None)
    monkeypatch.setattr(profile, "Profile", collections.namedtuple("Profile", fields, defaults=defaults))
    monkeypatch.setitem(profile.SHAPES, "", profile.Profile)
    monkeypatch.setitem(profile.SHAPES, "toy", SHAPE)


@pytest.fixture
def toy(fake: node.Node) -> node.Node:
    """A node with the value as a kernel has it."""
    fake.put("/proc/sys/kernel/hostname", "toy\n")
    fake.put(VALUE, "60\n")
    return fake


def rolled_out(fake: node.Node) -> node.Node:
    outcome = runs.declare(fake.host(), toy=TOY)
    assert (outcome.error, outcome.remaining) == ("", ())
    return fake


def ours(changes: t.Iterable[Change]) -> list[tuple[str | None, str | None]]:
    return [(change.actual, change.wanted) for change in changes if change.manager == "toy"]


def planned(fake: node.Node) -> tuple[Change, ...]:
    context = planning.compile_profile(fake.host(), node.parsed(toy=TOY))
    return planning.plan_profile(fake.host(), context).changes


def test_its_drift_is_planned_applied_and_read_back(toy: node.Node) -> None:
    assert ours(planned(toy)) == [("60", "10")]
    assert toy.get(VALUE) == "60\n", "a plan writes nothing"
    assert ours(runs.declare(toy.host(), toy=TOY).applied) == [("60", "10")]
    assert toy.get(VALUE) == "10\n"
    assert planned(toy) == ()


def test_a_value_that_did_not_take_effect_is_an_error(toy: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    write = toy.kernel_write
    monkeypatch.setattr(toy, "kernel_write", lambda path, text: None if path == VALUE else write(path, text))
    outcome = runs.declare(toy.host(), toy=TOY)
    assert outcome.error == f"{VALUE}: 10 was written and the kernel keeps 60"
    assert ours(outcome.remaining) == [("60", "10")]


def test_a_value_that_python_takes_for_false_stays_declared(toy: node.Node) -> None:
    assert ours(runs.declare(toy.host(), toy={"swappiness": 0}).applied) == [("60", "0")]
    assert runs.tick(toy.host()) == 0
    assert toy.get(VALUE) == "0\n"


def test_a_tick_mends_and_counts_it(toy: node.Node) -> None:
    assert not runs.install(toy.host()).error
    rolled_out(toy)
    assert runs.tick(toy.host()) == 0
    toy.kernel_write(VALUE, "30")
    toy.wait(10)
    assert runs.tick(toy.host()) == 2
    status = json.loads(toy.get("/run/corral/status.json"))
    assert [change["manager"] for change in status["last_changed"]["changes"]] == ["toy"]
    assert status["counts"]["toy"] == {"drift": 0, "unchangeable": 0, "unknown": 0}
    assert toy.get(VALUE) == "10\n"


def test_what_it_cannot_see_is_unknown(toy: node.Node) -> None:
    toy.drop(VALUE)
    assert [change.verdict for change in planned(toy) if change.manager == "toy"] == [UNKNOWN]


@pytest.mark.parametrize("whole", [True, False], ids=["removal", "no longer declared"])
def test_its_original_comes_back(whole: bool, toy: node.Node) -> None:
    before = toy.fingerprint()
    rolled_out(toy)
    assert not (runs.remove(toy.host()) if whole else runs.declare(toy.host())).error
    assert toy.get(VALUE) == "60\n"
    assert not whole or node.different(before, toy.fingerprint()) == []


@pytest.mark.parametrize(
    "writes", [(), (Place("value", "/proc/sys/vm/other"),), (Place("value", VALUE, "[0-9]"),)],
    ids=["says nothing", "another place", "another value"],
)  # fmt: skip
def test_what_it_did_not_say_it_may_not_write(
    writes: tuple[Place, ...], toy: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toy_manager, "MANAGER", toy_manager.MANAGER._replace(writes=writes))
    before, host = toy.fingerprint(), toy.host()
    with pytest.raises(CorralError, match="the manager toy must not write here"):
        runs.declare(host, toy=TOY)
    assert (host.writes, host.commands) == ([], [])
    assert node.different(before, toy.fingerprint()) == []


def test_nor_may_it_write_where_another_manager_does(toy: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step("value", "/proc/sys/kernel/pid_max", "5000", 20)
    change = Change("toy", "pid_max", "value", "a", "b", "a fault", step.target, (step,))
    part = toy_manager.decide(10, 60)
    faulty = toy_manager.MANAGER._replace(plan=lambda host, context: part._replace(changes=(change,)))
    monkeypatch.setattr(toy_manager, "MANAGER", faulty)
    with pytest.raises(CorralError, match="pid_max: 5000: the manager toy must not write here"):
        runs.declare(toy.host(), toy=TOY)


def test_a_value_without_an_original_is_not_recorded(toy: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """``owned`` would record it: a manager does not own what is volatile."""
    writes = (Place("value", VALUE, "[0-9]+", volatile=True),)
    plan = toy_manager.MANAGER.plan
    volatile = toy_manager.MANAGER._replace(
        writes=writes, plan=lambda host, context: plan(host, context)._replace(owned=frozenset())
    )
    monkeypatch.setattr(toy_manager, "MANAGER", volatile)
    rolled_out(toy)
    assert not runs.remove(toy.host()).error
    assert toy.get(VALUE) == "10\n"


def test_it_is_described(toy: node.Node) -> None:
    assert "toy" not in describing.describe(toy.host()).data
    toy.kernel_write(VALUE, "33")
    described = describing.describe(toy.host())
    assert described.data["toy"] == {"swappiness": 33}
    assert not ours(runs.declare(toy.host(), toy=described.data["toy"]).applied)


def test_its_changes_are_explained(toy: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert not runs.declare(toy.host(), "base", toy=TOY).error
    toy.kernel_write(VALUE, "60")
    assert main.main(["drift", "--explain", "--root", toy.recorded()]) == 2
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "toy.swappiness 10 base" in said
    place = f"[{VALUE}]"
    assert f"~ toy vm.swappiness value: 60 -> 10 (the value differs) {place}" in said
    assert "asked for by toy.swappiness (base)" in said
