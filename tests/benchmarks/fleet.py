# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long the fleet's report and its page take for up to 10,000 hosts, against reading the hosts' results as JSON.

Each host is one of the machines that the tests describe, and of the recorded ones where there are any, with the profile of
examples/edge.yml. A fifth of them drifted in one to five items of 2,000, so that hardly two of them are alike.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import random
import resource
import typing as t

import bench
import controller_plugins
import jinja2
import recorded
import yaml
from _core.model.cpu import cpu_assignment, pools, published_pools
from _core.model.cpu.cpu_assignment import Assignment
from _core.model.profile import node_intent, profile
from _core.reports import cpu_map, numa_table

SIZES = (10, 100, 1_000, 10_000)
HEAD = ("hosts", "groups", "floor ms", "report ms", "page ms", "all/floor", "page MB", "peak RSS MB", "exponent")
WORKLOADS = [
    {"name": f"w{one}", "state": "granted", "reason": None, "tenant": "acme", "qos": "Guaranteed", "hold": "declared",
     "slice": f"corral_w{one}.slice", "cpus": "8-9", "memory_nodes": "0", "devices": {"example.com/nic": ["0000:01:00.0"]},
     "since": 1_795_255_200}
    for one in range(4)
]  # fmt: skip


@functools.cache
def machines() -> list[dict[str, t.Any]]:
    """What the module returns of each machine with four CPUs or more: as declared, and with a shared CPU that the system has."""
    found = []
    edge = profile.parse(yaml.safe_load((bench.CHECKOUT / "examples/edge.yml").read_text(encoding="utf-8")))
    for parameter in recorded.machines():
        (archive,) = parameter.values
        topology = recorded.topology_of(archive) if archive else None
        if topology is None or len(topology.online) < 4:
            continue
        computed = pools.compute(node_intent.resolve(edge, topology).profile, topology)
        declared = cpu_assignment.declared(computed, ())
        now = {**declared, min(computed.shared): Assignment("reserved")}
        found.append({
            "pools": published_pools.to_dict(computed),
            "cpu_map": cpu_map.cpu_map(topology, computed),
            "cpu_map_now": cpu_map.map_in_force(topology, now, declared),
            "numa_nodes": numa_table.rows(topology),
        })  # fmt: skip
    return found


def item(chance: random.Random) -> dict[str, t.Any]:
    """An item of drift."""
    number = chance.randrange(2_000)
    subject = f"s{number}.slice"
    return {
        "manager": "cpu",
        "subject": subject,
        "property": "AllowedCPUs",
        "actual": "0-3",
        "wanted": "0-1",
        "reason": "the unit's property differs",
        "location": f"/sys/fs/cgroup/{subject}/cpuset.cpus",
        "verdict": "drift",
        "when": "now",
        "disruption": "none",
        "since": 1_795_255_200 + chance.randrange(86_400),
        "text": f"~ cpu {subject} AllowedCPUs: 0-3 -> 0-1 (the unit's property differs)",
    }


def host(number: int, chance: random.Random) -> dict[str, t.Any]:
    """What the module profile returns of a host."""
    drift = [] if number % 5 else [item(chance) for dummy in range(chance.randint(1, 5))]
    machine = machines()[number // 5 % len(machines())]
    return {
        **machine, "cpu_map_now": machine["cpu_map_now"] if drift else [], "drift": drift, "name": "edge", "mode": "enforce",
        "workloads": WORKLOADS, "gc_report": ["gc: since the node started nothing was removed"],
    }  # fmt: skip


def row(number: int, turns: int, fleet_report: t.Callable[..., dict[str, t.Any]]) -> tuple[list[str], float]:
    """One size of fleet, and its seconds."""
    chance = random.Random(number)
    profiles = {f"host{one:05}": host(one, chance) for one in range(number)}
    agents: dict[str, t.Any] = {name: {"drift": []} for name in profiles}
    environment = jinja2.Environment()
    environment.filters["strftime"] = lambda form, moment, utc: f"{form} {moment}"
    source = (bench.CHECKOUT / "playbooks/templates/fleet.html.j2").read_text(encoding="utf-8")
    template = environment.from_string(source)
    report = {**fleet_report(profiles, agents), "time": 0}
    works: dict[str, t.Callable[[], object]] = {
        "floor": functools.partial(json.loads, json.dumps(profiles)),
        "report": functools.partial(fleet_report, profiles, agents),
        "page": functools.partial(template.render, __corral_report=report),
    }
    times = bench.by_turns(works, turns)
    both = [sum(pair) for pair in zip(times["report"], times["page"])]
    ms = [f"{bench.median(times[work]) * 1000:.2f}" for work in works]
    size = len(template.render(__corral_report=report).encode()) / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cells = [f"{number:,}", f"{len(report['groups']):,}", *ms, bench.ratio(both, times["floor"])]
    return [*cells, f"{size:.2f}", f"{peak:.0f}"], bench.median(both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3, help="how often everything is run (default: 3)")
    turns = parser.parse_args().turns
    bench.header("make bench-fleet")
    rows, before, fleet_report = [], 0.0, controller_plugins.load("filter.fleet_report").fleet_report
    for number in SIZES:
        bench.progress(f"{number} hosts")
        cells, seconds = row(number, turns, fleet_report)
        rows.append([*cells, f"{math.log10(seconds / before):.1f}" if before else ""])
        before = seconds
    bench.say(bench.table(HEAD, rows))
    bench.footer()


if __name__ == "__main__":
    main()
