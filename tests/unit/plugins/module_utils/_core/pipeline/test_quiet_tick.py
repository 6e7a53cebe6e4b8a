# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The timer's tick on a node in sync: what it loads, and that it misses nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t

import node
import pytest
import runs
from _core import main
from _core.host import recorded_inputs
from _core.model.agent.agent_units import TIMER
from _core.pipeline import tick as full_tick
from test_drift import CASES

Make = t.Callable[..., node.Node]

# The tick's whole program: each module more costs every node some CPU every ten seconds.
MODULES = {"_core", "_core.main", "_core.host", "_core.host.files", "_core.host.recorded_inputs", "_core.host.lock"}
MINUTE = 1_700_000_040
BUILT_IN = "import __future__, errno, fcntl, gc, marshal, os, sys, time, zlib\n"
TICK = BUILT_IN + "before = set(sys.modules)\nsys.path.insert(0, sys.argv[1])\n"
TICK += "from _core import main\nfrom _core.host.files import Host\ncode = main.tick(Host(sys.argv[2], clock=lambda: float(sys.argv[3])))\n"
TICK += "print(code, *sorted(set(sys.modules) - before))\n"


@pytest.fixture(params=["young", "steady"], autouse=True)
def age(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the node's files are too young to go by their times, as those of a test are, or count as older."""
    if request.param == "steady":
        monkeypatch.setattr(recorded_inputs, "STEADY_SECONDS", -3600)


@pytest.fixture
def quiet(make: Make) -> node.Node:
    """A node whose last tick found it in sync."""
    fake = runs.converged(make(), with_agent=True)
    fake.time += 10
    assert runs.tick(fake.host()) == 0
    return fake


def short(fake: node.Node) -> bool:
    """Whether a tick ends before it has looked in full; it may write its status, and starts nothing."""
    host = fake.host()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(full_tick, "run", lambda *dummy, **more: 77)
        code = runs.tick(host)
    assert code in (0, 77)
    assert (host.writes, host.commands) == (["/run/corral/status.json"] if code == 0 else [], [])
    return code == 0


def test_a_converged_tick_loads_six_files_and_what_python_has_built_in(make: Make) -> None:
    fake = runs.converged(make(), with_agent=True)
    core = os.path.dirname(os.path.dirname(main.__file__))

    def tick(now: int) -> list[str]:
        words = [sys.executable, "-I", "-S", "-B", "-c", TICK, core, str(fake.root), str(now)]
        environment = {**os.environ, "TRIGGER_UNIT": TIMER}
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.split()

    assert "_core.pipeline.tick" in tick(MINUTE)
    assert tick(MINUTE + 59) == ["0", *sorted(MODULES)]
    refresh = tick(MINUTE + 60)
    assert "_core.model.status.metrics" in refresh, "once a minute more, for the metrics"
    assert not {"_core.model.plan.undo", "_core.model.profile.profile"} & set(refresh), "but no plan and no profile"
    assert tick(MINUTE + 70) == ["0", *sorted(MODULES)]


@pytest.mark.parametrize("name", [name for name in CASES if name != "timer stopped"])
def test_the_timers_tick_sees_and_mends_what_a_hand_did(name: str, quiet: node.Node) -> None:
    assert short(quiet)
    CASES[name].do(quiet)
    assert not short(quiet)
    assert runs.tick(quiet.host()) == 2
    changed = json.loads(quiet.get("/run/corral/status.json"))["last_changed"]
    quiet.time += 10
    assert runs.tick(quiet.host()) == 0
    quiet.time += 10
    assert short(quiet)
    status = json.loads(quiet.get("/run/corral/status.json"))
    assert (status["time"], status["last_changed"]) == (quiet.time, changed)


NEWS = {
    "a drop-in of a unit": ("/etc/systemd/system/system.slice.d/20-x.conf", "[Slice]\nAllowedCPUs=0\n"),
    "a drop-in of all slices": ("/run/systemd/system/slice.d/20-x.conf", "[Slice]\nTasksMax=7\n"),
    "a unit's file": ("/etc/systemd/system/machine.slice", "[Slice]\nTasksMax=7\n"),
    "a sysctl.d file": ("/run/sysctl.d/99-x.conf", "kernel.pid_max = 5000\n"),
    "a slice with processes": ("/sys/fs/cgroup/foo.slice/cgroup.events", "populated 1\n"),
    "processes that systemd does not know": ("/sys/fs/cgroup/lxc/cgroup.events", "populated 1\n"),
    "a partition that is none": ("/sys/fs/cgroup/corral_isolated.slice/cpuset.cpus.partition", "root invalid\n"),
    "CPUs that others have": ("/sys/fs/cgroup/cpuset.cpus.effective", "0-7\n"),
    "tuned": ("/sys/fs/cgroup/system.slice/tuned.service/cgroup.events", "populated 1\n"),
    "a kubelet": ("/sys/fs/cgroup/system.slice/kubelet.service/cgroup.events", "populated 1\n"),
    "less memory": ("/proc/meminfo", "MemTotal: 1000000 kB\n"),
    "another boot": ("/proc/sys/kernel/random/boot_id", "second\n"),
    "another file of the agent": ("/etc/systemd/system/corral-boot.service", "[Unit]\n"),
    "other options of the agent": ("/etc/corral/agent.json", "{}"),
    "other originals": ("/var/lib/corral/journal/before.json", "{}"),
    "another profile at boot": ("/var/lib/corral/applied.json", "{}"),
    "a pause": ("/var/lib/corral/pause.json", "{}"),
}


@pytest.mark.parametrize("name", NEWS)
def test_what_is_new_on_the_node_is_seen(name: str, quiet: node.Node) -> None:
    assert short(quiet)
    quiet.put(*NEWS[name])
    assert not short(quiet)


def test_a_cpu_that_goes_offline_is_seen(quiet: node.Node) -> None:
    # The fake's files of CPUs are shared by all nodes: this node gets its own.
    folder = quiet.root / "sys/devices/system/cpu"
    template = folder.resolve()
    folder.unlink()
    folder.mkdir()
    for entry in template.iterdir():
        (folder / entry.name).symlink_to(entry)
    assert short(quiet)
    (folder / "online").unlink()
    (folder / "online").write_text("0-6\n")
    assert not short(quiet)


def test_another_profile_is_seen(quiet: node.Node) -> None:
    quiet.put("/etc/corral/profile.json", quiet.get("/etc/corral/profile.json").replace("enforce", "audit"))
    assert not short(quiet)


def test_a_published_file_that_was_removed_comes_back(quiet: node.Node) -> None:
    for name in ("pools.json", "pools.env", "status.json"):
        quiet.drop(f"/run/corral/{name}")
        assert runs.tick(quiet.host()) == 0
        assert quiet.has(f"/run/corral/{name}")


@pytest.mark.parametrize("how", ["audit", "boot", "path"])
def test_drift_boot_and_a_changed_profile_are_looked_at_in_full(how: str, make: Make) -> None:
    fake = make()
    assert not runs.install(fake.host()).error
    assert not runs.declare(fake.host(), mode="audit" if how == "audit" else "enforce").error
    if how == "audit":
        fake.kernel_write("/proc/sys/kernel/pid_max", "40000")
    code = runs.tick(fake.host(), at_boot=how == "boot", by_timer=how != "path")
    assert code == (2 if how == "audit" else 0)
    assert not fake.has(recorded_inputs.KEPT)
