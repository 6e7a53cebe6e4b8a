# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Before-values and the steps that bring them back."""

from __future__ import annotations

import json

import pytest
from _core.model.plan import make_step, undo
from _core.model.plan.plan import CPUS, FILES, LIVE, START, VALUES, Step
from _core.model.plan.undo import Original
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.none() | st.text(max_size=20)
FOLDERS = st.lists(st.sampled_from(["/a", "/a/b", "/a/b/c"]), unique=True).map(lambda row: tuple(sorted(row)))
BEFORES = st.builds(
    Original,
    kind=st.sampled_from(["file", "link", "value", "pool", "property", "unit", "mount", "compile"]),
    target=st.sampled_from(["/etc/x", "system.slice", "a.mount"]),
    name=st.sampled_from(["AllowedCPUs", "TasksMax", "/dev/x"]),
    value=TEXTS, link=TEXTS, runtime=TEXTS, active=st.booleans(), made=FOLDERS,
)  # fmt: skip


@given(BEFORES)
def test_a_before_value_survives_the_disk(before: Original) -> None:
    data = json.loads(json.dumps(before._asdict()))
    if before.kind != "property" or before.name != "/dev/x":
        assert undo.from_data(data) == before
        return
    with pytest.raises(TypeError):  # There is no file of the kernel that it could be read from.
        undo.from_data(data)


@given(BEFORES)
def test_a_restore_writes_to_what_it_was_taken_from(before: Original) -> None:
    control = undo.control_file(before.target, before.name, runtime=True)
    for step in undo.restore(before, "0-7"):
        of_program = before.kind == "compile" and step.target.startswith(f"{before.target}/")
        assert step.target in (before.target, control, *before.made) or of_program


def test_a_program_that_was_not_there_goes_with_all_its_folders_and_what_was_compiled() -> None:
    before = Original("compile", "/a/p", name="x.py\nin/y.py", made=("/a",))
    steps = undo.in_order(undo.restore(before, "0-7"))
    assert [(step.kind, step.target, step.text) for step in steps] == [
        ("compile", "/a/p", ""), ("file", "/a/p/x.py", None), ("file", "/a/p/in/y.py", None),
        ("folder", "/a/p/in", None), ("folder", "/a/p", None), ("folder", "/a", None),
    ]  # fmt: skip


def test_a_file_that_was_not_there_goes_with_its_folders_innermost_first() -> None:
    steps = undo.restore(Original("file", "/a/b/x", made=("/a", "/a/b")), "0-7")
    assert [(step.kind, step.target, step.text) for step in sorted(steps, key=lambda step: (step.phase, step.order))] == [
        ("file", "/a/b/x", None), ("folder", "/a/b", None), ("folder", "/a", None),
    ]  # fmt: skip


def test_a_link_comes_back_as_a_link_and_a_file_with_its_mode() -> None:
    (link,) = undo.restore(Original("file", "/etc/x", link="../y"), "0")
    assert (link.kind, link.value) == ("link", "../y")
    (file,) = undo.restore(Original("link", "/etc/systemd/x", value="text", mode=0o600), "0")
    assert (file.kind, file.value, file.mode, file.reload) == ("file", "text", 0o600, True)


def test_cleared_cpus_are_all_cpus_first() -> None:
    steps = undo.restore(Original("property", "system.slice", "AllowedCPUs", active=True), "0-7")
    assert [step.text for step in steps] == ["AllowedCPUs=0-7", "AllowedCPUs=", None]


@pytest.mark.parametrize(("taken", "wanted"), [((), ["AllowedCPUs=5"]), ((5,), ["AllowedCPUs=0-4", "AllowedCPUs="])])
def test_a_unit_does_not_go_back_to_cpus_that_exclusive_slices_have(taken: tuple[int, ...], wanted: list[str]) -> None:
    before = Original(
        "property", "greedy.slice", "AllowedCPUs", value="5", runtime="[Slice]\nAllowedCPUs=5\n", active=True
    )
    steps = undo.restore_recorded(before, "0-4", frozenset(taken))
    assert [step.text for step in steps if step.kind == "property"] == wanted


@pytest.mark.parametrize(
    ("unit", "wanted"),
    [("system.slice", ["AllowedCPUs=5"]), ("corral_isolated.slice", ["AllowedCPUs=0-3", "AllowedCPUs="])],
)
def test_a_slice_of_corrals_does_not_go_back_to_cpus_that_it_once_had(unit: str, wanted: list[str]) -> None:
    """They were given by an earlier profile, and may be others' by now."""
    before = Original("property", unit, "AllowedCPUs", value="5", runtime="[Slice]\nAllowedCPUs=5\n", active=True)
    steps = undo.restore_recorded(before, "0-3")
    assert [step.text for step in steps if step.kind == "property"] == wanted


@pytest.mark.parametrize(
    ("before", "step", "wanted"),
    [
        (Original("value", "/proc/sys/kernel/pid_max", value="7"), Step("value", "/proc/sys/kernel/pid_max", "9", VALUES), ["7"]),
        (Original("unit", "x.slice"), Step("unit", "x.slice", "start", CPUS), ["stop"]),
        (Original("unit", "x.slice", active=True), Step("unit", "x.slice", "start", CPUS), []),
        (Original("unit", "x.slice", active=True), Step("unit", "x.slice", "stop", CPUS), ["start"]),
        (Original("mount", "x.mount", "/x", active=True), Step("mount", "x.mount", "restart", START, name="/x"), ["restart"]),
        (Original("mount", "x.mount", "/x"), Step("mount", "x.mount", "start", START, name="/x"), ["stop"]),
        (Original("unit", ""), Step("unit", "", "daemon-reload", FILES), []),
        (Original("partition", "/x", value="root"), make_step.partition("/x", "root", CPUS), []),
        (Original("partition", "/x", value="member"), make_step.partition("/x", "root", CPUS), ["member"]),
        (Original("partition", "/x", value="root"), make_step.partition("/x", "member", CPUS), ["root"]),
        (Original("property", "x.slice", "AllowedCPUs", value="0-3", runtime="AllowedCPUs=0-3\n", active=True),
         make_step.unit_property("x.slice", "AllowedCPUs", "1", CPUS), ["AllowedCPUs=0-3"]),
    ],
)  # fmt: skip
def test_the_inverse_of_a_step(before: Original, step: Step, wanted: list[str]) -> None:
    assert [back.text for back in undo.inverse(before, step, "0-7")] == wanted


@pytest.mark.parametrize(
    ("unit", "cpus", "wanted"),
    [
        ("corral_x.slice", "", ["AllowedCPUs=1,5", "AllowedCPUs="]),
        ("corral_x.slice", "3", ["AllowedCPUs=3", "AllowedCPUs="]),
        ("x.slice", "", ["AllowedCPUs=0-7", "AllowedCPUs="]),
    ],
)
def test_who_is_named_as_corrals_and_requested_nothing_gets_the_shared_cpus(
    unit: str, cpus: str, wanted: list[str]
) -> None:
    before = Original("property", unit, "AllowedCPUs", value=cpus or None)
    steps = undo.inverse(before, make_step.unit_property(unit, "AllowedCPUs", "1,3", CPUS), "0-7", "1,5")
    assert [step.text for step in steps if step.kind == "property"] == wanted


def test_folders_are_handed_down_to_who_lives_in_or_beside_them() -> None:
    gone = [Original("file", "/a/b/c/x", made=("/a", "/a/b", "/a/b/c"))]
    heirs = undo.handed_down([Original("file", "/z"), Original("file", "/a/b/y"), Original("value", "/a/b/c/w")], gone)
    assert [heir.made for heir in heirs] == [(), ("/a", "/a/b", "/a/b/c"), ()]


def test_a_live_property_is_undone_with_the_innermost_folder_first() -> None:
    made = ("/run/systemd/system.control", "/run/systemd/system.control/x.slice.d")
    before = Original("property", "x.slice", "TasksMax", value="max", active=True, made=made)
    steps = undo.inverse(before, make_step.unit_property("x.slice", "TasksMax", "9", LIVE), "0-7")
    assert [step.target for step in steps if step.kind == "folder"] == [*reversed(made)]


@pytest.mark.parametrize(("unit", "kept"), [("greedy.slice", "AllowedCPUs=5\n"), ("corral_a.slice", None)])
def test_only_in_others_units_what_was_set_live_comes_back(unit: str, kept: str | None) -> None:
    before = Original("property", unit, "AllowedCPUs", runtime="AllowedCPUs=5\n")
    steps = undo.restore_recorded(before, "0-7")
    assert [step.text for step in steps if step.kind == "file"] == [kept]
