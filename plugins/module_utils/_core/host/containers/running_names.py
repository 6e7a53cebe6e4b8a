# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The names by which users know the services, scopes, containers and guests that run in control groups."""

from __future__ import annotations

import json
import re
import typing as t

from ...model.values.printable_text import printable
from .. import cgroup
from ..cpu import cpu_usage
from . import conmon

if t.TYPE_CHECKING:
    from ..files import Host

DOCKER = re.compile(r"(?:docker-)?([0-9a-f]{64})(?:\.scope)?")  # docker/ID without systemd (cgroupfs)
CONFIG = "/var/lib/docker/containers/{}/config.v2.json"  # Docker 20.10 to 26.1; readable by root only
MACHINE = re.compile(r"machine-(.+)\.scope")  # systemd-machined: a guest of libvirt is qemu-NUMBER-NAME
GUEST = re.compile(r"(?:qemu|lxc)-[0-9]+-(.+)")


def leaves(host: Host) -> list[str]:
    """The populated control groups (paths below the root) of services, scopes and containers.

    A container engine that works without systemd has top-level groups: a group with its containers inside, or a group for each container.
    """
    paths = []
    for top in host.folders(cgroup.ROOT):
        path = f"{cgroup.ROOT}/{top}"
        if top.endswith(".slice"):
            paths += cpu_usage.leaves(host, path)
        else:
            inside = [name for name in host.folders(path) if conmon.ident_in(name) or DOCKER.fullmatch(name)]
            paths += [f"{path}/{name}" for name in inside] or [path]
    return [path[len(cgroup.ROOT) + 1 :] for path in paths if cgroup.populated_at(host, path)]


def names_of(host: Host, paths: t.Iterable[str]) -> dict[str, str]:
    """For each control group of ``paths``, the name of its container or guest, or else of its unit: ``container web``, ``guest vm1``."""
    units = {path: path.rpartition("/")[2] for path in paths}
    podman = {path: conmon.ident_in(unit) for path, unit in units.items() if conmon.ident_in(unit)}
    stored = conmon.names_of(host, list(podman.values()))
    names = {}
    for path, unit in units.items():
        docker, machine = DOCKER.fullmatch(unit), MACHINE.fullmatch(unit)
        if path in podman:
            names[path] = f"container {stored.get(podman[path]) or podman[path][:12]}"
        elif docker:
            names[path] = f"container {docker_name(host, docker[1])}"
        elif machine:
            name = re.sub(r"\\x([0-9a-f]{2})", lambda code: chr(int(code[1], 16)), machine[1])
            guest = GUEST.fullmatch(name)
            names[path] = printable(f"guest {guest[1] if guest else name}")
        else:
            names[path] = printable(unit)
    return names


def docker_name(host: Host, ident: str) -> str:
    """The name of a Docker container; the first 12 digits of the id if Docker's file does not have the name."""
    try:
        text: t.Optional[str] = host.if_readable(host.read, CONFIG.format(ident))
        name = json.loads(text or "null")["Name"]
        return printable(name.lstrip("/"))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return ident[:12]
