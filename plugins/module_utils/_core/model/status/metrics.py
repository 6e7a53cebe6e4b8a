# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""status.json as metrics in Prometheus' text format, for node_exporter's textfile collector.

Names and units follow https://prometheus.io/docs/practices/naming/. docs/metrics.md explains each metric.
"""

from __future__ import annotations

import typing as t

from ...constants import VERSION
from ..values import cpuset
from ..values.records import NamedTuple

GAUGE, COUNTER = "gauge", "counter"
MODES = ("audit", "enforce")

Labels = dict[str, str]
Samples = list[tuple[Labels, float]]


class Family(NamedTuple):
    """A metric: its name, type and help text."""

    name: str
    type: str
    help: str


FAMILIES = (
    Family("corral_agent_info", GAUGE, "The agent: version of Corral, and of the Python that runs it."),
    Family("corral_profile_info", GAUGE, "The profile that the node is kept to."),
    Family("corral_mode", GAUGE, "1 for the profile's mode, 0 for the other one."),
    Family("corral_in_sync", GAUGE, "1 when nothing differs from the profile and everything could be read."),
    Family("corral_drift_items", GAUGE, "What differs from the profile after the last tick, by manager and verdict."),
    Family("corral_changes_total", COUNTER, "Changes that ticks made since the node started."),
    Family("corral_last_change_timestamp_seconds", GAUGE, "When a tick changed something last."),
    Family("corral_last_in_sync_timestamp_seconds", GAUGE, "When a tick found or made the node in sync last."),
    Family("corral_last_tick_timestamp_seconds", GAUGE, "When the tick that wrote this file checked the node."),
    Family("corral_agent_interval_seconds", GAUGE, "The seconds between two ticks."),
    Family("corral_last_tick_duration_seconds", GAUGE, "How long that tick took, the interpreter's start left out."),
    Family("corral_tick_errors_total", COUNTER, "Ticks that failed since the node started."),
    Family("corral_pool_cpus", GAUGE, "CPUs of a pool on a NUMA node."),
    Family("corral_hugepages_wanted", GAUGE, "Hugepages that the profile declares, in pages."),
    Family("corral_hugepages_actual", GAUGE, "Hugepages that the kernel has in a declared pool, in pages."),
    Family("corral_workloads", GAUGE, "Workloads with resources of their own, by state and class."),
    Family("corral_allocatable", GAUGE, "What the node can give to workloads: CPUs, bytes, tasks."),
    Family("corral_requested", GAUGE, "What the granted workloads request."),
    Family("corral_limits", GAUGE, "The sum of their limits, which may go beyond what there is."),
    Family(
        "corral_tenant_quota_used",
        GAUGE,
        "What the workloads of a tenant use of a quota: CPUs, bytes, tasks, workloads.",
    ),
    Family("corral_tenant_quota_hard", GAUGE, "The most that they may use."),
    Family("corral_paused", GAUGE, "1 while the node is paused for maintenance."),
    Family("corral_paused_until_timestamp_seconds", GAUGE, "When the pause ends, 0 when the node is not paused."),
    Family(
        "corral_unconfirmed_until_timestamp_seconds", GAUGE, "When an unconfirmed profile goes back, 0 without one."
    ),
)


def text(status: t.Mapping[str, t.Any], *, seconds: float, python: str) -> str:
    """The text of the metrics file. ``status``: the content of status.json. ``seconds``: how long the tick took.

    If the last tick could not read a metric's value, the metric has no samples: an unknown value must not look good.
    """
    return rendered(FAMILIES, samples(status, seconds, python))


def rendered(families: t.Iterable[Family], by_name: t.Mapping[str, Samples]) -> str:
    """The metrics as text, with their samples; a metric without samples is left out."""
    lines = []
    for family in families:
        if by_name.get(family.name):
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.type}"]
            lines += [f"{family.name}{labelled(labels)} {number(value)}" for labels, value in by_name[family.name]]
    return "".join(f"{line}\n" for line in lines)


def samples(status: t.Mapping[str, t.Any], seconds: float, python: str) -> dict[str, Samples]:
    """The samples of each metric by its name."""
    paused, totals = status["paused"], status["totals"]
    by_name: dict[str, Samples] = {
        "corral_agent_info": [({"version": VERSION, "python": python}, 1)],
        "corral_in_sync": [({}, status["in_sync"])],
        "corral_changes_total": [({}, totals["changes"])],
        "corral_tick_errors_total": [({}, totals["errors"])],
        "corral_last_tick_timestamp_seconds": [({}, status["time"])],
        "corral_last_tick_duration_seconds": [({}, seconds)],
        "corral_paused": [({}, paused is not None)],
        "corral_paused_until_timestamp_seconds": [({}, paused["until"] if paused else 0)],
        # A status from an earlier version lacks this field.
        "corral_unconfirmed_until_timestamp_seconds": [({}, (status.get("unconfirmed") or {"until": 0})["until"])],
        "corral_drift_items": drift(status["counts"] or {}),
        "corral_pool_cpus": pools((status["pools"] or {}).get("numa", {})),
    }
    if status["name"] is not None:
        by_name["corral_profile_info"] = [({"name": status["name"]}, 1)]
        by_name["corral_mode"] = [({"mode": mode}, status["mode"] == mode) for mode in MODES]
    if status.get("interval"):
        by_name["corral_agent_interval_seconds"] = [({}, status["interval"])]
    if status["last_changed"]:
        by_name["corral_last_change_timestamp_seconds"] = [({}, status["last_changed"]["time"])]
    converged = status["time"] if status["in_sync"] else status["last_in_sync"]
    if converged is not None:
        by_name["corral_last_in_sync_timestamp_seconds"] = [({}, converged)]
    for name, key in (("corral_hugepages_wanted", "wanted"), ("corral_hugepages_actual", "actual")):
        rows = [(page_labels(row), row[key]) for row in status["hugepages"] or ()]
        by_name[name] = [(labels, value) for labels, value in rows if value is not None]
    by_name.update(workloads(status.get("workloads") or (), status.get("budget") or {}))
    return {**by_name, **quotas(status.get("tenants") or ())}


def workloads(
    rows: t.Sequence[t.Mapping[str, t.Any]], budget: t.Mapping[str, t.Mapping[str, t.Any]]
) -> dict[str, Samples]:
    """The number of workloads, and the granted resources of the node; CPUs as numbers of CPUs, not thousandths."""
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        labels = (row["state"], row["qos"] or "unknown")
        counts[labels] = counts.get(labels, 0) + 1
    by_name: dict[str, Samples] = {
        "corral_workloads": [({"state": state, "qos": qos}, count) for (state, qos), count in sorted(counts.items())]
    }
    for name, key in (
        ("corral_allocatable", "allocatable"),
        ("corral_requested", "requested"),
        ("corral_limits", "limits"),
    ):
        by_name[name] = [
            ({"resource": resource}, amounts[key] / 1000 if resource == "cpu" else amounts[key])
            for resource, amounts in sorted(budget.items())
        ]
    return by_name


def quotas(tenants: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, Samples]:
    """The usage of tenants' quotas; CPUs as numbers of CPUs, not thousandths."""
    by_name: dict[str, Samples] = {"corral_tenant_quota_used": [], "corral_tenant_quota_hard": []}
    for tenant in tenants:
        for row in tenant["quota"]:
            labels = {"tenant": tenant["name"], "quota": row["quota"], "resource": row["resource"]}
            unit = 1000 if row["resource"].endswith(".cpu") else 1
            by_name["corral_tenant_quota_used"].append((labels, row["used"] / unit))
            by_name["corral_tenant_quota_hard"].append((labels, row["hard"] / unit))
    return by_name


def drift(counts: t.Mapping[str, t.Mapping[str, int]]) -> Samples:
    """The number of items for each manager and verdict; a number may be 0."""
    return [
        ({"manager": manager, "verdict": verdict}, count)
        for manager, verdicts in sorted(counts.items())
        for verdict, count in sorted(verdicts.items())
    ]


def pools(numa: t.Mapping[str, t.Mapping[str, str]]) -> Samples:
    """The size of each pool on each NUMA node."""
    return [
        ({"pool": pool, "numa_node": node}, len(cpuset.parse(cpus)))
        for node, parts in sorted(numa.items(), key=lambda item: int(item[0]))
        for pool, cpus in sorted(parts.items())
    ]


def page_labels(row: t.Mapping[str, t.Any]) -> Labels:
    """The labels of a pool of hugepages: the page size, and the NUMA node of a pool on a node."""
    labels = {"size": row["size"]}
    return labels if row["node"] is None else {**labels, "numa_node": str(row["node"])}


def labelled(labels: t.Mapping[str, str]) -> str:
    """The labels as text in braces, which follows a metric's name; an empty string without labels."""
    parts = [f'{name}="{escaped(value)}"' for name, value in labels.items()]
    return f"{{{','.join(parts)}}}" if parts else ""


def escaped(value: str) -> str:
    """A label's value with backslash, quote and line feed escaped."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    """A value as text; a whole number has no fraction."""
    return str(int(value)) if value == int(value) else f"{value:.6f}"
