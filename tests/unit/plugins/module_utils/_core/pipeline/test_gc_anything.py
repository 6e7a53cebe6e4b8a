# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for a pass over any images and containers: on a fake Podman, by the code that runs on a node."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from _core.gc import container_pass, image_pass
from _core.gc.deadline import Stop
from _core.host.containers.podman_cli import Podmans
from _core.host.files import Host
from _core.model.gc.gc_records import Clock, ImageUse, Records
from _core.model.profile.profile_gc import ContainerGC, ImageGC
from _core.model.profile.profile_workloads import Workload
from fake_podman import MIB, Disk, Storage
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_700_000_000.0
DAY = 86400
LAYERS = {name: size * MIB for name, size in (("base", 100), ("mid", 50), ("top", 7), ("own", 30), ("big", 300))}
CHAINS = (("base",), ("base", "mid"), ("base", "mid", "top"), ("own",), ("big",), ())


class Bench(Host):
    """A host that is a storage alone."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root), run=lambda argv, dummy: self.storage.podman(*argv[1:]), uptime=lambda: self.up)
        self.up = 0.0
        self.storage = Storage(root, Disk())

    def stop(self) -> Stop:
        """The limit of a pass; to wait is to set the clock."""
        stop = Stop(self.uptime, 300)
        stop.wait = self.wait  # type: ignore[method-assign]
        return stop

    def wait(self, seconds: float) -> None:
        self.up += seconds

    def space(self, path: str) -> tuple[int, int, int] | None:
        return self.storage.disk.space()


@pytest.fixture(scope="module")
def bench_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


class Row(t.NamedTuple):
    """An image: its layers, names, whether it is kept, who uses it, and when it was first seen and last used (ages)."""

    chain: tuple[str, ...]
    names: int
    keep: bool
    state: str
    first: int
    last: int | None


ages = st.integers(0, 3 * DAY)
image_rows = st.lists(
    st.builds(
        Row,
        st.sampled_from(CHAINS),
        st.integers(0, 3),
        st.booleans(),
        st.sampled_from(["", "", "", "running", "exited", "created"]),
        ages,
        st.none() | ages,
    ),
    max_size=8,
)
image_policies = st.builds(
    lambda low, more, youngest, oldest: ImageGC(low + more, low, youngest, oldest and youngest + oldest, 300, ("keep*",)),
    st.integers(0, 90), st.integers(1, 10), ages, st.integers(0, DAY),
)  # fmt: skip


def filled(host: Bench, found: list[Row]) -> dict[str, Row]:
    """The storage with these images; by id."""
    rows = {}
    for number, row in enumerate(found):
        stem = f"localhost/{'keep' if row.keep else 'i'}{number}"
        layers = {name: LAYERS[name] // MIB for name in row.chain}
        names = tuple(f"{stem}:{tag}" for tag in range(row.names + row.keep))
        made = host.storage.image(*(names or (stem,)), layers=layers)
        if not names:
            host.storage.images[made] = host.storage.images[made]._replace(names=())
        rows[made] = row
        if row.state:
            host.storage.container(f"c{number}", made, row.state, created=NOW - row.first)
    return rows


def a_pass(host: Bench, policy: ImageGC, rows: dict[str, Row], watched: int, *, dry: bool) -> image_pass.Pass:
    uses = {key: ImageUse(NOW - row.first, None if row.last is None else NOW - row.last) for key, row in rows.items()}
    records = Records(NOW - watched, {"root": uses}, (), Clock(NOW, 0.0, ""))
    stop = host.stop()
    observed = image_pass.observe(Podmans(host), ("root",), records, NOW, stop)
    assert observed.errors == ()
    (storages,) = observed.by_device.values()
    done = image_pass.Pass(host, policy, storages, observed.records, NOW, stop)
    done.run(dry=dry)
    return done


@given(found=image_rows, policy=image_policies, watched=ages, others=st.integers(0, 513))
def test_a_pass_over_any_images(found: list[Row], policy: ImageGC, watched: int, others: int, bench_root: Path) -> None:
    host = Bench(bench_root)
    rows = filled(host, found)
    host.storage.disk.others = others * MIB
    before = set(host.storage.images)
    planned = a_pass(host, policy, rows, watched, dry=True).result()
    assert set(host.storage.images) == before
    done = a_pass(host, policy, rows, watched, dry=False).result()
    assert [(one.id, one.bytes) for one in planned.removed] == [(one.id, one.bytes) for one in done.removed]
    assert before - set(host.storage.images) == {one.id for one in done.removed}
    space = host.storage.disk.space()
    assert space is not None
    assert done.available == space[2]
    assert done.refused == ()
    for_disk = [one for one in done.removed if one.reason.startswith("the disk")]
    for one in done.removed:
        row = rows[one.id]
        assert not row.state
        assert not row.keep
        assert row.first >= policy.min_age
    for one in done.removed[: len(done.removed) - len(for_disk)]:
        row = rows[one.id]
        assert policy.max_age
        assert watched > policy.max_age
        assert (row.first if row.last is None else row.last) > policy.max_age
    assert sum(one.bytes for one in for_disk[:-1]) < done.asked or not for_disk
    used = [-1 if rows[one.id].last is None else NOW - t.cast("int", rows[one.id].last) for one in for_disk]
    assert used == sorted(used)
    if done.short:
        left = [rows[key] for key in host.storage.images if not rows[key].state and not rows[key].keep]
        assert all(row.first < policy.min_age or row.last == 0 for row in left)
        assert done.why


STATES = ["exited", "exited", "exited", "running", "paused", "created", "stopping", "removing", "storage", "unknown"]
container_rows = st.lists(
    st.tuples(
        st.sampled_from(["web", "job", "gone", "nobody"]), st.sampled_from(STATES), st.integers(0, 100), st.booleans()
    ),
    max_size=14,
)
container_policies = st.builds(
    ContainerGC, st.integers(0, 100), st.integers(-1, 3), st.integers(-1, 5), st.sampled_from(["declared", "all"]), st.just(60),
    st.booleans(), st.just(("*-keep",)), st.just(()),
)  # fmt: skip
DECLARED = (Workload("web", "container", "web-*"), Workload("job", "container", "job-*"))


@given(found=container_rows, policy=container_policies)
def test_a_pass_over_any_containers(
    found: list[tuple[str, str, int, bool]], policy: ContainerGC, bench_root: Path
) -> None:
    host = Bench(bench_root)
    for number, (owner, state, age, keep) in enumerate(found):
        ended = {"ended": NOW - age} if state == "exited" else {}
        host.storage.container(f"{owner}-{number}{'-keep' * keep}", "", state, created=NOW - age, **ended)
    before = dict(host.storage.containers)
    records = Records(NOW, {}, (*DECLARED, Workload("gone", "container", "gone-*")), Clock(NOW, 0.0, ""))
    stop = host.stop()
    planned = container_pass.run(
        container_pass.observe(Podmans(host), ("root",), DECLARED, records, NOW, stop), policy, NOW, stop, dry=True
    )
    assert host.storage.containers == before
    observed = container_pass.observe(Podmans(host), ("root",), DECLARED, records, NOW, stop)
    done = container_pass.run(observed, policy, NOW, stop, dry=False)
    assert planned == done
    gone = [before[one.id] for one in done.removed]
    assert {one.id for one in gone} == set(before) - set(host.storage.containers)
    assert [one.ended for one in gone] == sorted(one.ended for one in gone)
    for one in gone:
        assert one.state == "exited"
        assert not one.name.endswith("-keep")
        assert NOW - one.ended >= policy.min_age
        assert policy.scope == "all" or not one.name.startswith("nobody")
    left = [
        one for one in before.values() if one not in gone and one.state == "exited" and not one.name.endswith("-keep")
    ]
    old = [one for one in left if NOW - one.ended >= policy.min_age]
    assert not [one for one in old if one.name.startswith("gone")]
    theirs = [one for one in old if policy.scope == "all" or not one.name.startswith("nobody")]
    for owner in ("web", "job", "nobody"):
        own = [one for one in theirs if one.name.startswith(owner)]
        assert policy.max_per_workload < 0 or len(own) <= policy.max_per_workload
    assert policy.max_total < 0 or len(theirs) <= policy.max_total
    kept = {one.name for one in observed.records.workloads}
    assert ("gone" in kept) is any(
        one.name.startswith("gone") and one.state not in ("storage", "unknown") for one in before.values()
    )
