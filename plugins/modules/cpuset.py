#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cpuset
short_description: Divide a node's CPUs into reserved, shared and isolated ones
version_added: 0.1.0
description:
  - Divides the CPUs like C(cset shield), on cgroup v2 through systemd, on cgroup v1 with directories of its own. The
    system's slices run on the reserved CPUs, C(corral_isolated.slice) alone on the isolated ones, and everything else on
    the rest.
  - Lasts over reboots (on cgroup v1 with M(corral.node.agent)) and daemon-reloads. CPUs move between pools in an order in which no
    two pools overlap at any instant.
  - Workloads get their CPUs by the slice they run in, C(corral.slice) or C(corral_isolated.slice), for example with
    C(Slice=) in their unit or C(systemd-run --slice=corral_isolated.slice).
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
  - corral.node._part
options:
  reserved:
    description:
      - The CPUs for housekeeping. Exactly one of O(reserved.cpus), O(reserved.count) and O(reserved.cores_per_numa).
      - Required when O(state=present).
    type: dict
    suboptions:
      cpus:
        description:
          - These CPUs, as the kubelet's C(reservedSystemCPUs).
        type: str
      count:
        description:
          - This number of CPUs, chosen as the kubelet chooses them. They are packed, with whole sockets, NUMA nodes and cores first.
        type: int
      cores_per_numa:
        description:
          - This number of whole cores on each NUMA node that has CPUs, lowest-numbered first.
        type: int
      slices:
        description:
          - The top-level slices that are confined to the reserved CPUs. The default is C(system.slice), C(user.slice)
            and C(init.scope).
        type: list
        elements: str
  isolated:
    description:
      - CPUs that only processes in C(corral_isolated.slice) may use. Exactly one of O(isolated.cpus) and O(isolated.cores).
    type: dict
    suboptions:
      cpus:
        description:
          - These CPUs.
        type: str
      cores:
        description:
          - This number of whole cores that are not reserved. Without O(isolated.numa) and O(isolated.near) they are on one
            NUMA node if one node has enough.
        type: int
      numa:
        description:
          - The NUMA node of the O(isolated.cores).
        type: int
      near:
        description:
          - Take the O(isolated.cores) from the NUMA node of this device. A network interface or a PCI address.
        type: str
      load_balance:
        description:
          - Whether the scheduler spreads threads over the isolated CPUs. When it is V(false) a thread stays on the CPU that
            it was started on until it chooses others. Needs cgroup v2 and O(partitions=auto).
        type: bool
        default: true
  shared:
    description:
      - The CPUs that are left.
    type: dict
    suboptions:
      slices:
        description:
          - The top-level slices that run on the shared CPUs, beside Corral's own. The default is C(machine.slice).
        type: list
        elements: str
  whole_cores:
    description:
      - Whether the threads of a core are never in two pools.
    type: bool
    default: false
  strict_cpu_reservation:
    description:
      - Whether shared workloads are kept off the reserved CPUs. With V(false) they run on shared and reserved CPUs, which is
        the kubelet's default.
    type: bool
    default: true
  partitions:
    description:
      - Whether the kernel keeps all other processes off the isolated CPUs (cgroup v2). With V(off) only the slices that are
        named here are kept off them.
    type: str
    choices: [auto, 'off']
    default: auto
  unmanaged:
    description:
      - What to do with top-level slices, scopes and services that are not named here. With V(report) they are reported as
        drift, with V(confine) they are confined to the shared CPUs. On cgroup v1 they are only reported.
      - After a change back to V(report), a unit that was confined keeps a request for CPUs until it stops. Corral sets this request
        to the CPUs that the unit requested before, or to all CPUs that no grant has. CPUs that are set by hand there are overwritten.
    type: str
    choices: [report, confine]
    default: report
seealso:
  - module: corral.node.pools_info
"""

EXAMPLES = r"""
- name: Shield all CPUs but two from the system
  corral.node.cpuset:
    reserved: {cpus: 0-1}

- name: Keep one core of each NUMA node for the system, and four near a network card isolated
  corral.node.cpuset:
    reserved: {cores_per_numa: 1}
    isolated: {cores: 4, near: ens1f0}
    whole_cores: true

- name: Run a program on the isolated CPUs
  ansible.builtin.command:
    cmd: systemd-run --slice=corral_isolated.slice --unit=dataplane /usr/local/bin/dataplane

- name: Give all CPUs back to all slices
  corral.node.cpuset:
    state: absent
"""

RETURN = r"""
schema:
  description:
    - The version of what is returned, whose fields the collection's C(docs/json.md) lists. It grows when a field is
      removed or changes its meaning.
  returned: success
  type: int
  sample: 1
changes:
  description: What was changed, or in check mode what would be. The items are those of M(corral.node.profile).
  returned: success
  type: list
  elements: dict
  sample:
    - manager: cpu
      subject: system.slice
      property: AllowedCPUs
      actual: all (0-7)
      wanted: 0-1
      reason: its CPUs are not the pool's
      location: /sys/fs/cgroup/system.slice/cpuset.cpus
      verdict: drift
      when: now
      disruption: none
      text: "~ cpu system.slice AllowedCPUs: all (0-7) -> 0-1 (its CPUs are not the pool's) [/sys/fs/cgroup/system.slice/cpuset.cpus]"
drift:
  description: What of this part still differs after the run. In check mode all of it.
  returned: success
  type: list
  elements: dict
  sample: []
in_sync:
  description: Whether nothing of this part differs and everything could be read.
  returned: success
  type: bool
  sample: true
report:
  description: The changes as a person reads them.
  returned: success
  type: list
  elements: str
  sample: ["in sync: nothing differs"]
pools:
  description: The pools of CPUs as lists, for the whole machine and for each NUMA node.
  returned: when O(state=present)
  type: dict
  sample: {reserved: 0-1, shared: 2-5, isolated: 6-7}
cpu_map:
  description: A picture of the machine's pools.
  returned: when O(state=present)
  type: list
  elements: str
  sample: ["node 0   RR SS   CPUs 0-3", "node 1   SS II   CPUs 4-7"]
problems:
  description: When the task is refused, every reason with the option and its value.
  returned: failure
  type: list
  elements: dict
  sample: [{path: reserved.cpus, value: 9-15, message: "this node has CPUs 0-7; name CPUs among those"}]
undone:
  description: When a write was refused in the middle, what was taken back.
  returned: failure
  type: list
  elements: str
  sample: ["property system.slice"]
"""

from ansible_collections.corral.node.plugins.module_utils import _parts


def main() -> None:
    """Module entry point."""
    spec = {
        "reserved": {
            "type": "dict",
            "options": {
                "cpus": {"type": "str"},
                "count": {"type": "int"},
                "cores_per_numa": {"type": "int"},
                "slices": {"type": "list", "elements": "str"},
            },
            "mutually_exclusive": [("cpus", "count", "cores_per_numa")],
            "required_one_of": [("cpus", "count", "cores_per_numa")],
        },
        "isolated": {
            "type": "dict",
            "options": {
                "cpus": {"type": "str"},
                "cores": {"type": "int"},
                "numa": {"type": "int"},
                "near": {"type": "str"},
                "load_balance": {"type": "bool", "default": True},
            },
            "mutually_exclusive": [("cpus", "cores"), ("cpus", "numa"), ("cpus", "near"), ("numa", "near")],
            "required_one_of": [("cpus", "cores")],
        },
        "shared": {"type": "dict", "options": {"slices": {"type": "list", "elements": "str"}}},
        "whole_cores": {"type": "bool", "default": False},
        "strict_cpu_reservation": {"type": "bool", "default": True},
        "partitions": {"type": "str", "choices": ["auto", "off"], "default": "auto"},
        "unmanaged": {"type": "str", "choices": ["report", "confine"], "default": "report"},
    }
    _parts.run("cpuset", spec, required_if=[("state", "present", ("reserved",))])


if __name__ == "__main__":
    main()
