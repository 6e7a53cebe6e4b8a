# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The hook that a container engine runs before the first instruction of a pod's container (createRuntime of the OCI runtime specification).
The hook sets the limits that the container was granted.

The hook's words come from Corral's CDI spec, and the engine writes the container's state to the hook's standard input. The start of the
container waits for the hook, so this file imports little.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import typing as t

from ..constants import IN_SYNC
from ..host.containers import container_groups
from ..host.files import Host
from ..model.values.errors import CorralError, refusal

SCORE, CPUS, SWAP = "oom_score_adj", "cpuset.cpus", "memory.swap.max"
EXCLUSIVE = "/corral_"  # start of the names of exclusive slices (schema_types.EXCLUSIVE_PREFIX)
FILE = re.compile(r"cpuset\.cpus|cpu\.(max|weight)|memory\.(swap\.)?max|pids\.max", re.ASCII)
ROOT = "/sys/fs/cgroup"
KERNEL_LOG = "/dev/kmsg"


def run(host: Host, words: t.Sequence[str], state: t.IO[str] = sys.stdin) -> int:
    """Set the limits in ``words`` ("FILE=VALUE") for the container with this ``state``. Returns the exit code. Raises CorralError."""
    try:
        set_limits(host, words, state.read())
    except CorralError as error:
        # crun sends a hook's output to /dev/null (containers/crun#353), and Podman says only that the hook failed.
        with contextlib.suppress(OSError):
            # Without a line feed the kernel shows a line only with the next line.
            host.write_value(KERNEL_LOG, f"<3>corral: container --start: {error}\n")
        raise
    return IN_SYNC


def set_limits(host: Host, words: t.Sequence[str], state: str) -> None:
    """Set the limits in ``words`` for the container with this ``state``. Raises CorralError."""
    pid = process_of(state)
    group = group_of(host, pid)
    for word in words:
        name, dummy, value = word.partition("=")
        if name == SCORE:
            path = f"/proc/{pid}/{SCORE}"
        elif FILE.fullmatch(name):
            path = f"{ROOT}{group}/{name}"
        else:
            raise refusal("is not a limit of a container", path=name, value=value)
        if name == CPUS and not group.startswith(EXCLUSIVE):
            # A container elsewhere that requests CPUs of an exclusive slice would make the slice's partition invalid.
            said = f"the container has CPUs {value} of its own, and is not in the slice that has them: start it with --cgroup-parent"
            said += ", that of a Quadlet file with Slice= in [Service]"
            raise refusal(said, path=f"/proc/{pid}/cgroup", value=group)
        # Without the file the kernel has no limit, as with "max". Without memory.swap.max the kernel counts no swap (as in the kubelet).
        needs_none = name == SWAP or value.partition(" ")[0] == "max"
        if name != SCORE and needs_none and not host.exists(path):
            continue
        try:
            host.write_value(path, value)
        except OSError as error:
            # The path of the file is too long for a message.
            said = f"cannot be set for the container of process {pid}: {error.strerror}"
            raise refusal(said, path=name, value=value) from None


def process_of(text: str) -> int:
    """The PID of a container's first process, from the JSON text of the container's state. Raises CorralError."""
    try:
        pid = json.loads(text)["pid"]
    except (ValueError, KeyError, TypeError, RecursionError):
        pid = None
    if not isinstance(pid, int) or pid <= 0:
        raise refusal(
            "is not the state of a container: this command is a hook of container engines", path="standard input"
        )
    return pid


def group_of(host: Host, pid: int) -> str:
    """The path of a container's control group below /sys/fs/cgroup. Raises CorralError if the process is in no container."""
    lines = (host.read(f"/proc/{pid}/cgroup") or "").splitlines()
    group = next((line[len("0::") :] for line in lines if line.startswith("0::")), "")
    inner = f"/{container_groups.INNER}"
    last = (group[: -len(inner)] if group.endswith(inner) else group).rpartition("/")[2]
    if not group.startswith("/") or ".." in group.split("/") or not container_groups.is_container_group(last):
        raise refusal("is the control group of no container", path=f"/proc/{pid}/cgroup", value=group)
    return group
