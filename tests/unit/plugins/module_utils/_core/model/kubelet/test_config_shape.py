# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What YAML can have and JSON cannot, and values of another kind than a kubelet's: told by name, and never a traceback."""

from __future__ import annotations

import json
import typing as t

import pytest
import yaml
from _core.model.kubelet import config_shape, kubelet_drift, kubelet_rules, kubelet_sizing
from _core.model.kubelet.kubelet_config import DEFAULTS, Layer, effective
from _core.model.kubelet.kubelet_wanted import Machine

MACHINE = Machine((1, 36), frozenset(range(8)), numa={0: {"memory": 8 << 30}}, memory=8 << 30, pids=32768)
ODD: tuple[t.Any, ...] = (
    "x",
    -1,
    2.5,
    True,
    {},
    [],
    [1],
    ["a"],
    {"a": "b"},
    {"a": 1},
    {"a": {"b": 1}},
    [{"a": 1}],
    [[]],
)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("on: x", {"true": "x"}),
        ("5: {~: y}", {"5": {"null": "y"}}),
        ("2020-01-01: 2021-02-03", {"2020-01-01": "2021-02-03"}),
        ("x: !!set {a}", {"x": {"a": None}}),
        ("x: [1, .5, ~]", {"x": [1, 0.5, None]}),
    ],
)
def test_it_is_as_json_has_it(text: str, data: t.Any) -> None:
    found = config_shape.plain(yaml.safe_load(text))
    assert found == data
    assert json.loads(json.dumps(found)) == data


@pytest.mark.parametrize(
    "text",
    [
        "x: &a {b: *a}",
        "x: &a [*a]",
        "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)),
    ],
)
def test_what_has_no_end_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        config_shape.plain(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('maxPods: "110"', ["maxPods: is not a whole number without quotes"]),
        ("maxPods: true", ["maxPods: is not a whole number without quotes"]),
        ("podPidsLimit: 1.5", ["podPidsLimit: is not a whole number without quotes"]),
        ("maxPods: 110.0", []),
        ("healthzPort: lots", ["healthzPort: is not a whole number without quotes"]),
        ('failSwapOn: "no"', ["failSwapOn: is not true or false without quotes"]),
        ("failSwapOn: 0", ["failSwapOn: is not true or false without quotes"]),
        ("failSwapOn: no", []),
        ("failSwapOn: null", []),
    ],
)
def test_go_reads_no_text_as_a_number_or_as_true(text: str, told: list[str]) -> None:
    assert config_shape.unfit(yaml.safe_load(text)) == told


@pytest.mark.parametrize("key", sorted(DEFAULTS.keys() | config_shape.MAPS | config_shape.LISTS | config_shape.SINGLE))
def test_any_value_of_any_key_is_unfit_or_can_be_compared_and_checked(key: str) -> None:
    fit = 0
    for value in ODD:
        if config_shape.unfit({key: value}):
            continue
        fit += 1
        config = effective(
            [Layer("/file", {"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static", key: value})]
        )
        kubelet_rules.problems(config, MACHINE, ())
        list(kubelet_sizing.sizing(config, MACHINE))
        kubelet_drift.changing(effective([]), config)
    assert 0 < fit < len(ODD)
