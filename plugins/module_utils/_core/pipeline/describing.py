# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The profile that describes a node as it is. A part that would be drift is left out, and a note says why."""

from __future__ import annotations

import typing as t

from ..host import cgroup, mounts
from ..host.files import Host
from ..host.topology import sysfs
from ..managers import registry
from ..model.plan.plan import Change
from ..model.profile import node_as_profile, profile
from ..model.profile.node_as_profile import ProfileFragment
from ..model.profile.schema_types import is_own
from ..model.topology.topology import Topology
from ..model.values import cpuset, yaml_text
from ..model.values.errors import CorralError
from ..model.values.records import NamedTuple
from ..reports import change_text
from . import declared_profile, planning

LINES = 6  # the most lines of a plan that are shown for a part
CHECKED = (
    "The node as it is, by corral profile --from-node. When it was written nothing on the node differed from it:",
    "corral drift --profile FILE checks again. What follows a # without a blank is a part that can be adopted.",
)


class Described(NamedTuple):
    """``data`` is the profile, ``text`` the profile as YAML with the left-out parts as comments; ``notes`` say why parts are left out."""

    data: dict[str, t.Any]
    text: str
    notes: tuple[str, ...]


def describe(host: Host, name: t.Optional[str] = None) -> Described:
    """The profile of the node as it is. Raises CorralError for an invalid name."""
    topology = sysfs.discover(host, with_devices=False)
    head = {"name": name or node_as_profile.label(host.read("/proc/sys/kernel/hostname") or ""), "mode": mode_of(host)}
    fragments = [fragment for manager in registry.every() for fragment in manager.describe(host, topology)]
    kept: list[ProfileFragment] = []
    left_out: dict[int, tuple[str, ...]] = {}
    left = planned(host, topology, head)
    for index, fragment in enumerate(fragments):
        try:
            changes = planned(host, topology, node_as_profile.profile_data(head, [*kept, fragment]))
        except CorralError as error:
            why = [problem.line() for problem in error.problems]
            left_out[index] = (f"Left out: {fragment.name}, which a profile cannot declare here:", *bullets(why))
            continue
        if len(changes) > len(left):
            known = {change.item() for change in left}
            new = [change for change in changes if change.item() not in known]
            new.sort(key=lambda change: change.property == "content")
            lead = f"Left out: {fragment.name}. Uncomment to adopt; Corral would then change:"
            left_out[index] = (lead, *bullets([change_text.in_words(change) for change in new]))
            continue
        kept.append(fragment)
        left = changes
    notes = [*remarks(host, [change_text.in_words(change) for change in left])]
    top = ("The node as it is, by corral profile --from-node.",) if left else CHECKED
    text = "".join(f"# {line}\n" for line in (*top, *notes))
    text += yaml_text.text(node_as_profile.profile_shown(head, fragments, left_out))
    said = [f"{why[0]} {'; '.join(line[2:] for line in why[1:])}" for why in left_out.values()]
    return Described(node_as_profile.profile_data(head, kept), text, (*said, *notes))


def planned(host: Host, topology: Topology, data: dict[str, t.Any]) -> tuple[Change, ...]:
    """The changes that a profile would make on this node. Raises CorralError if ``data`` is no profile or does not fit the node."""
    context = planning.compile_profile(host, profile.parse(data), topology=topology)
    return planning.plan_profile(host, context).changes


def mode_of(host: Host) -> str:
    """The mode of the declared profile; audit without a profile."""
    try:
        declared = declared_profile.in_force(host)
    except CorralError:
        declared = None
    return declared.mode if declared else "audit"


def bullets(lines: t.Sequence[str]) -> list[str]:
    """A list of at most LINES lines, and the number of lines that it leaves out."""
    shown = [f"- {line}" for line in lines[:LINES]]
    return [*shown, f"- and {len(lines) - LINES} more"] if len(lines) > LINES else shown


def remarks(host: Host, left: t.Sequence[str]) -> t.Iterator[str]:
    """Notes for the user about the whole profile; ``left`` has the changes that the profile would still make."""
    if left:
        yield "not in sync even so: " + "; ".join(left)
    if not mounts.readable(host):
        yield f"{mounts.TABLE} cannot be read, so mounts are missing: run as root"
    if not cgroup.unified(host):
        yield "cgroup v2 is not mounted on /sys/fs/cgroup: the CPUs of slices were not read"
    rows = [f"{unit} {cpuset.format(cpus)}" for unit, cpus in inner_confined(host)]
    if rows:
        yield f"units with CPUs of their own within their slice, which a profile does not declare: {', '.join(rows)}"


def inner_confined(host: Host) -> t.Iterator[tuple[str, frozenset[int]]]:
    """The units directly in a top-level slice that request CPUs of their own, with these CPUs. Corral's units are left out."""
    for name in cgroup.top_level(host):
        for unit in host.names(f"{cgroup.ROOT}/{name}") if name.endswith(".slice") else ():
            cpus = cgroup.cpu_list(host.read(f"{cgroup.ROOT}/{name}/{unit}/cpuset.cpus"))
            if cpus and not is_own(unit):
                yield unit, cpus
