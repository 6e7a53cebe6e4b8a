# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each kind of step has its rows in the tables, is observed, performed, undone and, where there is an original, recorded and restored."""

from __future__ import annotations

import json
import typing as t

import node
import pytest
from _core.host.agent import node_hooks
from _core.host.files import Host
from _core.host.plan import apply_step
from _core.model.plan import make_step, undo
from _core.model.plan.plan import CPUS, FILES, LIVE, START, STOP, VALUES, Step
from _core.model.values.vocabulary import StepKind
from fake_pci import PCI
from test_drivers_bound import THIRD, equip

Make = t.Callable[..., node.Node]
KINDS: tuple[StepKind, ...] = t.get_args(StepKind)
SLICE, MOUNT, PROGRAM = "corral_x.slice", "mnt-x.mount", "/usr/libexec/corral/releases/x"
# Kinds of which a target holds no state: nothing is recorded, and observing tells nothing.
STATELESS = ("folder", "hook", "health")
EXAMPLES: dict[StepKind, Step] = {
    "file": make_step.file("/etc/x/y.conf", "text\n", FILES),
    "link": make_step.link("/etc/systemd/system/x.service", "/dev/null", FILES),
    "folder": make_step.folder("/etc/empty", FILES),
    "value": make_step.value("/proc/sys/kernel/pid_max", "100000", VALUES),
    "pool": make_step.pool("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "4", VALUES),
    "partition": make_step.partition(f"/sys/fs/cgroup/{SLICE}/cpuset.cpus.partition", "root", CPUS),
    "cpuset": make_step.cpuset("/sys/fs/cgroup/cpuset/corral.slice", "corral.slice", "1-3", CPUS),
    "property": make_step.unit_property("system.slice", "TasksMax", "1000", LIVE),
    "controller": make_step.controller("/sys/fs/cgroup/cgroup.subtree_control", "hugetlb", "+", VALUES),
    "unit": make_step.unit("corral_y.slice", "start", CPUS),
    "mount": make_step.mount(MOUNT, "/mnt/x", "start", START),
    "compile": make_step.program(PROGRAM, "x.py", "/usr/bin/python3", STOP),
    "hook": make_step.hook("/usr/local/bin/drain", "drain", STOP),
    "health": make_step.health("kubelet.service", "127.0.0.1:10248", START),
    "driver": make_step.driver(f"/{PCI}/{THIRD}", "vfio-pci", LIVE),
}


def test_each_table_has_each_kind_once() -> None:
    assert list(undo.KINDS) == list(apply_step.PERFORM) == list(EXAMPLES) == list(KINDS)


def prepared(make: Make, kind: StepKind) -> Host:
    """A node on which the example of a kind has something to do."""
    fake = make(legacy=kind == "cpuset")
    if kind == "driver":
        equip(fake)
    host = fake.host()
    host.make_dir("/etc/empty")
    host.write_file(f"{PROGRAM}/x.py", "")
    host.write_file(f"/etc/systemd/system/{MOUNT}", "[Mount]\nWhere=/mnt/x\nType=hugetlbfs\nOptions=pagesize=2M\n")
    for unit in ("", SLICE):
        apply_step.perform(host, make_step.unit(unit, "start" if unit else "daemon-reload", CPUS))
    if kind == "partition":
        apply_step.perform(host, make_step.unit_property(SLICE, "AllowedCPUs", "3,7", CPUS))
    return host


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_observed_performed_and_undone(kind: StepKind, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    host, step = prepared(make, kind), EXAMPLES[kind]
    asked: list[t.Optional[str]] = []
    monkeypatch.setattr(node_hooks, "refused", lambda dummy, step: asked.append(step.value) or "")
    before = apply_step.observe(host, step)
    assert (before.kind, before.target) == (kind, step.target)
    apply_step.perform(host, step)
    assert host.is_dir("/etc/empty") == (kind != "folder")
    assert host.is_dir(f"{PROGRAM}/__pycache__") == (kind == "compile")
    assert (apply_step.observe(host, step) == before) == (kind in (*STATELESS, "compile"))
    for back in undo.inverse(before, step, "0-7"):
        apply_step.perform(host, back)
    assert apply_step.observe(host, step) == before
    assert not host.is_dir(f"{PROGRAM}/__pycache__")
    assert asked == {"hook": ["drain", "resume"], "health": [step.value]}.get(kind, [])


@pytest.mark.parametrize("kind", KINDS)
def test_an_original_is_kept_and_restored(kind: StepKind, make: Make) -> None:
    host, step = prepared(make, kind), EXAMPLES[kind]
    before = apply_step.observe(host, step)
    assert undo.from_data(json.loads(json.dumps(before._asdict()))) == before
    steps = undo.restore_recorded(before, "0-7")
    assert bool(steps) == (kind not in STATELESS)
    assert all(back.target in (step.target, before.location, *before.made) or kind == "compile" for back in steps)
