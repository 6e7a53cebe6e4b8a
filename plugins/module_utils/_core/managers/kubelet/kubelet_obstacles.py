# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The check whether this run may change the kubelet, and the problems that prevent a change."""

from __future__ import annotations

import typing as t

from ...host.files import Host
from ...host.kubelet import kubelet_unit
from ...model.kubelet import kubelet_options
from ...model.kubelet.kubelet_drift import Difference
from ...model.plan import make_step
from ...model.plan.context import Context
from ...model.plan.places import Place
from ...model.plan.plan import FILES, UNKNOWN, Change, Part
from ...model.values.errors import Problem
from .kubelet_observed import ObservedKubelet
from .kubelet_places import CONFIG, NAME

NO_ACT = "a tick restarts no kubelet"
NO_RESTART = f"{NO_ACT}: roll the profile out again"


def acts(seen: ObservedKubelet, context: Context) -> bool:
    """Whether this run may change the kubelet. A tick may not: the tick's unit has no network and may not write the kubelet's files.

    A run at boot may change a kubelet that does not run.
    """
    return seen.process is None if context.run == "boot" else not context.in_tick


def refused(found: tuple[Problem, ...], subject: str, location: str, owned: frozenset[str] = frozenset()) -> Part:
    """The part for a kubelet whose keys cannot be planned: an unknown item, and problems for which a new profile is refused."""
    reason = "; ".join(problem.message for problem in found)
    return Part((Change(NAME, subject, "keys", None, None, reason, location, (), UNKNOWN),), owned, problems=found)


def obstacles(seen: ObservedKubelet) -> t.Iterator[Problem]:
    """The problems because of which Corral cannot change this kubelet at all."""
    for line in seen.wrong:
        yield Problem("kubelet", None, f"{line}: correct that first")
    if not seen.own:
        yield Problem("kubelet", None, "this kubelet has neither --config nor --config-dir: give it one of them")
    elif not seen.dropin and not Place("file", CONFIG).covers(make_step.file(seen.own, "", FILES)):
        message = (
            "Corral writes no file of this name: give the kubelet --config-dir, or a --config with kubelet in its path"
        )
        yield Problem(seen.own, None, message)
    elif not seen.dropin and seen.own in seen.links:
        yield Problem(
            seen.own, None, "is a link, which Corral would replace: make it a file, or give the kubelet --config-dir"
        )
    if seen.process is not None and not seen.process.by_unit:
        message = f"process {seen.process.pid} is not run by {kubelet_unit.UNIT}: start it by that unit, which Corral can restart"
        yield Problem("kubelet", None, message)


def wrong_version(seen: ObservedKubelet) -> t.Iterator[Problem]:
    """The problem of a kubelet whose version is not known, or too old."""
    version = seen.machine.version
    if version is None:
        yield Problem("kubelet", None, f"its version is not known ({seen.version_error}): correct that first")
    elif version < (1, kubelet_options.OLDEST):
        shown = ".".join(map(str, version))
        yield Problem("kubelet", shown, f"Corral configures kubelets from 1.{kubelet_options.OLDEST} on: update it")


def stopped_for_good(host: Host, seen: ObservedKubelet) -> t.Iterator[Problem]:
    """The problem of a running kubelet that could not be started again after a stop."""
    why = kubelet_unit.cannot_start(host) if seen.process is not None else ""
    if why:
        yield Problem(
            "kubelet", None, f"{kubelet_unit.UNIT} runs and {why}: once stopped, it could not be started again"
        )


def no_restart(host: Host, seen: ObservedKubelet) -> str:
    """Why a tick does not change a key, and what to do: a rollout, or what prevents a rollout too."""
    stuck = "; ".join(problem.message for problem in stopped_for_good(host, seen))
    return f"{NO_ACT}, and a rollout is refused: {stuck}" if stuck else NO_RESTART


def gates_problem(host: Host, one: Difference) -> Problem:
    """The problem of a feature gate that a flag or a later file turns off: the kubelet refuses an option that needs the gate."""
    flag = one.origin.startswith("--")
    where = f"the flag {one.origin} in {kubelet_unit.file_of_flag(host, one.origin)}" if flag else one.origin
    message = f"{where} sets {one.actual} and wins, but the declared options need {one.wanted}, and the kubelet would not start: remove it there"
    return Problem("kubelet", None, message)
