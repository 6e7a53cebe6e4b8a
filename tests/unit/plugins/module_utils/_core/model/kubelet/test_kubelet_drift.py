# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet says of its own configuration beside what files and flags make it."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.kubelet import kubelet_drift
from _core.model.kubelet.kubelet_config import Config
from _core.model.kubelet.kubelet_drift import Difference


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
        ({"crashLoopBackOff": None}, {"crashLoopBackOff": {}}, []),
        ({"tracing": {"endpoint": "x"}}, {}, [("tracing", '{"endpoint": "x"}', None)]),
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


NOW = Config(
    {"maxPods": 50, "cpuManagerPolicy": "static", "systemReserved": {"memory": "1Gi", "cpu": "1"}, "failSwapOn": True},
    {("maxPods",): "/a", ("systemReserved", "memory"): "/a", ("systemReserved", "cpu"): "/b", ("failSwapOn",): "/a"},
)
THEN = Config({"systemReserved": {"cpu": "1000m", "memory": "2Gi"}, "podPidsLimit": 9, "failSwapOn": True}, {})
CHANGING = [
    Difference("cpuManagerPolicy", "static", None, "default"),
    Difference("maxPods", "50", None, "/a"),
    Difference("podPidsLimit", None, "9", "default"),
    Difference("systemReserved", '{"cpu": "1", "memory": "1Gi"}', '{"cpu": "1000m", "memory": "2Gi"}', "/b"),
]


def test_what_changes_is_told_by_key_with_what_sets_it_now() -> None:
    assert kubelet_drift.changing(NOW, THEN) == CHANGING
    assert kubelet_drift.changing(NOW, THEN, ("failSwapOn", "maxPods", "podPidsLimit")) == CHANGING[1:3]


@pytest.mark.parametrize(
    ("data", "origins", "wanted", "found"),
    [
        ({"maxPods": 50}, {("maxPods",): "/20"}, {"maxPods": 50}, []),
        (
            {"maxPods": 50},
            {("maxPods",): "--max-pods"},
            {"maxPods": 60},
            [Difference("maxPods", "50", "60", "--max-pods", overridden=True)],
        ),
        (
            {"systemReserved": {"cpu": "1", "memory": "1Gi"}},
            {("systemReserved", "cpu"): "/20", ("systemReserved", "memory"): "/30"},
            {"systemReserved": {"memory": "2Gi", "cpu": "1"}},
            [
                Difference(
                    "systemReserved",
                    '{"cpu": "1", "memory": "1Gi"}',
                    '{"cpu": "1", "memory": "2Gi"}',
                    "/30",
                    overridden=True,
                )
            ],
        ),
        # Of several values the first, in the order of their names.
        (
            {"systemReserved": {"pid": "5", "cpu": "2"}},
            {("systemReserved", "pid"): "/40", ("systemReserved", "cpu"): "/30"},
            {"systemReserved": {"cpu": "1"}},
            [Difference("systemReserved", '{"cpu": "2", "pid": "5"}', '{"cpu": "1"}', "/30", overridden=True)],
        ),
        # A value that is not wanted.
        (
            {"evictionHard": {"memory.available": "1Gi", "nodefs.available": "10%"}},
            {("evictionHard", "memory.available"): "/20", ("evictionHard", "nodefs.available"): "default"},
            {"evictionHard": {"memory.available": "1Gi"}},
            [
                Difference(
                    "evictionHard",
                    '{"memory.available": "1Gi", "nodefs.available": "10%"}',
                    '{"memory.available": "1Gi"}',
                    "default",
                    overridden=True,
                )
            ],
        ),
        # The whole map is one value of a file, as an empty one is.
        (
            {"systemReserved": {}},
            {("systemReserved",): "/30"},
            {"systemReserved": {"cpu": "1"}},
            [Difference("systemReserved", "{}", '{"cpu": "1"}', "/30", overridden=True)],
        ),
        # Gates of others do not count.
        ({"featureGates": {"A": True, "B": True}}, {}, {"featureGates": {"B": True}}, []),
        (
            {"featureGates": {"A": True, "B": False}},
            {("featureGates", "A"): "/10", ("featureGates", "B"): "--feature-gates"},
            {"featureGates": {"B": True}},
            [Difference("featureGates", '{"B": false}', '{"B": true}', "--feature-gates", overridden=True)],
        ),
        (
            {},
            {},
            {"featureGates": {"B": True}},
            [Difference("featureGates", None, '{"B": true}', "default", overridden=True)],
        ),
    ],
)
def test_what_wins_over_corrals_file_is_told_with_what_sets_it(
    data: dict[str, t.Any],
    origins: dict[tuple[str, ...], str],
    wanted: dict[str, t.Any],
    found: list[Difference],
) -> None:
    assert kubelet_drift.overridden(Config(data, origins), wanted) == found
