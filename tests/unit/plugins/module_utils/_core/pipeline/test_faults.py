# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault at every write and every command of a run: refused ones are undone, deaths are survived."""

from __future__ import annotations

import errno
import typing as t

import node
import pytest
import runs
from _core.host import state
from _core.host.files import Host
from _core.model.values.errors import CorralError
from example_counts import in_turn

Make = t.Callable[..., node.Node]
Act = t.Callable[[node.NodeHost], t.Any]
Seen = dict[str, str]
OWN = ("/run/corral", "/var/lib/corral", "/etc/corral")

# Isolates another core, gives node 1 other pages, renews the mount, drops one limit and adds another.
CHANGED: dict[str, t.Any] = {
    "cpu": {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 1, "numa": 0}, "whole_cores": True},
    "memory": {
        "hugepages": [{"size": "2Mi", "count": 16, "node": 1}],
        "mounts": [{"path": "/dev/hugepages-2Mi", "pagesize": "2Mi", "size": "16Mi"}],
    },
    "pids": {"pid_max": 70000, "slices": {"system.slice": 3000}},
}


class Case(t.NamedTuple):
    """``prepare`` a node, then do ``act`` with a fault in it, and then again without."""

    prepare: t.Callable[[node.Node], t.Any]
    act: Act
    undone: bool  # an error takes the whole run back


def small(fake: node.Node) -> None:
    """Pools and the agent only: what is left has its own case."""
    assert not runs.install(fake.host()).error
    assert not runs.declare(fake.host(), memory=None, pids=None).error


def upgraded(fake: node.Node) -> None:
    """A node that has the release before as well, which goes with the next upgrade."""
    assert not runs.install(fake.host(), runs.OLDER).error
    runs.converged(fake, with_agent=True)


def one_part(fake: node.Node) -> None:
    """A node that has a part of a profile, with the agent."""
    assert not runs.install(fake.host()).error
    assert not runs.part(fake.host(), "hugepages", size="2Mi", count=16, node=1).error


CASES = {
    "rollout": Case(lambda fake: None, lambda host: runs.declare(host, "a layer"), True),
    "change": Case(runs.converged, lambda host: runs.declare(host, "a layer", **CHANGED), True),
    "drop": Case(
        lambda fake: runs.declare(fake.host(), "a layer"),
        lambda host: runs.declare(host, cpu=None, memory=None, pids=None),
        True,
    ),
    "install": Case(lambda fake: None, runs.install, True),
    "update": Case(
        upgraded,
        lambda host: runs.install(host, runs.NEWER, runs.OPTIONS._replace(interval=30)),
        True,
    ),
    "part": Case(
        one_part, lambda host: runs.part(host, "pid_limits", pid_max=70000, slices={"system.slice": 3000}), True
    ),
    "removal": Case(small, runs.remove, False),
}


# What is tried at the writes of each case. Of deaths, a removal's show what those of "drop" would, and more.
FAULTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(CASES, ("error", "death")),
    **dict.fromkeys(("rollout", "change", "update"), ("error", "death", "death, then removal")),
    "drop": ("error",),
}


def tried(fault: str) -> list[str]:
    """The cases that are tried with it."""
    return [name for name, faults in FAULTS.items() if fault in faults]


def attempt(case: Case, host: node.NodeHost) -> str:
    """Do it; what was refused, "" when nothing was."""
    try:
        outcome = case.act(host)
    except CorralError as error:
        return str(error)
    return t.cast("str", outcome.error or "; ".join(outcome.leftovers))


class Trial:
    """A case on nodes that are all alike: ``clean`` before anything, ``before`` the run, ``wanted`` after it."""

    def __init__(self, name: str, make: Make) -> None:
        self.name, self.case = name, CASES[name]
        self.prepared = make()
        self.clean = self.prepared.fingerprint()
        self.case.prepare(self.prepared)
        self.before = seen(self.prepared)
        undisturbed = self.node(0)
        host = undisturbed.host()
        assert attempt(self.case, host) == ""
        self.acts = host.acts
        self.wanted = seen(undisturbed)
        self.wrong: list[str] = []

    def places(self, fault: str) -> t.Iterator[tuple[int, int]]:
        """The writes that get this fault, counted."""
        return enumerate(in_turn(len(self.acts), fault, FAULTS[self.name]))

    def node(self, number: int) -> node.Node:
        return self.prepared.clone(self.prepared.root.with_name(f"{self.prepared.root.name}-{number}"))

    def compare(self, number: int, what: str, one: Seen, other: Seen) -> None:
        self.wrong += [f"{number} {self.acts[number - 1]}: {what} {line}" for line in node.different(one, other)]

    def then_converges(self, number: int, fake: node.Node) -> None:
        again = attempt(self.case, fake.host())
        assert again == "", (number, self.acts[number - 1])
        self.compare(number, "the next run leaves", self.wanted, seen(fake))

    def then_removes(self, number: int, fake: node.Node) -> None:
        runs.remove(fake.host())
        self.compare(number, "removal leaves", self.clean, fake.fingerprint())


def seen(fake: node.Node) -> Seen:
    """A fingerprint without what does no harm: compiled files, and systemd's note of a value that is in force."""
    everything = fake.fingerprint(*node.STATE, node.RUNTIME_CONTROL)
    return {path: state for path, state in everything.items() if "__pycache__" not in path}


@pytest.mark.parametrize("name", tried("error"))
def test_an_error_at_any_write_is_undone_and_the_next_run_converges(name: str, make: Make) -> None:
    trial = Trial(name, make)
    for turn, number in trial.places("error"):
        fake = trial.node(number)
        host = fake.host("error", number)
        try:
            error = attempt(trial.case, host)
        except OSError as escaped:
            # Corral's own state, after the node was changed: it is as wanted, and the run says what it could not write.
            assert escaped.filename.startswith(OWN)
            error = ""
        if error and trial.case.undone:
            trial.compare(number, "the undo leaves", trial.before, seen(fake))
        elif not error:
            trial.compare(number, "without an error", trial.wanted, seen(fake))
        trial.then_converges(number, fake)
        if turn % 3 == 0:  # The removal after a death has them all.
            trial.then_removes(number, fake)
    assert trial.wrong == []


@pytest.mark.parametrize("name", tried("death"))
def test_a_death_at_any_write_is_made_good_by_the_next_run(name: str, make: Make) -> None:
    trial = Trial(name, make)
    for turn, number in trial.places("death"):
        fake = trial.node(number)
        with pytest.raises(node.Killed):
            trial.case.act(fake.host("torn", number))
        trial.then_converges(number, fake)
        if turn % 2 == 0:
            trial.then_removes(number, fake)
    assert trial.wrong == []


@pytest.mark.parametrize("name", tried("death, then removal"))
def test_a_removal_right_after_a_death_restores_everything(name: str, make: Make) -> None:
    trial = Trial(name, make)
    for dummy, number in trial.places("death, then removal"):
        fake = trial.node(number)
        with pytest.raises(node.Killed):
            trial.case.act(fake.host("torn", number))
        trial.then_removes(number, fake)
    assert trial.wrong == []


def test_a_full_disk_leaves_no_traceback_and_the_next_run_converges(make: Make) -> None:
    trial = Trial("change", make)
    # A full disk is an error at a write and at those after it: a share as if it was the fourth kind.
    for number in in_turn(len(trial.acts), "full", (*FAULTS["change"], "full")):
        fake = trial.node(number)
        try:
            attempt(trial.case, fake.host("full", number))
        except OSError as escaped:
            assert escaped.filename.startswith(OWN)
        trial.then_converges(number, fake)
        trial.then_removes(number, fake)
    assert trial.wrong == []


@pytest.mark.parametrize("first", [True, False])
def test_an_undo_whose_own_record_cannot_be_saved_says_so(
    first: bool, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = make()
    if not first:
        runs.converged(fake)
    own = [path[1:] for path in OWN]
    before = fake.fingerprint(*own)
    wanted = {} if first else CHANGED
    sound = fake.clone(fake.root.with_name("sound")).host()
    assert not runs.declare(sound, **wanted).error
    number = max(number for number, act in enumerate(sound.acts, 1) if act.startswith("write_value /proc/sys/kernel"))

    def full(*dummy: t.Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", state.BEFORE)

    monkeypatch.setattr(state, "forget", full)
    save, calls = state.save_records, []

    def once(host: Host, kept: t.Sequence[state.Record]) -> None:
        calls.append(kept)
        save(host, kept) if len(calls) == 1 else full()

    monkeypatch.setattr(state, "save_records", once)
    host = fake.host("error", number)
    outcome = runs.declare(host, **wanted)
    assert outcome.error
    assert outcome.undone
    assert [left for left in outcome.leftovers if left.startswith(f"{state.BEFORE}: No space left")]
    assert node.different(before, fake.fingerprint(*own)) == []
