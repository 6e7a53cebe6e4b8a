# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from _core.host.files import Host
from _core.host.memory import hugepage_files
from _core.host.pids import pid_namespaces, sysctl
from _core.host.plan import apply_step
from _core.managers.pids import pids

# Of each reader what it makes of a number that no kernel writes (int() raises for one of 5,000 digits).
READERS: dict[str, tuple[t.Callable[[Host], t.Any], t.Any]] = {
    "sysctl": (lambda host: sysctl.live(host, "kernel.pid_max"), None),
    "tasks": (sysctl.running_tasks, None),
    "huge pages": (lambda host: hugepage_files.number(host, "/file"), None),
    "size of huge pages": (hugepage_files.default_kib, None),
    "pages": (lambda host: apply_step.pages(host, "/file"), 0),
    "processes": (lambda host: pid_namespaces.processes(host, "/group"), set()),
    "first process": (lambda host: pid_namespaces.first_process(host, "/group", "/file"), None),
    "limit": (lambda host: pids.number((host.read("/file") or "").strip()), None),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("number", ["9" * 5000, "²", "-", ""])
def test_a_number_that_no_kernel_writes_is_none(tmp_path: Path, reader: str, number: str) -> None:
    files = {
        "proc/sys/kernel/pid_max": number, "proc/loadavg": f"0 0 0 1/{number} 7", "proc/meminfo": f"Hugepagesize: {number} kB", "file": number,
        "group/cgroup.procs": number,
    }  # fmt: skip
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")
    read, nothing = READERS[reader]
    assert read(Host(str(tmp_path))) == nothing
