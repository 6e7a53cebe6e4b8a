# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profiles of a random walk (walk.py): the first one, and changed ones."""

from __future__ import annotations

import json
import random
import typing as t

Data = dict[str, t.Any]
NEW = "-new"


def first_profile(dice: random.Random) -> Data:
    """The profile that a walk begins with."""
    cpu: Data = {
        "reserved": {"count": dice.choice([1, 2])},
        "policy": "static",
        "partitions": dice.choice(["auto", "auto", "auto", "off"]),
        "unmanaged": dice.choice(["report", "confine"]),
        "options": {
            "full-pcpus-only": dice.random() < 0.3,
            "strict-cpu-reservation": dice.random() < 0.5,
        },
        "shared": {"min_cpus": dice.choice([1, 2])},
    }
    policy = dice.choice(["none", "best-effort", "single-numa-node"])
    return {"name": "walk", "cpu": cpu, "topology": {"policy": policy}, "workloads": [workload(dice, "batch")]}


def full_profile(dice: random.Random, data: Data) -> Data:
    """The profile that a walk on a small machine begins with: three workloads and the isolated pool have nearly all of its CPUs."""
    cpu = {**data["cpu"], "reserved": {"count": 1}, "partitions": "auto", "shared": {"min_cpus": 1}}
    cpu["options"] = {**cpu["options"], "full-pcpus-only": False}
    cpu["isolated"] = {"cores": 1}
    rows = [{**workload(dice, name), "hold": "declared"} for name in ("alpha", "beta", "gamma")]
    for row in rows:
        row["limits"] = {**row["limits"], "cpu": 1}
    return {**data, "cpu": cpu, "workloads": rows}


def workload(dice: random.Random, name: str) -> Data:
    """A workload of this name."""
    unit = f"{name}@*.service" if name == "batch" else f"{name}.service"
    cpu = dice.choice([1, 1, 2, 2, 2, 3, 4, "500m"])
    hold = "running" if name == "batch" or dice.random() < 0.4 else "declared"
    return {"name": name, "match": {"unit": unit}, "hold": hold, "limits": {"cpu": cpu, "memory": "16Mi"}}


def tenant(dice: random.Random, resources: t.Sequence[Data] = ()) -> Data:
    """A tenant of some of the workloads, with limits that some of them meet, and a quota of each of these device resources."""
    hard = {"requests.cpu": dice.choice([1, 3, 6]), "limits.memory": dice.choice(["16Mi", "64Mi"]), "limits.pids": 64}
    hard.update({f"requests.{one['name']}": dice.choice([1, 2]) for one in resources})
    units = dice.choice([["alpha.service", "batch@*.service"], ["*.service"], ["b*.service"]])
    limits = [{"type": "container", "default": {"pids": dice.choice([8, 16])}, "max": {"cpu": dice.choice([2, 4])}}]
    return {"name": "acme", "members": {"units": units}, "limits": limits, "quota": [{"name": "all", "hard": hard}]}


def renamed(dice: random.Random, before: Data) -> tuple[str, Data]:
    """The name of a workload, and the profile in which it has another one, or its first one again."""
    data: Data = json.loads(json.dumps(before))
    row = dice.choice(data["workloads"])
    name: str = row["name"]
    row["name"] = name.removesuffix(NEW) if name.endswith(NEW) else f"{name}{NEW}"
    return name, data


def other_slices(dice: random.Random, before: Data) -> tuple[str, Data]:
    """The change, as text, and the profile with other reserved and shared slices."""
    data: Data = json.loads(json.dumps(before))
    pool, choice = dice.choice(
        [
            ("shared", dice.choice([[], ["machine.slice"], ["more.slice"], ["machine.slice", "more.slice"]])),
            ("reserved", dice.choice([["system.slice", "user.slice", "init.scope"], ["system.slice", "init.scope"]])),
        ]
    )
    data["cpu"][pool]["slices"] = choice
    return f"{pool} slices {' '.join(choice) or 'none'}", data


def changed_profile(dice: random.Random, before: Data) -> tuple[str, Data]:
    """The change, as text, and the profile with that one change."""
    data: Data = json.loads(json.dumps(before))
    cpu = data["cpu"]
    rows = {row["name"]: row for row in data["workloads"]}
    what = dice.choice(["in", "in", "in", "out", "policy", "partitions", "isolated", "reserved", "unmanaged", "mode"])
    if "tenants" in data and dice.random() < 0.3:
        what = "tenants"
    if what == "in":
        name = dice.choice(["alpha", "beta", "gamma", "batch"])
        rows[name] = workload(dice, name)
        rows.pop(f"{name}{NEW}", None)
        what = f"{name} is declared with {rows[name]['limits']['cpu']} CPUs, hold {rows[name]['hold']}"
    elif what == "out" and rows:
        name = dice.choice(sorted(rows))
        del rows[name]
        what = f"{name} is not declared"
    elif what == "policy":
        cpu["policy"] = "none" if cpu["policy"] == "static" and dice.random() < 0.7 else "static"
        what = f"policy {cpu['policy']}"
    elif what == "partitions":
        cpu["partitions"] = "off" if cpu["partitions"] == "auto" and dice.random() < 0.6 else "auto"
        what = f"partitions {cpu['partitions']}"
    elif what == "isolated":
        if cpu.pop("isolated", None) is None:
            cpu["isolated"] = {"cores": 1, "load_balance": dice.random() < 0.6}
        what = f"isolated {cpu.get('isolated')}"
    elif what == "reserved":
        cpu["reserved"] = {"count": dice.choice([1, 2, 3])}
        what = f"reserved {cpu['reserved']}"
    elif what == "unmanaged":
        cpu["unmanaged"] = dice.choice(["report", "confine"])
        what = f"unmanaged {cpu['unmanaged']}"
    elif what == "mode":
        data["mode"] = "audit" if data.get("mode", "enforce") == "enforce" and dice.random() < 0.5 else "enforce"
        what = f"mode {data['mode']}"
    elif what == "tenants":
        data["tenants"] = [] if data.get("tenants") and dice.random() < 0.3 else [tenant(dice, data.get("devices", ()))]
        what = f"tenants {data['tenants']}"
    data["workloads"] = list(rows.values())
    return what, data
