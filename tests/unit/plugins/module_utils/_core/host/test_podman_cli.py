# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""As whom, and with which environment, a user's Podman is started."""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from _core.host import podman_cli
from _core.host.command import Command
from _core.host.files import Host
from _core.host.podman_cli import Podman, PodmanError

SHOW = "import json, os; print(json.dumps([os.getcwd(), dict(os.environ)]))"


class Machine:
    """The accounts of a node in a folder. ``lingers``: systemd makes a runtime folder when it is asked to."""

    def __init__(self, root: Path, *, lingers: bool) -> None:
        self.root, self.lingers = root, lingers
        self.asked: list[tuple[str, ...]] = []

    def run(self, argv: t.Sequence[str], dummy_timeout: float) -> Command:
        self.asked.append(tuple(argv))
        if argv[0] == "getent":
            known = argv[2] == "alice"
            return Command(0 if known else 2, "alice:x:1007:100::/srv/alice:/bin/sh\n" if known else "", "")
        if self.lingers:
            (self.root / "run/user/1007").mkdir(parents=True)
        return Command(0, "", "")

    def host(self) -> Host:
        return Host(str(self.root), run=self.run)


def test_a_users_podman_has_nothing_of_roots_environment(tmp_path: Path) -> None:
    machine = Machine(tmp_path, lingers=True)
    prefix = podman_cli.as_user(machine.host(), "alice")
    assert machine.asked[1:] == [("systemctl", "start", "user-runtime-dir@1007.service")]
    assert prefix[:4] == ("runuser", "-u", "alice", "--")
    noise = {"HOME": "/root", "CONTAINER_HOST": "ssh://elsewhere", "LD_PRELOAD": ""}
    words = [*prefix[4:], sys.executable, "-I", "-S", "-c", SHOW]
    done = subprocess.run(words, env=noise, cwd=tmp_path, check=True, capture_output=True, text=True)
    place, environment = json.loads(done.stdout)
    assert place == "/"
    assert environment == {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/srv/alice",
        "XDG_RUNTIME_DIR": "/run/user/1007",
        "CONTAINERS_CONF": "/dev/null",
        "LC_ALL": "C",
    }


def test_a_runtime_folder_that_is_there_is_taken(tmp_path: Path) -> None:
    (tmp_path / "run/user/1007").mkdir(parents=True)
    machine = Machine(tmp_path, lingers=False)
    assert podman_cli.as_user(machine.host(), "alice")[2] == "alice"
    assert machine.asked == [("getent", "passwd", "alice")]


def test_who_has_no_account_or_no_runtime_folder_is_named(tmp_path: Path) -> None:
    host = Machine(tmp_path, lingers=False).host()
    with pytest.raises(PodmanError, match="podman of bob: this node has no such user"):
        podman_cli.as_user(host, "bob")
    with pytest.raises(PodmanError, match="/run/user/1007 is not there: loginctl enable-linger alice"):
        podman_cli.as_user(host, "alice")


def test_roots_podman_is_started_as_it_is_and_a_users_through_runuser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefixes: list[t.Sequence[str]] = []

    def serve(dummy: Host, prefix: t.Sequence[str]) -> t.NoReturn:
        prefixes.append(prefix)
        raise podman_cli.ServiceError(podman_cli.NOT_INSTALLED)

    monkeypatch.setattr(Podman, "serve", staticmethod(serve))
    host = Machine(tmp_path, lingers=True).host()
    for user in (podman_cli.ROOT, "alice"):
        with pytest.raises(PodmanError, match="not installed"):
            Podman(host, user).images()
    assert prefixes == [(), podman_cli.as_user(host, "alice")]


@pytest.mark.parametrize("user", ["root", "alice"])
@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "podman version 3.0.1\n",
            "podman images: Podman 3.0.1 has no API of version 4: garbage collection needs Podman 4.0 or newer",
        ),
        ("podman version 4.3.1\n", "podman images: no answer in time"),
        ("", "podman images: no answer in time"),
    ],
)
def test_a_podman_without_the_api_is_named_and_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, why: str, user: str
) -> None:
    started: list[object] = []
    asked: list[tuple[str, ...]] = []
    machine = Machine(tmp_path, lingers=True)

    def serve(dummy: Host, prefix: t.Sequence[str]) -> t.NoReturn:
        started.append(prefix)
        raise podman_cli.ServiceError(124)

    def run(argv: t.Sequence[str], timeout: float) -> Command:
        if argv[-1] != "--version":
            return machine.run(argv, timeout)
        asked.append(tuple(argv))
        return Command(0, said, "")

    monkeypatch.setattr(Podman, "serve", staticmethod(serve))
    podman = Podman(Host(str(tmp_path), run=run), user)
    for dummy in range(3):
        with pytest.raises(PodmanError) as error:
            podman.images()
        assert why.partition(": ")[2] in str(error.value)
    assert asked == [(*podman.prefix, "podman", "--version")]
    assert bool(podman.prefix) == (user == "alice")
    assert len(started) == (1 if "3.0.1" in said else 3)
