# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All control groups as the validator's oracle takes them, from a tree of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from _core.host import cgroup_tree
from _core.host.files import Host
from _core.model.plan.kernel_cpusets import INVALIDATES, MEMBER, PARTITION, WINS, Cgroup
from _core.model.values import cpuset
from hypothesis import given
from hypothesis import strategies as st

OWN = "corral_a.slice"
INNER = "machine.slice/x.scope"


def tree(
    root: Path,
    own: str = "root",
    system: str = "0-1",
    release: str = "6.12.3",
    rest: str = "0-1,4-7",
    has: str = "2-3",
    online: str = "0-7",
) -> cgroup_tree.Tree:
    groups = {
        "": ("", rest, "", 1), "system.slice": (system, system, "", 1), OWN: ("2-3", has, own, 1),
        "machine.slice": ("4-7", "4-7", "member", 1), INNER: ("5", "5", "member", 1), "user.slice": ("", "", "", 0),
        "user.slice/no.scope": ("2", "2", "", 1),
    }  # fmt: skip
    for path, (asked, effective, partition, populated) in groups.items():
        folder = root / "sys/fs/cgroup" / path
        folder.mkdir(parents=True, exist_ok=True)
        inner = "cpuset" if path in ("", "machine.slice") else ""
        texts = {
            "cpuset.cpus": asked, "cpuset.cpus.effective": effective, "cpuset.cpus.partition": partition or "member",
            "cgroup.events": f"populated {populated}", "cgroup.subtree_control": inner, "cgroup.controllers": "cpuset",
        }  # fmt: skip
        for name, text in texts.items():
            (folder / name).write_text(f"{text}\n")
    for path, text in (("sys/devices/system/cpu/online", online), ("proc/sys/kernel/osrelease", release)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n")
    return cgroup_tree.observe(Host(str(root)))


def test_control_groups_in_others_are_looked_at_where_they_can_have_cpus(tmp_path: Path) -> None:
    machine, populated = tree(tmp_path)
    assert set(machine.cgroups) == {"system.slice", OWN, "machine.slice", INNER, "user.slice"}
    assert machine.cgroups[INNER] == Cgroup(frozenset({5}))
    assert machine.cgroups[OWN] == Cgroup(frozenset({2, 3}), "root", True)
    assert populated == {"system.slice", OWN, "machine.slice", INNER}
    assert machine.online == frozenset(range(8))


@pytest.mark.parametrize(
    ("partition", "wanted"),
    [
        ("member", Cgroup(frozenset({5, 6}), PARTITION, None)),
        ("root", Cgroup(frozenset({6}), PARTITION, None)),  # machine.slice has it as well.
        ("root invalid", Cgroup(frozenset({5, 6}), PARTITION, None)),
    ],
)
def test_cpus_that_a_control_group_keeps_for_itself_may_be_a_partition(
    partition: str, wanted: Cgroup, tmp_path: Path
) -> None:
    folder = tmp_path / "sys/fs/cgroup/byhand"
    folder.mkdir(parents=True)
    files = {"cpus": "5", "cpus.effective": "6", "cpus.exclusive": "6", "cpus.partition": partition}
    for name, text in files.items():
        (folder / f"cpuset.{name}").write_text(f"{text}\n")
    assert tree(tmp_path, rest="0-1,4-5,7").machine.cgroups["byhand"] == wanted


@pytest.mark.parametrize(
    ("own", "system", "valid"),
    [("root", "0-1", True), ("root", "0-2", None), ("root invalid (why)", "0-1", False), ("member", "0-1", False)],
)
def test_a_partition_on_whose_cpus_others_run_is_in_doubt(own: str, system: str, valid: bool, tmp_path: Path) -> None:
    assert tree(tmp_path, own, system).machine.cgroups[OWN].valid is valid


@pytest.mark.parametrize(
    ("has", "online", "valid"),
    [
        ("2-3", "0-7", True),
        ("2", "0-2,4-7", True),
        ("3", "0-7", None),  # 7.2: another partition has 2.
        ("", "0-1,4-7", None),  # 6.1 and 7.2: a partition without a CPU
    ],
)
def test_a_partition_that_has_not_what_it_asks_for_is_in_doubt(
    has: str, online: str, valid: bool, tmp_path: Path
) -> None:
    assert tree(tmp_path, has=has, online=online).machine.cgroups[OWN].valid is valid


@pytest.mark.parametrize("inner", ["3", "2-3"])
def test_what_a_partition_gave_to_one_in_it_is_not_missing(inner: str, tmp_path: Path) -> None:
    for name, text in (("cpuset.cpus", inner), ("cpuset.cpus.effective", inner), ("cpuset.cpus.partition", "root")):
        file = tmp_path / "sys/fs/cgroup" / OWN / "x.service" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    tree(tmp_path, has="2" if inner == "3" else "")
    (tmp_path / "sys/fs/cgroup" / OWN / "cgroup.subtree_control").write_text("cpuset\n")
    found = cgroup_tree.observe(Host(str(tmp_path))).machine.cgroups
    assert (found[OWN].valid, found[f"{OWN}/x.service"].valid) == (True, True)


@pytest.mark.parametrize(
    ("own", "rest", "lost"),
    [
        ("root", "0-1,4-7", ""),
        ("root", "0-1,5-7", "4"),
        ("root", "0-1,3-7", ""),  # 2 is the partition's, and 3 in doubt.
        ("root invalid (why)", "0-1,3-7", "2"),
        ("member", "0-1,4-7", "2-3"),
        ("member", "0-7", ""),
        ("member", "", ""),  # It cannot be read.
    ],
)
def test_cpus_that_neither_a_partition_nor_the_root_has_are_lost(
    own: str, rest: str, lost: str, tmp_path: Path
) -> None:
    assert cpuset.format(tree(tmp_path, own, rest=rest).machine.lost) == lost


@pytest.mark.parametrize(
    ("release", "way"), [("6.1.0-18-amd64", INVALIDATES), ("6.12.3", INVALIDATES), ("7.0.1", WINS), ("10.2", WINS)]
)
def test_kernels_from_7_on_let_the_partition_win(release: str, way: str, tmp_path: Path) -> None:
    assert tree(tmp_path, release=release).machine.way == way


SETS = st.frozensets(st.integers(0, 5), max_size=3)
PLACES = st.sampled_from(["a", "b", "c", "a/x", "a/y", "b/x", "a/x/z"])
STATES = st.tuples(SETS, SETS, st.booleans())


@given(st.dictionaries(PLACES, STATES), SETS, SETS)
def test_each_partition_is_compared_with_every_other_control_group(
    states: dict[str, tuple[frozenset[int], frozenset[int], bool]], rest: frozenset[int], online: frozenset[int]
) -> None:
    found = {path: Cgroup(asks, PARTITION if valid else MEMBER, valid) for path, (asks, dummy, valid) in states.items()}
    effective = {path: has for path, (dummy, has, dummy_valid) in states.items()}
    wanted = []
    for path, one in found.items():
        others = [has for name, has in effective.items() if not f"{name}/".startswith(f"{path}/")]
        inner = [two.cpus for name, two in found.items() if two.valid and name.rpartition("/")[0] == path]
        own = one.cpus & online
        shared = "/" not in path and one.cpus & rest.union(*others)
        if one.valid and (shared or not own or effective[path] != own.difference(*inner)):
            wanted.append(path)
    assert cgroup_tree.doubtful(found, effective, rest, online) == wanted
