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


Put = t.Callable[..., None]


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Sets a control group's files: CPUs asked for and in force, kind of partition, whether a process is in it."""
    root = tmp_path / "cgroup"
    root.mkdir()
    monkeypatch.setattr(watch_exclusive, "ROOT", str(root))
    monkeypatch.setattr(watch_exclusive, "PROC", str(tmp_path / "proc"))

    def put(name: str, asked: str, effective: str = "", partition: str = "member", populated: int = 1) -> None:
        folder = root / name
        folder.mkdir(exist_ok=True)
        (folder / "cpuset.cpus").write_text(f"{asked}\n")
        (folder / "cpuset.cpus.effective").write_text(f"{effective or asked}\n")
        (folder / "cpuset.cpus.partition").write_text(f"{partition}\n")
        (folder / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")

    put(SHARED, "4-7")
    put("system.slice", "0-1")
    return put


def overlaps(slices: watch_exclusive.Slices) -> list[str]:
    """What a look finds, and what would be left if nothing more happened."""
    found = watch_exclusive.look(slices, with_masks=False)[0]
    slices.exclusive()
    return found + slices.left()


WITH_SYSTEM = "corral_a.slice and system.slice: [2, 3]"


@pytest.mark.parametrize(
    ("asked", "partition", "found"),
    [
        ("2-3", "root", [WITH_SYSTEM]),
        ("2-3", "root invalid (Cpu list in cpuset.cpus not exclusive)", [WITH_SYSTEM]),
        ("2-3", "member", [WITH_SYSTEM]),  # with partitions off, or before it is one
        ("4-7", "member", []),  # what corral.slice asks for: it was given up before the watcher came
        ("", "member", []),  # nobody granted it anything
    ],
)
def test_a_slice_that_was_never_seen_as_a_partition(group: Put, asked: str, partition: str, found: list[str]) -> None:
    group("system.slice", "", effective="0-7")
    group("corral_a.slice", asked, effective=asked or "0-7", partition=partition)
    assert overlaps(watch_exclusive.Slices()) == found


@pytest.mark.parametrize("asked", ["2-3", "2-5", ""])
def test_a_partition_that_ends_under_its_workload_is_an_overlap(group: Put, asked: str) -> None:
    slices = watch_exclusive.Slices()
    group("corral_a.slice", "2-3", partition="root")
    assert overlaps(slices) == []
    group("corral_a.slice", asked, effective=asked or "0-3")
    group("system.slice", "", effective="0-3")
    shared = "[2, 3]" if asked else "[0, 1, 2, 3]"
    assert f"corral_a.slice and system.slice: {shared}" in overlaps(slices)


def test_a_grant_that_moves_and_is_no_partition_any_more_is_an_overlap(group: Put) -> None:
    slices = watch_exclusive.Slices()
    group("corral_a.slice", "2-3", partition="root")
    assert overlaps(slices) == []
    group("corral_a.slice", "4-5")
    assert overlaps(slices) == ["corral_a.slice and corral.slice: [4, 5]"]


def test_a_slice_that_is_on_its_way_to_the_shared_cpus_was_given_up(group: Put) -> None:
    """First the shared pool grows, then the slice of the workload that left."""
    slices = watch_exclusive.Slices()
    group("corral_a.slice", "2-3", partition="root")
    assert overlaps(slices) == []
    group("corral_a.slice", "2-3")
    group(SHARED, "2-7")
    assert watch_exclusive.look(slices, with_masks=False)[0] == []
    assert slices.left() == ["corral_a.slice and corral.slice: [2, 3]"]
    group("corral_a.slice", "2-7")
    assert overlaps(slices) == []
    group("corral_a.slice", "2-3", partition="root")
    assert overlaps(slices) == ["corral_a.slice and corral.slice: [2, 3]"], "it is granted them again"


def test_another_slice_of_the_same_name_is_another(group: Put, tmp_path: Path) -> None:
    slices = watch_exclusive.Slices()
    group("corral_a.slice", "2-3", partition="root")
    assert overlaps(slices) == []
    (tmp_path / "cgroup/corral_a.slice").rename(tmp_path / "gone")
    group("system.slice", "", effective="0-3")
    group("corral_a.slice", "", effective="0-3")
    assert overlaps(slices) == [], "nobody granted this one anything"


def test_two_workloads_on_one_cpu_are_an_overlap(group: Put) -> None:
    group("corral_a.slice", "2-3", partition="root")
    group("corral_b.slice", "3", partition="member")
    assert overlaps(watch_exclusive.Slices()) == [
        "corral_a.slice and corral_b.slice: [3]",
        "corral_b.slice and corral_a.slice: [3]",
    ]


@pytest.mark.parametrize("gainer", ["corral_0.slice", "corral_c.slice"])
def test_who_gets_the_cpus_of_one_that_leaves_too_early_shares_them(gainer: str, group: Put) -> None:
    slices = watch_exclusive.Slices()
    group("corral_a.slice", "2-3", partition="root")
    assert overlaps(slices) == []
    group("corral_a.slice", "2-3", partition="member")
    group(gainer, "2-3", partition="root invalid (Cpu list in cpuset.cpus not exclusive)")
    assert f"{gainer} and corral_a.slice: [2, 3]" in overlaps(slices)


def test_an_empty_slice_shares_nothing(group: Put) -> None:
    group("system.slice", "", effective="0-7")
    group("corral_a.slice", "2-3", partition="member", populated=0)
    assert overlaps(watch_exclusive.Slices()) == []


@pytest.mark.parametrize(
    ("place", "mask", "found"),
    [
        ("/system.slice/x.service", "0-2", ["corral_a.slice and process 7 in /system.slice/x.service: [2]"]),
        ("/system.slice/x.service", "0-1,4", []),
        ("/corral_a.slice/a.service", "2-3", []),
        ("/corral_a.slice", "2", []),
        ("/corral_ab.slice/x.service", "3", ["corral_a.slice and process 7 in /corral_ab.slice/x.service: [3]"]),
        ("/", "0-7", []),  # kernel threads cannot be placed
    ],
)
def test_the_mask_of_each_thread_counts(group: Put, tmp_path: Path, place: str, mask: str, found: list[str]) -> None:
    group("corral_a.slice", "2-3", partition="root")
    tasks = {"7": "0-1" if "system" in place else mask, "8": mask}
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text(f"0::{place}\n")
    for task, cpus in tasks.items():
        (tmp_path / f"proc/7/task/{task}").mkdir(parents=True)
        (tmp_path / f"proc/7/task/{task}/status").write_text(f"Name:\tx\nCpus_allowed_list:\t{cpus}\n")
    said, count = watch_exclusive.look(watch_exclusive.Slices(), with_masks=True)
    assert (list(dict.fromkeys(said)), count) == (found, 0 if place == "/" else 2)
