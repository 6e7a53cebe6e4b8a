# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The kernel's partitions: no other slice has the CPUs of a top-level slice that is a partition (cgroup-v2.rst, cpuset.cpus.partition).

On kernels before 7 a sibling that requests CPUs of a partition makes the partition invalid without an error, and the partition stays
invalid after the sibling is gone. So the state of each partition is read again, and an invalid partition is drift.
"""

from __future__ import annotations

import typing as t

from ..plan import make_step
from ..plan.context import Attempt, Context
from ..plan.plan import CPUS, DRIFT, UNCHANGEABLE, Change, Step
from ..profile.profile import Cpu
from ..values import cpuset
from ..values.records import NamedTuple
from ..workload.grants import ISOLATED_SLICE, is_exclusive

PROPERTY = "cpuset.cpus.partition"
# systemd 262 and later. Corral leaves the property empty: then systemd does not write the kernel's file, not even at a reload or a change
# of other properties, and Corral makes the same writes on all versions (tried on 252, 257 and 262).
SYSTEMD_PROPERTY = "CPUSetPartition"
MEMBER, ROOT, UNBALANCED = "member", "root", "isolated"
MANAGER = "cpu"
# A word in the kernel's reason if CPUs of isolcpus= prevent a partition (perr_strings).
HOUSEKEEPING = "housekeeping"
# The seconds after which Corral writes a partition again that the kernel refused although no sibling overlaps.
RETRY_SECONDS = 600


class PartitionState(NamedTuple):
    """A slice as observed. ``text``: the content of the kernel's file (None: no such file). ``cpus``: the CPUs that the slice requests
    (None: no cpuset yet). ``rest``: the CPUs that the kernel leaves to all other control groups. ``offline``: all CPUs of the slice are
    offline, and the slice is to move; kernel 6.1 then still shows a partition, which has no CPU.
    """

    exists: bool
    text: t.Optional[str]
    cpus: t.Optional[frozenset[int]]
    rest: frozenset[int]
    offline: bool = False

    def in_force(self, kind: str) -> bool:
        """Whether this kind is in force: the slice is a valid partition of the kind, or (for the kind member) no partition."""
        return self.text == kind and (kind == MEMBER or not (self.offline or (self.cpus or frozenset()) & self.rest))


def wanted(cpu: Cpu, units: t.Mapping[str, frozenset[int]], at_boot: frozenset[int] = cpuset.EMPTY) -> dict[str, str]:
    """The slices that are to be partitions, each with its kind; empty if the profile turns partitions off.

    ``at_boot``: the CPUs of isolcpus=. The kernel does not balance load on these CPUs, and from 6.7 on allows these CPUs only in partitions
    without load balancing (prstate_housekeeping_conflict): a slice with only such CPUs becomes "isolated", which 6.1 and 7.2 accept.
    """
    if cpu.partitions == "off":
        return {}
    kinds = {unit: UNBALANCED if cpus <= at_boot else ROOT for unit, cpus in units.items() if is_exclusive(unit)}
    if ISOLATED_SLICE in kinds and cpu.isolated is not None and not cpu.isolated.load_balance:
        # Without load balancing, threads without an affinity pile up on one CPU: only the profile can turn load balancing off.
        kinds[ISOLATED_SLICE] = UNBALANCED
    return kinds


def housekeeping_conflict(kind: str, slice_state: PartitionState, at_boot: frozenset[int]) -> str:
    """Why CPUs of isolcpus= prevent the partition of a slice, and what to do; an empty string for any other slice.

    Kernel 6.12 refuses both kinds, 7.2 the kind root. No write can change the refusal: there is no drift, and the slice has only its
    cpuset, as on nodes without partitions.
    """
    in_the_way, text = (slice_state.cpus or cpuset.EMPTY) & at_boot, slice_state.text or ""
    if not in_the_way or not text.startswith(f"{kind} invalid") or HOUSEKEEPING not in text:
        return ""
    return (
        f"CPUs {cpuset.format(in_the_way)} are in isolcpus= of the kernel's command line, and this kernel has them in no "
        f"partition of the kind {kind}: take them out there; cpu.isolated.load_balance: false does the same at run time"
    )


def change(
    unit: str, target: str, kind: str, slice_state: PartitionState, rivals: t.Mapping[str, frozenset[int]]
) -> t.Optional[Change]:
    """The change that makes a slice a partition of this kind, or ends its partition; None if the slice is in sync.

    ``target`` is the kernel's file, ``rivals`` the CPUs that unmanaged siblings request.
    """
    if slice_state.exists and slice_state.in_force(kind):
        return None
    step = make_step.partition(target, kind, CPUS)
    requested = slice_state.cpus or frozenset()
    by = [f"{name} ({cpuset.format(cpus & requested)})" for name, cpus in rivals.items() if cpus & requested]
    verdict = DRIFT
    steps: tuple[Step, ...] = (step,)
    if kind == MEMBER:
        reason = "the profile wants no partition here"
    elif slice_state.exists and slice_state.text is None and slice_state.cpus is not None:
        reason = "this kernel has no cpuset.cpus.partition: set cpu.partitions: off"
        verdict, steps = UNCHANGEABLE, ()
    elif by:
        reason = (
            f"{', '.join(by)} asks for the same CPUs, so the slice cannot be a partition: remove AllowedCPUs= of that unit, or "
            "empty cpuset.cpus of that control group"
        )
        verdict, steps = UNCHANGEABLE, ()
    elif slice_state.text == kind and slice_state.offline:
        reason = f"none of its CPUs {cpuset.format(requested)} is online"
    elif slice_state.text == kind:
        reason = f"others still have CPUs {cpuset.format(requested & slice_state.rest)} of it"
    elif slice_state.text in (None, MEMBER):
        reason = "not a partition yet: the kernel does not keep others out"
    else:
        reason = f"the partition is not in force: {slice_state.text}"
    return Change(MANAGER, unit, PROPERTY, slice_state.text, kind, reason, target, steps, verdict)


def foreign_change(unit: str, kind: str, value: str, file: str) -> Change:
    """The item of a file of systemd that sets another kind of partition for a slice."""
    reason = f"systemd 262 and later writes it over the partition: remove {SYSTEMD_PROPERTY}= from {file}, then systemctl daemon-reload"
    return Change(MANAGER, unit, SYSTEMD_PROPERTY, value, kind, reason, file, (), UNCHANGEABLE)


def too_soon(attempt: Attempt, context: Context) -> bool:
    """Whether the kernel refused a partition less than RETRY_SECONDS ago; False after a change of the profile or a boot."""
    return not context.fresh and 0 <= context.now - attempt.time < RETRY_SECONDS
