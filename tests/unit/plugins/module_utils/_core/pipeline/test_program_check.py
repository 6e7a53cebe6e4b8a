# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The installed program against the digests of its installation: whatever was changed by hand is named, and a rollout mends it."""

from __future__ import annotations

import json
import os
import stat
import typing as t
from pathlib import Path
from unittest import mock

import node
import pytest
import runs
from _core.host import recorded_inputs, state
from _core.host.agent import program_check
from _core.managers.agent import agent_install
from _core.model.agent.agent_units import FOLDER, RELEASES
from _core.model.plan.plan import UNCHANGEABLE, UNKNOWN

Make = t.Callable[..., node.Node]
MAIN = "_core/main.py"
EVIL = "raise SystemExit(1)\n"


@pytest.fixture
def fake(made_once: node.MadeOnce) -> node.Node:
    return made_once(runs.kept)


def release(fake: node.Node) -> Path:
    return next((fake.root / RELEASES[1:]).iterdir())


def items(fake: node.Node) -> list[tuple[str, str, str | None, str | None]]:
    """The items of the agent, their paths within the release."""
    top = f"{RELEASES}/{release(fake).name}/"
    return [
        (one.subject.removeprefix(top), one.property, one.actual, one.wanted)
        for one in runs.plan(fake.host())
        if one.manager == agent_install.NAME
    ]


def sha(text: str) -> str:
    import hashlib

    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def pyc(fake: node.Node) -> Path:
    return next((release(fake) / "_core/__pycache__").glob("main.*.pyc"))


def test_a_program_as_installed_is_in_sync_and_its_record_is_roots(fake: node.Node) -> None:
    assert items(fake) == []
    file = fake.root / state.PROGRAM[1:]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    files = program_check.records(fake.host())[release(fake).name]["files"]
    assert {*runs.PROGRAM, "corral"} < set(files) and len(files) == 2 * len(runs.PROGRAM) + 1


TAMPERINGS: dict[str, tuple[t.Callable[[node.Node], object], list[tuple[str, str, str | None, str | None]]]] = {
    "a source": (
        lambda fake: (release(fake) / MAIN).write_text(EVIL),
        [(MAIN, "content", sha(EVIL), sha(runs.PROGRAM[MAIN]))],
    ),
    "a source that is gone": (
        lambda fake: (release(fake) / MAIN).unlink(),
        [(MAIN, "content", "absent", sha(runs.PROGRAM[MAIN]))],
    ),
    "a source that is a link": (
        lambda fake: (
            (release(fake) / MAIN).unlink(),
            (release(fake) / MAIN).symlink_to("/etc/passwd"),
        ),
        [(MAIN, "content", "a link", sha(runs.PROGRAM[MAIN]))],
    ),
    "a module that hides one of the standard library": (
        lambda fake: (release(fake) / "json.py").write_text(EVIL),
        [("json.py", "file", "present", "absent")],
    ),
    "a package": (
        lambda fake: fake.put(f"{RELEASES}/{release(fake).name}/json/__init__.py", EVIL),
        [("json/__init__.py", "file", "present", "absent")],
    ),
    "a package by a link": (
        lambda fake: (release(fake) / "json").symlink_to("/tmp"),
        [("json", "file", "present", "absent")],
    ),
    "a module without a source": (
        lambda fake: (release(fake) / "_core/json.pyc").write_text("code"),
        [("_core/json.pyc", "file", "present", "absent")],
    ),
    "a module in machine code": (
        lambda fake: (release(fake) / "json.so").write_text("code"),
        [("json.so", "file", "present", "absent")],
    ),
    "a compiled module of another name": (
        lambda fake: (release(fake) / "_core/__pycache__/planted.cpython-311.pyc").write_text("code"),
        [("_core/__pycache__/planted.cpython-311.pyc", "file", "present", "absent")],
    ),
    "a file that others may write": (
        lambda fake: (release(fake) / MAIN).chmod(0o666),
        [(MAIN, "mode", "0666", "0644")],
    ),
    "a folder above that others may write": (
        lambda fake: (fake.root / FOLDER[1:]).chmod(0o777),
        [(FOLDER, "mode", "0777", "0755")],
    ),
    "a folder within that its group may write": (
        lambda fake: (release(fake) / "_core").chmod(0o775),
        [("_core", "mode", "0775", "0755")],
    ),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_what_was_changed_by_hand_is_named(name: str, fake: node.Node) -> None:
    tamper, expected = TAMPERINGS[name]
    tamper(fake)
    assert items(fake) == expected
    found = [one for one in runs.plan(fake.host()) if one.manager == agent_install.NAME]
    assert [(one.verdict, one.steps) for one in found] == [(UNCHANGEABLE, ())]
    assert found[0].reason.endswith("roll the agent out again")
    runs.tick(fake.host())
    status = state.read_json(fake.host(), state.STATUS)
    assert not status["in_sync"] and [one["property"] for one in status["items"]] == [expected[0][1]]


@pytest.mark.parametrize("name", [name for name in TAMPERINGS if "a folder" not in name])
def test_a_rollout_mends_it(name: str, fake: node.Node) -> None:
    TAMPERINGS[name][0](fake)
    outcome = runs.install(fake.host())
    assert not outcome.error and not outcome.remaining
    assert [one.property for one in outcome.applied] == ["program"]
    assert items(fake) == []
    assert not runs.install(fake.host()).applied


def test_a_compiled_file_that_was_changed_is_named_and_compiled_again(fake: node.Node) -> None:
    file, before = pyc(fake), os.stat(pyc(fake))
    file.write_text("planted!")  # of the same length, and with the same time: Python would run it
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [(Path(one[0]).name, *one[1:3]) for one in items(fake)] == [(file.name, "content", sha("planted!"))]
    assert not runs.install(fake.host()).remaining
    assert file.read_text() == "compiled" and items(fake) == []


def test_the_owner_counts_as_well(fake: node.Node) -> None:
    fake.others[f"{RELEASES}/{release(fake).name}/{MAIN}"] = (0o644, 4242)
    assert items(fake) == [(MAIN, "owner", "user 4242", "root")]


@pytest.mark.parametrize(
    ("damage", "as_installed", "said"),
    [
        ("none", True, ""),
        ("a source", False, "NOT as it was installed: "),
        ("no record", None, "not known whether it is as it was installed"),
    ],
)
def test_the_status_says_whether_it_is_as_it_was_installed(
    damage: str, as_installed: bool | None, said: str, fake: node.Node
) -> None:
    """It looks at the program itself, so also where the agent has not run since."""
    runs.tick(fake.host())
    if damage == "a source":
        TAMPERINGS[damage][0](fake)
    elif damage == "no record":
        fake.drop(state.PROGRAM)
    found = json.loads(runs.printed(fake.host(), "status", "--json", code=None))["program"]
    differing = [f"{RELEASES}/{release(fake).name}/{MAIN}"] if damage == "a source" else []
    assert found == {"release": release(fake).name, "as_installed": as_installed, "differing": differing}
    lines = [
        line for line in runs.printed(fake.host(), "status", code=None).splitlines() if line.startswith("program ")
    ]
    assert [said + ", ".join(differing) in line for line in lines] == [True] * bool(said)


@pytest.mark.parametrize("damage", ["gone", "torn", "without the release"])
def test_without_a_record_it_is_unknown_until_the_next_rollout(damage: str, fake: node.Node) -> None:
    file = fake.root / state.PROGRAM[1:]
    if damage == "gone":
        file.unlink()
    else:
        file.write_text(file.read_text()[:40] if damage == "torn" else state.checked_text({}))
    found = [one for one in runs.plan(fake.host()) if one.manager == agent_install.NAME]
    assert [one.verdict for one in found] == [UNKNOWN]
    assert not runs.install(fake.host()).remaining
    assert items(fake) == []


def test_a_compilation_for_another_python_vouches_for_no_source(fake: node.Node) -> None:
    (release(fake) / MAIN).write_text(EVIL)
    program_check.record(fake.host(), f"{RELEASES}/{release(fake).name}", ())
    assert [one[:2] for one in items(fake)] == [(MAIN, "content")]


def test_a_converged_tick_reads_no_file_of_the_program(fake: node.Node) -> None:
    for dummy in range(3):
        fake.wait(5)
        assert runs.tick(fake.host()) == 0
    kept: dict[str, t.Any] = {}
    real = recorded_inputs.facts_of

    def facts_of(host: t.Any, asked: dict[t.Any, t.Any]) -> t.Any:
        kept.update({question[1]: answer for question, answer in asked.items()})
        return real(host, asked)

    fake.drop(recorded_inputs.KEPT)
    with mock.patch.object(recorded_inputs, "facts_of", facts_of):
        runs.tick(fake.host())
    assert kept and [path for path in kept if path.startswith(f"{RELEASES}/")] == []


@pytest.mark.parametrize(
    "installed, said",
    [
        ("9.10.0", "; a downgrade of the collection, from 9.10.0 to 9.9.0"),
        ("9.8.0", "; from version 9.8.0 to 9.9.0"),
        ("9.9.0", "files"),
    ],
)
def test_a_downgrade_is_named_in_the_plan(installed: str, said: str, make: Make) -> None:
    fake = make()
    with mock.patch.object(program_check, "VERSION", installed):
        assert not runs.install(fake.host(), runs.OLDER).error
    with mock.patch.object(agent_install, "VERSION", "9.9.0"):
        outcome = runs.install(fake.host())
    assert not outcome.error
    assert next(one for one in outcome.applied if one.property == "program").reason.endswith(said)
