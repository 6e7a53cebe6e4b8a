# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The fixed vocabularies: type checkers read them, and nothing loads this file at run time."""

from __future__ import annotations

import typing as t

# The result of a comparison. "drift": the node differs, and the steps correct the difference. "unchangeable": the node differs, and Corral
# cannot correct the difference. "unknown": the value could not be read.
Verdict = t.Literal["drift", "unchangeable", "unknown"]
# When a change takes effect, and what the change disturbs.
When = t.Literal["now", "next start", "next boot"]
Disruption = t.Literal["none", "service restart"]
# The action that a step requests from systemd.
Verb = t.Literal["start", "stop", "restart", "daemon-reload"]
# What a step changes: see model/plan/make_step.py. undo.KINDS and apply_step.PERFORM have an entry for each kind. "folder": an empty folder
# is removed.
StepKind = t.Literal[
    "file", "link", "folder", "value", "pool", "partition", "cpuset", "property", "controller", "unit", "mount", "compile", "hook",
    "health", "driver",
]  # fmt: skip
# The kind of run for which a plan is made. "rollout": a run with a profile, or a removal. "install": a rollout that also installs the
# agent. "admission": the start or the end of a workload. "tick": a check of the node; it starts no process, may write to few places and has
# no network. "timer": a tick that a systemd unit triggered. "boot": a run before the units are started.
Run = t.Literal["rollout", "install", "admission", "tick", "timer", "boot"]
# Whether the agent corrects drift or only reports it.
Mode = t.Literal["enforce", "audit"]
