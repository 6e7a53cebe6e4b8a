# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands for the health of devices on a fake node: when they run, and what follows from what they say."""

from __future__ import annotations

import json
import os
import typing as t

import failing
import node
import pytest
import runs
import services
import test_devices_granted
import test_workloads
from _core.host import state
from _core.host.command import Command
from _core.host.files import Host
from _core.host.lock import Lock
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import applying, planning, preflight_notes, run_device_checks
from test_devices_granted import DPDK, JOB, LINKS, OTHER, PROFILE, SERIAL, TTY, held, in_sync, running
from test_workloads import status

Make = t.Callable[..., node.Node]
OK = "/usr/local/sbin/tty-ok"
CHECK = {"command": [OK, "--quick"], "interval": "1m", "timeout": "5s"}
TIMER = "corral-device-checks.timer"
UNITS = [f"/etc/systemd/system/{name}" for name in (TIMER, "corral-device-checks.service")]
LINK = f"/etc/systemd/system/timers.target.wants/{TIMER}"
BY_HAND = (SERIAL, JOB, OTHER)


def checked(**sections: t.Any) -> dict[str, t.Any]:
    rows = [{**row, "check": CHECK} if row["name"] == TTY else row for row in PROFILE["devices"]]
    return test_devices_granted.profile_with(**{"devices": rows, **sections})


class Program:
    """The command: the ids that it was run for, and what it prints for some; ``then`` is called each time."""

    def __init__(self, fake: node.Node) -> None:
        self.asked: list[str] = []
        self.said: dict[str, Command] = {}
        fake.programs[OK] = self

    def __call__(self, *argv: str) -> Command:
        assert argv[:2] == (OK, "--quick")
        self.asked.append(argv[2])
        return self.said.get(argv[2], Command(0, "fine\n", ""))

    def sick(self, link: str, line: str = "no answer to AT") -> None:
        self.said[link] = Command(1, f"trying\n{line}\n", "")

    def heard(self) -> list[str]:
        """The ids that it was run for since the last time."""
        asked, self.asked = self.asked, []
        return asked


def declare(fake: node.Node, **sections: t.Any) -> t.Any:
    """What the module does: it asks before it has the node's lock."""
    host, declared = fake.host(), profile.parse(checked(**sections))
    run_device_checks.check_unknown(host, declared)
    return runs.locked_run.published(host, applying.declare(host, declared))


def a_pass(fake: node.Node, host: node.NodeHost | None = None) -> None:
    """One run of corral-device-checks.service."""
    assert runs.command(host or fake.host(), "devices", "--tick") == 0


@pytest.fixture
def program(fake: node.Node) -> Program:
    test_devices_granted.equip(fake)
    assert not runs.install(fake.host()).error
    return Program(fake)


@pytest.fixture
def rolled(fake: node.Node, program: Program) -> node.Node:
    assert declare(fake).remaining == ()
    assert services.start(fake, DPDK), fake.said
    a_pass(fake)
    fake.wait(10)
    runs.tick(fake.host())
    fake.wait(10)
    in_sync(fake)
    program.heard()
    return fake


def test_the_first_answers_come_before_anything_is_given_out(fake: node.Node, program: Program) -> None:
    program.sick(LINKS[0])
    declare(fake)
    assert program.heard() == list(LINKS)
    assert [fake.has(path) for path in (*UNITS, LINK)] == [True, True, True]
    assert not fake.has(state.DEVICE_CHECKS), "the run that asked has its answers, and no other one"
    # No pass has ended since: the start asks, and keeps the answers.
    assert running(fake, SERIAL).devices == {LINKS[1]}
    assert program.heard() == list(LINKS)
    assert fake.has(state.DEVICE_CHECKS)
    a_pass(fake)
    assert program.heard() == list(LINKS)
    assert running(fake, JOB).devices == {LINKS[2]}
    assert program.heard() == [], "the last answer counts"
    assert services.start(fake, OTHER) is None
    (said,) = [line for line in fake.said if "missing" in line]
    assert "of 3 devices 0 can be given" in said


def test_a_start_in_the_middle_of_the_boots_first_pass_gets_nothing_that_was_not_checked(
    fake: node.Node, program: Program
) -> None:
    declare(fake)
    fake.boot_anew()
    runs.tick(fake.host(), at_boot=True)
    program.sick(LINKS[0])
    program.sick(LINKS[1])
    program.heard()
    # A start meets the lock of a pass: that of one that was killed after its first device is free.
    host = fake.host()
    devices = profile.parse(checked()).devices
    found = run_device_checks.inventory.devices_of(devices, run_device_checks.device_files.observe(host, devices))
    (key, *dummy), *rest = run_device_checks.to_check(found, devices)
    run_device_checks.save(host, {key: "no answer"})
    assert len(rest) == 2
    assert running(fake, SERIAL).devices == {LINKS[2]}
    assert program.heard() == list(LINKS[1:])


def test_a_start_checks_what_was_plugged_in_since(rolled: node.Node, program: Program) -> None:
    test_devices_granted.unplug_tty(rolled, 0)
    rolled.wait(60)
    a_pass(rolled)
    runs.tick(rolled.host())
    program.sick(LINKS[0])
    program.heard()
    test_devices_granted.plug_tty(rolled, 0)
    assert running(rolled, SERIAL).devices == {LINKS[1]}
    assert program.heard() == [LINKS[0]]


NOT_RUN = Command(125, "", f"{OK}: systemd did not run it: Connection timed out")


def test_a_check_that_systemd_did_not_run_says_nothing_of_a_device(rolled: node.Node, program: Program) -> None:
    """What was said last counts, and the next pass asks again."""
    kept = rolled.get(state.DEVICE_CHECKS)
    program.said = dict.fromkeys(LINKS, NOT_RUN)
    rolled.wait(70)
    a_pass(rolled)
    assert program.heard() and rolled.get(state.DEVICE_CHECKS) == kept
    program.said = {}
    a_pass(rolled)
    assert program.heard() and rolled.get(state.DEVICE_CHECKS) == kept


def test_a_start_whose_checks_systemd_did_not_run_gets_nothing_and_keeps_no_answer(
    fake: node.Node, program: Program
) -> None:
    declare(fake)
    program.said = {**dict.fromkeys(LINKS, NOT_RUN), LINKS[1]: Command(0, "", "")}
    assert running(fake, SERIAL).devices == {LINKS[1]}
    kept = fake.get(state.DEVICE_CHECKS)
    assert (LINKS[0] in kept, LINKS[1] in kept) == (False, True)
    program.said = {}
    program.heard()
    assert running(fake, JOB).devices == {LINKS[0]}
    assert program.heard() == [LINKS[0], LINKS[2]], "what was not heard is asked for again"


def test_a_check_by_hand_counts_from_then_on(rolled: node.Node, program: Program) -> None:
    for link in LINKS:
        program.sick(link)
    rolled.wait(60)
    a_pass(rolled)
    assert services.start(rolled, SERIAL) is None
    program.said.clear()
    assert runs.command(rolled.host(), "devices", "--check") == 0
    assert running(rolled, SERIAL).devices == {LINKS[0]}


def test_a_check_by_hand_beside_a_pass_that_hangs_says_so(
    rolled: node.Node, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_device_checks, "LOCK_SECONDS", 0.1)
    lock = Lock(rolled.host(), state.DEVICE_CHECKS_LOCK)
    assert lock.take()
    with pytest.raises(CorralError, match=r"a pass of checks has run for 0\.1 s"):
        runs.command(rolled.host(), "devices", "--check")
    assert running(rolled, SERIAL).devices == {LINKS[0]}, "what is known counts, and nothing waits"
    assert program.heard() == []
    lock.release()


def test_passes_keep_nothing_once_the_profile_is_removed(fake: node.Node, program: Program) -> None:
    declare(fake)

    def remove_then(*argv: str) -> Command:
        if argv[2] == LINKS[0]:
            runs.remove(fake.host(), runs.registry.of_profile())
        return program(*argv)

    fake.programs[OK] = remove_then
    a_pass(fake)
    kept = (state.DEVICE_CHECKS, state.DEVICES_CHECKED, state.DEVICE_CHECKS_LOCK)
    assert [path for path in kept if fake.has(path)] == []


def test_no_pass_that_ends_since_the_boot_is_drift(rolled: node.Node, program: Program) -> None:
    os.utime(rolled.root / UNITS[0][1:], (rolled.time, rolled.time))
    rolled.boot_anew()
    runs.tick(rolled.host(), at_boot=True)
    rolled.systemctl("start", TIMER)
    rolled.wait(300)
    runs.tick(rolled.host(), by_timer=False)
    assert [item for item in status(rolled)["items"] if item["property"] == "last pass"] == []
    rolled.wait(1000)
    runs.tick(rolled.host(), by_timer=False)
    (item,) = [item for item in status(rolled)["items"] if item["property"] == "last pass"]
    assert item["verdict"] == "unknown"


def test_another_interval_restarts_the_timer(rolled: node.Node, program: Program) -> None:
    rows = [{**row, "check": {**CHECK, "interval": "10m"}} if row["name"] == TTY else row for row in PROFILE["devices"]]
    host = rolled.host()
    applying.declare(host, profile.parse(checked(devices=rows)))
    assert any("restart" in command and TIMER in command for command in host.commands)


def test_a_profile_that_needs_an_unhealthy_device_is_refused(fake: node.Node, program: Program) -> None:
    for link in LINKS:
        program.sick(link)
    before = fake.fingerprint()
    row = {"name": "serial", "match": {"unit": SERIAL}, "requests": {TTY: 1, "cpu": "100m"}}
    with pytest.raises(CorralError, match="of 3 devices 0 can be given"):
        declare(fake, workloads=[row])
    assert node.different(before, fake.fingerprint()) == []
    assert not fake.has(state.DEVICE_CHECKS_LOCK)


def test_an_unhealthy_device_is_named_with_its_holder_and_taken_from_no_one(
    rolled: node.Node, program: Program
) -> None:
    run = running(rolled, SERIAL)
    runs.tick(rolled.host())
    program.sick(LINKS[0])
    rolled.wait(60)
    a_pass(rolled)
    assert runs.tick(rolled.host()) == 2
    (item,) = status(rolled)["items"]
    assert (item["subject"], item["verdict"]) == (f"serial {LINKS[0]}", "unchangeable")
    assert item["actual"] == f"{OK}: exit code 1: no answer to AT{run_device_checks.DYNAMIC}"
    assert (rolled.runs[SERIAL], held(rolled)["serial"]) == (run, [LINKS[0]])
    assert f"unhealthy: {OK}: exit code 1: no answer to AT" in runs.printed(rolled.host(), "devices", code=2)
    services.stop(rolled, SERIAL)
    assert running(rolled, SERIAL).devices == {LINKS[1]}
    in_sync(rolled)
    program.said.clear()
    rolled.wait(60)
    a_pass(rolled)
    runs.tick(rolled.host())
    assert running(rolled, JOB).devices == {LINKS[0]}
    in_sync(rolled)


def test_passes_ask_about_what_is_due_alone(rolled: node.Node, program: Program) -> None:
    for seconds, wanted in ((1, []), (9, list(LINKS)), (1, []), (25, []), (34, list(LINKS))):
        rolled.wait(seconds)
        a_pass(rolled)
        assert program.heard() == wanted, seconds
    test_devices_granted.unplug_tty(rolled, 1)
    a_pass(rolled)
    test_devices_granted.plug_tty(rolled, 1)
    a_pass(rolled)
    assert program.heard() == [LINKS[1]], "one that was away is checked again"
    rolled.boot_anew()
    a_pass(rolled)
    assert program.heard() == list(LINKS)


def test_a_converged_tick_runs_no_command_and_passes_disturb_none(rolled: node.Node, program: Program) -> None:
    runs.tick(rolled.host())
    for dummy in range(3):
        rolled.wait(60)
        before = rolled.get(state.DEVICE_CHECKS), rolled.get("/run/corral/inputs")
        host = rolled.host()
        a_pass(rolled, host)
        written = [act for act in host.acts if act.startswith("write_file")]
        assert written == [f"write_file {state.DEVICES_CHECKED}"]
        host = rolled.host()
        assert runs.tick(host) == 0
        assert host.commands == []
        assert (rolled.get(state.DEVICE_CHECKS), rolled.get("/run/corral/inputs")) == before, (
            "the tick was the cheap one"
        )
    assert program.heard() == list(LINKS) * 3


def test_a_pass_beside_another_one_does_nothing(
    rolled: node.Node, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_device_checks, "LOCK_SECONDS", 0.2)
    other = Lock(rolled.host(), state.DEVICE_CHECKS_LOCK)
    assert other.take()
    rolled.wait(60)
    a_pass(rolled)
    assert program.heard() == []
    other.release()
    a_pass(rolled)
    assert program.heard() == list(LINKS)


def test_check_mode_asks_and_writes_nothing(fake: node.Node, program: Program) -> None:
    program.sick(LINKS[0])
    before = fake.fingerprint()
    host, declared = fake.host(), profile.parse(checked())
    run_device_checks.check_unknown(host, declared, writes=False)
    context = planning.compile_profile(host, declared, fresh=True)
    planning.plan_profile(host, context, declare=True)
    assert (program.heard(), host.writes) == (list(LINKS), [])
    (note,) = [one for one in preflight_notes.notes(host, context) if "unhealthy" in one]
    assert f"1 of {len(LINKS)} are unhealthy: {LINKS[0]}: " in note, "no workload is given it"
    assert node.different(before, fake.fingerprint()) == []
    assert not fake.has(state.DEVICE_CHECKS_LOCK)


def test_a_run_asks_again_about_no_device_that_is_known(rolled: node.Node, program: Program) -> None:
    declare(rolled)
    assert program.heard() == []
    assert runs.command(rolled.host(), "devices", "--check") == 0
    assert program.heard() == list(LINKS)


def test_another_command_has_not_answered_yet(rolled: node.Node, program: Program) -> None:
    other = "/usr/local/sbin/other"
    rolled.programs[other] = lambda *dummy: Command(1, "", "")
    rows = [{**row, "check": {"command": [other]}} for row in PROFILE["devices"] if row["name"] == TTY]
    workloads = [one for one in PROFILE["workloads"] if one["name"] != "dpdk"]
    assert test_workloads.roll_out(rolled, checked(devices=rows, workloads=workloads)).error == ""
    said = runs.printed(rolled.host(), "devices", code=None)
    assert f"note: devices[0].check: {LINKS[0]} and 2 more: not checked yet" in said
    a_pass(rolled)
    assert f"unhealthy: {other}: exit code 1" in runs.printed(rolled.host(), "devices", code=2)
    assert program.heard() == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Command(124, "", f"{OK}: no answer within 5 s"), f"{OK}: no answer within 5 s"),
        (Command(127, "", f"{OK}: not there"), f"{OK}: not there"),
        (Command(126, "", f"{OK}: Permission denied"), f"{OK}: Permission denied"),
        (
            Command(7, "\x1b[31m\r\nbad\u2028\x00\x07 \n\n", ""),
            f"{OK}: exit code 7: bad\\u2028\\x00\\x07{run_device_checks.DYNAMIC}",
        ),
        (Command(7, "x" * 100000, ""), f"{OK}: exit code 7: {'x' * 200}…{run_device_checks.DYNAMIC}"),
        (Command(-11, "", ""), f"{OK}: ended by signal 11"),
    ],
)
def test_whatever_it_says_is_one_printable_line(
    rolled: node.Node, program: Program, answer: Command, said: str
) -> None:
    running(rolled, SERIAL)
    program.said[LINKS[0]] = answer
    rolled.wait(60)
    a_pass(rolled)
    runs.tick(rolled.host())
    (item,) = status(rolled)["items"]
    assert item["actual"] == said


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1, "checksum": "", "data": [[1]]}'])
@pytest.mark.parametrize("path", [state.DEVICE_CHECKS, state.DEVICES_CHECKED])
def test_a_file_of_answers_in_another_form_is_written_again(
    rolled: node.Node, program: Program, path: str, text: str
) -> None:
    program.sick(LINKS[0])
    rolled.put(path, text)
    assert runs.tick(rolled.host()) == 0
    a_pass(rolled)
    assert program.heard() == list(LINKS)
    assert running(rolled, SERIAL).devices == {LINKS[1]}


def test_rows_of_another_form_are_passed_over(rolled: node.Node) -> None:
    rolled.put(state.DEVICE_CHECKS, state.checked_text([1, ["a"], ["a", "b", "c", 1], {}, ["a", "b", "c", "d"]]))
    rolled.put(state.DEVICES_CHECKED, json.dumps({"time": "x", "asked": [1, ["a"], ["a", "b", "c", "x"], {}]}))
    a_pass(rolled)
    assert json.loads(rolled.get(state.DEVICE_CHECKS))["data"][0][1] == LINKS[0]


def test_a_device_that_is_unhealthy_for_another_reason_is_not_asked_about(fake: node.Node, program: Program) -> None:
    rows = [{"name": "a.example/nic", "match": {"pci": "8086:1572"}, "check": CHECK}]
    node_folder = fake.root / "sys/bus/pci/devices" / test_devices_granted.NICS[0]
    (node_folder / "driver").unlink()
    declare(fake, devices=rows, workloads=[])
    assert program.heard() == list(test_devices_granted.NICS[1:])


@pytest.mark.parametrize("path", [*UNITS, LINK])
def test_a_unit_that_was_changed_is_brought_back(rolled: node.Node, path: str) -> None:
    rolled.drop(path)
    assert runs.tick(rolled.host()) == 2
    assert rolled.has(path)
    in_sync(rolled)


def test_a_timer_that_stopped_is_found_when_no_pass_ends(rolled: node.Node) -> None:
    rolled.systemctl("stop", TIMER)
    rolled.wait(2000)
    assert runs.tick(rolled.host()) == 2
    a_pass(rolled)  # The timer's first one.
    in_sync(rolled)


def test_passes_that_do_not_end_are_unknown(rolled: node.Node) -> None:
    rolled.wait(2000)
    assert runs.tick(rolled.host()) == 2
    (item,) = status(rolled)["items"]
    assert (item["manager"], item["property"], item["verdict"]) == ("checks", "last pass", "unknown")


@pytest.mark.parametrize("whole", [False, True])
def test_nothing_is_left_of_them(fake: node.Node, program: Program, whole: bool) -> None:
    before = fake.fingerprint()
    assert declare(fake).remaining == ()
    a_pass(fake)
    if whole:
        runs.remove(fake.host(), runs.registry.of_profile())
    else:
        assert test_devices_granted.roll_out(fake).remaining == ()
    left = [*UNITS, LINK, state.DEVICE_CHECKS, state.DEVICES_CHECKED, state.DEVICE_CHECKS_LOCK]
    assert [path for path in left if fake.has(path)] == []
    a_pass(fake)
    assert [path for path in left if fake.has(path) and path != state.DEVICE_CHECKS_LOCK] == []
    if whole:
        different = [line for line in node.different(before, fake.fingerprint()) if "checks" in line]
        assert different == []
    else:
        runs.tick(fake.host())
        in_sync(fake)


def test_a_profile_that_comes_by_itself_is_applied_by_a_tick_that_runs_no_command(
    fake: node.Node, program: Program
) -> None:
    program.sick(LINKS[0])
    fake.put("/etc/corral/profile.json", json.dumps(checked()))
    runs.tick(fake.host())
    assert program.heard() == []
    assert running(fake, SERIAL).devices == {LINKS[1]}, "its start asks"


def test_a_boot_asks_before_the_first_start_alone(rolled: node.Node, program: Program) -> None:
    program.sick(LINKS[0])
    rolled.boot_anew()
    for unit in list(rolled.runs):
        rolled.runs.pop(unit)
    runs.tick(rolled.host(), at_boot=True)
    assert program.heard() == []
    assert running(rolled, SERIAL).devices == {LINKS[1]}


FAULTS = ("error", "killed", "torn", "full")


@pytest.mark.parametrize("fail", FAULTS)
def test_a_pass_that_fails_anywhere_is_made_up_for_by_the_next(fake: node.Node, program: Program, fail: str) -> None:
    def act(host: node.NodeHost) -> None:
        a_pass(host.node, host)

    assert declare(fake).remaining == ()
    running(fake, SERIAL)
    a_pass(fake)
    fake.wait(60)
    program.sick(LINKS[0])
    assert len(failing.tried(fake, act).acts) > 4
    for twin, what in failing.each(fake, act, fail, FAULTS):
        assert runs.tick(twin.host()) in (0, 2), what
        twin.wait(60)
        a_pass(twin)
        assert runs.tick(twin.host()) == 2, what
        (item,) = status(twin)["items"]
        assert item["actual"] == f"{OK}: exit code 1: no answer to AT{run_device_checks.DYNAMIC}"
        assert running(twin, JOB).devices == {LINKS[1]}


def test_a_recorded_machine_is_not_asked(fake: node.Node) -> None:
    test_devices_granted.equip(fake)
    host = Host(str(fake.root))
    run_device_checks.check_unknown(host, profile.parse(checked()))
    assert (host.commands, host.writes) == ([], [])


def test_a_start_with_a_profile_that_no_tick_applied_leaves_the_timers_link_to_the_tick(
    fake: node.Node, rolled: node.Node
) -> None:
    """A start forgets no original that it does not restore itself."""
    assert os.path.lexists(fake.root / LINK.lstrip("/"))
    data = json.loads(fake.get("/etc/corral/profile.json"))
    for one in data["devices"]:
        one.pop("check", None)
    fake.put("/etc/corral/profile.json", json.dumps(data))
    running(fake, SERIAL)
    assert os.path.lexists(fake.root / LINK.lstrip("/"))
    runs.tick(fake.host())
    assert not os.path.lexists(fake.root / LINK.lstrip("/"))
    assert not any(map(fake.has, UNITS))
