# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A node resource profile: what the user declares, read from YAML or JSON, and checked without a node.

Conditions that depend on the node (which CPUs exist, how much memory it has) are checked in pools.py and capacity_check.py. The keys and
their meaning are in schema.py.
"""

from __future__ import annotations

import functools
import typing as t
from itertools import starmap

from ..cpu import cpu_options
from ..numa.topology_manager import Policy
from ..values.errors import CorralError
from ..values.records import NamedTuple
from . import (
    profile_checks,
    profile_confirm,
    profile_devices,
    profile_gc,
    profile_kubelet,
    profile_memory,
    profile_tenants,
    profile_workloads,
    schema,
    schema_cpu,
    schema_types,
    section_data,
)
from .profile_confirm import Confirm
from .profile_gc import GC
from .profile_kubelet import Kubelet
from .profile_memory import Memory
from .profile_workloads import Workload
from .schema_reader import Reader
from .section_data import Shape

if t.TYPE_CHECKING:
    from ..devices.device import Resource
    from ..tenants.tenant import Tenant
    from ..values.vocabulary import Mode


class Reserved(NamedTuple):
    """Housekeeping CPUs; exactly one of the first three fields is set. ``slices`` are confined to these CPUs."""

    cpus: t.Optional[frozenset[int]] = None
    number: t.Optional[int] = None  # the key `count`: a tuple has a method of this name
    cores_per_numa: t.Optional[int] = None
    slices: tuple[str, ...] = schema_cpu.HOUSEKEEPING_SLICES


class Isolated(NamedTuple):
    """CPUs that only processes in the isolated slice may use; exactly one of ``cpus`` and ``cores`` is set.

    ``numa``, ``place`` (first, last) and ``near`` say where the cores are. ``load_balance``: the scheduler spreads threads over the
    isolated CPUs. ``optional``: on a node that cannot isolate these CPUs no CPUs are isolated.
    """

    cpus: t.Optional[frozenset[int]] = None
    cores: t.Optional[int] = None
    numa: t.Optional[int] = None
    near: t.Optional[str] = None  # an interface, or a PCI address in full
    load_balance: bool = True
    place: t.Optional[str] = None  # the key `numa` with a word as its value
    optional: bool = False


class Cpu(NamedTuple):
    """The CPU pools. ``options``: the CPU manager's options, as in the kubelet. ``min_shared`` CPUs always stay in the shared pool.

    ``partitions`` (auto, off): whether the kernel keeps other processes out. ``unmanaged`` (report, confine): what happens to control
    groups that the profile does not name.
    """

    reserved: Reserved
    isolated: t.Optional[Isolated] = None
    shared_slices: tuple[str, ...] = schema_cpu.SHARED_SLICES
    whole_cores: bool = False
    policy: str = "none"
    options: cpu_options.Options = cpu_options.Options()
    min_shared: int = 1
    partitions: str = "auto"
    unmanaged: str = "report"

    @property
    def strict(self) -> bool:
        """Whether shared workloads are kept off the reserved CPUs."""
        return self.options.strict_cpu_reservation


class SliceTasks(NamedTuple):
    """TasksMax of a slice."""

    slice: str
    tasks_max: int


class Pids(NamedTuple):
    """The limits of processes and threads; all fields are None or empty if the profile declares no limits."""

    pid_max: t.Optional[int] = None
    threads_max: t.Optional[int] = None
    reserved: t.Optional[int] = None
    default_tasks_max: t.Optional[int] = None
    slices: tuple[SliceTasks, ...] = ()
    per_workload: t.Optional[int] = None


class Profile(NamedTuple):
    """A profile without contradictions. ``cpu`` None: Corral does not change the node's CPUs."""

    name: str
    version: int
    mode: Mode
    cpu: t.Optional[Cpu] = None
    memory: Memory = Memory()
    pids: Pids = Pids()
    gc: t.Optional[GC] = None
    workloads: tuple[Workload, ...] = ()
    topology: t.Optional[Policy] = None
    tenants: tuple[Tenant, ...] = ()
    devices: tuple[Resource, ...] = ()
    confirm: t.Optional[Confirm] = None
    kubelet: t.Optional[Kubelet] = None


# The checks of sections that have files of their own. Each check refuses contradictions in the values that were read, and also receives the
# profile as written.
CHECKS = {
    "confirm": profile_confirm.check,
    "gc": profile_gc.check,
    "workloads": profile_workloads.check,
    "tenants": profile_tenants.check,
    "devices": profile_devices.check,
    "kubelet": profile_kubelet.check,
}
# For each section, the tuple with the section's values: see section_data.py.
SHAPES: dict[str, t.Any] = {
    "": Profile,
    "cpu": Cpu,
    "cpu.reserved": Reserved,
    "cpu.isolated": Isolated,
    "cpu.options": cpu_options.Options,
    "pids": Pids,
    "pids.slices": Shape(lambda limits: tuple(sorted(starmap(SliceTasks, limits.items()))), dict),
    "topology": functools.partial(Policy, max_nodes=schema_types.NODE_LIMIT),
    **profile_memory.SHAPES,
    **profile_gc.SHAPES,
    **profile_workloads.SHAPES,
    **profile_tenants.SHAPES,
    **profile_devices.SHAPES,
    **profile_confirm.SHAPES,
    **profile_kubelet.SHAPES,
}


def parse(data: object) -> Profile:
    """The profile that ``data`` (from YAML or JSON) declares; a key that is empty (null) counts as left out.

    Raises CorralError with all problems.
    """
    if isinstance(data, dict) and _newer(data.get("version")):
        # In a newer format a key may have another meaning, so no key besides the version is checked.
        reader = Reader()
        reader.refuse(
            "version",
            data["version"],
            f"a profile of a newer version: this Corral knows {schema.FORMAT}; update it on the node",
        )
        raise CorralError(*reader.problems)
    reader = Reader()
    values = reader.section(data, "", schema.TREE)
    given = data if isinstance(data, dict) else {}
    profile_checks.check(reader, values, given, CHECKS.values())
    if reader.problems:
        raise CorralError(*reader.problems)
    declared: Profile = section_data.build(values, schema.ROOT, SHAPES)
    return declared


def has_intents(declared: Profile) -> bool:
    """Whether a profile has places, shares or optional parts, which each node resolves for itself: see node_intent.py."""
    isolated, memory = declared.cpu.isolated if declared.cpu else None, declared.memory
    return bool(
        (isolated and (isolated.place or isolated.optional))
        or memory.reserved_per_numa is not None
        or any(row.share or row.place or row.near or row.optional for row in memory.hugepages)
        or any(mount.optional for mount in memory.mounts)
    )


def parse_workloads(rows: object) -> tuple[Workload, ...]:
    """The workloads of ``rows``, entries in the form of the section ``workloads``. Raises CorralError with all problems."""
    reader = Reader()
    values = reader.section({"workloads": rows}, "", {"workloads": schema.TREE["workloads"]})
    profile_workloads.check(reader, values, {"workloads": rows})
    if reader.problems:
        raise CorralError(*reader.problems)
    return profile_workloads.build(values.get("workloads", ()))


def is_data_of(data: object, profile: t.Optional[Profile]) -> bool:
    """Whether ``data`` declares the same as ``profile`` (None: no profile), even if another version of Corral wrote out other defaults."""
    if profile is None or data is None:
        return profile is None and data is None
    known = to_data(profile)
    if data == known:
        return True
    try:
        return to_data(parse(data)) == known
    except CorralError:
        return False


def to_data(profile: Profile) -> dict[str, t.Any]:
    """The profile as plain data with all defaults; ``parse`` returns the same profile for this data."""
    return section_data.section(profile, schema.ROOT, SHAPES)


def _newer(version: object) -> bool:
    return isinstance(version, int) and not isinstance(version, bool) and version > schema.FORMAT
