# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Reading the unified control group hierarchy (kernel: Documentation/admin-guide/cgroup-v2.rst)."""

from __future__ import annotations

import typing as t

from ..model import cpuset
from .files import Host

ROOT = "/sys/fs/cgroup"


class Cpus(t.NamedTuple):
    """``requested``: cpuset.cpus (None: the file is not there; empty: never set); ``effective``: what is in force."""

    requested: t.Optional[frozenset[int]]
    effective: t.Optional[frozenset[int]]


def unified(host: Host) -> bool:
    """Whether cgroup v2 is mounted at its place."""
    return host.read(f"{ROOT}/cgroup.controllers") is not None


def path_of(unit: str) -> str:
    """The control group of a top-level scope or of any slice: dashes nest slices (systemd.slice(5))."""
    if not unit.endswith(".slice"):
        return f"{ROOT}/{unit}"
    parts = unit[: -len(".slice")].split("-")
    return "/".join([ROOT, *("-".join(parts[: depth + 1]) + ".slice" for depth in range(len(parts)))])


def exists(host: Host, unit: str) -> bool:
    """Whether the unit has a control group now."""
    return host.is_dir(path_of(unit))


def cpus(host: Host, unit: str) -> Cpus:
    """The CPUs of a unit. Without a cpuset of its own it runs on what its nearest ancestor with one has."""
    path = path_of(unit)
    requested = cpu_list(host.read(f"{path}/cpuset.cpus"))
    effective = cpu_list(host.read(f"{path}/cpuset.cpus.effective"))
    while not effective and path.count("/") > ROOT.count("/"):
        path = path.rpartition("/")[0]
        effective = cpu_list(host.read(f"{path}/cpuset.cpus.effective"))
    return Cpus(requested, effective or cpu_list(host.read("/sys/devices/system/cpu/online")))


def cpu_list(text: t.Optional[str]) -> t.Optional[frozenset[int]]:
    """A kernel CPU list as a set; None for what is absent or no list."""
    if text is None:
        return None
    try:
        return cpuset.parse(text.strip())
    except ValueError:
        return None


def populated(host: Host, path: str) -> bool:
    """Whether the control group at ``path`` or one below it has a process."""
    return "populated 1" in (host.read(f"{path}/cgroup.events") or "")


def own_processes(host: Host, path: str) -> int:
    """How many processes are directly in the control group at ``path``."""
    return len((host.read(f"{path}/cgroup.procs") or "").split())


def top_level(host: Host) -> list[str]:
    """The slices and scopes directly below the root, by name."""
    return [name for name in host.names(ROOT) if name.endswith((".slice", ".scope"))]


def pids_max(host: Host, unit: str) -> t.Optional[str]:
    """pids.max of a unit: a number or "max"; None when it has no such file."""
    text = host.read(f"{path_of(unit)}/pids.max")
    return None if text is None else text.strip()
