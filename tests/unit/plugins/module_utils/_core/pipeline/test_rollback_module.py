# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module rollback as Ansible runs it."""

from __future__ import annotations

import importlib
import json
import shutil
import typing as t

import node
import pytest
import runs
import test_workload_module
from _core.host import state
from _core.model.status import history

pytest.importorskip("ansible.module_utils.basic")

SHELL = importlib.import_module(f"{test_workload_module.WORKLOAD.__package__}._rollback")
DECLARED = "/etc/corral/profile.json"


def task(
    fake: node.Node, to: str = "1", *, check: bool = False, during_pause: str = "refuse", only_from: str = ""
) -> dict[str, t.Any]:
    options = {"to": to, "from": only_from, "during_pause": during_pause}
    module = test_workload_module.Module(check=check, **options)
    return t.cast("dict[str, t.Any]", SHELL.rollback_task(module, fake.host()))


def in_force(fake: node.Node) -> str:
    return str(json.loads(fake.get(DECLARED))["name"])


def make_three(fake: node.Node) -> None:
    for name in ("first", "second", "third"):
        assert not runs.declare(fake.host(), name=name).error


@pytest.fixture
def three(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_three)


@pytest.mark.parametrize(("to", "name"), [("1", "second"), ("2", "first")])
def test_check_mode_foretells_the_run_and_changes_nothing(to: str, name: str, three: node.Node) -> None:
    before = three.fingerprint("run/corral")
    foretold = task(three, to, check=True)
    assert three.fingerprint("run/corral") == before
    done = task(three, to)
    keys = ("changed", "changes", "name", "profile_hash", "pools", "origins")
    assert {key: foretold[key] for key in keys} == {key: done[key] for key in keys}
    assert (done["changed"], done["name"], in_force(three)) == (True, name, name)
    assert done["profile_hash"] == history.hash_of(json.loads(three.get(state.APPLIED)))


def test_with_a_hash_a_second_run_changes_nothing(three: node.Node) -> None:
    wanted = history.hash_of(state.history(three.host())[1][1].profile)
    assert task(three, wanted)["changed"]
    before = three.fingerprint("run/corral")
    for check in (True, False):
        assert not task(three, wanted, check=check)["changed"]
    assert three.fingerprint("run/corral") == before
    assert in_force(three) == "first"


def test_a_node_that_has_left_the_profile_stays_where_it_is(three: node.Node) -> None:
    left = history.hash_of(json.loads(three.get(state.APPLIED)))
    for check in (True, False):
        assert task(three, only_from=left[:6], check=check)["name"] == "second"
    before = three.fingerprint("run/corral")
    for check in (True, False):
        stays = task(three, only_from=left[:6], check=check)
        assert (stays["changed"], stays["name"]) == (False, "second")
    assert three.fingerprint("run/corral") == before
    assert task(three)["name"] == "first", "the profiles before are still kept"


def apply(fake: node.Node, name: str, seconds: int = 0) -> dict[str, t.Any]:
    module = test_workload_module.Module(
        profile=node.edge(name=name), layers=None, during_pause="refuse", confirm_timeout=seconds
    )
    return t.cast("dict[str, t.Any]", SHELL._module.profile_task(module, fake.host()))


def test_what_a_run_returns_leads_back_to_what_was_confirmed_last(with_agent: node.Node) -> None:
    kept = json.loads(with_agent.get(state.APPLIED))
    apply(with_agent, "bad", 120)
    found = apply(with_agent, "worse", 120)
    assert found["profile_hash_before"] == history.hash_of(kept)
    task(with_agent, found["profile_hash_before"], only_from=found["profile_hash"])
    assert json.loads(with_agent.get(state.APPLIED)) == kept
    assert not with_agent.has(state.UNCONFIRMED)
    current, past = state.history(with_agent.host())
    assert (current and current.profile, past) == (kept, []), "what failed is no profile to go back to"


def test_a_run_on_a_node_that_has_the_profile_returns_it_as_the_one_before(three: node.Node) -> None:
    three.put(DECLARED, "edited by hand")
    found = apply(three, "third")
    assert found["changed"] and found["profile_hash_before"] == found["profile_hash"]
    assert in_force(three) == "third"


def test_a_first_profile_has_none_before_it(fake: node.Node) -> None:
    assert apply(fake, "first")["profile_hash_before"] is None


@pytest.mark.parametrize("lost", [[state.APPLIED, DECLARED], [state.APPLIED, *state.rest_of(state.HISTORY)]])
def test_a_profile_before_that_is_lost_is_not_taken_for_none(lost: list[str], with_agent: node.Node) -> None:
    """Without one before it a node whose new profile fails goes back to what was there before Corral: every grant would end."""
    for path in lost:
        with_agent.drop(path)
    before = with_agent.fingerprint("run/corral")
    with pytest.raises(SHELL._module.CorralError, match=f"{state.APPLIED}: is lost, .* without confirm_timeout"):
        apply(with_agent, "new", 120)
    assert with_agent.fingerprint("run/corral") == before
    assert apply(with_agent, "new")["profile_hash_before"] == ""
    kept = history.hash_of(json.loads(with_agent.get(state.APPLIED)))
    assert apply(with_agent, "newer", 120)["profile_hash_before"] == kept


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("to", ["3", "0", "ffff0000", "previous"])
def test_check_mode_and_run_refuse_the_same_choices(to: str, check: bool, three: node.Node) -> None:
    before = three.fingerprint("run/corral")
    with pytest.raises(SHELL._module.CorralError, match=f"to: {to}: "):
        task(three, to, check=check)
    assert three.fingerprint("run/corral") == before


def test_on_a_paused_node_it_needs_during_pause(three: node.Node) -> None:
    runs.command(three.host(), "pause", "--for", "1h")
    with pytest.raises(SHELL._module.CorralError, match="nothing was changed: end the pause"):
        task(three)
    assert in_force(three) == "third"
    assert task(three, during_pause="apply")["paused"] is not None
    assert in_force(three) == "second"


def test_what_is_applied_while_it_waits_counts(three: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = importlib.import_module(f"{test_workload_module.WORKLOAD.__package__}._core.host.lock").Lock
    real = lock.take

    def take(one: t.Any, wait: float = 0.0) -> bool:
        runs.declare(three.host(), name="fourth")
        return bool(real(one, wait))

    monkeypatch.setattr(lock, "take", take)
    assert task(three)["name"] == in_force(three) == "third"


@pytest.mark.parametrize("check", [False, True])
def test_the_module_confirm_refuses_a_node_without_systemd_in_check_mode_as_well(check: bool, fake: node.Node) -> None:
    confirm = importlib.import_module(f"{test_workload_module.WORKLOAD.__package__}._confirm")
    shutil.rmtree(fake.root / "run/systemd")
    with pytest.raises(SHELL._module.CorralError, match="systemd is not the init"):
        confirm.confirm_task(test_workload_module.Module(check=check, hash="5d2f"), fake.host())
