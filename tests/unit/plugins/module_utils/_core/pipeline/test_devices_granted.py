# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices of workloads on a fake node: what a unit may open from its first instruction on, who has what for how long, and the way back."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import json
import os
import random
import shutil
import typing as t

import failing
import node
import pytest
import runs
import services
import test_workloads
import yaml
from _core.host import state, workload_files
from _core.host.command import Command
from _core.host.files import Host
from _core.managers.devices import device_grants
from _core.model.plan.plan import Change, Outcome
from _core.model.profile import profile
from _core.model.status import command_shapes
from _core.model.values.errors import CorralError
from _core.pipeline import admit_workload, applying, planning
from example_counts import LONG
from services import running
from shapes import misfits
from shared_data import REPOSITORY
from test_workloads import in_sync, lines_of, status, ticks_until_quiet

Make = t.Callable[..., node.Node]
CHECKPOINT = "/var/lib/corral/checkpoint.json"
SPEC = "/run/cdi/corral.node-grant.json"
NEWER_SPEC = "/run/cdi/corral.node-grant-0.5.0.json"
FOLDER = "/run/corral/devices"
DPDK, SERIAL, JOB, OTHER = "dpdk.service", "serial.service", "job@a.service", "job@b.service"
NICS = (
    "0000:3b:00.0",
    "0000:3b:00.1",
    "0000:5e:00.0",
)  # on NUMA nodes 1, 1 and none, each in an IOMMU group of its own
GROUPS = {NICS[0]: 7, NICS[1]: 8, NICS[2]: 9}
LINKS = tuple(f"/dev/serial/by-path/usb-{number}" for number in range(3))
VFIO, TTY = "example.com/vfio", "example.com/tty"
PROFILE: dict[str, t.Any] = {
    "name": "devices",
    "cpu": {"reserved": {"cpus": "0,4"}, "policy": "static", "shared": {"min_cpus": 2}},
    "topology": {"policy": "single-numa-node"},
    "devices": [
        {"name": VFIO, "match": {"pci": "8086:1572", "driver": "vfio-pci"}},
        {"name": TTY, "match": {"path": "/dev/serial/by-path/*"}},
    ],
    "workloads": [
        {"name": "dpdk", "match": {"unit": DPDK}, "limits": {"cpu": 2, "memory": "64Mi", VFIO: 1}},
        {"name": "serial", "match": {"unit": SERIAL}, "hold": "running", "requests": {TTY: 1, "cpu": "100m"}},
        {"name": "job", "match": {"unit": "job@*.service"}, "hold": "running", "requests": {TTY: 1}},
    ],
}


def profile_with(**sections: t.Any) -> dict[str, t.Any]:
    return {**copy.deepcopy(PROFILE), **sections}


def changed(workload: str, **keys: t.Any) -> dict[str, t.Any]:
    return profile_with(workloads=[{**one, **keys} if one["name"] == workload else one for one in PROFILE["workloads"]])


def without(*names: str) -> dict[str, t.Any]:
    return profile_with(workloads=[one for one in PROFILE["workloads"] if one["name"] not in names])


def plug_nic(fake: node.Node, address: str, group: int | None = None, driver: str = "vfio-pci") -> None:
    folder = f"/sys/bus/pci/devices/{address}"
    numa = -1 if address == NICS[2] else 1
    for name, text in (("vendor", "0x8086"), ("device", "0x1572"), ("class", "0x020000"), ("numa_node", str(numa))):
        fake.put(f"{folder}/{name}", f"{text}\n")
    group = GROUPS[address] if group is None else group
    (fake.root / folder[1:] / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    (fake.root / folder[1:] / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{group}")
    fake.put(f"/dev/vfio/{group}", f"char/240:{group}\n")


def unplug_nic(fake: node.Node, address: str) -> None:
    shutil.rmtree(fake.root / f"sys/bus/pci/devices/{address}")


def plug_tty(fake: node.Node, number: int) -> None:
    fake.put(f"/dev/ttyUSB{number}", f"char/188:{number}\n")
    link = fake.root / LINKS[number][1:]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"../../ttyUSB{number}")


def unplug_tty(fake: node.Node, number: int) -> None:
    (fake.root / LINKS[number][1:]).unlink()
    fake.drop(f"/dev/ttyUSB{number}")


def equip(fake: node.Node) -> None:
    """The devices, and the units that the profile is about."""
    fake.put("/dev/vfio/vfio", "char/10:196\n")
    for address in NICS:
        plug_nic(fake, address)
    for number in range(3):
        plug_tty(fake, number)
    services.add(fake, DPDK, SERIAL, "job@.service")


def roll_out_on(host: t.Any, name: str) -> None:
    applying.declare(host, profile.parse({**PROFILE, "name": name}))


def roll_out(fake: node.Node, data: dict[str, t.Any] | None = None) -> Outcome:
    return test_workloads.roll_out(fake, PROFILE if data is None else data)


def make_rolled(fake: node.Node) -> None:
    """A node with the profile and its agent, on which the first workload runs."""
    equip_with_agent(fake)
    assert roll_out(fake).remaining == ()
    assert services.start(fake, DPDK), fake.said
    in_sync(fake)
    fake.wait(10)


@pytest.fixture
def rolled(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_rolled)


def equip_with_agent(fake: node.Node) -> None:
    equip(fake)
    assert not runs.install(fake.host()).error


@pytest.fixture
def fake(made_once: node.MadeOnce) -> node.Node:
    """A node with the devices, the units and the agent, and no profile yet."""
    return made_once(equip_with_agent)


def held(fake: node.Node) -> dict[str, list[str]]:
    """Who has which devices, as the checkpoint has it."""
    rows = json.loads(fake.get(CHECKPOINT))["data"]["grants"]
    return {row["workload"]: [one[2] for one in row["devices"]] for row in rows if row.get("devices")}


def spec(fake: node.Node) -> dict[str, t.Any]:
    data = json.loads(fake.get(SPEC))
    assert (data["cdiVersion"], data["kind"]) == ("0.3.0", "corral.node/grant")
    return {row["name"]: row["containerEdits"] for row in data["devices"]}


# Delivery


def test_a_unit_has_its_devices_on_its_numa_node_from_the_first_instruction(rolled: node.Node) -> None:
    run = rolled.runs[DPDK]
    # Node 0 has CPUs for it as well, but no device.
    assert run.cpus == {2, 6}
    assert run.devices == {"/dev/vfio/7", "/dev/vfio/vfio"}
    assert run.env == {
        "CORRAL_DEVICES_EXAMPLE_COM_VFIO": NICS[0],
        "PCIDEVICE_EXAMPLE_COM_VFIO": NICS[0],
        "CORRAL_FILES_EXAMPLE_COM_VFIO": "/dev/vfio/7",
    }
    assert held(rolled) == {"dpdk": [NICS[0]]}


def test_a_run_gets_its_devices_at_its_start_without_a_reload_and_gives_them_back(rolled: node.Node) -> None:
    before, reloads = rolled.fingerprint(), rolled.systemd.reloads
    run = running(rolled, SERIAL)
    assert run.devices == {LINKS[0]}
    assert run.env["CORRAL_DEVICES_EXAMPLE_COM_TTY"] == LINKS[0]
    assert run.env["CORRAL_FILES_EXAMPLE_COM_TTY"] == "/dev/ttyUSB0"
    first, second = running(rolled, JOB), running(rolled, OTHER)
    assert (first.devices, second.devices) == ({LINKS[1]}, {LINKS[2]})
    in_sync(rolled)
    services.stop(rolled, SERIAL)
    assert held(rolled)["job:job@a"] == [LINKS[1]]
    assert services.allowed(rolled, SERIAL) == frozenset(), "closed, and nothing granted"
    run = running(rolled, SERIAL)
    assert run.devices == {LINKS[0]}
    for unit in (SERIAL, JOB, OTHER):
        services.stop(rolled, unit)
    in_sync(rolled)
    assert rolled.systemd.reloads == reloads
    left = [
        line for line in node.different(before, rolled.fingerprint()) if "/devices" in line or "DeviceAllow" in line
    ]
    assert left == []
    assert held(rolled) == {"dpdk": [NICS[0]]}


def test_an_instance_with_an_escaped_name_has_its_environment(rolled: node.Node) -> None:
    escaped, plain = "job@a\\x2db.service", "job@ax2db.service"
    before = set(os.listdir(rolled.root / FOLDER[1:]))
    run = running(rolled, escaped)
    assert (run.devices, run.env["CORRAL_DEVICES_EXAMPLE_COM_TTY"]) == ({LINKS[0]}, LINKS[0])
    in_sync(rolled)
    # systemd reads one file for both.
    run = running(rolled, plain)
    assert (run.devices, run.env["CORRAL_DEVICES_EXAMPLE_COM_TTY"]) == ({LINKS[1]}, LINKS[1])
    assert runs.tick(rolled.host()) == 2
    (item,) = status(rolled)["items"]
    assert (item["subject"], item["verdict"]) == (escaped, "unchangeable")
    services.stop(rolled, plain)
    runs.tick(rolled.host())
    assert f"CORRAL_DEVICES_EXAMPLE_COM_TTY={LINKS[0]}\n" in rolled.get(f"{FOLDER}/{plain}.env")
    in_sync(rolled)
    services.stop(rolled, escaped)
    in_sync(rolled)
    assert set(os.listdir(rolled.root / FOLDER[1:])) == before


@pytest.mark.parametrize("enabled", [False, True])
def test_what_a_unit_may_open_by_its_own_file_stays(fake: node.Node, enabled: bool) -> None:
    services.add(fake, SERIAL, lines="DeviceAllow=/dev/kvm\nDeviceAllow=char-tun  rw\n")
    if enabled:  # systemd keeps it loaded when it has stopped: what was set is not read from its files again.
        fake.put(f"/etc/systemd/system/multi-user.target.wants/{SERIAL}", "")
    roll_out(fake)
    assert running(fake, SERIAL).devices == {"/dev/kvm", "char-tun", LINKS[0]}
    in_sync(fake)
    services.stop(fake, SERIAL)
    assert services.allowed(fake, SERIAL) == {"/dev/kvm", "char-tun"}
    in_sync(fake)
    assert not fake.has("/run/systemd/system.control/serial.service.d/50-DeviceAllow.conf")


def test_a_start_that_finds_no_device_is_refused_and_says_who_has_them(rolled: node.Node) -> None:
    for unit in (SERIAL, JOB, OTHER):
        running(rolled, unit)
    assert services.start(rolled, "job@c.service") is None
    (said,) = [line for line in rolled.said if "missing" in line]
    assert 'job:job@c.requests["example.com/tty"]: 1: 1 missing: of 3 devices 0 can be given' in said
    assert f"serial has {LINKS[0]}" in said
    services.stop(rolled, JOB)
    assert running(rolled, "job@c.service").devices == {LINKS[1]}


def test_a_profile_that_asks_for_more_than_there_are_is_refused_before_anything_changes(rolled: node.Node) -> None:
    before = rolled.fingerprint()
    data = changed("dpdk", limits={"cpu": 2, "memory": "64Mi", VFIO: 4})
    with pytest.raises(CorralError) as refused:
        applying.declare(rolled.host(), profile.parse(data))
    assert 'workloads[0].requests["example.com/vfio"]: 4: dpdk: 1 missing: of 3 devices 3 can be given' in str(
        refused.value
    )
    assert node.different(before, rolled.fingerprint()) == []


def test_a_second_run_and_a_tick_change_nothing(rolled: node.Node) -> None:
    running(rolled, SERIAL)
    runs.tick(rolled.host())
    before, host = rolled.fingerprint(), rolled.host()
    outcome = applying.declare(host, profile.parse(PROFILE))
    assert (outcome.applied, outcome.remaining, host.acts) == ((), (), [])
    assert node.different(before, rolled.fingerprint()) == []
    rolled.wait(10)
    host = rolled.host()
    assert runs.tick(host) == 0
    assert host.commands == []


def test_a_unit_that_is_installed_later_is_given_its_devices_then(fake: node.Node) -> None:
    fake.drop(f"/usr/lib/systemd/system/{DPDK}")
    assert roll_out(fake).remaining == ()
    in_sync(fake)
    services.add(fake, DPDK)
    assert services.allowed(fake, DPDK) == frozenset(), "nothing yet, and nothing else"
    assert runs.tick(fake.host()) == 2
    assert running(fake, DPDK).devices == {"/dev/vfio/7", "/dev/vfio/vfio"}


def test_a_list_that_systemd_refuses_is_drift_in_a_tick_and_stops_a_start(rolled: node.Node) -> None:
    rolled.drop("/run/systemd/system.control/dpdk.service.d/50-DeviceAllow.conf")
    rolled.put(f"{FOLDER}/{DPDK}.env", "")
    number = failing.number_of(rolled, runs.tick, "DeviceAllow=")
    assert runs.tick(rolled.host("error", number)) == 2
    assert [(one["subject"], one["property"]) for one in status(rolled)["items"]] == [(DPDK, "DeviceAllow")]
    assert runs.tick(rolled.host()) == 2
    in_sync(rolled)
    number = failing.number_of(rolled, starts, "DeviceAllow=")
    assert services.start(rolled, SERIAL, rolled.host("error", number)) is None
    assert "serial" not in held(rolled)
    assert not rolled.has(f"{FOLDER}/{SERIAL}.env")


def test_the_example_gives_a_card_and_modems(fake: node.Node) -> None:
    services.add(fake, "reader@.service")
    example = yaml.safe_load((REPOSITORY / "examples" / "devices.yml").read_text(encoding="utf-8"))
    assert roll_out(fake, example).remaining == ()
    run = running(fake, DPDK)
    assert (run.devices, run.mems) == ({"/dev/vfio/7", "/dev/vfio/vfio"}, {1})
    assert run.cpus <= {2, 3, 6, 7}
    assert [running(fake, f"reader@{number}.service").devices for number in range(3)] == [{link} for link in LINKS]


def test_nothing_is_delivered_where_no_grant_can_be_kept(make: Make) -> None:
    fake = make(legacy=True)
    equip(fake)
    with pytest.raises(CorralError, match="cgroup v2"):
        applying.declare(fake.host(), profile.parse(PROFILE))
    fake.put("/etc/corral/profile.json", json.dumps(PROFILE))
    fake.put("/var/lib/corral/applied.json", json.dumps(profile.to_data(profile.parse(PROFILE))))
    runs.tick(fake.host())
    assert not fake.has(FOLDER)
    assert not fake.has(SPEC)


@pytest.mark.parametrize("by", ["tick", "removal"])
def test_a_list_is_taken_back_though_its_record_was_removed(rolled: node.Node, by: str) -> None:
    running(rolled, SERIAL)
    services.stop(rolled, SERIAL, rolled.host("killed", 1))
    rolled.drop(f"{FOLDER}/{SERIAL}.env")
    if by == "tick":
        runs.tick(rolled.host())
        assert "serial" not in held(rolled)
        in_sync(rolled)
    else:
        services.stop(rolled, DPDK)
        assert runs.remove(rolled.host()).error == ""
        assert services.allowed(rolled, SERIAL) is None
    assert not rolled.has(f"/run/systemd/system.control/{SERIAL}.d")


@pytest.mark.parametrize("reload_applies", [True, False])
def test_a_removal_takes_from_the_kernel_what_a_revert_by_hand_left_there(
    make: t.Callable[..., node.Node], reload_applies: bool
) -> None:
    """systemd 257 reads the files of a unit that runs, and tells the kernel nothing of them."""
    fake = make(reload_applies=reload_applies)
    equip(fake)
    assert not runs.install(fake.host()).error
    assert roll_out(fake).remaining == ()
    running(fake, SERIAL)
    assert fake.systemd.programs[SERIAL]
    fake.systemd.revert(SERIAL)
    assert bool(fake.systemd.programs[SERIAL]) == (not reload_applies)
    assert runs.remove(fake.host()).error == ""
    assert not fake.systemd.programs[SERIAL]
    assert not fake.has(f"/run/systemd/system.control/{SERIAL}.d")


def test_what_systemd_refuses_to_take_back_holds_up_no_release(rolled: node.Node) -> None:
    running(rolled, SERIAL)
    number = failing.number_of(rolled, lambda host: services.stop(host.node, SERIAL, host), "DeviceAllow=")
    services.stop(rolled, SERIAL, rolled.host("error", number))
    assert "serial" not in held(rolled)
    assert running(rolled, JOB).devices == {LINKS[0]}
    assert running(rolled, SERIAL).devices == {LINKS[1]}, "the list is set as a whole"
    in_sync(rolled)


# Containers


def test_containers_are_given_them_by_a_cdi_spec(rolled: node.Node) -> None:
    running(rolled, SERIAL)
    assert spec(rolled) == {
        "dpdk": {
            "deviceNodes": [
                {"path": "/dev/vfio/7", "permissions": "rwm"},
                {"path": "/dev/vfio/vfio", "permissions": "rwm"},
            ],
            "env": [
                f"CORRAL_DEVICES_EXAMPLE_COM_VFIO={NICS[0]}",
                f"PCIDEVICE_EXAMPLE_COM_VFIO={NICS[0]}",
                "CORRAL_FILES_EXAMPLE_COM_VFIO=/dev/vfio/7",
            ],
        },
        "serial": {
            "deviceNodes": [{"path": "/dev/ttyUSB0", "permissions": "rwm"}],
            "env": [f"CORRAL_DEVICES_EXAMPLE_COM_TTY={LINKS[0]}", "CORRAL_FILES_EXAMPLE_COM_TTY=/dev/ttyUSB0"],
        },
    }
    services.stop(rolled, SERIAL)
    assert list(spec(rolled)) == ["dpdk"]


def test_containers_of_a_pod_have_a_device_each_in_the_spec(fake: node.Node) -> None:
    containers = [
        {"name": "setup", "role": "init", "requests": {TTY: 1}},
        {"name": "app", "requests": {TTY: 1}},
        {"name": "log", "requests": {TTY: 1}},
    ]
    roll_out(fake, profile_with(workloads=[{"name": "web", "match": {"pod": "web"}, "containers": containers}]))
    found = {name: [row["path"] for row in edits["deviceNodes"]] for name, edits in spec(fake).items()}
    assert found == {
        "web": ["/dev/ttyUSB0", "/dev/ttyUSB1"],
        "web:setup": ["/dev/ttyUSB0"],
        "web:app": ["/dev/ttyUSB0"],
        "web:log": ["/dev/ttyUSB1"],
    }
    assert f"CORRAL_DEVICES_EXAMPLE_COM_TTY={LINKS[0]},{LINKS[1]}\n" in fake.get(f"{FOLDER}/web.workload.env")


GPU_SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "vendor.com/gpu",
    "containerEdits": {"mounts": [{"hostPath": "/usr/lib/gpu.so", "containerPath": "/usr/lib/gpu.so"}]},
    "devices": [
        {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu0"}], "env": ["GPU=0"]}},
        {"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu1"}], "env": ["GPU=1"]}},
    ],
}


def spec_edits(fake: node.Node) -> dict[str, t.Any]:
    """What the only device of the spec gives a container."""
    (row,) = json.loads(fake.get(NEWER_SPEC))["devices"]
    return t.cast("dict[str, t.Any]", row["containerEdits"])


GPUS = [{"name": "vendor.com/gpu", "match": {"cdi": "vendor.com/gpu"}}]
TRAIN = {"name": "train", "match": {"unit": SERIAL}, "requests": {"vendor.com/gpu": 1}}


def plug_gpus(fake: node.Node) -> None:
    for number in (0, 1):
        fake.put(f"/dev/gpu{number}", f"char/195:{number}\n")
    fake.put("/etc/cdi/vendor.json", json.dumps(GPU_SPEC))


def test_a_device_of_another_spec_is_passed_on_with_all_that_it_says(fake: node.Node) -> None:
    plug_gpus(fake)
    roll_out(fake, profile_with(devices=GPUS, workloads=[TRAIN]))
    data = json.loads(fake.get(NEWER_SPEC))
    assert data["cdiVersion"] == "0.5.0"
    assert data["devices"][0]["containerEdits"] == {
        "deviceNodes": [{"path": "/dev/gpu0"}],
        "env": ["CORRAL_DEVICES_VENDOR_COM_GPU=vendor.com/gpu=0", "CORRAL_FILES_VENDOR_COM_GPU=/dev/gpu0", "GPU=0"],
        "mounts": GPU_SPEC["containerEdits"]["mounts"],
    }
    assert running(fake, SERIAL).devices == {"/dev/gpu0"}
    services.stop(fake, SERIAL)
    outcome = roll_out(fake, profile_with(devices=GPUS, workloads=[{**TRAIN, "requests": {"vendor.com/gpu": 2}}]))
    said = "workload train: its devices give the variable GPU different values: a container has the first one"
    assert [note for note in outcome.plan.notes if "variable" in note] == [said]
    assert "GPU=0" in spec_edits(fake)["env"]
    assert "GPU=1" not in spec_edits(fake)["env"]
    assert len(spec_edits(fake)["mounts"]) == 1


def test_the_files_of_a_whole_spec_are_open_to_each_holder_and_taken_from_none(fake: node.Node) -> None:
    plug_gpus(fake)
    fake.put("/dev/gpuctl", "char/195:255\n")
    fake.put(
        "/etc/cdi/vendor.json", json.dumps({**GPU_SPEC, "containerEdits": {"deviceNodes": [{"path": "/dev/gpuctl"}]}})
    )
    other = {"name": "infer", "match": {"unit": DPDK}, "requests": {"vendor.com/gpu": 1}}
    roll_out(fake, profile_with(devices=GPUS, workloads=[TRAIN, other]))
    assert running(fake, SERIAL).devices == {"/dev/gpu0", "/dev/gpuctl"}
    assert running(fake, DPDK).devices == {"/dev/gpu1", "/dev/gpuctl"}
    in_sync(fake)
    services.stop(fake, SERIAL)
    runs.tick(fake.host())
    assert fake.runs[DPDK].devices == {"/dev/gpu1", "/dev/gpuctl"}
    assert running(fake, SERIAL).devices == {"/dev/gpu0", "/dev/gpuctl"}


def test_the_spec_stays_as_it_is_while_a_device_of_another_spec_is_gone(fake: node.Node) -> None:
    """An engine ignores a whole spec of which one device needs a later version than it says."""
    plug_gpus(fake)
    roll_out(fake, profile_with(devices=GPUS, workloads=[TRAIN]))
    before = fake.get(NEWER_SPEC)
    fake.drop("/dev/gpu0")
    assert runs.tick(fake.host()) == 2
    assert [(one["property"], one["actual"]) for one in status(fake)["items"]] == [
        ("health", "/dev/gpu0 in /etc/cdi/vendor.json: no such device")
    ]
    assert fake.get(NEWER_SPEC) == before


def counted_anew(*numbers: int) -> str:
    """The spec of GPUs once the vendor's tool has counted those that are there from 0 on."""
    rows = [
        {"name": f"{at}", "containerEdits": {"deviceNodes": [{"path": f"/dev/gpu{number}"}]}}
        for at, number in enumerate(numbers)
    ]
    return json.dumps({**GPU_SPEC, "devices": rows})


def roll_out_jobs(
    fake: node.Node, names: str = "ab", hold: str = "running", has_places: bool = False, match: str = "vendor.com/gpu"
) -> None:
    """Two GPUs, and a workload job@NAME.service for each name, which asks for one; the first one holds as ``hold`` says."""
    plug_gpus(fake)
    for number in (0, 1) if has_places else ():
        in_sysfs(fake, number)
    rows = [
        {"name": f"job{one}", "match": {"unit": f"job@{one}.service"}, "hold": how, "requests": {"vendor.com/gpu": 1}}
        for one, how in zip(names, (hold, *("running" for dummy in names)))
    ]
    roll_out(fake, profile_with(devices=[{"name": "vendor.com/gpu", "match": {"cdi": match}}], workloads=rows))


def in_sysfs(fake: node.Node, number: int) -> None:
    """The place of a GPU in sysfs."""
    folder = f"/sys/devices/pci0000:00/0000:00:0{number + 1}.0/gpu/gpu{number}"
    fake.put(f"{folder}/dev", f"195:{number}\n")
    link = fake.root / f"sys/dev/char/195:{number}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"../../{folder[5:]}")


@pytest.mark.parametrize("has_places", [True, False])
def test_a_gpu_that_is_gone_is_not_taken_for_the_next_one_that_the_spec_counts_in_its_place(
    fake: node.Node, has_places: bool
) -> None:
    """What a vendor's tool writes once a GPU is lost: those after it have another number, and the holders they had."""
    roll_out_jobs(fake, "abc", has_places=has_places)
    assert (running(fake, JOB).devices, running(fake, OTHER).devices) == ({"/dev/gpu0"}, {"/dev/gpu1"})
    fake.drop("/dev/gpu0")
    if has_places:
        fake.drop("/sys/dev/char/195:0")
    fake.put("/etc/cdi/vendor.json", counted_anew(1))
    for dummy in range(2):
        assert runs.tick(fake.host()) == 2
        fake.wait(10)
    gone = [(one["subject"], one["actual"]) for one in status(fake)["items"]]
    place = "devices/pci0000:00/0000:00:01.0/gpu/gpu0" if has_places else "/dev/gpu0"
    assert gone == [(f"joba {place}", "gone")]
    assert held(fake) == {"joba": [place], "jobb": ["vendor.com/gpu=0"]}
    assert "/dev/char/195:1 rwm" not in fake.systemd.devices_allowed(JOB)
    assert "/dev/char/195:1 rwm" in fake.systemd.devices_allowed(OTHER)
    services.stop(fake, JOB)
    assert services.start(fake, "job@c.service") is None
    assert services.start(fake, JOB) is None, "the other has the only one"
    services.stop(fake, OTHER)
    assert running(fake, JOB).devices == {"/dev/gpu1"}
    in_sync(fake)


@pytest.mark.parametrize("away_before", [True, False], ids=["away before", "away since"])
def test_a_gpu_is_not_given_to_a_second_one_that_the_spec_counts_anew_while_its_file_is_away(
    away_before: bool, fake: node.Node
) -> None:
    """As when a driver is loaded again: sysfs has no place of such a GPU, so that it was not known as the granted one."""
    roll_out_jobs(fake, has_places=True)
    assert (running(fake, JOB).devices, running(fake, OTHER).devices) == ({"/dev/gpu0"}, {"/dev/gpu1"})
    for path in ("/dev/gpu0", "/sys/dev/char/195:0", "/dev/gpu1", "/sys/dev/char/195:1"):
        fake.drop(path)
    if away_before:
        runs.tick(fake.host())
    fake.put("/etc/cdi/vendor.json", counted_anew(1))
    if not away_before:
        runs.tick(fake.host())
    fake.put("/dev/gpu1", "char/195:1\n")
    in_sysfs(fake, 1)
    runs.tick(fake.host())
    assert shared(fake) == []
    assert held(fake)["jobb"] == ["vendor.com/gpu=0"]
    assert "/dev/char/195:1 rwm" not in fake.systemd.devices_allowed(JOB)
    assert "/dev/char/195:1 rwm" in fake.systemd.devices_allowed(OTHER)


def test_a_gpu_that_is_the_only_one_left_is_told_from_the_file_for_control_of_all(fake: node.Node) -> None:
    """Its spec has that file for this one alone then: what ran on it was told that its GPU is gone."""
    fake.put("/dev/control", "char/195:255\n")
    control = {"path": "/dev/control"}

    def count(*numbers: int) -> None:
        data = json.loads(counted_anew(*numbers))
        for row in data["devices"]:
            row["containerEdits"]["deviceNodes"].append(control)
        fake.put("/etc/cdi/vendor.json", json.dumps(data))

    roll_out_jobs(fake)
    count(0, 1)
    assert running(fake, JOB).devices == {"/dev/gpu0", "/dev/control"}
    assert running(fake, OTHER).devices == {"/dev/gpu1", "/dev/control"}
    fake.drop("/dev/gpu0")
    count(1)
    for dummy in range(2):
        runs.tick(fake.host())
        assert held(fake) == {"joba": ["/dev/gpu0"], "jobb": ["vendor.com/gpu=0"]}
    fake.put("/dev/gpu0", "char/195:0\n")
    fake.drop("/dev/gpu1")
    count(0)
    runs.tick(fake.host())
    assert held(fake) == {"joba": ["vendor.com/gpu=0"], "jobb": ["/dev/gpu1"]}
    assert "/dev/char/195:0 rwm" not in fake.systemd.devices_allowed(OTHER)


@pytest.mark.parametrize("hold", ["running", "declared"])
@pytest.mark.parametrize("has_places", [True, False])
@pytest.mark.parametrize("away", [True, False], ids=["away", "left out"])
def test_what_runs_keeps_the_gpu_that_a_spec_leaves_out_for_a_while(
    fake: node.Node, away: bool, has_places: bool, hold: str
) -> None:
    """As where a vendor's tool runs while one is reset. Its number was taken for it, and once it was back another workload got it."""
    roll_out_jobs(fake, hold=hold, has_places=has_places)
    assert running(fake, JOB).devices == {"/dev/gpu0"}
    for path in ("/dev/gpu0", *(["/sys/dev/char/195:0"] if has_places else ())) if away else ():
        fake.drop(path)
    fake.put("/etc/cdi/vendor.json", counted_anew(1))
    for dummy in range(2):
        runs.tick(fake.host())
        assert fake.systemd.programs[JOB] == (set() if away else {"char/195:0"})
    assert away <= ("gone" in {one["actual"] for one in status(fake)["items"]})
    if away:
        fake.put("/dev/gpu0", "char/195:0\n")
        if has_places:
            in_sysfs(fake, 0)
    fake.put("/etc/cdi/vendor.json", counted_anew(0, 1))
    ticks_until_quiet(fake)
    assert held(fake) == {"joba": ["vendor.com/gpu=0"]}
    assert fake.systemd.programs[JOB] == {"char/195:0"}
    assert running(fake, OTHER).devices == {"/dev/gpu1"}


def test_a_run_keeps_its_gpu_when_the_spec_counts_otherwise_and_no_resource_is_declared_any_more(
    fake: node.Node,
) -> None:
    roll_out_jobs(fake, "a")
    assert running(fake, JOB).devices == {"/dev/gpu0"}
    roll_out(fake, profile_with(devices=[], workloads=[]))
    fake.put("/etc/cdi/vendor.json", counted_anew(1))
    for dummy in range(2):
        runs.tick(fake.host())
        assert fake.systemd.programs[JOB] == {"char/195:0"}
    in_sync(fake)


def test_gpus_that_the_spec_counts_otherwise_stay_with_what_runs(fake: node.Node) -> None:
    roll_out_jobs(fake)
    assert running(fake, JOB).devices == {"/dev/gpu0"}
    fake.put("/etc/cdi/vendor.json", counted_anew(1, 0))
    assert running(fake, OTHER).devices == {"/dev/gpu1"}
    ticks_until_quiet(fake)
    assert held(fake) == {"joba": ["vendor.com/gpu=1"], "jobb": ["vendor.com/gpu=0"]}
    assert "/dev/char/195:1 rwm" not in fake.systemd.devices_allowed(JOB)


def test_a_gpu_that_is_declared_by_its_number_stays_with_what_runs_when_the_spec_counts_otherwise(
    fake: node.Node,
) -> None:
    roll_out_jobs(fake, match="vendor.com/gpu=0")
    assert running(fake, JOB).devices == {"/dev/gpu0"}
    fake.put("/etc/cdi/vendor.json", counted_anew(1, 0))
    ticks_until_quiet(fake)
    assert held(fake) == {"joba": ["vendor.com/gpu=1"]}
    assert "/dev/char/195:0 rwm" in fake.systemd.devices_allowed(JOB)
    assert "/dev/char/195:1 rwm" not in fake.systemd.devices_allowed(JOB)
    assert running(fake, OTHER).devices == {"/dev/gpu1"}
    assert shared(fake) == []
    services.stop(fake, OTHER)
    services.stop(fake, JOB)
    assert running(fake, JOB).devices == {"/dev/gpu1"}
    in_sync(fake)


def test_a_run_keeps_the_gpus_of_a_resource_that_is_declared_no_longer_when_the_spec_counts_otherwise(
    fake: node.Node,
) -> None:
    plug_gpus(fake)
    two = {**TRAIN, "hold": "running", "requests": {"vendor.com/gpu": 2}}
    roll_out(fake, profile_with(devices=GPUS, workloads=[two]))
    assert running(fake, SERIAL).devices == {"/dev/gpu0", "/dev/gpu1"}
    roll_out(fake, profile_with())
    fake.drop("/dev/gpu0")
    fake.put("/etc/cdi/vendor.json", counted_anew(1))
    for dummy in range(2):
        runs.tick(fake.host())
        assert held(fake) == {"dpdk": [NICS[0]], "train": ["/dev/gpu0", "vendor.com/gpu=0"]}
    assert not fake.has(f"{CHECKPOINT}.damaged")
    assert "/dev/char/195:1 rwm" in fake.systemd.devices_allowed(SERIAL)


def test_a_declared_workload_keeps_a_gpu_that_its_resource_has_no_more_and_an_item_says_so(fake: node.Node) -> None:
    plug_gpus(fake)
    first = [{"name": "vendor.com/gpu", "match": {"cdi": "vendor.com/gpu=0"}}]
    roll_out(fake, profile_with(devices=first, workloads=[TRAIN]))
    fake.put("/etc/cdi/vendor.json", counted_anew(1, 0))
    runs.tick(fake.host())
    assert runs.tick(fake.host()) == 2
    (item,) = status(fake)["items"]
    assert (item["subject"], item["actual"]) == ("train vendor.com/gpu=1", "not of vendor.com/gpu any more")
    assert item["reason"].startswith("train has it: let vendor.com/gpu match it again, or take the request")
    assert running(fake, SERIAL).devices == {"/dev/gpu0"}


def test_a_newer_spec_of_a_vendor_leaves_other_grants_to_older_engines(rolled: node.Node) -> None:
    rolled.put("/dev/gpu0", "char/195:0\n")
    rolled.put("/etc/cdi/vendor.json", json.dumps(GPU_SPEC))
    devices = [*PROFILE["devices"], {"name": "vendor.com/gpu", "match": {"cdi": "vendor.com/gpu=0"}}]
    one = {"name": "train", "match": {"unit": SERIAL}, "requests": {"vendor.com/gpu": 1}}
    roll_out(rolled, profile_with(devices=devices, workloads=[PROFILE["workloads"][0], one]))
    assert list(spec(rolled)) == ["dpdk"]
    assert spec_edits(rolled)["deviceNodes"] == [{"path": "/dev/gpu0"}]
    rolled.put("/etc/cdi/vendor.json", json.dumps({**GPU_SPEC, "cdiVersion": "0.6.0"}))
    runs.tick(rolled.host())
    assert sorted(os.listdir(rolled.root / "run/cdi")) == ["corral.node-grant-0.6.0.json", "corral.node-grant.json"]
    in_sync(rolled)
    roll_out(rolled, without("dpdk"))
    services.stop(rolled, DPDK)
    runs.tick(rolled.host())
    assert os.listdir(rolled.root / "run/cdi") == []


# Quotas of tenants

QUOTA = {"name": "ports", "hard": {f"requests.{TTY}": 1}}
ACME = {"name": "acme", "members": {"units": ["serial.service", "job@*.service"]}, "quota": [QUOTA]}


def test_a_quota_of_devices_is_kept_over_the_workloads_of_a_tenant(fake: node.Node) -> None:
    """Of three adapters two are free: it is the quota that refuses the second start, and a stop makes room."""
    roll_out(fake, profile_with(tenants=[ACME]))
    assert running(fake, SERIAL).devices
    assert services.start(fake, JOB) is None
    said = f"tenant acme, quota ports: requests.{TTY} used 1, asked 1, hard 1 (serial has 1)"
    assert said in " ".join(fake.said)
    services.stop(fake, SERIAL)
    assert running(fake, JOB).devices


@pytest.mark.parametrize("left", [1, 0])
def test_a_quota_counts_the_devices_that_a_run_has_until_it_stops(fake: node.Node, left: int) -> None:
    """It asks for fewer of them by now, or for none, and no other one of the tenant gets what that would leave of the quota."""
    quota = [{"name": "ports", "hard": {f"requests.{TTY}": 2}}]
    tenants = [{**ACME, "quota": quota}]
    rows = [{"name": "serial", "match": {"unit": SERIAL}, "hold": "running", "requests": {TTY: 2}}]
    rows.append({"name": "job", "match": {"unit": JOB}, "hold": "running", "requests": {TTY: 1}})
    roll_out(fake, profile_with(tenants=tenants, workloads=rows))
    assert len(running(fake, SERIAL).devices) == 2
    rows[0]["requests"] = {TTY: 1} if left else {"cpu": "100m"}
    roll_out(fake, profile_with(tenants=tenants, workloads=rows))
    assert len(held(fake)["serial"]) == 2
    assert services.start(fake, JOB) is None, "three of the tenant's two"
    assert f"tenant acme, quota ports: requests.{TTY} used 2, asked 1, hard 2 (serial has 2)" in " ".join(fake.said)
    services.stop(fake, SERIAL)
    assert running(fake, JOB).devices


# What is shown


def test_who_has_what_is_shown(rolled: node.Node) -> None:
    running(rolled, SERIAL)
    runs.tick(rolled.host())
    table = [line.split() for line in runs.printed(rolled.host(), "devices").splitlines()]
    assert table[1][:2] + table[1][4:6] == [VFIO, NICS[0], "healthy", "dpdk"]
    assert table[4][:2] + table[4][4:6] == [TTY, LINKS[0], "healthy", "serial"]
    unplug_tty(rolled, 0)
    data = json.loads(runs.printed(rolled.host(), "devices", "--json", code=2))
    assert misfits(data, command_shapes.Devices) == []
    found = {one["name"]: one for one in data["resources"]}
    assert (found[TTY]["healthy"], found[TTY]["granted"]) == (2, 1)
    assert found[TTY]["missing"] == [{"id": LINKS[0], "workload": "serial"}]
    assert [one["workload"] for one in found[VFIO]["devices"]] == ["dpdk", None, None]
    assert f"{LINKS[0]}  -     -         gone     serial" in runs.printed(rolled.host(), "devices", code=2)


def test_the_status_has_the_devices_and_how_many_are_left(rolled: node.Node) -> None:
    running(rolled, SERIAL)
    runs.tick(rolled.host())
    found = status(rolled)
    (one,) = [one for one in found["workloads"] if one["name"] == "dpdk"]
    assert one["devices"] == {VFIO: [NICS[0]]}
    assert found["budget"][VFIO] == {"allocatable": 3, "requested": 1, "limits": 1, "unlimited": 0}
    assert f"{VFIO}: 1 of 3 requested; limits 1" in runs.printed(rolled.host(), "status")
    assert f"devices: {VFIO} {NICS[0]}" in runs.printed(rolled.host(), "explain", "dpdk")


def test_a_workload_is_admitted_by_hand_with_devices(rolled: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("admit", "extra", "--unit", "extra.service", "--requests", f"{TTY}=2")
    services.add(rolled, "extra.service")
    assert runs.command(rolled.host(), *words) == 0, capsys.readouterr()
    assert held(rolled)["extra"] == [LINKS[0], LINKS[1]]
    assert running(rolled, "extra.service").devices == {LINKS[0], LINKS[1]}
    with pytest.raises(CorralError, match="no such resource is declared here"):
        runs.command(rolled.host(), "admit", "other", "--unit", "other.service", "--requests", "example.com/none=1")
    services.stop(rolled, "extra.service")
    assert runs.command(rolled.host(), "release", "extra") == 0
    assert "extra" not in held(rolled)


@pytest.mark.parametrize("hold", ["running", "declared"])
def test_a_running_workload_that_is_admitted_with_others_keeps_its_devices(rolled: node.Node, hold: str) -> None:
    services.add(rolled, "late.service")
    own = ("--unit", "late.service", "--hold")
    assert runs.command(rolled.host(), "admit", "late", *own, hold, "--limits", f"cpu=100m,memory=16Mi,{TTY}=1") == 0
    running(rolled, "late.service")
    others = f"cpu=100m,memory=16Mi,{VFIO}=1"
    assert runs.command(rolled.host(), "admit", "late", *own, "running", "--limits", others) == 0
    assert sorted(held(rolled)["late"]) == [LINKS[0], NICS[1]]
    assert rolled.systemd.programs["late.service"] == {"char/188:0", "char/240:8", "char/10:196"}
    with pytest.raises(CorralError, match="3 missing"):
        runs.command(rolled.host(), "admit", "late", *own, "running", "--limits", f"cpu=100m,memory=16Mi,{TTY}=6")
    assert sorted(held(rolled)["late"]) == [LINKS[0], NICS[1]]
    in_sync(rolled)
    services.stop(rolled, "late.service")
    runs.tick(rolled.host())
    run = running(rolled, "late.service")
    assert run.devices == {"/dev/vfio/8", "/dev/vfio/vfio"}
    assert held(rolled)["late"] == [NICS[1]]
    in_sync(rolled)


def test_an_entry_that_cannot_be_kept_is_named(fake: node.Node) -> None:
    services.add(fake, SERIAL, lines="DeviceAllow=%t/own\n")
    roll_out(fake)
    running(fake, SERIAL)
    assert runs.tick(fake.host()) == 2
    (item,) = status(fake)["items"]
    assert (item["subject"], item["wanted"], item["verdict"]) == (SERIAL, "%t/own rwm", "unchangeable")


DROPIN = "/etc/systemd/system/{}.d/10-corral-workloads.conf"


def bound(fake: node.Node, unit: str) -> list[str]:
    """What Corral's drop-in of a unit has the unit see in its own /dev."""
    lines = fake.get(DROPIN.format(unit)).splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith("BindPaths=")]


ALL_TTYS = ["-/dev/serial/by-path", *(f"-/dev/ttyUSB{number}" for number in range(3))]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("PrivateDevices=yes\n", ALL_TTYS),
        ("PrivateDevices=yes\nBindPaths=/srv -/dev/serial:/dev/serial\nBindPaths=/dev/ttyUSB0\n", ALL_TTYS[2:]),
        ("PrivateDevices=yes\nPrivateDevices=no\n", []),
        ("PrivateDevices=true\nBindPaths=/dev\nBindPaths=\nBindReadOnlyPaths=/dev/serial\n", ALL_TTYS[1:]),
    ],
    ids=["private", "brought back", "not private", "taken out again"],
)
def test_a_unit_with_a_dev_of_its_own_sees_its_devices_there(fake: node.Node, lines: str, wanted: list[str]) -> None:
    fake.put("/srv/file", "")
    services.add(fake, SERIAL, lines=lines)
    assert roll_out(fake).remaining == ()
    assert bound(fake, SERIAL) == wanted
    assert running(fake, SERIAL).devices == {LINKS[0]}
    in_sync(fake)
    if "BindReadOnlyPaths" not in lines:  # The stand-in for systemd knows none.
        assert services.sees(fake, SERIAL, LINKS[0])
    assert services.sees(fake, SERIAL, "/dev/ttyUSB0")
    services.stop(fake, SERIAL)
    running(fake, JOB)
    assert running(fake, SERIAL).devices == {LINKS[1]}, "another one at this start, and nothing had to be read again"
    assert services.sees(fake, SERIAL, "/dev/ttyUSB1")
    in_sync(fake)
    before = fake.get(f"/usr/lib/systemd/system/{SERIAL}")
    runs.remove(fake.host())
    assert (fake.get(f"/usr/lib/systemd/system/{SERIAL}"), fake.has(DROPIN.format(SERIAL))) == (before, False)


def test_the_folder_of_vfio_is_there_with_what_comes_later(fake: node.Node) -> None:
    services.add(fake, DPDK, lines="PrivateDevices=yes\n")
    assert roll_out(fake).remaining == ()
    assert bound(fake, DPDK) == ["-/dev/vfio"]
    before = fake.systemd.reloads
    fake.put("/dev/vfio/12", "char/240:12\n")
    running(fake, DPDK)
    in_sync(fake)
    assert fake.systemd.reloads == before
    assert all(services.sees(fake, DPDK, path) for path in ("/dev/vfio/vfio", "/dev/vfio/7", "/dev/vfio/12"))
    assert fake.runs[DPDK].devices == {"/dev/vfio/7", "/dev/vfio/vfio"}, "and may open its own alone"


def test_all_instances_of_a_template_see_their_devices(fake: node.Node) -> None:
    services.add(fake, "job@.service", lines="PrivateDevices=yes\n")
    assert roll_out(fake).remaining == ()
    assert bound(fake, "job@.service") == ALL_TTYS
    assert running(fake, JOB).devices == {LINKS[0]}
    assert services.sees(fake, JOB, LINKS[0])
    in_sync(fake)


def test_what_is_plugged_in_later_is_seen_from_the_next_tick_on(fake: node.Node) -> None:
    unplug_tty(fake, 2)
    services.add(fake, SERIAL, lines="PrivateDevices=yes\n")
    assert roll_out(fake).remaining == ()
    running(fake, SERIAL)
    plug_tty(fake, 2)
    assert runs.tick(fake.host()) == 2
    in_sync(fake)
    assert bound(fake, SERIAL) == ALL_TTYS
    # One that a workload has stays in the list while it is away: it may come back at any moment.
    unplug_tty(fake, 0)
    assert runs.tick(fake.host()) == 2
    assert bound(fake, SERIAL) == ALL_TTYS
    unplug_tty(fake, 1)
    runs.tick(fake.host())
    assert bound(fake, SERIAL) == [one for one in ALL_TTYS if "USB1" not in one]


def test_what_the_kernel_finds_late_at_a_boot_is_seen_by_the_first_start(fake: node.Node) -> None:
    services.add(fake, SERIAL, lines="PrivateDevices=yes\n")
    assert roll_out(fake).remaining == ()
    for number in range(3):
        unplug_tty(fake, number)
    reloads = fake.systemd.reloads
    services.reboot(fake)
    for number in range(3):
        plug_tty(fake, number)
    running(fake, SERIAL)
    assert services.sees(fake, SERIAL, "/dev/ttyUSB0")
    ticks_until_quiet(fake)
    assert fake.systemd.reloads == reloads


@pytest.mark.parametrize("mode", ["audit", "enforce"])
def test_a_unit_that_gets_a_dev_of_its_own_later(fake: node.Node, mode: str) -> None:
    assert roll_out(fake, profile_with(mode=mode)).remaining == ()
    running(fake, SERIAL)
    ticks_until_quiet(fake)
    fake.put(f"/etc/systemd/system/{SERIAL}.d/50-private.conf", "[Service]\nPrivateDevices=yes\n")
    assert runs.tick(fake.host()) == 2
    if mode == "audit":
        (item,) = status(fake)["items"]
        assert (item["manager"], item["location"]) == ("workloads", DROPIN.format(SERIAL))
    else:
        in_sync(fake)
        assert services.sees(fake, SERIAL, "/dev/ttyUSB0")


def test_a_file_that_empties_the_list_of_what_is_seen_is_named(fake: node.Node) -> None:
    services.add(fake, SERIAL, lines="PrivateDevices=yes\n")
    late = f"/etc/systemd/system/{SERIAL}.d/50-late.conf"
    fake.put(late, "[Service]\nBindPaths=\n")
    roll_out(fake)
    running(fake, SERIAL)
    assert runs.tick(fake.host()) == 2
    (item,) = status(fake)["items"]
    assert (item["property"], item["wanted"]) == ("PrivateDevices", f"{LINKS[0]}, /dev/ttyUSB0")
    assert (item["location"], item["verdict"]) == (late, "unchangeable")
    fake.drop(late)
    ticks_until_quiet(fake)


def test_a_file_that_cannot_be_bound_is_named(fake: node.Node) -> None:
    fake.put("/dev/tty:9", "char/4:9\n")
    services.add(fake, SERIAL, lines="PrivateDevices=yes\n")
    roll_out(fake, profile_with(devices=[{"name": TTY, "match": {"path": "/dev/tty:?"}}], workloads=[ALONE]))
    running(fake, SERIAL)
    assert bound(fake, SERIAL) == []
    assert runs.tick(fake.host()) == 2
    (item,) = status(fake)["items"]
    assert (item["property"], item["wanted"]) == ("PrivateDevices", "/dev/tty:9")


ALONE: dict[str, t.Any] = {"name": "serial", "match": {"unit": SERIAL}, "hold": "running", "requests": {TTY: 1}}


@pytest.mark.parametrize(
    ("subject", "wanted"),
    [
        (DPDK, "workloads[0]"),
        (f"{FOLDER}/{DPDK}.env", "workloads[0]"),
        (OTHER, "workloads[2]"),
        (f"serial {LINKS[0]}", "workloads[1]"),
        (f"job:job@a {LINKS[0]}", "workloads[2]"),
        (f"{FOLDER}/serial.workload.env", "workloads[1]"),
        (SPEC, "devices"),
        ("gone.service", "devices"),
    ],
)
def test_the_key_that_a_change_follows_from(subject: str, wanted: str) -> None:
    change = Change("devices", subject, "x", None, None, "", "")
    assert device_grants.key_of(change, profile.parse(PROFILE)) == wanted


# Devices that go and come


def test_a_device_that_is_gone_is_drift_and_taken_from_no_one(rolled: node.Node) -> None:
    running(rolled, SERIAL)
    unplug_tty(rolled, 0)
    before = held(rolled)
    assert runs.tick(rolled.host()) == 2
    (item,) = status(rolled)["items"]
    assert (item["subject"], item["property"], item["actual"]) == (f"serial {LINKS[0]}", "health", "gone")
    assert item["verdict"] == "unchangeable"
    assert item["reason"] == "serial has it: bring it back, or stop and start serial for another one"
    assert held(rolled) == before
    assert (
        f"devices: {TTY} {LINKS[0]} (gone)" in runs.printed(rolled.host(), "explain", "serial", code=None).splitlines()
    )
    assert services.allowed(rolled, SERIAL) == {LINKS[0]}
    # Others get what is left, and it gets its own back.
    assert running(rolled, JOB).devices == {LINKS[1]}
    plug_tty(rolled, 0)
    assert runs.tick(rolled.host()) == 2, "the kernel is told its number again"
    in_sync(rolled)
    assert held(rolled)["serial"] == [LINKS[0]]


def test_a_device_that_comes_back_under_another_name_is_opened_to_its_unit_again(rolled: node.Node) -> None:
    """The kernel's list has numbers: /dev/ttyUSB0 may be another device by now, that of another workload."""
    running(rolled, SERIAL)
    unplug_tty(rolled, 0)
    runs.tick(rolled.host())
    rolled.put("/dev/ttyUSB7", "char/188:7\n")
    (rolled.root / LINKS[0][1:]).symlink_to("../../ttyUSB7")
    items = {(one.subject, one.property) for one in runs.plan(rolled.host()) if one.manager == "devices"}
    assert items == {(f"{FOLDER}/{SERIAL}.env", "content"), (SPEC, "content"), (SERIAL, "DeviceAllow")}
    number = failing.number_of(rolled, runs.tick, "DeviceAllow=") - 1
    # A run that dies just before leaves it to the next one.
    with contextlib.suppress(node.Killed):
        runs.tick(rolled.host("killed", number))
    host = rolled.host()
    runs.tick(host)
    assert [act for act in host.acts if "DeviceAllow=" in act] != []
    assert "CORRAL_FILES_EXAMPLE_COM_TTY=/dev/ttyUSB7\n" in rolled.get(f"{FOLDER}/{SERIAL}.env")
    in_sync(rolled)
    host = rolled.host()
    runs.tick(host)
    assert [act for act in host.acts if "DeviceAllow=" in act] == []


def plug_tty_as(fake: node.Node, number: int, name: int) -> None:
    """Plug a serial adapter in at its port, under another name."""
    fake.put(f"/dev/ttyUSB{name}", f"char/188:{name}\n")
    for link, text in (
        (LINKS[number], f"../../ttyUSB{name}"),
        (f"/sys/dev/char/188:{name}", f"../../devices/pci0000:00/usb{number}/ttyUSB{name}"),
    ):
        file = fake.root / link[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.symlink_to(text)


def at_ports(fake: node.Node) -> None:
    """All adapters are known by their ports."""
    for number in range(3):
        plug_tty_as(fake, number, number)


def test_a_unit_may_not_open_what_came_back_under_the_number_of_its_own(rolled: node.Node) -> None:
    at_ports(rolled)
    running(rolled, SERIAL)
    running(rolled, JOB)
    programs = rolled.systemd.programs
    assert (programs[SERIAL], programs[JOB]) == ({"char/188:0"}, {"char/188:1"})
    unplug_tty(rolled, 0)
    unplug_tty(rolled, 1)
    plug_tty_as(rolled, 1, 0)
    assert runs.tick(rolled.host()) == 2
    assert (programs[SERIAL], programs[JOB]) == (frozenset(), {"char/188:0"})
    assert "/dev/ttyUSB0" not in rolled.get(f"{FOLDER}/{SERIAL}.env")
    assert sorted(spec(rolled)) == ["dpdk", "job:job_40a"]
    host = rolled.host()
    assert runs.tick(host) == 2
    assert host.commands == []
    # The other one goes, and its own device comes back under the number that it had.
    rolled.drop(LINKS[1])
    rolled.drop("/dev/ttyUSB0")
    runs.tick(rolled.host())
    plug_tty_as(rolled, 0, 0)
    runs.tick(rolled.host())
    assert programs[SERIAL] == {"char/188:0"}
    assert "CORRAL_FILES_EXAMPLE_COM_TTY=/dev/ttyUSB0\n" in rolled.get(f"{FOLDER}/{SERIAL}.env")


def test_a_device_whose_resource_got_another_name_is_followed(rolled: node.Node) -> None:
    at_ports(rolled)
    running(rolled, SERIAL)
    other = "example.com/modem"
    rows = [row for row in PROFILE["workloads"] if row["name"] == "dpdk"]
    roll_out(
        rolled, profile_with(devices=[PROFILE["devices"][0], {**PROFILE["devices"][1], "name": other}], workloads=rows)
    )
    assert held(rolled)["serial"] == [LINKS[0]]
    unplug_tty(rolled, 0)
    plug_tty_as(rolled, 0, 7)
    runs.tick(rolled.host())
    assert rolled.systemd.programs[SERIAL] == {"char/188:7"}
    in_sync(rolled)


@pytest.mark.parametrize(
    "rows", [[], [{"name": TTY, "match": {"path": LINKS[2]}}]], ids=["not declared", "matches another one"]
)
def test_a_device_that_no_resource_has_any_more_is_followed_by_its_id(
    rolled: node.Node, rows: list[dict[str, t.Any]]
) -> None:
    at_ports(rolled)
    running(rolled, SERIAL)
    running(rolled, JOB)
    left = [row for row in PROFILE["workloads"] if row["name"] == "dpdk"]
    roll_out(rolled, profile_with(devices=[PROFILE["devices"][0], *rows], workloads=left))
    for number in range(2):
        unplug_tty(rolled, number)
    for number in range(2):
        plug_tty_as(rolled, number, 1 - number)
    runs.tick(rolled.host())
    programs = rolled.systemd.programs
    assert (programs[SERIAL], programs[JOB]) == ({"char/188:1"}, {"char/188:0"})
    assert "CORRAL_FILES_EXAMPLE_COM_TTY=/dev/ttyUSB1\n" in rolled.get(f"{FOLDER}/{SERIAL}.env")
    host = rolled.host()
    runs.tick(host)
    assert [act for act in host.acts if "DeviceAllow=" in act] == []
    services.stop(rolled, SERIAL)
    runs.tick(rolled.host())
    assert "serial" not in held(rolled)


@pytest.mark.parametrize("away", [False, True], ids=["there", "away"])
def test_a_device_that_its_resource_finds_under_another_name_is_followed(rolled: node.Node, away: bool) -> None:
    at_ports(rolled)
    running(rolled, SERIAL)
    if away:
        unplug_tty(rolled, 0)
    roll_out(rolled, profile_with(devices=[PROFILE["devices"][0], {"name": TTY, "match": {"path": "/dev/ttyUSB*"}}]))
    if away:
        runs.tick(rolled.host())
        plug_tty_as(rolled, 0, 0)
        runs.tick(rolled.host())
    assert held(rolled)["serial"] == ["/dev/ttyUSB0"]
    assert rolled.systemd.programs[SERIAL] == {"char/188:0"}
    in_sync(rolled)
    assert running(rolled, JOB).devices == {LINKS[1]}
    assert shared(rolled) == []


@pytest.mark.parametrize("name", [0, 5], ids=["same number", "another number"])
def test_a_device_that_was_not_there_at_the_start_of_a_unit_is_opened_to_it_when_it_is_back(
    rolled: node.Node, name: int
) -> None:
    roll_out(rolled, changed("dpdk", limits={"cpu": 2, "memory": "64Mi", TTY: 1}))
    services.stop(rolled, DPDK)
    runs.tick(rolled.host())
    unplug_tty(rolled, 0)
    running(rolled, DPDK)
    runs.tick(rolled.host())
    assert rolled.systemd.programs[DPDK] == frozenset()
    plug_tty_as(rolled, 0, name)
    runs.tick(rolled.host())
    assert rolled.systemd.programs[DPDK] == {f"char/188:{name}"}
    in_sync(rolled)


@pytest.mark.parametrize("fail", ["killed", "torn", "error"])
@pytest.mark.parametrize("name", [1, 5], ids=["same number", "another number"])
def test_a_device_that_is_back_while_another_one_of_its_unit_is_away_is_opened_after_a_tick_that_died(
    rolled: node.Node, name: int, fail: str
) -> None:
    roll_out(rolled, changed("serial", requests={TTY: 2, "cpu": "100m"}))
    running(rolled, SERIAL)
    in_sync(rolled)
    for number in range(2):
        unplug_tty(rolled, number)
    rolled.systemctl("daemon-reload")
    plug_tty_as(rolled, 1, name)
    assert failing.tried(rolled, runs.tick).node.systemd.programs[SERIAL] == {f"char/188:{name}"}
    for fake, what in failing.each(rolled, runs.tick, fail):
        for dummy in range(2):
            runs.tick(fake.host())
        assert fake.systemd.programs[SERIAL] == {f"char/188:{name}"}, what
        plug_tty(fake, 0)
        runs.tick(fake.host())
        assert fake.systemd.programs[SERIAL] == {"char/188:0", f"char/188:{name}"}, what
        in_sync(fake)


def test_a_snapshot_which_has_no_device_files_tells_of_no_list_that_is_set(rolled: node.Node) -> None:
    def said() -> list[tuple[str, str]]:
        host = Host(str(rolled.root))
        plan = planning.plan_profile(host, planning.compile_profile(host, profile.parse(PROFILE)))
        return [(one.subject, one.property) for one in plan.changes if one.property == "DeviceAllow"]

    assert said() == []
    rolled.drop(f"/run/systemd/system.control/{DPDK}.d/50-DeviceAllow.conf")
    assert said() == [(DPDK, "DeviceAllow")]


@pytest.mark.parametrize("away", ["the device", "its link"])
@pytest.mark.parametrize("meanwhile", ["restart", "daemon-reload"])
def test_a_device_that_is_away_between_two_ticks_while_systemd_sets_the_list_stays_open_to_its_unit(
    rolled: node.Node, meanwhile: str, away: str
) -> None:
    """udev makes its links anew, and a list that names a link has nothing of a device whose link is away at that moment."""
    running(rolled, SERIAL)
    in_sync(rolled)
    (rolled.root / LINKS[0][1:]).unlink()
    if away == "the device":
        rolled.drop("/dev/ttyUSB0")
    if meanwhile == "restart":
        services.restart(rolled, SERIAL)
    else:
        rolled.systemctl("daemon-reload")
    plug_tty(rolled, 0)
    assert rolled.systemd.programs[SERIAL] == {"char/188:0"}
    in_sync(rolled)


@pytest.mark.parametrize("is_known", [False, True], ids=["place not known", "place known"])
def test_a_tick_takes_nothing_from_a_unit_while_only_the_link_of_its_device_is_away(
    rolled: node.Node, is_known: bool
) -> None:
    if is_known:
        plug_tty_as(rolled, 0, 0)
    running(rolled, SERIAL)
    in_sync(rolled)
    (rolled.root / LINKS[0][1:]).unlink()
    host = rolled.host()
    runs.tick(host)
    assert rolled.systemd.programs[SERIAL] == {"char/188:0"}
    assert [act for act in host.acts if "DeviceAllow=" in act] == []
    plug_tty(rolled, 0)
    ticks_until_quiet(rolled)


def test_another_device_under_the_number_of_one_that_is_away_is_not_opened_though_no_resource_has_it(
    rolled: node.Node,
) -> None:
    plug_tty_as(rolled, 0, 0)
    running(rolled, SERIAL)
    unplug_tty(rolled, 0)
    rolled.put("/dev/ttyUSB0", "char/188:0\n")
    link = rolled.root / "sys/dev/char/188:0"
    link.unlink()
    link.symlink_to("../../devices/pci0000:00/usb9/ttyUSB0")
    runs.tick(rolled.host())
    assert rolled.systemd.programs[SERIAL] == frozenset()
    host = rolled.host()
    runs.tick(host)
    assert host.commands == []


def test_a_unit_does_not_start_with_a_device_that_systemd_leaves_open_to_another_one(
    rolled: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel gives the number of an IOMMU group that went to the next one."""
    roll_out(rolled, changed("job", requests={VFIO: 1}))
    takes = type(rolled.systemd).set_devices
    refuses = {"is": True}

    def set_devices(systemd: t.Any, name: str, assignments: t.Sequence[str]) -> t.Any:
        if refuses["is"] and name == DPDK:
            return Command(1, "", f"Failed to set unit properties on {name}: Unit {name} has a bad unit file setting.")
        return takes(systemd, name, assignments)

    monkeypatch.setattr(type(rolled.systemd), "set_devices", set_devices)
    unplug_nic(rolled, NICS[0])
    rolled.drop("/dev/vfio/7")
    rolled.put("/dev/vfio/8", "char/240:7\n")
    assert runs.tick(rolled.host()) == 2
    assert (DPDK, "DeviceAllow") in [(one["subject"], one["property"]) for one in status(rolled)["items"]]
    assert services.start(rolled, JOB) is None
    assert any(f"set-property {DPDK} DeviceAllow=" in line and "bad unit file" in line for line in rolled.said)
    assert "job:job@a" not in held(rolled)
    rolled.put("/dev/vfio/8", "char/240:8\n")  # What needs nothing of it starts.
    assert running(rolled, JOB).devices == {"/dev/vfio/8", "/dev/vfio/vfio"}
    services.stop(rolled, JOB)
    rolled.put("/dev/vfio/8", "char/240:7\n")
    refuses["is"] = False
    assert running(rolled, JOB).devices == {"/dev/vfio/8", "/dev/vfio/vfio"}
    assert rolled.systemd.programs[DPDK] == {"char/10:196"}
    assert rolled.systemd.programs[JOB] == {"char/10:196", "char/240:7"}


@pytest.mark.parametrize("happens", ["unplugged", "under another number"])
def test_a_unit_whose_policy_is_auto_may_not_open_everything_while_its_list_changes(
    rolled: node.Node, happens: str
) -> None:
    """With DevicePolicy=auto an empty list opens all devices (systemd.resource-control(5))."""
    services.stop(rolled, DPDK)
    by_id = [{"name": VFIO, "match": {"pci": "8086:1572"}}]  # some of which may have no device file
    roll_out(
        rolled, profile_with(devices=by_id, workloads=[one for one in PROFILE["workloads"] if one["name"] == "dpdk"])
    )
    running(rolled, DPDK)
    runs.tick(rolled.host())
    assert "DevicePolicy" not in rolled.get(DROPIN.format(DPDK))
    for file in ("/dev/vfio/7", "/dev/vfio/vfio"):
        rolled.drop(file)
    if happens == "unplugged":
        unplug_nic(rolled, NICS[0])
    else:
        rolled.put("/dev/vfio/7", "char/240:70\n")
        rolled.put("/dev/vfio/vfio", "char/10:197\n")
    seen: list[t.Any] = []
    host = rolled.host(then=lambda dummy: seen.append(rolled.systemd.programs[DPDK]))
    runs.tick(host)
    assert any("DeviceAllow=" in act for act in host.acts)
    assert None not in seen
    assert seen[-1] == (frozenset() if happens == "unplugged" else {"char/240:70", "char/10:197"})


def test_whatever_kills_a_run_while_a_device_is_away_the_unit_may_open_it_again(rolled: node.Node) -> None:
    running(rolled, SERIAL)
    assert rolled.systemd.programs[SERIAL] == {"char/188:0"}
    unplug_tty(rolled, 0)
    done = []
    # The list is set again, without the number of what is away.
    for fake, what in failing.each(rolled, lambda host: roll_out_on(host, "other"), "killed"):
        done.append(what)
        plug_tty(fake, 0)
        runs.tick(fake.host())
        assert fake.systemd.programs[SERIAL] == {"char/188:0"}, what
    assert any("DeviceAllow" in what for what in done)


def test_a_device_of_a_spec_whose_file_was_gone_is_opened_to_its_unit_again(fake: node.Node) -> None:
    plug_gpus(fake)
    first = [{"name": "vendor.com/gpu", "match": {"cdi": "vendor.com/gpu=0"}}]
    roll_out(fake, profile_with(devices=first, workloads=[TRAIN]))
    fake.drop("/dev/gpu0")
    running(fake, SERIAL)
    runs.tick(fake.host())
    fake.put("/dev/gpu0", "char/195:0\n")
    runs.tick(fake.host())
    assert fake.systemd.programs[SERIAL] == {"char/195:0"}
    in_sync(fake)


def test_a_list_that_systemd_refuses_to_set_again_is_set_by_the_next_tick(rolled: node.Node) -> None:
    running(rolled, SERIAL)
    unplug_tty(rolled, 0)
    runs.tick(rolled.host())
    plug_tty(rolled, 0)
    number = failing.number_of(rolled, runs.tick, "DeviceAllow=")
    assert runs.tick(rolled.host("error", number)) == 2
    assert (SERIAL, "DeviceAllow") in [(one["subject"], one["property"]) for one in status(rolled)["items"]]
    assert rolled.systemd.programs[SERIAL] == frozenset()
    runs.tick(rolled.host())
    assert rolled.systemd.programs[SERIAL] == {"char/188:0"}
    in_sync(rolled)


def test_a_device_that_is_gone_holds_up_no_other_one_of_its_workload(rolled: node.Node) -> None:
    both = {"cpu": 2, "memory": "64Mi", VFIO: 1, TTY: 1}
    roll_out(rolled, changed("dpdk", limits=both))
    unplug_nic(rolled, NICS[0])
    services.reboot(rolled)
    assert held(rolled)["dpdk"] == [LINKS[0], NICS[0]]
    run = running(rolled, DPDK)
    assert run.devices is not None
    assert LINKS[0] in run.devices
    assert run.env["CORRAL_FILES_EXAMPLE_COM_TTY"] == "/dev/ttyUSB0"
    # A container that misses a device does not start.
    assert not rolled.has(SPEC)


def test_the_next_run_gets_a_device_that_is_there(rolled: node.Node) -> None:
    running(rolled, SERIAL)
    unplug_tty(rolled, 0)
    services.stop(rolled, SERIAL)
    assert running(rolled, SERIAL).devices == {LINKS[1]}
    in_sync(rolled)


def test_an_unhealthy_device_is_not_given_out(rolled: node.Node) -> None:
    unplug_nic(rolled, NICS[0])
    plug_nic(rolled, NICS[0], driver="i40e")
    assert runs.tick(rolled.host()) == 2
    # Its match asks for vfio-pci: it is gone from the resource.
    assert [(one["actual"], one["reason"]) for one in status(rolled)["items"]] == [
        ("gone", "dpdk has it: bring it back, or take the request for it out of the profile and stop dpdk")
    ]  # it holds its grant while it is declared, also over a stop
    assert rolled.runs[DPDK].devices == services.allowed(rolled, DPDK)
    assert held(rolled) == {"dpdk": [NICS[0]]}


def test_a_restart_in_place_keeps_the_devices(rolled: node.Node) -> None:
    running(rolled, SERIAL)
    again = services.crash(rolled, SERIAL, always=True)
    assert again is not None
    assert again.devices == {LINKS[0]}
    again = services.restart(rolled, SERIAL)
    assert again is not None
    assert (again.devices, again.env["CORRAL_DEVICES_EXAMPLE_COM_TTY"]) == ({LINKS[0]}, LINKS[0])


def test_after_a_reboot_a_declared_workload_has_the_same_device_under_its_new_name(rolled: node.Node) -> None:
    for address in NICS:
        unplug_nic(rolled, address)
    for address, group in zip(NICS, (17, 18, 7)):
        plug_nic(rolled, address, group)
    shutil.rmtree(rolled.root / "run/cdi")
    services.reboot(rolled)
    assert held(rolled) == {"dpdk": [NICS[0]]}
    assert running(rolled, DPDK).devices == {"/dev/vfio/17", "/dev/vfio/vfio"}
    in_sync(rolled)


def test_a_node_that_boots_without_a_tick_gives_out_no_device(rolled: node.Node) -> None:
    for folder in ("run/systemd/system.control", "run/corral"):
        shutil.rmtree(rolled.root / folder)
    services.end(rolled, DPDK)
    rolled.systemd.load_all()
    services.end(rolled, DPDK)
    run = services.begin(rolled, DPDK)
    assert (run.devices, run.env) == (frozenset(), {})


# What others do


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{FOLDER}/{DPDK}.env", "PCIDEVICE_EXAMPLE_COM_VFIO=0000:00:00.0\n"),
        (f"{FOLDER}/{DPDK}.env", None),
        (SPEC, "{}"),
        (SPEC, None),
        ("/run/systemd/system.control/dpdk.service.d/50-DeviceAllow.conf", "[Service]\nDeviceAllow=/dev/mem rw\n"),
        ("/run/systemd/system.control/dpdk.service.d/50-DeviceAllow.conf", None),
    ],
    ids=str,
)
def test_what_was_changed_by_hand_is_brought_back(rolled: node.Node, path: str, text: str | None) -> None:
    right = rolled.get(path)
    if text is None:
        rolled.drop(path)
    else:
        rolled.put(path, text)
    assert runs.tick(rolled.host()) == 2
    assert sorted(rolled.get(path).splitlines()) == sorted(right.splitlines())
    in_sync(rolled)


@pytest.mark.parametrize("copy", ["", ".previous"])
@pytest.mark.parametrize("text", [None, "lost"])
def test_a_checkpoint_of_which_one_copy_is_lost_is_made_again(rolled: node.Node, copy: str, text: str | None) -> None:
    running(rolled, SERIAL)
    running(rolled, JOB)
    services.stop(rolled, SERIAL)  # So the first device is free, and the job has the second.
    before = held(rolled)
    if text is None:
        rolled.drop(f"{CHECKPOINT}{copy}")
    else:
        rolled.put(f"{CHECKPOINT}{copy}", text)
    ticks_until_quiet(rolled)
    assert held(rolled) == before
    assert running(rolled, OTHER).devices == {LINKS[0]}
    assert running(rolled, SERIAL).devices == {LINKS[2]}


@pytest.mark.parametrize("left", ["serial", "dpdk"])
def test_a_lost_checkpoint_takes_no_device_from_a_run_whose_workload_left_the_profile(
    rolled: node.Node, left: str
) -> None:
    running(rolled, SERIAL)
    roll_out(rolled, without(left))
    before, devices = held(rolled), services.allowed(rolled, f"{left}.service")
    rolled.put(CHECKPOINT, "lost")
    runs.tick(rolled.host())
    assert held(rolled) == before
    assert services.allowed(rolled, f"{left}.service") == devices
    running(rolled, JOB)
    assert shared(rolled) == []
    services.stop(rolled, f"{left}.service")
    runs.tick(rolled.host())
    assert left not in held(rolled)
    assert not rolled.has(f"{FOLDER}/{left}.service.env")


def spoil_entry(fake: node.Node, workload: str) -> str:
    """Both copies of the checkpoint have an entry of this workload that no Corral writes; their text."""
    data = json.loads(fake.get(CHECKPOINT))["data"]
    for row in data["grants"]:
        if row["workload"] == workload:
            row["devices"] = [["", TTY, 5, []]]
    for path in (CHECKPOINT, f"{CHECKPOINT}.previous"):
        fake.put(path, state.checked_text(data))
    return fake.get(CHECKPOINT)


@pytest.mark.parametrize("bad", ["dpdk", "serial", "job:job@a"])
def test_a_bad_entry_of_the_checkpoint_is_set_aside_alone(rolled: node.Node, bad: str) -> None:
    running(rolled, SERIAL)
    running(rolled, JOB)
    rolled.wait(10)
    in_sync(rolled)
    before = json.loads(rolled.get(CHECKPOINT))["data"]
    assert {row["workload"] for row in before["grants"]} == {"dpdk", "serial", "job:job@a"}
    text = spoil_entry(rolled, bad)
    rolled.wait(100)
    (item, *dummy) = [one for one in runs.plan(rolled.host()) if one.subject == CHECKPOINT]
    assert f" of {bad} is not as Corral writes it (5 is not text), set aside" in item.reason
    assert runs.tick(rolled.host()) == 2
    after = json.loads(rolled.get(CHECKPOINT))["data"]
    own = {row["workload"]: {**row, "since": 0} if row["workload"] == bad else row for row in before["grants"]}
    assert own[bad].pop("devices")
    assert {row["workload"]: {**row, "since": 0} if row["workload"] == bad else row for row in after["grants"]} == own
    assert rolled.get(f"{CHECKPOINT}.damaged") == text
    # What the run may open is on its list: no other one gets it, and an item says so.
    assert running(rolled, OTHER).devices == {LINKS[2]}
    unit = f"{bad.rpartition(':')[2]}.service"
    assert runs.tick(rolled.host()) == 2
    assert unit in {one["subject"] for one in status(rolled)["items"] if one["property"] == "grant"}


def test_a_bad_entry_of_the_checkpoint_hides_no_run_until_the_next_tick(rolled: node.Node) -> None:
    """systemd may stop what holds a grant at a daemon-reload: a run that went on lost what it was granted."""
    running(rolled, JOB)
    assert admit_workload.still_runs(rolled.host(), "job:job@a")
    spoil_entry(rolled, "job:job@a")
    assert admit_workload.still_runs(rolled.host(), "job:job@a")
    assert {one.workload for one in workload_files.grants_in_force(rolled.host())} == {"dpdk", "job:job@a"}


# The end


def test_a_workload_that_leaves_the_profile_keeps_its_devices_until_it_stops(rolled: node.Node) -> None:
    roll_out(rolled, without("dpdk"))
    assert held(rolled) == {"dpdk": [NICS[0]]}
    assert services.allowed(rolled, DPDK) == {"/dev/vfio/7", "/dev/vfio/vfio"}
    services.stop(rolled, DPDK)
    runs.tick(rolled.host())
    assert held(rolled) == {}
    assert not rolled.has(f"{FOLDER}/{DPDK}.env")
    assert not rolled.has(SPEC)
    assert services.allowed(rolled, DPDK) is None
    in_sync(rolled)


@pytest.mark.parametrize("hold", ["running", "declared"])
def test_a_run_under_an_earlier_name_keeps_its_devices_beside_those_of_its_next_start(
    rolled: node.Node, hold: str
) -> None:
    running(rolled, SERIAL)
    roll_out(rolled, without("serial"))
    own = ("--unit", SERIAL, "--limits", f"cpu=100m,memory=16Mi,{TTY}=1", "--hold", hold)
    assert runs.command(rolled.host(), "admit", "modem", *own) == 0
    both = {"dpdk": [NICS[0]], "serial": [LINKS[0]], "modem": [LINKS[1]]}
    assert held(rolled) == both
    assert rolled.systemd.programs[SERIAL] == {"char/188:0", "char/188:1"}
    for dummy in range(2):
        host = rolled.host()
        runs.tick(host)
        assert host.commands == []
        assert [one["property"] for one in status(rolled)["items"]] == ["slice"], "until its next start"
    rolled.put(CHECKPOINT, "lost")
    runs.tick(rolled.host())
    assert held(rolled) == both
    assert rolled.systemd.programs[SERIAL] == {"char/188:0", "char/188:1"}
    services.stop(rolled, SERIAL)
    runs.tick(rolled.host())
    run = running(rolled, SERIAL)
    assert run.env["CORRAL_DEVICES_EXAMPLE_COM_TTY"] == held(rolled)["modem"][0]
    assert run.devices == set(held(rolled)["modem"])
    assert "serial" not in held(rolled)
    ticks_until_quiet(rolled)


def test_a_unit_that_restarts_in_place_after_a_new_name_has_the_devices_that_it_is_told_of(rolled: node.Node) -> None:
    """systemd starts what holds the grant of the new name, for Restart= as for any start."""
    running(rolled, SERIAL)
    rows = [{**one, "name": one["name"].replace("serial", "modem")} for one in PROFILE["workloads"]]
    roll_out(rolled, profile_with(workloads=rows))
    run = services.crash(rolled, SERIAL, always=True)
    assert run is not None
    assert run.env["CORRAL_DEVICES_EXAMPLE_COM_TTY"] == LINKS[0]
    for dummy in range(3):
        runs.tick(rolled.host())
    assert held(rolled)["modem"] == [LINKS[0]]
    assert rolled.systemd.programs[SERIAL] == {"char/188:0"}
    services.stop(rolled, SERIAL)
    runs.tick(rolled.host())
    assert "modem" not in held(rolled)
    in_sync(rolled)


@pytest.mark.parametrize(
    "keys",
    [
        {"limits": {"cpu": 1, "memory": "64Mi"}},
        {"limits": {"cpu": 2, "memory": "128Mi"}},
        {"limits": {"cpu": 2, "memory": "64Mi", TTY: 1}},
        {"limits": {"memory": "64Mi"}},
    ],
    ids=str,
)
def test_a_run_keeps_devices_that_are_asked_for_no_longer_whatever_else_changes(
    rolled: node.Node, keys: dict[str, t.Any]
) -> None:
    roll_out(rolled, changed("dpdk", **keys))
    assert NICS[0] in held(rolled)["dpdk"]
    runs.tick(rolled.host())
    assert services.allowed(rolled, DPDK) >= {"/dev/vfio/7", "/dev/vfio/vfio"}
    services.stop(rolled, DPDK)
    runs.tick(rolled.host())
    assert NICS[0] not in held(rolled).get("dpdk", [])
    in_sync(rolled)


def test_a_removal_leaves_nothing(make: Make) -> None:
    fake = make()
    equip(fake)
    before = fake.fingerprint()
    assert not runs.install(fake.host()).error
    roll_out(fake)
    running(fake, DPDK)
    running(fake, SERIAL)
    services.stop(fake, SERIAL)
    services.stop(fake, DPDK)
    outcome = runs.remove(fake.host())
    assert (outcome.error, outcome.leftovers) == ("", ())
    left = [line for line in node.different(before, fake.fingerprint()) if not line.startswith("run/cdi: ")]
    assert [line for line in left if "devices" in line or "cdi" in line or "DeviceAllow" in line] == []


def test_what_a_killed_writer_left_goes_with_the_release(rolled: node.Node) -> None:
    before = set(os.listdir(rolled.root / FOLDER[1:]))
    number = failing.number_of(rolled, starts, f"write_file {FOLDER}/{SERIAL}.env")
    assert services.start(rolled, SERIAL, rolled.host("torn", number)) is None
    assert set(os.listdir(rolled.root / FOLDER[1:])) == before
    in_sync(rolled)


def test_a_unit_that_starts_after_a_killed_release_loses_nothing_that_it_began_with(rolled: node.Node) -> None:
    services.add(rolled, "extra.service")
    assert runs.command(rolled.host(), "admit", "extra", "--unit", "extra.service", "--requests", f"{TTY}=1") == 0
    for fake, what in failing.each(rolled, releases, "killed"):
        run = running(fake, "extra.service")
        began = set(fake.systemd.programs["extra.service"] or ())
        for dummy in range(2):
            runs.tick(fake.host())
        assert began <= set(fake.systemd.programs["extra.service"] or began), what
        assert not run.env or held(fake)["extra"] == [LINKS[0]], what


def known_to(fake: node.Node, unit: str, workload: str) -> tuple[set[str], set[str], set[str]]:
    """The numbers of the devices that a unit is told of when it starts, that it may open, and that it was granted."""
    run = running(fake, unit)
    lists = [value.split(",") for name, value in run.env.items() if name.startswith("CORRAL_FILES_")]
    numbers = {one: f"char/240:{group}" for one, group in GROUPS.items()}
    numbers.update({link: f"char/188:{index}" for index, link in enumerate(LINKS)})
    return (
        {fake.get(file).strip() for files in lists for file in files},
        set(fake.systemd.programs[unit] or ()) - {"char/10:196"},
        {numbers[one] for one in held(fake).get(workload, ())},
    )


def releases(host: node.NodeHost) -> object:
    return runs.command(host, "release", "extra")


@pytest.mark.parametrize("fail", ["killed", "torn", "error"])
@pytest.mark.parametrize("act", [releases, runs.remove], ids=["releases", "removes"])
def test_a_unit_that_starts_after_a_release_or_removal_that_died_may_open_what_it_is_told_of(
    rolled: node.Node, act: failing.Act, fail: str
) -> None:
    services.add(rolled, "extra.service")
    own = ("--unit", "extra.service", "--requests", f"{TTY}=1", "--hold", "declared")
    assert runs.command(rolled.host(), "admit", "extra", *own) == 0
    services.stop(rolled, DPDK)  # Else it loses its CPUs by a removal.
    assert failing.number_of(rolled, act, "DeviceAllow=")
    for fake, what in failing.each(rolled, act, fail):
        services.begin(fake, "extra.service")
        told = [value for name, value in fake.runs["extra.service"].env.items() if name.startswith("CORRAL_FILES_")]
        opens = fake.systemd.programs["extra.service"]
        assert opens is None or {fake.get(path).strip() for path in told} <= opens, what


@pytest.mark.parametrize("fail", ["killed", "torn"])
@pytest.mark.parametrize(
    ("first", "then"),
    [("", f"{TTY}=1"), (f"{TTY}=1", f"{TTY}=2"), (f"{TTY}=2", f"{TTY}=1"), (f"{TTY}=1", f"{VFIO}=1")],
    ids=["first", "more", "fewer", "others"],
)
@pytest.mark.parametrize("unit", ["extra.service", "ex\\x2dtra.service"])
def test_a_unit_that_starts_after_an_admission_that_died_may_open_what_it_is_told_of_and_nothing_that_is_free(
    rolled: node.Node, unit: str, first: str, then: str, fail: str
) -> None:
    def admitted(host: node.NodeHost, asked: str) -> int:
        return runs.command(host, "admit", "extra", "--unit", unit, "--requests", asked, "--hold", "declared")

    services.add(rolled, unit)
    assert not first or admitted(rolled.host(), first) == 0
    for fake, what in failing.each(rolled, lambda host: admitted(host, then), fail):
        told, opens, granted = known_to(fake, unit, "extra")
        assert told <= opens <= granted, what
        services.stop(fake, unit)
        for dummy in range(2):
            runs.tick(fake.host())
        told, opens, granted = known_to(fake, unit, "extra")
        assert told == opens == granted, what


@pytest.mark.parametrize("fail", ["killed", "torn"])
def test_what_a_rollout_that_died_lets_a_unit_open_is_given_to_no_other_one_though_the_checkpoint_is_lost(
    rolled: node.Node, fail: str
) -> None:
    def rolled_out(host: node.NodeHost) -> None:
        extra = {"name": "extra", "match": {"unit": "extra.service"}, "requests": {TTY: 1}}
        applying.declare(host, profile.parse(profile_with(workloads=[*PROFILE["workloads"], extra])))

    services.add(rolled, "extra.service")
    for fake, what in failing.each(rolled, rolled_out, fail):
        services.begin(fake, "extra.service")
        for path in (CHECKPOINT, f"{CHECKPOINT}.previous"):
            fake.put(path, "lost")
        runs.tick(fake.host())
        for unit in (SERIAL, JOB, OTHER):
            services.start(fake, unit)
        assert shared(fake) == [], what


def test_a_start_with_other_devices_than_the_last_one_tells_of_none_that_the_checkpoint_does_not_have(
    rolled: node.Node,
) -> None:
    running(rolled, SERIAL)
    services.stop(rolled, SERIAL, rolled.host("killed", 1))  # Its release dies, and leaves all that was given.
    assert held(rolled)["serial"] == [LINKS[0]]
    data = profile.to_data(profile.parse(changed("serial", requests={VFIO: 1, "cpu": "100m"})))
    rolled.put("/etc/corral/profile.json", json.dumps(data))
    (holder,) = services.required(rolled, SERIAL)
    services.invocation(rolled, holder)

    def admits(host: node.NodeHost) -> object:
        return services.corral(host.node, host, "admit", "--start", holder)

    assert NICS[1] in held(failing.tried(rolled, admits).node)["serial"]
    for fake, what in failing.each(rolled, admits, "killed"):
        is_told = NICS[1] in fake.get(f"{FOLDER}/{SERIAL}.env")
        assert not is_told or NICS[1] in held(fake)["serial"], what


@pytest.mark.parametrize("fail", ["killed", "torn"])
def test_a_start_that_dies_anywhere_leaves_no_list(rolled: node.Node, fail: str) -> None:
    for fake, what in failing.each(rolled, starts, fail):
        services.stop(fake, SERIAL)
        runs.tick(fake.host())
        assert not fake.has("/run/systemd/system.control/serial.service.d"), what


def test_check_mode_foretells_it_and_writes_nothing(fake: node.Node) -> None:
    before, host = fake.fingerprint(), fake.host()
    context = planning.compile_profile(host, profile.parse(PROFILE), fresh=True)
    plan = planning.plan_profile(host, context, declare=True)
    assert (host.writes, host.commands, fake.fingerprint()) == ([], [], before)
    applied = roll_out(fake).applied
    assert lines_of(applied) == lines_of(change for change in plan.changes if change.steps)
    assert (DPDK, "DeviceAllow") in lines_of(applied)


# Faults


def opened(fake: node.Node) -> dict[str, set[str]]:
    """The device files that each running unit may open and no other one may."""
    found = {unit: set(services.allowed(fake, unit) or ()) - {"/dev/vfio/vfio"} for unit in fake.runs}
    return {unit: files for unit, files in found.items() if files}


def shared(fake: node.Node) -> list[str]:
    """What two running units may open now."""
    everything = [file for files in opened(fake).values() for file in files]
    return sorted({file for file in everything if everything.count(file) > 1})


def watched(seen: list[str], fake: node.Node, fail: str = "", fail_at: int = 0) -> node.NodeHost:
    """A host that looks after each of its writes and commands."""
    return fake.host(fail, fail_at, then=lambda number: seen.extend(f"{number}: {one}" for one in shared(fake)))


FAULTS = ("error", "killed", "torn")


def starts(host: node.NodeHost) -> object:
    return services.start(host.node, SERIAL, host)


def stops(host: node.NodeHost) -> object:
    return services.stop(host.node, JOB, host)


def rolls_out(host: node.NodeHost) -> object:
    rows = [one for one in PROFILE["workloads"] if one["name"] != "dpdk"]
    rows += [{"name": "first", "match": {"unit": "first.service"}, "requests": {TTY: 1, VFIO: 1}}]
    return applying.declare(host, profile.parse(profile_with(workloads=rows)))


@pytest.mark.parametrize("act", [starts, stops, rolls_out, runs.tick], ids=lambda act: act.__name__)
@pytest.mark.parametrize("fail", FAULTS)
def test_a_run_that_fails_anywhere_gives_no_device_to_two_and_the_next_ticks_mend_it(
    fake: node.Node, fail: str, act: failing.Act
) -> None:
    services.add(fake, "first.service", lines="PrivateDevices=yes\n")
    roll_out(fake)
    running(fake, JOB)
    if act is not runs.tick:
        runs.tick(fake.host())
    else:
        for path in (SPEC, f"{FOLDER}/{DPDK}.env", "/run/systemd/system.control/job@a.service.d/50-DeviceAllow.conf"):
            fake.put(path, "")
    assert len(failing.tried(fake, act).acts) > 3
    seen: list[str] = []
    watching = functools.partial(watched, seen)
    for twin, what in failing.each(fake, act, fail, FAULTS, watching):
        assert shared(twin) == [], what
        for dummy in range(3):
            runs.tick(watching(twin))
        assert seen == [], what
        holders = [one for ids in held(twin).values() for one in ids]
        assert len(holders) == len(set(holders))
        by_unit = {f"{name.rpartition(':')[2]}.service": ids for name, ids in held(twin).items()}
        for unit in set(twin.runs) - {DPDK}:
            assert opened(twin)[unit] == set(by_unit[unit]), what
        if act is stops and JOB not in twin.runs:
            assert "job:job@a" not in held(twin)
            left = f"/run/systemd/system.control/{JOB}.d/50-DeviceAllow.conf"
            assert not twin.has(left), f"{what}: a start without a grant would open what it had"
        if "first" in held(twin):
            assert services.sees(twin, "first.service", "/dev/vfio/7"), what
        if SERIAL not in twin.runs:
            assert "serial" not in held(twin), what
            assert running(twin, SERIAL).devices
        in_sync(twin)


NAMES = (DPDK, SERIAL, JOB, OTHER)


def walk(fake: node.Node, seed: int, steps: int, counts: collections.Counter[str]) -> list[str]:
    """Whatever happens to workloads and devices, one after another; what two units shared at any moment, and what a run lost.

    ``counts`` grows by what of it there was.
    """
    dice, seen = random.Random(seed), list[str]()
    there = {0, 1, 2}
    for step in range(steps):
        before = opened(fake)
        unit, number = dice.choice(NAMES), dice.randrange(3)
        act = dice.choice(
            ("start", "start", "start", "start", "stop", "restart", "crash", "unplug", "plug", "tick", "profile")
        )
        runs_before = dict(fake.runs)
        fail_at = dice.randrange(1, 9) if dice.random() < 0.4 else 0  # a run of Corral's ends there
        host = watched(seen, fake, "killed" if fail_at else "", fail_at)
        with contextlib.suppress(CorralError, node.Killed):
            if act == "start":
                services.start(fake, unit, host)
            elif act == "stop" and unit in fake.runs:
                services.stop(fake, unit, host)
            elif act == "restart" and unit in fake.runs:
                services.restart(fake, unit)
            elif act == "crash" and unit in fake.runs:
                services.crash(fake, unit, always=dice.random() < 0.5)
            elif act == "unplug" and number in there:
                counts["unplugged"] += LINKS[number] in [one for ids in held(fake).values() for one in ids]
                there.discard(number)
                unplug_tty(fake, number)
            elif act == "plug" and number not in there:
                there.add(number)
                plug_tty(fake, number)
            elif act == "profile":
                data = dice.choice(
                    (
                        PROFILE,
                        without("dpdk"),
                        without("serial"),
                        changed("job", requests={TTY: 2}),
                        changed("serial", requests={VFIO: 1, "cpu": "100m"}),
                        changed("dpdk", limits={"cpu": 1, "memory": "64Mi"}),
                    )
                )
                applying.declare(host, profile.parse(data))
            else:
                runs.tick(host)
        killed = 0 < fail_at <= len(host.acts)
        counts["killed"] += killed
        if act == "start" and unit not in runs_before and not killed:
            counts["started" if unit in fake.runs else "refused"] += 1
        counts["several holders"] += len(opened(fake)) > 1
        seen += [f"{step} {act} {unit}: {one}" for one in shared(fake)]
        for name, files in before.items():
            files = {file for file in files if fake.has(file)}
            if fake.runs.get(name) == runs_before[name] and not files <= opened(fake).get(name, set()):
                seen.append(f"{step} {act} {unit}: {name} lost {files - opened(fake).get(name, set())}")
        fake.wait(dice.choice((1, 10)))
    return seen


# Without these a walk would prove nothing: each happens at least so often in a walk, on average.
LEAST = {"started": 3, "refused": 1, "killed": 3, "unplugged": 1, "several holders": 15}


def test_whatever_happens_no_device_has_two_holders_and_no_run_loses_one(rolled: node.Node) -> None:
    counts = collections.Counter[str]()
    walks = 100 if LONG else 4
    for seed in range(walks):
        fake = rolled.clone(rolled.root.with_name(f"walk-{seed}"))
        assert walk(fake, seed, 40, counts) == [], seed
        for number in range(3):
            if not fake.has(LINKS[number]):
                plug_tty(fake, number)
        roll_out(fake)
        for unit in list(fake.runs):
            services.stop(fake, unit)
        for dummy in range(2):
            ticks_until_quiet(fake)
        assert held(fake) == {"dpdk": held(fake)["dpdk"]}, seed
        assert os.listdir(fake.root / FOLDER[1:]) == [f"{DPDK}.env"], seed
        shutil.rmtree(fake.root)
    assert {what: counts[what] for what, least in LEAST.items() if counts[what] < least * walks} == {}, counts


def test_the_agents_unit_may_make_the_folder_of_specs(rolled: node.Node) -> None:
    """A profile that comes by a file is applied by the agent alone, on a node that may have had no CDI spec yet."""
    (places,) = [
        line.partition("=")[2].split()
        for line in rolled.get("/etc/systemd/system/corral-reconcile.service").splitlines()
        if line.startswith("ReadWritePaths=")
    ]
    folder = os.path.dirname(SPEC)
    # A folder that is listed with "-" is writable only where it is there already when the unit starts.
    assert os.path.dirname(folder) in places


def test_a_folder_of_specs_that_cannot_be_made_holds_up_nothing_else(rolled: node.Node) -> None:
    shutil.rmtree(rolled.root / "run/cdi")
    rolled.put(f"{FOLDER}/{DPDK}.env", "")
    number = failing.number_of(rolled, runs.tick, SPEC)
    assert runs.tick(rolled.host("error", number)) == 2
    assert [one["subject"] for one in status(rolled)["items"]] == [SPEC]
    assert "PCIDEVICE" in rolled.get(f"{FOLDER}/{DPDK}.env")
    assert runs.tick(rolled.host()) == 2
    in_sync(rolled)


def test_a_file_that_empties_the_list_afterwards_is_named(rolled: node.Node) -> None:
    rolled.put("/etc/systemd/system/dpdk.service.d/90-mine.conf", "[Service]\nDeviceAllow=\n")
    assert runs.tick(rolled.host()) == 2
    (item,) = status(rolled)["items"]
    assert (item["property"], item["verdict"]) == ("DeviceAllow", "unchangeable")
    assert "90-mine.conf sorts after" in item["reason"]


HIDING = "/etc/systemd/system.control/serial.service.d/50-DeviceAllow.conf"


def test_a_list_that_was_set_for_good_is_named_and_holds_up_no_start(rolled: node.Node) -> None:
    """``systemctl set-property`` without --runtime: its file has the name of Corral's, and the folder of it comes first."""
    running(rolled, SERIAL)
    rolled.put(HIDING, "[Service]\nDeviceAllow=\nDeviceAllow=/dev/kvm rw\n")
    for dummy in range(2):
        assert runs.tick(rolled.host()) == 2
        (item,) = status(rolled)["items"]
        assert (item["subject"], item["property"], item["verdict"]) == (SERIAL, "DeviceAllow", "unchangeable")
        assert f"{HIDING} hides" in item["reason"]
        services.stop(rolled, SERIAL)
        assert not rolled.has("/run/systemd/system.control/serial.service.d")
        in_sync(rolled)
        running(rolled, SERIAL)
    rolled.put(HIDING.replace("/50-", "/40-"), rolled.get(HIDING))
    rolled.drop(HIDING)
    runs.tick(rolled.host())
    assert services.allowed(rolled, SERIAL) == {"/dev/kvm", LINKS[0]}
    in_sync(rolled)


@pytest.mark.parametrize("hold", ["running", "declared"])
def test_cpus_go_back_at_a_release_where_the_unit_runs_elsewhere_with_its_devices(fake: node.Node, hold: str) -> None:
    services.add(fake, "late.service")
    roll_out(fake, {**PROFILE, "workloads": []})
    services.start(fake, "late.service")  # in system.slice
    own = ("--unit", "late.service", "--limits", f"cpu=1,memory=16Mi,{TTY}=1", "--hold", hold)
    assert runs.command(fake.host(), "admit", "late", *own) == 0
    (before,) = json.loads(fake.get(CHECKPOINT))["data"]["grants"]
    assert before["cpus"] and before["devices"]
    assert runs.command(fake.host(), "release", "late") == 0
    runs.tick(fake.host())
    (after,) = json.loads(fake.get(CHECKPOINT))["data"]["grants"]
    assert (after["cpus"], after["devices"]) == ("", before["devices"])
    services.stop(fake, "late.service")
    runs.tick(fake.host())
    assert not fake.has(CHECKPOINT), "nothing is granted any more"


def test_a_hand_releases_no_devices_of_what_runs(rolled: node.Node) -> None:
    assert services.start(rolled, SERIAL)
    with pytest.raises(CorralError, match="name: serial: runs, and would share its devices"):
        runs.command(rolled.host(), "release", "serial")
    services.stop(rolled, SERIAL)
    assert runs.command(rolled.host(), "admit", "serial") == 0, "by hand, before its start"
    assert runs.command(rolled.host(), "release", "serial") == 0
