# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of a profile in one table, for the parser and docs/profile.md. The keys of each section are in schema_SECTION.py.

The keys of planned managers are in the table as well, marked ``later``: a profile with such a key is refused. To add a key, add one entry
in the file of its section, and a field in the tuple of its section (section_data.py fills the field); ``tools/profile_reference.py`` writes
the reference page.
"""

from __future__ import annotations

from ..values.records import NamedTuple
from . import (
    schema_confirm,
    schema_cpu,
    schema_devices,
    schema_gc,
    schema_kubelet,
    schema_memory,
    schema_pids,
    schema_tenants,
    schema_topology,
    schema_workloads,
)
from . import schema_types as types
from .schema_key import Key

# The format of a profile. A node refuses a profile with a larger number, since its keys may have another meaning.
FORMAT = 1

# No node needs a longer list; a list of a million items is a mistake or an attack.
ITEMS_LIMIT = 1024


def _later(path: str, doc: str) -> Key:
    return Key(path, None, doc, later=True, since="")


KEYS: tuple[Key, ...] = (
    Key(
        "name",
        types.LABEL,
        "What the profile is called in reports and on the node.",
        example="edge-worker",
        required=True,
    ),
    Key(
        "version",
        types.integer(1, 1 << 31),
        "The format of the profile. A profile of a newer format than the node's Corral knows is refused.",
        example="1",
        default=FORMAT,
    ),
    Key(
        "mode",
        types.choice("enforce", "audit"),
        "Both are applied at a rollout, and brought back at boot. With `enforce` the agent keeps the node so from then on; "
        "with `audit` it only reports what differs. To change nothing at all, use check mode.",
        example="audit",
        default="enforce",
    ),
    *schema_cpu.KEYS,
    *schema_memory.KEYS,
    *schema_pids.KEYS,
    *schema_topology.KEYS,
    *schema_gc.KEYS,
    *schema_workloads.KEYS,
    *schema_tenants.KEYS,
    *schema_devices.KEYS,
    *schema_confirm.KEYS,
    *schema_kubelet.KEYS,
    _later("irq", "Interrupt affinity."),
    _later("boot", "Kernel command line."),
)

# For each section, the keys of which exactly one must be declared.
EXACTLY_ONE = {
    "cpu.reserved": ("cpus", "count", "cores_per_numa"),
    "cpu.isolated": ("cpus", "cores"),
    "memory.hugepages[]": ("count", "share"),
}

# Keys of the kubelet's configuration, each with the profile's key for the same setting.
KUBELET_NAMES = {
    "reservedSystemCPUs": "cpu.reserved.cpus",
    "cpuManagerPolicy": "cpu.policy",
    "cpuManagerPolicyOptions": "cpu.options",
    "reservedMemory": "memory.reserved",
    "podPidsLimit": "pids.per_workload",
    "topologyManagerPolicy": "topology.policy",
    "topologyManagerScope": "topology.scope",
    "topologyManagerPolicyOptions": "topology.options",
    "memoryManagerPolicy": "memory.policy",
    "imageGCHighThresholdPercent": "gc.images.high",
    "imageGCLowThresholdPercent": "gc.images.low",
    "imageMinimumGCAge": "gc.images.min_age",
    "imageMaximumGCAge": "gc.images.max_age",
}


class Node(NamedTuple):
    """A key and the keys below it."""

    key: Key
    children: dict[str, Node]


def _tree() -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    top: dict[str, Node] = {}
    for key in KEYS:
        node = nodes[key.path.replace("[]", "")] = Node(key, {})
        above = key.path.rpartition(".")[0].replace("[]", "")
        (nodes[above].children if above else top)[key.name] = node
    return top


TREE = _tree()
ROOT = Node(Key("", None, ""), TREE)
