# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet says of its own configuration beside what files and flags make it."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.kubelet import kubelet_drift
from _core.model.kubelet.kubelet_config import Config


@pytest.mark.parametrize(
    ("configured", "told", "found"),
    [
        ({"maxPods": 50}, {"maxPods": 50, "syncFrequency": "1m0s"}, []),
        ({"maxPods": 50}, {"maxPods": 70}, [("maxPods", "50", "70")]),
        ({"maxPods": 50}, {}, [("maxPods", "50", None)]),
        ({"podsPerCore": 0, "topologyManagerScope": ""}, {}, []),
        ({"podsPerCore": 0}, {"podsPerCore": 4}, [("podsPerCore", "0", "4")]),
        ({"cpuManagerReconcilePeriod": "10s"}, {"cpuManagerReconcilePeriod": "0h0m10s"}, []),
        (
            {"authentication": {"anonymous": {"enabled": True}}},
            {"authentication": {"anonymous": {"enabled": True}, "webhook": {"cacheTTL": "2m0s"}}},
            [],
        ),
        (
            {"authentication": {"anonymous": {"enabled": True}}},
            {"authentication": {"anonymous": {"enabled": False}}},
            [("authentication", '{"anonymous": {"enabled": true}}', '{"anonymous": {"enabled": false}}')],
        ),
        ({"evictionSoft": {}}, {}, []),
        (
            {"evictionHard": {"memory.available": "100Mi"}},
            {"evictionHard": {"memory.available": "100Mi", "pid.available": "5%"}},
            [
                (
                    "evictionHard",
                    '{"memory.available": "100Mi"}',
                    '{"memory.available": "100Mi", "pid.available": "5%"}',
                )
            ],
        ),
    ],
)
def test_what_a_kubelet_uses_is_compared_by_meaning(
    configured: dict[str, t.Any], told: dict[str, t.Any], found: list[tuple[str, ...]]
) -> None:
    differences = kubelet_drift.running_otherwise(Config(configured, {}), told)
    assert [(one.key, one.actual, one.wanted) for one in differences] == found
