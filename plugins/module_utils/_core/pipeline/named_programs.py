# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The programs that a profile names. Root runs them, so only root may be able to change them."""

from __future__ import annotations

import typing as t

from ..host.files import Host
from ..model.profile.profile import Profile
from ..model.values.errors import Problem, shown
from . import declared_profile


def names_any(declared: Profile) -> bool:
    """Whether a profile names a program."""
    return any(True for dummy in commands(declared))


def commands(declared: Profile) -> t.Iterator[tuple[str, t.Sequence[str]]]:
    """Each command of a profile, with the path of its key."""
    for index, resource in enumerate(declared.devices):
        if resource.check is not None:
            yield f"devices[{index}].check.command", resource.check.command
    if declared.confirm is not None:
        yield "confirm.command", declared.confirm.command
    if declared.kubelet is not None and declared.kubelet.drain not in (None, "none"):
        yield "kubelet.drain", [declared.kubelet.drain]


def problems(host: Host, declared: Profile) -> list[Problem]:
    """A problem for each command that a user other than root could change.

    A profile that is applied already stays in force: its command is refused right before the run (host/agent/foreign_program.py).
    """
    if declared_profile.applied_already(host, declared):
        return []
    return [Problem(path, word, f"root would run it, and {why}") for path, word, why in refused(host, declared)]


def notes(host: Host, declared: Profile) -> t.Iterator[str]:
    """A line for each command of the profile in force that Corral does not run any more."""
    for path, word, why in refused(host, declared):
        yield f"{path}: {shown(word)} is not run: {why}"


def refused(host: Host, declared: Profile) -> t.Iterator[tuple[str, str, str]]:
    """Each command that a user other than root could change: the path of its key, the unsafe word, and the reason with a remedy."""
    from ..host import trusted_program

    for path, command in commands(declared):
        word, why = trusted_program.why_not(host, command)
        if why:
            yield path, word, why
