# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A refused profile with the problems of its other sections as well.

A profile is read, compiled for the node and planned, and each of these steps needs a profile that is right so far. What is wrong in one
section says nothing of another one: the sections that are neither wrong nor built upon a wrong one go through the steps again, so that a
user corrects all of them at once.
"""

from __future__ import annotations

import typing as t

from ..host.files import Host
from ..model.profile import profile
from ..model.values.errors import CorralError, Problem
from . import planning

# Of a section, those whose values it is checked against.
BUILT_UPON = {
    "kubelet": frozenset({"cpu", "memory", "pids", "topology", "workloads", "gc"}),
    "tenants": frozenset({"cpu", "memory", "pids", "devices", "workloads"}),
    "topology": frozenset({"cpu", "memory"}),
    "workloads": frozenset({"cpu", "memory", "pids", "topology", "devices", "tenants"}),
}
PLAIN = frozenset({"name", "mode"})  # Nothing is checked against these.


def refusal_of(host: Host, data: t.Any, error: CorralError) -> CorralError:
    """The refusal of a profile (its data), with what the rest of it would be refused for; the same where it is not of a section."""
    found: list[Problem] = list(error.problems)
    rest = {name: value for name, value in data.items() if name != "version"} if isinstance(data, dict) else {}
    wrong = sections(error.problems)
    while wrong and wrong <= rest.keys() | PLAIN:  # Of a profile of another version nothing more can be said.
        wrong |= {name for name, below in BUILT_UPON.items() if below & wrong}
        rest = {"name": "rest", **{name: value for name, value in rest.items() if name not in wrong | PLAIN}}
        try:
            planning.plan_profile(host, planning.compile_profile(host, profile.parse(rest), fresh=True))
            break
        except CorralError as more:
            wrong = sections(more.problems)
            found += more.problems if wrong <= rest.keys() else ()
    return error if len(found) == len(error.problems) else CorralError(*found)


def sections(problems: t.Sequence[Problem]) -> frozenset[str]:
    """The sections of a profile in which problems are."""
    return frozenset(problem.path.partition(".")[0].partition("[")[0] for problem in problems)
