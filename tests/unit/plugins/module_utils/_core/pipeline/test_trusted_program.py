# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that root runs: who else could change them, and that such a one is neither declared nor run."""

from __future__ import annotations

import stat
import typing as t
from pathlib import Path

import node
import pytest
import runs
from _core.host import transient_unit, trusted_program
from _core.host.agent import foreign_program
from _core.host.command import Command
from _core.host.files import Host
from _core.model.devices.device import Device
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import applying, named_programs, planning, run_device_checks

OK = "/opt/tools/ok"


@pytest.fixture(autouse=True)
def with_program(fake: node.Node) -> None:
    fake.put(OK, "#!/bin/sh\n")


def why(fake: node.Node, *argv: str) -> tuple[str, str]:
    return trusted_program.why_not(fake.host(), argv)


def test_what_only_root_can_change_is_run(fake: node.Node) -> None:
    fake.programs[OK] = lambda *argv: Command(0, "fine\n", "")
    assert why(fake, OK, "--quick") == ("", "")
    assert foreign_program.run(fake.host(), [OK], 5, {}) == (0, "fine\n", "")


@pytest.mark.parametrize(
    ("path", "mode", "owner", "said"),
    [
        (OK, 0o777, 0, "(owner 0, mode 0777): chmod go-w /opt/tools/ok"),
        (OK, 0o775, 0, "(owner 0, mode 0775): chmod go-w /opt/tools/ok"),
        (OK, 0o755, 1000, "(owner 1000, mode 0755): chown root: /opt/tools/ok"),
        (OK, 0o757, 1000, "(owner 1000, mode 0757): chown root: /opt/tools/ok && chmod go-w /opt/tools/ok"),
        ("/opt/tools", 0o755, 1000, "(owner 1000, mode 0755): chown root: /opt/tools"),
        ("/opt", 0o775, 0, "(owner 0, mode 0775): chmod go-w /opt"),
        ("/opt", 0o1777, 0, "(owner 0, mode 1777): move the program to a folder of root's, such as /usr/local/sbin"),
        ("/", 0o777, 0, "(owner 0, mode 0777): chmod go-w /"),
    ],
)
def test_what_others_can_change_is_not_run_and_the_mend_is_named(
    fake: node.Node, path: str, mode: int, owner: int, said: str
) -> None:
    ran: list[str] = []
    fake.programs[OK] = lambda *argv: ran.append(argv[0]) or Command(0, "", "")
    fake.others[path] = (mode, owner)
    assert why(fake, OK) == (OK, f"others than root can change {path} {said}")
    answer = foreign_program.run(fake.host(), [OK], 5, {})
    assert (answer.code, answer.out, ran) == (126, "", [])
    assert answer.err == f"{OK}: not run: others than root can change {path} {said}"


def test_links_are_followed_with_all_folders_on_the_way(fake: node.Node) -> None:
    fake.put("/home/jo/bin/ok", "")
    (fake.root / "usr/local/bin/ok").symlink_to("../lib/ok")
    (fake.root / "usr/local/lib").symlink_to("/opt/lib")
    (fake.root / "opt/lib").mkdir(parents=True)
    (fake.root / "opt/lib/ok").symlink_to("/home/jo/bin/ok")
    assert why(fake, "/usr/local/bin/ok") == ("", "")
    for folder in ("/opt/lib", "/home/jo", "/home/jo/bin/ok"):
        fake.others = {folder: (0o755, 1000)}
        assert why(fake, "/usr/local/bin/ok")[1].startswith(f"others than root can change {folder} (owner 1000"), folder
    fake.others = {"/home/jo\n\x1b": (0o755, 1000)}
    (fake.root / "opt/lib/ok").unlink()
    (fake.root / "opt/lib/ok").symlink_to("/home/jo\n\x1b/ok")
    fake.put("/home/jo\n\x1b/ok", "")
    assert why(fake, "/usr/local/bin/ok")[1].endswith("chown root: '/home/jo\\n\\x1b'")
    fake.others = {}
    (fake.root / "opt/lib/ok").unlink()
    (fake.root / "opt/lib/ok").symlink_to("ok")
    assert "more than 40 links" in why(fake, "/usr/local/bin/ok")[1]


def test_what_is_not_there_is_judged_by_the_folders_above(fake: node.Node) -> None:
    assert why(fake, "/opt/tools/none") == ("", "")
    assert why(fake, "/opt/tools/../none/../../x") == ("", "")
    fake.others["/opt/tools"] = (0o755, 1000)
    assert why(fake, "/opt/tools/none")[1].endswith("chown root: /opt/tools")


def test_what_the_words_and_the_first_line_name_counts(fake: node.Node) -> None:
    fake.put("/home/jo/check.py", "")
    fake.put("/home/jo/python", "")
    fake.others["/home/jo"] = (0o755, 1000)
    assert why(fake, OK, "-u", "/home/jo/check.py")[0] == "/home/jo/check.py"
    assert why(fake, OK, "home/jo/check.py")[0] == "home/jo/check.py", "the unit's folder is the root"
    assert why(fake, OK, "../home/jo/none")[0] == "../home/jo/none"
    assert why(fake, OK, "--config=/home/jo/x")[0] == "--config=/home/jo/x"
    assert why(fake, OK, "FILE=home/jo/x")[1].endswith("chown root: /home/jo")
    assert why(fake, OK, "http://localhost:8080/health?of=/", "example.com/gpu=0", "--config=/etc/x") == ("", "")
    fake.put(OK, "#!/opt/tools/second -x\n")
    fake.put("/opt/tools/second", "#!/home/jo/python\n")
    assert why(fake, OK)[0] == "/home/jo/python"
    fake.put("/opt/tools/second", "#!home/jo/python\n")
    assert why(fake, OK)[0] == "home/jo/python"
    fake.put("/opt/tools/second", "#!opt/tools/third\n")
    fake.put("/opt/tools/third", "#!/usr/bin/env --x=/home/jo/python\n")
    assert why(fake, OK)[0] == "--x=/home/jo/python"
    assert why(fake, "ok") == ("ok", "is not an absolute path: write the program's path, such as /usr/bin/curl")


@pytest.mark.parametrize(("kind", "counts"), [(stat.S_IFCHR, False), (stat.S_IFBLK, False), (stat.S_IFIFO, True)])
def test_a_device_is_no_program(kind: int, counts: bool, fake: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    host = fake.host()
    monkeypatch.setattr(host, "permissions", lambda path: (kind | 0o666, 6) if path == "/dev/x" else (0o40755, 0))
    assert bool(trusted_program.why_not(host, [OK, "/dev/x"])[1]) == counts


def test_of_a_recorded_tree_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "ok").touch()
    (tmp_path / "ok").chmod(0o777)  # whatever the umask
    assert trusted_program.why_not(Host(str(tmp_path)), ["/ok"]) == ("", "")


PROFILE: dict[str, t.Any] = {
    "name": "named",
    "cpu": {"reserved": {"cpus": "0-1"}},
    "devices": [{"name": "example.com/tty", "match": {"path": "/dev/ttyX?"}, "check": {"command": [OK, "--quick"]}}],
    "confirm": {"command": [OK]},
}


def test_a_profile_that_names_one_is_refused_with_every_place(fake: node.Node) -> None:
    fake.others[OK] = (0o777, 0)
    data = {**PROFILE, "memory": {"reserved": {"7": "1Gi"}}}
    with pytest.raises(CorralError) as error:
        planning.compile_profile(fake.host(), profile.parse(data))
    assert [one.path for one in error.value.problems] == [
        "memory.reserved.7",
        "devices[0].check.command",
        "confirm.command",
    ]
    assert error.value.problems[1].value == OK
    assert error.value.problems[1].message.endswith(f"(owner 0, mode 0777): chmod go-w {OK}")


def test_the_program_that_drains_is_one_of_a_profiles() -> None:
    declared = profile.parse({**PROFILE, "devices": [], "kubelet": {"drain": OK}})
    assert list(named_programs.commands(declared)) == [("confirm.command", (OK,)), ("kubelet.drain", [OK])]


def test_a_profile_that_is_applied_stays_in_force(fake: node.Node) -> None:
    declared = profile.parse({key: part for key, part in PROFILE.items() if key != "confirm"})
    assert not applying.declare(fake.host(), declared).error
    fake.others[OK] = (0o777, 0)
    runs.tick(fake.host())
    assert planning.compile_profile(fake.host(), declared)


@pytest.mark.parametrize(("given", "dynamic"), [({}, True), ({"user": "dynamic"}, True), ({"user": "root"}, False)])
def test_a_check_is_run_as_root_only_where_its_profile_says_so(
    given: dict[str, str], dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[t.Sequence[str]] = []

    def answered(words: t.Sequence[str], *dummy: t.Any) -> Command:
        started.append(words)
        return Command(0, "\nsuccess\nexited\n0\n", "")

    host = Host()
    monkeypatch.setattr(foreign_program, "run_foreign", answered)
    monkeypatch.setattr(host, "is_dir", lambda path: True)
    monkeypatch.setattr(host, "permissions", lambda path: (0o40755, 0))
    data = {"command": ["/bin/true"], **given}
    declared = profile.parse(
        {"name": "x", "devices": [{"name": "example.com/tty", "match": {"path": "/dev/ttyX?"}, "check": data}]}
    )
    assert profile.parse(profile.to_data(declared)) == declared
    check = declared.devices[0].check
    resource = declared.devices[0]
    assert run_device_checks.check_one(
        host, resource, check, Device("/dev/ttyX0", -1, "", (), None, (), (), frozenset(), frozenset())
    ) == ("", True)
    ((*words,),) = started
    assert (words[0], "/bin/true" in words, "--property=DynamicUser=yes" in words) == ("systemd-run", True, dynamic)
    alone = {"--property=ProtectHome=yes", "--property=CapabilityBoundingSet="}
    assert alone & set(words) == (alone if dynamic else set())
    assert {"--property=RuntimeMaxSec=5s", "--property=TasksMax=512", "--property=MemoryMax=1G"} <= set(words)


OWN = "corral-device-checks.service"


@pytest.mark.parametrize(
    ("group", "bound"),
    [
        (f"0::/system.slice/{OWN}\n", OWN),
        (f"12:cpuset:/\n1:name=systemd:/system.slice/{OWN}\n0::/system.slice/{OWN}\n", OWN),
        (f"0::/corralagent.slice/{OWN}/inner/some.service\n", OWN),
        ("0::/user.slice/user-0.slice/session-1.scope\n", ""),
        ("0::/user.slice/user-1000.slice/session-1.scope/some.service\n", ""),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_what_a_service_started_ends_with_it(group: str, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[t.Sequence[str]] = []

    def answered(words: t.Sequence[str], *dummy: t.Any) -> Command:
        started.append(words)
        return Command(0, "\nsuccess exited 0", "")

    host = Host()
    monkeypatch.setattr(foreign_program, "run_foreign", answered)
    monkeypatch.setattr(host, "is_dir", lambda path: True)
    monkeypatch.setattr(host, "permissions", lambda path: (0o40755, 0))
    monkeypatch.setattr(host, "run", lambda *argv, timeout: started.append(argv))
    monkeypatch.setattr(host, "read", lambda path: group if path == "/proc/self/cgroup" else None)
    foreign_program.run(host, ["/bin/true"], 5, {})
    foreign_program.run(host, ["/bin/true"], 5, {}, unit="corral-hook.service")
    one, stop, named = started
    assert [word for word in one if "BindsTo" in word or "After" in word] == [f"--property=BindsTo={bound}"] * bool(
        bound
    )
    assert stop == ("systemctl", "stop", "corral-hook.service")
    assert "--unit=corral-hook.service" in named and not any(word.startswith("--unit") for word in one)


# What systemd-run says


def outcome(code: int, out: str, err: str = "") -> Command:
    return foreign_program.outcome(OK, 5, Command(code, out, err))


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ((0, "fine\n\nsuccess\nexited\n0\n"), (0, "fine\n", "")),
        ((3, "no newline\nexit-code\nexited\n3\n"), (3, "no newline", "")),
        ((3, "\nexit-code\nexited\n3\n"), (3, "", "")),
        ((255, "x\n\nsignal\nkilled\nKILL\n"), (-9, "x\n", "")),
        ((255, "\ncore-dump\ndumped\nSEGV\n"), (-11, "", "")),
        ((1, "x\n\ntimeout\nkilled\nKILL\n"), (124, "", f"{OK}: no answer within 5 s")),
        ((124, "", "systemd-run: no answer within 65 s"), (124, "", f"{OK}: no answer within 5 s")),
        ((1, "\noom-kill\nkilled\nKILL\n"), (126, "", f"{OK}: killed, as it needs more than 1G of memory")),
        (
            (1, "Failed to connect to bus: No such file or directory\n"),
            (125, "", f"{OK}: systemd did not run it: Failed to connect to bus: No such file or directory"),
        ),
        ((1, ""), (125, "", f"{OK}: systemd did not run it: no reason given")),
        (
            (127, "", "systemd-run: not there"),
            (125, "", f"{OK}: systemd did not run it: systemd-run: not there"),
        ),
    ],
)
def test_its_answer_is_that_of_the_program(answer: tuple[t.Any, ...], wanted: tuple[t.Any, ...]) -> None:
    assert outcome(*answer) == wanted


def test_words_reach_the_program_as_they_are() -> None:
    words = transient_unit.command_line(["/bin/sh", "-c", "echo $HOME ${X} %n"], {}, {})
    assert words[-3:] == ("/bin/sh", "-c", "echo $$HOME $${X} %n")


def test_a_program_that_others_can_change_is_not_opened(fake: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a link to a device, whose open(2) does something (/dev/watchdog)."""
    opened: list[str] = []
    monkeypatch.setattr(Host, "first_line", lambda dummy, path: opened.append(path) or "")
    fake.others[OK] = (0o755, 1000)
    assert why(fake, OK)[0] == OK and not opened
    opened.clear()
    fake.others = {"/opt/second": (0o755, 1000)}
    fake.put("/opt/second", "")
    monkeypatch.setattr(Host, "first_line", lambda dummy, path: opened.append(path) or "/opt/second")
    assert why(fake, OK)[0] == "/opt/second" and opened == [OK]
