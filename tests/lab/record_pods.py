# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with a kubelet and prints its pods' control groups, as tests/unit/recorded_kubepods/ has them (YAML).

Beside them what tells whose they are: the names of containers' logs, the pods with files, and the state of the CPU manager.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t

import yaml

ROOT = "/sys/fs/cgroup"
V1 = f"{ROOT}/cpuset"
FILES = ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.effective_cpus")
LOGS, KUBELET = "/var/log/containers", "/var/lib/kubelet"
PROGRAMS = (
    ("/usr/local/bin/kubelet", "--version"),
    ("containerd", "--version"),
    ("systemctl", "--version"),
    ("uname", "-r"),
)


class Indented(yaml.SafeDumper):
    """Lists are indented, as yamllint wants them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def tree(folder: str) -> dict[str, t.Any]:
    """The files of a control group with their texts, and the groups in it."""
    found: dict[str, t.Any] = {}
    for name in sorted(os.listdir(folder)):
        path = f"{folder}/{name}"
        if name in FILES:
            with open(path, encoding="utf-8") as file:
                found[name] = file.read().strip()
        elif os.path.isdir(path):
            found[name] = tree(path)
    return found


def names(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def first_line(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()


def recorded() -> dict[str, t.Any]:
    base = ROOT if os.path.exists(f"{ROOT}/cgroup.controllers") else V1
    with open(f"{KUBELET}/cpu_manager_state", encoding="utf-8") as file:
        state = json.load(file)
    return {
        "made_with": [first_line(*words) for words in PROGRAMS],
        "groups": {name: tree(f"{base}/{name}") for name in names(base) if name.startswith("kubepods")},
        "logs": names(LOGS),
        "pods": names(f"{KUBELET}/pods"),
        "cpu_manager_state": state,
    }


if __name__ == "__main__":
    yaml.dump(recorded(), sys.stdout, Indented, sort_keys=False, width=120)
