# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in the way of a run: check mode and the run refuse it in the same words, and neither writes anything."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import typing as t
from unittest import mock

import node
import pytest
import runs
import test_workload_module
from _core.host import lock, state
from _core.host.files import Host
from _core.managers import registry

MODULES = test_workload_module.WORKLOAD._module
CorralError = test_workload_module.WORKLOAD.CorralError
SYSTEM = "/etc/systemd/system"
DROPIN = f"{SYSTEM}/system.slice.d/10-corral-cpu.conf"
OPTIONS = (
    "profile",
    "layers",
    "confirm_timeout",
    "confirm_command",
    "interval",
    "python",
    "metrics_dir",
    "duration",
    "reason",
)


def link(path: str) -> t.Callable[[node.Node], None]:
    """A link to an empty folder in the place of ``path``."""

    def put(fake: node.Node) -> None:
        (fake.root / "elsewhere").mkdir()
        place = fake.root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(fake.root / "elsewhere")

    return put


def file(path: str) -> t.Callable[[node.Node], None]:
    return lambda fake: fake.put(path, "somebody's\n")


def folder(path: str) -> t.Callable[[node.Node], None]:
    return lambda fake: (fake.root / path[1:]).mkdir(parents=True)


class Case(t.NamedTuple):
    """What is in the way, and what is said of which path."""

    put: t.Callable[[node.Node], None]
    path: str
    said: str


OWN, FILE = "keeps its files in a folder of its own", "is a folder, and Corral keeps a file there"
ANYWHERE = {
    "state folder is a link": Case(link(state.STATE), state.STATE, OWN),
    "state folder is a file": Case(file(state.STATE), state.STATE, OWN),
    "journal is a file": Case(file(f"{state.STATE}/journal"), f"{state.STATE}/journal", OWN),
    "run folder is a link": Case(link(state.RUN), state.RUN, OWN),
    "run folder is a file": Case(file(state.RUN), state.RUN, OWN),
    "lock is a folder": Case(folder(lock.LOCK), lock.LOCK, FILE),
    "lock is a link": Case(link(lock.LOCK), lock.LOCK, "is a link"),
}
OF_PROFILE = {
    "drop-in is a folder": Case(folder(DROPIN), DROPIN, "a file of Corral's goes there"),
    "folder of a drop-in is a file": Case(file(os.path.dirname(DROPIN)), os.path.dirname(DROPIN), "is not a folder"),
}
UNIT = f"{SYSTEM}/corral-reconcile.timer"
WANTS = f"{SYSTEM}/timers.target.wants/corral-reconcile.timer"
OF_AGENT = {
    "unit is a folder": Case(folder(UNIT), UNIT, "a file of Corral's goes there"),
    "unit's link is a folder": Case(folder(WANTS), WANTS, "a link of Corral's goes there"),
}


PARTS = importlib.import_module(f"{MODULES.__package__}._parts")
LIMITS = {"pid_max": 65536, "threads_max": None, "reserved": None, "default_tasks_max": None, "slices": None}


def pid_limits_task(module: t.Any, host: t.Any) -> dict[str, t.Any]:
    """The module pid_limits, one of those for single parts."""
    options = {name: module.params[name] for name in LIMITS}
    patch = PARTS.SectionPatch("pid_limits", options, module.params["state"] == "present")
    return t.cast("dict[str, t.Any]", PARTS.part_task(module, host, patch))


TASKS: dict[str, t.Callable[..., dict[str, t.Any]]] = {
    **{name: getattr(MODULES, f"{name}_task") for name in ("profile", "agent", "pause")},
    "workload": test_workload_module.WORKLOAD.workload_task,
    "pid_limits": pid_limits_task,
}


def task(fake: node.Node, module: str, *, check: bool, **params: t.Any) -> str:
    """How a task of a module fails; "" when it does not."""
    given = test_workload_module.Module(
        check=check,
        **{
            **dict.fromkeys(OPTIONS),
            "during_pause": "refuse",
            "lock_timeout": 0,
            "confirm_timeout": 0,
            "force": False,
            **params,
        },
    )
    try:
        result = TASKS[module](given, fake.host())
    except CorralError as error:
        return str(error)
    return t.cast("str", result["msg"]) if result.get("failed") else ""


def same_refusal(fake: node.Node, module: str, **params: t.Any) -> str:
    """What check mode and the run both say; neither leaves a trace."""
    before = fake.fingerprint()
    checked = task(fake, module, check=True, **params)
    assert node.different(before, fake.fingerprint()) == []
    assert task(fake, module, check=False, **params) == checked
    assert node.different(before, fake.fingerprint()) == []
    return checked


@pytest.mark.parametrize("name", [*ANYWHERE, *OF_PROFILE])
def test_a_profile(name: str, fake: node.Node) -> None:
    case = {**ANYWHERE, **OF_PROFILE}[name]
    case.put(fake)
    said = same_refusal(fake, "profile", profile=node.edge())
    assert said.startswith(f"{case.path}: ") and case.said in said


def test_a_limit_that_leaves_no_room_for_one_more_task(fake: node.Node) -> None:
    fake.put("/sys/fs/cgroup/user.slice/pids.current", "8\n")
    said = same_refusal(fake, "profile", profile=node.edge(pids={"slices": {"user.slice": 8}}))
    assert said.startswith('pids.slices["user.slice"]: 8: 8 tasks run in it now')
    assert task(fake, "profile", check=True, profile=node.edge(pids={"slices": {"user.slice": 9}})) == ""


@pytest.mark.parametrize("name", [*ANYWHERE, *OF_AGENT])
def test_the_agent(name: str, fake: node.Node) -> None:
    case = {**ANYWHERE, **OF_AGENT}[name]
    case.put(fake)
    fake.put("/usr/bin/python3", "")
    # The core of the tests is no package with a file, which Python 3.9 cannot list.
    with mock.patch.object(MODULES._core_files, "program", lambda dummy: runs.PROGRAM):
        said = same_refusal(fake, "agent", python="/usr/bin/python3", metrics_dir="")
    assert said.startswith(f"{case.path}: ") and case.said in said


@pytest.mark.parametrize("name", ANYWHERE)
def test_a_pause(name: str, fake: node.Node) -> None:
    ANYWHERE[name].put(fake)
    said = same_refusal(fake, "pause", duration="1h", reason="")
    assert said.startswith(f"{ANYWHERE[name].path}: ")


@pytest.mark.parametrize("name", ["run folder is a link", "run folder is a file"])
@pytest.mark.parametrize("state_", ["present", "absent"])
def test_a_node_where_nothing_is_to_be_done(name: str, state_: str, converged: node.Node) -> None:
    (converged.root / "run/corral").rename(converged.root / "away")
    ANYWHERE[name].put(converged)
    params = {"profile": node.edge()} if state_ == "present" else {}
    said = same_refusal(converged, "profile", state=state_, **params)
    assert said.startswith(f"{state.RUN}: ")


WORKLOAD = {"name": "feed", "match": {"unit": "feed.service"}, "limits": {"cpu": "500m"}}


@pytest.mark.parametrize("name", ["run folder is a link", "run folder is a file"])
@pytest.mark.parametrize("state_", ["present", "absent"])
@pytest.mark.parametrize(("module", "params"), [("pid_limits", LIMITS), ("workload", WORKLOAD)])
def test_a_single_part_or_workload_where_nothing_is_to_be_done(
    module: str, params: dict[str, t.Any], state_: str, name: str, fake: node.Node
) -> None:
    fake.put("/etc/systemd/system/feed.service", "[Service]\nExecStart=/bin/true\n")
    if module == "workload":
        assert not runs.declare(fake.host(), cpu={"reserved": {"count": 2}}).error
    else:
        assert not runs.part(fake.host(), "hugepages", size="2Mi", count=8, node=0).error
    for wanted in ("present", state_):
        assert task(fake, module, check=False, state=wanted, **params) == ""
    shutil.move(fake.root / "run/corral", fake.root / "away")
    ANYWHERE[name].put(fake)
    assert same_refusal(fake, module, state=state_, **params).startswith(f"{state.RUN}: ")


def test_a_removal_goes_on_past_a_folder_in_the_place_of_a_file(converged: node.Node) -> None:
    converged.drop(DROPIN)
    folder(DROPIN)(converged)
    assert task(converged, "profile", check=True, state="absent") == ""
    outcome = runs.remove(converged.host(), registry.of_profile())
    assert [one for one in outcome.leftovers if DROPIN in one]
    assert not converged.has(state.DECLARED)


def test_a_folder_that_nobody_can_write_to(fake: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(os.path.dirname(DROPIN))(fake)
    monkeypatch.setattr(Host, "writable", lambda dummy, path: path != os.path.dirname(DROPIN))
    said = same_refusal(fake, "profile", profile=node.edge())
    assert said.startswith(f"{os.path.dirname(DROPIN)}: cannot be written, even by root")


def test_a_file_that_nobody_can_replace(converged: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    converged.put(DROPIN, "changed by hand\n")
    monkeypatch.setattr(Host, "writable", lambda dummy, path: path != DROPIN)
    said = task(converged, "profile", check=True, profile=node.edge())
    assert said.startswith(f"{DROPIN}: cannot be replaced, even by root: it is immutable (lsattr, chattr -i)")
    assert task(converged, "profile", check=False, profile=node.edge()) == said
    assert converged.get(DROPIN) == "changed by hand\n"


def test_a_tick_that_is_blocked_reports_all_other_drift(with_agent: node.Node) -> None:
    with_agent.drop(DROPIN)
    folder(DROPIN)(with_agent)
    with_agent.kernel_write("/proc/sys/kernel/pid_max", "40000")
    with_agent.wait(10)
    assert runs.tick(with_agent.host()) == 1
    status = json.loads(with_agent.get(state.STATUS))
    assert f"{DROPIN}: is a folder" in status["error"]
    assert {DROPIN, "/proc/sys/kernel/pid_max"} <= {item["location"] for item in status["items"]}
