# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The fixed vocabularies: type checkers read them, and nothing loads this file at run time."""

from __future__ import annotations

import typing as t

# The result of comparing one item. "drift": reality differs, and the steps correct it. "unchangeable": reality differs,
# and Corral cannot correct it. "unknown": it could not be read.
Verdict = t.Literal["drift", "unchangeable", "unknown"]
# When a change takes effect, and what it disturbs.
When = t.Literal["now", "next start", "next boot"]
Disruption = t.Literal["none", "service restart"]
# What a step asks of systemd.
Verb = t.Literal["start", "stop", "restart", "daemon-reload"]
# What one step writes to: see model/plan/make_step.py; a row of undo.KINDS and of apply_step.PERFORM each. "folder" is one that is removed where it is empty.
StepKind = t.Literal[
    "file", "link", "folder", "value", "pool", "partition", "cpuset", "property", "controller", "unit", "mount", "compile", "hook",
    "health", "driver",
]  # fmt: skip
# What kind of run a plan is for. "rollout": what a run with a profile does, or a removal; "install": a rollout that installs the agent as
# well. "admission": what the start or the end of a workload changes. "tick": what a tick finds, which reads and starts no process, may
# write few places and has no network; "timer": a tick that a unit of systemd has triggered. "boot": the units are yet to be started.
Run = t.Literal["rollout", "install", "admission", "tick", "timer", "boot"]
# Whether the agent corrects drift or only reports it.
Mode = t.Literal["enforce", "audit"]
