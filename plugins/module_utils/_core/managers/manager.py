# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The one interface between the managers and the code that uses managers.

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

if t.TYPE_CHECKING:  # only a few commands and modules import these names
    from ..model.profile.node_as_profile import ProfileFragment
    from ..model.profile.section_patch import SectionPatch


def no_part(dummy_host: Host, dummy_context: Context) -> Part:
    """The empty part of a manager that plans nothing for a profile."""
    return Part((), frozenset())


def no_key(dummy_change: Change, dummy_declared: Profile) -> t.Optional[str]:
    """The default of ``key_of``: the changes of the manager follow from no key of a profile."""
    return None


def no_fragments(dummy_host: Host, dummy_topology: Topology) -> t.Sequence[ProfileFragment]:
    """The default of ``describe``: the manager cannot be described from a node."""
    return ()


def all_places(dummy_patch: SectionPatch) -> t.Optional[frozenset[str]]:
    """The default of ``places_of``: the part modules of the manager declare all settings of the manager."""
    return None


def no_changes(dummy_host: Host, dummy_removed: t.Container[str], dummy_back: bool) -> tuple[Change, ...]:
    """The default of ``on_removal``: a removal only restores the manager's originals."""
    return ()


def no_files(dummy_host: Host) -> tuple[str, ...]:
    """The default of ``status_files``: the manager publishes no files."""
    return ()


def agent_note(host: Host, context: Context, does: str) -> tuple[str, ...]:
    """The note that something happens only once the agent is installed; empty if the agent is installed, or this run installs it."""
    there = context.run == "install" or host.exists(LAUNCHER)
    return () if there else (f"{does} once the agent is installed on the node (corral.node.agent)",)


class Manager(NamedTuple):
    """One manager. Its changes and originals carry its ``name``.

    ``plan``       observes, then decides: returns the manager's part of the plan for a profile
    ``writes``     the places of the manager's steps: the validator refuses a step at any other place
    ``live``       the property that the manager's drop-ins of slices and scopes set; the property's original is recorded with the drop-in's
    ``key_of``     the key of the profile from which a change of the manager follows, for explain
    ``describe``   the present state of the node, as fragments of a profile
    ``places_of``  the places that one task of a part module declares (None: all places of the manager)
    ``on_removal`` the changes, besides the restored originals, when the named managers are removed; the last argument: whether the
                   removal is the return from an unconfirmed profile
    ``status_files``       the files that the manager publishes: a removal of the profile removes these files
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
