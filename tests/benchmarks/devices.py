# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long devices and tenants take, in ms. Choosing among 1,000 devices on 8 NUMA nodes is compared with sorting the ids of
the free ones. Admitting one more workload beside 200 with a grant is compared with the same without devices and tenants.
"""

from __future__ import annotations

import argparse
import functools
import random
import typing as t

import bench
import machines
from _core.model.cpu import pools
from _core.model.devices import device_allocation
from _core.model.devices.device import Device
from _core.model.profile import profile
from _core.model.tenants import tenant_admission
from _core.model.tenants.tenant import Member, named
from _core.model.topology import cpu_topology
from _core.model.workload import admission, resource_requirements
from _core.model.workload.admission import AllocationResult, WorkloadStatus
from _core.model.workload.grants import Grant
from _core.model.workload.node_budget import AllocationInput
from _core.model.workload.resource_requirements import ResourceRequirements

NIC = "example.com/nic"
DEVICES, NODES = 1000, 8
COUNTS = (1, 8, 64, 256)
GRANTED, TENANTS = 200, 20
MIB = 1 << 20

CHOOSING = ("devices", "floor ms", "demand ms", "choice ms", "demand/floor", "choice/floor")
ADMITTING = ("what", "without: ms", "with devices and tenants: ms", "with/without")

Row = dict[str, t.Any]


def device(number: int) -> Device:
    """A device on one of the NUMA nodes."""
    name = f"0000:{number // 32:02x}:{number % 32:02x}.0"
    return Device(name, number % NODES, "", (), None, (), (), frozenset({name}), frozenset())


def choosing(turns: int) -> list[list[str]]:
    """Devices of a resource for a container, half of all being free; the demand says on how many nodes they fit."""
    devices = [device(number) for number in range(DEVICES)]
    free = random.Random(DEVICES).sample(devices, DEVICES // 2)
    names = {one.id for one in free}
    found = []
    for count in COUNTS:
        times = bench.by_turns(
            {
                "floor": lambda: sorted([one.id for one in free]),
                "demand": functools.partial(device_allocation.demand, NIC, count, devices, names, range(NODES)),
                "choice": functools.partial(device_allocation.choose, free, count, {0, 1}),
            },
            turns,
        )
        cells = [bench.spread([1e3 * one for one in times[name]], 3) for name in ("floor", "demand", "choice")]
        found.append([str(count), *cells, *(bench.ratio(times[name], times["floor"]) for name in ("demand", "choice"))])
    return found


class Machine:
    """A node of 512 CPUs on 8 NUMA nodes where workloads have grants; with ``more`` they have devices and belong to tenants."""

    def __init__(self, more: bool) -> None:
        self.more = more
        own: Row = {"tenants": [tenant(number) for number in range(TENANTS)]}
        sections: Row = {**own, "devices": [{"name": NIC, "match": {"class": "0200"}}]} if more else {}
        cpu = {"policy": "static", "reserved": {"cores_per_numa": 1}}
        topology = {"policy": "single-numa-node"}
        self.declared = profile.parse({"name": "x", "cpu": cpu, "topology": topology, **sections})
        machine = machines.machine(NODES, 32, 2, memory_kib=64 << 20)
        tables = {node: {"memory": 60 << 30} for node in machine.numa}
        self.inputs = AllocationInput(
            self.declared, machine, cpu_topology.of(machine), pools.compute(self.declared, machine), tables,
            devices={NIC: tuple(map(device, range(DEVICES)))} if more else {},
        )  # fmt: skip
        self.needs = [self.need(number) for number in range(GRANTED + 1)]
        self.held: tuple[Grant, ...] = ()
        self.held = self.admitted(GRANTED).grants

    def need(self, number: int) -> ResourceRequirements:
        """One in ten has two CPUs of its own."""
        amounts: Row = {
            "cpu": "2" if number % 10 == 0 else "500m",
            "memory": "256Mi",
            **({NIC: 2} if self.more else {}),
        }
        row: Row = {"name": f"w{number}", "match": {"unit": f"w{number}.service"}, "requests": amounts}
        row["limits"] = amounts if number % 10 == 0 else {"cpu": "1", "memory": "512Mi"}
        (workload,) = profile.parse_workloads([row])
        member = Member(f"tenant{number % TENANTS}") if self.more else None
        if member:
            owner = named(self.declared.tenants, member.tenant)
            assert owner is not None
            workload, member = tenant_admission.with_tenant(workload, owner, member)
        return resource_requirements.of(workload, "static", None, member)

    def admitted(self, count: int) -> AllocationResult:
        """The first so many of the workloads, where those that have a grant keep it. Raises RuntimeError where one is refused."""
        found = admission.allocate(self.inputs, self.needs[:count], self.held, WorkloadStatus(now=7))
        if found.refusals or len(found.grants) != count:
            raise RuntimeError(f"refused: {found.refusals}")
        return found


def tenant(number: int) -> Row:
    """A tenant with limits of a container and two quotas."""
    units = [f"w{one}.service" for one in range(number, GRANTED + 1, TENANTS)]
    limits = [{"type": "container", "max": {"cpu": "8", "memory": "8Gi"}}]
    quota = [
        {"name": "all", "hard": {"requests.cpu": "100", "limits.memory": "100Gi", "count/workloads": 1000}},
        {"name": "devices", "hard": {f"requests.{NIC}": 200}},
    ]
    return {"name": f"tenant{number}", "members": {"units": units}, "limits": limits, "quota": quota}


def admitting(turns: int) -> list[list[str]]:
    """One workload more than have a grant: all of the allocation, as each start and each tick that finds a change makes it."""
    plain, whole = Machine(more=False), Machine(more=True)
    times = bench.by_turns(
        {
            "without": lambda: plain.admitted(GRANTED + 1),
            "with": lambda: whole.admitted(GRANTED + 1),
        },
        turns,
    )
    return [
        [
            f"{GRANTED} grants and one workload more",
            *(bench.spread([1e3 * one for one in times[name]], 2) for name in ("without", "with")),
            bench.ratio(times["with"], times["without"]),
        ]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=51, help="how often everything is run (default: 51)")
    turns = parser.parse_args().turns
    bench.header("make bench-devices")
    bench.say(bench.table(CHOOSING, choosing(turns)))
    bench.say(bench.table(ADMITTING, admitting(turns)))
    bench.footer()


if __name__ == "__main__":
    main()
