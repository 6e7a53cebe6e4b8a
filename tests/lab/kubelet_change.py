# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with a kubelet, which is a stand-in (kubelet_standin.py): its configuration changes, and it never stays down.

Each step rolls a profile out and looks at what systemd, the files and the kubelet itself say. With names of steps as arguments it takes
those alone; the first that fails ends it. "prepare" makes the unit, whose files are those of kubeadm's package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t

from on_node import PATIENCE, expect, in_sync, read, run, run_step, select_steps, tick, wait, without_timer, write

PROFILE = "/etc/corral/profile.json"
ROOT, DROPINS = "/var/lib/kubelet", "/etc/kubernetes/kubelet.conf.d"
CONFIG, STATE, DROPIN = f"{ROOT}/config.yaml", f"{ROOT}/cpu_manager_state", f"{DROPINS}/20-corral.conf"
UNIT = "kubelet.service"
UNIT_FILE = "/etc/systemd/system/kubelet.service"
ENVIRONMENT = "/etc/default/kubelet"
BROKEN = "/root/kubelet-broken"
DUE = "/run/corral/kubelet-due"
BASE = """\
# made by hand
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration

# so many
maxPods: 110
"""
STATIC = {
    "cpu_manager_policy": "static",
    "cpu_manager_policy_options": {"strict-cpu-reservation": True},
    "max_pods": 50,
}
HOOK = """#!/usr/bin/python3
import sys
with open("/root/hook", "a") as file:
    print(sys.argv[1], file=file)
"""


def prepare() -> None:
    """The stand-in and its unit; it runs."""
    with open("/root/lab/kubelet_standin.py", encoding="utf-8") as file:
        write("/usr/local/bin/kubelet", f"#!/usr/bin/python3\n{file.read()}")
    os.chmod("/usr/local/bin/kubelet", 0o755)
    for folder in (ROOT, DROPINS):
        os.makedirs(folder, exist_ok=True)
    write(CONFIG, BASE)
    write(ENVIRONMENT, "KUBELET_EXTRA_ARGS=\n")
    write("/usr/local/sbin/drainer", HOOK)
    os.chmod("/usr/local/sbin/drainer", 0o755)
    words = f"--config={CONFIG} --config-dir={DROPINS} $KUBELET_EXTRA_ARGS"
    service = (
        f"EnvironmentFile=-{ENVIRONMENT}\nExecStart=/usr/local/bin/kubelet {words}\nRestart=always\nRestartSec=10\n"
    )
    write(UNIT_FILE, f"[Service]\n{service}[Install]\nWantedBy=multi-user.target\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--now", UNIT)
    wait("it has a state", lambda: os.path.exists(STATE))


def declare(kubelet: t.Optional[dict[str, t.Any]]) -> None:
    """Apply the profile with this section (None: without it)."""
    code, said = tried(kubelet)
    expect(f"corral reconcile says {said!r}, and its code", code, 0)


def tried(kubelet: t.Optional[dict[str, t.Any]]) -> tuple[int, str]:
    """Apply the profile with this section: the exit code, and what was said."""
    profile = json.loads(read(PROFILE))
    profile.pop("kubelet", None)
    write(PROFILE, json.dumps({**profile, **({"kubelet": kubelet} if kubelet is not None else {})}))
    done = subprocess.run(["corral", "reconcile"], capture_output=True, text=True, check=False, timeout=600 * PATIENCE)
    return done.returncode, done.stdout + done.stderr


def pid() -> int:
    """The kubelet's process."""
    return int(run("systemctl", "show", "--value", "--property=MainPID", UNIT))


def aside() -> list[str]:
    """What was set aside."""
    return sorted(name for name in os.listdir(ROOT) if ".corral-" in name)


def has_started() -> bool:
    """Whether the kubelet that runs now has read its files."""
    return bool(pid()) and "started: " in run("journalctl", "--output=cat", f"_PID={pid()}", f"--unit={UNIT}")


def running_with() -> dict[str, t.Any]:
    """The configuration with which the kubelet that runs now started, by its own log."""
    lines = run("journalctl", "--output=cat", f"_PID={pid()}", f"--unit={UNIT}").splitlines()
    found = [line.partition("started: ")[2] for line in lines if line.startswith("started: ")]
    return t.cast("dict[str, t.Any]", json.loads(found[-1]))


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
    reserved = json.loads(read("/run/corral/pools.json"))["reserved"]
    expect("the reserved pool", config["reservedSystemCPUs"], reserved)
    expect("the file of others", read(CONFIG), BASE.strip())
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


def the_hook() -> None:
    """With pods that run, another reserve drains first; without a word about draining it is refused."""
    state = {"policyName": "static", "defaultCpuSet": "", "entries": {"uid": {"main": ""}}, "checksum": 0}
    shared = json.loads(read(STATE))["defaultCpuSet"].split(",")
    state.update(defaultCpuSet=",".join(shared[1:]), entries={"uid": {"main": shared[0]}})
    run("systemctl", "stop", UNIT)
    write(STATE, json.dumps(state))
    group = f"/sys/fs/cgroup/kubepods.slice/kubepods-poduid.slice/cri-containerd-{'0123456789abcdef' * 4}.scope"
    os.makedirs(group)
    run("systemctl", "start", UNIT)
    wait("it has read it", has_started)
    code, said = tried({"cpu_manager_policy": "none"})
    expect(f"refused by {said!r}", (code, "kubelet.drain: the kubelet would not start with" in said), (1, True))
    expect("no hook", os.path.exists("/root/hook"), False)
    declare({"cpu_manager_policy": "none", "drain": "/usr/local/sbin/drainer"})
    expect("the hook", read("/root/hook").split(), ["drain", "resume"])
    expect("set aside", len(aside()), 2)
    os.rmdir(group)
    in_sync()


def a_flag_wins() -> None:
    """A flag in the environment of the unit wins, and drift names its file."""
    write(ENVIRONMENT, "KUBELET_EXTRA_ARGS=--max-pods=70\n")
    run("systemctl", "restart", UNIT)
    expect("the code", tried({"max_pods": 50})[0], 2)
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
    job = subprocess.Popen(["corral", "reconcile"])
    wait("the kubelet is stopped", lambda: os.path.exists(DUE) and pid() == 0, pause=0.01)
    job.kill()
    job.wait()
    run("systemctl", "start", "corral-reconcile.service", code=None)
    wait("it has read its files", has_started)
    expect("unfinished", os.path.exists(DUE), True)
    declare({"max_pods": 30})
    expect("finished", os.path.exists(DUE), False)
    wait("it has read its files again", has_started)
    expect("pods", running_with()["maxPods"], 30)
    in_sync()


def removed() -> None:
    """Without the section the kubelet has what it had."""
    declare(None)
    expect("the drop-in", os.path.exists(DROPIN), False)
    expect("the file of others", read(CONFIG), BASE.strip())
    expect("pods", running_with()["maxPods"], 110)
    in_sync()


STEPS = (from_none_to_static, nothing_new, a_failing_one, the_hook, a_flag_wins, drift_by_hand, killed, removed)


def main(names: list[str]) -> int:
    if names == ["prepare"]:
        prepare()
        return 0
    with without_timer():
        return 0 if all(run_step(step) for step in select_steps(STEPS, names)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
