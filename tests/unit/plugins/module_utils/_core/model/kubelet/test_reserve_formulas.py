# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reserves that a formula gives to nodes of all sizes, and the figures in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest
from _core.model.kubelet.reserve_formulas import FORMULAS, reserve
from _core.model.values import quantity
from hypothesis import given
from hypothesis import strategies as st

GIB = 1 << 30
DOCS = Path(__file__).resolve().parents[7] / "docs" / "kubelet.md"

# Worked out by hand from the published shares. Each row is at the end of a band, or inside of one.
GKE = [
    (1, 1, "60m", "256Mi"),
    (2, 4, "70m", "1Gi"),
    (3, 6, "75m", "1434Mi"),
    (4, 8, "80m", "1844Mi"),
    (5, 16, "83m", "2663Mi"),
    (8, 32, "90m", "3646Mi"),
    (16, 64, "110m", "5612Mi"),
    (32, 128, "150m", "9544Mi"),
    (64, 256, "230m", "12166Mi"),
    (256, 2048, "710m", "48866Mi"),
]


@pytest.mark.parametrize(("cpus", "gib", "cpu", "memory"), GKE)
def test_gke_v1_is_what_is_published(cpus: int, gib: int, cpu: str, memory: str) -> None:
    assert reserve("gke-v1", cpus, gib * GIB) == {"cpu": cpu, "memory": memory}


def test_what_the_kernel_keeps_of_the_memory_changes_nothing() -> None:
    offered = [reserve("gke-v1", 4, amount) for amount in (16 * GIB, 16 * GIB - 1, 15 * GIB + 600_000_000)]
    assert offered == [reserve("gke-v1", 4, 16 * GIB)] * 3


@given(
    st.sampled_from(sorted(FORMULAS)),
    st.integers(1, 1 << 12),
    st.integers(1, 1 << 45),
    st.integers(0, 64),
    st.integers(0, 1 << 40),
)
def test_a_larger_node_never_reserves_less_and_most_of_a_node_is_left(
    name: str, cpus: int, memory: int, more_cpus: int, more_memory: int
) -> None:
    small, large = reserve(name, cpus, memory), reserve(name, cpus + more_cpus, memory + more_memory)
    for kind in ("cpu", "memory"):
        assert quantity.parse(small[kind]).nano <= quantity.parse(large[kind]).nano
    assert quantity.parse(small["cpu"]).milli() <= cpus * 60
    assert quantity.parse(small["memory"]).value() <= (memory + GIB) // 4


def test_the_docs_have_these_figures() -> None:
    table = DOCS.read_text(encoding="utf-8").split("| node | `kubeReserved` |\n|---|---|\n")[1]
    shown = table.split("\n\n")[0].splitlines()
    assert shown == [
        f"| {cpus} CPUs, {gib} GiB | {', '.join(reserve('gke-v1', cpus, gib * GIB).values())} |"
        for cpus, gib in ((2, 4), (4, 16), (16, 64), (64, 256))
    ]
