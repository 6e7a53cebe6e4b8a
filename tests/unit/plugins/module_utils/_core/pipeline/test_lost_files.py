# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each file of Corral's own, lost in each way while grants run: nothing is given away, and the file is named and comes back."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import shutil
import typing as t
from pathlib import Path

import failing
import node
import pytest
import runs
import services
from _core.host import state
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import applying, confirming, locked_run

DATAPLANE, JOB, LATE = "dataplane.service", "job.service", "late.service"
PROFILE: dict[str, t.Any] = {
    "name": "lost",
    "cpu": {"reserved": {"cpus": "0,4"}, "policy": "static"},
    "workloads": [
        {"name": "dataplane", "match": {"unit": DATAPLANE}, "limits": {"cpu": 1, "memory": "64Mi"}},
        *(
            {
                "name": name,
                "match": {"unit": f"{name}.service"},
                "hold": "running",
                "limits": {"cpu": 1, "memory": "64Mi"},
            }
            for name in ("job", "late")
        ),
    ],
}
HOW = ("deleted", "emptied", "torn", "folder", "link loop", "FIFO", "older")
LASTING = {one.path: one for one in state.FILES if one.lasts}
# What is there on a node only at some times: see AT_TIMES. Those of devices and of gc: test_drivers_bound.py, test_gc.py.
SOMETIMES = (
    state.UNCONFIRMED,
    state.REJECTED,
    state.PAUSE,
    state.DRAINED,
    state.SINCE,
    state.PCI_USED,
    state.GC_RECORDS,
)
USUAL = tuple(
    path
    for one in LASTING.values()
    if one.path not in SOMETIMES
    for path in ([one.path, f"{one.path}.previous"] if one.spare == state.BESIDE else [one.path])
)
DERIVED = (state.EFFECTIVE_PROFILE, state.SINCE)  # Each look writes them.
# Gone is what these are most of the time, or may be: nothing tells that there was one.
MAY_BE_GONE = (state.ORIGINS, state.EFFECTIVE_PROFILE, *SOMETIMES)
# Each way for these; of two ways that one function answers alike the others have one, unless CORRAL_LONG is set.
IN_EACH_WAY = (state.DECLARED, state.APPLIED, state.CHECKPOINT, state.ADMITTED, state.BEFORE)
ALIKE = (("emptied", "torn"), ("link loop", "FIFO"))
LONG = bool(os.environ.get("CORRAL_LONG"))
SECONDS = 600
LATER_SYSCTL = "/etc/sysctl.d/99-later.conf"


def declare(fake: node.Node, **sections: t.Any) -> t.Any:
    data = {**copy.deepcopy(PROFILE), **sections}
    origins = dict.fromkeys(("name", "cpu.policy"), "group_vars")
    return locked_run.published(fake.host(), applying.declare(fake.host(), profile.parse(data), origins))


OLDER: dict[str, str] = {}  # what the files were between the two rollouts, by path


def rolled(fake: node.Node) -> None:
    """Roll out twice and start workloads."""
    services.add(fake, DATAPLANE, JOB, LATE, "one.service")
    assert not runs.install(fake.host()).error
    assert not declare(fake, pids={"pid_max": 50000}).error
    OLDER.update({path: fake.get(path) for path in USUAL if fake.has(path)})
    assert runs.command(fake.host(), "admit", "one", "--unit", "one.service", "--limits", "cpu=1,memory=64Mi") == 0
    assert not declare(fake, pids={"pid_max": 60000}).error
    for unit in (DATAPLANE, JOB, "one.service"):
        assert services.start(fake, unit)
    fake.wait(10)
    assert runs.tick(fake.host()) == 0


@pytest.fixture
def fake(made_once: node.MadeOnce) -> node.Node:
    """A node after two rollouts, on which workloads run."""
    return made_once(rolled)


def damage(fake: node.Node, path: str, how: str) -> None:
    file, text = fake.root / path.lstrip("/"), fake.get(path)
    fake.drop(path)
    if how == "folder":
        file.mkdir()
        (file / "note").write_text("mine")
    elif how == "link loop":
        file.symlink_to(file.name)
    elif how == "FIFO":
        os.mkfifo(file)
    elif how != "deleted":
        fake.put(path, {"emptied": "", "torn": text[: len(text) // 2], "older": OLDER.get(path, "")}[how])


def ways(path: str) -> list[str]:
    turn = [*LASTING].index(path.removesuffix(".previous")) + path.endswith(".previous")
    left_out = () if LONG or path in IN_EACH_WAY else [two[turn % 2] for two in ALIKE]
    return [how for how in HOW if how not in left_out]


def cpus(fake: node.Node, *names: str) -> dict[str, str]:
    """What the kernel has for the slices of workloads."""
    return {
        name: f"{fake.get(f'/sys/fs/cgroup/corral_{name}.slice/cpuset.cpus')} "
        f"{fake.get(f'/sys/fs/cgroup/corral_{name}.slice/cpuset.cpus.partition')}"
        for name in names
    }


def told(fake: node.Node) -> str:
    status = json.loads(fake.get(state.STATUS))
    return json.dumps([status["items"], status["error"]])


def unconfirmed(fake: node.Node) -> None:
    declared = profile.parse({**copy.deepcopy(PROFILE), "pids": {"pid_max": 70000}})
    outcome = locked_run.locked(
        fake.host(), lambda: confirming.declare(fake.host(), declared, None, confirming.Terms(SECONDS))
    )
    assert not outcome.error
    assert fake.get("/proc/sys/kernel/pid_max") == "70000\n"


def went_back(fake: node.Node) -> None:
    unconfirmed(fake)
    fake.wait(SECONDS + 1)
    runs.command(fake.host(), "confirm", "--tick")
    assert fake.get("/proc/sys/kernel/pid_max") == "60000\n"


def paused(fake: node.Node) -> None:
    assert runs.command(fake.host(), "pause", "--for", "1d") == 0


def drifted(fake: node.Node) -> None:
    fake.put(LATER_SYSCTL, "kernel.pid_max = 50000\n")


def drained(fake: node.Node) -> None:
    fake.put(state.DRAINED, "/usr/sbin/drainer\n")


AT_TIMES = {
    state.UNCONFIRMED: unconfirmed,
    state.REJECTED: went_back,
    state.PAUSE: paused,
    state.DRAINED: drained,
    state.SINCE: drifted,
}


@pytest.mark.parametrize("path", [*USUAL, *AT_TIMES])
def test_what_runs_keeps_its_cpus_and_the_file_is_named_and_comes_back(
    path: str, fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    if path in AT_TIMES:
        AT_TIMES[path](fake)
        fake.wait(10)
        runs.tick(fake.host())
    assert fake.has(path)
    for how in ways(path):
        if how != "older" or OLDER.get(path) not in (None, fake.get(path)):
            lose(fake.clone(fake.root.with_name(how.replace(" ", "-"))), path, how, capsys)


def lose(fake: node.Node, path: str, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Damage a file; then a tick, a start, a stop, the run that mends it, and a boot. An intruder ends a partition meanwhile."""
    running = ("dataplane", "job", "one")
    before = cpus(fake, *running)
    damage(fake, path, how)
    with fake.by_hand():
        fake.kernel_write("/sys/fs/cgroup/corral_dataplane.slice/cpuset.cpus.partition", "member")
    capsys.readouterr()
    fake.wait(10)
    runs.tick(fake.host())
    keeps = path != state.PAUSE or how == "deleted"
    assert (cpus(fake, *running) == before) == keeps, how
    if how != "older" and not (how == "deleted" and path in MAY_BE_GONE) and path not in DERIVED:
        assert path in told(fake) + capsys.readouterr().err, how
    if keeps:
        assert services.start(fake, LATE)
        assert cpus(fake, *running) == before
        services.stop(fake, LATE)
        services.stop(fake, JOB)
        assert services.start(fake, JOB)
    fake.wait(10)
    runs.tick(fake.host())
    mend(fake, path)
    assert cpus(fake, "dataplane", "one") == {name: before[name] for name in ("dataplane", "one")}
    fake.wait(10)
    runs.tick(fake.host())
    assert runs.tick(fake.host()) == 0, (how, told(fake))
    assert fake.has(path) or path in MAY_BE_GONE
    if how == "folder" and fake.has(path):
        assert fake.get(f"{path}.folder/note") == "mine"
    services.reboot(fake)
    assert services.start(fake, DATAPLANE)
    assert cpus(fake, "dataplane", "one") == {name: before[name] for name in ("dataplane", "one")}, how


def mend(fake: node.Node, path: str) -> None:
    """What the table says, where a tick does not bring it back."""
    if path in (state.AGENT, state.PROGRAM):
        assert not runs.install(fake.host()).error
    if path in (state.UNCONFIRMED, state.REJECTED, state.DRAINED) and fake.has(path):
        file = fake.root / path.lstrip("/")
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    if path == state.PAUSE:
        assert runs.command(fake.host(), "resume") in (0, 2)
    if path == state.SINCE:
        fake.drop(LATER_SYSCTL)
    assert not declare(fake, pids={"pid_max": 60000}).error


def lose_before_boot(fake: node.Node, path: str, how: str) -> None:
    """Damage a file and boot: grants are as they were, whichever file the boot looks at first."""
    before = cpus(fake, "dataplane", "one")
    damage(fake, path, how)
    services.reboot(fake)
    assert services.start(fake, DATAPLANE), how
    assert cpus(fake, "dataplane", "one") == before, how
    fake.wait(10)
    runs.tick(fake.host())
    assert services.start(fake, DATAPLANE), how
    assert cpus(fake, "dataplane", "one") == before, how


@pytest.mark.parametrize(
    "path", [state.DECLARED, state.APPLIED, *state.rest_of(state.CHECKPOINT), state.ADMITTED, state.HISTORY]
)
def test_a_boot_after_the_loss_brings_grants_back(path: str, fake: node.Node) -> None:
    for how in HOW:
        if how != "older" or OLDER.get(path) not in (None, fake.get(path)):
            lose_before_boot(fake.clone(fake.root.with_name(how.replace(" ", "-"))), path, how)


TOGETHER = (
    *((one.path, f"{one.path}.previous") for one in state.FILES if f"{one.path}.previous" in USUAL),
    *itertools.combinations((state.DECLARED, state.APPLIED, state.HISTORY, f"{state.HISTORY}.previous"), 2),
)


def pairs() -> list[tuple[str, str]]:
    """Every two files, or those that stand for each other and some others."""
    every = list(itertools.combinations(USUAL, 2))
    return every if LONG else list(dict.fromkeys((*TOGETHER, *every[::7])))


@pytest.mark.parametrize("turn", range(len(HOW) if LONG else 1))
def test_what_runs_keeps_its_cpus_whichever_two_files_are_lost(turn: int, fake: node.Node) -> None:
    for number, two in enumerate(pairs()):
        hows = [HOW[(number + turn) % len(HOW)], HOW[(number * 3 + turn) % len(HOW)]]
        twin = fake.clone(fake.root.with_name(f"pair-{number}"))
        try:
            lose_two(twin, list(zip(two, hows)))
        except AssertionError as error:
            raise AssertionError(f"{two} {hows}: {error}") from error
        shutil.rmtree(twin.root)


def lose_two(fake: node.Node, lost: list[tuple[str, str]]) -> None:
    """Damage files; then a tick, a start, a stop, a boot, and the rollout. No two have a CPU meanwhile (see conftest.py)."""
    running = ("dataplane", "job", "one")
    before = cpus(fake, *running)
    for path, how in lost:
        damage(fake, path, how)
    fake.wait(10)
    runs.tick(fake.host())
    assert cpus(fake, *running) == before
    services.start(fake, LATE)
    assert cpus(fake, *running) == before
    services.stop(fake, JOB)
    assert cpus(fake, "dataplane", "one") == {name: before[name] for name in ("dataplane", "one")}
    services.reboot(fake)
    services.start(fake, DATAPLANE)
    assert not runs.install(fake.host()).error
    assert not declare(fake, pids={"pid_max": 60000}).error
    fake.wait(10)
    runs.tick(fake.host())
    assert DATAPLANE in fake.runs or services.start(fake, DATAPLANE), fake.said
    assert cpus(fake, "dataplane") == {"dataplane": before["dataplane"]}


@pytest.mark.parametrize("others", [[f"{state.CHECKPOINT}.previous"], []])
def test_an_earlier_checkpoint_takes_no_cpus_of_a_run(others: list[str], fake: node.Node) -> None:
    earlier = fake.get(state.CHECKPOINT)
    services.stop(fake, JOB)
    runs.tick(fake.host())
    assert services.start(fake, LATE)
    before = cpus(fake, "dataplane", "one", "late")
    for path in (state.CHECKPOINT, *others):
        fake.put(path, earlier)
    assert services.start(fake, JOB), "one CPU is left"
    assert cpus(fake, "dataplane", "one", "late") == before
    fake.wait(10)
    runs.tick(fake.host())
    assert cpus(fake, "dataplane", "one", "late") == before
    assert runs.tick(fake.host()) == 0
    held = {row["workload"] for row in json.loads(fake.get(state.CHECKPOINT))["data"]["grants"]}
    assert held == {"dataplane", "one", "late", "job"}


def test_an_earlier_checkpoint_is_named(fake: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    empty = {**json.loads(fake.get(state.CHECKPOINT))["data"], "grants": []}
    for path in state.rest_of(state.CHECKPOINT):
        fake.put(path, state.checked_text(empty))
    before = cpus(fake, "dataplane", "job", "one")
    fake.wait(10)
    runs.tick(fake.host())
    assert f"{state.CHECKPOINT} is an earlier one, set aside: dataplane runs on CPUs" in capsys.readouterr().err
    assert cpus(fake, "dataplane", "job", "one") == before
    assert runs.tick(fake.host()) == 0


def test_without_the_profile_and_the_one_applied_last_nothing_changes(fake: node.Node) -> None:
    before = cpus(fake, "dataplane", "job", "one")
    fake.drop(state.DECLARED)
    fake.drop(state.APPLIED)
    fake.wait(10)
    assert runs.tick(fake.host()) == 1
    assert "profile.json: is gone" in told(fake)
    assert services.start(fake, LATE) is None
    services.stop(fake, JOB)
    assert cpus(fake, "dataplane", "one") == {name: before[name] for name in ("dataplane", "one")}
    assert not declare(fake, pids={"pid_max": 60000}).error
    fake.wait(10)
    runs.tick(fake.host())
    assert runs.tick(fake.host()) == 0


@pytest.mark.parametrize("path", [state.BEFORE, f"{state.BEFORE}.previous"])
def test_originals_are_there_twice_again_after_a_tick(path: str, make: t.Callable[..., node.Node]) -> None:
    fake = make()
    first = fake.fingerprint()
    rolled(fake)
    older = fake.get(path)
    assert not declare(fake, pids={"pid_max": 60000, "threads_max": 30000}).error
    for text in (None, older):
        fake.drop(path) if text is None else fake.put(path, text)
        fake.wait(10)
        runs.tick(fake.host())
        assert fake.get(state.BEFORE) == fake.get(f"{state.BEFORE}.previous")
        assert runs.tick(fake.host()) == 0
    other = next(one for one in state.rest_of(state.BEFORE) if one != path)
    fake.drop(other)
    for unit in (DATAPLANE, JOB, "one.service"):
        services.stop(fake, unit)
    assert not runs.remove(fake.host()).error
    assert [line for line in node.different(first, fake.fingerprint()) if "lib/systemd" not in line] == []


def test_a_killed_removal_ends_the_profile(fake: node.Node) -> None:
    for unit in (DATAPLANE, JOB, "one.service"):
        services.stop(fake, unit)
    gone = failing.number_of(fake, runs.remove, f"remove {state.DECLARED}")
    with pytest.raises(node.Killed):
        runs.remove(fake.host("killed", gone + 1))
    assert not fake.has(state.DECLARED) and not fake.has(state.APPLIED)
    before = fake.fingerprint("run/corral", "var/lib/corral")
    fake.wait(10)
    runs.tick(fake.host())
    assert node.different(before, fake.fingerprint("run/corral", "var/lib/corral")) == []
    assert not runs.remove(fake.host()).error
    assert not fake.has("/var/lib/corral")


def test_a_damaged_pause_lasts_as_long_as_it_was_published(fake: node.Node) -> None:
    assert runs.command(fake.host(), "pause", "--for", "1h", "--reason", "work") == 0
    runs.tick(fake.host())
    fake.put(state.PAUSE, "{")
    fake.put("/proc/sys/kernel/pid_max", "70000\n")
    fake.wait(10)
    runs.tick(fake.host())
    status = json.loads(fake.get(state.STATUS))
    assert fake.get("/proc/sys/kernel/pid_max") == "70000\n" and status["paused"]["reason"] == "work"
    assert "stays paused as it was published last" in status["pause_error"]
    fake.wait(3600)
    runs.tick(fake.host())
    assert fake.get("/proc/sys/kernel/pid_max") == "60000\n"


@pytest.mark.parametrize("how", ["emptied", "folder"])
def test_a_profile_that_went_back_is_not_taken_up_once_the_list_of_these_was_lost(how: str, fake: node.Node) -> None:
    """Not either after another one went back meanwhile."""
    went_back(fake)
    first = profile.to_data(profile.parse({**copy.deepcopy(PROFILE), "pids": {"pid_max": 70000}}))
    other = profile.parse({**copy.deepcopy(PROFILE), "pids": {"pid_max": 90000}})
    terms = confirming.Terms(SECONDS)
    assert not locked_run.locked(fake.host(), lambda: confirming.declare(fake.host(), other, None, terms)).error
    damage(fake, state.REJECTED, how)
    fake.wait(SECONDS + 1)
    runs.command(fake.host(), "confirm", "--tick")
    assert fake.get("/proc/sys/kernel/pid_max") == "60000\n"
    for one in (first, profile.to_data(other)):
        fake.put(state.DECLARED, json.dumps(one))
        fake.wait(10)
        runs.tick(fake.host())
        assert fake.get("/proc/sys/kernel/pid_max") == "60000\n"
        assert state.REJECTED in told(fake)


def test_a_plan_whose_lock_was_deleted_is_not_carried_out(fake: node.Node) -> None:
    host, before = fake.host(), cpus(fake, "dataplane", "one")

    def late() -> t.Any:
        fake.drop(state.lock.LOCK)  # The run was stopped, and another one takes a new lock.
        other = state.lock.Lock(fake.host())
        assert other.take()
        other.release()
        return applying.declare(host, profile.parse({**copy.deepcopy(PROFILE), "pids": {"pid_max": 1000000}}))

    with pytest.raises(CorralError, match="lock: was deleted while this run held it"):
        locked_run.locked(host, late)
    assert fake.get("/proc/sys/kernel/pid_max") == "60000\n"
    assert cpus(fake, "dataplane", "one") == before


@pytest.mark.parametrize("by_tick", [False, True])
def test_a_run_whose_lock_was_deleted_writes_no_more(by_tick: bool, fake: node.Node) -> None:
    changed = profile.parse({**copy.deepcopy(PROFILE), "pids": {"pid_max": 100000, "threads_max": 30000}})
    if by_tick:
        fake.put(state.DECLARED, json.dumps(profile.to_data(changed)))

    def run(one: node.Node, host: node.NodeHost) -> None:
        if by_tick:
            runs.tick(host)
        else:
            locked_run.locked(host, lambda: applying.declare(host, changed))

    twin = fake.clone(fake.root.with_name("whole"))
    whole = twin.host()
    run(twin, whole)
    steps = [number for number, act in enumerate(whole.acts, 1) if "/proc/sys/" in act or "/etc/" in act]
    assert len(steps) > 2
    for last in [*steps, len(whole.acts) - 1]:
        twin = fake.clone(fake.root.with_name(f"stopped-{last}"))

        def then(number: int, twin: node.Node = twin, last: int = last) -> None:
            if number == last:
                twin.drop(state.lock.LOCK)

        host = twin.host(then=then)
        with contextlib.suppress(CorralError):
            run(twin, host)
        rest = [act for act in host.acts[last:] if not act.startswith("remove /run/corral/lock")]
        assert rest == [] or last == len(whole.acts) - 1, (last, rest)
        twin.wait(10)
        runs.tick(twin.host())
        runs.tick(twin.host())
        assert json.loads(twin.get(state.STATUS))["in_sync"]


def test_the_documented_table_has_each_file() -> None:
    text = (Path(__file__).parents[6] / "docs/maintenance.md").read_text()
    for one in state.FILES:
        assert f"| `{one.path}` | {'yes' if one.checked else 'no'} |" in text
        assert f"| {'yes' if one.lasts else 'no'} | {one.ends} | {one.lost} |" in text
