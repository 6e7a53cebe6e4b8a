# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Control groups at the top level that the profile does not place: what is said of them, and which of them can be confined."""

from __future__ import annotations

import re
import types
import typing as t

from ..plan.plan import DRIFT, UNCHANGEABLE, Change
from ..profile.profile import Profile
from ..profile.schema_types import CORRAL_SLICE
from ..systemd.unit_group import group_of
from ..values import cpuset
from ..values.records import NamedTuple
from .slices import MANAGER

# The suffixes of systemd's control groups; others at the top level are not systemd's.
UNITS = (".slice", ".scope", ".service", ".mount", ".swap", ".socket")
# Each node has some of these; what starts there is their helper, for a moment.
HELPERS = (".mount", ".swap", ".socket")
# The units that have AllowedCPUs=.
UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*\.(slice|scope|service)")


class Unmanaged(NamedTuple):
    """A top-level control group that the profile does not name, or that requests exclusive CPUs.

    ``cpus`` are those that its processes get, or would get, ``requested`` those that it requests; ``processes`` are some of those that
    it holds (``populated``), each with its PID and name; ``file`` is the file that sets its CPUs again at the next daemon-reload, if any;
    ``is_partition``: the kernel takes its CPUs from all siblings, Corral's among them; ``exclusive`` are those in its
    cpuset.cpus.exclusive, of which no sibling can be a partition.
    """

    name: str
    cpus: frozenset[int]
    requested: frozenset[int]
    populated: bool
    processes: tuple[str, ...]
    file: str = ""
    is_partition: bool = False
    exclusive: frozenset[int] = cpuset.EMPTY


def is_the_kubelets(name: str, profile: Profile) -> bool:
    """Whether a control group is the one of pods, whose CPUs the kubelet sets.

    With the section kubelet they are the kubelet's matter: its configuration says which ones are Corral's.
    """
    return profile.kubelet is not None and name in ("kubepods.slice", "kubepods")


def may_start_on(one: Unmanaged, cpus: frozenset[int]) -> bool:
    """Whether something may start in an empty control group, other than a helper, and would have some of these CPUs."""
    return bool(one.cpus & cpus) and not one.name.endswith(HELPERS)


def can_be_confined(one: Unmanaged) -> bool:
    """Whether it is a unit that has AllowedCPUs=, and keeps the value; a partition takes the CPUs from all others.

    A slice with a dash in its name that is at the top level was not made by systemd, which has another place for it.
    """
    is_unit = UNIT_NAME.fullmatch(one.name) is not None and group_of(one.name) == one.name
    return is_unit and not one.file and not one.is_partition and not one.exclusive


def reported(
    found: t.Iterable[Unmanaged],
    own: t.Mapping[str, frozenset[int]],
    shared: frozenset[int],
    confined: t.Container[str],
) -> list[Unmanaged]:
    """Those that are reported: that run something, are partitions or keep siblings from being some, or request or would get CPUs of
    exclusive slices, unless they are ``confined`` to the ``shared`` CPUs already.
    """
    taken = frozenset().union(*own.values())
    found = (
        one
        for one in found
        if one.populated or one.is_partition or one.exclusive or (one.requested or one.cpus) & taken
    )
    return [one for one in found if not (one.name in confined and one.cpus == shared)]


def changes_of(
    unmanaged: t.Iterable[Unmanaged],
    own: t.Mapping[str, frozenset[int]],
    shared: frozenset[int],
    confined: t.Container[str],
    refused: t.Container[str] = (),
    following: t.Mapping[str, frozenset[int]] = types.MappingProxyType({}),
    root: str = "/sys/fs/cgroup",
) -> list[Change]:
    """Items of control groups that the profile does not place: their CPUs, and which of them are other slices' ``own``.

    Those that are ``confined`` get the shared CPUs, and those ``following`` what exclusive slices leave; the hand-over has the steps
    of both. Those ``refused`` cannot get the shared CPUs.
    """
    changes = []
    for one in unmanaged:
        met = [f"{unit}'s {text}" for unit, text in overlaps(one.cpus | one.requested, own)]
        actual = shown_running(one.cpus, one.processes)
        actual = actual if one.populated else f"is empty, would run on {cpuset.format(one.cpus)}"
        reason = f"on {', '.join(met)}; " if met else ""
        if one.is_partition:
            reason += f"a partition of its own, so no pool has CPUs {cpuset.format(one.cpus)}; "
        elif one.exclusive:
            reason += f"no workload can have CPUs {cpuset.format(one.exclusive)}, which its cpuset.cpus.exclusive has; "
        cpus = following.get(one.name, one.cpus)
        verdict, wanted = UNCHANGEABLE, "a pool"
        if one.name in confined:
            verdict, wanted = DRIFT, f"CPUs {cpuset.format(shared)}"
            reason += "cpu.unmanaged: confine"
        elif cpus != one.cpus:
            verdict, wanted = DRIFT, f"CPUs {cpuset.format(cpus)}"
            reason += "it was confined, and the kernel keeps a request for CPUs until the unit stops"
        else:
            reason += reason_of(one, refused=one.name in refused)
        changes.append(
            Change(MANAGER, one.name, "placement", actual, wanted, reason, f"{root}/{one.name}", (), verdict)
        )
    return changes


def shown_running(cpus: frozenset[int], processes: t.Sequence[str]) -> str:
    """Where processes run, and which."""
    return f"runs on {cpuset.format(cpus)}" + (f" (PID {', '.join(processes)})" if processes else "")


def overlaps(cpus: frozenset[int], own: t.Mapping[str, frozenset[int]]) -> list[tuple[str, str]]:
    """The slices that own some of these CPUs, each with those CPUs."""
    return [(unit, cpuset.format(theirs & cpus)) for unit, theirs in own.items() if theirs & cpus]


def reason_of(one: Unmanaged, *, refused: bool = False) -> str:
    """Why processes at the top level are out of place, and what to do."""
    name = one.name
    if one.is_partition:
        return "write member to its cpuset.cpus.partition, or remove CPUSetPartition= from its unit"
    if one.exclusive:
        return f"empty that file (echo >/sys/fs/cgroup/{name}/cpuset.cpus.exclusive), or remove the control group"
    of_systemd = name.endswith(UNITS) and group_of(name) == name
    if refused and of_systemd and UNIT_NAME.fullmatch(name):
        if one.file:
            return (
                f"{one.file} sets other CPUs, so cpu.unmanaged: confine cannot: remove it, then systemctl daemon-reload"
            )
        return "systemd did not give it the shared CPUs (systemctl status; it may have stopped and left processes): stop these"
    if of_systemd and name.endswith((".service", ".scope")):
        return f"it is in no slice of the profile: Slice={CORRAL_SLICE} or system.slice in a drop-in, then restart it"
    if of_systemd:
        return "the profile does not know this top-level unit: add it to cpu.reserved.slices or cpu.shared.slices"
    return "not made by systemd (cset, lxc?): stop it, or start it in a slice of the profile"
