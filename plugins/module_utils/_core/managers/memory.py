# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The memory manager: pools of hugepages at run time and the hugetlbfs mounts on them.

Pools are not persistent by themselves: corral-boot.service brings them back before any workload starts.
"""

from __future__ import annotations

import typing as t

from ..host import accounts, hugepage_files, mounts, systemd
from ..host.files import Host
from ..model.plan.context import Attempt, Context
from ..model.plan.places import Place
from ..model.plan.plan import START, UNCHANGEABLE, UNKNOWN, VALUES, Change, Part, Step
from ..model.profile.profile import Hugepages, Mount, Profile
from ..model.systemd.unit_file import HEADER, escaped_path, file_change, unit_text
from ..model.systemd.unit_property import ETC
from ..model.values.errors import Problem
from ..model.values.mount_options import bytes_of, number
from ..model.values.records import NamedTuple
from ..model.values.sizes import page_text
from .manager import Manager

if t.TYPE_CHECKING:
    from ..model.profile.node_as_profile import ProfileFragment
    from ..model.profile.profile_sections import SectionPatch
    from ..model.topology.topology import Topology

NAME = "memory"
RETRY_SECONDS = 600.0
# Units here are gone after a reboot; those of generators (fstab's) are made again at each boot.
VANISHING = ("/run/systemd/system", "/run/systemd/transient")

WRITES = (
    Place("pool", r"/sys/(devices/system/node/node\d+|kernel/mm)/hugepages/hugepages-\d+kB/nr_hugepages"),
    Place("file", rf"{ETC}/[^/]+\.mount"),
    Place("mount", r"[^/]+\.mount", "start|stop|restart"),
)


class MountState(NamedTuple):
    """One declared mount as observed: the mount at its path, its unit's file, the processes that use it, its owners' ids, what is
    in its way, and how many pages it could set aside.

    ``kept`` is the file of another unit that mounts the same at each boot: Corral's unit is not needed then.
    """

    mount: t.Optional[mounts.Mount]
    unit_text: t.Optional[str]
    holders: tuple[str, ...]
    uid: t.Optional[int]
    gid: t.Optional[int]
    in_the_way: t.Optional[str]
    available: t.Optional[int] = None
    kept: t.Optional[str] = None


class Observation(NamedTuple):
    """Pools and mounts in the order of the profile; ``unknown`` says what could not be read."""

    pools: tuple[t.Optional[int], ...]
    mounts: tuple[MountState, ...]
    unknown: t.Optional[str]


def plan(host: Host, context: Context) -> Part:
    """The memory manager's part of the plan."""
    return decide(context, observe(host, context))


def observe(host: Host, context: Context) -> Observation:
    """Read the pools and the table of mounts."""
    memory = context.profile.memory
    unknown = None
    if memory.mounts and not mounts.readable(host):
        unknown = f"{mounts.TABLE} cannot be read: run as root"
    return Observation(
        tuple(hugepage_files.pool(host, pages.size_kib, pages.node) for pages in memory.hugepages),
        tuple(observe_mount(host, mount) for mount in memory.mounts),
        unknown,
    )


def observe_mount(host: Host, wanted: Mount) -> MountState:
    """Read one mount. The processes that use it are looked up only when it would have to be unmounted."""
    uid, gid = accounts.user_id(host, wanted.uid, wanted.user), accounts.group_id(host, wanted.gid, wanted.group)
    found = mounts.at(host, wanted.path)
    stale = found is not None and found.fstype == "hugetlbfs" and differences(wanted, found, uid, gid)
    kept = kept_by_others(host, wanted, uid, gid)
    return MountState(
        found,
        host.read(f"{ETC}/{unit_of(wanted)}"),
        tuple(mounts.holders(host, found)) if stale and found else (),
        uid,
        gid,
        obstacle(host, wanted, found, kept),
        hugepage_files.available(host, wanted.pagesize_kib) if wanted.min_size and found is None else None,
        kept,
    )


def kept_by_others(host: Host, wanted: Mount, uid: t.Optional[int], gid: t.Optional[int]) -> t.Optional[str]:
    """The unit file, not Corral's, that mounts the same there at each boot (also of fstab); None without one."""
    unit = unit_of(wanted)
    file = next((f"{base}/{unit}" for base in systemd.LOAD_PATH if host.exists(f"{base}/{unit}")), "")
    text = host.read(file) or ""
    if not file or text.startswith(HEADER) or file.startswith(VANISHING):
        return None
    lines = [line.strip().partition("=") for line in text.splitlines()]
    asked = {key.strip(): value.strip() for key, equals, value in lines if equals}
    options = dict(option.partition("=")[::2] for option in asked.get("Options", "").split(",") if option)
    # Without a page size it is the kernel's default one (hugetlbpage.rst).
    options.setdefault("pagesize", f"{hugepage_files.default_kib(host) or 0}K")
    seen = mounts.Mount(wanted.path, asked.get("Type", ""), "", options)
    same = seen.fstype == "hugetlbfs" and not differences(wanted, seen, uid, gid)
    return file if same else None


def obstacle(host: Host, wanted: Mount, found: t.Optional[mounts.Mount], kept: t.Optional[str]) -> t.Optional[str]:
    """Why a mount at this path would hide or replace something that is not Corral's; None when nothing is in the way."""
    unit = unit_of(wanted)
    if found is not None and found.fstype != "hugetlbfs":
        return f"{found.fstype} is mounted there"
    foreign = next((base for base in systemd.LOAD_PATH[1:] if base != ETC and host.exists(f"{base}/{unit}")), None)
    if foreign and not kept:
        return f"{foreign}/{unit} mounts there"
    if found is not None:
        return None
    parts = wanted.path.split("/")
    for depth in range(2, len(parts) + 1):
        if host.link("/".join(parts[:depth])) is not None:
            return f"{'/'.join(parts[:depth])} is a link, which may lead elsewhere tomorrow"
    if host.exists(wanted.path) and not host.is_dir(wanted.path):
        return "a file is there"
    return "its directory holds files, which a mount would hide" if host.names(wanted.path) else None


def problems(context: Context, seen: Observation) -> list[Problem]:
    """Reasons not to begin: obstacles of a mount, and owners that do not exist on the node."""
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


def decide(context: Context, seen: Observation) -> Part:
    """The changes that make pools and mounts as wanted."""
    changes: list[Change] = []
    owned: set[str] = set()
    asked: set[int] = set()
    for pages, pool in zip(context.profile.memory.hugepages, seen.pools):
        owned.add(f"pool:{pool_file(pages)}")
        change = pool_change(context, pages, pool)
        if change is not None:
            changes.append(change)
            asked |= {pages.size_kib} if change.steps else set()
    if seen.unknown:
        changes.append(Change(NAME, "mounts", "mounted", None, None, seen.unknown, mounts.TABLE, (), UNKNOWN))
    for mount, state in zip(context.profile.memory.mounts, seen.mounts):
        unit = unit_of(mount)
        owned |= {f"mount:{unit}", f"file:{ETC}/{unit}"}
        changes += filter(None, [unit_change(mount, state)])
        changes += filter(None, [None if seen.unknown else mount_change(mount, state, mount.pagesize_kib in asked)])
    baseline = tuple(
        Step("mount", unit_of(mount), "start", START, where=mount.path)
        for mount, state in zip(context.profile.memory.mounts, seen.mounts)
        if state.kept and state.mount
    )
    found = tuple(problems(context, seen))
    return Part(tuple(changes), frozenset(owned), problems=found, manager=NAME, baseline=baseline)


# Pools


def pool_file(pages: Hugepages) -> str:
    """The kernel file that sets a pool."""
    return f"{hugepage_files.folder(pages.size_kib, pages.node)}/nr_hugepages"


def pool_change(context: Context, pages: Hugepages, pool: t.Optional[int]) -> t.Optional[Change]:
    """The change of one pool; without steps while the kernel's last answer is younger than ten minutes."""
    location = pool_file(pages)
    subject = f"hugepages-{page_text(pages.size_kib)}" + ("" if pages.node is None else f" node {pages.node}")
    if pool is None:
        reason = f"{location} cannot be read"
        return Change(NAME, subject, "nr_hugepages", None, str(pages.pages), reason, location, (), UNKNOWN)
    if pool == pages.pages:
        return None
    step = Step("pool", location, str(pages.pages), VALUES)
    change = Change(
        NAME, subject, "nr_hugepages", str(pool), str(pages.pages), "the pool has another size", location, (step,)
    )
    attempt = context.attempts.get(location)
    if attempt is None or context.fresh or not same_answer(attempt, pages, pool):
        return change
    wait = attempt.time + RETRY_SECONDS - context.now
    short = pool < pages.pages
    said = f"the kernel gave {pool} of {pages.pages}" if short else f"{pool - pages.pages} more are in use"
    hint = "memory is fragmented or in use: free it, or declare fewer" if short else "they go when they are freed"
    if 0 < wait <= RETRY_SECONDS:
        reason = f"{said}; {hint}; asked again in {int(wait // 60) + 1} min"
        return change._replace(steps=(), verdict=UNCHANGEABLE, reason=reason)
    return change._replace(reason=f"{said}; {hint}")


def same_answer(attempt: Attempt, pages: Hugepages, pool: t.Optional[int]) -> bool:
    """Whether the pool still is what the kernel gave when it was last asked for as many."""
    return attempt.wanted == pages.pages and attempt.got == pool


# Mounts


def unit_of(mount: Mount) -> str:
    """The mount unit of a path (systemd.mount(5): the name must be the escaped path)."""
    return f"{escaped_path(mount.path)}.mount"


def wanted_options(mount: Mount, uid: t.Optional[int], gid: t.Optional[int]) -> dict[str, str]:
    """hugetlbfs options as the kernel document (hugetlbpage.rst) spells them."""
    options = {"pagesize": page_text(mount.pagesize_kib).rstrip("i"), "mode": f"{mount.mode:o}"}
    if mount.size is not None:
        options["size"] = str(mount.size)
    if mount.min_size is not None:
        options["min_size"] = str(mount.min_size)
    if uid is not None:
        options["uid"] = str(uid)
    if gid is not None:
        options["gid"] = str(gid)
    return options


def unit_change(mount: Mount, state: MountState) -> t.Optional[Change]:
    """The change of the mount unit's file; not needed while another unit does the same."""
    if state.kept:
        return None
    options = ",".join(f"{key}={value}" for key, value in wanted_options(mount, state.uid, state.gid).items())
    text = unit_text(
        ("Unit", [f"Description=Corral: hugetlbfs of {page_text(mount.pagesize_kib)} pages"]),
        # % starts a specifier in a unit file (systemd.unit(5)); quotes keep blanks together.
        ("Mount", ["What=hugetlbfs", f"Where={quoted(mount.path)}", "Type=hugetlbfs", f"Options={options}"]),
    )
    path = f"{ETC}/{unit_of(mount)}"
    return file_change(NAME, path, state.unit_text, text, reason=f"mounts {mount.path}")


def quoted(path: str) -> str:
    """A path as the value of Where=: unquoted there, specifiers escaped."""
    return path.replace("%", "%%")


def mount_change(mount: Mount, state: MountState, pages_asked: bool) -> t.Optional[Change]:
    """The change of the mount itself. A new option needs a new mount: remount returns 0 and is ignored.

    ``pages_asked``: pools of its pages are requested first; the kernel may still give fewer.
    """
    wanted = wanted_options(mount, state.uid, state.gid)
    shown = ",".join(f"{key}={value}" for key, value in wanted.items())
    unit = unit_of(mount)
    change = Change(NAME, mount.path, "mounted", None, shown, "it is not mounted", mount.path)
    if state.mount is None:
        needed = -(-(mount.min_size or 0) // (mount.pagesize_kib << 10))
        lacks = state.available is not None and state.available < needed
        if lacks and not pages_asked:
            reason = f"it sets {needed} pages aside, and {state.available} are free: it is mounted once they are"
            return change._replace(reason=reason, verdict=UNCHANGEABLE)
        return change._replace(steps=(Step("mount", unit, "start", START, where=mount.path, optional=lacks),))
    found = state.mount
    if found.fstype != "hugetlbfs":
        reason = f"{found.fstype} is mounted there: unmount it, or declare another path"
        return change._replace(actual=found.fstype, reason=reason, verdict=UNCHANGEABLE)
    different = differences(mount, found, state.uid, state.gid)
    if not different:
        return None
    actual = ",".join(f"{key}={value}" if value else key for key, value in sorted(found.options.items()) if key != "rw")
    if state.holders:
        reason = (
            f"{', '.join(different)} changed, which needs a new mount; in use by {', '.join(state.holders)}: stop them"
        )
        return change._replace(actual=actual, reason=reason, verdict=UNCHANGEABLE, disruption="service restart")
    return change._replace(
        actual=actual,
        reason=f"{', '.join(different)} changed, which needs a new mount",
        steps=(Step("mount", unit, "restart", START, where=mount.path),),
    )


def differences(mount: Mount, found: mounts.Mount, uid: t.Optional[int], gid: t.Optional[int]) -> list[str]:
    """The options whose meaning differs, by name. The kernel shows sizes in its own unit and omits defaults."""
    wanted = {
        "pagesize": mount.pagesize_kib * 1024,
        "mode": mount.mode,
        "uid": uid or 0,
        "gid": gid or 0,
        "size": rounded(mount.size, mount.pagesize_kib),
        "min_size": rounded(mount.min_size, mount.pagesize_kib),
    }
    actual = {
        "pagesize": bytes_of(found.options.get("pagesize")),
        "mode": number(found.options.get("mode", "755"), 8),
        "uid": number(found.options.get("uid", "0")),
        "gid": number(found.options.get("gid", "0")),
        "size": bytes_of(found.options.get("size")),
        "min_size": bytes_of(found.options.get("min_size")),
    }
    return [key for key, value in wanted.items() if actual[key] != value]


def rounded(size: t.Optional[int], pagesize_kib: int) -> t.Optional[int]:
    """The kernel counts whole pages and drops the rest."""
    page = pagesize_kib * 1024
    return None if size is None else size // page * page


# Its entry for the registry


def key_of(change: Change, declared: Profile) -> str:
    """The key that a change follows from."""
    if change.property == "nr_hugepages":
        return "memory.hugepages"
    paths = [mount.path for mount in declared.memory.mounts]
    return f"memory.mounts[{paths.index(change.subject)}]" if change.subject in paths else "memory.mounts"


def places_of(patch: SectionPatch) -> frozenset[str]:
    """The places of one pool or one mount."""
    from ..model.profile import profile_sections  # Part modules have it, ticks do not.

    if patch.module == profile_sections.HUGEPAGES:
        size, node = profile_sections.pool_of(patch.options)
        return frozenset({f"{hugepage_files.folder(size, node)}/nr_hugepages"})
    path = profile_sections.path_of(patch.options)
    unit = f"{escaped_path(path)}.mount"
    return frozenset({path, unit, f"{ETC}/{unit}", mounts.TABLE})


def describe(host: Host, topology: Topology) -> t.Sequence[ProfileFragment]:
    """The pools that are not empty, and the hugetlbfs mounts."""
    from . import memory_described  # Imported here: no plan needs it.

    return memory_described.describe(host, topology)


MANAGER = Manager(NAME, plan, WRITES, key_of=key_of, describe=describe, places_of=places_of)
