#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: topology_info
short_description: Discover a node's topology, memory and devices
version_added: 0.1.0
description:
  - Reads sockets, dies, clusters, NUMA nodes, caches, cores and threads, memory and hugepages per NUMA node, distances,
    PCI devices and network interfaces from C(/sys) and C(/proc).
  - Ids are the kernel's. They may be sparse or unknown, nodes may have no CPU or no memory. Values that do not make
    sense are reported as unknown or in a note. They never make the module fail.
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
  - corral.node._attributes.info_module
options:
  root:
    description:
      - A recorded machine instead of this one, on the target. Either a folder or a snapshot made by C(corral snapshot).
    type: path
seealso:
  - module: corral.node.pools_info
"""

EXAMPLES = r"""
- name: Discover the node
  corral.node.topology_info:
  register: node

- name: Show it
  ansible.builtin.debug:
    var: node.report

- name: Look at a recorded machine on the controller
  corral.node.topology_info:
    root: files/edge-17.tar.gz
  delegate_to: localhost
"""

RETURN = r"""
topology:
  description:
    - The machine. All CPU numbers are Linux logical CPU ids, groups hold online CPUs only.
    - V(null) means that the kernel does not report the value.
  returned: success
  type: dict
  sample:
    online: [0, 1, 2, 3]
    cores: [[0, 1], [2, 3]]
    numa: {"0": {"cpus": [0, 1, 2, 3], "memory_kib": 2015164, "hugepages": {"2048": 0}}}
report:
  description: The same as a person reads it.
  returned: success
  type: list
  elements: str
  sample: ["CPUs      0-3 online"]
"""

from ansible_collections.corral.node.plugins.module_utils import _module


def main() -> None:
    """Module entry point."""
    _module.run({"root": {"type": "path"}}, _module.topology_task)


if __name__ == "__main__":
    main()
