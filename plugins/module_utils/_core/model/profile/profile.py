# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A node resource profile: what the user declares, read from YAML or JSON and checked by itself.

What depends on the node (which CPUs exist, how much memory it has) is checked where the profile meets a topology: in
pools.py and capacity_check.py. The keys and their meaning are in schema.py.
"""

from __future__ import annotations

import typing as t

from ..cpu import cpu_options
from ..numa.topology_manager import Policy
from ..values import cpuset
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
    profile_topology,
    profile_values,
    profile_workloads,
    schema,
    schema_cpu,
)
from .profile_confirm import Confirm
from .profile_gc import GC
from .profile_kubelet import Kubelet
from .profile_memory import Memory
from .profile_workloads import Workload
from .schema_reader import Reader

if t.TYPE_CHECKING:
    from ..devices.device import Resource
    from ..tenants.tenant import Tenant
    from ..values.vocabulary import Mode


class Reserved(NamedTuple):
    """Housekeeping CPUs; exactly one of the first three is set. ``slices`` are confined to them."""

    cpus: t.Optional[frozenset[int]]
    number: t.Optional[int]  # key `count`, a name that tuples have taken
    cores_per_numa: t.Optional[int]
    slices: tuple[str, ...]


class Isolated(NamedTuple):
    """CPUs that only processes in the isolated slice may use; exactly one of ``cpus`` and ``cores`` is set.

    ``numa``, ``place`` (first, last) and ``near`` say where cores are, ``load_balance`` whether the scheduler spreads threads
    over them, ``optional`` whether a node that cannot have them does without.
    """

    cpus: t.Optional[frozenset[int]]
    cores: t.Optional[int]
    numa: t.Optional[int]
    near: t.Optional[str]  # an interface, or a PCI address in full
    load_balance: bool = True
    place: t.Optional[str] = None  # key `numa`, where it is a word
    optional: bool = False


class Cpu(NamedTuple):
    """The CPU pools. ``options`` are the kubelet's; ``min_shared`` CPUs always stay in the shared pool.

    ``partitions`` (auto, off) is whether the kernel keeps others out, ``unmanaged`` (report, confine) what becomes of control
    groups that the profile does not know.
    """

    reserved: Reserved
    isolated: t.Optional[Isolated]
    shared_slices: tuple[str, ...]
    whole_cores: bool
    policy: str
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
    """All None and empty when the profile says nothing about processes."""

    pid_max: t.Optional[int]
    threads_max: t.Optional[int]
    reserved: t.Optional[int]
    default_tasks_max: t.Optional[int]
    slices: tuple[SliceTasks, ...]
    per_workload: t.Optional[int] = None


class Profile(NamedTuple):
    """A profile that is right in itself. ``cpu`` None: the node's CPUs are left alone."""

    name: str
    version: int
    mode: Mode
    cpu: t.Optional[Cpu]
    memory: Memory
    pids: Pids
    gc: t.Optional[GC] = None
    workloads: tuple[Workload, ...] = ()
    topology: t.Optional[Policy] = None
    tenants: tuple[Tenant, ...] = ()
    devices: tuple[Resource, ...] = ()
    confirm: t.Optional[Confirm] = None
    kubelet: t.Optional[Kubelet] = None


class Section(NamedTuple):
    """A section that lies in a file of its own.

    ``check`` refuses what contradicts itself in the values that were read, given the profile as written; ``build`` makes
    the field of Profile of them (of None: where the profile has no such section), and ``to_data`` plain data of that.
    """

    check: t.Callable[[Reader, t.Mapping[str, t.Any], t.Mapping[str, t.Any]], None]
    build: t.Callable[[t.Any], t.Any]
    to_data: t.Callable[[t.Any], t.Any]


# By their keys, which are fields of Profile as well.
SECTIONS = {
    "confirm": Section(profile_confirm.check, profile_confirm.build, profile_confirm.to_data),
    "gc": Section(profile_gc.check, profile_gc.build, profile_gc.to_data),
    "workloads": Section(profile_workloads.check, profile_workloads.build, profile_workloads.to_data),
    "tenants": Section(profile_tenants.check, profile_tenants.build, profile_tenants.to_data),
    "devices": Section(profile_devices.check, profile_devices.build, profile_devices.to_data),
    "kubelet": Section(profile_kubelet.check, profile_kubelet.build, profile_kubelet.to_data),
}


def parse(data: object) -> Profile:
    """The profile that ``data`` (from YAML or JSON) declares; a key that is empty (null) counts as left out.

    Raises CorralError with all problems.
    """
    if isinstance(data, dict) and _newer(data.get("version")):
        # Its other keys may mean something that this version cannot know: no word about them.
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
    profile_checks.check(reader, values, given, [section.check for section in SECTIONS.values()])
    if reader.problems:
        raise CorralError(*reader.problems)
    return _build(values)


def has_intents(declared: Profile) -> bool:
    """Whether anything in a profile means something else on each node than it says: see node_intent.py."""
    isolated, memory = declared.cpu.isolated if declared.cpu else None, declared.memory
    return bool(
        (isolated and (isolated.place or isolated.optional))
        or memory.reserved_per_numa is not None
        or any(row.share or row.place or row.near or row.optional for row in memory.hugepages)
        or any(mount.optional for mount in memory.mounts)
    )


def parse_workloads(rows: object) -> tuple[Workload, ...]:
    """The workloads that ``rows`` declare, as a profile's section does. Raises CorralError with all problems."""
    reader = Reader()
    values = reader.section({"workloads": rows}, "", {"workloads": schema.TREE["workloads"]})
    profile_workloads.check(reader, values, {"workloads": rows})
    if reader.problems:
        raise CorralError(*reader.problems)
    return profile_workloads.build(values.get("workloads", ()))


def is_data_of(data: object, profile: t.Optional[Profile]) -> bool:
    """Whether this is the data of a profile (None: of no profile). Another version of Corral may have written other defaults out."""
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
    """The profile as plain JSON data, defaults written out; ``parse`` gives the same profile back."""
    data: dict[str, t.Any] = {"name": profile.name, "version": profile.version, "mode": profile.mode}
    if profile.cpu is not None:
        data["cpu"] = _cpu_data(profile.cpu)
    memory = profile_memory.to_data(profile.memory)
    if memory:
        data["memory"] = memory
    pids = profile_values.given(profile.pids._asdict(), "slices")
    if profile.pids.slices:
        pids["slices"] = {item.slice: item.tasks_max for item in profile.pids.slices}
    if pids:
        data["pids"] = pids
    if profile.topology is not None:
        data["topology"] = profile_topology.to_data(profile.topology)
    for name, section in SECTIONS.items():
        if getattr(profile, name) != section.build(None):
            data[name] = section.to_data(getattr(profile, name))
    return data


def _newer(version: object) -> bool:
    return isinstance(version, int) and not isinstance(version, bool) and version > schema.FORMAT


def _build(values: dict[str, t.Any]) -> Profile:
    cpu, memory, pids = values.get("cpu"), values.get("memory", {}), values.get("pids", {})
    return Profile(
        name=values["name"],
        version=values["version"],
        mode=values["mode"],
        cpu=_build_cpu(cpu) if cpu is not None else None,
        memory=profile_memory.build(memory),
        pids=Pids(
            pids.get("pid_max"),
            pids.get("threads_max"),
            pids.get("reserved"),
            pids.get("default_tasks_max"),
            tuple(sorted(SliceTasks(name, limit) for name, limit in pids.get("slices", {}).items())),
            pids.get("per_workload"),
        ),
        topology=profile_topology.build(values.get("topology")),
        **{name: section.build(values.get(name)) for name, section in SECTIONS.items()},
    )


def _build_cpu(cpu: dict[str, t.Any]) -> Cpu:
    reserved, isolated = cpu["reserved"], cpu.get("isolated")
    return Cpu(
        reserved=Reserved(
            reserved.get("cpus"), reserved.get("count"), reserved.get("cores_per_numa"), tuple(reserved["slices"])
        ),
        isolated=None
        if isolated is None
        else Isolated(
            isolated.get("cpus"),
            isolated.get("cores"),
            profile_values.number(isolated.get("numa")),
            isolated.get("near"),
            isolated.get("load_balance", True),
            profile_values.word(isolated.get("numa")),
            isolated.get("optional", False),
        ),
        shared_slices=tuple(cpu.get("shared", {}).get("slices", schema_cpu.SHARED_SLICES)),
        whole_cores=cpu["whole_cores"],
        policy=cpu["policy"],
        options=profile_checks.options_of(cpu),
        min_shared=cpu.get("shared", {}).get("min_cpus", 1),
        partitions=cpu["partitions"],
        unmanaged=cpu["unmanaged"],
    )


def _cpu_data(cpu: Cpu) -> dict[str, t.Any]:
    reserved = profile_values.renamed(profile_values.given(cpu.reserved._asdict()), number="count")
    reserved["slices"] = list(cpu.reserved.slices)
    shared = {"slices": list(cpu.shared_slices), "min_cpus": cpu.min_shared}
    data: dict[str, t.Any] = {"reserved": reserved, "shared": shared}
    if cpu.isolated is not None:
        data["isolated"] = profile_values.with_place(profile_values.given(cpu.isolated._asdict()), "numa")
    for section in data.values():
        if "cpus" in section:
            section["cpus"] = cpuset.format(section["cpus"])
    options = {name: getattr(cpu.options, field) for name, field in cpu_options.NAMES.items()}
    rest = {name: getattr(cpu, name) for name in ("whole_cores", "policy", "partitions", "unmanaged")}
    return {**data, **rest, "options": options}
