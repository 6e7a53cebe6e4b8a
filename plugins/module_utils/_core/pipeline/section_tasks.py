# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Tasks of single modules: each task declares one part of the node's profile, through the pipeline of whole profiles.

The profile of all parts is compiled, planned and validated. A task executes its own part of that plan, and the changes of other managers
that its part needs. The task leaves earlier drift of other managers as it is.
"""

from __future__ import annotations

import typing as t

from ..host import state
from ..host.files import Host
from ..managers import registry
from ..managers.agent import agent_install
from ..managers.registry import PROFILE
from ..model.plan.plan import Change, Outcome, Plan
from ..model.profile import section_patch
from ..model.profile.profile import Profile
from ..model.profile.section_patch import SectionPatch
from ..model.values.errors import CorralError, refusal
from ..model.values.records import NamedTuple
from . import applying, declared_profile, planning

# The modules with pools or mounts that exist after a boot only if corral-boot.service restores them.
BOOT_NEEDS_AGENT = (section_patch.HUGEPAGES, section_patch.MOUNT)


class Scope(NamedTuple):
    """The places that a patch owns: files, units and kernel values of a manager. ``places`` None: all places of the manager."""

    manager: str
    places: t.Optional[frozenset[str]]

    def has(self, manager: str, location: str) -> bool:
        """Whether the patch owns this place of a manager."""
        return manager == self.manager and (self.places is None or location in self.places)


class Request(NamedTuple):
    """A task: its patch, the scope of the patch, and the declared profile before and after the task (None: no profile)."""

    patch: SectionPatch
    scope: Scope
    declared: t.Optional[Profile]
    wanted: t.Optional[Profile]
    own: str  # the patch's path in the profile
    lost: bool = False  # the file of the declared profile is damaged: any task writes the file again


def ask(host: Host, patch: SectionPatch) -> Request:
    """The request of a task on this node. Raises CorralError with options of the module as paths.

    A task does not change a profile that was declared as a whole: the task may only declare what that profile declares.
    """
    declared, broken = declared_profile.declared_or_last_good(host)
    lost = isinstance(broken, declared_profile.Damaged)
    if broken is not None and not (lost and (declared is not None or not state.there(host, state.DECLARED))):
        raise broken
    if declared is None or declared.name == section_patch.NAME:
        wanted, own = section_patch.merged(declared, patch)
        return Request(patch, scope_of(patch), declared, wanted, own, lost)
    try:
        wanted, own = section_patch.merged(declared, patch)
    except CorralError:
        wanted, own = None, ""
    if wanted != declared:
        raise refusal(f"this node has the profile {declared.name}: declare it there, or remove that profile first")
    if not declared_profile.applied_already(host, declared):
        message = f"the profile {declared.name} is declared and not applied yet: apply it first (corral.node.profile)"
        raise refusal(message)
    return Request(patch, scope_of(patch), declared, wanted, own)


def refuse_name(declared: Profile) -> None:
    """Raise CorralError for a whole profile with the name of the profile that tasks make: the next task would extend it."""
    if declared.name == section_patch.NAME:
        message = "is the name of the profile that single modules such as corral.node.cpuset make: write another name"
        raise refusal(message, path="name", value=declared.name)


def scope_of(patch: SectionPatch) -> Scope:
    """The scope of a patch: all places of its manager, or the places of its one pool or mount."""
    manager = registry.manager(section_patch.SECTIONS[patch.module].partition(".")[0])
    return Scope(manager.name, manager.places_of(patch))


def plan(host: Host, request: Request) -> Plan:
    """A task's plan. Raises CorralError with options of the module as paths."""
    if request.wanted is None:
        return narrowing(host, request)(planning.plan_removal(host, registry.of_profile()))
    fresh = not declared_profile.applied_already(host, request.wanted)
    try:
        context = planning.compile_profile(host, request.wanted, fresh=fresh)
        context = context._replace(origins=section_patch.origins_of(request.wanted))
        return narrowing(host, request)(planning.plan_profile(host, context, declare=True))
    except CorralError as error:
        raise section_patch.rewrite_paths(error, request.patch.module, request.own) from None


def apply(host: Host, request: Request) -> Outcome:
    """Execute a task's plan; the caller holds the lock. Raises CorralError with options of the module as paths."""
    narrow = narrowing(host, request)
    if request.wanted is None:
        return applying.remove(host, registry.of_profile(), narrow=narrow)
    try:
        origins = section_patch.origins_of(request.wanted)
        return applying.declare(host, request.wanted, origins, narrow=narrow)
    except CorralError as error:
        raise section_patch.rewrite_paths(error, request.patch.module, request.own) from None


def narrowing(host: Host, request: Request) -> t.Callable[[Plan], Plan]:
    """The function that narrows the node's plan to the task's plan: the function drops earlier drift that the patch does not own.

    The removal of the last part removes everything that Corral has set for the profile.
    """
    before, ends = plan_before(host, request.declared), not request.patch.present
    if before is None or (request.wanted is None and request.declared is not None):
        return lambda plan: plan._replace(keep_going=ends)
    known = {(change.item(), change.wanted) for change in before.changes}
    declares = request.lost or request.wanted is None or request.wanted != request.declared
    others = {
        record.before.key
        for record in state.records(host)[0]
        if (record.before.key in before.obsolete and not request.scope.has(record.manager, record.before.target))
        or (record.manager == PROFILE and not declares)
    }

    def ours(change: Change) -> bool:
        if change.manager == PROFILE:
            return declares
        return request.scope.has(change.manager, change.location) or (change.item(), change.wanted) not in known

    def narrow(plan: Plan) -> Plan:
        return plan._replace(
            changes=tuple(filter(ours, plan.changes)),
            parts=tuple(part._replace(changes=tuple(filter(ours, part.changes))) for part in plan.parts),
            obsolete=plan.obsolete - others,
            keep_going=ends,
        )

    return narrow


def plan_before(host: Host, declared: t.Optional[Profile]) -> t.Optional[Plan]:
    """The plan of the node before the task; None if the declared profile is not applied or does not fit: all changes are still to do."""
    if declared is None:
        return planning.plan_removal(host, tuple(registry.FILES))
    if not declared_profile.applied_already(host, declared):
        return None
    try:
        return planning.plan_profile(host, planning.compile_profile(host, declared))
    except CorralError:
        return None


def has_nothing_to_do(host: Host, request: Request, planned: Plan) -> bool:
    """Whether the task has nothing to do, and no interrupted run to finish."""
    if any(change.steps for change in planned.changes) or planned.obsolete:
        return False
    if request.wanted is None:
        return not host.exists(state.STATE) and not host.exists(state.RUN)
    return declared_profile.applied_already(host, request.wanted)


def declared(outcome: Outcome) -> bool:
    """Whether the task changed the declared profile."""
    return any(change.manager == PROFILE for change in outcome.applied)


def forgotten_at_boot(host: Host, patch: SectionPatch) -> bool:
    """Whether the pool or mount of a patch is gone after the next boot: only the agent restores it, and no agent is installed."""
    return patch.module in BOOT_NEEDS_AGENT and patch.present and agent_install.installed(host) is None
