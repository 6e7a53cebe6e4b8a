# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the watcher on a node takes for an exclusive slice, over folders that hold the kernel's files as texts."""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab"))
import watch_exclusive

SHARED = "corral.slice"


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., None]:
    """Sets a control group's files: CPUs asked for and in force, kind of partition, whether a process is in it."""
    monkeypatch.setattr(watch_exclusive, "ROOT", str(tmp_path))

    def put(name: str, asked: str, effective: str = "", partition: str = "member", populated: int = 1) -> None:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "cpuset.cpus").write_text(f"{asked}\n")
        (folder / "cpuset.cpus.effective").write_text(f"{effective or asked}\n")
        (folder / "cpuset.cpus.partition").write_text(f"{partition}\n")
        (folder / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")

    put(SHARED, "4-7")
    put("system.slice", "0-1")
    return put


def overlaps(slices: watch_exclusive.Slices) -> list[str]:
    return watch_exclusive.look(slices, with_masks=False)[0]


def test_a_partition_that_ends_under_its_workload_is_an_overlap(group: t.Callable[..., None]) -> None:
    slices = watch_exclusive.Slices()
    group("corral_a.slice", "2-3", partition="root")
    assert overlaps(slices) == []
    group("corral_a.slice", "2-3")
    group("system.slice", "", effective="0-3")
    assert overlaps(slices) == ["corral_a.slice and system.slice: [2, 3]"]


@pytest.mark.parametrize(
    ("asked", "partition", "found"),
    [
        ("2-3", "root", ["corral_a.slice and system.slice: [2, 3]"]),
        ("2-3", "root invalid (Cpu list in cpuset.cpus not exclusive)", ["corral_a.slice and system.slice: [2, 3]"]),
        ("2-3", "member", ["corral_a.slice and system.slice: [2, 3]"]),  # with partitions off, or before it is one
        ("4-7", "member", []),  # what corral.slice asks for: it was given up before the watcher came
        ("", "member", []),  # nobody granted it anything
    ],
)
def test_a_slice_that_was_never_seen_as_a_partition(
    group: t.Callable[..., None], asked: str, partition: str, found: list[str]
) -> None:
    group("system.slice", "", effective="0-7")
    group("corral_a.slice", asked, effective=asked or "0-7", partition=partition)
    assert overlaps(watch_exclusive.Slices()) == found


def test_a_slice_that_was_given_up_runs_as_shared_and_may_become_a_partition_again(
    group: t.Callable[..., None],
) -> None:
    slices = watch_exclusive.Slices()
    group("system.slice", "", effective="0-1,4-7")
    group("corral_a.slice", "2-3", partition="root")
    assert overlaps(slices) == []
    group("corral_a.slice", "4-6")  # the shared pool grows in the next step
    assert overlaps(slices) == []
    group("corral_a.slice", "4-5", partition="root")
    shared = ["corral_a.slice and system.slice: [4, 5]", "corral_a.slice and corral.slice: [4, 5]"]
    assert overlaps(slices) == shared
    group("corral_a.slice", "4-5")
    assert overlaps(slices) == shared


def test_two_workloads_on_one_cpu_are_an_overlap(group: t.Callable[..., None]) -> None:
    group("corral_a.slice", "2-3", partition="root")
    group("corral_b.slice", "3", partition="member")
    assert overlaps(watch_exclusive.Slices()) == ["corral_a.slice and corral_b.slice: [3]"]


def test_an_empty_slice_shares_nothing(group: t.Callable[..., None]) -> None:
    group("system.slice", "", effective="0-7")
    group("corral_a.slice", "2-3", partition="member", populated=0)
    assert overlaps(watch_exclusive.Slices()) == []
