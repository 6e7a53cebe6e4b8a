# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The last attempts to get hugepages, partitions and CPUs of undeclared units. A run repeats an attempt at most every ten minutes."""

from __future__ import annotations

import json
import typing as t

from ...model.plan.context import Attempt
from ...model.plan.plan import Step
from .. import cgroup, lock, state
from ..files import Host
from . import apply_step


def read(host: Host) -> dict[str, Attempt]:
    """The last attempt for each pool, partition and undeclared unit, by the path of its kernel file or control group."""
    data = state.read_json(host, state.ATTEMPTS)
    attempts = {}
    for path, row in data.items() if isinstance(data, dict) else ():
        try:
            attempts[path] = Attempt(int(row[0]), int(row[1]), float(row[2]))
        except (TypeError, ValueError, IndexError, KeyError):
            continue
    return attempts


def frees_cpus(step: Step) -> bool:
    """Whether a control group may request fewer CPUs after a step."""
    return step.name == "AllowedCPUs" or (step.kind == "unit" and step.value == "stop")


def save(host: Host, steps: t.Sequence[Step], failed: t.Sequence[Step] = ()) -> None:
    """Record the pages that the kernel gave for the pools of ``steps``, the partitions that the kernel refused, and the control groups that
    got no CPUs from systemd (``failed``).
    """
    requested = [step for step in steps if step.kind == "pool"]
    refused = [
        cgroup.path_of(step.target)
        for step in failed
        if step.name == "AllowedCPUs" and cgroup.exists(host, step.target)
    ]
    if not refused:  # A control group without its CPUs may itself be the reason for an invalid partition.
        refused = [
            step.target
            for number, step in enumerate(steps)
            if step.kind == "partition" and "invalid" in (host.read(step.target) or "")
            # If a later step frees CPUs, the next observation may find that the cause of the refusal is gone.
            if not any(map(frees_cpus, steps[number + 1 :]))
        ]
    tried = [step.target for step in steps if step.kind == "partition"] if host.exists(state.ATTEMPTS) else []
    attempts = read(host) if requested or refused or tried else {}
    mended = attempts.keys() & set(tried) - set(refused)
    if requested or refused or mended:
        for target in mended:
            del attempts[target]
        attempts.update((target, Attempt(1, 0, host.now())) for target in refused)
        for step in requested:
            attempts[step.target] = Attempt(int(step.value or 0), apply_step.pages(host, step.target), host.now())
        write(host, attempts)


def forget_mended(host: Host) -> None:
    """Forget the partitions that are valid now, or gone: if such a partition fails later, a run tries it again at once."""
    attempts = read(host)
    left = {target: attempt for target, attempt in attempts.items() if not is_mended(host, target)}
    if left != attempts:
        write(host, left)


def is_mended(host: Host, target: str) -> bool:
    """Whether a refused partition is valid now, or gone with its slice."""
    return target.endswith("/cpuset.cpus.partition") and "invalid" not in (host.read(target) or "")


def write(host: Host, attempts: t.Mapping[str, Attempt]) -> None:
    """Write the file of attempts."""
    lock.own_folder(host, state.RUN, 0o755)
    host.write_file(state.ATTEMPTS, json.dumps(attempts) + "\n", state.PRIVATE)
