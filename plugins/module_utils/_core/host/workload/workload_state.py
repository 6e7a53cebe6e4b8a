# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Workloads as the node's files show them: which workloads run, in which slices, and with which CPUs."""

from __future__ import annotations

import posixpath
import re
import typing as t

from ...model.profile.profile_workloads import RUNNING, Workload, workload_name
from ...model.profile.schema_types import CORRAL_SLICE
from ...model.systemd import unit_property
from ...model.values import cpuset
from ...model.workload import workload_units
from ...model.workload.grants import Grant, is_exclusive, slice_of, workload_of
from .. import cgroup, systemd
from ..files import Host

# systemd keeps the INVOCATION_ID of every active service here, as a link (src/core/unit.c, unit_export_invocation_id).
INVOCATIONS = "/run/systemd/units"
INVOCATION = "invocation:"
# The beginnings and ends of the names of folders that have a unit's dependencies.
WANTS = (("", ".requires"), ("", ".wants"))
WILD = re.compile(r"[*?\[\]]")


def run_of(host: Host, workload: str) -> t.Optional[str]:
    """The INVOCATION_ID of the unit that keeps a workload's grant; None while this unit is not active."""
    return host.link(f"{INVOCATIONS}/{INVOCATION}{workload_units.grant_unit(workload)}")


def granted_files(host: Host) -> dict[str, str]:
    """The files through which systemd knows a unit's grant, by the workload's name (workload_units.py)."""
    folder, dummy, start = workload_units.GRANTED.rpartition("/")
    names = host.names_like(folder, ((start, ""),))
    return {workload_name(name[len(start) :]) or name: f"{folder}/{name}" for name in names}


def populated(host: Host, workload: str, tenant: str = "") -> bool:
    """Whether a process runs in any of a workload's slices."""
    return any(cgroup.populated(host, unit) for unit in places(workload, tenant))


def places(workload: str, tenant: str = "") -> list[str]:
    """The slices in which a workload may run: its exclusive slice; its shared slice; with a ``tenant`` also its earlier shared slice."""
    shared = [slice_of(workload, exclusive=False, tenant=tenant)] if tenant else []
    return [slice_of(workload, exclusive=True), *shared, slice_of(workload, exclusive=False)]


def shares(host: Host, workload: str, tenant: str = "") -> bool:
    """Whether a workload runs in shared slices only."""
    own, *shared = places(workload, tenant)
    return any(cgroup.populated(host, unit) for unit in shared) and not cgroup.populated(host, own)


def slices(host: Host) -> list[str]:
    """The existing slices of workloads and tenants: exclusive slices first; a tenant's slice after the slices inside it."""
    shared = [unit for unit in cgroup.slices_in(host, CORRAL_SLICE) if workload_of(unit)]
    inner = [unit for outer in shared for unit in cgroup.slices_in(host, outer) if workload_of(unit)]
    return [*(unit for unit in cgroup.slices_in(host, "") if workload_of(unit)), *inner, *shared]


def units_like(host: Host, patterns: t.Collection[str]) -> list[str]:
    """The services that have a file, are enabled instances or run, and whose names begin and end like one of the patterns.

    A name that is only an alias is left out. The caller compares the whole pattern.
    """
    if not patterns:
        return []
    ends = tuple(sorted({(WILD.split(pattern)[0], WILD.split(pattern)[-1]) for pattern in patterns}))
    units: set[str] = set()
    for base in systemd.LOAD_PATH:
        units.update(name for name in host.names_like(base, ends) if not other_name(host, f"{base}/{name}"))
        for name in host.names_like(base, WANTS):
            units.update(host.names_like(f"{base}/{name}", ends))
    running = host.names_like(INVOCATIONS, tuple((f"{INVOCATION}{start}", end) for start, end in ends))
    units.update(link[len(INVOCATION) :] for link in running)
    return sorted(name for name in units if name.endswith(".service") and not name.endswith("@.service"))


def units_of(workloads: t.Iterable[Workload]) -> list[str]:
    """The names or patterns of the workloads' units, with the templates of instances."""
    return [name for workload in workloads if workload.is_unit for name in named(workload.pattern)]


def named(unit: str) -> list[str]:
    """The names that the unit file of a service may have: its own, and for an instance its template's."""
    stem, at, dummy = unit.partition("@")
    return [unit, *([f"{stem}@.service"] if at else [])]


def there(host: Host, files: systemd.UnitFiles, unit: str) -> bool:
    """Whether systemd has a file for a service or its template, or runs the service."""
    return any(files.fragment(name) for name in named(unit)) or runs_unit(host, unit)


def other_name(host: Host, path: str) -> str:
    """The unit's real name if its file is a link to another unit's file (systemd.unit(5), Alias=); an empty string for any other file. A
    link from an instance to its template is no alias, nor is a link out of the load path.
    """
    text = host.link(path)
    if text is None:
        return ""
    folder, dummy, name = path.rpartition("/")
    base, dummy, target = posixpath.normpath(posixpath.join(folder, text)).rpartition("/")
    # /lib is a link to /usr/lib, and links in Debian's packages lead to /lib.
    known = base in systemd.LOAD_PATH or f"/usr{base}" in systemd.LOAD_PATH
    return target if known and target not in systemd.fragments(name) else ""


def has_file(host: Host, unit: str) -> bool:
    """Whether systemd has a file for a service or a template."""
    return any(host.exists(f"{base}/{unit}") for base in systemd.LOAD_PATH)


def runs_unit(host: Host, unit: str) -> bool:
    """Whether a service is active."""
    return host.link(f"{INVOCATIONS}/{INVOCATION}{unit}") is not None


def ask_for_end(host: Host, granted: t.Iterable[Grant]) -> bool:
    """Make systemd stop the units of grants whose workload does not run. Returns whether such units exist.

    After a reload of a unit systemd stops this unit if no unit or job needs it. A start that still waits is such a job, and only systemd
    knows its jobs: no job can come between systemd's check and the stop.
    """
    by_name = {grant.workload: grant for grant in granted}
    begin, end = workload_units.GRANT_UNITS.split("*")
    asked = []
    for link in host.names_like(INVOCATIONS, ((f"{INVOCATION}{begin}", end),)):
        holder = link[len(INVOCATION) :]
        name = workload_name(holder[len(begin) : -len(end)])
        if not name:
            continue
        grant, instance = by_name.get(name), name.partition(":")[2]
        unit = grant.unit if grant else f"{instance}.service" if instance else ""
        if (grant and grant.hold != RUNNING) or (unit and runs_unit(host, unit)):
            continue
        if grant:
            needed = populated(host, name, grant.tenant)
        else:
            runs = any(
                workload_of(slice_unit) == name and cgroup.populated(host, slice_unit) for slice_unit in slices(host)
            )
            needed = runs or is_needed(host, holder)
        if not needed:
            asked.append(holder)
    if asked:
        host.unrecorded(lambda: host.run("systemctl", "reload", "--no-block", *asked))
    return bool(asked)


def is_needed(host: Host, holder: str) -> bool:
    """Whether Corral's drop-in of a running service requires ``holder``, the unit of a grant that has no record."""
    folders = set(host.folders(unit_property.ETC))
    for link in host.names_like(INVOCATIONS, ((INVOCATION, ".service"),)):
        unit = link[len(INVOCATION) :]
        instance = unit.partition("@")[2].rpartition(".")[0]
        for known in named(unit):
            for file in (workload_units.NAME, workload_units.EARLIER_NAME) if f"{known}.d" in folders else ():
                text = host.read(unit_property.dropin(known, file)) or ""
                if any(f"={holder}" in line.replace("%i", instance) for line in text.splitlines()):
                    return True
    return False


def slice_that_holds(host: Host, unit: str) -> t.Optional[str]:
    """The slice in which a service runs now, by a search of all slices: the service's files may have changed since its start."""
    pending = cgroup.slices_in(host, "")
    for outer in pending:  # the loop appends to the list
        if cgroup.populated_at(host, f"{cgroup.path_of(outer)}/{unit}"):
            return outer
        pending += cgroup.slices_in(host, outer)
    return None


def unit_to_be_in(host: Host, slice_name: str) -> str:
    """A running unit that Corral's drop-in places in a slice (empty without such a unit). systemd stops the unit with the slice.

    Until its next start the unit may still run in another slice; systemd also stops the unit there.
    """
    for folder in host.folders(unit_property.ETC):
        unit = folder[: -len(".d")]
        text = host.read(unit_property.dropin(unit, workload_units.NAME)) if folder.endswith(".service.d") else None
        place = next((line[len("Slice=") :] for line in (text or "").splitlines() if line.startswith("Slice=")), "")
        if not place:
            continue
        stem, at, dummy = unit.partition("@.")
        known = other_name(host, systemd.UnitFiles(host, [unit]).fragment(unit) or "") or unit
        running = [known] if runs_unit(host, known) else []
        if at:
            links = [
                name[len(INVOCATION) :] for name in host.names(INVOCATIONS) if name.startswith(f"{INVOCATION}{stem}@")
            ]
            running = [name for name in links if name != unit]
        for name in running:
            if place.replace("%i", name.partition("@")[2].rpartition(".")[0]) == slice_name:
                return name
    return ""


def seen_grants(host: Host) -> list[Grant]:
    """The grants as the kernel shows them: the CPUs and nodes of every workload's slice."""
    grants: list[Grant] = []
    there = slices(host)
    shared = cgroup.cpus(host, CORRAL_SLICE).requested or frozenset()
    for unit in filter(is_exclusive, there):
        name, cpus = workload_of(unit), cgroup.cpus(host, unit).requested
        # A running slice that lost its CPUs has the CPUs of the shared pool.
        if name and cpus and not cpus & shared and not any(cpus & other.cpus for other in grants):
            grants.append(Grant(name, cpus=cpus, mems=mems_of(host, unit), instance=run_of(host, name) or ""))
    known = {grant.workload for grant in grants}
    for unit in there:
        name = None if is_exclusive(unit) else workload_of(unit)
        if name and name not in known:
            grants.append(Grant(name, mems=mems_of(host, unit), instance=run_of(host, name) or ""))
    return grants


def unit_in(host: Host, slice_name: str, unit: str) -> str:
    """``unit``, if this unit or no unit runs in the grant's slice; else the first service in this slice (empty without a service)."""
    others = others_in(host, slice_name, unit) if unit else []
    return next((name for name in others if name.endswith(".service")), "") if others else unit


def others_in(host: Host, slice_name: str, unit: str) -> list[str]:
    """The control groups that run in a workload's slice, services first; empty if ``unit`` is one of these."""
    path = cgroup.path_of(slice_name)
    names = [name for name in host.folders(path) if not (name.endswith(".slice") and workload_of(name))]
    running = [name for name in names if cgroup.populated_at(host, f"{path}/{name}")]
    return [] if unit in running else sorted(running, key=lambda name: (not name.endswith(".service"), name))


def mems_of(host: Host, unit: str) -> t.Optional[cpuset.CpuSet]:
    """The NUMA nodes to which a slice's memory is bound; None without a binding."""
    return cgroup.cpu_list(host.read(f"{cgroup.path_of(unit)}/cpuset.mems")) or None
