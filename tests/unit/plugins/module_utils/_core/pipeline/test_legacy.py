# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with cgroup v1: what is another way there, and the tests of v2 that hold as they are."""

from __future__ import annotations

import errno
import json
import os
import typing as t

import node
import pytest
import runs
import test_faults
import test_rollout
from _core.host import cgroup
from _core.host.plan import apply_step
from _core.managers import registry
from _core.managers.cpu import cpu
from _core.model.plan import validate
from _core.model.plan.plan import RELEASE, Plan, Step, steps_in_order
from _core.model.values.errors import CorralError
from _core.pipeline import applying, overlap_check, planning
from fake_legacy import LegacySystemd
from test_rollout import CIRCLE, NO_ISOLATED, OTHER_CORE, SWAPPED

Make = t.Callable[..., node.Node]
ROOT = "/sys/fs/cgroup/cpuset"
SHARED, ISOLATED = f"{ROOT}/corral.slice", f"{ROOT}/corral_isolated.slice"
ONLINE = frozenset(range(8))

# Collected once more, with the fixtures of this file.
test_a_death_at_any_write_is_made_good_by_the_next_run = (
    test_faults.test_a_death_at_any_write_is_made_good_by_the_next_run
)
test_a_removal_right_after_a_death_restores_everything = (
    test_faults.test_a_removal_right_after_a_death_restores_everything
)
test_an_error_at_any_write_is_undone_and_the_next_run_converges = (
    test_faults.test_an_error_at_any_write_is_undone_and_the_next_run_converges
)
test_a_converged_tick_writes_its_status_alone_and_starts_no_process = (
    test_rollout.test_a_converged_tick_writes_its_status_alone_and_starts_no_process
)
test_a_second_run_writes_nothing_and_asks_nobody = test_rollout.test_a_second_run_writes_nothing_and_asks_nobody
test_check_mode_writes_nothing_and_foretells_the_run = test_rollout.test_check_mode_writes_nothing_and_foretells_the_run
test_removal_restores_a_fresh_node = test_rollout.test_removal_restores_a_fresh_node


@pytest.fixture
def make(make: Make) -> Make:
    """Makes nodes with cgroup v1."""
    return lambda **options: make(legacy=True, **options)


@pytest.fixture
def fake(make: Make) -> node.Node:
    return make()


def kernel(fake: node.Node) -> LegacySystemd:
    assert isinstance(fake.systemd, LegacySystemd)
    return fake.systemd


def start(fake: node.Node, unit: str, count: int = 1) -> None:
    """Processes that systemd starts in a slice."""
    fake.systemctl("start", unit)
    fake.systemd.occupy(unit, count)


def drift(fake: node.Node) -> list[tuple[str, str, str | None, str | None, str]]:
    return [(item.subject, item.property, item.actual, item.wanted, item.location) for item in runs.plan(fake.host())]


def test_the_example_profile_becomes_the_node(fake: node.Node) -> None:
    fake.systemd.empty_too = True
    outcome = runs.declare(fake.host())
    assert (outcome.error, outcome.remaining, fake.overlaps) == ("", (), [])
    for unit in ("init.scope", "system.slice", "user.slice"):
        assert fake.cpus(unit) == node.RESERVED
        assert (fake.get(f"{ROOT}/{unit}/cpuset.cpus"), fake.get(f"{ROOT}/{unit}/cpuset.mems")) == (
            "0,2,4,6\n",
            "0-1\n",
        )
        assert len(fake.get(f"{ROOT}/{unit}/cgroup.procs").split()) == 3
    shown = {unit: fake.get(f"{ROOT}/{unit}/cpuset.cpus") for unit in ("machine.slice", "corral.slice")}
    assert shown == {"machine.slice": "1,5\n", "corral.slice": "1,5\n"}
    assert (fake.get(f"{SHARED}/cpuset.cpus"), fake.get(f"{ISOLATED}/cpuset.cpus")) == ("1,5\n", "3,7\n")
    assert fake.get(f"{ROOT}/cgroup.procs") == "2\n", "kernel threads stay"
    files = [path for path in fake.fingerprint() if "10-corral-cpu" in path]
    assert files == [], "a drop-in would say what is not so"


def test_the_limit_of_tasks_is_read_in_its_own_hierarchy(fake: node.Node) -> None:
    runs.converged(fake)
    start(fake, "corral.slice")
    assert fake.get("/sys/fs/cgroup/pids/corral.slice/pids.max") == "4096\n"
    runs.tick(fake.host())
    fake.systemctl("set-property", "--runtime", "corral.slice", "TasksMax=77")
    assert drift(fake) == [
        ("corral.slice", "TasksMax", "77", "4096", "/sys/fs/cgroup/pids/corral.slice/pids.max")
    ]  # fmt: skip
    assert runs.tick(fake.host()) == 2
    assert fake.get("/sys/fs/cgroup/pids/corral.slice/pids.max") == "4096\n"


def test_a_process_that_ends_is_no_drift_and_stops_no_hand_over(fake: node.Node) -> None:
    """It shows as one in the root of the hierarchy, which has all CPUs."""
    runs.converged(fake)
    start(fake, "system.slice", 3)
    runs.tick(fake.host())
    assert drift(fake) == []
    one = next(pid for pid, process in kernel(fake).processes.items() if process.unit == "system.slice")
    kernel(fake).ending.add(one)
    kernel(fake).sync()
    assert drift(fake) == []
    outcome = runs.declare(fake.host(), cpu={"reserved": {"cores_per_numa": 1}, "isolated": {"cpus": "1,5"}})
    assert (outcome.error, outcome.remaining) == ("", ())


def test_a_set_property_of_allowed_cpus_is_no_drift(fake: node.Node) -> None:
    runs.converged(fake)
    fake.systemctl("set-property", "--runtime", "system.slice", "AllowedCPUs=0")
    assert drift(fake) == []


TAMPERED = {
    "a write": (lambda kernel: kernel.tamper("system.slice", "0-7"), {"system.slice": "0-7"}),
    "a smaller write": (lambda kernel: kernel.tamper("corral.slice", "5"), {"corral.slice": "5"}),
    "a CPU off and on": (
        lambda kernel: kernel.off_and_on(7),
        {"corral_isolated.slice": "3"},
    ),
    "all CPUs of a pool off and on": (
        lambda kernel: kernel.off_and_on(1, 5),
        {"machine.slice": "none", "corral.slice": "none"},
    ),
    "both": (
        lambda kernel: (kernel.off_and_on(0, 3), kernel.tamper("user.slice", "7")),
        {**dict.fromkeys(("init.scope", "system.slice", "corralagent.slice"), "2,4,6"), "user.slice": "7", "corral_isolated.slice": "7"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_one_item_for_each_directory_and_one_tick_mends_it(name: str, fake: node.Node) -> None:
    runs.converged(fake, with_agent=True)
    start(fake, "corral.slice", 2)
    start(fake, "corral_isolated.slice", 1)
    runs.tick(fake.host(), by_timer=False)
    before = fake.fingerprint("run/corral")
    do, found = TAMPERED[name]
    with fake.by_hand():
        do(kernel(fake))
    seen = {subject: actual for subject, property, actual, *rest in drift(fake) if property == "cpuset.cpus"}
    assert (seen, len(drift(fake))) == (found, len(found))
    fake.systemd.empty_too = True
    assert runs.tick(fake.host(), by_timer=False) == 2
    assert drift(fake) == []
    if "off" not in name and name != "both":  # Those were there before the tick, and it ends them.
        assert node.different(before, fake.fingerprint("run/corral")) == []
    assert not kernel(fake).overlaps()


def test_what_systemd_starts_begins_on_reserved_cpus_and_one_tick_moves_it(fake: node.Node) -> None:
    runs.converged(fake, with_agent=True)
    for dummy in range(2):  # The second finds all that the first was told unchanged.
        fake.time += 1
        assert runs.tick(fake.host()) == 0
    assert fake.has("/run/corral/inputs")
    fake.systemd.empty_too = True
    start(fake, "corral_isolated.slice")
    start(fake, "machine.slice", 2)
    assert (fake.cpus("corral_isolated.slice"), fake.cpus("machine.slice")) == (node.RESERVED, node.RESERVED)
    assert drift(fake) == [
        ("machine.slice", "placement", "2 processes on 0,2,4,6", "all on 1,5", f"{ROOT}/machine.slice/cgroup.procs"),
        ("corral_isolated.slice", "placement", "1 process on 0,2,4,6", "all on 3,7", f"{ISOLATED}/cgroup.procs"),
    ]
    assert runs.tick(fake.host()) == 2
    assert (fake.cpus("corral_isolated.slice"), fake.cpus("machine.slice")) == (node.ISOLATED_CPUS, node.SHARED)
    assert (drift(fake), fake.overlaps) == ([], [])


def test_what_starts_in_a_reserved_slice_is_right_where_it_begins(fake: node.Node) -> None:
    runs.converged(fake)
    fake.systemd.cgroups["system.slice"].procs = 9
    fake.systemd.sync()
    host = fake.host()
    assert (runs.plan(host), host.writes) == ((), [])


def test_processes_that_come_and_go_while_they_are_moved(fake: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    attach, group = kernel(fake).attach, fake.systemd.cgroups["system.slice"]
    forks = iter(range(5))

    def busy(pid: int, name: str, path: str) -> None:
        attach(pid, name, path)
        if name == "system.slice" and next(forks, None) is not None:
            # One ends, and one begins where that one began: in the root.
            last = kernel(fake).last_pid + 1
            kernel(fake).processes[last] = kernel(fake).processes[pid]._replace(cpuset="")
            kernel(fake).last_pid = last
            kernel(fake).end(pid)
            kernel(fake).sync()
            raise OSError(errno.ESRCH, "No such process", path)

    monkeypatch.setattr(kernel(fake), "attach", busy)
    outcome = runs.declare(fake.host())
    assert (outcome.error, outcome.remaining) == ("", ())
    assert (fake.cpus("system.slice"), group.procs) == (node.RESERVED, 3)


def test_processes_that_never_end_to_fork_are_refused_and_undone(
    fake: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fake.fingerprint(*node.STATE)
    attach = kernel(fake).attach
    stuck = max(kernel(fake).processes)
    monkeypatch.setattr(
        kernel(fake), "attach", lambda pid, name, path: attach(pid, name if pid != stuck else "", path)
    )  # fmt: skip
    outcome = runs.declare(fake.host())
    assert "its processes start faster than they can be moved" in outcome.error
    assert node.different(before, fake.fingerprint(*node.STATE)) == []


def test_the_process_that_looks_is_none_of_those_it_sees(fake: node.Node) -> None:
    runs.converged(fake)
    fake.put(f"{ISOLATED}/cgroup.procs", f"77\n{os.getpid()}\n")
    host = fake.host()
    assert host.processes(f"{ISOLATED}/cgroup.procs") == ["77"]
    assert cgroup.members(host, ISOLATED, itself=True).keys() == {"77", str(os.getpid())}


# A change of the profile


@pytest.mark.parametrize("cpu", [OTHER_CORE, NO_ISOLATED, SWAPPED, CIRCLE])
def test_no_instant_of_a_change_overlaps(cpu: dict[str, t.Any], fake: node.Node) -> None:
    before = fake.fingerprint()
    runs.converged(fake)
    start(fake, "machine.slice", 2)
    inherits, asked = kernel(fake).container("machine.slice"), kernel(fake).container("machine.slice", "5")
    runs.tick(fake.host())
    fake.systemd.empty_too = "isolated" in cpu
    for sections in ({"cpu": cpu}, {}):
        outcome = runs.declare(fake.host(), **sections)
        assert (outcome.error, outcome.remaining) == ("", ())
        computed = planning.compile_profile(fake.host(), node.parsed(**sections)).pools
        assert fake.get(f"{SHARED}/cpuset.cpus") == fake.get(f"{ROOT}/machine.slice/cpuset.cpus")
        assert fake.cpus("machine.slice") == kernel(fake).cpus_of(inherits) == computed.shared
        assert kernel(fake).cpus_of(asked) <= computed.shared
        assert fake.cpus("system.slice") == fake.cpus("init.scope") == computed.reserved
        assert fake.has(ISOLATED) == bool(computed.isolated)
    assert fake.overlaps == []
    assert runs.declare(fake.host()).applied == ()
    fake.systemctl("stop", "machine.slice")
    containers = [path for path in kernel(fake).directories if "libpod" in path]
    for path in sorted(containers, reverse=True):  # crun leaves none behind that it ends in order.
        fake.host().remove_dir(f"{ROOT}/{path}")
    runs.remove(fake.host())
    assert node.different(before, fake.fingerprint()) == []


def test_removal_leaves_a_container_where_it_is_on_all_cpus(fake: node.Node) -> None:
    runs.converged(fake)
    start(fake, "machine.slice")
    container = kernel(fake).container("machine.slice")
    runs.tick(fake.host())
    outcome = runs.remove(fake.host())
    assert (outcome.error, outcome.leftovers) == ("", ())
    assert kernel(fake).processes[container].cpuset.endswith("/container")
    assert kernel(fake).cpus_of(container) == fake.cpus("machine.slice") == ONLINE
    assert kernel(fake).directories.keys() - {""} == {
        path for path in kernel(fake).directories if path.startswith("machine.slice")
    }


def test_a_directory_that_was_there_keeps_what_it_had(fake: node.Node) -> None:
    host = fake.host()
    host.make_dir(f"{ROOT}/machine.slice")
    for name, text in (("mems", "0"), ("cpus", "0-3")):
        host.write_value(f"{ROOT}/machine.slice/cpuset.{name}", text)
    before = fake.fingerprint()
    runs.converged(fake)
    assert fake.get(f"{ROOT}/machine.slice/cpuset.cpus") == "1,5\n"
    assert runs.remove(fake.host()).leftovers == ()
    assert node.different(before, fake.fingerprint()) == []


# Boot


def reboot(fake: node.Node, *, legacy: bool = True) -> node.Node:
    """The same disk with fresh kernel trees."""
    twin = fake.clone(fake.root.with_name(f"{fake.root.name}-again"))
    fresh = node.FakeSystemd if not legacy else LegacySystemd
    for tree in ("sys/fs/cgroup", "run"):
        node.shutil.rmtree(twin.root / tree)
    twin.systemd = fresh(twin.root, ONLINE)
    twin.systemd.watch = twin.watch
    return twin


def test_boot_makes_it_all_again(fake: node.Node) -> None:
    runs.converged(fake, with_agent=True)
    again = reboot(fake)
    assert again.cpus("system.slice") == ONLINE
    assert runs.tick(again.host(), at_boot=True) == 2
    assert again.cpus("system.slice") == node.RESERVED
    assert again.get(f"{ISOLATED}/cpuset.cpus") == "3,7\n"


def test_the_plan_says_who_keeps_it_over_a_reboot(fake: node.Node) -> None:
    context = planning.compile_profile(fake.host(), node.parsed())
    assert [note for note in planning.plan_profile(fake.host(), context).notes if "corral-boot.service" in note]
    assert not runs.install(fake.host()).error
    assert planning.plan_profile(fake.host(), context).notes == ()


@pytest.mark.parametrize("first", ["v1", "v2"])
def test_a_node_may_go_from_one_version_to_the_other(first: str, make: Make, folder: t.Any, template: t.Any) -> None:
    fake = make() if first == "v1" else node.Node(folder / "v2", template)
    if first == "v1":
        host = fake.host()  # Somebody's directory, which is not there on v2.
        host.make_dir(f"{ROOT}/machine.slice")
        host.write_value(f"{ROOT}/machine.slice/cpuset.cpus", "0-7")
    runs.converged(fake)
    other = reboot(fake, legacy=first == "v2")
    runs.tick(other.host(), at_boot=True)
    assert drift(other) == []
    assert other.cpus("system.slice") == node.RESERVED
    dropin = other.has("/etc/systemd/system/system.slice.d/10-corral-cpu.conf")
    assert (dropin, other.has(ROOT)) == (first == "v1", first == "v2")
    outcome = runs.remove(other.host())
    assert (outcome.error, outcome.leftovers) == ("", ())
    assert other.cpus("system.slice") == ONLINE


# What is refused


def test_a_profile_that_leaves_pid_1_on_all_cpus_is_refused(fake: node.Node) -> None:
    cpu = {"reserved": {"cores_per_numa": 1, "slices": ["system.slice"]}}
    host = fake.host()
    with pytest.raises(CorralError, match=r"cpu\.reserved\.slices: .*add init\.scope"):
        runs.declare(host, cpu=cpu)
    assert host.writes == []


def test_what_the_kernel_refuses_is_told_with_its_meaning_and_undone(fake: node.Node) -> None:
    before = fake.fingerprint(*node.STATE)
    kernel(fake).online = frozenset(range(7))  # CPU 7 goes between the look and the write.
    outcome = runs.declare(fake.host())
    assert "corral_isolated.slice: 3,7: Invalid argument (a CPU is offline" in outcome.error
    kernel(fake).online = ONLINE
    assert node.different(before, fake.fingerprint(*node.STATE)) == []


@pytest.mark.parametrize(
    ("target", "where"),
    [
        (f"{ROOT}/../x.slice", ""), (f"{ROOT}/x/y.slice", ""), (ROOT, ""), (f"{ROOT}/x.slice/y.slice", ""),
        (f"{ROOT}/system.slice", "user.slice"), (f"{ROOT}/a.service", ""), ("/sys/fs/cgroup/system.slice", ""),
    ],
)  # fmt: skip
def test_no_other_directory_is_written(target: str, where: str) -> None:
    assert validate.place_problems("cpu", Step("cpuset", target, "0", 30, name=where), cpu.WRITES)


def test_an_overlap_in_directories_is_seen_by_the_validator(fake: node.Node) -> None:
    runs.converged(fake)
    context = planning.compile_profile(fake.host(), node.parsed())
    plan = planning.plan_profile(fake.host(), context)
    bad = [Step("cpuset", f"{ROOT}/system.slice", "0-7", 30, name="system.slice")]
    problems = overlap_check.overlaps(fake.host(), plan, bad)
    assert ["system.slice" in problem.message for problem in problems] == [True]


def removal_of_a_slice_that_came_later(fake: node.Node) -> Plan:
    """The removal of a profile whose last slice was declared after the isolated pool was."""
    fake.systemd.empty_too = True
    runs.converged(fake)
    cpu = {**node.edge()["cpu"], "shared": {"slices": ["machine.slice", "later.slice"]}}
    assert not runs.declare(fake.host(), cpu=cpu).error
    return planning.plan_removal(fake.host(), tuple(registry.FILES))


def test_a_removal_gives_the_isolated_cpus_up_before_others_get_them(fake: node.Node) -> None:
    plan = removal_of_a_slice_that_came_later(fake)
    targets = [step.target for step in steps_in_order(plan.changes) if step.kind == "cpuset"]
    assert targets[0] == ISOLATED
    assert runs.remove(fake.host()).leftovers == ()
    assert fake.overlaps == []


def test_the_validator_replays_a_removal(fake: node.Node) -> None:
    plan = removal_of_a_slice_that_came_later(fake)
    steps = [step for step in steps_in_order(plan.changes) if step.kind == "cpuset"]
    assert overlap_check.overlaps(fake.host(), plan, steps) == []
    for last in (step for step in steps if step.target != ISOLATED):
        (problem,) = overlap_check.overlaps(fake.host(), plan, [last, *steps])
        assert last.target.rpartition("/")[2] in problem.message


def test_a_step_of_an_undo_is_replayed_on_the_directories_as_they_are_then(fake: node.Node) -> None:
    context = planning.compile_profile(fake.host(), node.parsed())
    plan = planning.plan_profile(fake.host(), context)
    runs.converged(fake)
    back = [Step("cpuset", f"{ROOT}/{name}", None, RELEASE) for name in ("corral_isolated.slice", "system.slice")]
    assert applying.conflict_with(fake.host(), plan, back[0]) == ""
    assert "left as it is" in applying.conflict_with(fake.host(), plan, back[1])
    apply_step.perform(fake.host(), back[0])
    assert applying.conflict_with(fake.host(), plan, back[1]) == ""


def test_status_is_published_as_on_v2(fake: node.Node) -> None:
    runs.converged(fake, with_agent=True)
    assert runs.tick(fake.host()) == 0
    status = json.loads(fake.get("/run/corral/status.json"))
    assert status["pools"]["isolated"] == "3,7"
    assert status["exclusive"] == "not enforced by the kernel: cgroup v1 has no partitions"
