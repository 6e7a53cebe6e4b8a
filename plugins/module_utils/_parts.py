# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The modules that manage one part of a node: the same arguments, the same pipeline, the same outcome."""

from __future__ import annotations

import typing as t

from . import _module
from ._core.host.files import Host
from ._core.model.cpu import published_pools
from ._core.model.plan.plan import Outcome
from ._core.model.profile.section_patch import CPUSET, SectionPatch
from ._core.pipeline import applying, section_tasks
from ._core.reports import cpu_map

COMMON = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "during_pause": {"type": "str", "choices": ["refuse", "apply"], "default": "refuse"},
    "lock_timeout": {"type": "int", "default": 120},
}


def run(name: str, spec: dict[str, t.Any], **rules: t.Any) -> None:
    """Run the part module ``name``; ``spec`` has its own options."""

    def task(module: _module.AnsibleModule, host: Host) -> dict[str, t.Any]:
        options = {option: module.params[option] for option in spec}
        return part_task(module, host, SectionPatch(name, options, module.params["state"] == "present"))

    _module.run({**spec, **COMMON}, task, **rules)


def part_task(module: _module.AnsibleModule, host: Host, patch: SectionPatch) -> dict[str, t.Any]:
    """The result of a patch's module."""
    outcome = part_outcome(module, host, patch)
    result = _module.result_of(module, host, outcome)
    context = outcome.plan.context
    if patch.module == CPUSET and patch.present and context is not None:
        result["pools"] = published_pools.to_dict(context.pools)
        result["cpu_map"] = cpu_map.cpu_map(context.topology, context.pools, context.grants)
    return result


def part_outcome(module: _module.AnsibleModule, host: Host, patch: SectionPatch) -> Outcome:
    """Plan a patch, and apply it unless in check mode or where nothing is to do."""
    request = section_tasks.ask(host, patch)
    plan = section_tasks.plan(host, request)
    idle = section_tasks.has_nothing_to_do(host, request, plan)
    locks = not idle or _module.publishes(host)
    outcome = applying.planned(host, plan, locks=locks)
    if idle:
        return _module.nothing_to_do(module, host, outcome)
    if not module.check_mode:
        # Another process may have held the lock meanwhile: observe again with it.
        outcome = _module.unless_paused(module, host, lambda: section_tasks.apply(host, section_tasks.ask(host, patch)))
        if section_tasks.declared(outcome) and section_tasks.forgotten_at_boot(host, patch):
            module.warn(
                "the kernel forgets this at the next boot, and the agent that brings it back is not installed: "
                "use corral.node.agent"
            )
    return outcome
