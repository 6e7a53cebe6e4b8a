# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tampering by hand: each is exactly one item, mended by one tick in enforce, only reported in audit."""

from __future__ import annotations

import json
import typing as t

import node
import pytest
import runs
from _core.host import state
from _core.model.agent.agent_units import TIMER
from _core.model.values.errors import CorralError

Make = t.Callable[..., node.Node]
SYSTEM = "/etc/systemd/system"
SHARED = "corral.slice"
DROPIN = f"{SYSTEM}/{SHARED}.d/10-corral-cpu.conf"
LINK = f"{SYSTEM}/timers.target.wants/{TIMER}"
MOUNT = "/dev/hugepages-2Mi"
CGROUP = "/sys/fs/cgroup"
CPUSET = f"{CGROUP}/{SHARED}/cpuset.cpus"


class Case(t.NamedTuple):
    """What a hand does, and the item that must come of it."""

    do: t.Callable[[node.Node], t.Any]
    subject: str
    property: str
    actual: str | None
    wanted: str
    place: str


def append(path: str, text: str) -> t.Callable[[node.Node], None]:
    return lambda fake: fake.put(path, fake.get(path) + text)


def remount(fake: node.Node) -> None:
    fake.systemd.unmount(MOUNT)
    fake.systemd.mount(MOUNT, "hugetlbfs", mode="770", pagesize="2M", size="8388608")


OPTIONS = "pagesize=2M,mode=770,size=67108864"
OURS = "[Unit]; Description=Corral: workloads on the shared pool; [Slice]; AllowedCPUs=; AllowedCPUs=1,5"
CASES = {
    "set-property --runtime": Case(
        lambda fake: fake.systemctl("set-property", "--runtime", SHARED, "AllowedCPUs=1"),
        SHARED, "AllowedCPUs", "1", "1,5", CPUSET,
    ),
    "set-property": Case(
        lambda fake: fake.systemctl("set-property", SHARED, "AllowedCPUs=5"), SHARED, "AllowedCPUs", "5", "1,5", CPUSET
    ),
    "set-property of a reserved slice": Case(
        lambda fake: fake.systemctl("set-property", "system.slice", "AllowedCPUs=0"),
        "system.slice", "AllowedCPUs", "0", "0,2,4,6", f"{CGROUP}/system.slice/cpuset.cpus",
    ),
    "a write to the cgroup": Case(lambda fake: fake.systemd.tamper(SHARED, "5"), SHARED, "AllowedCPUs", "5", "1,5", CPUSET),
    "hugepages of one node": Case(
        lambda fake: fake.kernel_write(node.pool_file(1), "3"),
        "hugepages-2Mi node 1", "nr_hugepages", "3", "32", node.pool_file(1),
    ),
    "umount": Case(lambda fake: fake.systemd.unmount(MOUNT), MOUNT, "mounted", None, OPTIONS, MOUNT),
    "a mount of another size": Case(remount, MOUNT, "mounted", "mode=770,pagesize=2M,size=8388608", OPTIONS, MOUNT),
    "pid_max": Case(
        lambda fake: fake.kernel_write("/proc/sys/kernel/pid_max", "40000"),
        "kernel.pid_max", "value", "40000", "65536", "/proc/sys/kernel/pid_max",
    ),
    "drop-in edited": Case(append(DROPIN, "CPUWeight=5\n"), DROPIN, "content", OURS + "; CPUWeight=5", OURS, DROPIN),
    "drop-in deleted": Case(lambda fake: fake.drop(DROPIN), DROPIN, "content", None, OURS, DROPIN),
    "drop-in edited and reloaded": Case(
        lambda fake: (append(DROPIN, "CPUWeight=5\n")(fake), fake.systemctl("daemon-reload")),
        DROPIN, "content", OURS + "; CPUWeight=5", OURS, DROPIN,
    ),
    "sysctl.d deleted": Case(
        lambda fake: fake.drop("/etc/sysctl.d/90-corral.conf"), "/etc/sysctl.d/90-corral.conf", "content", None,
        "kernel.pid_max = 65536; kernel.threads-max = 16384", "/etc/sysctl.d/90-corral.conf",
    ),
    "TasksMax": Case(
        lambda fake: fake.systemctl("set-property", "--runtime", "corral.slice", "TasksMax=77"),
        "corral.slice", "TasksMax", "77", "4096", f"{CGROUP}/corral.slice/pids.max",
    ),
    "TasksMax for ever": Case(
        lambda fake: fake.systemctl("set-property", "corral.slice", "TasksMax=77"),
        "corral.slice", "TasksMax", "77", "4096", f"{CGROUP}/corral.slice/pids.max",
    ),
    "timer stopped": Case(
        lambda fake: fake.systemctl("stop", TIMER), TIMER, "state", "enabled, inactive", "enabled, active", LINK
    ),
    "timer disabled": Case(lambda fake: fake.drop(LINK), TIMER, "state", "disabled, active", "enabled, active", LINK),
}  # fmt: skip


@pytest.fixture
def rolled(made_once: node.MadeOnce) -> node.Node:
    return made_once(runs.kept)


@pytest.mark.parametrize("name", CASES)
def test_tampering_is_exactly_one_item_and_one_tick_mends_it(name: str, rolled: node.Node) -> None:
    case = CASES[name]
    before = rolled.fingerprint("run/corral", node.RUNTIME_CONTROL)
    rolled.systemd.empty_too = True
    with rolled.by_hand():
        case.do(rolled)
    (item,) = runs.plan(rolled.host())
    assert (item.subject, item.property, item.actual, item.wanted, item.location, item.verdict) == (*case[1:], "drift")
    assert runs.tick(rolled.host(), by_timer=False) == 2
    assert json.loads(rolled.get("/run/corral/status.json"))["in_sync"] is True
    assert node.different(before, rolled.fingerprint("run/corral", node.RUNTIME_CONTROL)) == []
    assert (runs.plan(rolled.host()), rolled.overlaps, rolled.standing) == ((), [], frozenset())
    rolled.systemctl("daemon-reload")
    assert runs.plan(rolled.host()) == (), "nothing comes back with a reload"


@pytest.mark.parametrize("name", CASES)
def test_audit_mode_only_reports(name: str, make: Make) -> None:
    fake = make()
    assert not runs.install(fake.host()).error
    assert not runs.declare(fake.host(), mode="audit").error
    CASES[name].do(fake)
    own = {*state.PUBLISHED, state.SINCE}
    before, host = fake.fingerprint("run/corral", state.SINCE.lstrip("/")), fake.host()
    assert runs.tick(host, by_timer=False) == 2
    status = json.loads(fake.get("/run/corral/status.json"))
    assert [item["subject"] for item in status["items"]] == [CASES[name].subject]
    assert set(host.writes) <= own
    assert fake.fingerprint("run/corral", state.SINCE.lstrip("/")) == before


@pytest.mark.parametrize("name", CASES)
def test_removal_after_tampering_restores_what_was_before_corral(name: str, make: Make) -> None:
    fake = make()
    before = fake.fingerprint()
    runs.converged(fake, with_agent=True)
    CASES[name].do(fake)
    runs.tick(fake.host(), by_timer=False)
    assert runs.remove(fake.host()).leftovers == ()
    assert node.different(before, fake.fingerprint()) == []


# What a persistent set-property of a unit that is not Corral's says is in force again after the removal.
@pytest.mark.parametrize("name", [name for name in CASES if name != "set-property of a reserved slice"])
def test_removal_right_after_tampering_restores_what_was_before_corral(name: str, make: Make) -> None:
    fake = make()
    before = fake.fingerprint()
    runs.converged(fake, with_agent=True)
    CASES[name].do(fake)
    assert runs.remove(fake.host()).leftovers == ()
    # What was set by hand after the rollout and never seen by Corral is its author's.
    left = [
        line for line in node.different(before, fake.fingerprint()) if "/50-" not in line and ".control" not in line
    ]
    assert left == []


def test_since_is_when_it_was_first_seen(rolled: node.Node) -> None:
    fake = rolled
    runs.declare(fake.host(), mode="audit")
    fake.kernel_write("/proc/sys/kernel/pid_max", "40000")
    runs.tick(fake.host())
    first = fake.time
    fake.time += 50
    runs.tick(fake.host())
    (item,) = json.loads(fake.get("/run/corral/status.json"))["items"]
    assert (item["since"], item["verdict"], item["manager"]) == (first, "drift", "pids")


def test_the_journal_has_one_line_a_change_and_none_without(
    rolled: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.tick(rolled.host())
    capsys.readouterr()
    rolled.kernel_write("/proc/sys/kernel/pid_max", "40000")
    runs.tick(rolled.host())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("<5>changed")
    assert "40000" in lines[0]
    runs.tick(rolled.host())
    assert capsys.readouterr().err == ""


def test_the_journal_names_each_of_several_items_once(rolled: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    runs.declare(rolled.host(), mode="audit")
    names = ("pid_max", "hugepages of one node", "TasksMax")
    for name in names:
        CASES[name].do(rolled)
    capsys.readouterr()
    for dummy in range(2):
        runs.tick(rolled.host())
    lines = capsys.readouterr().err.splitlines()
    assert sorted(line.split(":")[0] for line in lines) == sorted(
        f"<4>drift ~ {manager} {CASES[name].subject} {CASES[name].property}"
        for manager, name in zip(("pids", "memory", "pids"), names)
    )


def test_a_whole_look_that_finds_nothing_writes_what_it_saw_alone(rolled: node.Node) -> None:
    runs.tick(rolled.host())
    (rolled.root / "run/corral/inputs").unlink(missing_ok=True)  # by these a tick would know that nothing has changed
    host = rolled.host()
    assert runs.tick(host) == 0
    assert set(host.writes) - {"/run/corral/inputs"} == {"/run/corral/status.json"}


def test_drift_that_cannot_be_mended_is_named_with_its_file(rolled: node.Node) -> None:
    rolled.put("/etc/sysctl.d/99-mine.conf", "kernel/pid_max=1234\n")
    rolled.put(f"{SYSTEM}/{SHARED}.d/20-mine.conf", "[Slice]\nAllowedCPUs=6\n")
    found = {(item.subject, item.location, item.verdict) for item in runs.plan(rolled.host())}
    assert found == {
        ("kernel.pid_max", "/etc/sysctl.d/99-mine.conf", "unchangeable"),
        (SHARED, f"{SYSTEM}/{SHARED}.d/20-mine.conf", "unchangeable"),
    }


def test_a_mount_in_use_is_named_with_its_user(rolled: node.Node) -> None:
    remount(rolled)
    rolled.put("/proc/77/comm", "dpdk-app\n")
    rolled.put("/proc/77/maps", f"7f00-7f20 rw-s 00000000 00:2a 5 {MOUNT}/page\n")
    (item,) = runs.plan(rolled.host())
    assert (item.verdict, item.steps) == ("unchangeable", ())
    assert "dpdk-app (77)" in item.reason


def test_another_file_system_on_the_mount_is_named(rolled: node.Node) -> None:
    rolled.systemd.mount(MOUNT, "tmpfs")
    (item,) = runs.plan(rolled.host())
    assert (item.actual, item.verdict) == ("tmpfs", "unchangeable")


def test_processes_where_nobody_placed_them_are_drift(rolled: node.Node) -> None:
    rolled.systemctl("start", "mine.slice")
    rolled.systemd.cgroups["mine.slice"].procs = 1
    rolled.systemd.sync()
    (item,) = runs.plan(rolled.host())
    assert (item.subject, item.property, item.actual) == ("mine.slice", "placement", "runs on 0-2,4-6 (PID 0 ?)")


def test_a_slice_that_does_not_run_starts_off_the_cpus_that_are_still_to_be_given_up(rolled: node.Node) -> None:
    """What it is to have at the end is the isolated slice's until that has moved."""
    rolled.systemctl("stop", "machine.slice")
    cpu = {"reserved": {"cores_per_numa": 1}, "isolated": {"cpus": "1,5"}, "whole_cores": True}
    outcome = runs.declare(rolled.host(), cpu=cpu)
    assert (outcome.error, outcome.remaining, rolled.overlaps) == ("", (), [])
    assert (rolled.cpus("machine.slice"), rolled.cpus(node.ISOLATED)) == ({3, 7}, {1, 5})


def test_two_changes_at_once_are_two_items(rolled: node.Node) -> None:
    rolled.kernel_write(node.pool_file(0), "1")
    rolled.systemd.empty_too = True
    with rolled.by_hand():
        rolled.systemd.tamper("system.slice", "0-7")
    # With CPUs that another one asks for the isolated slice is no partition any more.
    assert [item.subject for item in runs.plan(rolled.host())] == [
        "system.slice",
        "corral_isolated.slice",
        "hugepages-2Mi node 0",
    ]
    runs.tick(rolled.host())
    assert (runs.plan(rolled.host()), rolled.standing) == ((), frozenset())


def test_drift_without_root_is_unknown_and_not_in_sync(rolled: node.Node) -> None:
    rolled.drop("/proc/1/mountinfo")
    found = {item.subject: item.verdict for item in runs.plan(rolled.host())}
    assert found == {"mounts": "unknown"}
    assert runs.tick(rolled.host(), by_timer=False) == 2
    status = json.loads(rolled.get("/run/corral/status.json"))
    assert (status["in_sync"], [item["verdict"] for item in status["items"]]) == (False, ["unknown"])


def test_a_process_with_more_maps_than_are_read_hides_no_other_drift(rolled: node.Node) -> None:
    """Any user can have one, and so has a database; whether it uses a mount that differs is not known."""
    table = rolled.get("/proc/1/mountinfo")
    rolled.put("/proc/1/mountinfo", table.replace("mode=0770", "mode=0700").replace("mode=770", "mode=700"))
    assert rolled.get("/proc/1/mountinfo") != table
    rolled.put("/proc/4711/maps", "7f00-7f01 rw-p 0 00:00 0 /srv/data\n" * 150000)
    rolled.put("/proc/4711/comm", "java\n")
    with rolled.by_hand():
        rolled.systemd.tamper("system.slice", "0-7")
    runs.tick(rolled.host())
    assert rolled.cpus("system.slice") == node.RESERVED
    (item,) = runs.plan(rolled.host())
    assert (item.subject, item.verdict) == ("/dev/hugepages-2Mi", "unchangeable")
    assert (
        "in use by java (4711), of which that is not known (/proc/4711/maps: cannot be read: it has more" in item.reason
    )


def test_a_profile_that_no_longer_fits_the_machine_is_an_error_until_it_fits_again(rolled: node.Node) -> None:
    pool = {"size": "2Mi", "count": 32, "node": 1}
    assert not runs.declare(rolled.host(), memory={"hugepages": [pool]}).error
    memory = rolled.get("/sys/devices/system/node/node1/meminfo")
    rolled.put("/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       1024 kB\n")
    with pytest.raises(CorralError):
        runs.plan(rolled.host())
    host = rolled.host()
    assert runs.tick(host) == 1
    assert set(host.writes) == {"/run/corral/status.json"}
    status = json.loads(rolled.get("/run/corral/status.json"))
    assert ("memory" in status["error"], status["items"], status["in_sync"]) == (True, [], False)
    rolled.put("/sys/devices/system/node/node1/meminfo", memory)
    assert runs.tick(rolled.host()) == 0
    assert json.loads(rolled.get("/run/corral/status.json"))["in_sync"]


def test_a_timer_that_is_disabled_and_stopped_while_its_tick_begins_runs_again(with_agent: node.Node) -> None:
    """Its tick is the last one: a node where it only enabled the timer would be left alone until the next boot."""
    with_agent.drop(LINK)
    with_agent.systemctl("stop", TIMER)
    assert runs.tick(with_agent.host(), by_timer=True) == 2
    assert with_agent.has(LINK) and TIMER in with_agent.systemd.active


def test_reconcile_brings_the_agents_own_units_back(with_agent: node.Node) -> None:
    before = with_agent.fingerprint(*node.STATE)
    (with_agent.root / f"etc/systemd/system/{TIMER}").unlink()
    with_agent.kernel_write(node.pool_file(1), "0\n")
    said = runs.printed(with_agent.host(), "reconcile")
    assert TIMER in said and "nr_hugepages" in said
    assert node.different(before, with_agent.fingerprint(*node.STATE)) == []
    host = with_agent.host()
    assert runs.command(host, "reconcile") == 0
    assert host.writes == []
