# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fake's own rule for cpusets, against what was measured on 8 CPUs: two partitions on 2-3 and 4-5, the rest as usual."""

from __future__ import annotations

import typing as t

import pytest
from fake_cpusets import BOOKWORM, FORKY, TRIXIE, Cpuset, Kernel, Release, read_list, shown_list

ALL = (BOOKWORM, TRIXIE, FORKY)
USUAL = {"system.slice": "0-1", "user.slice": "0-1", "init.scope": "0-1", "corral.slice": "6-7"}
GRANTS = {"corral_a.slice": "2-3", "corral_b.slice": "4-5"}
A, B = GRANTS
# Nothing of its own: a service in -.slice, a slice nobody knows, a cgroup made by mkdir.
UNKNOWN = ("rogue.service", "mine.slice", "mine.slice/x.service", "lxc")
Do = tuple[str, ...]


def machine(release: Release, partitions: t.Iterable[str] = (A, B)) -> Kernel:
    names = (*USUAL, *GRANTS, *UNKNOWN, "machine.slice", "machine.slice/libpod-1.scope", f"{A}/a.service")
    kernel = Kernel({name: Cpuset() for name in ("", *names)}, read_list("0-7"), release)
    for path, cpus in {**USUAL, **GRANTS}.items():
        kernel.set_cpus(path, read_list(cpus))
    for path in partitions:
        kernel.set_partition(path, "root")
    return kernel


def do(kernel: Kernel, *acts: Do) -> None:
    for path, text in acts:
        if path == "online":
            kernel.set_online(read_list(text))
        elif text[0].isdecimal() or not text:
            kernel.set_cpus(path, read_list(text))
        else:
            kernel.set_partition(path, text)


def seen(kernel: Kernel, path: str) -> str:
    return shown_list(kernel.effective()[path])


@pytest.mark.parametrize("release", ALL)
def test_a_partition_keeps_all_others_out(release: Release) -> None:
    kernel = machine(release)
    assert [kernel.shown(path) for path in GRANTS] == ["root", "root"]
    assert (seen(kernel, A), seen(kernel, f"{A}/a.service"), seen(kernel, B)) == ("2-3", "2-3", "4-5")
    assert {seen(kernel, path) for path in ("", *UNKNOWN, "machine.slice")} == {"0-1,6-7"}
    do(kernel, ("machine.slice", "6-7"), ("machine.slice/libpod-1.scope", "2-3"))
    assert seen(kernel, "machine.slice/libpod-1.scope") == "6-7"


@pytest.mark.parametrize("release", ALL)
def test_without_partitions_who_asks_for_nothing_gets_everything(release: Release) -> None:
    kernel = machine(release, ())
    assert {seen(kernel, path) for path in ("", *UNKNOWN)} == {"0-7"}
    do(kernel, ("mine.slice/x.service", "2"))
    assert seen(kernel, "mine.slice/x.service") == "2"


NOT_EXCLUSIVE = "root invalid (Cpu list in cpuset.cpus not exclusive)"
SHRUNK = ("corral.slice", "6-7")
OVERLAP = ("corral.slice", "5-7")
AGAIN = (B, "root")

# What is done, and then: B's partition and CPUs, and those of the sibling.
CASES: dict[str, tuple[tuple[Do, ...], dict[Release, tuple[str, str, str]]]] = {
    "a sibling asks for its CPUs": (
        (OVERLAP,),
        {
            BOOKWORM: (NOT_EXCLUSIVE, "4-5", "5-7"),
            TRIXIE: ("root invalid", "4-5", "5-7"),
            FORKY: ("root", "4-5", "6-7"),
        },
    ),
    "it stays invalid when the overlap is gone": (
        (OVERLAP, SHRUNK),
        {
            BOOKWORM: (NOT_EXCLUSIVE, "4-5", "6-7"),
            TRIXIE: ("root invalid", "4-5", "6-7"),
            FORKY: ("root", "4-5", "6-7"),
        },
    ),
    "root again": (
        (OVERLAP, SHRUNK, AGAIN),
        {
            BOOKWORM: (NOT_EXCLUSIVE, "4-5", "6-7"),
            TRIXIE: ("root", "4-5", "6-7"),
            FORKY: ("root", "4-5", "6-7"),
        },
    ),
    "member, then root": ((OVERLAP, SHRUNK, (B, "member"), AGAIN), dict.fromkeys(ALL, ("root", "4-5", "6-7"))),
    "other CPUs of its own are looked at again": (
        (OVERLAP, (B, "4")),
        {
            BOOKWORM: ("root", "4", "5-7"),
            TRIXIE: ("root", "4", "5-7"),
            FORKY: ("root", "4", "5-7"),
        },
    ),
    "the same CPUs are not": (
        (OVERLAP, SHRUNK, (B, "4-5")),
        {
            BOOKWORM: (NOT_EXCLUSIVE, "4-5", "6-7"),
            TRIXIE: ("root invalid", "4-5", "6-7"),
            FORKY: ("root", "4-5", "6-7"),
        },
    ),
    "its CPUs go offline": (
        (("online", "0-3,6-7"),),
        {
            BOOKWORM: ("root", "", "6-7"),
            TRIXIE: ("root invalid (No cpu available due to hotplug)", "0-1,6-7", "6-7"),
            FORKY: ("root invalid (No cpu available due to hotplug)", "0-1,6-7", "6-7"),
        },
    ),
    "and come back": ((("online", "0-3,6-7"), ("online", "0-7")), dict.fromkeys(ALL, ("root", "4-5", "6-7"))),
    "one of them goes": ((("online", "0-4,6-7"),), dict.fromkeys(ALL, ("root", "4", "6-7"))),
    "a move: first shrink, then grow": (
        (("corral.slice", "7"), (B, "4-6")), dict.fromkeys(ALL, ("root", "4-6", "7")),
    ),
    "isolated": (((B, "isolated"),), dict.fromkeys(ALL, ("isolated", "4-5", "6-7"))),
    "member": (((B, "member"),), dict.fromkeys(ALL, ("member", "4-5", "6-7"))),
}  # fmt: skip


@pytest.mark.parametrize("release", ALL, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_what_was_measured(name: str, release: Release) -> None:
    acts, wanted = CASES[name]
    kernel = machine(release)
    do(kernel, *acts)
    assert (kernel.shown(B), seen(kernel, B), seen(kernel, "corral.slice")) == wanted[release]
    assert (kernel.shown(A), seen(kernel, A)) == ("root", "2-3"), "the other one is not concerned"


def test_cpus_that_a_sibling_keeps_for_itself_are_no_partitions() -> None:
    """Measured on 6.12."""
    kernel = machine(TRIXIE, ())
    kernel.set_exclusive("lxc", read_list("5"))
    do(kernel, (B, "5"), (B, "root"))
    assert (kernel.shown(B), seen(kernel, B), seen(kernel, "lxc")) == ("root invalid", "5", "0-7")
    do(kernel, (B, "4-5"), (B, "root"))
    assert (kernel.shown(B), seen(kernel, B)) == ("root", "4")
    with pytest.raises(OSError, match="Invalid argument"):
        kernel.set_exclusive("lxc", read_list("4"))
    do(kernel, (B, "4"), ("lxc", "root"))
    assert (kernel.shown("lxc"), seen(kernel, "lxc")) == ("root", "5")


@pytest.mark.parametrize("release", ALL, ids=str)
def test_what_cannot_be_a_partition_says_why(release: Release) -> None:
    kernel = machine(release)
    for path, cpus, why in (
        ("lxc", "", "cpuset.cpus is empty"),
        ("machine.slice/libpod-1.scope", "6", "Parent is not a partition root"),
        ("lxc", "0-1,6-7", "Cpu list in cpuset.cpus not exclusive"),
    ):
        if cpus:
            kernel.set_cpus(path, read_list(cpus))
        kernel.set_partition(path, "root")
        if release == FORKY and "exclusive" in why:
            why = "Parent unable to distribute cpu downstream"
        told = "root invalid" if release == TRIXIE and "exclusive" in why else f"root invalid ({why})"
        assert kernel.shown(path) == told
        kernel.set_partition(path, "member")
    with pytest.raises(OSError, match="Invalid argument"):
        kernel.set_partition("lxc", "exclusive")


@pytest.mark.parametrize("release", ALL, ids=str)
def test_two_partitions_cannot_share(release: Release) -> None:
    kernel = machine(release)
    do(kernel, (A, "2-4"))
    assert "invalid" in kernel.shown(A)
    assert ("invalid" in kernel.shown(B)) == (release < FORKY)
    assert (4 in kernel.effective()[A]) == (release < FORKY)


@pytest.mark.parametrize("release", ALL, ids=str)
def test_a_partition_that_ends_gives_its_cpus_back(release: Release) -> None:
    kernel = machine(release)
    for path in (A, f"{A}/a.service"):
        del kernel.groups[path]  # type: ignore[attr-defined]
    assert {seen(kernel, path) for path in ("", *UNKNOWN)} == {"0-3,6-7"}


@pytest.mark.parametrize("release", ALL, ids=str)
def test_a_partition_in_a_partition_ends_with_it(release: Release) -> None:
    kernel = machine(release)
    do(kernel, (f"{A}/a.service", "3"), (f"{A}/a.service", "root"))
    assert (kernel.shown(f"{A}/a.service"), seen(kernel, A)) == ("root", "2")
    kernel.set_partition(A, "member")
    assert "invalid" in kernel.shown(f"{A}/a.service")
    assert (seen(kernel, A), seen(kernel, f"{A}/a.service")) == ("2-3", "3")


def test_the_cpus_of_a_child_outside_its_parent_are_the_parents() -> None:
    kernel = machine(BOOKWORM)
    do(kernel, ("mine.slice", "6-7"), ("mine.slice/x.service", "0-1"))
    assert seen(kernel, "mine.slice/x.service") == "6-7"
    do(kernel, ("mine.slice/x.service", "1,7"))
    assert seen(kernel, "mine.slice/x.service") == "7"
