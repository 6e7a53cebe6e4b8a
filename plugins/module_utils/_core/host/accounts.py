# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The ids of users and groups, looked up by name."""

from __future__ import annotations

import typing as t

from .files import Host


def user_id(host: Host, number: t.Optional[int], name: t.Optional[str]) -> t.Optional[int]:
    """The uid for the ``number`` or ``name`` in a profile; None if both are None, or if the node has no user of this name."""
    return number if name is None else lookup(host, "/etc/passwd", name)


def group_id(host: Host, number: t.Optional[int], name: t.Optional[str]) -> t.Optional[int]:
    """The gid for the ``number`` or ``name`` in a profile; None if both are None, or if the node has no group of this name."""
    return number if name is None else lookup(host, "/etc/group", name)


def user_name(host: Host, number: int) -> str:
    """The name of a uid in passwd(5); the uid as text if passwd has no entry for it."""
    lines = (line.split(":") for line in (host.read("/etc/passwd") or "").splitlines())
    return next((fields[0] for fields in lines if fields[2:3] == [str(number)]), str(number))


def lookup(host: Host, path: str, name: str) -> t.Optional[int]:
    """The id of the user or group ``name``, from the file ``path`` (passwd(5), group(5)), else from other_sources()."""
    for line in (host.read(path) or "").splitlines():
        fields = line.split(":")
        if fields[0] == name and len(fields) > 2 and fields[2].isdecimal():
            return int(fields[2])
    return other_sources(host, path, name)


def other_sources(host: Host, database: str, name: str) -> t.Optional[int]:
    """The id of an account that the file ``database`` lacks, by nsswitch.conf(5); None for an unknown name, and if the node is not live."""
    number = None
    if host.live:
        import grp
        import pwd

        try:
            number = pwd.getpwnam(name).pw_uid if database == "/etc/passwd" else grp.getgrnam(name).gr_gid
        except KeyError:
            pass
    return host.tell(number, "account", database, name)
