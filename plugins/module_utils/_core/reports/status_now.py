# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The published status, judged again now: by its age, and by the partitions that the kernel shows."""

from __future__ import annotations

import typing as t

from ..host import cgroup, state
from ..host.agent import agent_now
from ..host.files import Host
from ..managers.agent import agent_install
from ..model.agent.agent_units import SERVICE
from ..model.plan.plan import UNCHANGEABLE, Change
from ..model.status import freshness
from ..model.status.freshness import Look
from ..model.systemd.unit_property import ETC
from ..model.workload.grants import is_exclusive
from . import status_file


def look_of(status: t.Mapping[str, t.Any]) -> Look:
    """The observation of the node (Look) from which a status was made."""
    since_boot, interval = (status.get(key) for key in ("time_since_boot", "interval"))
    return Look(
        int(status["time"]),
        since_boot if status_file.built_as(since_boot, int) else None,
        interval if status_file.built_as(interval, int) else None,
    )


def clocks(host: Host) -> tuple[float, float]:
    """The time and the seconds since the boot. For a machine's copy the seconds are from its /proc/uptime; infinite without this file."""
    if host.answers:
        return host.now(), host.uptime()
    words = (host.read("/proc/uptime") or "").split()
    return host.now(), float(words[0]) if words and words[0].replace(".", "").isdecimal() else float("inf")


def stale(host: Host, status: t.Mapping[str, t.Any]) -> str:
    """Why the status is too old to describe the node now; empty if the status is not too old."""
    return freshness.stale(look_of(status), *clocks(host), lambda: agent_now.ask(host))


def age(host: Host, status: t.Mapping[str, t.Any]) -> t.Optional[int]:
    """Seconds since the observation of the status; None if the time is not known."""
    seconds = freshness.age(look_of(status), *clocks(host))
    return None if seconds is None or seconds == float("inf") else int(seconds)


def judged(host: Host, status: dict[str, t.Any]) -> dict[str, t.Any]:
    """The status with the present values of ``stale``, ``in_sync`` and ``exclusive``."""
    why, lost = stale(host, status), lost_partitions(host, status)
    said = status.get("exclusive")
    gone = "".join(f", but not {unit}: {reason or 'its control group is gone'}" for unit, reason in lost.items())
    return {
        **status,
        "stale": why or None,
        "in_sync": bool(status.get("in_sync")) and not why and not any(lost.values()),
        "exclusive": f"{said}{gone}" if said else said,
    }


def lost_partitions(host: Host, status: t.Mapping[str, t.Any]) -> dict[str, str]:
    """The slices that are no longer the kind of partition in the status, with the kernel's present kind (empty: the slice is gone)."""
    published = status.get("partitions")
    found = {}
    for unit, kind in published.items() if isinstance(published, dict) else ():
        if is_exclusive(unit) and "/" not in unit:
            now = cgroup.partition(host, unit)
            if now != kind:
                found[unit] = "" if now is None else f"cpuset.cpus.partition is {now}"
    return found


def item(host: Host) -> tuple[dict[tuple[str, str, str], int], tuple[Change, ...]]:
    """The time of the agent's last observation, and an item of drift, if the agent no longer observes the node; else both are empty.

    If a profile was applied and there is no status, the agent has not observed the node since the boot.
    """
    status, options = status_file.last_status(host), agent_install.installed(host)
    if options is None or not (status or state.there(host, state.APPLIED)):
        return {}, ()
    look = look_of(status) if status else Look(0, 0, options.interval)
    why = freshness.stale(look, *clocks(host), lambda: agent_now.ask(host))
    if not why:
        return {}, ()
    one = Change(
        agent_install.NAME, SERVICE, "last look", "stale" if status else None, f"every {options.interval} s", why, f"{ETC}/{SERVICE}",
        (), UNCHANGEABLE,
    )  # fmt: skip
    return {one.item(): look.time} if status else {}, (one,)
