# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs that somebody gave a slice with systemctl set-property before Corral: when they come back, when not, and whose they are."""

from __future__ import annotations

import json
import typing as t

import node
import pytest
import runs
import services
from _core.host import state
from _core.model.plan.plan import Outcome
from _core.model.profile import profile
from _core.pipeline import applying, planning

Make = t.Callable[..., node.Node]
UNIT, FILE = "machine.slice", "/etc/systemd/system.control/machine.slice.d/50-AllowedCPUs.conf"
FIRST, SECOND = "first.service", "second.service"


def with_workloads(*names: str, slices: t.Sequence[str] = (UNIT,), hold: str = "declared") -> dict[str, t.Any]:
    """A profile that gives these workloads two CPUs each: the first 1 and 5, the second 2 and 6."""
    return {
        "name": "property",
        "cpu": {
            "reserved": {"cpus": "0,4"},
            "policy": "static",
            "options": {"full-pcpus-only": True},
            "shared": {"min_cpus": 2, "slices": list(slices)},
        },
        "topology": {"policy": "single-numa-node"},
        "workloads": [
            {"name": name, "match": {"unit": f"{name}.service"}, "hold": hold, "limits": {"cpu": 2, "memory": "16Mi"}}
            for name in names
        ],
    }


def roll_out(fake: node.Node, data: dict[str, t.Any]) -> Outcome:
    outcome = applying.declare(fake.host(), profile.parse(data))
    assert not outcome.error, outcome.error
    return outcome


def made(make: Make, cpus: str, *, applies: bool = True) -> node.Node:
    """A node on which machine.slice got CPUs by set-property before Corral, with a process in it."""
    fake = make(reload_applies=applies)
    services.add(fake, FIRST, SECOND)
    fake.systemctl("set-property", UNIT, f"AllowedCPUs={cpus}")
    assert not runs.install(fake.host()).error
    fake.systemd.run_slice(UNIT)
    fake.systemd.occupy(UNIT)
    return fake


def restart_slice(fake: node.Node) -> None:
    if UNIT in fake.systemd.kernel.effective():
        fake.systemd.stop_slice(UNIT)
    fake.systemd.run_slice(UNIT)
    fake.systemd.occupy(UNIT)


@pytest.mark.parametrize("applies", [True, False], ids=["252", "257"])
@pytest.mark.parametrize("cpus", ["2-3,6-7", "0-7"], ids=["as Corral would", "otherwise"])
def test_it_does_not_come_back_over_cpus_that_a_workload_has(make: Make, cpus: str, applies: bool) -> None:
    """Not while these are a workload's, whatever runs in the slice: the plan says so; and it does as soon as they are not."""
    fake = made(make, cpus, applies=applies)
    text = fake.get(FILE)
    roll_out(fake, with_workloads("first"))
    roll_out(fake, with_workloads("first", "second"))
    assert services.start(fake, SECOND)
    assert not fake.has(FILE)
    gone = with_workloads("first", "second", slices=())
    roll_out(fake, gone)
    taken = "2,6" if cpus == "2-3,6-7" else "1-2,5-6"
    for happens in (lambda: None, lambda: restart_slice(fake), lambda: fake.systemctl("daemon-reload"), lambda: None):
        happens()
        assert waits(fake, gone) == [
            f"{FILE}: set before Corral, and restored once no workload has CPUs {taken} of it or may get them"
        ]
        assert not fake.has(FILE)
        assert not fake.systemd.effective(UNIT) & {1, 2, 5, 6}
        runs.tick(fake.host())
    services.stop(fake, SECOND)
    if cpus == "0-7":
        assert not runs.remove(fake.host()).error
    else:
        roll_out(fake, with_workloads("first", slices=()))
    assert fake.get(FILE) == text


def waits(fake: node.Node, data: dict[str, t.Any]) -> list[str]:
    """What a plan says of the file."""
    plan = planning.plan_profile(fake.host(), planning.compile_profile(fake.host(), profile.parse(data)))
    return [note for note in plan.notes if FILE in note]


def test_it_does_not_come_back_between_two_runs(make: Make) -> None:
    """The next one would get CPUs that a slice has by its file."""
    fake = made(make, "2-3,6-7")
    text = fake.get(FILE)
    both = with_workloads("first", "second", hold="running")
    roll_out(fake, both)
    gone = {**both, "cpu": with_workloads(slices=())["cpu"]}
    for dummy in range(2):
        for unit in (FIRST, SECOND):
            assert services.start(fake, unit)
        roll_out(fake, gone)
        for unit in (FIRST, SECOND):
            services.stop(fake, unit)
        runs.tick(fake.host())
        assert not fake.has(FILE)
    for unit in (FIRST, SECOND):
        assert services.start(fake, unit)
    restart_slice(fake)
    fake.systemctl("daemon-reload")
    runs.tick(fake.host())
    assert not fake.overlaps
    for unit in (FIRST, SECOND):
        services.stop(fake, unit)
    assert not runs.remove(fake.host()).error
    assert fake.get(FILE) == text


def test_what_somebody_sets_while_it_waits_stays(make: Make) -> None:
    fake = made(make, "2-3,6-7")
    roll_out(fake, with_workloads("first"))
    roll_out(fake, with_workloads("first", "second"))
    gone = with_workloads("first", "second", slices=())
    roll_out(fake, gone)
    fake.systemctl("set-property", UNIT, "AllowedCPUs=3,7")
    text = fake.get(FILE)
    runs.tick(fake.host())
    outcome = roll_out(fake, with_workloads("first", slices=()))
    assert f"{FILE}: set again since; what was there before Corral is not restored" in outcome.plan.notes
    assert fake.get(FILE) == text


@pytest.mark.parametrize("edit", ["removed", "changed"])
def test_what_somebody_does_with_it_while_corral_leaves_it_alone_is_not_undone(make: Make, edit: str) -> None:
    fake = made(make, "2-3,6-7")
    roll_out(fake, with_workloads("first"))
    assert fake.has(FILE), "it says what Corral would say"
    if edit == "removed":
        fake.drop(FILE)
    else:
        fake.put(FILE, fake.get(FILE) + "# mine\n")
    fake.systemctl("daemon-reload")
    runs.tick(fake.host())
    text = fake.get(FILE) if fake.has(FILE) else None
    outcome = runs.remove(fake.host())
    assert (fake.get(FILE) if fake.has(FILE) else None) == text
    assert not [one for one in outcome.applied if one.subject == FILE], (
        "a removal does not name what Corral never wrote"
    )


@pytest.mark.parametrize("dropin", ["there", "deleted"])
def test_what_is_set_after_corral_does_not_come_back(dropin: str, make: Make) -> None:
    """Corral wrote its drop-in before: the property is drift, and no original."""
    fake = make()
    services.add(fake, FIRST, SECOND)
    assert not runs.install(fake.host()).error
    fake.systemd.run_slice(UNIT)
    fake.systemd.occupy(UNIT)
    roll_out(fake, with_workloads("first"))
    if dropin == "deleted":
        fake.drop(f"/etc/systemd/system/{UNIT}.d/10-corral-cpu.conf")
    fake.systemctl("set-property", UNIT, "AllowedCPUs=3,7")
    runs.tick(fake.host())
    assert FILE not in json.dumps(state.checked(fake.host(), state.BEFORE))
    assert not runs.remove(fake.host()).error
    assert not fake.has(FILE)


@pytest.mark.parametrize("hold", ["declared", "running"])
@pytest.mark.parametrize("runs_now", [True, False], ids=["while it runs", "while it does not"])
def test_a_limit_of_a_workloads_slice_that_somebody_sets(make: Make, hold: str, runs_now: bool) -> None:
    """Corral is quiet after one tick, also once the workload stopped, and a removal does not bring it back."""
    fake = make()
    services.add(fake, FIRST, SECOND)
    assert not runs.install(fake.host()).error
    roll_out(fake, with_workloads("first", hold=hold))
    if runs_now:
        assert services.start(fake, FIRST)
        runs.tick(fake.host())
    file = "/etc/systemd/system.control/corral_first.slice.d/50-MemoryMax.conf"
    fake.systemctl("set-property", "corral_first.slice", "MemoryMax=200M")
    assert fake.has(file)
    watched = runs_now or hold == "declared"
    for stops in (False, True):
        if stops and runs_now:
            services.stop(fake, FIRST)
        runs.tick(fake.host())
        assert fake.has(file) == (not watched)
        for dummy in range(3):
            fake.wait(10)
            host = fake.host()
            runs.tick(host)
            assert not [act for act in host.acts if "/etc/" in act]
    assert services.start(fake, FIRST)
    runs.tick(fake.host())
    assert not fake.has(file)
    services.stop(fake, FIRST)
    assert not runs.remove(fake.host()).error
    assert not fake.has(file)
