# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Masks of real threads, of a process of this test's own; the control groups around them are files."""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from _core.host.cpu import thread_masks
from _core.host.files import Host

GROUP = "/sys/fs/cgroup/corral.slice"
CPUS = sorted(os.sched_getaffinity(0))

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="this machine lets the test run on a single CPU")


@pytest.fixture
def sleeper() -> t.Iterator[int]:
    """A process that may run on all that this one may."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process.pid
    process.kill()
    process.wait()


def machine(root: Path, cpus: t.Iterable[int]) -> Host:
    folder = root / GROUP.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpuset.cpus.effective").write_text(",".join(map(str, cpus)) + "\n")
    return Host(str(root))


class Live(Host):
    """A host whose threads are real ones."""

    live = True  # type: ignore[assignment]


def test_what_a_kernel_lost_is_set_again(tmp_path: Path, sleeper: int) -> None:
    thread_masks.give_back(machine(tmp_path, CPUS), GROUP, {sleeper: (GROUP, frozenset(CPUS[:1]))})
    assert os.sched_getaffinity(sleeper) == {CPUS[0]}


def test_what_a_kernel_kept_is_left_alone(tmp_path: Path, sleeper: int) -> None:
    os.sched_setaffinity(sleeper, {CPUS[1]})
    thread_masks.give_back(machine(tmp_path, CPUS), GROUP, {sleeper: (GROUP, frozenset(CPUS[:1]))})
    assert os.sched_getaffinity(sleeper) == {CPUS[1]}


def test_a_mask_outside_the_new_cpus_is_over(tmp_path: Path, sleeper: int) -> None:
    before = os.sched_getaffinity(sleeper)
    thread_masks.give_back(machine(tmp_path, [4000, 4001]), GROUP, {sleeper: (GROUP, frozenset(CPUS[:1]))})
    assert os.sched_getaffinity(sleeper) == before


def test_a_thread_that_has_ended_is_nobody(tmp_path: Path, sleeper: int) -> None:
    os.kill(sleeper, 9)
    os.waitpid(sleeper, 0)
    assert thread_masks.mask_of(sleeper) == frozenset()
    thread_masks.give_back(machine(tmp_path, CPUS), GROUP, {sleeper: (GROUP, frozenset(CPUS[:1]))})


def test_the_nearest_group_with_cpus_counts(tmp_path: Path) -> None:
    host = machine(tmp_path, [1, 2])
    assert thread_masks.effective(host, f"{GROUP}/corral-feed.slice/feed.service") == {1, 2}
    assert thread_masks.effective(host, "/sys/fs/cgroup/other.slice") == frozenset()


def test_only_a_live_machine_has_threads(tmp_path: Path) -> None:
    assert thread_masks.own(machine(tmp_path, CPUS), GROUP) == {}


def test_a_mask_outlives_an_instant_at_which_its_cpu_was_gone(tmp_path: Path, sleeper: int) -> None:
    """What a kernel before 6.2 does: each change of the group's CPUs gives a thread all of them."""
    masks: thread_masks.Masks = {}
    one, other = CPUS[0], CPUS[1]
    os.sched_setaffinity(sleeper, {other})
    for cpus in ([one, other], [one], [one, other]):
        host = Live(machine(tmp_path, cpus).root)
        (tmp_path / GROUP.lstrip("/") / "cgroup.threads").write_text(f"{sleeper}\n")
        if masks:
            os.sched_setaffinity(sleeper, cpus)
            thread_masks.give_back(host, GROUP, masks)
        thread_masks.record(host, GROUP, masks)
    assert masks == {sleeper: (GROUP, frozenset({other}))}
    assert os.sched_getaffinity(sleeper) == {other}


def test_another_groups_threads_are_left_alone(tmp_path: Path, sleeper: int) -> None:
    before = os.sched_getaffinity(sleeper)
    thread_masks.give_back(machine(tmp_path, CPUS), f"{GROUP}-2", {sleeper: (GROUP, frozenset(CPUS[:1]))})
    assert os.sched_getaffinity(sleeper) == before
