# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Since when an item of drift has been seen, also before a reboot, in the status, the commands and the file that stays."""

from __future__ import annotations

import errno
import json
import typing as t

import node
import pytest
import runs
from _core.host import state
from _core.model.agent.agent_units import SERVICE
from _core.reports import change_text, drift_since

PID_MAX = "/proc/sys/kernel/pid_max"
ITEM = ("pids", "kernel.pid_max", "value")


def make_drifted(fake: node.Node) -> None:
    """A node in audit mode whose kernel.pid_max was set by hand, as a tick saw it."""
    runs.declare(fake.host(), mode="audit")
    runs.tick(fake.host())
    fake.put(PID_MAX, "70000\n")
    fake.time += 30
    runs.tick(fake.host())


@pytest.fixture
def drifted(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_drifted)


def since(fake: node.Node) -> int:
    return t.cast("int", json.loads(fake.get(state.STATUS))["items"][0]["since"])


def test_a_reboot_does_not_forget_it(drifted: node.Node) -> None:
    drifted.put("/etc/sysctl.d/99-others.conf", "kernel.pid_max = 70000\n")
    later = (*ITEM[:2], "value at the next boot")
    drifted.time += 5
    runs.tick(drifted.host())
    first = drift_since.read(drifted.host())[later]
    drifted.boot_anew(600)
    runs.tick(drifted.host(), at_boot=True)
    assert drift_since.read(drifted.host()) == {later: first}, "the boot mends the other one"
    assert since(drifted) == first == int(drifted.time) - 600


def test_a_boot_does_not_forget_the_agents_own_drift(fake: node.Node) -> None:
    runs.install(fake.host())
    runs.declare(fake.host(), mode="audit")
    unit = f"/etc/systemd/system/{SERVICE}"
    fake.put(unit, f"{fake.get(unit)}# mine\n")
    runs.tick(fake.host())
    first = drift_since.read(fake.host())
    assert [item[0] for item in first] == ["agent"]
    fake.boot_anew(600)
    runs.tick(fake.host(), at_boot=True)
    runs.tick(fake.host())
    assert drift_since.read(fake.host()) == first


def test_it_is_kept_for_as_long_as_the_item_stays(drifted: node.Node) -> None:
    assert drift_since.read(drifted.host()) == {ITEM: int(drifted.time)}
    drifted.put(PID_MAX, "65536\n")
    runs.tick(drifted.host())
    assert not drifted.has(state.SINCE)
    drifted.put(PID_MAX, "70000\n")
    drifted.time += 60
    runs.tick(drifted.host())
    assert since(drifted) == int(drifted.time)


def test_drift_that_stays_is_written_once(drifted: node.Node) -> None:
    drifted.time += 30
    host = drifted.host()
    assert runs.tick(host) == 2
    assert state.SINCE not in host.writes


def test_a_tick_that_could_not_look_keeps_it(drifted: node.Node) -> None:
    first, profile = since(drifted), drifted.get(state.DECLARED)
    drifted.put(
        state.DECLARED,
        json.dumps({**json.loads(profile), "memory": {"hugepages": [{"size": "2Mi", "count": 1, "node": 7}]}}),
    )
    runs.tick(drifted.host())
    drifted.put(state.DECLARED, profile)
    drifted.time += 30
    runs.tick(drifted.host())
    assert since(drifted) == first


def test_the_command_drift_says_it(drifted: node.Node) -> None:
    first = since(drifted)
    drifted.time += 60
    assert "[since 2023-11-14 22:" in runs.printed(drifted.host(), "drift", code=2)
    assert [
        item["since"] for item in json.loads(runs.printed(drifted.host(), "drift", "--json", code=None))["changes"]
    ] == [first]


def test_the_command_status_says_it_with_its_date(drifted: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    seen = change_text.moment(since(drifted))
    drifted.boot_anew(86400)
    runs.tick(drifted.host())
    drifted.put(PID_MAX, "70000\n")
    runs.command(drifted.host(), "status")
    assert seen.startswith("2023-11-14 ")
    assert f"drift since {seen}: pids kernel.pid_max value: " in capsys.readouterr().out


def test_the_module_profile_says_it(drifted: node.Node) -> None:
    pytest.importorskip("ansible.module_utils.basic")
    import test_workload_module

    first = since(drifted)
    drifted.time += 60
    module = test_workload_module.Module(check=True, profile=None, layers=None, during_pause="refuse")
    found = test_workload_module.WORKLOAD._module.profile_task(module, drifted.host())
    assert [item["since"] for item in found["drift"]] == [first]
    assert found["report"][0].endswith(f" [since {change_text.moment(first)}]")


def test_an_explanation_says_it(drifted: node.Node) -> None:
    first = since(drifted)
    drifted.time += 60
    assert "[since 2023-11-14 22:" in runs.printed(drifted.host(), "drift", "--explain", code=None)
    assert [
        item["since"]
        for item in json.loads(runs.printed(drifted.host(), "drift", "--explain", "--json", code=None))["changes"]
    ] == [first]


def test_the_command_reconcile_says_it_of_what_is_left(drifted: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    drifted.put("/etc/sysctl.d/99-others.conf", "kernel.pid_max = 70000\n")
    runs.tick(drifted.host())
    capsys.readouterr()
    drifted.time += 60
    assert "[since 2023-11-14 22:" in runs.printed(drifted.host(), "reconcile", code=None)


def test_a_profile_that_is_not_declared_has_no_past(drifted: node.Node, tmp_path: t.Any) -> None:
    other = tmp_path / "other.json"
    other.write_text(drifted.get(state.DECLARED))
    assert "since" not in runs.printed(drifted.host(), "drift", "--profile", str(other), code=None)


def test_removal_forgets_it(drifted: node.Node) -> None:
    runs.remove(drifted.host())
    assert not drifted.has(state.SINCE)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "3", '[["a", "b", "c"]]', '[["a", "b", "c", true]]', '[["a", "b", 1, 2]]', '[["a", "b", "c", -1]]'],
)
def test_a_file_that_corral_did_not_write_has_no_items(fake: node.Node, text: str) -> None:
    fake.put(state.SINCE, text)
    assert drift_since.read(fake.host()) == {}


def test_a_full_disk_does_not_stop_a_tick(fake: node.Node) -> None:
    runs.declare(fake.host(), mode="audit")
    fake.put(PID_MAX, "70000\n")
    host = fake.host()
    write = host.write_file

    def full(path: str, *rest: t.Any) -> None:
        if path == state.SINCE:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        write(path, *rest)

    host.write_file = full  # type: ignore[method-assign]
    assert runs.tick(host) == 2
    assert since(fake) == int(fake.time)
