# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Root's running Podman containers and their control groups (cgroup v2), in any storage of Podman.

Each container has a monitor, conmon(8), with the container's id (-c) and name (-n) on its command line. The name of the container's control
group contains the id, below any parent and with any cgroup manager. A container without its own control group (--cgroups=disabled) runs in
the control group of its monitor.
"""

from __future__ import annotations

from ...model.values.printable_text import printable
from .. import process
from ..pids import oom_score

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

    from ..files import Host

# The names of containers' control groups: libpod-ID.scope (systemd), libpod-ID (cgroupfs), libpod-payload-ID (--cgroups=split).
BEFORE_ID = ("libpod-payload-", "libpod-")
STORAGE = "/var/lib/containers/storage"
LISTS = ("containers.json", "volatile-containers.json")  # the second file has the containers of podman run --rm


class Monitor:
    """A container's monitor: the container's id and name, and the monitor's control group (path below the root). ``scoped``: systemd makes
    a scope for the container's run (-s). ``pidfile``: the file with the PID of the container's first process (-p).
    """

    def __init__(self, words: list[str], group: str) -> None:
        self.ident, self.name = word_after(words, "-c"), printable(word_after(words, "-n"))
        self.group = group
        self.scoped = "-s" in words
        self.pidfile = word_after(words, "-p")


def containers(host: Host, path: str, patterns: tuple[str, ...]) -> list[tuple[str, str]]:
    """The result of running() below the control group ``path``; a snapshot keeps this result as one answer."""
    return host.tell(host.unrecorded(lambda: running(host, path, patterns)), "containers", path, patterns)


def running(host: Host, root: str, patterns: t.Iterable[str]) -> list[tuple[str, str]]:
    """Name and control group of each container of root that runs below ``root`` and whose name matches a pattern, sorted.

    The name is empty for a container without a monitor that the storage does not know; such a container is always in the result.
    """
    groups = groups_below(host, root)
    names: dict[str, str] = {}
    for monitor in monitors(host):
        names[monitor.ident] = monitor.name
        if not monitor.scoped:
            groups.setdefault(monitor.ident, f"{root}{monitor.group}")
    if not groups:
        return []
    from fnmatch import fnmatchcase

    if groups.keys() - names.keys():
        names = {**stored_names(host), **names}
    rows = {(names.get(ident, ""), place) for ident, place in groups.items()}
    return sorted(row for row in rows if not row[0] or any(fnmatchcase(row[0], pattern) for pattern in patterns))


def groups_below(host: Host, root: str) -> dict[str, str]:
    """The populated control groups of root's containers, by container id.

    Groups of another owner are left out: a user may give any name to a control group below a delegated control group.
    """
    groups: dict[str, str] = {}
    pending = [root]
    while pending:
        path = pending.pop()
        for name in host.folders(path) if oom_score.has_folders(host, path) else ():
            ident = ident_in(name)
            if not ident:
                pending.append(f"{path}/{name}")
            elif "populated 1" in (host.read(f"{path}/{name}/cgroup.events") or ""):
                if owner(host, path) == owner(host, root):
                    groups[ident] = f"{path}/{name}"
    return groups


def owner(host: Host, path: str) -> t.Optional[int]:
    """The uid of a control group's owner; None if the group is gone. In an archive each owner is root."""
    permissions = host.permissions(path)
    return permissions[1] if permissions else None


def names_of(host: Host, idents: t.Collection[str]) -> dict[str, str]:
    """The names of containers by id: from the containers' monitors, else from the storage."""
    if not idents:
        return {}
    names = {monitor.ident: monitor.name for monitor in monitors(host)}
    return names if all(ident in names for ident in idents) else {**stored_names(host), **names}


def ident_in(name: str) -> str:
    """The id of a container, by the ``name`` of its control group; an empty string for the name of any other control group."""
    start = next((start for start in BEFORE_ID if name.startswith(start)), "")
    ident = name[len(start) :].partition(".scope")[0] if start else ""
    return ident if len(ident) == process.ID_DIGITS and all(digit in "0123456789abcdef" for digit in ident) else ""


def monitors(host: Host) -> t.Iterator[Monitor]:
    """The monitors of root's containers, also the monitors that ``podman exec`` starts.

    Only processes of the system count: a user, or a program in a container, can start a process that looks like any monitor.
    """
    for pid in filter(str.isdecimal, host.folders("/proc")):
        if not oom_score.is_monitor(host, pid):
            continue
        words = (host.read(f"/proc/{pid}/cmdline") or "").split("\0")
        groups = [line for line in (host.read(f"/proc/{pid}/cgroup") or "").splitlines() if line.startswith("0::")]
        if word_after(words, "-c") and groups:
            yield Monitor(words, groups[0][len("0::") :].rstrip("/"))


def word_after(words: list[str], option: str) -> str:
    """The word that follows an option; an empty string without such a word."""
    return next((word for before, word in zip(words, words[1:]) if before == option), "")


def stored_names(host: Host) -> dict[str, str]:
    """The names of containers in root's usual storage, by id (containers/storage)."""
    import json  # Imported here: most ticks find no container without a monitor.

    names: dict[str, str] = {}
    folders = host.names_like(STORAGE, (("", "-containers"),))
    for path in (f"{STORAGE}/{folder}/{name}" for folder in folders for name in LISTS):
        try:
            rows = json.loads(host.read(path) or "[]")
            names.update((str(row["id"]), printable(str(row["names"][0]))) for row in rows if row.get("names"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return names
