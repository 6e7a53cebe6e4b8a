# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Other programs on the node that manage CPUs, interrupts and limits.

If such a program sets a declared value to another value, there is an item of drift; otherwise there are notes.
"""

from __future__ import annotations

import typing as t

from ..cpu.pools import Pools, workload_cpus
from ..plan.plan import UNCHANGEABLE, UNKNOWN, Change
from ..profile.profile import Profile
from ..values import cpuset
from ..values.records import NamedTuple


class Given(NamedTuple):
    """An assignment in a configuration file: the file and the value."""

    file: str
    value: str


class Tuned(NamedTuple):
    """The running service tuned: its profile, the sysctl values that the profile sets, and isolated_cores."""

    profile: str
    sysctls: t.Mapping[str, Given]
    isolated: t.Optional[Given]


class KubeletCpuManager(NamedTuple):
    """A kubelet's CPU manager. ``reserved``: reservedSystemCPUs. ``file``: the file or flag that sets reservedSystemCPUs.

    ``unread``: why the kubelet's configuration cannot be read; the other fields are then empty. ``newer``: files, and folders of drop-ins,
    that changed after the kubelet's start: the running kubelet may reserve other CPUs.
    """

    file: str
    policy: str
    reserved: frozenset[int]
    strict: bool = False  # strict-cpu-reservation: no pod at all runs on the reserved CPUs
    unread: str = ""
    newer: tuple[str, ...] = ()


class Irqbalance(NamedTuple):
    """The running service irqbalance: the CPUs to which irqbalance moves no interrupts, and the file that sets or may set these CPUs."""

    banned: frozenset[int]
    file: str


def changes(
    profile: Profile,
    pools: Pools,
    tuned: t.Optional[Tuned],
    kubelet: t.Optional[KubeletCpuManager],
    default_kib: t.Optional[int],
) -> list[Change]:
    """Items of drift for programs that set a declared value to another value."""
    items = []
    for manager, key, wanted in declared(profile, default_kib) if tuned else ():
        given = tuned.sysctls.get(key) if tuned else None
        if tuned and given and sets_another(given.value, wanted):
            reason = f"tuned sets it (profile {tuned.profile}): take it out there, or systemctl disable --now tuned"
            items.append(
                unchangeable(manager, key, "value by tuned", given.value.lstrip(">"), str(wanted), reason, given.file)
            )
    if kubelet and kubelet.unread and profile.cpu is not None and profile.kubelet is None:
        wanted_cpus = cpuset.format(pools.online - workload_cpus(pools))
        reason = f"its configuration cannot be read: {kubelet.unread}"
        items.append(
            Change("cpu", "kubelet.service", "reservedSystemCPUs", None, wanted_cpus, reason, kubelet.file, (), UNKNOWN)
        )
    elif kubelet and kubelet.policy == "static" and profile.cpu is not None and profile.kubelet is None:
        granted = pools.online - kubelet.reserved
        theirs = workload_cpus(pools)
        if not granted <= theirs:
            reserved = cpuset.format(pools.online - theirs)
            reason = (
                f"the kubelet's policy static grants CPUs {cpuset.format(granted - theirs)} to pods, which are not for "
                f"workloads here: reservedSystemCPUs: {reserved} in its configuration, or leave cpu out of the profile"
            )
            shown = cpuset.format(kubelet.reserved) or "none"
            items.append(
                unchangeable("cpu", "kubelet.service", "reservedSystemCPUs", shown, reserved, reason, kubelet.file)
            )
    return items


def unchangeable(manager: str, subject: str, name: str, actual: str, wanted: str, reason: str, location: str) -> Change:
    """An item of drift that only a change in the other program's configuration can correct."""
    return Change(manager, subject, name, actual, wanted, reason, location, (), UNCHANGEABLE)


def declared(profile: Profile, default_kib: t.Optional[int]) -> t.Iterator[tuple[str, str, int]]:
    """The declared values that a sysctl sets as well; for each value: the manager, the sysctl's key, and the value."""
    if profile.pids.pid_max is not None:
        yield "pids", "kernel.pid_max", profile.pids.pid_max
    if profile.pids.threads_max is not None:
        yield "pids", "kernel.threads-max", profile.pids.threads_max
    pages = [pool.pages for pool in profile.memory.hugepages if pool.size_kib == default_kib]
    if pages:
        yield "memory", "vm.nr_hugepages", sum(pages)


def sets_another(value: str, wanted: int) -> bool:
    """Whether tuned sets another value. If tuned's value begins with ``>``, tuned only raises a smaller value."""
    number = value.lstrip("<>").strip()
    if not number.isdecimal():
        return False
    return int(number) > wanted if value.startswith(">") else int(number) != wanted


def notes(
    profile: Profile,
    pools: Pools,
    tuned: t.Optional[Tuned],
    kubelet: t.Optional[KubeletCpuManager],
    irqbalance: t.Optional[Irqbalance],
    numad: bool,
    at_boot: t.Optional[Given],
    default_kib: t.Optional[int],
) -> list[str]:
    """Notes about the other programs on this node."""
    lines = []
    cpu = profile.cpu is not None
    if tuned:
        lines.append(
            f"tuned runs with the profile {tuned.profile}: what it sets beside Corral (governors, affinities, sysctl) is "
            "set again when it starts; where both set one thing, take it out of one of them"
        )
        isolated = cpuset.format(pools.isolated)
        if cpu and tuned.isolated and tuned.isolated.value != isolated:
            lines.append(
                f"{tuned.isolated.file} has isolated_cores={tuned.isolated.value}, the profile isolates "
                f"{isolated or 'none'}: tuned moves threads off its own; write the same in both"
            )
    exposed = pools.isolated - irqbalance.banned if irqbalance and cpu else None
    if irqbalance and exposed:
        lines.append(
            f"irqbalance runs and may put interrupts on the isolated CPUs {cpuset.format(exposed)}: "
            f"IRQBALANCE_BANNED_CPULIST={cpuset.format(pools.isolated)} in {irqbalance.file}, then restart it"
        )
    if numad and cpu:
        lines.append(
            "numad runs and sets the CPU affinity of processes by itself: systemctl disable --now numad, so that the "
            "pools alone decide"
        )
    if kubelet and cpu and not kubelet.unread and kubelet.policy != "static" and profile.kubelet is None:
        lines.append(
            f"a kubelet runs (cpuManagerPolicy {kubelet.policy or 'none'}, {kubelet.file}): its pods are in "
            "kubepods.slice, which belongs in cpu.shared.slices"
        )
    pages = next((wanted for dummy, key, wanted in declared(profile, default_kib) if key == "vm.nr_hugepages"), None)
    if at_boot and pages is not None and at_boot.value != str(pages):
        lines.append(
            f"{at_boot.file} sets vm.nr_hugepages = {at_boot.value} at boot, before Corral makes the declared pools: "
            "remove the line"
        )
    return lines
