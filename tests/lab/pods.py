# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod on a node: each container has its own CPUs, limits and devices from its first instruction on, whatever happens to it.

Containers say what they see themselves; what they have afterwards is the kernel's.
"""

from __future__ import annotations

import os
import re
import signal
import typing as t

from on_node import expect, in_sync, read, run, tick, wait, write
from workloads import CGROUP, QUADLET, cpus, grants, has_quadlet_pods, image, processes_in

SLICE = "corral_web.slice"
TTYS = "/dev/tty4?"
LIMITS = ("cpuset.cpus", "cpu.max", "cpu.weight", "memory.max", "memory.swap.max", "pids.max")
# The first thing that a container does: its CPUs, score, limits and devices, and its grant's variable.
SAYS = (
    "echo cpus $(grep Cpus_allowed_list /proc/self/status); echo score $(cat /proc/self/oom_score_adj);"
    f" for one in {' '.join(LIMITS)}; do echo $one $(cat /sys/fs/cgroup/$one); done;"
    f" for one in {TTYS}; do [ -c $one ] && echo device $one; done; echo files $CORRAL_FILES_LAB_EXAMPLE_TTY"
)
MIB = 1 << 20


def words(name: str) -> list[str]:
    """The command that starts a container of the pod with what it was granted."""
    device = f"--device=corral.node/grant=web:{name}"
    return ["podman", "run", "--pod=web", "--network=none", f"--name={name}", device, "busybox", "sh", "-c"]


def said(text: str) -> dict[str, str]:
    """What a container said, by its first word."""
    return {line.partition(" ")[0]: line.partition(" ")[2] for line in text.splitlines()}


def limits(cores: frozenset[int], memory: int, pids: str) -> dict[str, str]:
    """What the kernel shows of a container with so many CPUs of its own."""
    weight = {1: "39", 2: "79"}[len(cores)]
    values = (",".join(map(str, sorted(cores))), "max 100000", weight, str(memory * MIB), "0", pids)
    return dict(zip(LIMITS, values))


def shown(found: dict[str, str]) -> dict[str, str]:
    """The limits among what a container said, its CPUs one by one."""
    own = {name: found[name] for name in LIMITS}
    return {**own, "cpuset.cpus": ",".join(map(str, sorted(cpus(own["cpuset.cpus"]))))}


def group_of(pid: int) -> str:
    return CGROUP + read(f"/proc/{pid}/cgroup").strip().partition("::")[2]


def pid_of(name: str) -> int:
    return int(run("podman", "inspect", "--format={{.State.Pid}}", name))


def by_kernel(name: str) -> tuple[frozenset[int], dict[str, str]]:
    """The CPUs of a container's first process, and the limits of its control group."""
    pid = pid_of(name)
    group = group_of(pid)
    own = {one: read(f"{group}/{one}").strip() for one in LIMITS}
    return frozenset(os.sched_getaffinity(pid)), shown(own)


def pod() -> None:
    """Init container, sidecar and app: each has its own; a restart, a lost monitor and a tick leave it so."""
    image()
    run("corral", "admit", "web")
    own = cpus(grants()["web"]["cpus"])
    expect("CPUs of the pod", len(own), 2)
    infra = ("--infra-image=localhost/busybox", "--infra-command=sleep 1000")
    run("podman", "pod", "create", "--name=web", "--network=none", "--share=ipc", f"--cgroup-parent={SLICE}", *infra)
    loaded = said(run(*words("load"), SAYS))
    expect("the init container's limits", shown(loaded), limits(own, 64, "max"))
    expect("its CPUs", cpus(loaded["cpus"].split()[-1]), own)
    expect("its score", loaded["score"], "-997")
    expect("its devices", (loaded.get("device"), loaded["files"]), (None, ""))
    for name in ("proxy", "app"):
        run(*words(name)[:2], "-d", *words(name)[2:], f"{SAYS}; exec sleep 1000")
        wait(f"{name} runs", lambda name=name: "files" in said(run("podman", "logs", name)))
    first = {name: said(run("podman", "logs", name)) for name in ("proxy", "app")}
    held = {name: cpus(found["cpus"].split()[-1]) for name, found in first.items()}
    expect(
        "the CPUs that the init container hands on",
        (held["proxy"] | held["app"], held["proxy"] & held["app"]),
        (own, set()),
    )
    expect("the limits of proxy", shown(first["proxy"]), limits(held["proxy"], 32, "max"))
    expect("the limits of app", shown(first["app"]), limits(held["app"], 48, "20"))
    device = first["app"]["device"]
    expect("its device, by file and by variable", first["app"]["files"], device)
    expect("proxy has none", first["proxy"].get("device"), None)
    in_sync()
    refused_elsewhere()
    stays(held, device)
    started_past_corral(held)
    removed_meanwhile()


def stays(held: t.Mapping[str, frozenset[int]], device: str) -> None:
    """A restart in place, a monitor that is killed, limits that somebody changes."""
    wanted = {
        "proxy": (held["proxy"], limits(held["proxy"], 32, "max")),
        "app": (held["app"], limits(held["app"], 48, "20")),
    }
    for name, has in wanted.items():
        expect(f"{name} by the kernel", by_kernel(name), has)
    run("podman", "restart", "--time=0", "app")
    again = said("".join(run("podman", "logs", "app").rpartition("cpus ")[1:]))
    expect("app after its restart", (cpus(again["cpus"].split()[-1]), again["device"]), (held["app"], device))
    in_sync()
    monitors = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_monitor(pid, "app")]
    expect("monitors of app", len(monitors), 1)
    os.kill(monitors[0], signal.SIGKILL)
    expect("app without its monitor", by_kernel("app"), wanted["app"])
    in_sync()
    group = group_of(pid_of("proxy"))
    for file, text in (("memory.max", "max"), ("cpuset.cpus", ",".join(map(str, held["app"])))):
        with open(f"{group}/{file}", "w", encoding="ascii") as limit:
            limit.write(text)
    tick()
    expect("proxy after a tick", by_kernel("proxy"), wanted["proxy"])


def is_monitor(pid: int, container: str) -> bool:
    try:
        found = read(f"/proc/{pid}/cmdline").split("\0")
    except OSError:
        return False
    return found[0].endswith("conmon") and any(pair == ("-n", container) for pair in zip(found, found[1:]))


def refused_elsewhere() -> None:
    """In another slice than the pod's a container with the device of its grant does not start; the kernel's log says why."""
    device = "--device=corral.node/grant=web:app"
    found = run("podman", "run", "--network=none", "--name=stray", device, "busybox", "echo", "it started", code=None)
    run("podman", "rm", "-f", "stray", code=None)
    expect("a container in another slice", "it started" in found, False)
    logged = [line for line in run("dmesg").splitlines() if "corral: container --start" in line]
    expect("the reason", any("not in the slice that has them" in line for line in logged), True)
    in_sync()


def started_past_corral(held: t.Mapping[str, frozenset[int]]) -> None:
    """A container that was started without its device has its limits after a tick."""
    run("podman", "kill", "proxy")
    run("podman", "rm", "-f", "proxy")
    run("podman", "run", "-d", "--pod=web", "--network=none", "--name=proxy", "busybox", "sleep", "1000")
    wait("proxy runs", lambda: bool(pid_of("proxy")))
    tick()
    expect("proxy", by_kernel("proxy"), (held["proxy"], limits(held["proxy"], 32, "max")))


def is_removed() -> bool:
    """Remove the pod. Podman 5 fails at the container that has lost its monitor, and again removes it."""
    run("podman", "pod", "rm", "-f", "web", code=None)
    return "web" not in run("podman", "pod", "ps", "--format={{.Name}}").split()


def removed_meanwhile() -> None:
    """The pod goes while Corral is down; see pod_has_ended."""
    run("systemctl", "stop", "corral-reconcile.timer")
    run("podman", "pod", "kill", "web", code=None)
    wait("the pod is gone", is_removed)
    wait("nothing runs in its slice", lambda: not processes_in(SLICE))
    run("systemctl", "start", "corral-reconcile.timer")


# As docs/workloads.md has them. systemd would expand the variables of a command here.
POD_FILE = """[Pod]
PodName=web
Network=none
PodmanArgs=--share=+pid --infra-image=localhost/busybox --infra-command="sleep 1000"
[Service]
ExecStartPre=corral admit web
"""
CONTAINER_FILE = """[Container]
Pod=web.pod
ContainerName={name}
Image=localhost/busybox:latest
AddDevice=corral.node/grant=web:{name}
Volume=/run/quadlet:/out
Exec=sh /out/says
[Service]
Slice=corral_web.slice
"""


def quadlet_pod() -> None:
    """A pod of Quadlet's services: each container has its own from its first instruction, and after a reload of systemd."""
    if not has_quadlet_pods():
        return
    image()
    os.makedirs("/run/quadlet", exist_ok=True)
    write("/run/quadlet/says", f"{SAYS}; exec sleep 1000")
    texts = {
        "web.pod": POD_FILE,
        **{f"{name}.container": CONTAINER_FILE.format(name=name) for name in ("proxy", "app")},
    }
    for file, text in texts.items():
        write(f"{QUADLET}/{file}", text)
    run("systemctl", "daemon-reload")
    run("systemctl", "start", "web-pod", "proxy", "app")
    first = {}
    for name in ("proxy", "app"):
        wait(f"{name} runs", lambda name=name: "files" in said(run("podman", "logs", name)))
        first[name] = said(run("podman", "logs", name))
    own = cpus(grants()["web"]["cpus"])
    held = {name: cpus(found["cpus"].split()[-1]) for name, found in first.items()}
    expect("their CPUs", (held["proxy"] | held["app"], held["proxy"] & held["app"]), (own, set()))
    wanted = {"proxy": limits(held["proxy"], 32, "max"), "app": limits(held["app"], 48, "20")}
    expect("their limits", {name: shown(found) for name, found in first.items()}, wanted)
    expect("their scores", {found["score"] for found in first.values()}, {"-997"})
    expect("the device of app", (first["app"]["device"], first["proxy"].get("device")), (first["app"]["files"], None))
    groups = {name: group_of(pid_of(name)).rpartition("/libpod-payload-")[0] for name in wanted}
    expect("their control groups", groups, {name: f"{CGROUP}/{SLICE}/{name}.service" for name in wanted})
    expect("PID namespaces", len({os.readlink(f"/proc/{pid_of(name)}/ns/pid") for name in wanted}), 1)
    run("systemctl", "daemon-reload")
    expect(
        "by the kernel",
        {name: by_kernel(name) for name in wanted},
        {name: (held[name], wanted[name]) for name in wanted},
    )
    in_sync()
    run("systemctl", "stop", "web-pod", "proxy", "app")
    for file in texts:
        os.remove(f"{QUADLET}/{file}")
    run("systemctl", "daemon-reload")
    run("systemctl", "reset-failed", code=None)  # what a signal ended
    in_sync()


def pod_has_ended() -> None:
    """The grant of the pod that went while Corral was down has ended, and its hooks are gone.

    What is admitted by hand has two minutes to start, and so its grant lasts that long: other steps come in between.
    """
    wait("the grant has ended", lambda: "web" not in (tick() and grants()), seconds=180, pause=5)
    in_sync()
    path = "/run/cdi/corral.node-grant.json"  # it may have other workloads' devices
    expect("its hooks", re.findall(r"web:[a-z]+", read(path) if os.path.exists(path) else ""), [])
