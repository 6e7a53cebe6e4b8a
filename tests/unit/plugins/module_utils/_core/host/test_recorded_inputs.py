# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look was told: kept, asked again, and given up at the first difference."""

from __future__ import annotations

import os
import pwd
import sys
import typing as t
from pathlib import Path
from unittest import mock

import processes
import pytest
from _core.host import accounts, recorded_inputs
from _core.host.files import Host
from _core.host.pids import oom_score
from hypothesis import given
from hypothesis import strategies as st

STATUS = "/run/corral/status.json"
NOW = 1_700_000_100
MOMENT = recorded_inputs.moment(NOW, 500)


@pytest.fixture(params=["young", "steady"], autouse=True)
def age(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether files are too young to go by their times, as those of a test are, or count as older."""
    if request.param == "steady":
        monkeypatch.setattr(recorded_inputs, "STEADY_SECONDS", -3600)
    return str(request.param)


# What is asked of a host, and what a hand does that changes the answer.
ASKED: dict[str, tuple[t.Callable[[Host], t.Any], t.Callable[[Path], t.Any]]] = {
    "read": (lambda host: host.read("/file"), lambda root: (root / "file").write_text("other")),
    "read, not text": (lambda host: host.read("/odd"), lambda root: (root / "odd").write_bytes(b"\xfe")),
    "read, not there": (lambda host: host.read("/none"), lambda root: (root / "none").write_text("")),
    "read, gone": (lambda host: host.read("/file"), lambda root: (root / "file").unlink()),
    "read, none of ours": (lambda host: host.read("/file"), lambda root: os.replace(root / "file2", root / "file")),
    "read, not followed": (
        lambda host: host.read("/file", follow=False),
        lambda root: (root / "file").write_text("other"),
    ),
    "read through a link": (lambda host: host.read("/link"), lambda root: os.replace(root / "link2", root / "link")),
    "read, as long": (lambda host: host.read("/file"), lambda root: (root / "file").write_text("Text")),
    "read, longer": (lambda host: host.read("/sys/file"), lambda root: (root / "sys/file").write_text("text\n")),
    "read, made by the kernel": (
        lambda host: host.read("/sys/file"),
        lambda root: rewritten(root / "sys/file", "Text"),
    ),
    "read, gone, made by the kernel": (lambda host: host.read("/sys/file"), lambda root: (root / "sys/file").unlink()),
    "read, long": (lambda host: host.read("/sys/long"), lambda root: rewritten(root / "sys/long", "a" * 5999 + "b")),
    "read, what one file lost and the next one got": (
        lambda host: (host.read("/sys/file"), host.read("/sys/next")),
        lambda root: (rewritten(root / "sys/file", "tex"), rewritten(root / "sys/next", "tnext")),
    ),
    "names, made by the kernel": (lambda host: host.names("/sys"), lambda root: (root / "sys/more").touch()),
    "names, one gone": (lambda host: host.names("/folder"), lambda root: (root / "folder/name").unlink()),
    "a folder of what is read": (
        lambda host: (host.is_dir("/sys"), host.read("/sys/file")),
        lambda root: (root / "sys").rename(root / "other"),
    ),
    "names, now a folder": (lambda host: host.names("/none"), lambda root: group(root / "none")),
    "folders": (lambda host: host.folders("/"), lambda root: (root / "more").mkdir()),
    "lines": (lambda host: host.lines("/lines", "b"), lambda root: (root / "lines").write_text("a\nb2\n")),
    "names": (lambda host: host.names("/"), lambda root: (root / "more").touch()),
    "among": (lambda host: host.among("/", ("more",)), lambda root: (root / "more").touch()),
    "names_like": (lambda host: host.names_like("/", (("mo", ""),)), lambda root: (root / "more").touch()),
    "exists": (lambda host: host.exists("/file"), lambda root: (root / "file").unlink()),
    "is_dir": (lambda host: host.is_dir("/folder"), lambda root: (root / "folder").rename(root / "other")),
    "link": (lambda host: host.link("/link"), lambda root: os.replace(root / "link2", root / "link")),
    "mode": (lambda host: host.mode("/file"), lambda root: (root / "file").chmod(0o600)),
}


def rewritten(path: Path, text: str) -> None:
    """Other text of the same length in a file whose time stays as it was."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def settled(root: Path, ask: t.Callable[[Host], t.Any]) -> None:
    """A host that asked this, found the node in sync, and published that."""
    (root / "file").write_text("text")
    (root / "odd").write_bytes(b"\xff")
    (root / "lines").write_text("a\nb\nc\n")
    (root / "file2").write_text("other")
    for name in ("folder", "sys"):
        (root / name).mkdir(exist_ok=True)
    (root / "folder/name").touch()
    (root / "sys/file").write_text("text")
    (root / "sys/next").write_text("next")
    (root / "sys/long").write_text("a" * 6000)
    (root / "link").symlink_to("file")
    (root / "link2").symlink_to("lines")
    (root / "run").mkdir()
    host = Host(str(root), record=True)
    ask(host)
    host.write_file(STATUS, f"{{{MOMENT}}}\n")
    recorded_inputs.keep(host, [STATUS], MOMENT)


def same(root: Path, now: float = NOW + 10.0) -> bool:
    return recorded_inputs.same(Host(str(root), clock=lambda: now))


@pytest.mark.parametrize("name", ASKED)
def test_another_answer_is_seen(name: str, tmp_path: Path) -> None:
    ask, change = ASKED[name]
    settled(tmp_path, ask)
    assert same(tmp_path)
    change(tmp_path)
    assert not same(tmp_path)


def test_an_account_of_another_source_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"far": 5000}
    monkeypatch.setattr(Host, "live", True)
    monkeypatch.setattr(pwd, "getpwnam", lambda name: mock.Mock(pw_uid=known[name]))
    settled(tmp_path, lambda host: accounts.user_id(host, None, "far"))
    assert same(tmp_path)
    known["far"] = 5001
    assert not same(tmp_path)


def test_a_file_that_is_put_back_is_no_change(tmp_path: Path, age: str) -> None:
    settled(tmp_path, lambda host: host.read("/file"))
    (tmp_path / "file").write_text("text")
    assert same(tmp_path) == (age == "young"), (
        "by its time it is another one, which the look in full finds to be the same"
    )


def test_other_names_in_a_folder_are_no_change(tmp_path: Path) -> None:
    settled(tmp_path, lambda host: (host.names_like("/folder", (("na", ""),)), host.among("/folder", ("x", "name"))))
    (tmp_path / "folder/other").touch()
    assert same(tmp_path)
    (tmp_path / "folder/nap").touch()
    assert not same(tmp_path)


# Groups of a workload, and what happens to them.
SLICE = "sys/fs/cgroup/corral-a.slice"
SCORES: dict[str, t.Callable[[Path], t.Any]] = {
    "another score": lambda root: (root / "proc/7/oom_score_adj").write_text("0\n"),
    "another process": lambda root: (root / SLICE / "a.service/cgroup.procs").write_text("7\n8\n"),
    "a process in the slice itself": lambda root: (root / SLICE / "cgroup.procs").write_text("8\n"),
    "another service": lambda root: group(root / SLICE / "b.service", "8\n"),
    "another one in its place": lambda root: (
        (root / SLICE / "a.service/container").rename(root / "gone"),
        group(root / SLICE / "a.service/libpod-1", "8\n"),
    ),
    "one deep below": lambda root: group(root / SLICE / "a.service/container/container", "8\n"),
    "many processes": lambda root: (root / SLICE / "a.service/cgroup.procs").write_text("7\n" * 2000 + "8\n"),
}


def group(path: Path, processes: str = "") -> None:
    path.mkdir(parents=True)
    (path / "cgroup.procs").write_text(processes)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("name", SCORES)
def test_another_oom_score_is_seen_wherever_it_is(name: str, beside: bool, tmp_path: Path) -> None:
    for pid, score in ((7, "-997"), (8, "0"), (9, "-997")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/oom_score_adj").write_text(f"{score}\n")
    group(tmp_path / SLICE)
    group(tmp_path / SLICE / "a.service", "7\n")
    group(tmp_path / SLICE / "a.service/container")
    if beside:  # One that nobody looks at: it may become one that is looked at, and the number stays.
        group(tmp_path / SLICE / "own", "8\n")
    settled(tmp_path, lambda host: oom_score.scores(host, f"/{SLICE}", "-997"))
    assert same(tmp_path)
    (tmp_path / SLICE / "a.service/cgroup.procs").write_text("9\n7\n")
    assert same(tmp_path), "which processes these are is no input"
    SCORES[name](tmp_path)
    assert not same(tmp_path)


EMPTY = {"a.service/cgroup.procs": "", "a.service/cgroup.events": "populated 0\nfrozen 0\n"}
OCCUPIED = {"a.service/cgroup.procs": "7\n", "a.service/cgroup.events": "populated 1\nfrozen 0\n"}


@pytest.mark.parametrize("score", ["-997", "0"])  # Without another score cgroup.events is not read.
@pytest.mark.parametrize(("before", "after"), [(EMPTY, OCCUPIED), (OCCUPIED, EMPTY)])
def test_whether_a_service_has_processes_is_seen(
    before: dict[str, str], after: dict[str, str], score: str, tmp_path: Path
) -> None:
    for pid, text, name in ((7, "-997\n", "sleep\n"), (8, f"{score}\n", "conmon\n")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/oom_score_adj").write_text(text)
        for path, line in processes.files(pid, name.strip()).items():
            (tmp_path / path[1:]).write_text(line)
    group(tmp_path / SLICE)
    group(tmp_path / SLICE / "a.service")
    group(tmp_path / SLICE / "monitor.service", "8\n")

    def put(files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / SLICE / name).write_text(text)

    def ask(host: Host) -> None:
        oom_score.scores(host, f"/{SLICE}", "-997")
        host.read(f"/{SLICE}/a.service/cgroup.events")

    put(before)
    settled(tmp_path, ask)
    assert same(tmp_path)
    put(after)
    assert not same(tmp_path)
    put(before)
    assert same(tmp_path)


def test_a_control_group_that_was_not_looked_at_may_become_one_that_is(tmp_path: Path) -> None:
    test_another_oom_score_is_seen_wherever_it_is("another score", True, tmp_path)
    (tmp_path / "proc/7/oom_score_adj").write_text("-997\n")
    assert same(tmp_path)
    (tmp_path / SLICE / "own").rename(tmp_path / SLICE / "own.service")
    assert not same(tmp_path)


def test_the_rest_of_a_file_is_no_input(tmp_path: Path) -> None:
    settled(tmp_path, lambda host: host.lines("/lines", "b"))
    (tmp_path / "lines").write_text("x\nb\ny\n")
    assert same(tmp_path)


def test_the_first_answer_counts(tmp_path: Path) -> None:
    """What changed while the node was looked at is looked at again."""

    def twice(host: Host) -> None:
        host.read("/file")
        (tmp_path / "file").write_text("other")
        host.read("/file")

    settled(tmp_path, twice)
    assert not same(tmp_path)


def test_the_status_goes_on_with_the_new_time_and_nothing_else_is_written(tmp_path: Path) -> None:
    settled(tmp_path, lambda host: host.read("/file"))
    host = Host(str(tmp_path), clock=lambda: NOW + 10.9, uptime=lambda: 510.9)
    assert recorded_inputs.same(host)
    assert host.writes == [STATUS]
    assert host.read(STATUS) == f"{{{recorded_inputs.moment(NOW + 10, 510)}}}\n"
    assert same(tmp_path, NOW + 20.0)


def test_what_was_published_stays_as_it_was(tmp_path: Path) -> None:
    settled(tmp_path, lambda host: host.read("/file"))
    (tmp_path / STATUS[1:]).write_text('{"time": 0, "in_sync": false}\n')
    assert not same(tmp_path)


def test_every_ten_minutes_is_looked_in_full(tmp_path: Path) -> None:
    settled(tmp_path, lambda host: host.read("/file"))
    begin = NOW // 600 * 600
    assert not same(tmp_path, begin + 600.0)
    assert not same(tmp_path, begin - 1.0)
    assert same(tmp_path, begin + 599.9)


def test_another_start_python_or_program_is_seen(tmp_path: Path) -> None:
    settled(tmp_path, lambda host: host.read("/file"))
    with mock.patch.dict(os.environ, {"TRIGGER_UNIT": "corral-reconcile.path"}):
        assert not same(tmp_path)
    with mock.patch.object(sys, "version", "another"):
        assert not same(tmp_path)
    with mock.patch.object(
        recorded_inputs, "__file__", "/usr/libexec/corral/releases/another/_core/host/recorded_inputs.py"
    ):
        assert not same(tmp_path)
    assert same(tmp_path)
    module = mock.Mock(__file__=str(tmp_path / "module.py"))
    (tmp_path / "module.py").touch()
    with mock.patch.dict(sys.modules, {"_core.module": module}):
        (tmp_path / "again").mkdir()
        settled(tmp_path / "again", lambda host: host.read("/file"))
    assert same(tmp_path / "again")
    os.utime(tmp_path / "module.py", ns=(1, 1))
    assert not same(tmp_path / "again")


def test_what_cannot_be_asked_again_is_not_kept(tmp_path: Path) -> None:
    settled(tmp_path, lambda host: (host.read("/file"), host.run("true")))
    assert not (tmp_path / recorded_inputs.KEPT[1:]).exists()


def test_what_else_is_of_this_second_does_not_move_with_the_time(tmp_path: Path) -> None:
    host = Host(str(tmp_path), record=True)
    host.write_file("/run/corral/status", f"{MOMENT}\nsince {NOW}\n")
    recorded_inputs.keep(host, ["/run/corral/status"], MOMENT)
    assert recorded_inputs.same(Host(str(tmp_path), clock=lambda: NOW + 10.0, uptime=lambda: 510.7))
    assert host.read("/run/corral/status") == f"{recorded_inputs.moment(NOW + 10, 510)}\nsince {NOW}\n"


def test_each_published_file_goes_on_in_its_way(tmp_path: Path, age: str) -> None:
    host = Host(str(tmp_path), record=True)
    files = {"/run/corral/metrics": f"{MOMENT}\nlast {NOW - 60}\n", "/run/corral/pools": "0-3\n"}
    for path, text in files.items():
        host.write_file(path, text)
    recorded_inputs.keep(host, list(files), MOMENT)
    host = Host(str(tmp_path), clock=lambda: NOW + 10.0, uptime=lambda: 510.0)
    assert recorded_inputs.same(host)
    assert host.writes == ["/run/corral/metrics"]
    assert host.read("/run/corral/metrics") == f"{recorded_inputs.moment(NOW + 10, 510)}\nlast {NOW - 60}\n"
    for path in files:
        before = host.read(path) or ""
        host.write_file(path, f"{before}more")
        assert not recorded_inputs.same(host)
        host.write_file(path, before)
    assert recorded_inputs.same(host) == (age == "young"), (
        "one without the time goes by its own times, as other files do"
    )


@given(data=st.data())
def test_rubbish_is_not_the_same(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.getbasetemp() / "rubbish"
    if not root.exists():
        root.mkdir()
        settled(root, lambda host: host.read("/file"))
        (root / "good").write_text((root / recorded_inputs.KEPT[1:]).read_text())
    good = (root / "good").read_text()
    at = data.draw(st.integers(0, len(good) - 1))
    rubbish = data.draw(
        st.one_of(
            st.just(good[:at]), st.text(), st.just(f"{good[:at]}{'0' if good[at] != '0' else '1'}{good[at + 1 :]}")
        )
    )
    (root / recorded_inputs.KEPT[1:]).write_text(rubbish, encoding="utf-8", errors="replace")
    assert not same(root)
