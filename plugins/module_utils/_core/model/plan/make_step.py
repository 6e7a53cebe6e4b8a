# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.

"""One constructor for each kind of step, with the arguments that this kind needs.

``phase`` and ``order`` give the step's place in the whole plan (see plan.py); ``reload`` asks for one daemon-reload after phase FILES.
"""

from __future__ import annotations

import typing as t

from .plan import LIVE, TAKE, Step

if t.TYPE_CHECKING:
    from ..values.vocabulary import Verb

Text = t.TypeVar("Text", bound=t.Optional[str])


def take_and_give(
    write: t.Callable[[Text, int, int], Step], now: Text, low: Text, high: Text, depth: int
) -> list[Step]:
    """The writes of a target (a file or property) whose text lists the resources of a workload; ``now`` is the present text.

    Before the checkpoint the target gets the text ``low``: the resources that the workload has and keeps. After the checkpoint the target
    gets the text ``high``: all granted resources. So no resource has two workloads, even if the run dies. A target depends on the targets
    with a greater ``depth``: it gets ``low`` before these targets, and ``high`` after these targets.
    """
    taken = [] if low == now else [write(low, TAKE, depth)]
    return taken if high == low else [*taken, write(high, LIVE, -depth)]


def file(
    path: str, text: t.Optional[str], phase: int, order: int = 0, *, mode: int = 0o644, reload: bool = False
) -> Step:
    """Write a file with this text and these permission bits. Text None: remove the file."""
    return Step("file", path, text, phase, order, mode=mode, reload=reload)


def link(path: str, target: t.Optional[str], phase: int, order: int = 0, *, reload: bool = False) -> Step:
    """Make a symbolic link. Target None: remove the link."""
    return Step("link", path, target, phase, order, reload=reload)


def folder(path: str, phase: int, order: int = 0) -> Step:
    """Remove a folder, if it is empty."""
    return Step("folder", path, None, phase, order)


def value(path: str, text: str, phase: int, order: int = 0, *, optional: bool = False) -> Step:
    """Write a kernel file from which the written text can be read back."""
    return Step("value", path, text, phase, order, optional=optional)


def pool(path: str, pages: str, phase: int, order: int = 0) -> Step:
    """Write a number of hugepages to an nr_hugepages file. The kernel may give fewer pages."""
    return Step("pool", path, pages, phase, order)


def partition(path: str, kind: str, phase: int, order: int = 0) -> Step:
    """Write "member", "root" or "isolated" to a cpuset.cpus.partition. The kernel may refuse the partition without an error."""
    return Step("partition", path, kind, phase, order)


def cpuset(directory: str, unit: str, cpus: t.Optional[str], phase: int, order: int = 0) -> Step:
    """Set the CPUs of a v1 cpuset directory (None: remove the directory). The processes of ``unit`` (empty: no unit) move into it."""
    return Step("cpuset", directory, cpus, phase, order, name=unit)


def unit_property(unit: str, name: str, setting: str, phase: int, order: int = 0, *, optional: bool = False) -> Step:
    """Set a property of a unit live (systemctl set-property --runtime). An empty setting unsets the property."""
    return Step("property", unit, setting, phase, order, name=name, optional=optional)


def controller(
    path: str, name: str, sign: t.Literal["+", "-"], phase: int, order: int = 0, *, optional: bool = False
) -> Step:
    """Enable ("+") or disable ("-") a controller for child control groups, in the cgroup.subtree_control of their parent."""
    return Step("controller", path, sign, phase, order, name=name, optional=optional)


def unit(name: str, verb: Verb, phase: int, order: int = 0, *, optional: bool = False) -> Step:
    """Start, stop or restart a unit. For "daemon-reload" the name is empty."""
    return Step("unit", name, verb, phase, order, optional=optional)


def mount(name: str, path: str, verb: Verb, phase: int, order: int = 0, *, optional: bool = False) -> Step:
    """Start, stop or restart the mount unit of a mount point."""
    return Step("mount", name, verb, phase, order, name=path, optional=optional)


def hook(path: str, argument: t.Literal["drain", "resume"], phase: int, order: int = 0) -> Step:
    """Run a program of the administrator with one argument. The undo of "drain" is "resume"."""
    return Step("hook", path, argument, phase, order)


def health(unit: str, address: str, phase: int, order: int = 0) -> Step:
    """Wait until a service reports health. ``address``: ADDRESS:PORT of the service's /healthz."""
    return Step("health", unit, address, phase, order)


def ready(unit: str, kubeconfig: str, node: str, phase: int, order: int = 0) -> Step:
    """Wait until the API server of a kubeconfig has reported a node as Ready since a service started."""
    return Step("health", unit, kubeconfig, phase, order, name=node)


def program(folder: str, files: str, python: str, phase: int, order: int = 0) -> Step:
    """Compile the ``files`` (names, one a line) of a program in a folder. ``python``: the interpreter; empty: remove the compiled files."""
    return Step("compile", folder, python, phase, order, name=files)


def driver(folder: str, name: t.Optional[str], phase: int, order: int = 0, *, optional: bool = False) -> Step:
    """Bind a PCI function to the driver ``name`` (None: the former driver). ``folder``: the function's folder in sysfs."""
    return Step("driver", folder, name, phase, order, optional=optional)
