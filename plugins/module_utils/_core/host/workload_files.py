# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The state files of workloads: the checkpoint, which has their grants, and the workloads that were admitted at run time."""

from __future__ import annotations

import typing as t

from ..model.profile import profile
from ..model.profile.profile_workloads import RUNNING, Workload
from ..model.profile.schema_types import CORRAL_SLICE
from ..model.values.errors import CorralError
from ..model.workload import grants
from ..model.workload.grants import Checkpoint, Grant
from ..model.workload.resource_requirements import ResourceRequirements
from . import cgroup, state
from .files import Host
from .workload import workload_state

LISTED = 4  # the most unreadable grants that a message names
# The requests of the profile's workloads. None: the profile is not known, and each slice with a workload's name counts as a grant.
Listed = t.Optional[t.Sequence[ResourceRequirements]]


def admitted(host: Host) -> tuple[Workload, ...]:
    """The workloads that were admitted at run time, which are not in the profile."""
    return admitted_or_damage(host)[0]


def admitted_or_damage(host: Host) -> tuple[tuple[Workload, ...], str]:
    """The workloads that were admitted at run time, and what is wrong with their file (an empty string for a file in order)."""
    if not state.written_before(host, state.ADMITTED):
        return (), ""
    try:
        return admitted_in(host, state.ADMITTED), ""
    except (CorralError, ValueError):
        said = f"{state.ADMITTED} {'cannot be read as Corral wrote it' if state.there(host, state.ADMITTED) else 'is gone'}"
    try:
        return admitted_in(host, f"{state.ADMITTED}.previous"), f"{said}: its second copy is used"
    except (CorralError, ValueError):
        return (), f"{said}: grants stay as they are; admit or release the workloads again"


def admitted_in(host: Host, path: str) -> tuple[Workload, ...]:
    """The workloads in ``path``, a file of admitted workloads, and for ADMITTED also in its second copy. Raises ValueError or CorralError
    for a foreign file.
    """
    data = state.checked_data(state.read_json(host, path))
    return profile.parse_workloads(state.either(host, path) if path == state.ADMITTED else data)


def grants_in_force(host: Host) -> tuple[Grant, ...]:
    """The grants, for callers that do not know the profile's workloads."""
    return read_checkpoint(host, None)[0].grants


def read_checkpoint(host: Host, listed: Listed) -> tuple[Checkpoint, str]:
    """The checkpoint as Corral wrote it, and what is wrong with its file (an empty string for a file in order).

    If the file is unreadable, or older than a run, the slices show which workload runs where. Only the grants of workloads that do not run
    are then taken from the older version or the second copy. If single grants cannot be read, the other grants stay as they are.
    """
    if not state.written_before(host, state.CHECKPOINT):
        found = rebuilt(host, listed, Checkpoint())
        return found, "" if not found.grants else f"{state.CHECKPOINT} is gone: grants are as the slices show them"
    stored = state.read_json(host, state.CHECKPOINT)
    try:
        kept, wrong = grants.from_data(state.checked_data(stored))
    except ValueError as error:
        said = f"{error}, set aside" if state.there(host, state.CHECKPOINT) else "is gone"
        return rebuilt(host, listed, earlier(host)), f"{state.CHECKPOINT} {said}: grants are as the slices show them"
    unknown = "" if wrong else run_unknown_to(host, kept, listed)
    if unknown:
        said = f"is an earlier one, set aside: {unknown} runs on CPUs of which it does not know"
        return rebuilt(host, listed, kept), f"{state.CHECKPOINT} {said}: grants are as the slices show them"
    if not wrong:
        return kept, ""
    others = rebuilt(host, listed, earlier(host)).grants
    named = "; ".join((*wrong[:LISTED], *([f"{len(wrong) - LISTED} more"] if len(wrong) > LISTED else [])))
    said = f"{state.CHECKPOINT}: {named}, set aside: these grants are as the slices show them, the others stay"
    return grants.completed(kept, others), said


def run_unknown_to(host: Host, kept: Checkpoint, listed: Listed) -> str:
    """The name of a workload if its slice runs on exclusive CPUs that the grant in the checkpoint lacks; an empty string without such a
    workload.

    A checkpoint is written before a run gets its CPUs: a checkpoint without these CPUs is older than the run, and may be from a backup.
    """
    known = {one.workload: one for one in kept.grants}
    shared = None
    for name in (need.workload.name for need in listed or () if need.cpus):
        grant, unit = known.get(name), grants.slice_of(name, exclusive=True)
        if grant is not None and (grant.hold != RUNNING or workload_state.run_of(host, name) in (None, grant.instance)):
            continue
        if not cgroup.populated(host, unit):
            continue
        cpus = cgroup.cpus(host, unit).requested
        shared = cgroup.cpus(host, CORRAL_SLICE).requested or frozenset() if shared is None else shared
        if cpus and not cpus & shared and (grant is None or cpus != grant.cpus):
            return name
    return ""


def earlier(host: Host) -> Checkpoint:
    """A checkpoint of the readable grants in the second copy."""
    try:
        return grants.from_data(state.checked(host, f"{state.CHECKPOINT}.previous"))[0]
    except ValueError:
        return Checkpoint()


def rebuilt(host: Host, listed: Listed, earlier: Checkpoint) -> Checkpoint:
    """The grants as the slices on the node show them, completed by an earlier checkpoint."""
    known = {one.workload: one for one in earlier.grants}
    declared = {need.workload.name: need for need in listed or ()}
    found: dict[str, Grant] = {}
    for one in workload_state.seen_grants(host):
        need, before = declared.get(one.workload), known.get(one.workload)
        # If no condition is true, the slice may belong to another program: the cpu manager reports the slice's processes.
        if need or before or listed is None:
            found[one.workload] = of_slice(host, one, need, before)
    taken = grants.exclusive(found.values())
    for name, before in known.items():
        if name not in found and not before.cpus & taken:
            found[name] = before
    return Checkpoint(tuple(found.values()), earlier.totals)


def of_slice(host: Host, seen: Grant, need: t.Optional[ResourceRequirements], before: t.Optional[Grant]) -> Grant:
    """A grant as its slice shows it, with the fields that only the profile or an earlier checkpoint has."""
    earlier = before or Grant(seen.workload, since=int(host.now()))
    found = seen._replace(
        hold=earlier.hold, member=earlier.member, unit=earlier.unit, since=earlier.since, devices=earlier.devices
    )
    if before and before.cpus == seen.cpus:
        found = found._replace(blocks=before.blocks, containers=before.containers)
    if need:
        found = found._replace(hold=need.workload.hold, member=need.member, requests=need.requests, limits=need.limits)
        found = found._replace(unit=workload_state.unit_in(host, found.slice, need.workload.unit))
    return found if found.hold == RUNNING or not (need or before) else found._replace(instance="")
