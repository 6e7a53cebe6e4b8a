# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan names who runs and gets fewer CPUs by it: services, containers and guests, by the names that their users know."""

from __future__ import annotations

import errno
import json
import typing as t

import node
import pytest
import read_faults
import runs
from _core.pipeline import planning

CGROUP = "/sys/fs/cgroup"
WEB, LOST = "a" * 64, "f" * 64
RUNNING = {
    "system.slice/db.service": "db.service",
    f"system.slice/docker-{WEB}.scope": "container web",
    f"system.slice/docker-{LOST}.scope": f"container {LOST[:12]}",
    "system.slice/system-inst.slice/inst@1.service": "inst@1.service",
    "user.slice/user-1000.slice/session-3.scope": "session-3.scope",
}


@pytest.fixture(name="lively")
def _lively(fake: node.Node) -> node.Node:
    for path in RUNNING:
        fake.put(f"{CGROUP}/{path}/cgroup.events", "populated 1\nfrozen 0\n")
    fake.put(f"{CGROUP}/system.slice/stopped.service/cgroup.events", "populated 0\nfrozen 0\n")
    fake.put(f"/var/lib/docker/containers/{WEB}/config.v2.json", json.dumps({"Name": "/web"}))
    fake.put(f"/var/lib/docker/containers/{LOST}/config.v2.json", "{torn")
    return fake


def notes(fake: node.Node, **sections: t.Any) -> list[str]:
    host, before = fake.host(), fake.fingerprint()
    plan = planning.plan_profile(host, planning.compile_profile(host, node.parsed(**sections), fresh=True))
    assert (host.writes, fake.fingerprint()) == ([], before)
    return [note for note in plan.notes if " become " in note]


def test_all_that_runs_on_fewer_cpus_is_named(lively: node.Node) -> None:
    (line,) = notes(lively)
    services = "db.service, dbus.service, init.scope, inst@1.service, session-1.scope, session-3.scope"
    assert line == f"CPUs 0-7 become 0,2,4,6 for container {LOST[:12]}, container web, {services}"


def test_a_container_that_is_pinned_to_cpus_which_its_slice_loses_is_named(lively: node.Node) -> None:
    lively.put(f"{CGROUP}/system.slice/cgroup.subtree_control", "cpuset cpu memory\n")
    for name in ("cpuset.cpus", "cpuset.cpus.effective"):
        lively.put(f"{CGROUP}/system.slice/docker-{WEB}.scope/{name}", "5,7\n")
    assert "CPUs 5,7 become 0,2,4,6 for container web" in notes(lively)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("web.service", "web.service"),
        ("lxc.payload.box", "lxc.payload.box"),
        (f"docker/{WEB}", "container web"),
        (f"libpod_parent/libpod-{LOST}", f"container {LOST[:12]}"),
    ],
)
def test_what_runs_beside_all_slices_is_named(path: str, name: str, lively: node.Node) -> None:
    """A service with Slice=-.slice, and engines that make their control groups themselves."""
    for group in (path, path.partition("/")[0]):
        lively.put(f"{CGROUP}/{group}/cgroup.events", "populated 1\nfrozen 0\n")
    assert f"CPUs 0-7 become 0-2,4-6 for {name}" in notes(lively)


def test_after_the_rollout_nobody_gets_fewer(lively: node.Node) -> None:
    runs.converged(lively)
    assert notes(lively) == []


def test_who_keeps_the_cpus_is_not_named(lively: node.Node) -> None:
    assert notes(lively, cpu=None) == []
    everything = {"reserved": {"cpus": "0", "slices": ["init.scope"]}, "shared": {"slices": ["machine.slice"]}}
    assert notes(lively, cpu=everything) == ["CPUs 0-7 become 0 for init.scope"]


def test_the_session_of_the_run_itself_is_not_named(lively: node.Node) -> None:
    lively.put("/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n")
    (line,) = notes(lively)
    assert "session-3" not in line and "db.service" in line


def test_a_guest_has_its_own_name(lively: node.Node) -> None:
    lively.put(f"{CGROUP}/machine.slice/machine-qemu\\x2d1\\x2dvm\\x2dweb.scope/cgroup.events", "populated 1\n")
    assert any("guest vm-web" in line for line in notes(lively, cpu={"reserved": {"count": 2}}))


def test_units_fit_a_line_and_containers_are_all_named(lively: node.Node) -> None:
    for number in range(20):
        lively.put(f"{CGROUP}/system.slice/unit-{number:02}.service/cgroup.events", "populated 1\n")
    (line,) = notes(lively)
    assert "container web" in line and line.endswith("14 more units")


def test_a_name_that_cannot_be_read_ends_no_run(lively: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = read_faults.Reads(str(lively.root), monkeypatch)
    reads.fail(f"/var/lib/docker/containers/{WEB}/config.v2.json", errno.EACCES)
    (line,) = notes(lively)
    assert f"container {WEB[:12]}, " in line and reads.hits
