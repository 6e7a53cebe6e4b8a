# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules and the timer do with a node, as the tests call it."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
import typing as t
from unittest import mock

import node
from _core import main
from _core.cli import commands, grant_service
from _core.host.files import Host
from _core.managers import registry
from _core.model.agent.agent_units import TIMER, AgentOptions
from _core.model.plan.plan import Change, Outcome, Plan
from _core.model.profile import compose, profile
from _core.model.profile.section_patch import SectionPatch
from _core.pipeline import applying, declared_profile, locked_run, planning, section_tasks
from _core.pipeline import tick as full_tick

OPTIONS = AgentOptions(10, "/usr/bin/python3")
# The real program has some hundred files; how many does not matter here.
OLDER = {"_core/main.py": "main = -1\n"}
PROGRAM = {"_core/main.py": "main = 0\n", "_core/model/values/errors.py": "errors = ()\n"}
NEWER = {"_core/main.py": "main = 1\n", "_core/reports/explain.py": "report = ()\n"}
PARSER = functools.cache(commands.parser)  # It takes as long as all that many a command does.


def declare(host: Host, origin: str = "", **sections: t.Any) -> Outcome:
    """Roll the example profile out, sections of it replaced (module profile, state present), all of it of one origin."""
    data = node.edge(**sections)
    origins = dict.fromkeys(compose.leaves_of(data), origin) if origin else None
    return locked_run.published(host, applying.declare(host, profile.parse(data), origins))


def install(host: Host, program: dict[str, str] | None = None, options: AgentOptions = OPTIONS) -> Outcome:
    """Install the agent (module agent)."""

    def plan() -> Plan:
        files = PROGRAM if program is None else program
        return planning.plan_agent(host, options, files, tag=sys.implementation.cache_tag)

    return locked_run.published(host, applying.apply(host, plan(), plan))


def remove(host: Host, managers: t.Sequence[str] | None = None) -> Outcome:
    """Bring back what was there (both modules, state absent)."""
    wanted = registry.names() if managers is None else managers
    return locked_run.locked(host, lambda: applying.remove(host, wanted))


def part(host: Host, module: str, state: str = "present", **options: t.Any) -> Outcome:
    """Run a part module: cpuset, hugepages, hugetlbfs_mount or pid_limits."""
    return locked_run.published(
        host, section_tasks.apply(host, section_tasks.ask(host, SectionPatch(module, options, state == "present")))
    )


def plan(host: Host) -> tuple[Change, ...]:
    """The drift report: declared profile and agent (``corral drift``)."""
    declared = declared_profile.read_declared(host)
    assert declared is not None
    context = planning.compile_profile(
        host, declared, "tick", fresh=not declared_profile.applied_already(host, declared)
    )
    return full_tick.plan_node(host, context).changes


def command(host: Host, *words: str) -> int:
    """One command of a person at the node (root), or of the unit that holds a grant."""
    if list(words[:2]) in main.GRANT_UNIT:
        return grant_service.run(host, words)
    args = PARSER().parse_args(list(words))
    return commands.handler(words[0])(host, args)


def printed(host: Host, *words: str, code: int | None = 0) -> str:
    """What one command of a person at the node prints; it ends with this code, None for any."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        found = command(host, *words)
    assert code in (None, found), output.getvalue()
    return output.getvalue()


def tick(host: Host, *, by_timer: bool = True, at_boot: bool = False) -> int:
    """One run of corral-reconcile.service."""
    environment = {"TRIGGER_UNIT": TIMER if by_timer else "corral-reconcile.path"}
    with mock.patch.dict(os.environ, environment):
        return main.tick(host, at_boot=at_boot)


def converged(fake: node.Node, *, with_agent: bool = False) -> node.Node:
    """The node after a rollout."""
    if with_agent:
        assert not install(fake.host()).error
    outcome = declare(fake.host())
    assert not outcome.error
    assert not outcome.remaining
    return fake


def kept(fake: node.Node) -> None:
    """A rollout, with the agent."""
    converged(fake, with_agent=True)
