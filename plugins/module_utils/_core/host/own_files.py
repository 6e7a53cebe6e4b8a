# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The configuration files that Corral wrote on a node, found by their first line and not by Corral's records."""

from __future__ import annotations

import typing as t

from ..model.systemd.unit_file import HEADER
from ..model.systemd.unit_property import ETC
from .files import Host

FOLDERS = (ETC, "/etc/sysctl.d", "/etc/systemd/system.conf.d")


def written(host: Host) -> t.Iterator[str]:
    """The files that begin with Corral's header. Each run records the original before it writes such a file."""
    return (path for path in under(host) if host.link(path) is None and (host.read(path) or "").startswith(HEADER))


def under(host: Host) -> t.Iterator[str]:
    """The files in the folders where Corral writes configuration, and in the folders directly inside."""
    for folder in FOLDERS:
        for inside in (folder, *(f"{folder}/{name}" for name in host.folders(folder))):
            folders = host.folders(inside)
            yield from (f"{inside}/{name}" for name in host.names(inside) if name not in folders)
