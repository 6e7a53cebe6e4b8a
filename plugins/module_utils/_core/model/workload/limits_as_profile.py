# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The limits of tasks that a node's administrator set: the values that differ from the defaults of the kernel and the distribution."""

from __future__ import annotations

import typing as t

from ..profile import schema_pids
from ..values.records import NamedTuple

# kernel/pid.c: the default is at least 32768, and 1024 for each possible CPU (PIDS_PER_CPU_DEFAULT).
PID_MAX_LOW, PIDS_PER_CPU = 32768, 1024
# kernel/fork.c: threads' stacks take at most an eighth of the memory. A stack has 16 KiB, or 64 KiB with pages of 64 KiB.
STACKS_KIB = (16, 64)
MEMORY_SHARE = 8


class Limit(NamedTuple):
    """A kernel limit: its present value, its value in the files that are loaded at boot, and the ranges of its defaults."""

    live: t.Optional[int]
    declared: t.Optional[int]
    usual: tuple[tuple[int, int], ...]  # for each default its lowest and highest value

    @property
    def chosen(self) -> t.Optional[int]:
        """The value that an administrator set; None for a default."""
        live = self.live
        if live is not None and self.declared is None and any(low <= live <= high for low, high in self.usual):
            return None
        return live


def usual_pid_max(possible_cpus: int, given: t.Optional[int]) -> tuple[tuple[int, int], ...]:
    """The ranges of kernel.pid_max's defaults; ``given`` is the value in the distribution's files."""
    kernel = min(max(PID_MAX_LOW, PIDS_PER_CPU * possible_cpus), schema_pids.PID_MAX_HIGH)
    return ((kernel, kernel), *(() if given is None else ((given, given),)))


def usual_threads_max(memory_kib: t.Optional[int], given: t.Optional[int]) -> tuple[tuple[int, int], ...]:
    """The ranges of kernel.threads-max's defaults. The kernel computes a default from the memory that is free early at boot."""
    spans = []
    for stack in STACKS_KIB if memory_kib else ():
        guess = (memory_kib or 0) // (stack * MEMORY_SHARE)
        spans.append((guess - guess // 4, guess + guess // 4))
    return (*spans, *(() if given is None else ((given, given),)))
