# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Workloads as a node shows them: which run, where, and what the kernel allows them. Files only, no command."""

from __future__ import annotations

import posixpath
import re
import typing as t

from ..model.profile.profile_workloads import RUNNING, Workload, workload_name
from ..model.profile.schema_types import CORRAL_SLICE
from ..model.systemd import unit_property, workload_units
from ..model.values import cpuset
from ..model.workload.grants import Grant, is_exclusive, slice_of, workload_of
from . import cgroup, systemd
from .files import Host

# systemd keeps the INVOCATION_ID of every active service there, as a link (src/core/unit.c, unit_export_invocation_id).
INVOCATIONS = "/run/systemd/units"
INVOCATION = "invocation:"
# The folders of units that others want, by the beginning and the end of their names.
WANTS = (("", ".requires"), ("", ".wants"))
WILD = re.compile(r"[*?\[\]]")


def run_of(host: Host, workload: str) -> t.Optional[str]:
    """The run of the unit that holds a workload's grant (its INVOCATION_ID); None while it is not active."""
    return host.link(f"{INVOCATIONS}/{INVOCATION}{workload_units.grant_unit(workload)}")


def granted_files(host: Host) -> dict[str, str]:
    """The files by which systemd sees that there is a grant for a unit, by the workload's name (workload_units.py)."""
    folder, dummy, start = workload_units.GRANTED.rpartition("/")
    names = host.names_like(folder, ((start, ""),))
    return {workload_name(name[len(start) :]) or name: f"{folder}/{name}" for name in names}


def populated(host: Host, workload: str, tenant: str = "") -> bool:
    """Whether anything runs in one of a workload's slices, that within its tenant's among them."""
    return any(cgroup.populated(host, unit) for unit in places(workload, tenant))


def places(workload: str, tenant: str = "") -> list[str]:
    """The slices in which a workload may run: for CPUs of its own, and on the shared pool, before it had a tenant as well."""
    shared = [slice_of(workload, exclusive=False, tenant=tenant)] if tenant else []
    return [slice_of(workload, exclusive=True), *shared, slice_of(workload, exclusive=False)]


def shares(host: Host, workload: str, tenant: str = "") -> bool:
    """Whether a workload runs on the shared pool alone: in its slice there, and not in that for CPUs of its own."""
    own, *shared = places(workload, tenant)
    return any(cgroup.populated(host, unit) for unit in shared) and not cgroup.populated(host, own)


def slices(host: Host) -> list[str]:
    """The slices of workloads and tenants that exist: those with exclusive CPUs first, a tenant's after those within it."""
    shared = [unit for unit in cgroup.slices_in(host, CORRAL_SLICE) if workload_of(unit)]
    inner = [unit for outer in shared for unit in cgroup.slices_in(host, outer) if workload_of(unit)]
    return [*(unit for unit in cgroup.slices_in(host, "") if workload_of(unit)), *inner, *shared]


def units_like(host: Host, patterns: t.Collection[str]) -> list[str]:
    """The services that match patterns: those with a file, instances that are enabled, and those that run; none by another name of it.

    Others that begin and end as a pattern does may be among them.
    """
    if not patterns:
        return []
    ends = tuple(sorted({(WILD.split(one)[0], WILD.split(one)[-1]) for one in patterns}))
    found: set[str] = set()
    for base in systemd.LOAD_PATH:
        found.update(name for name in host.names_like(base, ends) if not other_name(host, f"{base}/{name}"))
        for name in host.names_like(base, WANTS):
            found.update(host.names_like(f"{base}/{name}", ends))
    running = host.names_like(INVOCATIONS, tuple((f"{INVOCATION}{start}", end) for start, end in ends))
    found.update(link[len(INVOCATION) :] for link in running)
    return sorted(name for name in found if name.endswith(".service") and not name.endswith("@.service"))


def units_of(found: t.Iterable[Workload]) -> list[str]:
    """The units that workloads match, and the templates of those that are instances."""
    return [name for one in found if one.is_unit for name in named(one.pattern)]


def named(unit: str) -> list[str]:
    """The names under which systemd may have a file for a service."""
    stem, at, dummy = unit.partition("@")
    return [unit, *([f"{stem}@.service"] if at else [])]


def there(host: Host, files: systemd.UnitFiles, unit: str) -> bool:
    """Whether systemd has a file for a service, its template's included, or runs it."""
    return any(files.fragment(name) for name in named(unit)) or runs_unit(host, unit)


def other_name(host: Host, path: str) -> str:
    """The name that a unit has for systemd where its file is a link to another unit's file (systemd.unit(5), Alias=); "" for any other
    file. An instance may be a link to its template, and a link out of the load path keeps its own name.
    """
    text = host.link(path)
    if text is None:
        return ""
    folder, dummy, name = path.rpartition("/")
    base, dummy, target = posixpath.normpath(posixpath.join(folder, text)).rpartition("/")
    # /lib is a link to /usr/lib, and Debian's own links go by it.
    known = base in systemd.LOAD_PATH or f"/usr{base}" in systemd.LOAD_PATH
    return target if known and target not in systemd.fragments(name) else ""


def has_file(host: Host, unit: str) -> bool:
    """Whether systemd has a file for a service or a template."""
    return any(host.exists(f"{base}/{unit}") for base in systemd.LOAD_PATH)


def runs_unit(host: Host, unit: str) -> bool:
    """Whether a service is active."""
    return host.link(f"{INVOCATIONS}/{INVOCATION}{unit}") is not None


def ask_for_end(host: Host, granted: t.Iterable[Grant]) -> bool:
    """Have systemd stop the units that hold grants, or held one that was released, for units that do not run, unless something needs
    them: a start that waits, say.

    Only systemd knows of its jobs, and none can come between its look and the stop. Whether there are any.
    """
    by_name = {one.workload: one for one in granted}
    begin, end = workload_units.GRANT_UNITS.split("*")
    asked = []
    for link in host.names_like(INVOCATIONS, ((f"{INVOCATION}{begin}", end),)):
        holder = link[len(INVOCATION) :]
        name = workload_name(holder[len(begin) : -len(end)])
        if not name:
            continue
        one, instance = by_name.get(name), name.partition(":")[2]
        unit = one.unit if one else f"{instance}.service" if instance else ""
        if (one and one.hold != RUNNING) or (unit and runs_unit(host, unit)):
            continue
        if one:
            needed = populated(host, name, one.tenant)
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
    """Whether a service runs whose drop-ins of Corral's name the unit of a grant, of which there is no record."""
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
    """The slice that a running service is in, of the whole tree: its files may place it elsewhere since its start (in another
    workload's slice, for example).
    """
    pending = cgroup.slices_in(host, "")
    for outer in pending:  # The list grows in the loop.
        if cgroup.populated_at(host, f"{cgroup.path_of(outer)}/{unit}"):
            return outer
        pending += cgroup.slices_in(host, outer)
    return None


def unit_to_be_in(host: Host, slice_name: str) -> str:
    """A running unit that Corral's drop-in places in a slice, "" without any: systemd ends it with that slice, wherever it runs.

    It may have been running when it was placed: a unit moves when it starts.
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
    """The grants as the kernel shows them: every slice of a workload, with the CPUs and nodes that it was given."""
    found: list[Grant] = []
    there = slices(host)
    shared = cgroup.cpus(host, CORRAL_SLICE).requested or frozenset()
    for unit in filter(is_exclusive, there):
        name, cpus = workload_of(unit), cgroup.cpus(host, unit).requested
        # One that lost its CPUs while it runs has those of the shared pool.
        if name and cpus and not cpus & shared and not any(cpus & other.cpus for other in found):
            found.append(Grant(name, cpus=cpus, mems=mems_of(host, unit), instance=run_of(host, name) or ""))
    known = {grant.workload for grant in found}
    for unit in there:
        name = None if is_exclusive(unit) else workload_of(unit)
        if name and name not in known:
            found.append(Grant(name, mems=mems_of(host, unit), instance=run_of(host, name) or ""))
    return found


def unit_in(host: Host, slice_name: str, unit: str) -> str:
    """The unit that runs in the slice of a grant: this one, unless only others do, which it may be for by the name alone ("" where that
    is no service).
    """
    found = others_in(host, slice_name, unit) if unit else []
    return next((name for name in found if name.endswith(".service")), "") if found else unit


def others_in(host: Host, slice_name: str, unit: str) -> list[str]:
    """What runs in the slice of a workload, services first, while a unit does not: control groups by their names."""
    path = cgroup.path_of(slice_name)
    names = [name for name in host.folders(path) if not (name.endswith(".slice") and workload_of(name))]
    found = [name for name in names if cgroup.populated_at(host, f"{path}/{name}")]
    return [] if unit in found else sorted(found, key=lambda name: (not name.endswith(".service"), name))


def mems_of(host: Host, unit: str) -> t.Optional[cpuset.CpuSet]:
    """The NUMA nodes that a slice's memory is bound to; None: to none in particular."""
    return cgroup.cpu_list(host.read(f"{cgroup.path_of(unit)}/cpuset.mems")) or None
