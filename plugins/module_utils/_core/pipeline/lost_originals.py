# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A removal on a node whose originals are lost with their second copy: what is left there, by name."""

from __future__ import annotations

import typing as t

from ..host import own_files, state
from ..host.files import Host
from ..managers import registry
from ..model.plan.places import covering
from ..model.plan.plan import FILES, UNCHANGEABLE, Change, Step
from ..model.systemd.agent_units import COMMAND, LAUNCHER
from ..model.systemd.unit_file import HEADER

REASON = (
    f"the originals were lost with {state.BEFORE} and its second copy, so this stays: restore or remove it by hand, "
    "kernel values and units' live properties too, then remove again"
)
OWN = (state.DECLARED, state.ORIGINS, state.AGENT, LAUNCHER, COMMAND)


def left(host: Host, managers: t.Sequence[str]) -> tuple[Change, ...]:
    """An item for each file of these managers; none where originals are there, or where no file is left."""
    if not state.originals_lost(host):
        return ()
    return items([path for path in (*OWN, *own_files.under(host)) if is_ours(host, path)], managers)


def not_owned(host: Host, managers: t.Sequence[str], owned: t.Container[str]) -> tuple[Change, ...]:
    """An item for each configuration file of these managers that no part of a plan owns any more, and that has no original."""
    if not state.originals_lost(host):
        return ()
    return items([path for path in own_files.written(host) if f"file:{path}" not in owned], managers)


def items(paths: t.Sequence[str], managers: t.Sequence[str]) -> tuple[Change, ...]:
    """An item for each of the files that one of these managers writes."""
    places = {name: registry.manager(name).writes for name in managers}
    owners = {
        path: name for path in paths for name in places if covering(places[name], Step("file", path, None, FILES))
    }
    return tuple(
        Change(name, path, "content", "written by Corral", "as it was", REASON, path, (), UNCHANGEABLE)
        for path, name in owners.items()
    )


def is_ours(host: Host, path: str) -> bool:
    """Whether Corral wrote a file, as its place or its first line says; a link, by what it leads to."""
    if path == COMMAND:
        return host.link(path) == LAUNCHER
    if host.link(path) is not None and path != LAUNCHER:
        return path.rpartition("/")[2].startswith("corral-")
    return host.exists(path) if path in OWN else (host.read(path) or "").startswith(HEADER)
