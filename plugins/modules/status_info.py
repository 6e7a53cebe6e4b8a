#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: status_info
short_description: Return what the agent's last tick found on a node
version_added: 0.1.0
description:
  - Returns what C(corral status --json) prints on the node, and the profile that the node has declared.
  - It reads what the agent published and does not check the node again. RV(status.time) is when the agent checked it.
    M(corral.node.profile) in check mode checks it now.
  - A report that is older than three intervals of the agent is stale. RV(status.in_sync) is V(false) then, and RV(status.stale)
    says why the agent has not looked since. A tick that takes long is a look, as long as it is within its own time limit.
  - When facts are gathered, C(ansible_local.corral) has the fields of RV(status) except C(gc) and C(program), judged at that moment; facts
    that are cached grow old. The agent's link C(/etc/ansible/facts.d/corral.fact) leads to its program. Before the first tick after a
    boot there is no status, and Ansible sets C(ansible_local.corral) to the text of the error.
  - If a node has no Corral, or no tick has run since its boot, the module does not fail, and RV(status) is V(null).
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
  - corral.node._attributes.info_module
seealso:
  - module: corral.node.profile
  - module: corral.node.pools_info
"""

EXAMPLES = r"""
- name: Read what the agent saw
  corral.node.status_info:
  register: node

- name: Stop where something differs, or where the agent has not checked the node for three intervals
  ansible.builtin.assert:
    that: node.status is not none and node.status.in_sync
    fail_msg: "{{ node.report | join('\n') }}"

- name: Show what differs and since when
  ansible.builtin.debug:
    msg: "{{ item.subject }} {{ item.property }} since {{ '%Y-%m-%dT%H:%M:%SZ' | strftime(item.since, utc=true) }}"
  loop: "{{ node.status['items'] }}"
"""

RETURN = r"""
schema:
  description: The version of what is returned. It grows when a field is removed or changes its meaning.
  returned: success
  type: int
  sample: 1
profile:
  description: The profile that the node has declared. V(null) where it has none, or one that cannot be read.
  returned: success
  type: dict
  sample:
    name: edge
    mode: enforce
    cpu: {reserved: {cores_per_numa: 1}}
status:
  description:
    - What the agent published, V(null) where it has published nothing since the boot.
    - What differs or is unknown, and since when, is its C(items). Write C(status['items']) in a template, because
      C(status.items) is a method of mappings there.
    - C(docs/json.md) of the collection has the rest of the fields, in its section NodeStatus.
  returned: success
  type: dict
  contains:
    name:
      description: The profile's name. V(null) when it could not be read.
      type: str
      returned: always
      sample: edge
    mode:
      description: V(enforce) or V(audit). V(null) when the profile could not be read.
      type: str
      returned: always
      sample: enforce
    time:
      description: When the agent checked the node, in seconds since 1970.
      type: int
      returned: always
      sample: 1795255200
    in_sync:
      description: Whether nothing differs, everything could be read, and RV(status.stale) is V(null).
      type: bool
      returned: always
      sample: true
    stale:
      description: Why the last look is too old to speak of the node now, V(null) where it is not.
      type: str
      returned: always
      sample: null
    error:
      description: Why the profile could not be applied or the node could not be read, V(null) where both could.
      type: str
      returned: always
      sample: null
    paused:
      description: The pause that is in force, V(null) without one.
      type: dict
      returned: always
      sample: null
    unconfirmed:
      description: The profile that waits to be confirmed, V(null) without one.
      type: dict
      returned: always
      sample: null
    pools:
      description: The pools as CPU lists, V(null) when the profile could not be read.
      type: dict
      returned: always
      sample: {reserved: "0-1", shared: "2-3", isolated: "", exclusive: ""}
    workloads:
      description: Workloads with what they were granted, V(null) on a node without workloads.
      type: list
      elements: dict
      returned: always
      sample: null
    gc:
      description: The last passes of garbage collection, V(null) where there was none.
      type: dict
      returned: always
      sample: null
    program:
      description:
        - Whether the agent's program is the one that was installed, file by file, looked at now. Its C(as_installed) is V(null) where
          nothing says what was installed. V(null) where no program is installed.
      type: dict
      returned: always
      sample: {release: 0f3a5c7e9b21, as_installed: true, differing: []}
report:
  description: The same as C(corral status) prints it, with a picture of the CPUs.
  returned: success
  type: list
  elements: str
  sample: ["profile edge   mode enforce   checked 4 s ago   in sync: nothing differs"]
"""

from ansible_collections.corral.node.plugins.module_utils import _status


def main() -> None:
    """Module entry point."""
    _status.run()


if __name__ == "__main__":
    main()
