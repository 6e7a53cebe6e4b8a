# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with a kubelet: its configuration changes, and it never stays down.

Each step rolls a profile out and looks at what systemd, the files, the kernel and the kubelet itself say. The kubelet is a stand-in
(kubelet_standin.py), or a real one with containerd, for which there are more steps, with pods. With names of steps as arguments it
takes those alone; the first that fails ends it.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import itertools
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import typing as t
import urllib.request

import leave_run
from cpu_list import cpus as numbers
from kubelet_node import (
    AWAY,
    BROKEN,
    BY_SYSTEMD,
    CONFIG,
    CPUSETS,
    DROPIN,
    EFFECTIVE,
    ENVIRONMENT,
    HOOK,
    HOOK_LOG,
    IS_V1,
    MANIFESTS,
    PODS,
    ROOT,
    STATE,
    UNIT,
    aside,
    base,
    cpus_of,
    entries,
    groups_of,
    has_started,
    is_real,
    pid,
    pods,
    put_pod,
    running_with,
)
from on_node import PATIENCE, expect, in_sync, read, run, run_steps, select_steps, tick, wait, without_timer, write

PROFILE = "/etc/corral/profile.json"
DUE = "/run/corral/kubelet-due"
TICK = ("/usr/bin/python3", "-I", "-S", "-B", "/usr/libexec/corral/corral", "reconcile", "--tick")
STOPPED = rf"^command systemctl stop\b.*\b{UNIT}$"  # in leave_run.py's words
RESERVED, MORE_RESERVED = "0-1", "0-2"
# The kubelet of OpenShift 1.36 does not start with the file that it wrote itself under strict-cpu-reservation.
OPTIONS = {"distribute-cpus-across-numa": True} if is_real() else {"strict-cpu-reservation": True}
STATIC = {"cpu_manager_policy": "static", "cpu_manager_policy_options": OPTIONS, "max_pods": 50}


def declare(kubelet: t.Optional[dict[str, t.Any]], reserved: str = RESERVED) -> None:
    """Apply the profile with this section (None: without it)."""
    code, said = tried(kubelet, reserved)
    expect(f"corral reconcile says {said!r}, and its code", code, 0)


def tried(kubelet: t.Optional[dict[str, t.Any]], reserved: str = RESERVED) -> tuple[int, str]:
    """Apply the profile with this section: the exit code, and what was said."""
    profile = json.loads(read(PROFILE))
    profile.pop("kubelet", None)
    profile["cpu"]["reserved"] = {"cpus": reserved}
    write(PROFILE, json.dumps({**profile, **({"kubelet": kubelet} if kubelet is not None else {})}))
    done = subprocess.run(["corral", "reconcile"], capture_output=True, text=True, check=False, timeout=600 * PATIENCE)
    return done.returncode, done.stdout + done.stderr


def from_none_to_static() -> None:
    """The policy changes: the state of the old one is set aside, and the kubelet runs."""
    old = read(STATE)
    before = pid()
    declare(STATIC)
    expect("another process", pid() not in (0, before), True)
    expect("set aside", [name.rpartition("-")[0] for name in aside()], ["cpu_manager_state.corral-policy"])
    expect("as it was", read(f"{ROOT}/{aside()[0]}"), old)
    config = running_with()
    expect("what it runs with", (config["cpuManagerPolicy"], config["maxPods"]), ("static", 50))
    expect("the kubelet's reserve", numbers(config["reservedSystemCPUs"]), numbers(RESERVED))
    expect("the CPUs of system.slice", numbers(read(f"{CPUSETS}/system.slice/{EFFECTIVE}")), numbers(RESERVED))
    expect("the file of others", read(CONFIG), base().strip())
    in_sync()


def nothing_new() -> None:
    """The same again restarts nothing, nor does another value that needs no other state reset it."""
    before = pid()
    declare(STATIC)
    expect("the same process", pid(), before)
    declare({**STATIC, "max_pods": 40})
    expect("another process", pid() != before, True)
    expect("nothing more was set aside", len(aside()), 1)
    expect("pods", running_with()["maxPods"], 40)


def a_failing_one() -> None:
    """A kubelet that ends after the change gets everything back, and its last words are in the error."""
    files = {path: read(path) for path in (DROPIN, STATE, CONFIG)}
    write(BROKEN, "")
    code, said = tried({"max_pods": 13, "cpu_manager_policy": "none"})
    os.remove(BROKEN)
    expect("the code", code, 1)
    expect(f"the kubelet's last words in {said!r}", "made to fail" in said, True)
    expect("the files", {path: read(path) for path in files}, files)
    expect("nothing more was set aside", len(aside()), 1)
    wait("it has read its files", has_started)
    expect("pods", running_with()["maxPods"], 40)
    declare({**STATIC, "max_pods": 40})
    in_sync()


@contextlib.contextmanager
def pod_with_its_own_cpu() -> t.Iterator[None]:
    """A pod that has a CPU of its own by the state file: a static one, or as the stand-in's file and control group say."""
    if is_real():
        put_pod("own", 1)
        wait("the pod runs on a CPU of its own", lambda: cpus_of("own") in entries().values(), 120)
        yield
        shutil.rmtree(MANIFESTS)
        os.mkdir(MANIFESTS)
        wait("the pod is gone", lambda: not pods(), 120)
        return
    state = {"policyName": "static", "defaultCpuSet": "", "entries": {"uid": {"main": ""}}, "checksum": 0}
    own, *shared = map(str, sorted(numbers(json.loads(read(STATE))["defaultCpuSet"])))
    state.update(defaultCpuSet=",".join(shared), entries={"uid": {"main": own}})
    run("systemctl", "stop", UNIT)
    write(STATE, json.dumps(state))
    group = f"{CPUSETS}/kubepods.slice/kubepods-poduid.slice/cri-containerd-{'0123456789abcdef' * 4}.scope"
    os.makedirs(group)
    run("systemctl", "start", UNIT)
    wait("it has read it", has_started)
    yield
    os.rmdir(group)


def the_hook() -> None:
    """With pods that run, another policy drains first; without a word about draining it is refused."""
    with pod_with_its_own_cpu():
        before = pid()
        code, said = tried({"cpu_manager_policy": "none"})
        expect(f"refused by {said!r}", (code, "kubelet.drain: the kubelet would not start with" in said), (1, True))
        expect("no hook", os.path.exists(HOOK_LOG), False)
        expect("the same process", pid(), before)
        declare({"cpu_manager_policy": "none", "drain": HOOK})
        expect("the hook", read(HOOK_LOG).split(), ["drain", "resume"])
        expect("set aside", len(aside()), 2)
        expect("what it runs with", running_with().get("cpuManagerPolicy") or "none", "none")
        if is_real():
            wait(
                "the pod is back, on all CPUs",
                lambda: cpus_of("own") == read(f"{CPUSETS}/{EFFECTIVE}"),
                120,
            )
    in_sync()


# With a real kubelet alone


def own_cpus(shared: str = "") -> dict[str, str]:
    """The CPUs of the pods with CPUs of their own, by the kernel, once they run; a shared pod is on none of them."""

    def found() -> dict[str, str]:
        return {name: cpus_of(name) for name in ("first", "second")}

    def apart() -> bool:
        one, two = (numbers(cpus) for cpus in found().values())
        others = numbers(cpus_of(shared)) if shared else {-1}
        return len(one) == 2 and len(two) == 1 and not one & two and bool(others) and not others & (one | two)

    wait("pods on CPUs of their own", apart, 180)
    wait("the state file says the same", lambda: sorted(entries().values()) == sorted(found().values()))
    return found()


def exclusive_pods() -> None:
    """Pods get CPUs of their own outside of the reserve, and the inspector, which reads the kernel, finds nothing wrong."""
    declare(STATIC | {"drain": HOOK})
    os.remove(HOOK_LOG) if os.path.exists(HOOK_LOG) else None
    put_pod("shared", None)
    put_pod("first", 2)
    put_pod("second", 1)
    taken = own_cpus("shared")
    expect(
        "none is reserved", [numbers(cpus) & numbers(RESERVED) for cpus in taken.values()], [frozenset(), frozenset()]
    )
    report = json.loads(run("corral", "kubelet", "--json"))
    expect("findings", report["findings"], [])
    in_sync()


def options_keep_pods() -> None:
    """Another option that the state allows: the kubelet starts again, no file goes, and no pod is touched."""
    before, first, taken = aside(), pid(), own_cpus()
    declare(STATIC | {"drain": HOOK, "cpu_manager_policy_options": {}})
    expect("another process", pid() not in (0, first), True)
    expect("set aside", aside(), before)
    expect("the hook", os.path.exists(HOOK_LOG), False)
    expect("the pods' CPUs", own_cpus(), taken)
    expect("restarts of containers", restarts(), {"shared": 0, "first": 0, "second": 0})
    in_sync()


def restarts() -> dict[str, int]:
    """How often each pod's container was started again."""
    return {name: pod["status"]["containerStatuses"][0]["restartCount"] for name, pod in pods().items()}


def another_reserve() -> None:
    """Another reserve with pods that run: drained, one file set aside, and the pods are back on CPUs outside of it."""
    before = aside()
    declare(STATIC | {"drain": HOOK}, MORE_RESERVED)
    expect("the hook", read(HOOK_LOG).split(), ["drain", "resume"])
    new = sorted(set(aside()) - set(before))
    expect("set aside", [name.rpartition("-")[0] for name in new], ["cpu_manager_state.corral-reserved"])
    taken = own_cpus("shared")
    expect(
        "none is reserved",
        [numbers(cpus) & numbers(MORE_RESERVED) for cpus in taken.values()],
        [frozenset(), frozenset()],
    )
    expect("the reserve", running_with()["reservedSystemCPUs"], MORE_RESERVED)
    in_sync()


def reserve_by_hand() -> None:
    """A reserve declared by hand with CPUs that a pod has to itself: a tick, which restarts no kubelet, keeps system services off them."""
    taken, before, first = own_cpus("shared"), read(PROFILE), pid()
    cpus = numbers(MORE_RESERVED) | numbers(taken["first"])
    profile = json.loads(before)
    profile["cpu"]["reserved"] = {"cpus": ",".join(map(str, sorted(cpus)))}
    write(PROFILE, json.dumps(profile))
    for dummy in range(2):
        said = tick()
        expect("system services", numbers(read(f"{CPUSETS}/system.slice/{EFFECTIVE}")), numbers(MORE_RESERVED))
    expect("the drift", [one["subject"] for one in said["items"]], ["reservedSystemCPUs"])
    expect("findings", json.loads(run("corral", "kubelet", "--json", code=2))["findings"], [])
    expect("the same process", pid(), first)
    expect("the pods' CPUs", own_cpus("shared"), taken)
    write(PROFILE, before)
    in_sync()


def failing_with_pods() -> None:
    """A kubelet that does not start after such a change: all is as before, and the pods run on CPUs of their own."""
    taken, before = own_cpus("shared"), aside()
    files = {path: read(path) for path in (DROPIN, STATE, CONFIG)}
    write(BROKEN, "")
    code, said = tried({"max_pods": 13, "cpu_manager_policy": "none", "drain": HOOK}, MORE_RESERVED)
    os.remove(BROKEN)
    expect(f"the kubelet's last words in {said!r}", (code, "made to fail" in said), (1, True))
    expect("the hook", read(HOOK_LOG).split(), ["drain", "resume"] * 2)
    expect("set aside", aside(), before)
    expect("the configuration", [read(path) for path in (DROPIN, CONFIG)], [files[path] for path in (DROPIN, CONFIG)])
    wait("it has started", has_started, 120)
    expect(
        "as many CPUs as before",
        [len(numbers(cpus)) for cpus in own_cpus("shared").values()],
        [len(numbers(one)) for one in taken.values()],
    )
    declare(STATIC | {"drain": HOOK}, MORE_RESERVED)
    in_sync()


def leaked() -> None:
    """A pod that goes while its kubelet is down leaves its assignment: it is found, with the pod and the CPUs."""
    uid = next(uid for uid, cpus in entries().items() if cpus == cpus_of("second"))
    cpus = entries()[uid]
    (group,) = glob.glob(f"{PODS}/**/*pod{uid}{'.slice' if BY_SYSTEMD else ''}", recursive=True)
    run("systemctl", "stop", UNIT)
    os.rename(f"{MANIFESTS}/second.json", f"{AWAY}/second.json")
    wait("its containers are gone", lambda: not kill_all(group))
    if BY_SYSTEMD:
        run("systemctl", "stop", os.path.basename(group))
    for one in trees_of(group):
        for folder, dummy_folders, dummy_files in os.walk(one, topdown=False):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(folder)
    wait("their control groups are gone", lambda: not trees_of(group))
    shutil.rmtree(f"{ROOT}/pods/{uid}")
    found = json.loads(run("corral", "kubelet", "--json", code=2))["findings"]
    expect(
        "leaked",
        [(one["kind"], one["subject"], one["cpus"]) for one in found if one["kind"] == "leaked"],
        [("leaked", uid, cpus)],
    )
    expect("without a kubelet", "stopped" in {one["kind"] for one in found}, True)
    run("systemctl", "start", UNIT)
    wait("it has started", has_started, 120)
    os.rename(f"{AWAY}/second.json", f"{MANIFESTS}/second.json")
    own_cpus("shared")


def kill_all(group: str) -> list[str]:
    """Kill the processes in a control group and in those below it, which the runtime may remove meanwhile; the processes that there were."""
    found: list[str] = []
    for path in glob.glob(f"{group}/**/cgroup.procs", recursive=True):
        with contextlib.suppress(OSError):
            found += read(path).split()
    for one in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(one), signal.SIGKILL)
    return found


def trees_of(group: str) -> list[str]:
    """A pod's control group where it is there: with cgroup v1 in the hierarchy of each controller."""
    below = os.path.relpath(group, CPUSETS)
    mounts = [line.split()[1] for line in read("/proc/mounts").splitlines() if line.split()[2] in ("cgroup", "cgroup2")]
    return [f"{mount}/{below}" for mount in mounts if os.path.isdir(f"{mount}/{below}")]


def mended_when_asked() -> None:
    """A shared container that somebody lets onto exclusive CPUs while no kubelet runs: found, and brought back when asked for."""
    taken, before = own_cpus("shared"), numbers(cpus_of("shared"))
    digits = pods()["shared"]["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    (place,) = groups_of(digits)
    run("systemctl", "stop", UNIT)
    if BY_SYSTEMD and not IS_V1:  # With cgroup v1 systemd has no cpusets.
        run("systemctl", "set-property", "--runtime", os.path.basename(place), "AllowedCPUs=0-7")
    else:
        write(f"{place}/cpuset.cpus", "0-7")
    found = json.loads(run("corral", "kubelet", "--json", code=2))["findings"]
    expect("kinds", {one["kind"] for one in found}, {"overlap", "stopped"})
    expect("untouched", numbers(read(f"{place}/{EFFECTIVE}")), frozenset(range(8)))
    found = json.loads(run("corral", "kubelet", "--mend-shared", "--json", code=2))["findings"]
    expect("kinds", {one["kind"] for one in found}, {"stopped"})
    expect("as before", numbers(read(f"{place}/{EFFECTIVE}")), before)
    run("systemctl", "daemon-reload")
    expect("after a daemon-reload", numbers(read(f"{place}/{EFFECTIVE}")), before)
    run("systemctl", "start", UNIT)
    wait("it has started", has_started, 120)
    expect("the others", own_cpus("shared"), taken)


def torn_and_other_cpus_at_boot() -> None:
    """A state file of CPUs that the node has no more, or one that is torn: the boot sets it aside, and the kubelet starts."""
    if is_real():
        shutil.rmtree(MANIFESTS)
        os.mkdir(MANIFESTS)
        wait("the pods are gone", lambda: not pods(), 120)
    else:
        declare(STATIC)
    for trouble, cause in ((lambda: write("/sys/devices/system/cpu/cpu7/online", "0"), "cpus"), (tear, "unreadable")):
        run("systemctl", "stop", UNIT)
        before = aside()
        trouble()
        run("systemctl", "restart", "corral-boot.service")
        run("systemctl", "start", UNIT)
        wait("it has started", has_started, 120)
        new = sorted(set(aside()) - set(before))
        expect("set aside", [name.rpartition("-")[0] for name in new], [f"cpu_manager_state.corral-{cause}"])
    write("/sys/devices/system/cpu/cpu7/online", "1")
    declare({"max_pods": 50, "drain": "none"})


def tear() -> None:
    """Half of the state file, as a power cut may leave it."""
    text = read(STATE)
    write(STATE, text[: len(text) // 2])


def a_flag_wins() -> None:
    """A flag in the environment of the unit wins, and drift names its file."""
    write(ENVIRONMENT, "KUBELET_EXTRA_ARGS=--max-pods=70\n")
    run("systemctl", "restart", UNIT)
    expect("the code", tried({"max_pods": 50})[0], 2)
    wait("it has started", has_started, 120)
    expect("what it runs with", running_with()["maxPods"], 70)
    said = run("corral", "drift", code=2)
    expect("named", f"the flag --max-pods in {ENVIRONMENT} wins over every file" in said, True)
    write(ENVIRONMENT, "KUBELET_EXTRA_ARGS=\n")
    run("systemctl", "restart", UNIT)
    in_sync()


def drift_by_hand() -> None:
    """A tick names a drop-in that is gone, and restarts nothing."""
    before = pid()
    os.remove(DROPIN)
    items = tick()["items"]
    expect("named", {item["subject"] for item in items if item["manager"] == "kubelet"} >= {"maxPods"}, True)
    expect("the same process", pid(), before)
    declare({"max_pods": 50})
    in_sync()


def killed() -> None:
    """A run that is killed while the kubelet is down: the next tick starts the kubelet, and the next run finishes."""
    profile = json.loads(read(PROFILE))
    write(PROFILE, json.dumps({**profile, "kubelet": {"max_pods": 30}}))
    said = (job := leave_run.begin("SIGKILL", STOPPED)).communicate()[0]
    expect(f"the code of the run, which said {said!r}", job.returncode, -signal.SIGKILL)
    expect("a kubelet, and a change within", (pid(), os.path.exists(DUE)), (0, True))
    run("systemctl", "start", "corral-reconcile.service", code=None)
    wait("it has read its files", has_started)
    expect("unfinished", os.path.exists(DUE), True)
    declare({"max_pods": 30})
    expect("finished", os.path.exists(DUE), False)
    wait("it has read its files again", has_started)
    expect("pods", running_with()["maxPods"], 30)
    in_sync()


def figures() -> None:
    """How long the kubelet is away for a change, beside a plain restart; a tick that finds all of it in sync, beside an empty Python."""
    declare({"max_pods": 60, "drain": "none"})
    values = itertools.cycle((61, 60))
    changes = {
        "a plain restart": lambda: run("systemctl", "restart", UNIT),
        "another value": lambda: declare({"max_pods": next(values), "drain": "none"}),
    }
    away = by_turns({name: functools.partial(seconds_away, change) for name, change in changes.items()})
    in_sync()
    empty = (*TICK[:3], "-c", "pass")
    commands = {"a tick with the section kubelet": TICK, "an empty Python": empty}
    with without_timer():  # A tick of the timer's does not go on from one of this.
        tick()
        cpu_of(TICK)
        ticks = by_turns({name: functools.partial(cpu_of, command) for name, command in commands.items()})
    for unit, rows in (("s from the last healthy answer to the next", away), ("s of CPU", ticks)):
        for name, found in rows.items():
            print(f"{name}: {statistics.median(found):.2f} ({min(found):.2f}–{max(found):.2f}) {unit}", flush=True)
    declare({"max_pods": 50})


TURNS = 5


def by_turns(works: dict[str, t.Callable[[], float]]) -> dict[str, list[float]]:
    """What each of them returns, one after the other in each turn."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for dummy in range(TURNS):
        for name, work in works.items():
            found[name].append(work())
    return found


def seconds_away(change: t.Callable[[], object]) -> float:
    """The seconds between two healthy answers of the kubelet around a change."""
    wait("it is healthy", is_healthy, 120)
    answers: list[tuple[float, bool]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            answers.append((time.monotonic(), is_healthy()))
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        change()
        wait("it is healthy again", lambda: is_healthy() and not all(healthy for dummy, healthy in list(answers)), 120)
        time.sleep(1)
    finally:
        over.set()
        thread.join()
    down = [at for at, (dummy, healthy) in enumerate(answers) if not healthy]
    after = next(when for when, healthy in answers[down[-1] :] if healthy)
    return after - answers[max(down[0] - 1, 0)][0]


def is_healthy() -> bool:
    """Whether the kubelet's own healthz says so."""
    try:
        with urllib.request.urlopen("http://127.0.0.1:10248/healthz", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def cpu_of(command: t.Sequence[str]) -> float:
    """The CPU time of a process and of those that it starts, in seconds; it has to succeed, as a tick does that finds nothing."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # As the timer starts a tick: one by hand may ask systemd more.
    subprocess.run(
        command, check=True, timeout=60 * PATIENCE, env={**os.environ, "TRIGGER_UNIT": "corral-reconcile.timer"}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def removed() -> None:
    """Without the section the kubelet has what it had."""
    declare(None)
    expect("the drop-in", os.path.exists(DROPIN), False)
    expect("the file of others", read(CONFIG), base().strip())
    expect("pods", running_with()["maxPods"], 110)
    in_sync()


STEPS = (from_none_to_static, nothing_new, a_failing_one, the_hook, a_flag_wins, drift_by_hand, killed)
WITH_PODS = (
    exclusive_pods,
    options_keep_pods,
    another_reserve,
    reserve_by_hand,
    failing_with_pods,
    mended_when_asked,
    leaked,
)


if __name__ == "__main__":
    of_real, measured = (WITH_PODS, (figures,)) if is_real() else ((), ())
    steps = (*STEPS, *of_real, torn_and_other_cpus_at_boot, *measured, removed)
    sys.exit(run_steps(select_steps(steps, sys.argv[1:])))
