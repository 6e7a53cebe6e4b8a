# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units whose file in /run/corral/devices was deleted by hand, on a node that loses its checkpoint: only systemd's own file of the list of
each is left to tell of its devices.
"""

from __future__ import annotations

import json

import node
import pytest
import runs
import services
from _core.model.profile import profile
from _core.pipeline import confirming
from services import MARK
from test_devices_granted import (
    CHECKPOINT,
    DPDK,
    FOLDER,
    GPUS,
    JOB,
    LINKS,
    OTHER,
    SERIAL,
    TTY,
    changed,
    counted_anew,
    equip,
    held,
    in_sync,
    plug_gpus,
    profile_with,
    roll_out,
    running,
    without,
)

CONTROL = "/run/systemd/system.control"
LOSSES = {"gone": None, "torn": '{"data": '}


@pytest.fixture
def rolled(fake: node.Node) -> node.Node:
    equip(fake)
    assert not runs.install(fake.host()).error
    assert roll_out(fake).remaining == ()
    running(fake, DPDK)
    running(fake, SERIAL)
    running(fake, JOB)
    services.stop(fake, SERIAL)  # So the first device is free: it would be the next one that is given.
    in_sync(fake)
    return fake


def list_of(unit: str) -> str:
    return f"{CONTROL}/{unit}.d/50-DeviceAllow.conf"


def forget(fake: node.Node, loss: str, *units: str) -> None:
    """Only lists tell of the devices of these units."""
    for unit in units:
        fake.drop(f"{FOLDER}/{unit}.env")
    for path in (CHECKPOINT, f"{CHECKPOINT}.previous"):
        text = LOSSES[loss]
        if text is None:
            fake.drop(path)
        else:
            fake.put(path, text)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_unit_that_runs_keeps_its_devices(rolled: node.Node, loss: str) -> None:
    before = held(rolled)
    assert before.keys() == {"dpdk", "job:job@a"}
    lists = {unit: rolled.get(list_of(unit)) for unit in (DPDK, JOB)}
    forget(rolled, loss, DPDK, JOB)
    assert runs.tick(rolled.host()) == 2
    assert held(rolled) == before
    assert {unit: rolled.get(list_of(unit)) for unit in (DPDK, JOB)} == lists
    in_sync(rolled)
    # The other two of the three devices of a kind, and then none.
    given = {*running(rolled, OTHER).devices, *running(rolled, SERIAL).devices}
    assert len(given) == 2
    assert given.isdisjoint(before["job:job@a"])
    services.add(rolled, "job@c.service")
    assert services.start(rolled, "job@c.service") is None


def test_a_file_for_control_that_all_gpus_have_tells_of_none(fake: node.Node) -> None:
    """The first unit had the GPUs of all, and the others lost theirs while they ran."""
    plug_gpus(fake)
    fake.put("/dev/control", "char/195:255\n")
    data = json.loads(counted_anew(0, 1))
    for row in data["devices"]:
        row["containerEdits"]["deviceNodes"].append({"path": "/dev/control"})
    fake.put("/etc/cdi/vendor.json", json.dumps(data))
    ask = {"hold": "running", "requests": {"vendor.com/gpu": 1}}
    rows = [{"name": f"job{one}", "match": {"unit": f"job@{one}.service"}, **ask} for one in "ab"]
    roll_out(fake, profile_with(devices=GPUS, workloads=rows))
    assert running(fake, JOB).devices == {"/dev/gpu0", "/dev/control"}
    assert running(fake, OTHER).devices == {"/dev/gpu1", "/dev/control"}
    before, lists = held(fake), {unit: fake.get(list_of(unit)) for unit in (JOB, OTHER)}
    forget(fake, "gone", JOB, OTHER)
    runs.tick(fake.host())
    assert held(fake) == before
    assert {unit: fake.get(list_of(unit)) for unit in (JOB, OTHER)} == lists


def test_what_the_files_of_a_unit_let_it_open_was_not_granted(fake: node.Node) -> None:
    """It was taken for a device of the unit, from another one that runs and was granted it."""
    equip(fake)
    services.add(fake, "job@.service", lines="DeviceAllow=/dev/ttyUSB0 rw\n")
    roll_out(fake)
    assert running(fake, SERIAL).devices == {LINKS[0]}
    running(fake, JOB)
    before, lists = held(fake), {unit: fake.get(list_of(unit)) for unit in (SERIAL, JOB)}
    assert before["job:job@a"] == [LINKS[1]]
    forget(fake, "gone", SERIAL, JOB)
    runs.tick(fake.host())
    assert held(fake) == before
    assert {unit: fake.get(list_of(unit)) for unit in (SERIAL, JOB)} == lists


@pytest.mark.parametrize("loss", LOSSES)
def test_the_next_start_takes_no_device_of_another_one_that_runs(rolled: node.Node, loss: str) -> None:
    """No tick went over the node in between."""
    before = held(rolled)
    forget(rolled, loss, DPDK, JOB)
    assert running(rolled, OTHER).devices.isdisjoint(before["job:job@a"])
    assert held(rolled)["job:job@a"] == before["job:job@a"]


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
        assert (services.allowed(fake, "extra.service"), held(fake)["web"]) == (mine, sorted(mine))
        assert fake.get(limit) == f"{1 << 30}\n"


@pytest.mark.parametrize("loss", LOSSES)
def test_that_of_a_unit_that_has_ended_goes(rolled: node.Node, loss: str) -> None:
    forget(rolled, loss, JOB)
    services.end(rolled, JOB)
    assert rolled.has(list_of(JOB))
    runs.tick(rolled.host())
    in_sync(rolled)
    assert not rolled.has(list_of(JOB))
    assert held(rolled).keys() == {"dpdk"}


@pytest.mark.parametrize("is_template", [False, True])
def test_a_run_keeps_what_the_profile_does_not_give_it_any_more(is_template: bool, rolled: node.Node) -> None:
    """Its device was given to the next one while the run still had it open."""
    unit, name = (JOB, "job:job@a") if is_template else (SERIAL, "serial")
    running(rolled, unit)
    services.stop(rolled, SERIAL if is_template else JOB)
    device, before = held(rolled)[name], rolled.get(list_of(unit))
    roll_out(rolled, without("job") if is_template else changed("serial", requests={"cpu": "100m"}))
    in_sync(rolled)
    forget(rolled, "torn", unit)
    runs.tick(rolled.host())
    assert (held(rolled)[name], rolled.get(list_of(unit))) == (device, before)
    in_sync(rolled)
    assert running(rolled, SERIAL if is_template else OTHER).devices.isdisjoint(device)
    services.stop(rolled, unit)
    runs.tick(rolled.host())
    assert name not in held(rolled)
    assert not rolled.has(list_of(unit))


def test_a_run_keeps_it_while_no_workload_of_the_profile_asks_for_devices(rolled: node.Node) -> None:
    before = rolled.get(list_of(JOB)), held(rolled)["job:job@a"]
    roll_out(rolled, profile_with(workloads=[]))
    forget(rolled, "torn", JOB, DPDK)
    services.stop(rolled, DPDK)
    runs.tick(rolled.host())
    in_sync(rolled)
    assert held(rolled) == {"job:job@a": before[1]}
    assert rolled.get(list_of(JOB)) == before[0]
    assert not rolled.has(list_of(DPDK))
    services.stop(rolled, JOB)
    runs.tick(rolled.host())
    in_sync(rolled)
    assert not rolled.has(list_of(JOB))


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
    in_sync(rolled)
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
