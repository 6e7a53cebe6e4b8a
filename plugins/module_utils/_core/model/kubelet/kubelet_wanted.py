# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The section ``kubelet`` of a profile as keys of a KubeletConfiguration, for a node and for the kubelet that is installed there."""

from __future__ import annotations

import typing as t

from ..profile.profile_kubelet import Kubelet
from ..values import cpuset, duration, sizes
from ..values.errors import Problem
from ..values.records import NamedTuple
from . import config_values, reserve_formulas
from .kubelet_config import DEFAULTS, THRESHOLDS, Config, Layer, effective, merge_patch
from .kubelet_options import CPU_OPTIONS, KEYS, TOPOLOGY_OPTIONS, WORDS, Since

MEMORY = "memory"
# By field of the section, the key of the configuration with the same meaning.
TERMS = {
    "cpu_manager_policy": "cpuManagerPolicy",
    "cpu_manager_policy_options": "cpuManagerPolicyOptions",
    "cpu_manager_reconcile_period": "cpuManagerReconcilePeriod",
    "memory_manager_policy": "memoryManagerPolicy",
    "reserved_memory": "reservedMemory",
    "topology_manager_policy": "topologyManagerPolicy",
    "topology_manager_scope": "topologyManagerScope",
    "topology_manager_policy_options": "topologyManagerPolicyOptions",
    "system_reserved": "systemReserved",
    "kube_reserved": "kubeReserved",
    "enforce_node_allocatable": "enforceNodeAllocatable",
    "system_reserved_cgroup": "systemReservedCgroup",
    "kube_reserved_cgroup": "kubeReservedCgroup",
    "eviction_hard": "evictionHard",
    "eviction_soft": "evictionSoft",
    "eviction_soft_grace_period": "evictionSoftGracePeriod",
    "pod_pids_limit": "podPidsLimit",
    "max_pods": "maxPods",
    "image_gc_high_threshold_percent": "imageGCHighThresholdPercent",
    "image_gc_low_threshold_percent": "imageGCLowThresholdPercent",
    "image_minimum_gc_age": "imageMinimumGCAge",
    "image_maximum_gc_age": "imageMaximumGCAge",
    "container_log_max_size": "containerLogMaxSize",
    "container_log_max_files": "containerLogMaxFiles",
    "fail_swap_on": "failSwapOn",
    "swap_behavior": "memorySwap",
}
RESERVED_CPUS, GATES, MAXIMUM_AGE = "reservedSystemCPUs", "featureGates", "imageMaximumGCAge"
KUBE_RESERVED = "kubeReserved"
# The key of the profile from which each key of the configuration follows.
ASKED_BY = {term: f"kubelet.{field}" for field, term in TERMS.items()}
ASKED_BY[RESERVED_CPUS] = "cpu.reserved"


class Machine(NamedTuple):
    """The machine that a kubelet's configuration has to fit. ``version``: of the kubelet, as (1, MINOR); None if Corral did not ask.

    ``reserved`` and ``isolated``: the profile's pools (``reserved`` None: the profile has no such pool). ``isolcpus``: the CPUs that the
    kernel isolates. ``numa``: the bytes of each NUMA node by kind (memory, hugepages-2Mi …), with the hugepages that the profile declares.
    ``pids``: the smaller of pid_max and threads-max (None: unknown). ``exclusive``: the CPUs that workloads of an earlier profile keep
    until they stop. ``with_cpus``: the NUMA nodes with CPUs. ``absent_groups``: missing control groups (paths) that a configuration names.
    """

    version: t.Optional[tuple[int, int]]
    online: frozenset[int]
    reserved: t.Optional[frozenset[int]] = None
    isolated: frozenset[int] = cpuset.EMPTY
    isolcpus: frozenset[int] = cpuset.EMPTY
    sockets: int = 1
    numa: t.Mapping[int, t.Mapping[str, int]] = {}
    memory: int = 0
    pids: t.Optional[int] = None
    swap: bool = False
    exclusive: frozenset[int] = cpuset.EMPTY
    with_cpus: frozenset[int] = cpuset.EMPTY
    absent_groups: frozenset[str] = frozenset()


class Wanted(NamedTuple):
    """The keys and values that are to be in force; a key with an empty map or list must have no entries.

    ``problems``: the keys, options and values that the installed kubelet does not know.
    """

    data: dict[str, t.Any]
    problems: tuple[Problem, ...] = ()

    def patch(self, below: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """The JSON merge patch that gives the configuration ``below`` the wanted keys; null deletes an entry that a map must not have."""
        return {key: patch_of(key, value, below.get(key)) for key, value in self.data.items() if self.says(key, below)}

    def replacing(self, below: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """The wanted keys for a file that also has keys of other programs: the other feature gates in ``below`` stay."""
        return {
            key: merge_patch(below.get(key), value) if key == GATES else value
            for key, value in self.data.items()
            if self.says(key, below)
        }

    def says(self, key: str, below: t.Mapping[str, t.Any]) -> bool:
        """Whether a key has to be written. A key without entries is left out if the key has no default and no value ``below``."""
        return self.data[key] not in ({}, []) or key in DEFAULTS or bool(below.get(key))


def patch_of(key: str, value: t.Any, below: t.Any) -> t.Any:
    """The patch that gives a key its value over the value ``below``; the feature gates of other programs stay."""
    if not isinstance(value, dict) or key == GATES or not isinstance(below, dict):
        return value
    return {**dict.fromkeys((name for name in below if name not in value), None), **value}


def compile(kubelet: Kubelet, machine: Machine) -> Wanted:
    """The keys that the section declares, for this machine and version; complete() adds reservedMemory that is not declared."""
    data: dict[str, t.Any] = {}
    for field, term in TERMS.items():
        value = getattr(kubelet, field)
        if value is not None:
            data[term] = WRITERS.get(term, as_is)(value)
    if kubelet.reserve_formula is not None:
        data[KUBE_RESERVED] = {**by_formula(kubelet.reserve_formula, machine), **data.get(KUBE_RESERVED, {})}
    if kubelet.cpu_manager_policy == "none" and kubelet.cpu_manager_policy_options is None:
        data["cpuManagerPolicyOptions"] = {}  # The kubelet would not start with an option.
    if kubelet.memory_manager_policy == "none" and kubelet.reserved_memory is None:
        data["reservedMemory"] = []
    if machine.reserved is not None:
        data[RESERVED_CPUS] = cpuset.format(machine.reserved | machine.isolated | machine.exclusive)
    if machine.version is None:
        return Wanted(data)
    if data.get(MAXIMUM_AGE) == "0s" and not KEYS[MAXIMUM_AGE].known(machine.version[1]):
        del data[MAXIMUM_AGE]  # A kubelet without this key never removes images by age.
    problems: list[Problem] = []
    gates: dict[str, bool] = {}
    for path, value, what, since in versioned(data):
        if not since.known(machine.version[1]):
            shown = ".".join(map(str, machine.version))
            message = f"the installed kubelet {shown} does not know {what}, 1.{since.came} does: leave it out, or update the kubelet"
            problems.append(Problem(path, value, message))
        elif since.gate_of(machine.version[1]):
            gates[since.gate] = True
    if gates:
        data[GATES] = gates
    return Wanted(data, tuple(problems))


def by_formula(name: str, machine: Machine) -> dict[str, str]:
    """The kubeReserved of a formula, without cpu if the profile has reserved CPUs: the kubelet then gets a list of CPUs."""
    found = reserve_formulas.reserve(name, len(machine.online), machine.memory)
    return {kind: amount for kind, amount in found.items() if kind != "cpu" or machine.reserved is None}


def asked_by(term: str, kubelet: t.Optional[Kubelet]) -> t.Optional[str]:
    """The key of the profile from which a key of the configuration follows; ``kubelet`` is the profile's section."""
    if term == KUBE_RESERVED and kubelet is not None and kubelet.reserve_formula and kubelet.kube_reserved is None:
        return "kubelet.reserve_formula"
    return ASKED_BY.get(term)


def versioned(data: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, t.Any, str, Since]]:
    """The entries of ``data`` that some kubelets do not know: path in the profile, value there, the kubelet's word, and its versions."""
    for term, known in (("cpuManagerPolicyOptions", CPU_OPTIONS), ("topologyManagerPolicyOptions", TOPOLOGY_OPTIONS)):
        for name, value in (data.get(term) or {}).items():
            yield f"{ASKED_BY[term]}.{name}", value, f"the option {name}", known[name]
    for term, since in KEYS.items():
        if term in data:
            yield ASKED_BY[term], None, term, since
    words = [("enforceNodeAllocatable", word) for word in data.get("enforceNodeAllocatable") or ()]
    words += [("memorySwap", word) for word in (data.get("memorySwap") or {}).values()]
    for term, word in words:
        if word in WORDS:
            yield ASKED_BY[term], word, f"{term}: {word}", WORDS[word]


def as_is(value: t.Any) -> t.Any:
    """The unchanged value: profile and configuration write this value in the same way."""
    return value


def memory_rows(memory: t.Mapping[int, int]) -> list[dict[str, t.Any]]:
    """The value of reservedMemory for ``memory``, which has bytes by NUMA node."""
    return [
        {"numaNode": node, "limits": {MEMORY: sizes.size_text(size)}} for node, size in sorted(memory.items()) if size
    ]


def go_duration(seconds: int) -> str:
    """Seconds as a duration of Go, which has no days."""
    days, rest = divmod(seconds, duration.UNITS["d"])
    if not days:
        return duration.text(seconds)
    hours, rest = divmod(rest, duration.UNITS["h"])
    return f"{days * 24 + hours}h{duration.text(rest) if rest else ''}"


WRITERS: dict[str, t.Callable[[t.Any], t.Any]] = {
    "cpuManagerPolicyOptions": lambda names: dict.fromkeys(names, "true"),
    "cpuManagerReconcilePeriod": go_duration,
    "imageMinimumGCAge": go_duration,
    "imageMaximumGCAge": go_duration,
    "evictionSoftGracePeriod": lambda periods: {name: go_duration(seconds) for name, seconds in periods.items()},
    "memoryManagerPolicy": lambda policy: policy.capitalize(),
    "reservedMemory": memory_rows,
    "enforceNodeAllocatable": list,
    "containerLogMaxSize": sizes.size_text,
    "memorySwap": lambda behavior: {"swapBehavior": behavior},
    "systemReserved": dict,
    "kubeReserved": dict,
    "evictionHard": dict,
    "evictionSoft": dict,
}


def reserved_in_all(config: Config, capacity: int) -> int:
    """The bytes that reservedMemory must add up to: the reserves and the hard eviction threshold (NodeAllocatableReservation)."""
    reserved = sum(config_values.units(config.get(key, MEMORY)) for key in ("kubeReserved", "systemReserved"))
    return reserved + config_values.threshold(config.get("evictionHard", "memory.available"), capacity)


def divided(total: int, numa: t.Mapping[int, t.Mapping[str, int]]) -> dict[int, int]:
    """A reserve divided over the NUMA nodes in proportion to their memory, in whole Mi; the first node with memory gets the rest."""
    sizes_of = {node: kinds.get(MEMORY, 0) for node, kinds in sorted(numa.items()) if kinds.get(MEMORY, 0)}
    whole = sum(sizes_of.values())
    if not whole:
        return {}
    parts = {node: (total * size // whole) >> 20 << 20 for node, size in sizes_of.items()}
    first = next(iter(parts))
    parts[first] += total - sum(parts.values())
    return parts


def complete(wanted: Wanted, kubelet: Kubelet, machine: Machine, in_force: t.Callable[[Wanted], Config]) -> Wanted:
    """The wanted keys, with reservedMemory added if the memory manager's policy is static and the profile does not declare reservedMemory.

    ``in_force`` returns the configuration that results from wanted keys: other files may declare the reserves.
    """
    if kubelet.memory_manager_policy != "static" or kubelet.reserved_memory is not None:
        return wanted
    total = reserved_in_all(in_force(wanted), machine.memory)
    # The kubelet and the system use the memory of NUMA nodes with CPUs, not the memory of a GPU.
    numa = {node: kinds for node, kinds in machine.numa.items() if node in machine.with_cpus}
    return wanted._replace(data={**wanted.data, "reservedMemory": memory_rows(divided(total, numa))})


def in_force(files: t.Sequence[Layer], flags: t.Sequence[Layer], own: str, patch: t.Mapping[str, t.Any]) -> Config:
    """The configuration in force if the drop-in ``own`` has the data ``patch``, in its place among the other files."""
    others = [layer for layer in files if layer.origin != own]
    at = place_of(others, own)
    return effective([*others[:at], Layer(own, patch, drop_in=True), *others[at:]], flags)


def below(files: t.Sequence[Layer], own: str) -> dict[str, t.Any]:
    """The merged data of the files before the drop-in ``own``, with the default thresholds. The drop-in is merged into this data."""
    others = [layer for layer in files if layer.origin != own]
    before = others[: place_of(others, own)]
    thresholds = {THRESHOLDS: DEFAULTS[THRESHOLDS]}
    return effective(before, defaults=thresholds).data


def place_of(others: t.Sequence[Layer], own: str) -> int:
    """The number of files before the drop-in ``own``: --config, and the drop-ins whose names sort before, folder by folder."""
    folder = own.rpartition("/")[0] + "/"
    return sum(
        not layer.drop_in or layer.origin[len(folder) :].partition("/")[0] < own[len(folder) :] for layer in others
    )
