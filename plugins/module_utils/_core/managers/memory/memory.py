# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The memory manager: pools of hugepages at run time, and the hugetlbfs mounts that use the pools.

Pools are not persistent by themselves: corral-boot.service sets the pools again before any workload starts.
"""

from __future__ import annotations

import typing as t

from ...host import mounts
from ...host.files import Host
from ...host.memory import hugepage_files, hugepage_requests
from ...host.memory.hugepage_requests import RETRY_SECONDS, pool_file
from ...model.plan import make_step
from ...model.plan.context import Context
from ...model.plan.places import Place
from ...model.plan.plan import START, UNCHANGEABLE, UNKNOWN, VALUES, Change, Part
from ...model.profile.profile import Profile
from ...model.profile.profile_memory import Hugepages
from ...model.systemd.unit_file import escaped_path
from ...model.systemd.unit_property import ETC
from ...model.values.errors import Problem
from ...model.values.records import NamedTuple
from ...model.values.sizes import page_text
from ..manager import Manager
from . import memory_mounts
from .memory_mounts import NAME, MountState

if t.TYPE_CHECKING:
    from ...model.profile.node_as_profile import ProfileFragment
    from ...model.profile.section_patch import SectionPatch
    from ...model.topology.topology import Topology

WRITES = (
    Place("pool", r"/sys/(devices/system/node/node\d+|kernel/mm)/hugepages/hugepages-\d+kB/nr_hugepages"),
    Place("file", rf"{ETC}/[^/]+\.mount"),
    Place("mount", r"[^/]+\.mount", "start|stop|restart"),
)


class ObservedMemory(NamedTuple):
    """Pools and mounts in the order of the profile; ``unknown`` says what could not be read.

    ``counted``: whether a kubelet runs that gives hugepages to pods by NUMA node. With another number of pages it would not start again.
    """

    pools: tuple[t.Optional[int], ...]
    mounts: tuple[MountState, ...]
    unknown: t.Optional[str]
    counted: bool = False


def plan(host: Host, context: Context) -> Part:
    """The memory manager's part of the plan."""
    return decide(context, observe(host, context))


def observe(host: Host, context: Context) -> ObservedMemory:
    """The pools and mounts as observed."""
    memory = context.profile.memory
    unknown = None
    if memory.mounts and not mounts.readable(host):
        unknown = f"{mounts.TABLE} cannot be read: run as root"
    pools = tuple(hugepage_files.pool(host, pages.size_kib, pages.node) for pages in memory.hugepages)
    return ObservedMemory(
        pools,
        tuple(memory_mounts.observe_mount(host, mount) for mount in memory.mounts),
        unknown,
        hugepage_requests.are_counted(host, context),
    )


def problems(context: Context, seen: ObservedMemory) -> list[Problem]:
    """The problems that stop a run before its first change: obstacles of a mount, and owners that do not exist on the node."""
    found = []
    for index, (mount, state) in enumerate(zip(context.profile.memory.mounts, seen.mounts)):
        path = f"memory.mounts[{index}]"
        if state.in_the_way and not seen.unknown:
            message = f"{state.in_the_way}: declare a path of its own, for example /dev/hugepages-corral"
            found.append(Problem(f"{path}.path", mount.path, message))
        for key, name, owner in (("user", mount.user, state.uid), ("group", mount.group, state.gid)):
            if name is not None and owner is None:
                message = f"this node has no {key} of that name: create it first, or name another"
                found.append(Problem(f"{path}.{key}", name, message))
    return found


def decide(context: Context, seen: ObservedMemory) -> Part:
    """The changes that give the node the wanted pools and mounts."""
    changes: list[Change] = []
    owned: set[str] = set()
    asked: set[int] = set()
    for pages, pool in zip(context.profile.memory.hugepages, seen.pools):
        owned |= {f"pool:{path}" for path in originals_of(context, pages)}
        change = pool_change(context, pages, pool, counted=seen.counted)
        if change is not None:
            changes.append(change)
            asked |= {pages.size_kib} if change.steps else set()
    if seen.unknown:
        changes.append(Change(NAME, "mounts", "mounted", None, None, seen.unknown, mounts.TABLE, (), UNKNOWN))
    for mount, state in zip(context.profile.memory.mounts, seen.mounts):
        unit = memory_mounts.unit_of(mount)
        owned |= {f"mount:{unit}", f"file:{ETC}/{unit}"}
        changes += filter(None, [memory_mounts.unit_change(mount, state)])
        changes += filter(
            None, [None if seen.unknown else memory_mounts.mount_change(mount, state, mount.pagesize_kib in asked)]
        )
    baseline = tuple(
        make_step.mount(memory_mounts.unit_of(mount), mount.path, "start", START)
        for mount, state in zip(context.profile.memory.mounts, seen.mounts)
        if state.kept and state.mount
    )
    found = tuple(problems(context, seen))
    return Part(tuple(changes), frozenset(owned), problems=found, manager=NAME, baseline=baseline)


# Pools


def originals_of(context: Context, pages: Hugepages) -> list[str]:
    """The files of the pools that a write of the pool ``pages`` changes; for a pool of the whole machine, the pools of its NUMA nodes."""
    if pages.node is not None:
        return [pool_file(pages)]
    nodes = [number for number, node in context.topology.numa.items() if pages.size_kib in node.hugepages]
    return [pool_file(pages._replace(node=number)) for number in nodes] or [pool_file(pages)]


def pool_change(
    context: Context, pages: Hugepages, pool: t.Optional[int], *, counted: bool = False
) -> t.Optional[Change]:
    """The change of one pool, without steps for ten minutes after the kernel's last answer, or while a kubelet counts the pages."""
    location = pool_file(pages)
    subject = f"hugepages-{page_text(pages.size_kib)}" + ("" if pages.node is None else f" node {pages.node}")
    if pool is None:
        reason = f"{location} cannot be read"
        return Change(NAME, subject, "nr_hugepages", None, str(pages.pages), reason, location, (), UNKNOWN)
    if pool == pages.pages:
        return None
    step = make_step.pool(location, str(pages.pages), VALUES)
    change = Change(
        NAME,
        subject,
        "nr_hugepages",
        str(pool),
        str(pages.pages),
        "the pool has another number of pages",
        location,
        (step,),
    )
    if hugepage_requests.last_answer(context, pages, pool) is None:
        return change
    short = pool < pages.pages
    said = f"the kernel gave {pool} of {pages.pages}" if short else f"{pool - pages.pages} more are in use"
    hint = "memory is fragmented or in use: free it, or declare fewer" if short else "they go when they are freed"
    if hugepage_requests.is_asked_for(context, pages, pool, counted=counted):
        return change if context.fresh else change._replace(reason=f"{said}; {hint}")
    # The text does not say how much time remains: nodes with the same drift have to be one group of a report.
    again = f"asked again every {int(RETRY_SECONDS // 60)} minutes"
    if counted:
        again = "the kubelet counts hugepages when it starts: stop it for a run that asks for them again, or reboot"
    return change._replace(steps=(), verdict=UNCHANGEABLE, reason=f"{said}; {hint}; {again}")


# The entry for the registry


def key_of(change: Change, declared: Profile) -> str:
    """The profile's key from which a change follows."""
    if change.property == "nr_hugepages":
        return "memory.hugepages"
    paths = [mount.path for mount in declared.memory.mounts]
    return f"memory.mounts[{paths.index(change.subject)}]" if change.subject in paths else "memory.mounts"


def places_of(patch: SectionPatch) -> frozenset[str]:
    """The places of the pool or the mount that a task of a part module declares."""
    from ...model.profile import section_patch  # only part modules need this module, and ticks do not have it

    if patch.module == section_patch.HUGEPAGES:
        size, node = section_patch.pool_of(patch.options)
        return frozenset({f"{hugepage_files.folder(size, node)}/nr_hugepages"})
    path = section_patch.path_of(patch.options)
    unit = f"{escaped_path(path)}.mount"
    return frozenset({path, unit, f"{ETC}/{unit}", mounts.TABLE})


def describe(host: Host, topology: Topology) -> t.Sequence[ProfileFragment]:
    """The pools that are not empty, and the hugetlbfs mounts."""
    from . import memory_described  # imported here: no plan needs the module

    return memory_described.describe(host, topology)


MANAGER = Manager(NAME, plan, WRITES, key_of=key_of, describe=describe, places_of=places_of)
