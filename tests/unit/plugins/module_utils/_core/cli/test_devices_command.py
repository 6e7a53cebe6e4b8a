# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""corral devices: the table, the JSON and the exit code."""

from __future__ import annotations

import argparse
import json
import typing as t
from pathlib import Path

import pytest
from _core.cli import devices_command
from _core.host.files import Host
from _core.main import main
from _core.model.status import command_shapes, kubelet_shapes
from _core.model.values.errors import CorralError
from shapes import misfits

NIC = "0000:3b:00.0"


@pytest.fixture(name="node")
def made_node(tmp_path: Path) -> Path:
    real = tmp_path / "sys/bus/pci/devices" / NIC
    real.mkdir(parents=True)
    for name, text in (("vendor", "0x8086"), ("device", "0x1572"), ("class", "0x020000"), ("numa_node", "1")):
        (real / name).write_text(f"{text}\n")
    (real / "driver").symlink_to("../../../bus/pci/drivers/i40e")
    return tmp_path


def corral(node: Path, *matches: dict[str, t.Any], as_json: bool = False, **more: t.Any) -> int:
    rows = [{"name": f"example.com/r{number}", "match": match, **more} for number, match in enumerate(matches)]
    (node / "profile.json").write_text(json.dumps({"name": "x", "devices": rows}))
    args = argparse.Namespace(profile=str(node / "profile.json"), json=as_json, check=False, tick=False, kubelet=False)
    return devices_command.do_devices(Host(str(node)), args)


def test_the_table_of_a_node_in_order(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(node.rglob("*"))
    assert corral(node, {"pci": "8086:1572"}) == 0
    assert capsys.readouterr().out.splitlines() == [
        "resource        device        numa  driver  state    workload  parts",
        "example.com/r0  0000:3b:00.0  1     i40e    healthy  -         -",
    ]
    assert sorted(node.rglob("*")) == sorted([*before, node / "profile.json"])


def test_a_device_of_two_resources_and_one_of_none(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert corral(node, {"pci": "8086:1572"}, {"driver": "i40e"}, {"path": "/dev/uio0"}) == 2
    said = capsys.readouterr().out
    assert "problem: devices[1].match: driver i40e: 0000:3b:00.0 is" in said
    assert "problem: devices[2].match: path /dev/uio0: no device of this node matches" in said


def test_an_unhealthy_device_is_an_exit_code_of_its_own(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert corral(node, {"pci": "8086:1572"}, require_link=True) == 2
    assert "unhealthy: no network interface, so no link" in capsys.readouterr().out


def test_the_json(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corral(node, {"pci": "8086:1572"}, {"driver": "gone"}, as_json=True)
    data = json.loads(capsys.readouterr().out)
    assert misfits(data, command_shapes.Devices) == []
    assert data["resources"][0]["healthy"] == 1
    assert data["resources"][0]["devices"][0] == {
        "id": NIC, "numa_node": 1, "healthy": True, "reason": None, "in_use": False, "driver": "i40e", "functions": [NIC], "interfaces": [],
        "files": [], "workload": None, "containers": [],
    }  # fmt: skip


def test_a_profile_without_devices(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert corral(node) == 0
    assert capsys.readouterr().out == "the profile declares no devices\n"


def test_a_profile_that_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "profile.json").write_text('{"name": "x", "devices": [{"name": "nic", "match": {}}]}')
    assert main(["devices", "--profile", str(tmp_path / "profile.json")]) == 1
    assert "devices[0].name: nic: is not the name of a resource" in capsys.readouterr().err


KUBELET_FILE = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"


def kubelets(node: Path, text: str | None, as_json: bool = False) -> int:
    file = node / KUBELET_FILE
    file.parent.mkdir(parents=True)
    (node / "var/lib/kubelet/config.yaml").touch()
    if text is not None:
        file.write_text(text)
    args = argparse.Namespace(profile=None, json=as_json, check=False, tick=False, kubelet=True)
    return devices_command.do_devices(Host(str(node)), args)


ROW = {
    "PodUID": "p1",
    "ContainerName": "main",
    "ResourceName": "a.com/nic",
    "DeviceIDs": {"1": ["d1"]},
    "AllocResp": "",
}
GIVEN = json.dumps({"Data": {"PodDeviceEntries": [ROW], "RegisteredDevices": {}}, "Checksum": 1})


def test_the_devices_that_a_kubelet_gave_out(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kubelets(node, GIVEN) == 0
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert said == [
        f"/{KUBELET_FILE}: checksum wrong: the kubelet would begin without it",
        "devices:",
        "a.com/nic d1 (NUMA node 1) p1 main",
    ]


def test_the_json_of_the_devices_that_a_kubelet_gave_out(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kubelets(node, GIVEN, as_json=True) == 0
    data = json.loads(capsys.readouterr().out)
    assert misfits(data, kubelet_shapes.KubeletDevices) == []
    assert (data["file"]["version"], data["file"]["starts"]) == ("checksum wrong", True)
    assert data["devices"] == [{"pod": "p1", "container": "main", "resource": "a.com/nic", "devices": {"1": ["d1"]}}]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (None, 0, "not there"),
        ("", 0, "empty"),
        ("{", 2, "the kubelet would begin without it: unexpected end of JSON input"),
    ],
)
def test_a_kubelet_without_devices(
    node: Path, capsys: pytest.CaptureFixture[str], text: str | None, code: int, said: str
) -> None:
    assert kubelets(node, text) == code
    shown = capsys.readouterr().out
    assert said in shown
    assert ("has given out no devices" in shown) == (code == 0)


def test_the_devices_of_a_kubelet_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text('{"name": "x"}')
    assert main(["devices", "--kubelet", "--profile", str(profile)]) == 1
    assert "--profile: names a profile, and the kubelet" in capsys.readouterr().err
    with pytest.raises(CorralError, match="is this a Kubernetes node"):
        devices_command.do_devices(
            Host(str(tmp_path)), argparse.Namespace(profile=None, json=False, check=False, tick=False, kubelet=True)
        )
