# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs with devices on a node that loses both copies of its checkpoint: it keeps its list until it stops, an item says so, and no other
workload gets what it may have open.
"""

from __future__ import annotations

import node
import pytest
import runs
import services
from _core.model.devices.device_delivery import env_text
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import confirming
from services import MARK
from test_devices_granted import (
    CHECKPOINT,
    DPDK,
    FOLDER,
    JOB,
    LINKS,
    OTHER,
    SERIAL,
    TTY,
    VFIO,
    changed,
    equip,
    held,
    in_sync,
    profile_with,
    roll_out,
    running,
)
from test_workloads import status

CONTROL = "/run/systemd/system.control"
LOSSES = {"gone": None, "torn": '{"data": '}


def make_rolled(fake: node.Node) -> None:
    equip(fake)
    assert not runs.install(fake.host()).error
    assert roll_out(fake).remaining == ()
    running(fake, DPDK)
    running(fake, SERIAL)
    running(fake, JOB)
    services.stop(fake, SERIAL)  # So the first device is free: it would be the next one that is given.
    in_sync(fake)


@pytest.fixture
def rolled(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_rolled)


def list_of(unit: str) -> str:
    return f"{CONTROL}/{unit}.d/50-DeviceAllow.conf"


def forget(fake: node.Node, loss: str, *without_file: str) -> None:
    """The grants are lost, and the files with the environment of these units."""
    for unit in without_file:
        fake.drop(f"{FOLDER}/{unit}.env")
    for path in (CHECKPOINT, f"{CHECKPOINT}.previous"):
        text = LOSSES[loss]
        if text is None:
            fake.drop(path)
        else:
            fake.put(path, text)


def lost(fake: node.Node) -> set[str]:
    """The runs whose grants are lost, by the items of the last tick."""
    items = [one for one in status(fake)["items"] if (one["manager"], one["property"]) == ("devices", "grant")]
    assert all(f"stop {one['subject']}, and start it after the next tick" in one["reason"] for one in items)
    return {one["subject"] for one in items}


@pytest.mark.parametrize("without_file", [(), (DPDK, JOB)], ids=["list and file", "list alone"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("ticks", [0, 2])
def test_a_unit_that_runs_keeps_its_list_and_no_other_one_gets_what_is_on_it(
    rolled: node.Node, loss: str, without_file: tuple[str, ...], ticks: int
) -> None:
    lists = {unit: rolled.get(list_of(unit)) for unit in (DPDK, JOB)}
    forget(rolled, loss, *without_file)
    for dummy in range(ticks):
        assert runs.tick(rolled.host()) == 2
        assert lost(rolled) == {DPDK, JOB}
        assert held(rolled) == {}
    # The other two of the three devices of a kind, and then none.
    assert {*running(rolled, OTHER).devices, *running(rolled, SERIAL).devices} == {LINKS[0], LINKS[2]}
    services.add(rolled, "job@c.service")
    assert services.start(rolled, "job@c.service") is None
    assert f"{LINKS[1]}: {JOB} may have it, and its grant is lost: stop {JOB}" in " ".join(rolled.said)
    assert {unit: rolled.get(list_of(unit)) for unit in (DPDK, JOB)} == lists
    services.stop(rolled, JOB)
    assert running(rolled, "job@c.service").devices == {LINKS[1]}
    services.stop(rolled, DPDK)
    runs.tick(rolled.host())
    running(rolled, DPDK)
    in_sync(rolled)
    assert held(rolled).keys() == {"dpdk", "job:job@b", "job:job@c", "serial"}


def test_while_a_container_whose_grant_is_lost_runs_no_device_is_given(fake: node.Node) -> None:
    """No list says which one it has."""
    equip(fake)
    web = {"name": "web", "match": {"container": "web"}, "requests": {TTY: 1}}
    serial = {"name": "serial", "match": {"unit": SERIAL}, "hold": "running", "requests": {TTY: 1}}
    roll_out(fake, profile_with(workloads=[web, serial]))
    fake.systemd.occupy("corral-web.slice", 1)
    forget(fake, "torn")
    assert services.start(fake, SERIAL) is None
    assert runs.tick(fake.host()) == 2
    assert lost(fake) == {"web"}
    fake.systemd.occupy("corral-web.slice", 0)
    runs.tick(fake.host())
    assert running(fake, SERIAL).devices == {LINKS[1]}
    in_sync(fake)
    assert held(fake) == {"web": [LINKS[0]], "serial": [LINKS[1]]}


@pytest.mark.parametrize("how", ["unmarked", "gone"])
def test_while_a_unit_runs_whose_list_tells_nothing_no_device_is_given(how: str, rolled: node.Node) -> None:
    """The kernel goes by the list that it was told: one of an older version, or one whose file was removed by hand."""
    mine = services.allowed(rolled, JOB)
    if how == "gone":
        rolled.drop(list_of(JOB))
    else:
        rolled.put(list_of(JOB), (rolled.get(list_of(JOB)) or "").replace(f"DeviceAllow={MARK}\n", ""))
    forget(rolled, "gone")
    assert services.start(rolled, SERIAL) is None
    assert runs.tick(rolled.host()) == 2
    assert lost(rolled) == {DPDK, JOB}
    assert services.allowed(rolled, JOB) == mine
    services.stop(rolled, JOB)
    assert running(rolled, SERIAL).devices == {LINKS[0]}


def test_a_run_that_died_before_it_removed_a_file_leaves_nobody_with_devices(rolled: node.Node) -> None:
    """The list was taken back and the file names nothing any more: the unit that starts then has nothing to lose."""
    services.add(rolled, "extra.service")
    assert services.start(rolled, "extra.service") is not None
    rolled.put(f"{FOLDER}/extra.service.env", env_text({}))
    runs.tick(rolled.host())
    in_sync(rolled)
    assert not rolled.has(f"{FOLDER}/extra.service.env")


def test_what_the_files_of_a_unit_let_it_open_was_not_granted(fake: node.Node) -> None:
    equip(fake)
    services.add(fake, "job@.service", lines="DeviceAllow=/dev/ttyUSB0 rw\n")
    roll_out(fake)
    assert running(fake, SERIAL).devices == {LINKS[0]}
    running(fake, JOB)
    services.stop(fake, SERIAL)
    forget(fake, "gone")
    assert running(fake, SERIAL).devices == {LINKS[0]}


@pytest.mark.parametrize("has_file", [True, False])
@pytest.mark.parametrize("hold", ["running", "declared"])
def test_another_unit_that_runs_under_the_name_of_a_declared_one_keeps_its_devices(
    hold: str, has_file: bool, fake: node.Node
) -> None:
    """What its file or its list tells of was taken for the declared unit's, which then had them open as well."""
    equip(fake)
    services.add(fake, "extra.service")
    assert not runs.install(fake.host()).error
    ask = {"cpu": "100m", TTY: 1}
    roll_out(
        fake,
        profile_with(workloads=[{"name": "web", "match": {"unit": SERIAL}, "hold": hold, "requests": ask}]),
    )
    confirming.declare(fake.host(), profile.parse(profile_with(workloads=[])), None, confirming.Terms(120))
    words = ("web", "--unit", "extra.service", "--requests", f"cpu=100m,{TTY}=2", "--limits", f"memory=1Gi,{TTY}=2")
    assert runs.command(fake.host(), "admit", *words) == 0
    mine = running(fake, "extra.service").devices
    assert mine == {*LINKS[:2]}
    fake.wait(121)
    assert runs.command(fake.host(), "confirm", "--tick") == 0
    forget(fake, "torn", *([] if has_file else ["extra.service"]))
    limit = "/sys/fs/cgroup/corral.slice/corral-web.slice/memory.max"
    for dummy in range(2):
        assert runs.tick(fake.host()) == 2
        started = services.start(fake, SERIAL)
        assert (started is None) == (hold == "running")
        assert not services.allowed(fake, SERIAL)
        assert services.allowed(fake, "extra.service") == mine
        assert lost(fake) == {"extra.service"}
        assert fake.get(limit) == f"{1 << 30}\n"


def test_a_new_profile_gives_no_other_devices_to_what_runs(rolled: node.Node) -> None:
    before = rolled.get(list_of(DPDK))
    forget(rolled, "torn")
    with pytest.raises(CorralError, match=f"a grant that is lost: stop {DPDK}, and start it"):
        roll_out(rolled, changed("dpdk", limits={"cpu": 1, "memory": "64Mi", VFIO: 1}))
    assert rolled.get(list_of(DPDK)) == before


@pytest.mark.parametrize("loss", LOSSES)
def test_a_run_keeps_its_list_while_no_workload_of_the_profile_asks_for_devices(rolled: node.Node, loss: str) -> None:
    before = rolled.get(list_of(JOB))
    roll_out(rolled, profile_with(workloads=[]))
    forget(rolled, loss)
    services.stop(rolled, DPDK)
    assert runs.tick(rolled.host()) == 2
    assert (lost(rolled), rolled.get(list_of(JOB))) == ({JOB}, before)
    assert not rolled.has(list_of(DPDK))
    services.stop(rolled, JOB)
    runs.tick(rolled.host())
    in_sync(rolled)
    assert not rolled.has(list_of(JOB))


def test_a_profile_without_cpus_takes_the_lists_of_what_runs_back(rolled: node.Node) -> None:
    before = held(rolled)
    roll_out(rolled, {"name": "bare"})
    assert not rolled.systemd.programs[JOB]
    assert not list((rolled.root / CONTROL[1:]).glob("*.service.d/50-DeviceAllow.conf"))
    roll_out(rolled)
    runs.tick(rolled.host())
    assert lost(rolled) == set()
    assert held(rolled)["dpdk"] == before["dpdk"]


def test_a_removal_takes_it_back(rolled: node.Node) -> None:
    forget(rolled, "torn", DPDK, JOB)
    runs.remove(rolled.host())
    assert not list((rolled.root / CONTROL[1:]).glob("*.service.d/50-DeviceAllow.conf"))


def test_a_list_of_somebody_else_stays(rolled: node.Node) -> None:
    services.add(rolled, "own.service")
    command = rolled.host().run(
        "systemctl", "set-property", "--runtime", "--", "own.service", "DeviceAllow=/dev/kvm rw"
    )
    assert command.code == 0
    before = rolled.get(list_of("own.service"))
    forget(rolled, "gone", JOB)
    runs.tick(rolled.host())
    assert lost(rolled) == {DPDK, JOB}
    assert rolled.get(list_of("own.service")) == before


def test_each_list_with_devices_has_the_mark_and_nobody_is_shown_it(rolled: node.Node) -> None:
    assert MARK in rolled.systemd.devices_allowed(DPDK)
    rolled.drop(list_of(DPDK))
    change = next(one for one in runs.plan(rolled.host()) if one.property == "DeviceAllow")
    assert change.wanted == "/dev/char/240:7 rwm, /dev/char/10:196 rwm"
    assert MARK in change.steps[0].value.splitlines()


def test_a_list_that_an_older_version_set_gets_the_mark_and_its_item_says_so(rolled: node.Node) -> None:
    """It said that the list changes from what it is to the same."""
    others = [one for one in rolled.systemd.devices_allowed(DPDK) if one != MARK]
    lines = ("DeviceAllow=", *(f"DeviceAllow={one}" for one in others))
    command = rolled.host().run("systemctl", "set-property", "--runtime", "--", DPDK, *lines)
    assert command.code == 0
    (change,) = runs.plan(rolled.host())
    assert (change.subject, change.property, change.actual) == (DPDK, "DeviceAllow", "without the mark of Corral")
    runs.tick(rolled.host())
    in_sync(rolled)
    assert MARK in rolled.systemd.devices_allowed(DPDK)
