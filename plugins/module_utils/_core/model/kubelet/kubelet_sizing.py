# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The amounts of a node's resources that a kubelet offers to pods (allocatable), computed as at the kubelet's start.

Kubernetes 1.36, pkg/kubelet/cm/node_container_manager_linux.go and pkg/kubelet/nodestatus/setters.go: the capacity without the reserves and
the hard eviction threshold. Hugepages do not count as memory, and are offered whole.
"""

from __future__ import annotations

import typing as t

from ..values import cpuset, sizes
from ..values.records import NamedTuple
from . import config_values
from .config_values import units
from .kubelet_config import Config
from .kubelet_wanted import MEMORY, Machine

SHOWN = 3  # the most control groups that a message names


class Amount(NamedTuple):
    """A resource: how much the node has, and how much of it pods may have. CPUs in thousandths, memory and hugepages in bytes."""

    resource: str
    capacity: int
    allocatable: int

    def text(self, value: int) -> str:
        """An amount of this resource as Kubernetes writes it."""
        if self.resource == "cpu":
            return str(value // 1000) if value % 1000 == 0 else f"{value}m"
        return str(value) if self.resource in ("pid", "pods") else sizes.size_text(value)

    def about(self, value: int) -> str:
        """An amount for display: bytes that are no whole MiB are rounded down."""
        exact = self.resource in ("cpu", "pid", "pods") or value % (1 << 20) == 0
        return self.text(value) if exact else sizes.about_text(value)


class Use(NamedTuple):
    """The present use of a control group outside of pods: tasks, and bytes of memory without cache that the kernel can drop at once."""

    group: str
    memory: int
    tasks: int


def sizing(config: Config, machine: Machine) -> list[Amount]:
    """The resources of a node with a configuration of the kubelet: cpu, memory, hugepages by page size, pid, pods."""
    found = []
    cpus = len(machine.online) * 1000
    found.append(Amount("cpu", cpus, max(cpus - reserved_cpus(config), 0)))
    pages: dict[str, int] = {}
    for kinds in machine.numa.values():
        for kind, size in kinds.items():
            if kind != MEMORY:
                pages[kind] = pages.get(kind, 0) + size
    kept = sum(units(config.get(key, MEMORY)) for key in ("kubeReserved", "systemReserved"))
    kept += config_values.threshold(config.get("evictionHard", "memory.available") or 0, machine.memory)
    found.append(Amount(MEMORY, machine.memory, max(machine.memory - kept - sum(pages.values()), 0)))
    found += [Amount(kind, size, size) for kind, size in sorted(pages.items())]
    if machine.pids is not None:
        reserved = sum(units(config.get(key, "pid")) for key in ("kubeReserved", "systemReserved"))
        found.append(Amount("pid", machine.pids, max(machine.pids - reserved, 0)))
    pods, per_core = units(config.get("maxPods")), units(config.get("podsPerCore"))
    most = min(pods, per_core * len(machine.online)) if per_core > 0 else pods
    found.append(Amount("pods", most, most))
    return found


def reserved_cpus(config: Config) -> int:
    """The reserved CPUs in thousandths of a CPU: by reservedSystemCPUs, else by kubeReserved and systemReserved."""
    listed = config.get("reservedSystemCPUs")
    if listed:
        try:
            return len(cpuset.parse(str(listed))) * 1000
        except ValueError:
            return 0
    return sum(config_values.milli(config.get(key, "cpu")) for key in ("kubeReserved", "systemReserved"))


def exceeded(config: Config, used: t.Sequence[Use]) -> list[str]:
    """A message for each reserve that is less than the present use outside of pods. A task reserve of 0 is allowed."""
    found = []
    rows = {MEMORY: [(one.group, one.memory) for one in used], "pid": [(one.group, one.tasks) for one in used]}
    for kind, amounts in rows.items():
        reserved = sum(units(config.get(key, kind)) for key in ("kubeReserved", "systemReserved"))
        total = sum(amount for dummy, amount in amounts)
        if total > reserved and (reserved or kind == MEMORY):
            text = sizes.about_text if kind == MEMORY else str
            largest = sorted(amounts, key=lambda row: (-row[1], row[0]))[:SHOWN]
            shown = ", ".join(f"{group} {text(amount)}" for group, amount in largest)
            found.append(
                f"what runs beside pods uses {kind} {text(total)} now ({shown}), and kubeReserved and systemReserved add up to {text(reserved)}: "
                "reserve more, or pods may use what it needs"
            )
    return found


def compared(before: t.Sequence[Amount], after: t.Sequence[Amount]) -> list[tuple[Amount, Amount]]:
    """The resources whose allocatable amount changes, each before and after."""
    known = {one.resource: one for one in before}
    pairs = [(known.get(one.resource, one._replace(allocatable=0)), one) for one in after]
    return [(old, new) for old, new in pairs if old.allocatable != new.allocatable]
