# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The obstacles that stop a run before its first write. Check mode looks for the same obstacles and refuses in the same words."""

from __future__ import annotations

import os
import typing as t

from ...model.plan.plan import Step
from ...model.values.errors import CorralError, Problem, refusal
from .. import lock, mounts, state, systemd
from ..files import OWN_FOLDERS, Host

# A mount on any of these files would stop a run later, when the run writes its state.
FILES = tuple(path for own in state.FILES if own.written for path in own.copies)

NOT_REPLACEABLE = (
    "cannot be replaced, even by root: it is immutable (lsattr, chattr -i), or its file system is mounted read-only"
)


class Blocked(CorralError):
    """A file of a step cannot be written at its path."""


def refuse_node(host: Host) -> None:
    """Raise CorralError for a node that cannot be changed at all.

    The reasons: the user is not root, systemd does not run or is too old, or Corral's lock or state files cannot be written.
    """
    if host.live and os.geteuid() != 0:
        raise refusal("changing a node needs root: run with become (Ansible), sudo or as root")
    if not systemd.runs(host):
        raise refusal("systemd is not the init of this machine: Corral works through systemd; only reports work here")
    release = systemd.release(host)
    if release is not None and release < systemd.OLDEST:
        raise refusal(
            f"this node has systemd {release}, and Corral needs {systemd.OLDEST} or newer: upgrade the node's system; only reports "
            "work here"
        )
    for folder in (lock.RUN, state.STATE, os.path.dirname(state.BEFORE)):
        problem = lock.folder_problem(host, folder)
        if problem:
            raise refusal(problem, path=folder)
    if host.link(lock.LOCK) is not None:
        raise refusal("is a link, and the lock of Corral is a file of its own: remove it", path=lock.LOCK)
    for path in (lock.LOCK, *FILES):
        if is_folder(host, path) and (path == lock.LOCK or mounts.at(host, path) is not None):
            raise refusal("is a folder, and Corral keeps a file there: move it away", path=path)
        if cannot_be_replaced(host, path):
            raise refusal(NOT_REPLACEABLE, path=path)


def refuse_steps(host: Host, steps: t.Sequence[Step], *, keep_going: bool = False) -> None:
    """Raise CorralError for steps that cannot succeed here (Blocked for files).

    ``keep_going`` is set for a removal, which continues past files that it cannot restore.
    """
    for tree in sorted({top for step in steps for top in ("/sys", "/proc") if step.target.startswith(f"{top}/")}):
        if host.read_only(tree):
            raise refusal(
                "mounted read-only: run on the node itself, not in a container, or remount it writable", path=tree
            )
    if keep_going:
        return
    problems = {}
    for step in steps:
        if step.kind in ("file", "link") and not step.optional:
            path, problem = obstacle(host, step)
            problems.update({path: Problem(path, None, problem)} if problem else {})
    if problems:
        raise Blocked(*problems.values())


def obstacle(host: Host, step: Step) -> tuple[str, str]:
    """The path that keeps a file or link from being written or removed, and why; two empty strings without an obstacle."""
    if is_folder(host, step.target) and not step.target.startswith(OWN_FOLDERS):
        return step.target, f"is a folder, and a {step.kind} of Corral's goes there: move it away"
    is_there = host.mode(step.target) is not None
    if step.value is None and not is_there:
        return "", ""
    if is_there and cannot_be_replaced(host, step.target):
        return step.target, NOT_REPLACEABLE
    if is_there and mounts.at(host, step.target) is not None:
        return step.target, "is a mount point, so that it cannot be replaced: unmount it"
    folder = os.path.dirname(step.target)
    while host.mode(folder) is None and folder != "/":
        folder = os.path.dirname(folder)
    if not host.is_dir(folder):
        return folder, "is not a folder, and Corral keeps files in a folder of this name: move it away"
    if not host.writable(folder):
        return (
            folder,
            "cannot be written, even by root: its file system is mounted read-only, or it is immutable (lsattr -d)",
        )
    return "", ""


def cannot_be_replaced(host: Host, path: str) -> bool:
    """Whether root may neither write nor replace an existing file; False for a link, which can be replaced."""
    return host.mode(path) is not None and host.link(path) is None and not host.writable(path)


def is_folder(host: Host, path: str) -> bool:
    """Whether a folder is at the path; False for a link to a folder, which is replaced like a file."""
    return host.is_dir(path) and host.link(path) is None
