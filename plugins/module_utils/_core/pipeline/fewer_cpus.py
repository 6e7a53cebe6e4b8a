# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The running units that get fewer CPUs by a plan. The kernel's rules are applied to the plan's steps, independently of the planner."""

from __future__ import annotations

import typing as t

from ..host import cgroup, cgroup_tree, process
from ..host.containers import running_names
from ..model.plan import replay, validate
from ..model.plan.moving_cpusets import MovingMachine
from ..model.plan.plan import Plan, steps_in_order
from ..model.values import cpuset

if t.TYPE_CHECKING:
    from ..host.files import Host

CPUs = frozenset[int]
UNITS = 12  # most services and scopes in a line; containers and guests are not limited


def notes(host: Host, plan: Plan) -> tuple[str, ...]:
    """A line for each pair of CPU lists, before and after the plan, with the units whose CPUs change in this way."""
    steps = steps_in_order(plan.changes)
    if not any(map(validate.moves_cpus, steps)) or not cgroup.unified(host):
        return ()
    shrunk = host.unrecorded(lambda: shrunken(host, plan))
    named = host.unrecorded(lambda: running_names.names_of(host, shrunk))
    lines: dict[tuple[CPUs, CPUs], list[str]] = {}
    for path, change in shrunk.items():
        lines.setdefault(change, []).append(named[path])
    return tuple(
        f"CPUs {cpuset.format(before)} become {cpuset.format(after) or 'none'} for {listed(names)}"
        for (before, after), names in sorted(lines.items(), key=lambda line: (-len(line[1]), line[1]))
    )


def shrunken(host: Host, plan: Plan) -> dict[str, tuple[CPUs, CPUs]]:
    """By control group, the CPUs before and after the plan of each service and scope that has processes and gets fewer CPUs.

    The control group of this program is left out, since this group ends with the program.
    """
    moving = MovingMachine(cgroup_tree.observe(host).machine)
    for step in steps_in_order(plan.changes):
        replay.do(moving, step)
    own = process.own_group(host)
    shrunk = {}
    for path in running_names.leaves(host):
        before, after = effective(host, path), moving.bounds[around(path, moving.bounds)].most
        # A control group that loses all requested CPUs runs on all CPUs of its slice (cgroup-v2.rst): as many as before, or more.
        loses = len(after) < len(before) if before & after else bool(before)
        if loses and before - after and not f"{own}/".startswith(f"{path}/"):
            shrunk[path] = (before, after)
    return shrunk


def around(path: str, known: t.Container[str]) -> str:
    """The control group ``path`` if it is ``known``, else its nearest known ancestor."""
    while path and path not in known:
        path = path.rpartition("/")[0]
    return path


def effective(host: Host, path: str) -> CPUs:
    """The effective CPUs of a control group, or of its nearest ancestor with a cpuset if the control group has no cpuset."""
    while path:
        text = host.read(f"{cgroup.ROOT}/{path}/cpuset.cpus.effective")
        if text is not None:
            return cgroup.cpu_list(text) or cpuset.EMPTY
        path = path.rpartition("/")[0]
    return cgroup.rest(host)


def listed(names: t.Iterable[str]) -> str:
    """The names as text: all containers and guests, then at most UNITS units and the number of the other units."""
    ordered = sorted(names)
    inside = [name for name in ordered if name.startswith(("container ", "guest "))]
    units = [name for name in ordered if name not in inside]
    more = [f"{len(units) - UNITS} more units"] if len(units) > UNITS else []
    return ", ".join([*inside, *units[:UNITS], *more])
