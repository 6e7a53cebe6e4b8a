# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every plan that is executed is replayed, whatever it is of: a rollout, a removal, an undo."""

from __future__ import annotations

import typing as t

import failing
import node
import pytest
import runs
from _core.model.plan import make_step, undo
from _core.model.plan.plan import CPUS, Change, Plan, Step
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import applying, planning
from test_exclusive import CGROUP, PARTITION, apply_at, partition, with_cpu
from test_workloads import (
    OWN,
    PROFILE,
    rolled,
    without,
)

__all__ = ["rolled"]

Make = t.Callable[..., node.Node]


# Every plan that is executed is replayed, whatever it is of


def widening(unit: str = "machine.slice") -> Change:
    step = make_step.unit_property(unit, "AllowedCPUs", "0-7", CPUS)
    return Change("cpu", unit, "AllowedCPUs", "", "0-7", "", "", (step,))


@pytest.mark.parametrize("of", ["a removal", "a profile without workloads", "a profile without cpu"])
def test_a_plan_that_takes_a_partitions_cpus_is_refused(of: str, rolled: node.Node) -> None:
    host = rolled.host()
    data = {
        "a removal": None,
        "a profile without workloads": without("dataplane"),
        "a profile without cpu": {"name": "x"},
    }
    context = planning.compile_profile(host, profile.parse(data[of])) if data[of] else None
    plan = Plan(context, (widening(),), (), frozenset())
    with pytest.raises(CorralError, match=f"machine.slice would have CPUs of {OWN}"):
        applying.apply(host, plan._replace(keep_going=True), lambda: plan)
    assert not host.writes


def test_a_removal_that_widens_others_first_is_refused(rolled: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    restore = undo.restore_recorded

    def late(before: undo.Original, *cpus: t.Any) -> list[Step]:
        steps = restore(before, *cpus)
        return [step._replace(order=95) for step in steps] if before.kind == "partition" else steps

    monkeypatch.setattr(undo, "restore_recorded", late)
    with pytest.raises(CorralError, match=f"would have CPUs of {OWN}"):
        runs.remove(rolled.host())
    assert partition(rolled) == "root"
    monkeypatch.undo()
    assert not any("would have" in said for said in runs.remove(rolled.host()).leftovers)


def test_a_removal_whose_partition_stays_leaves_others_off_its_cpus(rolled: node.Node) -> None:
    number = failing.number_of(rolled, runs.remove, f"write_value {CGROUP}/{OWN}/{PARTITION}")
    outcome = runs.remove(rolled.host("error", number))
    assert len([said for said in outcome.leftovers if f"would have CPUs of {OWN}" in said]) > 1
    assert (rolled.exposed(), rolled.overlaps) == ([], [])
    assert not any("would have" in said for said in runs.remove(rolled.host()).leftovers)
    assert rolled.cpus("system.slice") == rolled.systemd.online


@pytest.mark.parametrize("requested", [True, False])
def test_the_undo_gives_back_what_was_shared_before(requested: bool, rolled: node.Node) -> None:
    """What runs in corral_isolated.slice shares with others before there is an isolated pool: the undo ends in that."""
    rolled.intrude("corral_isolated.slice/pinned.service")
    if requested:  # Else that is yet to come: the slice has what partitions leave.
        assert runs.tick(rolled.host()) == 2
        assert rolled.cpus("corral_isolated.slice") == rolled.cpus("corral.slice")
    before = rolled.cpus("corral_isolated.slice")
    data = with_cpu(isolated={"cores": 1})
    trial = rolled.clone(rolled.root.with_name("trial")).host()
    assert applying.declare(trial, profile.parse(data)).error == ""
    first = trial.acts.index(f"write_value {CGROUP}/corral_isolated.slice/{PARTITION}") + 1
    for number in range(first, len(trial.acts)):
        fake = rolled.clone(rolled.root.with_name(f"refused-{number}"))
        try:
            outcome = apply_at(fake.host("error", number), data)
        except OSError:
            continue  # Corral's own files: all is done.
        if not outcome.error:
            continue
        assert outcome.leftovers == (), number
        assert (partition(fake, "corral_isolated.slice"), fake.cpus("corral_isolated.slice")) == ("member", before)
        assert (partition(fake), fake.overlaps) == ("root", [])


def test_an_undo_that_would_let_others_in_leaves_them_off(rolled: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"name": "more", "match": {"unit": "more.service"}, "limits": {"cpu": 2, "memory": "64Mi"}}
    data = {**PROFILE, "workloads": [*PROFILE["workloads"], more]}
    inverse = undo.inverse

    def forgetful(before: undo.Original, step: Step, online: str, shared: str = "") -> list[Step]:
        return [] if "/corral_more.slice" in f"/{step.target}" else inverse(before, step, online, shared)

    trial = rolled.clone(rolled.root.with_name("trial")).host()
    assert applying.declare(trial, profile.parse(data)).error == ""
    number = trial.acts.index(f"write_value {CGROUP}/corral_more.slice/{PARTITION}") + 2
    monkeypatch.setattr(undo, "inverse", forgetful)
    outcome = applying.declare(rolled.host("error", number), profile.parse(data))
    assert outcome.error
    assert any("would have CPUs of corral_more.slice" in said for said in outcome.leftovers)
    assert (partition(rolled, "corral_more.slice"), rolled.exposed(), rolled.overlaps) == ("root", [], [])
