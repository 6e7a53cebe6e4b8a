# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The checkpoint of grants: the steps that write the checkpoint, and the change of each grant. A part of the workloads manager."""

from __future__ import annotations

import typing as t

from ...host import state
from ...host.files import Host
from ...host.workload import workload_state
from ...model.plan import make_step
from ...model.plan.context import Workloads
from ...model.plan.plan import RECORD, TAKE, UNCHANGEABLE, Change, Step
from ...model.profile import profile_workloads
from ...model.profile.profile_workloads import RUNNING
from ...model.values import cpuset
from ...model.workload import grants, resources
from ...model.workload.admission import AllocationEvent, Refusal
from ...model.workload.grants import Grant
from ...model.workload.workload_units import NAME


def given_up(host: Host) -> Change:
    """The change that ends all grants before other units get the grants' CPUs: for a removal, and for a profile without pools of CPUs."""
    steps = (*ended_steps(workload_state.granted_files(host).values()), *kept_steps(host, state.CHECKPOINT, None))
    reason = "all grants end"
    return Change(NAME, state.CHECKPOINT, "content", "the grants", None, reason, state.CHECKPOINT, steps)


def checkpoint_changes(host: Host, found: Workloads) -> list[Change]:
    """The changes of grants. The checkpoint is written before a new grant takes effect: the next tick after a crash reads this file."""
    path, changes = state.CHECKPOINT, [event_change(event) for event in found.allocated.events]
    before = state.read_text(host, path)
    keeps = found.needs or found.allocated.grants
    steps = kept_steps(host, path, checkpoint_text(found) if keeps else None, "damaged" if found.damage else "")
    ended = ended_steps(files_without_grant(host, found))
    if not steps and ended:
        reason = "its grant has ended: no start may rest on it"
        changes += [Change(NAME, one.target, "file", "there", None, reason, one.target, (one,)) for one in ended]
    if not steps:
        return changes
    steps = [*ended, *steps]
    if not changes or found.damage:
        kept = "what was granted is kept there"
        if all(step.target != path for step in steps):
            kept = f"its second copy, {path}.previous, is not the same: it is written again"
        reason = found.damage or "; ".join(found.drifted) or kept
        shown = None if before is None else "unreadable" if found.damage else "an earlier one"
        changes.insert(0, Change(NAME, path, "content", shown, f"{len(found.allocated.grants)} grants", reason, path))
    return [changes[0]._replace(steps=tuple(steps)), *changes[1:]]


def files_without_grant(host: Host, found: Workloads) -> list[str]:
    """The files granted-NAME of workloads without a grant: with such a file systemd would start the workload's unit."""
    granted = {grant.workload for grant in found.allocated.grants if grant.hold == RUNNING}
    lacking = {need.workload.name for need in found.needs} - granted
    lacking.update(event.workload for event in found.allocated.events if event.workload not in granted)
    return [path for name, path in workload_state.granted_files(host).items() if name in lacking]


def ended_steps(paths: t.Iterable[str]) -> list[Step]:
    """The steps that remove files granted-NAME, before all other steps: no unit may start between these steps."""
    return [make_step.file(path, None, TAKE, -1) for path in paths]


def kept_steps(host: Host, path: str, text: t.Optional[str], aside: str = "", order: int = 0) -> list[Step]:
    """The steps that write a text to a file of Corral's state and to the second copy of the file; for None, the steps that remove both.

    With ``aside`` the former text is kept in a file with this suffix.
    """
    before = state.read_text(host, path)
    if text is None:
        there = [one for one in state.rest_of(path) if state.there(host, one)]
        return [make_step.file(gone, None, RECORD, order + number) for number, gone in enumerate(there)]
    steps = []
    if aside and before not in (None, text):
        steps.append(make_step.file(f"{path}.{aside}", before, RECORD, order, mode=state.PRIVATE))
    for number, copy in enumerate((path, f"{path}.previous"), 1):
        if state.read_text(host, copy) != text:
            steps.append(make_step.file(copy, text, RECORD, order + number, mode=state.PRIVATE))
    return steps


def checkpoint_text(found: Workloads) -> str:
    """The text of the wanted checkpoint's file."""
    return state.checked_text(grants.to_data(grants.Checkpoint(found.allocated.grants, found.totals)))


def admitted_changes(host: Host, found: Workloads, *, back: bool) -> list[Change]:
    """The change of the file that lists the workloads admitted at run time. ``back``: the node returns to an earlier profile."""
    if found.admitted is None:
        return []
    rows = profile_workloads.to_data(found.admitted)
    steps = kept_steps(host, state.ADMITTED, state.checked_text(rows) if rows else None, order=4)
    if not steps:
        return []
    left = [one.name for one in found.admitted]
    names, shown, reason = ", ".join(left) or None, None, "admitted at run time"
    if state.there(host, state.ADMITTED):
        data = state.checked(host, state.ADMITTED)
        before = [str(row["name"]) for row in data] if data else []
        shown = ", ".join(before) or "others"
        gone = ", ".join(name for name in before if name not in left)
        reason += f"; released: {gone}" if gone else ""
        reason += ", in the way of the profile to which the node goes back" if gone and back else ""
    return [Change(NAME, state.ADMITTED, "content", shown, names, reason, state.ADMITTED, tuple(steps))]


def event_change(event: AllocationEvent) -> Change:
    """The change of a grant that is made, moves or ends."""
    sides = [None if one is None else grant_text(one) for one in (event.before, event.after)]
    return Change(NAME, event.workload, "grant", sides[0], sides[1], event.reason, state.CHECKPOINT)


def grant_text(grant: Grant) -> str:
    """A grant on one line."""
    cpus = f"CPUs {cpuset.format(grant.cpus)}" if grant.cpus else "shared CPUs"
    mems = "" if grant.mems is None else f", memory of node {cpuset.format(grant.mems)}"
    devices = "".join(f", {name}" for name in dict.fromkeys(f"{one.resource} {one.id}" for one in grant.devices))
    run = f", run {grant.instance[:8]}" if grant.instance else ""
    return f"{cpus}{mems}{devices}{run}"


def refused_change(refusal: Refusal, grant: t.Optional[Grant]) -> Change:
    """The item of a workload that does not get what it requests; ``grant``: the grant that the workload has anyway (None: no grant)."""
    has = "nothing" if grant is None else amount_of(grant, refusal.key)
    has, path = has if has != refusal.value else "less", state.CHECKPOINT
    return Change(
        NAME, refusal.workload, refusal.key, has, refusal.value, refusal.message, path, (), UNCHANGEABLE
    )  # fmt: skip


def amount_of(grant: Grant, key: str) -> str:
    """The amount that a grant has for a key of its workload, as text: for example "2" for ``requests.cpu``."""
    section, dummy, resource = key.partition(".")
    if key.startswith('requests["'):  # resources of devices
        section, resource = "requests", key[len('requests["') : -len('"]')]
    amounts = dict(grant.limits if section == "limits" else grant.requests)
    if section not in ("requests", "limits"):
        return "an earlier grant"
    if section == "requests" and not resource:
        return (
            ", ".join(f"{name} {resources.amount_text(name, amount)}" for name, amount in grant.requests) or "nothing"
        )
    if section == "requests" and resource == resources.CPU and grant.cpus:
        return str(len(grant.cpus))  # Some of the requested CPUs may be offline.
    return resources.amount_text(resource, amounts[resource]) if resource in amounts else "nothing"
