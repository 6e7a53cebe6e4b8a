# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first inputs of one seed: none of them does what none may do. ``make fuzz`` runs more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from shared_data import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tests" / "fuzz"))

import engine
import mutation
import oracles

SEED = "corral"
COUNT = 50  # of each target


def test_no_input_does_what_none_may_do(tmp_path: Path) -> None:
    wanted = engine.Wanted(tuple(engine.targets()), SEED, COUNT, 0, 1)
    found = engine.run(wanted, str(tmp_path))
    assert [one for report in found.values() for one in report.findings] == []
    assert {name: report.inputs for name, report in found.items()} == dict.fromkeys(engine.targets(), COUNT)
    # A target whose inputs are all refused alike tries one check, and no other.
    assert [name for name, report in found.items() if max(report.depths.values()) > 0.9 * COUNT] == []


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\0", "a\tb", "\x9b1m", "\u202ea", "\u2028", "\ud800", "é\r\n"])
def test_characters_that_are_more_than_text_are_found(text: str) -> None:
    assert oracles.unprintable(["fine\n", text])[0] == "control character"


def test_a_line_of_foreign_text_is_found() -> None:
    assert oracles.unprintable([f"PID 1 {mutation.BEFORE_FORGED}\n{mutation.FORGED}"])[0] == "forged line"
    assert oracles.unprintable([f"PID 1 {mutation.BEFORE_FORGED}\\n{mutation.FORGED} é\n"]) == ("", "")


def test_the_same_number_of_a_seed_is_the_same_input(tmp_path: Path) -> None:
    target = engine.targets()["podman"](tmp_path)
    inputs = [engine.input_of(target, SEED, "podman", number) for number in (1, 2, 1)]
    assert inputs[0] == inputs[2] != inputs[1]


def test_a_changed_tree_is_as_it_was_afterwards(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "a").mkdir(parents=True)
    (root / "a" / "file").write_text("text")
    changes = [
        ("a/file", "link", b"x" * 300), ("a/new", "folder", b""), ("a/new/inner", "bytes", b"1"), ("a", "loop", b""), ("a/file", "bytes", b""),
    ]  # fmt: skip
    with mutation.Changed(root, changes):
        assert (root / "a").is_symlink()
    assert [str(path.relative_to(root)) for path in sorted(root.rglob("*"))] == ["a", "a/file"]
    assert (root / "a" / "file").read_text() == "text"
