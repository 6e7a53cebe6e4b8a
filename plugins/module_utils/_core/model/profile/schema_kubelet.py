# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of the section ``kubelet``, and the types of values that only these keys have. Readers follow the rules in schema_types.py."""

from __future__ import annotations

import re

from ..kubelet.kubelet_options import SIGNALS
from ..kubelet.reserve_formulas import FORMULAS
from ..numa.topology_manager import CONTAINER, POD, POLICIES
from ..values import quantity
from . import schema_quantities as quantities
from . import schema_types as types
from .schema_key import LIST, MAP, Key
from .schema_pids import PID_MAX_HIGH
from .schema_types import Type, choice, read_text

_PERCENT = re.compile(r"(?:0|[1-9][0-9]?)(?:\.[0-9]{1,4})?%")
_CGROUP = re.compile(r"/[A-Za-z0-9_.:@\\-]+(?:/[A-Za-z0-9_.:@\\-]+)*")
_PROGRAM = re.compile(r"/[A-Za-z0-9_.:@+-]+(?:/[A-Za-z0-9_.:@+-]+)*")


def _threshold(value: object) -> str:
    """An eviction threshold as the kubelet writes it: a quantity, or a share in percent."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text = read_text(value, such_as="500Mi or 10%").strip()
    if text.endswith("%"):
        if not _PERCENT.fullmatch(text):
            raise ValueError("is not a share of less than 100%: write it as in 10%")
        return text
    try:
        amount = quantity.parse(text) if len(text) <= 64 else None
    except ValueError:
        amount = None
    if amount is None or amount.nano < 0:
        meant = quantities.binary(text)
        hint = f"did you mean {meant}?" if meant and amount is None else "write it as in 500Mi or 10%"
        raise ValueError(f"is neither a quantity nor a share in percent: {hint}")
    return text


def _cgroup(value: object) -> str:
    text = read_text(value, such_as="/system.slice")
    if len(text) > 1024 or not _CGROUP.fullmatch(text) or ".." in text.split("/"):
        raise ValueError("is not the absolute name of a control group: write it as in /system.slice")
    return text


def _hook(value: object) -> str:
    """The word none, or the absolute path of a program."""
    text = read_text(value, such_as="/usr/local/sbin/drain-node")
    if text == "none":
        return text
    if len(text) > 1024 or not _PROGRAM.fullmatch(text) or any(part in (".", "..") for part in text.split("/")):
        raise ValueError(
            "is neither none nor the absolute path of a program, without arguments: write it as in /usr/local/sbin/drain-node"
        )
    return text


RESERVABLE = choice("cpu", "memory", "ephemeral-storage", "pid")
ENFORCED = choice(
    "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible", "none"
)
SIGNAL = choice(*SIGNALS)
THRESHOLD = Type("quantity, or share in percent", _threshold, bounds=(0, 1 << 60), pattern=".+")
CONTROL_GROUP = Type("control group", _cgroup, pattern=_CGROUP.pattern)
HOOK = Type("none, or the path of a program", _hook, pattern=f"none|{_PROGRAM.pattern}")

KEYS: tuple[Key, ...] = (
    Key(
        "kubelet",
        None,
        "The configuration of the node's kubelet, from 1.28 on ([kubelet.md](kubelet.md)). Only what is declared is set; all else "
        "stays as others configure it. With the section `cpu` the kubelet's `reservedSystemCPUs` are the reserved and the isolated "
        "CPUs. Settings that the kubelet would refuse, or that contradict each other, are refused before anything is changed.",
    ),
    Key(
        "kubelet.optional",
        types.BOOLEAN,
        "Whether a node without a kubelet, or with one that Corral does not configure (k3s, RKE2, MicroK8s, MicroShift), does without "
        "this section. A note says so. When it is false the profile is refused there.",
        example="true",
        default=False,
    ),
    Key(
        "kubelet.drain",
        HOOK,
        "The program that drains the node before a change that takes exclusive CPUs or NUMA memory away from pods: it is run with the "
        "argument `drain` before the kubelet stops, and with `resume` once it is healthy again. With `none` the change is made "
        "without it. When it is left out such a change is refused while there are such pods. Only root may be able to change the program "
        "([devices.md](devices.md#what-root-runs-only-root-may-change)).",
        example="/usr/local/sbin/drain-node",
    ),
    Key(
        "kubelet.cpu_manager_policy",
        types.choice("none", "static"),
        "`cpuManagerPolicy`. With `static` pods of the class Guaranteed get whole CPUs for themselves. `cpu.policy`, which gives "
        "CPUs to Corral's own workloads, must then be `none`.",
        example="static",
    ),
    Key(
        "kubelet.cpu_manager_policy_options",
        None,
        "`cpuManagerPolicyOptions`, all of them: an option that is left out or false is off. One that the installed kubelet does not "
        "know is refused; the feature gate is set where the installed version needs one.",
    ),
    *(
        Key(f"kubelet.cpu_manager_policy_options.{name}", types.BOOLEAN, doc, example="true", default=False)
        for name, doc in (
            ("full-pcpus-only", "Exclusive CPUs are whole cores only; other requests are refused."),
            ("strict-cpu-reservation", "No pod at all runs on `reservedSystemCPUs` (1.32 on)."),
            ("distribute-cpus-across-numa", "Exclusive CPUs that need several NUMA nodes are spread evenly over them."),
            ("align-by-socket", "Exclusive CPUs are aligned to sockets instead of NUMA nodes."),
            ("distribute-cpus-across-cores", "Exclusive CPUs are spread over cores (1.31 on)."),
            ("prefer-align-cpus-by-uncorecache", "Exclusive CPUs share a last-level cache where they can (1.32 on)."),
        )
    ),
    Key(
        "kubelet.cpu_manager_reconcile_period",
        types.DURATION,
        "`cpuManagerReconcilePeriod`: how often containers are given the CPUs that the state has.",
        example="5s",
    ),
    Key(
        "kubelet.memory_manager_policy",
        types.choice("none", "static"),
        "`memoryManagerPolicy` (`None`, `Static`). With `static` the memory of Guaranteed pods comes from NUMA nodes that are chosen "
        "for it.",
        example="static",
    ),
    Key(
        "kubelet.reserved_memory",
        quantities.MEMORY,
        "`reservedMemory`: memory by NUMA node. The sum must be what `kubeReserved`, `systemReserved` and the hard eviction threshold "
        "of memory add up to. When it is left out with the policy `static`, that sum is divided in proportion to the NUMA nodes' memory.",
        example='{"0": 1Gi, "1": 612Mi}',
        many=MAP,
        keys=types.NODE,
    ),
    Key(
        "kubelet.topology_manager_policy",
        types.choice(*POLICIES),
        "`topologyManagerPolicy`.",
        example="single-numa-node",
    ),
    Key(
        "kubelet.topology_manager_scope",
        types.choice(CONTAINER, POD),
        "`topologyManagerScope`.",
        example="pod",
    ),
    Key(
        "kubelet.topology_manager_policy_options",
        None,
        "`topologyManagerPolicyOptions`, all of them: an option that is left out is off.",
    ),
    Key(
        "kubelet.topology_manager_policy_options.prefer-closest-numa-nodes",
        types.BOOLEAN,
        "Of equally few NUMA nodes those with the smallest distances are taken, with the policies `best-effort` and `restricted`.",
        example="true",
        default=False,
    ),
    Key(
        "kubelet.topology_manager_policy_options.max-allowable-numa-nodes",
        types.integer(8, types.NODE_LIMIT),
        "The most NUMA nodes with which the kubelet starts under a policy other than `none`; the kubelet has 8 (1.31 on).",
        example="16",
    ),
    Key(
        "kubelet.system_reserved",
        quantities.QUANTITY,
        "`systemReserved`, all of it. With the section `cpu` the CPUs follow from its reserved pool.",
        example="{memory: 1Gi, pid: 1000}",
        many=MAP,
        keys=RESERVABLE,
    ),
    Key(
        "kubelet.kube_reserved",
        quantities.QUANTITY,
        "`kubeReserved`, all of it: for the kubelet and the container runtime.",
        example="{memory: 512Mi, pid: 500}",
        many=MAP,
        keys=RESERVABLE,
    ),
    Key(
        "kubelet.reserve_formula",
        choice(*FORMULAS),
        "The formula ([kubelet.md](kubelet.md#reserves-by-a-formula)) by which `kubeReserved` follows from the node's CPUs and memory. "
        "An entry of `kube_reserved` stands in place of the formula's.",
        example="gke-v1",
    ),
    Key(
        "kubelet.enforce_node_allocatable",
        ENFORCED,
        "`enforceNodeAllocatable`: whose limits the kubelet sets on control groups.",
        example="[pods]",
        many=LIST,
    ),
    Key(
        "kubelet.system_reserved_cgroup",
        CONTROL_GROUP,
        "`systemReservedCgroup`, which `system-reserved` needs. Not with the section `cpu`: the kubelet does not take it beside "
        "`reservedSystemCPUs`.",
        example="/system.slice",
    ),
    Key(
        "kubelet.kube_reserved_cgroup",
        CONTROL_GROUP,
        "`kubeReservedCgroup`, which `kube-reserved` needs. Not with the section `cpu`.",
        example="/kube.slice",
    ),
    Key(
        "kubelet.eviction_hard",
        THRESHOLD,
        "`evictionHard`, all of it: a signal that is left out has no threshold, as with the kubelet.",
        example="{memory.available: 500Mi, nodefs.available: 10%, imagefs.available: 15%, nodefs.inodesFree: 5%}",
        many=MAP,
        keys=SIGNAL,
    ),
    Key(
        "kubelet.eviction_soft",
        THRESHOLD,
        "`evictionSoft`, all of it. Each signal needs a grace period.",
        example="{memory.available: 1Gi}",
        many=MAP,
        keys=SIGNAL,
    ),
    Key(
        "kubelet.eviction_soft_grace_period",
        types.DURATION,
        "`evictionSoftGracePeriod`: how long a soft threshold must be met before pods go.",
        example="{memory.available: 90s}",
        many=MAP,
        keys=SIGNAL,
    ),
    Key(
        "kubelet.pod_pids_limit",
        types.integer(-1, PID_MAX_HIGH),
        "`podPidsLimit`: the tasks of each pod; -1: no limit.",
        example="4096",
    ),
    Key("kubelet.max_pods", types.integer(1, 1 << 20), "`maxPods`.", example="110"),
    Key(
        "kubelet.image_gc_high_threshold_percent",
        types.integer(0, 100),
        "`imageGCHighThresholdPercent`: the disk use, in percent, from which on images go; 100: never.",
        example="80",
    ),
    Key(
        "kubelet.image_gc_low_threshold_percent",
        types.integer(0, 100),
        "`imageGCLowThresholdPercent`: the use, in percent, down to which they go.",
        example="70",
    ),
    Key("kubelet.image_minimum_gc_age", types.DURATION, "`imageMinimumGCAge`.", example="2m"),
    Key(
        "kubelet.image_maximum_gc_age",
        types.DURATION,
        "`imageMaximumGCAge`: an unused image goes after this time; `0s`: no limit (1.29 on).",
        example="30d",
    ),
    Key(
        "kubelet.container_log_max_size",
        quantities.LOG_SIZE,
        "`containerLogMaxSize`: the size at which a container's log is rotated.",
        example="10Mi",
    ),
    Key(
        "kubelet.container_log_max_files",
        types.integer(2, 1 << 16),
        "`containerLogMaxFiles`: the files that are kept of a container's log.",
        example="5",
    ),
    Key(
        "kubelet.fail_swap_on",
        types.BOOLEAN,
        "`failSwapOn`: whether the kubelet refuses to start while swap is on.",
        example="false",
    ),
    Key(
        "kubelet.swap_behavior",
        types.choice("NoSwap", "LimitedSwap"),
        "`memorySwap.swapBehavior`: whether pods may use swap.",
        example="LimitedSwap",
    ),
)
