#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rollback
short_description: Go back to a profile that was applied before
version_added: 0.1.0
description:
  - Applies a profile that was applied on this node before, and declares it. It is what C(corral rollback) does on the node.
  - The node keeps the ten profiles before the one in force. C(corral history) lists them with number, hash and time.
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
    support: partial
    details:
      - With a hash a second run indicates no change. With a number each run goes further back.
options:
  to:
    description:
      - How many profiles to go back, from V(1) to V(10). The profiles that are passed are no longer kept, so that
        the same number goes further back the next time.
      - Or the hash of a profile that is kept, or at least its first four digits. Quote it. No profile is removed from the
        history other than the oldest one.
    type: str
    default: '1'
  from:
    description:
      - The hash of the only profile to go back from, or the beginning of it. Where another one is in force, for example
        because the node went back by itself, that one stays.
      - The profiles that are passed are no longer kept, also where O(to) is a hash.
    type: str
    default: ''
  confirm_timeout:
    description:
      - How many seconds a change waits for a confirmation (M(corral.node.confirm)) before the node goes back by itself to the
        profile before, or without one to what was there before Corral. With V(0) it waits for none.
      - It needs the agent on the node, whose timer goes back also when nothing can reach the node any more. A reboot, a killed
        run and a clock that is set do not end the wait.
      - A change with V(0) confirms what was unconfirmed before it.
    type: int
    default: 0
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
  - module: corral.node.profile
  - module: corral.node.pause
"""

EXAMPLES = r"""
- name: Go back to the profile before this one
  corral.node.rollback:

- name: Go back to the profile with this hash
  corral.node.rollback:
    to: "0a1b2c3d4e5f"
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
  returned: success
  type: str
  sample: edge
mode:
  description: The profile's mode, V(enforce) or V(audit).
  returned: success
  type: str
  sample: enforce
notes:
  description:
    - Notes for a person. In check mode also other agents that manage the node's CPUs and limits, and before a first
      rollout the busiest services of the slices that would have fewer CPUs.
  returned: success
  type: list
  elements: str
  sample: ["irqbalance runs and may put interrupts on the isolated CPUs 6-7: ..."]
pools:
  description: The pools of CPUs as lists, for the whole machine and for each NUMA node.
  returned: success
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
  returned: success
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
  returned: success
  type: list
  elements: str
  sample: ["node 0   RR SS   CPUs 0-3", "node 1   RR II   CPUs 4-7"]
cpu_map_now:
  description:
    - The same with the pools in which the kernel has the CPUs now. A letter is small where the profile has the CPU in another pool,
      C(?) is a CPU in no pool.
    - V(null) where all is as declared, and with cgroup v1.
  returned: success
  type: list
  elements: str
  sample: ["node 0   RR SS   CPUs 0-3", "node 1   ss II   CPUs 4-7"]
numa_nodes:
  description: The NUMA nodes of the machine.
  returned: success
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
  returned: success
  type: dict
  sample:
    name: edge
    mode: enforce
    cpu: {reserved: "0-1,4-5", shared: 2-3, isolated: 6-7, slices: {system.slice: "0-1,4-5"}}
    memory: {hugepages: {2Mi: {"node 0": 32}}}
workloads:
  description: The workloads, and the CPUs, memory and devices that each has, as in C(corral status --json). V(null) if there are none.
  returned: success
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
  returned: success
  type: list
  elements: str
  sample: ["gc: since the node started 2 images and 0 containers removed, 310Mi freed, 0 failures"]
origins:
  description: The origin of each key of the profile, V(default) for what no layer declares. The node keeps it.
  returned: success
  type: dict
  sample: {name: corral_profile, cpu.reserved.cpus: corral_profile_layer_90_host, cpu.whole_cores: default}
profile_hash:
  description: The name of the profile's content, as C(corral history) lists it.
  returned: success
  type: str
  sample: 0a1b2c3d4e5f
profile_hash_before:
  description:
    - The hash of the profile that was applied before this run. Where that one was unconfirmed, of the one that was confirmed last.
    - V(null) on a node that had no profile. Empty where it had one, and the files that say which are lost.
  returned: success
  type: str
  sample: 5d2f1b2c3d4e
explain:
  description:
    - Each key with its value and origin, the result on this node, and which key asks for each change, as a person
      reads it.
  returned: at verbosity 2 or higher
  type: list
  elements: str
  sample: ["profile edge, each key with its origin:", "  cpu.reserved.cpus  0-3  corral_profile_layer_90_host"]
problems:
  description: When the task is refused, every reason with its path, value and, of a layer, its origin.
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

from ansible_collections.corral.node.plugins.module_utils import _module, _rollback


def main() -> None:
    """Module entry point."""
    spec = {
        "to": {"type": "str", "default": "1"},
        "from": {"type": "str", "default": ""},
        "confirm_timeout": {"type": "int", "default": 0},
        "during_pause": {"type": "str", "choices": ["refuse", "apply"], "default": "refuse"},
        "lock_timeout": {"type": "int", "default": 120},
    }
    _module.run(spec, _rollback.rollback_task)


if __name__ == "__main__":
    main()
