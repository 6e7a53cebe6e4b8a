# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What random walks find wrong with the files of a persistent set-property: beside each thing that is right stands what is nearly that."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from walk_properties import SetFiles

UNIT = "machine.slice"
NAME = f"{UNIT}.d/50-AllowedCPUs.conf"


class Node:
    """The files of one slice, and who writes them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seen = SetFiles(root)

    def write(self, path: str, text: str | None) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(text)

    def hand(self, text: str | None) -> None:
        with self.seen.by_hand(lambda unit: unit in self.seen.ruled):
            self.write(f"etc/systemd/system.control/{NAME}", text)
        assert self.seen.after_step() == []

    def corral(self, text: str | None, *, rules: bool) -> list[str]:
        self.write(f"etc/systemd/system/{UNIT}.d/10-corral-cpu.conf", "" if rules else None)
        self.write(f"etc/systemd/system.control/{NAME}", text)
        return self.seen.after_step()


@pytest.mark.parametrize(
    ("first", "corral", "then", "left", "is_wrong"),
    [
        pytest.param("1", None, ..., "1", False, id="what was set before Corral comes back"),
        pytest.param("1", None, ..., "2", True, id="not another"),
        pytest.param("1", None, ..., None, True, id="nor nothing"),
        pytest.param(None, None, "1", None, False, id="what is set later does not come back"),
        pytest.param(None, None, "1", "1", True, id="and is wrong where it does"),
        pytest.param("1", None, "2", "2", False, id="what is set last stays where a removal finds it"),
        pytest.param("1", None, "2", "1", True, id="not what was before it"),
        pytest.param("1", "1", None, None, False, id="what a hand removes stays away"),
        pytest.param("1", "1", None, "1", True, id="and is wrong where it does not"),
    ],
)
def test_what_a_removal_leaves(
    tmp_path: Path, first: str | None, corral: str | None, then: t.Any, left: str | None, is_wrong: bool
) -> None:
    """A hand sets it before Corral, Corral rules the slice or not, a hand sets it again (...: does not), a removal leaves it."""
    node = Node(tmp_path)
    if first is not None:
        node.hand(first)
    assert node.corral(corral, rules=corral is None) == []
    if then is not ...:
        node.hand(then)
        if first is None:
            assert node.corral(None, rules=True) == []
    wrong = node.corral(left, rules=False) + node.seen.after_removal()
    assert bool(wrong) == is_wrong
