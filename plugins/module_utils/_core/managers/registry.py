# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The list of managers. Each is loaded when it is needed: the start of a unit waits for a run that loads few of them."""

from __future__ import annotations

import importlib
import typing as t

from ..model.plan.places import Place
from ..model.plan.plan import Change
from .manager import Manager

if t.TYPE_CHECKING:  # Ansible's payload has only files that an import statement names: it does not see importlib.
    from . import (  # noqa: F401
        agent_conflicts,
        agent_install,
        cpu,
        declaration,
        device_check_timer,
        device_grants,
        gc_timer,
        kubelet,
        memory,
        pids,
        workloads,
    )

PROFILE, CPU, WORKLOADS, DEVICES, CHECKS, AGENT = "profile", "cpu", "workloads", "devices", "checks", "agent"
# Name and file of each manager that plans for a profile, in the order in which they plan.
FILES = {
    CPU: "cpu",
    "memory": "memory",
    "pids": "pids",
    "gc": "gc_timer",
    "conflicts": "agent_conflicts",
    "kubelet": "kubelet",
    WORKLOADS: "workloads",
    DEVICES: "device_grants",
    CHECKS: "device_check_timer",
}
# The managers that plan apart from these: the profile's declaration, and the agent's installation.
APART = {PROFILE: "declaration", AGENT: "agent_install"}


def manager(name: str) -> Manager:
    """The manager of this name; no other one is loaded."""
    file = FILES.get(name) or APART[name]
    return t.cast("Manager", importlib.import_module(f"{__package__}.{file}").MANAGER)


def of_profile() -> tuple[str, ...]:
    """The names of the managers of a profile, of its declaration first."""
    return (PROFILE, *FILES)


def names() -> tuple[str, ...]:
    """The names of all managers."""
    return (*of_profile(), AGENT)


def every() -> list[Manager]:
    """All managers."""
    return [manager(name) for name in names()]


def writes(changes: t.Iterable[Change]) -> dict[str, tuple[Place, ...]]:
    """The places where the managers of these changes may write. An unknown name is left out: it may write nothing."""
    planning = {change.manager for change in changes if change.steps}
    return {name: manager(name).writes for name in names() if name in planning}
