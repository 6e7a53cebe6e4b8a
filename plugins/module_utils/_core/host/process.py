# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The name of a process, and whether the system started it. The name alone is no proof: any user may set it (prctl(2), PR_SET_NAME)."""

from __future__ import annotations

from ..model.values.printable_text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

    from .files import Host

# Users' processes are below user-UID.slice (systemd.special(7)); root's slice counts as the system's.
USERS, ROOTS = "user-", "user-0.slice"
ID_DIGITS = 64  # the digits of a container's id
MONITOR = "conmon"  # the monitor of a container; the name of its control group has this word and the container's id


def name(host: Host, pid: str) -> str:
    """The name of a process (comm), printable; an empty string if the process does not exist."""
    return printable((host.read(f"/proc/{pid}/comm") or "").strip())


def own_group(host: Host) -> str:
    """The path of this program's control group below the root (v2), such as system.slice/corral-reconcile.service."""
    lines = (host.read("/proc/self/cgroup") or "").splitlines()
    return next((line[4:] for line in lines if line.startswith("0::/")), "")


def of_system(host: Host, pid: str) -> bool:
    """Whether root started a process outside the sessions of users and outside containers.

    All user ids of the process must be root's, and its program must not be setuid: some setuid programs take on root's ids before they ask
    for a password. The owner of /proc/PID is no proof: root owns this folder for each process that may not be dumped (proc(5)). A process
    in a container has more than one PID (NSpid:). If the kernel hides the program, the process counts as not setuid.
    """
    lines = (host.lines(f"/proc/{pid}/status", "id:") or "").splitlines()  # the other lines change all the time
    fields = {words[0]: words[1:] for words in map(str.split, lines)}
    groups = host.read(f"/proc/{pid}/cgroup") or ""
    is_roots = set(fields.get("Uid:", ())) == {"0"} and len(fields.get("NSpid:", ())) <= 1
    in_system = bool(groups) and not any(map(of_others, groups.split("/")))
    return is_roots and in_system and not host.is_setuid(f"/proc/{pid}/exe")


def of_others(group: str) -> bool:
    """Whether a control group with this name belongs to a user or a container."""
    if group.startswith(USERS):
        return group.partition("\n")[0] != ROOTS
    ident = group.partition("\n")[0].rpartition("-")[2].partition(".")[0]
    is_ident = len(ident) == ID_DIGITS and all(digit in "0123456789abcdef" for digit in ident)
    return group.startswith("kubepods") or (is_ident and MONITOR not in group)


def named(host: Host, group: str, program: str) -> t.Iterator[str]:
    """The PIDs of the processes named ``program`` in ``group``, a service's control group. Only systemd puts processes into this group."""
    return (pid for pid in host.processes(f"{group}/cgroup.procs") if name(host, pid) == program)
