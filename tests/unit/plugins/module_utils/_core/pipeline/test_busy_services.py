# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Before a first rollout: the services that would have fewer CPUs, busiest first, with a figure to judge by."""

from __future__ import annotations

import typing as t

import node
import pytest
import runs
from _core.model.cpu import busy_services
from _core.model.cpu.busy_services import Service
from _core.pipeline import planning, preflight_notes

CGROUP = "/sys/fs/cgroup"
UPTIME = 10_000.0
NOW, RESERVED = frozenset(range(8)), frozenset({0, 2, 4, 6})


def put_service(fake: node.Node, path: str, used: float, *processes: tuple[int, str, float, float]) -> None:
    """A control group that has used ``used`` s of CPU; its processes are (pid, name, started at, CPU s)."""
    fake.put(f"{CGROUP}/{path}/cpu.stat", f"usage_usec {int(used * 1e6)}\nuser_usec 1\nsystem_usec 1\n")
    fake.put(f"{CGROUP}/{path}/cgroup.procs", "".join(f"{pid}\n" for pid, *dummy in processes))
    for pid, name, started, own in processes:
        fields = ["S", "1", *["0"] * 9, str(int(own * 100)), "0", *["0"] * 6, str(int(started * 100)), "0"]
        fake.put(f"/proc/{pid}/stat", f"{pid} ({name}) {' '.join(fields)}\n")


def lively(fake: node.Node) -> node.Node:
    fake.put("/proc/uptime", f"{UPTIME} 70000.00\n")
    put_service(fake, "system.slice/db.service", 1500.0, (501, "db", 9000.0, 1000.0), (502, "helper", 9500.0, 500.0))
    put_service(fake, "system.slice/idle.service", 5.0, (503, "idle", 10.0, 5.0))
    put_service(fake, "system.slice/system-inst.slice/inst@1.service", 250.0, (504, "java", 9000.0, 250.0))
    put_service(fake, "user.slice/user-1000.slice/session-3.scope", 900.0, (505, "make (x)", 9900.0, 1.0), (506, "cc1", 9990.0, 90.0))  # fmt: skip
    put_service(fake, "init.scope", 2.0, (1, "systemd", 0.0, 2.0))
    return fake


def notes(fake: node.Node, **sections: t.Any) -> list[str]:
    host, before = fake.host(), fake.fingerprint()
    context = planning.compile_profile(host, node.parsed(**sections))
    found = list(preflight_notes.notes(host, context))
    assert (host.writes, host.commands, fake.fingerprint()) == ([], [], before)
    return found


def test_the_busiest_come_first_and_the_idle_not_at_all(fake: node.Node) -> None:
    goes = "goes from CPUs 0-7 to 0,2,4,6 (4 CPUs); its busy ones used"
    assert notes(lively(fake)) == [
        f"system.slice {goes} 1.75 CPUs on average: db.service 1.50 over 16 min, system-inst.slice/inst@1.service (java) 0.25 over 16 min",
        f"user.slice {goes} 9.00 CPUs on average: user-1000.slice/session-3.scope (cc1) 9.00 over 100 s",
        busy_services.HINT,
    ]


def test_the_session_of_the_run_itself_is_not_named(fake: node.Node) -> None:
    lively(fake).put("/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n")
    assert not any("session-3" in note for note in notes(fake))


def test_a_slice_that_keeps_its_cpus_or_that_nobody_declares_is_no_news(fake: node.Node) -> None:
    lively(fake)
    everything = {"reserved": {"cpus": "0", "slices": ["init.scope"]}, "shared": {"slices": ["machine.slice"]}}
    assert notes(fake, cpu=everything) == []
    assert notes(fake, cpu=None) == []


def test_after_the_rollout_there_is_nothing_to_say(fake: node.Node) -> None:
    runs.converged(lively(fake))
    assert notes(fake) == []


def test_a_tick_does_not_look_at_cpu_time(fake: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.converged(lively(fake), with_agent=True)
    host = fake.host()
    asked: list[str] = []
    real = host.read_bytes
    monkeypatch.setattr(
        host, "read_bytes", lambda path, *how, **named: (asked.append(path), real(path, *how, **named))[1]
    )
    assert runs.tick(host) == 0
    assert asked
    assert [path for path in asked if path.endswith("cpu.stat") or path == "/proc/uptime"] == []


def test_control_groups_without_what_is_needed(fake: node.Node) -> None:
    fake.put(f"{CGROUP}/system.slice/old.service/cpu.stat", "usage_usec 900000000\n")
    assert notes(fake) == [], "without the uptime there is no average"
    fake.put("/proc/uptime", "1000.0 1.0\n")
    assert "old.service 0.90 over 16 min" in notes(fake)[0], "without a process it is as old as the system"
    fake.put(f"{CGROUP}/system.slice/old.service/cpu.stat", "nonsense\nusage_usec x\n")
    assert notes(fake) == []


def test_processes_of_a_service_with_control_groups_of_its_own(fake: node.Node) -> None:
    fake.put("/proc/uptime", f"{UPTIME} 1.0\n")
    put_service(fake, "system.slice/engine.service/payload", 50.0, (7, "engine", 9900.0, 50.0))
    fake.put(f"{CGROUP}/system.slice/engine.service/cpu.stat", "usage_usec 50000000\n")
    assert "engine.service 0.50 over 100 s" in notes(fake)[0]


@pytest.mark.parametrize(
    ("services", "told"),
    [
        ([], None),
        ([Service("a.service", 0.9, 100, "")], None),
        ([Service("a.service", 1.0, 100, "a")], "0.01 CPUs on average: a.service 0.01 over 100 s"),
        ([Service("a.service", 5.0, 0.0, "")], "5.00 CPUs on average: a.service 5.00 over 0 s"),
        ([Service("s.scope", 86400.0 * 3, 86400.0 * 3, "sh")], "1.00 CPUs on average: s.scope (sh) 1.00 over 3 d"),
        ([Service("a.service", 3600.0, 7200.0, "")], "0.50 CPUs on average: a.service 0.50 over 2 h"),
        ([Service(f"{n}.service", 10.0, 100.0, "") for n in range(9)], "5.service 0.10 over 100 s and 3 more"),
    ],
)
def test_what_is_told_of_a_slice(services: list[Service], told: str | None) -> None:
    note = busy_services.note("system.slice", NOW, RESERVED, services)
    assert (note is None) if told is None else (note is not None and note.endswith(told))


AFFINITY = {
    # file and text, and who is named with which CPUs
    "/etc/systemd/system/db.service": ("[Service]\nCPUAffinity=5\nExecStart=/bin/true\n", "db.service: CPUAffinity=5"),
    "/etc/systemd/system/db@.service": ("[Service]\nCPUAffinity=1 3\n", "db@.service: CPUAffinity=1,3"),
    "/usr/lib/systemd/system/a.service.d/x.conf": ("[Service]\nCPUAffinity=3-5\nCPUAffinity=\nCPUAffinity=7\n", "a.service: CPUAffinity=7"),
    "/etc/systemd/system.conf.d/x.conf": ("[Manager]\nCPUAffinity=1\n", "a service without CPUAffinity= of its own: CPUAffinity=1"),
    "/etc/systemd/system/fits.service": ("[Service]\nCPUAffinity=0-1\n", ""),
    "/etc/systemd/system/moved.service": ("[Service]\nSlice=machine.slice\nCPUAffinity=1\n", ""),
    "/etc/systemd/system/numa.service": ("[Service]\nCPUAffinity=numa\n", ""),
    "/etc/systemd/system/none.service": ("[Service]\nExecStart=/bin/true\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("path", AFFINITY)
def test_services_whose_affinity_has_no_cpu_of_their_pool_are_named(fake: node.Node, path: str) -> None:
    text, named = AFFINITY[path]
    fake.put(path, text)
    found = [note for note in notes(fake) if "CPUAffinity" in note]
    assert len(found) == bool(named) and all(note.startswith(named) for note in found), found
    assert all(path in note and "215/CPUAFFINITY" in note for note in found)


@pytest.mark.parametrize("unit", ["db.service", "db@.service"])
def test_a_service_that_gets_a_slice_of_its_own_is_not_measured_by_the_pool_that_it_leaves(
    fake: node.Node, unit: str
) -> None:
    fake.put(f"/etc/systemd/system/{unit}", "[Service]\nCPUAffinity=5\nExecStart=/bin/true\n")
    workload = {"name": "db", "match": {"unit": unit}, "requests": {"cpu": 1}}
    assert not [note for note in notes(fake, workloads=[workload]) if "CPUAffinity" in note]
