# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The control groups in which containers run (cgroup v2), below the slices of workloads."""

from __future__ import annotations

from . import conmon

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

    from ..files import Host

INNER = "container"  # the group that crun makes below systemd's scope for the container's processes


def containers(host: Host, root: str, slices: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """The result of running() for ``slices`` (paths of control groups); a snapshot keeps this result as one answer."""
    return host.tell(host.unrecorded(lambda: running(host, slices)), "container_groups", root, slices)


def running(host: Host, slices: t.Iterable[str]) -> list[tuple[str, str, str]]:
    """Slice, name and control group of each running container below ``slices``, sorted; the name is empty if unknown."""
    rows = [(place, ident, group) for place in slices for ident, group in conmon.groups_below(host, place).items()]
    names = conmon.names_of(host, [ident for dummy, ident, group in rows])
    return sorted((place, names.get(ident, ""), inner(host, group)) for place, ident, group in rows)


def is_container_group(name: str) -> bool:
    """Whether a control group with this name belongs to a container of Podman, CRI-O, containerd or Docker."""
    return bool(conmon.ident_in(name)) or name.startswith(("crio-", "cri-containerd-", "docker-"))


def inner(host: Host, group: str) -> str:
    """The control group with a container's processes: the group that crun makes in ``group``, if it exists, else ``group``."""
    below = f"{group}/{INNER}"
    return below if host.is_dir(below) else group
