# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The places that a manager may write: the steps that it may plan. They are an input of the validator."""

from __future__ import annotations

import re
import typing as t

from ..systemd.unit_property import ETC
from ..values.records import NamedTuple
from . import make_step
from .plan import Step

ANY = ".*"
# systemd's own file for a property that was set: systemd makes and removes it with the property.
CONTROL_FILE = re.compile(
    r"/(?:(?:etc|run)/systemd/system\.control|run/systemd/transient)/([^/]+)\.d/50-([A-Za-z]+)\.conf"
)


class Place(NamedTuple):
    """Steps of one ``kind`` whose ``target`` and text match these regular expressions as a whole.

    ``value`` None: the target may be removed, and nothing written. ``volatile``: there is no original to restore, because the file is
    Corral's own state, or the value ends with its process or control group. ``kind`` "file" includes links: a link may have replaced a
    file, or a file a link (systemctl mask).
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
    """A manager's drop-ins of any unit."""
    return Place("file", rf"{ETC}/[^/]+\.d/10-corral-{manager}\.conf")


def covering(places: t.Iterable[Place], step: Step) -> t.Optional[Place]:
    """The place that a step writes to; None if it is in no place."""
    control = CONTROL_FILE.fullmatch(step.target) if step.kind in ("file", "link") else None
    if control:
        step = make_step.unit_property(control.group(1), control.group(2), "", step.phase)
    return next((place for place in places if place.covers(step)), None)
