#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hugepages
short_description: Keep a pool of hugepages
version_added: 0.1.0
description:
  - Makes one pool of hugepages at run time, on one NUMA node or on the whole machine, and reads back from the kernel how many
    pages it gave. Where memory is fragmented it is compacted once.
  - If the kernel fills a pool only in part, the module does not fail. RV(drift) has the number of pages that there are.
  - All pools that the node's tasks declare must fit together into the memory of their NUMA node.
  - Without M(corral.node.agent) pools are gone after a reboot. The agent restores them before any workload starts.
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
  - corral.node._part
options:
  size:
    description:
      - The size of a page, such as V(2Mi) or V(1Gi). The node's kernel must have pages of this size.
      - Size and O(node) identify the pool.
    type: str
    required: true
  count:
    description:
      - The number of pages. V(0) is an empty pool.
      - Required when O(state=present).
    type: int
  node:
    description:
      - The NUMA node of the pool. Without it the pool is that of the whole machine, and the kernel spreads the pages.
    type: int
seealso:
  - module: corral.node.hugetlbfs_mount
"""

EXAMPLES = r"""
- name: Keep 512 pages of 2 MiB on each of two NUMA nodes
  corral.node.hugepages:
    size: 2Mi
    count: 512
    node: "{{ item }}"
  loop: [0, 1]

- name: Bring them back at boot
  corral.node.agent:

- name: Give the pool of one NUMA node back
  corral.node.hugepages:
    size: 2Mi
    node: 1
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
    - manager: memory
      subject: hugepages-2Mi node 0
      property: nr_hugepages
      actual: "0"
      wanted: "512"
      reason: the pool has another number of pages
      location: /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
      verdict: drift
      when: now
      disruption: none
      text: >-
        ~ memory hugepages-2Mi node 0 nr_hugepages: 0 -> 512 (the pool has another number of pages)
        [/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages]
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
problems:
  description: When the task is refused, every reason with the option and its value.
  returned: failure
  type: list
  elements: dict
  sample: [{path: count, value: 5000, message: "that is 10000Mi, NUMA node 0 has 993Mi: declare at most 496 pages of 2Mi"}]
undone:
  description: When a write was refused in the middle, what was taken back.
  returned: failure
  type: list
  elements: str
  sample: ["pool /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"]
"""

from ansible_collections.corral.node.plugins.module_utils import _parts


def main() -> None:
    """Module entry point."""
    spec = {
        "size": {"type": "str", "required": True},
        "count": {"type": "int"},
        "node": {"type": "int"},
    }
    _parts.run("hugepages", spec, required_if=[("state", "present", ("count",))])


if __name__ == "__main__":
    main()
