# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""All problems of a refused profile, so that a user can correct them together.

A profile is read, compiled for the node and planned. The first of these stages that fails hides the problems of later stages. Therefore the
sections without a problem go through all stages again if they depend on no wrong section.
"""

from __future__ import annotations

import typing as t

from ..host.files import Host
from ..model.profile import profile
from ..model.values.errors import CorralError, Problem
from . import planning

# For each section: the other sections whose values the checks of the section use.
BUILT_UPON = {
    "kubelet": frozenset({"cpu", "memory", "pids", "topology", "workloads", "gc"}),
    "tenants": frozenset({"cpu", "memory", "pids", "devices", "workloads"}),
    "topology": frozenset({"cpu", "memory"}),
    "workloads": frozenset({"cpu", "memory", "pids", "topology", "devices", "tenants"}),
}
PLAIN = frozenset({"name", "mode"})  # No check of a section uses these keys.


def refusal_of(host: Host, data: t.Any, error: CorralError) -> CorralError:
    """The refusal of a profile (its data) with the problems of its other sections; ``error`` itself if these sections have no problem."""
    problems: list[Problem] = list(error.problems)
    rest = {name: value for name, value in data.items() if name != "version"} if isinstance(data, dict) else {}
    wrong = sections(error.problems)
    while wrong and wrong <= rest.keys() | PLAIN:  # The sections of a profile of another version are not known.
        wrong |= {name for name, below in BUILT_UPON.items() if below & wrong}
        rest = {"name": "rest", **{name: value for name, value in rest.items() if name not in wrong | PLAIN}}
        try:
            planning.plan_profile(host, planning.compile_profile(host, profile.parse(rest), fresh=True))
            break
        except CorralError as more:
            wrong = sections(more.problems)
            problems += more.problems if wrong <= rest.keys() else ()
    return error if len(problems) == len(error.problems) else CorralError(*problems)


def sections(problems: t.Sequence[Problem]) -> frozenset[str]:
    """The sections of a profile that have problems."""
    return frozenset(problem.path.partition(".")[0].partition("[")[0] for problem in problems)
