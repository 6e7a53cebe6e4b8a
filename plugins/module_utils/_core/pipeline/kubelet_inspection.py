# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The inspection of a node's kubelet: the configuration in force, the CPUs of pods, and the state files that the kubelet would refuse.

The inspection writes nothing: the state files belong to the kubelet.
"""

from __future__ import annotations

import typing as t

from ..host.files import Host
from ..host.kubelet import kubelet_api, kubelet_node, kubelet_state, kubelet_unit
from ..host.state import DECLARED
from ..host.topology import sysfs
from ..managers.kubelet import kubelet_observed
from ..managers.kubelet.kubelet_places import NAME
from ..managers.kubelet.kubelet_target import wanted_of
from ..model.kubelet import kubelet_config, kubelet_drift, kubelet_rules, kubelet_sizing, pod_findings
from ..model.kubelet.config_text import NotEditable
from ..model.kubelet.inspected import Inspection, Outlook, StateFile
from ..model.kubelet.kubelet_config import Config
from ..model.kubelet.kubelet_drift import Difference
from ..model.kubelet.state_files import DeviceState
from ..model.plan.context import Context
from ..model.plan.plan import UNKNOWN, Change
from ..model.topology.topology import Topology
from ..model.values.errors import CorralError, refusal
from . import declared_profile, planning


def inspect(host: Host) -> Inspection:
    """Inspect the node's kubelet. Raises CorralError if the node has no kubelet, or its kubelet is part of another program."""
    process, places = found_here(host)
    # Without a process and flags the path of the configuration is a guess, so a missing file is no problem.
    guessed = process is None and not places.flags
    layers, wrong = ([], []) if guessed and not host.exists(places.config) else kubelet_node.layers(host, places)
    flag_layers, unread = kubelet_config.flag_layers(places.flags)
    config = kubelet_config.effective(layers, flag_layers)
    config = config._replace(problems=(*wrong, *unread, *kubelet_config.unknown_keys(layers), *config.problems))
    topology = sysfs.discover(host, with_devices=False)
    if not (wrong or unread):
        config = config._replace(problems=(*config.problems, *contradictions(host, config, topology)))
    cpu_file, cpus = kubelet_state.inspect_cpus(host, places.root_dir, config, topology)
    numa = kubelet_state.totals(topology)
    memory_file, memory = kubelet_state.inspect_memory(host, places.root_dir, config, numa)
    device_file, devices = kubelet_state.inspect_devices(host, places.root_dir)
    containers = kubelet_node.containers(host)
    present = {one.pod for one in containers} | kubelet_node.pod_folders(host, places.root_dir)
    exclusive = pod_findings.exclusive_of(cpus) if cpus else {}
    of_devices = [one.pod for one in devices.entries] if devices else []
    assigned = [*exclusive, *(memory.containers if memory else ()), *of_devices]
    everybody = frozenset().union(*exclusive.values())
    findings = [
        *pod_findings.of_stopped(process is not None, containers),
        *pod_findings.leaked(assigned, present, exclusive),
        *(pod_findings.ended(cpus, containers, kubelet_node.logged(host)) if cpus else ()),
        *(pod_findings.of_containers(cpus, containers) if cpus else ()),
        *pod_findings.of_scores(
            kubelet_node.oom_scores(host, process, str(config.get("containerRuntimeEndpoint") or kubelet_node.ENDPOINT))
        ),
        *(pod_findings.of_host(kubelet_node.others_on(host, everybody)) if everybody else ()),
    ]
    began = process.began if process else None
    newer = kubelet_node.newer_files(host, process, places, layers)
    return Inspection(
        process.pid if process else None, began, config, tuple(newer), (cpu_file, memory_file, device_file), cpus, memory,
        devices, tuple(findings), {one.origin: host.modified(one.origin) or 0.0 for one in layers}, *declared(host, topology),
        unlike=running_otherwise(host, config) if process else None,
    )  # fmt: skip


def contradictions(host: Host, config: Config, topology: Topology) -> list[str]:
    """The problems that a plan would find in a configuration on this node: values with which the kubelet would not start or not work."""
    machine = kubelet_observed.machine(host, kubelet_observed.without_profile(host, topology), pools_stay=True)
    machine = kubelet_observed.with_groups(host, machine, config)
    return [problem.line() for problem in kubelet_rules.problems(config, machine, ())]


def found_here(host: Host) -> tuple[t.Optional[kubelet_node.Process], kubelet_node.KubeletFiles]:
    """The kubelet's process (None: no process), and the places of its files. Raises CorralError like inspect()."""
    process = kubelet_node.process(host)
    places = kubelet_node.files(host, process)
    if process is None and not is_installed(host, places.root_dir):
        raise refusal(
            "no kubelet runs here and there is no folder of one: is this a Kubernetes node?", path=places.root_dir
        )
    return process, places


def devices(host: Host) -> tuple[StateFile, t.Optional[DeviceState]]:
    """The state file of the kubelet's device manager, and the devices that the kubelet has assigned. Raises CorralError like inspect()."""
    return kubelet_state.inspect_devices(host, found_here(host)[1].root_dir)


def is_installed(host: Host, root_dir: str) -> bool:
    """Whether a kubelet is installed: its folder has a file, or folder and unit exist. A removed kubelet may leave its folder empty."""
    return host.is_dir(root_dir) and bool(host.names(root_dir) or kubelet_unit.command(host))


def running_otherwise(host: Host, config: Config) -> t.Optional[tuple[Difference, ...]]:
    """The keys whose values in the running kubelet differ from its files and flags; None if the kubelet does not report its values."""
    running = kubelet_api.running_configuration(host, config)
    if running is None:
        return None
    return tuple(kubelet_drift.running_otherwise(config, running))


def declared(host: Host, topology: Topology) -> tuple[tuple[Change, ...], t.Optional[Outlook]]:
    """The kubelet's drift from the declared profile, and the resources for pods now and with that profile. No process is started."""
    context = None
    changes: tuple[Change, ...] = ()
    try:
        found = declared_profile.in_force(host)
        if found is not None and found.kubelet is not None:
            context = planning.compile_profile(host, found, "tick")
            plan = planning.plan_profile(host, context, managers=(NAME,))
            changes = tuple(change for change in plan.changes if change.manager == NAME)
        return changes, outlook(host, context, topology)
    except CorralError as error:
        said = str(error).replace("\n", "; ")
        item = Change(NAME, "configuration", "keys", None, None, said, DECLARED, (), UNKNOWN)
        return (item,), None


def outlook(host: Host, context: t.Optional[Context], topology: Topology) -> t.Optional[Outlook]:
    """The resources that pods may have now and with the context's profile; None without a kubelet. No process is started.

    ``topology`` is used if ``context`` is None, since the node has no profile.
    """
    asked = context is not None and context.profile.kubelet is not None
    has_profile = context is not None
    context = (context or kubelet_observed.without_profile(host, topology))._replace(run="tick")
    seen = kubelet_observed.observe(host, context, pools_stay=not has_profile)
    if seen.missing:
        return None
    now = tuple(kubelet_sizing.sizing(kubelet_config.effective(seen.layers, seen.flags), seen.machine))
    if not asked or context.profile.kubelet is None:
        return Outlook(now, None)
    try:
        dummy, then = wanted_of(seen, context.profile.kubelet)
    except NotEditable:
        return Outlook(now, None)
    return Outlook(now, tuple(kubelet_sizing.sizing(then.config, seen.machine)))
