# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What a process is called, and whether it is one of the system: any user may give a process any name (prctl(2), PR_SET_NAME)."""

from __future__ import annotations

from ..model.values.printable_text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

    from .files import Host

# systemd keeps what a user starts below user-UID.slice (systemd.special(7)); root's own is the system's.
USERS, ROOTS = "user-", "user-0.slice"
ID_DIGITS = 64  # of a container
MONITOR = "conmon"  # in the name of the control group of a container's monitor, which has the container's id as well


def name(host: Host, pid: str) -> str:
    """The name of a process (comm), printable; "" where there is no such process."""
    return printable((host.read(f"/proc/{pid}/comm") or "").strip())


def own_group(host: Host) -> str:
    """The control group of this program (v2), below the root of all: system.slice/corral-reconcile.service."""
    lines = (host.read("/proc/self/cgroup") or "").splitlines()
    return next((line[4:] for line in lines if line.startswith("0::/")), "")


def of_system(host: Host, pid: str) -> bool:
    """Whether root started a process outside the sessions of users and outside containers.

    All its user ids are root's, and its program is not setuid: some setuid programs take on root's ids before they ask for a
    password. A kernel that does not show the program hides no kubelet. The owner of /proc/PID would not do: it is
    root for each process that may not be dumped (proc(5)). A process in a container has a PID in each of its PID namespaces (NSpid:).
    """
    lines = (host.lines(f"/proc/{pid}/status", "id:") or "").splitlines()  # Those beside them change all the time.
    fields = {words[0]: words[1:] for words in map(str.split, lines)}
    groups = host.read(f"/proc/{pid}/cgroup") or ""
    is_roots = set(fields.get("Uid:", ())) == {"0"} and len(fields.get("NSpid:", ())) <= 1
    in_system = bool(groups) and not any(map(of_others, groups.split("/")))
    return is_roots and in_system and not host.is_setuid(f"/proc/{pid}/exe")


def of_others(group: str) -> bool:
    """Whether a control group of this name is a user's, or a container's."""
    if group.startswith(USERS):
        return group.partition("\n")[0] != ROOTS
    ident = group.partition("\n")[0].rpartition("-")[2].partition(".")[0]
    is_ident = len(ident) == ID_DIGITS and all(digit in "0123456789abcdef" for digit in ident)
    return group.startswith("kubepods") or (is_ident and MONITOR not in group)


def named(host: Host, group: str, program: str) -> t.Iterator[str]:
    """The processes in a service's control group that have this name. systemd puts them there: no user can."""
    return (pid for pid in host.processes(f"{group}/cgroup.procs") if name(host, pid) == program)
