# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The example profile on a fake node: what it makes of it, that a second run has nothing to do, and the way back."""

from __future__ import annotations

import itertools
import json
import typing as t

import node
import pytest
import runs
from _core.host import state
from _core.host.lock import Lock
from _core.managers import registry
from _core.model.plan.plan import UNCHANGEABLE, steps_in_order
from _core.model.profile import profile
from _core.model.values import cpuset
from _core.model.values.errors import CorralError
from _core.pipeline import applying, planning

Make = t.Callable[..., node.Node]
SYSTEM = "/etc/systemd/system"
MOUNT = "/dev/hugepages-2Mi"
OTHER_CORE = {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 1, "numa": 0}, "whole_cores": True}
NO_ISOLATED = {"reserved": {"cores_per_numa": 1}, "whole_cores": True}
# Reserved and isolated change places; then all three pools do, and a slice goes from one to another.
SWAPPED = {"reserved": {"cpus": "3,7"}, "isolated": {"cpus": "0,4,2,6"}}
CIRCLE = {
    "reserved": {"cpus": "3,7", "slices": ["system.slice", "init.scope"]},
    "isolated": {"cpus": "1,5"},
    "shared": {"slices": ["machine.slice", "user.slice"]},
}


def test_the_declared_profile_keeps_its_intents(fake: node.Node) -> None:
    """The node has them resolved in its effective profile; what was declared can be moved to another node as it is."""
    runs.declare(fake.host())
    declared = json.loads(fake.get(state.DECLARED))
    assert declared["cpu"]["isolated"] == {"cores": 1, "load_balance": True, "numa": "last", "optional": True}
    assert declared["memory"]["hugepages"] == [{"count": 32, "node": "each", "optional": True, "size": "2Mi"}]
    assert declared["memory"]["reserved_per_numa"] == "50%"
    assert json.loads(fake.get(state.EFFECTIVE_PROFILE))["memory"]["hugepages"] == {"2Mi": {"node 0": 32, "node 1": 32}}
    outcome = runs.declare(fake.host())
    assert (outcome.applied, outcome.remaining) == ((), ())


def test_what_is_left_out_is_a_note_and_no_drift(fake: node.Node) -> None:
    huge = {"size": "16Mi", "count": 4, "node": "each", "optional": True}
    outcome = runs.declare(fake.host(), memory={"hugepages": [huge]})
    assert (outcome.error, outcome.remaining) == ("", ())
    assert any(note.startswith("memory.hugepages[0] is optional and left out: ") for note in outcome.plan.notes)


def settings(fake: node.Node, path: str) -> list[str]:
    return [line for line in fake.get(path).splitlines() if line and not line.startswith("#")]


def test_the_example_profile_becomes_the_node(fake: node.Node) -> None:
    fake.systemd.empty_too = True
    outcome = runs.declare(fake.host())
    assert (outcome.error, outcome.remaining, fake.overlaps) == ("", (), [])
    for unit in ("system.slice", "user.slice", "init.scope"):
        assert fake.cpus(unit) == node.RESERVED
        section = unit.rpartition(".")[2].capitalize()
        assert settings(fake, f"{SYSTEM}/{unit}.d/10-corral-cpu.conf") == [f"[{section}]", "AllowedCPUs=", "AllowedCPUs=0,2,4,6"]  # fmt: skip
    assert fake.cpus("corral.slice") == node.SHARED
    assert fake.cpus("corral_isolated.slice") == node.ISOLATED_CPUS
    assert fake.get("/sys/fs/cgroup/corral.slice/pids.max") == "4096\n"
    assert fake.cpus("machine.slice") == node.SHARED, "all slices are there"
    fake.systemd.occupy("machine.slice")
    assert fake.cpus("machine.slice") == node.SHARED
    assert (fake.pool(0), fake.pool(1)) == (32, 32)
    assert fake.systemd.mounts == [
        (MOUNT, "hugetlbfs", {"rw": "", "mode": "770", "pagesize": "2M", "size": "67108864"})
    ]
    assert settings(fake, "/etc/sysctl.d/90-corral.conf") == ["kernel.pid_max = 65536", "kernel.threads-max = 16384"]
    assert fake.get("/proc/sys/kernel/pid_max") == "65536\n"
    assert json.loads(fake.get("/etc/corral/profile.json")) == profile.to_data(node.parsed())
    assert settings(fake, f"{SYSTEM}/slices.target.d/10-corral-cpu.conf")[1].startswith("Wants=corral.slice ")


def test_a_second_run_writes_nothing_and_asks_nobody(fake: node.Node) -> None:
    runs.converged(fake)
    before, host = fake.fingerprint(), fake.host()
    outcome = runs.declare(host)
    assert (outcome.applied, outcome.remaining, host.writes, host.commands) == ((), (), [], [])
    assert fake.fingerprint() == before


def test_check_mode_writes_nothing_and_foretells_the_run(fake: node.Node) -> None:
    before, host = fake.fingerprint(), fake.host()
    context = planning.compile_profile(host, node.parsed(), fresh=True)
    plan = planning.plan_profile(host, context, declare=True)
    assert (host.writes, host.commands, fake.fingerprint()) == ([], [], before)
    applied = runs.declare(fake.host()).applied
    assert plan.changes == applied


def test_a_converged_tick_writes_its_status_alone_and_starts_no_process(fake: node.Node) -> None:
    runs.converged(fake, with_agent=True)
    runs.tick(fake.host())
    before, host = fake.fingerprint("run/corral"), fake.host()
    assert runs.tick(host) == 0
    assert (host.writes, host.commands) == (["/run/corral/status.json"], [])
    assert fake.fingerprint("run/corral") == before
    status = json.loads(fake.get("/run/corral/status.json"))
    assert status["in_sync"] is True
    assert status["pools"]["isolated"] == "3,7"


def test_the_values_come_back_after_a_reload_and_a_reboot(make: Make) -> None:
    for reload_applies in (True, False):
        fake = runs.converged(make(reload_applies=reload_applies))
        fake.systemd.empty_too = True
        fake.systemctl("daemon-reload")
        assert runs.plan(fake.host()) == ()
        assert fake.overlaps == []


def test_removal_restores_a_fresh_node(fake: node.Node) -> None:
    before = fake.fingerprint()
    runs.converged(fake, with_agent=True)
    runs.tick(fake.host())
    outcome = runs.remove(fake.host())
    assert (outcome.error, outcome.leftovers, outcome.remaining) == ("", (), ())
    assert node.different(before, fake.fingerprint()) == []


def test_the_removal_of_a_profile_leaves_of_corral_what_its_agent_alone_has(fake: node.Node) -> None:
    journal = f"{state.STATE}/journal"[1:]  # The originals of the agent, and the profiles that rollback knows, stay.
    assert not runs.install(fake.host()).error
    before = fake.fingerprint(journal)
    runs.converged(fake)
    fake.put(f"{state.CHECKPOINT}.damaged", "set aside")
    fake.put(state.SINCE, "{}")
    files = (state.APPLIED, state.EFFECTIVE_PROFILE, state.ATTEMPTS, *state.PUBLISHED)
    assert [path for path in files if not fake.has(path)] == []
    outcome = runs.remove(fake.host(), registry.of_profile())
    assert (outcome.error, outcome.leftovers, outcome.remaining) == ("", (), ())
    assert node.different(before, fake.fingerprint(journal)) == []


def lived_in(fake: node.Node) -> None:
    """A node whose owner has set things before."""
    fake.put("/etc/sysctl.d/90-corral.conf", "# mine\nkernel.pid_max = 100000\n")
    fake.put(f"{SYSTEM}/system.slice.d/10-corral-cpu.conf", "[Slice]\nAllowedCPUs=0-5\n")
    fake.put(f"{SYSTEM}/user.slice.d/20-mine.conf", "[Slice]\nCPUWeight=50\n")
    fake.put("/proc/sys/kernel/pid_max", "100000\n")
    fake.kernel_write(node.pool_file(1), "7")
    fake.systemctl("daemon-reload")
    fake.systemctl("set-property", "--runtime", "user.slice", "AllowedCPUs=0-3")
    fake.systemctl("start", "machine.slice")


def test_removal_restores_a_node_that_was_set_up_by_hand(fake: node.Node) -> None:
    lived_in(fake)
    before = fake.fingerprint()
    runs.converged(fake, with_agent=True)
    assert fake.cpus("user.slice") == node.RESERVED
    outcome = runs.remove(fake.host())
    assert (outcome.error, outcome.leftovers) == ("", ())
    # While user.slice keeps its cpuset, systemd has no way to unset another's: all CPUs mean the same.
    unset = [f"sys/fs/cgroup/{unit}/cpuset.cpus:" for unit in ("init.scope", "machine.slice", "corral.slice")]
    assert [line for line in node.different(before, fake.fingerprint()) if not line.startswith(tuple(unset))] == []
    assert {fake.cpus(unit) for unit in ("init.scope", "machine.slice")} == {frozenset(range(8))}


def test_removal_leaves_a_slice_that_holds_processes_and_says_so(converged: node.Node) -> None:
    converged.systemd.occupy("corral.slice", 2)
    outcome = runs.remove(converged.host())
    assert any("corral.slice: still holds processes" in left for left in outcome.leftovers)
    assert converged.systemd.units["corral.slice"].running
    converged.systemd.occupy("corral.slice", 0)
    assert runs.remove(converged.host()).leftovers == ()
    assert not converged.systemd.units["corral.slice"].running


def test_a_slice_that_is_no_longer_declared_stops_once_its_processes_have_ended(converged: node.Node) -> None:
    converged.systemd.occupy("corral.slice", 2)
    outcome = runs.declare(converged.host(), cpu=None, pids=None)
    assert outcome.error == ""
    left = [(one.subject, one.verdict) for one in outcome.remaining if "holds processes" in one.reason]
    assert left == [("corral.slice", UNCHANGEABLE)]
    assert converged.systemd.units["corral.slice"].running
    converged.systemd.occupy("corral.slice", 0)
    assert runs.tick(converged.host(), by_timer=False) == 2
    assert not converged.systemd.units["corral.slice"].running


def test_removal_frees_a_slice_that_started_since(fake: node.Node) -> None:
    fake.put(f"{SYSTEM}/mine.slice.d/20-mine.conf", "[Slice]\nAllowedCPUs=0-2,4-6\n")
    fake.systemctl("start", "mine.slice")  # It keeps the controller on.
    runs.converged(fake)
    fake.systemd.occupy("machine.slice")
    assert fake.cpus("machine.slice") == node.SHARED
    assert fake.get("/sys/fs/cgroup/machine.slice/pids.max") == "4096\n"
    assert runs.remove(fake.host()).leftovers == ()
    assert fake.cpus("machine.slice") == frozenset(range(8))
    assert fake.get("/sys/fs/cgroup/machine.slice/pids.max") == "max\n"


# A change of the profile


@pytest.mark.parametrize("cpu", [OTHER_CORE, NO_ISOLATED, SWAPPED, CIRCLE])
@pytest.mark.parametrize("reload_applies", [True, False])
def test_no_instant_of_a_change_overlaps(cpu: dict[str, t.Any], reload_applies: bool, make: Make) -> None:
    fake = make(reload_applies=reload_applies)
    before = fake.fingerprint()
    fake.systemctl("start", "machine.slice")
    runs.converged(fake)
    fake.systemd.empty_too = "isolated" in cpu
    for sections in ({"cpu": cpu}, {}):
        outcome = runs.declare(fake.host(), **sections)
        assert (outcome.error, outcome.remaining) == ("", ())
        computed = planning.compile_profile(fake.host(), node.parsed(**sections)).pools
        assert fake.cpus("corral.slice") == computed.shared
        assert fake.cpus("machine.slice") == computed.shared
        assert fake.cpus("system.slice") == computed.reserved
        if computed.isolated:
            assert fake.cpus("corral_isolated.slice") == computed.isolated
        else:
            assert not fake.systemd.units["corral_isolated.slice"].running
    assert fake.overlaps == []
    host = fake.host()
    assert runs.declare(host).applied == ()
    fake.systemctl("stop", "machine.slice")
    fake.systemd.empty_too = False
    runs.remove(fake.host())
    assert node.different(before, fake.fingerprint()) == []


def test_what_is_no_longer_declared_goes_back_to_what_was_before(fake: node.Node) -> None:
    fake.kernel_write(node.pool_file(1), "7")
    runs.converged(fake)
    outcome = runs.declare(fake.host(), memory=None, pids={"threads_max": 16000})
    assert (outcome.error, outcome.remaining) == ("", ())
    assert (fake.pool(0), fake.pool(1), fake.systemd.mounts) == (0, 7, [])
    assert not fake.has(MOUNT)
    assert not fake.has(f"{SYSTEM}/dev-hugepages\\x2d2Mi.mount")
    assert fake.get("/proc/sys/kernel/pid_max") == "4194304\n"
    assert fake.get("/proc/sys/kernel/threads-max") == "16000\n"
    assert settings(fake, "/etc/sysctl.d/90-corral.conf") == ["kernel.threads-max = 16000"]
    assert not fake.has(f"{SYSTEM}/machine.slice.d/10-corral-pids.conf")


def test_folders_go_with_the_last_file_whatever_profile_made_them(fake: node.Node) -> None:
    before = fake.fingerprint()
    runs.converged(fake)
    for sections in (
        {"cpu": None, "pids": {"slices": {"system.slice": 3000}}},
        {"cpu": None, "memory": None, "pids": {"slices": {"system.slice": 2000}, "default_tasks_max": 500}},
        {},
        {"cpu": None, "memory": None, "pids": None},
    ):
        assert not runs.declare(fake.host(), **sections).error
    runs.remove(fake.host())
    assert node.different(before, fake.fingerprint()) == []


def test_a_new_size_is_a_new_mount(converged: node.Node) -> None:
    memory = {"mounts": [{"path": MOUNT, "pagesize": "2Mi", "size": "10Mi", "min_size": "4Mi", "group": "hugetlb"}],
              "hugepages": [{"size": "2Mi", "count": 8, "node": 0}]}  # fmt: skip
    outcome = runs.declare(converged.host(), memory=memory)
    assert (outcome.error, outcome.remaining) == ("", ())
    shown = {"rw": "", "gid": "996", "pagesize": "2M", "size": "10485760", "min_size": "4194304", "mode": "755"}
    assert converged.systemd.mounts[0][2] == {key: value for key, value in shown.items() if value != "755"}


# Hugepages: the kernel gives what it has


def test_a_mount_waits_for_the_pages_that_it_sets_aside(fake: node.Node) -> None:
    """The kernel finds none of them now: the rest of the profile is applied, and the mount comes with the pages."""
    fake.room[0, 2048] = 0
    clock = itertools.count(fake.time, 0.5)
    memory = {
        "hugepages": [{"size": "2Mi", "count": 8, "node": 0}],
        "mounts": [{"path": "/dev/pages", "pagesize": "2Mi", "min_size": "8Mi"}],
    }
    host = fake.host()
    host._clock = lambda: next(clock)  # time goes on while a profile is applied
    outcome = runs.declare(host, memory=memory)
    assert not outcome.error
    assert {(change.subject, change.verdict) for change in outcome.remaining} == {
        ("hugepages-2Mi node 0", "unchangeable"),
        ("/dev/pages", "unchangeable"),
    }
    assert "4 pages aside, and 0 are free" in next(c.reason for c in outcome.remaining if c.subject == "/dev/pages")
    assert fake.cpus("system.slice") == node.RESERVED
    del fake.room[0, 2048]
    fake.time += 601
    host = fake.host()
    runs.tick(host)
    assert runs.plan(fake.host()) == ()
    assert "/dev/pages" in fake.get("/proc/1/mountinfo")


WHOLE, EACH, FIRST = [{"count": 64}], [{"count": 32, "node": "each"}], [{"count": 32, "node": 0}]


@pytest.mark.parametrize(
    ("pools", "other", "pages"),
    [(WHOLE, EACH, (32, 32)), (EACH, WHOLE, (32, 32)), (WHOLE, FIRST, (32, 5)), (FIRST, WHOLE, (32, 32))],
)
def test_pools_of_nodes_and_of_the_machine_take_each_others_place(
    pools: list[dict[str, t.Any]], other: list[dict[str, t.Any]], pages: tuple[int, int], fake: node.Node
) -> None:
    """They are the same pages: the original of one was put back after the other was made, and none were left."""
    fake.set_pool(fake.root / node.pool_file(1).lstrip("/"), 5)
    for declared in (pools, other):
        outcome = runs.declare(fake.host(), memory={"hugepages": [{"size": "2Mi", **pool} for pool in declared]})
        assert (outcome.error, outcome.remaining) == ("", ())
    assert (fake.pool(0), fake.pool(1)) == pages
    assert runs.remove(fake.host()).error == ""
    assert (fake.pool(0), fake.pool(1)) == (0, 5)


@pytest.mark.parametrize("at", [{"node": 0}, {}])
def test_pages_that_a_mount_sets_aside_stay_declared(at: dict[str, int], fake: node.Node) -> None:
    """What goes back to what it was before is not there for the mount."""
    mount = {"path": MOUNT, "pagesize": "2Mi", "min_size": "32Mi"}
    fake.set_pool(fake.root / node.pool_file(1).lstrip("/"), 6)
    memory = {"mounts": [mount], "hugepages": [{"size": "2Mi", "count": 32, **at}]}
    assert runs.declare(fake.host(), memory=memory).remaining == ()
    host = fake.host()
    with pytest.raises(CorralError) as refused:
        runs.declare(host, memory={"mounts": [mount]})
    assert str(refused.value).startswith("memory.mounts[0].min_size: 32Mi: the pool of 2Mi pages has 12Mi for it")
    assert host.writes == []
    mount["min_size"] = "12Mi"
    assert not runs.declare(fake.host(), memory={"mounts": [mount]}).error


def test_memory_is_compacted_also_for_the_last_page(fake: node.Node) -> None:
    fake.room[1, 2048] = 31
    (item,) = runs.declare(fake.host()).remaining
    assert (item.actual, item.wanted, fake.compactions) == ("31", "32", 1)


def test_a_value_that_the_kernel_does_not_keep_is_undone(fake: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fake.fingerprint()
    real = fake.kernel_write

    def write(path: str, text: str) -> None:
        real(path, "50000" if (path, text) == ("/proc/sys/kernel/pid_max", "65536") else text)

    monkeypatch.setattr(fake, "kernel_write", write)
    outcome = runs.declare(fake.host())
    assert outcome.error == "/proc/sys/kernel/pid_max: 65536 was written and the kernel keeps 50000"
    assert (outcome.leftovers, node.different(before, fake.fingerprint())) == ((), [])


def test_a_partly_filled_pool_is_drift_and_is_asked_for_again_after_ten_minutes(fake: node.Node) -> None:
    fake.room[1, 2048] = 20
    outcome = runs.declare(fake.host())
    assert outcome.error == ""
    assert fake.compactions == 1
    (item,) = outcome.remaining
    assert (item.subject, item.actual, item.wanted, item.verdict) == (
        "hugepages-2Mi node 1",
        "20",
        "32",
        "unchangeable",
    )
    assert item.reason.startswith("the kernel gave 20 of 32; ") and item.reason.endswith(
        "; asked again every 10 minutes"
    )
    fake.time += 300
    host = fake.host()
    assert runs.tick(host) == 2
    assert host.writes.count(node.pool_file(1)) == 0
    assert [one.reason for one in runs.plan(fake.host())] == [item.reason], "hosts with it are alike at any minute"
    fake.time += 301
    runs.tick(fake.host())
    assert fake.compactions == 2
    fake.room[1, 2048] = 500
    fake.time += 601
    assert runs.tick(fake.host()) == 2
    assert runs.tick(fake.host()) == 0
    assert fake.pool(1) == 32


def test_a_smaller_profile_is_asked_for_at_once(fake: node.Node) -> None:
    fake.room[1, 2048] = 20
    runs.declare(fake.host())
    memory = {"hugepages": [{"size": "2Mi", "count": 20, "node": 1}]}
    assert runs.declare(fake.host(), memory=memory).remaining == ()


# Going back, and what a careless hand or a crash does to Corral's own files


def test_rollback_applies_the_profile_before(converged: node.Node) -> None:
    assert not runs.declare(converged.host(), cpu=OTHER_CORE, name="second").error
    assert converged.cpus("corral_isolated.slice") == {1, 5}
    past = [one.profile for one in state.history(converged.host())[1]]
    assert [row["name"] for row in past] == ["edge"]
    assert not applying.declare(converged.host(), profile.parse(past[0])).error
    assert converged.cpus("corral_isolated.slice") == node.ISOLATED_CPUS


@pytest.mark.parametrize(("command", "name"), [("reconcile", "third"), ("rollback", "second")])
def test_what_was_declared_while_a_command_waited_counts(
    command: str, name: str, fake: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in ("first", "second"):
        assert not runs.declare(fake.host(), name=first).error
    real = Lock.take

    def take(lock: Lock, wait: float = 0.0) -> bool:
        runs.declare(fake.host(), name="third")
        return real(lock, wait)

    monkeypatch.setattr(Lock, "take", take)
    assert runs.command(fake.host(), command) in (0, 2)
    assert json.loads(fake.get("/etc/corral/profile.json"))["name"] == name
    past = [one.profile["name"] for one in state.history(fake.host())[1]]
    assert past == (["second", "first"] if command == "reconcile" else ["first"])


@pytest.mark.parametrize(
    "garbage", ["", "{", "[]", '{"name": 5}', "\x00\xff", "null", "[" * 9999, '{"name": "x", "cpus": {}}']
)
def test_garbage_in_the_declared_profile_leaves_the_last_good_one_in_force(converged: node.Node, garbage: str) -> None:
    converged.put("/etc/corral/profile.json", garbage)
    converged.kernel_write("/proc/sys/kernel/pid_max", "40000")
    assert runs.tick(converged.host()) == 2
    assert converged.get("/proc/sys/kernel/pid_max") == "65536\n"
    status = json.loads(converged.get("/run/corral/status.json"))
    assert [(item["subject"], item["property"]) for item in status["items"]] == [
        ("/etc/corral/profile.json", "content")
    ]
    assert "the profile applied last stays in force" in status["items"][0]["reason"]
    assert converged.get("/etc/corral/profile.json") == garbage, "what a person wrote is not written over"


def test_garbage_and_no_good_profile_is_an_error_said_once(fake: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    fake.put("/etc/corral/profile.json", "{")
    assert runs.tick(fake.host()) == 1
    assert "not reconciled" in capsys.readouterr().err
    assert runs.tick(fake.host()) == 1
    assert capsys.readouterr().err == ""


def test_a_node_without_a_profile_is_in_sync(fake: node.Node) -> None:
    assert runs.tick(fake.host()) == 0


@pytest.mark.parametrize("damage", ["", "{", '{"version": 1, "checksum": "0", "data": []}', '{"version": 2}'])
def test_damaged_before_values_fall_back_to_the_version_before(fake: node.Node, damage: str) -> None:
    before = fake.fingerprint()
    runs.converged(fake, with_agent=True)
    # A second version of the same content: nothing is lost with the first.
    state.save_records(fake.host(), state.records(fake.host())[0])
    fake.put(state.BEFORE, damage)
    plan = planning.plan_removal(fake.host(), registry.names())
    assert any("its second copy is used" in note for note in plan.notes)
    runs.remove(fake.host())
    assert node.different(before, fake.fingerprint()) == []


def test_before_values_lost_twice_are_said(converged: node.Node) -> None:
    converged.put(state.BEFORE, "{")
    converged.put(f"{state.BEFORE}.previous", "{")
    plan = planning.plan_removal(converged.host(), registry.names())
    assert any("removal cannot restore" in note for note in plan.notes)


def test_boot_brings_the_last_applied_profile_back_in_audit_mode_too(make: Make) -> None:
    fake = make()
    assert not runs.declare(fake.host(), mode="audit").error
    for number in (0, 1):
        fake.kernel_write(node.pool_file(number), "0")
    fake.systemd.unmount(MOUNT)
    (fake.root / "run/corral/attempts.json").unlink()
    assert runs.tick(fake.host()) == 2
    assert fake.pool(0) == 0, "audit only reports"
    assert runs.tick(fake.host(), at_boot=True) == 2
    assert (fake.pool(0), fake.pool(1)) == (32, 32)


def test_a_refused_profile_changes_nothing_and_the_old_one_stays(converged: node.Node) -> None:
    before, host = converged.fingerprint(), converged.host()
    with pytest.raises(CorralError):
        runs.declare(host, pids={"pid_max": 100})
    assert (host.writes, converged.fingerprint()) == ([], before)


def test_removal_brings_back_a_value_that_was_right_at_rollout(fake: node.Node) -> None:
    fake.put("/proc/sys/kernel/pid_max", "65536\n")
    fake.kernel_write(node.pool_file(0), "32")
    before = fake.fingerprint()
    assert runs.declare(fake.host()).error == ""
    fake.put("/proc/sys/kernel/pid_max", "70000\n")
    fake.kernel_write(node.pool_file(0), "7")
    assert runs.declare(fake.host()).remaining == ()
    assert runs.remove(fake.host()).error == ""
    assert node.different(before, fake.fingerprint()) == []


def test_removal_counts_only_what_it_brings_back(fake: node.Node) -> None:
    fake.put("/proc/sys/kernel/pid_max", "65536\n")
    runs.declare(fake.host())
    changed = [change.subject for change in runs.remove(fake.host()).applied]
    assert "/proc/sys/kernel/threads-max" in changed
    assert "/proc/sys/kernel/pid_max" not in changed


def test_every_slice_is_there_on_its_cpus_before_isolated_ones_move(fake: node.Node) -> None:
    runs.declare(fake.host())
    fake.systemctl("stop", "machine.slice")
    host = fake.host()
    context = planning.compile_profile(host, node.parsed(cpu=OTHER_CORE), fresh=True)
    plan = planning.plan_profile(host, context, declare=True)
    steps = [step for step in steps_in_order(plan.changes) if step.target == "machine.slice"]
    # It starts on CPUs that are nobody's now, and waits there for those that the isolated pool leaves.
    wanted = [f"AllowedCPUs={cpuset.format(cpus)}" for cpus in (context.pools.reserved, context.pools.shared)]
    assert [step.text for step in steps] == [wanted[0], "start", wanted[1], "TasksMax=4096"]
    assert runs.declare(fake.host(), cpu=OTHER_CORE).remaining == ()
    assert (fake.cpus("machine.slice"), fake.overlaps) == (context.pools.shared, [])


def test_a_slice_that_asks_for_isolated_cpus_is_in_the_way(fake: node.Node) -> None:
    fake.put(f"{SYSTEM}/mine.slice.d/20-mine.conf", "[Slice]\nAllowedCPUs=0-6\n")
    fake.systemctl("start", "mine.slice")
    before = fake.fingerprint()
    with pytest.raises(
        CorralError,
        match=r"(?s)CPUs 3: mine\.slice would have CPUs of corral_isolated\.slice .*declare mine\.slice in cpu\.shared\.slices",
    ):
        runs.declare(fake.host())
    assert node.different(before, fake.fingerprint()) == []


def test_what_could_not_be_checked_is_a_note_of_the_plan(fake: node.Node) -> None:
    memory = {
        "mounts": [{"path": MOUNT, "pagesize": "2Mi", "size": "128Mi"}],
        "hugepages": [{"size": "2Mi", "count": 8}],
    }
    context = planning.compile_profile(fake.host(), node.parsed(memory=memory))
    assert [note for note in planning.plan_profile(fake.host(), context).notes if MOUNT in note]


def test_a_limit_that_goes_back_counts_for_the_budget_at_once(fake: node.Node) -> None:
    fake.put("/proc/sys/kernel/threads-max", "15771\n")
    runs.declare(fake.host(), pids={"threads_max": 16384, "reserved": 1000})
    assert fake.get("/sys/fs/cgroup/corral.slice/pids.max") == "7692\n"
    outcome = runs.declare(fake.host(), pids={"reserved": 1000})
    assert (outcome.error, outcome.remaining) == ("", ())
    assert fake.get("/sys/fs/cgroup/corral.slice/pids.max") == "7385\n"


def node_cpus(dropin: str) -> frozenset[int]:
    return cpuset.parse(dropin.rstrip().rpartition("=")[2])
