# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The contradictions in a kubelet's configuration that keep the kubelet from starting, or that do not fit the machine.

Some rules come from Kubernetes 1.36 (pkg/kubelet/apis/config/validation, the managers' checks at start). The kubelet does not check the
other rules, which concern the whole node: memory, processes, disk thresholds, CPUs that the kernel isolates.
"""

from __future__ import annotations

import typing as t

from ..cpu import cpu_options
from ..profile.schema_reader import join
from ..values import cpuset, sizes
from ..values.errors import Problem
from . import config_values, kubelet_wanted
from .config_values import is_on, units
from .kubelet_config import DEFAULT, Config
from .kubelet_wanted import ASKED_BY, MEMORY, Machine

# With more NUMA nodes the kubelet starts only with the policy none, or with the option max-allowable-numa-nodes.
USUAL_NODES = 8
STATIC = ("static", "Static")
GROUPS = ("systemReservedCgroup", "kubeReservedCgroup")
MAPPINGS = (
    "cpuManagerPolicyOptions",
    "topologyManagerPolicyOptions",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "featureGates",
    "memorySwap",
)


class Rules:
    """The checks of one configuration in force; ``own`` are the keys that the profile sets."""

    def __init__(self, config: Config, machine: Machine, own: t.Container[str]) -> None:
        self.config, self.machine, self.own = config, machine, own
        self.problems: list[Problem] = []

    def refuse(self, value: object, message: str, *path: str) -> None:
        """Add a problem of the value at ``path``, with the profile's key if the profile sets the value, else with the file or flag."""
        self.problems.append(Problem(self.place(*path), value, message))

    def place(self, *path: str) -> str:
        """The key of the profile that sets the value at a path, else the file or flag with the key."""
        if path[0] in self.own and path[0] in ASKED_BY:
            asked = ASKED_BY[path[0]]
            return join(asked, path[1]) if len(path) > 1 else asked
        origin = next((one for at, one in self.config.origins.items() if at[: len(path)] == path), DEFAULT)
        key = ".".join(path)
        return key if origin == DEFAULT else f"{origin}: {key}"

    def mapping(self, key: str) -> t.Mapping[str, t.Any]:
        """The value of a key; an empty mapping for a missing key, and for a value that is no mapping."""
        value = self.config.get(key)
        return value if isinstance(value, dict) else {}

    def option(self, name: str) -> bool:
        """Whether an option of the CPU manager is on."""
        return is_on(self.config.get("cpuManagerPolicyOptions", name))

    @property
    def reserved(self) -> frozenset[int]:
        """The CPUs of reservedSystemCPUs; an empty set if the key is missing or has no list of CPUs."""
        try:
            return cpuset.parse(str(self.config.get("reservedSystemCPUs") or ""))
        except ValueError:
            return cpuset.EMPTY


def problems(config: Config, machine: Machine, own: t.Container[str]) -> list[Problem]:
    """Every reason not to start a kubelet with this configuration on this machine."""
    rules = Rules(config, machine, own)
    for check in (check_shapes, check_cpus, check_options, check_topology, check_enforced, check_eviction, check_images, check_pids,
                  check_memory, check_reserved_memory, check_swap):  # fmt: skip
        check(rules)
    return rules.problems


def check_shapes(rules: Rules) -> None:
    """Check the keys that have to be mappings."""
    for key in MAPPINGS:
        value = rules.config.get(key)
        if value is not None and not isinstance(value, dict):
            rules.refuse(value, "is not a mapping, and the kubelet would not start: write one", key)


def check_cpus(rules: Rules) -> None:
    """Check the reserved CPUs, and the CPUs for pods."""
    config, machine, reserved = rules.config, rules.machine, rules.reserved
    if reserved - machine.online:
        gone = cpuset.format(reserved - machine.online)
        rules.refuse(
            cpuset.format(reserved), f"CPUs {gone} are not online: name CPUs of this node", "reservedSystemCPUs"
        )
    for key in GROUPS:
        if config.get("reservedSystemCPUs") and config.get(key):
            message = "the kubelet does not take it beside reservedSystemCPUs: leave one of them out"
            rules.refuse(config.get(key), message, key)
    if config.get("cpuManagerPolicy") != "static":
        return
    milli = sum(config_values.milli(config.get(key, "cpu")) for key in ("kubeReserved", "systemReserved"))
    if not reserved and not milli:
        message = "needs reserved CPUs: declare cpu.reserved, or cpu in kubelet.system_reserved"
        rules.refuse("static", message, "cpuManagerPolicy")
    strict = rules.option("strict-cpu-reservation")
    if machine.isolated and not strict:
        message = (
            f"pods of other classes would run on the isolated CPUs {cpuset.format(machine.isolated)}: declare "
            "strict-cpu-reservation in kubelet.cpu_manager_policy_options as well, or leave out cpu.isolated"
        )
        rules.refuse("static", message, "cpuManagerPolicy")
    usable = machine.online - reserved
    if not usable:
        rules.refuse(cpuset.format(reserved), "leaves no CPU for pods: reserve fewer", "reservedSystemCPUs")
    alone = usable & machine.isolcpus
    if alone and reserved:
        message = (
            f"pods share CPUs {cpuset.format(alone)}, on which the kernel balances no load (isolcpus): take them out of isolcpus, "
            "or add them to cpu.isolated"
        )
        rules.refuse(cpuset.format(reserved), message, "reservedSystemCPUs")


def check_options(rules: Rules) -> None:
    """Check the options of the CPU manager: forbidden pairs, and the conditions of each option."""
    given = rules.mapping("cpuManagerPolicyOptions")
    policy = rules.config.get("cpuManagerPolicy")
    if given and policy != "static":
        names = ", ".join(sorted(map(str, given)))
        rules.refuse(names, f"the policy {policy} takes no options: leave them out", "cpuManagerPolicyOptions")
        return
    chosen = cpu_options.Options(**{field: rules.option(name) for name, field in cpu_options.NAMES.items()})
    for first, second in cpu_options.forbidden(chosen):
        message = f"cannot be combined with {first} (the kubelet's rule): leave one out"
        rules.refuse(True, message, "cpuManagerPolicyOptions", second)
    if chosen.align_by_socket:
        if rules.config.get("topologyManagerPolicy") == "single-numa-node":
            message = "cannot be combined with the topology policy single-numa-node (the kubelet's rule): leave one out"
            rules.refuse(True, message, "cpuManagerPolicyOptions", "align-by-socket")
        if rules.machine.sockets > max(len(rules.machine.numa), 1):
            message = f"this machine has {rules.machine.sockets} sockets and fewer NUMA nodes, the kubelet refuses that: leave it out"
            rules.refuse(True, message, "cpuManagerPolicyOptions", "align-by-socket")


def check_topology(rules: Rules) -> None:
    """Check the topology manager's policy, its options, and the number of NUMA nodes."""
    config, key = rules.config, "topologyManagerPolicyOptions"
    policy = config.get("topologyManagerPolicy")
    if is_on(config.get(key, "prefer-closest-numa-nodes")) and policy in ("none", "single-numa-node"):
        message = f"has no effect with the policy {policy}: leave it out, or choose best-effort or restricted"
        rules.refuse(True, message, key, "prefer-closest-numa-nodes")
    allowed = config_values.units(config.get(key, "max-allowable-numa-nodes") or USUAL_NODES)
    if policy != "none" and len(rules.machine.numa) > allowed:
        message = (
            f"this machine has {len(rules.machine.numa)} NUMA nodes and the kubelet starts with at most {allowed}: declare none, or "
            "max-allowable-numa-nodes in kubelet.topology_manager_policy_options"
        )
        rules.refuse(policy, message, "topologyManagerPolicy")


def check_enforced(rules: Rules) -> None:
    """Check enforceNodeAllocatable."""
    config, key = rules.config, "enforceNodeAllocatable"
    words = config.get(key)
    if not isinstance(words, list):
        rules.refuse(None, "is not a list: write one", key)
        return
    if "none" in words and len(words) > 1:
        rules.refuse("none", "cannot be combined with others: leave them out", key)
    if config.get("cgroupsPerQOS") is False and set(words) - {"none"}:
        rules.refuse(words[0], "needs cgroupsPerQOS: true: write [none], or leave cgroupsPerQOS out", key)
    for part in ("system", "kube"):
        word, group = f"{part}-reserved", f"{part}ReservedCgroup"
        both = [one for one in (word, f"{word}-compressible") if one in words]
        if len(both) == 2:
            rules.refuse(both[1], f"cannot be combined with {word}: leave one out", key)
        if both and not config.get(group):
            rules.refuse(both[0], f"needs {group}: declare kubelet.{part}_reserved_cgroup", key)
        elif both:
            check_group(rules, group)


def groups_of(config: Config) -> frozenset[str]:
    """The control groups that a configuration names, as the kubelet looks for them."""
    return frozenset(group_of(config, key) for key in GROUPS if config.get(key))


def group_of(config: Config, key: str) -> str:
    """The path of the control group that a key names. With the systemd driver the key names a slice: a-b means /a.slice/a-b.slice."""
    said = str(config.get(key))
    if config.get("cgroupDriver") != "systemd":
        return said
    parts = said.rstrip("/").rpartition("/")[2].removesuffix(".slice").split("-")
    return "".join(f"/{'-'.join(parts[:depth])}.slice" for depth in range(1, len(parts) + 1))


def check_group(rules: Rules, key: str) -> None:
    """Check that the control group of ``key`` exists: the kubelet sets its limits, but does not make the control group."""
    said = str(rules.config.get(key))
    stem = said.rstrip("/").rpartition("/")[2]
    if stem.endswith((".service", ".scope")):
        message = "is no slice, and systemd's driver looks for one of this name: name a slice, and put the unit into it (Slice=)"
        rules.refuse(said, message, key)
        return
    path = group_of(rules.config, key)
    if path in rules.machine.absent_groups:
        message = (
            f"there is no control group {path}, and the kubelet makes none: name one of this node, or leave it out"
        )
        rules.refuse(said, message, key)


def check_eviction(rules: Rules) -> None:
    """Check the soft thresholds: each needs a grace period, and must be reached before the hard threshold."""
    hard, soft = rules.mapping("evictionHard"), rules.mapping("evictionSoft")
    for signal, value in soft.items():
        if rules.config.get("evictionSoftGracePeriod", signal) is None:
            message = "has no grace period: declare it in kubelet.eviction_soft_grace_period"
            rules.refuse(value, message, "evictionSoft", signal)
        if signal in hard and is_below(value, hard[signal]):
            message = f"is below the hard threshold {hard[signal]}, so that it never counts: write a larger one"
            rules.refuse(value, message, "evictionSoft", signal)


def is_below(one: object, other: object) -> bool:
    """Whether a threshold is below another threshold of the same kind."""
    shares = config_values.percent(one), config_values.percent(other)
    if shares[0] is not None and shares[1] is not None:
        return shares[0] < shares[1]
    return shares == (None, None) and units(one) < units(other)


def check_images(rules: Rules) -> None:
    """Check the thresholds and ages of image garbage collection, and the high threshold against the eviction thresholds."""
    config = rules.config
    high, low = (units(config.get(f"imageGC{word}ThresholdPercent")) for word in ("High", "Low"))
    if low >= high:
        message = f"is not below imageGCHighThresholdPercent ({high}): write a smaller one"
        rules.refuse(low, message, "imageGCLowThresholdPercent")
    oldest, youngest = (config_values.seconds(config.get(f"image{word}GCAge")) for word in ("Maximum", "Minimum"))
    if oldest and youngest is not None and oldest <= youngest:
        message = f"is not more than imageMinimumGCAge ({config.get('imageMinimumGCAge')}): write a longer time, or 0s for no limit"
        rules.refuse(config.get("imageMaximumGCAge"), message, "imageMaximumGCAge")
    for signal in ("imagefs.available", "nodefs.available"):
        share = config_values.percent(config.get("evictionHard", signal))
        if share is not None and high < 100 and high > 100 - share:
            message = (
                f"pods are evicted from {float(100 - share):g}% on ({signal} {config.get('evictionHard', signal)}), before images go: "
                f"write at most {int(100 - share)}, or a smaller threshold"
            )
            rules.refuse(high, message, "imageGCHighThresholdPercent")
            return


def check_pids(rules: Rules) -> None:
    """Check the tasks that all pods may have together against the machine's limit of tasks."""
    config, total = rules.config, rules.machine.pids
    limit, pods = units(config.get("podPidsLimit")), units(config.get("maxPods"))
    kept = sum(units(config.get(key, "pid")) for key in ("kubeReserved", "systemReserved"))
    if total is None:
        return
    if kept >= total:
        message = f"leaves nothing of the {total} tasks of this machine (pid_max, threads-max) to pods: reserve fewer"
        rules.refuse(kept, message, "systemReserved" if config.get("systemReserved", "pid") else "kubeReserved", "pid")
    elif limit > 0 and limit * pods + kept > total:
        message = (
            f"{pods} pods with {limit} tasks each and {kept} reserved ones are more than the {total} tasks of this machine (pid_max, "
            f"threads-max): write at most {max((total - kept) // max(pods, 1), 1)}, fewer maxPods, or raise pids.pid_max and "
            "pids.threads_max"
        )
        rules.refuse(limit, message, "podPidsLimit")


def check_memory(rules: Rules) -> None:
    """Check hugepages, reserves and the eviction threshold against the machine's memory."""
    machine = rules.machine
    pages = sum(size for kinds in machine.numa.values() for kind, size in kinds.items() if kind != MEMORY)
    kept = kubelet_wanted.reserved_in_all(rules.config, machine.memory)
    if machine.memory and kept and pages + kept >= machine.memory:
        about = sizes.about_text
        message = (
            f"with the eviction threshold and hugepages of {about(pages)} that is {about(pages + kept)}, and this machine has "
            f"{about(machine.memory)}: reserve less, or declare fewer hugepages"
        )
        key = next((key for key in ("systemReserved", "kubeReserved") if rules.config.get(key, MEMORY)), "")
        path = (key, MEMORY) if key else ("evictionHard", "memory.available")
        rules.refuse(rules.config.get(*path), message, *path)


def check_reserved_memory(rules: Rules) -> None:
    """Check reservedMemory: the amounts must add up to the reserves (the kubelet's rule), and each NUMA node must have its amount."""
    config, machine, key = rules.config, rules.machine, "reservedMemory"
    if config.get("memoryManagerPolicy") not in STATIC:
        return
    rows = config_values.meaning(key, config.get(key))
    if rows is None or isinstance(rows, list):
        message = "needs reservedMemory: declare kubelet.reserved_memory, or leave it to Corral by kubelet.memory_manager_policy: static"
        rules.refuse("Static", message, "memoryManagerPolicy")
        return
    total = sum(kinds.get(MEMORY, 0) for kinds in rows.values()) // 10**9
    needed = kubelet_wanted.reserved_in_all(config, machine.memory)
    if total != needed:
        message = (
            f"adds up to {shown(total)}, but kubeReserved, systemReserved and the hard eviction threshold of memory add up to "
            f"{shown(needed)}: write the same amount, or the kubelet does not start"
        )
        rules.refuse(None, message, key)
    pages = sorted({kind for kinds in rows.values() for kind in kinds if kind != MEMORY})
    if pages:
        message = (
            "no reserve has hugepages, with which the kubelet compares them, and it does not start: leave them out"
        )
        rules.refuse(", ".join(pages), message, key)
    for node, kinds in rows.items():
        if node not in machine.numa:
            rules.refuse(node, f"this machine has no NUMA node {node}: write another one", key)
            continue
        has = machine.numa[node]
        taken = sum(size for kind, size in has.items() if kind != MEMORY)
        if kinds.get(MEMORY, 0) // 10**9 + taken >= has.get(MEMORY, 0):
            about = sizes.about_text
            message = (
                f"NUMA node {node} has {about(has.get(MEMORY, 0))}, of which hugepages are {about(taken)}: reserve less there, or "
                "declare fewer hugepages"
            )
            rules.refuse(shown(kinds.get(MEMORY, 0) // 10**9), message, key)


def shown(size: int) -> str:
    """An exact number of bytes, as text."""
    return sizes.size_text(size)


def check_swap(rules: Rules) -> None:
    """Check failSwapOn on a machine with swap. If the profile declares LimitedSwap, the problem names memorySwap instead of failSwapOn."""
    if not rules.machine.swap or rules.config.get("failSwapOn") is not True:
        return
    behavior = rules.mapping("memorySwap").get("swapBehavior")
    if behavior == "LimitedSwap" and "memorySwap" in rules.own:
        message = "swap is on here, and with failSwapOn the kubelet would not start: declare kubelet.fail_swap_on: false as well"
        rules.refuse(behavior, message, "memorySwap")
        return
    message = "swap is on here, and the kubelet would not start: turn it off (swapoff -a, /etc/fstab), or declare false"
    rules.refuse(True, message, "failSwapOn")
