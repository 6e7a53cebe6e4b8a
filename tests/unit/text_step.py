# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A step of a plan, made of the text that it writes."""

from __future__ import annotations

from _core.model.plan.plan import FILES, Step


def step(kind: str, target: str, text: str | None = "x", name: str = "") -> Step:
    """A step that writes this text."""
    value = text
    if kind == "property":
        name, dummy, value = (text or "").partition("=")
    elif kind == "controller":
        name, value = (text or "+")[1:], (text or "+")[0]
    return Step(kind, target, value, FILES, name=name)
