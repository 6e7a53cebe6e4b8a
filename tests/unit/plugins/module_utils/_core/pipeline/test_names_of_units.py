# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units that have two names, as mysql.service is another name of mariadb.service on Debian, and slices that are masked."""

from __future__ import annotations

import typing as t

import node
import pytest
import runs
import services
from _core.host.workload import workload_state
from _core.model.plan.plan import UNCHANGEABLE
from _core.model.values.errors import CorralError
from test_persistent_set_property import FIRST, roll_out, with_workloads

Make = t.Callable[..., node.Node]
ETC, USR = "/etc/systemd/system", "/usr/lib/systemd/system"


@pytest.fixture
def fake(make: Make) -> node.Node:
    """A node on which mysql.service is another name of mariadb.service."""
    found = make()
    services.add(found, "mariadb.service")
    link(found, "mysql.service", "../../../usr/lib/systemd/system/mariadb.service")
    assert not runs.install(found.host()).error
    return found


def link(fake: node.Node, name: str, target: str) -> None:
    fake.host().write_link(f"{ETC}/{name}", target)


def test_a_workload_is_matched_by_the_name_that_its_unit_has(fake: node.Node) -> None:
    """Its control group is mariadb.service: that was named as a stranger on the workload's CPUs at each tick."""
    with pytest.raises(CorralError) as refused:
        roll_out(fake, with_workloads("mysql"))
    (problem,) = refused.value.problems
    assert (problem.path, problem.value) == ("workloads[0].match.unit", "mysql.service")
    assert "is another name of mariadb.service" in problem.message
    roll_out(fake, with_workloads("mariadb"))
    words = ("admit", "other", "--unit", "mysql.service", "--limits", "cpu=500m,memory=16Mi")
    with pytest.raises(CorralError, match="is another name of mariadb"):
        runs.command(fake.host(), *words)


def test_a_unit_that_gets_another_name_later_is_named(make: Make) -> None:
    """Nothing stops it: it runs elsewhere, and its slice, which it would end with, stays when the workload leaves the profile."""
    fake = make()
    services.add(fake, "mysql.service", "mariadb.service")
    assert not runs.install(fake.host()).error
    assert services.start(fake, "mariadb.service")
    roll_out(fake, with_workloads("mysql"))
    fake.drop(f"{USR}/mysql.service")
    link(fake, "mysql.service", f"../../..{USR}/mariadb.service")
    found = [one for one in runs.plan(fake.host()) if one.property == "name"]
    assert [(one.subject, one.actual, one.verdict) for one in found] == [
        ("mysql.service", "another name of mariadb.service", UNCHANGEABLE)
    ]
    assert workload_state.unit_to_be_in(fake.host(), "corral_mysql.slice") == "mariadb.service"


def test_a_pattern_finds_each_unit_by_its_own_name(fake: node.Node) -> None:
    link(fake, "mydb.service", "/lib/systemd/system/mariadb.service")
    link(fake, "mykept.service", "/opt/site/mariadb.service")  # linked from elsewhere, so it has this name
    services.add(fake, "my@.service", "mytool.service")
    link(fake, "my@one.service", "my@.service")
    found = workload_state.units_like(fake.host(), ["m*.service"])
    assert found == ["mariadb.service", "my@one.service", "mykept.service", "mytool.service"]


@pytest.mark.parametrize("when", ["before the rollout", "while it does not run"])
def test_a_slice_that_is_masked_keeps_no_workload_from_its_start(make: Make, when: str) -> None:
    """systemd refuses to start it and to set its CPUs: each tick, rollout and start failed for that."""
    fake = make()
    services.add(fake, FIRST)
    assert not runs.install(fake.host()).error
    if when == "before the rollout":
        link(fake, "machine.slice", "/dev/null")
    roll_out(fake, with_workloads("first", hold="running"))
    if when != "before the rollout":
        fake.systemd.stop_slice("machine.slice")
        link(fake, "machine.slice", "/dev/null")
    assert services.start(fake, FIRST)
    assert runs.tick(fake.host()) == 2
    items = [one.item() for one in runs.plan(fake.host())]
    assert items == [("cpu", "machine.slice", "state")]
    fake.drop(f"{ETC}/machine.slice")
    runs.tick(fake.host())
    assert fake.systemd.effective("machine.slice") == fake.systemd.effective("corral.slice")
    assert runs.tick(fake.host()) == 0
    services.stop(fake, FIRST)
    assert not runs.remove(fake.host()).error


def test_a_slice_that_is_masked_while_it_runs_keeps_its_cpus_and_a_start_that_needs_them_is_refused(make: Make) -> None:
    fake = make()
    services.add(fake, FIRST)
    assert not runs.install(fake.host()).error
    roll_out(fake, with_workloads("first", hold="running"))
    before = fake.systemd.effective("machine.slice")
    link(fake, "machine.slice", "/dev/null")
    assert runs.tick(fake.host()) == 0
    assert services.start(fake, FIRST) is None
    assert fake.systemd.effective("machine.slice") == before
    fake.drop(f"{ETC}/machine.slice")
    assert services.start(fake, FIRST)
