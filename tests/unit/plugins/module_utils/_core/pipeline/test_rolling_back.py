# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The history of profiles on a node, and going back in it."""

from __future__ import annotations

import json
import typing as t

import node
import pytest
import runs
from _core.host import state
from _core.model.status import history, json_shapes
from _core.model.values.errors import CorralError
from shapes import misfits

DECLARED = "/etc/corral/profile.json"


def told(fake: node.Node) -> list[dict[str, t.Any]]:
    data = json.loads(runs.printed(fake.host(), "history", "--json"))
    assert misfits(data, json_shapes.History) == []
    return t.cast("list[dict[str, t.Any]]", data["profiles"])


def names(fake: node.Node) -> list[str]:
    return [row["name"] for row in told(fake)]


def make_four(fake: node.Node) -> None:
    """A node on which four profiles were applied, ten seconds apart."""
    for name in ("first", "second", "third", "fourth"):
        assert not runs.declare(fake.host(), name=name).error
        fake.wait(10)


@pytest.fixture
def four(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_four)


def test_history_tells_which_were_applied_when(four: node.Node) -> None:
    rows = told(four)
    now = int(four.time)
    assert [(row["number"], row["name"], row["applied"], row["state"]) for row in rows] == [
        (0, "fourth", now - 10, "in force"),
        (1, "third", now - 20, "kept"),
        (2, "second", now - 30, "kept"),
        (3, "first", now - 40, "kept"),
    ]
    assert rows[0]["hash"] == history.hash_of(json.loads(four.get(DECLARED)))
    assert runs.printed(four.host(), "history").splitlines()[1].split()[:2] == ["0", rows[0]["hash"]]


def test_a_node_without_a_profile_has_no_history(fake: node.Node) -> None:
    assert told(fake) == []
    assert runs.printed(fake.host(), "history") == "no profile was applied on this node\n"


def test_by_number_it_goes_further_back_each_time(four: node.Node) -> None:
    assert runs.command(four.host(), "rollback", "--to", "2") == 0
    assert names(four) == ["second", "first"]
    assert runs.command(four.host(), "rollback") == 0
    assert names(four) == ["first"]
    with pytest.raises(CorralError, match="no profile was applied before this one"):
        runs.command(four.host(), "rollback")
    assert json.loads(four.get(DECLARED))["name"] == "first"


def test_by_hash_a_second_run_changes_nothing(four: node.Node) -> None:
    wanted = told(four)[2]["hash"][:6]
    assert runs.command(four.host(), "rollback", "--to", wanted) == 0
    assert names(four) == ["second", "fourth", "third", "second", "first"]
    before = four.fingerprint("run/corral")
    assert runs.command(four.host(), "rollback", "--to", wanted) == 0
    assert four.fingerprint("run/corral") == before


def test_history_of_an_older_version_can_be_gone_back_in(four: node.Node) -> None:
    plain = [one.profile for one in state.history(four.host())[1]]
    state.write_checked(four.host(), state.HISTORY, plain)
    assert [row["applied"] for row in told(four)] == [None] * 4
    assert runs.command(four.host(), "rollback", "--to", "2") == 0
    assert names(four) == ["second", "first"]


@pytest.mark.parametrize("to", ["4", "0", "ffff0000", "x"])
def test_a_refused_choice_changes_nothing(to: str, four: node.Node) -> None:
    before = four.fingerprint("run/corral")
    with pytest.raises(CorralError, match=f"to: {to}: "):
        runs.command(four.host(), "rollback", "--to", to)
    assert four.fingerprint("run/corral") == before


@pytest.mark.parametrize("to", ["2", "hash"])
@pytest.mark.parametrize("fail", ["torn", "killed"])
def test_a_kill_at_any_write_leaves_a_history_without_gaps(fail: str, to: str, make: t.Callable[[], node.Node]) -> None:
    number, died = 0, True
    while died:
        fake, number, died = make(), number + 1, False
        for name in ("first", "second", "third"):
            runs.declare(fake.host(), name=name)
        target = history.hash_of(state.history(fake.host())[1][1].profile) if to == "hash" else to
        try:
            runs.command(fake.host(fail, number), "rollback", "--to", target)
        except node.Killed:
            died = True
        runs.tick(fake.host())
        now, past = state.history(fake.host())
        assert now is not None
        names = [one.profile["name"] for one in (now, *past)]
        assert names[0] == json.loads(fake.get(DECLARED))["name"]
        assert names in WHOLE[to], f"killed at {number}"
        assert all(one.applied for one in (now, *past))
    assert number > 5


WHOLE = {
    "2": (["third", "second", "first"], ["first", "third", "second", "first"], ["first"]),
    "hash": (["third", "second", "first"], ["first", "third", "second", "first"]),
}
