# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What README and docs show of a node is so: their profiles are rolled out on a fake one, and their commands print what is shown there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import typing as t
from pathlib import Path
from unittest import mock

import fake_kubelet
import node
import pytest
import runs
import services
import test_describing
import test_devices_granted
import test_gc
import yaml
from _core import main
from _core.cli import commands
from _core.gc.deadline import Stop
from _core.host import state
from _core.host.agent import node_hooks
from _core.host.command import Command
from _core.host.files import Host
from _core.model.agent.agent_units import LAUNCHER, RELEASES
from _core.model.cpu import busy_services
from _core.model.gc import gc_units
from _core.model.kubelet.kubelet_config import Layer, effective
from _core.model.kubelet.kubelet_sizing import Use, exceeded
from _core.model.profile import profile
from _core.pipeline import applying, locked_run, planning
from _core.reports import change_text, cpu_map
from documented import commands as commands_of
from documented import differences, shows
from fake_podman import MIB, Disk, Storage
from shared_data import REPOSITORY
from test_documents import TARGETS

Data = dict[str, t.Any]
Printed = pytest.CaptureFixture[str]
MINIMAL: Data = {"name": "minimal", "cpu": {"reserved": {"count": 2}, "policy": "static"}}
EFFECTIVE = "/var/lib/corral/effective-profile.json"


def roll_out(fake: node.Node, data: Data) -> None:
    host = fake.host()
    outcome = locked_run.published(host, applying.declare(host, profile.parse(data)))
    assert (outcome.error, outcome.remaining) == ("", ())


def corral(fake: node.Node, printed: Printed, command: str) -> list[str]:
    """What a command prints on a node, as ``corral`` itself or, before the agent is installed, as ``bin/corral``."""
    name, *words = shlex.split(command)
    assert name in ("corral", "bin/corral")
    printed.readouterr()

    def host_of(dummy_root: str) -> Host:
        return fake.host()

    with mock.patch.object(commands, "Host", host_of):
        main.main(words)
    return "".join(printed.readouterr()).splitlines()


def wrong_in(fake: node.Node, printed: Printed, block: str) -> list[str]:
    """Where a block of commands shows other lines than they print."""
    return [line for one in commands_of(block) for line in differences(one.output, corral(fake, printed, one.words))]


def start(fake: node.Node, *units: str) -> None:
    for unit in units:
        assert services.start(fake, unit), fake.said
    runs.tick(fake.host())


# README


@shows("README.md", "                    profile (YAML)                    one core per NUMA node for housekeeping,")
def test_the_pools_of_the_first_picture(shown: str, fake: node.Node, capsys: Printed) -> None:
    roll_out(fake, {"name": "x", "cpu": {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 1, "numa": 1}}})
    context = planning.compile_profile(fake.host(), profile.parse(json.loads(fake.get("/etc/corral/profile.json"))))
    drawn = [line for line in cpu_map.cpu_map(context.topology, context.pools) if line.startswith("node ")]
    left, right = zip(*((line[:33].rstrip(), line[34:]) for line in shown.splitlines()[-3:]))
    assert [line for line in left if line] == [line.partition("   socket")[0] for line in drawn]
    slices = json.loads(fake.get(EFFECTIVE))["cpu"]["slices"]
    pools = json.loads("\n".join(corral(fake, capsys, "corral pools --json")))
    for line, pool in zip(right, ("reserved", "shared", "isolated")):
        sign, name, units = line.removesuffix(", and nothing else").split(maxsplit=2)
        assert (sign, name) == (pool[0].upper(), pool)
        assert set(units.split(", ")) == {unit for unit, cpus in slices.items() if cpus == pools[pool]}


@shows("README.md", "make rollout")
def test_the_two_commands_of_make_are_there(shown: str) -> None:
    assert {line.removeprefix("make ") for line in shown.splitlines()} <= TARGETS


# docs/brownfield.md


@shows(
    "docs/brownfield.md",
    "# corral profile --from-node --name db1 >db1.yml",
    "name: db1",
    "# corral plan --profile edge.yml",
)
def test_a_node_that_is_in_use(
    shown: list[str], fake: node.Node, capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_describing.plain(fake)
    fake.kernel_write(node.pool_file(0), "20")
    fake.put("/etc/sysctl.d/99-mine.conf", "kernel.threads-max = 12000\n")
    fake.kernel_write("/proc/sys/kernel/threads-max", "12000")
    fake.kernel_write("/proc/sys/kernel/pid_max", "100000")
    monkeypatch.chdir(tmp_path)
    described, compared = commands_of(shown[0])
    command, file = described.words.split(" >")
    said = corral(fake, capsys, command)
    Path(file).write_text("\n".join(said) + "\n")
    assert [line for line in said if not line.startswith("# ")] == shown[1].splitlines()
    assert differences(compared.output, corral(fake, capsys, compared.words)) == []
    page = " ".join((REPOSITORY / "docs/brownfield.md").read_text(encoding="utf-8").split())
    database = busy_services.Service("db.service", 5.1 * 12 * 86400, 12 * 86400.0, "db")
    other = busy_services.Service("other.service", 0.1 * 86400, 86400.0, "other")
    note = busy_services.note("system.slice", frozenset(range(8)), frozenset({0, 1, 4, 5}), [database, other])
    assert note and f"`{note.partition(', other')[0]}, …`" in page
    shutil.copy(node.EDGE, "edge.yml")
    (plan,) = commands_of(shown[2])
    assert corral(fake, capsys, plan.words)[0].startswith("~ cpu system.slice AllowedCPUs: ")


# docs/cgroup-v1.md


@shows("docs/cgroup-v1.md", "/sys/fs/cgroup/cpuset/init.scope, system.slice, user.slice      reserved")
def test_the_directories_of_slices(shown: str, make: t.Callable[..., node.Node]) -> None:
    fake = make(legacy=True)
    cpu = {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 1, "numa": 1}}
    roll_out(fake, {"name": "x", "cpu": cpu})
    pools = {"reserved": "0,2,4,6", "shared": "1,5", "isolated": "3,7"}
    for line in shown.splitlines():
        paths, words = re.split(r" {2,}", line)
        first, *others = paths.split(", ")
        for path in (first, *(f"{os.path.dirname(first)}/{unit}" for unit in others)):
            assert fake.get(f"{path}/cpuset.cpus").strip() == pools[words.partition(";")[0]]


# docs/devices.md


def plug_in(fake: node.Node) -> None:
    """A device of each kind that the page declares."""
    fake.put("/dev/vfio/vfio", "char/10:196\n")
    for address in test_devices_granted.NICS[:2]:
        test_devices_granted.plug_nic(fake, address)
    wired = test_devices_granted.NICS[2]
    test_devices_granted.plug_nic(fake, wired, driver="i40e")
    fake.put(f"/sys/bus/pci/devices/{wired}/net/ens1f0/carrier", "1\n")
    (fake.root / "sys/class/net").mkdir(parents=True)
    (fake.root / "sys/class/net/ens1f0").symlink_to(f"../../bus/pci/devices/{wired}/net/ens1f0")
    test_devices_granted.plug_tty(fake, 0)
    fake.put("/dev/nvidia0", "char/195:0\n")
    edits = {"deviceNodes": [{"path": "/dev/nvidia0"}]}
    gpus = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": edits}]}
    fake.put("/etc/cdi/nvidia.json", json.dumps(gpus))


@shows("docs/devices.md", "devices:", "workloads:")
def test_each_declared_resource_has_its_devices_and_a_workload_gets_them(
    shown: list[str], fake: node.Node, capsys: Printed
) -> None:
    plug_in(fake)
    services.add(fake, "dpdk.service")
    roll_out(fake, {**MINIMAL, **yaml.safe_load(shown[0]), **yaml.safe_load(shown[1])})
    devices = json.loads("\n".join(corral(fake, capsys, "corral devices --json")))
    assert devices["problems"] == []
    assert {one["name"]: one["healthy"] for one in devices["resources"]} == {
        "example.com/nic": 1, "example.com/nic-vfio": 2, "example.com/modem": 1, "nvidia.com/gpu": 1,
    }  # fmt: skip
    start(fake, "dpdk.service")
    run = fake.runs["dpdk.service"]
    assert len(run.cpus) == 4
    assert run.devices == {"/dev/vfio/vfio", "/dev/vfio/7", "/dev/vfio/8"}


@shows("docs/devices.md", "- name: example.com/nic # an item of devices")
def test_a_check_of_ones_own(shown: str, fake: node.Node, capsys: Printed) -> None:
    plug_in(fake)
    (row,) = yaml.safe_load(shown)
    program = row["check"]["command"][0]
    fake.programs[program] = lambda *argv: Command(3, f"{argv[1]} has no light\n", "")
    roll_out(fake, {**MINIMAL, "devices": [row]})
    (resource,) = json.loads("\n".join(corral(fake, capsys, "corral devices --check --json")))["resources"]
    nic = test_devices_granted.NICS[2]
    assert [one["reason"] for one in resource["devices"]] == [f"{program}: exit code 3: {nic} has no light"]


@shows("docs/devices.md", "- name: example.com/nic-vfio # an item of devices")
def test_a_device_that_is_bound_for_a_workload(shown: str, fake: node.Node) -> None:
    fake.pci.load("i40e", "vfio-pci")
    fake.pci.plug("0000:3b:00.0", "i40e", interface="ens1f0", group=7)
    fake.put("/dev/vfio/vfio", "char/10:196\n")
    services.add(fake, "dpdk.service")
    dpdk = {"name": "dpdk", "match": {"unit": "dpdk.service"}, "limits": {"example.com/nic-vfio": 1}}
    roll_out(fake, {**MINIMAL, "devices": yaml.safe_load(shown), "workloads": [dpdk]})
    start(fake, "dpdk.service")
    assert (fake.pci.driver("0000:3b:00.0"), fake.runs["dpdk.service"].devices) == (
        "vfio-pci",
        {"/dev/vfio/7", "/dev/vfio/vfio"},
    )


@shows("docs/devices.md", "# podman run --device corral.node/grant=web:app …")
def test_the_names_of_cdi_devices(shown: str, fake: node.Node) -> None:
    test_devices_granted.plug_tty(fake, 0)
    modem = {"name": "example.com/modem", "match": {"path": "/dev/serial/by-path/*"}}
    of_pod, of_unit = commands_of(shown)
    assert of_unit.words.endswith("/etc/containers/systemd/web.container")
    services.add(fake, "web.service")  # which Quadlet makes of web.container
    limits = {"example.com/modem": 1}
    app = {"name": "web", "match": {"pod": "web"}, "containers": [{"name": "app", "limits": limits}]}
    web = {"name": "web", "match": {"unit": "web.service"}, "limits": limits}
    for workload, line in ((app, of_pod.words), (web, of_unit.output[0])):
        roll_out(fake, {**MINIMAL, "devices": [modem], "workloads": [workload]})
        spec = json.loads(fake.get(test_devices_granted.SPEC))
        names = [f"{spec['kind']}={device['name']}" for device in spec["devices"]]
        assert set(names) & set(line.replace("AddDevice=", " ").split()), names


def test_the_problems_of_devices(fake: node.Node, capsys: Printed) -> None:
    """Not a fenced example, but a table of texts to search for."""
    for address in test_devices_granted.NICS[:2]:
        test_devices_granted.plug_nic(fake, address, group=7)  # both functions are one device
    for name, path in (("a", "/dev/one"), ("b", "/dev/two")):
        fake.put(path, "char/195:0\n")
        edits = {"deviceNodes": [{"path": path}]}
        gpus = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": edits}]}
        fake.put(f"/etc/cdi/{name}.json", json.dumps(gpus))
    fake.put("/etc/cdi/c.json", '{"cdiVersion": 5, "kind": "x.com/y", "devices": []}')
    fake.put("/etc/cdi/d.json", '{"cdiVersion": "0.5.0", "kind": "x.com/y", "devices": [{"name": "a"}]}')
    matches = [
        {"driver": "vfio-pci"},
        {"path": "/dev/vfio/7"},
        {"pci": "8086:1572"},
        {"driver": "nosuch"},
        {"cdi": "nvidia.com/gpu"},
    ]
    rows = [{"name": f"example.com/r{number}", "match": match} for number, match in enumerate(matches)]
    fake.put("/profile.yml", json.dumps({"name": "x", "devices": rows}))
    said = corral(fake, capsys, f"corral devices --profile {fake.root}/profile.yml")
    page = (REPOSITORY / "docs/devices.md").read_text(encoding="utf-8").partition("## Problems\n")[2]
    texts = [text for line in page.splitlines() for text in re.findall(r"`([^`]+)`", line.split(" | ")[0])]
    patterns = {text: ".*".join(re.escape(part) for part in text.split("…")) for text in texts}
    assert len(texts) == 6
    assert [text for text, pattern in patterns.items() if not any(re.search(pattern, line) for line in said)] == [], (
        said
    )


# docs/fleet.md


@shows("docs/fleet.md", "confirm:")
def test_a_profile_that_confirms_itself(shown: str, fake: node.Node) -> None:
    data = yaml.safe_load(shown)
    fake.put(data["confirm"]["command"][0], "")
    roll_out(fake, {**MINIMAL, **data})
    assert json.loads(fake.get("/etc/corral/profile.json"))["confirm"] == data["confirm"]


# docs/gc.md


def full_disk(fake: node.Node) -> None:
    """A disk of 40 GiB of which 83 % are used, with six dead containers, and a node on which earlier passes removed some."""
    storage = fake.podmans["root"] = Storage(fake.root, Disk(capacity=40 << 30))
    for tag, size in (("39", 3276), ("40", 2867), ("41", 500)):
        last = storage.image(f"quay.example/batch:{tag}", layers={tag: size})
        test_gc.tick(fake)
        fake.wait(600)
    of_unit = {f"nightly-{number}": {"PODMAN_SYSTEMD_UNIT": f"nightly@{number}.service"} for number in (41, 42, 43)}
    for name, labels in {**of_unit, "adhoc-1": {}, "adhoc-2": {}, "adhoc-young": {}}.items():
        ended = fake.time - (60 if name == "adhoc-young" else 7200 - len(storage.containers))
        storage.container(name, last, created=ended - 60, ended=ended, labels=labels)
    storage.disk.others = 33700 * MIB - storage.taken
    kept = test_gc.told(fake)
    before = {"images": 12, "containers": 30, "bytes": 32 << 30, "errors": 0}
    fake.put(state.GC_STATUS, json.dumps({**kept, "totals": before}))


@shows("docs/gc.md", "name: batch", "# corral gc --dry-run", "# corral status")
def test_garbage_collection(
    shown: list[str], fake: node.Node, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stop, "wait", lambda dummy, seconds: fake.wait(seconds))
    fake.podmans["root"] = Storage(fake.root, Disk(capacity=40 << 30))
    roll_out(fake, yaml.safe_load(shown[0]))
    full_disk(fake)
    assert wrong_in(fake, capsys, shown[1]) == []
    test_gc.tick(fake)
    fake.wait(12)
    status, journal = commands_of(shown[2])
    assert journal.words == f"journalctl -u {gc_units.SERVICE}"
    said = [line for line in corral(fake, capsys, status.words) if line.startswith("gc: ")]
    assert differences(status.output, said) == []


# docs/kubelet.md


@shows("docs/kubelet.md", "name: worker", "corral kubelet                       # on the node")
def test_a_kubelet(
    shown: list[str], fake: node.Node, capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_hooks, "STEADY_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    for name in ("threads-max", "pid_max"):
        fake.put(f"/proc/sys/kernel/{name}", "31130\n")  # as with 4 GiB
    kubelet = fake_kubelet.install(fake)
    data = yaml.safe_load(shown[0])
    fake.put(data["kubelet"]["drain"], "")
    roll_out(fake, data)
    assert kubelet.config["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true", "strict-cpu-reservation": "true"}
    on_node, as_data, of_copy = commands_of(shown[1])
    assert corral(fake, capsys, on_node.words)[-1] == "no assignment leaks, no CPUs overlap"
    assert "CPUs by policy static:" in corral(fake, capsys, on_node.words)
    assert json.loads("\n".join(corral(fake, capsys, as_data.words)))["findings"] == []
    (tmp_path / of_copy.words.split()[-1].rstrip("/")).symlink_to(fake.recorded())
    assert "CPUs by policy static:" in corral(fake, capsys, of_copy.words)


IN_USE = (
    "what runs beside pods uses memory 1987Mi now (system.slice 1741Mi, user.slice 246Mi), and kubeReserved and systemReserved "
    "add up to 1024Mi: reserve more, or pods may use what it needs"
)


@shows("docs/kubelet.md", IN_USE)
def test_a_note_says_what_runs_where_the_reserves_are_less(shown: str) -> None:
    used = [Use("user.slice", 246 << 20, 5), Use("system.slice", 1741 << 20, 50)]
    data = {"kubeReserved": {"memory": "512Mi"}, "systemReserved": {"memory": "512Mi"}}
    assert exceeded(effective([Layer("config.yaml", data)]), used) == shown.splitlines()


# docs/maintenance.md


@shows("docs/maintenance.md", 'corral pause --for 1h --reason "exchanging a disk"')
def test_a_pause_begins_and_ends(shown: str, fake: node.Node, capsys: Printed) -> None:
    runs.converged(fake, with_agent=True)
    pause, resume = commands_of(shown)
    said = corral(fake, capsys, pause.words)
    assert said[0].startswith("paused until ") and said[0].endswith(": exchanging a disk")
    assert corral(fake, capsys, resume.words) == [f"ended: {said[0]}"]


@shows(
    "docs/maintenance.md",
    "/usr/libexec/corral/corral -> releases/0f3a5c7e9b21/corral",
    "~ agent /usr/libexec/corral program: 91bc44d07e3a -> 0f3a5c7e9b21 (143 files)",
)
def test_an_upgrade(shown: list[str], fake: node.Node) -> None:
    assert not runs.install(fake.host(), runs.OLDER).error
    outcome = runs.install(fake.host(), runs.NEWER)
    target = os.readlink(fake.root / LAUNCHER[1:])
    new = target.split("/")[1]
    (old,) = set(os.listdir(fake.root / RELEASES[1:])) - {new}
    lines = [f"{LAUNCHER} -> {target}", f"{RELEASES}/{new}/     runs", f"{RELEASES}/{old}/     ran before"]
    names = {new: "0f3a5c7e9b21", old: "91bc44d07e3a"}
    for name, of_page in names.items():
        lines = [line.replace(name, of_page) for line in lines]
    assert shown[0].splitlines() == lines
    said = change_text.outcome_lines(outcome)
    assert differences(shown[1].splitlines(), [line for line in said if " program: " in line]) == []


# docs/tenants.md


@shows(
    "docs/tenants.md",
    "tenants:",
    "tenant acme, quota compute: requests.cpu used 5, asked 2, hard 6 (db has 3, web has 2): ask for less, raise the quota, or release",
    "# corral status --tenants",
)
def test_tenants(shown: list[str], fake: node.Node, capsys: Printed) -> None:
    services.add(fake, "acme-web.service", "acme-cron@.service", "acme-db.service", "acme-new.service")
    assert not runs.install(fake.host()).error
    data = {**MINIMAL, **yaml.safe_load(shown[0])}
    roll_out(fake, data)
    start(fake, "acme-web.service", "acme-cron@a.service")
    assert wrong_in(fake, capsys, shown[2]) == []
    services.stop(fake, "acme-cron@a.service")
    roll_out(fake, {**data, "cpu": {"reserved": {"cpus": "0"}}})  # It shares its CPUs: more of them are left.
    corral(fake, capsys, "corral admit db --unit acme-db.service --limits cpu=3,memory=1Gi")
    said = corral(fake, capsys, "corral admit new --unit acme-new.service --limits cpu=2,memory=1Gi")
    assert " ".join(shown[1].split()) in "\n".join(said)


# docs/workloads.md


@shows("docs/workloads.md", "# /etc/containers/systemd/web.pod")
def test_the_files_of_a_quadlet_pod_name_what_it_was_granted(shown: str, fake: node.Node, capsys: Printed) -> None:
    lines = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line and not line.startswith("#"))
    name, container = lines["PodName"], lines["ContainerName"]
    need = {"cpu": 1, "memory": "64Mi"}
    pod = {"name": name, "match": {"pod": name}, "hold": "running", "containers": [{"name": container, "limits": need}]}
    assert not runs.install(fake.host()).error
    roll_out(fake, {**MINIMAL, "workloads": [pod]})
    said = corral(fake, capsys, lines["ExecStartPre"])
    assert said and said[0].endswith(f"in {lines['Slice']}")
    spec = json.loads(fake.get(test_devices_granted.SPEC))
    assert lines["AddDevice"] in [f"{spec['kind']}={device['name']}" for device in spec["devices"]]


@shows(
    "docs/workloads.md",
    "name: workloads",
    "# corral status",
    "# corral admit analysis --container analysis --limits cpu=4,memory=1Gi --dry-run",
    "# corral explain dataplane",
)
def test_workloads(shown: list[str], fake: node.Node, capsys: Printed) -> None:
    services.add(fake, "dataplane.service", "feed.service", "batch.service")
    assert not runs.install(fake.host()).error
    roll_out(fake, yaml.safe_load(shown[0]))
    start(fake, "dataplane.service", "feed.service")
    for block in shown[1:3]:
        assert wrong_in(fake, capsys, block) == []
    explain, admit, podman, release = commands_of(shown[3])
    for one in (explain, admit):
        assert differences(one.output, corral(fake, capsys, one.words)) == []
    (parent,) = [word.partition("=")[2] for word in podman.words.split() if word.startswith("--cgroup-parent=")]
    assert parent == "corral_analysis.slice" and fake.has(f"/etc/systemd/system/{parent}.d/10-corral-cpu.conf")
    assert differences(release.output, corral(fake, capsys, release.words)) == []


@shows("docs/workloads.md", "  - name: web", "# podman pod create --name web --cgroup-parent=corral_web.slice")
def test_a_pod_gets_the_peak_of_its_containers(shown: list[str], fake: node.Node, capsys: Printed) -> None:
    assert not runs.install(fake.host()).error
    roll_out(fake, {**MINIMAL, "workloads": yaml.safe_load(shown[0])})
    said = corral(fake, capsys, "corral explain web")
    assert "CPUs: 4 of its own" in said
    assert [line for line in said if "proxy" in line] and [line for line in said if "app" in line]
    pod, container = commands_of(shown[1])
    (parent,) = [word.partition("=")[2] for word in pod.words.split() if word.startswith("--cgroup-parent=")]
    assert fake.has(f"/etc/systemd/system/{parent}.d/10-corral-cpu.conf")
    spec = json.loads(fake.get(test_devices_granted.SPEC))
    assert container.words.split()[-2] in [f"{spec['kind']}={device['name']}" for device in spec["devices"]]


@shows("docs/workloads.md", "# podman pod create --name web --share-parent=false")
def test_a_pod_on_the_shared_pool_has_its_containers_in_its_slice(shown: str, fake: node.Node) -> None:
    pod, container = commands_of(shown)
    app = {"name": "app", "limits": {"cpu": "500m", "memory": "64Mi"}}
    assert not runs.install(fake.host()).error
    roll_out(fake, {**MINIMAL, "workloads": [{"name": "web", "match": {"pod": "web"}, "containers": [app]}]})
    assert "--cgroup-parent" not in pod.words
    (parent,) = [word.partition("=")[2] for word in container.words.split() if word.startswith("--cgroup-parent=")]
    assert fake.has(f"/etc/systemd/system/{parent}.d/10-corral-workloads.conf")
    spec = json.loads(fake.get(test_devices_granted.SPEC))
    assert container.words.split()[-2] in [f"{spec['kind']}={device['name']}" for device in spec["devices"]]
