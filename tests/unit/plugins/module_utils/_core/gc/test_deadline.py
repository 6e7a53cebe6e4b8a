# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a pass of garbage collection ends: by time, by a signal, by another profile."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from _core.gc import gc_pass
from _core.host.containers.podman_cli import PodmanError
from _core.host.files import Host


class Clock:
    """A clock of which the test is the hand."""

    def __init__(self) -> None:
        self.up = 1000.0

    def __call__(self) -> float:
        return self.up


@pytest.fixture
def clock() -> Clock:
    return Clock()


def host(root: Path, clock: Clock) -> Host:
    return Host(str(root), uptime=clock)


def test_a_pass_ends_when_its_time_is_over(tmp_path: Path, clock: Clock) -> None:
    stop = gc_pass.new_stop(host(tmp_path, clock))
    clock.up += gc_pass.PASS_SECONDS - 1
    assert not stop.now()
    stop.check("root")
    clock.up += 1
    assert stop.now()
    with pytest.raises(PodmanError, match=r"podman of alice: not read, .*whole time of the pass"):
        stop.check("alice")


def test_a_pass_that_is_told_to_ends_at_once(tmp_path: Path, clock: Clock) -> None:
    stop = gc_pass.new_stop(host(tmp_path, clock))
    assert not stop.now()
    stop.end()
    assert stop.now()
    clock.up += 1
    assert stop.now(), "for good"


def test_a_pass_ends_with_the_profile_it_began_with(tmp_path: Path, clock: Clock) -> None:
    stop = gc_pass.new_stop(host(tmp_path, clock))
    stop.wanted = lambda: False
    assert stop.now()
    with pytest.raises(PodmanError, match="podman of root: not read, the profile changed"):
        stop.check("root")


def test_a_wait_is_as_long_as_asked_for(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    gc_pass.new_stop(host(tmp_path, clock)).wait(0.5)
    assert slept == [0.5]
