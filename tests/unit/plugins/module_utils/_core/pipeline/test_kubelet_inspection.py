# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a node's kubelet, on trees with its processes, files and control groups."""

from __future__ import annotations

import argparse
import json
import shutil
import typing as t
from pathlib import Path

import processes
import pytest
import trees
from _core.cli import kubelet_command
from _core.host import state
from _core.host.files import Host
from _core.host.kubelet import kubelet_api, kubelet_node
from _core.main import main
from _core.model.kubelet import inspected, state_files
from _core.model.kubelet.go_values import checksum
from _core.model.status import kubelet_shapes
from _core.model.values.errors import CorralError
from _core.pipeline import kubelet_inspection, kubelet_since
from _core.reports import kubelet_report
from shapes import misfits

ID = "0123456789abcdef" * 4
UID = "0b2a1f8e-0a1b-4c2d-8e3f-1234567890ab"
GONE = "9b2a1f8e-0a1b-4c2d-8e3f-1234567890ab"
CONFIG = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0-1"
maxPods: 50
"""
DROP_IN = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
FLAGS = ["--config=/var/lib/kubelet/config.yaml", "--config-dir=/etc/kubelet.d", "--node-ip=::"]


class Tree:
    """A machine of 8 CPUs as a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        trees.build(folder, trees.Machine(sockets=1, cores=4))
        self.write("sys/fs/cgroup/cgroup.controllers", "cpuset")
        self.write("sys/fs/cgroup/cpuset.cpus.effective", "0-7")
        self.write("var/lib/kubelet/config.yaml", CONFIG)

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def run(self, *flags: str, name: str = "kubelet", pid: int = 1047, **seen: t.Any) -> None:
        """A process of this name."""
        for path, text in processes.files(pid, name, **seen).items():
            self.write(path[1:], text)
        self.write(f"proc/{pid}/cmdline", "\0".join(["/usr/bin/kubelet", *flags, ""]))
        self.write(f"proc/{pid}/stat", f"{pid} ({name}) S {'0 ' * 18}500 0")

    def state(
        self, default: str = "0-3,6-7", entries: dict[str, dict[str, str]] | None = None, policy: str = "static"
    ) -> None:
        """A CPU manager's file as the kubelet writes it."""
        data: dict[str, t.Any] = {"policyName": policy, "defaultCpuSet": default, "entries": entries or {}}
        version = state_files.CPU.versions[1]
        values = {"PolicyName": policy, "DefaultCPUSet": default, "Entries": data["entries"], "Checksum": 0}
        data["checksum"] = checksum(state_files.hashed(state_files.CPU, version, values))
        self.write("var/lib/kubelet/cpu_manager_state", json.dumps(data))

    def container(self, cpus: str, pod: str = UID, name: str = "main", identity: str = ID) -> None:
        """A container with its control group, and the link of its log."""
        slices = f"kubepods.slice/kubepods-pod{pod.replace('-', '_')}.slice"
        self.write(f"sys/fs/cgroup/{slices}/cri-containerd-{identity}.scope/cpuset.cpus.effective", cpus)
        self.write(f"var/log/containers/web_default_{name}-{identity}.log", "")

    @property
    def host(self) -> Host:
        return Host(str(self.folder), clock=lambda: 10_000.0, uptime=lambda: 1000.0)

    def look(self) -> inspected.Inspection:
        return kubelet_inspection.inspect(self.host)


@pytest.fixture(name="tree")
def made_tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.run(*FLAGS)
    return tree


def findings(found: inspected.Inspection) -> list[tuple[str, str, str]]:
    return [(one.kind, one.subject, one.cpus) for one in found.findings]


def test_a_node_in_order_has_no_findings(tree: Tree) -> None:
    tree.state(entries={UID: {"main": "4-5"}})
    tree.container("4-5")
    found = tree.look()
    assert (found.pid, found.findings, found.refusals, found.config.problems) == (1047, (), (), ())
    data = kubelet_report.to_data(found)
    assert misfits(data, kubelet_shapes.KubeletReport) == []
    file = "/var/lib/kubelet/config.yaml"
    changed = int((tree.folder / file[1:]).stat().st_mtime)
    assert data["config"]["maxPods"] == {"value": 50, "origin": file, "since": changed}
    assert data["config"]["podPidsLimit"] == {"value": -1, "origin": "default", "since": None}
    said = "\n".join(kubelet_report.lines(found))
    assert "no assignment leaks, no CPUs overlap" in said
    assert "exclusive  4-5" in said
    assert main(["kubelet", "--root", str(tree.folder)]) == 0


def test_a_path_of_a_kubelet_stays_on_its_line(tree: Tree) -> None:
    tree.run("--config=/none\nno assignment leaks\x1b[2J", "--root-dir=/other\r\nlib")
    said = kubelet_report.lines(tree.look())
    assert any("/none\\nno assignment leaks\\x1b[2J" in line for line in said)
    assert all(line.isprintable() for line in said)


def test_what_the_running_kubelet_has_otherwise_is_named(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    # A copy of a node is not asked, so its kubelet tells nothing.
    assert kubelet_report.to_data(tree.look())["config_running"] is None
    running = {"maxPods": 70, "cpuManagerReconcilePeriod": "10s", "evictionPressureTransitionPeriod": "300s"}
    found = tree.look()
    running = {**found.config.data, **running, "syncFrequency": "1m0s"}
    monkeypatch.setattr(kubelet_api, "running_configuration", lambda host, config: running)
    found = tree.look()
    file = "/var/lib/kubelet/config.yaml"
    data = kubelet_report.to_data(found)
    assert data["config_running"] == [{"key": "maxPods", "running": "70", "configured": "50", "origin": file}]
    assert misfits(data, kubelet_shapes.KubeletReport) == []
    assert f"the running kubelet has maxPods 70, and {file} says 50" in kubelet_report.lines(found)


def test_a_key_that_no_kubelet_has_is_named_and_nothing_else_of_its_file(tree: Tree) -> None:
    tree.write("etc/kubelet.d/20.conf", DROP_IN + "maxPod: 60\nmaxPods: 61\n")
    (problem,) = tree.look().config.problems
    assert problem.startswith(
        "/etc/kubelet.d/20.conf: maxPod: no key of a KubeletConfiguration up to 1.37: misspelt, or newer"
    )


def test_what_pods_may_have_is_shown_now_and_by_the_declared_profile(tree: Tree) -> None:
    found = tree.look()
    (cpu, *dummy, pods) = kubelet_report.to_data(found)["allocatable"]
    assert cpu == {"resource": "cpu", "capacity": "8", "allocatable": "6", "wanted": None}
    assert pods == {"resource": "pods", "capacity": "50", "allocatable": "50", "wanted": None}
    assert found.drift == ()
    profile = {"name": "x", "cpu": {"reserved": {"cpus": "0-3"}}, "kubelet": {"max_pods": 20}}
    tree.write("etc/corral/profile.json", json.dumps(profile))
    found = tree.look()
    (cpu, *dummy, pods) = kubelet_report.to_data(found)["allocatable"]
    assert (cpu["wanted"], pods["wanted"]) == ("4", "20")
    assert [(one.subject, one.actual, one.wanted, one.location) for one in found.drift] == [
        ("maxPods", "50", "20", "/var/lib/kubelet/config.yaml"),
        ("reservedSystemCPUs", "0-1", "0-3", "/var/lib/kubelet/config.yaml"),
    ]
    said = "\n".join(kubelet_report.lines(found))
    assert "-> 20 by the declared profile" in said
    assert "~ kubelet maxPods value: 50 -> 20" in said
    assert main(["kubelet", "--root", str(tree.folder)]) == 2


def test_a_declared_profile_that_does_not_fit_hides_nothing_else(tree: Tree) -> None:
    tree.write("etc/corral/profile.json", json.dumps({"name": "x", "cpu": {"reserved": {"cpus": "9"}}, "kubelet": {}}))
    found = tree.look()
    assert [(one.verdict, one.subject) for one in found.drift] == [("unknown", "configuration")]
    assert "cpu.reserved.cpus: 9" in found.drift[0].reason


def test_drop_ins_are_read_in_the_kubelets_order_and_wrong_ones_are_named(tree: Tree) -> None:
    tree.write("etc/kubelet.d/20.conf", DROP_IN + "maxPods: 60\n")
    tree.write("etc/kubelet.d/10-dir/99.conf", DROP_IN + "maxPods: 70\npodPidsLimit: 5\n")
    tree.write("etc/kubelet.d/30.yaml", DROP_IN + "maxPods: 80\n")
    tree.write("etc/kubelet.d/40.conf", "maxOpenFiles: 5\n")
    tree.write("etc/kubelet.d/50.conf", "")
    tree.write("etc/kubelet.d/60.conf", "a: [\n")
    found = tree.look()
    settings = found.config.settings()
    assert settings["maxPods"] == (60, "/etc/kubelet.d/20.conf")
    assert settings["podPidsLimit"] == (5, "/etc/kubelet.d/10-dir/99.conf")
    assert [line.partition(":")[0] for line in found.config.problems] == [
        f"/etc/kubelet.d/{name}.conf" for name in ("40", "50", "60")
    ]


@pytest.mark.parametrize("lost", ["apiVersion: kubelet.config.k8s.io/v1beta1\n", "kind: KubeletConfiguration\n"])
def test_a_file_without_its_kind_or_version_is_named_as_one_that_the_kubelet_refuses(lost: str, tree: Tree) -> None:
    """It decodes --config as it does each drop-in, and knows no default kind (DecodeKubeletConfiguration)."""
    path = "/var/lib/kubelet/config.yaml"
    tree.write(path[1:], CONFIG.replace(lost, ""))
    said = "has no apiVersion: kubelet.config.k8s.io/v1beta1 and kind: KubeletConfiguration: the kubelet refuses it"
    assert f"{path}: {said}" in tree.look().config.problems


def test_files_that_are_newer_than_the_kubelet_are_named(tree: Tree) -> None:
    assert tree.look().newer == ("/var/lib/kubelet/config.yaml",)
    old = Host(str(tree.folder), clock=lambda: 1e11, uptime=lambda: 1000.0)
    assert kubelet_inspection.inspect(old).newer == ()


@pytest.mark.parametrize(
    ("default", "entries", "policy", "said"),
    [
        (
            "0-7",
            {},
            "none",
            'configured policy "static" differs from state checkpoint policy "none", please drain this node and delete',
        ),
        ("0-3,6-7", {}, "static", "current set of available CPUs"),
        ("2-7", {UID: {"main": "0-1"}}, "static", "not all reserved cpus"),
    ],
)
def test_what_the_kubelet_would_not_start_with_is_said_in_its_words(
    tree: Tree, default: str, entries: dict[str, dict[str, str]], policy: str, said: str
) -> None:
    tree.state(default, entries, policy)
    (refused,) = tree.look().refusals
    assert said in refused.refusal
    assert main(["kubelet", "--root", str(tree.folder)]) == 2


def test_a_torn_file_is_refused_and_nothing_else_is_lost(tree: Tree) -> None:
    tree.write("var/lib/kubelet/cpu_manager_state", "{")
    found = tree.look()
    assert [one.path for one in found.refusals] == ["/var/lib/kubelet/cpu_manager_state"]
    assert "unexpected end of JSON input, please drain this node" in found.refusals[0].refusal
    assert list(kubelet_report.lines(found))[-1] == (
        "unknown whether assignments leak or CPUs overlap: /var/lib/kubelet/cpu_manager_state cannot be read"
    )
    assert found.config.get("maxPods") == 50


def test_without_a_list_the_kubelet_reserves_as_many_cpus_as_are_reserved_in_all(tree: Tree) -> None:
    reserved = 'systemReserved: {cpu: 500m}\nkubeReserved: {cpu: "1"}\n'
    tree.write("var/lib/kubelet/config.yaml", CONFIG.replace('reservedSystemCPUs: "0-1"\n', reserved))
    tree.state("0-7")
    assert not tree.look().refusals
    tree.state("1-3,5-7", {UID: {"main": "0,4"}})  # 0 and 4 are one core
    assert 'not all reserved cpus: "0,4"' in tree.look().refusals[0].refusal


@pytest.mark.parametrize("policy", ["none", "static"])
@pytest.mark.parametrize("reserve", ['systemReserved: {cpu: "64"}', 'reservedSystemCPUs: "x"'])
def test_a_reserve_that_cannot_be_is_one_for_the_policy_static_alone(policy: str, reserve: str, tree: Tree) -> None:
    """The CPU manager of the policy none asks for none; other checks may refuse the key."""
    text = CONFIG.replace('reservedSystemCPUs: "0-1"', reserve).replace("static", policy)
    tree.write("var/lib/kubelet/config.yaml", text)
    tree.state(default="0-7" if policy == "static" else "", policy=policy)
    found = tree.look()
    said = [one.refusal for one in found.refusals]
    assert bool(said) == (policy == "static"), said


def test_the_assignment_of_a_pod_that_is_gone_leaks(tree: Tree) -> None:
    tree.state(entries={GONE: {"main": "4-5"}})
    assert findings(tree.look()) == [("leaked", GONE, "4-5")]
    (tree.folder / f"var/lib/kubelet/pods/{GONE}").mkdir(parents=True)
    assert not tree.look().findings


def test_containers_on_other_cpus_and_overlaps_are_found(tree: Tree) -> None:
    tree.state(entries={UID: {"main": "4-5"}})
    tree.container("0-5")
    tree.container("0-7", pod=GONE, name="web", identity=ID[::-1])
    assert findings(tree.look()) == [("other_cpus", "default/web", "0-5"), ("overlap", "default/web", "4-5")]


class Live(Host):
    """A tree that counts as this machine, at a time."""

    live = True

    def ask(self, *dummy: t.Any, **dummy_named: t.Any) -> tuple[int, str]:
        return 0, ""


def shown(tree: Tree, capsys: pytest.CaptureFixture[str], time: float) -> dict[tuple[str, str], int | None]:
    """When ``corral kubelet`` says that each finding was first seen."""
    host = Live(str(tree.folder), clock=lambda: time, uptime=lambda: 1000.0)
    assert kubelet_command.do_kubelet(host, argparse.Namespace(mend_shared=False, json=True)) == 2
    rows = json.loads(capsys.readouterr().out)["findings"]
    return {(one["kind"], one["subject"]): one["since"] for one in rows}


def test_a_finding_has_the_time_of_the_first_look_that_saw_it(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.state(entries={UID: {"main": "4-5"}})
    tree.container("0-5")
    other, leak = ("other_cpus", "default/web"), ("leaked", GONE)
    assert shown(tree, capsys, 10_000.0) == {other: 10_000}
    assert not (tree.folder / "run").exists(), "Corral is not on this node"
    (tree.folder / "run/corral").mkdir(parents=True)
    assert shown(tree, capsys, 20_000.0) == {other: 20_000}
    tree.state(default="0-3,7", entries={UID: {"main": "4-5"}, GONE: {"main": "6"}})
    assert shown(tree, capsys, 30_000.0) == {other: 20_000, leak: 30_000}
    data = kubelet_report.to_data(kubelet_since.dated(tree.host, tree.look()))
    assert [one["since"] for one in data["findings"]] == [30_000, 20_000], "the module tells as well"
    assert misfits(data, kubelet_shapes.KubeletReport) == []
    assert "its cgroup was changed by others [since 1970-01-01 05:33:20 UTC]" in "\n".join(
        kubelet_report.lines(kubelet_since.dated(tree.host, tree.look()))
    )
    tree.container("4-5")
    assert shown(tree, capsys, 40_000.0) == {leak: 30_000}
    tree.container("0-5")
    tree.write(state.KUBELET_FINDINGS[1:], json.dumps([["leaked", 1], None, ["leaked", GONE, "", 5]]))
    assert shown(tree, capsys, 50_000.0) == {other: 50_000, leak: 5}, "what is no row is left out"


def test_a_copy_of_a_node_and_a_module_keep_no_time_and_a_full_disk_hides_nothing(
    tree: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.state(entries={GONE: {"main": "4-5"}})
    (tree.folder / "run/corral").mkdir(parents=True)
    assert main(["kubelet", "--json", "--root", str(tree.folder)]) == 2
    assert json.loads(capsys.readouterr().out)["findings"][0]["since"] is None
    assert list((tree.folder / "run/corral").iterdir()) == []

    def full(*dummy: t.Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Host, "write_file", full)
    assert shown(tree, capsys, 10_000.0) == {("leaked", GONE): 10_000}


def test_what_differs_from_the_profile_has_the_time_at_which_the_agent_first_saw_it(tree: Tree) -> None:
    tree.write("etc/corral/profile.json", json.dumps({"name": "x", "kubelet": {"max_pods": 20}}))
    tree.write(state.SINCE[1:], '[["kubelet", "maxPods", "value", 5000]]')
    found = kubelet_since.dated(tree.host, tree.look())
    assert [one["since"] for one in kubelet_report.to_data(found)["drift"]] == [5000]
    (line,) = [one for one in kubelet_report.lines(found) if "maxPods value" in one]
    assert line.endswith(" [since 1970-01-01 01:23:20 UTC]")


def test_processes_of_the_host_on_exclusive_cpus_are_named(tree: Tree) -> None:
    tree.state(entries={UID: {"main": "4-5"}})
    tree.container("4-5")
    tree.write("sys/fs/cgroup/system.slice/cgroup.procs", "77\n")
    tree.write("proc/77/comm", "nginx\n")
    (found,) = tree.look().findings
    assert (found.kind, found.subject, found.cpus) == ("host_process", "system.slice", "4-5")
    assert "77 nginx" in found.message
    tree.write("sys/fs/cgroup/system.slice/cpuset.cpus.effective", "0-1")
    assert not tree.look().findings


def test_processes_of_pods_are_none_of_the_host(tree: Tree) -> None:
    tree.state(entries={UID: {"main": "4-5"}})
    tree.container("4-5")
    tree.write("sys/fs/cgroup/kubepods.slice/cpuset.cpus.effective", "0-7")
    for folder in ("", f"/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope"):
        tree.write(f"sys/fs/cgroup/kubepods.slice{folder}/cgroup.procs", "77\n")
    tree.write("proc/77/comm", "pause\n")
    tree.write("proc/77/cmdline", "/pause\0")
    assert tree.look().findings == ()


def test_a_container_without_a_cpuset_has_that_of_the_group_above_it(tree: Tree) -> None:
    """As where nothing has enabled the controller so far down."""
    tree.state(entries={GONE: {"main": "4-5"}})
    tree.container("", pod=UID)
    tree.container("4-5", pod=GONE, identity=ID[::-1])
    pod = f"sys/fs/cgroup/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
    (tree.folder / pod / f"cri-containerd-{ID}.scope/cpuset.cpus.effective").unlink()
    tree.write(f"{pod}/cpuset.cpus.effective", "0-4")
    assert findings(tree.look()) == [("overlap", "default/web", "4")]


@pytest.mark.parametrize(
    ("endpoint", "unit", "program"),
    [
        ("", "containerd.service", "containerd"),
        ("unix:///var/run/crio/crio.sock", "crio.service", "crio"),
        ("unix:///run/cri-dockerd.sock", "cri-docker.service", "cri-dockerd"),
    ],
)
def test_a_kubelet_or_runtime_that_the_kernel_may_end_before_pods_is_named(
    endpoint: str, unit: str, program: str, tree: Tree
) -> None:
    tree.write("sys/fs/cgroup/system.slice/kubelet.service/cgroup.procs", "1047\n")
    tree.write(f"sys/fs/cgroup/system.slice/{unit}/cgroup.procs", "60\n61\n")
    tree.write("proc/60/comm", f"{program}-shim\n")
    tree.write("proc/61/comm", f"{program}\n")
    if endpoint:
        tree.write("var/lib/kubelet/config.yaml", CONFIG + f"containerRuntimeEndpoint: {endpoint}\n")
    assert not tree.look().findings, "what cannot be read is not known"
    for pid, score in ((1047, -997), (60, 1000), (61, 0)):
        tree.write(f"proc/{pid}/oom_score_adj", f"{score}\n")
    assert findings(tree.look()) == [("oom_score", unit, ""), ("oom_score", "kubelet.service", "")]
    messages = [one.message.rpartition("; ")[2] for one in tree.look().findings]
    assert messages == [f"set OOMScoreAdjust=-999 in {unit}", "set oomScoreAdj: -999 in its configuration"]
    for pid in (1047, 61):
        tree.write(f"proc/{pid}/oom_score_adj", "-999\n")
    assert not tree.look().findings


def test_a_node_with_cgroup_v1_is_read_as_well(tree: Tree) -> None:
    (tree.folder / "sys/fs/cgroup/cgroup.controllers").unlink()
    tree.state(entries={UID: {"main": "4-5"}})
    tree.write(f"sys/fs/cgroup/cpuset/kubepods/pod{UID}/{ID}/cpuset.cpus", "0-5")
    tree.write(f"var/log/containers/web_default_main-{ID}.log", "")
    assert findings(tree.look()) == [("other_cpus", "default/web", "0-5")]


def test_containers_without_a_kubelet_are_said(tree: Tree) -> None:
    (tree.folder / "proc/1047/comm").write_text("sleep\n")
    tree.container("0-7")
    found = tree.look()
    assert (found.pid, [one.kind for one in found.findings]) == (None, ["stopped"])
    assert found.config.get("maxPods") == 50, "kubeadm's file is read"


def test_a_configuration_that_the_unit_names_and_that_is_missing_is_a_problem_without_a_process_as_well(
    tree: Tree,
) -> None:
    (tree.folder / "proc/1047/comm").write_text("sleep\n")
    (tree.folder / "var/lib/kubelet/config.yaml").unlink()
    tree.state()
    assert tree.look().config.problems == (), "without a unit, nothing says that there is a file"
    tree.write("etc/systemd/system/kubelet.service", f"[Service]\nExecStart=/usr/bin/kubelet {' '.join(FLAGS)}\n")
    tree.write("etc/kubelet.d/50-pods.conf", CONFIG.replace("maxPods: 50", "maxPods: 40"))
    found = tree.look()
    (problem,) = found.config.problems
    assert problem.startswith("/var/lib/kubelet/config.yaml: cannot be read: ")
    assert found.config.get("maxPods") == 40, "its drop-ins are read all the same"


class Beginning(Host):
    """A machine whose kubelet begins while it is looked at: at first its unit has no process."""

    looks = 0

    def processes(self, path: str) -> list[str]:
        self.looks += 1
        return super().processes(path) if self.looks > 1 else []


def test_a_kubelet_that_begins_meanwhile_is_the_one_of_its_unit(tree: Tree) -> None:
    """As after an undo, whose last step starts it: it counted as somebody else's, without any flags, and that was the error."""
    tree.write("sys/fs/cgroup/system.slice/kubelet.service/cgroup.procs", "1047\n")
    tree.write("etc/systemd/system/kubelet.service", f"[Service]\nExecStart=/usr/bin/kubelet {' '.join(FLAGS)}\n")
    tree.write("proc/1047/cmdline", "")
    host = Beginning(str(tree.folder))
    found = kubelet_node.process(host)
    assert found is not None
    assert (found.pid, found.by_unit) == (1047, True)
    places = kubelet_node.files(host, found)
    assert (places.config, places.config_dir) == ("/var/lib/kubelet/config.yaml", "/etc/kubelet.d")


def test_a_machine_without_a_kubelet_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trees.build(tmp_path, trees.Machine())
    for folder in ("", "var/lib/kubelet"):  # What a removal leaves is no kubelet either.
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        assert main(["kubelet", "--root", str(tmp_path)]) == 1
        assert "no kubelet runs here" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["k3s-server", "rke2", "kubelite", "microshift"])
def test_a_kubelet_within_another_program_is_named(tree: Tree, name: str) -> None:
    tree.run(name=name)
    with pytest.raises(CorralError, match="runs here"):
        tree.look()


def test_who_has_which_devices_is_shown(tree: Tree) -> None:
    def row(pod: str, ids: dict[str, list[str]]) -> dict[str, t.Any]:
        return {"PodUID": pod, "ContainerName": "main", "ResourceName": "a.com/nic", "DeviceIDs": ids, "AllocResp": ""}

    rows = [row(UID, {"1": ["d1", "d2"], "-1": ["d\x1b[31m3"]}), row("0other", {"0": ["d0"]})]
    data = {"Data": {"PodDeviceEntries": rows, "RegisteredDevices": {}}, "Checksum": 1}
    tree.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", json.dumps(data))
    said = [" ".join(line.split()) for line in kubelet_report.lines(tree.look())]
    first = said.index("devices:")
    assert said[first + 1 : first + 3] == [
        f"a.com/nic d1 (NUMA node 1), d2 (NUMA node 1), d\\x1b[31m3 {UID} main",
        "a.com/nic d0 (NUMA node 0) 0other main",
    ]


def test_memory_and_devices_of_a_pod_that_is_gone_leak_as_well(tree: Tree) -> None:
    row = {
        "PodUID": GONE,
        "ContainerName": "c",
        "ResourceName": "example.com/nic",
        "DeviceIDs": {"0": ["d0"]},
        "AllocResp": None,
    }
    data = {"Data": {"PodDeviceEntries": [row], "RegisteredDevices": {}}, "Checksum": 1}
    tree.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", json.dumps(data))
    found = tree.look()
    assert findings(found) == [("leaked", GONE, "")]
    assert found.files[2].version == "checksum wrong"
    assert kubelet_report.to_data(found)["devices"][0]["devices"] == {"0": ["d0"]}


# Reserved in two rows of one node: 1 GiB, and one page of 2 MiB.
ROWS = "[{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 0, limits: {hugepages-2Mi: 2Mi}}]"
# The kubelet's file of a machine with 4 GiB, 3 pages of 2 MiB and these reserves, and what its checksum is of.
ON_4_GIB = (
    '{"policyName":"Static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"hugepages-2Mi":{"total":6291456,"systemReserved":2097152,'
    '"allocatable":4194304,"reserved":0,"free":4194304},"memory":{"total":4294967296,"systemReserved":1073741824,"allocatable":3214934016,'
    '"reserved":0,"free":3214934016}},"cells":[0]}},"checksum":%d}'
)
HASHED = (
    "(*state.MemoryManagerCheckpoint){PolicyName:(string)Static MachineState:(state.NUMANodeMap)map[0:<*>{NumberOfAssignments:(int)0 "
    "MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[hugepages-2Mi:<*>{TotalMemSize:(uint64)6291456 SystemReserved:(uint64)2097152 "
    "Allocatable:(uint64)4194304 Reserved:(uint64)0 Free:(uint64)4194304} memory:<*>{TotalMemSize:(uint64)4294967296 "
    "SystemReserved:(uint64)1073741824 Allocatable:(uint64)3214934016 Reserved:(uint64)0 Free:(uint64)3214934016}] Cells:([]int)[0]}] "
    "Entries:(state.ContainerMemoryAssignments)map[] Checksum:(checksum.Checksum)0}"
)
OF_NONE = '{"policyName":"None","machineState":{},"checksum":4236770233}'


@pytest.mark.parametrize(
    ("policy", "rows", "said"),
    [
        ("Static", ROWS, []),
        ("Static", ROWS.replace("1Gi", "1025Mi"), ["[memorymanager] the expected machine state is different from the real one"]),
        ("Static", ROWS.replace("Mi: 2Mi", "Mi: 4Mi"), ["[memorymanager] the expected machine state is different from the real one"]),
        ("Static", "[{a: 1}]", ["reservedMemory: 'limits'"]),
        ("None", "[{a: 1}]", []),
    ],
)  # fmt: skip
def test_memory_is_reserved_as_the_configuration_says(policy: str, rows: str, said: list[str], tree: Tree) -> None:
    node = "sys/devices/system/node/node0"
    tree.write(f"{node}/meminfo", f"Node 0 MemTotal: {4 << 20} kB\n")
    shutil.rmtree(tree.folder / node / "hugepages")
    tree.write(f"{node}/hugepages/hugepages-2048kB/nr_hugepages", "3\n")
    tree.write("var/lib/kubelet/config.yaml", f"{CONFIG}memoryManagerPolicy: {policy}\nreservedMemory: {rows}\n")
    text = ON_4_GIB % checksum(HASHED) if policy == "Static" else OF_NONE
    tree.write("var/lib/kubelet/memory_manager_state", text)
    assert [one.refusal for one in tree.look().refusals] == said


def test_a_machine_with_other_memory_is_refused(tree: Tree) -> None:
    tree.write("var/lib/kubelet/config.yaml", CONFIG + "memoryManagerPolicy: Static\n")
    version = state_files.MEMORY.versions[1]
    table = dict.fromkeys(("TotalMemSize", "SystemReserved", "Allocatable", "Reserved", "Free"), 1)
    nodes = {0: {"NumberOfAssignments": 0, "MemoryMap": {"memory": table}, "Cells": [0]}}
    values = {"PolicyName": "Static", "MachineState": nodes, "Entries": {}, "Checksum": 0}
    written = dict.fromkeys(("total", "systemReserved", "allocatable", "reserved", "free"), 1)
    node = {"numberOfAssignments": 0, "memoryMap": {"memory": written}, "cells": [0]}
    own = checksum(state_files.hashed(state_files.MEMORY, version, values))
    text = {"policyName": "Static", "machineState": {"0": node}, "entries": {}, "checksum": own}
    tree.write("var/lib/kubelet/memory_manager_state", json.dumps(text))
    (refused,) = tree.look().refusals
    assert refused.refusal == "[memorymanager] the expected machine state is different from the real one"


USERS = "/user.slice/user-1000.slice/session-3.scope"
OTHERS: dict[str, dict[str, t.Any]] = {
    "a user's": {"user": 1000, "group": USERS},
    "a user's, of a unit of the system": {"user": 1000},
    "of a program that is setuid": {"ids": "1000\t0\t0\t0"},
    "of one that asks for a password with root's ids": {"group": USERS},
    "root's in a container of Podman's": {"group": f"/machine.slice/libpod-{'ab' * 32}.scope/container"},
    "root's in a container of Docker's": {"group": f"/docker/{'ab' * 32}"},
    "root's in a pod": {"group": "/kubepods.slice/kubepods-besteffort.slice/crio-1.scope"},
    "in a PID namespace of its own": {"pids": "1047\t1"},
}


@pytest.mark.parametrize("seen", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("name", ["kubelet", "k3s", "kubelite"])
def test_a_process_passes_for_the_kubelet_by_user_and_control_group_alone(
    name: str, seen: dict[str, t.Any], tree: Tree
) -> None:
    tree.run("--config=/home/dev/config.yaml", name=name, **seen)
    assert kubelet_node.process(tree.host) is None


@pytest.mark.parametrize("file", ["status", "cgroup"])
def test_one_whose_user_or_control_group_is_not_shown_is_no_kubelet(file: str, tree: Tree) -> None:
    (tree.folder / "proc/1047" / file).unlink()
    assert kubelet_node.process(tree.host) is None


@pytest.mark.parametrize("name", ["kubelet", "k3s", "kubelite"])
def test_a_program_that_is_setuid_is_no_kubelet(name: str, tree: Tree) -> None:
    """The command sudo of a user's job of cron's has root's ids while it asks for a password."""
    tree.run(name=name, group="/system.slice/cron.service")
    tree.write("proc/1047/exe", "")
    Path(tree.host.at("/proc/1047/exe")).chmod(0o4755)
    assert kubelet_node.process(tree.host) is None


@pytest.mark.parametrize(
    "group", ["/system.slice/kubelet.service", "/kubelet", "/user.slice/user-0.slice/session-1.scope", "/"]
)
def test_roots_own_process_is_the_kubelet(group: str, tree: Tree) -> None:
    tree.run(group=group)
    found = kubelet_node.process(tree.host)
    assert found is not None
    assert found.pid == 1047


@pytest.mark.parametrize(
    ("entries", "running", "logs", "found"),
    [
        ({"init": "4", "main": "1,5"}, ("main",), ("init",), [("ended", "default/web", "4")]),
        ({"init": "4-5", "main": "5"}, ("main",), ("init",), [("ended", "default/web", "4")]),
        ({"init": "4", "main": "4-5"}, ("main",), ("init",), []),
        ({"init": "4", "main": "4"}, ("main",), ("init",), []),
        # It runs, or has not begun; an app container that has ended counts as well.
        ({"init": "4", "main": "5"}, ("main", "init"), (), []),
        ({"init": "4", "main": "5"}, ("init",), (), []),
        ({"main": "4", "side": "5"}, ("main",), ("side",), [("ended", "default/web", "5")]),
        ({"init": "4", "main": "5"}, (), ("init", "main"), []),
    ],
)
def test_cpus_that_only_an_ended_container_holds_are_told_from_others(
    entries: dict[str, str],
    running: tuple[str, ...],
    logs: tuple[str, ...],
    found: list[tuple[str, str, str]],
    tree: Tree,
) -> None:
    tree.state(default="0,2-3,6-7", entries={UID: entries})
    for number, name in enumerate(running):
        tree.container(entries[name], name=name, identity=f"{number}" * 64)
    for number, name in enumerate(logs):
        tree.write(f"var/log/containers/web_default_{name}-{'ab'[number] * 64}.log", "")
    (tree.folder / "var/lib/kubelet/pods" / UID).mkdir(parents=True)
    assert [one for one in findings(tree.look()) if one[0] == "ended"] == found


PAGES = "[{numaNode: 0, limits: {memory: 100Mi, hugepages-2Mi: 4Mi}}]"
GROUP = "enforceNodeAllocatable: [pods, kube-reserved]\ncgroupDriver: systemd\nkubeReservedCgroup: "


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (f"memoryManagerPolicy: Static\nreservedMemory: {PAGES}\n", "reservedMemory: hugepages-2Mi: no reserve has hugepages"),
        ("imageGCHighThresholdPercent: 80\n", "imageGCLowThresholdPercent: 80: is not below imageGCHighThresholdPercent (80)"),
        (f"{GROUP}/lost.slice\n", "kubeReservedCgroup: /lost.slice: there is no control group /lost.slice"),
        (f"{GROUP}/system.slice/kubelet.service\n", "kubeReservedCgroup: /system.slice/kubelet.service: is no slice"),
        (f"{GROUP}/system.slice\n", ""),
        (f"{GROUP}/by-file.slice\n", ""),
        (f"{GROUP}/of-kubelet.slice\n", ""),
    ],
)  # fmt: skip
def test_a_configuration_with_which_a_stopped_kubelet_would_not_start_is_said(
    lines: str, said: str, tree: Tree
) -> None:
    (tree.folder / "proc/1047/comm").write_text("sleep\n")
    tree.write("sys/fs/cgroup/system.slice/cgroup.procs", "")
    tree.write("etc/systemd/system/by-file.slice", "[Slice]\n")
    tree.write(
        "etc/systemd/system/kubelet.service",
        f"[Service]\nSlice=of-kubelet.slice\nExecStart=/usr/bin/kubelet {' '.join(FLAGS)}\n",
    )
    tree.write(
        "var/lib/kubelet/config.yaml",
        f"{CONFIG}{lines}".replace('reservedSystemCPUs: "0-1"', 'systemReserved: {cpu: "1"}'),
    )
    found = [line for line in tree.look().config.problems if "adds up to" not in line]
    assert [line.partition(said)[1] for line in found] == ([said] if said else [])
    assert bool(found) == (main(["kubelet", "--root", str(tree.folder)]) == 2)
