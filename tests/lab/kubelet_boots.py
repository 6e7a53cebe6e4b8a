# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with a kubelet that reboots, and whose power is cut within a change of the kubelet.

``declare`` gives the node hugepages, and the kubelet static policies; ``after_reboot`` sees what the kubelet found at its start.
``hold MOMENT`` begins a change with another reserve and other hugepages, and leaves the run stopped at that moment, for the power to go;
``after_cut`` sees that the kubelet runs with what it had or with what was declared, and that one more run finishes the change.
``before_reboot`` keeps the agent's ticks away until the next one by hand; ``look`` is run by kubelet.service itself, before each start of the kubelet.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import sys
import typing as t

import leave_run
from cpu_list import cpus as numbers
from kubelet_change import DUE, PROFILE, STOPPED, own_cpus
from kubelet_node import (
    CGROUPS,
    CPUSETS,
    DROPIN,
    EFFECTIVE,
    HOOK,
    IS_V1,
    MANIFESTS,
    ROOT,
    STATE,
    UNIT,
    aside,
    container_group,
    groups_of,
    has_started,
    is_real,
    pid,
    pods,
    put_pod,
    running_with,
)
from on_node import LOCK, SERVICE, expect, in_sync, read, run, run_step, tick, wait, without_timer, write

MEMORY_STATE = f"{ROOT}/memory_manager_state"
LOOK = "/etc/systemd/system/kubelet.service.d/90-look.conf"
STARTS = "/root/kubelet-starts"  # a line for each start of the kubelet
KEPT = "/root/kubelet-kept.json"
MOUNT = "/dev/hugepages-pods"
SYSTEM = f"{CPUSETS}/system.slice"
PAGE = 2 << 20
# Reserved CPUs, and pages of each NUMA node: those of before, and those of a change. They are another one's in turn.
VARIANTS = (("0-1", (24, 40)), ("0-2", (32, 36)))


def profile(variant: int) -> dict[str, t.Any]:
    """The profile that is declared."""
    reserved, pages = VARIANTS[variant]
    kubelet = {
        "cpu_manager_policy": "static",
        # The state of another reserve is one that the stand-in refuses then, though it has no pods (kubelet_change.py's OPTIONS).
        "cpu_manager_policy_options": {} if is_real() else {"strict-cpu-reservation": True},
        "memory_manager_policy": "static",
        "system_reserved": {"memory": "256Mi"},
        "max_pods": 50,
        "drain": HOOK,
    }
    hugepages = [{"size": "2Mi", "count": count, "node": node} for node, count in enumerate(pages)]
    mounts = [{"path": MOUNT, "pagesize": "2Mi", "mode": "0770"}]
    return {
        **json.loads(read(PROFILE)),
        "cpu": {"reserved": {"cpus": reserved}},
        "memory": {"hugepages": hugepages, "mounts": mounts},
        "kubelet": kubelet,
    }


def put(text: str) -> None:
    """Declare a profile, on the disk before anything acts on it."""
    write(f"{PROFILE}.new", text)
    os.sync()
    os.rename(f"{PROFILE}.new", PROFILE)
    os.sync()


def reserve(config: dict[str, t.Any]) -> frozenset[int]:
    return numbers(config["reservedSystemCPUs"])


# What there is


def pools() -> list[int]:
    """The pages of each NUMA node, by the kernel."""
    found = sorted(glob.glob("/sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages"))
    return [int(read(path)) for path in found]


def mounted() -> bool:
    """Whether the pages can be had by files."""
    lines = [line.split() for line in read("/proc/mounts").splitlines()]
    return any(words[1:3] == [MOUNT, "hugetlbfs"] and "pagesize=2M" in words[3] for words in lines)


def counted() -> list[int]:
    """The pages of each NUMA node that the kubelet has counted, by its memory manager's state."""
    nodes = json.loads(read(MEMORY_STATE))["machineState"]
    return [nodes[node]["memoryMap"]["hugepages-2Mi"]["total"] // PAGE for node in sorted(nodes)]


def look() -> None:
    """Write down what the kubelet is about to find, and whether a tick of the agent has been before."""
    ticks = run("systemctl", "show", "--value", "--property=ExecMainStartTimestampMonotonic", SERVICE)
    row = {
        "boot": read("/proc/sys/kernel/random/boot_id"),
        "pools": pools(),
        "mounted": mounted(),
        "system": read(f"{SYSTEM}/{EFFECTIVE}") if os.path.exists(f"{SYSTEM}/{EFFECTIVE}") else "",
        "ticked": ticks.strip() != "0",
    }
    with open(STARTS, "a", encoding="utf-8") as file:
        print(json.dumps(row), file=file)
        file.flush()
        os.fsync(file.fileno())  # The power may go before the next one is written.


def starts() -> list[dict[str, t.Any]]:
    """What the kubelet found at each of its starts since the node booted."""
    boot = read("/proc/sys/kernel/random/boot_id")
    return [row for row in map(json.loads, read(STARTS).splitlines()) if row["boot"] == boot]


def held_to(name: str) -> dict[str, str]:
    """What the kernel holds a pod to: the NUMA nodes of its container, and its bytes of hugepages."""
    digits = pods()[name]["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    (group,) = groups_of(digits)
    pod = os.path.relpath(os.path.dirname(group), CPUSETS)
    pages = f"{CGROUPS}/hugetlb/{pod}/hugetlb.2MB.limit_in_bytes" if IS_V1 else f"{CGROUPS}/{pod}/hugetlb.2MB.max"
    return {"mems": read(f"{group}/cpuset.mems"), "pages": read(pages)}


def pods_run() -> dict[str, str]:
    """The CPUs of the pods once they run on those of their own, outside of the reserve."""
    taken = own_cpus("shared")
    held = reserve(running_with())
    expect("reserved CPUs of pods", [numbers(cpus) & held for cpus in taken.values()], [frozenset(), frozenset()])
    for name in taken:
        found = held_to(name)
        expect(f"{name} is on one NUMA node: {found}", found["mems"] in ("0", "1"), True)
        expect(f"{name}'s hugepages", int(found["pages"]), 4 * PAGE)
    return taken


def keep() -> None:
    """Remember what has to be there after a reboot."""
    files = {path: read(path) for path in (DROPIN, STATE, *([MEMORY_STATE] if is_real() else []))}
    own = own_cpus("shared") if is_real() else {}
    write(KEPT, json.dumps({"files": files, "aside": aside(), "own": own, "pids": pid()}))
    os.sync()


# Steps


def declare() -> None:
    """Hugepages, a mount of them, and static policies: the kubelet starts once they are there, and pods get of them."""
    os.makedirs(os.path.dirname(LOOK), exist_ok=True)
    write(LOOK, f"[Service]\nExecStartPre=/usr/bin/python3 {os.path.abspath(__file__)} look\n")
    run("systemctl", "daemon-reload")
    put(json.dumps(profile(0)))
    run("corral", "reconcile", timeout=600)
    wait("it has started", has_started, 120)
    as_declared(0)
    if is_real():
        for name, count in (("shared", None), ("first", 2), ("second", 1)):
            put_pod(name, count, hugepages="8Mi" if count else "")
        pods_run()
    in_sync()
    keep()


def as_declared(variant: int) -> None:
    """The kernel and the kubelet have what is declared, and the kubelet found it there at its last start."""
    reserved, pages = VARIANTS[variant]
    expect("pools", pools(), list(pages))
    expect("the mount", mounted(), True)
    expect("the reserve", reserve(running_with()), numbers(reserved))
    last = starts()[-1]
    expect("what the kubelet found", (last["pools"], last["mounted"]), (list(pages), True))
    if is_real():
        wait("the kubelet has counted them", lambda: os.path.exists(MEMORY_STATE) and counted() == list(pages))


def before_reboot() -> None:
    """No tick comes before the kubelet after the boot: what is there then, corral-boot.service has made. The next tick enables them again."""
    agent = ("corral-reconcile.timer", "corral-reconcile.path")
    # A tick that began before ends without a word to them while this holds the lock.
    with open(LOCK, encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run("systemctl", "disable", "--quiet", "--now", *agent)
        run("systemctl", "stop", SERVICE)
    os.sync()


def after_reboot() -> None:
    """All of it was there before the kubelet began, it took its state files, and pods are back on the CPUs that they had."""
    wait("it has started", has_started, 180)
    kept = json.loads(read(KEPT))
    (found,) = starts()
    print(f"  what the kubelet found: {found}")
    expect("a tick before the kubelet", found["ticked"], False)
    expect("the CPUs of system.slice", numbers(found["system"]), numbers(VARIANTS[0][0]))
    as_declared(0)
    expect("set aside", aside(), kept["aside"])
    if is_real():
        expect("pods' CPUs", pods_run(), kept["own"])
        expect("findings", json.loads(run("corral", "kubelet", "--json"))["findings"], [])
    expect("the drop-in", read(DROPIN), kept["files"][DROPIN])
    expect("starts of the kubelet", len(starts()), 1)
    in_sync()


def moments() -> dict[str, str]:
    """The act before each moment, in leave_run.py's words. Without pods nothing is drained: then the change has begun."""
    return {
        "drained": rf"^command systemd-run\b.*{HOOK} drain$" if is_real() else rf"^os.rename {DUE}$",
        "stopped": STOPPED,
        # Which of its two files the kubelet would refuse depends on the CPUs that pods happen to have.
        "aside": rf"^os.remove ({STATE}|{MEMORY_STATE})$",
        "written": rf"^os.rename {DROPIN}$",
        "started": rf"^command systemctl start\b.*\b{UNIT}$",
    }


def hold(moment: str) -> None:
    """Begin a change, and stop its run at a moment."""
    variant = now_declared()
    write(KEPT, json.dumps({"variant": variant, "moment": moment}))
    put(json.dumps(profile(1 - variant)))
    job = leave_run.begin("SIGSTOP", moments()[moment])
    dummy, status = os.waitpid(job.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        raise AssertionError(f"the run ended before the moment {moment}: {job.communicate()[0]}")
    print(f"  held: {there()}", flush=True)
    expect(f"the run is within the change at {moment}", os.path.exists(DUE), True)
    expect("the kubelet is down", pid() == 0, moment in ("stopped", "aside", "written"))


def there() -> dict[str, t.Any]:
    """What a change has got to, in short."""
    return {"aside": len(aside()), "pools": pools(), "kubelet": pid() != 0, "state": os.path.exists(STATE)}


def now_declared() -> int:
    """The variant that the declared profile is."""
    held = json.loads(read(PROFILE))["cpu"]["reserved"]["cpus"]
    return [reserved for reserved, dummy in VARIANTS].index(held)


def after_cut() -> None:
    """The kubelet runs with what it had or with what is declared, what differs is named, and a run finishes the change."""
    kept = json.loads(read(KEPT))
    wait("it has started", has_started, 180)
    held = [numbers(reserved) for reserved, dummy in VARIANTS].index(reserve(running_with()))
    print(f"  {kept['moment']}: the kubelet has {'what was declared' if held != kept['variant'] else 'what it had'}")
    print(f"  {there()}, starts {len(starts())}: {starts()[-1]}")
    tick()  # It takes up what is declared, but for what would need another start of the kubelet.
    services = numbers(read(f"{SYSTEM}/{EFFECTIVE}"))
    expect(
        f"system services, on {sorted(services)}, keep to the kubelet's reserve",
        services - numbers(VARIANTS[held][0]),
        set(),
    )
    if is_real():
        expect("the kubelet has counted the pools that there are", counted(), pools())
    expect("the pools", pools() in [list(pages) for dummy, pages in VARIANTS], True)
    report = json.loads(run("corral", "kubelet", "--json", code=None))
    print(f"  drift: {[(one['subject'], one['actual'], one['wanted'], one['reason']) for one in report['drift']]}")
    print(f"  findings: {report['findings']}", flush=True)
    expect("files that the kubelet would not start with", [one for one in report["files"] if one["refusal"]], [])
    expect("starts of the kubelet", len(starts()), 1)
    run("corral", "reconcile", timeout=600)
    wait("it has started", has_started, 120)
    as_declared(1 - kept["variant"])
    if is_real():
        pods_run()
        expect("where the manifests are", sorted(os.listdir(MANIFESTS)), ["first.json", "second.json", "shared.json"])
    expect("unfinished", os.path.exists(DUE), False)
    in_sync()
    os.sync()


def removed() -> None:
    """The kubelet and the pools are as they were before all of this, once no pod needs them."""
    if is_real():
        for name in os.listdir(MANIFESTS):
            os.remove(f"{MANIFESTS}/{name}")
        wait("the pods are gone", lambda: not pods() and not glob.glob(container_group("*"), recursive=True), 120)
    held = json.loads(read(PROFILE))
    put(json.dumps({key: value for key, value in held.items() if key not in ("kubelet", "memory")}))
    run("corral", "reconcile", timeout=600)
    expect("pools", pools(), [0, 0])
    expect("the drop-in", os.path.exists(DROPIN), False)
    wait("it has started", has_started, 120)
    config = running_with()
    expect("what it runs with", (config["maxPods"], config.get("reservedSystemCPUs") or ""), (110, ""))
    in_sync()


def main(words: list[str]) -> int:
    """Run the step that is named first, with the words after it."""
    if words in (["look"], ["before_reboot"]):
        {"look": look, "before_reboot": before_reboot}[words[0]]()
        return 0
    steps = {one.__name__: one for one in (declare, after_reboot, hold, after_cut, removed)}

    def step() -> None:
        steps[words[0]](*words[1:])

    step.__name__ = "_".join(words)
    with without_timer():
        return 0 if run_step(step) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
