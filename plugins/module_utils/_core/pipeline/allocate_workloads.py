# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The grants of the declared workloads on this node. admission.py decides the grants by the checkpoint and the runs on the node."""

from __future__ import annotations

import fnmatch
import types
import typing as t

from ..host import cgroup, state, workload_files
from ..host.files import Host
from ..host.gc import other_gc
from ..host.memory import hugepage_files
from ..host.pids import sysctl
from ..host.workload import workload_state
from ..model.cpu import pools, unmanaged_groups
from ..model.cpu.pools import Pools
from ..model.devices.device_delivery import env_file
from ..model.numa import numa_memory
from ..model.pids import task_budget
from ..model.plan.context import Workloads
from ..model.profile.profile import Profile
from ..model.profile.profile_workloads import RUNNING, Workload, slice_name
from ..model.profile.schema_types import is_own
from ..model.tenants.tenant import match_meets
from ..model.topology import cpu_topology
from ..model.topology.topology import Topology
from ..model.values import cpuset
from ..model.values.errors import Problem
from ..model.values.printable_text import printable
from ..model.values.records import NamedTuple
from ..model.workload import admission, grants, resource_requirements, workload_units
from ..model.workload.admission import WorkloadStatus
from ..model.workload.grants import Checkpoint, Grant
from ..model.workload.node_budget import AllocationInput
from ..model.workload.resource_requirements import ResourceRequirements
from ..model.workload.resources import MEMORY

if t.TYPE_CHECKING:
    from ..model.devices.device import Inventory

# Seconds within which a workload that was admitted by hand has to start; otherwise its grant ends.
START_SECONDS = 120
BY_HAND = "by-hand"


class Request(NamedTuple):
    """The changes that an admission or release requests. By workload: ``start`` has the id of the run that is about to start, ``stop`` the
    id of the run that has ended. ``admitted`` replaces the workloads that were admitted at run time (None: these workloads stay).
    """

    start: t.Mapping[str, str] = {}
    stop: t.Mapping[str, str] = {}
    admitted: t.Optional[tuple[Workload, ...]] = None


NOTHING = Request()


def concerns(host: Host, declared: Profile) -> bool:
    """Whether the profile has tenants or workloads with resources, or a checkpoint may have grants."""
    claims = any(one.has_resources for one in declared.workloads) or bool(declared.tenants)
    return claims or state.written_before(host, state.CHECKPOINT)


def allocate(
    host: Host,
    declared: Profile,
    topology: Topology,
    base: Pools,
    request: Request = NOTHING,
    *,
    fresh: bool = False,
    before: t.Mapping[str, str] = types.MappingProxyType({}),
) -> tuple[Pools, Workloads]:
    """The pools without the CPUs of grants, and the grants.

    ``base`` are the pools before any grant; with ``fresh`` the profile's hugepages do not exist yet; ``before`` has the original
    kernel values (context.py).
    """
    extra, unreadable = workload_files.admitted_or_damage(host) if request.admitted is None else (request.admitted, "")
    claims = [one for one in (*declared.workloads, *extra) if one.has_resources or declared.tenants]
    workloads, notes = expanded(host, claims, request.start)
    listed = needs_of(host, declared, claims, workloads)
    checkpoint, damage = workload_files.read_checkpoint(host, listed)
    if declared.tenants:
        from . import tenant_workloads  # A node without tenants does not load the module.

        listed, kept = tenant_workloads.as_granted(host, declared, workloads, listed, checkpoint.grants, request.start)
        notes += kept
    tables = memory_tables(host, declared, topology, fresh=fresh)
    inputs = AllocationInput(
        declared, topology, cpu_topology.of(topology), base, tables, pid_capacity(host, declared, before)
    )
    if any(need.cpus for need in listed):
        taken, requested = taken_by_others(host, declared)
        inputs = beside_kubelet(host, inputs, checkpoint.grants)._replace(taken=taken, requested=requested)
    there = device_inventory(host, declared, listed, checkpoint)
    if there is not None:
        inputs = inputs._replace(devices=there.devices, undeclared=there.undeclared, devices_elsewhere=there.elsewhere)
    status = observe(host, checkpoint.grants, listed, request, undeclared_stay=bool(unreadable))
    if there is not None and there.runs:
        status = status._replace(unknown_runs=unknown_runs(listed, there))
    promised = {one.workload: one.blocks for one in checkpoint.grants}
    drift = numa_memory.drift(checkpoint.totals or tables, tables, promised)
    status = status._replace(lost_memory=drift.broken)
    ended = ended_grants(host, checkpoint.grants, listed, request)
    lasting = [grant for grant in checkpoint.grants if grant not in ended]
    allocated = admission.allocate(inputs, listed, lasting, status)
    ends = [admission.AllocationEvent(grant.workload, grant, None, "its run has ended") for grant in ended]
    allocated = allocated._replace(events=(*allocated.events, *ends))
    status = status._replace(evicted=evicted(host, listed, allocated.grants))
    if declared.tenants:
        listed = tenant_workloads.not_raised(listed, allocated)
    now = pools.with_exclusive(base, grants.exclusive(allocated.grants))
    persistent = pools.with_exclusive(base, grants.exclusive(grants.persistent(allocated.grants)))
    if request == NOTHING:
        notes += never_granted(inputs, listed, allocated.grants)
    shared = [f"workload {need.workload.name}: {need.note}" for need in listed if need.note]
    return now, Workloads(
        tuple(listed),
        checkpoint,
        allocated,
        tables,
        persistent,
        status,
        damage,
        (*notes, *shared, *drift.notes, *([unreadable] if unreadable else [])),
        request.admitted,
        inputs.pids,
        drift.notes,
        frozenset(request.stop),
        there,
    )


def needs_of(
    host: Host, declared: Profile, claims: t.Sequence[Workload], workloads: t.Sequence[Workload]
) -> list[ResourceRequirements]:
    """The needs of ``workloads``, with the defaults of their tenants. ``claims`` are the workloads as declared."""
    if declared.tenants:
        from . import tenant_workloads

        return tenant_workloads.needs(host, declared, claims, workloads)
    policy = declared.cpu.policy if declared.cpu else "none"
    return [resource_requirements.of(workload, policy, declared.pids.per_workload) for workload in workloads]


def ended_grants(
    host: Host, granted: t.Sequence[Grant], listed: t.Sequence[ResourceRequirements], request: Request
) -> list[Grant]:
    """The grants whose run ends with this request: the request stops the run, or starts the run's unit under another workload's name."""
    past = over_at_start(host, listed, granted, request.start) if request.start else ()
    running = (grant for grant in granted if grant.hold == RUNNING)
    return [one for one in running if one.workload in past or request.stop.get(one.workload) == one.instance]


def never_granted(
    inputs: AllocationInput, listed: t.Iterable[ResourceRequirements], granted: t.Iterable[Grant]
) -> list[str]:
    """A note on each workload with hold: running whose starts would all be refused."""
    having = {one.workload for one in granted}
    waiting = {
        need.workload.name.partition(":")[0]: need
        for need in listed
        if need.workload.hold == RUNNING and need.workload.name not in having
    }
    refusals = {name: admission.refused_alone(inputs, need) for name, need in waiting.items()}
    return [
        f"workload {name}: each of its starts would be refused on this node: {Problem(refusal.key, refusal.value, refusal.message).line()}"
        for name, refusal in refusals.items()
        if refusal is not None
    ]


def device_inventory(
    host: Host, declared: Profile, listed: t.Iterable[ResourceRequirements], checkpoint: Checkpoint
) -> t.Optional[Inventory]:
    """The devices of the node; None if no workload requests or has devices."""
    if not (any(need.devices for need in listed) or any(grant.devices for grant in checkpoint.grants)):
        return None
    from ..host.devices import checked_devices  # A node without devices does not load the module.

    return checked_devices.devices_to_give(host, declared.devices, checkpoint.grants)


def unknown_runs(listed: t.Iterable[ResourceRequirements], there: Inventory) -> dict[str, str]:
    """The workloads that run with devices of a lost grant, each with the name of its unit (without a unit, its own name)."""
    files = {need.workload.name: env_file(need.workload.name, need.workload.unit) for need in listed}
    return {name: there.runs[path] for name, path in files.items() if path in there.runs}


def expanded(
    host: Host, declared: t.Sequence[Workload], starting: t.Iterable[str] = ()
) -> tuple[list[Workload], list[str]]:
    """The workloads, each pattern replaced by a workload for each matching unit, and notes on patterns and units.

    ``starting`` are the names of workloads that are about to start. Only these names show an instance of a template that never started.
    """
    workloads: list[Workload] = []
    notes: list[str] = []
    globs = [workload.pattern for workload in declared if workload.is_unit and workload.is_glob]
    known = workload_state.units_like(host, globs)
    for workload in declared:
        if not workload.is_unit or not workload.is_glob:
            workloads.append(workload)
            continue
        names = (name[len(workload.name) + 1 :] for name in starting if name.startswith(f"{workload.name}:"))
        new = [f"{name}.service" for name in names if fnmatch.fnmatchcase(f"{name}.service", workload.pattern)]
        units = sorted({*fnmatch.filter(known, workload.pattern), *new})
        template = (
            workload.pattern.replace("@*.", "@.")
            if workload.pattern.count("*") == 1 and "?" not in workload.pattern
            else ""
        )
        template = template if "@." in template and workload.hold == RUNNING else ""
        # A template without instances is normal; a pattern without a unit file is probably misspelt.
        if not units and workload.has_resources and not (template and workload_state.has_file(host, template)):
            notes.append(f"workload {workload.name}: no unit matches {workload.pattern}")
        for unit in units:
            name = unit[: -len(".service")]
            problem = workload_units.name_problem(f"{workload.name}:{name}")
            if problem:
                notes.append(
                    f"workload {workload.name}: {printable(unit)} {problem}: it is granted nothing, and with hold: running it does not start"
                )
                continue
            # A dash in an instance's name would nest slices, which no specifier prevents (systemd.unit(5)).
            plain = "" if "-" in name.partition("@")[2] else template
            workloads.append(workload._replace(name=f"{workload.name}:{name}", pattern=unit, template=plain))
        if template:
            # The template stands for instances that are not known yet.
            name = f"{workload.name}:{template[: -len('.service')]}"
            workloads.append(workload._replace(name=name, pattern=template, template=template))
    return workloads, notes


def without_conflicts(host: Host, declared: Profile) -> t.Optional[Request]:
    """The request to release each admitted workload with the name or the unit of a declared workload, or the name of a tenant.

    None without such a workload. These workloads were admitted under an unconfirmed profile, from which the node goes back to ``declared``.
    """
    there = workload_files.admitted(host)
    tenants = {slice_name(one.name) for one in declared.tenants}
    fitting = (one for one in there if slice_name(one.name) not in tenants)
    left = tuple(one for one in fitting if conflicting(one, declared.workloads) is None)
    return Request(admitted=left) if left != there else None


def conflicting(workload: Workload, others: t.Iterable[Workload]) -> t.Optional[Workload]:
    """The first of ``others`` that has the name of ``workload``, or may match the same unit or container; None if no workload does."""
    for other in others:
        is_other = other.has_resources and other.match == workload.match
        if other.name == workload.name or (is_other and match_meets(other.match, workload.pattern, other.pattern)):
            return other
    return None


def observe(
    host: Host,
    granted: t.Iterable[Grant],
    listed: t.Iterable[ResourceRequirements],
    request: Request,
    *,
    undeclared_stay: bool = False,
) -> WorkloadStatus:
    """The state of the workloads whose grants depend on a run.

    A declared workload that was admitted by hand has START_SECONDS to start. The grant of an undeclared workload may be left from an
    admission that died; no start would find such a grant, so the grant does not wait for a start.
    """
    now = int(host.now())
    listed, granted = list(listed), list(granted)
    declared = {need.workload.name: need for need in listed}
    others = other_units(host, granted, declared)
    renamed = grants.renamed(grants.undeclared_runs(granted, listed), listed)
    granted = [one for one in granted if run_matters(one, declared.get(one.workload))]
    known = [one for one in granted if undeclared_stay or one.workload in declared]
    waiting = {one.workload for one in known if waits_to_start(host, one)}
    moved = {one.workload for one in renamed if not one.devices and runs_elsewhere(host, one)}
    alive = frozenset(
        grant.workload
        for grant in granted
        if grant.workload in waiting or (grant.workload not in moved and runs(host, grant))
    )
    running = [grant for grant in granted if grant.workload in alive]
    sharing = off_their_cpus(host, running, declared, waiting)
    return WorkloadStatus(
        alive, request.start, now, sharing=sharing, undeclared_stay=undeclared_stay, other_units=others
    )


def off_their_cpus(
    host: Host, running: t.Iterable[Grant], declared: t.Mapping[str, ResourceRequirements], waiting: t.Container[str]
) -> frozenset[str]:
    """The workloads that no longer declare exclusive CPUs, and run on the shared pool or in another slice instead of their grant's CPUs."""
    names = set()
    for grant in running:
        need = declared.get(grant.workload)
        if not grant.cpus or (need is not None and need.cpus):
            continue
        shares = workload_state.shares(host, grant.workload, need.tenant if need is not None else grant.tenant)
        if shares or not (grant.workload in waiting or runs_in_slice(host, grant)):
            names.add(grant.workload)
    return frozenset(names)


def evicted(host: Host, listed: t.Iterable[ResourceRequirements], granted: t.Iterable[Grant]) -> frozenset[str]:
    """The workloads that have no grant and still run in the slice of their former exclusive CPUs."""
    has_grant = {grant.workload for grant in granted}
    names = [need.workload.name for need in listed if need.cpus and need.workload.name not in has_grant]
    there = frozenset(cgroup.top_level(host)) if names else frozenset()
    units = {name: grants.slice_of(name, exclusive=True) for name in names}
    return frozenset(name for name, unit in units.items() if unit in there and cgroup.populated(host, unit))


def run_matters(grant: Grant, need: t.Optional[ResourceRequirements]) -> bool:
    """Whether a grant depends on a run: the grant ends with the run, has devices, or has CPUs that its workload no longer declares."""
    if grant.hold == RUNNING or grant.devices:
        return True
    return need is not None and (need.workload.hold == RUNNING or (bool(grant.cpus) and not need.cpus))


def runs(host: Host, grant: Grant) -> bool:
    """Whether the run of a grant has begun and not ended.

    A unit keeps its devices in any slice: the unit may have started again in another slice since its workload left the profile.
    """
    if grant.devices and grant.unit and workload_state.runs_unit(host, grant.unit):
        return True
    return runs_in_slice(host, grant)


def runs_in_slice(host: Host, grant: Grant) -> bool:
    """Whether a process is in a slice of the grant's workload, or the unit that holds the grant is active."""
    if workload_state.populated(host, grant.workload, grant.tenant):
        return True
    return workload_state.run_of(host, grant.workload) is not None


def over_at_start(
    host: Host, listed: t.Sequence[ResourceRequirements], granted: t.Iterable[Grant], start: t.Iterable[str]
) -> set[str]:
    """The earlier names of workloads that are about to start. The grants under these names end with the start."""
    starting = [need for need in listed if need.workload.name in start]
    earlier = grants.renamed(grants.undeclared_runs(granted, listed), starting)
    return {one.workload for one in earlier if not workload_state.populated(host, one.workload, one.tenant)}


def other_units(
    host: Host, granted: t.Iterable[Grant], declared: t.Mapping[str, ResourceRequirements]
) -> dict[str, str]:
    """By workload, a unit or container that still runs in the workload's slice: the declared unit would have to share the slice."""
    running = {}
    for grant in granted:
        need = declared.get(grant.workload)
        unit = need.workload.unit if need else ""
        if need is None or grant.unit == unit:
            continue
        places = workload_state.places(grant.workload, grant.tenant)
        if grant.unit:
            others = [grant.unit] if workload_state.slice_that_holds(host, grant.unit) in places else []
        else:
            others = [name for place in places for name in workload_state.others_in(host, place, unit)]
        if others:
            running[grant.workload] = others[0]
    return running


def runs_elsewhere(host: Host, grant: Grant) -> bool:
    """Whether a grant's unit started again in the slice of another workload, where the unit has another grant."""
    if workload_state.populated(host, grant.workload, grant.tenant):
        return False
    return workload_state.slice_that_holds(host, grant.unit) is not None


def waits_to_start(host: Host, grant: Grant) -> bool:
    """Whether a grant is for a workload that was admitted by hand and still has time to start."""
    began, dummy, up = grant.instance.rpartition(":")
    if not began.startswith(BY_HAND) or began != by_hand(host).rpartition(":")[0] or not up.isdecimal():
        return False  # The grant is for a run of its unit, or from another boot.
    return 0 <= host.uptime() - int(up) < START_SECONDS


def by_hand(host: Host) -> str:
    """The run id of a grant that is made by hand now. The id has the boot's id and the uptime, which no change of the clock moves."""
    return f"{BY_HAND}:{host.boot_id()[:8]}:{int(host.uptime())}"


def memory_tables(host: Host, declared: Profile, topology: Topology, *, fresh: bool) -> dict[int, dict[str, int]]:
    """The bytes of memory and hugepages of each NUMA node that may be granted (kubelet: allocatable).

    With ``fresh`` the hugepage pools count with their declared pages, else with their present pages. The kernel spreads a pool of the whole
    machine evenly over the nodes if possible, from the first node on (hugetlbpage.rst).
    """
    totals = {node.id: node.memory_kib << 10 for node in topology.numa.values() if node.memory_kib}
    pages = {node.id: dict(node.hugepages) for node in topology.numa.values()}
    for pool in declared.memory.hugepages:
        if pool.node is not None and pool.node in pages:
            there = hugepage_files.pool(host, pool.size_kib, pool.node)
            pages[pool.node][pool.size_kib] = pool.pages if fresh or there is None else there
        elif pool.node is None:
            spread = {node: hugepage_files.pool(host, pool.size_kib, node) or 0 for node in totals}
            if fresh and sum(spread.values()) != pool.pages:
                even, odd = divmod(pool.pages, max(len(totals), 1))
                spread = {node: even + (index < odd) for index, node in enumerate(sorted(totals))}
            for node, count in spread.items():
                pages[node][pool.size_kib] = count
    reserved = {row.node: {MEMORY: row.size} for row in declared.memory.reserved}
    return numa_memory.allocatable(totals, pages, reserved)


def waits(host: Host, granted: t.Iterable[Grant]) -> bool:
    """Whether any grant waits for the start of a workload that was admitted by hand: such a grant ends after START_SECONDS."""
    return any(
        grant.instance.startswith(BY_HAND) and not workload_state.populated(host, grant.workload, grant.tenant)
        for grant in granted
    )


def pid_capacity(host: Host, declared: Profile, before: t.Mapping[str, str]) -> t.Optional[int]:
    """The number of tasks that workloads may be given: the machine's limit minus the reserve; None if no limit is known."""
    total = task_budget.capacity(declared.pids, sysctl.task_limits(host, declared.pids, before))
    return None if total is None else max(total - (declared.pids.reserved or 0), 0)


def taken_by_others(host: Host, declared: Profile) -> tuple[frozenset[int], frozenset[int]]:
    """The CPUs of foreign partitions, and the CPUs that foreign control groups request, both at the top level.

    A control group is foreign if it is not Corral's and the profile does not name it. Partitions of slices that the profile names end with
    the next tick.
    """
    if declared.cpu is None or not cgroup.unified(host):
        return cpuset.EMPTY, cpuset.EMPTY
    known = {"init.scope", *declared.cpu.reserved.slices, *declared.cpu.shared_slices}
    top = cgroup.top_level(host)
    known.update(name for name in top if is_own(name))
    others = [name for name in top if name not in known and not name.endswith(unmanaged_groups.HELPERS)]
    requested = (cgroup.cpu_list(host.read(f"{cgroup.ROOT}/{name}/cpuset.cpus")) or cpuset.EMPTY for name in others)
    exclusive = (cgroup.exclusive(host, f"{cgroup.ROOT}/{name}") for name in others)
    return cgroup.foreign_partitions(host, known), cpuset.EMPTY.union(*requested, *exclusive)


def beside_kubelet(host: Host, inputs: AllocationInput, granted: t.Iterable[Grant]) -> AllocationInput:
    """The inputs with the CPUs that the node's kubelet leaves to other programs: reserved CPUs on which no pod may run.

    If Corral cannot know now which CPUs the kubelet leaves, only the CPUs of ``granted`` count: when they were granted, no pod could run on
    them.
    """
    service = other_gc.kubelet(host)
    if service is None:
        return inputs
    from ..host.kubelet import kubelet_cpus, kubelet_state
    from ..host.kubelet.kubelet_unit import UNIT

    said = (
        f"{service} runs here and gives the others to pods: only its reservedSystemCPUs can be granted, under its static policy with "
        "strict-cpu-reservation"
    )
    found = kubelet_cpus.bound(host) if service == UNIT else None  # An embedded kubelet has another configuration.
    if found is None or not (found.unread or found.is_strict):
        return inputs._replace(kubelet=said, not_kubelets=cpuset.EMPTY)
    cpus = found.reserved
    if found.unread or (found.doubt and found.pods is None):
        cpus = cpuset.EMPTY.union(*(grant.cpus for grant in granted))
    if found.unread:
        said = f"the configuration of {service} cannot be read ({found.unread}): correct that first"
    elif found.doubt:
        said += f"; {found.doubt}: {kubelet_state.way_to_read(host, found.newer, inputs.topology)}"
    return inputs._replace(kubelet=said, not_kubelets=cpus)
