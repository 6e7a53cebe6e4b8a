# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what cannot be read nothing follows: a lasting error on each path that a run reads, one at a time."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import typing as t
from unittest import mock

import fake_kubelet
import node
import pytest
import runs
import services
import test_devices_granted
import test_workload_faults
import test_workloads
from _core.host import recorded_inputs, state
from _core.host.agent import node_hooks
from _core.host.command import Command
from _core.host.files import Unreadable
from _core.host.plan import apply_step
from _core.model.agent.agent_units import TIMER
from _core.model.plan import make_step
from _core.model.plan.plan import START
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import applying, locked_run
from read_faults import ERRORS, Reads
from test_workloads import BATCH, PROFILE

Make = t.Callable[..., node.Node]
# What a tick publishes, and what it keeps of its look.
PUBLISHED = {state.STATUS, recorded_inputs.KEPT}
HOLDER, ESCAPED = "corral-grant@batch:batch\\x40a.service", "batch:batch\\x40a"

# Paths for which another rule holds, and why.
APART = {
    "/run/corral": "no status can be written into a folder that cannot be looked at: the journal has the error",
}


def status(fake: node.Node) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(fake.get(state.STATUS)))


def with_workloads(fake: node.Node) -> None:
    test_workload_faults.running(fake)


def with_edge(fake: node.Node) -> None:
    runs.converged(fake, with_agent=True)


def with_devices(fake: node.Node) -> None:
    test_devices_granted.equip(fake)
    assert not runs.install(fake.host()).error
    assert test_devices_granted.roll_out(fake).remaining == ()
    assert services.start(fake, test_devices_granted.DPDK), fake.said


def with_kubelet(fake: node.Node) -> None:
    fake_kubelet.install(fake)
    assert not runs.install(fake.host()).error
    static = {"cpu_manager_policy": "static", "cpu_manager_policy_options": {"strict-cpu-reservation": True}}
    assert not runs.declare(fake.host(), kubelet=static).error


NODES = {"workloads": with_workloads, "edge": with_edge, "devices": with_devices, "kubelet": with_kubelet}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STEADY_SECONDS", "HEALTH_SECONDS", "READY_SECONDS"):
        monkeypatch.setattr(node_hooks, name, 0.0)


@pytest.fixture
def reads(fake: node.Node) -> t.Iterator[Reads]:
    with pytest.MonkeyPatch.context() as patch:
        yield Reads(str(fake.root), patch)


def quiet_tick(fake: node.Node) -> None:
    """A tick that finds the node in sync, and changes nothing."""
    fake.wait(10)
    host = fake.host()
    assert runs.tick(host) == 0, status(fake)
    assert status(fake)["in_sync"]
    assert {*host.writes} <= PUBLISHED
    assert host.commands == []


def in_full(fake: node.Node) -> None:
    """The next tick looks at everything."""
    if fake.has(recorded_inputs.KEPT):
        fake.drop(recorded_inputs.KEPT)


def settle(fake: node.Node) -> None:
    for dummy in range(3):
        fake.wait(10)
        if runs.tick(fake.host()) == 0:
            break
    quiet_tick(fake)


def told(fake: node.Node, path: str, number: int) -> bool:
    """Whether the status says so: not in sync, the verdict unknown, the path and the errno."""
    now = status(fake)
    name = errno.errorcode[number]
    items = [one for one in now["items"] if one["verdict"] == "unknown"]
    return not now["in_sync"] and any(one["location"] == path and name in one["reason"] for one in items)


def faults(reads: Reads, paths: t.Iterable[str]) -> t.Iterator[tuple[str, int]]:
    """Each path, and the errors one after the other."""
    for index, path in enumerate(paths):
        reads.fail(path, ERRORS[index % len(ERRORS)])
        yield path, reads.number
        reads.fail("", 0)


@pytest.mark.parametrize("name", NODES)
def test_a_tick_leaves_a_node_alone_whatever_cannot_be_read(name: str, fake: node.Node, reads: Reads) -> None:
    NODES[name](fake)
    settle(fake)
    in_full(fake)
    reads.seen.clear()
    quiet_tick(fake)
    wrong = []
    for index, (path, number) in enumerate(faults(reads, list(reads.seen))):
        in_full(fake)
        host = fake.host()
        try:
            code = runs.tick(host)
        except Unreadable as error:
            code = 1 if path in APART and error.path == path else -1
        told_so = path in APART or told(fake, path, number)
        extra = {*host.writes} - PUBLISHED
        if code != 1 or not told_so or extra or host.commands or not reads.hits:
            wrong.append((path, number, code, told_so, extra, host.commands, reads.hits))
        if index % 16 == 0:
            reads.fail("", 0)
            quiet_tick(fake)
    quiet_tick(fake)
    assert wrong == []
    assert len(reads.seen) > 150


def test_a_short_tick_takes_no_error_for_an_answer_that_it_knows(
    fake: node.Node, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_inputs, "STEADY_SECONDS", -3600)
    with_workloads(fake)
    settle(fake)
    reads.seen.clear()
    quiet_tick(fake)
    wrong = []
    for path, number in faults(reads, list(reads.seen)):
        host = fake.host()
        code = -1
        try:
            code = runs.tick(host)
        except Unreadable as error:
            code = 1 if path in APART and error.path == path else -1
        if code != 1 or not (path in APART or told(fake, path, number)) or {*host.writes} - PUBLISHED:
            wrong.append((path, number, code, host.writes))
        reads.fail("", 0)
        quiet_tick(fake)
    assert wrong == []


@pytest.mark.parametrize(
    ("dummy_why", "file"),
    [
        ("a pool that may be left out keeps its pages", node.pool_file(0)),
        ("the CPUs of a slice are not all", "/sys/fs/cgroup/system.slice/cpuset.cpus"),
        ("nor are they none", "/sys/fs/cgroup/corral_isolated.slice/cpuset.cpus"),
    ],
)
def test_an_error_of_the_kernel_gives_nothing_away(dummy_why: str, file: str, fake: node.Node, reads: Reads) -> None:
    with_edge(fake)
    settle(fake)
    before = fake.get(file)
    assert before.strip() not in ("", "0")
    in_full(fake)
    reads.fail(file, errno.EIO)
    with pytest.raises(Unreadable, match=r"nr_hugepages|cpuset\.cpus"):
        runs.declare(fake.host())
    assert runs.tick(fake.host()) == 1
    assert told(fake, file, errno.EIO)
    assert fake.get(file) == before
    reads.fail("", 0)
    quiet_tick(fake)


# Runs that change a node


class Run(t.NamedTuple):
    """A node is prepared, then a run does something with it."""

    prepare: t.Callable[[node.Node], None]
    act: t.Callable[[node.Node, node.NodeHost], t.Any]


def roll_out(dummy: node.Node, host: node.NodeHost) -> str:
    outcome = locked_run.locked(host, lambda: applying.declare(host, profile.parse(PROFILE)))
    left = (f"{one.location} {one.reason}" for one in outcome.remaining)
    return "\n".join([outcome.error, *outcome.leftovers, *left])


def ready_to_start(fake: node.Node) -> None:
    test_workload_faults.rolled(fake)
    services.invocation(fake, HOLDER)
    fake.systemd.run_slice(services.slice_of(fake, BATCH))


def admit(fake: node.Node, host: node.NodeHost) -> None:
    grant_unit(fake, host, "admit", "--start")


def stopped(fake: node.Node) -> None:
    test_workload_faults.running(fake)
    services.end(fake, BATCH)


def release(fake: node.Node, host: node.NodeHost) -> None:
    grant_unit(fake, host, "release", "--stop")


def grant_unit(fake: node.Node, host: node.NodeHost, *words: str) -> None:
    ident = os.readlink(fake.root / node.INVOCATIONS / f"invocation:{HOLDER}")
    with mock.patch.dict(os.environ, {"INVOCATION_ID": ident}):
        if runs.command(host, *words, ESCAPED) not in (0, 2):
            raise CorralError(*())


def booted(fake: node.Node) -> None:
    test_workload_faults.rolled(fake)
    for unit in list(fake.runs):
        services.stop(fake, unit)
    fake.boot_anew()


def boot(fake: node.Node, host: node.NodeHost) -> None:
    code = runs.tick(host, at_boot=True)
    if code == 1:
        (item,) = status(fake)["items"]
        raise CorralError(*()) if item["verdict"] != "unknown" else Unreadable(item["location"], 0)


RUNS = {
    "rollout": Run(test_workload_faults.fresh, roll_out),
    "admission": Run(ready_to_start, admit),
    "release": Run(stopped, release),
    "boot": Run(booted, boot),
}


def changes(act: str) -> bool:
    """Whether an act changes anything but the status, and the folder for it."""
    what = act.split(" ", 1)[1]
    return what not in {*PUBLISHED, "/run/corral"} and not what.startswith(("systemctl is-", "systemctl show"))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_changes_nothing_whatever_cannot_be_read_before_its_first_write(name: str, fake: node.Node) -> None:
    run = RUNS[name]
    run.prepare(fake)
    twin = fake.clone(fake.root.with_name("twin"))
    with pytest.MonkeyPatch.context() as patch:
        reads = Reads(str(twin.root), patch)
        begun: list[int] = []

        def then(number: int) -> None:
            if changes(host.acts[number - 1]):
                begun.append(len(reads.seen))

        host = twin.host(then=then)
        run.act(twin, host)
    paths = list(reads.seen)
    assert begun
    assert begun[0] > 30
    wrong = []
    with pytest.MonkeyPatch.context() as patch:
        reads = Reads(str(fake.root), patch)
        # A rollout plans for each: in the usual run one of so many paths, the ticks above have all.
        for path, number in faults(reads, paths[: begun[0] : 1 if os.environ.get("CORRAL_LONG") else 3]):
            host = fake.host()
            try:
                run.act(fake, host)
                said = "nothing"
            except (Unreadable, CorralError) as error:
                said = getattr(error, "path", str(error))
            acts = list(filter(changes, host.acts))
            if said != path or acts:
                wrong.append((path, number, said, acts))
    assert wrong == []
    run.act(fake, fake.host())
    test_workload_faults.settled(fake)


def read_after_first_write(run: Run, fake: node.Node) -> list[str]:
    """The paths that a run reads once it has changed something."""
    begun: list[str] = []

    def then(number: int) -> None:
        if changes(host.acts[number - 1]) and not begun:
            begun.append(host.acts[number - 1])
            reads.seen.clear()

    with pytest.MonkeyPatch.context() as patch:
        reads = Reads(str(fake.root), patch)
        host = fake.host(then=then)
        run.act(fake, host)
    return list(reads.seen)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_cannot_read_on_says_so_and_the_next_runs_make_it_good(
    name: str, fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RUNS[name]
    run.prepare(fake)
    right = fake.clone(fake.root.with_name("right"))
    paths = read_after_first_write(run, right)
    test_workload_faults.settled(right)
    wanted, held = test_workload_faults.seen(right), test_workloads.held(right)
    assert paths
    wrong = []
    for index, path in enumerate(paths[:: 1 if os.environ.get("CORRAL_LONG") else 8]):
        number = ERRORS[index % len(ERRORS)]
        twin = fake.clone(fake.root.with_name("twin"))
        capsys.readouterr()
        said, hits = cannot_read_on(run, twin, path, number)
        captured = capsys.readouterr()
        said += captured.err + captured.out + (twin.get(state.STATUS) if twin.has(state.STATUS) else "")
        if hits and not (path in said and errno.errorcode[number] in said):
            wrong.append(f"{path} {number}: nothing says so")
        with contextlib.suppress(CorralError):
            run.act(twin, twin.host())
        test_workload_faults.settled(twin)
        if test_workloads.held(twin) != held:
            wrong.append(f"{path} {number}: {test_workloads.held(twin)}")
        wrong += [f"{path} {number}: {line}" for line in node.different(wanted, test_workload_faults.seen(twin))]
        shutil.rmtree(twin.root)
    assert wrong == []


def cannot_read_on(run: Run, fake: node.Node, path: str, number: int) -> tuple[str, int]:
    """A run to which a path fails once it has changed something: what it says, and how often it was told."""

    def then(act: int) -> None:
        if changes(host.acts[act - 1]) and not reads.path:
            reads.fail(path, number)

    with pytest.MonkeyPatch.context() as patch:
        reads = Reads(str(fake.root), patch)
        host = fake.host(then=then)
        try:
            return str(run.act(fake, host)), reads.hits
        except (Unreadable, CorralError) as error:
            return str(error), reads.hits


def test_a_unit_of_which_systemd_says_nothing_is_not_taken_for_stopped(
    fake: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that fails its undoing would stop what ran, and a removal as well."""
    runs.converged(fake, with_agent=True)
    answers = fake.systemd.systemctl
    hangs = Command(124, "", "systemctl: no answer within 60 s")
    monkeypatch.setattr(fake.systemd, "systemctl", lambda *words: hangs if words[0] == "is-active" else answers(*words))
    before, host = fake.fingerprint("run/corral"), fake.host()
    said = f"systemd: cannot be read: whether {TIMER} is active: systemctl: no answer within 60 s"
    with pytest.raises(Unreadable, match=said):
        apply_step.observe(host, make_step.unit(TIMER, "restart", START))
    with pytest.raises(Unreadable, match=r"systemd: cannot be read: whether corral-.* is active: systemctl: no answer"):
        runs.install(host, options=runs.OPTIONS._replace(interval=60))
    assert (host.acts, fake.fingerprint("run/corral")) == ([], before)


@pytest.mark.parametrize(
    "path", [state.APPLIED, *state.rest_of(state.HISTORY), *state.rest_of(state.BEFORE), *state.PUBLISHED]
)
def test_a_socket_in_place_of_a_file_of_corrals_is_mended(path: str, fake: node.Node) -> None:
    """A socket cannot be read (ENXIO): it is damage as a folder is, and unlike one it is replaced."""
    runs.converged(fake, with_agent=True)
    runs.tick(fake.host())
    file = fake.root / path.lstrip("/")
    before = file.read_text(encoding="utf-8")
    file.unlink()
    os.mknod(file, stat.S_IFSOCK | 0o600)
    runs.tick(fake.host())
    assert runs.tick(fake.host()) == 0
    assert status(fake)["in_sync"] and status(fake)["error"] is None
    assert path == state.STATUS or file.read_text(encoding="utf-8") == before
