# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile that waits to be confirmed: kept in time, or taken back by the node itself, whatever happens meanwhile."""

from __future__ import annotations

import json
import typing as t

import failing
import node
import pytest
import runs
from _core.host import state
from _core.host.agent import unconfirmed_file
from _core.managers import registry
from _core.model.agent.agent_units import CONFIRM_TIMER
from _core.model.plan.plan import Outcome
from _core.model.profile import profile
from _core.model.status import history, json_shapes
from _core.model.values.errors import CorralError, Problem
from _core.pipeline import applying, confirming, declared_profile, locked_run
from _core.pipeline.confirming import Terms
from example_counts import in_turn
from shapes import misfits
from test_faults import CHANGED

Make = t.Callable[..., node.Node]
SECONDS = 120
TERMS = Terms(SECONDS)
RECORDS = (*node.STATE, node.RUNTIME_CONTROL)


@pytest.fixture(name="rolled")
def rolled_out(made_once: node.MadeOnce) -> node.Node:
    """A node with the agent and a profile that is in force."""
    return made_once(runs.kept)


def change(fake: node.Node, host: node.NodeHost | None = None, terms: Terms = TERMS, **sections: t.Any) -> Outcome:
    """Apply another profile on these terms."""
    host = host or fake.host()
    declared = profile.parse(node.edge(**(sections or CHANGED)))
    return locked_run.published(host, confirming.declare(host, declared, None, terms))


def timer(fake: node.Node, host: node.NodeHost | None = None) -> int:
    """One look of corral-confirm.service, where its timer runs."""
    return runs.command(host or fake.host(), "confirm", "--tick")


def expire(fake: node.Node) -> int:
    """Its time goes by, and the timer looks."""
    fake.wait(SECONDS + 1)
    return timer(fake)


def waits(fake: node.Node) -> bool:
    """Whether a profile is unconfirmed; its timer runs as long."""
    found = fake.has(state.UNCONFIRMED)
    assert (CONFIRM_TIMER in fake.systemd.active) == found
    return found


def seen(fake: node.Node) -> dict[str, str]:
    """A fingerprint without what a killed write of a file leaves: the next write of the same file takes its place."""
    return {path: found for path, found in fake.fingerprint(*RECORDS).items() if not path.endswith(".corral")}


def declared(fake: node.Node) -> str:
    return t.cast("str", json.loads(fake.get(state.DECLARED))["name"])


def test_a_profile_that_is_confirmed_stays(rolled: node.Node) -> None:
    assert change(rolled).applied
    assert waits(rolled)
    status = json.loads(rolled.get(state.STATUS))
    assert misfits(status["unconfirmed"], json_shapes.RenderedUnconfirmed) == []
    assert status["unconfirmed"]["until"] == int(rolled.time) + SECONDS
    assert "is unconfirmed: at " in runs.printed(rolled.host(), "status", code=None)
    rolled.wait(SECONDS - 1)
    assert timer(rolled) == 0
    said = json.loads(runs.printed(rolled.host(), "confirm", "--json"))
    assert misfits(said, json_shapes.Confirmed) == []
    assert said["confirmed"]["name"] == "edge"
    after = seen(rolled)
    assert not waits(rolled)
    assert json.loads(rolled.get(state.STATUS))["unconfirmed"] is None
    rolled.wait(SECONDS)
    assert timer(rolled) == 0
    assert seen(rolled) == after
    assert "no profile is unconfirmed" in runs.printed(rolled.host(), "confirm")


def test_without_a_confirmation_the_node_goes_back(rolled: node.Node, capfd: pytest.CaptureFixture[str]) -> None:
    before, profile_before = seen(rolled), rolled.get(state.DECLARED)
    change(rolled)
    edited = rolled.get(state.DECLARED)
    runs.command(rolled.host(), "status")
    assert (
        f"the node goes back to profile edge ({history.hash_of(json.loads(profile_before))})" in capfd.readouterr().out
    )
    assert seen(rolled) != before
    rolled.wait(SECONDS - 1)
    assert timer(rolled) == 0
    assert waits(rolled)
    rolled.wait(2)
    capfd.readouterr()
    assert timer(rolled) == 0
    before_hash, edited_hash = (history.hash_of(json.loads(text)) for text in (profile_before, edited))
    said = f"profile edge ({edited_hash}) was not confirmed within 120 s: went back to profile edge ({before_hash})"
    assert said in capfd.readouterr().err, "both have the same name"
    assert node.different(before, seen(rolled)) == []
    assert rolled.get(state.DECLARED) == profile_before
    assert not waits(rolled)
    assert json.loads(rolled.get(state.STATUS))["in_sync"]


def test_the_status_names_no_way_out_that_is_refused_once_the_time_is_over(rolled: node.Node) -> None:
    """It said that ``corral confirm`` keeps the profile, for as long as the way back failed."""
    change(rolled)
    rolled.wait(SECONDS + 1)
    with pytest.raises(CorralError, match="apply it again with force to keep it"):
        runs.command(rolled.host(), "confirm")
    said = runs.printed(rolled.host(), "status", code=None)
    assert ") was not confirmed until 20" in said
    assert "the node goes back to profile edge (" in said
    assert "(apply it again with force to keep it)" in said
    assert "corral confirm" not in said


def test_a_plan_says_of_a_profile_that_goes_back_that_a_run_is_refused(rolled: node.Node) -> None:
    """A run, and check mode, refused it; ``corral plan`` showed what it would change."""
    file = rolled.root.with_name("edited.json")
    file.write_text(json.dumps(node.edge(**CHANGED)))

    def said() -> list[str]:
        return [
            line
            for line in runs.printed(rolled.host(), "plan", "--profile", str(file), code=None).splitlines()
            if "refused" in line
        ]

    assert said() == []
    change(rolled)
    assert said() == []
    rolled.wait(SECONDS + 1)
    (line,) = said()
    assert "a run is refused: name: edge: the time of profile edge is over" in line
    timer(rolled)
    (line,) = said()
    assert (
        "a run is refused: name: edge: this profile was applied before and went back (not confirmed within 120 s)"
        in line
    )
    assert change(rolled, terms=Terms(force=True)).applied
    assert said() == []


def test_a_profile_that_went_back_is_not_applied_again_without_force(rolled: node.Node) -> None:
    change(rolled)
    expire(rolled)
    before = seen(rolled)
    with pytest.raises(
        CorralError, match=r"went back \(not confirmed within 120 s\): change it, or apply it with force"
    ):
        change(rolled)
    assert seen(rolled) == before
    change(rolled, **{**CHANGED, "pids": {"pid_max": 70001}})  # an edited one is another profile
    runs.command(rolled.host(), "confirm")
    change(rolled, terms=Terms(SECONDS, force=True))
    runs.command(rolled.host(), "confirm")
    assert not rolled.has(state.REJECTED), "it is in force, and it was confirmed"


def test_what_went_back_is_no_profile_to_go_back_to(rolled: node.Node) -> None:
    runs.declare(rolled.host(), name="second")
    change(rolled, name="third")
    expire(rolled)
    assert [
        row["name"] for row in json.loads(runs.printed(rolled.host(), "history", "--json", code=None))["profiles"]
    ] == ["second", "edge"]


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_profile_that_another_one_replaced_unconfirmed_is_no_profile_to_go_back_to(
    confirmed: bool, rolled: node.Node
) -> None:
    for name in ("second", "third", "fourth"):
        change(rolled, name=name)
        rolled.wait(1)
    if confirmed:
        runs.command(rolled.host(), "confirm")
    else:
        expire(rolled)
    assert not waits(rolled)
    current, past = state.history(rolled.host())
    kept = [one.profile["name"] for one in ([current] if current else []) + past]
    assert kept == (["fourth", "edge"] if confirmed else ["edge"])


def test_a_first_profile_goes_back_to_none_and_the_agent_stays(fake: node.Node) -> None:
    runs.install(fake.host())
    before = seen(fake)
    change(fake, **node.edge())
    assert expire(fake) == 0
    assert node.different(before, seen(fake)) == []
    assert not fake.has(state.DECLARED)
    assert not waits(fake)
    with pytest.raises(CorralError, match="went back"):
        change(fake, **node.edge())


@pytest.mark.parametrize("jump", [-86400.0, 86400.0, 0.0])
def test_a_clock_that_is_set_changes_nothing(rolled: node.Node, jump: float) -> None:
    before = rolled.get(state.DECLARED)
    change(rolled)
    rolled.time += jump
    rolled.wait(SECONDS - 1)
    timer(rolled)
    assert waits(rolled)
    rolled.wait(2)
    timer(rolled)
    assert not waits(rolled)
    assert rolled.get(state.DECLARED) == before


@pytest.mark.parametrize("off", [20.0, 86400.0])
def test_a_reboot_does_not_end_the_wait(rolled: node.Node, off: float) -> None:
    before = rolled.get(state.DECLARED)
    change(rolled)
    rolled.boot_anew(off)
    rolled.systemd.active.discard(CONFIRM_TIMER)
    runs.tick(rolled.host(), at_boot=True)
    rolled.systemctl("start", CONFIRM_TIMER)  # It is enabled, and its condition holds.
    timer(rolled)
    if off < SECONDS:
        assert waits(rolled)
        rolled.wait(SECONDS)
        timer(rolled)
    assert not waits(rolled)
    assert rolled.get(state.DECLARED) == before
    assert not runs.plan(rolled.host())


def test_a_boot_after_its_time_brings_the_profile_before(rolled: node.Node) -> None:
    pages = rolled.pool(1)
    change(rolled)
    assert rolled.pool(1) != pages
    rolled.boot_anew(86400.0)
    runs.tick(rolled.host(), at_boot=True)
    assert rolled.pool(1) == pages


def test_a_tick_does_not_apply_again_what_was_not_confirmed_in_time(rolled: node.Node) -> None:
    pages = rolled.pool(1)
    change(rolled)
    rolled.boot_anew(86400.0)
    for at_boot in (True, False):
        runs.tick(rolled.host(), at_boot=at_boot)
        assert rolled.pool(1) == pages


def test_a_tick_has_the_node_go_back_where_the_timer_was_stopped(rolled: node.Node) -> None:
    change(rolled)
    rolled.wait(SECONDS + 1)
    host = rolled.host()
    runs.tick(host)
    assert any("start corral-confirm.service" in " ".join(words) for words in host.commands)


@pytest.mark.parametrize("ticked", [False, True])
def test_a_confirmation_that_comes_too_late_keeps_nothing(ticked: bool, rolled: node.Node) -> None:
    before = rolled.get(state.DECLARED)
    change(rolled)
    rolled.wait(SECONDS + 1)
    if ticked:
        runs.tick(rolled.host())  # The profile before is in force: whoever logs in now has not seen the new one.
    with pytest.raises(CorralError, match="the time of profile edge is over, and the node goes back"):
        runs.command(rolled.host(), "confirm")
    assert timer(rolled) == 0
    runs.tick(rolled.host())
    assert rolled.get(state.DECLARED) == before
    assert json.loads(rolled.get(state.APPLIED)) == json.loads(before)


@pytest.mark.parametrize("ticked", [False, True])
def test_drift_that_is_corrected_too_late_keeps_nothing_either(ticked: bool, rolled: node.Node) -> None:
    """It confirmed the profile, while ``corral drift`` showed the way back, which may fail for hours."""
    before = rolled.get(state.DECLARED)
    change(rolled)
    rolled.wait(SECONDS + 1)
    if ticked:
        runs.tick(rolled.host())
    rolled.put("/etc/sysctl.d/90-corral.conf", "")
    refused = "the time of profile edge is over, and the node goes back: apply it again with force to keep it"
    for late in (lambda: runs.command(rolled.host(), "reconcile"), lambda: change(rolled, terms=Terms())):
        with pytest.raises(CorralError, match=refused):
            late()
    assert waits(rolled)
    if ticked:
        assert change(rolled, terms=Terms(force=True)).applied
        assert not waits(rolled)
        return
    assert timer(rolled) == 0
    assert rolled.get(state.DECLARED) == before


def test_another_change_begins_the_wait_anew_and_goes_back_to_what_was_confirmed(rolled: node.Node) -> None:
    origins = {"cpu.reserved.cores_per_numa": "group_vars/edge.yml"}
    confirming.declare(rolled.host(), profile.parse(node.edge()), origins)
    before, kept = rolled.get(state.DECLARED), rolled.get(state.ORIGINS)
    assert "group_vars/edge.yml" in kept
    change(rolled)
    rolled.wait(SECONDS - 10)
    change(rolled, **{**CHANGED, "pids": {"pid_max": 80000}})
    rolled.wait(SECONDS - 10)
    timer(rolled)
    assert waits(rolled)
    rolled.wait(11)
    timer(rolled)
    assert rolled.get(state.DECLARED) == before
    assert rolled.get(state.ORIGINS) == kept, "where each key comes from is known again"


@pytest.mark.parametrize("unconfirmed", [False, True])
def test_the_profile_that_was_confirmed_waits_for_nothing_and_never_counts_as_one_that_went_back(
    unconfirmed: bool, rolled: node.Node
) -> None:
    if unconfirmed:
        change(rolled)
    else:
        rolled.kernel_write(node.pool_file(1), "0\n")
    assert change(rolled, **node.edge()).applied
    assert not waits(rolled)
    expire(rolled)
    assert not rolled.has(state.REJECTED)


def test_a_change_that_waits_for_nothing_confirms(rolled: node.Node) -> None:
    change(rolled)
    change(rolled, terms=Terms(), name="another")
    assert not waits(rolled)
    expire(rolled)
    assert declared(rolled) == "another"


def test_a_run_that_changes_nothing_waits_for_nothing_and_confirms_nothing(rolled: node.Node) -> None:
    before = seen(rolled)
    assert not change(rolled, **node.edge()).applied
    assert not waits(rolled)
    assert seen(rolled) == before
    change(rolled)
    kept = rolled.get(state.UNCONFIRMED)
    rolled.wait(10)
    for terms in (TERMS, Terms()):
        host = rolled.host()
        assert not change(rolled, host, terms).applied
        assert host.writes == []
    assert rolled.get(state.UNCONFIRMED) == kept


def test_a_confirmation_of_another_profile_is_refused(rolled: node.Node) -> None:
    change(rolled)
    with pytest.raises(CorralError, match="the unconfirmed profile is edge"):
        runs.command(rolled.host(), "confirm", "0000")
    assert waits(rolled)
    digits = json.loads(rolled.get(state.UNCONFIRMED))["data"]["hash"]
    runs.command(rolled.host(), "confirm", digits[:4])
    assert not waits(rolled)


def test_without_the_agent_nothing_could_go_back(fake: node.Node) -> None:
    before = seen(fake)
    with pytest.raises(CorralError, match="install it first"):
        change(fake)
    assert seen(fake) == before


def test_the_command_takes_a_duration(rolled: node.Node) -> None:
    before = rolled.fingerprint()
    for words in (("reconcile", "--confirm-timeout", "120"), ("rollback", "--confirm-timeout", "soon")):
        with pytest.raises(CorralError, match="is not a valid duration"):
            runs.command(rolled.host(), *words)
    assert rolled.fingerprint() == before
    runs.declare(rolled.host(), name="second")
    runs.command(rolled.host(), "rollback", "--confirm-timeout", "2m")
    assert json.loads(rolled.get(state.UNCONFIRMED))["data"]["seconds"] == SECONDS


@pytest.mark.parametrize("seconds", [-1, 86401])
def test_a_time_that_is_none_is_refused(rolled: node.Node, seconds: int) -> None:
    with pytest.raises(CorralError, match="seconds from 1 to 86400"):
        change(rolled, terms=Terms(seconds))


def test_a_removal_ends_the_wait(rolled: node.Node) -> None:
    change(rolled)
    runs.remove(rolled.host())
    assert not waits(rolled)


def test_a_removal_stops_the_timer_before_its_unit_goes(rolled: node.Node) -> None:
    change(rolled)
    host = rolled.host()
    runs.remove(host)
    about = [act for act in host.acts if CONFIRM_TIMER in act]
    assert "stop" in about[0], "systemd has a timer that loses its unit as failed for ever"
    assert any(act == f"remove /etc/systemd/system/{CONFIRM_TIMER}" for act in about[1:])


def test_a_damaged_file_is_set_aside_and_said(rolled: node.Node) -> None:
    change(rolled)
    rolled.put(state.UNCONFIRMED, "{}")
    with pytest.raises(CorralError, match="the profile to go back to is not known"):
        timer(rolled)
    assert not waits(rolled)
    assert rolled.has(f"{state.UNCONFIRMED}.damaged")


def test_a_file_with_a_profile_that_went_back_is_not_taken_up(
    rolled: node.Node, capfd: pytest.CaptureFixture[str]
) -> None:
    change(rolled)
    text = rolled.get(state.DECLARED)
    expire(rolled)
    before = seen(rolled)
    rolled.put(state.DECLARED, text)  # An image or another program puts it there again.
    capfd.readouterr()
    assert runs.tick(rolled.host(), by_timer=False) == 2
    status = json.loads(rolled.get(state.STATUS))
    assert [item["verdict"] for item in status["items"]] == ["unchangeable"]
    assert "went back" in status["items"][0]["reason"]
    assert status["items"][0]["actual"] == "a refused profile", "it is a valid one"
    del before["etc/corral/profile.json"]
    after = seen(rolled)
    assert node.different(before, {path: one for path, one in after.items() if path in before}) == []


def test_while_it_waits_and_after_it_a_tick_keeps_the_node(rolled: node.Node) -> None:
    change(rolled)
    wanted = rolled.pool(1)
    rolled.kernel_write(node.pool_file(1), "0\n")
    runs.tick(rolled.host())
    assert rolled.pool(1) == wanted
    assert waits(rolled)
    runs.command(rolled.host(), "confirm")
    runs.tick(rolled.host())
    host = rolled.host()
    runs.tick(host)
    assert host.writes == ["/run/corral/status.json"], "it is quiet again"


# Faults


@pytest.fixture(name="trials")
def all_alike(make: Make) -> t.Callable[[], node.Node]:
    """Nodes that are all alike, with the agent and a profile in force."""
    prepared = runs.converged(make(), with_agent=True)
    count = iter(range(10**6))
    return lambda: prepared.clone(prepared.root.with_name(f"{prepared.root.name}-{next(count)}"))


# What is tried at the writes of a change. That a first rollout is undone, test_faults.py shows.
FAULTS = ("killed", "torn", "error")


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("fault", ["killed", "torn"])
def test_a_run_that_is_killed_anywhere_goes_back(
    fault: str, first: bool, make: Make, trials: t.Callable[[], node.Node]
) -> None:
    def act(host: node.NodeHost) -> Outcome:
        return change(host.node, host, **(node.edge() if first else CHANGED))

    fresh = make() if first else trials()
    if first:
        runs.install(fresh.host())
    before, acts = seen(fresh), failing.tried(fresh, act).acts
    armed = next(index for index, one in enumerate(acts, 1) if CONFIRM_TIMER in one)
    assert armed < len(acts) / 2, "it is armed before the node is changed"
    for fake, what in failing.each(fresh, act, fault, FAULTS[:2] if first else FAULTS):
        fake.wait(SECONDS + 1)
        if fake.has(state.UNCONFIRMED):
            timer(fake)
        assert not fake.has(state.UNCONFIRMED), what
        assert node.different(before, seen(fake)) == [], what


def test_a_run_that_is_refused_anywhere_waits_for_nothing(trials: t.Callable[[], node.Node]) -> None:
    sample = trials()
    host = sample.host()
    change(sample, host)
    for number in in_turn(len(host.acts), "error", FAULTS):
        fake = trials()
        before = seen(fake)
        try:
            outcome = change(fake, fake.host("error", number))
            refused = bool(outcome.error)
        except CorralError:
            refused = True
        except OSError as error:
            assert str(error.filename).startswith(("/run/corral", "/var/lib/corral", "/etc/corral"))
            continue  # Corral's own state, after the change: it waits for its confirmation.
        if refused:
            assert not waits(fake), host.acts[number - 1]
            assert node.different(before, seen(fake)) == []


@pytest.mark.parametrize("act", ["confirm", "back"])
def test_a_confirmation_or_a_way_back_that_is_killed_is_made_again(act: str, trials: t.Callable[[], node.Node]) -> None:
    words = ("confirm", "--tick") if act == "back" else ("confirm",)

    def again(host: node.NodeHost) -> int:
        return runs.command(host, *words)

    changed = trials()
    change(changed)
    changed.wait(SECONDS + 1 if act == "back" else 1)
    wanted = seen(failing.tried(changed, again).node)
    for fake, what in failing.each(changed, again, "torn"):
        again(fake.host())
        timer(fake)  # It stops itself where nothing waits any more.
        assert not waits(fake), what
        assert node.different(wanted, seen(fake)) == [], what


def test_a_run_that_failed_and_could_not_be_undone_goes_back_and_may_be_applied_again(
    trials: t.Callable[[], node.Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = trials()
    host = sample.host()
    change(sample, host)
    number = len(host.acts) - 12  # A step in the middle of it.
    fake = trials()
    before = seen(fake)
    with monkeypatch.context() as patch:
        patch.setattr(applying, "attempt", lambda host, step, masks: f"{step.target}: left")
        outcome = change(fake, fake.host("error", number))
    assert outcome.error and outcome.leftovers
    assert waits(fake)
    said = runs.printed(fake.host(), "status", code=None)
    assert "failed, and not all of it could be undone: at " in said and "corral confirm" not in said
    with pytest.raises(CorralError, match="failed and is not in force, so it cannot be confirmed"):
        runs.command(fake.host(), "confirm")
    assert expire(fake) == 0
    assert node.different(before, seen(fake)) == []
    assert not waits(fake) and not fake.has(state.REJECTED)
    assert not change(fake).error


def test_a_file_of_an_earlier_version_says_what_to_go_back_to(rolled: node.Node) -> None:
    before = seen(rolled)
    change(rolled)
    found = unconfirmed_file.pending(rolled.host())
    assert found is not None
    data = {name: value for name, value in found._asdict().items() if name != "failed"}
    state.write_checked(rolled.host(), state.UNCONFIRMED, data, spare=False)
    assert expire(rolled) == 0
    assert node.different(before, seen(rolled)) == []


def test_a_removal_forgets_which_profiles_went_back(rolled: node.Node) -> None:
    change(rolled)
    expire(rolled)
    assert rolled.has(state.REJECTED)
    runs.remove(rolled.host(), registry.of_profile())  # The agent stays, and the folder of its state with it.
    assert rolled.has(state.AGENT) and not rolled.has(state.REJECTED)


def test_a_way_back_that_is_refused_is_tried_again(rolled: node.Node, capfd: pytest.CaptureFixture[str]) -> None:
    before = seen(rolled)
    change(rolled)
    rolled.wait(SECONDS + 1)
    fake = rolled.host("error", 12)
    capfd.readouterr()
    assert timer(rolled, fake) == 1, fake.acts
    assert "going back failed" in capfd.readouterr().err
    assert waits(rolled)
    recorded = rolled.get(state.REJECTED)
    rolled.wait(5)
    timer(rolled, rolled.host("error", 12))
    assert rolled.get(state.REJECTED) == recorded, "it is not written at each try"
    assert timer(rolled) == 0
    assert node.different(before, seen(rolled)) == []


def test_a_way_back_that_keeps_failing_is_logged_with_growing_pauses(
    rolled: node.Node, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(dummy_host: object, dummy_found: object) -> t.NoReturn:
        raise CorralError(Problem("cpu", None, "no CPU is left"))

    change(rolled)
    rolled.wait(SECONDS + 1)
    monkeypatch.setattr(confirming, "go_back", refused)
    capfd.readouterr()
    logged = []
    for number in range(0, 20 * 60, 5):
        code, said = timer(rolled), capfd.readouterr().err
        assert code == (1 if said else 2), "a failed unit is a line of systemd's"
        assert not said or "going back failed: cpu: no CPU is left" in said
        logged += [number] if said else []
        rolled.wait(5)
    assert logged == [0, 10, 30, 70, 150, 310, 630]
    monkeypatch.undo()
    assert timer(rolled) == 0
    assert not waits(rolled) and not rolled.has(state.WAY_BACK)


def test_what_is_declared_after_all_this_is_what_was_before(rolled: node.Node) -> None:
    found = declared_profile.read_declared(rolled.host())
    change(rolled)
    expire(rolled)
    assert declared_profile.read_declared(rolled.host()) == found
