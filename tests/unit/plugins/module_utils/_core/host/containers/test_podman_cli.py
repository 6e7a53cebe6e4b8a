# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""As whom, and with which environment, a user's Podman is started."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from _core.host.command import Command
from _core.host.containers import podman_cli, podman_unit
from _core.host.containers.podman_cli import Podman, PodmanError
from _core.host.containers.podman_unit import Account, Answer, ServiceError
from _core.host.files import Host


def passwd(argv: t.Sequence[str], dummy_timeout: float) -> Command:
    """The accounts of a node: only getent(1) is asked, and one user is known."""
    assert argv[:2] == ("getent", "passwd")
    known = argv[2] == "alice"
    return Command(0 if known else 2, "alice:x:1007:100::/srv/alice:/bin/sh\n" if known else "", "")


def test_a_users_process_has_nothing_of_roots_environment(tmp_path: Path) -> None:
    account = podman_cli.account_of(Host(str(tmp_path), run=passwd), "alice")
    # The slice counts what it takes to the user, Delegate= keeps Podman within the unit, and the folder stays as long as the unit.
    folder = "user-runtime-dir@1007.service"
    assert account.properties == {
        "User": "1007",
        "Slice": "user-1007.slice",
        "Delegate": "yes",
        "Requires": folder,
        "After": folder,
    }
    assert account.variables == {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/srv/alice",
        "XDG_RUNTIME_DIR": "/run/user/1007",
        "CONTAINERS_CONF": "/dev/null",
        "LC_ALL": "C",
    }


def test_who_has_no_account_is_named(tmp_path: Path) -> None:
    with pytest.raises(PodmanError, match="podman of bob: this node has no such user"):
        podman_cli.account_of(Host(str(tmp_path), run=passwd), "bob")


def test_accounts_that_cannot_be_asked_are_not_taken_for_none(tmp_path: Path) -> None:
    host = Host(str(tmp_path), run=lambda dummy, timeout: Command(124, "", f"getent: no answer within {timeout:g} s"))
    with pytest.raises(PodmanError, match=r"podman of bob: who that is cannot be asked: .*no answer within 60 s"):
        podman_cli.account_of(host, "bob")


class Asked:
    """Answers in the place of a user's process, by what the request has."""

    def __init__(self, **answers: t.Any) -> None:
        self.answers, self.accounts, self.requests, self.closed = answers, [], [], 0

    def __call__(self, dummy: Host, account: Account) -> Asked:
        self.accounts.append(account)
        return self

    def ask(self, request: t.Mapping[str, t.Any], dummy_timeout: float, dummy_most: float) -> Answer:
        self.requests.append(request)
        answer = next((self.answers[key] for key in self.answers if key in request), Answer(404, "no", []))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def hang_up(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


def test_each_process_is_its_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(path=ServiceError(podman_cli.NOT_INSTALLED, "podman"))
    monkeypatch.setattr(Podman, "serve", staticmethod(asked))
    host = Host(str(tmp_path), run=passwd)
    for user in (podman_cli.ROOT, "alice"):
        with pytest.raises(PodmanError, match="podman is not installed"):
            Podman(host, user).images()
    assert asked.accounts == [podman_cli.ROOTS, podman_cli.account_of(host, "alice")]


@pytest.mark.parametrize("user", ["root", "alice"])
@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "podman version 3.0.1\n",
            "Podman 3.0.1 has no API of version 4: garbage collection needs Podman 4.0 or newer",
        ),
        ("podman version 3.\x1b[2J", "no answer in time"),
        ("podman version 4.3.1\n", "no answer in time"),
        ("", "no answer in time"),
    ],
)
def test_a_podman_without_the_api_is_named_and_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, why: str, user: str
) -> None:
    asked = Asked(path=ServiceError(124), version=Answer(200, "", [[said]]))
    monkeypatch.setattr(Podman, "serve", staticmethod(asked))
    podman = Podman(Host(str(tmp_path), run=passwd), user)
    for dummy in range(3):
        with pytest.raises(PodmanError, match=why):
            podman.images()
    assert len([one for one in asked.requests if "version" in one]) == 1
    assert len([one for one in asked.requests if "path" in one]) == (1 if "3.0.1" in said else 3)


HOSTILE = "\x1b[2J\n<0>forged\u202e"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500, f"Error: {HOSTILE}", []),
        Answer(200, "", [[HOSTILE, "", [], [], 0, False, False]]),
        Answer(200, "", [["too short"]]),
        ServiceError(127, HOSTILE),
        ServiceError(125, f"Error: {HOSTILE}"),
    ],
)
def test_what_a_users_process_says_is_one_printable_line(
    answer: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Podman, "serve", staticmethod(Asked(path=answer)))
    with pytest.raises(PodmanError) as raised:
        Podman(Host(str(tmp_path), run=passwd), "alice").images()
    assert str(raised.value).isprintable()


def test_root_opens_and_follows_no_path_of_a_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(str(tmp_path), run=passwd)
    podman = Podman(host, "alice")
    rows = [[1, 2, 3, 4]] * len(podman_cli.podman_storage.paths("/home/alice/x", "overlay"))
    asked = Asked(stat=Answer(200, "", rows), device=Answer(200, "", [["8:1"]]), file=Answer(200, "", []))
    monkeypatch.setattr(Podman, "serve", staticmethod(asked))
    for name in ("read", "read_bytes", "stamp", "space", "exists"):
        monkeypatch.setattr(Host, name, lambda *words: pytest.fail(f"root looks at {words[1:]}"))
    spaces: list[str] = []
    monkeypatch.setattr(Host, "device_space", lambda dummy, device: spaces.append(device))
    podman.space("/home/alice/x")
    podman.space("/home/alice/x")
    assert podman.stamps("/home/alice/x", "overlay") is not None
    assert podman.layers("/home/alice/x", "overlay") is not None
    assert spaces == ["8:1", "8:1"]
    assert len([one for one in asked.requests if "device" in one]) == 1, "what was said first holds"


def test_a_name_adds_nothing_to_a_request() -> None:
    assert podman_cli.quoted("a&force=true\r\n \udc9b") == "a%26force%3Dtrue%0D%0A%20%ED%B2%9B"


def test_a_user_has_a_share_of_the_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    host = Host(str(tmp_path), run=passwd, uptime=lambda: clock[0])

    class Slow(Asked):
        def ask(self, request: t.Mapping[str, t.Any], timeout: float, most: float) -> Answer:
            clock[0] += min(timeout + podman_unit.START_SECONDS, most)  # as of one that is stopped when it starts
            return super().ask(request, timeout, most)

    asked = Slow(path=ServiceError(124), version=ServiceError(124))
    monkeypatch.setattr(Podman, "serve", staticmethod(asked))
    assert podman_cli.Podmans(host, 4).share == (37.5, 4_000, 125)
    assert podman_cli.Podmans(host, 4_000).share.removals == 1
    podmans = podman_cli.Podmans(host, 3)
    for user in ("alice", "root"):
        for dummy in range(9):
            with pytest.raises(PodmanError):
                podmans.of(user).images()
        assert clock[0] == pytest.approx(50) if user == "alice" else clock[0] > 1000
