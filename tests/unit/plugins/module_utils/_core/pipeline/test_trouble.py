# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input and trouble: a clear error, exit code 1, nothing changed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

import node
import pytest
import runs
from _core import constants, main
from _core.cli import commands
from _core.host import state
from _core.host.files import Host
from _core.host.lock import Lock
from _core.host.plan import preflight
from _core.model.profile import profile
from _core.model.values.errors import CorralError

CPU: dict[str, t.Any] = {"reserved": {"cores_per_numa": 1}}


def mount(path: str) -> dict[str, t.Any]:
    return {"mounts": [{"path": path, "pagesize": "2Mi"}]}


def pages(count: int, size: str = "2Mi", at: int = 0) -> dict[str, t.Any]:
    return {"hugepages": [{"size": size, "count": count, "node": at}]}


REFUSED: dict[str, tuple[dict[str, t.Any], str]] = {
    "pid_max below what runs": ({"pids": {"pid_max": 150}}, "pids.pid_max"),
    "threads_max below what runs": ({"pids": {"threads_max": 180}}, "pids.threads_max"),
    "reserve over the budget": ({"pids": {"pid_max": 10000, "reserved": 9000, "slices": {"machine.slice": 2000}}}, "pids.slices: 2000"),
    "reserve takes all CPUs": ({"cpu": {"reserved": {"cpus": "0-7"}}}, "cpu.reserved"),
    "CPUs that do not exist": ({"cpu": {"reserved": {"cpus": "9-15"}}}, "cpu.reserved.cpus: 9-15"),
    "more hugepages than memory": ({"memory": pages(4096)}, "memory.hugepages[0].count: 4096"),
    "a page size the node lacks": ({"memory": pages(1, "16Mi")}, "memory.hugepages[0].size: 16Mi"),
    "a NUMA node that is not there": ({"memory": pages(1, at=7)}, "memory.hugepages[0].node: 7"),
    "a tmpfs at the mount's path": ({"memory": mount("/dev/taken")}, "tmpfs is mounted there"),
    "a file at the mount's path": ({"memory": mount("/dev/file")}, "a file is there"),
    "files below the mount's path": ({"memory": mount("/dev/full")}, "its directory holds files"),
    "systemd's own mount": ({"memory": mount("/dev/hugepages")}, "/usr/lib/systemd/system/dev-hugepages.mount"),
    "an unknown group": ({"memory": {"mounts": [{"path": "/dev/x", "pagesize": "2Mi", "group": "nobodys"}]}}, "nobodys"),
    "dots in a path": ({"memory": mount("/dev/../etc/x")}, "memory.mounts[0].path"),
    "a newline in a path": ({"memory": mount("/dev/x\nOptions=exec")}, "memory.mounts[0].path"),
    "a newline in a slice": ({"pids": {"slices": {"a\n[Service].slice": 5}}}, "pids.slices"),
    "a slash in a slice": ({"cpu": {**CPU, "shared": {"slices": ["../../tmp/x.slice"]}}}, "cpu.shared.slices"),
    "an option as a slice": ({"cpu": {**CPU, "shared": {"slices": ["--force.slice"]}}}, "cpu.shared.slices"),
    "a newline in the name": ({"name": "a\nb"}, "name"),
    "a newer version": ({"version": 99}, "newer version"),
    "a later manager's key": ({"irq": {}}, "not in this version"),
    "an unknown key": ({"cpus": {}}, "did you mean cpu"),
}  # fmt: skip


@pytest.fixture
def odd(fake: node.Node) -> node.Node:
    fake.systemd.mount("/dev/taken", "tmpfs")
    fake.put("/dev/file", "")
    fake.put("/dev/full/file", "")
    fake.put("/usr/lib/systemd/system/dev-hugepages.mount", "[Mount]\nWhat=hugetlbfs\nWhere=/dev/hugepages\n")
    return fake


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_place_and_nothing_is_changed(name: str, odd: node.Node) -> None:
    sections, said = REFUSED[name]
    before, host = odd.fingerprint(), odd.host()
    with pytest.raises(CorralError) as refused:
        runs.declare(host, **sections)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value) or len(refused.value.problems) > 1
    assert (host.writes, host.commands, odd.fingerprint()) == ([], [], before)


def test_all_problems_are_told_at_once(odd: node.Node) -> None:
    with pytest.raises(CorralError) as refused:
        runs.declare(odd.host(), memory=pages(4096, at=7), cpu={"reserved": {"cpus": "9"}})
    assert len(refused.value.problems) == 2


def test_without_systemd_nothing_is_written(fake: node.Node) -> None:
    shutil.rmtree(fake.root / "run/systemd")
    before, host = fake.fingerprint(), fake.host()
    with pytest.raises(CorralError, match="systemd is not the init"):
        runs.declare(host)
    assert (host.writes, fake.fingerprint()) == ([], before)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("/usr/lib/systemd/libsystemd-shared-239.so", "systemd 239"),
        ("/usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-246.so", "systemd 246"),
        ("/usr/lib/systemd/libsystemd-shared-245.4-4ubuntu3.so", "systemd 245"),
        ("/usr/lib64/systemd/libsystemd-shared-239.so", "systemd 239"),
        ("/lib/systemd/libsystemd-shared-241.so", "systemd 241"),
        ("/usr/lib/arm-linux-gnueabihf/systemd/libsystemd-shared-241.so", "systemd 241"),
        ("/usr/lib/systemd/libsystemd-shared-247.so", ""),
        ("/usr/lib/aarch64-linux-gnu/systemd/libsystemd-shared-257.so", ""),
        ("/usr/lib/systemd/libsystemd-shared-254.10-1.fc39.so", ""),
        ("/usr/lib/systemd/libsystemd-shared-next.so", ""),
        ("/usr/lib/systemd/libsystemd-core-239.so", ""),
    ],
)
def test_a_systemd_that_is_too_old_is_named_before_the_first_write(fake: node.Node, file: str, said: str) -> None:
    fake.put(file, "")
    before, host = fake.fingerprint(), fake.host()
    if not said:
        assert not runs.declare(host).error
        return
    with pytest.raises(CorralError, match=f"this node has {said}, and Corral needs 247 or newer: upgrade"):
        runs.declare(host)
    assert (host.writes, fake.fingerprint()) == ([], before)


def test_of_two_releases_of_systemd_the_newer_one_counts(fake: node.Node) -> None:
    for file in ("lib/systemd/libsystemd-shared-241.so", "lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so"):
        fake.put(f"/usr/{file}", "")  # an upgrade left the older one behind
    assert not runs.declare(fake.host()).error


@pytest.mark.parametrize("tree", ["/sys", "/proc"])
def test_a_read_only_kernel_tree_is_told_before_the_first_write(fake: node.Node, tree: str) -> None:
    host = fake.host()
    host.read_only = lambda path: path == tree  # type: ignore[method-assign]
    with pytest.raises(CorralError, match=f"{tree}: mounted read-only"):
        runs.declare(host)
    assert host.writes == []


def test_changing_a_live_node_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CorralError, match="needs root"):
        preflight.refuse_node(Host())


def test_a_node_without_cpusets_is_unknown_and_never_in_sync(fake: node.Node) -> None:
    (fake.root / "sys/fs/cgroup/cgroup.controllers").unlink()
    outcome = runs.declare(fake.host())
    assert [(item.subject, item.verdict) for item in outcome.remaining] == [("slices", "unknown")]
    assert "neither cgroup v2 nor the cpuset controller of v1" in outcome.remaining[0].reason


def test_a_cpu_that_systemd_takes_and_the_kernel_does_not_is_undone(fake: node.Node) -> None:
    before = fake.fingerprint(*node.STATE)
    fake.systemd.online = frozenset(range(7))  # CPU 7 goes between the look and the write.
    outcome = runs.declare(fake.host())
    assert "the kernel shows" in outcome.error
    fake.systemd.online = frozenset(range(8))
    fake.systemd.sync()
    assert node.different(before, fake.fingerprint(*node.STATE)) == []


def test_a_tick_while_another_runs_does_nothing(fake: node.Node) -> None:
    runs.converged(fake)
    lock = Lock(fake.host())
    assert lock.take()
    try:
        fake.kernel_write("/proc/sys/kernel/pid_max", "40000")
        host = fake.host()
        assert runs.tick(host) == 0
        assert (host.writes, host.commands) == ([], [])
    finally:
        lock.release()
    assert runs.tick(fake.host()) == 2


@pytest.mark.parametrize("how", ["another profile", "removal"])
def test_a_pool_whose_numa_node_is_gone_needs_no_bringing_back(how: str, fake: node.Node) -> None:
    before = fake.fingerprint("sys/devices/system/node")
    both = [*pages(8)["hugepages"], *pages(8, at=1)["hugepages"]]
    assert not runs.declare(fake.host(), memory={"hugepages": both}).error
    shutil.rmtree(fake.root / "sys/devices/system/node/node1")
    fake.put("/sys/devices/system/node/online", "0\n")
    cpu = {"reserved": {"count": 2}}
    if how == "another profile":
        outcome = runs.declare(fake.host(), memory=pages(8), cpu=cpu)
        assert (outcome.error, outcome.remaining) == ("", ())
    assert runs.remove(fake.host()).leftovers == ()
    assert node.different(before, fake.fingerprint("sys/devices/system/node")) == []


def test_a_mount_point_that_the_tick_must_not_touch_holds_nothing_up(
    fake: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the agent's unit all is read-only but Corral's own places (ProtectSystem=strict)."""
    real, place = os.rmdir, str(fake.root / "mnt")

    def rmdir(path: str) -> None:
        if path.startswith(place):
            raise OSError(errno.EROFS, "Read-only file system", path)
        real(path)

    assert not runs.declare(fake.host(), memory=mount("/mnt/pages")).error
    monkeypatch.setattr(os, "rmdir", rmdir)
    fake.put(state.DECLARED, json.dumps(profile.to_data(node.parsed(memory=None))))
    assert runs.tick(fake.host()) == 2
    assert json.loads(fake.get("/run/corral/status.json"))["error"] is None
    assert runs.tick(fake.host()) == 0


# The command line


@pytest.fixture
def tree(fake: node.Node) -> str:
    return fake.recorded()


@pytest.mark.parametrize("words", [[], ["nonsense"], ["pools", "--nonsense"], ["plan", "--profile"], ["reconcile", "--tick", "x"]])  # fmt: skip
def test_wrong_usage_is_exit_code_1(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(words) == 1
    assert "usage: corral" in capsys.readouterr().err


def test_help_is_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"]) == 0
    assert "rollback" in capsys.readouterr().out


def test_the_version_is_the_collections(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out == f"corral {constants.VERSION}\n"


@pytest.mark.parametrize(
    ("environment", "terminal", "wanted"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),  # no-color.org: "when present and not an empty string"
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    fake: node.Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    environment: dict[str, str], terminal: bool, wanted: bool,
) -> None:  # fmt: skip
    runs.converged(fake)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    for words in (["pools"], ["status"]):
        runs.command(fake.host(), *words)
        assert ("\x1b[" in capsys.readouterr().out) is wanted


@pytest.mark.parametrize("command", ["plan", "drift", "pools", "topology"])
def test_json_is_json_and_a_tree_is_only_read(
    command: str, fake: node.Node, tree: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = fake.fingerprint()
    options = [] if command == "topology" else ["--profile", str(node.EDGE)]
    code = main.main([command, "--root", tree, "--json", *options])
    assert code == (2 if command in ("plan", "drift") else 0)
    assert json.loads(capsys.readouterr().out)
    assert main.main([command, "--root", tree, *options]) == code
    assert capsys.readouterr().out
    assert fake.fingerprint() == before


def test_in_sync_is_exit_code_0(fake: node.Node, tree: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs.converged(fake)
    assert main.main(["drift", "--root", tree]) == 0
    assert "in sync" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not YAML"), ("a: [", "is not YAML"), ("\x00", "is not YAML"), ("- 1", "mapping"), ("", "mapping"), ("name: [", "is not YAML"),
        ("!!python/object/apply:os.system ['true']", "is not YAML"), ("name: x\ncpu: {reserved: {cpus: 99}}", "cpu.reserved.cpus"),
        ("name: x\npids:\n  reserved: 1\n  reserved: 2", "profile.yml: line 4: the key reserved is in one mapping twice"),
        ('{"name": "x", "name": "y"}', "profile.yml: the key name is in one mapping twice"),
        ("[" * 5000, "more than 100 levels deep"), ('{"name": "x", "version": 99}', "newer version"),
    ],
)  # fmt: skip
def test_a_bad_profile_is_told_without_a_traceback(
    text: str, said: str, tmp_path: Path, tree: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "profile.yml"
    file.write_text(text)
    assert main.main(["pools", "--root", tree, "--profile", str(file)]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert all(line.startswith("corral: ") for line in err.splitlines())


def test_a_declared_profile_with_a_key_twice_is_refused(
    fake: node.Node, tree: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.converged(fake)
    fake.put("/etc/corral/profile.json", '{"name": "edge", "mode": "audit", "mode": "enforce"}')
    assert main.main(["drift", "--root", tree]) == 1
    assert "/etc/corral/profile.json: the key mode is in one mapping twice" in capsys.readouterr().err
    assert runs.tick(fake.host()) == 2  # The profile applied last stays in force, and the item says why.
    assert "the key mode is in one mapping twice" in fake.get("/run/corral/status.json")


def test_files_that_are_not_there_are_told(tree: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["pools", "--root", tree, "--profile", "/no/such/file"]) == 1
    assert "corral: /no/such/file: cannot be read: No such file or directory\n" in capsys.readouterr().err
    assert main.main(["topology", "--root", "/no/such/tree"]) == 1
    assert "no readable snapshot (No such file or directory)" in capsys.readouterr().err
    assert main.main(["plan", "--root", tree]) == 1
    assert "no profile is declared here" in capsys.readouterr().err


def test_a_report_that_the_locale_cannot_write_is_no_traceback(fake: node.Node, tree: str) -> None:
    runs.converged(fake)
    fake.put("/etc/sysctl.d/90-corral.conf", f"kernel.pid_max = {'9' * 200}\n")
    core = os.path.dirname(os.path.dirname(main.__file__))
    program = "import sys; sys.path.insert(0, sys.argv[1]); from _core import main; sys.exit(main.main(sys.argv[2:]))"
    words = [sys.executable, "-B", "-c", program, core, "drift", "--root", tree]
    done = subprocess.run(words, env={"PYTHONIOENCODING": "iso-8859-1"}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (2, b"")
    assert b"99? -> kernel.pid_max" in done.stdout


def test_a_full_disk_keeps_no_report_from_being_read(tree: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*dummy: t.Any, **more: t.Any) -> t.NoReturn:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert main.main(["topology", "--root", tree]) == 0


def test_a_tree_without_a_cpu_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sys").mkdir()
    assert main.main(["pools", "--root", str(tmp_path), "--profile", str(node.EDGE)]) == 1
    assert "cpu: no CPU can be seen here" in capsys.readouterr().err


def test_a_snapshot_of_a_tree_replays_the_same_plan(
    fake: node.Node, tree: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.converged(fake)
    fake.kernel_write("/proc/sys/kernel/pid_max", "40000")
    file = str(tmp_path / "node.tar.gz")
    assert main.main(["snapshot", "--root", tree, "-o", file]) == 0
    capsys.readouterr()
    shown = []
    for root in (tree, file):
        assert commands.run(["drift", "--root", root, "--json"]) == 2
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0] == shown[1]


def test_a_tree_is_not_answered_for_by_this_machine(
    fake: node.Node, tree: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.converged(fake, with_agent=True)
    asked: list[t.Any] = []
    monkeypatch.setattr(subprocess, "run", lambda *words, **more: asked.append(words))
    assert main.main(["drift", "--root", tree]) == 0
    assert "in sync" in capsys.readouterr().out
    fake.drop("/etc/systemd/system/timers.target.wants/corral-reconcile.timer")
    assert main.main(["drift", "--root", tree]) == 2
    assert (asked, Host(tree).run("true").code) == ([], 127)
