# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The CDI specs of grants: the devices that containers get, and the hooks that set the limits of pods' containers.

A part of the devices manager.
"""

from __future__ import annotations

import typing as t
from functools import partial

from ...host.files import Host
from ...model.agent.agent_units import CONTAINER_HOOK, LAUNCHER
from ...model.devices import cdi_fields, device_delivery
from ...model.devices.device_delivery import CDI_FILES, CDI_FOLDER, flat, opened
from ...model.plan import make_step
from ...model.plan.context import Context
from ...model.plan.plan import Change
from ...model.workload.grants import Grant
from .device_places import NAME, OPENED

if t.TYPE_CHECKING:
    from ...model.devices.device import Device, GrantedDevice
    from ...model.devices.device_delivery import Spec

STARTED = "containers are started with --device corral.node/grant=WORKLOAD, those of a pod with WORKLOAD:CONTAINER"


def specs_of(host: Host) -> dict[str, t.Optional[str]]:
    """Corral's CDI specs by path."""
    paths = [f"{CDI_FOLDER}/{name}" for name in host.names(CDI_FOLDER) if CDI_FILES.fullmatch(name)]
    return {path: host.read(path, follow=False) for path in paths}


def hooks_of_pods(host: Host, context: Context, specs: t.Mapping[str, t.Optional[str]]) -> dict[str, t.Any]:
    """The hooks that give the containers of pods their limits, by the names of the containers' CDI devices.

    A running pod that is no longer declared keeps its hooks in ``specs``: a container of the pod may start again.
    """
    found = context.workloads
    needs = {need.workload.name: need for need in found.needs} if found else {}
    pods = [one for one in context.grants if one.workload not in needs or needs[one.workload].workload.containers]
    if not pods or not host.exists(LAUNCHER):
        return {}  # a hook runs the agent's program, which is missing here
    from ...model.workload import container_limits

    memory = context.topology.machine_memory_kib
    capacity = None if memory is None else memory << 10
    hooks = {}
    for grant in pods:
        if grant.workload not in needs:
            hooks.update(hooks_before(grant, specs))
            continue
        for name, limits in container_limits.of_pod(needs[grant.workload], grant, capacity).items():
            args = [LAUNCHER, *CONTAINER_HOOK, *container_limits.hook_words(limits)]
            hooks[device_delivery.cdi_name(grant.workload, name)] = device_delivery.hook(LAUNCHER, args)
    return hooks


def hooks_before(grant: Grant, specs: t.Mapping[str, t.Optional[str]]) -> dict[str, t.Any]:
    """The hooks that ``specs`` have for the containers of a pod."""
    pod = f"{device_delivery.cdi_name(grant.workload)}:"
    rows = [row for text in specs.values() for row in device_delivery.spec_of(text).rows.items()]
    return {name: hook for name, edits in rows if name.startswith(pod) for hook in own_hooks(edits)}


def wanted_rows(
    granted: t.Iterable[Grant],
    devices: t.Mapping[str, tuple[Device, ...]],
    specs: t.Mapping[str, t.Optional[str]],
    hooks: t.Mapping[str, t.Any],
) -> dict[str, dict[str, t.Any]]:
    """The wanted rows of the CDI specs, by version. A container with a missing device may have no row: such a container does not start."""
    before = [device_delivery.spec_of(text) for text in specs.values()]
    rows: dict[str, dict[str, t.Any]] = {}
    withheld: set[str] = set()
    for grant in granted:
        names = set(spec_names(grant))
        for name, version, edits in spec_rows(grant, devices, before):
            rows.setdefault(version, {})[name] = edits
            names.discard(name)
        withheld |= names
    return with_hooks(rows, {name: hook for name, hook in hooks.items() if name not in withheld})


def with_hooks(rows: dict[str, dict[str, t.Any]], hooks: t.Mapping[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    """The rows of specs, by version, after the hooks of containers were added."""
    for name, hook in hooks.items():
        version = next((version for version, own in rows.items() if name in own), device_delivery.VERSION)
        own = rows.setdefault(version, {})
        own[name] = {**own.get(name, {}), "hooks": [*own.get(name, {}).get("hooks", ()), hook]}
    return fitting(rows)


def fitting(rows: t.Mapping[str, t.Mapping[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
    """The rows of CDI devices (name: edits) by version. A row whose name or edits need a newer version moves to that version.

    A row with an invalid name or invalid edits, or without edits, is left out: engines would ignore the whole spec.
    """
    found: dict[str, dict[str, t.Any]] = {}
    for version, own in rows.items():
        for name, edits in own.items():
            try:
                needs = cdi_fields.of_device(name, edits)
            except cdi_fields.Unfit:
                continue
            if edits:
                found.setdefault(max(version, needs, key=device_delivery.version_key), {})[name] = edits
    return found


def without_own_hooks(edits: t.Any) -> dict[str, t.Any]:
    """The edits of a container without Corral's hooks; the caller adds the hooks again. Empty if ``edits`` is no mapping."""
    if not isinstance(edits, dict):
        return {}
    hooks = edits.get("hooks")
    own = own_hooks(edits)
    kept = [one for one in hooks if one not in own] if isinstance(hooks, list) else []
    return {**{key: rows for key, rows in edits.items() if key != "hooks"}, **({"hooks": kept} if kept else {})}


def own_hooks(edits: t.Any) -> list[t.Any]:
    """Corral's hooks among the edits of a container: the hooks set the container's limits."""
    hooks = edits.get("hooks") if isinstance(edits, dict) else None
    rows = hooks if isinstance(hooks, list) else []
    return [one for one in rows if isinstance(one, dict) and one.get("path") == LAUNCHER]


def spec_names(grant: Grant) -> dict[str, list[GrantedDevice]]:
    """The devices of a grant by the names of CDI devices: one name for the whole grant, and one for each container of a pod."""
    rows = {device_delivery.cdi_name(grant.workload): list(grant.devices)}
    for container in sorted({one.container for one in grant.devices} - {""}):
        own = [one for one in grant.devices if one.container == container]
        rows[device_delivery.cdi_name(grant.workload, container)] = own
    return {name: own for name, own in rows.items() if name}


def spec_rows(
    grant: Grant, devices: t.Mapping[str, tuple[Device, ...]], before: t.Iterable[Spec]
) -> t.Iterator[tuple[str, str, t.Any]]:
    """The rows of a grant in the CDI specs: the name of a CDI device, the version that it needs, and its edits.

    If a device is missing, the row in ``before`` stays (unless one of its files is another device by now). No container starts with this
    row.
    """
    known = {name: (one.version, without_own_hooks(edits)) for one in before for name, edits in one.rows.items()}
    for name, own in spec_names(grant).items():
        held = device_delivery.held(own, devices)
        if not held.missing:
            yield name, device_delivery.version_of(flat(held.devices)), device_delivery.edits(held.devices)
        elif known.get(name, ("", {}))[1] and held.others.isdisjoint(device_delivery.node_paths(known[name][1])):
            yield (name, *known[name])


def spec_changes(before: t.Mapping[str, t.Optional[str]], rows: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[Change]:
    """The changes of the CDI specs, one spec for each needed version. Container engines read the specs at each start of a container."""
    wanted = {
        device_delivery.cdi_file(version): device_delivery.spec_text(version, own) for version, own in rows.items()
    }
    changes = []
    for path in sorted({*before, *wanted}):
        text, seen = wanted.get(path), before.get(path)
        if path in before and seen == text:
            continue
        (version, had), (dummy, has) = (device_delivery.spec_of(one) for one in (seen, text))
        kept = {name: row for name, row in had.items() if name in has and opened(row) <= opened(has[name])}
        low = seen if kept == had else device_delivery.spec_text(version, kept) if kept else None
        actual, then = "others" if path in before else None, "what is granted" if text is not None else None
        steps = make_step.take_and_give(partial(make_step.file, path, mode=0o644), seen, low, text, OPENED)
        changes.append(Change(NAME, path, "content", actual, then, STARTED, path, tuple(steps)))
    return changes


def conflicts(granted: t.Iterable[Grant], devices: t.Mapping[str, tuple[Device, ...]]) -> list[str]:
    """Notes on variables to which the devices of a container give different values."""
    found = []
    for grant in granted:
        for name, own in spec_names(grant).items():
            for variable in device_delivery.conflicts(device_delivery.held(own, devices).devices):
                said = f"its devices give the variable {variable} different values: a container has the first one"
                found.append(f"workload {name}: {said}")
    return found


def without_program(specs: t.Mapping[str, t.Optional[str]]) -> tuple[Change, ...]:
    """The changes that remove Corral's hooks from the CDI specs: no container could start with a hook whose program is gone."""
    found: list[Change] = []
    for path, text in specs.items():
        spec = device_delivery.spec_of(text)
        if any(map(own_hooks, spec.rows.values())):
            rows = {name: without_own_hooks(edits) for name, edits in spec.rows.items()}
            rows = {name: edits for name, edits in rows.items() if edits}
            is_as_written = path == device_delivery.cdi_file(spec.version)
            found += spec_changes({path: text}, {spec.version: rows} if rows and is_as_written else {})
    return tuple(found)
