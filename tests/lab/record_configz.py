# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with a real kubelet and prints what the kubelet makes of files, drop-ins and flags, by its /configz (YAML).

tests/unit/recorded_configz.yml has what it printed. The kubelet starts once for each case, and has its own files again afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import typing as t

import yaml
from kubelet_node import CONFIG, DROPINS, ENVIRONMENT, UNIT, base, pid, running_with
from on_node import read, run, wait, write
from record_pods import PROGRAMS, Indented, first_line

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


class Case(t.NamedTuple):
    """Lines that the kubelet's file has besides, drop-ins by their paths below --config-dir, and flags."""

    file: str
    drop_ins: t.Mapping[str, str] = {}
    flags: str = ""


FILE = """\
systemReserved: {cpu: 100m, memory: 100Mi, pid: "1000"}
kubeReserved: {memory: 50Mi}
evictionHard: {memory.available: 90Mi}
featureGates: {CPUManagerPolicyAlphaOptions: true, ContainerCheckpoint: false}
allowedUnsafeSysctls: [net.core.somaxconn, kernel.msgmax]
topologyManagerScope: pod
imageMinimumGCAge: 90s
"""
DROP_INS = {
    "30-last.conf": "topologyManagerScope: null\nsystemReserved: {cpu: null}\nallowedUnsafeSysctls: [kernel.sem]\n",
    "10-first.conf": "maxPods: 61\nsystemReserved: {memory: 120Mi}\nevictionHard: {nodefs.available: 8%}\npodPidsLimit: 900\n",
    "20-folder/b.conf": "maxPods: 63\nkubeReserved: {memory: null, pid: '500'}\n",
    "20-folder/a.conf": "maxPods: 62\ncontainerLogMaxFiles: 7\npodPidsLimit: 901\n",
    "20-folder.conf": "maxPods: 64\ncontainerLogMaxFiles: 8\n",
    "40-other.yaml": "maxPods: 65\n",
}
FLAGS = (
    "--max-pods=70 --system-reserved=cpu=150m --feature-gates=ContainerCheckpoint=true --pod-max-pids=1200 "
    "--eviction-hard=memory.available<80Mi,imagefs.available<5% --cpu-manager-reconcile-period=7s"
)
CASES = {
    "the file alone": Case(FILE),
    "defaults": Case(""),
    "drop-ins over the file": Case(FILE, DROP_INS),
    "flags over both": Case(FILE, DROP_INS, FLAGS),
    "thresholds in a drop-in alone": Case("", {"10.conf": "evictionHard: {memory.available: 70Mi}\n"}),
    "thresholds beside the default ones": Case(
        "evictionHard: {memory.available: 70Mi}\nmergeDefaultEvictionSettings: true\n"
    ),
    "values that count as unset": Case(
        "maxOpenFiles: 0\ncpuManagerPolicy: ''\nimageMinimumGCAge: 0s\ncontainerLogMaxSize: ''\nenforceNodeAllocatable: []\n"
        "evictionHard: {}\nsystemReserved: {}\nnodeStatusUpdateFrequency: 0s\n",
        {"10.conf": "maxPods: 0\ntopologyManagerPolicy: ''\nevictionPressureTransitionPeriod: null\n"},
    ),
}


def tried(case: Case) -> dict[str, t.Any]:
    """The files and flags of a case as the node has them, and the answer of a kubelet that started with them."""
    shutil.rmtree(DROPINS, ignore_errors=True)
    files = {CONFIG: base() + case.file, **{f"{DROPINS}/{name}": HEAD + text for name, text in case.drop_ins.items()}}
    for path, text in files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write(path, text)
    os.makedirs(DROPINS, exist_ok=True)
    write(ENVIRONMENT, f"KUBELET_EXTRA_ARGS={case.flags}\n")
    run("systemctl", "restart", UNIT)
    wait("it runs", lambda: pid() != 0)
    words = read(f"/proc/{pid()}/cmdline").split("\0")
    return {"files": files, "flags": [word for word in words[1:] if word], "configz": running_with()}


def recorded() -> dict[str, t.Any]:
    cases = {name: tried(case) for name, case in CASES.items()}
    return {"made_with": first_line(*PROGRAMS[0]), "cases": cases}


if __name__ == "__main__":
    found = recorded()
    tried(Case(""))
    # By JSON: what has no order of its own is in the order of names.
    yaml.dump(json.loads(json.dumps(found, sort_keys=True)), sys.stdout, Indented, sort_keys=False, width=120)
