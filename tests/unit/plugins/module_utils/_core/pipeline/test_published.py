# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run has published when it returns: a user's next task reads it, and no tick need come first."""

from __future__ import annotations

import importlib
import json
import os
import typing as t
from unittest import mock

import failing
import node
import pytest
import runs
import services
import test_workload_module
from _core.host import state
from _core.host.lock import Lock
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import confirming, locked_run

pytest.importorskip("ansible.module_utils.basic")
Make = t.Callable[..., node.Node]
PID_MAX = "/proc/sys/kernel/pid_max"
MOVED: dict[str, t.Any] = {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 1, "numa": 0}, "whole_cores": True}


POOLS = {"reserved": {"count": 2}, "policy": "static"}
MODULES = test_workload_module.WORKLOAD._module
PARTS = importlib.import_module(f"{MODULES.__package__}._parts")


def workload(fake: node.Node, **params: t.Any) -> None:
    """One task of the module workload."""
    module = test_workload_module.Module(**params)
    test_workload_module.WORKLOAD.workload_task(module, fake.host())


def drop(fake: node.Node) -> None:
    """Nothing is published any more."""
    for path in state.PUBLISHED:
        fake.drop(path)


def texts(fake: node.Node) -> dict[str, t.Any]:
    """The published files; the status without what counts runs."""
    status = json.loads(fake.get(state.STATUS))
    counted = {key: status.pop(key) for key in ("last_changed", "totals", "time")}
    assert counted["last_changed"]["changes"]
    return {"status": status, **{path: fake.get(path) for path in state.PUBLISHED[1:]}}


RUNS: dict[str, t.Callable[[node.Node], object]] = {
    "rollout": lambda fake: runs.declare(fake.host()),
    "rollout and agent": lambda fake: (runs.declare(fake.host()), runs.install(fake.host())),
    "agent and rollout": lambda fake: (runs.install(fake.host()), runs.declare(fake.host())),
    "change": lambda fake: (runs.converged(fake, with_agent=True), runs.declare(fake.host(), cpu=MOVED)),
    "part": lambda fake: runs.part(fake.host(), "cpuset", reserved={"count": 2}, isolated={"cpus": "3,7"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_changed_something_has_published_what_a_tick_would(name: str, make: Make) -> None:
    fake = make()
    RUNS[name](fake)
    published = texts(fake)
    assert published["status"]["in_sync"]
    runs.tick(fake.host(), by_timer=False)
    assert texts(fake) == published


def test_a_converged_run_publishes_nothing(converged: node.Node) -> None:
    host = converged.host()
    assert runs.declare(host).applied == ()
    assert host.acts == []


def test_a_part_publishes_the_drift_of_others_that_it_leaves(fake: node.Node) -> None:
    runs.part(fake.host(), "pid_limits", pid_max=65536)
    fake.put(PID_MAX, "70000\n")
    fake.time += 60
    assert runs.part(fake.host(), "hugepages", size="2Mi", count=16, node=1).remaining == ()
    status = json.loads(fake.get(state.STATUS))
    assert [(item["subject"], item["actual"]) for item in status["items"]] == [("kernel.pid_max", "70000")]
    assert not status["in_sync"]


def test_since_is_when_a_run_or_a_tick_first_saw_it(fake: node.Node) -> None:
    fake.room[1, 2048] = 20
    runs.install(fake.host())
    runs.declare(fake.host())
    first = json.loads(fake.get(state.STATUS))["items"][0]
    fake.time += 30
    runs.tick(fake.host())
    assert json.loads(fake.get(state.STATUS))["items"][0]["since"] == first["since"] == int(fake.time) - 30


def test_check_mode_has_no_drift_where_only_the_names_of_layers_changed(fake: node.Node) -> None:
    def rollout(origin: str, *, check: bool) -> dict[str, t.Any]:
        layers = [{"origin": origin, "profile": node.edge()}]
        module = test_workload_module.Module(check=check, layers=layers, profile=None, during_pause="refuse")
        return t.cast("dict[str, t.Any]", MODULES.profile_task(module, fake.host()))

    assert rollout("edge.yml", check=False)["changed"]
    seen = rollout("renamed.yml", check=True)
    assert (seen["drift"], seen["in_sync"], seen["report"]) == ([], True, ["in sync: nothing differs"])
    assert [change["subject"] for change in seen["changes"]] == [state.ORIGINS], "the run writes the new names"
    assert rollout("renamed.yml", check=False)["changed"]
    assert not rollout("renamed.yml", check=True)["changed"]


def test_a_command_publishes_as_a_module_does(converged: node.Node) -> None:
    runs.declare(converged.host(), cpu=MOVED)
    moved = converged.get(state.PUBLISHED[1])
    assert runs.command(converged.host(), "rollback") == 0
    assert converged.get(state.PUBLISHED[1]) != moved
    pools = json.loads(converged.get(state.STATUS))["pools"]
    assert json.loads(converged.get(state.PUBLISHED[1])) == {"schema": 1, **pools}


def test_a_run_that_was_undone_publishes_what_is(converged: node.Node) -> None:
    host = converged.host()
    assert runs.declare(host, cpu=MOVED).error == ""
    changed = len(host.acts)
    runs.declare(converged.host())
    published = texts(converged)["status"]
    converged.put(PID_MAX, "70000\n")
    assert runs.declare(converged.host("error", changed // 2), cpu=MOVED).undone
    status = json.loads(converged.get(state.STATUS))
    assert (status["error"], status["pools"]) == (None, published["pools"])
    assert [item["subject"] for item in status["items"]] == ["kernel.pid_max"]


def test_what_an_earlier_run_could_not_publish_is_made_up_for(converged: node.Node) -> None:
    """/run begins empty, and a run may die right before it publishes."""
    published = texts(converged)
    drop(converged)
    assert runs.declare(converged.host()).applied == ()
    assert {path: converged.get(path) for path in state.PUBLISHED[1:]} == {
        path: published[path] for path in state.PUBLISHED[1:]
    }
    assert json.loads(converged.get(state.STATUS))["in_sync"]


def test_what_a_run_published_first_is_logged_by_the_next_tick_once(
    fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.room[1, 2048] = 20
    runs.install(fake.host())
    runs.declare(fake.host())
    assert not json.loads(fake.get(state.STATUS))["items"][0]["logged"]
    for lines in (1, 0):
        fake.time += 10
        capsys.readouterr()
        runs.tick(fake.host())
        assert capsys.readouterr().err.count("drift") == lines
    runs.declare(fake.host(), pids={"pid_max": 50000})
    assert json.loads(fake.get(state.STATUS))["items"][0]["logged"]


# By the code that modules and commands call: nothing of the test's own publishes here.


class Module:
    """What AnsibleModule is to the code."""

    def __init__(self, **params: t.Any) -> None:
        common = {"state": "present", "lock_timeout": 1, "during_pause": "refuse", "layers": None, "profile": None}
        self.params: dict[str, t.Any] = {**common, "confirm_timeout": 0, "force": False, "adopt": None, **params}
        self.check_mode, self._diff, self._verbosity = False, False, 0

    def warn(self, text: str) -> None:
        pass


def by_profile(fake: node.Node) -> None:
    MODULES.profile_task(Module(profile=node.edge(cpu=MOVED)), fake.host())


def by_agent(fake: node.Node) -> None:
    fake.put("/usr/bin/python3", "")
    with mock.patch.object(
        MODULES._core_files, "program", lambda main: runs.PROGRAM
    ):  # here it is no payload of Ansible's
        MODULES.agent_task(Module(interval=30, python="/usr/bin/python3", metrics_dir=""), fake.host())


def by_workload(fake: node.Node) -> None:
    workload(fake, name="adhoc", match={"unit": "adhoc.service"}, limits={"cpu": 2, "memory": "64Mi"})


CALLS: dict[str, t.Callable[[node.Node], object]] = {
    "module profile": by_profile,
    "module agent": by_agent,
    "module workload": by_workload,
    "corral reconcile": lambda fake: (fake.put(PID_MAX, "70000\n"), runs.command(fake.host(), "reconcile")),
    "corral rollback": lambda fake: runs.command(fake.host(), "rollback"),
    "corral admit": lambda fake: runs.command(
        fake.host(), "admit", "adhoc", "--unit=adhoc.service", "--limits=cpu=2,memory=64Mi"
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_that_changes_a_node_publishes(name: str, fake: node.Node) -> None:
    runs.declare(fake.host())
    runs.declare(fake.host(), cpu=POOLS)
    drop(fake)
    CALLS[name](fake)
    assert [path for path in state.PUBLISHED if not fake.has(path)] == []


def test_pools_are_published_by_a_workloads_start_and_stop(fake: node.Node) -> None:
    workloads = [
        {"name": "batch", "match": {"unit": "batch.service"}, "hold": "running", "limits": {"cpu": 2, "memory": "64Mi"}}
    ]
    runs.declare(fake.host(), cpu=POOLS, memory=None, workloads=workloads)
    before = fake.get(state.PUBLISHED[2])
    services.invocation(fake, "corral-grant@batch.service")
    assert runs.command(fake.host(), "admit", "--start", "batch") == 0
    granted = json.loads(fake.get(state.CHECKPOINT))["data"]["grants"][0]["cpus"]
    assert json.loads(fake.get(state.PUBLISHED[1]))["exclusive"] == granted
    assert fake.get(state.PUBLISHED[2]) != before
    assert runs.command(fake.host(), "release", "--stop", "batch") == 0
    assert fake.get(state.PUBLISHED[2]) == before


def test_a_start_whose_pools_cannot_be_published_fails_and_its_grant_is_released(fake: node.Node) -> None:
    workloads = [
        {"name": "batch", "match": {"unit": "batch.service"}, "hold": "running", "limits": {"cpu": 2, "memory": "64Mi"}}
    ]
    runs.declare(fake.host(), cpu=POOLS, memory=None, workloads=workloads)
    before = {path: fake.get(path) for path in state.PUBLISHED}

    def full() -> node.NodeHost:
        """A host on whose /run there is no room."""
        host = fake.host()
        write = host.write_file

        def write_file(path: str, text: str, mode: int = 0o644) -> None:
            if path.startswith(state.RUN):
                raise OSError(28, "No space left on device", path)
            write(path, text, mode)

        host.write_file = write_file  # type: ignore[method-assign]
        return host

    services.invocation(fake, "corral-grant@batch.service")
    with pytest.raises(OSError, match="No space left on device"):
        runs.command(full(), "admit", "--start", "batch")
    # As systemd does after a start that failed (ExecStopPost).
    assert runs.command(full(), "release", "--stop", "batch") == 0
    assert json.loads(fake.get(state.CHECKPOINT))["data"]["grants"] == []
    assert {path: fake.get(path) for path in state.PUBLISHED} == before


def test_a_lock_that_another_run_holds_is_refused_with_the_way_out(converged: node.Node) -> None:
    held = Lock(converged.host())
    assert held.take()
    with pytest.raises(CorralError, match="another run of Corral holds /run/corral/lock: wait for it"):
        locked_run.locked(converged.host(), lambda: None, wait=0.0, hint="wait for it")
    stamp = (converged.root / "run/corral/lock").stat()
    device = f"{os.major(stamp.st_dev):02x}:{os.minor(stamp.st_dev):02x}"
    converged.put("/proc/locks", f"1: FLOCK  ADVISORY  WRITE 4711 {device}:{stamp.st_ino} 0 EOF\n")
    converged.put("/proc/4711/comm", "python3\n")
    said = r"holds /run/corral/lock, python3 \(process 4711\), and did not release it within 1 s: try again"
    with pytest.raises(CorralError, match=said):
        locked_run.locked(converged.host(), lambda: None, wait=1.0)
    held.release()
    assert locked_run.locked(converged.host(), lambda: 5, wait=0.0) == 5


def test_a_refused_run_leaves_nothing_on_a_node_that_corral_has_not_changed(fake: node.Node) -> None:
    def refused() -> None:
        many = {"hugepages": [{"size": "2Mi", "count": 500000, "node": 0}]}
        with pytest.raises(CorralError, match=r"memory\.hugepages"):
            locked_run.locked(fake.host(), lambda: runs.declare(fake.host(), memory=many), wait=1.0)

    before = fake.fingerprint()
    refused()
    assert node.different(before, fake.fingerprint()) == []
    runs.declare(fake.host())
    refused()
    assert fake.has(state.STATUS), "a node in Corral's hands keeps its folder"


def as_a_tick_would(fake: node.Node) -> bool:
    """Whether the files tell of the node what a look in full does."""
    published = texts(fake)
    assert runs.tick(fake.host(), by_timer=False) == 0
    return texts(fake) == published


@pytest.mark.parametrize("kind", ["full", "killed"])
def test_the_same_run_again_publishes_what_one_that_ended_early_could_not(kind: str, fake: node.Node) -> None:
    """It changes nothing more: everything was in place when the first one ended."""

    def act(host: node.NodeHost) -> object:
        return runs.declare(host, cpu=MOVED)

    runs.converged(fake)
    assert len(failing.tried(fake, act).acts) > 15
    for twin, what in failing.each(fake, act, kind):
        twin.time += 60
        host = twin.host()
        act(host)
        assert as_a_tick_would(twin), f"{what}: {host.acts}"


def test_a_run_that_fails_after_its_last_change_has_published_the_node(converged: node.Node) -> None:
    host = converged.host()
    write = host.write_file

    def full(path: str, text: str, mode: int = 0o644) -> None:
        if path == state.HISTORY:
            raise OSError(28, "No space left on device", path)
        write(path, text, mode)

    with mock.patch.object(host, "write_file", full), pytest.raises(OSError, match="No space left"):
        MODULES.profile_task(Module(profile=node.edge(cpu=MOVED)), host)
    assert as_a_tick_would(converged)


def test_files_that_tell_something_else_are_put_right_by_a_run_that_changes_nothing(converged: node.Node) -> None:
    published = texts(converged)
    status = json.loads(converged.get(state.STATUS))
    for path, text in (
        (state.STATUS, json.dumps({**status, "mode": "audit"})),
        (state.STATUS, "{}"),
        (state.PUBLISHED[1], "{}"),
        (state.PUBLISHED[2], ""),
    ):
        converged.put(path, text)
        host = converged.host()
        assert runs.declare(host).applied == ()
        assert [act for act in host.acts if not act.endswith(path)] == []
        assert {one: converged.get(one) for one in state.PUBLISHED[1:]} == {
            one: published[one] for one in state.PUBLISHED[1:]
        }
        assert json.loads(converged.get(state.STATUS))["mode"] == "enforce"


def test_drift_that_a_run_leaves_is_written_once(fake: node.Node) -> None:
    def hugepages() -> list[str]:
        host = fake.host()
        runs.part(host, "hugepages", size="2Mi", count=16, node=1)
        return host.acts

    runs.part(fake.host(), "pid_limits", pid_max=65536)
    assert hugepages()
    fake.put(PID_MAX, "70000\n")
    assert hugepages() == [f"write_file {path}" for path in (state.STATUS, state.SINCE)]
    for seconds in (0.4, 25):
        fake.wait(seconds)
        assert hugepages() == []
    fake.wait(90)
    assert hugepages() == [f"write_file {state.STATUS}"], "what is published was too old to be believed"


def test_a_converged_run_writes_nothing_while_a_profile_is_unconfirmed(with_agent: node.Node) -> None:
    moved = profile.parse(node.edge(cpu=MOVED))
    for wait, writes in ((0, True), (0.4, False), (0.7, False), (25, False), (90, True), (25, False)):
        with_agent.wait(wait)
        host = with_agent.host()
        locked_run.published(host, confirming.declare(host, moved, None, confirming.Terms(600)))
        assert bool(host.acts) == writes
    assert json.loads(with_agent.get(state.STATUS))["unconfirmed"]["until"] == int(with_agent.time - 141.1) + 600


def pause_by_module(fake: node.Node, **params: t.Any) -> None:
    assert MODULES.pause_task(Module(reason="", **params), fake.host())["changed"]


PAUSES: dict[str, tuple[t.Callable[[node.Node], object], t.Callable[[node.Node], object]]] = {
    "module": (
        lambda fake: pause_by_module(fake, duration="1h"),
        lambda fake: pause_by_module(fake, state="absent"),
    ),
    "command": (
        lambda fake: runs.command(fake.host(), "pause", "--for", "1h"),
        lambda fake: runs.command(fake.host(), "resume"),
    ),
}


@pytest.mark.parametrize("name", PAUSES)
def test_a_pause_is_in_the_status_without_an_agent(name: str, converged: node.Node) -> None:
    begin, end = PAUSES[name]
    begin(converged)
    paused = json.loads(converged.get(state.STATUS))["paused"]
    assert paused["until"] == converged.time + 3600
    end(converged)
    assert json.loads(converged.get(state.STATUS))["paused"] is None
    begin(converged)
    converged.wait(7200)
    runs.declare(converged.host())
    assert json.loads(converged.get(state.STATUS))["paused"] is None, "it has ended by the clock"


@pytest.mark.parametrize("name", PAUSES)
def test_with_an_agent_its_look_publishes_a_pause_and_logs_it_once(
    name: str, with_agent: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.tick(with_agent.host())
    for do, said in zip(PAUSES[name], ("paused until", "has ended")):
        capsys.readouterr()
        do(with_agent)
        for dummy in range(2):
            with_agent.wait(10)
            runs.tick(with_agent.host())
        assert capsys.readouterr().err.count(said) == 1


def test_a_part_that_has_nothing_to_do_publishes_what_is_missing(fake: node.Node) -> None:
    def pid_limits(*, check: bool = False) -> dict[str, t.Any]:
        module = Module(pid_max=65536)
        module.check_mode = check
        patch = PARTS.SectionPatch("pid_limits", {"pid_max": 65536}, True)
        return t.cast("dict[str, t.Any]", PARTS.part_task(module, fake.host(), patch))

    assert pid_limits()["changed"]
    drop(fake)
    assert not pid_limits(check=True)["changed"]
    assert not fake.has(state.STATUS)
    assert not pid_limits()["changed"]
    assert [path for path in state.PUBLISHED if not fake.has(path)] == []


def test_a_workload_that_has_nothing_to_do_publishes_what_is_missing(fake: node.Node) -> None:
    runs.declare(fake.host(), cpu=POOLS)
    by_workload(fake)
    for act in (by_workload, lambda fake: workload(fake, name="unknown", state="absent")):
        drop(fake)
        act(fake)
        assert [path for path in state.PUBLISHED if not fake.has(path)] == []


IDLE: dict[str, t.Callable[[node.Node], object]] = {
    "module workload": lambda fake: workload(fake, name="unknown", state="absent"),
    "module pause": lambda fake: MODULES.pause_task(Module(state="absent"), fake.host()),
    "corral resume": lambda fake: runs.command(fake.host(), "resume"),
    "corral confirm": lambda fake: runs.command(fake.host(), "confirm"),
}


@pytest.mark.parametrize("name", IDLE)
def test_a_run_with_nothing_to_do_leaves_nothing_where_corral_is_not(name: str, fake: node.Node) -> None:
    before = fake.fingerprint()
    IDLE[name](fake)
    assert node.different(before, fake.fingerprint()) == []


def test_the_error_of_a_tick_stays_while_what_it_is_about_differs(with_agent: node.Node) -> None:
    with_agent.put(PID_MAX, "70000\n")
    host = with_agent.host()
    refuse = OSError(5, "Input/output error", PID_MAX)
    with mock.patch.object(host, "write_value", side_effect=refuse):
        runs.tick(host)
    failed = json.loads(with_agent.get(state.STATUS))
    assert failed["error"]
    by_agent(with_agent)
    status = json.loads(with_agent.get(state.STATUS))
    assert (status["last_changed"]["changes"][0]["manager"], status["error"]) == ("agent", None), "it changed something"
    with mock.patch.object(host, "write_value", side_effect=refuse):
        runs.tick(host)
    by_agent(with_agent)
    assert json.loads(with_agent.get(state.STATUS))["error"] == failed["error"]
    runs.declare(with_agent.host())
    assert json.loads(with_agent.get(state.STATUS))["error"] is None


def test_a_profile_that_went_back_is_for_the_tick_to_tell(with_agent: node.Node) -> None:
    host, moved = with_agent.host(), profile.parse(node.edge(cpu=MOVED))
    confirming.declare(host, moved, None, confirming.Terms(60))
    rejected = with_agent.get(state.DECLARED)
    with_agent.wait(61)
    runs.command(with_agent.host(), "confirm", "--tick")
    with_agent.put(state.DECLARED, rejected)
    runs.tick(with_agent.host(), by_timer=False)
    files = {path: with_agent.get(path) for path in state.PUBLISHED}
    assert json.loads(files[state.STATUS])["items"][0]["wanted"] == "one that can be applied"
    by_agent(with_agent)
    assert {path: with_agent.get(path) for path in state.PUBLISHED} == files
