# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The kubelet's reserves by a formula over the size of a node.

The figures behind a name never change: with other figures a kubelet would get another reserve, and restart, after an update of Corral. New
figures get a new name.
"""

from __future__ import annotations

import typing as t

from ..values import sizes
from ..values.records import NamedTuple

GIB = 1 << 30
Bands = t.Sequence[tuple[int, int]]


class Formula(NamedTuple):
    """Bands for CPUs and for GiB of memory: the number of units (0: all others), and the hundredths of a percent reserved of each unit."""

    cpus: Bands
    memory: Bands


FORMULAS: t.Mapping[str, Formula] = {
    # Google Kubernetes Engine: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes
    "gke-v1": Formula(
        cpus=((1, 600), (1, 100), (2, 50), (0, 25)),
        memory=((4, 2500), (4, 2000), (8, 1000), (112, 600), (0, 200)),
    )
}


def reserve(name: str, cpus: int, memory: int) -> dict[str, str]:
    """The reserves of a node with so many CPUs and bytes of memory, as Kubernetes writes them, rounded up to 1m and 1Mi.

    Memory counts in whole GiB, rounded up: the kernel offers somewhat less memory than the machine has, and each kernel another amount.
    """
    formula = FORMULAS[name]
    mib = share(formula.memory, rounded_up(memory, GIB), 1024)
    return {"cpu": f"{share(formula.cpus, cpus, 1000)}m", "memory": sizes.size_text(mib << 20)}


def share(bands: Bands, units: int, parts: int) -> int:
    """The reserve of a node with so many ``units`` by these bands, in parts of a unit; a unit has ``parts`` parts."""
    found = 0
    for width, hundredths in bands:
        taken = min(units, width) if width else units
        found += taken * hundredths
        units -= taken
    return rounded_up(found * parts, 10000)


def rounded_up(amount: int, unit: int) -> int:
    """The number of whole units that an amount needs."""
    return -(-amount // unit)
