# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specs: what is read of one, and files that are none."""

from __future__ import annotations

import json
import typing as t

import pytest
import yaml
from _core.model.devices import cdi_spec
from _core.model.values.errors import CorralError


def spec(*devices: t.Any, **fields: t.Any) -> dict[str, t.Any]:
    return {"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "devices": list(devices), **fields}


def node(**fields: t.Any) -> dict[str, t.Any]:
    return {"name": "0", "containerEdits": {"deviceNodes": [fields]}}


EDITS = {"containerEdits": {"env": ["A=1"]}}


def test_devices_with_their_paths_on_the_node() -> None:
    data = spec(node(path="/dev/gpu", hostPath="/dev/gpu0"), {"name": "2", "containerEdits": {"env": ["A=1"]}})
    assert [one[:3] for one in cdi_spec.parse(data, "/etc/cdi/a.json")] == [
        ("vendor.com/gpu", "0", ("/dev/gpu0",)),
        ("vendor.com/gpu", "2", ()),
    ]


def test_devices_with_what_a_container_gets_by_them() -> None:
    whole = {"mounts": [{"hostPath": "/a", "containerPath": "/a"}]}
    data = spec(
        {"name": "1", "containerEdits": {"env": ["B=1"]}},
        {"name": "2", "containerEdits": {"env": ["A=1"]}},
        containerEdits=whole,
    )
    found = [(one.edits[0], *map(json.loads, one.edits[1:])) for one in cdi_spec.parse(data, "/etc/cdi/a.json")]
    assert found == [("0.6.0", {"env": ["B=1"]}, whole), ("0.6.0", {"env": ["A=1"]}, whole)]
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
        (spec({"name": "0", **EDITS}, {"name": "0", **EDITS}), "devices[1].name is declared twice"),
        (spec({"name": "0", "containerEdits": []}), "devices[0].containerEdits is not a mapping"),
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
        (spec({"name": "0", "containerEdits": {"mounts": {}}}), "devices[0].containerEdits.mounts is not a list"),
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


def test_the_files_of_the_whole_spec_are_those_of_no_device() -> None:
    whole = {"deviceNodes": [{"path": "/dev/ctl"}, {"path": "/dev/a", "hostPath": "/dev/b"}]}
    (found,) = cdi_spec.parse(spec(node(path="/dev/gpu0"), containerEdits=whole), "/etc/cdi/a.json")
    assert (found.paths, found.shared) == (("/dev/gpu0",), ("/dev/ctl", "/dev/b"))


# As the CDI project's own checks have it (specs-go/version.go, pkg/cdi): the fields, and the lowest version that has them.
NODE = {"path": "/dev/a"}
MOUNT = {"hostPath": "/a", "containerPath": "/b"}
HOOK = {"hookName": "createRuntime", "path": "/h"}
NET = {"hostInterfaceName": "eth0", "name": "net0"}
VERSIONS = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"]


@pytest.mark.parametrize("at", ["device", "spec"])
@pytest.mark.parametrize(
    ("edits", "since"),
    [
        ({"env": ["A="], "deviceNodes": [NODE], "mounts": [MOUNT], "hooks": [HOOK]}, "0.3.0"),
        ({"mounts": [{**MOUNT, "type": ""}], "deviceNodes": [{**NODE, "hostPath": "", "type": "c", "permissions": "rw"}]}, "0.3.0"),
        ({"mounts": [{**MOUNT, "type": "tmpfs"}]}, "0.4.0"),
        ({"deviceNodes": [NODE, {**NODE, "hostPath": "/dev/b"}]}, "0.5.0"),
        ({"additionalGids": [5]}, "0.7.0"),
        ({"intelRdt": {"closID": "a", "enableCMT": True}}, "0.7.0"),
        ({"intelRdt": {}}, "0.7.0"),
        ({"intelRdt": {"enableMonitoring": False}}, "0.7.0"),
        ({"intelRdt": {"enableMonitoring": True}}, "1.1.0"),
        ({"intelRdt": {"schemata": []}}, "1.1.0"),
        ({"netDevices": [NET]}, "1.1.0"),
        ({"netDevices": [], "env": ["A=1"], "additionalGids": None}, "0.3.0"),
    ],
)  # fmt: skip
def test_the_version_that_edits_need(edits: dict[str, t.Any], since: str, at: str) -> None:
    own, whole = (edits, {}) if at == "device" else (EDITS["containerEdits"], edits)
    for version in VERSIONS:
        data = spec({"name": "d", "containerEdits": own}, cdiVersion=version, containerEdits=whole)
        taken = VERSIONS.index(version) >= VERSIONS.index(since)
        said = "" if taken else f"cdiVersion is too low for the fields that it has, which came with {since}"
        check_refused(data, said)


def check_refused(data: object, said: str) -> None:
    if not said:
        assert cdi_spec.parse(data, "/etc/cdi/a.json")
        return
    with pytest.raises(CorralError) as caught:
        cdi_spec.parse(data, "/etc/cdi/a.json")
    assert said in str(caught.value)
    assert "generate" in str(caught.value)


ONE = {"name": "d", **EDITS}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (spec(ONE, cdiVersion="v0.6.0"), ""),
        (spec(ONE, cdiVersion="1.2.0", new=1), ""),
        (spec(ONE, cdiVersion="0.9.0"), "cdiVersion is not a version"),
        (spec(ONE, cdiVersion="0.6.1"), "cdiVersion is not a version"),
        (spec(ONE, cdiVersion="0.5.0", annotations={"a": "b"}), "came with 0.6.0"),
        (spec({**ONE, "annotations": {"a": "b"}}, cdiVersion="0.5.0"), "came with 0.6.0"),
        (spec({**ONE, "annotations": {}}, cdiVersion="0.5.0", annotations=None), ""),
        (spec({**ONE, "annotations": {"a": 1}}), "devices[0].annotations.a is not text"),
        (spec(ONE, cdiVersion="0.5.0", kind="a.b/c.d"), "came with 0.6.0"),
        (spec(ONE, cdiVersion="0.5.0", kind="a.b/c"), ""),
        (spec({**ONE, "name": "0d"}, cdiVersion="0.4.0"), "came with 0.5.0"),
        (spec({**ONE, "name": "d0"}, cdiVersion="0.4.0"), ""),
        (spec(), "devices has none"),
        (spec({"name": "d"}), "d: devices[0].containerEdits is empty, and engines ignore the whole spec"),
        (spec({"name": "d", "containerEdits": {"env": [], "mounts": None}}), "devices[0].containerEdits is empty"),
        (spec(ONE, {"name": "e"}, containerEdits=EDITS["containerEdits"]), "devices[1].containerEdits is empty"),
        (spec(ONE, device=[]), "device is no field that CDI has"),
        (spec({**ONE, "env": []}), "devices[0].env is no field that CDI has"),
        *(
            (spec({"name": "d", "containerEdits": edits}), said)
            for edits, said in (
                ({"envs": ["A=1"]}, "containerEdits.envs is no field"),
                ({"env": ["=1"]}, "env[0] is not NAME=VALUE"),
                ({"deviceNodes": [{**NODE, "mode": "rw"}]}, "deviceNodes[0].mode is no field"),
                ({"deviceNodes": [{**NODE, "type": "d"}]}, "deviceNodes[0].type is none that CDI has"),
                ({"deviceNodes": [{**NODE, "permissions": "rwx"}]}, "deviceNodes[0].permissions is none"),
                ({"deviceNodes": [{**NODE, "permissions": "none", "major": 1, "fileMode": 432}]}, ""),
                ({"deviceNodes": [{**NODE, "major": "1"}]}, "deviceNodes[0].major is not a whole number"),
                ({"hooks": [{"path": "/h"}]}, "hooks[0].hookName is not text"),
                ({"hooks": [{**HOOK, "hookName": "create"}]}, "hooks[0].hookName is none that CDI has"),
                ({"hooks": [{**HOOK, "path": ""}]}, "hooks[0].path is not text"),
                ({"hooks": [{**HOOK, "env": ["A"]}]}, "hooks[0].env[0] is not NAME=VALUE"),
                ({"hooks": [{**HOOK, "timeout": True}]}, "hooks[0].timeout is not a whole number"),
                ({"hooks": [{**HOOK, "args": ["a"], "env": ["A=1"], "timeout": 5}]}, ""),
                ({"mounts": [{"hostPath": "/a"}]}, "mounts[0].containerPath is not text"),
                ({"mounts": [{**MOUNT, "options": "ro"}]}, "mounts[0].options is not a list"),
            )
        ),
        (spec({"name": "d", "containerEdits": {"intelRdt": {"closID": ".."}}}, cdiVersion="0.7.0"), "closID is none that CDI has"),
        (spec({**ONE, "a\x1b[2J": 1}), "devices[0].a\\x1b[2J is no field"),
        *(
            (spec({"name": "d", "containerEdits": {"netDevices": [NET, other]}}, cdiVersion="1.1.0"), said)
            for other, said in (
                ({**NET, "name": "b"}, "netDevices has one hostInterfaceName twice"),
                ({**NET, "hostInterfaceName": "b"}, "netDevices has one name twice"),
                ({"hostInterfaceName": "b", "name": "b"}, ""),
            )
        ),
        (spec({"name": "d", "containerEdits": {"netDevices": [{"name": "a"}]}}, cdiVersion="1.1.0"), "hostInterfaceName is not text"),
    ],
)  # fmt: skip
def test_what_engines_ignore_as_a_whole_is_refused(data: object, said: str) -> None:
    check_refused(data, said)


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
