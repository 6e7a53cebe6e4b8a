# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What runs in the control groups of services, scopes, containers and guests, by the name that its user knows."""

from __future__ import annotations

import json
import re
import typing as t

from ..model.values.printable_text import printable
from . import cgroup, conmon, cpu_usage

if t.TYPE_CHECKING:
    from .files import Host

DOCKER = re.compile(r"(?:docker-)?([0-9a-f]{64})(?:\.scope)?")  # without systemd (cgroupfs) it is docker/ID
CONFIG = "/var/lib/docker/containers/{}/config.v2.json"  # Docker 20.10 to 26.1; root's alone
MACHINE = re.compile(r"machine-(.+)\.scope")  # systemd-machined: a guest of libvirt is qemu-NUMBER-NAME
GUEST = re.compile(r"(?:qemu|lxc)-[0-9]+-(.+)")


def leaves(host: Host) -> list[str]:
    """The control groups (paths below the root of all) of services, scopes and containers that hold processes.

    At the top there are more than systemd's: those of engines that make them themselves, each with its containers or as one of them.
    """
    found = []
    for top in host.folders(cgroup.ROOT):
        path = f"{cgroup.ROOT}/{top}"
        if top.endswith(".slice"):
            found += cpu_usage.leaves(host, path)
        else:
            inside = [name for name in host.folders(path) if conmon.ident_in(name) or DOCKER.fullmatch(name)]
            found += [f"{path}/{name}" for name in inside] or [path]
    return [path[len(cgroup.ROOT) + 1 :] for path in found if cgroup.populated_at(host, path)]


def names_of(host: Host, paths: t.Iterable[str]) -> dict[str, str]:
    """The names by path: ``container web``, ``guest vm1``, else the unit's, with what is around it below its top-level slice."""
    units = {path: path.rpartition("/")[2] for path in paths}
    podman = {path: conmon.ident_in(unit) for path, unit in units.items() if conmon.ident_in(unit)}
    stored = conmon.names_of(host, list(podman.values()))
    found = {}
    for path, unit in units.items():
        docker, machine = DOCKER.fullmatch(unit), MACHINE.fullmatch(unit)
        if path in podman:
            found[path] = f"container {stored.get(podman[path]) or podman[path][:12]}"
        elif docker:
            found[path] = f"container {docker_name(host, docker[1])}"
        elif machine:
            name = re.sub(r"\\x([0-9a-f]{2})", lambda code: chr(int(code[1], 16)), machine[1])
            guest = GUEST.fullmatch(name)
            found[path] = printable(f"guest {guest[1] if guest else name}")
        else:
            found[path] = printable(unit)
    return found


def docker_name(host: Host, ident: str) -> str:
    """The name of a Docker container; the first digits of its id where Docker's file does not say it."""
    try:
        text: t.Optional[str] = host.if_readable(host.read, CONFIG.format(ident))
        name = json.loads(text or "null")["Name"]
        return printable(name.lstrip("/"))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return ident[:12]
