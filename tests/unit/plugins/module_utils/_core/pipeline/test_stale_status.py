# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A status that nobody renews is in sync for none of its readers, and each says why; what it says of the kernel is read then."""

from __future__ import annotations

import errno
import importlib
import json
import os
import sys
import time
import typing as t
from unittest import mock

import controller_plugins
import node
import pytest
import read_faults
import runs
import test_workload_module
from _core import main
from _core.cli import status_command, status_html
from _core.constants import DIFFERS, IN_SYNC
from _core.host import files, state
from _core.host.agent import agent_now
from _core.host.snapshot import recorded_tree
from _core.model.agent.agent_units import FACT, LAUNCHER, SERVICE, TIMER
from _core.model.status import json_shapes
from _core.reports import change_text, status_now
from shapes import misfits
from shared_data import REPOSITORY

fleet_report = controller_plugins.load("filter.fleet_report").fleet_report
PARTITION = f"/sys/fs/cgroup/{node.ISOLATED}/cpuset.cpus.partition"
ENFORCED = "enforced by the kernel"


def stopped(fake: node.Node) -> None:
    fake.systemd.active.discard(TIMER)


def masked(fake: node.Node) -> None:
    fake.systemd.told[SERVICE] = {"LoadState": "masked"}


def condition_false(fake: node.Node) -> None:
    fake.systemd.told[SERVICE] = {"ConditionResult": "no", "ConditionTimestampMonotonic": "4990000000"}


def failed(fake: node.Node) -> None:
    fake.systemd.told[SERVICE] = {"ActiveState": "failed", "Result": "timeout"}


def works(fake: node.Node, seconds: float, timeout: str = "3min") -> None:
    """A tick began so many seconds ago."""
    began = str(int((fake.up - seconds) * 1e6))
    facts = {"ActiveState": "activating", "InactiveExitTimestampMonotonic": began, "TimeoutStartUSec": timeout}
    fake.systemd.told[SERVICE] = facts


def hangs(fake: node.Node) -> None:
    works(fake, 95, "1min 30s")


TROUBLES: dict[str, tuple[t.Callable[[node.Node], None], str]] = {
    "timer stopped": (stopped, f"{TIMER} is inactive, enabled: systemctl enable --now {TIMER}"),
    "agent masked": (masked, f"{SERVICE} is masked"),
    "condition false": (condition_false, f"a condition of {SERVICE} is not met: systemctl status {SERVICE} names it"),
    "unit failed": (failed, f"{SERVICE} failed with the result timeout"),
    "tick hangs": (hangs, "a tick hangs for 95 s, its TimeoutStartSec= is 90 s"),
    "no reason known": (lambda fake: None, f"its ticks end without a look: journalctl -u {SERVICE}"),
}


def make_kept(fake: node.Node) -> None:
    """A node that its agent keeps, and has just looked at."""
    runs.converged(fake, with_agent=True)
    runs.tick(fake.host())


@pytest.fixture
def kept(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_kept)


def answers(fake: node.Node, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[bool, str]]:
    """What each consumer says: whether the node is in sync, and why it is not known to be."""
    capsys.readouterr()
    found = {}
    code = runs.command(fake.host(), "status")
    lines = capsys.readouterr().out.splitlines()
    why = [line.partition("stale, so not known to be in sync: ")[2] for line in lines if line.startswith("stale, ")]
    found["corral status"] = (code == IN_SYNC, "".join(why))
    code = runs.command(fake.host(), "status", "--json")
    data = json.loads(capsys.readouterr().out)
    assert misfits(data, json_shapes.NodeStatus) == []
    assert data["in_sync"] == (code == IN_SYNC)
    found["corral status --json"] = (data["in_sync"], data["stale"] or "")
    with mock.patch.object(main, "Host", fake.host), mock.patch.object(sys, "argv", [FACT]):
        assert main.main([]) == IN_SYNC
    data = json.loads(capsys.readouterr().out)
    assert misfits(data, json_shapes.StatusNow) == []
    found["the local fact"] = (data["in_sync"], data["stale"] or "")
    module = importlib.import_module(f"{test_workload_module.WORKLOAD.__package__}._status")
    result = module.status_task(test_workload_module.Module(), fake.host())
    assert result["report"] == lines
    found["status_info"] = (result["status"]["in_sync"], result["status"]["stale"] or "")
    page = status_html.page(fake.host(), status_command.published_now(fake.host()))
    said = page.partition("stale, so not known to be in sync: ")[2].partition("<")[0].replace("&#x27;", "'")
    found["the page"] = ("in sync: nothing differs" in page, said)
    looked, overdue = status_now.item(fake.host())
    result = {"drift": change_text.dated(overdue, looked), "name": "edge", "mode": "enforce"}
    fleet = fleet_report({"node": {**result, "drift": []}}, {"node": result})
    assert [item["since"] for item in fleet["hosts"]["node"]["items"]] == [data["time"]] * len(overdue)
    why = [item["reason"] for item in fleet["hosts"]["node"]["items"]]
    assert all(any(one in line for line in fleet["lines"]) for one in why)
    found["the fleet's report"] = (fleet["summary"]["in_sync"] == 1, "".join(why))
    return found


@pytest.mark.parametrize("name", TROUBLES)
def test_each_reader_says_stale_and_why(name: str, kept: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    cause, wanted = TROUBLES[name]
    kept.wait(31)
    cause(kept)
    found = answers(kept, capsys)
    assert found == dict.fromkeys(found, (False, wanted))


@pytest.mark.parametrize("name", TROUBLES)
def test_an_agent_that_has_not_looked_since_the_boot_is_drift(name: str, kept: node.Node) -> None:
    kept.boot_anew()
    cause, wanted = TROUBLES[name]
    assert status_now.item(kept.host())[1] == (), "it is to look yet"
    kept.wait(31)
    cause(kept)
    looked, (one,) = status_now.item(kept.host())
    assert (looked, one.property, one.actual, one.reason) == ({}, "last look", None, wanted)
    kept.drop(state.APPLIED)
    assert status_now.item(kept.host())[1] == (), "without a profile it publishes nothing"


def test_none_says_so_of_a_node_that_is_looked_at(kept: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    kept.wait(30)
    found = answers(kept, capsys)
    assert found == dict.fromkeys(found, (True, ""))


@pytest.mark.parametrize("words", [["status"], ["status", "--json"]])
def test_another_user_than_root_is_told_all_but_whether_the_program_is_as_installed(
    words: list[str], kept: node.Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = files.Host.found

    def found(host: files.Host, path: str, follow: bool = True) -> t.Any:
        if path.startswith("/var/lib/corral/"):
            raise files.Unreadable(path, errno.EACCES)
        return right(host, path, follow)

    monkeypatch.setattr(files.Host, "found", found)
    assert runs.command(kept.host(), *words) == IN_SYNC
    said = capsys.readouterr().out
    assert "not known whether it is as it was installed" in said or json.loads(said)["program"]["as_installed"] is None


def test_a_loaded_node_whose_tick_takes_long_is_not_stale(kept: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    kept.wait(100)
    works(kept, 85)
    found = answers(kept, capsys)
    assert found == dict.fromkeys(found, (True, ""))


@pytest.mark.parametrize("years", [10, -10])
def test_a_clock_that_is_set_makes_no_report_younger_or_older(
    years: int, kept: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.time += years * 31_536_000
    assert set(answers(kept, capsys).values()) == {(True, "")}
    kept.wait(31)
    stopped(kept)
    said = {why for in_sync, why in answers(kept, capsys).values() if not in_sync}
    assert len(said) == 1
    assert f"the clock was set {'forward' if years > 0 else 'back'} by 3650d since" in said.pop()


def test_a_quiet_tick_renews_it_and_writes_nothing_else(kept: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    runs.tick(kept.host())
    kept.wait(20)
    host = kept.host()
    runs.tick(host)
    assert host.writes == [state.STATUS]
    kept.wait(30)
    assert set(answers(kept, capsys).values()) == {(True, "")}


def test_the_interval_of_the_agent_counts(fake: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    runs.install(fake.host(), options=runs.OPTIONS._replace(interval=60))
    runs.declare(fake.host())
    runs.tick(fake.host())
    fake.wait(180)
    assert set(answers(fake, capsys).values()) == {(True, "")}
    fake.wait(1)
    assert {in_sync for in_sync, dummy in answers(fake, capsys).values()} == {False}


def test_the_interval_of_an_agent_whose_file_is_lost_counts_as_before(fake: node.Node) -> None:
    """It runs on (docs/maintenance.md)."""
    runs.install(fake.host(), options=runs.OPTIONS._replace(interval=60))
    runs.declare(fake.host())
    fake.drop(state.AGENT)
    for dummy in range(2):
        fake.wait(60)
        runs.tick(fake.host())
    fake.wait(59)
    assert status_command.published_now(fake.host())["stale"] is None
    fake.wait(130)
    stopped(fake)
    assert status_command.published_now(fake.host())["stale"].startswith(f"{TIMER} is inactive")


def test_a_run_renews_a_report_that_is_too_old(kept: node.Node) -> None:
    """Also one that changes nothing, which writes nothing while the report is young."""
    kept.wait(29)
    host = kept.host()
    runs.declare(host)
    assert state.STATUS not in host.writes
    kept.wait(2)
    assert status_command.published_now(kept.host())["stale"]
    runs.declare(kept.host())
    assert status_command.published_now(kept.host())["stale"] is None


def test_without_an_agent_it_is_what_a_run_found(converged: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert runs.command(converged.host(), "status") == IN_SYNC
    converged.wait(31)
    capsys.readouterr()
    assert runs.command(converged.host(), "status") == DIFFERS
    said = capsys.readouterr().out
    assert "no agent keeps this node, and this is what the last run found: corral drift checks now" in said
    assert "checked 31 s ago   stale" in said
    runs.declare(converged.host())
    assert runs.command(converged.host(), "status") == IN_SYNC


def test_what_is_said_of_the_kernel_is_read_then(kept: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_command.published_now(kept.host())["exclusive"] == ENFORCED
    kept.host().write_value(PARTITION, "member")
    assert runs.command(kept.host(), "status", "--json") == DIFFERS
    found = json.loads(capsys.readouterr().out)
    wanted = f"{ENFORCED}, but not {node.ISOLATED}: cpuset.cpus.partition is member"
    assert (found["exclusive"], found["stale"], found["in_sync"]) == (wanted, None, False)
    assert runs.command(kept.host(), "status") == DIFFERS
    for said in (capsys.readouterr().out, status_html.page(kept.host(), status_command.published_now(kept.host()))):
        assert "a partition was lost since" in said
        assert "in sync" not in said
    kept.systemd.stop_slice(node.ISOLATED)
    said = status_command.published_now(kept.host())["exclusive"]
    assert said == f"{ENFORCED}, but not {node.ISOLATED}: its control group is gone"


def test_the_holder_of_the_lock_is_named(kept: node.Node) -> None:
    kept.wait(31)
    lock = (kept.root / "run/corral/lock").stat()
    device, others = (f"{os.major(number):02x}:{os.minor(number):02x}" for number in (lock.st_dev, lock.st_dev + 1))
    users = f"1: FLOCK  ADVISORY  WRITE 811 {others}:{lock.st_ino} 0 EOF\n"
    kept.put(
        "/proc/locks",
        f"{users}2: FLOCK  ADVISORY  WRITE 812 {device}:{lock.st_ino} 0 EOF\n"
        f"2: -> FLOCK  ADVISORY  WRITE 813 {device}:{lock.st_ino} 0 EOF\n",
    )
    kept.put("/proc/812/comm", "python3\n")
    kept.put("/proc/811/comm", "fake\n")
    assert status_command.published_now(kept.host())["stale"] == "python3 (process 812) holds the node's lock"
    kept.systemd.told[SERVICE] = {"MainPID": "812"}
    assert agent_now.holder(kept.host(), but="812") == "", (
        "a user's file on another file system has the same inode number"
    )


def test_locks_of_users_keep_no_status_from_its_readers(kept: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    """Any user may have so many that the kernel's table is too large to be read."""
    kept.wait(31)
    stopped(kept)
    kept.put("/proc/locks", "1: FLOCK  ADVISORY  READ 811 00:19:5 0 EOF\n" * 120000)
    assert {in_sync for in_sync, dummy in answers(kept, capsys).values()} == {False}


@pytest.mark.parametrize(("up", "fresh"), [("5012.34 9.9\n", True), ("5031.50 9.9\n", False), (None, False)])
def test_a_copy_of_a_node_is_judged_by_when_it_was_made(up: str | None, fresh: bool, kept: node.Node) -> None:
    if up is not None:
        kept.put("/proc/uptime", up)
    with recorded_tree.opened(str(kept.root)) as host:
        status = status_command.published_now(host)
        assert (not status["stale"], status["in_sync"]) == (fresh, fresh)
        assert status_now.age(host, status) == (None if up is None else int(float(up.split()[0])) - 5000)


def test_a_published_status_that_is_no_corrals_names_no_file(kept: node.Node) -> None:
    status = {
        "time": 1,
        "time_since_boot": "x",
        "partitions": {"../../etc": "root", "corral_/x.slice": 7},
        "interval": True,
    }
    found = status_now.judged(kept.host(), status)
    assert (found["in_sync"], found["exclusive"]) == (False, None)


@pytest.mark.parametrize("waits", [False, True])
def test_every_user_may_ask_for_it(
    waits: bool, kept: node.Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is root's alone is left out, and says so (docs/maintenance.md)."""
    if waits:
        text = json.loads(kept.get(state.STATUS))
        kept.put(state.STATUS, json.dumps({**text, "unconfirmed": {"text": "waits for a confirmation"}}))
    reads = read_faults.Reads(str(kept.root), monkeypatch)

    def note(path: str, *dummies: t.Any) -> None:
        inside = path.removeprefix(str(kept.root))
        if inside.startswith(f"{state.STATE}/") or inside in (state.DECLARED, state.ORIGINS):
            raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(reads, "note", note)
    capsys.readouterr()
    assert runs.command(kept.host(), "status") == IN_SYNC
    said = capsys.readouterr().out
    assert f"no CPU map: {state.DECLARED}: cannot be read: Permission denied (EACCES): run as root" in said
    assert ("waits for a confirmation" in said) == waits
    assert "not known whether it is as it was installed (root can look" in said
    assert runs.command(kept.host(), "status", "--json") == IN_SYNC
    assert json.loads(capsys.readouterr().out)["program"]["as_installed"] is None
    assert "no CPU map" in status_html.page(kept.host(), status_command.published_now(kept.host()))


def test_the_fleets_report_has_one_time() -> None:
    """Its four files are made from one value; a template that asks the clock gets another one each time."""
    fleet = fleet_report({}, {})
    assert abs(fleet["time"] - time.time()) < 60
    for path in sorted((REPOSITORY / "playbooks").rglob("*")):
        assert not path.is_file() or "now()" not in path.read_text(encoding="utf-8"), path
    assert 'time: "{{ corral_fleet.time }}"' in (REPOSITORY / "playbooks/drift.yml").read_text(encoding="utf-8")


def test_the_fact_is_the_programs(kept: node.Node) -> None:
    assert kept.host().link(FACT) == LAUNCHER
