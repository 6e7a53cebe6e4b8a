# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Made-up nodes in sync for the benchmark of the tick: a folder with kernel files, systemd's files and workloads."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import subprocess
import typing as t
from pathlib import Path

import bench
import fake_kubelet
import node
import runs
import services
import trees
from _core.host import state
from _core.host.plan import apply_step
from _core.model.plan.plan import steps_in_order
from _core.model.profile import profile
from _core.model.systemd.unit_property import DEVICE_ALLOW
from _core.pipeline import applying, planning, recording_originals

# 256 CPUs, 512 GiB.
LARGE = trees.Machine(sockets=2, cores=64, threads=2, memory_kib=256 << 20)
PIDS = {"pid_max": 4194304, "threads_max": 1048576, "reserved": 4096, "per_workload": 1024}
NIC = "example.com/nic"
Workload = dict[str, t.Any]


def make(
    folder: Path,
    python: str,
    workloads: int,
    devices: int = 0,
    tenants: int = 0,
    *,
    kubelet: t.Optional[dict[str, t.Any]] = None,
    beside: bool = False,
) -> tuple[str, str]:
    """A node in sync, and this checkout's core compiled as on a node: (program, root).

    Without workloads it is the lab's machine with examples/edge.yml, with some it is a large one. So many of the workloads
    without CPUs of their own have a device each, and so many tenants have all of these.
    ``beside``: a kubelet runs there, which the profile configures where it has the section ``kubelet``.
    """
    program, machine, root = (folder / name for name in ("program", "machine", "root"))
    trees.build(machine, LARGE if workloads else node.MACHINE)
    fake = node.Node(root, machine)
    if beside:
        fake_kubelet.install(fake)
    if workloads:
        populate(fake, workloads, devices, tenants)
    else:
        runs.converged(fake, with_agent=True)
        if kubelet is not None:
            assert not runs.declare(fake.host(), kubelet=kubelet).error
    for second in range(2):  # What the first one changed, the second one finds in sync.
        fake.wait(second)
        with contextlib.redirect_stderr(io.StringIO()):  # It says to the journal what it changed.
            code = runs.tick(fake.host())
    if code != 0 or runs.plan(fake.host()):
        raise RuntimeError(f"the made-up node is not in sync: {state.read_json(fake.host(), state.STATUS)}")
    shutil.copytree(bench.CHECKOUT / "plugins/module_utils/_core", program / "_core")
    subprocess.run([python, "-I", "-m", "compileall", "-q", str(program)], check=True)
    return str(program), str(root)


def populate(fake: node.Node, count: int, devices: int, tenants: int) -> None:
    """Roll out so many workloads, and start them: in five of six cases Burstable ones on the shared pool.

    The others have two CPUs of their own each, at most 60 of them: two thirds as declared, one third while they run.
    """
    own = min(count // 6, 60)
    running, declared, burstable = own // 3, own - own // 3, count - own
    fake.systemd.online = fake.systemd.possible = frozenset(range(trees.possible(LARGE)))
    fake.systemd.sync()
    services.add(fake, "lane@.service", *(f"{kind}{n}.service" for kind, n in names(declared, burstable)))
    lanes = {"name": "lane", "match": {"unit": "lane@*.service"}, "hold": "running", **claim("2", "512Mi")}
    assert not runs.install(fake.host()).error
    outcome = applying.declare(fake.host(), parsed([lanes]))
    assert not outcome.error, outcome.error
    with contextlib.redirect_stdout(io.StringIO()):  # ``corral admit`` says what it granted.
        for number in range(running):
            assert services.start(fake, f"lane@{number}.service"), fake.said
    declared_rows = [
        {"name": f"plane{n}", "match": {"unit": f"plane{n}.service"}, **claim("2", "1Gi")} for n in range(declared)
    ]
    declared_rows += [
        {
            "name": f"app{n}",
            "match": {"unit": f"app{n}.service"},
            "requests": {"cpu": "100m", "memory": "128Mi", **({NIC: 1} if n < devices else {})},
            "limits": {"cpu": "500m", "memory": "256Mi"},
        }
        for n in range(burstable)
    ]
    if devices:
        device_file(fake, "/dev/vfio/vfio", 10, 196)
    for number in range(devices):
        plug(fake, number)
    more: dict[str, t.Any] = {"devices": [{"name": NIC, "match": {"class": "0200"}}]} if devices else {}
    if tenants:
        more["tenants"] = [tenant(number, range(number, burstable, tenants)) for number in range(tenants)]
    units = [f"{kind}{n}.service" for kind, n in names(declared, burstable)]
    roll_out(fake, parsed([lanes, *declared_rows], **more), units)


def plug(fake: node.Node, number: int) -> None:
    """A network card on one of the two NUMA nodes. Half of them are VFIO's and have a device file."""
    folder = f"/sys/bus/pci/devices/0000:{number // 32:02x}:{number % 32:02x}.0"
    rows = {"vendor": "0x8086", "device": "0x1592", "class": "0x020000", "numa_node": str(number % 2)}
    for name, text in rows.items():
        fake.put(f"{folder}/{name}", f"{text}\n")
    driver = "vfio-pci" if number % 4 < 2 else "ice"
    (fake.root / folder[1:] / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    if driver == "vfio-pci":
        (fake.root / folder[1:] / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{number}")
        device_file(fake, f"/dev/vfio/{number}", 240, number)


def device_file(fake: node.Node, path: str, major: int, minor: int) -> None:
    """A device file that the tick on a folder takes for one: root alone makes it, and nothing opens it."""
    file = fake.root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(file, stat.S_IFCHR | 0o600, os.makedev(major, minor))


def tenant(number: int, apps: t.Iterable[int]) -> Workload:
    """A tenant of these workloads, with a quota that they stay within."""
    quota = {"requests.cpu": "100", "limits.memory": "100Gi", "count/workloads": 1000}
    units = [f"app{one}.service" for one in apps]
    return {"name": f"tenant{number}", "members": {"units": units}, "quota": [{"name": "all", "hard": quota}]}


def names(declared: int, burstable: int) -> list[tuple[str, int]]:
    """The units' names, but those of the instances that hold what they have while they run."""
    return [("plane", n) for n in range(declared)] + [("app", n) for n in range(burstable)]


def claim(cpu: str, memory: str) -> Workload:
    """Requests that equal the limits."""
    amounts = {"cpu": cpu, "memory": memory}
    return {"requests": amounts, "limits": amounts}


def parsed(workloads: list[Workload], **more: t.Any) -> profile.Profile:
    """The profile of a large node."""
    cpu = {"reserved": {"cores_per_numa": 1}, "policy": "static", "options": {"full-pcpus-only": True}}
    memory = {"policy": "static", "reserved": {"0": "1Gi", "1": "1Gi"}}
    topology = {"policy": "single-numa-node"}
    return node.parsed(cpu=cpu, memory=memory, topology=topology, pids=PIDS, workloads=workloads, **more)


def roll_out(fake: node.Node, declared: profile.Profile, units: list[str]) -> None:
    """Make a profile true and start services. The made-up kernel shows its files at the end alone: each time is slow."""
    host = fake.host()
    context = planning.compile_profile(host, declared, fresh=True)
    plan = planning.plan_profile(host, context, declare=True)
    kept = state.records(host)[0]
    state.save_records(host, [*kept, *recording_originals.new_records(host, plan, kept)])
    systemd = fake.systemd
    show = systemd.sync
    systemd.sync = lambda: None  # type: ignore[method-assign]
    for step in steps_in_order(plan.changes):
        if step.kind == "property" and step.name != DEVICE_ALLOW:
            fake.systemctl("set-property", "--runtime", step.target, step.text or "")
        else:
            apply_step.perform(host, step)
    for unit in units:
        services.begin(fake, unit)
    systemd.sync = show  # type: ignore[method-assign]
    systemd.sync()
    state.record_profile(host, profile.to_data(declared))
    applying.write_effective_profile(host, context)
