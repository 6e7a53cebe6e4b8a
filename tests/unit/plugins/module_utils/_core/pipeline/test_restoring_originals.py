# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a removal that could not end still has to do."""

from __future__ import annotations

import typing as t

import node
import pytest
import runs
from _core.managers import registry
from _core.model.plan import make_step
from _core.model.plan.plan import DRIFT, RELEASE, UNCHANGEABLE, Change, Step
from _core.pipeline import planning, restoring_originals

FILE, LINK, FOLDER = "/etc/some/file", "/etc/some/link", "/etc/some/folder"
KERNEL, UNIT, CGROUP = "/proc/sys/kernel/pid_max", "some.slice", "/sys/fs/cgroup"
Do = t.Callable[[node.Node], t.Any]


def nothing(dummy: node.Node) -> None:
    """The node as it comes."""


def put(path: str, text: str) -> Do:
    return lambda fake: fake.put(path, text)


def link(path: str, to: str) -> Do:
    return lambda fake: fake.host().write_link(path, to)


def folder(fake: node.Node) -> None:
    (fake.root / FOLDER[1:]).mkdir(parents=True)


def starts(*properties: str) -> Do:
    def do(fake: node.Node) -> None:
        fake.systemctl("start", UNIT)
        for one in properties:
            fake.systemctl("set-property", "--runtime", UNIT, one)

    return do


def file_step(value: str | None) -> Step:
    return make_step.file(FILE, value, RELEASE)


LIMIT = make_step.unit_property(UNIT, "MemoryMax", "", RELEASE)
CASES: dict[str, tuple[Step, Do, Do]] = {
    "a file that is to go": (file_step(None), nothing, put(FILE, "a")),
    "a file that is to be back": (file_step("a"), put(FILE, "a"), put(FILE, "b")),
    "a file in whose place is a link": (file_step("a"), put(FILE, "a"), link(FILE, "a")),
    "a link": (make_step.link(LINK, "a", RELEASE), link(LINK, "a"), link(LINK, "b")),
    "a folder": (Step("folder", FOLDER, None, RELEASE), nothing, folder),
    "a folder of others": (Step("folder", FOLDER, None, RELEASE), put(f"{FOLDER}/others", "a"), folder),
    "a program": (make_step.program(FOLDER, "", "", RELEASE, 0), nothing, folder),
    "a slice": (make_step.unit(UNIT, "stop", RELEASE), nothing, starts()),
    "a limit": (LIMIT, starts(), starts("MemoryMax=1M")),
    "a limit as it was": (
        make_step.unit_property(UNIT, "MemoryMax", "2097152", RELEASE),
        nothing,
        starts("MemoryMax=1M"),
    ),
    "a kernel value": (Step("value", KERNEL, "7", RELEASE), put(KERNEL, "7\n"), put(KERNEL, "8\n")),
    "a value that went": (Step("value", "/proc/sys/none", "7", RELEASE), nothing, put("/proc/sys/none", "8\n")),
}


def change(*steps: Step) -> Change:
    return Change("cpu", "it", "content", "set by Corral", "absent", "", "", steps, DRIFT)


@pytest.mark.parametrize("name", CASES)
def test_what_is_as_it_was_is_not_named(name: str, make: t.Callable[..., node.Node]) -> None:
    step, restored, different = CASES[name]
    for do, left in ((restored, False), (different, True)):
        fake = make()
        do(fake)
        wanted = (change(step),) if left else ()
        assert restoring_originals.not_yet_restored(fake.host(), (change(step),)) == wanted


def test_an_item_with_one_step_left_or_with_none_at_all_is_named(fake: node.Node) -> None:
    fake.put(FILE, "a")
    half = change(file_step("a"), file_step(None))
    stuck = change()._replace(verdict=UNCHANGEABLE)
    assert restoring_originals.not_yet_restored(fake.host(), (half, stuck)) == (half, stuck)


def test_after_a_whole_removal_nothing_is_left_of_its_plan(converged: node.Node) -> None:
    plan = planning.plan_removal(converged.host(), registry.names())
    assert restoring_originals.not_yet_restored(converged.host(), plan.changes)
    runs.remove(converged.host())
    assert restoring_originals.not_yet_restored(converged.host(), plan.changes) == ()
