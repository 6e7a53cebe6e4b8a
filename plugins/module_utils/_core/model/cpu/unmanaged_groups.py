# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Top-level control groups that the profile does not place: their items, and whether a group can be confined."""

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

# The suffixes of systemd's control groups at the top level.
UNITS = (".slice", ".scope", ".service", ".mount", ".swap", ".socket")
# Only short-lived helpers of systemd run in the control groups of these units.
HELPERS = (".mount", ".swap", ".socket")
# The units that have AllowedCPUs=.
UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*\.(slice|scope|service)")


class Unmanaged(NamedTuple):
    """A top-level control group that the profile does not name, or that requests exclusive CPUs.

    ``cpus``: the effective CPUs. ``requested``: the requested CPUs. ``populated``: the group has processes; ``processes``: some of these,
    each with PID and name. ``file``: the file that sets the group's CPUs again at the next daemon-reload, if any. ``is_partition``: the
    kernel takes its CPUs from all siblings. ``exclusive``: cpuset.cpus.exclusive; no sibling with such a CPU can be a partition.
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
    """Whether a control group is the kubelet's group of pods, and the profile has a section ``kubelet``.

    Corral leaves the CPUs of this group to the kubelet.
    """
    return profile.kubelet is not None and name in ("kubepods.slice", "kubepods")


def may_start_on(group: Unmanaged, cpus: frozenset[int]) -> bool:
    """Whether processes other than helpers may start in an empty control group with some of ``cpus``."""
    return bool(group.cpus & cpus) and not group.name.endswith(HELPERS)


def can_be_confined(group: Unmanaged) -> bool:
    """Whether a control group can get the shared CPUs: a unit with AllowedCPUs=, without exclusive CPUs, and without a file for its CPUs.

    A top-level slice with a dash in its name was not made by systemd: systemd puts such a slice into another slice.
    """
    is_unit = UNIT_NAME.fullmatch(group.name) is not None and group_of(group.name) == group.name
    return is_unit and not group.file and not group.is_partition and not group.exclusive


def reported(
    groups: t.Iterable[Unmanaged],
    own: t.Mapping[str, frozenset[int]],
    shared: frozenset[int],
    confined: t.Container[str],
) -> list[Unmanaged]:
    """The control groups with an item of drift: groups that have processes, are partitions, keep siblings from being partitions, or have
    CPUs of exclusive slices. A group that is ``confined`` to the ``shared`` CPUs already has no item.
    """
    taken = frozenset().union(*own.values())
    return [
        group
        for group in groups
        if (group.populated or group.is_partition or group.exclusive or (group.requested or group.cpus) & taken)
        and not (group.name in confined and group.cpus == shared)
    ]


def changes_of(
    unmanaged: t.Iterable[Unmanaged],
    own: t.Mapping[str, frozenset[int]],
    shared: frozenset[int],
    confined: t.Container[str],
    refused: t.Container[str] = (),
    following: t.Mapping[str, frozenset[int]] = types.MappingProxyType({}),
    root: str = "/sys/fs/cgroup",
) -> list[Change]:
    """The items of control groups that the profile does not place, with the exclusive slices (``own``) whose CPUs the groups use.

    The ``confined`` groups get the shared CPUs, and the ``following`` groups the CPUs that exclusive slices leave. The hand-over adds the
    steps for both kinds of groups. The ``refused`` groups cannot get the shared CPUs.
    """
    changes = []
    for group in unmanaged:
        met = [f"{unit}'s {text}" for unit, text in overlaps(group.cpus | group.requested, own)]
        actual = shown_running(group.cpus, group.processes)
        actual = actual if group.populated else f"is empty, would run on {cpuset.format(group.cpus)}"
        reason = f"on {', '.join(met)}; " if met else ""
        if group.is_partition:
            reason += f"a partition of its own, so no pool has CPUs {cpuset.format(group.cpus)}; "
        elif group.exclusive:
            reason += (
                f"no workload can have CPUs {cpuset.format(group.exclusive)}, which its cpuset.cpus.exclusive has; "
            )
        cpus = following.get(group.name, group.cpus)
        verdict, wanted = UNCHANGEABLE, "a pool"
        if group.name in confined:
            verdict, wanted = DRIFT, f"CPUs {cpuset.format(shared)}"
            reason += "cpu.unmanaged: confine"
        elif cpus != group.cpus:
            verdict, wanted = DRIFT, f"CPUs {cpuset.format(cpus)}"
            reason += "it was confined, and the kernel keeps a request for CPUs until the unit stops"
        else:
            reason += reason_of(group, refused=group.name in refused)
        changes.append(
            Change(MANAGER, group.name, "placement", actual, wanted, reason, f"{root}/{group.name}", (), verdict)
        )
    return changes


def shown_running(cpus: frozenset[int], processes: t.Sequence[str]) -> str:
    """The CPUs of processes, and the PIDs and names of some of these processes, for a message."""
    return f"runs on {cpuset.format(cpus)}" + (f" (PID {', '.join(processes)})" if processes else "")


def overlaps(cpus: frozenset[int], own: t.Mapping[str, frozenset[int]]) -> list[tuple[str, str]]:
    """The slices that have some of ``cpus``, each with these common CPUs. ``own``: the CPUs of each slice."""
    return [(unit, cpuset.format(theirs & cpus)) for unit, theirs in own.items() if theirs & cpus]


def reason_of(group: Unmanaged, *, refused: bool = False) -> str:
    """Why a top-level control group is out of place, and what to do."""
    name = group.name
    if group.is_partition:
        return "write member to its cpuset.cpus.partition, or remove CPUSetPartition= from its unit"
    if group.exclusive:
        return f"empty that file (echo >/sys/fs/cgroup/{name}/cpuset.cpus.exclusive), or remove the control group"
    of_systemd = name.endswith(UNITS) and group_of(name) == name
    if refused and of_systemd and UNIT_NAME.fullmatch(name):
        if group.file:
            return (
                f"{group.file} sets other CPUs, so cpu.unmanaged: confine fails: "
                "remove that file, then run systemctl daemon-reload"
            )
        return "systemd did not give it the shared CPUs (systemctl status; it may have stopped and left processes): stop these"
    if of_systemd and name.endswith((".service", ".scope")):
        return f"in no slice of the profile: set Slice={CORRAL_SLICE} or system.slice in a drop-in, then restart it"
    if of_systemd:
        return "the profile does not know this top-level unit: add it to cpu.reserved.slices or cpu.shared.slices"
    return "not made by systemd (cset, lxc?): stop it, or start it in a slice of the profile"
