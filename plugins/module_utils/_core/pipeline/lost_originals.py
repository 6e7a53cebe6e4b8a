# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A removal on a node whose originals are lost with their second copy: what is left there, by name."""

from __future__ import annotations

import typing as t

from ..host import state
from ..host.files import Host
from ..managers import registry
from ..model.plan.places import covering
from ..model.plan.plan import FILES, UNCHANGEABLE, Change, Step
from ..model.systemd.agent_units import COMMAND, LAUNCHER
from ..model.systemd.unit_file import HEADER
from ..model.systemd.unit_property import ETC

REASON = (
    f"the originals were lost with {state.BEFORE} and its second copy, so this stays: restore or remove it by hand, "
    "kernel values and units' live properties too, then remove again"
)
OWN = (state.DECLARED, state.ORIGINS, state.AGENT, LAUNCHER, COMMAND)
FOLDERS = (ETC, "/etc/sysctl.d", "/etc/systemd/system.conf.d")


def left(host: Host, managers: t.Sequence[str]) -> tuple[Change, ...]:
    """An item for each file of these managers; none where originals are there, or where no file is left."""
    if not state.originals_lost(host):
        return ()
    found = [path for path in (*OWN, *under(host)) if is_ours(host, path)]
    places = {name: registry.manager(name).writes for name in managers}
    owners = {
        path: name for path in found for name in places if covering(places[name], Step("file", path, None, FILES))
    }
    return tuple(
        Change(name, path, "content", "written by Corral", "as it was", REASON, path, (), UNCHANGEABLE)
        for path, name in owners.items()
    )


def under(host: Host) -> t.Iterator[str]:
    """The files where configuration of Corral's can be, those of a unit's own folder among them."""
    for folder in FOLDERS:
        for inside in (folder, *(f"{folder}/{name}" for name in host.folders(folder))):
            yield from (f"{inside}/{name}" for name in host.names(inside))


def is_ours(host: Host, path: str) -> bool:
    """Whether Corral wrote a file, as its place or its first line says; a link, by what it leads to."""
    if path == COMMAND:
        return host.link(path) == LAUNCHER
    if host.link(path) is not None and path != LAUNCHER:
        return path.rpartition("/")[2].startswith("corral-")
    return host.exists(path) if path in OWN else (host.read(path) or "").startswith(HEADER)
