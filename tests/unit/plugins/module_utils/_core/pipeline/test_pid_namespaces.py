# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers of a pod on a fake node: which share a PID namespace, against what the profile declares."""

from __future__ import annotations

import json
import os
import shutil
import typing as t

import node
import pytest
import runs
from _core.host.pids import pid_namespaces
from _core.model.plan.plan import Change
from _core.model.profile import profile
from _core.model.profile.profile import Profile
from _core.model.values.errors import CorralError
from _core.pipeline import applying, planning

Row = dict[str, t.Any]
SLICE = "/sys/fs/cgroup/corral.slice/corral-web.slice"
POD = f"{SLICE}/corral-web-libpod_pod_0123.slice"
WEB = {"name": "web", "match": {"pod": "web"}, "limits": {"cpu": "500m"}}
ACME = {"name": "acme", "members": {"pods": ["w*"]}}


def declared(shared: object = True, *tenants: Row, **row: t.Any) -> Profile:
    own = {} if shared is None else {"share_process_namespace": shared}
    data = {
        "name": "x",
        "cpu": {"reserved": {"count": 2}},
        "workloads": [{**WEB, **own, **row}],
        "tenants": list(tenants),
    }
    return profile.parse(data)


def start(
    fake: node.Node, number: int, name: str, space: str, *, place: str = POD, unit: str = "", pidfile: bool = True
) -> None:
    """A container as the kernel shows it: its control group with two processes, and its monitor."""
    ident, first, monitor = f"{number:064x}", 100 + number, 500 + number
    group = f"{place}/libpod-{ident}.scope"
    fake.put(f"{group}/cgroup.events", "populated 1\nfrozen 0\n")
    fake.put(f"{group}/cgroup.procs", "")
    fake.put(f"{group}/container/cgroup.procs", f"{first}\n{first - 50}\n")
    for pid, inner in ((first, space), (first - 50, "pid:[999]")):  # A process of it may make a namespace in turn.
        fake.put(f"/proc/{pid}/stat", f"{pid} (a ) b) S {' '.join(['0'] * 18)} {160 * os.sysconf('SC_CLK_TCK')} 0\n")
        os.makedirs(fake.root / f"proc/{pid}/ns", exist_ok=True)
        link(fake, pid, inner)
    fake.put(f"/run/{ident}/pidfile", f"{first}" if pidfile else "")
    words = f"/usr/bin/conmon -c {ident} -u {ident} -p /run/{ident}/pidfile -n {name} -s"
    fake.put(f"/proc/{monitor}/comm", "conmon\n")
    fake.put(f"/proc/{monitor}/cmdline", "\0".join([*words.split(), ""]))
    fake.put(f"/proc/{monitor}/cgroup", f"0::/system.slice/{unit or f'libpod-conmon-{ident}.scope'}\n")
    fake.put(f"/proc/{monitor}/status", "Name:\tconmon\nUid:\t0\t0\t0\t0\n")


def link(fake: node.Node, pid: int, space: str) -> None:
    path = fake.root / f"proc/{pid}/ns/pid"
    path.unlink(missing_ok=True)
    if space:
        path.symlink_to(space)


def make_ready(fake: node.Node) -> None:
    """A node with the pod's slice, whose PID 1 has a namespace."""
    assert not applying.declare(fake.host(), declared()).error
    os.makedirs(fake.root / "proc/1/ns", exist_ok=True)
    link(fake, 1, "pid:[1]")
    fake.put("/proc/stat", "cpu 0\nbtime 1700000000\n")


@pytest.fixture
def ready(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_ready)


def items(fake: node.Node, of: Profile) -> list[Change]:
    host = fake.host()
    changes = planning.plan_profile(host, planning.compile_profile(host, of)).changes
    assert host.writes == []
    return [one for one in changes if one.property == "share_process_namespace"]


def test_half_of_a_pod_shares(ready: node.Node) -> None:
    assert items(ready, declared()) == []
    start(ready, 1, "0123-infra", "pid:[7]")
    start(ready, 2, "app", "pid:[7]")
    assert items(ready, declared()) == []
    start(ready, 3, "log", "pid:[8]", unit="log.service")
    (item,) = items(ready, declared())
    assert (item.subject, item.actual, item.wanted) == ("web", "shared in part", "shared")
    assert (item.verdict, item.when, item.location) == ("unchangeable", "next start", "/proc/103/ns/pid")
    assert item.reason.startswith(
        "log (PID 103, since 2023-11-14 22:16:00 UTC, started by log.service) does not share that of 0123-infra: "
    )
    assert item.reason.endswith(
        "start it again (podman pod create --share +pid, in [Pod] of a Quadlet file PodmanArgs=--share=+pid)"
    )
    assert items(ready, declared("any")) == []


def test_separate_ones_are_right_where_that_is_declared(ready: node.Node) -> None:
    for number, name in enumerate(("0123-infra", "app", "log"), 1):
        start(ready, number, name, f"pid:[{number + 10}]")
    assert items(ready, declared(False)) == []
    link(ready, 103, "pid:[12]")
    (item,) = items(ready, declared(False))
    assert (item.actual, item.wanted) == ("shared in part", "separate")
    assert "log (PID 103, since" in item.reason
    assert "shares that of app" in item.reason
    assert item.reason.endswith("start it again (a pod without --share pid, containers without --pid)")


def test_the_hosts_namespace_is_named(ready: node.Node) -> None:
    start(ready, 1, "app", "pid:[1]")
    (item,) = items(ready, declared(False))
    assert item.actual == "the host's"


def test_what_cannot_be_read_is_unknown(ready: node.Node) -> None:
    start(ready, 1, "app", "pid:[7]")
    start(ready, 2, "log", "")
    (item,) = items(ready, declared())
    assert (item.verdict, item.actual) == ("unknown", None)


def test_without_its_monitors_file_the_first_process_has_the_lowest_pid(ready: node.Node) -> None:
    start(ready, 1, "app", "pid:[7]", pidfile=False)
    assert [(row[1], row[2]) for row in pid_namespaces.containers(ready.host(), "/", (SLICE,))] == [("app", 51)]


@pytest.mark.parametrize("text", ["", "999", "7x"])
def test_a_monitors_file_names_a_process_of_the_container(ready: node.Node, text: str) -> None:
    start(ready, 1, "app", "pid:[7]")
    ready.put(f"/run/{1:064x}/pidfile", text)
    assert [row[2] for row in pid_namespaces.containers(ready.host(), "/", (SLICE,))] == [51]


def test_a_container_without_its_monitor_has_the_name_of_podmans_storage_and_one_that_ended_has_no_line(
    ready: node.Node,
) -> None:
    for number, name in enumerate(("app", "log", "ended"), 1):
        start(ready, number, name, f"pid:[{number}]")
    for number in (1, 2):
        shutil.rmtree(ready.root / f"proc/{500 + number}")
    ready.put(f"{POD}/libpod-{3:064x}.scope/container/cgroup.procs", "")
    rows = [{"id": f"{2:064x}", "names": ["stored"]}]
    ready.put("/var/lib/containers/storage/overlay-containers/containers.json", json.dumps(rows))
    found = pid_namespaces.containers(ready.host(), "/", (SLICE,))
    assert [(row[1], row[2], row[4]) for row in found] == [("0" * 12, 51, ""), ("stored", 52, "")]


def test_another_workloads_containers_do_not_count(ready: node.Node) -> None:
    start(ready, 1, "app", "pid:[7]")
    start(ready, 2, "other", "pid:[8]", place="/sys/fs/cgroup/corral.slice/corral-webx.slice")
    assert items(ready, declared()) == []
    data = profile.to_data(declared())
    data["workloads"].append({**data["workloads"][0], "name": "webx", "match": {"pod": "webx"}})
    assert items(ready, profile.parse(data)) == [], "each has one namespace"


def test_a_tenant_that_forbids_it(ready: node.Node) -> None:
    forbids = {**ACME, "share_process_namespace": False}
    with pytest.raises(
        CorralError, match=r"workloads\[0\].share_process_namespace: true: tenant acme forbids it: .* CAP_SYS_PTRACE"
    ):
        declared(True, forbids)
    assert not applying.declare(ready.host(), declared(None, forbids)).error
    place = "/sys/fs/cgroup/corral.slice/corral-acme.slice/corral-acme-web.slice"
    start(ready, 2, "app", "pid:[7]", place=place)
    start(ready, 3, "log", "pid:[7]", place=place)
    (item,) = items(ready, declared(None, forbids))
    assert (item.actual, item.wanted) == ("shared", "separate")
    assert item.reason.startswith("log (PID 103, since")
    assert "tenant acme forbids it" in item.reason
    assert "the host's PID namespace" in item.reason
    assert items(ready, declared(None, ACME)) == []
    (item,) = items(ready, declared(False, ACME))
    assert "forbids" not in item.reason, "the workload itself wants them apart"


def test_a_quiet_tick_sees_a_namespace_that_differs(ready: node.Node) -> None:
    assert not runs.install(ready.host()).error
    start(ready, 1, "0123-infra", "pid:[7]")
    start(ready, 2, "app", "pid:[7]")
    for dummy in range(3):
        ready.wait(10)
        assert runs.tick(ready.host()) == 0
    link(ready, 102, "pid:[8]")
    ready.wait(10)
    host = ready.host()
    assert runs.tick(host) == 2
    assert not host.commands


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"match": {"unit": "web.service"}},
            "workloads[0].share_process_namespace: true: belongs to a pod or to containers",
        ),
        ({"limits": {}}, "workloads[0].share_process_namespace: true: is looked for in the slice of the workload"),
        (
            {"share_process_namespace": "yes"},
            "workloads[0].share_process_namespace: yes: is text: write true or false without quotes, or any",
        ),
    ],
)
def test_it_is_refused(row: Row, said: str) -> None:
    with pytest.raises(CorralError) as caught:
        declared(True, **row)
    assert str(caught.value).startswith(said)


def test_a_member_of_a_tenant_needs_no_resources_for_it() -> None:
    assert declared(True, ACME, limits={}).workloads[0].share_process_namespace
    with pytest.raises(CorralError, match="is looked for in the slice of the workload"):
        declared(True, {**ACME, "members": {"pods": ["other"]}}, limits={})


@pytest.mark.parametrize("shared", [True, False, "any", None])
def test_what_is_read_is_written(shared: object) -> None:
    found = declared(shared)
    assert found.workloads[0].share_process_namespace == (shared if isinstance(shared, bool) else None)
    assert profile.parse(profile.to_data(found)) == found
