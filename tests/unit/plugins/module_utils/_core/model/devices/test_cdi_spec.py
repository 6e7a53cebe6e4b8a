# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specs: what is read of one, and files that are none."""

from __future__ import annotations

import json
import typing as t
from datetime import date

import pytest
import yaml
from _core.model.devices import cdi_spec
from _core.model.values.errors import CorralError


def spec(*devices: t.Any, **fields: t.Any) -> dict[str, t.Any]:
    return {"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "devices": list(devices), **fields}


def node(**fields: t.Any) -> dict[str, t.Any]:
    return {"name": "0", "containerEdits": {"deviceNodes": [fields]}}


def test_devices_with_their_paths_on_the_node() -> None:
    data = spec(
        node(path="/dev/gpu", hostPath="/dev/gpu0"), {"name": "1"}, {"name": "2", "containerEdits": {"env": ["A=1"]}}
    )
    assert [one[:3] for one in cdi_spec.parse(data, "/etc/cdi/a.json")] == [
        ("vendor.com/gpu", "0", ("/dev/gpu0",)),
        ("vendor.com/gpu", "1", ()),
        ("vendor.com/gpu", "2", ()),
    ]


def test_devices_with_what_a_container_gets_by_them() -> None:
    whole = {"mounts": [{"hostPath": "/a", "containerPath": "/a"}]}
    data = spec({"name": "1"}, {"name": "2", "containerEdits": {"env": ["A=1"]}}, containerEdits=whole)
    found = [(one.edits[0], *map(json.loads, one.edits[1:])) for one in cdi_spec.parse(data, "/etc/cdi/a.json")]
    assert found == [("0.6.0", whole), ("0.6.0", {"env": ["A=1"]}, whole)]
    dated = cdi_spec.parse(
        spec({"name": "1", "containerEdits": {"hooks": [{"path": date(2026, 1, 2)}]}}), "/etc/cdi/a.yaml"
    )
    assert json.loads(dated[0].edits[1]) == {"hooks": [{"path": "2026-01-02"}]}, "YAML has dates, JSON has none"
    with pytest.raises(CorralError, match="containerEdits is not a mapping"):
        cdi_spec.parse(spec({"name": "1"}, containerEdits=[1]), "/etc/cdi/a.json")


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (None, "the spec is not a mapping"),
        ([], "the spec is not a mapping"),
        ({}, "cdiVersion is not text"),
        (spec(cdiVersion=1.0), "cdiVersion is not text"),
        (spec(kind=["vendor.com/gpu"]), "kind is not text"),
        (spec(kind="gpu"), "gpu: kind is not VENDOR/CLASS"),
        (spec(kind="a/b\n"), "kind is not VENDOR/CLASS"),
        (spec(kind="vendor.com/gpu-"), "kind is not VENDOR/CLASS"),
        (spec(kind="vendor-/gpu"), "kind is not VENDOR/CLASS"),
        (spec(devices={"0": {}}), "devices is not a list"),
        (spec("0"), "devices[0] is not a mapping"),
        (spec({}), "devices[0].name is not text"),
        (spec({"name": "../../etc"}), "../../etc: devices[0].name is not the name of a CDI device"),
        (spec({"name": "gpu-"}), "gpu-: devices[0].name is not the name of a CDI device"),
        (spec({"name": "0"}, {"name": "0"}), "devices[1].name is declared twice"),
        (spec({"name": "0", "containerEdits": []}, {"name": "0"}), "declared twice"),
        (spec({"name": "0", "containerEdits": 1}), "devices[0].containerEdits is not a mapping"),
        (
            spec({"name": "0", "containerEdits": {"deviceNodes": 1}}),
            "devices[0].containerEdits.deviceNodes is not a list",
        ),
        (spec(cdiVersion="9" * 5000), "cdiVersion is not a version"),
        (spec(containerEdits={"env": [1]}), "containerEdits.env[0] is not text"),
        (spec(containerEdits={"deviceNodes": ["/dev/a"]}), "containerEdits.deviceNodes[0] is not a mapping"),
        (spec({"name": "0", "containerEdits": {"env": ["A"]}}), "devices[0].containerEdits.env[0] is not NAME=VALUE"),
        (spec({"name": "0", "containerEdits": {"hooks": [[]]}}), "devices[0].containerEdits.hooks[0] is not a mapping"),
        (spec(containerEdits={"netDevices": ["eth0"]}), "containerEdits.netDevices[0] is not a mapping"),
        (spec({"name": "0", "containerEdits": {"mounts": {}}}, {"name": "0"}), "declared twice"),
        (spec({"name": "0", "containerEdits": {"mounts": "/"}}), "devices[0].containerEdits.mounts is not a list"),
        (spec(node(hostPath="/dev/a")), "devices[0].containerEdits.deviceNodes[0].path is not text"),
        (
            spec(node(path="/dev/a\x1b[2J")),
            "/dev/a\\x1b[2J: devices[0].containerEdits.deviceNodes[0] has no absolute path of",
        ),
        (spec(node(path="dev/a")), "dev/a: devices[0].containerEdits.deviceNodes[0] has no absolute path"),
    ],
)
def test_what_is_no_spec_is_named_with_its_field(data: object, part: str) -> None:
    with pytest.raises(CorralError) as caught:
        cdi_spec.parse(data, "/etc/cdi/a.json")
    line = str(caught.value)
    assert line.startswith("/etc/cdi/a.json: ")
    assert part in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("edits", "part"),
    [
        ("{hooks: [{1: a, b: c}]}", "1: has a key that is not text"),
        ("{hooks: [{~: a, b: c}]}", "None: has a key that is not text"),
        ("{hooks: [{2026-01-02: a}]}", "2026-01-02: has a key that is not text"),
        ("{hooks: [&a {args: [*a]}]}", "nested more than 100 levels deep"),
        (f"{{hooks: [{'{args: [' * 60}1{']}' * 60}]}}", "nested more than 100 levels deep"),
        (
            "{a: &a [" + "1, " * 99 + "1], b: &b [" + "*a, " * 99 + "*a], hooks: [{args: [" + "*b, " * 99 + "*b]}]}",
            "more than 100000 values with its aliases",
        ),
    ],
)
def test_edits_that_json_cannot_say_are_refused(edits: str, part: str) -> None:
    text = f"{{cdiVersion: 0.6.0, kind: vendor.com/gpu, containerEdits: {edits}, devices: [{{name: a}}]}}"
    with pytest.raises(CorralError, match=part):
        cdi_spec.parse(yaml.safe_load(text), "/etc/cdi/a.yaml")
