# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The one interface between the managers and the code that uses them.

A manager is a module in a folder beside this file. It ends with ``MANAGER = Manager(...)``, and registry.py lists it. A field that a
manager does not set keeps its default: without ``writes`` the manager may write nothing.
"""

from __future__ import annotations

import typing as t

from ..host.files import Host
from ..model.agent.agent_units import LAUNCHER
from ..model.plan.context import Context
from ..model.plan.places import Place
from ..model.plan.plan import Change, Part
from ..model.profile.profile import Profile
from ..model.topology.topology import Topology
from ..model.values.records import NamedTuple

if t.TYPE_CHECKING:  # Only a few commands and modules ask for them.
    from ..model.profile.node_as_profile import ProfileFragment
    from ..model.profile.section_patch import SectionPatch


def no_part(dummy_host: Host, dummy_context: Context) -> Part:
    """For a manager that has no part in the plan of a profile."""
    return Part((), frozenset())


def no_key(dummy_change: Change, dummy_declared: Profile) -> t.Optional[str]:
    """For a manager whose changes follow from no key of a profile."""
    return None


def no_fragments(dummy_host: Host, dummy_topology: Topology) -> t.Sequence[ProfileFragment]:
    """For a manager that cannot be described from a node."""
    return ()


def all_places(dummy_patch: SectionPatch) -> t.Optional[frozenset[str]]:
    """For a manager whose part modules declare everything that it manages."""
    return None


def no_changes(dummy_host: Host, dummy_removed: t.Container[str], dummy_back: bool) -> tuple[Change, ...]:
    """For a manager whose removal only restores its originals."""
    return ()


def no_files(dummy_host: Host) -> tuple[str, ...]:
    """For a manager that publishes no files."""
    return ()


def agent_note(host: Host, context: Context, does: str) -> tuple[str, ...]:
    """The note that something happens only once the agent is installed; empty if the agent is installed, or this run installs it."""
    there = context.run == "install" or host.exists(LAUNCHER)
    return () if there else (f"{does} once the agent is installed on the node (corral.node.agent)",)


class Manager(NamedTuple):
    """One manager. Its changes and originals carry its ``name``.

    ``plan``       observes, then decides: returns the manager's part of the plan for a profile
    ``writes``     the places of its steps: the validator refuses a step at any other place
    ``live``       the property that its drop-ins of slices and scopes set; the original of the live value is recorded with the drop-in's
    ``key_of``     the key of the profile that one of its changes follows from, for explain
    ``describe``   the node as it is, as fragments of a profile
    ``places_of``  the places that one task of a part module declares (None: all places of the manager)
    ``on_removal`` its changes when the named managers are removed, beside the return of its originals; the last argument: whether the
                   removal is the return from an unconfirmed profile
    ``status_files``       the files that it publishes: they are removed with the profile
    """

    name: str
    plan: t.Callable[[Host, Context], Part] = no_part
    writes: tuple[Place, ...] = ()
    live: str = ""
    key_of: t.Callable[[Change, Profile], t.Optional[str]] = no_key
    describe: t.Callable[[Host, Topology], t.Sequence[ProfileFragment]] = no_fragments
    places_of: t.Callable[[SectionPatch], t.Optional[frozenset[str]]] = all_places
    on_removal: t.Callable[[Host, t.Container[str], bool], tuple[Change, ...]] = no_changes
    status_files: t.Callable[[Host], tuple[str, ...]] = no_files
