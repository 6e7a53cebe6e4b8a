# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of Corral's CDI specs: devices and hooks of containers, in the order in which the specs may change."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path
from types import SimpleNamespace

import pytest
from _core.host.files import Host
from _core.managers.devices import device_specs
from _core.managers.devices.device_places import OPENED
from _core.managers.kubelet import kubelet_observed
from _core.model.devices.device import Device, GrantedDevice
from _core.model.devices.device_delivery import Spec
from _core.model.plan.plan import LIVE, TAKE
from _core.model.topology.topology import Topology
from _core.model.workload.grants import Grant

PROGRAM = "/usr/libexec/corral/corral"
OWN = {"hookName": "createRuntime", "path": PROGRAM, "args": [PROGRAM, "container", "--start"]}
OTHER = {"hookName": "createRuntime", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook"]}
SPEC, NEWER = "/run/cdi/corral.node-grant.json", "/run/cdi/corral.node-grant-0.6.0.json"


def text_of(version: str = "0.3.0", **rows: t.Any) -> str:
    devices = [{"name": name.replace("__", ":"), "containerEdits": edits} for name, edits in sorted(rows.items())]
    data = {"cdiVersion": version, "devices": devices, "kind": "corral.node/grant"}
    return json.dumps(data, indent=2, sort_keys=True) + "\n"


def seen(name: str, *files: str, cdi: tuple[str, ...] = ()) -> Device:
    return Device(name, -1, "", (), None, (), files, frozenset([name, *files]), frozenset(), cdi)


def node_of(*files: str) -> list[dict[str, str]]:
    return [{"path": file, "permissions": "rwm"} for file in files]


@pytest.mark.parametrize(
    ("edits", "own", "without"),
    [
        ({"env": ["A=1"], "hooks": [OWN]}, [OWN], {"env": ["A=1"]}),
        ({"env": ["A=1"], "hooks": [OTHER, OWN]}, [OWN], {"env": ["A=1"], "hooks": [OTHER]}),
        ({"hooks": [OTHER]}, [], {"hooks": [OTHER]}),
        ({"env": ["A=1"], "hooks": []}, [], {"env": ["A=1"]}),
        # What another has written there.
        ({"env": ["A=1"], "hooks": "x"}, [], {"env": ["A=1"]}),
        ({"hooks": [5, OWN]}, [OWN], {"hooks": [5]}),
        ({}, [], {}),
        ([OWN], [], {}),
        ("hooks", [], {}),
        (None, [], {}),
    ],
)
def test_corrals_hooks_are_told_from_those_of_others(edits: t.Any, own: list[t.Any], without: dict[str, t.Any]) -> None:
    assert device_specs.own_hooks(edits) == own
    assert device_specs.without_own_hooks(edits) == without


def test_hooks_are_added_to_the_row_of_their_container_whatever_its_version() -> None:
    rows = {"0.3.0": {"a:x": {"env": ["A=1"]}}, "0.6.0": {"b:x": {"hooks": [OTHER]}, "c:x": {"env": ["C=1"]}}}
    assert device_specs.with_hooks(rows, {"a:x": OWN, "b:x": OWN, "d:x": OWN}) == {
        "0.3.0": {"a:x": {"env": ["A=1"], "hooks": [OWN]}, "d:x": {"hooks": [OWN]}},
        "0.6.0": {"b:x": {"hooks": [OTHER, OWN]}, "c:x": {"env": ["C=1"]}},
    }
    assert device_specs.with_hooks({}, {"a:x": OWN}) == {"0.3.0": {"a:x": {"hooks": [OWN]}}}


def test_the_hooks_of_a_pod_are_those_of_its_containers_alone() -> None:
    first = text_of(web={"hooks": [OWN]}, web__app={"hooks": [OTHER, OWN]}, web2__app={"hooks": [OWN]})
    second = text_of("0.6.0", web__log={"hooks": [{**OWN, "args": ["log"]}]}, web__plain={"env": ["A=1"]})
    assert device_specs.hooks_before(Grant("web"), {SPEC: first, NEWER: second, "/run/cdi/x": None}) == {
        "web:app": OWN,
        "web:log": {**OWN, "args": ["log"]},
    }


def test_runs_whose_pods_are_declared_no_longer_keep_their_hooks_as_long_as_the_program_is_there(
    tmp_path: Path,
) -> None:
    host = Host(str(tmp_path))
    context = kubelet_observed.without_profile(host, Topology(frozenset({0})))
    specs = {SPEC: text_of(web__app={"hooks": [OWN]}, db__app={"hooks": [OWN]})}
    grants = SimpleNamespace(needs=(), allocated=SimpleNamespace(grants=(Grant("web"), Grant("db"))))
    running = context._replace(workloads=t.cast("t.Any", grants))
    assert device_specs.hooks_of_pods(host, running, specs) == {}
    (tmp_path / "usr/libexec/corral").mkdir(parents=True)
    (tmp_path / "usr/libexec/corral/corral").touch()
    assert device_specs.hooks_of_pods(host, running, specs) == {"web:app": OWN, "db:app": OWN}
    assert device_specs.hooks_of_pods(host, context, specs) == {}, "there are no workloads"


def test_no_link_of_that_name_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "run/cdi"
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (folder / "corral.node-grant.json").write_text("own")
    (folder / "corral.node-grant-0.6.0.json").symlink_to(tmp_path / "secret")
    (folder / "vendor.json").write_text("other")
    assert device_specs.specs_of(Host(str(tmp_path))) == {SPEC: "own", NEWER: None}


GRANT = Grant(
    "web",
    devices=(
        GrantedDevice("b", "example.com/y", "1", ("/dev/y1",)),
        GrantedDevice("a", "example.com/x", "2", ("/dev/x2",)),
        GrantedDevice("", "example.com/x", "1", ("/dev/x1",)),
        GrantedDevice("a", "example.com/x", "3", ("/dev/x3",)),
    ),
)


def test_each_container_with_devices_has_a_name_after_the_whole() -> None:
    names = device_specs.spec_names(GRANT)
    assert [(name, [one.id for one in own]) for name, own in names.items()] == [
        ("web", ["1", "2", "1", "3"]),
        ("web:a", ["2", "3"]),
        ("web:b", ["1"]),
    ]
    assert list(device_specs.spec_names(Grant("a" * 253, devices=GRANT.devices))) == ["a" * 253], (
        "a container's name would be too long"
    )


PORT = Grant("web", devices=(GrantedDevice("", "example.com/x", "1", ("/dev/x1",)),))
DEVICE_ENV = ["CORRAL_DEVICES_EXAMPLE_COM_X=1", "CORRAL_FILES_EXAMPLE_COM_X=/dev/x1"]
BEFORE = Spec("0.6.0", {"web": {"deviceNodes": node_of("/dev/x1"), "hooks": [OWN, OTHER]}})


@pytest.mark.parametrize(
    ("devices", "before", "found"),
    [
        (
            (seen("1", "/dev/x1"),),
            [BEFORE],
            [("web", "0.3.0", {"env": DEVICE_ENV, "deviceNodes": node_of("/dev/x1")})],
        ),
        # It is gone: the row stays, and the hook is added each time.
        ((), [BEFORE], [("web", "0.6.0", {"deviceNodes": node_of("/dev/x1"), "hooks": [OTHER]})]),
        ((seen("2", "/dev/x2"),), [BEFORE], [("web", "0.6.0", {"deviceNodes": node_of("/dev/x1"), "hooks": [OTHER]})]),
        # Another device has its file by now.
        ((seen("2", "/dev/x1"),), [BEFORE], []),
        ((), [], []),
        ((), [Spec("0.3.0", {"web": {"hooks": [OWN]}})], []),
    ],
)
def test_a_row_stays_as_it_was_while_a_device_is_gone(
    devices: tuple[Device, ...], before: list[Spec], found: list[t.Any]
) -> None:
    assert list(device_specs.spec_rows(PORT, {"example.com/x": devices}, before)) == found


# Phase and order: what only takes devices away goes before all that gives some.
GIVES, TAKES = (LIVE, -OPENED), (TAKE, OPENED)
A, B, TTY = {"env": ["A=1"]}, {"env": ["B=1"]}, {"deviceNodes": node_of("/dev/ttyS1")}


@pytest.mark.parametrize(
    ("before", "rows", "found"),
    [
        ({}, {}, []),
        ({}, {"0.3.0": {"web": A}}, [(SPEC, text_of(web=A), GIVES, None, "what is granted")]),
        ({SPEC: text_of(web=A)}, {"0.3.0": {"web": A}}, []),
        ({SPEC: text_of(web=A)}, {}, [(SPEC, None, TAKES, "others", None)]),
        (
            {SPEC: text_of(web=A)},
            {"0.3.0": {"web": A, "db": B}},
            [(SPEC, text_of(web=A, db=B), GIVES, "others", "what is granted")],
        ),
        (
            {SPEC: text_of(web=A, db=B)},
            {"0.3.0": {"web": A}},
            [(SPEC, text_of(web=A), TAKES, "others", "what is granted")],
        ),
        (
            {SPEC: text_of(web=A)},
            {"0.3.0": {"web": B}},
            [(SPEC, text_of(web=B), GIVES, "others", "what is granted")],
        ),
        # What a row gives no more goes before the checkpoint, the rest stays meanwhile.
        (
            {SPEC: text_of(web=A, db=TTY)},
            {"0.3.0": {"web": A, "db": B, "log": TTY}},
            [
                (SPEC, text_of(web=A), TAKES, "others", "what is granted"),
                (SPEC, text_of(web=A, db=B, log=TTY), GIVES, "others", "what is granted"),
            ],
        ),
        (
            {SPEC: text_of(web=TTY)},
            {"0.3.0": {"web": {**TTY, **A}, "db": B}},
            [(SPEC, text_of(web={**TTY, **A}, db=B), GIVES, "others", "what is granted")],
        ),
        # It cannot be read, or is a link.
        ({SPEC: None}, {}, []),
        ({SPEC: None}, {"0.3.0": {"web": A}}, [(SPEC, text_of(web=A), GIVES, "others", "what is granted")]),
        (
            {SPEC: text_of(web=A)},
            {"0.6.0": {"web": A}},
            [
                (NEWER, text_of("0.6.0", web=A), GIVES, None, "what is granted"),
                (SPEC, None, TAKES, "others", None),
            ],
        ),
        # The first one stays as it is.
        (
            {NEWER: text_of("0.6.0", web=A), SPEC: text_of(web=A)},
            {"0.6.0": {"web": A}},
            [(SPEC, None, TAKES, "others", None)],
        ),
    ],
)
def test_each_spec_changes_by_itself(
    before: dict[str, str | None], rows: dict[str, dict[str, t.Any]], found: list[t.Any]
) -> None:
    changes = device_specs.spec_changes(before, rows)
    steps = [(one.subject, step.value, step[3:5], one.actual, one.wanted) for one in changes for step in one.steps]
    assert steps == found
    assert all(step.mode == 0o644 for one in changes for step in one.steps)


NEEDS = {
    "0.3.0": {"env": ["A=1"]},
    "0.5.0": {"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]},
    "1.1.0": {"netDevices": [{"hostInterfaceName": "eth0", "name": "net0"}]},
}


def test_a_row_has_the_version_that_its_name_and_edits_need() -> None:
    """An engine would ignore the whole spec, with all other containers."""
    for needed, edits in NEEDS.items():
        assert device_specs.fitting({"0.3.0": {"web": edits}}) == {needed: {"web": edits}}
        assert device_specs.fitting({"0.6.0": {"web": edits}}) == {max(needed, "0.6.0"): {"web": edits}}
    own = {"hooks": [OWN]}
    assert device_specs.with_hooks({}, {"0web:app": OWN, "web:app": OWN}) == {
        "0.3.0": {"web:app": own},
        "0.5.0": {"0web:app": own},
    }


def test_a_row_that_no_engine_takes_is_left_out() -> None:
    rows = {"a": {}, "b": {"env": ["A"]}, "c": {"hooks": [{"path": "/h"}]}, "d": {"later": [1], "env": ["A=1"]}}
    assert device_specs.fitting({"0.3.0": rows}) == {"0.3.0": {"d": rows["d"]}}


def test_specs_lose_their_hooks_with_the_program() -> None:
    changes = device_specs.without_program({
        SPEC: text_of(web__app={"env": ["A=1"], "hooks": [OWN, OTHER]}, web__log={"hooks": [OWN]}),
        NEWER: text_of("0.6.0", db={"env": ["B=1"]}),
    })  # fmt: skip
    assert [(one.subject, one.steps[-1].value) for one in changes] == [
        (SPEC, text_of(web__app={"env": ["A=1"], "hooks": [OTHER]}))
    ]
    # With nothing left it goes, and so does one that has not the name of its version.
    for specs in ({SPEC: text_of(web={"hooks": [OWN]})}, {SPEC: text_of("0.6.0", web={"env": [], "hooks": [OWN]})}):
        assert [(one.subject, one.steps[0].value) for one in device_specs.without_program(specs)] == [(SPEC, None)]
    assert device_specs.without_program({SPEC: None, NEWER: text_of("0.6.0", web={"hooks": [OTHER]})}) == ()


def test_a_variable_with_two_values_is_named() -> None:
    said = [json.dumps({"env": ["MODE=a", "SAME=1"]}), json.dumps({"env": ["MODE=b", "SAME=1"]})]
    devices = tuple(seen(str(number), cdi=("0.3.0", text)) for number, text in enumerate(said, 1))
    granted = tuple(GrantedDevice(name, "example.com/x", number) for name, number in (("a", "1"), ("b", "2")))
    line = "its devices give the variable MODE different values: a container has the first one"
    assert device_specs.conflicts([Grant("web", devices=granted)], {"example.com/x": devices}) == [
        f"workload web: {line}"
    ]
    assert device_specs.conflicts([Grant("web", devices=granted[:1])], {"example.com/x": devices}) == []
