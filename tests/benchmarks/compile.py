# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long it takes to compile a profile for a machine, against reading the machine's files and no more.

On every recorded machine, and on made-up ones up to 1,024 CPUs and 64 NUMA nodes. Each is taken for a node with systemd
and cgroup v2 on which Corral never was, so the plan holds every change that a first run makes.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import stat
import tarfile
import tempfile
import time
import typing as t
from pathlib import Path

import bench
import trees
from _core.host.files import Host
from _core.host.topology import sysfs
from _core.managers import registry
from _core.model.cpu import pools
from _core.model.plan import validate
from _core.model.plan.context import Context
from _core.model.plan.plan import steps_in_order
from _core.model.profile import capacity_check, profile
from _core.model.topology.topology import Topology
from _core.model.values import cpuset
from _core.model.values.errors import CorralError
from _core.pipeline import overlap_check, planning

RECORDED = Path(os.environ.get("CORRAL_TOPOLOGIES") or bench.CHECKOUT / "../shared/topologies")
OWN = bench.CHECKOUT / "tests"  # snapshots of the lab's nodes
HEAD = ("machine", "CPUs", "nodes", "files", "floor ms", "discover ms", "pools ms", "plan ms", "all ms", "all/floor")
GROWTH = (*HEAD[1:4], "floor ms", "all ms", "all/floor", "µs/CPU", "exponent")

# (CPUs, NUMA nodes, sockets), two threads a core: first the CPUs grow, then the nodes.
MORE_CPUS = ((64, 2, 2), (128, 2, 2), (256, 2, 2), (512, 2, 2), (1024, 2, 2))
MORE_NODES = ((1024, 1, 1), (1024, 4, 2), (1024, 16, 4), (1024, 64, 8))


class Result(t.NamedTuple):
    """One machine: its size, the files that were read, and the times of each work in seconds."""

    cpus: int
    nodes: int
    files: int
    times: dict[str, bench.Seconds]

    def ms(self, work: str) -> str:
        times = self.times.get(work)
        return "-" if times is None else f"{bench.median(times) * 1000:.2f}"

    def over_floor(self) -> str:
        return bench.ratio(self.times.get("all") or self.times["discover"], self.times["floor"])


def as_node(root: Path) -> None:
    """Make a recorded or made-up tree a node on which systemd runs."""
    (root / "run/systemd/system").mkdir(parents=True, exist_ok=True)
    files = {
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids",
        "proc/1/mountinfo": "22 1 0:20 / /sys rw,nosuid - sysfs sysfs rw",
        "proc/sys/kernel/pid_max": "4194304",
        "proc/sys/kernel/threads-max": "4194304",
    }
    online = cpuset.format(sysfs.discover(Host(str(root))).online)
    files.update(
        {f"sys/fs/cgroup/{unit}cpuset.cpus.effective": online for unit in ("", "system.slice/", "user.slice/")}
    )
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n")


def wanted(topology: Topology) -> t.Iterator[dict[str, t.Any]]:
    """Profiles for a machine, the richest first: pools of CPUs, hugepages on every node that has them, PID limits."""
    pids = {"pid_max": 65536, "threads_max": 65536, "reserved": 4096, "slices": {"machine.slice": 4096}}
    pages = [
        {"size": f"{min(node.hugepages)}Ki", "count": 4, "node": node.id}
        for node in topology.numa.values()
        if node.hugepages and node.memory_kib
    ]
    memory = {"hugepages": pages} if pages else {}
    for cpu in (
        {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 1}, "whole_cores": True},
        {"reserved": {"count": 1}},
    ):
        yield {"name": "bench", "cpu": cpu, "memory": memory, "pids": pids}
        yield {"name": "bench", "cpu": cpu, "pids": pids}


def fitting(host: Host) -> dict[str, t.Any] | None:
    """The richest profile that this machine can have; None when it can have none (a single CPU)."""
    for data in wanted(sysfs.discover(host)):
        try:
            compiled(host, data)
        except CorralError:
            continue
        return data
    return None


def compiled(host: Host, data: dict[str, t.Any]) -> None:
    """The whole of it: the profile parsed, the machine discovered, the pools made, the plan made and validated."""
    plan_of(host, planning.compile_profile(host, profile.parse(data)))


def plan_of(host: Host, context: Context) -> None:
    """What differs from the profile, in the order of its steps, looked over by the validator."""
    plan = planning.plan_profile(host, context, declare=True)
    steps = steps_in_order(plan.changes)
    problems = validate.problems(plan.changes, context.topology, registry.writes(plan.changes))
    problems += overlap_check.overlaps(host, plan, steps)
    if problems:
        raise CorralError(*problems)


def pools_of(declared: profile.Profile, topology: Topology) -> None:
    """Whether the profile fits the machine, and its pools."""
    capacity_check.check_node(declared, topology)
    pools.compute(declared, topology)


def read_all(paths: t.Sequence[str]) -> None:
    """The floor: open, read and close each file once."""
    for path in paths:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.read(file, 65536)
        os.close(file)


def measure(root: Path, turns: int) -> Result:
    """Compile a profile for the machine at ``root``."""
    as_node(root)
    recorder = Host(str(root), record=True)
    data = fitting(recorder)
    paths = [recorder.at(path) for path in sorted(recorder.seen or ())]
    paths = [path for path in paths if os.path.exists(path) and stat.S_ISREG(os.stat(path).st_mode)]
    host = Host(str(root))
    works: dict[str, t.Callable[[], object]] = {
        "floor": functools.partial(read_all, paths),
        "discover": functools.partial(sysfs.discover, host),
    }
    if data is not None:
        declared = profile.parse(data)
        context = planning.compile_profile(host, declared)
        works["pools"] = functools.partial(pools_of, declared, context.topology)
        works["plan"] = functools.partial(plan_of, host, context)
        works["all"] = functools.partial(compiled, host, data)
    times = bench.by_turns(works, turns, time.process_time)
    topology = sysfs.discover(host)
    return Result(len(topology.online), len(topology.node_cpus()), len(paths), times)


def recorded(folder: str, turns: int) -> list[tuple[str, Result]]:
    """Every recorded machine, those of the repository included, the smallest first."""
    archives = sorted([*RECORDED.glob("*.tar.gz"), *OWN.rglob("*.tar.gz")])
    if not RECORDED.is_dir():
        bench.progress(f"no {RECORDED}: point CORRAL_TOPOLOGIES at recorded machines")
    results = []
    for archive in archives:
        name = archive.name[: -len(".tar.gz")]
        bench.progress(name)
        place = Path(folder, name)
        with tarfile.open(archive) as members:
            members.extraction_filter = getattr(tarfile, "data_filter", None)
            members.extractall(place)
        results.append((name, measure(next(place.iterdir()), turns)))
    return sorted(results, key=lambda one: (one[1].cpus, one[1].files))


def made_up(folder: str, sizes: t.Iterable[tuple[int, int, int]], turns: int) -> list[Result]:
    """Machines of these sizes."""
    results = []
    for cpus, nodes, sockets in sizes:
        bench.progress(f"{cpus} CPUs, {nodes} nodes")
        with tempfile.TemporaryDirectory(dir=folder) as place:
            trees.build(
                Path(place),
                trees.Machine(sockets=sockets, nodes=nodes // sockets, cores=cpus // nodes // 2, memory_kib=16 << 20),
            )
            results.append(measure(Path(place), turns))
    return results


def growth(results: t.Sequence[Result], size: t.Callable[[Result], int]) -> list[tuple[object, ...]]:
    """Rows with the exponent from one size to the next: 1 is linear, 2 quadratic, 0 does not matter."""
    rows: list[tuple[object, ...]] = []
    before: Result | None = None
    for one in results:
        whole = bench.median(one.times["all"])
        exponent = "-"
        if before is not None:
            steps = math.log(size(one) / size(before))
            exponent = f"{math.log(whole / bench.median(before.times['all'])) / steps:.2f}"
        figures = (one.ms("floor"), one.ms("all"), one.over_floor(), f"{whole / one.cpus * 1e6:.0f}", exponent)
        rows.append((one.cpus, one.nodes, one.files, *figures))
        before = one
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=9, help="how often everything is run (default: 9)")
    turns = parser.parse_args().turns
    bench.header("make bench-compile")
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(prefix="corral-", dir=memory if os.access(memory, os.W_OK) else None) as folder:
        rows = [
            (name, one.cpus, one.nodes, one.files, *(one.ms(work) for work in ("floor", "discover", "pools", "plan", "all")),
             one.over_floor())
            for name, one in recorded(folder, turns)
        ]  # fmt: skip
        bench.say(bench.table(HEAD, rows))
        bench.say("More CPUs:\n")
        bench.say(bench.table(GROWTH, growth(made_up(folder, MORE_CPUS, turns), lambda one: one.cpus)))
        bench.say("More NUMA nodes:\n")
        bench.say(bench.table(GROWTH, growth(made_up(folder, MORE_NODES, turns), lambda one: one.nodes)))
    bench.footer()


if __name__ == "__main__":
    main()
