# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The kubelet's reserves by a formula over the size of a node.

The figures behind a formula's name never change: with other figures an update of Corral would change a kubelet's reserve and restart the
kubelet. New figures get a new name.
"""

from __future__ import annotations

import typing as t

from ..values import sizes
from ..values.records import NamedTuple

GIB = 1 << 30
Bands = t.Sequence[tuple[int, int]]


class Formula(NamedTuple):
    """The bands for CPUs and for GiB of memory.

    A band is a number of units (0: all further units), and the share that is reserved of each unit, in hundredths of a percent.
    """

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
    """The reserves of a node with a number of CPUs and bytes of memory, as quantities of Kubernetes, rounded up to 1m and 1Mi.

    Memory counts in whole GiB, rounded up: the kernel offers less memory than the machine has, and the difference depends on the kernel.
    """
    formula = FORMULAS[name]
    mib = share(formula.memory, rounded_up(memory, GIB), 1024)
    return {"cpu": f"{share(formula.cpus, cpus, 1000)}m", "memory": sizes.size_text(mib << 20)}


def share(bands: Bands, units: int, parts: int) -> int:
    """The reserve of a node with a number of ``units``, by the bands. The result is in parts of a unit; a unit has ``parts`` parts."""
    found = 0
    for width, hundredths in bands:
        taken = min(units, width) if width else units
        found += taken * hundredths
        units -= taken
    return rounded_up(found * parts, 10000)


def rounded_up(amount: int, unit: int) -> int:
    """The number of whole units that an amount needs."""
    return -(-amount // unit)
