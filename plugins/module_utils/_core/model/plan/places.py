# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The places that a manager may write, and so the steps that the manager may plan. The places are an input of the validator."""

from __future__ import annotations

import re
import typing as t

from ..systemd.unit_property import ETC
from ..values.records import NamedTuple
from . import make_step
from .plan import Step

ANY = ".*"
# The file that systemd makes when a property is set, and removes with the property.
CONTROL_FILE = re.compile(
    r"/(?:(?:etc|run)/systemd/system\.control|run/systemd/transient)/([^/]+)\.d/50-([A-Za-z]+)\.conf"
)


class Place(NamedTuple):
    """A place covers the steps of its ``kind`` whose target and text match the regular expressions ``target`` and ``value`` as a whole.

    ``value`` None: a step may only remove the target. ``volatile``: Corral restores no original, because the file is Corral's own state, or
    the value ends with its process or control group. ``kind`` "file" includes links: a link may have replaced a file, or a file may have
    replaced a link (systemctl mask).
    """

    kind: str
    target: str
    value: t.Optional[str] = ANY
    volatile: bool = False

    def covers(self, step: Step) -> bool:
        """Whether a step writes to this place."""
        kind = "file" if step.kind == "link" and self.kind == "file" else step.kind
        if kind != self.kind or re.fullmatch(self.target, step.target, re.ASCII) is None:
            return False
        text = step.text
        if text is None:
            return self.value in (None, ANY)
        return self.value is not None and re.fullmatch(self.value, text, re.ASCII | re.DOTALL) is not None


def dropins(manager: str) -> Place:
    """The place of a manager's drop-ins for any unit."""
    return Place("file", rf"{ETC}/[^/]+\.d/10-corral-{manager}\.conf")


def covering(places: t.Iterable[Place], step: Step) -> t.Optional[Place]:
    """The place that covers a step; None if no place covers the step."""
    control = CONTROL_FILE.fullmatch(step.target) if step.kind in ("file", "link") else None
    if control:
        step = make_step.unit_property(control.group(1), control.group(2), "", step.phase)
    return next((place for place in places if place.covers(step)), None)
