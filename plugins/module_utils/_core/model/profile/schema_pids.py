# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of the section ``pids``: limits on processes and threads."""

from __future__ import annotations

from . import schema_types as types
from .schema_key import MAP, Key

# The kernel's limits: include/linux/threads.h (PID_MAX_LIMIT, RESERVED_PIDS), kernel/fork.c (MAX_THREADS), kernel/pid.c.
PID_MAX_LOW, PID_MAX_HIGH = 301, 1 << 22
THREADS_MAX_HIGH = 0x3FFFFFFF

KEYS: tuple[Key, ...] = (
    Key(
        "pids",
        None,
        "Limits on processes and threads. The node's capacity is the smaller of `pid_max` and `threads_max`, as the "
        "kubelet counts it; the reserve and the limits of the slices must fit into it together.",
        quiet=True,
    ),
    Key(
        "pids.pid_max",
        types.integer(PID_MAX_LOW, PID_MAX_HIGH),
        "`kernel.pid_max`: ids for processes and threads.",
        example="4194304",
    ),
    Key(
        "pids.threads_max",
        types.integer(PID_MAX_LOW, THREADS_MAX_HIGH),
        "`kernel.threads-max`: threads on the whole node.",
        example="4194304",
    ),
    Key(
        "pids.reserved",
        types.integer(0, PID_MAX_HIGH),
        "Tasks that are kept for housekeeping: the limits of shared slices and of workloads with CPUs of their own together "
        "leave this number free. The rest is divided equally among those that declare no limit.",
        example="2048",
    ),
    Key(
        "pids.default_tasks_max",
        types.integer(1, PID_MAX_HIGH),
        "systemd's `DefaultTasksMax`: the limit of each unit that declares none.",
        example="4096",
    ),
    Key(
        "pids.slices",
        types.integer(1, PID_MAX_HIGH),
        "`TasksMax` of the pools' slices: those of `cpu.reserved.slices` and `cpu.shared.slices`, and `corral.slice`.",
        example="{machine.slice: 16384, corral.slice: 8192}",
        many=MAP,
        keys=types.SLICE_OR_CORRAL,
    ),
    Key(
        "pids.per_workload",
        types.integer(1, PID_MAX_HIGH),
        "The task limit of each workload that declares none in its `limits` (kubelet: `podPidsLimit`).",
        example="4096",
    ),
)
