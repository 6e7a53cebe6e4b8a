# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.corral.node.plugins.module_utils._core.model.status.json_shapes import (
        DriftItem,
        Fleet,
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
    - C(hosts) has for each host its C(verdict) (V(in_sync), V(drift), V(unknown), V(refused), V(failed) or
      V(unreachable)), its drift C(items), C(problems), C(message), the profile's C(name), C(mode), C(pools), C(cpu_map)
      and C(effective_profile), and C(paused) while it is under maintenance.
    - C(summary) counts the hosts by verdict, C(lines) is the recap that a person reads. C(schema) is the version of all
      of it; its fields are in C(docs/json.md) of the collection.
  type: dict
"""

SCHEMA = 1  # as constants.SCHEMA of the core, which this file need not load
VERDICTS: tuple[FleetVerdict, ...] = ("in_sync", "drift", "unknown", "refused", "failed", "unreachable")
WORST = ("in_sync", "unknown", "drift", "refused", "failed", "unreachable")  # last is worst: the recap begins with it
ITEM_KEYS = (
    "manager", "subject", "property", "actual", "wanted", "reason", "location", "verdict", "when", "disruption", "text", "since",
)  # fmt: skip


def host_report(profile: t.Mapping[str, t.Any], agent: t.Mapping[str, t.Any]) -> FleetHost:
    """One host's verdict and items. What could not be looked at is never in sync.

    A result without drift is that of a module that could not do its work, unless its task was skipped.
    """
    results = (profile, agent)
    found: list[DriftItem] = [
        t.cast("DriftItem", {key: item.get(key) for key in ITEM_KEYS})
        for result in results
        for item in result.get("drift") or ()
    ]
    lost = [result for result in results if result.get("unreachable")]
    failed = [one for one in results if ("drift" not in one or one.get("problems")) and not one.get("skipped")]
    verdict: FleetVerdict
    if lost:
        verdict = "unreachable"
    elif failed:
        verdict = "refused" if all(result.get("problems") for result in failed) else "failed"
    elif any(item["verdict"] != "unknown" for item in found):
        verdict = "drift"
    else:
        verdict = "unknown" if found else "in_sync"
    said = [] if verdict == "unreachable" else failed
    messages = dict.fromkeys(message(result) for result in lost[:1] or said)
    return {
        "verdict": verdict,
        "items": found,
        "problems": [problem for result in said for problem in result.get("problems") or ()],
        "message": "\n".join(messages) or None,
        "name": profile.get("name"),
        "mode": profile.get("mode"),
        "pools": profile.get("pools"),
        "cpu_map": profile.get("cpu_map"),
        "effective_profile": profile.get("effective_profile"),
        "paused": profile.get("paused"),
    }


def message(result: t.Mapping[str, t.Any]) -> str:
    """What a failed task said; of a module that could not even begin, what the node said."""
    lines = [str(result.get("msg") or "the task failed without a word")]
    heard = str(result.get("module_stderr") or "").strip().splitlines()
    if heard:
        lines.append(heard[-1] if heard[0].startswith("Traceback") else heard[0])
    return "\n".join(lines)


def host_lines(name: str, host: FleetHost) -> list[str]:
    """A host's block of the recap. What a change or a pause is called is the node's to say."""
    count = len(host["items"])
    head = f"{name}: {host['verdict'].replace('_', ' ')}"
    head += f", {count} item{'s'[: count != 1]}" if count else ""
    lines = [head + (f" (profile {host['name']}, mode {host['mode']})" if host["name"] else "")]
    lines += [f"  {host['paused']['text']}"] if host["paused"] else []
    lines += [f"  {line}" for line in str(host["message"] or "").splitlines()]
    return [*lines, *(f"  {item['text']}{since(item)}" for item in host["items"])]


def since(item: DriftItem) -> str:
    """When an item was first seen, as a person reads it; nodes with an older Corral do not say it."""
    first = item["since"]
    return f" [since {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(first))}]" if first else ""


def fleet_report(
    profiles: t.Mapping[str, t.Mapping[str, t.Any]], agents: t.Mapping[str, t.Mapping[str, t.Any]]
) -> Fleet:
    """The fleet's report: hosts, summary and lines."""
    hosts = {name: host_report(profiles[name], agents.get(name, {})) for name in sorted(profiles)}
    summary = {verdict: sum(host["verdict"] == verdict for host in hosts.values()) for verdict in VERDICTS}
    worst_first = sorted(hosts.items(), key=lambda row: -WORST.index(row[1]["verdict"]))
    lines = [line for name, host in worst_first for line in host_lines(name, host)]
    counted = ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in summary.items() if count)
    paused = sum(host["paused"] is not None for host in hosts.values())
    counted += f" ({paused} paused)" if paused else ""
    return {
        "schema": SCHEMA,
        "hosts": hosts,
        "summary": summary,
        "lines": [*lines, f"{len(hosts)} host{'s'[: len(hosts) != 1]}: {counted}"],
    }


class FilterModule:
    """The collection's filters."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Filter name to function."""
        return {"fleet_report": fleet_report}
