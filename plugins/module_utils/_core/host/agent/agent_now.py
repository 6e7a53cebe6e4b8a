# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The agent's present state, from systemd and the kernel: for a reader whose recorded status is too old."""

from __future__ import annotations

import os
import re
import time
import typing as t

from ...model.agent.agent_units import SERVICE, TIMER
from ...model.status.freshness import Agent, UnitStatus
from .. import process, systemd
from ..files import Host
from ..lock import LOCK

SECONDS = 10.0  # the longest wait for an answer of systemctl
PROPERTIES = (
    "ActiveState", "ConditionResult", "ConditionTimestampMonotonic", "InactiveExitTimestampMonotonic", "LoadState", "MainPID", "Result",
    "TimeoutStartUSec", "UnitFileState",
)  # fmt: skip
JOBS = ("activating", "deactivating")
SPAN = re.compile(r"([0-9.]+)(us|ms|s|min|h|d|w)")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def ask(host: Host) -> t.Optional[Agent]:
    """The agent's units and the holder of the lock; None for a tree, and if systemd does not answer."""
    if not host.answers or not systemd.runs(host):
        return None
    argv = ("systemctl", "show", f"--property={','.join(PROPERTIES)}", "--", TIMER, SERVICE)
    answer = host.run(*argv, timeout=SECONDS)
    blocks = [dict(line.partition("=")[::2] for line in part.splitlines()) for part in answer.out.strip().split("\n\n")]
    if answer.code or len(blocks) != 2:
        return None
    now = time.monotonic() if host.runs_commands else host.uptime()
    timer, service = (unit_of(block, now) for block in blocks)
    return Agent(timer, service, holder(host, but=blocks[1].get("MainPID", "")))


def unit_of(block: t.Mapping[str, str], now: float) -> UnitStatus:
    """A unit's status from ``block``, the fields that ``systemctl show`` prints for the unit."""
    active = block.get("ActiveState", "")
    began = float(block.get("InactiveExitTimestampMonotonic") or 0) / 1e6
    checked = block.get("ConditionTimestampMonotonic", "0") != "0"
    return UnitStatus(
        block.get("LoadState", ""), active, block.get("UnitFileState") or "not enabled", block.get("Result", ""),
        not checked or block.get("ConditionResult") != "no", max(now - began, 0.0) if active in JOBS else 0.0,
        span(block.get("TimeoutStartUSec", "")),
    )  # fmt: skip


def span(text: str) -> float:
    """A time span as systemd prints it (``1min 30s``), in seconds."""
    return float("inf") if text == "infinity" else sum(float(count) * UNITS[unit] for count, unit in SPAN.findall(text))


def holder(host: Host, but: str) -> str:
    """The process that holds the node's lock (proc_locks(5)); an empty string if no process other than the PID ``but`` holds the lock.

    The device is compared too, since any user may lock a file with the same inode number on another file system. An unreadable list counts
    as empty, since any user may hold more locks than can be read.
    """
    lock_file = host.found(LOCK)
    file = lock_file and f"{os.major(lock_file.st_dev):02x}:{os.minor(lock_file.st_dev):02x}:{lock_file.st_ino}"
    table: t.Optional[str] = host.if_readable(host.read, "/proc/locks")
    for line in (table or "").splitlines():
        words = line.split()
        if len(words) == 8 and words[1] == "FLOCK" and words[5] == file and words[4] != but:
            return f"{process.name(host, words[4]) or 'a program'} (process {words[4]})"
    return ""
