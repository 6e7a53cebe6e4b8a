# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A manager of one kernel value, as CONTRIBUTING.md has one added: all that it says about itself."""

from __future__ import annotations

import typing as t

from _core.host.files import Host
from _core.managers.manager import Manager
from _core.model.plan import make_step
from _core.model.plan.context import Context
from _core.model.plan.places import Place
from _core.model.plan.plan import UNKNOWN, VALUES, Change, Part
from _core.model.profile.node_as_profile import ProfileFragment
from _core.model.profile.profile import Profile
from _core.model.topology.topology import Topology

NAME = "toy"
VALUE = "/proc/sys/vm/swappiness"
USUAL = 60
WRITES = (Place("value", VALUE, "[0-9]+"),)


def plan(host: Host, context: Context) -> Part:
    wanted: int | None = t.cast("t.Any", context.profile).toy
    return Part((), frozenset()) if wanted is None else decide(wanted, observe(host))


def observe(host: Host) -> int | None:
    text = (host.read(VALUE) or "").strip()
    return int(text) if text.isdecimal() else None


def decide(wanted: int, actual: int | None) -> Part:
    item = Change(NAME, "vm.swappiness", "value", None, str(wanted), "cannot be read", VALUE, (), UNKNOWN)
    if actual is not None:
        step = make_step.value(VALUE, str(wanted), VALUES)
        item = item._replace(actual=str(actual), reason="the value differs", steps=(step,), verdict="drift")
    return Part(() if actual == wanted else (item,), frozenset({f"value:{VALUE}"}), manager=NAME)


def key_of(dummy_change: Change, dummy_declared: Profile) -> str:
    return "toy.swappiness"


def describe(host: Host, dummy_topology: Topology) -> t.Sequence[ProfileFragment]:
    actual = observe(host)
    return [] if actual in (None, USUAL) else [ProfileFragment(("toy", "swappiness"), actual, "vm.swappiness")]


MANAGER = Manager(NAME, plan, WRITES, key_of=key_of, describe=describe)
