# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node on which each name that is not Corral's holds control characters: nothing that Corral prints or writes does."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import node
import processes
import pytest
import runs
from _core.host import cgroup, process, systemd
from _core.host.agent import node_hooks
from _core.host.command import Command
from _core.host.containers import conmon
from _core.model.agent.agent_units import METRICS_DIR
from _core.model.kubelet.inspected import StateFile
from _core.model.kubelet.state_files import DeviceEntry
from _core.model.plan import make_step
from _core.model.plan.plan import FILES, Change, Outcome, Part, Plan
from _core.model.values.errors import CorralError, Problem
from _core.reports import change_text, kubelet_report

TOP = "/sys/fs/cgroup"
HOSTILE = {
    "a terminal's title": "a\x1b]0;x\x07",
    "a line of the journal": "a\n<0>forged",
    "a carriage return": "a\r* all in sync",
    "the other direction": "a\u202e\u2066b",
    "C1": "a\x9b2J\x85",
    "DEL": "a\x7f\x08",
    "half a character": "a\udc9b",
    "separators of lines": "a\u2028\u2029\x0b\x0c\x1cb",
    "long": "a\x1b" * 60,
}


@pytest.fixture(params=HOSTILE.values(), ids=HOSTILE)
def bad(request: pytest.FixtureRequest) -> str:
    return t.cast(str, request.param)


def raw(text: str) -> list[str]:
    """The lines of an output that have a character that is not printable, or that nobody but a name began."""
    return [line for line in text.split("\n") if not line.isprintable() or line.startswith("<0>")]


def texts(value: t.Any) -> t.Iterator[str]:
    """All texts in some data."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from (key, *texts(inner))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def unprintable(value: t.Any) -> list[str]:
    return [text for text in texts(value) if not text.isprintable()]


def put(fake: node.Node, path: str, text: str) -> None:
    """A file, with bytes that are no characters."""
    file = Path(f"{fake.root}{path}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))


def make_hostile(fake: node.Node, bad: str) -> None:
    """Names and texts of others', wherever Corral looks."""
    with fake.by_hand():
        fake.intrude(f"/{bad}.slice", "0-7", procs=1)
    for pid in range(400):
        for path, text in processes.files(pid, bad, user=1000, group=f"/user.slice/{bad}").items():
            put(fake, path, text)
        put(fake, f"/proc/{pid}/cmdline", f"{bad}\0-c\0{'ab' * 32}\0-n\0{bad}\0")
    put(fake, f"/etc/sysctl.d/99-{bad}.conf", "kernel.pid_max = 70000\n")
    put(fake, f"/etc/systemd/system/corral.slice.d/99-{bad}.conf", f"[Slice]\nCPUWeight={bad}\nTasksMax=77\n")
    put(fake, f"/etc/systemd/system/timers.target.wants/{bad}.timer", "")
    put(fake, f"/etc/systemd/system/{bad}.service", "[Service]\nExecStart=/usr/bin/podman system prune -f\n")
    put(fake, f"/etc/cron.d/{bad}", f"* * * * * root podman system prune -af # {bad}\n")
    put(fake, "/etc/tuned/active_profile", bad)


def test_no_output_has_a_control_character_of_others(
    bad: str, fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    (fake.root / METRICS_DIR[1:]).mkdir(parents=True, exist_ok=True)
    rolled = runs.converged(fake, with_agent=True)
    capsys.readouterr()
    make_hostile(rolled, bad)
    runs.tick(rolled.host(), by_timer=False)
    said = capsys.readouterr()
    assert raw(said.err + said.out) == []
    for words in (
        ["status"],
        ["drift"],
        ["plan"],
        ["pools"],
        ["topology"],
        ["explain", bad],
        ["kubelet"],
        ["devices"],
    ):
        for more in ([], ["--json"], *([["--html"]] if words == ["status"] else [])):
            try:
                runs.command(rolled.host(), *words, *more)
            except CorralError as error:
                assert raw(str(error)) == []
            said = capsys.readouterr()
            assert raw(said.out + said.err) == [], words
            if more == ["--json"] and said.out:
                assert unprintable(json.loads(said.out)) == [], words
    written = [*Path(rolled.root, "run/corral").rglob("*"), *Path(rolled.root, METRICS_DIR[1:]).iterdir()]
    assert {"status.json", "pools.env", "corral.prom"} <= {path.name for path in written}
    for path in written:
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            assert raw(text) == [], path
            assert path.suffix != ".json" or unprintable(json.loads(text)) == [], path
    found = runs.plan(rolled.host())
    assert (
        sum("\\x" in text or "\\u" in text or "\\n" in text or "\\r" in text for text in change_text.lines(found)) >= 4
    )
    assert raw("\n".join(change_text.lines(found))) == []


def with_text(data: t.Any, bad: str) -> t.Any:
    """Some data with this at the end of each text that is no fixed word."""
    if isinstance(data, dict):
        return {key: with_text(value, bad) for key, value in data.items()}
    if isinstance(data, list):
        return [with_text(value, bad) for value in data]
    return f"{data}{bad}" if isinstance(data, str) else data


def test_files_that_are_handed_over_are_shown_without_control_characters(
    bad: str, fake: node.Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A status in a copy of a node's files, and files that are compared."""
    rolled = runs.converged(fake, with_agent=True)
    rolled.put("/proc/sys/kernel/pid_max", "77\n")
    runs.tick(rolled.host())
    status = json.loads(rolled.get("/run/corral/status.json"))
    put(rolled, "/run/corral/status.json", json.dumps({**with_text(status, bad), "error": bad}))
    sides = [tmp_path / name for name in ("before.json", "after.json")]
    for side, value in zip(sides, (bad, f"{bad}{bad}")):
        side.write_text(json.dumps({bad: value, "a": [{"name": bad, "x": value}]}), encoding="utf-8")
    capsys.readouterr()
    for words in (["status"], ["status", "--html"], ["diff", *map(str, sides)]):
        said = runs.printed(rolled.host(), *words, code=None)
        assert (raw(said), bool(said)) == ([], True), words
    for words in (["status", "--json"], ["diff", "--json", *map(str, sides)]):
        assert unprintable(json.loads(runs.printed(rolled.host(), *words, code=None))) == []


def test_what_programs_say_is_on_one_line(bad: str, fake: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook, systemd, the lines of a journal, an HTTP server, the monitor of a container, a process that has a mount."""
    host = fake.host()
    monkeypatch.setattr(host, "_run", lambda argv, seconds: Command(1, f"{bad}\n{bad}", f"{bad}\n<0>{bad}"))
    failed = host.run("systemctl")
    said = [
        systemd.complaint(failed.err, failed.out),
        node_hooks.run_hook(host, make_step.hook("/usr/sbin/drainer", "drain", FILES)),
        node_hooks.last_lines(host, "a.service"),
    ]
    put(fake, "/proc/77/cmdline", f"conmon\0-c\0{'ab' * 32}\0-n\0{bad}\0")
    for path, text in processes.files(77, "conmon").items():
        put(fake, path, text)
    said += [one.name for one in conmon.monitors(host)]
    for path, text in processes.files(78, bad).items():
        put(fake, path, text)
    put(fake, f"{TOP}/x/cgroup.procs", "78\n")
    rows = [{"id": "ab" * 32, "names": [bad]}]
    put(fake, f"{conmon.STORAGE}/overlay-containers/containers.json", json.dumps(rows))
    said += conmon.stored_names(host).values()
    entry = DeviceEntry(bad, bad, bad, {0: (bad,)}, b"")
    said += kubelet_report.devices_lines(StateFile(bad, True), [entry])
    said += [*cgroup.processes_shown(host, f"{TOP}/x"), process.name(host, "78")]
    assert len(said) == 10
    assert [text for text in said if not text.isprintable() or text.startswith("<0>")] == []


def test_values_that_are_shown_hold_no_control_character(bad: str) -> None:
    change = Change("cpu", bad, bad, bad, bad, bad, bad)
    problem = Problem(bad, bad, bad, bad)
    for one in (
        change,
        change._replace(reason=bad),
        problem,
        Part((), frozenset(), notes=(bad,)),
        Plan(None, (), (), frozenset(), (bad,)),
        Outcome(Plan(None, (), (), frozenset()), (), (), bad, (bad,), (bad,)),
    ):
        assert unprintable(one) == []
    answer = Command(0, f"{bad}\n\tmore", bad)
    assert [raw(said.replace("\t", "").replace("\n<0>", "")) for said in (answer.out, answer.err)] == [[], []]
    assert Change(**change._asdict()) == change
    assert os.fsencode(change.subject)


def test_the_output_of_a_command_keeps_its_lines() -> None:
    assert Command(0, "a\n\tb\x1b\r\n", "é").out == "a\n\tb\\x1b\\r\n"
