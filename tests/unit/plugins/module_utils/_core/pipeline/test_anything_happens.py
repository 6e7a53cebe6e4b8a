# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random walks (walk.py): whatever happens on a node in whatever order, no thread is ever on CPUs of somebody else's grant.

CORRAL_LONG=1 takes 1,000 walks of 100 steps; CORRAL_SEED=N begins with the walk N (default 0), CORRAL_WALKS=N takes so many.
"""

from __future__ import annotations

import collections
import contextlib
import io
import os
import re
import tempfile
import typing as t
from pathlib import Path

import pytest
import trees
from _core.cli import grant_service
from _core.model.cpu import handover, partitions
from _core.model.devices.held_devices import HeldDevices
from _core.model.plan import replay
from _core.model.workload.grants import ISOLATED_SLICE
from walk import DARK, DEVICES, EDITED, FULL, RELOADED, RENAMED, RENUMBERED, SET, TENANTS, Walk

LONG = bool(os.environ.get("CORRAL_LONG"))
WALKS = int(os.environ.get("CORRAL_WALKS", "1000" if LONG else "6"))
STEPS = 100 if LONG else 40
FIRST = int(os.environ.get("CORRAL_SEED", "0"))
# In memory where that can be had.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# Without contention it would prove nothing: each happens at least once in so many steps.
LEAST = {
    "grants": 40,
    "hand-overs": 20,
    "moved": 150,
    "refusals": 40,
    "killed": 150,
    "torn": 150,
    "in sync": 30,
    "looks": 1,
}
# Walks on a full machine begin with the seed of this number; each of this happens in them.
FULL_FIRST = 6
CONTENTION = ("passed on", "of running", "moved", "exclusive starts", "started after a death")
DEVICES_FIRST = 9
QUOTAS_FIRST = 4
USE = (
    "runs with devices",
    "refused devices",
    "gone while held",
    "back while held",
    "unhealthy while held",
    "passed to another",
    "free devices taken",
    "checkpoints damaged",
    "started after a death",
)
# Kinds of which walks are made together.
COMBINED = (
    *((SET, one) for one in (RELOADED, FULL, TENANTS, RENAMED, DARK, EDITED)),
    *((FULL, one) for one in (RELOADED, EDITED, RENAMED)),
    *((EDITED, one) for one in (RENAMED, DARK, TENANTS)),
    *((RELOADED, one) for one in (RENAMED, DARK)),
    *((DEVICES, one) for one in (RENAMED, FULL, EDITED, RELOADED, SET)),
    *((TENANTS, DEVICES, one) for one in (RENAMED, FULL, EDITED)),
    (TENANTS, RENAMED, RELOADED),
    (DEVICES, RENUMBERED, TENANTS),
)
TRIES = 120  # replays of a walk that went wrong, to leave out what has no part in it


class Ground:
    """Where walks take place: a folder in memory, with the kernel files of each machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def template(self, machine: trees.Machine) -> Path:
        """Its kernel files; beside them are those with CPUs offline, and a walk's node (Node.set_online)."""
        found = self.folder / repr(machine)[:200] / "machine"
        if not found.exists():
            trees.build(found, machine)
        return found

    def walk(self, seed: str, steps: t.Sequence[int]) -> Walk:
        """A walk of these steps; it ends with the first that goes wrong."""
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            found = Walk(seed, self.template)
            for number in steps:
                if found.wrong:
                    break
                found.step(number)
        return found


def shortest(ground: Ground, seed: str, taken: int) -> Walk:
    """A walk that goes wrong in the same way of going, with as few steps as some tries find."""
    steps, tries = list(range(taken)), TRIES
    size = max(taken // 2, 1)
    while tries:
        for first in range(0, len(steps), size):
            left = steps[:first] + steps[first + size :]
            tries -= 1
            if ground.walk(seed, left).wrong:
                steps = left
                break
            if not tries:
                break
        else:
            if size == 1:
                break
            size = max(size // 2, 1)
    return ground.walk(seed, steps)


def report(counts: collections.Counter[str], causes: collections.Counter[str]) -> list[str]:
    """What the walks contained, and why what was refused was."""
    names = sorted({*counts, *LEAST, "NoSafeOrder"})
    lines = ["random walks: " + ", ".join(f"{name} {counts[name]}" for name in names)]
    stuck = [cause for cause in causes if cause.startswith("NoSafeOrder")]
    most = [cause for cause, dummy in causes.most_common(12) if cause not in stuck]
    return lines + [f"{causes[cause]:6} x {cause}" for cause in (*stuck, *most)]


# Walks that went wrong once, and why; what was mended has tests of its own. The latest ones are walked again by each run of the tests, the
# earlier ones, after which the walks themselves have changed, with CORRAL_LONG.
WENT_WRONG = [
    (
        "64",
        40,
    ),  # After the policy became none Restart= starts an instance on the shared pool: its CPUs are given back.
    (
        "72",
        60,
    ),  # machine.slice has a control group and does not run: it is started, not asked for CPUs at each tick.
    (
        "9",
        88,
    ),  # A slice without AllowedCPUs= runs on CPUs of an invalid partition: it is not to request them before they are free.
    ("67", 85),  # A slice whose CPU went offline runs on others' CPUs: none of them is requested for it meanwhile.
    (
        "440081",
        56,
    ),  # systemd refused to move who requests the CPUs of a grant: it is asked again before these are given.
    ("19", 91),  # A service at the top is confined once, not at each tick.
    # Partitions end after all moves in a profile without any: who has no CPU online was let in by the first that ended.
    ("dark-213", 32),
    ("dark-216", 21),  # An undone rollout leaves partitions that a profile without any ends.
    # Who has no CPU online has no claim to those on which it runs: others who leave its new CPUs may go there.
    ("full-20004", 40),
    ("full-20008", 40),
    ("dark-91041", 29),  # Two grants without a CPU online move one after the other.
    ("dark-20007", 56),
    ("20013", 71),  # A grant of the CPUs that an empty slice was left with.
    # A slice that shares by chance what it is to share requests it, before the last partition ends.
    ("full-40158", 12),
    ("full-40189", 53),  # A rollout that was killed once the profile was declared.
    ("full-40206", 42),  # What was confined follows the CPUs that grants leave.
    ("full-40188", 21),  # corral_isolated.slice in a profile without isolated CPUs.
    ("full-40061", 8),  # A grant of the CPUs that its slice shares with others.
    ("full-41102", 10),  # An undo gives back what was shared before, and the root keeps a CPU.
    ("full-47079", 41),  # No slice starts with CPUs that were set live before its last stop.
    ("full-41126", 77),  # No slice of Corral's goes back to the CPUs of an earlier profile.
    ("46220", 28),  # A release that leaves a file to a rollout leaves no live CPUs of the slice either.
    ("46290", 32),
    # A slice that does not run, and would start with CPUs that were set for it, takes part in each hand-over.
    ("48072", 100),
    ("48005", 43),
    ("full-48074", 20),
    ("50319", 51),
    ("renamed-50015", 70),  # What runs on CPUs of its own keeps them, also under a profile that has none.
    ("renamed-52161", 18),  # A run under an earlier name keeps its CPUs, whichever the profile would give out.
    ("renamed-50189", 13),  # systemd reads its files before a slice stops in which it knows a running unit.
    ("48011", 39),  # A removal that goes on after one that died.
    ("full-47130", 17),  # An undo gives back what a slice shared that was alone there for a moment.
    # Corral's drop-in of a slice goes before the live file that overrides it.
    ("53319", 51),
    # What a slice would start with is its own already: nobody passes through it.
    ("reloaded-60092", 81),
    # A run keeps what it has when the file that requires its grant is removed by hand.
    ("edited-60003", 7),
    ("71035", 62),  # systemd's file of a live property is no original: a later run would bring its CPUs back.
    # A slice that does not run, and of which a persistent set-property says other CPUs.
    ("set-10", 40),
    ("set-37", 40),  # set-property made a control group for corral_isolated.slice, which no profile had.
    ("set-1064", 60),  # A start takes CPUs that set-property gave a slice before: its file goes with them.
    # A slice that has no workload any more would start with others' CPUs by set-property: it is not given them before they move.
    ("set-reloaded-330001", 34),
    ("set-1021", 30),  # What was set live before has a CPU that is offline now.
    ("tenants-20117", 41),  # Without partitions, on a node whose reserved CPUs are offline.
    ("full-reloaded-910073", 17),  # A profile without the isolated pool, and without partitions before.
    ("devices-2045", 17),  # The record of the numbers in a list is removed after the device came back.
    ("devices-3007", 12),  # A start that dies between a list and the record that takes it back.
    ("devices-2034", 44),  # A unit starts while the file of its CDI device is gone.
    (
        "edited-9800013",
        60,
    ),  # A start moves all pools, and before the next tick somebody removes what it set of a slice's CPUs.
    (
        "devices-set-4200016",
        80,
    ),  # Two exclusive slices are set to the same CPUs by hand, and the run that has them ends.
    ("devices-9700004", 98),  # A device is plugged in again while its vendor's spec is torn.
    # A record that was changed by hand names another device than the unit has, which is plugged in again.
    ("tenants-devices-9800012", 39),
    # A unit runs under an earlier name, and is admitted with other devices under a new one.
    ("tenants-devices-9700019", 41),
    ("tenants-devices-9800014", 88),
    ("devices-9700020", 40),  # A resource finds a device under another name, while it is away and a unit has it.
    # A unit starts after a rollout that died between the unit's files and the profile.
    ("tenants-devices-9700015", 38),
    # The checkpoint is lost in audit mode, and then somebody removes the record of what a unit has: nothing else tells.
    ("devices-full-4200001", 79),
    # A unit starts after a rollout that died once the unit's files had its workload's new name.
    ("devices-renamed-4200013", 25),
    (
        "devices-renamed-4200014",
        100,
    ),  # A workload gets another name while the checkpoint is damaged, in audit mode.
    ("devices-4110014", 97),  # What runs is admitted again, to hold other devices while it runs.
    ("devices-4120004", 100),  # A device goes and comes back while its unit restarts between two ticks.
    # Devices of a resource that is not declared any more get other numbers, and one of their records is changed by hand.
    ("devices-set-6100006", 100),
    # A unit starts after an admission that died once its environment had other devices than its list.
    ("tenants-devices-4120002", 100),
    ("devices-full-7200217", 100),  # The record of a unit's devices is removed by hand once the unit has stopped.
    # A unit restarts, or starts after a rollout that died, with the environment of an earlier name in the slice of the new one.
    ("devices-renamed-7200300", 100),
    ("devices-renamed-7200307", 100),
    ("devices-set-6200012", 100),  # systemctl revert removes the list of a unit, which the next tick brings back.
    # A spec counts its devices anew, and what runs has the one that its resource has by number.
    ("devices-renumbered-6", 54),
    # A link is away for a moment before a tick has seen that its device is back.
    ("devices-renumbered-10022", 40),
    # A unit's record is deleted by hand, and both copies of the checkpoint are damaged before a tick: its list alone is left.
    ("devices-renumbered-918280", 89),
    # CPUs that a refused release had given to others cannot be taken back, since one has gone offline meanwhile; its workload starts.
    ("edited-80001", 80),
    ("devices-9800023", 23),  # A unit starts after a removal that died once the lists were taken back.
    # What a unit would start with is no request: its next write may not keep a CPU that a slice has.
    ("set-full-700327", 5),
    (
        "dark-set-1100244",
        22,
    ),  # A shared slice waits for CPUs that it requests in vain until the partition that has them releases them.
]
LATEST = 10


@pytest.mark.parametrize(("seed", "steps"), WENT_WRONG if LONG else WENT_WRONG[-LATEST:])
def test_walks_that_went_wrong_once(seed: str, steps: int, quick: None) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        walk = Ground(Path(name)).walk(seed, range(steps))
    assert (walk.counts["steps"], walk.wrong) == (steps, []), "\n".join(walk.steps)


@pytest.fixture(autouse=True)
def nothing_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """No start waits for a run that ends: in a walk nothing happens meanwhile."""
    monkeypatch.setattr(grant_service, "ENDING_SECONDS", 0.0)


def walks(prefix: str, number: int = WALKS, first: int = FIRST) -> list[Walk]:
    """Some walks of one kind; the first that goes wrong fails the test, with the shortest one that does."""
    found = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        ground = Ground(Path(name))
        for seed in (f"{prefix}{one}" for one in range(first, first + number)):
            walk = ground.walk(seed, range(STEPS))
            if walk.wrong:
                walk = shortest(ground, seed, walk.counts["steps"])
                pytest.fail("\n".join([f"walk {seed}:", *walk.steps, *walk.wrong]), pytrace=False)
            found.append(walk)
    return found


def counted(found: t.Iterable[Walk]) -> collections.Counter[str]:
    """What all of these walks contained."""
    counts = collections.Counter[str]()
    for walk in found:
        counts += walk.counts
    return counts


def test_whatever_happens_with_devices(quick: None) -> None:
    counts = counted(walks(DEVICES, first=FIRST + DEVICES_FIRST))
    assert {what for what in USE if not counts[what]} == set()


def test_whatever_happens_with_tenants(quick: None) -> None:
    causes = [cause for walk in walks(TENANTS, (WALKS + 1) // 2) for cause in walk.causes]
    assert any("tenant acme" in cause for cause in causes), "nothing was refused by a tenant"


def test_whatever_happens_when_a_spec_counts_its_devices_anew(quick: None) -> None:
    counts = counted(walks(DEVICES + RENUMBERED, (WALKS + 1) // 2))
    assert counts["renumbered while held"], "no device of a workload was counted anew"


def test_whatever_happens_with_quotas_of_devices(quick: None) -> None:
    found = walks(TENANTS + DEVICES, (WALKS + 1) // 2, first=FIRST + QUOTAS_FIRST)
    causes = [cause for walk in found for cause in walk.causes if "tenant acme" in cause]
    assert any(re.search(r"requests\.(example|vendor)\.com/", cause) for cause in causes), "no quota of devices was met"


def test_whatever_happens_when_all_cpus_of_grants_go_offline(quick: None) -> None:
    assert counted(walks(DARK, (WALKS + 1) // 2))["all CPUs offline"], "no grant ever had all its CPUs offline"


def test_whatever_happens_when_workloads_get_other_names(quick: None) -> None:
    assert counted(walks(RENAMED))["renamed in a run"], "none got another name while it ran"


def test_whatever_happens_when_an_administrator_sets_properties(quick: None) -> None:
    counts = counted(walks(SET))
    assert {what for what in ("let in", "unset by hand", "reloads at rest", "removals") if not counts[what]} == set()


def test_whatever_happens_when_somebody_removes_files(quick: None) -> None:
    assert counted(walks(EDITED, (WALKS + 1) // 2))["edited in a run"], "nothing ran when files were removed"


def test_whatever_happens_when_systemd_reads_its_files_meanwhile(quick: None) -> None:
    assert counted(walks(RELOADED, (WALKS + 1) // 2))["reloaded meanwhile"], "no daemon-reload came in between"


@pytest.mark.parametrize("kinds", COMBINED, ids="".join)
def test_whatever_happens_in_walks_of_several_kinds(kinds: tuple[str, ...], quick: None) -> None:
    counts = counted(walks("".join(kinds), max(1, WALKS // 6)))
    assert counts["steps"], "no step was taken"


def test_whatever_happens_on_a_full_machine(quick: None) -> None:
    counts = counted(walks(FULL, first=FIRST + FULL_FIRST))
    assert {what for what in CONTENTION if not counts[what]} == set()


def test_a_hand_over_in_the_wrong_order_is_found(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the validator, and with exclusive slices that move in reverse: else what other walks find nothing in proves little."""
    order = handover.order

    def reversed_order(slices: t.Sequence[handover.Slice], *spare: frozenset[int]) -> list[tuple[str, frozenset[int]]]:
        moves = list(order(slices, *spare))
        own = {one.unit for one in slices if one.exclusive}
        places = [index for index, (unit, dummy) in enumerate(moves) if unit in own]
        for index, move in zip(places, [moves[index] for index in reversed(places)]):
            moves[index] = move
        return moves

    monkeypatch.setattr(handover, "order", reversed_order)
    monkeypatch.setattr(replay, "problems", lambda *dummy, **more: [])
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        walk = Ground(Path(name)).walk(f"{FULL}6", range(40))
    assert [line for line in walk.wrong if " of corral_" in line]


def test_a_device_that_two_workloads_are_given_is_found(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldDevices, "other_shares", lambda *dummy: False)
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        ground = Ground(Path(name))
        found = (line for number in range(9, 15) for line in ground.walk(f"{DEVICES}{number}", range(40)).wrong)
        assert any("both given" in line for line in found)


def test_an_isolated_pool_that_is_no_partition_is_found(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = partitions.wanted

    def without(*args: t.Any) -> dict[str, str]:
        return {unit: kind for unit, kind in wanted(*args).items() if unit != ISOLATED_SLICE}

    monkeypatch.setattr(partitions, "wanted", without)
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        walk = Ground(Path(name)).walk(f"{FULL}0", range(40))
    assert [line for line in walk.wrong if " of corral_isolated.slice" in line]


def test_whatever_happens_no_thread_is_on_cpus_of_somebody_elses_grant(
    quick: None, request: pytest.FixtureRequest
) -> None:
    found = walks("")
    counts, causes = counted(found), collections.Counter[str]()
    for walk in found:
        causes += walk.causes
    for line in report(counts, causes):
        request.node.user_properties.append(("walks", line))
    assert counts["steps"] == WALKS * STEPS
    assert {what: counts[what] for what, steps in LEAST.items() if counts[what] < WALKS * STEPS // steps} == {}
