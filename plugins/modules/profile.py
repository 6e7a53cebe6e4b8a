#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: profile
short_description: Apply a node resource profile to a node
version_added: 0.1.0
description:
  - Compiles the profile for this node, compares it with the state of the kernel and systemd, and changes what
    differs. One task and one round trip cover CPU pools, hugepages and their mounts, PID limits and garbage collection.
  - The whole plan is validated before the first write. If a write is refused in the middle, the earlier writes are undone in
    reverse order.
  - In check mode it writes nothing. Its plan is the drift report.
  - The original value of each setting that it changes is kept on the node. O(state=absent) restores the originals.
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
requirements:
  - Debian 11 or a distribution with systemd 247 or newer, with cgroup v2, or v1 and its cpuset controller
  - Python 3.9 or newer on the node
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  profile:
    description:
      - The node resource profile. The collection's C(docs/profile.md) lists every key with its type and default, and
        C(docs/profile.schema.json) is its JSON Schema for editors. All keys but C(name) are optional. What a section that is left out
        would manage is left alone.
      - C(name) is what the profile is called. C(mode) is V(enforce) (the default) or V(audit), in which the agent only reports
        drift. C(version) is the format, V(1).
      - C(cpu) divides the CPUs. C(reserved) takes exactly one of C(cpus) (a list such as V(0-1,32-33)), C(count) and
        C(cores_per_numa), and the C(slices) that run there. C(isolated) takes C(cpus) or C(cores), the latter with C(numa) (a number,
        V(first) or V(last)) or C(near) (an interface or a PCI address); also C(optional) and C(load_balance). C(shared) has C(slices)
        and C(min_cpus). The others are C(whole_cores), C(partitions), C(unmanaged), the kubelet's C(policy) (V(none) or V(static))
        and its C(options).
      - C(memory) has a list of C(hugepages), each with C(size), either C(count) or C(share), either C(node) (a number, V(first),
        V(last) or V(each)) or C(near), and C(optional). The list C(mounts) has C(path), C(pagesize), C(size), C(min_size), C(mode),
        C(user) or C(uid), C(group) or C(gid), and C(optional). C(reserved) (by NUMA node) and C(reserved_per_numa) are what hugepages
        must leave. C(policy) is the kubelet's.
      - C(pids) has C(pid_max), C(threads_max), C(default_tasks_max), C(reserved), C(per_workload), and C(slices) with the limit of
        tasks of each.
      - C(topology) has the kubelet's C(policy), C(scope) and C(options), and C(preferred_by).
      - C(gc) has C(images), C(containers) and C(users), with the options of M(corral.node.gc).
      - C(workloads) is a list. Each has a C(name), a C(match) (exactly one of C(unit), C(container), C(pod) and C(label)), C(hold),
        C(requests) and C(limits) as Kubernetes quantities, C(containers), C(priority) and C(share_process_namespace).
      - C(tenants) is a list. Each has a C(name), C(members), C(limits), a C(quota) and C(share_process_namespace).
      - C(devices) is a list. Each has the C(name) of a resource and a C(match), C(bind), C(check) and C(require_link).
      - C(confirm) has a C(command) and a C(timeout), by which a node confirms a profile that no run of a playbook applied.
      - C(kubelet) has keys of the kubelet's configuration, such as C(max_pods) for C(maxPods).
      - Replaces the declared profile as a whole. A setting that it no longer declares is restored to its value before Corral.
      - It also replaces what single modules such as M(corral.node.cpuset) declared. Their profile is called V(parts), and no
        other profile may have that name.
      - Without it and without O(layers) the profile that the node has declared already is used.
    type: dict
  layers:
    description:
      - The profile in parts, such as one of a site, one of each group and one of the host. A later layer wins.
      - Mappings merge key by key, items of C(memory.hugepages) by size and node, items of C(memory.mounts) by path, items of
        C(workloads) by name. Lists of plain values are replaced. An empty key (V(null)) removes what an earlier layer declared. If two
        layers declare keys that exclude each other, the later layer's key is used. The rules are in the collection's
        C(docs/compose.md).
      - P(corral.node.profile_layers#lookup) collects them from variables.
    type: list
    elements: dict
    suboptions:
      origin:
        description:
          - Where the layer is from. The node keeps it for each key, and a refusal names it.
        type: str
        required: true
      profile:
        description:
          - A part of a profile.
        type: dict
        required: true
  adopt:
    description:
      - The origin of the layer that adopts what the node has, where the node differs from the profile that it has applied. This
        layer is the strongest one. If O(layers) has a layer with this origin, that one is extended. Returned as RV(adopted).
      - A part is adopted if a key of the profile can express it and nothing else that is in force would change. The rest stays drift.
      - It changes the profile of this run. Give the layer to later runs as well, or they change the node back.
    type: str
  state:
    description:
      - With V(present) the profile is applied to the node.
      - With V(absent) every setting is restored to its value before the first profile.
    type: str
    choices: [present, absent]
    default: present
  confirm_timeout:
    description:
      - How many seconds a change waits for a confirmation (M(corral.node.confirm)) before the node goes back by itself to the
        profile before, or without one to what was there before Corral. With V(0) it waits for none.
      - It needs the agent on the node, whose timer goes back also when nothing can reach the node any more. A reboot, a killed
        run and a clock that is set do not end the wait.
      - A change with V(0) confirms what was unconfirmed before it.
    type: int
    default: 0
  force:
    description:
      - Whether to apply a profile that went back because nothing confirmed it, or that goes back now because its time for that is over.
      - Without it such a profile is refused.
    type: bool
    default: false
  with_agent:
    description:
      - Whether the same play installs the agent (M(corral.node.agent)). Check mode then has no notes on what waits for it.
    type: bool
    default: false
  during_pause:
    description:
      - What to do on a node that is paused for maintenance (C(corral pause), M(corral.node.pause)).
      - With V(refuse) nothing is changed and the module fails, with V(apply) it works as on any node. Check mode works
        either way.
    type: str
    choices: [refuse, apply]
    default: refuse
  lock_timeout:
    description:
      - How many seconds to wait for another run of Corral on this node.
    type: int
    default: 120
seealso:
  - plugin: corral.node.profile_layers
    plugin_type: lookup
  - module: corral.node.cpuset
  - module: corral.node.hugepages
  - module: corral.node.hugetlbfs_mount
  - module: corral.node.pid_limits
  - module: corral.node.gc
  - module: corral.node.agent
  - module: corral.node.pause
  - module: corral.node.rollback
  - module: corral.node.pools_info
"""

EXAMPLES = r"""
- name: Give the node its pools, hugepages and limits
  corral.node.profile:
    profile:
      name: edge
      cpu:
        reserved: {cores_per_numa: 1}
      memory:
        hugepages:
          - {size: 2Mi, count: 512, node: 0}

- name: Give unlike nodes their own CPUs and pages by one profile
  corral.node.profile:
    profile:
      name: edge
      mode: enforce
      cpu:
        reserved: {cores_per_numa: 1, slices: [system.slice, user.slice, init.scope]}
        isolated: {cores: 2, numa: last, optional: true}
        whole_cores: true
        policy: static
      memory:
        reserved_per_numa: 50%
        hugepages:
          - {size: 2Mi, share: 10%, node: each, optional: true}
        mounts:
          - {path: /dev/hugepages-2Mi, pagesize: 2Mi, mode: "0770", group: hugetlb, optional: true}
      pids:
        pid_max: 4194304
        reserved: 4096
        slices: {machine.slice: 16384}
      gc:
        images: {high: 85, low: 80, keep: ["quay.example/base:*"]}
      workloads:
        - name: dataplane
          match: {unit: dataplane.service}
          limits: {cpu: 2, memory: 2Gi}

- name: Override a key for one host
  corral.node.profile:
    layers:
      - origin: the site
        profile:
          name: edge
          cpu:
            reserved: {cores_per_numa: 1}
      - origin: this host
        profile:
          cpu:
            reserved: {cpus: 0-3}

- name: Report drift against the profile that the node has declared
  corral.node.profile:
  check_mode: true
  register: node

- name: Bring back what was there before
  corral.node.profile:
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
  description: What was changed, or in check mode what would be, and why.
  returned: success
  type: list
  elements: dict
  contains: &item
    manager:
      description: The part of Corral that manages it.
      type: str
      returned: always
      sample: cpu
    subject:
      description: What differs. A unit, a file, a kernel setting, or a pool of hugepages.
      type: str
      returned: always
      sample: system.slice
    property:
      description: Which of its properties.
      type: str
      returned: always
      sample: AllowedCPUs
    actual:
      description: What is there. V(null) when it is absent.
      type: str
      returned: always
      sample: 0-7
    wanted:
      description: What the profile declares.
      type: str
      returned: always
      sample: 0-1,4-5
    reason:
      description: Why they differ, and what to do where Corral cannot correct it.
      type: str
      returned: always
      sample: its CPUs are not the pool's
    location:
      description: Where it can be seen.
      type: str
      returned: always
      sample: /sys/fs/cgroup/system.slice/cpuset.cpus
    verdict:
      description: Either V(drift), V(unchangeable) or V(unknown).
      type: str
      returned: always
      sample: drift
    when:
      description: When it takes effect. Either V(now), V(next start) or V(next boot).
      type: str
      returned: always
      sample: now
    disruption:
      description: What it disturbs. Either V(none) or V(service restart).
      type: str
      returned: always
      sample: none
    text:
      description: All of it on one line, as a person reads it.
      type: str
      returned: always
      sample: "~ cpu system.slice AllowedCPUs: 0-7 -> 0-1,4-5 (its CPUs are not the pool's) [/sys/fs/cgroup/system.slice/cpuset.cpus]"
drift:
  description: What still differs after the run. In check mode all of it.
  returned: success
  type: list
  elements: dict
  contains:
    <<: *item
    since:
      description: When the agent first saw it, in seconds since 1970. A reboot does not change it. V(null) when it has not seen it yet.
      type: int
      returned: always
      sample: 1763805723
in_sync:
  description: Whether nothing differs and everything could be read.
  returned: success
  type: bool
  sample: true
report:
  description: The changes as a person reads them.
  returned: success
  type: list
  elements: str
  sample: ["in sync: nothing differs"]
name:
  description: The profile's name.
  returned: when O(state=present)
  type: str
  sample: edge
mode:
  description: The profile's mode, V(enforce) or V(audit).
  returned: when O(state=present)
  type: str
  sample: enforce
by_key:
  description:
    - The same changes by the keys of the profile. Each key that was edited since the profile applied before, in the order of the
      keys, with the changes that follow from it. On a node without a profile before, each section.
    - What the profile applied before would change as well is drift, and has an entry after these. The texts of Corral's own units
      have an entry of their own, since they differ after an upgrade of the collection.
  returned: when O(state=present)
  type: list
  elements: dict
  contains:
    kind:
      description: Either V(edited), V(first) for a section of a first profile, V(drift), or V(own) for Corral's own units.
      type: str
      returned: always
      sample: edited
    key:
      description: The key's path, with an item's name in place of its number (C(workloads[lane].hold)). Empty for V(drift) and V(own).
      type: str
      returned: always
      sample: cpu.isolated.cores
    before:
      description: Its value in the profile applied before. V(null) when it was not declared.
      type: raw
      returned: always
      sample: 1
    after:
      description: Its value now. V(null) when it is no longer declared.
      type: raw
      returned: always
      sample: 2
    origin:
      description: Where the key comes from, such as a variable of a group. V(null) when that is not known.
      type: str
      returned: always
      sample: corral_profile_layer_50_edge
    disruption:
      description: The most that its changes disturb. Either V(none) or V(service restart).
      type: str
      returned: always
      sample: none
    changes:
      description: The changes that follow from it, as a person reads them.
      type: list
      elements: str
      returned: always
      sample: ["~ cpu corral_isolated.slice AllowedCPUs: 6-7 -> 2-3,6-7 (its CPUs are not the pool's)"]
adopted:
  description:
    - The layer O(adopt) with what was adopted. V(null) when there is nothing that differs and that a key can express.
  returned: when O(adopt) is set
  type: dict
  sample: {pids: {pid_max: 500000}}
notes:
  description:
    - Notes for a person. In check mode also other agents that manage the node's CPUs and limits, and before a first
      rollout the busiest services of the slices that would have fewer CPUs.
  returned: when O(state=present)
  type: list
  elements: str
  sample: ["irqbalance runs and may put interrupts on the isolated CPUs 6-7: ..."]
pools:
  description: The pools of CPUs as lists, for the whole machine and for each NUMA node.
  returned: when O(state=present)
  type: dict
  sample: {reserved: "0-1,4-5", shared: 2-3, isolated: 6-7}
unconfirmed:
  description: The profile that waits for a confirmation, V(null) where none does.
  returned: success
  type: dict
  sample:
    name: edge
    hash: 0a1b2c3d4e5f
    since: 1795427282
    until: 1795427402
    before: edge
    failed: false
    text: >-
      profile edge (0a1b2c3d4e5f) is unconfirmed: at 2026-11-23 09:50:02 UTC the node goes back to profile edge (5d2f00c4a1b9)
      (corral confirm keeps it)
paused:
  description: The pause that is in force. V(null) when the node is not paused.
  returned: when O(state=present)
  type: dict
  contains:
    since:
      description: When it began, in seconds since 1970.
      type: int
      returned: always
      sample: 1795255200
    until:
      description: When it ends, in seconds since 1970.
      type: int
      returned: always
      sample: 1795258800
    by:
      description: The user who asked for it.
      type: str
      returned: always
      sample: alice
    uid:
      description: The user's number.
      type: int
      returned: always
      sample: 1000
    reason:
      description: The reason.
      type: str
      returned: always
      sample: exchanging a disk
    text:
      description: All of it on one line, as a person reads it.
      type: str
      returned: always
      sample: "paused until 2026-11-21 11:00:00 UTC by alice: exchanging a disk"
cpu_map:
  description: A picture of the machine's pools.
  returned: when O(state=present)
  type: list
  elements: str
  sample: ["node 0   RR SS   CPUs 0-3", "node 1   RR II   CPUs 4-7"]
cpu_map_now:
  description:
    - The same with the pools in which the kernel has the CPUs now. A letter is small where the profile has the CPU in another pool,
      C(?) is a CPU in no pool.
    - V(null) where all is as declared, and with cgroup v1.
  returned: when O(state=present)
  type: list
  elements: str
  sample: ["node 0   RR SS   CPUs 0-3", "node 1   ss II   CPUs 4-7"]
numa_nodes:
  description: The NUMA nodes of the machine.
  returned: when O(state=present)
  type: list
  elements: dict
  contains:
    node:
      description: Its number.
      type: int
      returned: always
      sample: 0
    cpus:
      description: Its online CPUs. Empty if it has none.
      type: str
      returned: always
      sample: 0-3
    memory_mib:
      description: Its memory in MiB. V(null) if the kernel does not report it.
      type: int
      returned: always
      sample: 2048
    hugepages:
      description: How many hugepages it has of each size.
      type: dict
      returned: always
      sample: {2Mi: 32, 1Gi: 0}
effective_profile:
  description:
    - The effective profile, which is the CPUs and amounts that the profile's intents give on this node.
    - The node keeps it, and diff mode shows how it changed.
  returned: when O(state=present)
  type: dict
  sample:
    name: edge
    mode: enforce
    cpu: {reserved: "0-1,4-5", shared: 2-3, isolated: 6-7, slices: {system.slice: "0-1,4-5"}}
    memory: {hugepages: {2Mi: {"node 0": 32}}}
workloads:
  description: The workloads, and the CPUs, memory and devices that each has, as in C(corral status --json). V(null) if there are none.
  returned: when O(state=present)
  type: list
  elements: dict
  sample:
    - name: lane
      state: granted
      reason:
      tenant:
      qos: Guaranteed
      hold: running
      slice: corral_exclusive_lane.slice
      cpus: 2-3
      memory_nodes: "0"
      devices: {}
      since: 1795255200
gc_report:
  description: The last passes of garbage collection, as lines of text. Empty before the first one.
  returned: when O(state=present)
  type: list
  elements: str
  sample: ["gc: since the node started 2 images and 0 containers removed, 310Mi freed, 0 failures"]
tenants:
  description: The tenants of the profile, and what their workloads use of their quotas. V(null) for a profile without tenants.
  returned: when O(state=present)
  type: list
  elements: dict
  contains:
    name:
      description: The tenant.
      type: str
      returned: always
      sample: acme
    slice:
      description: The slice that holds its workloads on the shared pool.
      type: str
      returned: always
      sample: corral-acme.slice
    workloads:
      description: Its workloads that have a grant.
      type: list
      elements: str
      returned: always
      sample: [web, db]
    quota:
      description: The resources of its quotas, with C(quota), C(resource), C(used) and C(hard). CPUs are in thousandths.
      type: list
      elements: dict
      returned: always
      sample: [{quota: compute, resource: requests.cpu, used: 3000, hard: 4000}]
    text:
      description: All of it on one line, as a person reads it.
      type: str
      returned: always
      sample: "tenant acme: compute requests.cpu 3 of 4"
origins:
  description: The origin of each key of the profile, V(default) for what no layer declares. The node keeps it.
  returned: when O(state=present)
  type: dict
  sample: {name: corral_profile, cpu.reserved.cpus: corral_profile_layer_90_host, cpu.whole_cores: default}
profile_hash:
  description: The name of the profile's content, as C(corral history) lists it.
  returned: when O(state=present)
  type: str
  sample: 0a1b2c3d4e5f
profile_hash_before:
  description:
    - The hash of the profile that was applied before this run. Where that one was unconfirmed, of the one that was confirmed last.
    - V(null) on a node that had no profile. Empty where it had one, and the files that say which are lost.
  returned: when O(state=present)
  type: str
  sample: 5d2f1b2c3d4e
explain:
  description:
    - Each key with its value and origin, the result on this node, and which key asks for each change, as a person
      reads it.
  returned: when O(state=present), at verbosity 2 or higher
  type: list
  elements: str
  sample: ["profile edge, each key with its origin:", "  cpu.reserved.cpus  0-3  corral_profile_layer_90_host"]
problems:
  description: When the profile is refused, every reason with its path, value and, of a layer, its origin.
  returned: failure
  type: list
  elements: dict
  sample:
    - path: cpu.reserved.cpus
      value: 9-15
      message: this node has CPUs 0-7; name CPUs among those
      origin: corral_profile_layer_90_host
undone:
  description: When a write was refused in the middle, what was taken back.
  returned: failure
  type: list
  elements: str
  sample: ["property system.slice"]
"""

from ansible_collections.corral.node.plugins.module_utils import _module


def main() -> None:
    """Module entry point."""
    spec = {
        "profile": {"type": "dict"},
        "layers": {
            "type": "list",
            "elements": "dict",
            "options": {
                "origin": {"type": "str", "required": True},
                "profile": {"type": "dict", "required": True},
            },
        },
        "adopt": {"type": "str"},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "confirm_timeout": {"type": "int", "default": 0},
        "force": {"type": "bool", "default": False},
        "with_agent": {"type": "bool", "default": False},
        "during_pause": {"type": "str", "choices": ["refuse", "apply"], "default": "refuse"},
        "lock_timeout": {"type": "int", "default": 120},
    }
    _module.run(spec, _module.profile_task, mutually_exclusive=[["profile", "layers"]])


if __name__ == "__main__":
    main()
