# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the kubelet and its unit on a fake node: the files that it reads at its start, and those that it refuses.

It merges --config with the drop-ins of --config-dir, makes a state file where there is none, and refuses a state file of another policy, or
with other reserved CPUs, as Kubernetes 1.36 does. Restart=always starts a kubelet that ended again; it then ends again.
"""

from __future__ import annotations

import json
import shutil
import time
import typing as t

import yaml
from _core.host.command import Command
from fake_systemd import Cgroup

if t.TYPE_CHECKING:
    from node import Node

UNIT = "kubelet.service"
PLACE = f"system.slice/{UNIT}"
CONFIG, DROPINS, ROOT = "/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet.conf.d", "/var/lib/kubelet"
HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
BASE = """\
# made by kubeadm
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false # nobody
kind: KubeletConfiguration

# how many
maxPods: 110
"""
THRESHOLDS = {
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
}
STRICT_SINCE = 32  # 1.32
DONE = Command(0, "", "")
API = ("api.example", 6443)
KUBECONFIG = "/etc/kubernetes/kubelet.conf"
KUBECONFIG_TEXT = """\
current-context: it
contexts: [{name: it, context: {cluster: it, user: it}}]
clusters: [{name: it, cluster: {server: "https://api.example:6443"}}]
users: [{name: it, user: {client-certificate: /it.pem, client-key: /it.pem}}]
"""


class FakeKubelet:
    """A kubelet of this version. ``broken``: it refuses every configuration that differs from this one."""

    def __init__(self, version: str = "v1.36.2") -> None:
        self.version = version
        self.place = PLACE
        self.pid = 0
        self.starts = 0
        self.log: list[str] = []
        self.config: dict[str, t.Any] = {}
        self.broken: dict[str, t.Any] | None = None
        self.is_checked_first = False  # by an ExecStartPre= of its unit: the start itself fails
        self.hooks: list[tuple[str, ...]] = []
        self.failing: set[tuple[str, ...]] = set()  # hooks
        self.acts: list[str] = []
        self.api: t.Callable[[str], tuple[int, str]] | None = None  # the API server of its kubeconfig, asked for a path

    def answer(self, address: str, port: int, path: str) -> tuple[int, str]:
        """The answer of its healthz, or of its API server."""
        if self.api is not None and (address, port) == API:
            return self.api(path)
        ours = (address, port, path) == ("127.0.0.1", 10248, "/healthz")
        return (200, "ok") if self.pid and ours else (0, "Connection refused")

    def command(self, node: Node, argv: t.Sequence[str]) -> Command | None:
        """Its part of the machine's commands; None for others."""
        if argv[0] == "journalctl":
            return Command(0, "\n".join(self.log) + "\n", "")
        if argv[-1] == "--version":
            return Command(0, f"Kubernetes {self.version}\n", "")
        if argv[-1] in ("drain", "resume"):
            self.hooks.append(tuple(argv))
            self.acts.append(argv[-1])
            return Command(1, "", "no answer from the API server") if tuple(argv) in self.failing else DONE
        if argv[0] != "systemctl" or UNIT not in argv:
            return None
        if argv[1] == "is-active":
            return Command(0 if self.pid else 3, "active\n" if self.pid else "inactive\n", "")
        self.acts.append(argv[1])
        (self.start if argv[1] == "start" else self.stop)(node)
        if argv[1] == "start" and not self.pid and self.is_checked_first:
            return Command(
                1, "", "Job for kubelet.service failed because the control process exited with error code.\n"
            )
        return DONE

    def start(self, node: Node) -> None:
        """systemctl start."""
        if self.pid:
            return
        self.starts += 1
        try:
            config = self.read(node)
            self.check(node, config)
        except (ValueError, OSError) as error:
            self.log.append(f"E1125 kubelet ended: {error}")
            return
        self.config = config
        node.started += 1
        self.pid = node.started
        began = (time.time() - node.time + node.up) * 100
        words = node.get("/usr/lib/systemd/system/kubelet.service").partition("ExecStart=")[2].splitlines()[0].split()
        node.put(f"/proc/{self.pid}/comm", "kubelet\n")
        node.put(f"/proc/{self.pid}/cmdline", "\0".join([*words, ""]))
        node.put(f"/proc/{self.pid}/stat", f"{self.pid} (kubelet) S {'0 ' * 18}{int(began)} 0")
        group = node.systemd.cgroups[self.place] = Cgroup()
        group.tasks = [self.pid]
        node.systemd.sync()

    def stop(self, node: Node) -> None:
        """systemctl stop."""
        if self.pid:
            shutil.rmtree(node.root / f"proc/{self.pid}")
            node.systemd.cgroups.pop(self.place, None)
            node.systemd.sync()
        self.pid = 0

    def restart(self, node: Node) -> None:
        """systemctl restart, by hand."""
        self.stop(node)
        self.start(node)

    def read(self, node: Node) -> dict[str, t.Any]:
        """The configuration of the files."""
        config: dict[str, t.Any] = yaml.safe_load(node.get(CONFIG))
        if {key: config.get(key) for key in HEAD} != HEAD:
            raise ValueError(f"{CONFIG}: no kind is registered")
        if config.get("evictionHard") is None:
            config["evictionHard"] = dict(THRESHOLDS)  # before any drop-in
        if "--config-dir" in node.get("/usr/lib/systemd/system/kubelet.service"):
            for file in sorted((node.root / DROPINS[1:]).glob("*.conf")):
                data = yaml.safe_load(file.read_text())
                if {key: data.get(key) for key in HEAD} != HEAD:
                    raise ValueError(f"{file.name}: no kind is registered")
                config = merged(config, data)
        return config

    def check(self, node: Node, config: dict[str, t.Any]) -> None:
        """Raise ValueError where a kubelet would end."""
        if self.broken is not None and config != self.broken:
            raise ValueError("failed to run Kubelet: made to fail")
        options = config.get("cpuManagerPolicyOptions") or {}
        if not isinstance(options, dict):
            raise ValueError(
                "json: cannot unmarshal into Go struct field .cpuManagerPolicyOptions of type map[string]string"
            )
        if "strict-cpu-reservation" in options and int(self.version.split(".")[1]) < STRICT_SINCE:
            raise ValueError(
                'creating CPU static policy: unsupported cpumanager option: "strict-cpu-reservation" (true)'
            )
        if "align-by-socket" in options and not (config.get("featureGates") or {}).get("CPUManagerPolicyAlphaOptions"):
            raise ValueError(
                'CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided'
            )
        path = f"{ROOT}/cpu_manager_state"
        policy = config.get("cpuManagerPolicy") or "none"
        reserved = listed(config.get("reservedSystemCPUs") or "")
        online = set(node.systemd.online)
        strict = str(options.get("strict-cpu-reservation")) == "true"
        usable = online - reserved if strict else online
        if not node.has(path):
            default = "" if policy == "none" else ",".join(map(str, sorted(usable)))
            node.put(path, json.dumps({"policyName": policy, "defaultCpuSet": default, "checksum": 0}))
            return
        state = json.loads(node.get(path))
        if state["policyName"] != policy:
            raise ValueError(
                f'configured policy "{policy}" differs from state checkpoint policy "{state["policyName"]}"'
            )
        if policy != "static":
            return
        shared = listed(state["defaultCpuSet"])
        if (strict and reserved & shared) or (not strict and not reserved <= shared):
            raise ValueError("reserved cpus and defaultCpuSet do not fit")
        taken = {cpu for pod in state.get("entries", {}).values() for cpus in pod.values() for cpu in listed(cpus)}
        if shared | taken != usable:
            raise ValueError("current set of available CPUs doesn't match with CPUs in state")


def merged(target: t.Any, patch: t.Any) -> t.Any:
    """A JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        result[key] = merged(result.get(key), value)
    return {key: value for key, value in result.items() if key not in patch or patch[key] is not None}


def listed(text: str) -> set[int]:
    """A list of CPUs."""
    cpus: set[int] = set()
    for part in text.split(",") if text else ():
        first, dummy, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


def install(
    node: Node, *, dropins: bool = True, flags: str = "", base: str = BASE, version: str = "v1.36.2"
) -> FakeKubelet:
    """A kubelet on a node, running."""
    words = f"/usr/bin/kubelet --config={CONFIG}" + (f" --config-dir={DROPINS}" if dropins else "")
    node.put(
        "/usr/lib/systemd/system/kubelet.service",
        f"[Service]\nExecStart={words}{f' {flags}' if flags else ''}\nRestart=always\n",
    )
    node.put("/usr/bin/kubelet", "")
    node.put(CONFIG, base)
    if dropins:
        (node.root / DROPINS[1:]).mkdir(parents=True)
    node.kubelet = FakeKubelet(version)
    node.kubelet.start(node)
    return node.kubelet
