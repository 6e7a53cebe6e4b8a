# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The kubelet manager: a kubelet's configuration.

Corral writes a drop-in if the kubelet has --config-dir, else the lines of single keys in its --config. A run restarts the kubelet only if
the configuration in force changes, or hugepages make a state file unfit. A tick starts the kubelet only after an interrupted run.
"""

from __future__ import annotations

import typing as t

from ...host import state
from ...host.files import Host
from ...host.kubelet.kubelet_unit import UNIT
from ...model.plan.context import Context
from ...model.plan.plan import Change, Part
from ...model.profile.profile import Profile
from ...model.values import cpuset
from ..manager import Manager
from .kubelet_places import DRAINED, DUE, KEPT, NAME, WRITES


def plan(host: Host, context: Context) -> Part:
    """The kubelet manager's part of the plan. Most profiles without the section ``kubelet`` load no other module of this manager."""
    if context.profile.kubelet is not None:
        from . import kubelet_plan

        return with_pools(kubelet_plan.plan_section(host, context.profile.kubelet, context), context)
    held = is_held(host)
    if not held and not (context.fresh and pools_change(host, context)):
        return Part((), frozenset())
    if held:
        from . import kubelet_removal

        return with_pools(kubelet_removal.plan_without(host, context), context)
    from . import kubelet_plan

    return kubelet_plan.plan_beside(host, context)


def reserves_pools(part: Part, context: Context) -> bool:
    """Whether the kubelet reserves the CPUs that the pools need after the steps of ``part``; True if Corral does not configure the kubelet.

    The answer is False, for example, if a flag overrides the file, or if the kubelet cannot be changed or has not read its files.
    """
    if context.profile.kubelet is None and not part.owned:
        return True  # Corral does not configure this kubelet, at the latest after this part.
    from ...model.kubelet.kubelet_wanted import RESERVED_CPUS
    from ...model.kubelet.state_files import CPU

    reserves = [one for one in part.changes if one.subject == RESERVED_CPUS]
    steps = [step for change in part.changes for step in change.steps]
    starts = any(one.target == UNIT and one.value == "start" for one in steps)
    # A kubelet that does not run will start without the state file that this run sets aside.
    aside = any(one.target.endswith(f"/{CPU.file}") and one.value is None for one in steps)
    return all(one.steps for one in reserves) and bool(reserves or starts or aside)


def with_pools(part: Part, context: Context) -> Part:
    """The part. If the kubelet's reserved CPUs prevent the declared pools, some items also name the CPUs of system services."""
    if context.declared_pools is None:
        return part
    from ...model.kubelet.kubelet_wanted import RESERVED_CPUS

    said = f"system services have CPUs {cpuset.format(context.pools.reserved)} meanwhile"
    why = ("keys", "files", "configuration")  # properties of items that say why the kubelet reserves other CPUs
    changes = (
        one._replace(reason=f"{one.reason}; {said}") if one.property in why or one.subject == RESERVED_CPUS else one
        for one in part.changes
    )
    return part._replace(changes=tuple(changes))


def pools_change(host: Host, context: Context) -> bool:
    """Whether this profile may change pools of hugepages, or restore their originals."""
    return bool(context.profile.memory.hugepages) or any(
        record.before.kind == "pool" for record in state.records(host)[0]
    )


def is_held(host: Host) -> bool:
    """Whether Corral has configured or stopped the kubelet, or drained the node."""
    return any(map(host.exists, (KEPT, DUE, DRAINED))) or any(
        record.manager == NAME for record in state.records(host)[0]
    )


def on_removal(host: Host, removed: t.Container[str], goes_back: bool) -> tuple[Change, ...]:
    """The changes that end Corral's configuration of the kubelet."""
    if NAME not in removed or not is_held(host):
        return ()
    from . import kubelet_removal

    return tuple(kubelet_removal.removal(host, pools_stay="memory" not in removed, goes_back=goes_back))


def key_of(change: Change, declared: Profile) -> t.Optional[str]:
    """The profile's key from which a change follows; the section, for a file."""
    from ...model.kubelet.kubelet_wanted import asked_by

    return asked_by(change.subject, declared.kubelet) or NAME


MANAGER = Manager(NAME, plan, WRITES, key_of=key_of, on_removal=on_removal)
