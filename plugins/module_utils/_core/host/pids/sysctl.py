# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The settings in the files of sysctl.d(5), and the file that wins for each key."""

from __future__ import annotations

import typing as t

from ...model.pids import task_budget
from ...model.values.records import NamedTuple
from .. import kernel_text
from ..files import Host

if t.TYPE_CHECKING:
    from ...model.profile.profile import Pids

FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")


class Entry(NamedTuple):
    """One assignment: its file and its value."""

    file: str
    value: str


def path_of(key: str) -> str:
    """The kernel file of a key: "/proc/sys/kernel/pid_max" for "kernel.pid_max"."""
    return "/proc/sys/" + key.replace(".", "/")


def live(host: Host, key: str) -> t.Optional[int]:
    """The value of a key in force; None if the kernel file has no number."""
    text = (host.read(path_of(key)) or "").strip()
    return kernel_text.count(text)


def task_limits(host: Host, pids: Pids, before: t.Mapping[str, str]) -> dict[str, t.Optional[int]]:
    """The machine's limits of tasks after a plan: the original of an undeclared limit (``before``, by file), else the live value."""
    kept = {key: before[path_of(key)] for key in task_budget.LIMITS if path_of(key) in before}
    return task_budget.coming(pids, {key: live(host, key) for key in task_budget.LIMITS}, kept)


def running_tasks(host: Host) -> t.Optional[int]:
    """How many tasks (processes and threads) there are: the fourth field of proc_loadavg(5)."""
    fields = (host.read("/proc/loadavg") or "").split()
    total = fields[3].rpartition("/")[2] if len(fields) > 3 else ""
    return kernel_text.count(total)


def later_entries(host: Host, keys: t.Container[str], ours: str) -> dict[str, Entry]:
    """For each key, the last assignment in the files that sort after the file ``ours``; these files win at the next boot."""
    name = ours.rpartition("/")[2]
    return entries(host, keys, [file for file in files_in_order(host) if file.rpartition("/")[2] > name])


def persistent_entries(
    host: Host, keys: t.Container[str], ours: str, folders: t.Sequence[str] = FOLDERS
) -> dict[str, Entry]:
    """For each key, the last assignment in the files that survive a reboot, without the file ``ours``."""
    persistent = [folder for folder in folders if not folder.startswith("/run/")]
    return entries(host, keys, [file for file in files_in_order(host, persistent) if file != ours])


def files_in_order(host: Host, folders: t.Sequence[str] = FOLDERS) -> list[str]:
    """The files in the order in which systemd reads them, by name; of files with the same name, the file in the first folder."""
    files: dict[str, str] = {}
    for folder in folders:
        for name in host.names(folder):
            if name.endswith(".conf"):
                files.setdefault(name, f"{folder}/{name}")
    return [files[name] for name in sorted(files)]


def entries(host: Host, keys: t.Container[str], files: t.Iterable[str]) -> dict[str, Entry]:
    """For each of ``keys`` the last assignment in ``files``."""
    found = {}
    for file in files:
        for line in (host.read(file) or "").splitlines():
            left, equals, value = line.strip().partition("=")
            # A leading dash means that errors are ignored; slashes and dots in a key are the same (sysctl.d(5)).
            key = left.strip().lstrip("-").strip().replace("/", ".")
            if equals and key in keys:
                found[key] = Entry(file, value.strip())
    return found
