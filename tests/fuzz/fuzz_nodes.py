# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with Corral in force: its own state, other processes, unit files, systemd's answers, and a kubelet's files."""

from __future__ import annotations

import abc
import json
import os
import random
import shutil
import typing as t
from pathlib import Path
from unittest import mock

import mutation
import node
import runs
import services
import test_devices_granted
import test_kubelet_inspection
import trees
from _core.host import state
from _core.host.command import Command
from _core.host.containers import podman_cli
from _core.host.plan import apply_step
from _core.model.profile import profile
from _core.pipeline import applying, locked_run
from fake_podman import Service
from fuzz_target import Outcome, Shown, Target, called, command, foreign_element
from fuzz_texts import SPEC
from shared_data import REPOSITORY

PROFILE: dict[str, t.Any] = {
    **test_devices_granted.PROFILE,
    "name": "fuzz",
    "pids": {"pid_max": 100000, "per_workload": 4096},
    "gc": {"images": {"high": 85, "low": 80}, "containers": {}},
    "memory": {"hugepages": [{"size": "2Mi", "count": 32, "node": 1}]},
}
SPECS = {"name": "vendor.example/gpu", "match": {"cdi": "vendor.example/gpu=*"}}
QUESTIONS: tuple[tuple[str, ...], ...] = (
    ("status",), ("status", "--json"), ("status", "--html"), ("drift",), ("drift", "--json"), ("drift", "--explain"), ("topology",), ("pools",),
    ("devices",), ("devices", "--json"), ("history",), ("explain", "dpdk"), ("explain", "serial"), ("profile", "--from-node"),
)  # fmt: skip
OWN = [path[1:] for path in (
    state.DECLARED, state.ORIGINS, state.AGENT, state.BEFORE, state.APPLIED, state.EFFECTIVE_PROFILE, state.HISTORY, state.PAUSE, state.UNCONFIRMED,
    state.REJECTED, state.CHECKPOINT, state.ADMITTED, state.GC_RECORDS, state.STATUS, state.ATTEMPTS, state.GC_STATUS, state.SINCE,
    state.KUBELET_FINDINGS, state.DEVICE_CHECKS, state.DEVICES_CHECKED, state.PCI_USED, state.GC_DRIFT, state.GC_IDLE,
)]  # fmt: skip
# Each has a second copy; without both a node cannot know that all is as declared. What else is lost is found again, or is only shown.
NEEDED = (state.BEFORE[1:], state.CHECKPOINT[1:])

MOMENT = {"since": 1_700_000_000, "seconds": 86400, "boot_id": "first", "uptime": 5000.0}
# What the node has not, as it would be.
ABSENT: dict[str, t.Any] = {
    state.PAUSE[1:]: {"user": "alice", "uid": 1000, "reason": "a disk", **MOMENT},
    state.UNCONFIRMED[1:]: {
        "name": "edge", "hash": "0a1b2c3d4e5f", **MOMENT, "before": None, "origins": {}, "failed": False, "command": ["/usr/bin/true"], "passed": [],
    },
    state.REJECTED[1:]: [["0a1b2c3d4e5f", "edge", 1_700_000_000, "not confirmed within 120 s"]],
    state.ADMITTED[1:]: [{"name": "guest", "match": {"unit": "guest.service"}, "requests": {"cpu": 1}, "hold": "declared"}],
}  # fmt: skip


def still() -> None:
    """Nothing here has to outlive a power cut or to wait for a kernel, and no Podman is started."""
    for patch in (
        mock.patch.object(os, "fsync", lambda dummy: None),
        mock.patch.object(apply_step, "READ_BACK_SECONDS", 0.0),
        mock.patch.object(apply_step.time, "sleep", lambda dummy: None),
        mock.patch.object(podman_cli.Podman, "serve", staticmethod(Service)),
    ):
        patch.start()


def converged(folder: Path, *, more: t.Sequence[t.Any] = ()) -> node.Node:
    """A node with the profile and its agent, on which a workload with devices runs."""
    still()
    trees.build(folder / "template", node.MACHINE)
    fake = node.Node(folder / "node", folder / "template")
    cpus = fake.root / "sys/devices/system/cpu"
    cpus.unlink()
    shutil.copytree(folder / "template/sys/devices/system/cpu", cpus)
    test_devices_granted.equip(fake)
    data = {**PROFILE, "devices": [*PROFILE["devices"], *more]}
    assert not runs.install(fake.host()).error
    outcome = locked_run.published(fake.host(), applying.declare(fake.host(), profile.parse(data)))
    assert not outcome.error, outcome.error
    assert services.start(fake, test_devices_granted.DPDK), fake.said
    runs.tick(fake.host())
    fake.wait(10)
    assert runs.tick(fake.host()) in (0, 2)
    fake.wait(10)
    return fake


def below(root: Path, *folders: str) -> list[str]:
    """The files below some folders."""
    found = []
    for folder in folders:
        for path, dummy, files in os.walk(root / folder):
            found += [str(Path(path, name).relative_to(root)) for name in files]
    return sorted(found)


class OnNode(Target):
    """Files of one node are changed, a question is asked, and they are changed back. Commands answer as ``answers`` says."""

    more: t.Sequence[t.Any] = ()

    def prepare(self) -> None:
        self.fake = converged(self.folder, more=self.more)
        self.files = self.candidates()

    @abc.abstractmethod
    def candidates(self) -> list[str]:
        """The files that are changed."""

    def change(self, chance: random.Random) -> mutation.Change:
        return mutation.tree_change(chance, self.fake.root, chance.choice(self.files))

    def make(self, chance: random.Random) -> t.Any:
        changes = [self.change(chance) for dummy in range(chance.choice((1, 1, 2, 5)))]
        return changes, chance.choice(QUESTIONS)

    def asked(self, words: t.Sequence[str], host: node.NodeHost | None = None) -> Shown:
        own = host or node.NodeHost(self.fake)
        shown = called(lambda: runs.command(own, *words))
        assert own.writes == [], f"{words} wrote {own.writes}"
        return shown

    def run(self, data: t.Any) -> Outcome:
        changes, words = data
        with mutation.Changed(self.fake.root, changes):
            shown = self.asked(words)
        return self.judged(shown, words, changes)

    def judged(self, shown: Shown, words: t.Sequence[str], dummy: t.Any) -> Outcome:
        depth = "refused" if shown.code is None else f"exit code {shown.code}"
        return Outcome(f"{words[0]}: {depth}", (shown.out, shown.err), foreign_element(words, shown.out))


def is_json(data: bytes) -> bool:
    try:
        return json.loads(data) is not None
    except (ValueError, RecursionError):
        return False


class OwnState(OnNode):
    """Corral's own files. Where one that is needed is damaged, a node is not in sync."""

    def candidates(self) -> list[str]:
        return [path for path in OWN if (self.fake.root / path).exists()]

    def change(self, chance: random.Random) -> mutation.Change:
        path = chance.choice(self.files if chance.random() < 0.8 else OWN)
        file = self.fake.root / path
        if path in ABSENT and not file.exists() and chance.random() < 0.9:
            data = mutation.mutated_data(chance, ABSENT[path])
            stored = {"version": state.VERSION, "checksum": state.checksum(data), "data": data}
            return (
                path,
                "bytes",
                json.dumps(data if path == state.REJECTED[1:] and chance.random() < 0.5 else stored).encode(),
            )
        if chance.random() < 0.5 and file.is_file() and is_json(file.read_bytes()):
            stored = json.loads(file.read_bytes())
            stored = mutation.mutated_data(chance, stored)
            if isinstance(stored, dict) and "checksum" in stored and chance.random() < 0.8:
                stored["checksum"] = state.checksum(stored.get("data"))  # written as if by Corral
            return path, "bytes", json.dumps(stored).encode()
        return mutation.tree_change(chance, self.fake.root, path)

    def make(self, chance: random.Random) -> t.Any:
        changes, words = super().make(chance)
        if chance.random() < 0.2:
            path = chance.choice(NEEDED)
            changes = [mutation.tree_change(chance, self.fake.root, one) for one in (path, f"{path}.previous")]
            words = chance.choice((("drift",), ("status",)))
        return changes, words

    def run(self, data: t.Any) -> Outcome:
        changes, words = data
        if words[0] not in ("status", "topology") or len(changes) != 2:
            return super().run(data)
        # The tick that finds it, on a node that may change.
        twin_root = self.folder / "twin"
        shutil.rmtree(twin_root, ignore_errors=True)
        twin = self.fake.clone(twin_root)
        with mutation.Changed(twin.root, changes):
            shown = called(lambda: runs.tick(twin.host()))
            published = [twin.get(path) for path in state.PUBLISHED if os.path.isfile(twin.root / path[1:])]
        shutil.rmtree(f"{twin_root}.aside", ignore_errors=True)
        found = self.judged(shown, ("tick",), changes)
        return found._replace(said=(*found.said, *published))

    def judged(self, shown: Shown, words: t.Sequence[str], changes: t.Any) -> Outcome:
        found = super().judged(shown, words, changes)
        first: dict[str, tuple[str, bytes]] = {}
        for path, kind, text in changes:
            first.setdefault(path, (kind, text))  # as mutation.Changed does
        lost = {path for path, (kind, text) in first.items() if kind != "bytes" or not is_json(text)}
        broken = [path for path in NEEDED if {path, f"{path}.previous"} <= lost]
        if broken and words[0] in ("drift", "tick") and shown.code == 0:
            return found._replace(wrong=f"in sync with damaged {', '.join(broken)}")
        return found


class Processes(OnNode):
    """What processes of others are called, and where they are said to be."""

    def candidates(self) -> list[str]:
        fake = self.fake
        for number, (name, group) in enumerate(
            (("stress", "rogue.slice"), ("kubelet", "system.slice/kubelet.service"), ("bash", "user.slice"))
        ):
            pid = 4000 + number
            fake.intrude(group, "" if number else "1-3")
            fake.put(f"/proc/{pid}/comm", f"{name}\n")
            fake.put(f"/proc/{pid}/cmdline", f"/usr/bin/{name}\0--x=1\0--config=/var/lib/kubelet/config.yaml\0")
            fake.put(f"/proc/{pid}/stat", f"{pid} ({name}) S {'0 ' * 18}500 0")
            fake.put(
                f"/proc/{pid}/status",
                f"Name:\t{name}\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0-1\nPPid:\t1\n",
            )
            fake.put(f"/proc/{pid}/cgroup", f"0::/{group}\n")
            fake.put(f"/proc/{pid}/task/{pid}/status", f"Name:\t{name}\nCpus_allowed_list:\t0-7\n")
            fake.put(f"/sys/fs/cgroup/{group}/cgroup.procs", f"{pid}\n")
            fake.put(f"/sys/fs/cgroup/{group}/cgroup.threads", f"{pid}\n")
        fake.put("/var/lib/kubelet/config.yaml", test_kubelet_inspection.CONFIG)
        groups = [path for path in below(fake.root, "sys/fs/cgroup") if "corral" not in path]
        return [*below(fake.root, "proc"), *chosen(groups, 40)]

    def make(self, chance: random.Random) -> t.Any:
        changes, words = super().make(chance)
        if chance.random() < 0.3:
            words = ("kubelet",)
        if chance.random() < 0.3:
            changes.append(
                mutation.added_name(
                    chance, chance.choice(("sys/fs/cgroup", "sys/fs/cgroup/system.slice", "sys/fs/cgroup/rogue.slice"))
                )
            )
            changes.append((f"{changes[-1][0]}/cgroup.procs", "bytes", b"4000\n"))
            changes[-2] = (changes[-2][0], "folder", b"")
        return changes, words


def chosen(found: list[str], most: int) -> list[str]:
    return random.Random(1).sample(found, min(most, len(found)))


class Systemd(OnNode):
    """Unit files and drop-ins of others, and what systemctl answers."""

    def candidates(self) -> list[str]:
        fake = self.fake
        fake.put("/etc/systemd/system/system.slice.d/50-x.conf", "[Slice]\nAllowedCPUs=0-3\nTasksMax=200\n")
        fake.put("/etc/systemd/system.conf.d/90-x.conf", "[Manager]\nDefaultTasksMax=15%\nCPUAffinity=0-3\n")
        fake.put("/etc/sysctl.d/99-x.conf", "kernel.pid_max = 32768\n")
        units = below(fake.root, "etc/systemd", "usr/lib/systemd", "run/systemd/system.control", "etc/sysctl.d")
        return [path for path in units if path.endswith((".conf", ".service", ".slice", ".mount", ".timer"))]

    def make(self, chance: random.Random) -> t.Any:
        changes, words = super().make(chance)
        if chance.random() < 0.4:
            changes = []
        return changes, words, chance.getrandbits(32) if not changes or chance.random() < 0.2 else 0

    def run(self, data: t.Any) -> Outcome:
        changes, words, seed = data
        host = node.NodeHost(self.fake)
        if seed:
            chance = random.Random(seed)
            honest = host._run
            assert honest

            def answer(argv: t.Sequence[str], timeout: float) -> Command:
                found = honest(argv, timeout)
                if argv[0] != "systemctl" or chance.random() < 0.3:
                    return found
                out, err = (mutation.mutated_text(chance, text) for text in (found.out, found.err))
                return Command(chance.choice((found.code, 0, 1, -9)), out[: 1 << 20], err[: 1 << 20])

            host._run = answer
        with mutation.Changed(self.fake.root, changes):
            shown = self.asked(words, host)
        return self.judged(shown, words, changes)


class VendorSpecs(OnNode):
    """CDI specs in their folders, as a profile's devices match them."""

    more = (SPECS,)

    def candidates(self) -> list[str]:
        self.fake.put("/etc/cdi/vendor.json", json.dumps(SPEC))
        self.fake.put("/var/run/cdi/other.yaml", json.dumps({**SPEC, "kind": "other.example/net"}))
        return ["etc/cdi/vendor.json", "var/run/cdi/other.yaml"]

    def change(self, chance: random.Random) -> mutation.Change:
        if chance.random() < 0.6:
            return chance.choice(self.files), "bytes", json.dumps(mutation.mutated_data(chance, SPEC)).encode()
        if chance.random() < 0.2:
            return mutation.added_name(chance, "etc/cdi")
        return super().change(chance)

    def make(self, chance: random.Random) -> t.Any:
        changes, dummy = super().make(chance)
        return changes, chance.choice((("devices",), ("devices", "--json"), ("drift",), ("explain", "dpdk")))


POD = """apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, uid: 0b2a1f8e-0a1b-4c2d-8e3f-1234567890ab}
spec: {containers: [{name: main, resources: {limits: {cpu: 2, memory: 64Mi}}}]}
"""
KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443", certificate-authority: /etc/ca.pem}}]
users: [{name: u, user: {client-certificate: /etc/c.pem, client-key: /etc/c.key}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
FLAGS = (*test_kubelet_inspection.FLAGS, "--kubeconfig=/etc/kubernetes/kubelet.conf", "--pod-manifest-path=/etc/kubernetes/manifests",
         "--reserved-cpus=0-1", "--root-dir=/var/lib/kubelet")  # fmt: skip


class Kubelet(Target):
    """The files of a kubelet: configuration, drop-ins, state, flags, static pods."""

    def prepare(self) -> None:
        tree = test_kubelet_inspection.Tree(self.folder / "machine")
        tree.run(*FLAGS)
        tree.state(entries={test_kubelet_inspection.UID: {"main": "4-5"}})
        tree.container("4-5")
        tree.write(
            "etc/kubelet.d/10-a.conf",
            test_kubelet_inspection.DROP_IN + "maxPods: 60\ntopologyManagerPolicy: restricted\n",
        )
        tree.write(
            "etc/kubelet.d/20-b.conf", test_kubelet_inspection.DROP_IN + "kubeReserved: {cpu: 500m, memory: 1Gi}\n"
        )
        tree.write("etc/kubernetes/kubelet.conf", KUBECONFIG)
        tree.write("etc/kubernetes/manifests/web.yaml", POD)
        tree.write(
            "etc/systemd/system/kubelet.service",
            "[Service]\nExecStart=/usr/bin/kubelet $ARGS\nEnvironmentFile=-/etc/default/kubelet\n",
        )
        tree.write("etc/default/kubelet", "ARGS=--max-pods=70\n")
        tree.write("proc/1047/cgroup", "0::/system.slice/kubelet.service\n")
        tree.write("proc/1047/status", "Name:\tkubelet\nUid:\t0\t0\t0\t0\n")
        entries = [{"numaAffinity": [0], "type": "memory", "size": 1 << 26}]
        tree.write("var/lib/kubelet/memory_manager_state", json.dumps(
            {"policyName": "Static", "machineState": {"0": {"numberOfAssignments": 1, "cells": [0], "memoryMap": {"memory": {
                "total": 1 << 32, "systemReserved": 0, "allocatable": 1 << 32, "reserved": 1 << 26, "free": 1 << 31}}}},
             "entries": {test_kubelet_inspection.UID: {"main": entries}}, "checksum": 1}))  # fmt: skip
        tree.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", json.dumps(
            {"Data": {"PodDeviceEntries": [{"PodUID": test_kubelet_inspection.UID, "ContainerName": "main", "ResourceName": "example.com/nic",
             "DeviceIDs": {"0": ["a"]}, "AllocResp": ""}], "RegisteredDevices": {"example.com/nic": ["a", "b"]}}, "Checksum": 1}))  # fmt: skip
        self.root = tree.folder
        self.files = below(self.root, "var", "etc", "proc/1047", "sys/fs/cgroup")
        self.words = (
            ("kubelet",), ("kubelet", "--json"), ("profile", "--from-node"),
            ("plan", "--profile", str(REPOSITORY / "examples/kubelet-like.yml")), ("pools", "--profile", str(REPOSITORY / "examples/edge.yml")),
        )  # fmt: skip

    def change(self, chance: random.Random) -> mutation.Change:
        path = chance.choice(self.files)
        data = (self.root / path).read_bytes()
        if path.endswith("cmdline") and chance.random() < 0.7:
            flags = data.split(b"\0")
            flags.insert(
                chance.randrange(len(flags)),
                b"--"
                + mutation.encoded(
                    chance.choice(
                        (
                            "max-pods=",
                            "config=",
                            "reserved-cpus=",
                            "cpu-manager-policy-options=",
                            "feature-gates=",
                            "root-dir=",
                        )
                    )
                    + mutation.word(chance)
                ),
            )
            return path, "bytes", b"\0".join(flags)
        if is_json(data) and chance.random() < 0.7:
            return path, "bytes", json.dumps(mutation.mutated_data(chance, json.loads(data))).encode()
        return mutation.tree_change(chance, self.root, path)

    def make(self, chance: random.Random) -> t.Any:
        return [self.change(chance) for dummy in range(chance.choice((1, 1, 2, 4)))], chance.choice(self.words)

    def run(self, data: t.Any) -> Outcome:
        changes, words = data
        with mutation.Changed(self.root, changes):
            shown = command(*words, "--root", str(self.root))
        return Outcome(f"{words[0]}: exit code {shown.code}", (shown.out, shown.err))


TARGETS = {
    "own-state": OwnState,
    "processes": Processes,
    "systemd": Systemd,
    "cdi-files": VendorSpecs,
    "kubelet": Kubelet,
}
