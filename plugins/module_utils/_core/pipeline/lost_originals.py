# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Items of drift if both copies of the originals are lost: for the loss, and for the files and values that a removal leaves."""

from __future__ import annotations

import typing as t

from ..host import mounts, own_files, state
from ..host.files import Host
from ..managers import registry
from ..managers.agent.agent_install import OWN_LINKS
from ..managers.registry import PROFILE
from ..model.agent.agent_units import FOLDER, LAUNCHER, RELEASES
from ..model.cpu import partitions
from ..model.plan import make_step
from ..model.plan.places import covering
from ..model.plan.plan import FILES, UNCHANGEABLE, Change, Plan
from ..model.plan.undo import KINDS, Original
from ..model.systemd.unit_file import HEADER

REASON = (
    f"the originals were lost with {state.BEFORE} and its second copy, so this stays: restore or remove it by hand, "
    "kernel values and units' live properties too, then remove again"
)
LOSS = (
    "it and its second copy are gone or damaged, so that a removal cannot restore what was there before Corral: put a backup "
    f"of it back and delete {state.LOST}, or remove Corral, undo by hand what the removal names, and apply the profile again"
)
UNREADABLE = (
    f"its record in {state.BEFORE} cannot be read, so that a removal cannot restore it: {state.UNREADABLE} keeps the record; "
    "restore it by hand after the removal, then delete that file"
)
FIELDS = ("manager", "subject", "before")
OWN = (state.DECLARED, state.APPLIED, state.ORIGINS, state.AGENT, LAUNCHER, *OWN_LINKS)
MEMORY = "memory"
LIVE = {str(kind): row.label for kind, row in KINDS.items() if kind in ("value", "pool", "partition")}


def loss(host: Host) -> tuple[Change, ...]:
    """The item for lost originals; no item if the originals are readable."""
    if not state.originals_lost(host):
        return ()
    return (Change(PROFILE, state.BEFORE, "originals", "lost", "recorded", LOSS, state.BEFORE, (), UNCHANGEABLE),)


def unreadable(rows: t.Sequence[t.Any], managers: t.Optional[t.Sequence[str]]) -> tuple[Change, ...]:
    """An item for each record of ``managers`` (None: of all managers) that cannot be read."""
    changes = []
    for row in rows:
        manager, subject, before = (row.get(name) for name in FIELDS) if isinstance(row, dict) else (None, None, None)
        kind, target = (before.get("kind"), before.get("target")) if isinstance(before, dict) else (None, None)
        owner = manager if manager in registry.names() else PROFILE
        if managers is not None and owner not in managers:
            continue
        said = [one for one in (target, subject, state.BEFORE) if isinstance(one, str)]
        what = kind if isinstance(kind, str) else "original"
        changes.append(Change(owner, said[0], what, "lost", "recorded", UNREADABLE, said[0], (), UNCHANGEABLE))
    return tuple(changes)


def keys(rows: t.Sequence[t.Any]) -> frozenset[str]:
    """The keys of unreadable records that still name their target. The present value of the target is not the original."""
    known = set()
    for before in (row.get("before") for row in rows if isinstance(row, dict)):
        words = [before.get(word) for word in ("kind", "target", "name")] if isinstance(before, dict) else []
        if words and isinstance(words[0], str) and isinstance(words[1], str):
            named = words[0] == "property" and isinstance(words[2], str)
            known.add(Original(words[0], words[1], words[2] if named else "").key)  # type: ignore[arg-type]
    return frozenset(known)


def left(host: Host, managers: t.Sequence[str], declared: t.Optional[Plan]) -> tuple[Change, ...]:
    """An item for each file of ``managers``, and for each live value and mount of the ``declared`` profile's plan.

    The caller knows that the originals are lost. Only the declared profile tells which values Corral has set: without that profile no value
    is named.
    """
    files = [path for path in (*OWN, *own_files.under(host)) if is_ours(host, path)]
    named = items([*files, *programs(host)], managers)
    return named if declared is None else (*named, *live(host, declared, managers))


def programs(host: Host) -> list[str]:
    """The agent's releases, and the files that a version without releases kept beside its launcher."""
    beside = [f"{FOLDER}/{name}" for name in host.names(FOLDER)]
    releases = [f"{RELEASES}/{name}" for name in host.names(RELEASES)]
    return [path for path in (*releases, *beside) if path not in (RELEASES, LAUNCHER)]


def live(host: Host, declared: Plan, managers: t.Sequence[str]) -> tuple[Change, ...]:
    """An item for each kernel value that one of ``managers`` sets for the declared profile, and for each mounted mount of that profile."""
    changes = []
    for part in (part for part in declared.parts if part.manager in managers):
        for kind, dummy, target in (key.partition(":") for key in sorted(part.owned)):
            now = (host.read(target) or "").strip() if kind in LIVE else ""
            if now and now != partitions.MEMBER:
                changes.append(stays(part.manager, target, LIVE[kind], now))
    memory = declared.context.profile.memory if declared.context else None
    for mount in memory.mounts if memory and MEMORY in managers else ():
        if mounts.at(host, mount.path) is not None:
            changes.append(stays(MEMORY, mount.path, "mounted", "mounted by Corral"))
    return tuple(changes)


def not_owned(host: Host, managers: t.Sequence[str], owned: t.Container[str]) -> tuple[Change, ...]:
    """An item for each file of ``managers`` that has no original and no owner in the plan."""
    if not state.originals_lost(host):
        return ()
    return items([path for path in own_files.written(host) if f"file:{path}" not in owned], managers)


def items(paths: t.Sequence[str], managers: t.Sequence[str]) -> tuple[Change, ...]:
    """An item for each of ``paths`` that one of ``managers`` writes."""
    places = {name: registry.manager(name).writes for name in managers}
    owners = {
        path: name for path in paths for name in places if covering(places[name], make_step.file(path, None, FILES))
    }
    return tuple(stays(name, path, "content", "written by Corral") for path, name in owners.items())


def stays(manager: str, subject: str, what: str, actual: str) -> Change:
    """The item for a file, value or mount that a removal leaves."""
    return Change(manager, subject, what, actual, "as it was", REASON, subject, (), UNCHANGEABLE)


def is_ours(host: Host, path: str) -> bool:
    """Whether Corral wrote the file or link at a path: the path, a file's first line, or a link's target or name shows it."""
    if path in OWN_LINKS:
        return host.link(path) == OWN_LINKS[path][0]
    if host.link(path) is not None and path != LAUNCHER:
        return path.rpartition("/")[2].startswith("corral-")
    return host.exists(path) if path in OWN else (host.read(path) or "").startswith(HEADER)
