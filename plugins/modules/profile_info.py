#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: profile_info
short_description: Describe a node as it is with a node resource profile
version_added: 0.1.0
description:
  - Writes the profile that declares what a node has now, so that applying it changes nothing. Pools of hugepages,
    hugetlbfs mounts, PID limits that were set, and the CPUs of slices where they are confined already.
  - The profile is checked against the node. What Corral would still change for it (a value that nothing keeps over a
    reboot, the slices of the CPU pools) is left out; RV(notes) have it with the reason.
  - On a node that Corral keeps in sync it describes everything that is kept.
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
  - corral.node._attributes.info_module
options:
  name:
    description:
      - The name of the profile. The default is the first part of the host's name.
    type: str
  root:
    description:
      - A recorded machine instead of this one, on the target. Either a folder or a snapshot made by C(corral snapshot).
    type: path
seealso:
  - module: corral.node.profile
  - module: corral.node.pools_info
"""

EXAMPLES = r"""
- name: Describe the node as it is
  corral.node.profile_info:
  register: present

- name: Keep the description beside the inventory
  ansible.builtin.copy:
    content: "{{ present.content }}"
    dest: "profiles/{{ inventory_hostname }}.yml"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
profile:
  description: The profile. Given to M(corral.node.profile) it changes nothing but the declaration itself.
  returned: success
  type: dict
  sample:
    name: n1
    mode: audit
    memory: {hugepages: [{size: 2Mi, count: 32, node: 0}]}
content:
  description: The same as YAML, with what was left out as comments that say why.
  returned: success
  type: str
  sample: "name: n1\nmode: audit\n"
notes:
  description: What was left out and why, and what a profile does not declare.
  returned: success
  type: list
  elements: str
  sample: ["Left out: pids.pid_max. Uncomment to adopt; Corral would then change: ..."]
"""

from ansible_collections.corral.node.plugins.module_utils import _module


def main() -> None:
    """Module entry point."""
    _module.run({"name": {"type": "str"}, "root": {"type": "path"}}, _module.describe_task)


if __name__ == "__main__":
    main()
