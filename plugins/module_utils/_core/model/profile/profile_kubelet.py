# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The section ``kubelet`` of a profile: the wanted configuration of a kubelet."""

from __future__ import annotations

import typing as t

from ..cpu import cpu_options
from ..values import duration, quantity
from ..values.records import NamedTuple
from ..workload.resources import MEMORY, PIDS
from .profile_workloads import amount_problem
from .schema_reader import Reader, join
from .section_data import Shape

Texts = t.Mapping[str, str]


class Kubelet(NamedTuple):
    """The declared keys of the section. None: the key is not declared, and its value in the kubelet's other files stays.

    Amounts and thresholds are texts as the kubelet reads them, times are in seconds, sizes in bytes. ``reserved_memory`` is by NUMA node.
    The fields ``*_options`` contain only the options that are on; None: the profile does not declare the options.
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
)  # the kubelet counts bytes for all other signals
# The amounts of these resources are checked by the rules of another resource.
COUNTED_AS = {"pid": PIDS, "ephemeral-storage": MEMORY}
# The kubelet replaces 0s by these defaults. For all other times 0s means 0s.
DEFAULT_TIMES = {"cpu_manager_reconcile_period": "10s", "image_minimum_gc_age": "2m0s"}
CLOSEST, NODES = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"


def check(reader: Reader, values: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> None:
    """Refuse contradictions to other parts of the profile. kubelet_rules.py finds what the kubelet itself refuses."""
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
    """Refuse keys with which the kubelet and the section ``cpu`` would both decide on the same CPUs."""
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
    """Refuse thresholds that must be a mistake, and soft thresholds without a grace period. ``given`` is the section as it was written."""
    for key in THRESHOLDS:
        for signal, text in (kubelet.get(key) or {}).items():
            if not text.endswith("%"):
                counted = PIDS if signal in COUNTS else MEMORY
                _check_amount(reader, join(f"kubelet.{key}", signal), counted, quantity.parse(text))
    soft = kubelet.get("eviction_soft") or {}
    periods = (given.get("eviction_soft_grace_period") or {}) if soft else {}  # Invalid periods are refused elsewhere.
    for name in soft:
        if isinstance(periods, dict) and name not in periods:
            message = "has no grace period: declare it in kubelet.eviction_soft_grace_period as well"
            reader.refuse(join("kubelet.eviction_soft", name), None, message)


def _check_amount(reader: Reader, path: str, resource: str, amount: quantity.Quantity) -> None:
    """Refuse a negative amount, and an amount that Kubernetes accepts but that must be a mistake: a part of a byte, or a few bytes."""
    said = (
        "is negative: write 0 or more" if amount.nano < 0 else amount_problem(resource, amount) if amount.nano else ""
    )
    if said:
        reader.refuse(path, amount.text, said)


def _numa_option_texts(options: t.Mapping[str, t.Any]) -> Texts:
    """The topology manager's options that are on, as texts for the kubelet."""
    texts = {CLOSEST: "true"} if options.get(CLOSEST) else {}
    return {**texts, **({NODES: str(options[NODES])} if NODES in options else {})}


def _numa_options(texts: Texts) -> dict[str, t.Any]:
    return {name: int(text) if name == NODES else True for name, text in texts.items()}


AMOUNT_TEXTS = Shape(lambda amounts: {name: str(amount) for name, amount in amounts.items()}, dict)
SHAPES = {
    "kubelet": Kubelet,
    "kubelet.cpu_manager_policy_options": Shape(
        lambda options: tuple(name for name, is_on in options.items() if is_on),
        lambda names: dict.fromkeys(names, True),
    ),
    "kubelet.topology_manager_policy_options": Shape(_numa_option_texts, _numa_options),
    **{f"kubelet.{key}": AMOUNT_TEXTS for key in AMOUNTS},
}
