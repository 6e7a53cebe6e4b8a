# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What random walks find wrong with the files of a persistent set-property: beside each thing that is right stands what is nearly that."""

from __future__ import annotations

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


@pytest.mark.parametrize("text", ["1", "2", None])
def test_what_was_set_before_corral_comes_back_as_it_was(tmp_path: Path, text: str | None) -> None:
    node = Node(tmp_path)
    node.hand("1")
    assert node.corral(None, rules=True) == []
    wrong = node.corral(text, rules=False) + node.seen.after_removal()
    assert bool(wrong) == (text != "1")


@pytest.mark.parametrize("text", ["1", None])
def test_what_is_set_later_does_not_come_back(tmp_path: Path, text: str | None) -> None:
    node = Node(tmp_path)
    assert node.corral(None, rules=True) == []
    node.hand("1")
    assert node.corral(None, rules=True) == []
    wrong = node.corral(text, rules=False) + node.seen.after_removal()
    assert bool(wrong) == (text == "1")


@pytest.mark.parametrize("text", ["1", "2"])
def test_what_is_set_last_stays_where_a_removal_finds_it(tmp_path: Path, text: str) -> None:
    node = Node(tmp_path)
    node.hand("1")
    assert node.corral(None, rules=True) == []
    node.hand("2")
    wrong = node.corral(text, rules=False) + node.seen.after_removal()
    assert bool(wrong) == (text == "1")


@pytest.mark.parametrize("text", ["1", None])
def test_what_a_hand_removes_stays_away(tmp_path: Path, text: str | None) -> None:
    node = Node(tmp_path)
    node.hand("1")
    assert node.corral("1", rules=False) == []
    node.hand(None)
    wrong = node.corral(text, rules=False) + node.seen.after_removal()
    assert bool(wrong) == (text == "1")
