# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The hugetlbfs mounts of the memory manager: a mount unit makes one mount at each declared path."""

from __future__ import annotations

import typing as t

from ...host import accounts, mounts, systemd
from ...host.files import Host
from ...host.memory import hugepage_files
from ...model.plan import make_step
from ...model.plan.plan import START, UNCHANGEABLE, Change
from ...model.profile.profile_memory import Mount
from ...model.systemd.unit_file import HEADER, escaped_path, file_change, unit_text
from ...model.systemd.unit_property import ETC
from ...model.values.mount_options import bytes_of, number
from ...model.values.records import NamedTuple
from ...model.values.sizes import page_text

NAME = "memory"

# Unit files in these folders are gone after a reboot. Generators (for example for fstab) write unit files elsewhere, at each boot.
VANISHING = ("/run/systemd/system", "/run/systemd/transient")


class MountState(NamedTuple):
    """One declared mount as observed: the mount at the path, the text of Corral's unit file, the processes that use the mount, the wanted
    uid and gid, the obstacle to the mount (``in_the_way``), and how many pages are ``available`` for its min_size.

    ``kept`` is the file of another unit that makes the same mount at each boot: then Corral's unit is not needed.
    """

    mount: t.Optional[mounts.Mount]
    unit_text: t.Optional[str]
    holders: tuple[str, ...]
    uid: t.Optional[int]
    gid: t.Optional[int]
    in_the_way: t.Optional[str]
    available: t.Optional[int] = None
    kept: t.Optional[str] = None


def observe_mount(host: Host, wanted: Mount) -> MountState:
    """One mount as observed. The processes that use the mount are looked up only if the plan has to unmount the mount."""
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
    """The unit file of others that makes the same mount at each boot (also from fstab); None if no such file exists."""
    unit = unit_of(wanted)
    file = next((f"{base}/{unit}" for base in systemd.LOAD_PATH if host.exists(f"{base}/{unit}")), "")
    text = host.read(file) or ""
    if not file or text.startswith(HEADER) or file.startswith(VANISHING):
        return None
    lines = [line.strip().partition("=") for line in text.splitlines()]
    asked = {key.strip(): value.strip() for key, equals, value in lines if equals}
    options = dict(option.partition("=")[::2] for option in asked.get("Options", "").split(",") if option)
    # A mount without pagesize= has the kernel's default page size (hugetlbpage.rst).
    options.setdefault("pagesize", f"{hugepage_files.default_kib(host) or 0}K")
    seen = mounts.Mount(wanted.path, asked.get("Type", ""), "", options)
    same = seen.fstype == "hugetlbfs" and not differences(wanted, seen, uid, gid)
    return file if same else None


def obstacle(host: Host, wanted: Mount, found: t.Optional[mounts.Mount], kept: t.Optional[str]) -> t.Optional[str]:
    """Why a mount at this path would hide or replace something that is not Corral's; None if the mount would hide and replace nothing."""
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


def unit_of(mount: Mount) -> str:
    """The name of a path's mount unit, which must be the escaped path (systemd.mount(5))."""
    return f"{escaped_path(mount.path)}.mount"


def wanted_options(mount: Mount, uid: t.Optional[int], gid: t.Optional[int]) -> dict[str, str]:
    """The options of a hugetlbfs mount, spelled as in the kernel's document (hugetlbpage.rst)."""
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
    """The change of the mount unit's file; None while a unit of others makes the same mount."""
    if state.kept:
        return None
    options = ",".join(f"{key}={value}" for key, value in wanted_options(mount, state.uid, state.gid).items())
    text = unit_text(
        ("Unit", [f"Description=Corral: hugetlbfs of {page_text(mount.pagesize_kib)} pages"]),
        # % starts a specifier in a unit file (systemd.unit(5)).
        ("Mount", ["What=hugetlbfs", f"Where={quoted(mount.path)}", "Type=hugetlbfs", f"Options={options}"]),
    )
    path = f"{ETC}/{unit_of(mount)}"
    return file_change(NAME, path, state.unit_text, text, reason=f"mounts {mount.path}")


def quoted(path: str) -> str:
    """A path as the value of Where=: without quotes, and with % escaped."""
    return path.replace("%", "%%")


def mount_change(mount: Mount, state: MountState, pages_asked: bool) -> t.Optional[Change]:
    """The change of the mount itself. A changed option needs a new mount: a remount succeeds, but the kernel ignores the remount's options.

    ``pages_asked``: whether this plan first requests pages of the mount's size; the kernel may still give fewer pages.
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
        return change._replace(steps=(make_step.mount(unit, mount.path, "start", START, optional=lacks),))
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
        steps=(make_step.mount(unit, mount.path, "restart", START),),
    )


def differences(mount: Mount, found: mounts.Mount, uid: t.Optional[int], gid: t.Optional[int]) -> list[str]:
    """The names of the options whose meaning differs. The kernel shows sizes in another unit, and omits defaults."""
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
    """A size in whole pages: the kernel ignores a part of a page."""
    page = pagesize_kib * 1024
    return None if size is None else size // page * page
