# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The containers of a pod on a fake node: each has its own limits, at its start and after somebody changed them."""

from __future__ import annotations

import io
import json
import shutil
import typing as t

import node
import pytest
import runs
import test_devices_granted
import test_pid_namespaces
import test_quiet_tick
from _core import main
from _core.cli import container_hook
from _core.host import recorded_inputs, state
from _core.host.containers import conmon
from _core.host.pids import pid_namespaces
from _core.managers.devices import device_specs
from _core.managers.workload import workloads
from _core.model.agent.agent_units import CONTAINER_HOOK, LAUNCHER
from _core.model.devices import device_delivery
from _core.model.plan import make_step
from _core.model.plan.places import covering
from _core.model.plan.plan import LIVE, Change
from _core.model.profile import profile, schema_types
from _core.model.profile.profile import Profile
from _core.model.values.errors import CorralError
from _core.model.workload import container_limits
from _core.pipeline import applying, planning

SLICE = "/sys/fs/cgroup/corral_web.slice"
SHARED = "/sys/fs/cgroup/corral.slice/corral-web.slice"
CONTAINERS = [
    {"name": "load", "role": "init", "limits": {"cpu": 2, "memory": "256Mi"}},
    {"name": "proxy", "role": "sidecar", "limits": {"cpu": 1, "memory": "64Mi"}},
    {"name": "app", "limits": {"cpu": 1, "memory": "128Mi", "pids": 50}},
]
UNLIMITED = {
    "cpu.max": "max 100000", "cpu.weight": "100", "memory.max": "max", "memory.swap.max": "max", "pids.max": "max",
    "cpuset.cpus": "",
}  # fmt: skip


def declared(*containers: dict[str, t.Any], **cpu: t.Any) -> Profile:
    data = {
        "name": "x",
        "cpu": {"reserved": {"count": 2}, "policy": "static", **cpu},
        "workloads": [{"name": "web", "match": {"pod": "web"}, "containers": list(containers or CONTAINERS)}],
    }
    return profile.parse(data)


def start(fake: node.Node, number: int, name: str, *, place: str = SLICE, score: int = 0, **files: str) -> str:
    """A container with a control group as its runtime makes it; the path of that."""
    test_pid_namespaces.start(fake, number, name, "pid:[7]", place=place)
    group = f"{place}/libpod-{number:064x}.scope/container"
    for file, text in {**UNLIMITED, **files}.items():
        fake.put(f"{group}/{file}", f"{text}\n")
    for pid in (100 + number, 50 + number):
        fake.put(f"/proc/{pid}/oom_score_adj", f"{score}\n")
        fake.put(f"/proc/{pid}/comm", "web\n")
        fake.put(f"/proc/{pid}/cgroup", f"0::{group.removeprefix('/sys/fs/cgroup')}\n")
    return group


def limits(fake: node.Node, group: str) -> dict[str, str]:
    return {file: fake.get(f"{group}/{file}").strip() for file in UNLIMITED if fake.has(f"{group}/{file}")}


def items(fake: node.Node, of: Profile) -> list[Change]:
    host = fake.host()
    changes = planning.plan_profile(host, planning.compile_profile(host, of)).changes
    assert host.writes == []
    return [one for one in changes if one.subject.startswith("web:")]


def roll_out(fake: node.Node, of: Profile) -> None:
    outcome = applying.declare(fake.host(), of)
    assert not outcome.error


POD = declared()


def make_rolled(fake: node.Node) -> None:
    roll_out(fake, POD)


@pytest.fixture
def rolled(made_once: node.MadeOnce) -> node.Node:
    """A node with the pod's grant, and no agent."""
    return made_once(make_rolled)


def make_kept(fake: node.Node) -> None:
    assert not runs.install(fake.host()).error
    roll_out(fake, POD)


@pytest.fixture
def kept(made_once: node.MadeOnce) -> node.Node:
    """The same with the agent."""
    return made_once(make_kept)


def test_each_container_has_the_limits_of_its_own(rolled: node.Node) -> None:
    load = start(rolled, 1, "load", **{"cpu.max": "50000 100000"})
    app, proxy, infra = start(rolled, 2, "web-app"), start(rolled, 3, "proxy"), start(rolled, 4, "0123-infra")
    changes = items(rolled, POD)
    assert all(step.optional for one in changes for step in one.steps), "a container may end meanwhile"
    found = {(one.subject, one.property) for one in changes}
    assert {("web:web-app", "cpuset.cpus"), ("web:proxy", "memory.max"), ("web:load", "cpu.weight")} <= found
    roll_out(rolled, POD)
    assert items(rolled, POD) == []
    assert limits(rolled, app) == {
        "cpuset.cpus": "5", "cpu.max": "max 100000", "cpu.weight": "39", "memory.max": str(128 << 20),
        "memory.swap.max": "0", "pids.max": "50",
    }  # fmt: skip
    assert limits(rolled, proxy)["cpuset.cpus"] == "1"
    assert limits(rolled, load)["cpuset.cpus"] == "1,5", "the CPUs that an init container hands on"
    assert limits(rolled, load)["cpu.max"] == "max 100000", "no quota on CPUs of its own"
    assert limits(rolled, infra) == UNLIMITED
    assert [rolled.get(f"/proc/{pid}/oom_score_adj").strip() for pid in (101, 52, 104)] == ["-997", "-997", "-997"]


@pytest.mark.parametrize(
    ("container", "pod", "is_a"),
    [
        ("app", "web", "app"),
        ("web-app", "web", "app"),
        ("web2-app", "web*", "app"),
        ("web-2-app", "web-*", "app"),
        ("web-x-app", "web", "x-app"),
        ("web-x-app", "web*", "x-app"),  # not app of a pod web-x
        ("x-app", "web", "x-app"),
        ("x-app", "x", "x-app"),
        ("debug-app", "web", None),
        ("web-debug-app", "web", None),
        ("webapp", "web", None),
        ("web-app2", "web", None),
        ("web-infra", "web", None),
        ("0123-infra", "web", None),
        ("", "web", None),
    ],
)
def test_a_container_is_the_declared_one_by_its_name_or_with_its_pods_before_it(
    container: str, pod: str, is_a: str | None
) -> None:
    assert container_limits.declared_name(container, pod, ["app", "x-app"]) == is_a


@pytest.mark.parametrize(
    ("user", "group"), [(1000, "/user.slice"), (0, f"/corral_web.slice/libpod-{2:064x}.scope/container")]
)
def test_a_process_that_looks_like_a_monitor_names_no_container(rolled: node.Node, user: int, group: str) -> None:
    app = start(rolled, 1, "app")
    roll_out(rolled, POD)
    for pid in (2, 9999):  # before and after the monitor
        rolled.put(f"/proc/{pid}/comm", "conmon\n")
        rolled.put(f"/proc/{pid}/cmdline", f"conmon\0-c\0{1:064x}\0-n\0proxy\0-s\0")
        rolled.put(f"/proc/{pid}/cgroup", f"0::{group}\n")
        rolled.put(f"/proc/{pid}/status", f"Uid:\t{user}\t{user}\t{user}\t{user}\n")
    assert items(rolled, POD) == []
    assert limits(rolled, app)["cpuset.cpus"] == "5"
    running = conmon.running(rolled.host(), "/sys/fs/cgroup", ("*",))
    assert running == [("app", app.removesuffix("/container"))]
    assert [row[1] for row in pid_namespaces.containers(rolled.host(), "/sys/fs/cgroup", (SLICE,))] == ["app"]


@pytest.mark.parametrize("place", [f"{SLICE}/corral_web-libpod_pod_0123.slice", f"{SLICE}/web-app.service"])
def test_a_container_is_found_wherever_it_lies_in_the_slice(kept: node.Node, place: str) -> None:
    app = start(kept, 1, "app", place=place)
    assert runs.tick(kept.host()) == 2
    assert limits(kept, app)["cpuset.cpus"] == "5"


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("corral_web.slice/{}.scope/container/memory.max", True),
        ("corral.slice/corral-acme.slice/corral-acme-web.slice/{}/memory.max", True),
        ("machine.slice/{}.scope/container/memory.max", False),
        ("corral.slice/{}.scope/container/memory.max", False),
        ("corral_web.slice/{}.scope/container/cpuset.mems", False),
        ("corral_web.slice/{}.scope/container/inner/memory.max", False),
        ("corral_web.slice/memory.max", False),
    ],
)
def test_no_other_container_is_written_to(path: str, is_own: bool) -> None:
    step = make_step.value(f"/sys/fs/cgroup/{path.format('libpod-' + 64 * 'a')}", "1", LIVE)
    assert (covering(workloads.WRITES, step) is not None) == is_own


@pytest.mark.parametrize("name", ["debug", "ap", "web-debug"])
def test_a_container_that_is_not_declared_is_named(name: str, rolled: node.Node) -> None:
    start(rolled, 1, "app")
    roll_out(rolled, POD)
    start(rolled, 2, name, score=-997)
    start(rolled, 3, "0123-infra", score=-997)
    (item,) = items(rolled, POD)
    assert (item.subject, item.property, item.actual, item.wanted) == (f"web:{name}", "declared", "no", "yes")
    assert (item.steps, item.verdict, item.when) == ((), "unchangeable", "next start")
    assert item.reason.startswith("no container of web has this name")
    without = profile.parse({
        "name": "x", "cpu": {"reserved": {"count": 2}, "policy": "static"},
        "workloads": [{"name": "web", "match": {"pod": "web"}, "limits": {"cpu": 2, "memory": "256Mi"}}],
    })  # fmt: skip
    roll_out(rolled, without)
    assert [one.property for one in items(rolled, without)] == [], "a pod whose containers are not listed may have any"


def test_a_pod_that_shares_has_a_quota_and_scores_by_container(fake: node.Node) -> None:
    pod = declared(
        {"name": "log", "role": "sidecar", "requests": {"cpu": "100m", "memory": "32Mi"}},
        {"name": "app", "requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "1500m", "memory": "1Gi"}},
    )
    roll_out(fake, pod)
    log, app = start(fake, 1, "log", place=SHARED), start(fake, 2, "app", place=SHARED)
    start(fake, 3, "0123-infra", place=SHARED)
    roll_out(fake, pod)
    host = fake.host()
    assert planning.plan_profile(host, planning.compile_profile(host, pod)).changes == (), (
        "the pod has no score of its own"
    )
    assert limits(fake, app)["cpu.max"] == "150000 100000"
    assert limits(fake, app)["memory.max"] == str(1 << 30)
    assert limits(fake, log)["cpu.max"] == "max 100000"
    assert limits(fake, log)["cpuset.cpus"] == ""
    scores = [int(fake.get(f"/proc/{pid}/oom_score_adj")) for pid in (101, 102)]
    assert 0 < int(fake.get("/proc/103/oom_score_adj")) < scores[0], "that of the pod as a whole"
    assert scores == [938, 938], "1000 - 1000 * 512 / 8192; a sidecar lives as long as the containers that need it"
    fake.put("/proc/102/oom_score_adj", "7\n")
    (item,) = items(fake, pod)
    assert (item.subject, item.property, item.actual, item.wanted) == ("web:app", "oom_score_adj", "7", str(scores[1]))
    assert [step.optional for step in item.steps] == [True], "a process may end meanwhile"


def test_the_containers_of_two_pods_are_kept_apart(fake: node.Node) -> None:
    def pod(name: str, memory: str) -> dict[str, t.Any]:
        limits = {"cpu": 1, "memory": memory}
        return {"name": name, "match": {"pod": name}, "containers": [{"name": "app", "limits": limits}]}

    both = profile.parse({
        "name": "x", "cpu": {"reserved": {"count": 2}, "policy": "static"},
        "workloads": [pod("web", "64Mi"), pod("db", "96Mi")],
    })  # fmt: skip
    roll_out(fake, both)
    of_web, of_db = start(fake, 1, "app"), start(fake, 2, "app", place=SLICE.replace("web", "db"))
    roll_out(fake, both)
    assert [limits(fake, one)["memory.max"] for one in (of_web, of_db)] == [str(64 << 20), str(96 << 20)]
    assert limits(fake, of_web)["cpuset.cpus"] != limits(fake, of_db)["cpuset.cpus"]


def test_a_controller_that_the_runtime_leaves_out_is_named(rolled: node.Node) -> None:
    app = start(rolled, 1, "app")
    for file in ("cpuset.cpus", "memory.swap.max"):
        rolled.drop(f"{app}/{file}")
    roll_out(rolled, POD)
    assert [(one.property, one.verdict) for one in items(rolled, POD)] == [
        ("memory.swap.max", "unchangeable"),
        ("cpuset.cpus", "unchangeable"),
    ]


def test_a_file_that_would_say_no_limit_may_be_missing(fake: node.Node) -> None:
    pod = declared({"name": "app", "requests": {"cpu": "2550m", "memory": "64Mi"}})
    roll_out(fake, pod)
    app = start(fake, 1, "app", place=SHARED)
    roll_out(fake, pod)
    assert limits(fake, app)["cpu.weight"] == "100", "the kernel's default"
    for file in limits(fake, app):
        fake.drop(f"{app}/{file}")
    assert items(fake, pod) == []


def test_a_container_whose_runtime_makes_no_group_of_its_own_has_them_in_that_of_systemd(rolled: node.Node) -> None:
    scope = start(rolled, 1, "app").removesuffix("/container")
    shutil.rmtree(rolled.root / f"{scope}/container".removeprefix("/"))
    for file, text in UNLIMITED.items():
        rolled.put(f"{scope}/{file}", f"{text}\n")
    roll_out(rolled, POD)
    assert limits(rolled, scope)["cpuset.cpus"] == "5"


@pytest.mark.parametrize("name", ["containers.json", "volatile-containers.json"])
def test_a_container_without_its_monitor_is_known_by_podmans_storage(rolled: node.Node, name: str) -> None:
    app, proxy = start(rolled, 1, "app"), start(rolled, 2, "proxy")
    shutil.rmtree(rolled.root / "proc/501")
    roll_out(rolled, POD)
    assert limits(rolled, app) == UNLIMITED, "its name is not known"
    assert limits(rolled, proxy)["cpuset.cpus"] == "1"
    rows = [{"id": f"{number:064x}", "names": [one]} for number, one in ((1, "app"), (2, "an old name"))]
    rolled.put(f"/var/lib/containers/storage/overlay-containers/{name}", json.dumps(rows))
    rolled.put(f"{proxy}/memory.max", "max\n")
    roll_out(rolled, POD)
    assert limits(rolled, app)["cpuset.cpus"] == "5"
    assert limits(rolled, proxy)["memory.max"] == str(64 << 20), "what a monitor says goes before what the storage does"
    assert items(rolled, POD) == []


def test_a_tick_gives_a_container_its_limits_and_then_is_quiet(kept: node.Node) -> None:
    runs.tick(kept.host())
    app = start(kept, 1, "app")
    assert runs.tick(kept.host()) == 2
    assert limits(kept, app)["cpuset.cpus"] == "5"
    assert runs.tick(kept.host()) == 0
    host = kept.host()
    assert runs.tick(host) == 0
    assert host.writes == ["/run/corral/status.json"]
    kept.put(f"{app}/memory.max", "max\n")
    assert runs.tick(kept.host()) == 2
    assert limits(kept, app)["memory.max"] == str(128 << 20)


def hooks(fake: node.Node) -> dict[str, list[t.Any]]:
    path = "/run/cdi/corral.node-grant.json"
    rows = json.loads(fake.get(path))["devices"] if fake.has(path) else []
    return {row["name"]: row["containerEdits"].get("hooks", []) for row in rows}


def test_a_container_has_its_limits_by_the_device_of_its_grant(rolled: node.Node) -> None:
    assert hooks(rolled) == {}, "without the agent there is no program to run"
    assert not runs.install(rolled.host()).error
    roll_out(rolled, POD)
    found = hooks(rolled)
    assert sorted(found) == ["web:app", "web:load", "web:proxy"]
    ((only,),) = [rows for name, rows in found.items() if name == "web:app"]
    assert (only["hookName"], only["path"]) == ("createRuntime", LAUNCHER)
    limits_of_app = [
        "cpu.weight=39",
        "cpu.max=max 100000",
        f"memory.max={128 << 20}",
        "memory.swap.max=0",
        "pids.max=50",
    ]
    assert only["args"] == [LAUNCHER, *CONTAINER_HOOK, *limits_of_app, "cpuset.cpus=5", "oom_score_adj=-997"]
    app = start(rolled, 1, "app")
    assert hook(rolled, *only["args"][3:]) == 0
    assert items(rolled, POD) == [], "a tick finds nothing to mend"
    assert limits(rolled, app)["cpuset.cpus"] == "5"
    assert rolled.get("/proc/101/oom_score_adj").strip() == "-997"
    assert device_delivery.cdi_file(device_delivery.VERSION) == state.GRANTS_SPEC
    roll_out(rolled, profile.parse({"name": "x", "cpu": {"reserved": {"count": 2}}}))
    assert hooks(rolled) == {}


def test_no_container_is_started_with_the_program_of_an_agent_that_was_removed(fake: node.Node) -> None:
    test_devices_granted.equip(fake)
    assert not runs.install(fake.host()).error
    test_devices_granted.roll_out(fake, WITH_TTY)
    before = fake.get(state.GRANTS_SPEC)
    host = fake.host()
    outcome = runs.remove(host, ("agent",))
    assert (outcome.error, outcome.remaining, outcome.leftovers) == ("", (), ())
    assert not fake.has(LAUNCHER)
    assert hooks(fake) == {"web": [], "web:app": []}, "the devices stay"
    first = [next(i for i, one in enumerate(host.writes) if path in one) for path in (state.GRANTS_SPEC, LAUNCHER)]
    assert first == sorted(first), "the hook goes before its program"
    assert runs.remove(fake.host(), ("agent",)).plan.changes == ()
    assert not runs.install(fake.host()).error
    runs.tick(fake.host())
    assert fake.get(state.GRANTS_SPEC) == before


def test_a_spec_that_was_changed_by_hand_goes_with_the_agent(kept: node.Node) -> None:
    kept.put(state.GRANTS_SPEC, kept.get(state.GRANTS_SPEC).replace('"0.3.0"', '"9.9"'))
    assert not runs.remove(kept.host(), ("agent",)).error
    assert kept.host().names("/run/cdi") == []


def with_workloads(*rows: dict[str, t.Any], reserved: str = "0,4") -> Profile:
    cpu = {"reserved": {"cpus": reserved}, "policy": "static"}
    return profile.parse({"name": "x", "cpu": cpu, "workloads": list(rows)})


def test_a_container_of_a_run_can_start_again_though_its_pod_is_no_longer_declared(fake: node.Node) -> None:
    assert not runs.install(fake.host()).error
    roll_out(
        fake, with_workloads({"name": "web", "match": {"pod": "web"}, "hold": "running", "containers": CONTAINERS})
    )
    assert runs.command(fake.host(), "admit", "web") == 0
    start(fake, 1, "app")
    fake.put(f"{SLICE}/cgroup.events", "populated 1\nfrozen 0\n")
    runs.tick(fake.host())
    before = hooks(fake)
    assert sorted(before) == ["web:app", "web:load", "web:proxy"]
    roll_out(fake, with_workloads())
    assert hooks(fake) == before
    assert runs.tick(fake.host()) == 0
    host = fake.host()
    assert runs.tick(host) == 0
    assert host.writes == ["/run/corral/status.json"]
    fake.put(f"{SLICE}/cgroup.events", "populated 0\nfrozen 0\n")
    runs.tick(fake.host())
    assert hooks(fake) == {}


@pytest.mark.parametrize("hold", ["declared", "running"])
def test_a_container_shares_once_its_pod_has_lost_its_cpus(fake: node.Node, hold: str) -> None:
    web = {"name": "web", "match": {"pod": "web"}, "hold": hold, "containers": CONTAINERS}
    assert not runs.install(fake.host()).error
    roll_out(fake, with_workloads(web))
    if hold == "running":
        assert runs.command(fake.host(), "admit", "web") == 0
    app, load = start(fake, 1, "app"), start(fake, 2, "load")
    fake.put(f"{SLICE}/cgroup.events", "populated 1\nfrozen 0\n")
    runs.tick(fake.host())
    assert limits(fake, app)["cpuset.cpus"] == "5"
    if hold == "running":  # A profile reserves its CPUs.
        applying.declare(fake.host(), with_workloads(web, reserved="0-5"))
    else:
        part = {**CONTAINERS[1], "limits": {"cpu": "1500m", "memory": "64Mi"}}
        applying.declare(fake.host(), with_workloads({**web, "containers": [CONTAINERS[0], part, CONTAINERS[2]]}))
    assert [limits(fake, one)["cpuset.cpus"] for one in (app, load)] == ["0-7", "0-7"]
    assert fake.get(f"{SLICE}/cpuset.cpus").strip() == {"running": "6-7", "declared": "1-3,5-7"}[hold]
    host = fake.host()
    runs.tick(host)
    assert not [path for path in host.writes if path.endswith("cpuset.cpus")], "it is quiet then"


def test_the_hook_of_a_container_that_shares_has_its_quota_and_its_score(fake: node.Node) -> None:
    amounts = {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "1500m", "memory": "1Gi"}}
    assert not runs.install(fake.host()).error
    roll_out(fake, declared({"name": "app", **amounts}))
    ((only,),) = hooks(fake).values()
    assert {"cpu.max=150000 100000", "oom_score_adj=938"} <= set(only["args"])
    assert not [word for word in only["args"] if word.startswith("cpuset.")], "it runs on the CPUs of its pod"


def test_a_pod_has_devices_from_its_admission_to_its_release(fake: node.Node) -> None:
    assert not runs.install(fake.host()).error
    workload = {"name": "web", "match": {"pod": "web"}, "hold": "running", "containers": CONTAINERS}
    cpu = {"reserved": {"count": 2}, "policy": "static"}
    roll_out(fake, profile.parse({"name": "x", "cpu": cpu, "workloads": [workload]}))
    assert hooks(fake) == {}
    assert runs.command(fake.host(), "admit", "web") == 0
    assert sorted(hooks(fake)) == ["web:app", "web:load", "web:proxy"]
    assert runs.command(fake.host(), "release", "web") == 0
    assert hooks(fake) == {}


def test_cdi_has_a_name_for_each_container_that_a_profile_can_declare() -> None:
    pod = profile.parse({
        "name": "x", "cpu": {"reserved": {"count": 2}},
        "workloads": [{"name": "w" * 63, "match": {"pod": "web"}, "containers": [{"name": f"b{'_a0' * 20}_-"}]}],
    })  # fmt: skip
    (workload,) = pod.workloads
    assert device_delivery.cdi_name(workload.name, workload.containers[0].name)


def test_a_plan_says_that_pods_need_the_agent(fake: node.Node) -> None:
    def notes() -> list[str]:
        host = fake.host()
        return [
            one
            for one in planning.plan_profile(host, planning.compile_profile(host, declared())).notes
            if "pods" in one
        ]

    late = "containers of pods start with what they were granted once the agent is installed on the node (corral.node.agent)"
    assert notes() == [late]
    assert not runs.install(fake.host()).error
    assert notes() == []


def test_explain_shows_each_container_and_how_it_is_started(
    fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not runs.install(fake.host()).error
    row = {"name": "data_base", "limits": {"cpu": 1, "memory": "64Mi"}}
    roll_out(fake, declared(*CONTAINERS[:2], row))
    lines = [line for line in runs.printed(fake.host(), "explain", "web").splitlines() if line.startswith("container ")]
    assert lines == [
        "container load (init): 1,5, start it with --device corral.node/grant=web:load",
        "container proxy (sidecar): 1, start it with --device corral.node/grant=web:proxy",
        "container data_base: 5, start it with --device corral.node/grant=web:data_5fbase",
    ]
    assert {"web:load", "web:proxy", "web:data_5fbase"} == set(hooks(fake))
    roll_out(fake, declared({"name": "app", "requests": {"cpu": "500m"}}))
    assert runs.command(fake.host(), "explain", "web") == 0
    assert (
        "container app: the CPUs of the pod, start it with --device corral.node/grant=web:app"
        in capsys.readouterr().out
    )


def test_a_container_without_cpus_of_its_own_is_said_to_have_the_pods(rolled: node.Node) -> None:
    start(rolled, 1, "app")
    (item,) = [one for one in items(rolled, POD) if one.property == "cpuset.cpus"]
    assert (item.actual, item.wanted) == ("all of the pod's", "5")


def test_hooks_and_devices_of_one_container_are_one_device(fake: node.Node) -> None:
    own, ours = ({"hookName": "createRuntime", "path": path} for path in ("/own", "/ours"))
    rows = {"0.5.0": {"web:app": {"env": ["A=1"], "hooks": [own]}, "web": {"env": ["B=1"]}}}
    merged = device_specs.with_hooks(rows, {"web:app": ours, "web:log": ours})
    assert merged == {
        "0.5.0": {"web:app": {"env": ["A=1"], "hooks": [own, ours]}, "web": {"env": ["B=1"]}},
        "0.3.0": {"web:log": {"hooks": [ours]}},
    }


APP = {"name": "app", "limits": {"cpu": 1, "memory": "64Mi", test_devices_granted.TTY: 1}}
LOG = {"name": "log", "limits": {"cpu": 1, "memory": "64Mi"}}
WITH_TTY = {
    **test_devices_granted.PROFILE,
    "workloads": [{"name": "web", "match": {"pod": "web"}, "containers": [APP, LOG]}],
}


def test_a_hook_is_said_once_while_a_device_of_the_container_is_gone(fake: node.Node) -> None:
    test_devices_granted.equip(fake)
    assert not runs.install(fake.host()).error
    test_devices_granted.roll_out(fake, WITH_TTY)
    test_devices_granted.unplug_tty(fake, 0)
    for dummy in range(3):
        fake.wait(10)
        runs.tick(fake.host())
    host = fake.host()
    runs.tick(host)
    assert state.GRANTS_SPEC not in host.writes
    ((only,),) = [rows for name, rows in hooks(fake).items() if name == "web:app"]
    assert only["path"] == LAUNCHER


@pytest.mark.parametrize(
    ("edits", "version"), [(None, ""), ("x", "0.3.0"), ({"hooks": 5}, "0.3.0"), ({"env": ["A=1"]}, "/../../x")]
)
def test_a_container_does_not_start_without_its_device(fake: node.Node, edits: object, version: str) -> None:
    test_devices_granted.equip(fake)
    assert not runs.install(fake.host()).error
    test_devices_granted.roll_out(fake, WITH_TTY)
    test_devices_granted.unplug_tty(fake, 0)
    if edits is None:
        fake.drop(state.GRANTS_SPEC)  # as at a boot
    else:  # by hand
        spec = json.loads(fake.get(state.GRANTS_SPEC))
        rows = [{**row, "containerEdits": edits} for row in spec["devices"]]
        fake.put(state.GRANTS_SPEC, json.dumps({**spec, "devices": rows, "cdiVersion": version}))
    runs.tick(fake.host())
    assert list(hooks(fake)) == ["web:log"]


def hook(fake: node.Node, *words: str, pid: object = 101) -> int:
    return container_hook.run(fake.host(), words, io.StringIO(json.dumps({"id": "x", "pid": pid})))


def test_the_hook_sets_what_it_is_told(fake: node.Node) -> None:
    app = start(fake, 1, "app")
    assert hook(fake, "cpuset.cpus=1", "cpu.max=max 100000", "memory.max=134217728", "oom_score_adj=-997") == 0
    assert limits(fake, app) == {**UNLIMITED, "cpuset.cpus": "1", "memory.max": "134217728"}
    assert fake.get("/proc/101/oom_score_adj").strip() == "-997"
    assert list(CONTAINER_HOOK) == main.CONTAINER_HOOK


@pytest.mark.parametrize(
    ("words", "pid", "said"),
    [
        (("cgroup.procs=1",), 101, "cgroup.procs: 1: is not a limit of a container"),
        (("../memory.max=1",), 101, "../memory.max: 1: is not a limit"),
        (("memory.max.x=1",), 101, "memory.max.x: 1: is not a limit"),
        (("cpuset_cpus=1",), 101, "cpuset_cpus: 1: is not a limit"),
        (("memory.max=1",), 0, "standard input: is not the state of a container"),
        (("memory.max=1",), "101", "standard input: is not the state of a container"),
        (("memory.max=1",), -1, "standard input: is not the state of a container"),
        (("memory.max=1",), 999, "/proc/999/cgroup: : is the control group of no container"),
        (("memory.max=1",), 7, "/proc/7/cgroup: /system.slice/x.service: is the control group of no container"),
        (("memory.max=1",), 8, "is the control group of no container"),
        (("memory.max=1",), 9, "is the control group of no container"),
        (("memory.high=1",), 101, "memory.high: 1: is not a limit"),
        (
            ("pids.max=5",),
            101,
            "pids.max: 5: cannot be set for the container of process 101: No such file or directory",
        ),
        (("cpu.weight=5",), 101, "cpu.weight: 5: cannot be set for the container of process 101: Is a directory"),
    ],
)
def test_the_hook_touches_nothing_else(fake: node.Node, words: tuple[str, ...], pid: object, said: str) -> None:
    app = start(fake, 1, "app")
    fake.drop(f"{app}/pids.max")
    fake.drop(f"{app}/cpu.weight")
    (fake.root / f"{app.removeprefix('/')}/cpu.weight").mkdir()
    fake.put("/proc/7/cgroup", "0::/system.slice/x.service\n")
    fake.put("/proc/8/cgroup", f"0::/../libpod-{1:064x}.scope\n")
    fake.put("/proc/9/cgroup", f"0::libpod-{1:064x}.scope\n")
    before = fake.fingerprint()
    with pytest.raises(CorralError) as refused:
        hook(fake, *words, pid=pid)
    assert said in str(refused.value)
    assert node.different(before, fake.fingerprint()) == []


@pytest.mark.parametrize("place", ["/sys/fs/cgroup", "/sys/fs/cgroup/machine.slice", SHARED])
def test_a_container_does_not_start_outside_the_slice_with_its_cpus(fake: node.Node, place: str) -> None:
    app = start(fake, 1, "app", place=place)
    with pytest.raises(CorralError, match="start it with --cgroup-parent, that of a Quadlet file with Slice= in"):
        hook(fake, "cpuset.cpus=5", "memory.max=4096")
    assert limits(fake, app) == UNLIMITED
    assert hook(fake, "memory.max=4096") == 0, "a container that shares CPUs"
    assert f"/{schema_types.EXCLUSIVE_PREFIX}" == container_hook.EXCLUSIVE


@pytest.mark.parametrize("word", ["pids.max=max", "cpu.max=max 100000", "memory.swap.max=max", "memory.swap.max=0"])
def test_no_limit_needs_no_file(fake: node.Node, word: str) -> None:
    app = start(fake, 1, "app")
    fake.drop(f"{app}/{word.partition('=')[0]}")
    assert hook(fake, word) == 0


def test_the_kernels_log_has_the_reason_why_a_container_does_not_start(fake: node.Node) -> None:
    app = start(fake, 1, "app")
    fake.drop(f"{app}/pids.max")
    fake.put("/dev/kmsg", "")
    with pytest.raises(CorralError):
        hook(fake, "pids.max=5")
    said = "pids.max: 5: cannot be set for the container of process 101: No such file or directory"
    assert fake.get("/dev/kmsg") == f"<3>corral: container --start: {said}\n"


@pytest.mark.parametrize("state_of_container", ["", "[]", "{}", "null", "7", '{"pid": null}', "[" * 100_000])
def test_what_is_no_state_of_a_container_is_refused(fake: node.Node, state_of_container: str) -> None:
    with pytest.raises(CorralError, match="standard input: is not the state of a container"):
        container_hook.run(fake.host(), ["memory.max=1"], io.StringIO(state_of_container))


@pytest.mark.parametrize("engine", ["crio-", "cri-containerd-", "docker-"])
def test_the_hook_knows_the_containers_of_other_engines(fake: node.Node, engine: str) -> None:
    group = f"/system.slice/{engine}{1:064x}.scope"
    fake.put("/proc/101/cgroup", f"0::{group}\n")
    fake.put(f"/sys/fs/cgroup{group}/memory.max", "max\n")
    assert hook(fake, "memory.max=4096") == 0
    assert fake.get(f"/sys/fs/cgroup{group}/memory.max").strip() == "4096"


@pytest.mark.parametrize("files", ["young", "steady"])
def test_a_tick_without_a_plan_sees_a_container_that_starts_and_a_limit_that_changes(
    kept: node.Node, files: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if files == "steady":
        monkeypatch.setattr(recorded_inputs, "STEADY_SECONDS", -3600)
    app = start(kept, 1, "app")
    for code in (2, 0):
        assert runs.tick(kept.host()) == code
        kept.time += 10
    assert test_quiet_tick.short(kept)
    kept.put(f"{app}/memory.max", "max\n")
    assert not test_quiet_tick.short(kept)
    kept.put(f"{app}/memory.max", f"{128 << 20}\n")
    assert test_quiet_tick.short(kept)
    kept.put("/proc/101/oom_score_adj", "0\n")
    assert not test_quiet_tick.short(kept)
    kept.put("/proc/101/oom_score_adj", "-997\n")
    assert test_quiet_tick.short(kept)
    start(kept, 2, "proxy", score=-997)
    assert not test_quiet_tick.short(kept)


def test_a_container_starts_on_a_kernel_without_accounting_of_swap(rolled: node.Node) -> None:
    app = start(rolled, 1, "app")
    rolled.drop(f"{app}/memory.swap.max")
    assert (
        hook(rolled, "memory.max=134217728", "memory.swap.max=0", "pids.max=50", "cpu.weight=39", "cpuset.cpus=5") == 0
    )
    (item,) = [one for one in items(rolled, POD) if one.property != "oom_score_adj"]
    assert (item.property, item.verdict, item.wanted) == ("memory.swap.max", "unchangeable", "0")
