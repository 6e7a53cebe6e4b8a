#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: pools_info
short_description: Compute the pools of CPUs that a profile gives a node
version_added: 0.1.0
description:
  - Compiles a node resource profile for a machine and returns its reserved, shared and isolated CPUs, without touching
    anything.
  - Works on the target itself, or on a recorded machine, so that a change can be tried before it is rolled out.
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
  - corral.node._attributes.info_module
options:
  profile:
    description:
      - The node resource profile. The collection's C(docs/profile.md) lists every key.
      - Without it the profile that the node has declared is used, and the pools are those in force. Beside a kubelet that reserves
        other CPUs than the profile, as before a rollout, they may have fewer.
    type: dict
  root:
    description:
      - A recorded machine instead of this one, on the target. Either a folder or a snapshot made by C(corral snapshot).
    type: path
seealso:
  - module: corral.node.profile
  - module: corral.node.topology_info
"""

EXAMPLES = r"""
- name: Try a profile on a node without changing it
  corral.node.pools_info:
    profile:
      name: edge
      cpu:
        reserved: {cores_per_numa: 1}
        isolated: {cores: 4, near: ens1f0}
  register: what_if

- name: Show the node's CPU map
  ansible.builtin.debug:
    var: what_if.cpu_map
"""

RETURN = r"""
pools:
  description: The pools as CPU lists, for the whole machine and for each NUMA node.
  returned: success
  type: dict
  sample:
    reserved: 0-1,4-5
    shared: 2-3
    isolated: 6-7
    per_numa: {"0": {"reserved": "0-1", "shared": "2-3", "isolated": ""}}
notes:
  description:
    - Other agents that manage the node's CPUs and limits, and the busiest services of the slices that would have fewer CPUs
      than now.
  returned: success
  type: list
  elements: str
  sample: ["system.slice goes from CPUs 0-7 to 0-1 (2 CPUs); its busy ones used 1.50 CPUs on average: db.service 1.50 over 3 h"]
report:
  description: The same as a table that a person reads.
  returned: success
  type: list
  elements: str
  sample: ["        reserved  shared  isolated", "all     0-1,4-5   2-3     6-7"]
cpu_map:
  description: A picture of the machine. A row for each NUMA node, a block for each core, a letter for each thread.
  returned: success
  type: list
  elements: str
  sample: ["node 0   RR SS   CPUs 0-3", "node 1   RR II   CPUs 4-7"]
"""

from ansible_collections.corral.node.plugins.module_utils import _module


def main() -> None:
    """Module entry point."""
    _module.run({"profile": {"type": "dict"}, "root": {"type": "path"}}, _module.pools_task)


if __name__ == "__main__":
    main()
