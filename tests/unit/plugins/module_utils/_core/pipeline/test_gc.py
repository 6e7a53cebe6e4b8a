# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Passes of garbage collection on a fake Podman: what goes, what stays, and what is said of it."""

from __future__ import annotations

import json
import typing as t

import failing
import node
import pytest
import runs
from _core.gc import gc_outcome, gc_pass
from _core.gc.deadline import Stop
from _core.gc.gc_outcome import Result
from _core.host import state
from _core.host.agent import pause_file
from _core.host.command import Command
from _core.host.containers.podman_cli import USERS_ITEMS, USERS_REMOVALS, Podman
from _core.host.containers.podman_unit import Account
from _core.host.files import READ_LIMIT, Host
from _core.host.gc import other_gc
from _core.host.lock import Lock
from _core.managers import registry
from _core.model.gc.gc_units import SERVICE, TIMER
from _core.model.plan.plan import change_to_dict
from _core.model.status import json_shapes
from _core.model.values.errors import CorralError
from _core.pipeline import declared_profile, planning
from _core.pipeline import tick as full_tick
from fake_podman import MIB, Disk, Service, Storage
from shapes import misfits

Make = t.Callable[..., node.Node]

BOTH: dict[str, t.Any] = {"images": {"keep": ["localhost/keep"]}, "containers": {}}
HOUR = 3600
USER_STORAGE = "/home/alice/.local/share/containers/storage"


@pytest.fixture
def fake(make: Make, monkeypatch: pytest.MonkeyPatch) -> node.Node:
    """A node with Podman, and room on its disk."""
    made = make()
    made.podmans["root"] = Storage(made.root, Disk())
    monkeypatch.setattr(Stop, "wait", lambda dummy, seconds: made.wait(seconds))
    return made


def declare(fake: node.Node, gc: dict[str, t.Any] | None = None, **sections: t.Any) -> None:
    """A profile of garbage collection alone."""
    came = runs.declare(fake.host(), cpu=None, memory=None, pids=None, gc=BOTH if gc is None else gc, **sections)
    assert not came.error


def tick(fake: node.Node, host: node.NodeHost | None = None) -> tuple[Result, list[str]]:
    """One run of corral-gc.service, and its lines in the journal."""
    said: list[str] = []
    return gc_pass.tick(host or fake.host(), lambda text, priority: said.append(f"<{priority}>{text}")), said


def by_hand(fake: node.Node, *, dry: bool = False, host: node.NodeHost | None = None, wait: float = 10.0) -> Result:
    host = host or fake.host()
    declared = declared_profile.read_declared(host)
    assert declared is not None
    return gc_pass.now(host, declared, dry=dry, wait=wait)


def told(fake: node.Node) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(fake.get(state.GC_STATUS)))


def drift(fake: node.Node) -> dict[tuple[str, str], tuple[str, str]]:
    """The drift of gc that ``corral drift`` shows: verdict and reason by subject and property."""
    return {
        (one.subject, one.property): (one.verdict, one.reason) for one in runs.plan(fake.host()) if one.manager == "gc"
    }


def with_alice(fake: node.Node, gc: dict[str, t.Any] | None = None, **sections: t.Any) -> Storage:
    """Declare garbage collection of a user's storage as well, on a disk of its own."""
    fake.account("alice", 1000)
    fake.podmans["alice"] = Storage(fake.root, Disk(2), USER_STORAGE)
    declare(fake, {**(gc or BOTH), "users": ["alice"]}, **sections)
    return fake.podmans["alice"]


def crowd(fake: node.Node) -> Storage:
    """Images that were used an hour apart, one that is kept, one in use and one that has just come; 90 % are full."""
    storage = fake.podmans["root"]
    base = {"base": 50}
    images = {
        name: storage.image(f"localhost/{name}:1", layers={**base, name: size})
        for name, size in (("old", 60), ("mid", 70), ("new", 80))
    }
    storage.image("localhost/keep:1", "localhost/keep:2", layers={"keep": 40})
    used = storage.image("localhost/used:1", layers={"used": 30})
    storage.container("runs", used, "running", created=fake.time)
    for hours, (name, image) in enumerate(images.items()):
        ended = fake.time - (3 - hours) * HOUR
        storage.container(f"of-{name}", image, created=ended - 60, ended=ended)
    tick(fake)
    for name in images:
        del storage.containers[next(one.id for one in storage.containers.values() if one.name == f"of-{name}")]
    fake.wait(600)
    storage.image("localhost/young:1", layers={"young": 20})
    storage.disk.others = 550 * MIB
    return storage


@pytest.fixture
def storage(fake: node.Node) -> Storage:
    """A crowd of images on a node where garbage collection is declared."""
    declare(fake)
    return crowd(fake)


STAY = ["localhost/keep:1", "localhost/new:1", "localhost/used:1", "localhost/young:1"]


def test_a_pass_over_the_threshold_removes_the_least_recently_used_and_measures_it(
    fake: node.Node, storage: Storage
) -> None:
    result, said = tick(fake)
    assert storage.names() == STAY
    assert result.images is not None
    (held,) = result.images.file_systems
    assert [(one.names, one.bytes) for one in held.removed] == [
        (("localhost/old:1",), 60 * MIB),
        (("localhost/mid:1",), 70 * MIB),
    ]
    assert (held.asked, held.short, held.available) == (100 * MIB, 0, 230 * MIB)
    assert said == [
        f"<5>removed localhost/{name}:1 (the disk is 90 % full, {size * MIB} bytes)"
        for name, size in (("old", 60), ("mid", 70))
    ]
    assert told(fake)["totals"] == {"images": 2, "containers": 0, "bytes": 130 * MIB, "errors": 0}
    assert drift(fake) == {}
    fake.wait(600)
    host = fake.host()
    assert tick(fake, host)[1] == []
    assert not [act for act in host.acts if "rmi" in act]


def test_a_dry_run_names_the_same_and_writes_and_removes_nothing(fake: node.Node, storage: Storage) -> None:
    before, host = fake.fingerprint(), fake.host()
    dry = by_hand(fake, dry=True, host=host)
    assert [act for act in host.acts if not act.startswith("run podman")] == []
    assert not [act for act in host.acts if {"rm", "rmi", "tag", "untag"} & set(act.split())]
    assert node.different(before, fake.fingerprint()) == []
    result = by_hand(fake)
    assert dry.images is not None
    assert result.images is not None
    assert dry.images.removed == result.images.removed
    assert dry.images.file_systems[0].available == result.images.file_systems[0].available
    assert storage.names() == STAY


def test_what_is_removed_last_is_not_one_too_many(fake: node.Node, storage: Storage) -> None:
    storage.disk.others = 500 * MIB  # 85 %, the threshold itself: 50 MiB are asked
    tick(fake)
    assert "localhost/old:1" not in storage.names()
    assert "localhost/mid:1" in storage.names()
    fake.wait(HOUR)
    storage.disk.others = 550 * MIB  # 84 %, to the byte
    tick(fake)
    assert "localhost/mid:1" in storage.names()


def test_a_disk_that_gives_less_than_its_layers_promise_takes_one_more(fake: node.Node, storage: Storage) -> None:

    def shrink(words: tuple[str, ...]) -> None:
        if words[0] == "rmi":
            storage.disk.others += 20 * MIB  # somebody writes meanwhile

    storage.before = shrink
    result, dummy = tick(fake)
    assert [one.bytes for one in result.removed] == [
        40 * MIB,
        50 * MIB,
        110 * MIB,
    ]  # the last with what all three shared
    assert result.removed[-1].names == ("localhost/new:1",)


def test_high_100_without_max_age_never_removes(fake: node.Node) -> None:
    declare(fake, {"images": {"high": 100}})
    storage = crowd(fake)
    storage.disk.others = 1000 * MIB
    before = storage.names()
    result, dummy = tick(fake)
    assert (result.removed, result.errors, storage.names()) == ((), (), before)


def test_max_age_counts_from_the_first_look_and_leaves_what_was_used_since(fake: node.Node) -> None:
    declare(fake, {"images": {"max_age": "1d", "min_age": "1h", "keep": ["localhost/keep"]}})
    storage = fake.podmans["root"]
    storage.image("localhost/never:1")
    storage.image("localhost/keep:1")
    used = storage.image("localhost/used:1")
    tick(fake)
    storage.container("short", used, "exited", created=fake.time, ended=fake.time)
    fake.wait(24 * HOUR)
    tick(fake)
    storage.containers.clear()
    assert len(storage.images) == 3, "not watched for longer than a day"
    fake.wait(600)
    late = storage.image("localhost/late:1")
    result, dummy = tick(fake)
    assert [one.names for one in result.removed] == [("localhost/never:1",), ("localhost/used:1",)]
    assert "not used for 1d" in result.removed[0].reason
    fake.wait(2 * HOUR)
    assert tick(fake)[0].removed == (), "one that came two hours ago was never used, but not for a day"
    fake.wait(23 * HOUR)
    assert [one.id for one in tick(fake)[0].removed] == [late]
    assert storage.names() == ["localhost/keep:1"]


def test_short_of_what_is_asked_is_drift_with_its_reason(fake: node.Node, storage: Storage) -> None:
    storage.disk.others = 900 * MIB
    tick(fake)
    assert storage.names() == [name for name in STAY if name != "localhost/new:1"]
    verdict, reason = drift(fake)[storage.path, "disk use"]
    assert verdict == "unchangeable"
    assert "of 6 images 1 in use, 1 kept, 1 younger than 2m" in reason
    assert runs.tick(fake.host()) == 2
    status = json.loads(fake.get(state.STATUS))
    assert not status["in_sync"]
    assert status["counts"]["gc"] == {"drift": 0, "unchangeable": 1, "unknown": 0}


@pytest.mark.parametrize("how", ["audit", "paused"])
def test_where_nothing_may_be_changed_what_would_go_is_drift(how: str, fake: node.Node) -> None:
    declare(fake, mode="audit" if how == "audit" else "enforce")
    storage = crowd(fake)
    if how == "paused":
        pause_file.begin(fake.host(), pause_file.requested(fake.host(), 900, "a test"))
    before = storage.names()
    result, said = tick(fake)
    assert (storage.names(), said) == (before, [])
    assert [one.names for one in result.removed] == [("localhost/old:1",), ("localhost/mid:1",)]
    verdict, reason = drift(fake)[storage.path, "images"]
    assert verdict == "drift"
    assert "about 130Mi" in reason
    assert "localhost/old:1, localhost/mid:1" in reason
    assert runs.tick(fake.host()) == 2
    items = json.loads(fake.get(state.STATUS))["items"]
    assert [(item["subject"], item["property"]) for item in items if item["manager"] == "gc"] == [
        (storage.path, "images")
    ]
    assert told(fake)["images"]["dry"]
    assert told(fake)["totals"]["images"] == 0
    if how == "paused":
        fake.wait(60)
        pause_file.end(fake.host())
        tick(fake)
        assert storage.names() == STAY, "what was only looked at is due at once"
        assert drift(fake) == {}


# Trouble

NO_JSON = Command(0, '{"store": ', "")
TROUBLE: dict[str, tuple[str, Command, str]] = {
    "no answer": ("images", Command(124, "", ""), "does another Podman hold its storage?"),
    "no answer later": ("image inspect", Command(124, "", ""), "does another Podman hold its storage?"),
    "corrupt": ("images", Command(125, "", "Error: retrieving label for image: layer not known\n"), "layer not known"),
    "no JSON": ("images", NO_JSON, "its answer is not JSON"),
    "not as expected": ("ps", Command(0, '[{"Id": 5}]', ""), "not as expected: an item without an id"),
    "no containers": ("ps", Command(125, "", "Error: locks\n"), "podman ps: locks"),
    "no lists": ("images", Command(0, '{"a": 1}', ""), "no list of objects"),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_a_podman_that_does_not_answer_rightly_is_unknown_and_nothing_goes(
    name: str, fake: node.Node, storage: Storage
) -> None:
    words, answer, reason = TROUBLE[name]
    storage.trouble[words] = answer
    before = storage.names(), storage.left()
    fake.wait(600)
    result, said = tick(fake)
    assert (storage.names(), storage.left()) == before
    assert result.removed == ()
    assert [line for line in said if not line.startswith("<4>not collected: ")] == []
    assert any(reason in line for line in said)
    found = drift(fake)["images", "pass"]
    assert found[0] == "unknown"
    assert reason in found[1]
    assert runs.tick(fake.host()) == 2
    fake.wait(600)
    assert tick(fake)[1] == [], "said once"
    storage.trouble.clear()
    fake.wait(600)
    tick(fake)
    assert storage.names() == STAY
    assert drift(fake) == {}


def test_without_podman(fake: node.Node) -> None:
    declare(fake)
    fake.podmans.clear()
    result, dummy = tick(fake)
    assert set(result.errors) == {"podman is not installed on this node"}
    assert {verdict for verdict, dummy in drift(fake).values()} == {"unknown"}


def test_a_file_system_without_size_or_that_cannot_be_read(fake: node.Node, storage: Storage) -> None:
    before = storage.names()
    for capacity, readable in ((0, True), (1000 * MIB, False)):
        storage.disk.capacity, storage.disk.readable = capacity, readable
        result, dummy = tick(fake)
        assert "reports no size: nothing is removed" in " ".join(result.errors)
        assert drift(fake)["images", "pass"][0] == "unknown"
        fake.wait(600)
    assert storage.names() == before


def test_a_disk_that_cannot_be_measured_any_more_ends_the_pass_and_tells_what_went(
    fake: node.Node, storage: Storage
) -> None:

    def vanish(words: tuple[str, ...]) -> None:
        if words[0] == "rmi":
            storage.disk.readable = False

    storage.before = vanish
    result, said = tick(fake)
    assert [one.names for one in result.removed] == [("localhost/old:1",)]
    assert "cannot be measured: nothing more is removed" in " ".join(result.errors)
    assert len(said) == 2
    assert "localhost/mid:1" in storage.names()


def test_a_kubelet_is_never_collected_beside(fake: node.Node, storage: Storage) -> None:
    before = storage.names()
    fake.put("/etc/systemd/system/kubelet.service", "[Service]\n")
    (fake.root / "etc/systemd/system/multi-user.target.wants").mkdir(exist_ok=True)
    (fake.root / "etc/systemd/system/multi-user.target.wants/kubelet.service").symlink_to("../kubelet.service")
    host = fake.host()
    result, dummy = tick(fake, host)
    assert "kubelet.service runs on this node" in result.error
    assert not [act for act in host.acts if "podman" in act]
    assert storage.names() == before
    assert drift(fake)["kubelet.service", "owner"][0] == "unchangeable"
    with pytest.raises(CorralError, match=r"kubelet.service on this node collects"):
        declare(fake, {"images": {}})


def test_an_invalid_profile_removes_nothing(fake: node.Node) -> None:
    declare(fake, workloads=[{"name": "web", "match": {"container": "web-*"}}])
    storage = crowd(fake)
    storage.container("web-1", "", created=1.0, ended=2.0)
    storage.container("web-2", "", created=1.0, ended=3.0)
    tick(fake)
    before = storage.left()
    broken = json.loads(fake.get(state.DECLARED))
    broken["workloads"] = [{"name": "other", "match": {"container": "o"}, "nonsense": 1}]
    fake.put(state.DECLARED, json.dumps(broken))
    fake.wait(600)
    host = fake.host()
    result, said = tick(fake, host)
    assert "nonsense" in result.error
    assert said[0].startswith("<3>not collected: ")
    assert host.acts == []
    assert storage.left() == before


def test_an_unknown_user_is_refused_and_later_unknown(fake: node.Node) -> None:
    with pytest.raises(CorralError, match=r"gc.users\[0\]: alice: this node has no such user"):
        declare(fake, {**BOTH, "users": ["alice"]})
    with_alice(fake)
    tick(fake)
    assert drift(fake) == {}
    fake.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    fake.wait(600)
    result, dummy = tick(fake)
    assert "podman of alice: this node has no such user" in result.errors
    assert drift(fake)["images", "pass"][0] == "unknown"


def test_one_users_trouble_does_not_stop_the_other(fake: node.Node) -> None:
    alice = with_alice(fake)
    storage = crowd(fake)
    alice.trouble["info"] = Command(125, "", "Error: creating events dirs: permission denied\n")
    fake.wait(600)
    result, dummy = tick(fake)
    assert storage.names() == STAY
    assert result.errors == ("podman info of alice: creating events dirs: permission denied",)
    del alice.trouble["info"]
    fake.podmans["root"].trouble["images"] = Command(124, "", "")
    alice.image("localhost/big:1", layers={"big": 900})
    fake.wait(600)
    assert tick(fake)[0].removed == (), "young"
    fake.wait(600)
    assert [(one.user, one.names) for one in tick(fake)[0].removed] == [("alice", ("localhost/big:1",))]


def listed(count: int, *names: str) -> Command:
    """A list of images that somebody made up."""
    rows = [{"Id": f"{number:064x}", "Names": [f"{name}:{number}" for name in names]} for number in range(count)]
    return Command(0, json.dumps(rows), "")


def test_a_user_with_more_images_than_are_kept_is_not_looked_at(fake: node.Node) -> None:
    users = ["alice", "bob"]
    for number, name in enumerate(users):
        fake.account(name, 1000 + number)
        fake.podmans[name] = Storage(fake.root, Disk(2 + number), f"/home/{name}/storage")
        fake.podmans[name].image("localhost/a:1")
    declare(fake, {**BOTH, "users": users})
    storage = crowd(fake)
    fake.podmans["alice"].trouble["images"] = fake.podmans["bob"].trouble["images"] = listed(22_000)
    fake.wait(600)
    result, dummy = tick(fake)
    assert storage.names() == STAY
    assert {one.user for one in result.removed} == {"root"}
    said = f"lists more than {USERS_ITEMS // 2} items: not looked at"
    assert set(result.errors) == {f"podman images of {name}: {said}" for name in users}
    kept = gc_pass.kept_records(fake.host(), fake.time).images
    assert set(kept["root"]) >= set(storage.images)
    assert len(kept["alice"]) == 1
    for name in users:  # As many as there may be are kept, and are known again.
        fake.podmans[name].trouble["images"] = listed(USERS_ITEMS // 2)
    fake.wait(600)
    assert tick(fake)[0].errors == ()
    assert {user: len(row) for user, row in gc_pass.kept_records(fake.host(), fake.time).images.items()} == {
        "root": len(storage.images),
        "alice": USERS_ITEMS // 2,
        "bob": USERS_ITEMS // 2,
    }
    assert len(fake.get(state.GC_RECORDS)) < READ_LIMIT // 2


def test_images_that_only_containers_name_are_not_kept_without_end(fake: node.Node) -> None:
    """A user's containers name other images in each pass, and the list of images is refused."""
    alice = with_alice(fake)
    alice.trouble["images"] = Command(125, "", "Error: no\n")
    for first in range(0, 36_000, 12_000):
        rows = [
            {"Id": f"{n:064x}", "Names": ["a"], "State": "running", "Created": fake.time, "ImageID": f"{n:064x}"}
            for n in range(first, first + 12_000)
        ]
        alice.trouble["ps"] = Command(0, json.dumps(rows), "")
        fake.wait(600)
        tick(fake)
    kept = gc_pass.kept_records(fake.host(), fake.time).images["alice"]
    assert len(kept) == USERS_ITEMS
    assert f"{35_999:064x}" in kept


@pytest.mark.parametrize("mode", ["audit", "enforce"])
def test_what_is_said_of_a_users_images_can_be_read_again(mode: str, fake: node.Node) -> None:
    alice = with_alice(fake, {"images": {"max_age": "1h", "min_age": "0s"}}, mode=mode)
    old = fake.podmans["root"].image("localhost/old:1")
    alice.trouble["images"] = listed(600, "\U0001f40b" * 500, "y" * 2000, "z" * 2000)
    refusal = json.dumps({"Errors": ["\U0001f40b" * 1000], "ExitCode": 1})
    alice.trouble.update({"rmi": Command(0, refusal, ""), "untag": Command(0, "{}", ""), "tag": Command(0, "{}", "")})
    tick(fake)
    fake.wait(2 * HOUR)
    result, dummy = tick(fake)
    assert result.errors == ()
    assert old in {one.id for one in result.removed}
    found = told(fake)["images"]["file_systems"]
    assert sum(len(disk["removed"]) + len(disk["refused"]) for disk in found) == USERS_REMOVALS + 1
    assert len(fake.get(state.GC_STATUS)) < READ_LIMIT // 2
    assert runs.plan(fake.host())


def test_what_a_user_says_of_containers_takes_none_of_roots(fake: node.Node) -> None:
    alice = with_alice(fake, {"containers": {"max_per_workload": 1, "max_total": 1}}, workloads=WORKLOADS)
    dead(fake, "web-1", 90)
    root = fake.podmans["root"]
    root.pod("job-1", created=fake.time - 2 * HOUR)
    alice.pod("job-9", created=fake.time - 2 * HOUR + 1)
    image = alice.image("localhost/hers:1", layers={"hers": 1})
    for name in ("web-8", "web-9"):
        alice.container(name, image, "exited", created=1.0, ended=fake.time + HOUR)
    kept = dict(root.containers), dict(root.pods)
    result, dummy = tick(fake)
    assert (root.containers, root.pods) == kept
    assert [one.user for one in result.removed] == ["alice"]


def test_a_pass_starts_one_podman_for_each_user_and_ends_it(fake: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with_alice(fake, workloads=WORKLOADS)
    crowd(fake)
    dead(fake, "web-1", 90)
    dead(fake, "web-2", 80)
    fake.wait(600)
    started: list[str] = []

    class Counted(Service):
        def __init__(self, host: Host, account: Account) -> None:
            super().__init__(host, account)
            started.append(self.user)

    monkeypatch.setattr(Podman, "serve", staticmethod(Counted))
    result, dummy = tick(fake)
    assert len(result.removed) == 3
    assert sorted(started) == ["alice", "root"]
    assert Service.running == []
    host = fake.host("torn", 3)
    fake.wait(600)
    with pytest.raises(node.Killed):
        tick(fake, host)
    assert Service.running == [], "of a pass that ends early as well"


def test_a_podman_that_ends_during_a_removal_is_started_anew_and_names_come_back(
    fake: node.Node, storage: Storage
) -> None:
    storage.image("localhost/old:1", "localhost/old:2", layers={"base": 50, "old": 60})
    storage.trouble["rmi"] = Command(126, "", "Error: it ended\n")
    result, dummy = tick(fake)
    assert (result.removed, result.images and result.images.file_systems[0].refused[0]) == (
        (),
        "podman rmi: it ended",
    )
    assert {len(image.names) for image in storage.images.values() if "localhost/old:1" in image.names} == {2}
    assert Service.running == []


def test_two_storages_on_one_file_system_are_one_pass(fake: node.Node) -> None:
    fake.account("alice", 1000)
    fake.podmans["alice"] = Storage(fake.root, fake.podmans["root"].disk, USER_STORAGE)
    declare(fake, {**BOTH, "users": ["alice"]})
    image = fake.podmans["alice"].image("localhost/hers:1", layers={"hers": 100})
    fake.podmans["alice"].container("hers", image, created=1.0, ended=fake.time - 4 * HOUR)
    storage = crowd(fake)
    fake.podmans["alice"].containers.clear()
    storage.disk.others = 450 * MIB
    result, dummy = tick(fake)
    assert result.images is not None
    (held,) = result.images.file_systems
    assert held.users == ("root", "alice")
    # Hers was used least recently, and is enough.
    assert [(one.user, one.bytes) for one in held.removed] == [("alice", 100 * MIB)]
    assert "localhost/old:1" in storage.names()


# Between the look and the removal


def test_names_that_were_taken_come_back_when_podman_refuses(fake: node.Node, storage: Storage) -> None:
    storage.before = lambda words: (
        storage.container("late", words[-1], "running", created=fake.time) and None if words[0] == "rmi" else None
    )
    two = storage.image("localhost/old:1", "localhost/old:2", "localhost/old:3", layers={"base": 50, "old": 60})
    storage.disk.others = 520 * MIB
    tick(fake)
    assert sorted(storage.images[two].names) == ["localhost/old:1", "localhost/old:2", "localhost/old:3"]
    assert "image is in use by a container" in told(fake)["images"]["file_systems"][0]["refused"][0]
    assert drift(fake)[storage.path, "disk use"][0] == "unchangeable"


def test_an_image_with_two_names_or_a_digest_goes(fake: node.Node, storage: Storage) -> None:
    digest = f"localhost/old@sha256:{'a' * 64}"
    storage.image("localhost/old:1", digest, "localhost/old:2", layers={"base": 50, "old": 60})
    tick(fake)
    assert storage.names() == STAY


def test_an_image_that_came_into_use_stays_and_the_next_one_goes(fake: node.Node, storage: Storage) -> None:
    old = next(image.id for image in storage.images.values() if image.names == ("localhost/old:1",))

    def start(words: tuple[str, ...]) -> None:
        if words[0] == "rmi" and words[-1] == old:
            storage.container("late", old, "running", created=fake.time)

    storage.before = start
    result, dummy = tick(fake)
    assert "localhost/old:1" in storage.names()
    assert [one.names for one in result.removed] == [("localhost/mid:1",), ("localhost/new:1",)]


def test_what_max_age_was_refused_is_not_asked_again_for_the_disk(fake: node.Node) -> None:
    declare(fake, {"images": {"max_age": "5m", "keep": ["localhost/keep"]}})
    storage = crowd(fake)
    storage.trouble["rmi"] = Command(2, "", "Error: image used by 1: image is in use by a container\n")
    host = fake.host()
    tick(fake, host)
    asked = [act for act in host.acts if "rmi" in act]
    assert len(asked) == len(set(asked)) == 3


# Containers

WORKLOADS = [{"name": "web", "match": {"container": "web-*"}}, {"name": "jobs", "match": {"pod": "job-*"}}]


def dead(fake: node.Node, name: str, seconds: float, **more: t.Any) -> str:
    """A container that died so many seconds ago."""
    return fake.podmans["root"].container(
        name, "", more.pop("state", "exited"), created=fake.time - seconds - 5, ended=fake.time - seconds, **more
    )


def test_of_each_workload_the_newest_dead_ones_stay_and_of_no_workload_all(fake: node.Node) -> None:
    declare(fake, workloads=WORKLOADS)
    storage = fake.podmans["root"]
    for number in range(4):
        dead(fake, f"web-{number}", 100 - number)
        dead(fake, f"mine-{number}", 100 - number)
    dead(fake, "web-runs", 500, state="running")
    dead(fake, "web-paused", 500, state="paused")
    result, dummy = tick(fake)
    assert [one.names[0] for one in result.removed] == ["container web-0", "container web-1", "container web-2"]
    assert storage.left() == ["mine-0", "mine-1", "mine-2", "mine-3", "web-3", "web-paused", "web-runs"]


def test_scope_all_counts_by_unit_and_image_and_keeps_by_name_and_label(fake: node.Node) -> None:
    keeping = {"scope": "all", "keep": ["debug-*"], "keep_labels": ["hold", "team=a"], "max_total": 2}
    declare(fake, {"containers": keeping})
    storage = fake.podmans["root"]
    image = storage.image("localhost/tool:1")
    for number in range(3):
        for name, labels in (
            ("unit", {"PODMAN_SYSTEMD_UNIT": "a.service"}),
            ("held", {"hold": ""}),
            ("ours", {"team": "a"}),
        ):
            storage.container(f"{name}-{number}", image, created=1.0, ended=fake.time - 50 + number, labels=labels)
        storage.container(f"debug-{number}", image, created=1.0, ended=fake.time - 60)
        storage.container(f"plain-{number}", image, created=1.0, ended=fake.time - 70 + number)
        storage.container(f"theirs-{number}", image, created=1.0, ended=fake.time - 80 + number, labels={"team": "b"})
    tick(fake)
    gone = {"unit-0", "unit-1", "plain-0", "plain-1", *(f"theirs-{number}" for number in range(3))}
    assert len(storage.left()) == 18 - len(gone)
    assert not gone & set(storage.left())


def test_a_pod_goes_as_one_once_nothing_in_it_runs(fake: node.Node) -> None:
    declare(fake, {"containers": {"max_per_workload": 0}}, workloads=WORKLOADS)
    storage = fake.podmans["root"]
    for name, state_of_infra in (("job-dead", "exited"), ("job-mixed", "running")):
        pod = storage.pod(name, fake.time - 9000)
        dead(fake, f"{name}-infra", 50, pod=pod, infra=True, state=state_of_infra)
        dead(fake, f"{name}-a", 60, pod=pod, volume=f"{name}-a")
        dead(fake, f"{name}-b", 70, pod=pod, state="running" if name == "job-mixed" else "exited")
    tick(fake)
    assert storage.left() == ["job-mixed", "job-mixed-a", "job-mixed-b"]
    assert storage.volumes == {"job-dead-a", "job-mixed-a"}, "volumes were not asked for"


@pytest.mark.parametrize("volumes", [True, False])
def test_volumes_go_only_when_asked(fake: node.Node, *, volumes: bool) -> None:
    declare(fake, {"containers": {"max_per_workload": 0, "volumes": volumes}}, workloads=WORKLOADS)
    dead(fake, "web-1", 50, volume="of-web")
    pod = fake.podmans["root"].pod("job-1", fake.time - 9000)
    dead(fake, "inside", 50, pod=pod, volume="of-job")
    tick(fake)
    assert fake.podmans["root"].left() == []
    assert fake.podmans["root"].volumes == (set() if volumes else {"of-web", "of-job"})


def test_what_was_never_started_has_an_hour(fake: node.Node) -> None:
    declare(fake, {"containers": {"max_per_workload": 0}}, workloads=WORKLOADS)
    storage = fake.podmans["root"]
    storage.container("web-made", "", "created", created=fake.time)
    storage.pod("job-empty", fake.time)
    storage.pod("job-newer", fake.time + 1)
    tick(fake)
    assert storage.left() == ["job-empty", "job-newer", "web-made"]
    fake.wait(HOUR + 60)
    tick(fake)
    assert storage.left() == ["job-newer"], "of empty pods the newest stays"


def test_what_a_build_holds_is_never_touched(fake: node.Node) -> None:
    declare(fake, {"containers": {"scope": "all", "max_total": 0}})
    storage = fake.podmans["root"]
    storage.container("working", storage.image("localhost/a:1"), "storage", created=1.0, ended=0)
    tick(fake)
    assert storage.left() == ["working"]


def test_one_that_was_started_again_meanwhile_stays(fake: node.Node) -> None:
    declare(fake, {"containers": {"max_per_workload": 0}}, workloads=WORKLOADS)
    storage = fake.podmans["root"]
    again = dead(fake, "web-again", 50)
    dead(fake, "web-dead", 40)
    storage.before = lambda words: storage.change(again, state="running") if words[0] == "rm" else None
    result, dummy = tick(fake)
    assert storage.left() == ["web-again"]
    assert result.containers is not None
    assert "as it is running" in result.containers.refused[0]
    assert drift(fake)["containers", "dead"][0] == "unchangeable"


def test_a_pod_that_podman_refuses_says_why(fake: node.Node) -> None:
    declare(fake, {"containers": {"max_per_workload": 0, "volumes": True}}, workloads=WORKLOADS)
    storage = fake.podmans["root"]
    pod = storage.pod("job-1", fake.time - 9000)
    dead(fake, "inside", 50, pod=pod)

    def join(words: tuple[str, ...]) -> None:
        if words[:2] == ("pod", "rm"):
            dead(fake, "joined", 0, pod=pod, state="running")

    storage.before = join
    result, dummy = tick(fake)
    assert result.containers is not None
    assert "podman pod rm: removing container" in result.containers.refused[0]
    assert "joined" in storage.left()


def test_the_dead_of_a_workload_that_left_all_go_once_the_profile_is_valid(fake: node.Node) -> None:
    declare(fake, workloads=WORKLOADS)
    storage = fake.podmans["root"]
    dead(fake, "web-dead", 50)
    running = dead(fake, "web-runs", 0, state="running")
    dead(fake, "mine", 50)
    tick(fake)
    fake.wait(600)
    good = fake.get(state.DECLARED)
    fake.put(state.DECLARED, good.replace("web", "no name!"))
    tick(fake)
    assert storage.left() == ["mine", "web-dead", "web-runs"]
    fake.put(state.DECLARED, good)
    declare(fake, workloads=WORKLOADS[1:])
    result, dummy = tick(fake)
    assert [one.reason for one in result.removed] == ["the workload web left the profile"]
    assert storage.left() == ["mine", "web-runs"]
    fake.boot_anew()
    storage.change(running, state="exited", ended=fake.time - 10)
    tick(fake)
    assert storage.left() == ["mine"], "remembered over a reboot"
    fake.wait(600)
    tick(fake)
    dead(fake, "web-later", 50)
    fake.wait(600)
    tick(fake)
    assert storage.left() == ["mine", "web-later"], "forgotten: one of that name is nobody's now"


# What is due, and who collects


def test_each_part_has_its_own_interval(fake: node.Node) -> None:
    declare(fake)

    def asked() -> set[str]:
        fake.podmans["root"].volumes.add(f"made at {fake.time}")  # Without any change a pass asks nothing.
        host = fake.host()
        tick(fake, host)
        return {act.split()[2] for act in host.acts if act.startswith("run podman")}

    assert asked() == {"info", "images", "events", "ps", "pod"}
    fake.wait(30)
    assert asked() == set()
    fake.wait(29)
    assert asked() == {"ps", "pod"}, "a timer may be a little early"
    fake.wait(60)
    assert asked() == {"ps", "pod"}
    fake.wait(200)
    assert asked() == {"info", "images", "events", "ps", "pod"}
    fake.time -= 5000
    assert asked() == {"info", "images", "events", "ps", "pod"}, "a clock that was set back does not stop passes"


def test_two_passes_at_once_are_one(fake: node.Node, storage: Storage) -> None:
    before = storage.names()
    lock = Lock(fake.host(), gc_pass.LOCK)
    assert lock.take()
    host = fake.host()
    assert tick(fake, host)[0].images is None
    assert host.acts == []
    with pytest.raises(CorralError, match="another pass of garbage collection runs"):
        by_hand(fake, wait=0.0)
    assert storage.names() == before
    lock.release()


@pytest.mark.parametrize(
    "change",
    [{"manager": "x"}, {"verdict": "odd"}, {"reason": 5}, {"subject": ["a"]}, {"actual": 5}, {"more": ""}, None],
    ids=str,
)
def test_a_pass_that_somebody_wrote_into_is_unknown_and_no_traceback(
    change: dict[str, t.Any] | None, fake: node.Node
) -> None:
    declare(fake)
    tick(fake)
    right = change_to_dict(gc_outcome.change("images", "pass", None, None, "locked", ""))
    written = "5" if change is None else json.dumps([{**right, **change}])
    fake.put(state.GC_DRIFT, written)
    assert drift(fake) == {
        (state.GC_DRIFT, "content"): ("unknown", "not as Corral wrote it: the next pass replaces it")
    }
    fake.wait(600)
    tick(fake)
    assert drift(fake) == {}


PASS_FILES = (state.GC_RECORDS, f"{state.GC_RECORDS}.previous", state.GC_STATUS, state.GC_DRIFT)


def drop_before(fake: node.Node, moment: int) -> list[int]:
    """A rollout without gc comes right before command number ``moment`` of the next pass; how many images there are then."""
    storage, commands, counts = fake.podmans["root"], iter(range(1000)), list[int]()

    def before(dummy: tuple[str, ...]) -> None:
        if next(commands) == moment:
            came = runs.declare(fake.host(), cpu=None, memory=None, gc=None)
            assert (came.error, came.remaining) == ("", ())
            counts.append(len(storage.names()))

    storage.before = before
    return counts


@pytest.mark.parametrize("a_pass", [tick, by_hand])
def test_a_rollout_that_drops_gc_at_any_moment_of_a_pass_leaves_nothing_of_it(
    a_pass: t.Callable[[node.Node], object], fake: node.Node, storage: Storage
) -> None:
    whole, commands = fake.clone(fake.root.with_name("whole")), list[str]()
    whole.podmans["root"].before = lambda words: commands.append(words[0])
    tick(whole)
    assert len(commands) > 5
    for moment in range(len(commands)):
        twin = fake.clone(fake.root.with_name(f"before-{moment}"))
        counts = drop_before(twin, moment)
        a_pass(twin)
        assert [path for path in PASS_FILES if twin.has(path)] == [], f"dropped before command {moment}"
        # What was being removed at that moment goes; nothing after it does.
        assert counts[0] - len(twin.podmans["root"].names()) <= 1, f"dropped before command {moment}"


@pytest.mark.parametrize(
    "change",
    [{"gc": {"containers": {}}}, {"mode": "audit"}, {"gc": {"images": {"keep": ["localhost/*"]}, "containers": {}}}],
    ids=str,
)
def test_a_pass_ends_when_the_profile_says_something_else_of_it(change: dict[str, t.Any], fake: node.Node) -> None:
    declare(fake)
    storage, counts = crowd(fake), list[int]()

    def before(words: tuple[str, ...]) -> None:
        if words[0] == "rmi" and not counts:
            counts.append(len(storage.names()))
            declare(fake, **{"gc": BOTH, **change})

    storage.before = before
    tick(fake)
    assert counts[0] - len(storage.names()) <= 1, "but for the image that was being removed"
    assert (told(fake)["images"] is None) == ("images" not in change.get("gc", BOTH))


def test_a_removal_during_a_pass_leaves_no_folder(fake: node.Node) -> None:
    declare(fake)
    crowd(fake).before = lambda words: runs.remove(fake.host()) if fake.has(state.DECLARED) else None
    tick(fake)
    assert not fake.has(state.RUN)


@pytest.mark.parametrize("how", ["timer", "by hand"])
def test_what_went_is_told_when_the_lock_stays_taken(
    how: str, fake: node.Node, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Lock(fake.host())
    monkeypatch.setattr(gc_pass, "LOCK_SECONDS", 0.0)
    storage.before = lambda words: held.take() if words[0] == "rmi" and held.file < 0 else None
    result, said = tick(fake) if how == "timer" else (by_hand(fake), [])
    held.release()
    assert [one.names for one in result.removed] == [("localhost/old:1",), ("localhost/mid:1",)]
    assert result.errors == ("/run/corral/lock: another run of Corral holds it: the next pass goes on",)
    if how == "timer":
        assert sum("removed localhost/" in line for line in said) == 2
        assert "another run of Corral holds it" in said[-1]


@pytest.mark.parametrize("how", ["timer", "by hand"])
def test_containers_that_went_are_told_and_counted_when_the_lock_is_taken_before_the_images(
    how: str, fake: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(fake, gc={"images": {}, "containers": {"scope": "all", "max_per_workload": 0}})
    storage, held = fake.podmans["root"], Lock(fake.host())
    image = storage.image("localhost/a:1", layers={"a": 10})
    for name in ("one", "two"):
        storage.container(name, image, created=fake.time - 2 * HOUR, ended=fake.time - HOUR)
    monkeypatch.setattr(gc_pass, "LOCK_SECONDS", 0.0)
    before = gc_pass.image_pass.observe

    def observe(*args: t.Any) -> t.Any:
        """Another run takes the lock after the containers, and has ended when this pass does."""
        storage.image("localhost/new:1", layers={"new": 5})
        found = before(*args)
        assert held.take()
        return found

    real = gc_pass.save_records

    def save_records(*args: t.Any) -> bool:
        try:
            return real(*args)
        finally:
            held.release()

    monkeypatch.setattr(gc_pass.image_pass, "observe", observe)
    monkeypatch.setattr(gc_pass, "save_records", save_records)
    result, said = tick(fake) if how == "timer" else (by_hand(fake), [])
    assert storage.containers == {}
    assert len(result.removed) == 2
    assert result.error.startswith("/run/corral/lock: another run of Corral holds it")
    assert told(fake)["totals"] == {"images": 0, "containers": 2, "bytes": 0, "errors": 1}
    assert [line for line in said if "removed container" in line] == said[:-1]
    assert len(said) == (3 if how == "timer" else 0)


@pytest.mark.parametrize("how", ["timer", "by hand"])
@pytest.mark.parametrize("moment", ["for the node's lock", "for the other pass"])
def test_a_removal_that_ends_while_a_pass_waits_leaves_no_lock(
    moment: str, how: str, fake: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fake.fingerprint()
    declare(fake)
    take, removed = Lock.take, []

    def waits(lock: Lock, wait: float = 0.0) -> bool:
        which = lock.path == gc_pass.LOCK if moment == "for the other pass" else wait == gc_pass.LOCK_SECONDS
        if which and not removed:
            removed.append(True)
            runs.remove(fake.host())
        return take(lock, wait)

    monkeypatch.setattr(Lock, "take", waits)
    if how == "timer":
        tick(fake)
    else:
        by_hand(fake)
    assert removed
    assert node.different(before, fake.fingerprint()) == []


def test_a_pass_publishes_with_the_nodes_lock_alone(
    fake: node.Node, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment between the look at the profile and the write belongs to nobody else: a rollout waits for it."""
    fake.drop(state.GC_STATUS)
    monkeypatch.setattr(gc_pass, "LOCK_SECONDS", 0.0)
    held = Lock(fake.host())
    assert held.take()
    result, said = tick(fake)
    assert not fake.has(state.GC_STATUS)
    assert "another run of Corral holds it" in result.error
    assert "another run of Corral holds it" in said[0]
    held.release()
    tick(fake)
    assert fake.has(state.GC_STATUS)


def test_a_pass_ends_when_its_time_is_over_and_the_next_goes_on(fake: node.Node) -> None:
    declare(fake, workloads=WORKLOADS)
    storage = crowd(fake)
    storage.before = lambda words: fake.wait(200) if words[0] == "rmi" else None
    storage.disk.others = 650 * MIB
    result, dummy = tick(fake)
    assert len(result.removed) == 2
    assert told(fake)["images"]["unfinished"]
    assert drift(fake) == {}, "the next one goes on"
    fake.wait(300)
    assert ("localhost/new:1",) in [one.names for one in tick(fake)[0].removed]


def test_a_user_whose_turn_does_not_come_is_told(fake: node.Node) -> None:
    with_alice(fake)
    fake.podmans["root"].before = lambda words: fake.wait(120)
    host = fake.host()
    result, dummy = tick(fake, host)
    assert any("podman of alice: not read" in error for error in result.errors)
    assert not [act for act in host.acts if "rmi" in act]


PRUNERS = {
    "/usr/bin/podman system prune -af": True,
    "podman image prune -f": False,
    "podman image prune -f --all": True,
    "podman --log-level info volume prune": True,
    "podman rmi --all": True,
    "podman rm -fa": True,
    "podman container rm -af": True,
    "podman run --rm -a stdout tools": False,
    "podman run --rm tools tar -caf x y": False,
    "podman auto-update": False,
    "docker system prune": False,
    "podman rm -f alpha": False,
}


@pytest.mark.parametrize("line", PRUNERS)
def test_timers_and_cron_files_that_prune_are_named(line: str, fake: node.Node) -> None:
    declare(fake)
    tick(fake)
    fake.put("/etc/cron.daily/tidy", f"#!/bin/sh\n# podman system prune\n{line}\n")
    fake.put("/usr/lib/systemd/system/tidy.timer", "[Timer]\nOnCalendar=daily\nUnit=sweep.service\n")
    fake.put("/usr/lib/systemd/system/sweep.service", f"[Service]\nExecStart=/bin/true\nExecStartPost=-{line}\n")
    fake.put("/usr/lib/systemd/system/idle.timer", "[Timer]\nOnCalendar=daily\n")
    fake.put("/usr/lib/systemd/system/idle.service", f"[Service]\nExecStart={line}\n")
    wants = fake.root / "etc/systemd/system/timers.target.wants/tidy.timer"
    wants.symlink_to("/usr/lib/systemd/system/tidy.timer")
    found = {subject: reason for (subject, kind), (dummy, reason) in drift(fake).items() if kind == "owner"}
    assert set(found) == ({"/etc/cron.daily/tidy", "tidy.timer"} if PRUNERS[line] else set())
    assert all(line in reason for reason in found.values())


def test_who_removes_images_without_a_name_is_noted(fake: node.Node) -> None:
    declare(fake)
    tick(fake)
    fake.put("/etc/cron.daily/tidy", "#!/bin/sh\npodman image prune -f\n")
    host = fake.host()
    declared = declared_profile.read_declared(host)
    assert declared is not None
    (note,) = planning.plan_profile(host, planning.compile_profile(host, declared)).notes[1:2]
    assert note == "gc.images: /etc/cron.daily/tidy removes images without a name, too (podman image prune -f)"


def test_a_container_that_came_and_went_is_a_use_by_podmans_events(fake: node.Node) -> None:
    storage = fake.podmans["root"]
    first, second = storage.image("one:1"), storage.image("two:1")
    declare(fake)
    tick(fake)
    fake.wait(600)
    actor = {"Actor": {"Attributes": {"image": "one:1", "name": "x"}}}
    last, first_one = {**actor, "time": int(fake.time) - 60}, {**actor, "time": int(fake.time) - 300}
    storage.events = [last, first_one, {"Actor": 5}, [], {"Name": "one:1", "time": 5}, {**actor, "time": "soon"}]
    tick(fake)
    uses = state.checked(fake.host(), state.GC_RECORDS)["images"]["root"]
    assert (uses[first][1], uses[second][1]) == (int(fake.time) - 60, None)


def test_events_that_could_not_be_read_are_read_by_a_later_pass(fake: node.Node) -> None:
    storage = fake.podmans["root"]
    image = storage.image("one:1")
    declare(fake)
    tick(fake)
    fake.wait(600)
    moment = int(fake.time) - 300
    storage.events = [{"Actor": {"Attributes": {"image": "one:1", "name": "x"}}, "time": moment}]
    storage.trouble["events"] = Command(125, "", "Error: the journal is being rotated\n")
    for dummy in range(3):
        tick(fake)
        fake.wait(600)
    assert state.checked(fake.host(), state.GC_RECORDS)["images"]["root"][image][1] is None
    storage.trouble.clear()
    tick(fake)
    assert state.checked(fake.host(), state.GC_RECORDS)["images"]["root"][image][1] == moment


def test_a_service_whose_commands_were_taken_away_prunes_nothing(fake: node.Node) -> None:
    fake.put("/usr/lib/systemd/system/p.timer", "[Timer]\n")
    fake.put("/usr/lib/systemd/system/p.service", "[Service]\nExecStart=podman system prune\n")
    wants = fake.root / "etc/systemd/system/timers.target.wants"
    wants.mkdir(parents=True)
    (wants / "p.timer").symlink_to("/usr/lib/systemd/system/p.timer")
    assert other_gc.pruners(fake.host()) == [("p.timer", "podman system prune")]
    fake.put("/etc/systemd/system/p.service.d/own.conf", "[Service]\nExecStart=\nExecStart=/bin/true\n")
    assert other_gc.pruners(fake.host()) == []


# Records


def test_last_use_survives_a_reboot(fake: node.Node, storage: Storage) -> None:
    fake.boot_anew(3 * 24 * HOUR)
    tick(fake)
    assert "localhost/new:1" in storage.names()
    assert "localhost/old:1" not in storage.names()


def test_a_clock_that_was_set_back_makes_nothing_go_early(fake: node.Node) -> None:
    declare(fake, {"images": {"max_age": "1d", "min_age": "1h"}})
    storage = fake.podmans["root"]
    storage.image("localhost/a:1")
    tick(fake)
    fake.wait(20 * HOUR)
    tick(fake)
    fake.time -= 1000 * 24 * HOUR
    tick(fake)
    fake.wait(600)
    tick(fake)
    assert storage.names() == ["localhost/a:1"]
    fake.time += 1000 * 24 * HOUR  # and set right again
    tick(fake)
    assert storage.names() == ["localhost/a:1"]
    fake.wait(25 * HOUR)
    tick(fake)
    assert storage.names() == []


@pytest.mark.parametrize("text", ["", "{", '{"version": 1}', '{"version": 1, "checksum": "0", "data": {}}'])
def test_records_that_are_no_records_are_set_aside_and_nothing_goes_early(text: str, fake: node.Node) -> None:
    declare(fake, {"images": {"max_age": "61m", "min_age": "1h", "high": 50, "low": 10}})
    storage = crowd(fake)
    for name in (state.GC_RECORDS, f"{state.GC_RECORDS}.previous"):
        fake.put(name, text)
    before = storage.names()
    fake.wait(HOUR + 300)
    result, dummy = tick(fake)
    assert (storage.names(), result.errors) == (before, ())
    assert state.checked(fake.host(), state.GC_RECORDS)["images"]["root"]


def test_of_records_that_are_torn_the_version_before_is_used(fake: node.Node, storage: Storage) -> None:
    tick(fake)  # A version more: the one before knows the last uses.
    storage.disk.others = 680 * MIB
    storage.image("localhost/old:1", layers={"base": 50, "old": 60})
    fake.put(state.GC_RECORDS, "{")
    fake.wait(600)
    tick(fake)
    assert "localhost/new:1" not in storage.names(), "its age was not forgotten"


def test_a_link_in_place_of_the_records_is_not_followed(fake: node.Node) -> None:
    declare(fake)
    tick(fake)
    fake.put("/home/precious", "{}")
    fake.drop(state.GC_RECORDS)
    (fake.root / state.GC_RECORDS.lstrip("/")).symlink_to(fake.root / "home/precious")
    fake.podmans["root"].image("localhost/a:1")
    fake.wait(600)
    tick(fake)
    assert fake.get("/home/precious") == "{}"
    assert "localhost" not in fake.get(state.GC_RECORDS)


def test_gc_that_is_declared_anew_begins_to_watch_anew(fake: node.Node) -> None:
    aged = {"images": {"max_age": "1d", "min_age": "1h"}}
    declare(fake, aged)
    storage = fake.podmans["root"]
    storage.image("localhost/a:1")
    tick(fake)
    declare(fake, {"containers": {}})
    tick(fake)
    fake.wait(50 * HOUR)  # Nobody sees who uses it.
    declare(fake, aged)
    tick(fake)
    assert storage.names() == ["localhost/a:1"]
    runs.declare(fake.host(), cpu=None, memory=None)
    fake.wait(50 * HOUR)
    declare(fake, aged)
    tick(fake)
    assert storage.names() == ["localhost/a:1"]


def test_a_full_disk_while_records_are_written_removes_nothing(fake: node.Node) -> None:
    declare(fake, workloads=WORKLOADS)
    storage = crowd(fake)
    dead(fake, "web-1", 90)
    dead(fake, "web-2", 80)
    fake.wait(600)
    before = storage.names(), storage.left()
    first = failing.number_of(fake, lambda host: tick(host.node, host), "write_file")
    result, said = tick(fake, fake.host("error", first))
    assert (storage.names(), storage.left()) == before
    assert "cannot be written (No space left on device)" in result.error
    assert any("No space left" in line for line in said)
    assert drift(fake)["gc", "pass"][0] == "unknown"
    tick(fake)
    assert storage.names() == STAY


# Faults

LEFT = ["in-2", "job-2", "runs", "web-2", "young"]


def everything(fake: node.Node) -> t.Any:
    """What a pass is about: images with their names, containers, pods, volumes, and the drift that is left."""
    storage = fake.podmans["root"]
    named = {image.id: sorted(image.names) for image in storage.images.values()}
    return named, storage.left(), sorted(storage.volumes), drift(fake)


@pytest.fixture
def busy(fake: node.Node) -> node.Node:
    """A node with something to do for every part of a pass; half of it is not enough to be below the threshold."""
    declare(fake, {**BOTH, "images": {"low": 84, "keep": ["localhost/keep"]}}, workloads=WORKLOADS)
    storage = crowd(fake)
    storage.disk.others = 600 * MIB
    storage.image("localhost/old:1", "localhost/old:2", layers={"base": 50, "old": 60})
    young = next(image.id for image in storage.images.values() if image.names == ("localhost/young:1",))
    storage.container("young", young, "running", created=fake.time)
    for number in range(3):
        dead(fake, f"web-{number}", 100 - number, volume=f"web-{number}")
        pod = storage.pod(f"job-{number}", fake.time - 9000 + number)
        dead(fake, f"in-{number}", 200 - number, pod=pod, volume=f"job-{number}")
    return fake


FAILS = ("torn", "killed", "error")


@pytest.mark.parametrize("how", FAILS)
def test_whatever_befalls_a_pass_the_next_one_ends_the_same_and_nothing_else_is_lost(how: str, busy: node.Node) -> None:
    def act(host: node.NodeHost) -> object:
        return tick(host.node, host)

    wanted = everything(failing.tried(busy, act).node)
    assert wanted[1] == LEFT
    for fake, what in failing.each(busy, act, how, FAILS):
        kept = fake.podmans["root"]
        # In place of one that Podman refuses the next one goes.
        refused = how == "error" and {"untag", "rmi"} & set(what.split())
        stay = set(STAY) - ({"localhost/new:1"} if refused else set())
        assert stay <= set(kept.names()), what
        assert set(LEFT) <= set(kept.left()), what
        assert all(len(kept.images[id].names) == len(names) for id, names in wanted[0].items() if id in kept.images), (
            what
        )
        for dummy in range(2):
            fake.wait(600)
            tick(fake)
        found = everything(fake)
        assert found[3] == {}, what
        if not refused:
            assert found[:3] == wanted[:3], what


# The tick, the units and the command


def test_the_timer_is_installed_changed_and_removed_as_it_was(fake: node.Node) -> None:
    assert not runs.install(fake.host()).error
    runs.declare(fake.host(), cpu=None, memory=None)
    before = fake.fingerprint(*node.STATE)
    declare(fake)
    assert TIMER in fake.systemd.active
    assert fake.has(f"/etc/systemd/system/timers.target.wants/{TIMER}")
    assert "OnUnitInactiveSec=60s" in fake.get(f"/etc/systemd/system/{TIMER}")
    service = fake.get(f"/etc/systemd/system/{SERVICE}")
    assert "IOSchedulingClass=idle" in service
    assert "CPUSchedulingPolicy=idle" in service
    host = fake.host()
    assert not runs.declare(host, cpu=None, memory=None, pids=None, gc={"images": {"interval": "10m"}}).error
    assert f"run systemctl restart -- {TIMER}" in " ".join(host.acts)
    assert "OnUnitInactiveSec=600s" in fake.get(f"/etc/systemd/system/{TIMER}")
    tick(fake)
    runs.declare(fake.host(), cpu=None, memory=None)
    assert node.different(before, fake.fingerprint(*node.STATE)) == []
    assert not fake.has(state.GC_STATUS)
    assert not fake.has(state.GC_RECORDS)
    assert "removed" not in json.dumps([change.subject for change in runs.plan(fake.host())])


def test_all_users_read_what_is_published_alone(fake: node.Node) -> None:
    declare(fake)
    tick(fake)
    readable = {
        f"{state.RUN}/{path.name}"
        for path in fake.root.joinpath(state.RUN[1:]).iterdir()
        if path.stat().st_mode & 0o044
    }
    assert readable == {*state.PUBLISHED, state.GC_STATUS}


def test_a_removal_takes_the_units_and_what_passes_told(fake: node.Node) -> None:
    fake.put("/var/lib/prometheus/node-exporter/other.prom", "")
    before = fake.fingerprint()
    assert not runs.install(fake.host()).error
    declare(fake)
    tick(fake)
    assert fake.has("/var/lib/prometheus/node-exporter/corral-gc.prom")
    twin = fake.clone(fake.root.with_name("twin"))
    runs.remove(twin.host(), registry.of_profile())
    assert not any(twin.has(path) for path in (state.GC_STATUS, state.GC_DRIFT, state.GC_RECORDS))
    runs.remove(fake.host())
    assert node.different(before, fake.fingerprint()) == []


def test_a_timer_that_was_stopped_is_drift_and_is_started(fake: node.Node) -> None:
    declare(fake)
    fake.systemctl("stop", TIMER)
    assert drift(fake)[TIMER, "state"][0] == "drift"
    assert runs.tick(fake.host()) == 2
    assert TIMER in fake.systemd.active


def test_a_timer_that_runs_without_passes_is_unknown(fake: node.Node) -> None:
    declare(fake)
    tick(fake)
    fake.wait(2 * HOUR)
    assert drift(fake)[SERVICE, "last pass"][0] == "unknown"


def test_boot_leaves_the_timer_to_systemd(fake: node.Node) -> None:
    declare(fake)
    fake.boot_anew()
    fake.systemd.active.discard(TIMER)
    host = fake.host()
    assert runs.tick(host, at_boot=True) == 0
    assert not [act for act in host.acts if TIMER in act]


def test_a_converged_tick_with_gc_starts_nothing_and_writes_status_and_metrics_alone(
    fake: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.put("/var/lib/prometheus/node-exporter/other.prom", "")
    assert not runs.install(fake.host()).error
    declare(fake)
    tick(fake)
    fake.wait(10)
    assert runs.tick(fake.host()) == 0
    metrics = "/var/lib/prometheus/node-exporter/corral.prom"
    full: list[int] = []
    whole = full_tick.run
    monkeypatch.setattr(full_tick, "run", lambda *words, **more: full.append(1) or whole(*words, **more))
    for dummy in range(8):
        fake.wait(60)
        tick(fake)
        host = fake.host()
        assert runs.tick(host) == 0
        assert host.commands == []
        assert set(host.writes) <= {state.STATUS, metrics, "/run/corral/inputs"}
    assert len(full) <= 1, "but for the look in full every ten minutes"


def test_new_drift_of_a_pass_is_seen_by_the_next_tick(fake: node.Node) -> None:
    assert not runs.install(fake.host()).error
    declare(fake)
    storage = crowd(fake)
    assert runs.tick(fake.host()) == 0
    storage.disk.others = 990 * MIB
    tick(fake)
    fake.time += 1
    assert runs.tick(fake.host()) == 2


HOSTILE = "x\n\x1b[31m\u202e{}\ud800"


def test_hostile_names_and_labels_are_data_alone(fake: node.Node) -> None:
    fake.put("/var/lib/prometheus/node-exporter/other.prom", "")
    declare(fake, {"images": {}, "containers": {"scope": "all", "max_total": 0}})
    storage = fake.podmans["root"]
    image = storage.image(f"localhost/{HOSTILE}:1", layers={"bad": 900})
    for number in range(2):
        labels = {"PODMAN_SYSTEMD_UNIT": HOSTILE, HOSTILE: HOSTILE}
        storage.container(f"c{HOSTILE}{number}", image, created=1.0, ended=fake.time - 50, labels=labels)
    by_hand(fake, dry=True)
    dummy, said = tick(fake)
    storage.trouble["rmi"] = Command(2, "", f"Error: {HOSTILE}\n")
    fake.wait(600)
    said += tick(fake)[1]
    del storage.trouble["rmi"]
    said += [reason for dummy, reason in drift(fake).values()]
    assert runs.command(fake.host(), "gc", "--dry-run") == 2
    assert runs.command(fake.host(), "gc") == 0
    said += runs.printed(fake.host(), "drift", code=None).splitlines()
    assert said
    assert [line for line in said if not line.isprintable()] == []
    assert storage.names() == []
    said += fake.get("/var/lib/prometheus/node-exporter/corral-gc.prom").splitlines()
    assert [line for line in said if not line.isprintable()] == []


# What programs read


@pytest.mark.parametrize("dry", [False, True])
def test_gc_json_has_the_documented_shape(dry: bool, fake: node.Node) -> None:
    declare(fake, mode="audit" if dry else "enforce")
    storage = crowd(fake)
    assert misfits(told(fake), json_shapes.GcStatus) == []
    storage.trouble["rmi"] = Command(2, "", "Error: no\n")
    storage.disk.others = 900 * MIB
    fake.wait(600)
    tick(fake)
    found = told(fake)
    assert misfits(found, json_shapes.GcStatus) == []
    assert found["images"]["items"]


# The command line


def test_the_commands_exit_codes(fake: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    declare(fake)
    assert "nothing to collect" in runs.printed(fake.host(), "gc")
    fake.wait(600)
    storage = crowd(fake)
    assert "2 would go, about 130Mi" in runs.printed(fake.host(), "gc", "--dry-run", code=2)
    data = json.loads(runs.printed(fake.host(), "gc", "--json"))
    assert data["images"]["freed"] == 130 * MIB
    storage.disk.others = 900 * MIB
    fake.wait(600)
    runs.command(fake.host(), "gc")
    capsys.readouterr()
    assert runs.command(fake.host(), "gc") == 2, "nothing more may go, and the disk is fuller than declared"
    assert "short of" in capsys.readouterr().out
    storage.trouble["images"] = Command(125, "", "Error: no\n")
    assert "? podman images: no" in runs.printed(fake.host(), "gc", code=1)


def test_without_a_declared_gc_the_command_says_so(fake: node.Node) -> None:
    with pytest.raises(CorralError, match="no profile is declared"):
        runs.command(fake.host(), "gc")
    runs.declare(fake.host(), cpu=None, memory=None)
    assert runs.command(fake.host(), "gc") == 1


@pytest.mark.parametrize("text", ["{", None])
def test_nothing_is_removed_by_the_profile_applied_before_one_that_is_damaged(
    fake: node.Node, storage: Storage, text: str | None
) -> None:
    """The newer one may declare a workload whose containers the older one does not know."""
    if text is None:
        fake.drop(state.DECLARED)
    else:
        fake.put(state.DECLARED, text)
    before = str(fake.podmans["root"].images)
    with pytest.raises(CorralError, match=r"profile\.json"):
        runs.command(fake.host(), "gc")
    assert tick(fake)[0].error.startswith(f"{state.DECLARED}: ")
    assert str(fake.podmans["root"].images) == before


def test_drift_and_status_show_the_disk_and_the_last_pass(fake: node.Node, storage: Storage) -> None:
    tick(fake)
    shown = runs.printed(fake.host(), "drift")
    assert "gc: /var/lib/containers/storage: 77 % of 1000Mi used, images go from 85 % down to 80 %" in shown
    assert "2 images and 0 containers removed, 130Mi freed, 0 failures" in shown
    runs.tick(fake.host())
    for words in (["status"], ["status", "--html"]):
        assert "images go from 85 % down to 80 %" in runs.printed(fake.host(), *words, code=None)


def test_metrics_of_passes(fake: node.Node) -> None:
    fake.put("/var/lib/prometheus/node-exporter/other.prom", "")
    declare(fake, workloads=WORKLOADS)
    crowd(fake)
    dead(fake, "web-1", 5)
    fake.wait(60)
    tick(fake)
    rows = dict(
        line.rsplit(" ", 1)
        for line in fake.get("/var/lib/prometheus/node-exporter/corral-gc.prom").splitlines()
        if not line.startswith("#")
    )
    path = '{path="/var/lib/containers/storage"}'
    assert rows['corral_gc_removed_total{kind="images"}'] == "2"
    assert int(rows["corral_gc_freed_bytes_total"]) == 130 * MIB
    assert int(rows[f"corral_gc_available_bytes{path}"]) == 230 * MIB
    assert rows[f"corral_gc_images{path}"] == "4"
    assert rows["corral_gc_dead_containers"] == "1"
    assert rows["corral_gc_failing"] == "0"


def test_a_profile_without_an_agent_says_that_nothing_collects(fake: node.Node) -> None:
    outcome = runs.declare(fake.host(), cpu=None, memory=None, pids=None, gc={"images": {}, "containers": {}})
    assert any("collects once the agent is installed" in note for note in outcome.plan.notes)
    context = outcome.plan.context._replace(run="install")
    assert not any("agent" in note for note in planning.plan_profile(fake.host(), context).notes)
    assert any("no workloads are declared" in note for note in outcome.plan.notes)
