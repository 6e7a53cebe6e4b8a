# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The fixed vocabularies: type checkers read them, and nothing loads this file at run time."""

from __future__ import annotations

import typing as t

# The result of a comparison. "drift": the node differs, and the steps correct it. "unchangeable": the node differs, and Corral cannot
# correct it. "unknown": the value could not be read.
Verdict = t.Literal["drift", "unchangeable", "unknown"]
# When a change takes effect, and what it disturbs.
When = t.Literal["now", "next start", "next boot"]
Disruption = t.Literal["none", "service restart"]
# What a step asks of systemd.
Verb = t.Literal["start", "stop", "restart", "daemon-reload"]
# What a step writes to: see model/plan/make_step.py. Each kind has a row in undo.KINDS and in apply_step.PERFORM. "folder": an empty folder
# is removed.
StepKind = t.Literal[
    "file", "link", "folder", "value", "pool", "partition", "cpuset", "property", "controller", "unit", "mount", "compile", "hook",
    "health", "driver",
]  # fmt: skip
# The kind of run that a plan is for. "rollout": a run with a profile, or a removal. "install": a rollout that also installs the agent.
# "admission": the start or the end of a workload. "tick": a check of the node that starts no process, may write few places and has no
# network. "timer": a tick that a unit of systemd triggered. "boot": a run before the units are started.
Run = t.Literal["rollout", "install", "admission", "tick", "timer", "boot"]
# Whether the agent corrects drift or only reports it.
Mode = t.Literal["enforce", "audit"]
