# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The list of managers. A manager is loaded at its first use: the start of a unit waits for a run, which should load few managers."""

from __future__ import annotations

import importlib
import typing as t

from ..model.plan.places import Place
from ..model.plan.plan import Change
from .manager import Manager

if t.TYPE_CHECKING:  # Ansible sends only modules that an import statement names, not modules that importlib loads
    from .agent import agent_conflicts, agent_install  # noqa: F401
    from .cpu import cpu  # noqa: F401
    from .devices import device_check_timer, device_grants  # noqa: F401
    from .gc import gc_timer  # noqa: F401
    from .kubelet import kubelet  # noqa: F401
    from .memory import memory  # noqa: F401
    from .pids import pids  # noqa: F401
    from .profile import declaration  # noqa: F401
    from .workload import workloads  # noqa: F401

PROFILE, CPU, WORKLOADS, DEVICES, CHECKS, AGENT = "profile", "cpu", "workloads", "devices", "checks", "agent"
# Name and module of each manager that plans for a profile, in the order of planning.
FILES = {
    CPU: "cpu.cpu",
    "memory": "memory.memory",
    "pids": "pids.pids",
    "gc": "gc.gc_timer",
    "conflicts": "agent.agent_conflicts",
    "kubelet": "kubelet.kubelet",
    WORKLOADS: "workload.workloads",
    DEVICES: "devices.device_grants",
    CHECKS: "devices.device_check_timer",
}
# The managers that plan separately from FILES: the profile's declaration, and the agent's installation.
APART = {PROFILE: "profile.declaration", AGENT: "agent.agent_install"}


def manager(name: str) -> Manager:
    """The manager of this name; other managers are not loaded."""
    module = FILES.get(name) or APART[name]
    return t.cast("Manager", importlib.import_module(f"{__package__}.{module}").MANAGER)


def of_profile() -> tuple[str, ...]:
    """The names of the managers of a profile; the first is the manager of its declaration."""
    return (PROFILE, *FILES)


def names() -> tuple[str, ...]:
    """The names of all managers."""
    return (*of_profile(), AGENT)


def every() -> list[Manager]:
    """All managers."""
    return [manager(name) for name in names()]


def writes(changes: t.Iterable[Change]) -> dict[str, tuple[Place, ...]]:
    """By manager of a change with steps, the places where the manager may write; an unknown manager may write nothing."""
    planning = {change.manager for change in changes if change.steps}
    return {name: manager(name).writes for name in names() if name in planning}
