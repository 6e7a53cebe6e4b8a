# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What programs read has exactly the documented shape, whatever a node's state is."""

from __future__ import annotations

import json
import typing as t

import node
import pytest
import runs
import test_workload_module
from _core.constants import SCHEMA
from _core.gc import gc_outcome
from _core.host import state
from _core.model.profile import profile
from _core.model.status import command_shapes, json_shapes
from _core.model.topology import topology
from _core.pipeline import applying
from shapes import misfits

pytest.importorskip("ansible.module_utils.basic")
PID_MAX = "/proc/sys/kernel/pid_max"
WORKLOAD = {"name": "feed", "match": {"unit": "feed.service"}, "limits": {"cpu": 2, "memory": "64Mi"}}
POOLS = {"reserved": {"count": 2}, "policy": "static"}


def tampered(fake: node.Node) -> None:
    runs.converged(fake, with_agent=True)
    runs.declare(fake.host(), mode="audit")
    fake.kernel_write(PID_MAX, "40000")


def paused(fake: node.Node) -> None:
    runs.converged(fake, with_agent=True)
    runs.command(fake.host(), "pause", "--for", "1h", "--reason", "a disk")
    fake.kernel_write(PID_MAX, "40000")


def broken(fake: node.Node) -> None:
    runs.converged(fake)
    fake.put("/etc/corral/profile.json", "{")
    for path in (state.APPLIED, *state.rest_of(state.HISTORY)):
        fake.drop(path)


def with_workloads(fake: node.Node) -> None:
    fake.put("/etc/systemd/system/feed.service", "[Service]\nExecStart=/bin/true\n")
    tenant = {
        "name": "acme",
        "members": {"units": ["feed.service"]},
        "quota": [{"name": "q", "hard": {"count/workloads": 1}}],
    }
    assert runs.declare(fake.host(), cpu=POOLS, workloads=[WORKLOAD], tenants=[tenant]).error == ""


STATES: dict[str, t.Callable[[node.Node], object]] = {
    "converged": lambda fake: runs.converged(fake, with_agent=True),
    "tampered": tampered,
    "paused": paused,
    "broken profile": broken,
    "workloads": with_workloads,
}


@pytest.mark.parametrize("name", STATES)
def test_the_published_files(name: str, fake: node.Node) -> None:
    STATES[name](fake)
    runs.tick(fake.host(), by_timer=False)
    status = json.loads(fake.get(state.STATUS))
    assert misfits(status, json_shapes.Status) == []
    assert misfits(json.loads(fake.get(state.PUBLISHED[1])), json_shapes.PublishedPools) == []
    seen = {key for key, value in status.items() if value}
    expected = {
        "converged": {"in_sync", "last_changed", "hugepages"},
        "tampered": {"items"},
        "paused": {"items", "paused"},
        "broken profile": {"error"},
        "workloads": {"workloads", "budget", "tenants"},
    }
    assert expected[name] <= seen


COMMANDS: dict[str, t.Any] = {
    "plan": json_shapes.Plan,
    "drift": json_shapes.Plan,
    "drift --explain": json_shapes.ExplainedPlan,
    "reconcile": json_shapes.Run,
    "pools": json_shapes.PublishedPools,
    "status": json_shapes.NodeStatus,
}


@pytest.mark.parametrize("words", COMMANDS)
def test_the_json_of_commands(words: str, fake: node.Node) -> None:
    tampered(fake)
    data = json.loads(runs.printed(fake.host(), *words.split(), "--json", code=None))
    assert misfits(data, COMMANDS[words]) == []
    if "changes" in data:
        assert [change["subject"] for change in data["changes"]] == ["kernel.pid_max"]


# In this order: a grant is given, shown and taken back, a pause begins and ends.
SINGLE: tuple[tuple[str, t.Any], ...] = (
    ("topology", command_shapes.Topology),
    ("status --tenants", command_shapes.Tenants),
    ("admit feed", command_shapes.Granted),
    ("explain feed", command_shapes.ExplainedWorkloads),
    ("admit other --unit other.service --limits cpu=1 --dry-run", command_shapes.Granted),
    ("gc --dry-run", command_shapes.GcPass),
    ("snapshot", command_shapes.Snapshot),
    ("pause --for 1h --reason disk", command_shapes.PauseBegun),
    ("resume", command_shapes.PauseEnded),
    ("resume", command_shapes.PauseEnded),
)


def test_the_json_of_single_commands(fake: node.Node, tmp_path: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with_workloads(fake)
    for words, shape in SINGLE:
        assert misfits(json.loads(runs.printed(fake.host(), *words.split(), "--json", code=None)), shape) == [], words


def test_the_json_of_a_pass_over_images_and_containers() -> None:
    gone = gc_outcome.Removed("root", "ab", ("base:1",), 5, "unused")
    disk = gc_outcome.FileSystem("/var", ("root",), 100, 10, 15, 85, 80, 10, 5, "in use", 3, (gone,), ("busy",))
    images = gc_outcome.Images((disk,), ("unreadable",), False)
    result = gc_outcome.Result(1, "", images, gc_outcome.Containers(1, (gone,), (), (), True))
    data = json.loads(json.dumps({"schema": SCHEMA, **gc_outcome.result_data(result)}))
    assert misfits(data, command_shapes.GcPass) == []


def test_the_json_of_a_topology_with_devices_and_unlike_cpus() -> None:
    cpus = frozenset({0, 1})
    devices = {"0000:01:00.0": topology.PciDevice("0000:01:00.0", 0, "0x020000", local_cpus=cpus)}
    found = topology.Topology(
        cpus, cores=(cpus,), dies=(cpus,), pci=devices, net={"eth0": None}, kinds=(("cpu_core", cpus),)
    )
    assert misfits({"schema": SCHEMA, **topology.to_dict(found)}, command_shapes.Topology) == []


def test_the_json_of_status_is_the_file_and_the_last_passes(converged: node.Node) -> None:
    told = json.loads(runs.printed(converged.host(), "status", "--json", code=None))
    assert [told.pop(name) for name in ("gc", "program", "stale")] == [None] * 3
    assert told == json.loads(converged.get(state.STATUS))


def result(fake: node.Node, *, check: bool) -> dict[str, t.Any]:
    """What the module profile returns."""
    terms = {"confirm_timeout": 0, "force": False}
    module = test_workload_module.Module(check=check, profile=None, layers=None, during_pause="apply", **terms)
    shell = test_workload_module.WORKLOAD._module
    return t.cast("dict[str, t.Any]", shell.profile_task(module, fake.host()))


@pytest.mark.parametrize("check", [True, False])
def test_the_result_of_a_module(check: bool, fake: node.Node) -> None:
    tampered(fake)
    found = result(fake, check=check)
    common = {key: found[key] for key in t.get_type_hints(json_shapes.ModuleResult)}
    assert misfits(common, json_shapes.ModuleResult) == []
    assert found["changes"]
    assert misfits(found["pools"], json_shapes.Pools) == []
    assert misfits(found["paused"], t.Optional[json_shapes.RenderedPause]) == []


@pytest.mark.parametrize("check", [True, False])
def test_a_program_of_the_profile_in_force_that_is_not_run_any_more_is_a_note(
    check: bool, fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "/opt/ok"
    fake.put(program, "")
    row = {"name": "example.com/tty", "match": {"path": "/dev/ttyX?"}, "check": {"command": [program]}}
    assert not applying.declare(fake.host(), profile.parse({"name": "x", "devices": [row]})).error
    runs.tick(fake.host())
    said = f"devices[0].check.command: {program} is not run: others than root can change {program} (owner 0, mode 0777): chmod go-w {program}"
    assert said not in result(fake, check=check)["notes"]
    fake.others[program] = (0o777, 0)
    assert result(fake, check=check)["notes"].count(said) == 1
    assert runs.printed(fake.host(), "plan", code=None).count(said) == 1
    runs.tick(fake.host())
    assert "is not run" not in "".join(capsys.readouterr())


def test_the_result_of_the_module_pause(fake: node.Node) -> None:
    module = test_workload_module.Module(check=True, duration="1h", reason="a disk")
    found = test_workload_module.WORKLOAD._module.pause_task(module, fake.host())
    assert found["schema"] == SCHEMA
    assert misfits(found["paused"], json_shapes.RenderedPause) == []


def test_the_fleets_report_is_made_of_what_modules_return(fake: node.Node) -> None:
    pytest.importorskip("jinja2")  # the report is made where Ansible runs, not on a node
    import test_fleet_report

    paused(fake)
    found = result(fake, check=True)
    hosts = {"a": found, "b": test_fleet_report.UNREACHABLE, "c": test_fleet_report.REFUSED}
    agent = {"drift": []}
    report = test_fleet_report.fleet_report(hosts, {"a": agent, "b": test_fleet_report.SKIPPED, "c": agent})
    assert misfits(report, json_shapes.Fleet) == []
    mine = report["lines"][report["lines"].index("a: drift, 1 item (profile edge, mode enforce)") + 1 :]
    assert [line.strip() for line in mine[:2]] == [found["paused"]["text"], found["drift"][0]["text"]]
    assert found["drift"][0]["text"] in found["report"]


def test_a_modules_result_has_the_machine_its_workloads_and_the_last_passes(fake: node.Node) -> None:
    with_workloads(fake)
    gc = {"images": None, "containers": None, "totals": {"images": 3, "containers": 0, "bytes": 0, "errors": 0}}
    runs.tick(fake.host(), by_timer=False)
    fake.put(state.GC_STATUS, json.dumps(gc))
    found = result(fake, check=True)
    assert misfits(found["numa_nodes"], list[json_shapes.NumaNode]) == []
    assert [one["cpus"] for one in found["numa_nodes"]] == ["0-1,4-5", "2-3,6-7"]
    assert [one["memory_mib"] for one in found["numa_nodes"]] == [4096, 4096]
    assert found["workloads"] == json.loads(fake.get(state.STATUS))["workloads"]
    assert [one["name"] for one in found["workloads"]] == ["feed"]
    assert found["gc_report"] == ["gc: since the node started 3 images and 0 containers removed, 0 freed, 0 failures"]
    (owned,) = [part for part in found["cpu_map"][-1].split("   ") if "exclusive" in part]
    assert owned == f"E exclusive {found['workloads'][0]['cpus']} (feed {found['workloads'][0]['cpus']})"


def test_the_fleets_report_shows_what_a_module_returns_of_workloads(fake: node.Node) -> None:
    pytest.importorskip("jinja2")  # the report is made where Ansible runs, not on a node
    import test_fleet_report

    with_workloads(fake)
    found = result(fake, check=True)
    report = test_fleet_report.fleet_report({"a": found}, {"a": {"drift": []}})
    assert misfits(report, json_shapes.Fleet) == []
    host = report["hosts"]["a"]
    assert host["verdict"] == "in_sync"
    assert (host["numa_nodes"], host["workloads"]) == (found["numa_nodes"], found["workloads"])
    page = test_fleet_report.drawn(report)
    assert '<th scope="row">feed</th><td>granted</td>' in page and "<td>4096 MiB</td>" in page
