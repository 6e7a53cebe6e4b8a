# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The files published in /run/corral: status.json, pools.json and pools.env."""

from __future__ import annotations

import json
import typing as t

from ..constants import SCHEMA
from ..host import cgroup, lock, state
from ..host.agent import pause_file
from ..host.files import Host
from ..host.memory import hugepage_files
from ..managers import registry
from ..managers.agent import agent_install
from ..managers.cpu import cpu as cpu_manager
from ..model.cpu import partitions, published_pools, slices
from ..model.plan.context import Context
from ..model.plan.plan import Change, Outcome, change_to_dict
from ..model.values.records import NamedTuple
from ..model.values.sizes import page_text
from . import drift_since

if t.TYPE_CHECKING:
    from ..model.status.json_shapes import (
        Budget,
        Hugepages,
        LastChanged,
        Pools,
        PublishedPools,
        RenderedPause,
        RenderedUnconfirmed,
        Status,
        StatusItem,
        Tenant,
        Verdicts,
        Workload,
    )
    from ..model.values.vocabulary import Mode

# Shapes of the fields that Corral reads from the previous status: see built_as().
ITEM = {
    **dict.fromkeys(("manager", "subject", "property", "verdict", "reason", "location", "when", "disruption"), str),
    **dict.fromkeys(("actual", "wanted"), (str, None)),
    "since": int,
}
PAUSED = {"since": int, "until": int, "by": str, "reason": str}
CHANGED = {"time": int, "changes": list}
HUGEPAGES = {"size": str, "node": (int, None), "wanted": int, "actual": (int, None)}
BUILT_UPON = {
    "time": int,
    "items": [ITEM],
    "totals": {"changes": int, "errors": int},
    "paused": (PAUSED, None),
    "last_changed": (CHANGED, None),
    "last_in_sync": (int, None),
    "hugepages": ([HUGEPAGES], None),
}
LARGEST = 2**40  # all numbers in a status are smaller


def last_status(host: Host) -> dict[str, t.Any]:
    """The status that was published last; empty without a status, or if the status has another form than Corral writes."""
    status = state.read_published(host, state.STATUS)
    return t.cast("dict[str, t.Any]", status) if built_as(status, BUILT_UPON) else {}


def built_as(value: t.Any, shape: t.Any) -> bool:
    """Whether JSON data has a shape: a type, [the shape of each item], {key: shape}, (alternative shapes), or None."""
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(built_as(value.get(key), inner) for key, inner in shape.items())
    if isinstance(shape, list):
        return isinstance(value, list) and all(built_as(item, shape[0]) for item in value)
    if isinstance(shape, tuple):
        return any(built_as(value, one) for one in shape)
    if shape is int:
        return isinstance(value, int) and 0 <= value < LARGEST
    return value is None if shape is None else isinstance(value, shape)


def status(
    host: Host,
    context: t.Optional[Context],
    outcome: Outcome,
    previous: dict[str, t.Any],
    *,
    error: str = "",
    paused: t.Optional[RenderedPause] = None,
    logged: bool = True,
) -> Status:
    """The data of /run/corral/status.json. ``since`` of an item is kept for as long as the item stays.

    ``logged``: the caller (a tick) writes a journal line for each new item. Otherwise new items are marked as not logged.

    Without a context the node was not observed, so counts are null, not zero.
    """
    since = drift_since.known(host, previous) if outcome.remaining and context else {}
    now = int(host.now())
    said = error or outcome.error
    known = logged_items(previous)
    items: list[StatusItem] = [
        {
            **change_to_dict(change),
            "since": since.get(change.item(), now),
            "maintenance": paused is not None,
            "logged": logged or change.item() in known,
        }
        for change in outcome.remaining
    ]
    seen = Seen() if context is None else seen_of(host, context, outcome.remaining)
    totals, options = previous.get("totals", {}), agent_install.installed(host) if context or error else None
    # The interval stays as before after a failed read, and for an agent that runs although its file is lost.
    as_before = not (context or error) or (options is None and pause_file.ticks(host))
    last: LastChanged = {"time": now, "changes": [change_to_dict(change) for change in outcome.applied]}
    return {
        "schema": SCHEMA,
        "name": seen.name,
        "mode": seen.mode,
        "time": now,
        "time_since_boot": int(host.uptime()),
        "interval": options.interval if options else previous.get("interval") if as_before else None,
        "in_sync": not items and not said,
        "error": said or None,
        "paused": paused,
        "pause_error": None,
        "metrics_error": None,
        "unconfirmed": unconfirmed(host) if context or error else previous.get("unconfirmed"),
        "items": items,
        "counts": seen.counts,
        "totals": {
            "changes": totals.get("changes", 0) + len(outcome.applied),
            "errors": totals.get("errors", 0) + bool(said),
        },
        "last_changed": last if outcome.applied else previous.get("last_changed"),
        # null while the node is in sync
        "last_in_sync": None
        if not (items or said)
        else previous.get("time" if previous.get("in_sync") else "last_in_sync"),
        "pools": seen.pools,
        "hugepages": seen.hugepages,
        "exclusive": seen.exclusive,
        "partitions": seen.partitions,
        "workloads": workload_rows(context),
        "budget": budget(context),
        "tenants": tenant_rows(context),
    }


class Seen(NamedTuple):
    """The fields of a status about the node and its profile; all are None if the node was not observed."""

    name: t.Optional[str] = None
    mode: t.Optional[Mode] = None
    counts: t.Optional[dict[str, Verdicts]] = None
    pools: t.Optional[Pools] = None
    hugepages: t.Optional[list[Hugepages]] = None
    exclusive: t.Optional[str] = None
    partitions: t.Optional[dict[str, str]] = None


def seen_of(host: Host, context: Context, remaining: t.Sequence[Change]) -> Seen:
    """The fields of a status about an observed node and its profile."""
    return Seen(
        context.profile.name,
        context.profile.mode,
        counts(remaining),
        published_pools.to_dict(context.pools),
        hugepage_rows(host, context),
        enforcement(host, context, remaining),
        in_force(host, context, remaining),
    )


def logged_items(previous: t.Mapping[str, t.Any]) -> set[tuple[str, str, str]]:
    """The items of an earlier status for which the journal has a line."""
    items = previous.get("items", [])
    return {(item["manager"], item["subject"], item["property"]) for item in items if item.get("logged", False)}


def unconfirmed(host: Host) -> t.Optional[RenderedUnconfirmed]:
    """The profile that waits for a confirmation; None without such a profile."""
    if not state.there(host, state.UNCONFIRMED):
        return None
    from ..host.agent import unconfirmed_file

    return unconfirmed_file.shown(host)


def enforcement(host: Host, context: Context, remaining: t.Sequence[Change]) -> t.Optional[str]:
    """Whether the kernel keeps other processes off isolated and exclusive CPUs, and why not; None without such CPUs.

    If the kernel does not, Corral keeps only the slices that the profile names off these CPUs.
    """
    cpu = context.profile.cpu
    if cpu is None or not (context.pools.isolated or context.pools.exclusive):
        return None
    if not cgroup.unified(host):
        return "not enforced by the kernel: cgroup v1 has no partitions"
    if cpu.partitions == "off":
        return "not enforced by the kernel: cpu.partitions is off"
    lacking = lacking_partitions(host, context, remaining)
    return "enforced by the kernel" + "".join(f", but not {unit}: {reason}" for unit, reason in lacking.items())


def lacking_partitions(host: Host, context: Context, remaining: t.Sequence[Change]) -> dict[str, str]:
    """The slices that should be partitions and are no partitions, each with the reason."""
    lacking = {one.subject: one.reason for one in remaining if one.property == partitions.PROPERTY}
    return {**lacking, **cpu_manager.refused_for_boot(host, context)}


def in_force(host: Host, context: Context, remaining: t.Sequence[Change]) -> t.Optional[dict[str, str]]:
    """The slices that are partitions, each with its kind, for a later comparison with the kernel; None without partitions."""
    cpu = context.profile.cpu
    if cpu is None or not cgroup.unified(host):
        return None
    lacking = lacking_partitions(host, context, remaining)
    units = slices.wanted_cpus(cpu, context.pools, context.grants)
    wanted = partitions.wanted(cpu, units, context.topology.isolated or frozenset())
    return {unit: kind for unit, kind in wanted.items() if unit not in lacking} or None


def workload_rows(context: t.Optional[Context]) -> t.Optional[list[Workload]]:
    """The grants of workloads; None on a node without workloads."""
    if context is None or context.workloads is None:
        return None
    from . import workload_table

    return [workload_table.brief(row) for row in workload_table.rows(context.workloads)]


def budget(context: t.Optional[Context]) -> t.Optional[dict[str, Budget]]:
    """By resource, how much of the node is granted; None on a node without workloads."""
    if context is None or context.workloads is None:
        return None
    from . import workload_table

    return workload_table.budget(context)


def tenant_rows(context: t.Optional[Context]) -> t.Optional[list[Tenant]]:
    """The usage of tenants' quotas; None on a node without tenants."""
    if context is None or not context.profile.tenants:
        return None
    from . import tenant_table

    return tenant_table.rows(context)


def counts(changes: t.Sequence[Change]) -> dict[str, Verdicts]:
    """By manager and verdict, the number of items, zeros included."""
    found: dict[str, Verdicts] = {
        manager: {"drift": 0, "unchangeable": 0, "unknown": 0} for manager in registry.names()
    }
    for change in changes:
        found[change.manager][change.verdict] += 1
    return found


def hugepage_rows(host: Host, context: Context) -> list[Hugepages]:
    """The declared pools of hugepages: size, NUMA node (null: the whole machine), declared pages and present pages."""
    return [
        {
            "size": page_text(row.size_kib),
            "node": row.node,
            "wanted": row.pages,
            "actual": hugepage_files.pool(host, row.size_kib, row.node),
        }
        for row in context.profile.memory.hugepages
    ]


def same(status: Status, previous: t.Mapping[str, t.Any]) -> bool:
    """Whether a status is the same as the previous status, apart from the times of the two."""
    moving = {"time": 0, "time_since_boot": 0}
    return text_of({**status, **moving}) == text_of({**previous, **moving})


def text_of(status: t.Mapping[str, t.Any]) -> str:
    """The text of status.json."""
    return json.dumps(status, sort_keys=True) + "\n"


def publish(
    host: Host,
    status: Status,
    context: t.Optional[Context],
    unplanned: t.Container[str] = (),
    *,
    write_status: bool = True,
) -> bool:
    """Write status.json, and the pools' files if the pools changed. Returns whether the pools changed."""
    lock.own_folder(host, state.RUN, 0o755)
    if write_status:
        host.write_file(state.STATUS, text_of(status))
    if context is None:
        return False  # The node was not observed: the items in the file may still differ.
    drift_since.keep(
        host, {(one["manager"], one["subject"], one["property"]): one["since"] for one in status["items"]}, unplanned
    )
    return publish_pools(host, context)


def publish_pools(host: Host, context: Context) -> bool:
    """Write the pools' files if the pools changed. Returns whether the pools changed."""
    lock.own_folder(host, state.RUN, 0o755)
    shown: PublishedPools = {"schema": SCHEMA, **published_pools.to_dict(context.pools)}
    changed = False
    for path, text in (
        (state.PUBLISHED[1], json.dumps(shown, sort_keys=True) + "\n"),
        (state.PUBLISHED[2], published_pools.to_env(context.pools)),
    ):
        if host.read(path) != text:
            host.write_file(path, text)
            changed = True
    return changed
