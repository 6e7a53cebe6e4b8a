# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The busy services that will have fewer CPUs when their slice is confined for the first time."""

from __future__ import annotations

import typing as t

from ..values import cpuset
from ..values.records import NamedTuple

SHOWN = 6
LEAST = 0.01  # CPUs on average: a service that uses fewer CPUs does not matter
HINT = (
    "move a service that needs more CPUs to machine.slice or corral.slice (Slice= in a drop-in, "
    "then a restart), or add its slice to cpu.shared.slices"
)


class Service(NamedTuple):
    """A service or scope: its name, its used CPU time and its age (both in seconds), and its busiest command."""

    name: str
    used: float
    age: t.Optional[float]
    command: str

    @property
    def cpus(self) -> float:
        """The CPUs that the service has used on average since its start; 0 if the age of the service is unknown."""
        return self.used / max(self.age, 1.0) if self.age is not None else 0.0


def note(unit: str, now: frozenset[int], wanted: frozenset[int], services: t.Iterable[Service]) -> t.Optional[str]:
    """One line about a slice that will have fewer CPUs, with its busy services; None if no service is busy."""
    busy = sorted(
        (service for service in services if service.cpus >= LEAST), key=lambda service: (-service.cpus, service.name)
    )
    if not busy:
        return None
    total = sum(service.cpus for service in busy)
    rows = ", ".join(
        f"{service.name}{by(service)} {service.cpus:.2f} over {span(service.age or 0)}" for service in busy[:SHOWN]
    )
    more = f" and {len(busy) - SHOWN} more" if len(busy) > SHOWN else ""
    count = f"{len(wanted)} CPU{'' if len(wanted) == 1 else 's'}"
    return (
        f"{unit} goes from CPUs {cpuset.format(now)} to {cpuset.format(wanted)} ({count}); its busy ones used "
        f"{total:.2f} CPUs on average: {rows}{more}"
    )


def by(service: Service) -> str:
    """The command of a service in parentheses; an empty string if the unit's name contains the command."""
    stem = service.name.rpartition("/")[2].rpartition(".")[0]
    return "" if not service.command or service.command in stem else f" ({service.command})"


def span(age: float) -> str:
    """A time in the largest unit that fits."""
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172800, "h", 3600)):
        if age < limit:
            return f"{int(age / size)} {unit}"
    return f"{int(age / 86400)} d"
