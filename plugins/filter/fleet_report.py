# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
import typing as t

from ansible_collections.corral.node.plugins.module_utils._core.constants import SCHEMA, VERSION
from ansible_collections.corral.node.plugins.plugin_utils.host_results import (
    by_name,
    impossible_data,
    message,
    note_lines,
    printable_result,
    without_address,
)

if t.TYPE_CHECKING:
    from ansible_collections.corral.node.plugins.module_utils._core.model.status.json_shapes import (
        DriftItem,
        Fleet,
        FleetGroup,
        FleetHost,
        FleetVerdict,
    )

DOCUMENTATION = r"""
name: fleet_report
short_description: Put the drift reports of many nodes into one
version_added: 0.1.0
author:
  - Corral contributors (@corral-project)
description:
  - Takes what M(corral.node.profile) and M(corral.node.agent) returned in check mode on each host, and gives a verdict for
    each and a recap for all. The playbook C(corral.node.drift) shows and writes it.
positional: _agents
options:
  _input:
    description: Host to the registered result of M(corral.node.profile).
    type: dict
    required: true
  _agents:
    description: Host to the registered result of M(corral.node.agent).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Put the reports together
  ansible.builtin.set_fact:
    fleet: "{{ {inventory_hostname: profile_result} | corral.node.fleet_report({inventory_hostname: agent_result}) }}"
"""

RETURN = r"""
_value:
  description:
    - C(hosts) has for each host its C(verdict) (V(in_sync), V(drift), V(not_managed), V(unknown), V(refused), V(failed) or
      V(unreachable)), its drift C(items), C(problems), C(message), the profile's C(name), C(mode), C(pools) and C(effective_profile),
      C(cpu_map), C(cpu_map_now), C(numa_nodes), C(workloads), C(tenants), C(gc_report) and C(notes), C(paused) while it is under
      maintenance, and C(unconfirmed) while its profile waits for a confirmation.
    - C(groups) has the hosts that are alike (verdict, profile, CPUs and drift), worst first.
    - C(summary) counts the hosts by verdict, C(lines) is the recap that a person reads. C(schema) is the version of all
      of it, whose fields are in C(docs/json.md) of the collection. C(version) is the version of the collection, C(time) when the report was
      made, in seconds since 1970.
  type: dict
"""

VERDICTS: tuple[FleetVerdict, ...] = ("in_sync", "drift", "not_managed", "unknown", "refused", "failed", "unreachable")
# The last is the worst: the recap begins with it.
WORST = ("in_sync", "unknown", "not_managed", "drift", "refused", "failed", "unreachable")
ITEM_KEYS = (
    "manager", "subject", "property", "actual", "wanted", "reason", "location", "verdict", "when", "disruption", "text", "since",
)  # fmt: skip
OF_PROFILE = (
    "name", "mode", "pools", "cpu_map", "cpu_map_now", "numa_nodes", "effective_profile", "workloads", "tenants", "gc_report", "notes",
    "paused", "unconfirmed",
)  # fmt: skip
MAX_NAMES = 20  # of hosts in sync on one line of the recap


def host_report(profile: t.Mapping[str, t.Any], agent: t.Mapping[str, t.Any]) -> FleetHost:
    """One host's verdict and items. A host with a value that could not be read is never in sync.

    A result without drift is a failure of its module, unless the agent's module was skipped. A host that returned impossible data has
    failed: its data are not used.
    """
    for module, result in (("profile", profile), ("agent", agent)):
        text = impossible_data(module, result)
        if text:
            return host_report({"msg": text}, {"skipped": True})
    profile, agent = results = (printable_result(profile), printable_result(agent))
    items: list[DriftItem] = [
        t.cast("DriftItem", {key: item.get(key) for key in ITEM_KEYS})
        for result in results
        for item in result.get("drift") or ()
    ]
    lost = [result for result in results if result.get("unreachable")]
    looked = [profile] if agent.get("skipped") else results
    failed = [one for one in looked if one.get("drift") is None or one.get("problems")]
    verdict = verdict_of(items, lost, failed, profile)
    said = [] if verdict == "unreachable" else failed
    messages = dict.fromkeys(message(result) for result in lost[:1] or said)
    own = {
        "verdict": verdict,
        "items": items,
        "problems": [problem for result in said for problem in result.get("problems") or ()],
        "message": "\n".join(messages) or None,
    }
    return t.cast("FleetHost", {**own, **{field: profile.get(field) for field in OF_PROFILE}})


def verdict_of(
    items: t.Sequence[DriftItem],
    lost: t.Sized,
    failed: t.Sequence[t.Mapping[str, t.Any]],
    profile: t.Mapping[str, t.Any],
) -> FleetVerdict:
    """The verdict on a host: by results that are ``lost`` or ``failed``, else by its items."""
    if lost:
        return "unreachable"
    if failed:
        return "refused" if all(result.get("problems") for result in failed) else "failed"
    if any(item["verdict"] != "unknown" for item in items):
        # Before the first profile no difference is drift. (The hash of a lost profile is empty, not null.)
        untouched = profile.get("profile_hash_before", "") is None and not profile.get("unconfirmed")
        return "not_managed" if untouched else "drift"
    return "unknown" if items else "in_sync"


def group_lines(group: FleetGroup, host: FleetHost) -> list[str]:
    """The lines of the recap for hosts that are alike. The texts of changes and pauses come from the node."""
    count = len(host["items"])
    head = f"{names_of(group)}: {host['verdict'].replace('_', ' ')}"
    head += f", {count} item{'s'[: count != 1]}" if count else ""
    lines = [head + (f" (profile {host['name']}, mode {host['mode']})" if host["name"] else "")]
    lines += [f"  {said['text']}" for said in (host["paused"], host["unconfirmed"]) if said]
    lines += [f"  {one['text']}" for one in host["tenants"] or ()]
    lines += [f"  {line}" for line in str(group["message"] or "").splitlines()]
    lines += [f"  {item['text']}{since(first)}" for item, first in zip(host["items"], group["since"])]
    return [*lines, *(f"  {note}" for note in group["notes"])]


def names_of(group: FleetGroup) -> str:
    """The hosts of a group in the form of --limit; of hosts in sync the first names, and the number of the others."""
    most = MAX_NAMES if group["verdict"] == "in_sync" else len(group["hosts"])
    rest = len(group["hosts"]) - most
    return ",".join(group["hosts"][:most]) + (f" and {rest} more" if rest > 0 else "")


def since(first: int | None) -> str:
    """When an item was first seen, as text; "" for a node with an older version of Corral."""
    return f" [since {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(first))}]" if first else ""


def reason(host: FleetHost) -> str | None:
    """The host's message; without the host's address if it did not answer."""
    text = host["message"]
    return without_address(text) if text and host["verdict"] == "unreachable" else text


def common_message(hosts: t.Sequence[FleetHost]) -> str | None:
    """The message of hosts that are alike; without their addresses if the messages differ."""
    return hosts[0]["message"] if len({host["message"] for host in hosts}) == 1 else reason(hosts[0])


def alike(host: FleetHost) -> tuple[t.Any, ...]:
    """The values that are equal for hosts with one block of lines; the times of their drift may differ."""
    tenants = tuple(one["text"] for one in host["tenants"] or ())
    items = tuple((one["verdict"], one["text"]) for one in host["items"])
    said = tuple(one["text"] if one else "" for one in (host["paused"], host["unconfirmed"]))
    return (host["verdict"], host["name"], host["mode"], reason(host), said, tenants, items)


def mapped_alike(host: FleetHost) -> tuple[t.Any, ...]:
    """The values of alike() and the map of the CPUs, which is equal only for hosts of one topology."""
    return (*alike(host), tuple(host["cpu_map"] or ()), tuple(host["cpu_map_now"] or ()))


def grouped(hosts: t.Mapping[str, FleetHost], key: t.Callable[[FleetHost], tuple[t.Any, ...]]) -> list[FleetGroup]:
    """The groups of hosts with the same key, the worst verdict first, then the largest group."""
    by_key: dict[tuple[t.Any, ...], list[str]] = {}
    for name, host in hosts.items():
        by_key.setdefault(key(host), []).append(name)
    groups: list[FleetGroup] = [
        {
            "verdict": hosts[names[0]]["verdict"],
            "hosts": names,
            "since": earliest([hosts[one] for one in names]),
            "message": common_message([hosts[one] for one in names]),
            "notes": note_lines({one: hosts[one]["notes"] for one in names}),
        }
        for names in by_key.values()
    ]
    return sorted(groups, key=lambda one: (-WORST.index(one["verdict"]), -len(one["hosts"]), by_name(one["hosts"][0])))


def earliest(hosts: t.Sequence[FleetHost]) -> list[int | None]:
    """For each item of hosts with the same items, the time when the first host had it."""
    seen = zip(*([item["since"] for item in host["items"]] for host in hosts))
    return [min((one for one in row if one), default=None) for row in seen]


def fleet_report(
    profiles: t.Mapping[str, t.Mapping[str, t.Any]], agents: t.Mapping[str, t.Mapping[str, t.Any]]
) -> Fleet:
    """The fleet's report: hosts, groups of hosts, summary and lines."""
    hosts = {name: host_report(profiles[name], agents.get(name, {})) for name in sorted(profiles, key=by_name)}
    summary = {verdict: sum(host["verdict"] == verdict for host in hosts.values()) for verdict in VERDICTS}
    lines = [line for one in grouped(hosts, alike) for line in group_lines(one, hosts[one["hosts"][0]])]
    counted = ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in summary.items() if count)
    paused = sum(host["paused"] is not None for host in hosts.values())
    unconfirmed = sum(host["unconfirmed"] is not None for host in hosts.values())
    kept = [f"{count} {what}" for count, what in ((paused, "paused"), (unconfirmed, "unconfirmed")) if count]
    counted += f" ({', '.join(kept)})" if kept else ""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "time": int(time.time()),
        "hosts": hosts,
        "groups": grouped(hosts, mapped_alike),
        "summary": summary,
        "lines": [*lines, f"{len(hosts)} host{'s'[: len(hosts) != 1]}: {counted}"],
    }


class FilterModule:
    """The collection's filters."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters by name."""
        return {"fleet_report": fleet_report}
