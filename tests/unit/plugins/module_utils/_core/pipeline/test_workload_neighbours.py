# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads beside others on the node: a kubelet that gives out the same CPUs, and containers started past Corral."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path
from unittest import mock

import node
import processes
import pytest
import runs
import services
from _core.host import cgroup
from _core.host.containers import conmon
from _core.host.files import Host
from _core.host.kubelet import kubelet_node
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import applying, planning

KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: {policy}
cpuManagerPolicyOptions:
  strict-cpu-reservation: "{strict}"
reservedSystemCPUs: "{reserved}"
"""
CONTAINER = "ab" * 32
TOP = "/sys/fs/cgroup"
SCOPE = f"{TOP}/machine.slice/libpod-{CONTAINER}.scope"
MONITOR = f"/machine.slice/libpod-conmon-{CONTAINER}.scope"


def declared(*workloads: dict[str, t.Any]) -> profile.Profile:
    cpu = {"reserved": {"cpus": "0,4"}, "policy": "static"}
    return profile.parse({"name": "beside", "cpu": cpu, "workloads": list(workloads)})


def own(cpus: int) -> dict[str, t.Any]:
    return {"name": "own", "match": {"unit": "own.service"}, "limits": {"cpu": cpus, "memory": "64Mi"}}


UNIT = "/usr/lib/systemd/system/kubelet.service"


def run_kubelet(fake: node.Node, *, policy: str = "static", strict: str = "true", reserved: str = "0-2,4-6") -> None:
    fake.put("/sys/fs/cgroup/system.slice/kubelet.service/cgroup.events", "populated 1\nfrozen 0\n")
    fake.put("/var/lib/kubelet/config.yaml", KUBELET.format(policy=policy, strict=strict, reserved=reserved))
    fake.put(UNIT, "[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml\n")


def granted(fake: node.Node, workload: dict[str, t.Any]) -> frozenset[int]:
    context = planning.compile_profile(fake.host(), declared(workload))
    return context.grants[0].cpus if context.grants else frozenset()


def test_beside_a_kubelet_only_what_it_gives_to_no_pod_is_granted(fake: node.Node) -> None:
    assert granted(fake, own(5)) & {3, 7}
    run_kubelet(fake)
    assert granted(fake, own(4)) == {1, 5, 2, 6}
    assert granted(fake, own(5)) == frozenset()


@pytest.mark.parametrize("kubelet", [{"policy": "none"}, {"strict": "false"}, {"reserved": "0,4"}], ids=str)
def test_a_kubelet_that_keeps_nothing_to_itself_leaves_nothing_to_grant(
    kubelet: dict[str, str], fake: node.Node
) -> None:
    run_kubelet(fake, **kubelet)
    with pytest.raises(CorralError) as refused:
        applying.declare(fake.host(), declared(own(2)))
    (problem,) = refused.value.problems
    assert problem.path == "workloads[0].requests.cpu"
    assert "2 CPUs missing: 0 are free" in problem.message
    assert "kubelet.service runs here" in problem.message
    assert "reservedSystemCPUs" in problem.message


def test_what_the_running_kubelet_has_not_read_grants_no_cpu_of_pods(fake: node.Node) -> None:
    """The file reserves CPUs by now that the kubelet, until its next start, gives to pods."""
    run_kubelet(fake)
    place = f"{TOP}/system.slice/kubelet.service"
    fake.put(f"{place}/cgroup.procs", "77\n")
    fake.put("/proc/77/comm", "kubelet\n")
    fake.put("/proc/77/cmdline", "/usr/bin/kubelet\0--config=/var/lib/kubelet/config.yaml\0")
    began = int((fake.host().uptime()) * 100)
    fake.put("/proc/77/stat", f"77 (kubelet) S {'0 ' * 18}{began} 0")
    config = "/var/lib/kubelet/config.yaml"
    fake.changes[config] = fake.time - 60
    assert granted(fake, own(4)) == {1, 5, 2, 6}
    fake.changes[config] = fake.time + 60
    assert granted(fake, own(2)) == frozenset(), "nothing says what it reserves"
    path = "/var/lib/kubelet/cpu_manager_state"
    rows = {"policyName": "static", "defaultCpuSet": "2-3,7", "entries": {"uid": {"main": "6"}}, "checksum": 0}
    fake.put(path, json.dumps(rows))
    assert granted(fake, own(2)) == {1, 5}
    said = r"config\.yaml was changed after the running kubelet began: "
    past = r"drain the node, then systemctl stop kubelet\.service, rm \S+cpu_manager_state, systemctl start kubelet\.service"
    with pytest.raises(CorralError, match=said + r"touch \S+config\.yaml \(its time is in the future\), then " + past):
        applying.declare(fake.host(), declared(own(4)))
    fake.wait(60)
    with pytest.raises(CorralError, match=said + past):
        applying.declare(fake.host(), declared(own(4)))
    fake.put(path, json.dumps({**rows, "defaultCpuSet": "3,7", "entries": {}}))
    with pytest.raises(CorralError, match=said + r"systemctl restart kubelet\.service"):
        applying.declare(fake.host(), declared(own(5)))


STATE = "/var/lib/kubelet/cpu_manager_state"


@pytest.mark.parametrize("runs", [True, False])
def test_what_the_state_of_a_kubelet_gives_to_pods_is_granted_to_no_workload(runs: bool, fake: node.Node) -> None:
    """A drop-in that was deleted, or a file that came with an earlier time, leaves no file that is newer than the running kubelet."""
    run_kubelet(fake)
    if not runs:
        stopped(fake)
    rows = {"policyName": "static", "defaultCpuSet": "2-3,7", "entries": {"uid": {"main": "6"}}, "checksum": 0}
    fake.put(STATE, json.dumps(rows))
    assert granted(fake, own(2)) == {1, 5}
    assert granted(fake, own(4)) == frozenset()
    with pytest.raises(
        CorralError, match=r"cpu_manager_state has CPUs 2,6 for pods: drain the node, then systemctl stop kubelet"
    ):
        applying.declare(fake.host(), declared(own(4)))
    fake.put(STATE, json.dumps({**rows, "defaultCpuSet": "3,7", "entries": {}}))
    assert granted(fake, own(4)) == {1, 5, 2, 6}


@pytest.mark.parametrize("text", ['{"policyName": "none", "defaultCpuSet": "", "checksum": 0}', '{"policyName": "st'])
def test_a_state_of_a_kubelet_that_does_not_say_what_pods_have_grants_nothing_new(text: str, fake: node.Node) -> None:
    """Its pods may run on all CPUs: it began before its file had the policy static."""
    run_kubelet(fake)
    fake.put(STATE, text)
    assert granted(fake, own(2)) == frozenset()
    with pytest.raises(
        CorralError, match=r"cpu_manager_state does not say which CPUs it gives to pods: drain the node"
    ):
        applying.declare(fake.host(), declared(own(2)))


@pytest.mark.parametrize(
    "place", ["runtime.slice", "runtime.slice/runtime-node.slice", "system.slice/system-node.slice"]
)
def test_a_kubelet_in_a_slice_of_its_own_is_one_as_well(place: str, fake: node.Node) -> None:
    """As with Slice=runtime.slice, and started by hand: its unit is not to run at boot."""
    run_kubelet(fake)
    (fake.root / f"{TOP[1:]}/{place}").mkdir(parents=True)
    (fake.root / f"{TOP[1:]}/system.slice/kubelet.service").rename(fake.root / f"{TOP[1:]}/{place}/kubelet.service")
    assert granted(fake, own(4)) == {1, 5, 2, 6}
    fake.put("/var/lib/kubelet/config.yaml", KUBELET.format(policy="static", strict="true", reserved="0"))
    context = planning.compile_profile(fake.host(), declared())
    changes = planning.plan_profile(fake.host(), context).changes
    assert [one.wanted for one in changes if one.subject == "kubelet.service"] == ["0,4"], "it gives 4 to pods"


def test_the_slices_of_workloads_and_pods_are_not_searched_for_services(fake: node.Node) -> None:
    """Hundreds of folders were listed for each of a dozen services, at each start of a workload and in each tick."""
    names = ["corral_first.slice", "corral.slice/corral-acme.slice", "kubepods.slice/kubepods-poduid.slice"]
    for name in (*names, "system.slice/system-getty.slice"):
        (fake.root / f"{TOP[1:]}/{name}").mkdir(parents=True, exist_ok=True)
    host = Host(str(fake.root), record=True)
    assert not cgroup.service_runs(host, "kubelet.service")
    listed = {path for method, path, *dummy in host.recorded or () if method == "names_like"}
    assert f"{TOP}/system.slice/system-getty.slice" in listed
    assert not [path for path in listed if "corral" in path or "kubepods" in path]


HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.mark.parametrize(
    ("words", "files", "cpus"),
    [
        ("--config-dir=/etc/kubelet.d", {"/etc/kubelet.d/10.conf": HEAD + 'reservedSystemCPUs: "0,4-5"\n'}, {5}),
        ("--config-dir=/etc/kubelet.d", {"/etc/kubelet.d/10.conf": HEAD + "cpuManagerPolicy: none\n"}, set()),
        ("--config-dir=/etc/kubelet.d", {"/etc/kubelet.d/10.conf": "reservedSystemCPUs: [\n"}, set()),
        ("--reserved-cpus=0,4,6", {}, {6}),
    ],
)
def test_drop_ins_and_flags_of_a_kubelet_decide_what_it_leaves(
    words: str, files: dict[str, str], cpus: set[int], fake: node.Node
) -> None:
    """The file by itself would leave 1, 2, 5 and 6, some of which the kubelet gives to pods then."""
    run_kubelet(fake)
    unit = f"[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml {words}\n"
    fake.put("/etc/systemd/system/kubelet.service", unit)
    for path, text in files.items():
        fake.put(path, text)
    assert granted(fake, own(1)) == cpus
    assert granted(fake, own(2)) == frozenset()


def stopped(fake: node.Node) -> None:
    """As while it is restarted or updated, and at boot: its unit is to run."""
    fake.put("/sys/fs/cgroup/system.slice/kubelet.service/cgroup.events", "populated 0\nfrozen 0\n")
    link = fake.root / "etc/systemd/system/multi-user.target.wants/kubelet.service"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(UNIT)


@pytest.mark.parametrize("is_reset", [True, False])
def test_a_kubelet_whose_package_was_removed_bounds_no_grant(is_reset: bool, fake: node.Node) -> None:
    """Its unit's link stays until the package is purged: no CPU was granted any more, or what its last configuration reserved alone."""
    run_kubelet(fake)
    stopped(fake)
    assert granted(fake, own(5)) == frozenset()
    fake.drop(UNIT)
    if is_reset:
        shutil.rmtree(fake.root / "var/lib/kubelet")
    assert len(granted(fake, own(5))) == 5


LOST: dict[str, t.Callable[[node.Node], object]] = {
    "it does not run": stopped,
    "its file is gone": lambda fake: (fake.root / "var/lib/kubelet/config.yaml").unlink(),
    "its file is half written": lambda fake: fake.put("/var/lib/kubelet/config.yaml", "reservedSystemCPUs: [\n"),
    "PyYAML is not installed": lambda fake: None,
}


@pytest.mark.parametrize("hold", ["running", "declared"])
@pytest.mark.parametrize("lost", LOST)
def test_what_runs_keeps_its_grant_whatever_becomes_of_the_kubelet(
    lost: str, hold: str, fake: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes went back to the shared CPUs, and stayed there, as soon as a tick found no running kubelet with readable files."""
    run_kubelet(fake)
    services.add(fake, "own.service", "more.service")
    assert not runs.install(fake.host()).error
    more = {**own(2), "name": "more", "match": {"unit": "more.service"}, "hold": "running"}
    assert not applying.declare(fake.host(), declared({**own(2), "hold": hold}, more)).error
    assert services.start(fake, "own.service")
    before = fake.cpus("corral_own.slice")
    LOST[lost](fake)
    if lost == "PyYAML is not installed":
        monkeypatch.setattr(kubelet_node, "imported_yaml", mock.Mock(side_effect=ImportError))
    runs.tick(fake.host(), by_timer=False)
    assert (before, fake.cpus("corral_own.slice")) == ({1, 5}, {1, 5})
    status = json.loads(fake.get("/run/corral/status.json"))
    assert [item["verdict"] for item in status["items"]] == ([] if lost == "it does not run" else ["unknown"])
    assert bool(services.start(fake, "more.service")) == (lost == "it does not run"), "nothing new is granted"


def test_who_shares_is_no_matter_of_the_kubelets(fake: node.Node) -> None:
    run_kubelet(fake, policy="none")
    feed = {"name": "feed", "match": {"unit": "feed.service"}, "requests": {"cpu": "500m"}}
    assert not applying.declare(fake.host(), declared(feed)).error


def start_container(
    fake: node.Node, name: str, *, place: str = SCOPE, populated: bool = True, monitor: str = MONITOR, user: int = 0
) -> None:
    """A container of root's as the kernel shows it: its control group, and its monitor with the words Podman gives it."""
    fake.put(f"{place}/cgroup.events", f"populated {int(populated)}\nfrozen 0\n")
    words = (
        f"/usr/bin/conmon --api-version 1 -c {CONTAINER} -u {CONTAINER} -r /usr/bin/crun -n {name} --exit-dir /run/x"
    )
    fake.put("/proc/77/comm", "conmon\n")
    fake.put("/proc/77/cmdline", "\0".join([*words.split(), *(["-s"] if place.endswith(".scope") else []), ""]))
    fake.put("/proc/77/cgroup", f"0::{monitor}\n")
    fake.put("/proc/77/status", f"Name:\tconmon\nUid:\t{user}\t{user}\t{user}\t{user}\n")


def lose_monitor(fake: node.Node, storage: str = "overlay", rows: str | None = None) -> None:
    """The container runs on without its monitor; containers/storage lists it."""
    for name in ("comm", "cmdline", "cgroup", "status"):
        fake.drop(f"/proc/77/{name}")
    text = json.dumps([{"id": CONTAINER, "names": ["held-1"]}]) if rows is None else rows
    fake.put(f"/var/lib/containers/storage/{storage}-containers/containers.json", text)


HELD = {"name": "held", "match": {"container": "held-*"}, "hold": "running", "limits": {"cpu": 2, "memory": "64Mi"}}


POD = {"name": "web", "match": {"pod": "web"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
POD_SLICE = "machine.slice/machine-libpod_pod_0123.slice"


def items(fake: node.Node, workload: t.Optional[dict[str, t.Any]] = None) -> list[tuple[str, str, str]]:
    context = planning.compile_profile(fake.host(), declared(workload or HELD))
    return [
        (change.verdict, str(change.actual), change.reason)
        for change in planning.plan_profile(fake.host(), context).changes
        if change.manager == "workloads" and change.property == "slice"
    ]


def make_held(fake: node.Node) -> None:
    assert not applying.declare(fake.host(), declared(HELD)).error


@pytest.fixture
def held(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_held)


def test_a_container_past_corral_is_named_with_the_way_out(held: node.Node) -> None:
    start_container(held, "held-1")
    ((verdict, actual, reason),) = items(held)
    assert (verdict, actual) == ("unchangeable", "held-1 in machine.slice")
    assert "--cgroup-parent=corral_held.slice" in reason


@pytest.mark.parametrize(
    ("place", "monitor", "shown"),
    [
        pytest.param(SCOPE, "/user.slice", "machine.slice", id="no-conmon"),
        pytest.param(f"{TOP}/mine.slice/libpod-{CONTAINER}.scope", MONITOR, "mine.slice", id="cgroup-parent"),
        pytest.param(f"{TOP}/{POD_SLICE}/libpod-{CONTAINER}.scope", MONITOR, POD_SLICE, id="pod"),
        pytest.param(
            f"{TOP}/libpod_parent/libpod-{CONTAINER}", "/libpod_parent/conmon", "libpod_parent", id="cgroupfs"
        ),
        pytest.param(
            f"{TOP}/system.slice/x.service/libpod-payload-{CONTAINER}",
            "/system.slice/x.service/runtime",
            "system.slice/x.service",
            id="split",
        ),
        pytest.param(f"{TOP}/nothing", "/system.slice/x.service", "system.slice/x.service", id="disabled"),
    ],
)
def test_a_container_is_seen_wherever_podman_put_it(place: str, monitor: str, shown: str, held: node.Node) -> None:
    start_container(held, "held-1", place=place, monitor=monitor)
    assert [(verdict, actual) for verdict, actual, dummy in items(held)] == [("unchangeable", f"held-1 in {shown}")]


@pytest.mark.parametrize(
    "place", [f"corral_held.slice/libpod-{CONTAINER}.scope", f"corral_held.slice/x.service/libpod-payload-{CONTAINER}"]
)
def test_one_in_its_slice_is_in_place(place: str, held: node.Node) -> None:
    start_container(held, "held-1", place=f"{TOP}/{place}", monitor=f"/{place}")
    assert items(held) == []


def test_one_in_another_workloads_slice_is_not(held: node.Node) -> None:
    start_container(held, "held-1", place=f"{TOP}/corral_heldx.slice/libpod-{CONTAINER}.scope")
    assert [actual for dummy, actual, *rest in items(held)] == ["held-1 in corral_heldx.slice"]


@pytest.mark.parametrize(
    ("name", "seen"), [("other", {}), ("held-1", {"populated": False}), ("held-1", {"user": 1000})], ids=str
)
def test_others_dead_ones_and_those_of_users_are_not(name: str, seen: dict[str, t.Any], held: node.Node) -> None:
    """systemd gives the control group that is delegated to a user to that user, and all in it is the user's."""
    if "user" in seen:
        held.others[f"{TOP}/user.slice/user@1000.service/user.slice"] = (0o755, 1000)
        seen = {**seen, "place": f"{TOP}/user.slice/user@1000.service/user.slice/libpod-{CONTAINER}.scope"}
    start_container(held, name, **seen)
    assert items(held) == []


def test_no_user_hides_a_container_of_roots(held: node.Node) -> None:
    """A process that looks like its monitor, and a control group of the same name."""
    held.others[f"{TOP}/user.slice/user@1000.service"] = (0o755, 1000)
    start_container(held, "held-1", monitor="/user.slice/user-1000.slice/session-3.scope", user=1000)
    held.put(f"{TOP}/user.slice/user@1000.service/libpod-{CONTAINER}.scope/cgroup.events", "populated 1\n")
    before = items(held)
    lose_monitor(held)
    assert [row[1] for row in items(held)] == ["held-1 in machine.slice"]
    assert [row[0] for row in before] != [], "the container is there, whatever the user's process says"


SUDO = "/user.slice/user-1000.slice/session-3.scope"


@pytest.mark.parametrize(
    "seen",
    [{"group": SUDO}, {"group": f"/machine.slice/libpod-{'cd' * 32}.scope/container"}, {"pids": "77\t1"}],
    ids=str,
)
def test_a_program_that_is_setuid_names_no_container(seen: dict[str, str], held: node.Node) -> None:
    """The command sudo, by a link called conmon, has root's user ids while it asks for a password."""
    start_container(held, "held-1", place=f"{TOP}/x")
    for path, text in processes.files(77, "conmon", **seen).items():  # type: ignore[arg-type]
        held.put(path, text)
    assert items(held) == []


def test_nor_does_one_from_a_users_job_in_a_service_of_the_system(held: node.Node) -> None:
    """Such as a job of cron's: its control group is the service's."""
    start_container(held, "held-1", place=f"{TOP}/x")
    assert items(held) != []
    held.put("/proc/77/exe", "")
    assert items(held) != []
    (held.root / "proc/77/exe").chmod(0o4755)
    assert items(held) == []


@pytest.mark.parametrize("storage", ["overlay", "btrfs", "vfs"])
def test_one_without_a_monitor_has_the_name_that_the_storage_knows(storage: str, held: node.Node) -> None:
    start_container(held, "held-1")
    lose_monitor(held, storage)
    assert [(verdict, actual) for verdict, actual, dummy in items(held)] == [
        ("unchangeable", "held-1 in machine.slice")
    ]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "[1]", '[{"names": ["held-1"]}]', '[{"id": 1, "names": 5}]', "[[]]"]
)
def test_one_whose_name_nothing_knows_is_unknown(text: str, held: node.Node) -> None:
    start_container(held, "held-1")
    lose_monitor(held, rows=text)
    ((verdict, dummy, reason),) = items(held)
    assert verdict == "unknown"
    assert "lost its monitor (conmon) runs in machine.slice" in reason


def test_whether_a_container_is_of_a_pod_is_unknown(fake: node.Node) -> None:
    assert not applying.declare(fake.host(), declared(POD)).error
    assert items(fake, POD) == []
    start_container(fake, "db", place=f"{TOP}/{POD_SLICE}/libpod-{CONTAINER}.scope")
    ((verdict, dummy, reason),) = items(fake, POD)
    assert verdict == "unknown"
    assert f"db runs in {POD_SLICE}" in reason
    assert "--cgroup-parent=corral-web.slice" in reason


def test_the_way_out_for_a_container_in_its_unit_is_the_units_slice(fake: node.Node) -> None:
    """Quadlet starts it with --cgroups=split, also in a pod; with that Podman refuses --cgroup-parent."""
    assert not applying.declare(fake.host(), declared(POD)).error
    place = f"{TOP}/system.slice/db.service/libpod-payload-{CONTAINER}"
    start_container(fake, "db", place=place, monitor="/system.slice/db.service/runtime")
    ((verdict, dummy, reason),) = items(fake, POD)
    assert verdict == "unknown"
    assert "if so, add Slice=corral-web.slice to [Service] of db.service" in reason
    assert "--cgroup-parent" not in reason


def test_the_way_out_of_one_that_the_profile_names_in_its_unit(held: node.Node) -> None:
    start_container(held, "held-1", place=f"{TOP}/system.slice/x.service/libpod-payload-{CONTAINER}")
    ((dummy, dummy, reason),) = items(held)
    assert reason.startswith("add Slice=corral_held.slice to [Service] of x.service")


def test_an_infra_container_says_nothing_of_a_pod(fake: node.Node) -> None:
    assert not applying.declare(fake.host(), declared(POD)).error
    start_container(fake, "0123456789ab-infra")
    assert items(fake, POD) == []


def test_a_container_in_a_slice_of_corrals_says_nothing_of_a_pod(fake: node.Node) -> None:
    assert not applying.declare(fake.host(), declared(POD)).error
    start_container(fake, "db", place=f"{TOP}/corral_other.slice/libpod-{CONTAINER}.scope")
    assert items(fake, POD) == []


def test_a_quiet_tick_sees_a_container_that_starts(held: node.Node) -> None:
    host = held.host()
    host.recorded = {}
    context = planning.compile_profile(host, declared(HELD))
    planning.plan_profile(host, context)
    (question,) = [words for words in host.recorded if words[0] == "containers"]
    assert conmon.containers(held.host(), *question[1:]) == host.recorded[question]
    start_container(held, "other")
    assert conmon.containers(held.host(), *question[1:]) == host.recorded[question]
    start_container(held, "held-1")
    assert conmon.containers(held.host(), *question[1:]) != host.recorded[question]
    assert not host.commands


def test_the_question_of_containers_loads_little(held: node.Node) -> None:
    core = str(Path(conmon.__file__).parents[3])
    script = "import sys; sys.path.insert(0, sys.argv[1]); from _core.host.containers import conmon; from _core.host.files import Host; "
    script += "print(conmon.containers(Host(sys.argv[2]), '/sys/fs/cgroup', ('held-*',)), {'re', 'typing', 'json'} & set(sys.modules))"
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", script, core, str(held.root)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "[] set()\n"
