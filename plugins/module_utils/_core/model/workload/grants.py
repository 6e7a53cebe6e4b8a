# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The grants of workloads: the data of the checkpoint, and the slices of grants.

Each workload has at most one grant. A grant that ends with a run also names this run (``instance``): a restart keeps the grant, and the end
of an earlier run does not end the grant of a later run.
"""

from __future__ import annotations

import types
import typing as t

from ..devices.device import GrantedDevice
from ..numa.numa_memory import Block
from ..profile.profile_workloads import DECLARED, RUNNING, slice_name, workload_name
from ..profile.schema_types import EXCLUSIVE_PREFIX, SHARED_PREFIX
from ..tenants.tenant import Member
from ..values import cpuset
from ..values.cpuset import CpuSet
from ..values.errors import shown
from ..values.records import NamedTuple
from .resources import Amounts, amount_text

if t.TYPE_CHECKING:
    from .resource_requirements import ResourceRequirements

# A slice at the top of the tree can be a partition (cpuset.cpus.partition): the kernel keeps all other processes off its CPUs.
ISOLATED_SLICE = f"{EXCLUSIVE_PREFIX}isolated.slice"
# Bytes by NUMA node and resource. After a reboot Corral compares these totals with the machine's memory.
Totals = t.Mapping[int, t.Mapping[str, int]]
# More than the CPUs, NUMA nodes or grants of any list that Corral writes.
ITEMS_LIMIT = 1 << 16
NOT_OURS = (
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
)  # errors for data that Corral did not write


class Grant(NamedTuple):
    """The resources granted to one workload.

    ``cpus``: the exclusive CPUs (empty: the workload runs on the shared pool). ``containers``: the CPUs of each container of a pod, within
    ``cpus``. ``mems``: the NUMA nodes to which the workload's memory is bound (None: not bound). ``blocks``: the memory granted on these
    nodes. ``requests`` and ``limits``: as granted. ``since``: seconds since the epoch. ``member``: the workload's data for the tenant's
    quotas. ``unit``: the workload's service (empty for a match by container, pod or label).
    """

    workload: str
    hold: str = DECLARED
    instance: str = ""
    cpus: CpuSet = cpuset.EMPTY
    containers: tuple[tuple[str, CpuSet], ...] = ()
    mems: t.Optional[CpuSet] = None
    blocks: tuple[Block, ...] = ()
    requests: Amounts = ()
    limits: Amounts = ()
    since: int = 0
    member: t.Optional[Member] = None
    unit: str = ""
    devices: tuple[GrantedDevice, ...] = ()

    @property
    def tenant(self) -> str:
        """The name of the workload's tenant; an empty string without a tenant."""
        return self.member.tenant if self.member else ""

    @property
    def slice(self) -> str:
        """The name of the workload's slice."""
        return slice_of(self.workload, exclusive=bool(self.cpus), tenant=self.tenant)


class Checkpoint(NamedTuple):
    """All grants, and the memory of each NUMA node (bytes by resource) at the time of the grants."""

    grants: tuple[Grant, ...] = ()
    totals: Totals = types.MappingProxyType({})


def slice_of(workload: str, *, exclusive: bool, tenant: str = "") -> str:
    """The name of a workload's slice: at the top of the tree if ``exclusive``, else within its tenant's slice or the shared slice."""
    if exclusive:
        return f"{EXCLUSIVE_PREFIX}{slice_name(workload)}.slice"
    within = f"{slice_name(tenant)}-" if tenant else ""
    return f"{SHARED_PREFIX}{within}{slice_name(workload)}.slice"


def slice_of_tenant(tenant: str) -> str:
    """The name of the slice in which a tenant's workloads run on the shared pool."""
    return f"{SHARED_PREFIX}{slice_name(tenant)}.slice"


def workload_of(unit: str) -> t.Optional[str]:
    """The name of the workload or tenant to which a slice belongs (both kinds of names look the same); None for any other unit."""
    for prefix in (EXCLUSIVE_PREFIX, SHARED_PREFIX):
        if unit.startswith(prefix) and unit.endswith(".slice") and unit != ISOLATED_SLICE:
            within, dash, name = unit[len(prefix) : -len(".slice")].rpartition("-")
            if dash and (prefix == EXCLUSIVE_PREFIX or workload_name(within) is None):
                return None
            return workload_name(name)
    return None


def is_workloads(unit: str) -> bool:
    """Whether a slice belongs to a workload or tenant."""
    return workload_of(unit) is not None


def is_exclusive(unit: str) -> bool:
    """Whether a slice has exclusive CPUs."""
    return unit == ISOLATED_SLICE or (unit.startswith(EXCLUSIVE_PREFIX) and is_workloads(unit))


def exclusive(grants: t.Iterable[Grant]) -> CpuSet:
    """The exclusive CPUs of all these grants."""
    return cpuset.EMPTY.union(*(grant.cpus for grant in grants))


def persistent(grants: t.Iterable[Grant]) -> tuple[Grant, ...]:
    """The grants that survive a reboot: the grants with ``hold: declared``."""
    return tuple(grant for grant in grants if grant.hold == DECLARED)


def why_redeclared(before: Grant, after: Grant) -> str:
    """A text: what differs between the declarations of two grants of a workload."""
    rows = [
        ("hold", before.hold, after.hold),
        ("tenant", before.tenant, after.tenant),
        ("priority", *(one.member.priority if one.member else "" for one in (before, after))),
    ]
    for key, was, now in (("requests", before.requests, after.requests), ("limits", before.limits, after.limits)):
        old, new = dict(was), dict(now)
        for name in sorted({*old, *new}):
            texts = (amount_text(name, amounts[name]) if name in amounts else "" for amounts in (old, new))
            rows.append((f"{key}.{name}", *texts))
    said = [f"{key} {was or 'none'} -> {now or 'none'}" for key, was, now in rows if was != now]
    return "its declaration changed" + (f": {', '.join(said)}" if said else "")


def undeclared_runs(granted: t.Iterable[Grant], needs: t.Iterable[ResourceRequirements]) -> list[Grant]:
    """The grants with ``hold: running`` of workloads whose names the profile no longer declares."""
    declared = {need.workload.name for need in needs}
    return [grant for grant in granted if grant.hold == RUNNING and grant.workload not in declared]


def renamed(undeclared: t.Iterable[Grant], needs: t.Iterable[ResourceRequirements]) -> list[Grant]:
    """The grants whose units the profile now declares under another name."""
    units = {need.workload.pattern for need in needs if need.workload.is_unit}
    return [grant for grant in undeclared if grant.unit in units]


# The data of the checkpoint


def to_data(checkpoint: Checkpoint) -> dict[str, t.Any]:
    """The checkpoint as JSON data."""
    nodes = {str(node): dict(table) for node, table in checkpoint.totals.items()}
    return {"grants": [grant_to_data(grant) for grant in checkpoint.grants], "nodes": nodes}


def grant_to_data(grant: Grant) -> dict[str, t.Any]:
    """A grant as JSON data; CPUs and NUMA nodes are in the kernel's list format."""
    data = {
        **grant._asdict(),
        "cpus": cpuset.format(grant.cpus),
        "containers": {name: cpuset.format(cpus) for name, cpus in grant.containers},
        "mems": None if grant.mems is None else cpuset.format(grant.mems),
        "blocks": [[cpuset.format(block.nodes), block.resource, block.size] for block in grant.blocks],
        "requests": dict(grant.requests),
        "limits": dict(grant.limits),
        "member": None if grant.member is None else grant.member._asdict(),
        "devices": [[*device[:3], list(device.keys)] for device in grant.devices],
    }
    if not grant.devices:
        del data["devices"]  # Earlier versions can read a checkpoint without devices.
    return data


def from_data(data: t.Any) -> tuple[Checkpoint, tuple[str, ...]]:
    """The checkpoint that to_data() wrote, without unreadable grants, and a text for each unreadable grant.

    Raises ValueError if the data are no checkpoint, or if two grants have the same workload, CPU or device.
    """
    grants: list[Grant] = []
    wrong: list[str] = []
    try:
        rows, nodes = data["grants"], data["nodes"]
        if not isinstance(rows, list) or len(rows) > ITEMS_LIMIT:
            raise ValueError("grants that are no list, or too many")
        totals = {int(node): {str(name): _whole(size) for name, size in held.items()} for node, held in nodes.items()}
    except NOT_OURS as error:
        raise ValueError(f"not as Corral writes it ({error})") from None
    for number, row in enumerate(rows):
        try:
            grants.append(_grant(row))
        except (*NOT_OURS, ValueError) as error:
            name = row.get("workload") if isinstance(row, dict) else None
            of = f" of {shown(name)}" if isinstance(name, str) else ""
            missing = f"no {error}" if isinstance(error, KeyError) else str(error)
            wrong.append(f"grant {number}{of} is not as Corral writes it ({missing})")
    _check(grants)
    return Checkpoint(tuple(grants), totals), tuple(wrong)


def completed(kept: Checkpoint, others: t.Iterable[Grant]) -> Checkpoint:
    """The checkpoint with the grants of further workloads.

    A further grant is left out if one of its CPUs is granted already. It loses the devices that are granted already.
    """
    names, cpus = {grant.workload for grant in kept.grants}, exclusive(kept.grants)
    held = {device.id for grant in kept.grants for device in grant.devices}
    more = (grant for grant in others if grant.workload not in names and not grant.cpus & cpus)
    more = (grant._replace(devices=tuple(row for row in grant.devices if row.id not in held)) for grant in more)
    return kept._replace(grants=(*kept.grants, *more))


def _grant(row: t.Any) -> Grant:
    texts = {name: row[name] for name in ("workload", "hold", "instance")}
    if not all(isinstance(text, str) for text in texts.values()) or texts["hold"] not in (DECLARED, RUNNING):
        raise ValueError("a grant without a workload")
    return Grant(
        **texts,
        cpus=cpuset.parse(row["cpus"]),
        containers=tuple((str(name), cpuset.parse(cpus)) for name, cpus in row["containers"].items()),
        mems=None if row["mems"] is None else cpuset.parse(row["mems"]),
        blocks=tuple(Block(cpuset.parse(nodes), str(name), _whole(size)) for nodes, name, size in row["blocks"]),
        requests=tuple(sorted((str(name), _whole(amount)) for name, amount in row["requests"].items())),
        limits=tuple(sorted((str(name), _whole(amount)) for name, amount in row["limits"].items())),
        since=_whole(row["since"]),
        member=_member(row.get("member")),  # An earlier version wrote no tenants.
        unit=_text(row.get("unit", "")),
        devices=_devices(row.get("devices", [])),  # An earlier version wrote no devices.
    )


def _text(value: t.Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _devices(rows: t.Any) -> tuple[GrantedDevice, ...]:
    if not isinstance(rows, list) or len(rows) > ITEMS_LIMIT:
        raise ValueError("devices that are not a list")
    devices = tuple(
        GrantedDevice(_text(container), _text(resource), _text(name), tuple(map(_text, keys)))
        for container, resource, name, keys in rows
    )
    if len({one[:3] for one in devices}) < len(devices):
        raise ValueError("a device twice")
    return devices


def _member(row: t.Any) -> t.Optional[Member]:
    if row is None:
        return None
    texts = {name: row[name] for name in ("tenant", "qos", "priority")}
    if not all(isinstance(text, str) for text in texts.values()) or not row["tenant"]:
        raise ValueError("a member of no tenant")
    if not isinstance(row["terminating"], bool) or len(row["defaults"]) > ITEMS_LIMIT:
        raise ValueError("a member that no tenant has")
    defaults = tuple(
        (str(who), str(section), str(name), _whole(amount)) for who, section, name, amount in row["defaults"]
    )
    return Member(**texts, terminating=row["terminating"], defaults=defaults)


def _whole(value: t.Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not an amount")
    return value


def _check(grants: t.Sequence[Grant]) -> None:
    names: set[str] = set()
    taken: dict[int, str] = {}
    for grant in grants:
        if grant.workload in names:
            raise ValueError(f"two grants of {grant.workload}")
        names.add(grant.workload)
        for cpu in sorted(grant.cpus):
            if cpu in taken:
                raise ValueError(f"CPU {cpu} is granted to {taken[cpu]} and {grant.workload}")
            taken[cpu] = grant.workload
    holders: dict[str, str] = {}
    for grant in grants:
        for device in sorted({one.id for one in grant.devices}):
            if device in holders:
                raise ValueError(f"device {device} is granted to {holders[device]} and {grant.workload}")
            holders[device] = grant.workload
