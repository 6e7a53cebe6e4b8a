# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t

from ansible_collections.corral.node.plugins.plugin_utils.host_results import (
    by_name,
    message,
    named,
    note_lines,
    received,
    without_address,
)

if t.TYPE_CHECKING:
    from ansible_collections.corral.node.plugins.module_utils._core.model.status.json_shapes import EditedKey

DOCUMENTATION = r"""
name: rollout_plan
short_description: Put the plans of many nodes into one
version_added: 0.1.0
author:
  - Corral contributors (@corral-project)
description:
  - Takes what M(corral.node.profile) and M(corral.node.agent) returned in check mode on each host, before a rollout begins.
  - Says what the rollout would change by the keys of the profile, with hosts that have the same plan in one group, and names the
    hosts that cannot have the profile. The playbook C(corral.node.rollout) shows it and stops if there are such hosts.
positional: _agents, _terms
options:
  _input:
    description: Host to the registered result of M(corral.node.profile).
    type: dict
    required: true
  _agents:
    description: Host to the registered result of M(corral.node.agent).
    type: dict
    required: true
  _terms:
    description: Host to what is to be done about it. A key that is left out has its default.
    type: dict
    default: {}
    suboptions:
      on_drift:
        description:
          - What to do with a node that differs from the profile applied before, beyond what the edited keys explain.
          - With V(stop) it counts as a host that cannot have the profile, with V(overwrite) the rollout corrects it.
          - With V(adopt) it counts as such a host only if something is left that was not adopted
            (O(corral.node.profile#module:adopt)).
        type: str
        choices: [stop, adopt, overwrite]
        default: stop
      during_pause:
        description: With V(refuse) a node that is paused for maintenance counts as a host that cannot have the profile.
        type: str
        choices: [refuse, apply]
        default: refuse
      require_in_sync:
        description:
          - Whether a node that differs from its profile after its change fails and goes back.
          - What Corral cannot change is known before. The plan names it either way.
        type: bool
        default: true
      reboot_ok:
        description: Whether a node that needs a reboot is rebooted. The plan names the reasons either way.
        type: bool
        default: false
      reboot_for:
        description: Reasons for a reboot beside what differs until the next boot.
        type: list
        elements: str
        default: []
"""

EXAMPLES = r"""
- name: Put the plans together
  ansible.builtin.set_fact:
    plan: "{{ {inventory_hostname: profile_result} | corral.node.rollout_plan({inventory_hostname: agent_result}) }}"
"""

RETURN = r"""
_value:
  description:
    - C(lines) is what a person reads. C(refused) has the reason for each host that cannot have the profile. C(changing) lists
      the hosts on which something would change. C(acting) has beside them those that are rebooted, and those with a change that an
      earlier run did not confirm.
  type: dict
"""

UNREACHABLE = "unreachable: "
# Items of a pass of garbage collection: roles/corral/tasks/health.yml.
OF_PASSES = ("pass", "images", "disk use", "dead")
DIFFERS = "differs from the profile that it has applied"
HEADS = {
    "stop": f"{DIFFERS}; set corral_on_drift to overwrite to correct it, or to adopt to keep it:",
    "adopt": f"{DIFFERS}, and this cannot be adopted; correct it on the node, or set corral_on_drift to overwrite:",
}


class Terms(t.NamedTuple):
    """How the rollout treats a host."""

    on_drift: str = "stop"
    during_pause: str = "refuse"
    require_in_sync: bool = True
    reboot_ok: bool = False
    reboot_for: t.Sequence[str] = ()


class RolloutPlan(t.TypedDict):
    """What a rollout would do."""

    lines: list[str]
    refused: dict[str, str]
    changing: list[str]
    acting: list[str]


def rollout_plan(
    profiles: t.Mapping[str, t.Mapping[str, t.Any]],
    agents: t.Mapping[str, t.Mapping[str, t.Any]],
    terms: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
) -> RolloutPlan:
    """The plan of a rollout over all hosts."""
    profiles = {host: received("profile", result) for host, result in profiles.items()}
    agents = {host: received("agent", result) for host, result in agents.items()}
    wanted = {host: terms_of(host, (terms or {}).get(host, {})) for host in profiles}
    results = [*profiles.values(), *(agent for agent in agents.values() if agent)]  # {} if no tag selects the agent
    asked = any("skipped" not in result for result in results)
    if profiles and not asked:
        choice = "write --tags profile, or --tags agent with corral_agent: true"
        raise ValueError(f"no tag selects the profile or the agent: {choice}")
    refused: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    for host in sorted(profiles, key=by_name):
        agent = agents.get(host, {})
        why = why_refused(profiles[host], agent, wanted[host])
        if why:
            refused[host] = why
            continue
        lines = [*plan_lines(profiles[host], agent), *restart_lines(profiles[host])]
        lines += staying_lines(profiles[host], wanted[host].require_in_sync)
        lines += [*reboot_lines(profiles[host], wanted[host]), *unconfirmed_lines(profiles[host])]
        groups.setdefault(json.dumps(lines), []).append(host)
    shown: list[str] = []
    for text, hosts in sorted(groups.items(), key=lambda row: (row[0] == "[]", by_name(row[1][0]))):
        lines = json.loads(text)
        shown += [f"{named(hosts)}: {'as follows' if lines else 'nothing to change'}", *(f"  {line}" for line in lines)]
        shown += [f"  {line}" for line in note_lines({host: profiles[host].get("notes") for host in hosts})]
    shown += refused_lines(refused)
    changing = [
        host
        for host in sorted(profiles, key=by_name)
        if host not in refused and plan_lines(profiles[host], agents.get(host, {}))
    ]
    known = set(changing)
    acting = [
        host
        for host in sorted(profiles, key=by_name)
        if host in known or (host not in refused and acts(profiles[host], wanted[host]))
    ]
    total = f"{len(profiles)} host{'s'[: len(profiles) != 1]}: {len(changing)} would change"
    return {
        "lines": [*shown, total + (f", {len(refused)} cannot have the profile" if refused else "")],
        "refused": refused,
        "changing": changing,
        "acting": acting,
    }


def refused_lines(refused: t.Mapping[str, str]) -> t.Iterator[str]:
    """The hosts that cannot have the profile, in a group for each reason."""
    reasons: dict[str, list[str]] = {}
    for host, why in refused.items():
        reasons.setdefault(without_address(why) if why.startswith(UNREACHABLE) else why, []).append(host)
    for text, hosts in reasons.items():
        why = refused[hosts[0]] if len({refused[host] for host in hosts}) == 1 else text
        yield from (f"{named(hosts)}: cannot have it", *(f"  {line}" for line in why.splitlines()))


def acts(profile: t.Mapping[str, t.Any], terms: Terms) -> bool:
    """Whether the rollout acts on a host on which nothing changes."""
    return bool(unconfirmed_lines(profile) or (terms.reboot_ok and reboot_lines(profile, terms)))


def terms_of(host: str, given: t.Mapping[str, t.Any]) -> Terms:
    """How the rollout treats a host. Raises ValueError for an unknown word."""
    terms = Terms(**given)
    for name, value, words in (
        ("corral_on_drift", terms.on_drift, ("stop", "adopt", "overwrite")),
        ("corral_during_pause", terms.during_pause, ("refuse", "apply")),
    ):
        if value not in words:
            raise ValueError(f"{host}: {name}: {value}: write {', '.join(words[:-1])} or {words[-1]}")
    return terms


def why_refused(profile: t.Mapping[str, t.Any], agent: t.Mapping[str, t.Any], terms: Terms) -> str:
    """Why a host cannot have the profile; "" when it can."""
    for result in (profile, agent):
        if result.get("unreachable"):
            return f"{UNREACHABLE}{message(result)}"
        if ("drift" not in result or result.get("problems")) and not result.get("skipped") and result:
            return message(result)
    if not profile:
        return "the node was not asked, since the host failed before: Ansible's own error above says why"
    paused = profile.get("paused")
    if paused and terms.during_pause == "refuse":
        return f"{paused['text']}; end the pause, or set corral_during_pause to apply"
    drift = [one for one in profile.get("by_key") or () if one["kind"] == "drift"]
    if drift and terms.on_drift != "overwrite":
        head = HEADS[terms.on_drift]
        return "\n".join([head, *(line for one in drift for line in one["changes"])])
    return ""


def plan_lines(profile: t.Mapping[str, t.Any], agent: t.Mapping[str, t.Any]) -> list[str]:
    """The changes on a host: each key on a line with its consequences below it, then the agent's changes."""
    lines = []
    for row in profile.get("by_key") or ():
        lines += [key_line(row), *(f"  {line}" for line in row["changes"])]
    changes = [str(change.get("text")) for change in agent.get("changes") or ()]
    return [*lines, *(["agent:", *(f"  {line}" for line in changes)] if changes else [])]


def staying_lines(profile: t.Mapping[str, t.Any], require_in_sync: bool) -> list[str]:
    """The differences that stay after the change, since Corral cannot correct them. Those that wait for a boot or a restart are left out.

    A host does not go back for work that passes of garbage collection left undone.
    """
    items = [
        item
        for item in profile.get("drift") or ()
        if item["verdict"] != "drift" and item.get("when") == "now" and item.get("disruption") != "service restart"
    ]
    goes_back = "stays, so the host goes back unless corral_require_in_sync is false:"
    lines: dict[str, list[str]] = {}
    for item in items:
        left_undone = item.get("manager") == "gc" and item.get("property") in OF_PASSES
        head = goes_back if require_in_sync and not left_undone else "stays:"
        lines.setdefault(head, [head]).append(f"  {item['text']}")
    return [line for part in lines.values() for line in part]


def restart_lines(profile: t.Mapping[str, t.Any]) -> list[str]:
    """The differences that only the restart of a unit ends. No rollout restarts units, so these stay after the change."""
    items = [
        str(item["text"])
        for item in profile.get("drift") or ()
        if item["verdict"] != "drift" and item.get("disruption") == "service restart"
    ]
    return ["waits for a restart, which the rollout leaves to you:", *(f"  {text}" for text in items)] if items else []


def reboot_lines(profile: t.Mapping[str, t.Any], terms: Terms) -> list[str]:
    """Why a host is rebooted after its change, or would be; with the tag agent alone no host is rebooted."""
    if profile.get("skipped"):
        return []
    reasons = [
        str(item["text"])
        for item in profile.get("drift") or ()
        if item["verdict"] == "drift" and item.get("when") == "next boot"
    ]
    reasons += [terms.reboot_for] if isinstance(terms.reboot_for, str) else map(str, terms.reboot_for)
    head = "is rebooted:" if terms.reboot_ok else "waits for a reboot, which corral_reboot_ok=true allows:"
    return [head, *(f"  {text}" for text in reasons)] if any(reasons) else []


def unconfirmed_lines(profile: t.Mapping[str, t.Any]) -> list[str]:
    """A line if an earlier run ended before it confirmed its change; that run may have left the host drained."""
    return ["has an unconfirmed change, which the rollout confirms or replaces"] if profile.get("unconfirmed") else []


def key_line(row: EditedKey) -> str:
    """An edited key on one line."""
    extra = f" ({row['origin']})" if row["origin"] else ""
    extra += "" if row["disruption"] == "none" else f" [{row['disruption']}]"
    if row["kind"] == "drift":
        return f"drift from the profile applied before{extra}:"
    if row["kind"] == "own":
        return f"Corral's own units{extra}:"
    if row["kind"] == "first":
        return f"{row['key'] or 'the node'}{extra}:"
    before, after = (
        "not declared" if value is None else value if isinstance(value, str) else json.dumps(value)
        for value in (row.get("before"), row.get("after"))
    )
    return f"{row['key']}: {before} -> {after}{extra}"


class FilterModule:
    """The collection's filters."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters by name."""
        return {"rollout_plan": rollout_plan}
