# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection to systemd: what is sent, what comes of each answer, and when systemctl is run instead."""

from __future__ import annotations

import os
import time
import typing as t
from pathlib import Path

import pytest
from _core.host import command, sd_bus, systemd
from _core.host.command import Command
from _core.host.files import Host
from _core.host.plan import apply_step
from _core.model.plan.plan import CPUS, Step
from fake_bus import Answer, Call, FakeBus

ALL = 2**64 - 1
PATH, MANAGER = "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"
JOB, OTHER = f"{PATH}/job/41", f"{PATH}/job/40"
NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
UNIT = "corral_a\\x2db.slice"
DONE = Answer(("o", JOB), after=((JOB, "done"),))


# Over a socket


@pytest.fixture(params=[False, True], ids=["private", "broker"])
def pid1(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[FakeBus]:
    if sd_bus.library() is None:
        pytest.skip(f"no {sd_bus.LIBRARY} here")
    fake = FakeBus(tmp_path / "socket")
    absent = (f"unix:path={tmp_path}/absent", False)
    monkeypatch.setattr(sd_bus, "ADDRESSES", (absent, (fake.address, request.param)))
    yield fake
    fake.close()


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The processes that would have been started; each says "by systemctl"."""
    started: list[tuple[str, ...]] = []

    def run_command(argv: tuple[str, ...], dummy_timeout: float) -> Command:
        started.append(argv)
        return Command(0, "by systemctl", "")

    monkeypatch.setattr(command, "run_command", run_command)
    return started


@pytest.fixture
def host() -> t.Iterator[Host]:
    """A live node; nothing of it is written but through systemd."""
    found = Host()
    yield found
    systemd.close_connection(found)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def given_back(before: int) -> bool:
    """Whether no more descriptors are open than before. The other end is this process as well: its own goes in a moment."""
    deadline = time.monotonic() + 20
    while descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    return descriptors() <= before


def test_a_property_is_set_and_the_answer_awaited(pid1: FakeBus, host: Host, processes: list[tuple[str, ...]]) -> None:
    assert systemd.set_property(host, UNIT, "AllowedCPUs=1,9") == (0, "", "")
    assert systemd.set_property(host, UNIT, "CPUQuota=") == (0, "", "")
    assert pid1.calls == [
        Call(PATH, MANAGER, "SetUnitProperties", [UNIT, 1, [("AllowedCPUs", ("ay", [2, 2]))]]),
        Call(PATH, MANAGER, "SetUnitProperties", [UNIT, 1, [("CPUQuotaPerSecUSec", ("t", ALL))]]),
    ]
    assert processes == []
    assert host.commands == [
        ("systemctl", "set-property", "--runtime", "--", UNIT, one) for one in ("AllowedCPUs=1,9", "CPUQuota=")
    ]


def test_a_unit_is_started_when_its_own_job_has_ended(pid1: FakeBus, host: Host) -> None:
    pid1.answers = [
        Answer(("o", JOB), before=((OTHER, "failed"),), after=((OTHER, "failed"), (JOB, "done"))),
        Answer(("o", JOB), before=((JOB, "done"),)),  # Signals that came early are kept.
        Answer(("o", JOB), after=((JOB, "skipped"),)),
        Answer(),
    ]
    assert systemd.control(host, "start", UNIT, timeout=20) == (0, "", "")
    assert systemd.control(host, "stop", UNIT, mode="fail", timeout=20) == (0, "", "")
    assert systemd.control(host, "restart", "x.timer", timeout=20) == (0, "", "")
    assert systemd.control(host, "daemon-reload", "", timeout=20) == (0, "", "")
    assert [(call.member, call.words) for call in pid1.calls] == [
        ("StartUnit", [UNIT, "replace"]),
        ("StopUnit", [UNIT, "fail"]),
        ("RestartUnit", ["x.timer", "replace"]),
        ("Reload", []),
    ]


def test_who_is_active_is_asked_of_each_units_object(pid1: FakeBus, host: Host) -> None:
    pid1.answers = [Answer(("v", ("s", state))) for state in ("active", "inactive", "activating")]
    assert systemd.active(host, ["a.timer", "b.timer", "c.timer"]) == {"a.timer"}
    asked = Call(f"{PATH}/unit/a_2etimer", "org.freedesktop.DBus.Properties", "Get",
                 ["org.freedesktop.systemd1.Unit", "ActiveState"])  # fmt: skip
    assert pid1.calls[0] == asked


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (Answer(error=(NO_SUCH_UNIT, "Unit x.slice not loaded.")), 5, "Unit x.slice not loaded."),
        (Answer(error=("org.freedesktop.DBus.Error.InvalidArgs", "bad\n mode")), 1, "bad\n mode"),
        (Answer(("o", JOB), after=((JOB, "failed"),)), 1,
         "the job of x.slice ended with the result failed: see journalctl -u x.slice"),
        (Answer(("o", JOB), after=((OTHER, "done"),)), 124, "not done in time: see systemctl list-jobs"),
        (Answer(silent=True), 124, "no answer within 0.3 s"),
    ],
)  # fmt: skip
def test_what_went_wrong_is_a_code_and_a_reason(
    pid1: FakeBus, host: Host, processes: list[tuple[str, ...]], answer: Answer, code: int, says: str
) -> None:
    pid1.answers = [answer, DONE]
    assert systemd.control(host, "start", "x.slice", timeout=0.3) == (code, "", says)
    # The connection is still of use; the answer of another call is not taken for this one's.
    assert systemd.control(host, "start", "x.slice", timeout=20).code == 0
    assert processes == []


def test_a_refused_step_says_why_on_one_line(pid1: FakeBus, host: Host) -> None:
    pid1.answers = [Answer(error=("System.Error.EINVAL", "Unit may\nnot change."))]
    with pytest.raises(apply_step.StepFailed) as caught:
        apply_step.perform(host, Step("unit", "a.timer", "restart", CPUS))
    assert str(caught.value) == "systemctl restart a.timer: Unit may not change."


def test_a_stop_of_what_is_not_loaded_is_done(pid1: FakeBus, host: Host) -> None:
    pid1.answers = [Answer(error=(NO_SUCH_UNIT, "Unit a.timer not loaded."))]
    apply_step.perform(host, Step("unit", "a.timer", "stop", CPUS))


def test_systemctl_goes_on_when_the_connection_breaks(
    pid1: FakeBus, host: Host, processes: list[tuple[str, ...]]
) -> None:
    before = descriptors()
    pid1.answers = [Answer(hang_up=True)]
    assert systemd.set_property(host, UNIT, "TasksMax=3").out == "by systemctl"
    assert systemd.control(host, "start", UNIT, timeout=20).out == "by systemctl"
    assert processes == [
        ("systemctl", "set-property", "--runtime", "--", UNIT, "TasksMax=3"),
        ("systemctl", "start", "--", UNIT),
    ]
    assert host.commands == processes
    assert given_back(before)
    systemd.close_connection(host)
    assert systemd.set_property(host, UNIT, "TasksMax=3").out == "", "the next plan connects again"


def test_what_is_not_covered_is_systemctls(pid1: FakeBus, host: Host, processes: list[tuple[str, ...]]) -> None:
    assert systemd.set_property(host, UNIT, "TasksMax=10%").out == "by systemctl"
    assert systemd.control(host, "start", "no suffix", timeout=20).out == "by systemctl"
    assert systemd.control(host, "reload", "a.service", timeout=20).out == "by systemctl"
    assert pid1.calls == []
    assert systemd.set_property(host, UNIT, "TasksMax=10").out == ""
    assert len(pid1.calls) == 1


def test_one_connection_serves_all_and_is_given_back(pid1: FakeBus, host: Host) -> None:
    before = descriptors()
    for turn in range(3):
        connections = set()
        for number in range(3):
            systemd.set_property(host, UNIT, f"TasksMax={turn + number}")
            connections.add(id(systemd.connection(host)))
        assert len(connections) == 1
        systemd.close_connection(host)
    systemd.set_property(host, UNIT, "TasksMax=9")
    host.connection = None  # as when the host itself goes
    assert given_back(before)


@pytest.mark.parametrize("missing", ["library", "socket"])
def test_systemctl_does_it_without_a_connection(
    host: Host, processes: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(sd_bus, "ADDRESSES", ((f"unix:path={tmp_path}/absent", False),))
    if missing == "library":
        monkeypatch.setattr(sd_bus, "LIBRARY", "libno-such.so.0")
    before = descriptors()
    assert systemd.set_property(host, UNIT, "TasksMax=3").out == "by systemctl"
    assert systemd.connection(host) is None
    assert descriptors() == before


def test_a_tree_and_a_host_of_tests_have_no_connection(tmp_path: Path) -> None:
    ran: list[tuple[str, ...]] = []

    def run(argv: t.Sequence[str], dummy_timeout: float) -> Command:
        ran.append(tuple(argv))
        return Command(0, "", "")

    assert systemd.connection(Host(str(tmp_path))) is None
    assert systemd.set_property(Host(str(tmp_path)), UNIT, "TasksMax=3").code == 127
    assert systemd.set_property(Host(run=run), UNIT, "TasksMax=3").code == 0
    assert len(ran) == 1
