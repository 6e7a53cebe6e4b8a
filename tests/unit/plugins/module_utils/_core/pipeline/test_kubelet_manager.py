# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's configuration rolled out, kept and taken back on a fake node with a stand-in for the kubelet."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import shutil
import time
import typing as t
from pathlib import Path
from unittest import mock

import fake_kubelet
import node
import processes
import pytest
import runs
import services
import yaml
from _core import main
from _core.cli import status_text
from _core.host import state
from _core.host.agent import node_hooks, other_agents
from _core.host.files import Host
from _core.host.kubelet import kubelet_cpus, kubelet_ready, kubelet_state
from _core.host.topology import sysfs
from _core.managers import registry
from _core.managers.kubelet import kubelet as manager_kubelet
from _core.managers.kubelet import kubelet_change
from _core.model.kubelet import kubelet_config, start_checks, state_files
from _core.model.kubelet.go_values import checksum
from _core.model.plan.plan import UNCHANGEABLE, UNKNOWN, Change, Outcome
from _core.model.profile import profile
from _core.model.values import cpuset
from _core.model.values.errors import CorralError, Problem
from _core.pipeline import admit_workload, confirming, planning
from _core.pipeline import tick as full_tick
from _core.reports import change_text
from fake_kubelet import BASE, CONFIG, DROPINS, ROOT, FakeKubelet
from test_state_files import STATIC as MEMORY_STATE

DROPIN = f"{DROPINS}/20-corral.conf"
CGROUP = "sys/fs/cgroup/system.slice/kubelet.service"  # It has another process.
STATE = f"{ROOT}/cpu_manager_state"
UNIT_FILE = "/usr/lib/systemd/system/kubelet.service"
KEPT = "/var/lib/corral/kubelet.json"  # what Corral keeps of a file of others
PODS = {"max_pods": 50, "eviction_hard": {"memory.available": "200Mi"}}
EVICTION = json.dumps(PODS["eviction_hard"])
STATIC = {"cpu_manager_policy": "static", "cpu_manager_policy_options": {"strict-cpu-reservation": True}}
STATIC_MEMORY = {"memory_manager_policy": "static", "system_reserved": {"memory": "1Gi"}}
# The version that runs needs a feature gate for it.
ALPHA = {**STATIC, "cpu_manager_policy_options": {"strict-cpu-reservation": True, "align-by-socket": True}}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_hooks, "STEADY_SECONDS", 0.0)
    monkeypatch.setattr(node_hooks, "HEALTH_SECONDS", 0.0)
    monkeypatch.setattr(node_hooks, "READY_SECONDS", 0.0)


@pytest.fixture
def kubelet(fake: node.Node) -> FakeKubelet:
    return fake_kubelet.install(fake)


def planned(fake: node.Node, **kubelet: t.Any) -> list[Change]:
    context = planning.compile_profile(fake.host(), node.parsed(kubelet=kubelet), fresh=True)
    return ours(planning.plan_profile(fake.host(), context).changes)


def notes_of(fake: node.Node, **sections: t.Any) -> tuple[str, ...]:
    """What a plan of a new profile notes."""
    context = planning.compile_profile(fake.host(), node.parsed(**sections), fresh=True)
    return planning.plan_profile(fake.host(), context).notes


def twin_of(fake: node.Node) -> node.Node:
    return fake.clone(fake.root.with_name(f"twin{len(list(fake.root.parent.iterdir()))}"))


def set_aside(fake: node.Node, kind: str = "") -> list[str]:
    """The state files that are aside, by their cause."""
    return sorted(path.name.rpartition("-")[0] for path in (fake.root / ROOT[1:]).glob(f"{kind}*.corral-*"))


def unconfirmed(fake: node.Node, **sections: t.Any) -> None:
    """A rollout that goes back by itself after two minutes."""
    assert not confirming.declare(fake.host(), node.parsed(**sections), None, confirming.Terms(120)).error


def section_left_out(fake: node.Node) -> None:
    """The declared profile loses its section, as by an editor."""
    declared = json.loads(fake.get(state.DECLARED))
    del declared["kubelet"]
    fake.put(state.DECLARED, json.dumps(declared))


def edit_unit(fake: node.Node, old: str, new: str) -> None:
    fake.put(UNIT_FILE, fake.get(UNIT_FILE).replace(old, new))


def ours(changes: t.Iterable[Change]) -> list[Change]:
    return [change for change in changes if change.manager == "kubelet"]


def refusal(fake: node.Node, **kubelet: t.Any) -> list[str]:
    with pytest.raises(CorralError) as error:
        runs.declare(fake.host(), kubelet=kubelet)
    return str(error.value).splitlines()


def rolled_out(fake: node.Node, **kubelet: t.Any) -> list[Change]:
    outcome = runs.declare(fake.host(), kubelet=kubelet)
    assert (outcome.error, ours(outcome.remaining)) == ("", [])
    return ours(outcome.applied)


def test_a_drop_in_is_written_and_the_kubelet_restarted_once(fake: node.Node, kubelet: FakeKubelet) -> None:
    before = fake.get(CONFIG)
    applied = rolled_out(fake, **PODS)
    assert {(one.subject, one.actual, one.wanted) for one in applied if one.property == "value"} == {
        ("maxPods", "110", "50"),
        ("reservedSystemCPUs", None, "0,2-4,6-7"),
        (
            "evictionHard",
            (
                '{"imagefs.available": "15%", "imagefs.inodesFree": "5%", "memory.available": "100Mi", "nodefs.available": "10%", '
                '"nodefs.inodesFree": "5%"}'
            ),
            '{"memory.available": "200Mi"}',
        ),
    }
    assert kubelet.acts == ["stop", "start"]
    assert (kubelet.config["maxPods"], kubelet.config["evictionHard"]) == (50, {"memory.available": "200Mi"})
    assert fake.get(CONFIG) == before
    host = fake.host()
    again = runs.declare(host, kubelet=PODS)
    assert (ours(again.applied), kubelet.acts) == ([], ["stop", "start"]), "no restart where nothing changed"
    assert [act for act in host.acts if "kubelet" in act] == []


def test_keys_in_a_file_of_others_change_and_all_else_stays(fake: node.Node) -> None:
    kubelet = fake_kubelet.install(fake, dropins=False)
    (fake.root / CONFIG[1:]).chmod(0o600)
    rolled_out(fake, **PODS)
    assert (fake.root / CONFIG[1:]).stat().st_mode & 0o777 == 0o600
    lines = 'evictionHard: {memory.available: 200Mi}\nreservedSystemCPUs: "0,2-4,6-7"\n'
    assert fake.get(CONFIG) == BASE.replace("maxPods: 110", "maxPods: 50") + lines
    assert kubelet.config["maxPods"] == 50
    fake.put(CONFIG, fake.get(CONFIG).replace("enabled: false # nobody", "enabled: true"))
    outcome = runs.remove(fake.host())
    assert (outcome.error, [one.reason for one in ours(outcome.applied)]) == ("", ["no longer declared"])
    assert fake.get(CONFIG) == BASE.replace("enabled: false # nobody", "enabled: true"), (
        "what others changed meanwhile stays"
    )
    assert (fake.root / CONFIG[1:]).stat().st_mode & 0o777 == 0o600
    assert not fake.has("/var/lib/corral")
    assert kubelet.config["maxPods"] == 110


@pytest.mark.parametrize("own", ["runtime.slice", "runtime-node.slice", "runtime-node-pods.slice"])
def test_a_kubelet_in_a_slice_of_its_own_is_the_one_of_its_unit(
    own: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """As where kubelet and runtime have Slice=runtime.slice: it counted as one that its unit does not run, and was refused."""
    kubelet.stop(fake)
    fake.put(f"/etc/systemd/system/{fake_kubelet.UNIT}.d/slice.conf", f"[Service]\nSlice={own}\n")
    fake.systemd.run_slice(own)
    kubelet.place = f"{fake.systemd.place(own)}/{fake_kubelet.UNIT}"
    kubelet.start(fake)
    cpu = node.edge()["cpu"]
    slices = [*cpu["reserved"].get("slices", ("system.slice", "user.slice", "init.scope")), "runtime.slice"]
    cpu = {**cpu, "reserved": {**cpu["reserved"], "slices": slices}}
    outcome = runs.declare(fake.host(), kubelet=PODS, cpu=cpu)
    assert (outcome.error, outcome.remaining) == ("", ())
    assert (kubelet.acts[-2:], kubelet.config["maxPods"]) == (["stop", "start"], 50)
    assert fake.get("/sys/fs/cgroup/runtime.slice/cpuset.cpus").strip() == "0,2,4,6"
    kubelet.broken = kubelet.config
    outcome = runs.declare(fake.host(), kubelet={**PODS, "max_pods": 60}, cpu=cpu)
    assert "made to fail" in outcome.error
    assert kubelet.pid


def test_a_section_that_is_left_out_later_goes_back(fake: node.Node) -> None:
    for dropins in (True, False):
        kubelet = fake_kubelet.install(fake, dropins=dropins) if not fake.kubelet else fake.kubelet
        assert kubelet is not None
        rolled_out(fake, **PODS)
        outcome = runs.declare(fake.host())
        assert (outcome.error, ours(outcome.remaining)) == ("", [])
        assert fake.get(CONFIG) == BASE
        assert not fake.has(DROPIN)
        assert (kubelet.config["maxPods"], kubelet.config["evictionHard"]) == (110, fake_kubelet.THRESHOLDS)
        if dropins:
            edit_unit(fake, f" --config-dir={DROPINS}", "")
            kubelet.restart(fake)


def test_fewer_keys_in_the_next_profile_give_the_others_back(fake: node.Node) -> None:
    fake_kubelet.install(fake, dropins=False)
    rolled_out(fake, **PODS)
    rolled_out(fake, eviction_hard=PODS["eviction_hard"])
    assert yaml.safe_load(fake.get(CONFIG))["maxPods"] == 110
    rolled_out(fake, max_pods=40)
    assert yaml.safe_load(fake.get(CONFIG)) == {
        **yaml.safe_load(BASE),
        "maxPods": 40,
        "reservedSystemCPUs": "0,2-4,6-7",
    }


def test_the_node_comes_back_as_it_was(fake: node.Node, kubelet: FakeKubelet) -> None:
    before = fake.fingerprint(CGROUP)
    rolled_out(fake, **PODS)
    fake.put(state.KUBELET_FINDINGS, "[]\n")  # of corral kubelet
    assert not runs.remove(fake.host()).error
    assert node.different(before, fake.fingerprint(CGROUP)) == []
    assert not fake.has(state.KUBELET_FINDINGS)
    assert kubelet.acts == ["stop", "start", "stop", "start"]


def test_another_policy_sets_the_state_aside_and_no_other_file(fake: node.Node, kubelet: FakeKubelet) -> None:
    old = fake.get(STATE)
    memory = {"policyName": "None", "machineState": {}, "entries": {}, "checksum": 4236770233}
    fake.put(f"{ROOT}/memory_manager_state", json.dumps(memory))
    (fake.root / STATE[1:]).chmod(0o600)
    rolled_out(fake, **STATIC)
    assert (kubelet.acts, bool(kubelet.pid)) == (["stop", "start"], True)
    names = sorted(path.name for path in (fake.root / ROOT[1:]).iterdir())
    assert names == [
        "config.yaml",
        "cpu_manager_state",
        "cpu_manager_state.corral-policy-20231114T221320Z",
        "memory_manager_state",
    ]
    assert fake.get(f"{ROOT}/{names[2]}") == old
    assert (fake.root / ROOT[1:] / names[2]).stat().st_mode & 0o777 == 0o600
    assert json.loads(fake.get(STATE))["defaultCpuSet"] == "1,5", "reserved and isolated CPUs are nobody's"
    rolled_out(fake, **STATIC, max_pods=20)
    assert len(list((fake.root / ROOT[1:]).iterdir())) == 4, "no reset where none is needed"


@pytest.mark.parametrize("is_checked_first", [False, True])
def test_a_kubelet_that_does_not_become_healthy_gets_everything_back(
    is_checked_first: bool, fake: node.Node, kubelet: FakeKubelet
) -> None:
    kubelet.broken, kubelet.is_checked_first = kubelet.config, is_checked_first
    before = fake.fingerprint(CGROUP, "run/corral")
    outcome = runs.declare(fake.host(), kubelet=STATIC)
    wrong = "systemctl start kubelet.service: Job" if is_checked_first else "kubelet.service: not healthy"
    assert wrong in outcome.error
    assert "E1125 kubelet ended: failed to run Kubelet: made to fail" in outcome.error
    assert outcome.leftovers == ()
    assert node.different(before, fake.fingerprint(CGROUP, "run/corral")) == []
    assert kubelet.acts == ["stop", "start", "stop", "start"]
    assert kubelet.pid, "it runs with what it had"


def test_a_kubelet_that_another_version_replaces_after_the_plan_gets_everything_back(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    """As where its package changes while a run goes on: the plan has asked the old one for its version."""
    before = fake.fingerprint(CGROUP, "run/corral", "var/lib/corral")
    real = kubelet.command

    def command(at: node.Node, argv: t.Sequence[str]) -> t.Any:
        answer = real(at, argv)
        kubelet.version = "v1.30.14" if argv[-1] == "--version" else kubelet.version
        return answer

    with mock.patch.object(kubelet, "command", command):
        outcome = runs.declare(fake.host(), kubelet=STATIC)
    assert 'unsupported cpumanager option: "strict-cpu-reservation"' in outcome.error
    assert (bool(kubelet.pid), kubelet.acts[-1]) == (True, "start"), "with what it had"
    assert node.different(before, fake.fingerprint(CGROUP, "run/corral", "var/lib/corral")) == []
    (said,) = refusal(fake, **STATIC)
    assert "the installed kubelet 1.30 does not know" in said and "strict-cpu-reservation" in said
    kubelet.version = "v1.36.3"
    rolled_out(fake, **STATIC)


def with_api_server(fake: node.Node) -> tuple[FakeKubelet, list[str]]:
    """A kubelet with a kubeconfig, whose API server says that the node is Ready, or what is put into the list (reason) before."""
    kubelet = fake_kubelet.install(fake, flags=f"--kubeconfig={fake_kubelet.KUBECONFIG}")
    fake.put(fake_kubelet.KUBECONFIG, fake_kubelet.KUBECONFIG_TEXT)
    fake.put("/proc/sys/kernel/hostname", "worker-1\n")
    reasons: list[str] = []

    def answer(path: str) -> tuple[int, str]:
        assert path == "/api/v1/nodes/worker-1"
        kubelet.acts.append("asked")
        why = "" if not kubelet.acts.count("start") else reasons[0] if reasons else ""
        when = time.strftime(kubelet_ready.TIME, time.gmtime())
        row = {"type": "Ready", "status": "False" if why else "True", "reason": why, "lastHeartbeatTime": when}
        return 200, json.dumps({"status": {"conditions": [row]}})

    kubelet.api = answer
    return kubelet, reasons


def test_a_node_that_is_ready_is_waited_for_until_it_is_again(fake: node.Node) -> None:
    kubelet, dummy = with_api_server(fake)
    rolled_out(fake, **PODS)
    assert kubelet.acts == ["asked", "stop", "start", "asked"]
    rolled_out(fake, **PODS)
    assert runs.tick(fake.host()) == 0
    assert kubelet.acts == ["asked", "stop", "start", "asked"], "nothing restarts, so nothing is asked"
    assert not runs.remove(fake.host()).error
    assert kubelet.acts[4:] == ["asked", "stop", "start", "asked"]


def test_a_node_that_is_not_ready_after_a_change_gets_everything_back(fake: node.Node) -> None:
    kubelet, reasons = with_api_server(fake)
    before = fake.fingerprint(CGROUP, "run/corral", "var/lib/corral")
    reasons.append("NoNetwork")
    outcome = runs.declare(fake.host(), kubelet=PODS)
    assert "node worker-1 is not Ready for 0 s (Ready is False, NoNetwork" in outcome.error
    assert (bool(kubelet.pid), kubelet.config["maxPods"]) == (True, 110)
    assert node.different(before, fake.fingerprint(CGROUP, "run/corral", "var/lib/corral")) == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "https://api.example:6443/api/v1/nodes/worker-1: Connection refused"),
        ((403, ""), "https://api.example:6443/api/v1/nodes/worker-1: status 403"),
        ((200, '{"status": {"conditions": [{"type": "Ready", "status": "False", "lastHeartbeatTime": "2026-11-26T10:00:00Z"}]}}'),
         "it is not Ready now: Ready is False"),
    ],
    ids=["nobody", "refused", "not ready"],
)  # fmt: skip
def test_where_the_node_was_not_ready_before_the_kubelets_health_alone_counts(
    said: tuple[int, str] | None, why: str, fake: node.Node
) -> None:
    """Or where nobody could tell: a change is what may mend such a node."""
    kubelet, dummy = with_api_server(fake)
    kubelet.api = None if said is None else lambda path: said
    (note,) = [note for note in notes_of(fake, kubelet=PODS) if "is Ready" in note]
    assert note.startswith(f"after the kubelet's start it is not checked whether node worker-1 is Ready ({why}")
    rolled_out(fake, **PODS)


@pytest.mark.parametrize("runs_now", [True, False], ids=["no API server", "stopped"])
def test_of_a_node_that_is_not_waited_for_nothing_is_asked_or_said(runs_now: bool, fake: node.Node) -> None:
    """A kubelet without --kubeconfig has no API server, and one that is stopped does not make its node Ready."""
    if runs_now:
        kubelet = fake_kubelet.install(fake)
    else:
        kubelet, dummy = with_api_server(fake)
        kubelet.stop(fake)
        fake.put(state.KUBELET_DUE, "")
    assert [note for note in notes_of(fake, kubelet=PODS) if "Ready" in note] == []
    assert kubelet.acts == []


def test_what_stops_the_look_after_an_undo_does_not_hide_why_it_was_undone(
    fake: node.Node, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet that the undo has just started may not be one to plan for yet."""
    kubelet.broken = kubelet.config
    plan_profile = planning.plan_profile

    def planned(*words: t.Any, **more: t.Any) -> t.Any:
        if kubelet.acts:
            raise CorralError(Problem("kubelet", None, "begins just now"))
        return plan_profile(*words, **more)

    monkeypatch.setattr(planning, "plan_profile", planned)
    outcome = runs.declare(fake.host(), kubelet=STATIC)
    assert "made to fail" in outcome.error
    assert outcome.remaining == outcome.plan.changes


def exclusive_pod(fake: node.Node) -> None:
    """A pod with exclusive CPUs by the state file, whose container runs."""
    fake.put(
        STATE,
        json.dumps(
            {"policyName": "static", "defaultCpuSet": "0-3,5-7", "entries": {"uid": {"main": "4"}}, "checksum": 0}
        ),
    )
    identity = "0123456789abcdef" * 4
    fake.put(
        f"/sys/fs/cgroup/kubepods.slice/kubepods-poduid.slice/cri-containerd-{identity}.scope/cpuset.cpus.effective",
        "4",
    )
    fake.put(f"/var/log/containers/web_default_main-{identity}.log", "")


def with_exclusive_pod(fake: node.Node) -> FakeKubelet:
    base = BASE + 'cpuManagerPolicy: static\nreservedSystemCPUs: "0"\n'
    kubelet = fake_kubelet.install(fake, base=base)
    exclusive_pod(fake)
    kubelet.restart(fake)
    assert kubelet.pid
    kubelet.acts.clear()
    return kubelet


def test_cpus_are_not_taken_from_pods_without_a_word_about_draining(fake: node.Node) -> None:
    kubelet = with_exclusive_pod(fake)
    (line,) = refusal(fake, **STATIC)
    assert line.startswith(f"kubelet.drain: the kubelet would not start with {STATE}")
    assert "lose their exclusive CPUs or memory: default/web. Drain the node first" in line
    assert kubelet.acts == []
    rolled_out(fake, **STATIC, drain="none")
    assert kubelet.acts == ["stop", "start"]


def test_a_pod_without_a_log_is_named_by_its_uid_and_no_more_than_four_pods_are(fake: node.Node) -> None:
    with_exclusive_pod(fake)
    (log,) = (fake.root / "var/log/containers").iterdir()
    log.unlink()
    (line,) = refusal(fake, **STATIC)
    assert "lose their exclusive CPUs or memory: uid. Drain" in line
    refused = (kubelet_change.RefusedFile(STATE, "", 0o600, "other CPUs"),)
    for count, words in ((4, "memory: a, b, c, d. Drain"), (5, "memory: a, b, c, d …. Drain")):
        found = kubelet_change.StateFiles(refused, assigned=tuple("abcde"[:count]))
        (problem,) = kubelet_change.problems(found, None)
        assert words in problem.message


def test_a_tick_says_of_a_change_that_pods_would_lose_by_that_it_restarts_nothing(fake: node.Node) -> None:
    """Whether the node has to be drained is what the rollout says."""
    kubelet = with_exclusive_pod(fake)
    assert not runs.declare(fake.host()).error
    fake.put(state.DECLARED, json.dumps(node.edge(kubelet=STATIC)))
    assert runs.tick(fake.host(), by_timer=False) == 2
    reasons = dict(drift(fake))
    assert {"cpuManagerPolicyOptions", "reservedSystemCPUs"} <= reasons.keys()
    assert [one for one in reasons.values() if "a tick restarts no kubelet" not in one or "drain" in one] == []
    assert kubelet.acts == []


def test_swap_for_pods_needs_a_kubelet_that_starts_with_swap(fake: node.Node, kubelet: FakeKubelet) -> None:
    """failSwapOn was true before, which alone is a note: without a restart it does no harm."""
    fake.put("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 100 0 -2\n")
    assert refusal(fake, swap_behavior="LimitedSwap") == [
        (
            "kubelet.swap_behavior: LimitedSwap: swap is on here, and with failSwapOn the kubelet would not start: "
            "declare kubelet.fail_swap_on: false as well"
        )
    ]
    assert kubelet.acts == []
    rolled_out(fake, swap_behavior="LimitedSwap", fail_swap_on=False)


def test_a_plan_of_a_profile_is_that_of_its_run(
    fake: node.Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_exclusive_pod(fake)
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(node.edge(kubelet=STATIC)))
    with pytest.raises(CorralError, match="lose their exclusive CPUs or memory: default/web"):
        runs.command(fake.host(), "plan", "--profile", str(file))
    file.write_text(json.dumps(node.edge(kubelet={**STATIC, "drain": "none"})))
    capsys.readouterr()
    assert runs.command(fake.host(), "plan", "--profile", str(file), "--json") == 2
    planned = {row["text"] for row in json.loads(capsys.readouterr().out)["changes"] if row["manager"] == "kubelet"}
    done = {change_text.with_text(change)["text"] for change in rolled_out(fake, **STATIC, drain="none")}
    assert planned == done
    assert any(f"kubelet {STATE} state" in text for text in planned)


def test_the_hook_drains_before_the_stop_and_resumes_when_healthy(fake: node.Node) -> None:
    kubelet = with_exclusive_pod(fake)
    rolled_out(fake, **STATIC, drain="/usr/sbin/drainer")
    assert kubelet.acts == ["drain", "stop", "start", "resume"]
    assert kubelet.hooks == [("/usr/sbin/drainer", "drain"), ("/usr/sbin/drainer", "resume")]


def test_a_change_that_no_pod_loses_by_drains_nothing(fake: node.Node) -> None:
    kubelet = with_exclusive_pod(fake)
    runs.declare(fake.host(), cpu=None)
    rolled_out_without_cpus(fake, max_pods=40, drain="/usr/sbin/drainer")
    assert (kubelet.acts, kubelet.hooks) == (["stop", "start"], [])


def test_a_node_without_containers_is_not_drained(fake: node.Node) -> None:
    kubelet = with_exclusive_pod(fake)
    shutil.rmtree(fake.root / "sys/fs/cgroup/kubepods.slice")
    (fake.root / STATE[1:]).chmod(0o640)
    rolled_out(fake, **STATIC, drain="/usr/sbin/drainer")
    assert (kubelet.acts, kubelet.hooks) == (["stop", "start"], [])
    (aside,) = (fake.root / ROOT[1:]).glob("cpu_manager_state.corral-*")
    assert aside.stat().st_mode & 0o777 == 0o640


def rolled_out_without_cpus(fake: node.Node, **kubelet: t.Any) -> None:
    outcome = runs.declare(fake.host(), cpu=None, kubelet=kubelet)
    assert (outcome.error, ours(outcome.remaining)) == ("", [])


def test_memory_of_pods_that_are_gone_stops_no_change_beside_one_with_cpus(fake: node.Node) -> None:
    kubelet = with_exclusive_pod(fake)
    runs.declare(fake.host(), cpu=None)
    fake.put(f"{ROOT}/memory_manager_state", MEMORY_STATE)
    rolled_out_without_cpus(fake, max_pods=40)
    assert kubelet.acts == ["stop", "start"]
    assert set_aside(fake) == ["memory_manager_state.corral-policy"]


def test_pods_keep_their_memory_where_the_other_file_alone_is_set_aside(fake: node.Node, kubelet: FakeKubelet) -> None:
    """Nothing is to be drained: the kubelet accepts the file that gives them NUMA memory."""
    rolled_out(fake, **STATIC_MEMORY)
    exclusive_pod(fake)  # It has no CPUs of its own.
    fake.put(STATE, json.dumps({"policyName": "none", "defaultCpuSet": "", "checksum": 0}))
    kubelet.restart(fake)
    fitting_memory_state(fake, kubelet, 1 << 20)
    rolled_out(fake, **STATIC_MEMORY, **STATIC)
    assert set_aside(fake) == ["cpu_manager_state.corral-policy"]


def test_memory_is_not_taken_from_pods_either(fake: node.Node, kubelet: FakeKubelet) -> None:
    pod = next(iter(json.loads(MEMORY_STATE)["entries"]))
    group = f"/sys/fs/cgroup/kubepods.slice/kubepods-pod{pod.replace('-', '_')}.slice"
    identity = "0123456789abcdef" * 4
    fake.put(f"{group}/cri-containerd-{identity}.scope/cpuset.cpus.effective", "4")
    fake.put(f"/var/log/containers/web_default_main-{identity}.log", "")
    fake.put(f"{ROOT}/memory_manager_state", MEMORY_STATE)
    (line,) = refusal(fake, **PODS)
    assert line.startswith(f"kubelet.drain: the kubelet would not start with {ROOT}/memory_manager_state")
    assert "lose their exclusive CPUs or memory: default/web" in line
    assert kubelet.acts == []


def test_a_hook_that_fails_stops_the_change_before_the_kubelet(fake: node.Node) -> None:
    kubelet = with_exclusive_pod(fake)
    kubelet.failing.add(("/usr/sbin/drainer", "drain"))
    outcome = runs.declare(fake.host(), kubelet={**STATIC, "drain": "/usr/sbin/drainer"})
    assert outcome.error == "/usr/sbin/drainer drain: exit code 1: no answer from the API server"
    assert kubelet.acts == ["drain", "resume"]
    assert not fake.has(DROPIN)


def left_with_exclusive_pod(fake: node.Node, **section: t.Any) -> FakeKubelet:
    """A node whose kubelet has the policy static by the profile alone, with a pod that has exclusive CPUs."""
    kubelet = fake_kubelet.install(fake)
    rolled_out(fake, **STATIC, **section)
    fill_with_pod(fake, kubelet)
    return kubelet


def fill_with_pod(fake: node.Node, kubelet: FakeKubelet) -> None:
    """The state file of that policy with a pod of exclusive CPUs."""
    exclusive_pod(fake)
    state_file = {"policyName": "static", "defaultCpuSet": "1", "entries": {"uid": {"main": "5"}}, "checksum": 0}
    fake.put(STATE, json.dumps(state_file))
    kubelet.restart(fake)
    assert kubelet.pid
    kubelet.acts.clear()
    kubelet.hooks.clear()


Leave = t.Callable[[Host], Outcome]
LEAVE = pytest.mark.parametrize("leave", [runs.remove, runs.declare], ids=["removal", "section"])


def checked(fake: node.Node, leave: Leave) -> None:
    """What check mode plans."""
    if leave is runs.remove:
        planning.plan_removal(fake.host(), registry.names())
        return
    context = planning.compile_profile(fake.host(), node.parsed(), fresh=True)
    planning.plan_profile(fake.host(), context, declare=True)


@LEAVE
def test_cpus_are_not_taken_from_pods_by_leaving_the_kubelet_either(leave: Leave, fake: node.Node) -> None:
    """The state file was set aside and the kubelet restarted, with the pods on CPUs that it gave to others from then on."""
    kubelet = left_with_exclusive_pod(fake)
    before = fake.fingerprint()
    for take in (leave, lambda dummy: checked(fake, leave)):
        with pytest.raises(CorralError) as error:
            take(fake.host())
        (line,) = str(error.value).splitlines()
        assert line.startswith(f"kubelet.drain: the kubelet would not start with {STATE}")
        assert "lose their exclusive CPUs or memory: default/web. Drain the node and try again; or first apply" in line
    assert (kubelet.acts, node.different(before, fake.fingerprint())) == ([], [])
    rolled_out(fake, **STATIC, drain="none")
    assert kubelet.acts == []
    assert leave(fake.host()).error == ""
    assert (kubelet.acts, json.loads(fake.get(STATE))["policyName"]) == (["stop", "start"], "none")


@LEAVE
def test_a_node_without_such_pods_leaves_as_before(leave: Leave, fake: node.Node) -> None:
    kubelet = left_with_exclusive_pod(fake)
    fake.drop("/var/log/containers/web_default_main-" + "0123456789abcdef" * 4 + ".log")
    (group,) = (fake.root / "sys/fs/cgroup/kubepods.slice").glob("*.slice")
    shutil.rmtree(group)  # drained by hand
    assert leave(fake.host()).error == ""
    assert (kubelet.acts, bool(kubelet.pid), fake.has(DROPIN)) == (["stop", "start"], True, False)


@LEAVE
def test_the_hook_of_the_profile_that_is_left_drains_and_resumes(leave: Leave, fake: node.Node) -> None:
    kubelet = left_with_exclusive_pod(fake, drain="/usr/sbin/drainer")
    kubelet.failing.add(("/usr/sbin/drainer", "drain"))
    twin = twin_of(fake)
    assert leave(twin.host()).error == "/usr/sbin/drainer drain: exit code 1: no answer from the API server"
    assert twin.kubelet is not None
    assert (twin.kubelet.acts, twin.has(DROPIN), bool(twin.kubelet.pid)) == (["drain", "resume"], True, True)
    published = ("run/corral", "var/lib/corral/drift-since.json")
    assert node.different(fake.fingerprint(*published), twin.fingerprint(*published)) == []
    kubelet.failing.clear()
    assert leave(fake.host()).error == ""
    assert (kubelet.acts, fake.has(DROPIN)) == (["drain", "stop", "start", "resume"], False)
    assert kubelet.hooks == [("/usr/sbin/drainer", "drain"), ("/usr/sbin/drainer", "resume")]


@LEAVE
def test_a_kubelet_that_was_removed_keeps_no_node_from_leaving(leave: Leave, fake: node.Node) -> None:
    """Its package is gone, kubeadm's configuration and the containers are there still: nothing can drain such a node."""
    kubelet = fake_kubelet.install(fake, dropins=False)
    rolled_out(fake, **STATIC)
    fill_with_pod(fake, kubelet)
    kubelet.stop(fake)
    kubelet.acts.clear()
    fake.drop(UNIT_FILE)
    fake.drop("/usr/bin/kubelet")
    assert leave(fake.host()).error == ""
    assert (kubelet.acts, fake.get(CONFIG)) == ([], BASE)


@LEAVE
def test_a_kubelet_that_is_stopped_may_start_again_and_take_cpus_from_pods(leave: Leave, fake: node.Node) -> None:
    kubelet = left_with_exclusive_pod(fake)
    kubelet.stop(fake)
    with pytest.raises(CorralError, match="lose their exclusive CPUs or memory: default/web"):
        leave(fake.host())


def test_the_hook_is_known_once_a_tick_has_applied_the_next_profile(fake: node.Node) -> None:
    """A file of the profile that was put on the node: its tick applies all of it but the kubelet."""
    kubelet = left_with_exclusive_pod(fake, drain="/usr/sbin/drainer")
    assert not runs.install(fake.host()).error
    section_left_out(fake)
    assert runs.tick(fake.host(), by_timer=False) == 2
    assert kubelet.acts == []
    assert not runs.declare(fake.host()).error
    assert kubelet.acts == ["drain", "stop", "start", "resume"]


def test_a_profile_in_force_that_left_the_section_out_is_drift_as_long_as_pods_would_lose_cpus(fake: node.Node) -> None:
    kubelet = left_with_exclusive_pod(fake)
    assert not runs.install(fake.host()).error
    section_left_out(fake)
    runs.tick(fake.host(), by_timer=False)
    outcome = runs.declare(fake.host())
    (item,) = ours(outcome.remaining)
    assert "lose their exclusive CPUs or memory: default/web" in item.reason
    assert (outcome.error, kubelet.acts, fake.has(DROPIN)) == ("", [], True)


@pytest.mark.parametrize("hook", ["", "works", "fails"])
@pytest.mark.parametrize("before", ["nothing", "no section", "a section"])
def test_a_way_back_is_not_refused_for_pods(
    before: str, hook: str, fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was not confirmed may have cut the node off, so that nothing can drain it."""
    kubelet = fake_kubelet.install(fake)
    assert not runs.install(fake.host()).error
    if before != "nothing":
        old = {"kubelet": {"cpu_manager_policy": "none"}} if before == "a section" else {}
        assert not runs.declare(fake.host(), **old).error
    unconfirmed(fake, kubelet={**STATIC, **({"drain": "/usr/sbin/drainer"} if hook else {})})
    fill_with_pod(fake, kubelet)
    if hook == "fails":
        kubelet.failing.add(("/usr/sbin/drainer", "drain"))
    fake.wait(121)
    runs.command(fake.host(), "confirm", "--tick")
    assert kubelet.acts == (["drain", "stop", "start", "resume"] if hook else ["stop", "start"])
    assert (bool(kubelet.pid), kubelet.config.get("cpuManagerPolicy") or "none") == (True, "none")
    runs.command(fake.host(), "confirm", "--tick")
    assert not fake.has(state.UNCONFIRMED)
    assert ("/usr/sbin/drainer drain: exit code 1: no answer" in capsys.readouterr().err) == (hook == "fails")


@pytest.mark.parametrize("before", ["nothing", "a section"])
def test_a_rollout_that_takes_back_what_it_did_not_confirm_is_not_refused_for_pods(
    before: str, fake: node.Node
) -> None:
    """A failed health check was followed by a way back that was refused; the node made it minutes later by itself."""
    kubelet = fake_kubelet.install(fake)
    assert not runs.install(fake.host()).error
    if before == "a section":
        assert not runs.declare(fake.host(), kubelet={"cpu_manager_policy": "none"}).error
    unconfirmed(fake, kubelet=STATIC)
    fill_with_pod(fake, kubelet)
    kubelet.acts.clear()
    if before == "nothing":
        assert runs.remove(fake.host()).error == ""
    else:
        assert runs.command(fake.host(), "rollback") == 0
    assert (kubelet.acts, kubelet.config.get("cpuManagerPolicy") or "none") == (["stop", "start"], "none")


@pytest.mark.parametrize("before", ["nothing", "a section"])
def test_a_node_goes_back_that_is_not_ready_afterwards(before: str, fake: node.Node) -> None:
    """The way back was undone after two minutes, and tried again for ever: the unconfirmed profile stayed in force."""
    kubelet, reasons = with_api_server(fake)
    assert not runs.install(fake.host()).error
    if before == "a section":
        rolled_out(fake, max_pods=40)
    unconfirmed(fake, kubelet=PODS)
    assert kubelet.config["maxPods"] == 50
    kubelet.acts.clear()
    reasons.append("NoNetwork")
    fake.wait(121)
    runs.command(fake.host(), "confirm", "--tick")
    assert (kubelet.acts, kubelet.config["maxPods"]) == (["stop", "start"], 40 if before == "a section" else 110)
    assert not fake.has(state.UNCONFIRMED)


HOOK = "/usr/sbin/drainer"
DRAINED_STATIC = {**STATIC, "drain": HOOK}


def killed_after(fake: node.Node, words: str) -> None:
    """A rollout that ends with the first act that has these words, which is the same as on a twin."""
    host = twin_of(fake).host()
    assert not runs.declare(host, kubelet=DRAINED_STATIC).error
    at = 1 + next(at for at, act in enumerate(host.acts) if words in act)
    with pytest.raises(node.Killed):
        runs.declare(fake.host("killed", at), kubelet=DRAINED_STATIC)


@pytest.mark.parametrize("declared", [False, True])
def test_a_node_that_a_killed_run_drained_resumes(declared: bool, fake: node.Node) -> None:
    kubelet = with_exclusive_pod(fake)
    if declared:  # Else the tick has no profile to look at the node with.
        assert not runs.declare(fake.host()).error
    killed_after(fake, "run systemctl stop -- kubelet.service")
    assert kubelet.acts == ["drain", "stop"]
    runs.tick(fake.host())
    assert kubelet.acts == ["drain", "stop", "start"]
    said = ("kubelet.service", "a run was ended while it changed the kubelet: roll the profile out again")
    assert not declared or said in drift(fake)
    rolled_out(fake, **DRAINED_STATIC)
    assert kubelet.acts[-1] == "resume"
    assert not fake.has("/run/corral/kubelet-due")


@LEAVE
def test_a_node_that_a_killed_run_did_not_drain_does_not_resume(leave: Leave, fake: node.Node) -> None:
    """An administrator may have drained it."""
    kubelet = with_exclusive_pod(fake)
    assert not runs.declare(fake.host()).error
    killed_after(fake, state.KUBELET_DUE)
    assert (fake.has(state.KUBELET_DUE), fake.has(state.DRAINED)) == (True, False)
    assert leave(fake.host()).error == ""
    assert (kubelet.hooks, fake.has(state.KUBELET_DUE)) == ([], False)


def drift(fake: node.Node) -> list[tuple[str, str]]:
    return [(item["subject"], item["reason"]) for item in items(fake)]


def test_a_resume_that_fails_leaves_the_change_and_is_drift_until_it_succeeds(fake: node.Node) -> None:
    kubelet = with_exclusive_pod(fake)
    kubelet.failing.add((HOOK, "resume"))
    section = {**STATIC, "drain": HOOK}
    outcome = runs.declare(fake.host(), kubelet=section)
    assert (outcome.error, kubelet.acts) == ("", ["drain", "stop", "start", "resume"])
    assert [change.subject for change in outcome.remaining] == ["node"]
    runs.tick(fake.host())
    said = "/usr/sbin/drainer resume: exit code 1: no answer from the API server: corral reconcile, or a rollout, tries it again"
    assert drift(fake) == [("node", said)]
    assert kubelet.acts[-1:] == ["resume"] and len(kubelet.acts) == 4, "a tick runs no hook"
    kubelet.failing.clear()
    twin = twin_of(fake)
    rolled_out(twin, **section, max_pods=40)
    assert twin.kubelet is not None
    assert twin.kubelet.acts[4:] == ["stop", "start", "resume"], "so does the next change"
    rolled_out(fake, **section)
    assert kubelet.acts[4:] == ["resume"]
    assert runs.tick(fake.host()) == 0


@pytest.mark.parametrize("leaves", [False, True])
def test_a_node_that_was_drained_when_its_power_went_is_drift_and_resumes(leaves: bool, fake: node.Node) -> None:
    kubelet = with_exclusive_pod(fake)
    runs.declare(fake.host())
    killed_after(fake, f"run {HOOK} drain")
    fake.boot_anew()
    kubelet.restart(fake)
    runs.tick(fake.host(), at_boot=True)
    runs.tick(fake.host())
    said = "a run was ended before it resumed the node: corral reconcile, or a rollout, tries it again"
    assert ("node", said) in drift(fake)
    if leaves:
        assert not runs.remove(fake.host()).error
    else:
        rolled_out(fake, **DRAINED_STATIC)
    assert kubelet.hooks[-1] == (HOOK, "resume")
    assert not fake.has("/var/lib/corral/drained")


@pytest.mark.parametrize("leaves", [False, True])
def test_no_boot_waits_for_a_node_to_resume(leaves: bool, fake: node.Node) -> None:
    """Without a network a program that resumes the node fails, or keeps the boot waiting until its time is over."""
    kubelet = with_exclusive_pod(fake)
    kubelet.failing.add((HOOK, "resume"))
    assert not runs.declare(fake.host(), kubelet={**STATIC, "drain": HOOK}).error
    assert not runs.install(fake.host()).error
    kubelet.failing.clear()
    if leaves:
        section_left_out(fake)
        runs.tick(fake.host(), by_timer=False)
    kubelet.stop(fake)
    kubelet.acts.clear()
    for dummy in range(2):
        fake.boot_anew()
        runs.tick(fake.host(), at_boot=True)
    assert (kubelet.acts, fake.has(state.DRAINED)) == ([], True)
    kubelet.start(fake)
    runs.tick(fake.host())
    assert "node" in [subject for subject, reason in drift(fake)]


def test_a_gate_is_set_for_an_option_that_needs_one_and_those_of_others_stay(fake: node.Node) -> None:
    for dropins in (True, False):
        twin = fake.clone(fake.root.with_name(f"dropins-{dropins}"))
        kubelet = fake_kubelet.install(twin, dropins=dropins, base=BASE + "featureGates:\n  Theirs: true # wanted\n")
        rolled_out(twin, **ALPHA)
        assert kubelet.config["featureGates"] == {"Theirs": True, "CPUManagerPolicyAlphaOptions": True}
        assert not runs.remove(twin.host()).error
        assert kubelet.config["featureGates"] == {"Theirs": True}
        assert twin.get(CONFIG) == BASE + "featureGates:\n  Theirs: true # wanted\n"


def test_a_stopped_kubelet_is_not_started(fake: node.Node, kubelet: FakeKubelet) -> None:
    kubelet.stop(fake)
    applied = rolled_out(fake, **STATIC)
    assert {one.when for one in applied} == {"next start"}
    assert kubelet.acts == []
    kubelet.start(fake)
    assert kubelet.pid, "its state was set aside"


def test_the_state_of_a_stopped_kubelet_that_has_pods_is_not_set_aside_without_a_word_about_draining(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    rolled_out(fake, **STATIC)
    exclusive_pod(fake)
    kubelet.stop(fake)
    before = fake.get(STATE)
    (line,) = refusal(fake, **STATIC, max_pods=20)
    assert line.startswith(f"kubelet.drain: the kubelet would not start with {STATE}")
    assert not runs.declare(fake.host(), kubelet=STATIC).error
    assert fake.get(STATE) == before, "it is the profile that is applied"
    rolled_out(fake, **STATIC, drain="none")
    assert not fake.has(STATE)


def test_a_stopped_kubelet_without_a_configuration_of_others_is_one(fake: node.Node, kubelet: FakeKubelet) -> None:
    """Its unit has --config-dir alone."""
    kubelet.stop(fake)
    edit_unit(fake, f" --config={CONFIG}", "")
    fake.drop(CONFIG)
    rolled_out(fake, **PODS)
    assert yaml.safe_load(fake.get(DROPIN))["maxPods"] == 50


LATER = f"{DROPINS}/99-cloud.conf"
GOES_ON = f"{LATER} sorts after 20-corral.conf: remove the key there"
NO_THRESHOLD, NO_MEMORY = {"evictionHard": {"memory.available": None}}, {"systemReserved": {"memory": None}}
ADDED = "the kubelet adds its default thresholds (mergeDefaultEvictionSettings)"


@pytest.mark.parametrize(
    ("installed", "files", "left", "location", "reason"),
    [
        pytest.param({"flags": "--max-pods=70 --pod-max-pids=100"}, {}, ("maxPods", "70", "50"), UNIT_FILE,
                     f"the flag --max-pods in {UNIT_FILE} wins over every file", id="a flag"),
        pytest.param({}, {"99": {"maxPods": 30}}, ("maxPods", "30", "50"), LATER, GOES_ON, id="a later file"),
        pytest.param({}, {"99": {"maxPods": None}}, ("maxPods", "110", "50"), LATER, GOES_ON, id="a key is deleted"),
        pytest.param({}, {"99": {"evictionHard": None}}, ("evictionHard", None, EVICTION), LATER, GOES_ON, id="a map is deleted"),
        pytest.param({}, {"10": {"maxPods": None}, "99": NO_THRESHOLD}, ("evictionHard", "{}", EVICTION), LATER, GOES_ON,
                     id="a threshold is deleted"),
        pytest.param({}, {"10": NO_MEMORY, "99": {"systemReserved": {"pid": None}}},
                     ("systemReserved", '{"memory": "1Gi"}', '{"memory": "1Gi", "pid": "100"}'), LATER, GOES_ON, id="an amount is deleted"),
        pytest.param({"dropins": False, "base": BASE + "mergeDefaultEvictionSettings: true\n"}, {},
                     ("evictionHard", json.dumps({**fake_kubelet.THRESHOLDS, "memory.available": "200Mi"}), EVICTION), "", ADDED,
                     id="default thresholds"),
    ],
)  # fmt: skip
def test_what_wins_over_a_declared_key_is_drift_that_names_it(
    installed: dict[str, t.Any], files: dict[str, dict[str, t.Any]], left: tuple[str, str | None, str], location: str,
    reason: str, fake: node.Node,
) -> None:  # fmt: skip
    """A key that a later file deletes was told as a default threshold that the kubelet adds, or as Corral's own file."""
    kubelet = fake_kubelet.install(fake, **installed)
    for name, data in files.items():
        fake.put(f"{DROPINS}/{name}-cloud.conf", yaml.safe_dump({**fake_kubelet.HEAD, **data}))
    kubelet.restart(fake)
    for dummy in range(2):
        outcome = runs.declare(fake.host(), kubelet={**PODS, "system_reserved": {"pid": "100", "memory": "1Gi"}})
        (found,) = ours(outcome.remaining)
        assert (found.subject, found.actual, found.wanted) == left
        assert (found.verdict, found.location) == (UNCHANGEABLE, location)
        assert found.reason.startswith(reason)
        assert kubelet.acts == ["stop", "start"], "nothing that it could write changes that"


def test_what_others_give_already_is_not_written(fake: node.Node) -> None:
    kubelet = fake_kubelet.install(fake, base=BASE + 'reservedSystemCPUs: "0,2,3,4,6-7"\n')
    assert rolled_out(fake, max_pods=110) == []
    assert not fake.has(DROPIN)
    assert kubelet.acts == []


def test_lines_of_others_that_give_it_already_stay_as_they_are_written(fake: node.Node) -> None:
    base = BASE.replace("maxPods: 110", "maxPods:   50  # as agreed") + 'reservedSystemCPUs: "0,2,3,4,6-7"\n'
    kubelet = fake_kubelet.install(fake, dropins=False, base=base)
    assert rolled_out(fake, max_pods=50) == []
    assert fake.get(CONFIG) == base
    assert kubelet.acts == []


def test_what_others_configured_wrongly_before_is_a_note(fake: node.Node) -> None:
    fake_kubelet.install(fake, base=BASE + "evictionSoft: {memory.available: 500Mi}\nmaxPod: 7\n")
    outcome = runs.declare(fake.host(), kubelet={"max_pods": 50})
    assert not outcome.error
    notes = [note for note in outcome.plan.notes if note.startswith("the kubelet: ")]
    assert len(notes) == 2
    assert "evictionSoft" in notes[0] and "has no grace period" in notes[0]
    assert notes[1].startswith(f"the kubelet: {CONFIG}: maxPod: no key of a KubeletConfiguration")


def started_by_hand(host: node.NodeHost) -> int:
    """systemctl start corral-reconcile.service"""
    with mock.patch.dict(os.environ):
        os.environ.pop("TRIGGER_UNIT", None)
        return main.tick(host)


@pytest.mark.parametrize("tick", [runs.tick, started_by_hand])
def test_a_tick_names_what_differs_and_restarts_nothing(
    tick: t.Callable[[node.NodeHost], int], fake: node.Node, kubelet: FakeKubelet
) -> None:
    assert not runs.install(fake.host()).error
    rolled_out(fake, **PODS)
    assert runs.tick(fake.host()) == 0
    fake.drop(DROPIN)
    fake.wait(10)
    assert tick(fake.host()) == 2
    assert {(item["subject"], item["actual"]) for item in items(fake)} >= {("maxPods", "110")}
    assert all("a tick restarts no kubelet" in item["reason"] for item in items(fake))
    assert (kubelet.acts, fake.has(DROPIN)) == (["stop", "start"], False)
    rolled_out(fake, **PODS)


def killed_twins(
    fake: node.Node, run: t.Callable[[node.NodeHost], Outcome], fails: t.Sequence[str], *paths: str
) -> t.Iterator[tuple[node.Node, FakeKubelet, str]]:
    """A twin for each write of a run, or for each to one of these paths, on which that write ended the run; and what it was."""
    host = twin_of(fake).host()
    assert not run(host).error
    writes = [at for at, act in enumerate(host.acts, 1) if not paths or any(path in act for path in paths)]
    assert len(writes) > 1
    for at, fail in ((at, fail) for at in writes for fail in fails):
        twin = twin_of(fake)
        with pytest.raises(node.Killed):
            run(twin.host(fail, at))
        assert twin.kubelet is not None
        yield twin, twin.kubelet, f"{fail} at {host.acts[at - 1]}"


@pytest.mark.parametrize("fail", ["killed", "torn"])
def test_whatever_write_kills_a_run_the_next_tick_starts_the_kubelet_and_the_next_run_finishes(
    fail: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    assert not runs.install(fake.host()).error
    assert not runs.declare(fake.host()).error
    for twin, own_kubelet, said in killed_twins(fake, lambda host: runs.declare(host, kubelet=ALPHA), [fail]):
        twin.wait(10)
        tick = twin.host()
        runs.tick(tick)
        assert own_kubelet.pid, f"{said} it was left stopped"
        own = ("/run/corral", "/var/lib/corral", "/etc/systemd", "/etc/corral", "/sys", "/proc")
        assert [path for path in tick.writes if not path.startswith(own)] == [], "its unit may write nothing else"
        rolled_out(twin, **ALPHA)
        assert not twin.has("/run/corral/kubelet-due")
        assert own_kubelet.config["cpuManagerPolicy"] == "static"
    assert kubelet.acts == []


def test_a_run_that_is_killed_loses_no_line_of_a_file_of_others(fake: node.Node) -> None:
    fake_kubelet.install(fake, dropins=False)
    assert not runs.declare(fake.host()).error
    run = functools.partial(runs.declare, kubelet=PODS)
    for twin, kubelet, said in killed_twins(fake, run, ("killed", "torn"), CONFIG, KEPT):
        rolled_out(twin, **PODS)
        assert kubelet.pid, "no tick came in between"
        assert not runs.remove(twin.host()).error
        assert twin.get(CONFIG) == BASE, said
    rolled_out(fake, **PODS)
    for twin, dummy, said in killed_twins(fake, runs.remove, ["killed"], CONFIG, KEPT):
        assert not runs.remove(twin.host()).error
        assert twin.get(CONFIG) == BASE, said


OTHER_CONFIG, OTHER_BASE = "/etc/kubelet/config.yaml", BASE.replace("maxPods: 110", "maxPods: 70")


def moved_configuration(fake: node.Node) -> None:
    """The kubelet reads another file than the one whose keys Corral changed."""
    fake.put(OTHER_CONFIG, OTHER_BASE)
    edit_unit(fake, CONFIG, OTHER_CONFIG)
    assert fake.kubelet is not None
    fake.kubelet.restart(fake)


@pytest.mark.parametrize(
    ("prepare", "section"),
    [(lambda fake: None, {"max_pods": 40}), (moved_configuration, PODS), (moved_configuration, {"max_pods": 70})],
    ids=["fewer keys", "another file", "another file that says so already"],
)
def test_a_run_that_is_killed_loses_no_line_that_was_kept_before(
    prepare: t.Callable[[node.Node], None], section: dict[str, t.Any], fake: node.Node
) -> None:
    """What it no longer needs to keep was forgotten before the lines were back."""
    fake_kubelet.install(fake, dropins=False)
    rolled_out(fake, **PODS)
    prepare(fake)
    run = functools.partial(runs.declare, kubelet=section)
    for twin, kubelet, said in killed_twins(fake, run, ("killed", "torn"), CONFIG, OTHER_CONFIG, KEPT):
        outcome = run(twin.host())
        assert (outcome.error, ours(outcome.remaining)) == ("", []), said
        assert kubelet.pid, "no tick came in between"
        assert not runs.remove(twin.host()).error
        assert twin.get(CONFIG) == BASE, said
        assert not twin.has(OTHER_CONFIG) or twin.get(OTHER_CONFIG) == OTHER_BASE, said
        assert not twin.has(KEPT)


def test_whatever_is_refused_all_of_it_is_undone(fake: node.Node) -> None:
    fake_kubelet.install(fake)
    assert not runs.declare(fake.host()).error
    whole = twin_of(fake)
    host = whole.host()
    assert not runs.declare(host, kubelet=STATIC).error
    before = fake.fingerprint(CGROUP, "run/corral", "var/lib/corral")
    undone = 0
    for at in range(1, len(host.acts) + 1):
        twin = fake.clone(fake.root.with_name(f"refused{at}"))
        try:
            outcome = runs.declare(twin.host("error", at), kubelet=STATIC)
        except (CorralError, OSError):
            outcome = None
        assert twin.kubelet is not None
        assert twin.kubelet.pid, f"after {host.acts[at - 1]} it was left stopped"
        if outcome is not None and outcome.error:
            undone += 1
            assert node.different(before, twin.fingerprint(CGROUP, "run/corral", "var/lib/corral")) == [], host.acts[
                at - 1
            ]
            assert "cpuManagerPolicy" not in twin.kubelet.config
    assert undone >= 8, "the stop, the start and each file"


def fitting_memory_state(fake: node.Node, kubelet: FakeKubelet, size: int = 0) -> None:
    """The memory manager's file as a kubelet makes it on this machine with its configuration, with bytes of the pod ``uid`` (0: no pod)."""
    config = kubelet_config.Config(kubelet.config, {})
    totals = kubelet_state.totals(sysfs.discover(fake.host(), with_devices=False))
    machine = start_checks.machine(totals, kubelet_state.reserved_memory(config))
    blocks = [{"NUMAAffinity": [0], "Type": "memory", "Size": size}] if size else []
    for block in blocks:
        start_checks.assign(machine, block, "uid")
    entries = {"uid": {"main": blocks}} if blocks else {}
    values = {"PolicyName": "Static", "MachineState": machine, "Entries": entries, "Checksum": 0}
    names = {"TotalMemSize": "total", "SystemReserved": "systemReserved"}
    written = {
        str(numa): {
            "numberOfAssignments": row["NumberOfAssignments"],
            "memoryMap": {
                kind: {names.get(name, name.lower()): size for name, size in table.items()}
                for kind, table in row["MemoryMap"].items()
            },
            "cells": row["Cells"],
        }
        for numa, row in machine.items()
    }
    own = checksum(state_files.hashed(state_files.MEMORY, state_files.MEMORY.versions[1], values))
    written_blocks = [{"numaAffinity": [0], "type": "memory", "size": size}] if size else []
    written_entries = {"uid": {"main": written_blocks}} if size else {}
    data = {"policyName": "Static", "machineState": written, "entries": written_entries, "checksum": own}
    fake.put(f"{ROOT}/memory_manager_state", json.dumps(data))


MORE_PAGES = {"hugepages": [{"size": "2Mi", "count": 300}]}


def test_hugepages_that_a_state_file_does_not_fit_restart_the_kubelet_with_that_file_aside(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    """Nothing of the configuration changes. The kubelet ran on, and would not have started at its next restart."""
    rolled_out(fake, **STATIC_MEMORY)
    fitting_memory_state(fake, kubelet)
    rolled_out(fake, **STATIC_MEMORY)
    assert kubelet.acts == ["stop", "start"], "the file fits"
    kubelet.acts.clear()
    twin = twin_of(fake)
    host = fake.host()
    outcome = runs.declare(host, kubelet=STATIC_MEMORY, memory=MORE_PAGES)
    assert (outcome.error, ours(outcome.remaining), kubelet.acts) == ("", [], ["stop", "start"])
    assert [path.name for path in (fake.root / ROOT[1:]).glob("memory*")] == [
        "memory_manager_state.corral-memory-20231114T221320Z"
    ]
    pages = [at for at, act in enumerate(host.acts) if "nr_hugepages" in act]
    assert pages and max(pages) < host.acts.index("run systemctl start -- kubelet.service"), (
        "it counts them at its start"
    )
    outcome = runs.declare(fake.host(), kubelet=STATIC_MEMORY, memory=MORE_PAGES)
    assert (ours(outcome.applied), kubelet.acts) == ([], ["stop", "start"])
    assert twin.kubelet is not None
    twin.kubelet.broken = {}
    before = twin.fingerprint(CGROUP, "run/corral", "var/lib/corral")
    outcome = runs.declare(twin.host(), kubelet=STATIC_MEMORY, memory=MORE_PAGES)
    assert "made to fail" in outcome.error
    assert node.different(before, twin.fingerprint(CGROUP, "run/corral", "var/lib/corral")) == []


def test_hugepages_that_the_kernel_does_not_give_restart_a_kubelet_once(fake: node.Node, kubelet: FakeKubelet) -> None:
    """Each rollout drained the node, set the state aside and restarted the kubelet for pages that did not come."""
    memory = {"hugepages": [{"size": "2Mi", "count": 200, "node": "each"}]}
    rolled_out(fake, **STATIC_MEMORY)
    fitting_memory_state(fake, kubelet)
    kubelet.acts.clear()
    fake.room.update({(0, 2048): 60, (1, 2048): 60})
    for dummy in range(3):
        outcome = runs.declare(fake.host(), kubelet=STATIC_MEMORY, memory=memory)
        assert [change.actual for change in outcome.remaining] == ["60", "60"]
        assert kubelet.acts == ["stop", "start"]
        fitting_memory_state(fake, kubelet)  # as the kubelet writes it when it starts
        fake.wait(3600)


def test_hugepages_that_the_kernel_would_give_later_wait_for_a_kubelet_that_counts_them(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    """A tick asked for them again after ten minutes, and the running kubelet would not have started again with its state."""
    memory = {"hugepages": [{"size": "2Mi", "count": 200, "node": "each"}]}
    fake.room.update({(0, 2048): 60, (1, 2048): 60})
    runs.declare(fake.host(), kubelet=STATIC_MEMORY, memory=memory)
    fitting_memory_state(fake, kubelet)
    kubelet.acts.clear()
    fake.room.clear()
    for look in (runs.tick, lambda host: runs.declare(host, kubelet=STATIC_MEMORY, memory=memory)):
        fake.wait(3600)
        look(fake.host())
        assert (fake.pool(0), fake.pool(1), kubelet.acts) == (60, 60, [])
    (item, dummy) = runs.plan(fake.host())
    assert item.reason == (
        "the kernel gave 60 of 200; memory is fragmented or in use: free it, or declare fewer; the kubelet counts hugepages when it "
        "starts: stop it for a run that asks for them again, or reboot"
    )
    kubelet.stop(fake)
    assert runs.declare(fake.host(), kubelet=STATIC_MEMORY, memory=memory).remaining == ()
    assert (fake.pool(0), fake.has(f"{ROOT}/memory_manager_state")) == (200, False)


LEFT = f"the kubelet would not start with {ROOT}/memory_manager_state once it has: a tick leaves this to a rollout, or corral reconcile"


@pytest.mark.parametrize("runs_on", [True, False], ids=["runs", "starts"])
@pytest.mark.parametrize("count", [100, None], ids=["others", "before"])
def test_a_tick_leaves_hugepages_that_a_kubelet_has_counted_to_a_run(
    count: t.Optional[int], runs_on: bool, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """The power went within a rollout. The first tick of the boot took up what was declared, beside a kubelet that was starting."""
    sections: dict[str, t.Any] = {
        "kubelet": STATIC_MEMORY,
        "memory": {"hugepages": [{"size": "2Mi", "count": count, "node": "each"}]} if count else {},
    }
    before = (fake.pool(0), fake.pool(1))
    runs.declare(
        fake.host(), kubelet=STATIC_MEMORY, memory={"hugepages": [{"size": "2Mi", "count": 200, "node": "each"}]}
    )
    fitting_memory_state(fake, kubelet)
    fake.put(state.DECLARED, json.dumps(profile.to_data(node.parsed(**sections))))
    kubelet.acts.clear()
    if not runs_on:
        kubelet.stop(fake)
    for dummy in range(2):
        runs.tick(fake.host())
        fake.wait(3600)
        assert (fake.pool(0), fake.pool(1)) == (200, 200)
    reasons = [one["reason"] for one in items(fake) if "hugepages" in one["location"]]
    assert len(reasons) == 2
    assert all(LEFT in reason for reason in reasons), reasons
    fake.put("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "150")
    assert runs.declare(fake.host(), **sections).error == ""
    assert (fake.pool(0), fake.pool(1)) == ((count, count) if count else before)


def test_a_tick_mends_hugepages_as_a_kubelet_has_counted_them(fake: node.Node, kubelet: FakeKubelet) -> None:
    for at, pages in enumerate(({"count": 400}, {"count": 200, "node": "each"})):
        runs.declare(fake.host(), kubelet=STATIC_MEMORY, memory={"hugepages": [{"size": "2Mi", **pages}]})
        fitting_memory_state(fake, kubelet)
        fake.put("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "150")
        fake.put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "350")
        fake.wait(3600)
        runs.tick(fake.host())
        assert (fake.pool(0), fake.pool(1)) == (200, 200), at
        assert not [one for one in items(fake) if "hugepages" in one["location"]]


def test_a_tick_changes_hugepages_where_the_kubelet_of_a_state_file_is_gone(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    static = {**STATIC_MEMORY, "optional": True}
    runs.declare(fake.host(), kubelet=static)
    fitting_memory_state(fake, kubelet)
    kubelet.stop(fake)
    fake.drop(UNIT_FILE)
    pages = {"hugepages": [{"size": "2Mi", "count": 100, "node": "each"}]}
    fake.put(state.DECLARED, json.dumps(profile.to_data(node.parsed(kubelet=static, memory=pages))))
    runs.tick(fake.host())
    assert (fake.pool(0), fake.pool(1)) == (100, 100)


CPU = {"reserved": {"cpus": "0,2,4,6"}, "isolated": {"cpus": "3,7"}}
MORE_CPUS = {**CPU, "reserved": {"cpus": "0-2,4,6"}}
HEAD = yaml.safe_dump(fake_kubelet.HEAD)
KEPT_CPUS, WANTED_CPUS = "0,2,4,6", "0-2,4,6"  # of system services, beside a kubelet that leaves CPU 1 to pods


def declared_by_hand(fake: node.Node, **sections: t.Any) -> None:
    """A profile that the next tick finds, as an editor leaves it."""
    fake.put(state.DECLARED, json.dumps(profile.to_data(node.parsed(**sections))))


def cpus_of(fake: node.Node, *units: str) -> tuple[str, ...]:
    return tuple(fake.get(f"/sys/fs/cgroup/{unit}/cpuset.cpus").strip() for unit in units)


def items(fake: node.Node) -> list[dict[str, t.Any]]:
    found: list[dict[str, t.Any]] = json.loads(fake.get(state.STATUS))["items"]
    return found


def looks(fake: node.Node, kinds: str, sections: dict[str, t.Any], *cpus: str) -> None:
    """Ticks and runs of a profile, after each of which system services, and the isolated slice, have these CPUs."""
    for kind in kinds.split():
        if kind == "run":
            runs.declare(fake.host(), **sections)
        else:
            assert runs.tick(fake.host()) == (2 if items(fake) else 0)
        assert cpus_of(fake, *("system.slice", "corral_isolated.slice")[: len(cpus)]) == cpus


def is_told(fake: node.Node) -> dict[str, t.Any]:
    """The item of a kubelet that reserves others than the profile does, which says what system services have."""
    (item,) = items(fake)
    assert item["reason"].endswith(f"; system services have CPUs {KEPT_CPUS} meanwhile")
    return item


def is_a_kubelet_to_restart(fake: node.Node, way: str = "") -> dict[str, t.Any]:
    item = is_told(fake)
    assert (item["subject"], item["property"]) == ("kubelet.service", "files")
    assert way in item["reason"]
    return item


def is_mended(fake: node.Node) -> None:
    runs.tick(fake.host())
    assert cpus_of(fake, "system.slice") == (WANTED_CPUS,)
    assert runs.tick(fake.host()) == 0


PAST_STATE = f"systemctl stop kubelet.service, rm {STATE}, systemctl start kubelet.service"


@pytest.mark.parametrize(
    ("reserved", "isolated", "meanwhile"),
    [
        pytest.param("0-2,4,6", "3,7", ("0,2,4,6", "3,7"), id="more"),
        pytest.param("0,2", "3,7", ("0,2", "3,7"), id="fewer"),
        pytest.param("1,5", "3,7", ("0,2,4,6", "3,7"), id="others"),
        pytest.param("0,2,4,6", "1,3,7", ("0,2,4,6", "3,7"), id="more isolated"),
        pytest.param("1", "0,2-4,6-7", ("0,2-4,6-7", None), id="others, and all of them isolated"),
    ],
)
def test_a_tick_reserves_no_cpu_that_the_kubelet_may_give_to_a_pod(
    reserved: str,
    isolated: str,
    meanwhile: tuple[str, t.Optional[str]],
    fake: node.Node,
    kubelet: FakeKubelet,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A profile declared by hand: the tick moved system.slice onto CPUs that pods had exclusively, for as long as no run came."""
    assert runs.declare(fake.host(), cpu=CPU, kubelet=STATIC).remaining == ()
    assert kubelet.config["reservedSystemCPUs"] == "0,2-4,6-7"
    cpu = {"reserved": {"cpus": reserved}, "isolated": {"cpus": isolated}}
    declared_by_hand(fake, cpu=cpu, kubelet=STATIC)
    for dummy in range(2):
        runs.tick(fake.host())
        assert cpus_of(fake, "system.slice") == meanwhile[:1]
        if meanwhile[1]:
            assert cpus_of(fake, "corral_isolated.slice") == meanwhile[1:]
        (found,) = [one for one in items(fake) if one["manager"] in ("cpu", "kubelet")]
        assert found["subject"] == "reservedSystemCPUs"
        assert f"system services have CPUs {meanwhile[0]} meanwhile" in found["reason"]
        assert json.loads(fake.get("/run/corral/pools.json"))["reserved"] == meanwhile[0]
        assert runs.command(fake.host(), "drift", "--json") == 2
        shown = json.loads(capsys.readouterr().out)["changes"]
        assert [one["reason"] for one in shown if one["manager"] in ("cpu", "kubelet")] == [found["reason"]]
    assert runs.declare(fake.host(), cpu=cpu, kubelet=STATIC).remaining == ()
    assert cpus_of(fake, "system.slice", "corral_isolated.slice") == (reserved, isolated)
    assert cpuset.parse(kubelet.config["reservedSystemCPUs"]) == cpuset.parse(reserved) | cpuset.parse(isolated)


@pytest.mark.parametrize(
    "left_out", [{"kubelet": None, "cpu": CPU}, {"kubelet": STATIC, "cpu": None}], ids=["no kubelet", "no cpu"]
)
def test_a_profile_that_leaves_the_kubelet_or_the_cpus_to_others_has_its_own_pools(
    left_out: dict[str, t.Any], fake: node.Node
) -> None:
    """A tick as well: the pools keep to the kubelet's reserve only where the profile declares both."""
    fake_kubelet.install(fake, base=BASE + 'reservedSystemCPUs: "1"\n')
    declared = node.parsed(**left_out)
    context = planning.compile_profile(fake.host(), declared, "tick")
    assert context.declared_pools is None
    assert context.pools == planning.compile_profile(fake.host(), declared).pools


def test_the_plan_of_another_reserve_has_the_moves_of_a_rollout(
    fake: node.Node, kubelet: FakeKubelet, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.declare(fake.host(), cpu=CPU, kubelet=STATIC)
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(node.edge(cpu=MORE_CPUS, kubelet=STATIC)))
    assert runs.command(fake.host(), "plan", "--profile", str(file), "--json") == 2
    found = json.loads(capsys.readouterr().out)["changes"]
    moved = [one["wanted"] for one in found if (one["subject"], one["property"]) == ("system.slice", "AllowedCPUs")]
    assert moved == ["0-2,4,6"]
    assert "meanwhile" not in next(one["reason"] for one in found if one["subject"] == "reservedSystemCPUs")


def test_a_tick_takes_cpus_back_that_a_killed_run_reserved_before_the_kubelet_did(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    runs.declare(fake.host(), cpu=CPU, kubelet=STATIC)
    declared_by_hand(fake, cpu=MORE_CPUS, kubelet=STATIC)
    fake.host().run("systemctl", "set-property", "--runtime", "system.slice", "AllowedCPUs=0-2,4,6")
    assert cpus_of(fake, "system.slice") == ("0-2,4,6",)
    runs.tick(fake.host())
    assert cpus_of(fake, "system.slice") == ("0,2,4,6",)


def test_a_boot_reserves_no_cpu_of_pods_that_the_kubelet_keeps(fake: node.Node, kubelet: FakeKubelet) -> None:
    """Containers run where corral-boot.service is started again by hand, or which a soft reboot left."""
    runs.declare(fake.host(), cpu=CPU, kubelet=STATIC)
    fill_with_pod(fake, kubelet)
    declared_by_hand(fake, cpu={**CPU, "reserved": {"cpus": "0,2,4,5,6"}}, kubelet=STATIC)
    runs.tick(fake.host())
    kubelet.stop(fake)
    runs.tick(fake.host(), at_boot=True)
    assert cpus_of(fake, "system.slice") == ("0,2,4,6",)
    kubelet.start(fake)
    assert kubelet.config["reservedSystemCPUs"] == "0,2-4,6-7"


def test_a_run_reserves_no_cpu_that_a_flag_of_the_kubelet_leaves_to_pods(
    fake: node.Node, kubelet: FakeKubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_unit(fake, "--config-dir", "--reserved-cpus=0,2,4,6,3,7 --config-dir")
    kubelet.restart(fake)
    sections: dict[str, t.Any] = {"cpu": MORE_CPUS, "kubelet": STATIC}
    for dummy in range(2):
        (left,) = runs.declare(fake.host(), **sections).remaining
        assert "the flag --reserved-cpus in" in left.reason
        assert cpus_of(fake, "system.slice", "corral_isolated.slice") == ("0,2,4,6", "3,7")
        host = fake.host()
        runs.tick(host)
        assert [act for act in host.acts if "set-property" in act] == []
        assert cpus_of(fake, "system.slice", "corral_isolated.slice") == ("0,2,4,6", "3,7")
    capsys.readouterr()
    assert runs.command(fake.host(), "pools", "--json") == 0
    published = json.loads(fake.get("/run/corral/pools.json"))
    assert json.loads(capsys.readouterr().out) == published, "what programs read is what people see"
    context = status_text.context_in_force(fake.host())
    assert context is not None
    assert cpuset.format(context.pools.reserved) == published["reserved"] == "0,2,4,6"
    kubelet.stop(fake)
    edit_unit(fake, "--reserved-cpus=0,2,4,6,3,7 ", "")
    assert runs.declare(fake.host(), **sections).remaining == ()
    assert cpus_of(fake, "system.slice") == ("0-2,4,6",)


def others_dropin(fake: node.Node, text: str) -> str:
    """A drop-in of others that is newer than the running kubelet."""
    path = f"{DROPINS}/50-others.conf"
    fake.put(path, HEAD + text)
    fake.changes[path] = time.time() + 60
    return path


def removed(fake: node.Node, path: str) -> None:
    """The file goes, which changes its folder while the kubelet runs."""
    fake.drop(path)
    fake.changes[DROPINS] = time.time() + 60


def restored(fake: node.Node, path: str) -> None:
    """As cp -p does: the time is that of the copy."""
    before = os.stat(fake.root / path[1:])
    fake.put(path, HEAD)
    os.utime(fake.root / path[1:], (before.st_mtime - 1000,) * 2)


@pytest.mark.parametrize(("changes", "has_state"), [(removed, True), (removed, False), (restored, True)])
def test_what_no_file_tells_of_the_running_kubelet_reserves_no_cpu_of_pods(
    changes: t.Callable[[node.Node, str], None], has_state: bool, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """A drop-in of others was deleted, as its item says: system services got CPUs of pods, and nothing said that a restart is due."""
    others = f"{DROPINS}/50-others.conf"
    fake.put(others, f"{HEAD}reservedSystemCPUs: 0,2-4,6-7\n")
    sections: dict[str, t.Any] = {"cpu": MORE_CPUS, "kubelet": STATIC}
    runs.declare(fake.host(), **sections)
    assert kubelet.config["reservedSystemCPUs"] == "0,2-4,6-7"
    assert runs.tick(fake.host()) == 2
    if not has_state:
        fake.drop(STATE)
    changes(fake, others)
    for dummy in range(2):
        looks(fake, "tick", sections, KEPT_CPUS)
        is_a_kubelet_to_restart(fake, f"drain the node, then {PAST_STATE}" if has_state else "systemctl restart kubelet.service")  # fmt: skip
        looks(fake, "run", sections, KEPT_CPUS)
    kubelet.stop(fake)
    if has_state:
        fake.drop(STATE)
    fake.changes.clear()  # A minute later.
    kubelet.start(fake)
    is_mended(fake)


@pytest.mark.parametrize("text", [None, '{"res'])
def test_what_was_published_is_known_by_the_slices_where_it_is_lost(
    text: str | None, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """With a file that the running kubelet has not read, and without the pools of before, its pods lost a CPU to system services."""
    shares = {**STATIC, "cpu_manager_policy_options": {"strict-cpu-reservation": False}}
    runs.declare(fake.host(), cpu={"reserved": {"cpus": KEPT_CPUS}}, kubelet=shares)
    others_dropin(fake, f"reservedSystemCPUs: {WANTED_CPUS}\n")
    declared_by_hand(fake, cpu={"reserved": {"cpus": WANTED_CPUS}}, kubelet=shares)
    fake.drop("/run/corral/pools.json") if text is None else fake.put("/run/corral/pools.json", text)
    looks(fake, "tick tick", {}, KEPT_CPUS)
    assert kubelet.config["reservedSystemCPUs"] == KEPT_CPUS


def test_a_reserve_that_pods_have_as_a_whole_gives_system_services_nothing_of_it(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    """A file came with an earlier time, and reserves only CPUs that the running kubelet has for pods."""
    runs.declare(fake.host(), cpu={"reserved": {"cpus": KEPT_CPUS}}, kubelet=STATIC)
    others = others_dropin(fake, "reservedSystemCPUs: 1,5\n")
    for path in (others, DROPINS):
        os.utime(fake.root / path[1:], (0, 0))
    declared_by_hand(fake, cpu={"reserved": {"cpus": "1,5"}}, kubelet=STATIC)
    looks(fake, "tick tick", {}, KEPT_CPUS)
    assert kubelet.config["reservedSystemCPUs"] == KEPT_CPUS


@pytest.mark.parametrize("text", ["", "{", '{"policyName": "none", "defaultCpuSet": "", "checksum": 0}'])
def test_a_state_that_does_not_say_what_pods_have_leaves_the_pools_as_they_were_published(
    text: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """A file came with an earlier time, so that no file tells what the running kubelet reserves."""
    runs.declare(fake.host(), cpu={"reserved": {"cpus": KEPT_CPUS}}, kubelet=STATIC)
    others = others_dropin(fake, f"reservedSystemCPUs: {WANTED_CPUS}\n")
    for path in (others, DROPINS):
        os.utime(fake.root / path[1:], (0, 0))
    fake.changes.clear()
    fake.put(STATE, text)
    declared_by_hand(fake, cpu={"reserved": {"cpus": WANTED_CPUS}}, kubelet=STATIC)
    looks(fake, "tick tick", {}, KEPT_CPUS)
    assert f"{STATE} does not say which CPUs it gives to pods" in [one["actual"] for one in items(fake)]


@pytest.mark.parametrize("mends", ["by hand", "run", "boot"])
def test_a_kubelet_that_does_not_start_with_its_state_bounds_the_pools_and_says_so(
    mends: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """It was restarted without its state set aside: the pools kept to less than declared, and the node was in sync."""
    others = f"{DROPINS}/50-others.conf"
    fake.put(others, f"{HEAD}reservedSystemCPUs: 0,2-4,6-7\n")
    sections: dict[str, t.Any] = {"cpu": MORE_CPUS, "kubelet": STATIC}
    runs.declare(fake.host(), **sections)
    fake.drop(others)
    kubelet.restart(fake)
    assert not kubelet.pid
    for dummy in range(2):
        looks(fake, "tick", sections, KEPT_CPUS)
        item = is_a_kubelet_to_restart(fake, f"then {PAST_STATE}")
        assert (item["actual"], item["wanted"]) == (f"{STATE} has CPUs 1 for pods", "reserved")
    if mends == "by hand":
        fake.drop(STATE)
    elif mends == "run":
        assert runs.declare(fake.host(), **sections).remaining == (), "the state is aside, so nothing bounds the pools"
        assert cpus_of(fake, "system.slice") == (WANTED_CPUS,)
    else:
        runs.tick(fake.host(), at_boot=True)
    kubelet.start(fake)
    assert kubelet.pid
    is_mended(fake)


def static_by_others(fake: node.Node, kubelet: FakeKubelet) -> str:
    """A drop-in of others has the policy static, without strict-cpu-reservation, and reserves what system services have."""
    others = f"{DROPINS}/50-others.conf"
    fake.put(others, f"{HEAD}reservedSystemCPUs: {KEPT_CPUS}\ncpuManagerPolicy: static\n")
    kubelet.stop(fake)
    fake.drop(STATE)
    kubelet.start(fake)
    return others


def give_cpu_1_to_a_pod(fake: node.Node) -> None:
    rows = {"policyName": "static", "defaultCpuSet": "0,2-7", "entries": {"uid": {"main": "1"}}, "checksum": 0}
    fake.put(STATE, json.dumps(rows))


@pytest.mark.parametrize("policy", ["static", "none"])
def test_a_reserve_has_no_cpu_of_a_pod_alone_without_strict_reservation_either(
    policy: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """A drop-in of others went, as its item says, and the kubelet does not start any more: system services got a pod's own CPU."""
    others = static_by_others(fake, kubelet)
    section = {"cpu_manager_policy": policy, "max_pods": 50}
    runs.declare(fake.host(), cpu={"reserved": {"cpus": WANTED_CPUS}}, kubelet=section)
    assert kubelet.config["reservedSystemCPUs"] == KEPT_CPUS
    give_cpu_1_to_a_pod(fake)
    fake.drop(others)
    fake.changes[DROPINS] = 0.0
    for runs_now in (True, False):
        for dummy in range(2):
            looks(fake, "tick", {}, KEPT_CPUS)
            assert f"then {PAST_STATE}" in is_told(fake)["reason"]
        kubelet.restart(fake)
        assert not kubelet.pid, runs_now
    fake.drop(STATE)
    kubelet.start(fake)
    is_mended(fake)
    assert kubelet.pid


@pytest.mark.parametrize("files", ["none", "static"])
def test_a_kubelet_that_reserves_none_by_its_files_leaves_pods_their_cpus(
    files: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """The file that reserved CPUs went, and Corral had written none of its own: it would have changed nothing."""
    others = static_by_others(fake, kubelet)
    runs.declare(fake.host(), cpu={"reserved": {"cpus": WANTED_CPUS}}, kubelet={"cpu_manager_policy": "static"})
    assert (kubelet.config["reservedSystemCPUs"], fake.has(DROPIN)) == (KEPT_CPUS, False)
    give_cpu_1_to_a_pod(fake)
    fake.put(others, f"{HEAD}cpuManagerPolicy: {files}\n")
    fake.changes.update({others: 0.0, DROPINS: 0.0})
    for dummy in range(2):
        looks(fake, "tick", {}, KEPT_CPUS)
        (reason,) = [one["reason"] for one in items(fake) if one["subject"] == "reservedSystemCPUs"]
        assert reason.endswith(f"; system services have CPUs {KEPT_CPUS} meanwhile")


def followed(fake: node.Node, kubelet: FakeKubelet, said: str) -> None:
    """Do what a message says, word for word."""
    for path in re.findall(r"touch (\S+) \(its time", said):
        del fake.changes[path]
    for act, target in re.findall(
        r"\b(systemctl restart|systemctl stop|systemctl start|rm) (\S+?)(?=,|;|$)", said, re.MULTILINE
    ):
        if act == "rm":
            fake.drop(target)
        else:
            {"restart": kubelet.restart, "stop": kubelet.stop, "start": kubelet.start}[act.split()[1]](fake)


@pytest.mark.parametrize("reserved", ["0,2-3,6-7", "0-4,6-7", "0,2-4,6-7"], ids=["fewer", "more", "the same"])
def test_the_way_to_have_files_read_ends_with_a_kubelet_that_runs(
    reserved: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """With strict-cpu-reservation it does not start with a state file of another reserve, which the message left where it was."""
    runs.declare(fake.host(), cpu=CPU, kubelet=STATIC)
    others_dropin(fake, f'reservedSystemCPUs: "{reserved}"\n')
    (item,) = [one for one in planned(fake, **STATIC) if one.property == "files"]
    followed(fake, kubelet, item.reason)
    assert kubelet.pid
    assert ("drain the node" in item.reason) == (reserved != "0,2-4,6-7")
    assert kubelet.config["reservedSystemCPUs"] == reserved
    assert [one for one in planned(fake, **STATIC) if one.property == "files"] == []


def test_the_way_to_have_files_read_begins_with_a_unit_that_starts(fake: node.Node, kubelet: FakeKubelet) -> None:
    """A masked kubelet was to be stopped for that, and could not be started again."""
    runs.declare(fake.host(), cpu=CPU, kubelet=STATIC)
    masked(fake)
    others_dropin(fake, 'reservedSystemCPUs: "0-4,6-7"\n')
    (item,) = [one for one in planned(fake, **STATIC) if one.property == "files"]
    unmask, dummy, way = item.reason.partition("; then ")
    assert unmask.endswith(": systemctl unmask kubelet.service")
    assert "systemctl stop kubelet.service, rm" in way


def test_the_way_to_a_grant_ends_with_a_kubelet_that_runs(fake: node.Node) -> None:
    """The refusal told to restart a kubelet that does not start with its state file."""
    strict = 'cpuManagerPolicy: static\ncpuManagerPolicyOptions: {strict-cpu-reservation: "true"}\n'
    kubelet = fake_kubelet.install(fake, base=f'{BASE}reservedSystemCPUs: "0,4"\n{strict}')
    own = {"name": "own", "match": {"unit": "own.service"}, "hold": "declared", "limits": {"cpu": 2, "memory": "64Mi"}}
    services.add(fake, "own.service")
    cpu = {"reserved": {"cpus": "0,4"}, "policy": "static", "shared": {"min_cpus": 1}}
    fake.put(CONFIG, fake.get(CONFIG).replace('"0,4"', '"0,2,4,6"'))
    fake.changes[CONFIG] = time.time() + 60
    with pytest.raises(
        CorralError, match=r"was changed after the running kubelet began: touch .*, then drain the node"
    ) as error:
        runs.declare(fake.host(), cpu=cpu, workloads=[own])
    followed(fake, kubelet, str(error.value))
    assert kubelet.pid
    assert runs.declare(fake.host(), cpu=cpu, workloads=[own]).remaining == ()
    assert cpus_of(fake, "corral_own.slice") == ("2,6",)


OBSTACLES: dict[str, t.Callable[[node.Node, FakeKubelet], object]] = {
    "torn": lambda fake, dummy: others_dropin(fake, "maxPods: ["),
    "masked": lambda fake, dummy: masked(fake),
    "too old": lambda dummy, kubelet: setattr(kubelet, "version", "v1.27.1"),
    "version not known": lambda dummy, kubelet: setattr(kubelet, "version", "?"),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_run_reserves_no_cpu_of_pods_where_something_stands_against_changing_the_kubelet(
    obstacle: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """A tick had applied the profile as far as it can, so that a run reported what stood against the rest, and took the CPUs."""
    runs.declare(fake.host(), cpu=CPU, kubelet=STATIC)
    sections: dict[str, t.Any] = {"cpu": MORE_CPUS, "kubelet": STATIC}
    declared_by_hand(fake, **sections)
    runs.tick(fake.host())
    OBSTACLES[obstacle](fake, kubelet)
    for look in ("tick", "run", "tick"):
        looks(fake, look, sections, KEPT_CPUS)
        assert json.loads(fake.get("/run/corral/pools.json"))["reserved"] == KEPT_CPUS
    assert kubelet.config["reservedSystemCPUs"] == "0,2-4,6-7"
    (left,) = ours(runs.declare(fake.host(), **sections).remaining)
    assert left.reason.endswith(f"; system services have CPUs {KEPT_CPUS} meanwhile")


def test_a_configuration_that_cannot_be_read_gives_no_cpu_of_pods_away(fake: node.Node) -> None:
    """The flag that wins left CPU 1 to pods, and a torn file of others let a tick reserve it."""
    kubelet = fake_kubelet.install(fake, flags="--reserved-cpus=0,2,4,6,3,7")
    sections: dict[str, t.Any] = {"cpu": MORE_CPUS, "kubelet": STATIC}
    runs.declare(fake.host(), **sections)
    path = others_dropin(fake, "maxPods: [")
    looks(fake, "tick run tick", sections, KEPT_CPUS, "3,7")
    fake.drop(path)
    kubelet.restart(fake)
    looks(fake, "tick", sections, KEPT_CPUS, "3,7")


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_file_that_the_running_kubelet_has_not_read_gives_no_cpu_of_pods_away(
    by_hand: bool, fake: node.Node, kubelet: FakeKubelet
) -> None:
    runs.declare(fake.host(), cpu=CPU, kubelet=STATIC)
    sections: dict[str, t.Any] = {"cpu": MORE_CPUS, "kubelet": STATIC}
    if by_hand:
        declared_by_hand(fake, **sections)
        runs.tick(fake.host())
    path = others_dropin(fake, 'reservedSystemCPUs: "0-4,6-7"\n')
    for look in ("run", "tick"):
        looks(fake, look, sections, KEPT_CPUS)
        is_a_kubelet_to_restart(fake)
    assert kubelet.config["reservedSystemCPUs"] == "0,2-4,6-7"
    fake.drop(STATE)
    kubelet.restart(fake)
    del fake.changes[path]
    is_mended(fake)


def test_a_section_that_is_left_out_gives_no_cpu_of_pods_away_before_the_kubelet_restarts(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    """A tick that found the profile, or one after a power cut in the run, reserved CPUs while the kubelet had its keys as before."""
    runs.declare(fake.host(), cpu=CPU, kubelet=STATIC)
    fill_with_pod(fake, kubelet)
    declared_by_hand(fake, cpu=MORE_CPUS)
    runs.tick(fake.host())
    # Pods would lose their CPUs by the restart: once a tick has applied the profile, a run says so instead of being refused.
    for look in ("tick", "run", "tick"):
        looks(fake, look, {"cpu": MORE_CPUS}, KEPT_CPUS)
        is_told(fake)
    assert (kubelet.acts, kubelet.config["reservedSystemCPUs"]) == ([], "0,2-4,6-7")
    shutil.rmtree(fake.root / "sys/fs/cgroup/kubepods.slice")
    assert runs.declare(fake.host(), cpu=MORE_CPUS).remaining == ()
    assert cpus_of(fake, "system.slice") == (WANTED_CPUS,)
    assert kubelet.config.get("reservedSystemCPUs") is None


@pytest.mark.parametrize(
    ("kept", "pods"), [("2,4,6", "0"), ("0,2,6", "4"), ("0,6", "2,4"), ("", "0"), ("", "0,4"), ("", "0,2,4,6")]
)
def test_a_rollout_bounds_the_pools_as_a_tick_does_beside_grants(
    kept: str, pods: str, fake: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"name": "own", "match": {"unit": "own.service"}, "hold": "running", "limits": {"cpu": 2, "memory": "64Mi"}}
    strict = 'cpuManagerPolicy: static\ncpuManagerPolicyOptions: {strict-cpu-reservation: "true"}\n'
    fake_kubelet.install(fake, base=f'{BASE}reservedSystemCPUs: "0,2-4,6"\n{strict}')
    services.add(fake, "own.service")
    runs.install(fake.host())
    reserved = {"reserved": {"cpus": "0,4"}}
    runs.declare(fake.host(), cpu={**reserved, "policy": "static", "shared": {"min_cpus": 1}}, workloads=[own])
    assert services.start(fake, "own.service")
    assert not runs.declare(fake.host(), cpu=reserved, kubelet=STATIC, workloads=[own]).error
    declared, host = node.parsed(cpu=reserved, kubelet=STATIC, workloads=[own]), fake.host()
    context = planning.compile_profile(host, declared)
    assert context.pools.exclusive == cpuset.parse("2,6")
    found = kubelet_cpus.Bound(cpuset.parse(kept), cpuset.parse(pods), is_strict=True)
    monkeypatch.setattr(kubelet_cpus, "bound", lambda dummy: found)
    bounded = planning.beside_kubelet(host, context)
    bounded = bounded if bounded is context else planning.with_grants(host, bounded)
    assert bounded.pools == planning.compile_profile(host, declared, "tick").pools


@pytest.mark.parametrize("hold", ["declared", "running"])
def test_the_kubelet_gives_no_pod_the_cpus_that_a_workload_keeps_until_it_stops(hold: str, fake: node.Node) -> None:
    """The profile that brings the section has no policy for grants any more; the kubelet got the CPUs of one that ran on."""
    own = {"name": "own", "match": {"unit": "own.service"}, "hold": hold, "limits": {"cpu": 2, "memory": "64Mi"}}
    strict = 'cpuManagerPolicy: static\ncpuManagerPolicyOptions: {strict-cpu-reservation: "true"}\n'
    kubelet = fake_kubelet.install(fake, base=f'{BASE}reservedSystemCPUs: "0,2-4,6"\n{strict}')
    services.add(fake, "own.service")
    runs.install(fake.host())
    reserved = {"reserved": {"cpus": "0,4"}}
    cpu = {**reserved, "policy": "static", "shared": {"min_cpus": 1}}
    assert runs.declare(fake.host(), cpu=cpu, workloads=[own]).remaining == ()
    assert services.start(fake, "own.service")
    assert cpus_of(fake, "corral_own.slice") == ("2,6",)
    assert runs.declare(fake.host(), cpu=reserved, kubelet=STATIC, workloads=[own]).remaining == ()
    assert kubelet.config["reservedSystemCPUs"] == "0,2,4,6"
    for dummy in range(2):
        assert runs.declare(fake.host(), cpu=reserved, kubelet=STATIC, workloads=[own]).applied == ()
        fake.wait(10)
        assert runs.tick(fake.host()) == 0
    services.stop(fake, "own.service")
    runs.tick(fake.host())
    (item,) = items(fake)
    assert (item["subject"], item["actual"], item["wanted"]) == ("reservedSystemCPUs", "0,2,4,6", "0,4")
    assert runs.declare(fake.host(), cpu=reserved, kubelet=STATIC, workloads=[own]).remaining == ()
    assert kubelet.config["reservedSystemCPUs"] == "0,4"


def test_the_files_of_a_kubelet_that_is_gone_bound_nothing(fake: node.Node, kubelet: FakeKubelet) -> None:
    """A package that is removed leaves /var/lib/kubelet; k3s, which leaves the section out, may run there by then."""
    fake.put(CONFIG, fake.get(CONFIG) + 'reservedSystemCPUs: "0"\n')
    kubelet.stop(fake)
    unit_removed(fake)
    put_process(fake, "k3s-server")
    looks(fake, "run tick", {"cpu": MORE_CPUS, "kubelet": {**STATIC, "optional": True}}, WANTED_CPUS, "3,7")


def test_a_start_of_a_workload_reserves_no_cpu_that_the_kubelet_may_give_to_a_pod(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    workload = {"name": "batch", "match": {"unit": "batch.service"}, "hold": "running", "limits": {"cpu": "500m"}}
    assert not runs.declare(fake.host(), cpu=CPU, kubelet=STATIC, workloads=[workload]).error
    declared_by_hand(fake, cpu=MORE_CPUS, kubelet=STATIC, workloads=[workload])
    admit_workload.start(fake.host(), "batch", "a-run")
    assert cpus_of(fake, "system.slice") == ("0,2,4,6",)
    runs.tick(fake.host())
    assert cpus_of(fake, "system.slice") == ("0,2,4,6",)


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_start_is_not_refused_for_what_stands_against_changing_the_kubelet(
    obstacle: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """In mode audit, or on a paused node, no tick applies the profile: starts were refused for as long."""
    workload = {"name": "batch", "match": {"unit": "batch.service"}, "hold": "running", "limits": {"cpu": "500m"}}
    runs.declare(fake.host(), cpu=CPU, kubelet=STATIC, workloads=[workload])
    declared_by_hand(fake, cpu=CPU, kubelet={**STATIC, "max_pods": 20}, workloads=[workload])
    OBSTACLES[obstacle](fake, kubelet)
    assert admit_workload.start(fake.host(), "batch", "a-run").grant is not None
    runs.command(fake.host(), "admit", "late", "--unit", "late.service", "--limits", "cpu=100m,memory=16Mi")
    assert kubelet.acts == ["stop", "start"], "those of the first run"
    with pytest.raises(CorralError):
        runs.declare(fake.host(), cpu=CPU, kubelet={**STATIC, "max_pods": 20}, workloads=[workload])


def test_hugepages_that_are_no_longer_declared_restart_a_kubelet_as_well(fake: node.Node, kubelet: FakeKubelet) -> None:
    assert runs.declare(fake.host(), kubelet=STATIC_MEMORY, memory=MORE_PAGES).remaining == ()
    fitting_memory_state(fake, kubelet)
    kubelet.acts.clear()
    for dummy in range(2):
        assert runs.declare(fake.host(), kubelet=STATIC_MEMORY, memory={}).remaining == ()
        assert kubelet.acts == ["stop", "start"]
        fitting_memory_state(fake, kubelet)


def configured_by_others(fake: node.Node, kubelet: FakeKubelet) -> None:
    """The file of others says by now what Corral's drop-in does, and the kubelet has read both."""
    fake.put(CONFIG, yaml.safe_dump({**yaml.safe_load(BASE), **yaml.safe_load(fake.get(DROPIN))}))
    kubelet.restart(fake)


@pytest.mark.parametrize("leave", [runs.remove, lambda host: runs.declare(host, memory={})], ids=["removal", "section"])
def test_hugepages_that_go_back_restart_a_kubelet_whose_configuration_stays(
    leave: Leave, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """Others configure by now what the profile declared. The kubelet ran on, and would not have started at its next restart."""
    runs.declare(fake.host(), kubelet=STATIC_MEMORY, memory=MORE_PAGES)
    configured_by_others(fake, kubelet)
    fitting_memory_state(fake, kubelet)
    kubelet.acts.clear()
    host = fake.host()
    assert leave(host).error == ""
    assert kubelet.acts == ["stop", "start"]
    assert set_aside(fake, "memory") == ["memory_manager_state.corral-memory"]
    assert not fake.has(f"{ROOT}/memory_manager_state")
    pages = [at for at, act in enumerate(host.acts) if "nr_hugepages" in act]
    assert pages and max(pages) < host.acts.index("run systemctl start -- kubelet.service")


@LEAVE
def test_a_kubelet_runs_on_that_others_configure_as_the_profile_did(
    leave: Leave, fake: node.Node, kubelet: FakeKubelet
) -> None:
    rolled_out(fake, **PODS)
    configured_by_others(fake, kubelet)
    kubelet.acts.clear()
    assert leave(fake.host()).error == ""
    assert (kubelet.acts, fake.has(DROPIN), bool(kubelet.pid)) == ([], False, True)


@LEAVE
def test_a_stopped_kubelet_starts_with_hugepages_that_went_back(
    leave: Leave, fake: node.Node, kubelet: FakeKubelet
) -> None:
    runs.declare(fake.host(), kubelet=STATIC_MEMORY, memory=MORE_PAGES)
    configured_by_others(fake, kubelet)
    fitting_memory_state(fake, kubelet)
    kubelet.stop(fake)
    kubelet.acts.clear()
    outcome = runs.remove(fake.host()) if leave is runs.remove else runs.declare(fake.host(), memory={})
    assert (outcome.error, kubelet.acts) == ("", [])
    assert set_aside(fake, "memory") == ["memory_manager_state.corral-memory"]
    assert not fake.has(f"{ROOT}/memory_manager_state")


def test_a_file_of_this_name_that_was_there_before_comes_back_and_its_state_stays(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    before = yaml.safe_dump({**fake_kubelet.HEAD, "cpuManagerPolicy": "static", "reservedSystemCPUs": "0,2-4,6-7"})
    kubelet.stop(fake)
    fake.put(DROPIN, before)
    fake.drop(STATE)
    kubelet.start(fake)
    rolled_out(fake, **STATIC, max_pods=50)
    kubelet.stop(fake)
    fake.put(STATE, json.dumps({"policyName": "static", "defaultCpuSet": "0-7", "checksum": 0}))
    assert runs.remove(fake.host()).error == ""
    kubelet.start(fake)
    assert (fake.get(DROPIN), fake.has(STATE), bool(kubelet.pid)) == (before, True, True)
    assert json.loads(fake.get(STATE))["defaultCpuSet"] == "0-7"


@LEAVE
def test_hugepages_that_go_back_take_no_memory_from_pods_without_a_word_about_draining(
    leave: Leave, fake: node.Node, kubelet: FakeKubelet
) -> None:
    runs.declare(fake.host(), kubelet=STATIC_MEMORY, memory=MORE_PAGES)
    fake.put(CONFIG, yaml.safe_dump({**yaml.safe_load(BASE), **yaml.safe_load(fake.get(DROPIN))}))
    exclusive_pod(fake)
    fake.drop(STATE)
    kubelet.restart(fake)
    fitting_memory_state(fake, kubelet, 1 << 20)
    kubelet.acts.clear()
    before = fake.fingerprint()
    for take in (leave, lambda dummy: checked(fake, leave)):
        with pytest.raises(CorralError) as error:
            take(fake.host())
        (line,) = str(error.value).splitlines()
        assert line.startswith(f"kubelet.drain: the kubelet would not start with {ROOT}/memory_manager_state, which")
        assert "default/web" in line
    assert (kubelet.acts, node.different(before, fake.fingerprint())) == ([], [])
    rolled_out = runs.declare(fake.host(), kubelet={**STATIC_MEMORY, "drain": "none"}, memory=MORE_PAGES)
    assert (rolled_out.error, kubelet.acts) == ("", [])
    assert leave(fake.host()).error == ""
    assert kubelet.acts == ["stop", "start"]


def test_a_kubelet_of_others_that_hugepages_keep_from_starting_again_is_told(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    """The profile has no section for it, so nothing restarts it."""
    more = "memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]\n"
    fake.put(CONFIG, BASE + more)
    kubelet.restart(fake)
    fitting_memory_state(fake, kubelet)

    def notes(memory: dict[str, t.Any]) -> list[str]:
        return [note for note in notes_of(fake, memory=memory) if "start again" in note]

    assert notes({}) == []
    (note,) = notes(MORE_PAGES)
    assert note.startswith(
        f"the kubelet would not start again with {ROOT}/memory_manager_state once hugepages have changed: "
    )
    kubelet.stop(fake)
    assert notes(MORE_PAGES) == [note], "nor one that is stopped"
    unit = fake.get(UNIT_FILE)
    fake.drop(UNIT_FILE)
    assert notes(MORE_PAGES) == [], "of one that was removed its files are left"
    fake.put(UNIT_FILE, unit)
    kubelet.start(fake)
    assert runs.declare(fake.host(), memory=MORE_PAGES).error == ""
    assert notes(MORE_PAGES) == []
    fitting_memory_state(fake, kubelet)
    assert notes({}) == [note], "they go back"
    assert (kubelet.starts, kubelet.acts) == (3, [])
    fake.put(CONFIG, BASE)
    kubelet.restart(fake)
    fake.put(
        f"{ROOT}/memory_manager_state",
        json.dumps({"policyName": "None", "machineState": {}, "entries": {}, "checksum": 4236770233}),
    )
    assert notes({}) == []


def test_hugepages_that_a_state_file_does_not_fit_are_refused_where_the_kubelet_cannot_be_restarted(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    rolled_out(fake, **STATIC_MEMORY)
    fitting_memory_state(fake, kubelet)
    masked(fake)
    with pytest.raises(CorralError, match="once stopped, it could not be started again"):
        runs.declare(fake.host(), kubelet=STATIC_MEMORY, memory=MORE_PAGES)
    assert (kubelet.acts, bool(kubelet.pid)) == (["stop", "start"], True)


def test_a_kubelet_that_runs_on_and_could_not_start_again_or_has_not_counted_hugepages_is_told(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    rolled_out(fake, **STATIC)
    notes = notes_of(fake, kubelet=STATIC, memory=MORE_PAGES)
    counted = "the kubelet counts hugepages when it starts: systemctl restart kubelet.service once they are there"
    assert counted in notes
    assert not [note for note in notes if "would not start again" in note]
    fake.set_online(5)
    notes = notes_of(fake, kubelet=STATIC)
    (note,) = [note for note in notes if "would not start again" in note]
    assert note.startswith(f"the kubelet would not start again with {STATE}: current set of available CPUs")
    assert counted not in notes
    assert planned(fake, **STATIC) == [], "it does not end a kubelet that runs for what no run of Corral did"


def test_at_boot_a_state_of_other_cpus_goes_before_the_kubelet_starts(fake: node.Node, kubelet: FakeKubelet) -> None:
    rolled_out(fake, **STATIC)
    kubelet.stop(fake)
    fake.set_online(5)
    kubelet.start(fake)
    assert not kubelet.pid, "it would not start"
    runs.tick(fake.host(), at_boot=True)
    kubelet.start(fake)
    assert kubelet.pid
    assert [path.name for path in (fake.root / ROOT[1:]).glob("*.corral-cpus-*")]


SUBFOLDER = f"{DROPINS}/20-others"


@pytest.mark.parametrize(
    ("file", "newer", "named"),
    [
        pytest.param(CONFIG, [CONFIG], CONFIG, id="the file"),
        # The pools would take the CPUs that the kubelet, by what it read, gives to pods.
        pytest.param(None, [SUBFOLDER], SUBFOLDER, id="the folder of a drop-in that is gone"),
        pytest.param(f"{DROPINS}/50-others.conf", [f"{DROPINS}/50-others.conf", DROPINS], f"{DROPINS}/50-others.conf",
                     id="no folder beside a file in it"),
    ],
)  # fmt: skip
def test_files_that_are_newer_than_the_kubelet_are_named(
    file: str | None, newer: list[str], named: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    read = file or f"{SUBFOLDER}/50.conf"
    if read != CONFIG:
        fake.put(read, f"{HEAD}podsPerCore: 9\n")
        kubelet.restart(fake)
    rolled_out(fake, **PODS)
    assert planned(fake, **PODS) == []
    if file is None:
        fake.drop(read)
    fake.changes.update(dict.fromkeys(newer, time.time() + 60))
    (item,) = planned(fake, **PODS)
    assert (item.subject, item.property, item.verdict) == ("kubelet.service", "files", UNCHANGEABLE)
    assert item.actual == f"changed since: {named}"
    assert item.reason.endswith("systemctl restart kubelet.service")
    assert other_agents.configured_kubelet(fake.host()).newer == (named,)
    fake.changes.clear()
    kubelet.restart(fake)
    assert planned(fake, **PODS) == []


@pytest.mark.parametrize("dropins", [True, False])
def test_a_change_that_the_running_kubelet_need_not_read_is_a_unit_to_restart(dropins: bool, fake: node.Node) -> None:
    """The rollout counts what waits for a restart as no difference; of a host that differs it takes the change back."""
    kubelet = fake_kubelet.install(fake, dropins=dropins)
    rolled_out(fake, **PODS)
    stat = f"/proc/{kubelet.pid}/stat"
    began = fake.get(stat).split()[21]
    fake.put(stat, fake.get(stat).replace(f" {began} ", f" {int(began) - 6000} "))
    outcome = runs.declare(fake.host(), kubelet={**PODS, "pod_pids_limit": -1})
    assert not outcome.error
    assert kubelet.acts == ["stop", "start"], "that of the first rollout"
    (item,) = ours(outcome.remaining)
    assert (item.subject, item.when, item.disruption) == ("kubelet.service", "next start", "service restart")
    kubelet.restart(fake)
    assert planned(fake, **PODS, pod_pids_limit=-1) == []


def no_kubelet(fake: node.Node) -> None:
    pass


def old(fake: node.Node) -> None:
    fake_kubelet.install(fake, version="v1.27.9")


def of_1_30(fake: node.Node) -> None:
    fake_kubelet.install(fake, version="v1.30.2")


def torn(fake: node.Node) -> None:
    fake_kubelet.install(fake)
    fake.put(CONFIG, "kind: [")


def without_kind(fake: node.Node) -> None:
    fake_kubelet.install(fake)
    fake.put(CONFIG, BASE.replace("kind: KubeletConfiguration\n", ""))


def in_json(fake: node.Node) -> None:
    fake_kubelet.install(fake, dropins=False, base=json.dumps({**fake_kubelet.HEAD, "maxPods": 5}))


def put_process(fake: node.Node, name: str, **seen: t.Any) -> None:
    for path, text in processes.files(77, name, **seen).items():
        fake.put(path, text)


def by_hand(fake: node.Node) -> None:
    kubelet = fake_kubelet.install(fake)
    words = fake.get(f"/proc/{kubelet.pid}/cmdline")
    kubelet.stop(fake)
    put_process(fake, "kubelet")
    fake.put("/proc/77/cmdline", words)


def linked(fake: node.Node) -> None:
    fake_kubelet.install(fake, dropins=False)
    fake.put("/srv/config.yaml", BASE)
    fake.drop(CONFIG)
    (fake.root / CONFIG[1:]).symlink_to(fake.root / "srv/config.yaml")


def without_own_file(fake: node.Node) -> None:
    fake_kubelet.install(fake, dropins=False)
    unit = UNIT_FILE
    fake.put("/etc/app/settings.yaml", BASE)
    for path in (unit, f"/proc/{fake.kubelet.pid if fake.kubelet else 0}/cmdline"):
        fake.put(path, fake.get(path).replace(CONFIG, "/etc/app/settings.yaml"))


def not_configured_yet(fake: node.Node) -> None:
    kubelet = fake_kubelet.install(fake)
    kubelet.stop(fake)
    fake.drop(CONFIG)


def k3s(fake: node.Node) -> None:
    put_process(fake, "k3s-server")


REFUSED: list[tuple[t.Callable[[node.Node], None], dict[str, t.Any], str]] = [
    (no_kubelet, PODS, "kubelet: this node has no kubelet: there is no kubelet.service and no /var/lib/kubelet/config.yaml, install it first"),
    (not_configured_yet, PODS, f"kubelet: {CONFIG}: cannot be read: No such file or directory: correct that first"),
    (k3s, PODS, "kubelet: /proc/77: k3s runs here (process 77): its kubelet is part of it"),
    (old, PODS, "kubelet: 1.27: Corral configures kubelets from 1.28 on: update it"),
    (of_1_30, STATIC, "kubelet.cpu_manager_policy_options.strict-cpu-reservation: true: the installed kubelet 1.30 does not know"),
    (torn, PODS, f"kubelet: {CONFIG}: is not YAML"),
    (without_kind, PODS, f"kubelet: {CONFIG}: has no apiVersion: kubelet.config.k8s.io/v1beta1 and kind: KubeletConfiguration"),
    (in_json, PODS, f"{CONFIG}: its keys cannot be changed one by one (line 1 begins no key): write it as YAML, or give"),
    (linked, PODS, f"{CONFIG}: is a link, which Corral would replace: make it a file, or give the kubelet --config-dir"),
    (without_own_file, PODS, "/etc/app/settings.yaml: Corral writes no file of this name: give the kubelet --config-dir"),
    (by_hand, PODS, "kubelet: process 77 is not run by kubelet.service: start it by that unit"),
    (lambda fake: fake_kubelet.install(fake) and None, {**PODS, "pod_pids_limit": 4096}, "kubelet.pod_pids_limit: 4096: 50 pods with 4096"),
]  # fmt: skip


@pytest.mark.parametrize(("prepare", "section", "line"), REFUSED, ids=[line[:50] for dummy, dummy2, line in REFUSED])
def test_it_is_refused_before_anything_is_changed(
    prepare: t.Callable[[node.Node], None], section: dict[str, t.Any], line: str, fake: node.Node
) -> None:
    prepare(fake)
    before = fake.fingerprint()
    lines = refusal(fake, **section)
    assert [one for one in lines if one.startswith(line)], lines
    assert node.different(before, fake.fingerprint("run/corral")) in (
        [],
        [f"run/corral: {before.get('run/corral')} -> None"],
    )


@pytest.mark.parametrize("prepare", [no_kubelet, k3s])
def test_a_node_may_do_without(prepare: t.Callable[[node.Node], None], fake: node.Node) -> None:
    prepare(fake)
    outcome = runs.declare(fake.host(), kubelet={**PODS, "optional": True})
    assert (outcome.error, ours(outcome.applied), ours(outcome.remaining)) == ("", [], [])
    assert any("kubelet is left out (kubelet.optional)" in note for note in outcome.plan.notes)


def test_a_configuration_that_the_kubelet_no_longer_reads_gets_its_lines_back(fake: node.Node) -> None:
    fake_kubelet.install(fake, dropins=False)
    rolled_out(fake, **PODS)
    moved_configuration(fake)
    twin = twin_of(fake)
    assert not runs.remove(twin.host()).error
    assert (twin.get(CONFIG), twin.get(OTHER_CONFIG)) == (BASE, OTHER_BASE)
    rolled_out(fake, **PODS)
    assert (fake.get(CONFIG), yaml.safe_load(fake.get(OTHER_CONFIG))["maxPods"]) == (BASE, 50)
    assert not runs.remove(fake.host()).error
    assert (fake.get(CONFIG), fake.get(OTHER_CONFIG), fake.has("/var/lib/corral")) == (BASE, OTHER_BASE, False)


def test_a_kubelet_that_reads_drop_ins_from_now_on_has_its_file_back(fake: node.Node) -> None:
    kubelet = fake_kubelet.install(fake, dropins=False)
    rolled_out(fake, **PODS)
    edit_unit(fake, CONFIG, f"{CONFIG} --config-dir={DROPINS}")
    (fake.root / DROPINS[1:]).mkdir(parents=True)
    kubelet.restart(fake)
    rolled_out(fake, **PODS)
    assert (fake.get(CONFIG), fake.has(DROPIN), fake.has(KEPT)) == (BASE, True, False)
    assert kubelet.config["maxPods"] == 50
    assert planned(fake, **PODS) == []


def uninstalled(fake: node.Node) -> None:
    assert fake.kubelet is not None
    fake.kubelet.stop(fake)
    for path in (UNIT_FILE, CONFIG):
        fake.drop(path)


def test_an_uninstalled_kubelet_leaves_its_configuration_as_it_was(fake: node.Node) -> None:
    fake_kubelet.install(fake, dropins=False)
    moved_configuration(fake)
    rolled_out(fake, **PODS)
    assert fake.get(OTHER_CONFIG) != OTHER_BASE
    uninstalled(fake)
    assert not runs.remove(fake.host()).error
    assert (fake.get(OTHER_CONFIG), fake.has("/var/lib/corral")) == (OTHER_BASE, False)


def test_what_a_run_left_of_an_uninstalled_kubelet_goes(fake: node.Node, kubelet: FakeKubelet) -> None:
    rolled_out(fake, **PODS)
    uninstalled(fake)
    fake.put("/run/corral/kubelet-due", "")
    assert not runs.declare(fake.host()).error
    assert not fake.has("/run/corral/kubelet-due")


def test_a_tick_leaves_the_file_of_a_kubelet_that_is_gone_to_a_run(fake: node.Node, kubelet: FakeKubelet) -> None:
    section = {**PODS, "optional": True}
    rolled_out(fake, **section)
    uninstalled(fake)
    runs.tick(fake.host())
    assert fake.has(DROPIN)
    rolled_out(fake, **section)
    assert not fake.has(DROPIN)


@pytest.mark.parametrize("legacy", [False, True], ids=["v2", "v1"])
def test_reserves_that_are_in_use_already_are_told_before_a_change(
    legacy: bool, make: t.Callable[..., node.Node]
) -> None:
    fake = make(legacy=legacy)
    fake_kubelet.install(fake).stop(fake)
    groups = {
        "system.slice": (2000, 500, 90),
        "user.slice": (246, 0, 12),
        "kubepods.slice": (9000, 0, 999),
        "kubelet.slice/kubelet-kubepods.slice": (9000, 0, 999),
        "kubelet.slice": (9000, 0, 999),
    }
    for group, (memory, cache, tasks) in groups.items():
        pids = f"/sys/fs/cgroup/pids/{group}" if legacy else f"/sys/fs/cgroup/{group}"
        stat = f"anon 5\ninactive_file {cache << 20}\nactive_file 7\n"
        if legacy:
            fake.put(f"/sys/fs/cgroup/systemd/{group}/tasks", "")
            fake.put(f"/sys/fs/cgroup/memory/{group}/memory.usage_in_bytes", f"{memory << 20}\n")
            stat = f"cache 5\ninactive_file 0\nactive_file 7\ntotal_inactive_file {cache << 20}\ntotal_active_file 7\n"
            fake.put(f"/sys/fs/cgroup/memory/{group}/memory.stat", stat)
        else:
            fake.put(f"/sys/fs/cgroup/{group}/memory.current", f"{memory << 20}\n")
            fake.put(f"/sys/fs/cgroup/{group}/memory.stat", stat)
        fake.put(f"{pids}/pids.current", f"{tasks}\n")

    def notes(**section: t.Any) -> list[str]:
        return [note for note in notes_of(fake, kubelet=section) if note.startswith("what runs beside pods")]

    (memory,) = notes(system_reserved={"memory": "1Gi"}, kube_reserved={"memory": "700Mi"})
    assert memory.startswith(
        "what runs beside pods uses memory 1746Mi now (system.slice 1500Mi, user.slice 246Mi), and "
    )
    assert "kubeReserved and systemReserved add up to 1724Mi: reserve more" in memory
    assert notes(system_reserved={"memory": "1746Mi", "pid": "102"}) == []
    (tasks,) = notes(system_reserved={"memory": "2Gi", "pid": "101"})
    assert tasks.startswith("what runs beside pods uses pid 102 now (system.slice 90, user.slice 12), and")
    assert len(notes(max_pods=20)) == 1, "nothing at all is reserved of the memory"


@pytest.mark.parametrize("fails", [False, True])
def test_a_change_that_is_not_confirmed_goes_back_by_the_unit_that_may_restart_the_kubelet(
    fails: bool, fake: node.Node, kubelet: FakeKubelet
) -> None:
    assert not runs.install(fake.host()).error
    rolled_out(fake, **STATIC)
    unconfirmed(fake, kubelet={"cpu_manager_policy": "none"})
    assert kubelet.config["cpuManagerPolicy"] == "none"
    kubelet.acts.clear()
    fake.wait(121)
    runs.tick(fake.host())
    assert kubelet.acts == [], "no tick restarts it"
    if fails:
        kubelet.broken = kubelet.config
        assert runs.command(fake.host(), "confirm", "--tick") == 1
        assert (kubelet.config["cpuManagerPolicy"], bool(kubelet.pid)) == ("none", True)
        assert fake.has(state.UNCONFIRMED), "it is tried again"
        kubelet.broken = None
    assert runs.command(fake.host(), "confirm", "--tick") == 0
    assert (kubelet.config["cpuManagerPolicy"], bool(kubelet.pid)) == ("static", True)
    assert (kubelet.acts[-2:], fake.has(state.UNCONFIRMED)) == (["stop", "start"], False)
    assert set_aside(fake) == ["cpu_manager_state.corral-policy"] * 2
    assert json.loads(fake.get(STATE))["policyName"] == "static"


def test_what_pods_may_have_is_told_before_a_change(fake: node.Node, kubelet: FakeKubelet) -> None:
    notes = notes_of(fake, kubelet={**STATIC, "max_pods": 20})
    assert "allocatable cpu of the kubelet: 8 -> 2 (of 8)" in notes
    assert "allocatable pods of the kubelet: 110 -> 20 (of 20)" in notes
    assert any(
        note.startswith("machine.slice, corral.slice run on the shared CPUs, and the kubelet gives") for note in notes
    )


def test_a_formula_sizes_the_reserves_of_the_node_and_drift_names_its_key(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    memory = int(fake.get("/proc/meminfo").split()[1])
    assert memory == 8 << 20, "the figure below is of 8 GiB"
    rolled_out(fake, reserve_formula="gke-v1", kube_reserved={"pid": "100"})
    assert kubelet.config["kubeReserved"] == {"memory": "1844Mi", "pid": "100"}
    rolled_out(fake, reserve_formula="gke-v1")
    assert kubelet.config["kubeReserved"] == {"memory": "1844Mi"}
    fake.put(DROPIN, fake.get(DROPIN).replace("1844Mi", "1843Mi"))
    (change,) = [one for one in planned(fake, reserve_formula="gke-v1") if one.property == "value"]
    assert (change.subject, change.actual, change.wanted) == (
        "kubeReserved",
        '{"memory": "1843Mi"}',
        '{"memory": "1844Mi"}',
    )
    section = node.parsed(kubelet={"reserve_formula": "gke-v1"})
    assert manager_kubelet.key_of(change, section) == "kubelet.reserve_formula"


def test_a_kubelet_that_became_unknown_is_not_in_sync(fake: node.Node, kubelet: FakeKubelet) -> None:
    rolled_out(fake, **PODS)
    fake.put(CONFIG, "kind: [")
    assert [(one.verdict, one.subject) for one in planned(fake, **PODS)] == [(UNKNOWN, "configuration")]


def test_a_drop_in_that_was_damaged_is_mended(fake: node.Node, kubelet: FakeKubelet) -> None:
    rolled_out(fake, **PODS)
    fake.put(DROPIN, "kind: [")
    assert DROPIN in [one.subject for one in rolled_out(fake, **PODS)]
    assert yaml.safe_load(fake.get(DROPIN))["maxPods"] == 50


def test_a_quiet_tick_starts_no_process_and_writes_nothing_of_the_kubelet(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    assert not runs.install(fake.host()).error
    rolled_out(fake, **STATIC)
    for dummy in range(3):
        fake.wait(10)
        host = fake.host()
        assert runs.tick(host) == 0
        assert (host.commands, [path for path in host.writes if "kubelet" in path]) == ([], [])


def test_pods_are_not_confined_behind_the_kubelets_back(fake: node.Node, kubelet: FakeKubelet) -> None:
    fake.intrude("kubepods.slice/kubepods-burstable.slice")
    cpu = {**node.edge()["cpu"], "unmanaged": "confine"}
    outcome = runs.declare(fake.host(), kubelet=PODS, cpu=cpu)
    assert (outcome.error, [one.subject for one in outcome.remaining]) == ("", [])
    assert not [one for one in outcome.applied if "kubepods" in one.subject]
    without = runs.declare(fake.host(), cpu=cpu)
    assert [one.subject for one in without.applied if "kubepods" in one.subject] == ["kubepods.slice"]


@pytest.mark.parametrize("group", ["kubepods.slice", "kubepods"])
def test_with_cgroup_v1_pods_are_the_kubelets_matter_as_well(group: str, make: t.Callable[..., node.Node]) -> None:
    fake = make(legacy=True)
    fake_kubelet.install(fake).stop(fake)
    fake.intrude(f"{group}/podbusy")
    outcome = runs.declare(fake.host(), kubelet=PODS)
    assert (outcome.error, [one.subject for one in outcome.remaining]) == ("", [])
    assert runs.tick(fake.host()) == 0
    without = runs.declare(fake.host())
    assert [one.subject for one in without.remaining] == [group]


def test_a_tick_that_finds_nothing_new_looks_no_further_and_sees_another_kubelet(
    fake: node.Node, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not runs.install(fake.host()).error
    rolled_out(fake, **STATIC)
    fake.wait(10)
    assert runs.tick(fake.host()) == 0
    with monkeypatch.context() as patch:
        patch.setattr(full_tick, "run", lambda *dummy, **more: 77)
        assert runs.tick(fake.host()) == 0
        kubelet.restart(fake)
        assert runs.tick(fake.host()) == 77
    assert runs.tick(fake.host()) == 0


def test_a_state_file_that_a_refused_kubelet_made_goes_with_it(
    fake: node.Node, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = FakeKubelet.check

    def ends_later(self: FakeKubelet, at: node.Node, config: dict[str, t.Any]) -> None:
        check(self, at, config)
        if config.get("cpuManagerPolicy") == "static":
            raise ValueError("no such runtime")

    monkeypatch.setattr(FakeKubelet, "check", ends_later)
    fake.drop(STATE)
    outcome = runs.declare(fake.host(), kubelet=STATIC)
    assert "no such runtime" in outcome.error
    assert kubelet.pid, kubelet.log[-1]
    assert json.loads(fake.get(STATE))["policyName"] == "none"


def masked(fake: node.Node) -> None:
    link = fake.root / "etc/systemd/system/kubelet.service"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("/dev/null")


def unit_removed(fake: node.Node) -> None:
    fake.drop(UNIT_FILE)


def transient(fake: node.Node) -> None:
    unit = UNIT_FILE
    fake.put("/run/systemd/transient/kubelet.service", fake.get(unit))
    fake.drop(unit)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (masked, "is masked (/etc/systemd/system/kubelet.service)"),
        (unit_removed, "no unit file"),
        (transient, "is transient"),
    ],
)
def test_a_kubelet_that_could_not_be_started_again_is_not_stopped(
    change: t.Callable[[node.Node], None], words: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    rolled_out(fake, max_pods=60)
    change(fake)
    kubelet.acts.clear()
    (line,) = refusal(fake, **PODS)
    assert line.startswith("kubelet: kubelet.service runs and ")
    assert words in line
    assert not runs.remove(fake.host()).error
    assert (kubelet.acts, bool(kubelet.pid), fake.has(DROPIN)) == ([], True, False)


@pytest.mark.parametrize("dropins", [False, True])
@LEAVE
def test_configuration_goes_back_beside_a_kubelet_that_could_not_be_started_again(
    leave: Leave, dropins: bool, fake: node.Node
) -> None:
    kubelet = fake_kubelet.install(fake, dropins=dropins)
    rolled_out(fake, max_pods=60)
    masked(fake)
    kubelet.acts.clear()
    outcome = leave(fake.host())
    assert (outcome.error, kubelet.acts, bool(kubelet.pid), fake.get(CONFIG)) == ("", [], True, BASE)
    assert not fake.has(DROPIN)
    (item,) = [one for one in ours(outcome.applied) if one.subject == fake_kubelet.UNIT]
    why = f"kubelet.service is masked (/etc/systemd/system/{fake_kubelet.UNIT}): systemctl unmask kubelet.service"
    assert item.reason == f"no longer declared; the running kubelet keeps the configuration that it read: {why}"


@LEAVE
def test_the_state_that_a_kubelet_keeps_and_would_refuse_at_its_next_start_is_told(
    leave: Leave, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """It writes its state from its memory while it runs, so that it is of no use to set the file aside."""
    rolled_out(fake, **STATIC)
    masked(fake)
    before = fake.get(STATE)
    (item,) = [one for one in ours(leave(fake.host()).applied) if one.subject == fake_kubelet.UNIT]
    assert item.reason.endswith(
        f": systemctl unmask kubelet.service; its next start would refuse {STATE}: drain the node first, and remove that after its stop"
    )
    assert fake.get(STATE) == before
    (fake.root / "etc/systemd/system/kubelet.service").unlink()
    kubelet.restart(fake)
    assert not kubelet.pid
    fake.drop(STATE)
    kubelet.start(fake)
    assert kubelet.pid


def test_drift_of_a_kubelet_whose_unit_is_masked_names_the_way_out(fake: node.Node, kubelet: FakeKubelet) -> None:
    rolled_out(fake, **PODS)
    declared_by_hand(fake, kubelet={**PODS, "max_pods": 51})
    runs.tick(fake.host())
    (item,) = items(fake)
    assert item["reason"].endswith("; a tick restarts no kubelet: roll the profile out again")
    masked(fake)
    runs.tick(fake.host())
    (item,) = items(fake)
    assert (item["subject"], item["wanted"]) == ("maxPods", "51")
    assert "roll the profile out" not in item["reason"]
    assert item["reason"].endswith(
        "; a tick restarts no kubelet, and a rollout is refused: kubelet.service runs and is masked "
        "(/etc/systemd/system/kubelet.service): systemctl unmask kubelet.service: once stopped, it could not be started again"
    )


@pytest.mark.parametrize("keys", [PODS, STATIC, ALPHA], ids=["for all", "by version", "with a gate"])
def test_a_masked_unit_stands_against_no_run_that_changes_nothing(
    keys: dict[str, t.Any], fake: node.Node, kubelet: FakeKubelet
) -> None:
    """With a key that depends on the version a run was refused, while a tick found the node in sync."""
    rolled_out(fake, **keys)
    masked(fake)
    assert planned(fake, **keys) == []
    assert rolled_out(fake, **keys) == []


@LEAVE
def test_a_kubelet_whose_files_cannot_be_read_is_not_stopped_for_what_goes_back(
    leave: Leave, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """It read them before another program damaged one; neither the run nor its undo could start it again."""
    rolled_out(fake, **STATIC)
    path = others_dropin(fake, "maxPods: [")
    kubelet.acts.clear()
    with pytest.raises(CorralError, match=r"50-others\.conf: is not YAML: .*: correct that first: the running kubelet"):
        leave(fake.host())
    assert (kubelet.acts, bool(kubelet.pid), fake.has(DROPIN)) == ([], True, True)
    fake.drop(path)
    assert not leave(fake.host()).error
    assert (kubelet.acts, bool(kubelet.pid), fake.has(DROPIN)) == (["stop", "start"], True, False)


def test_a_kubelet_whose_files_cannot_be_read_keeps_no_node_from_going_back(
    fake: node.Node, kubelet: FakeKubelet
) -> None:
    runs.install(fake.host())
    runs.declare(fake.host())
    unconfirmed(fake, kubelet=STATIC)
    others_dropin(fake, "maxPods: [")
    fake.wait(121)
    kubelet.acts.clear()
    assert runs.command(fake.host(), "confirm", "--tick") == 0
    assert (kubelet.acts, bool(kubelet.pid), fake.has(DROPIN), fake.has(state.UNCONFIRMED)) == ([], True, False, False)


@pytest.mark.parametrize("dropins", [True, False])
def test_a_key_that_is_left_out_by_hand_is_drift(dropins: bool, fake: node.Node) -> None:
    """A tick said that the node is in sync, and a run then restarted the kubelet."""
    kubelet = fake_kubelet.install(fake, dropins=dropins)
    rolled_out(fake, **STATIC, max_pods=40)
    declared_by_hand(fake, kubelet=STATIC)
    assert runs.tick(fake.host()) == 2
    (item,) = items(fake)
    assert (item["subject"], item["actual"], item["wanted"]) == ("maxPods", "40", "110")
    assert kubelet.acts == ["stop", "start"]
    (left,) = [one for one in rolled_out(fake, **STATIC) if one.subject == "maxPods"]
    assert (left.actual, left.wanted) == ("40", "110")


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_stands_against_changing_the_kubelet_keeps_no_node_from_going_back(
    obstacle: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    """The way back was refused again and again; what it cannot do of the kubelet is drift."""
    runs.install(fake.host())
    runs.declare(fake.host(), kubelet=STATIC)
    before, limit = fake.get(state.DECLARED), fake.get("/proc/sys/kernel/pid_max")
    unconfirmed(fake, kubelet={**STATIC, "max_pods": 40}, pids={"pid_max": 80000})
    OBSTACLES[obstacle](fake, kubelet)
    fake.wait(121)
    kubelet.acts.clear()
    assert runs.command(fake.host(), "confirm", "--tick") == 0
    assert (fake.get(state.DECLARED), fake.get("/proc/sys/kernel/pid_max")) == (before, limit)
    assert (kubelet.acts, bool(kubelet.pid), fake.has(state.UNCONFIRMED)) == ([], True, False)
    runs.tick(fake.host())
    found = json.loads(fake.get(state.STATUS))
    assert {one["manager"] for one in found["items"]} == {"kubelet"}
    assert found["error"] is None


def as_json(text: str) -> str:
    return json.dumps(yaml.safe_load(text))


def twice(text: str) -> str:
    return text + "kind: ["


@pytest.mark.parametrize("damage", [as_json, twice])
def test_lines_that_cannot_go_back_are_kept_and_the_removal_says_so(
    damage: t.Callable[[str], str], fake: node.Node
) -> None:
    fake_kubelet.install(fake, dropins=False)
    rolled_out(fake, **PODS)
    whole = fake.get(CONFIG)
    fake.put(CONFIG, damage(whole))
    for leave in (runs.remove, runs.declare):
        with pytest.raises(CorralError) as error:
            leave(fake.host())
        assert f"{CONFIG}: the lines that Corral changed there cannot be restored" in str(error.value)
    assert fake.get(CONFIG) == damage(whole)
    fake.put(CONFIG, whole)
    assert not runs.remove(fake.host()).error
    assert fake.get(CONFIG) == BASE
    assert not fake.has("/var/lib/corral")


def test_a_tick_leaves_what_is_declared_no_longer_to_a_run(fake: node.Node, kubelet: FakeKubelet) -> None:
    assert not runs.install(fake.host()).error
    rolled_out(fake, **PODS)
    text = fake.get(DROPIN)
    section_left_out(fake)
    for dummy in range(2):
        fake.wait(10)
        assert runs.tick(fake.host(), by_timer=False) == 2
        (item,) = [one for one in items(fake) if one["manager"] == "kubelet"]
        assert (item["subject"], "a tick restarts no kubelet" in item["reason"]) == ("kubelet.service", True)
        assert (fake.get(DROPIN), kubelet.acts) == (text, ["stop", "start"])
    assert not runs.declare(fake.host()).error
    assert not fake.has(DROPIN)


ODD = [
    "maxPods: []",
    "evictionHard: x",
    "reservedMemory: {a: 1}",
    "cpuManagerPolicyOptions: [1]",
    "healthzPort: x",
    "featureGates: 1",
]


@pytest.mark.parametrize("line", ODD)
@pytest.mark.parametrize("dropins", [True, False])
def test_what_others_write_ends_in_no_traceback(dropins: bool, line: str, fake: node.Node) -> None:
    base = "\n".join(one for one in BASE.splitlines() if one.partition(":")[0] != line.partition(":")[0])
    fake_kubelet.install(fake, dropins=dropins, base=f"{base}\n{line}\n")
    try:
        outcome = runs.declare(fake.host(), kubelet=PODS)
    except CorralError as refused:
        assert line.partition(":")[0] in str(refused)
    else:
        assert outcome.error == ""
    assert runs.tick(fake.host()) in (0, 2)
    assert not runs.remove(fake.host()).error


@pytest.mark.parametrize("name", ["cpu_manager_state", "memory_manager_state"])
def test_a_state_file_that_a_power_cut_left_empty_is_set_aside(name: str, fake: node.Node) -> None:
    kubelet = fake_kubelet.install(fake)
    fake.put(f"{ROOT}/{name}", "")
    rolled_out(fake, max_pods=50)
    assert kubelet.pid
    assert [path.name for path in (fake.root / ROOT[1:]).glob("*.corral-*")] == [
        f"{name}.corral-unreadable-20231114T221320Z"
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("5: x\non: {1: y}\nx: 2020-01-01\n", ""),
        ("evictionHard: {1: 2, a: 3}\n", ""),
        ("evictionSoft: x\n", "evictionSoft: is not a map of single values: the kubelet refuses it"),
        ("x: &a {b: *a}\n", "nested too deeply"),
        ("healthzBindAddress: [1]\n", "healthzBindAddress: is not a single value"),
        (json.dumps(fake_kubelet.HEAD)[:-1] + ', "x": ' + "[" * 500 + "]" * 500 + "}", "is not YAML"),
    ],
)
def test_an_odd_configuration_of_others_is_no_traceback(line: str, told: str, fake: node.Node) -> None:
    fake_kubelet.install(fake)
    fake.put(CONFIG, line if line.startswith("{") else BASE + line)
    if told:
        assert [one for one in refusal(fake, **PODS) if told in one]
    else:
        rolled_out(fake, **PODS)
    assert not runs.remove(fake.host()).error


@pytest.mark.parametrize(
    ("flags", "later", "where"),
    [
        ("--feature-gates=CPUManagerPolicyAlphaOptions=false", {}, f"the flag --feature-gates in {UNIT_FILE}"),
        ("", {"featureGates": {"CPUManagerPolicyAlphaOptions": False}}, LATER),
    ],
    ids=["flag", "later file"],
)
def test_a_gate_that_another_turns_off_is_refused_before_the_kubelet_is(
    flags: str, later: dict[str, t.Any], where: str, fake: node.Node
) -> None:
    kubelet = fake_kubelet.install(fake, flags=flags)
    fake.put(LATER, yaml.safe_dump({**fake_kubelet.HEAD, **later}))
    kubelet.restart(fake)
    (line,) = refusal(fake, **ALPHA)
    assert line.startswith(f"kubelet: {where} sets ")
    assert kubelet.acts == []


@pytest.mark.parametrize("why", ["audit", "pause"])
def test_a_kubelet_that_a_run_left_stopped_is_started_in_mode_audit_and_a_pause_as_well(
    why: str, fake: node.Node, kubelet: FakeKubelet
) -> None:
    assert not runs.install(fake.host()).error
    outcome = runs.declare(fake.host(), **({"mode": "audit"} if why == "audit" else {}))
    assert not outcome.error
    if why == "pause":
        assert runs.command(fake.host(), "pause", "--for", "1h") == 0
    kubelet.stop(fake)
    fake.put(state.KUBELET_DUE, "")
    kubelet.acts.clear()
    fake.wait(10)
    runs.tick(fake.host())
    assert (kubelet.acts, bool(kubelet.pid)) == (["start"], True)


def test_a_boot_waits_for_no_kubelet_that_starts_after_it(fake: node.Node, kubelet: FakeKubelet) -> None:
    assert not runs.install(fake.host()).error
    rolled_out(fake, **PODS)
    kubelet.stop(fake)
    fake.put("/run/corral/kubelet-due", "")  # A soft reboot keeps /run.
    fake.drop(DROPIN)
    kubelet.acts.clear()
    runs.tick(fake.host(), at_boot=True)
    assert (kubelet.acts, fake.has(DROPIN)) == ([], True)
    fake.wait(10)
    runs.tick(fake.host())
    assert kubelet.acts == ["start"]


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({}, "127.0.0.1:10248"),
        ({"healthzPort": 0}, ""),
        ({"healthzPort": 10, "healthzBindAddress": "0.0.0.0"}, "127.0.0.1:10"),
        ({"healthzBindAddress": "::"}, "::1:10248"),
        ({"healthzBindAddress": "10.0.0.7"}, "10.0.0.7:10248"),
        ({"healthzPort": "x"}, "127.0.0.1:10248"),
        ({"healthzPort": True}, "127.0.0.1:10248"),
        ({"healthzPort": 70000}, "127.0.0.1:10248"),
    ],
)
def test_where_a_kubelet_is_asked_for_its_health(keys: dict[str, t.Any], wanted: str) -> None:
    assert kubelet_change.health_address(kubelet_config.effective([kubelet_config.Layer("f", keys)], [])) == wanted
