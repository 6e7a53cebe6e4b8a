# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools

from _core.model.cpu.cpu_options import DEFAULT, NAMES, Options, forbidden

PAIRS = {
    frozenset({"full-pcpus-only", "distribute-cpus-across-cores"}),
    frozenset({"distribute-cpus-across-numa", "distribute-cpus-across-cores"}),
    frozenset({"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"}),
    frozenset({"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"}),
}


def test_names_of_the_kubelet() -> None:
    assert set(NAMES) == {
        "full-pcpus-only",
        "distribute-cpus-across-numa",
        "align-by-socket",
        "distribute-cpus-across-cores",
        "strict-cpu-reservation",
        "prefer-align-cpus-by-uncorecache",
    }
    assert sorted(NAMES.values()) == sorted(Options._fields)


def test_only_the_strict_reservation_is_on_by_default() -> None:
    assert [name for name, field in NAMES.items() if getattr(DEFAULT, field)] == ["strict-cpu-reservation"]


def test_forbidden_pairs() -> None:
    for first, second in itertools.combinations(NAMES, 2):
        options = Options(strict_cpu_reservation=False)._replace(**{NAMES[first]: True, NAMES[second]: True})
        wanted = {frozenset({first, second})} & PAIRS
        assert {frozenset(pair) for pair in forbidden(options)} == wanted
    assert {frozenset(pair) for pair in forbidden(Options(*[True] * len(NAMES)))} == PAIRS
    assert forbidden(DEFAULT) == []
