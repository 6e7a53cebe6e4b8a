# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics' text: in Prometheus' format, by its naming rules, and each one documented."""

from __future__ import annotations

import re
import sys
import typing as t

import pytest
import yaml
from _core import constants
from _core.managers import registry
from _core.model.status import gc_metrics, metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_data import REPOSITORY

sys.path.append(str(REPOSITORY / "tests" / "lab"))

from read_metrics import parse  # the node's own reader, so that both see the same

VERDICTS = {"drift": 0, "unchangeable": 0, "unknown": 0}
TOLD: dict[str, t.Any] = {
    "name": "edge",
    "mode": "enforce",
    "time": 1000,
    "in_sync": True,
    "paused": None,
    "counts": {"cpu": VERDICTS, "memory": {**VERDICTS, "unknown": 2}},
    "totals": {"changes": 7, "errors": 3},
    "last_changed": {"time": 900, "changes": []},
    "last_in_sync": None,
    "pools": {
        "numa": {
            "0": {"reserved": "0,4", "shared": "1-3,5", "isolated": ""},
            "10": {"reserved": "", "shared": "", "isolated": ""},
        }
    },
    "hugepages": [
        {"size": "2Mi", "node": 0, "wanted": 32, "actual": 30},
        {"size": "1Gi", "node": None, "wanted": 1, "actual": None},
    ],
}
FAILED = {"name": None, "mode": None, "in_sync": False, "counts": None, "last_changed": None, "last_in_sync": None,
          "pools": None, "hugepages": None}  # fmt: skip


def written(**changed: t.Any) -> str:
    return metrics.text({**TOLD, **changed}, seconds=0.0421234567, python="3.11.2")


def samples(**changed: t.Any) -> dict[str, float]:
    found, wrong = parse(written(**changed))
    assert wrong == []
    return found


def test_what_a_tick_saw_as_samples() -> None:
    assert samples() == {
        'corral_agent_info{version="0.1.0",python="3.11.2"}': 1,
        'corral_profile_info{name="edge"}': 1,
        'corral_mode{mode="audit"}': 0,
        'corral_mode{mode="enforce"}': 1,
        "corral_in_sync": 1,
        **{
            f'corral_drift_items{{manager="{manager}",verdict="{verdict}"}}': count
            for manager, counts in TOLD["counts"].items()
            for verdict, count in counts.items()
        },
        "corral_changes_total": 7,
        "corral_last_change_timestamp_seconds": 900,
        "corral_last_in_sync_timestamp_seconds": 1000,
        "corral_last_tick_timestamp_seconds": 1000,
        "corral_last_tick_duration_seconds": 0.042123,
        "corral_tick_errors_total": 3,
        'corral_pool_cpus{pool="isolated",numa_node="0"}': 0,
        'corral_pool_cpus{pool="reserved",numa_node="0"}': 2,
        'corral_pool_cpus{pool="shared",numa_node="0"}': 4,
        'corral_pool_cpus{pool="isolated",numa_node="10"}': 0,
        'corral_pool_cpus{pool="reserved",numa_node="10"}': 0,
        'corral_pool_cpus{pool="shared",numa_node="10"}': 0,
        'corral_hugepages_wanted{size="2Mi",numa_node="0"}': 32,
        'corral_hugepages_wanted{size="1Gi"}': 1,
        'corral_hugepages_actual{size="2Mi",numa_node="0"}': 30,
        "corral_paused": 0,
        "corral_paused_until_timestamp_seconds": 0,
        "corral_unconfirmed_until_timestamp_seconds": 0,
    }


def test_what_could_not_be_looked_at_has_no_samples() -> None:
    found = samples(**FAILED)
    assert {name.partition("{")[0] for name in found} == {
        "corral_agent_info", "corral_in_sync", "corral_changes_total", "corral_tick_errors_total", "corral_paused",
        "corral_paused_until_timestamp_seconds", "corral_unconfirmed_until_timestamp_seconds",
        "corral_last_tick_timestamp_seconds", "corral_last_tick_duration_seconds",
    }  # fmt: skip
    assert found["corral_in_sync"] == 0


def test_a_pause_and_the_time_of_a_node_out_of_sync() -> None:
    found = samples(paused={"until": 5000}, in_sync=False, last_in_sync=990)
    assert (found["corral_paused"], found["corral_paused_until_timestamp_seconds"]) == (1, 5000)
    assert found["corral_last_in_sync_timestamp_seconds"] == 990


def test_when_an_unconfirmed_profile_goes_back() -> None:
    assert samples(unconfirmed={"until": 5000})["corral_unconfirmed_until_timestamp_seconds"] == 5000


@settings(deadline=None)
@given(name=st.text())
def test_any_name_of_a_profile_is_one_label(name: str) -> None:
    samples(name=name)
    lines = [line for line in written(name=name).split("\n") if line.startswith("corral_profile_info")]
    assert len(lines) == 1
    value = lines[0][len('corral_profile_info{name="') : -len('"} 1')]
    assert re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), value) == name


@pytest.mark.parametrize(
    "text",
    ["corral_x 1\n", "# HELP x y\nx 1\n", "# HELP x y\n# TYPE x gauge\nx 1", '# HELP x y\n# TYPE x gauge\nx{a="\\"} 1\n',
     "# HELP x y\n# TYPE x counter\nx 1\n", "# HELP x y\n# TYPE x gauge\nx 1\nx 2\n", "# HELP x y\n# TYPE x gauge\n",
     "# HELP x_total y\n# TYPE x_total gauge\nx_total 1\n", "# HELP x y\n# TYPE x gauge\ny 1\n", "x\n"],
)  # fmt: skip
def test_the_reader_finds_what_is_against_the_format(text: str) -> None:
    assert parse(text)[1]


# By https://prometheus.io/docs/practices/naming/: base units, _total for counters, info metrics.
UNITLESS = {"corral_in_sync", "corral_drift_items", "corral_pool_cpus", "corral_hugepages_wanted", "corral_hugepages_actual",
            "corral_paused", "corral_mode",
            "corral_workloads", "corral_allocatable", "corral_requested", "corral_limits",
            "corral_tenant_quota_used", "corral_tenant_quota_hard"}  # fmt: skip


ROWS = [
    {"state": "granted", "qos": "Guaranteed"},
    {"state": "granted", "qos": "Guaranteed"},
    {"state": "refused", "qos": None},
]
BUDGET = {
    "cpu": {"allocatable": 6000, "requested": 4500, "limits": 7000},
    "pids": {"allocatable": 9, "requested": 1, "limits": 1},
}


def test_workloads_are_counted_and_the_budget_is_in_whole_cpus() -> None:
    found = samples(workloads=ROWS, budget=BUDGET)
    assert {name: value for name, value in found.items() if "workloads" in name or 'resource="' in name} == {
        'corral_workloads{state="granted",qos="Guaranteed"}': 2,
        'corral_workloads{state="refused",qos="unknown"}': 1,
        'corral_allocatable{resource="cpu"}': 6,
        'corral_allocatable{resource="pids"}': 9,
        'corral_requested{resource="cpu"}': 4.5,
        'corral_requested{resource="pids"}': 1,
        'corral_limits{resource="cpu"}': 7,
        'corral_limits{resource="pids"}': 1,
    }


TENANTS = [
    {
        "name": "acme",
        "quota": [
            {"quota": "q", "resource": "requests.cpu", "used": 1500, "hard": 4000},
            {"quota": "q", "resource": "count/workloads", "used": 2, "hard": 3},
        ],
    },
    {"name": "idle", "quota": []},
]


def test_quotas_are_used_against_hard_in_whole_cpus() -> None:
    found = samples(tenants=TENANTS)
    assert {name: value for name, value in found.items() if "tenant" in name} == {
        'corral_tenant_quota_used{tenant="acme",quota="q",resource="requests.cpu"}': 1.5,
        'corral_tenant_quota_used{tenant="acme",quota="q",resource="count/workloads"}': 2,
        'corral_tenant_quota_hard{tenant="acme",quota="q",resource="requests.cpu"}': 4,
        'corral_tenant_quota_hard{tenant="acme",quota="q",resource="count/workloads"}': 3,
    }


def test_names_follow_the_rules() -> None:
    for family in metrics.FAMILIES:
        assert re.fullmatch(r"corral_[a-z]+(_[a-z]+)*", family.name)
        assert family.name.endswith(("_seconds", "_bytes", "_total", "_info")) != (family.name in UNITLESS), family.name
        assert family.name.endswith("_total") == (family.type == "counter")
        assert family.help.endswith(".")
        assert family.help.isascii()
    assert len({family.name for family in metrics.FAMILIES}) == len(metrics.FAMILIES)
    everything = samples(workloads=ROWS, budget=BUDGET, tenants=TENANTS, interval=10)
    produced = {name.partition("{")[0] for name in everything}
    assert produced == {family.name for family in metrics.FAMILIES}


def test_every_metric_is_documented_and_nothing_else_is() -> None:
    text = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(corral_\w+)` \| (\w+) \|", text, re.MULTILINE)
    assert rows == [(family.name, family.type) for family in (*metrics.FAMILIES, *gc_metrics.FAMILIES)]
    assert {name for name in re.findall(r"corral_\w+", text) if name != "corral_metrics_dir"} == {
        name for name, dummy in rows
    }


def test_every_manager_is_documented_as_a_label() -> None:
    text = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `corral_drift_items` \|.*`manager`: (.*?);", text, re.MULTILINE)
    assert sorted(row.split(", ")) == sorted(f"`{name}`" for name in registry.names())


def test_the_example_rules_ask_for_metrics_that_are_there() -> None:
    rules = yaml.safe_load((REPOSITORY / "examples" / "prometheus-rules.yml").read_text(encoding="utf-8"))
    assert set(rules) == {"groups"}
    (group,) = rules["groups"]
    assert set(group) == {"name", "rules"}
    known = {family.name for family in (*metrics.FAMILIES, *gc_metrics.FAMILIES)}
    names = []
    for rule in group["rules"]:
        assert (
            {"alert", "expr", "labels", "annotations"} <= set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        )
        assert re.fullmatch(r"Corral[A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"[0-9]+[smhd]", rule.get("for", "0s"))
        assert set(rule["labels"]) == {"severity"}
        assert set(rule["annotations"]) == {"summary", "description"}
        asked = set(re.findall(r"corral_\w+", f"{rule['expr']} {rule['annotations']}"))
        assert asked, rule["alert"]
        assert asked <= known, rule["alert"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
        names.append(rule["alert"])
    assert len(set(names)) == len(names)


def test_the_version_is_the_collections() -> None:
    assert yaml.safe_load((REPOSITORY / "galaxy.yml").read_text(encoding="utf-8"))["version"] == constants.VERSION
