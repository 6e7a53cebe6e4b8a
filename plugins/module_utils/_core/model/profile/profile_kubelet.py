# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The section ``kubelet`` of a profile: what a kubelet's configuration is to have."""

from __future__ import annotations

import typing as t

from ..cpu import cpu_options
from ..values import duration, quantity, sizes
from ..values.records import NamedTuple
from ..workload.resources import MEMORY, PIDS
from .profile_workloads import amount_problem
from .schema_reader import Reader, join

Texts = t.Mapping[str, str]


class Kubelet(NamedTuple):
    """The keys of the section by their names; what is None is not declared and stays as others configure it.

    Amounts and thresholds are texts as the kubelet reads them, times in seconds, sizes in bytes. ``reserved_memory`` is by NUMA node.
    Of options only those that are on are kept; None is a section that is left out.
    """

    optional: bool = False
    drain: t.Optional[str] = None
    cpu_manager_policy: t.Optional[str] = None
    cpu_manager_policy_options: t.Optional[tuple[str, ...]] = None
    cpu_manager_reconcile_period: t.Optional[int] = None
    memory_manager_policy: t.Optional[str] = None
    reserved_memory: t.Optional[t.Mapping[int, int]] = None
    topology_manager_policy: t.Optional[str] = None
    topology_manager_scope: t.Optional[str] = None
    topology_manager_policy_options: t.Optional[Texts] = None
    system_reserved: t.Optional[Texts] = None
    kube_reserved: t.Optional[Texts] = None
    reserve_formula: t.Optional[str] = None
    enforce_node_allocatable: t.Optional[tuple[str, ...]] = None
    system_reserved_cgroup: t.Optional[str] = None
    kube_reserved_cgroup: t.Optional[str] = None
    eviction_hard: t.Optional[Texts] = None
    eviction_soft: t.Optional[Texts] = None
    eviction_soft_grace_period: t.Optional[t.Mapping[str, int]] = None
    pod_pids_limit: t.Optional[int] = None
    max_pods: t.Optional[int] = None
    image_gc_high_threshold_percent: t.Optional[int] = None
    image_gc_low_threshold_percent: t.Optional[int] = None
    image_minimum_gc_age: t.Optional[int] = None
    image_maximum_gc_age: t.Optional[int] = None
    container_log_max_size: t.Optional[int] = None
    container_log_max_files: t.Optional[int] = None
    fail_swap_on: t.Optional[bool] = None
    swap_behavior: t.Optional[str] = None


AMOUNTS = ("system_reserved", "kube_reserved")
THRESHOLDS = ("eviction_hard", "eviction_soft")
COUNTS = (
    "nodefs.inodesFree",
    "imagefs.inodesFree",
    "containerfs.inodesFree",
    "pid.available",
)  # the other signals are of bytes
# What the kubelet's resources are to be checked as.
COUNTED_AS = {"pid": PIDS, "ephemeral-storage": MEMORY}
TIMES = ("cpu_manager_reconcile_period", "image_minimum_gc_age", "image_maximum_gc_age")
# 0s is how the kubelet's files leave a time unset; other times it takes as they are.
DEFAULT_TIMES = {"cpu_manager_reconcile_period": "10s", "image_minimum_gc_age": "2m0s"}
CLOSEST, NODES = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"


def check(reader: Reader, values: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> None:
    """Refuse what contradicts another part of the profile. What a kubelet refuses is found with all of its configuration."""
    kubelet = values.get("kubelet")
    if kubelet is None:
        return
    _check_cpus(reader, kubelet, values.get("cpu") or {})
    for key in AMOUNTS:
        for name, amount in (kubelet.get(key) or {}).items():
            _check_amount(reader, join(f"kubelet.{key}", name), COUNTED_AS.get(name, name), amount)
    for key, default in DEFAULT_TIMES.items():
        if kubelet.get(key) == 0:
            message = f"is the kubelet's word for its default ({default}): write 1s or more, or leave it out"
            reader.refuse(f"kubelet.{key}", duration.text(0), message)
    options = kubelet.get("cpu_manager_policy_options") or {}
    chosen = cpu_options.Options(**{field: options.get(name, False) for name, field in cpu_options.NAMES.items()})
    for first, second in cpu_options.forbidden(chosen):
        path = f"kubelet.cpu_manager_policy_options.{second}"
        reader.refuse(path, True, f"cannot be combined with {first} (the kubelet's rule): leave one out")
    _check_eviction(reader, kubelet, given["kubelet"])


def _check_cpus(reader: Reader, kubelet: t.Mapping[str, t.Any], cpu: t.Mapping[str, t.Any]) -> None:
    """Refuse what the section ``cpu`` and the kubelet would both decide."""
    if cpu.get("policy") == "static":
        message = "gives the shared CPUs to workloads of Corral, and the kubelet gives the same ones to pods: leave out cpu.policy"
        reader.refuse("cpu.policy", "static", message)
    for pool, of_the_kubelet in (("reserved", ["kubepods.slice"]), ("shared", ["kubepods.slice", "kubelet.slice"])):
        for index, name in enumerate(cpu.get(pool, {}).get("slices", ())):
            if name in of_the_kubelet:
                message = "the kubelet sets the CPUs of pods: leave it out"
                reader.refuse(f"cpu.{pool}.slices[{index}]", name, message)
    if not cpu:
        return
    for key in ("system_reserved_cgroup", "kube_reserved_cgroup"):
        if kubelet.get(key):
            message = "the kubelet does not take it beside reservedSystemCPUs, which the section cpu sets: leave it out"
            reader.refuse(f"kubelet.{key}", kubelet[key], message)
    for key in AMOUNTS:
        if "cpu" in (kubelet.get(key) or {}):
            message = "the reserved CPUs are those of cpu.reserved: leave it out"
            reader.refuse(f"kubelet.{key}.cpu", str(kubelet[key]["cpu"]), message)


def _check_eviction(reader: Reader, kubelet: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> None:
    """Refuse thresholds that can only be a slip, and soft ones without a grace period. ``given`` is the section as it was written."""
    for key in THRESHOLDS:
        for signal, text in (kubelet.get(key) or {}).items():
            if not text.endswith("%"):
                counted = PIDS if signal in COUNTS else MEMORY
                _check_amount(reader, join(f"kubelet.{key}", signal), counted, quantity.parse(text))
    soft = kubelet.get("eviction_soft") or {}
    periods = (given.get("eviction_soft_grace_period") or {}) if soft else {}  # Wrong ones are refused elsewhere.
    for name in soft:
        if isinstance(periods, dict) and name not in periods:
            message = "has no grace period: declare it in kubelet.eviction_soft_grace_period as well"
            reader.refuse(join("kubelet.eviction_soft", name), None, message)


def _check_amount(reader: Reader, path: str, resource: str, amount: quantity.Quantity) -> None:
    """Refuse an amount that Kubernetes takes, and that can only be a slip: a part of a byte, or a few bytes."""
    said = (
        "is negative: write 0 or more" if amount.nano < 0 else amount_problem(resource, amount) if amount.nano else ""
    )
    if said:
        reader.refuse(path, amount.text, said)


def build(kubelet: t.Optional[t.Mapping[str, t.Any]]) -> t.Optional[Kubelet]:
    """The section, once everything was found right; None when there is none."""
    if kubelet is None:
        return None
    found = dict(kubelet)
    for key in AMOUNTS:
        if key in found:
            found[key] = {name: str(amount) for name, amount in found[key].items()}
    if "cpu_manager_policy_options" in found:
        found["cpu_manager_policy_options"] = tuple(
            name for name, on in found["cpu_manager_policy_options"].items() if on
        )
    options = found.get("topology_manager_policy_options")
    if options is not None:
        texts = {CLOSEST: "true"} if options.get(CLOSEST) else {}
        found["topology_manager_policy_options"] = {
            **texts,
            **({NODES: str(options[NODES])} if NODES in options else {}),
        }
    if "enforce_node_allocatable" in found:
        found["enforce_node_allocatable"] = tuple(found["enforce_node_allocatable"])
    return Kubelet(**found)


def to_data(kubelet: Kubelet) -> dict[str, t.Any]:
    """The section as plain data, as ``build`` understands it; what is not declared is left out."""
    data = {name: value for name, value in kubelet._asdict().items() if value is not None}
    for key in TIMES:
        if key in data:
            data[key] = duration.text(data[key])
    if "cpu_manager_policy_options" in data:
        data["cpu_manager_policy_options"] = dict.fromkeys(data["cpu_manager_policy_options"], True)
    options = data.get("topology_manager_policy_options")
    if options is not None:
        closest = {CLOSEST: True} if CLOSEST in options else {}
        nodes = {NODES: int(options[NODES])} if NODES in options else {}
        data["topology_manager_policy_options"] = {**closest, **nodes}
    if "reserved_memory" in data:
        data["reserved_memory"] = {str(node): sizes.size_text(size) for node, size in data["reserved_memory"].items()}
    if "eviction_soft_grace_period" in data:
        periods = data["eviction_soft_grace_period"]
        data["eviction_soft_grace_period"] = {name: duration.text(seconds) for name, seconds in periods.items()}
    if "container_log_max_size" in data:
        data["container_log_max_size"] = sizes.size_text(data["container_log_max_size"])
    if "enforce_node_allocatable" in data:
        data["enforce_node_allocatable"] = list(data["enforce_node_allocatable"])
    return data
