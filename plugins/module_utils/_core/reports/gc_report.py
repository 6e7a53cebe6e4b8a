# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The results of the last passes of garbage collection, as ``corral status`` shows them."""

from __future__ import annotations

import typing as t

from ..host import state
from ..host.files import Host
from ..model.values.sizes import about_text
from .text_table import aligned


def lines(host: Host) -> list[str]:
    """The last passes of garbage collection as text; empty without a pass. Items of drift name what the passes could not remove."""
    status = state.read_published(host, state.GC_STATUS)
    if status is None:
        return []
    try:
        return lines_of(status, host.now())
    except (ArithmeticError, LookupError, TypeError, ValueError):  # A number can be too large for a time.
        return [f"gc: {state.GC_STATUS} is not as Corral wrote it: the next pass replaces it"]


def lines_of(status: t.Mapping[str, t.Any], now: float) -> list[str]:
    """gc.json as text. Raises ArithmeticError, LookupError, TypeError or ValueError for data of another form."""
    table = []
    images, containers, totals = status["images"], status["containers"], status["totals"]
    for disk in images["file_systems"] if images else ():
        use = f"{disk['used_percent']} % of {about_text(disk['capacity'])} used"
        limits = f"images go from {disk['high']} % down to {disk['low']} %"
        table.append((f"gc: {disk['path']}: {use}, {limits}", last_pass(images, disk, now)))
    if images and (images["errors"] or not table):
        table.append(("gc: images: not all known", ago(images, now, failed(images))))
    if containers:
        left = containers["dead"] - (0 if containers["dry"] else len(containers["removed"]))
        dead = "not all known" if containers["errors"] else f"{left} dead"
        table.append((f"gc: containers: {dead}", last_pass(containers, containers, now)))
    done = (
        f"{totals['images']} images and {totals['containers']} containers removed, {about_text(totals['bytes'])} freed"
    )
    since = f"gc: since the node started {done}, {totals['errors']} failures"
    return [*(aligned(table) if table else ()), since]


def last_pass(part: t.Mapping[str, t.Any], disk: t.Mapping[str, t.Any], now: float) -> str:
    """The result of the last pass over images on one file system, or over containers."""
    count, freed = len(disk["removed"]), sum(one["bytes"] for one in disk["removed"])
    said = [f"{count} would go ({part['dry']})" if part["dry"] and count else f"{count} removed"]
    said += [f"{about_text(freed)}{'' if part['dry'] else ' freed'}"] if freed else []
    said += [f"{len(disk['refused'])} refused"] if disk["refused"] else []
    said += [failed(part)] if disk is part and part["errors"] else []
    return ago(part, now, ", ".join(said))


def failed(part: t.Mapping[str, t.Any]) -> str:
    """The number of storages that could not be read. Items of drift name these storages and the reasons."""
    return f"{len(part['errors'])} failed"


def ago(part: t.Mapping[str, t.Any], now: float, said: str) -> str:
    """A text with the age of the last pass, and its result ``said``."""
    return f"{max(int(now - part['time']), 0)} s ago: {said}"
