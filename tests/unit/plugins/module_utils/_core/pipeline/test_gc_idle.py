# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Passes of garbage collection that ask Podman nothing: when they do, when they must not, and that they lose nothing."""

from __future__ import annotations

import json
import random
import typing as t

import node
import pytest
import runs
from _core.gc import gc_pass, idle_pass
from _core.gc.deadline import Stop
from _core.gc.gc_outcome import Result
from _core.host import state
from _core.host.command import Command
from _core.pipeline import declared_profile
from fake_podman import MIB, Disk, Storage, identity

Make = t.Callable[..., node.Node]

MINUTE, HOUR = 60, 3600
BOTH: dict[str, t.Any] = {
    "images": {"high": 80, "low": 70, "min_age": "10m", "max_age": "2d", "interval": "1m", "keep": ["localhost/keep"]},
    "containers": {"min_age": "10m", "max_per_workload": 1, "scope": "all"},
}


@pytest.fixture
def fake(make: Make, monkeypatch: pytest.MonkeyPatch) -> node.Node:
    """A node with Podman, an image, a container that runs, a dead one that stays, and two passes over them."""
    made = prepared(make, monkeypatch)
    storage = made.podmans["root"]
    image = storage.image("localhost/used:1")
    storage.image("localhost/free:1")
    storage.container("runs", image, "running", created=made.time)
    storage.container("dead", image, created=made.time - 2 * HOUR, ended=made.time - HOUR)
    asked(made)
    made.wait(MINUTE)
    assert asked(made), "the first pass does not know where the storage is before it asks"
    made.wait(MINUTE)
    return made


def prepared(make: Make, monkeypatch: pytest.MonkeyPatch, gc: dict[str, t.Any] | None = None) -> node.Node:
    made = make()
    made.podmans["root"] = Storage(made.root, Disk())
    monkeypatch.setattr(Stop, "wait", lambda dummy, seconds: made.wait(seconds))
    declare(made, BOTH if gc is None else gc)
    return made


def declare(fake: node.Node, gc: dict[str, t.Any]) -> None:
    assert not runs.declare(fake.host(), cpu=None, memory=None, pids=None, gc=gc).error


def asked(fake: node.Node) -> set[str]:
    """What the timer's pass asks Podman."""
    return passed(fake)[0]


def passed(fake: node.Node) -> tuple[set[str], Result]:
    host = fake.host()
    result = gc_pass.tick(host, lambda dummy, priority: None)
    return {act.split()[2] for act in host.acts if act.startswith("run podman")}, result


def uses(fake: node.Node) -> dict[str, list[float | None]]:
    """When each of root's images was first seen and last used, as Corral keeps it."""
    data = state.checked(fake.host(), state.GC_RECORDS)
    return t.cast("dict[str, list[float | None]]", data["images"]["root"])


def told(fake: node.Node) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(fake.get(state.GC_STATUS)))


def test_a_pass_over_what_did_not_change_asks_nothing_and_says_the_same(fake: node.Node) -> None:
    before = told(fake)
    for dummy in range(5):
        found, result = passed(fake)
        assert found == set()
        assert result.images is not None
        assert result.containers is not None
        assert (result.removed, result.errors, result.error) == ((), (), "")
        after = told(fake)
        for part in ("images", "containers"):
            assert after[part].pop("time") > before[part].get("time", 0)
            assert after[part] == {key: value for key, value in before[part].items() if key != "time"}
        used, free = (uses(fake)[identity(f"image localhost/{name}:1")] for name in ("used", "free"))
        assert used[1] == fake.time, "its container runs"
        assert free[1] is None
        fake.wait(MINUTE)


def test_a_pass_by_hand_asks_nothing_either_and_a_dry_run_asks(fake: node.Node) -> None:
    for dry in (False, True):
        host = fake.host()
        declared = declared_profile.read_declared(host)
        assert declared is not None
        gc_pass.now(host, declared, dry=dry)
        assert bool([act for act in host.acts if act.startswith("run podman")]) == dry


def _end(fake: node.Node, storage: Storage) -> None:
    storage.change(next(one.id for one in storage.containers.values() if one.name == "runs"), state="exited")


def _pass_by(fake: node.Node, storage: Storage) -> None:
    storage.events.append({"Actor": {"Attributes": {"image": "localhost/free:1", "name": "x"}}, "time": int(fake.time)})


def _taken(fake: node.Node, storage: Storage) -> None:
    storage.disk.others = 800 * MIB


def _other_disk(fake: node.Node, storage: Storage) -> None:
    storage.disk.device += 1


def _no_size(fake: node.Node, storage: Storage) -> None:
    storage.disk.readable = False


def _moved_clock(fake: node.Node, storage: Storage) -> None:
    fake.time += 2 * HOUR


def _reboot(fake: node.Node, storage: Storage) -> None:
    fake.put("/proc/sys/kernel/random/boot_id", "second\n")


def _no_database(fake: node.Node, storage: Storage) -> None:
    (fake.root / storage.path.lstrip("/") / "libpod/bolt_state.db").unlink()
    storage.write_database = lambda: None  # type: ignore[method-assign]


def _kept(fake: node.Node, storage: Storage) -> None:
    declare(fake, {**BOTH, "images": {**BOTH["images"], "keep": ["localhost/free"]}})


def _damaged(fake: node.Node, storage: Storage) -> None:
    fake.put(state.GC_IDLE, fake.get(state.GC_IDLE).replace("localhost", "elsewhere").replace('"dead": 1', '"dead": 7'))


def _newer(fake: node.Node, storage: Storage) -> None:
    data = json.loads(fake.get(state.GC_IDLE))["data"]
    state.write_checked(fake.host(), state.GC_IDLE, {"schema": 2, **{key: 5 for key in data if key != "schema"}})


def _lost(fake: node.Node, storage: Storage) -> None:
    (fake.root / state.GC_IDLE.lstrip("/")).unlink()


CHANGES: dict[str, t.Callable[[node.Node, Storage], object]] = {
    "a container ended": _end,
    "one began and ended": _pass_by,
    "a container came": lambda fake, storage: storage.container("new", next(iter(storage.images)), created=fake.time),
    "a container went": lambda fake, storage: storage.containers.popitem(),
    "a pod came": lambda fake, storage: storage.pod("new", fake.time),
    "an image came": lambda fake, storage: storage.image("localhost/new:1"),
    "an image got a name": lambda fake, storage: storage.image("localhost/free:1", "localhost/free:2"),
    "an image went": lambda fake, storage: storage.images.popitem(),
    "the disk is full": _taken,
    "another file system": _other_disk,
    "a disk without a size": _no_size,
    "the clock was set": _moved_clock,
    "another boot": _reboot,
    "the database is elsewhere": _no_database,
    "another profile": _kept,
    "a damaged file": _damaged,
    "a file of another release": _newer,
    "no file": _lost,
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_makes_a_pass_ask(fake: node.Node, change: str) -> None:
    CHANGES[change](fake, fake.podmans["root"])
    assert {"images", "ps"} <= asked(fake)


def test_podman_is_asked_every_hour_in_any_case(fake: node.Node) -> None:
    times = []
    for minute in range(181):
        if asked(fake):
            times.append(minute)
        fake.wait(MINUTE)
    # The last of the two passes of the beginning was a minute before.
    assert times == [59, 119, 179]


@pytest.mark.parametrize("command", ["images", "ps", "events"])
def test_after_a_pass_that_could_not_read_everything_the_next_one_asks(fake: node.Node, command: str) -> None:
    storage = fake.podmans["root"]
    storage.volumes.add("new")
    storage.trouble[command] = Command(125, "", "Error: database is locked\n")
    assert asked(fake)
    del storage.trouble[command]
    fake.wait(MINUTE)
    storage.write_database = lambda: None  # type: ignore[method-assign]  # Nothing changed in the files since the failure.
    assert "ps" in asked(fake)


def test_what_is_due_within_the_hour_goes_on_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead container beside a newer one, and an image that nobody uses: neither goes later than without idle passes."""
    fake = prepared(make, monkeypatch, {**BOTH, "images": {**BOTH["images"], "max_age": "4h"}})
    storage = fake.podmans["root"]
    image = storage.image("localhost/used:1")
    storage.image("localhost/free:1")
    came = fake.time
    asked(fake)
    storage.container("newer", image, created=fake.time - 5, ended=fake.time)
    storage.container("older", image, created=fake.time - 9, ended=fake.time - 1)
    gone: dict[str, float] = {}
    idle = 0
    while "localhost/free:1" in storage.names():
        assert fake.time < came + 5 * HOUR, gone
        fake.wait(MINUTE)
        idle += not asked(fake)
        if "older" not in storage.left():
            gone.setdefault("older", fake.time - came)
    assert 10 * MINUTE <= gone["older"] <= 12 * MINUTE
    assert 4 * HOUR <= fake.time - came <= 4 * HOUR + 2 * MINUTE
    assert idle > 150


def test_what_breaks_without_a_change_is_seen_within_the_hour_and_by_a_dry_run(fake: node.Node) -> None:
    fake.podmans["root"].trouble["ps"] = Command(125, "", "Error: database is locked\n")
    assert asked(fake) == set()
    host = fake.host()
    declared = declared_profile.read_declared(host)
    assert declared is not None
    assert gc_pass.now(host, declared, dry=True).errors
    fake.wait(HOUR)
    assert passed(fake)[1].errors


def test_lost_records_are_made_anew_by_the_next_pass(fake: node.Node) -> None:
    for name in (state.GC_RECORDS, f"{state.GC_RECORDS}.previous"):
        (fake.root / name.lstrip("/")).unlink()
    assert asked(fake)
    assert set(uses(fake)) == set(fake.podmans["root"].images)


def test_an_image_that_a_pass_over_containers_freed_is_looked_at_by_the_same_run(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The age of the image is over when that of its dead container is."""
    gc = {
        "images": {"high": 80, "low": 70, "min_age": "0s", "max_age": "5m", "interval": "1m"},
        "containers": {"min_age": "2h", "max_per_workload": 0, "scope": "all"},
    }
    fake = prepared(make, monkeypatch, gc)
    storage = fake.podmans["root"]
    storage.container("dead", storage.image("localhost/used:1"), created=fake.time - 9, ended=fake.time)
    for dummy in range(3 * MINUTE):
        if not storage.left():
            break
        asked(fake)
        fake.wait(MINUTE)
    assert storage.names() == []


def test_containers_that_count_later_are_counted_on_time(fake: node.Node) -> None:
    storage = fake.podmans["root"]
    storage.container("never", next(iter(storage.images)), "created", created=fake.time)
    counts = []
    for dummy in range(62):
        asked(fake)
        counts.append(told(fake)["containers"]["dead"])
        fake.wait(MINUTE)
    assert counts == [1] * 60 + [2, 1], "the second of two goes"


def test_a_file_that_cannot_be_written_costs_nothing_else(fake: node.Node) -> None:
    (fake.root / state.GC_IDLE.lstrip("/")).unlink()
    (fake.root / state.GC_IDLE.lstrip("/")).mkdir()
    found, result = passed(fake)
    assert found
    assert not result.error
    assert told(fake)["time"] == int(fake.time)


@pytest.mark.parametrize(
    "data", [{"roots": []}, {"roots": {"root": "abc"}}, {"images": []}, {"containers": {"stamps": {}}}]
)
def test_a_file_of_another_form_makes_a_pass_ask(fake: node.Node, data: dict[str, t.Any]) -> None:
    kept = json.loads(fake.get(state.GC_IDLE))["data"]
    state.write_checked(fake.host(), state.GC_IDLE, {**kept, **data})
    assert asked(fake)


def test_the_storages_of_all_users_count(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = make()
    fake.account("alice", 1000)
    disk = Disk()
    for user, path in (
        ("root", "/var/lib/containers/storage"),
        ("alice", "/home/alice/.local/share/containers/storage"),
    ):
        fake.podmans[user] = Storage(fake.root, disk, path)
        fake.podmans[user].image(f"localhost/{user}:1")
    declare(fake, {**BOTH, "users": ["alice"]})
    for dummy in range(2):
        asked(fake)
        fake.wait(MINUTE)
    assert asked(fake) == set()
    fake.podmans["alice"].volumes.add("new")
    fake.wait(MINUTE)
    assert asked(fake)


def test_the_file_goes_with_gc(fake: node.Node) -> None:
    assert fake.has(state.GC_IDLE)
    assert not runs.declare(fake.host(), cpu=None, memory=None, pids=None).error
    assert not fake.has(state.GC_IDLE)


@pytest.mark.parametrize("seed", range(8))
def test_idle_passes_remove_what_passes_that_ask_remove(make: Make, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The same things happen on two nodes; on one each pass asks Podman. Both storages are the same after each pass."""
    chance = random.Random(seed)
    gc = {
        "images": {"high": 80, "low": 60, "min_age": "10m", "max_age": "6h", "interval": "1m"},
        "containers": {"min_age": "20m", "max_per_workload": 1, "max_total": 3, "scope": "all"},
    }
    nodes = [prepared(make, monkeypatch, gc) for dummy in range(2)]
    turn: list[node.Node] = []
    monkeypatch.setattr(Stop, "wait", lambda dummy, seconds: turn[-1].wait(seconds))
    idle = removed = 0
    for number in range(60):
        act, wait, which = chance.random(), chance.choice([MINUTE, MINUTE, 20 * MINUTE, 2 * HOUR]), chance.random()
        for fake in nodes:
            happen(fake, act, which, number)
            fake.wait(wait)
        lists = []
        for fake in nodes:
            if fake is nodes[1]:
                (fake.root / state.GC_IDLE.lstrip("/")).unlink(missing_ok=True)
            turn.append(fake)
            found, result = passed(fake)
            assert not result.errors
            idle += fake is nodes[0] and not found
            removed += len(result.removed)
            storage = fake.podmans["root"]
            lists.append((storage.names(), storage.left(), [one.names for one in result.removed]))
        assert lists[0] == lists[1], number
    assert idle > 3
    assert removed > 5


def happen(fake: node.Node, act: float, which: float, number: int) -> None:
    """One thing that happens to a storage: in six of ten turns none."""
    storage = fake.podmans["root"]
    images, running = (
        sorted(storage.images),
        sorted(one.id for one in storage.containers.values() if one.state == "running"),
    )
    if act < 0.1:
        storage.image(f"localhost/{number}:1", layers={f"{number}": 20 + int(which * 60)})
    elif act < 0.2 and images:
        storage.container(f"c{number}", images[int(which * len(images))], "running", created=fake.time)
    elif act < 0.3 and running:
        storage.change(running[int(which * len(running))], state="exited", ended=fake.time)
    elif act < 0.35 and images:
        names = storage.images[images[int(which * len(images))]].names or ("localhost/nameless:1",)
        storage.events.append({"Actor": {"Attributes": {"image": names[0], "name": "x"}}, "time": int(fake.time)})
    elif act < 0.4:
        storage.disk.others = int(which * 900) * MIB
    elif act < 0.45 and images:  # It gets its name from an image that is made anew.
        old = storage.images[images[int(which * len(images))]]
        storage.images[old.id] = old._replace(names=())
        storage.image(*old.names or ("localhost/nameless:1",), id=identity(f"new {number}"), layers={f"n{number}": 30})
    elif act < 0.5:
        boot = fake.get("/proc/sys/kernel/random/boot_id").strip()
        fake.put("/proc/sys/kernel/random/boot_id", f"{boot}'\n")
        for one in (state.GC_STATUS, state.GC_DRIFT, state.GC_IDLE):
            (fake.root / one.lstrip("/")).unlink(missing_ok=True)
        for one in running:  # They end with the machine, which writes no event.
            del storage.containers[one]


def test_the_limit_is_an_hour() -> None:
    assert idle_pass.IDLE_SECONDS == HOUR, "docs/gc.md says so"
