# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node put together part by part, on a fake node: as the modules cpuset, hugepages, … do it."""

from __future__ import annotations

import json
import typing as t

import failing
import node
import pytest
import runs
from _core.host import state
from _core.managers import registry
from _core.model.plan.plan import Outcome
from _core.model.profile import profile
from _core.model.profile.section_patch import CPUSET, GC, HUGEPAGES, MOUNT, PIDS, SectionPatch
from _core.model.values.errors import CorralError
from _core.pipeline import applying, section_tasks

Make = t.Callable[..., node.Node]
PATH = "/dev/hugepages-2Mi"
SYSTEM = "/etc/systemd/system"
PID_MAX = "/proc/sys/kernel/pid_max"

PARTS = {
    CPUSET: {
        "reserved": {"cpus": None, "count": None, "cores_per_numa": 1, "slices": None},
        "isolated": {"cpus": None, "cores": 1, "numa": 1, "near": None},
        "shared": None,
        "whole_cores": True,
        "strict_cpu_reservation": None,
    },
    HUGEPAGES: {"size": "2Mi", "count": 32, "node": 1},
    MOUNT: {"path": PATH, "pagesize": "2Mi", "size": "16Mi", "min_size": None, "mode": "0770", "user": None,
            "uid": None, "group": "hugetlb", "gid": None},
    PIDS: {"pid_max": 65536, "threads_max": 16384, "reserved": 4096, "default_tasks_max": None,
           "slices": {"machine.slice": 4096}},
    GC: {
        "images": {"high": 90, "low": 70, "min_age": None, "max_age": None, "interval": None, "keep": ["base:*"]},
        "containers": {"min_age": None, "max_per_workload": None, "max_total": None, "scope": "all", "interval": None,
                       "volumes": None, "keep": None, "keep_labels": None},
        "users": None,
    },
}  # fmt: skip


def patch(module: str, state: str = "present", **options: t.Any) -> SectionPatch:
    return SectionPatch(module, {**PARTS[module], **options}, state == "present")


def part(host: node.NodeHost, module: str, state: str = "present", **options: t.Any) -> Outcome:
    """One task of a part module, with options that differ from PARTS."""
    return runs.part(host, module, state, **{**PARTS[module], **options})


def put_together(fake: node.Node, *modules: str) -> node.Node:
    for module in modules or PARTS:
        outcome = part(fake.host(), module)
        assert (outcome.error, outcome.remaining) == ("", ()), module
    return fake


def refusal(fake: node.Node, module: str, state: str = "present", **options: t.Any) -> list[str]:
    """The lines of a refusal, after which the node is as it was."""
    before, host = fake.fingerprint(), fake.host()
    with pytest.raises(CorralError) as refused:
        part(host, module, state, **options)
    assert (host.writes, fake.fingerprint()) == ([], before)
    return str(refused.value).splitlines()


def orders(host: node.NodeHost) -> list[tuple[str, ...]]:
    """The commands that change something."""
    return [argv for argv in host.commands if argv[:2] != ("systemctl", "is-active")]


def declared(fake: node.Node) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(fake.get(state.DECLARED)))


@pytest.mark.parametrize("module", PARTS)
def test_one_part_is_made_true_kept_and_taken_away(module: str, fake: node.Node) -> None:
    before, host = fake.fingerprint(), fake.host()
    asked = section_tasks.ask(host, patch(module))
    foretold = section_tasks.plan(host, asked)
    assert (host.writes, orders(host), fake.fingerprint()) == ([], [], before), "check mode"
    assert not section_tasks.has_nothing_to_do(host, asked, foretold)

    outcome = part(fake.host(), module)
    assert (outcome.error, outcome.remaining, outcome.applied) == ("", (), foretold.changes)
    assert declared(fake)["name"] == section_tasks.section_patch.NAME

    after, host = fake.fingerprint(), fake.host()
    again = section_tasks.ask(host, patch(module))
    assert section_tasks.has_nothing_to_do(host, again, section_tasks.plan(host, again))
    assert part(host, module).applied == ()
    assert (host.writes, orders(host), fake.fingerprint()) == ([], [], after), "a converged run"

    removal = part(fake.host(), module, "absent")
    assert (removal.error, removal.leftovers, removal.remaining) == ("", (), ())
    assert node.different(before, fake.fingerprint()) == []
    host = fake.host()
    assert part(host, module, "absent").applied == ()
    gone = section_tasks.ask(host, patch(module, "absent"))
    assert section_tasks.has_nothing_to_do(host, gone, section_tasks.plan(host, gone))


def test_all_parts_make_up_what_one_profile_would(make: Make) -> None:
    whole = make()
    data = {
        "name": "whole",
        "cpu": {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 1, "numa": 1}, "whole_cores": True},
        "memory": {
            "hugepages": [{"size": "2Mi", "count": 32, "node": 1}],
            "mounts": [{"path": PATH, "pagesize": "2Mi", "size": "16Mi", "mode": "0770", "group": "hugetlb"}],
        },
        "pids": {"pid_max": 65536, "threads_max": 16384, "reserved": 4096, "slices": {"machine.slice": 4096}},
        "gc": {"images": {"high": 90, "low": 70, "keep": ["base:*"]}, "containers": {"scope": "all"}},
    }
    assert not applying.declare(whole.host(), profile.parse(data)).error
    for order in (tuple(PARTS), tuple(reversed(PARTS))):
        fake = put_together(make(), *order)
        assert {**declared(fake), "name": "whole"} == json.loads(whole.get(state.DECLARED))
        without = ("etc/corral", *node.STATE, node.RUNTIME_CONTROL)
        assert node.different(whole.fingerprint(*without), fake.fingerprint(*without)) == []
        assert runs.plan(fake.host()) == ()


@pytest.mark.parametrize("first", PARTS)
def test_the_last_part_takes_everything_with_it(first: str, make: Make) -> None:
    fake = make()
    fake.put(PID_MAX, "100000\n")
    fake.kernel_write(node.pool_file(1), "7")
    before = fake.fingerprint()
    put_together(fake)
    for module in (first, *(module for module in PARTS if module != first)):
        outcome = part(fake.host(), module, "absent")
        assert (outcome.error, outcome.leftovers, outcome.remaining) == ("", (), ()), module
        if fake.has(state.DECLARED):
            assert runs.plan(fake.host()) == ()
    assert node.different(before, fake.fingerprint()) == []


def test_with_the_agent_the_last_part_leaves_nothing_for_boot_to_bring_back(fake: node.Node) -> None:
    runs.install(fake.host())
    put_together(fake, HUGEPAGES)
    runs.tick(fake.host())
    part(fake.host(), HUGEPAGES, "absent")
    assert not fake.has(state.DECLARED)
    assert runs.tick(fake.host(), at_boot=True) == 0
    assert fake.pool(1) == 0


def test_a_removed_profile_stays_away_at_boot(with_agent: node.Node) -> None:
    runs.remove(with_agent.host(), registry.of_profile())
    assert runs.tick(with_agent.host(), at_boot=True) == 0
    assert with_agent.pool(1) == 0


def test_what_is_published_of_a_profile_goes_with_it(with_agent: node.Node) -> None:
    runs.tick(with_agent.host())
    assert all(with_agent.has(path) for path in state.PUBLISHED)
    runs.remove(with_agent.host(), registry.of_profile())
    assert not any(with_agent.has(path) for path in state.PUBLISHED), "nobody keeps it up to date any more"


def test_the_agent_keeps_parts_as_it_keeps_a_profile(fake: node.Node) -> None:
    runs.install(fake.host())
    put_together(fake)
    runs.tick(fake.host())
    fake.put(PID_MAX, "70000\n")
    assert runs.tick(fake.host()) == 2
    assert fake.get(PID_MAX) == "65536\n"
    assert json.loads(fake.get(state.STATUS))["name"] == "parts"
    fake.kernel_write(node.pool_file(1), "0")
    fake.systemd.unmount(PATH)
    (fake.root / "run/corral/attempts.json").unlink()
    assert runs.tick(fake.host(), at_boot=True) == 2
    assert (fake.pool(1), len(fake.systemd.mounts)) == (32, 1)
    assert runs.tick(fake.host()) == 0


def test_only_pools_and_mounts_need_the_agent_at_boot(fake: node.Node) -> None:
    needing = {HUGEPAGES, MOUNT}
    assert {module for module in PARTS if section_tasks.forgotten_at_boot(fake.host(), patch(module))} == needing
    assert not section_tasks.forgotten_at_boot(fake.host(), patch(MOUNT, "absent"))
    runs.install(fake.host())
    assert not any(section_tasks.forgotten_at_boot(fake.host(), patch(module)) for module in PARTS)


def test_each_key_comes_from_its_module(fake: node.Node) -> None:
    put_together(fake)
    origins = json.loads(fake.get(state.ORIGINS))["origins"]
    assert origins["cpu.reserved.cores_per_numa"] == "corral.node.cpuset"
    assert origins["memory.hugepages[0].count"] == "corral.node.hugepages"
    assert origins["memory.mounts[0].size"] == "corral.node.hugetlbfs_mount"
    assert origins["pids.pid_max"] == "corral.node.pid_limits"


# A part replaces itself and nothing else


def test_a_pool_is_known_by_size_and_node_and_goes_back_to_what_it_was(fake: node.Node) -> None:
    fake.kernel_write(node.pool_file(1), "7")
    part(fake.host(), HUGEPAGES)
    part(fake.host(), HUGEPAGES, node=0, count=8)
    part(fake.host(), HUGEPAGES, size="2048Ki", count=16)
    assert declared(fake)["memory"]["hugepages"] == [
        {"size": "2Mi", "count": 16, "node": 1},
        {"size": "2Mi", "count": 8, "node": 0},
    ]
    assert (fake.pool(0), fake.pool(1)) == (8, 16)
    assert part(fake.host(), HUGEPAGES, "absent", count=None).remaining == ()
    assert (fake.pool(0), fake.pool(1)) == (8, 7)
    assert part(fake.host(), HUGEPAGES, "absent", node=None).applied == (), "the whole machine has no pool of its own"
    assert (fake.pool(0), fake.pool(1)) == (8, 7)


def test_a_mount_is_known_by_its_path(fake: node.Node) -> None:
    part(fake.host(), MOUNT)
    part(fake.host(), MOUNT, path="/dev/pages")
    part(fake.host(), MOUNT, size="32Mi")
    assert [(mount["path"], mount["size"]) for mount in declared(fake)["memory"]["mounts"]] == [
        (PATH, "32Mi"),
        ("/dev/pages", "16Mi"),
    ]
    part(fake.host(), MOUNT, "absent", pagesize=None)
    assert [where for where, *dummy in fake.systemd.mounts] == ["/dev/pages"]


def test_limits_are_merged_key_by_key(fake: node.Node) -> None:
    none = dict.fromkeys(PARTS[PIDS])
    part(fake.host(), PIDS, **{**none, "pid_max": 65536, "slices": {"machine.slice": 100}})
    part(fake.host(), PIDS, **{**none, "threads_max": 16384, "slices": {"system.slice": 200, "machine.slice": 150}})
    assert declared(fake)["pids"] == {
        "pid_max": 65536,
        "threads_max": 16384,
        "slices": {"machine.slice": 150, "system.slice": 200},
    }
    part(fake.host(), HUGEPAGES)
    part(fake.host(), PIDS, "absent", **none)
    assert "pids" not in declared(fake)
    assert fake.get("/proc/sys/kernel/threads-max") == "15631\n"


def test_a_cpuset_is_replaced_as_a_whole(fake: node.Node) -> None:
    put_together(fake, CPUSET)
    outcome = part(fake.host(), CPUSET, isolated=None)
    assert (outcome.error, outcome.remaining) == ("", ())
    assert "isolated" not in declared(fake)["cpu"]
    assert fake.cpus("corral.slice") == node.SHARED | node.ISOLATED_CPUS
    assert not part(fake.host(), CPUSET, strict_cpu_reservation=False).remaining
    assert fake.cpus("corral.slice") == node.SHARED | node.RESERVED


# What others of the node have to do with it


DRIFTS: dict[str, tuple[str, str]] = {
    CPUSET: (f"{SYSTEM}/user.slice.d/10-corral-cpu.conf", "[Slice]\n"),
    HUGEPAGES: (node.pool_file(1), "5\n"),
    MOUNT: (f"{SYSTEM}/dev-hugepages\\x2d2Mi.mount", "[Mount]\n"),
    PIDS: (PID_MAX, "70000\n"),
    GC: (f"{SYSTEM}/corral-gc.timer", "[Timer]\n"),
}


@pytest.mark.parametrize("module", PARTS)
def test_a_part_mends_its_own_drift_and_leaves_that_of_others(module: str, fake: node.Node) -> None:
    put_together(fake)
    for path, text in DRIFTS.values():
        fake.put(path, text)
    outcome = part(fake.host(), module)
    assert (outcome.error, outcome.remaining) == ("", ())
    assert [change.location for change in outcome.applied] == [DRIFTS[module][0]]
    left = {other for other, (path, text) in DRIFTS.items() if fake.get(path) == text}
    assert left == set(PARTS) - {module}


def test_a_part_that_changes_leaves_drift_of_others_too(fake: node.Node) -> None:
    put_together(fake)
    fake.put(PID_MAX, "70000\n")
    fake.kernel_write(node.pool_file(1), "5")
    outcome = part(fake.host(), HUGEPAGES, node=0)
    assert [change.subject for change in outcome.applied] == ["hugepages-2Mi node 0", state.DECLARED, state.ORIGINS]
    assert (fake.pool(1), fake.get(PID_MAX)) == (5, "70000\n")
    assert len(runs.plan(fake.host())) == 2, "it is drift as before"


def test_what_a_part_asks_of_others_is_done_with_it(fake: node.Node) -> None:
    # The slices of the shared pool share what the reserve of tasks leaves.
    part(fake.host(), PIDS, slices=None)
    assert not fake.has(f"{SYSTEM}/machine.slice.d/10-corral-pids.conf")
    assert part(fake.host(), CPUSET).remaining == ()
    assert "TasksMax=6144" in fake.get(f"{SYSTEM}/machine.slice.d/10-corral-pids.conf")
    assert runs.plan(fake.host()) == ()
    assert part(fake.host(), CPUSET, "absent").remaining == ()
    assert not fake.has(f"{SYSTEM}/machine.slice.d/10-corral-pids.conf")
    assert runs.plan(fake.host()) == ()


def test_after_a_death_before_the_profile_was_applied_the_next_part_makes_all_of_it_true(fake: node.Node) -> None:
    put_together(fake, HUGEPAGES)
    for path in (state.APPLIED, *state.rest_of(state.HISTORY)):
        fake.drop(path)
    fake.kernel_write(node.pool_file(1), "5")
    asked = section_tasks.ask(fake.host(), patch(HUGEPAGES))
    part(fake.host(), PIDS)
    assert fake.pool(1) == 32
    assert section_tasks.has_nothing_to_do(fake.host(), asked, section_tasks.plan(fake.host(), asked)) is False


def test_cpus_that_processes_hold_are_given_back_at_the_next_try(fake: node.Node) -> None:
    before = fake.fingerprint()
    put_together(fake, CPUSET)
    fake.systemd.occupy("corral.slice", 2)
    outcome = part(fake.host(), CPUSET, "absent")
    assert any("still holds processes" in left for left in outcome.leftovers)
    assert outcome.remaining
    fake.systemd.occupy("corral.slice", 0)
    assert part(fake.host(), CPUSET, "absent").leftovers == ()
    assert node.different(before, fake.fingerprint()) == []


# Beside a whole profile


def test_a_whole_profile_is_not_changed_by_parts(converged: node.Node) -> None:
    said = "this node has the profile edge: declare it there, or remove that profile first"
    assert refusal(converged, HUGEPAGES, count=16) == [said]
    assert refusal(converged, HUGEPAGES, "absent") == [said]
    assert refusal(converged, HUGEPAGES, node=None) == [said]
    assert refusal(converged, PIDS, pid_max=70000) == [said]
    assert refusal(converged, CPUSET, isolated=None) == [said]
    assert refusal(converged, MOUNT, "absent") == [said]


# The example as it is for this machine, by numbers: the parts name no other places.
LITERAL: dict[str, t.Any] = {
    "cpu": {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 1, "numa": 1}, "whole_cores": True},
    "memory": {
        "reserved": {"0": "512Mi", "1": "512Mi"},
        "hugepages": [{"size": "2Mi", "count": 32, "node": number} for number in (0, 1)],
        "mounts": [{"path": "/dev/hugepages-2Mi", "pagesize": "2Mi", "size": "64Mi", "mode": "0770"}],
    },
}


def test_what_a_whole_profile_says_already_may_be_said_by_a_part(fake: node.Node) -> None:
    assert not runs.declare(fake.host(), **LITERAL).error
    # A hand's own spelling of the file stays.
    fake.put(state.DECLARED, json.dumps(node.edge(**LITERAL)))
    fake.put(PID_MAX, "70000\n")
    told = [state.STATUS, state.SINCE]  # what the hand did: once, and nothing else is written
    ignored = [path.lstrip("/") for path in told]
    before, host = fake.fingerprint(*ignored), fake.host()
    for module, options in ((CPUSET, {}), (HUGEPAGES, {}), (MOUNT, {"size": "64Mi", "group": None})):
        assert part(host, module, **options).applied == ()
    assert part(host, HUGEPAGES, "absent", size="1Gi").applied == ()
    assert (host.writes, fake.fingerprint(*ignored)) == (told, before)
    part(fake.host(), PIDS)
    assert fake.get(PID_MAX) == "65536\n"


def test_a_whole_profile_that_was_never_applied_is_not_applied_by_a_part(fake: node.Node) -> None:
    fake.put(state.DECLARED, json.dumps(node.edge(**LITERAL)))
    assert refusal(fake, HUGEPAGES)[0].startswith("the profile edge is declared and not applied yet")


def test_a_whole_profile_replaces_the_parts(fake: node.Node) -> None:
    before = fake.fingerprint()
    put_together(fake)
    part(fake.host(), HUGEPAGES, node=0, count=3)
    assert runs.declare(fake.host(), memory=None).remaining == ()
    assert (fake.pool(0), fake.pool(1)) == (0, 0)
    runs.remove(fake.host())
    assert node.different(before, fake.fingerprint()) == []


def test_a_whole_profile_is_not_called_as_the_parts_are() -> None:
    section_tasks.refuse_name(node.parsed())
    with pytest.raises(CorralError, match="name: parts: "):
        section_tasks.refuse_name(node.parsed(name="parts"))


# Refusals name the module's options


@pytest.mark.parametrize(
    ("module", "options", "line"),
    [
        (CPUSET, {"reserved": {"cpus": "9-15"}}, "reserved.cpus: 9-15: this node has CPUs 0-7"),
        (CPUSET, {"reserved": {"cpus": None}}, "reserved: declares nothing: write exactly one of cpus, count"),
        (CPUSET, {"reserved": None}, "reserved: is missing"),
        (CPUSET, {"reserved": {"cpus": "0-1"}, "isolated": {"cpus": "1"}},
         "isolated.cpus: 1: CPUs 1 are in reserved.cpus as well"),
        (CPUSET, {"strict_cpu_reservation": "maybe"}, "strict_cpu_reservation: maybe: is text"),
        (CPUSET, {"shared": {"slices": ["system.slice"]}}, "shared.slices[0]: system.slice: is in reserved.slices as well"),
        (HUGEPAGES, {"count": 5000}, "count: 5000: that is 10000Mi, NUMA node 1 has "),
        (HUGEPAGES, {"count": None}, "count: is missing"),
        (HUGEPAGES, {"count": -1}, "count: -1: is too small"),
        (HUGEPAGES, {"size": "2 MB"}, "size: 2 MB: is not a quantity as Kubernetes writes it: did you mean 2Mi?"),
        (HUGEPAGES, {"size": "16Mi"}, "size: 16Mi: NUMA node 1 has pages of 2Mi"),
        (HUGEPAGES, {"node": 7}, "node: 7: the NUMA nodes with memory are 0-1"),
        (HUGEPAGES, {"node": -1}, "node: -1: is not the number of a NUMA node"),
        (MOUNT, {"path": "dev/pages"}, "path: dev/pages: is not absolute"),
        (MOUNT, {"path": "/usr/lib"}, "path: /usr/lib: would hide a part of the system"),
        (MOUNT, {"pagesize": None}, "pagesize: is missing"),
        (MOUNT, {"mode": 504}, "mode: 504: YAML makes a number of unquoted digits"),
        (MOUNT, {"group": "nobody-knows"}, "group: nobody-knows: this node has no group of that name"),
        (MOUNT, {"size": "3Mi"}, "size: 3Mi: is not a whole number of pages"),
        (MOUNT, {"user": "root", "uid": 0}, "uid: 0: is declared together with user: root"),
        (PIDS, {"pid_max": 100}, "pid_max: 100: is too small"),
        (PIDS, {"pid_max": 301, "reserved": None, "slices": {"machine.slice": 302}},
         "slices: 302: with 0 kept for housekeeping that is 1 more than pid_max (301)"),
        (PIDS, {"slices": {"batch.slice": 1}}, 'slices["batch.slice"]: 1: is not a slice of this profile'),
        (PIDS, {"reserved": 20000}, "reserved: 20000: leaves nothing of threads_max (16384)"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_option(module: str, options: dict[str, t.Any], line: str, fake: node.Node) -> None:
    (said,) = refusal(fake, module, **options)
    assert said.startswith(line)


def test_a_refusal_is_by_the_whole_node_and_names_who_declared_the_rest(fake: node.Node) -> None:
    put_together(fake, HUGEPAGES)
    (said,) = refusal(fake, HUGEPAGES, node=None)
    assert said.startswith("size: 2Mi: is declared for single NUMA nodes before: write node here too, or nowhere")
    (said,) = refusal(fake, MOUNT, path="/dev/other", size=None, min_size="128Mi")
    assert said.startswith("min_size: 128Mi: the pool of 2Mi pages has 64Mi for it")
    part(fake.host(), CPUSET, shared={"slices": ["batch.slice"]})
    part(fake.host(), PIDS, slices={"batch.slice": 5})
    (said,) = refusal(fake, CPUSET)
    assert said.startswith('pids.slices["batch.slice"]: 5: is not a slice')
    assert said.endswith("(corral.node.pid_limits declared it on this node)")


def test_a_pool_that_a_mount_sets_aside_from_is_not_taken_away(fake: node.Node) -> None:
    runs.part(fake.host(), HUGEPAGES, size="2Mi", count=32)
    runs.part(fake.host(), MOUNT, path=PATH, pagesize="2Mi", min_size="32Mi")
    host = fake.host()
    with pytest.raises(CorralError, match=r"min_size.*corral.node.hugetlbfs_mount declared it on this node"):
        runs.part(host, HUGEPAGES, "absent", size="2Mi")
    assert host.writes == []


def test_pools_that_ask_for_too_much_together_are_refused_by_the_count(fake: node.Node) -> None:
    part(fake.host(), HUGEPAGES, count=1000)
    (said,) = refusal(fake, HUGEPAGES, size="1Gi", count=3)
    assert said.startswith("count: 5072Mi: in all; NUMA node 1 has 4096Mi: declare at most")


def test_what_is_in_the_way_of_a_mount_is_said_by_its_option(fake: node.Node) -> None:
    fake.put("/srv/taken/file", "mine")
    (said,) = refusal(fake, MOUNT, path="/srv/taken")
    assert said.startswith("path: /srv/taken: its directory holds files")


# A fault in the middle


@pytest.mark.parametrize("module", PARTS)
def test_a_write_that_is_refused_in_the_middle_is_undone(module: str, make: Make) -> None:
    prepared = put_together(make(), *(other for other in PARTS if other != module))
    before = prepared.fingerprint(*node.STATE, node.RUNTIME_CONTROL)
    undone: set[int] = set()

    def act(host: node.NodeHost) -> None:
        if part(host, module).error:  # Else before the first write, or in Corral's own state after the last.
            undone.add(host.fail_at)

    for fake, what in failing.each(prepared, act, "error"):
        if int(what.partition(" ")[0]) in undone:
            assert node.different(before, fake.fingerprint(*node.STATE, node.RUNTIME_CONTROL)) == []
        assert part(fake.host(), module).remaining == ()
        assert runs.plan(fake.host()) == ()
    assert undone
