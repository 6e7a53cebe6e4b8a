# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of others that say what the profile says already: no file of Corral's beside them; another value is named."""

from __future__ import annotations

import typing as t

import node
import pytest
import runs
from _core.model.plan.plan import Change
from _core.pipeline import planning

Make = t.Callable[..., node.Node]
SYSTEM = "/etc/systemd/system"
OURS = "/etc/sysctl.d/90-corral.conf"
MOUNT = "/dev/hugepages-2Mi"
BOTH = "kernel.pid_max = 65536\nkernel/threads-max=16384\n"
UNIT = f"[Mount]\nWhat=hugetlbfs\nWhere={MOUNT}\nType=hugetlbfs\nOptions=nosuid,size=64M,pagesize=2M,mode=0770\n"
FSTAB = "/run/systemd/generator/dev-hugepages\\x2d2Mi.mount"


class Case(t.NamedTuple):
    """A file of somebody else, the file of Corral's that it may replace, and whether it does."""

    path: str
    text: str
    ours: str
    replaces: bool


CPU_DROPIN, PIDS_DROPIN = (f"{SYSTEM}/system.slice.d/10-corral-{name}.conf" for name in ("cpu", "pids"))
CASES = {
    "sysctl": Case("/etc/sysctl.d/10-mine.conf", BOTH, OURS, True),
    "sysctl, later": Case("/usr/local/lib/sysctl.d/99-mine.conf", BOTH, OURS, True),
    "sysctl, half of it": Case("/etc/sysctl.d/10-mine.conf", "kernel.pid_max = 65536\n", OURS, False),
    "sysctl, until the next boot": Case("/run/sysctl.d/10-mine.conf", BOTH, OURS, False),
    "sysctl, another value": Case("/etc/sysctl.d/10-mine.conf", BOTH.replace("6384", "6385"), OURS, False),
    "CPUs": Case(f"{SYSTEM}/system.slice.d/20-mine.conf", "[Slice]\nAllowedCPUs=0,2\nAllowedCPUs=6 4\n", CPU_DROPIN, True),
    "CPUs, before": Case(f"{SYSTEM}/system.slice.d/00.conf", "[Slice]\nAllowedCPUs=0,2,4,6\n", CPU_DROPIN, True),
    "CPUs, until the next boot": Case(
        "/run/systemd/system/system.slice.d/20-mine.conf", "[Slice]\nAllowedCPUs=0,2,4,6\n", CPU_DROPIN, False
    ),
    "CPUs, fewer": Case(f"{SYSTEM}/system.slice.d/05-mine.conf", "[Slice]\nAllowedCPUs=0,2\n", CPU_DROPIN, False),
    "CPUs by set-property": Case(
        "/etc/systemd/system.control/system.slice.d/50-AllowedCPUs.conf", "[Slice]\nAllowedCPUs=0,2,4,6\n",
        CPU_DROPIN, True,
    ),
    "TasksMax": Case(f"{SYSTEM}/system.slice.d/20-mine.conf", "[Slice]\nTasksMax=5\nTasksMax=3000\n", PIDS_DROPIN, True),
    "TasksMax, reset": Case(f"{SYSTEM}/system.slice.d/05-mine.conf", "[Slice]\nTasksMax=3000\nTasksMax=\n", PIDS_DROPIN, False),
    "default TasksMax": Case(
        "/etc/systemd/system.conf", "[Manager]\nDefaultTasksMax=900\n", "/etc/systemd/system.conf.d/10-corral.conf", True
    ),
    "mount unit": Case(f"{SYSTEM}/dev-hugepages\\x2d2Mi.mount", UNIT, f"{SYSTEM}/dev-hugepages\\x2d2Mi.mount", True),
    "mount of the fstab": Case(FSTAB, UNIT, f"{SYSTEM}/dev-hugepages\\x2d2Mi.mount", True),
    "mount unit, another size": Case(
        f"{SYSTEM}/dev-hugepages\\x2d2Mi.mount", UNIT.replace("64M", "32M"), f"{SYSTEM}/dev-hugepages\\x2d2Mi.mount", False
    ),
}  # fmt: skip


def pids(**more: t.Any) -> dict[str, t.Any]:
    return {
        **node.edge()["pids"],
        "slices": {"system.slice": 3000, "machine.slice": 4096},
        "default_tasks_max": 900,
        **more,
    }


def planned(fake: node.Node) -> tuple[Change, ...]:
    host = fake.host()
    context = planning.compile_profile(host, node.parsed(pids=pids()), fresh=True)
    return planning.plan_profile(host, context).changes


@pytest.mark.parametrize("name", CASES)
def test_what_others_files_say_already_needs_no_file_of_corrals(name: str, fake: node.Node) -> None:
    case = CASES[name]
    fake.put(case.path, case.text)
    written = {step.target for change in planned(fake) for step in change.steps if step.kind == "file"}
    assert (case.ours not in written) == case.replaces
    outcome = runs.declare(fake.host(), pids=pids())
    assert (outcome.error, outcome.remaining) == ("", ())
    assert (fake.has(case.ours) and fake.get(case.ours).startswith("# Corral")) != case.replaces
    assert runs.plan(fake.host()) == ()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.replaces])
def test_without_the_others_file_it_is_drift_and_mended(name: str, fake: node.Node) -> None:
    case = CASES[name]
    fake.put(case.path, case.text)
    runs.declare(fake.host(), pids=pids())
    fake.drop(case.path)
    (item,) = runs.plan(fake.host())
    assert (item.subject, item.actual, item.verdict) == (case.ours, None, "drift")
    runs.tick(fake.host(), by_timer=False)
    assert runs.plan(fake.host()) == ()


@pytest.mark.parametrize("name", [name for name in CASES if name != "mount unit, another size"])
def test_removal_leaves_the_others_file_and_what_it_gave(name: str, fake: node.Node) -> None:
    case = CASES[name]
    fake.put(case.path, case.text)
    fake.systemctl("daemon-reload")
    if "mount" in name:
        fake.systemctl("start", "dev-hugepages\\x2d2Mi.mount")
    before = fake.fingerprint()
    runs.declare(fake.host(), pids=pids())
    fake.systemctl("set-property", "--runtime", "system.slice", "AllowedCPUs=0")
    fake.systemctl("set-property", "--runtime", "system.slice", "TasksMax=7")
    fake.systemd.unmount(MOUNT)
    runs.tick(fake.host(), by_timer=False)
    assert runs.remove(fake.host()).leftovers == ()
    after = fake.fingerprint()
    # system.slice keeps its set-property and by that its sibling's cpuset, which requests all CPUs from then on (systemd#43846).
    siblings = [f"sys/fs/cgroup/{unit}/cpuset.cpus" for unit in ("init.scope", "user.slice")]
    for path in siblings if name == "CPUs by set-property" else ():
        assert fake.get(f"/{path}").strip() in ("", "0-7")
        before[path] = after[path]
    assert node.different(before, after) == []


def test_who_would_win_over_a_new_file_is_named_in_the_first_plan(fake: node.Node) -> None:
    culprit = f"{SYSTEM}/user.slice.d/20-mine.conf"
    fake.put(culprit, "[Slice]\nAllowedCPUs=0-7\nTasksMax=77\n")
    fake.put(f"{SYSTEM}/user.slice.d/05-early.conf", "[Slice]\nAllowedCPUs=1\n")
    limits = pids(slices={"user.slice": 3000, "machine.slice": 4096})
    context = planning.compile_profile(fake.host(), node.parsed(pids=limits), fresh=True)

    def named(changes: t.Iterable[Change]) -> set[tuple[str, ...]]:
        return {
            (row.subject, row.property, str(row.actual), row.location)
            for row in changes
            if row.verdict == "unchangeable"
        }

    first = named(planning.plan_profile(fake.host(), context).changes)
    assert first == {
        ("user.slice", "AllowedCPUs at the next reload", "0-7", culprit),
        ("user.slice", "TasksMax at the next reload", "77", culprit),
    }
    assert named(runs.declare(fake.host(), pids=limits).remaining) == first


def test_a_pools_own_slice_has_its_file_whatever_others_say(fake: node.Node) -> None:
    fake.put(f"{SYSTEM}/corral.slice.d/20-mine.conf", "[Slice]\nAllowedCPUs=1,5\n")
    runs.converged(fake)
    assert fake.has(f"{SYSTEM}/corral.slice.d/10-corral-cpu.conf")
