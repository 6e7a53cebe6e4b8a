#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: confirm
short_description: Keep a profile that waits for its confirmation
version_added: 0.1.0
description:
  - A profile that was applied with O(corral.node.profile#module:confirm_timeout) goes back by itself unless this module, or
    C(corral confirm) on the node, keeps it in time.
  - A playbook confirms over a new connection and after its own health checks. A change that cuts a node off is not confirmed.
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
requirements:
  - Debian 11 or a distribution with systemd 247 or newer
  - Python 3.9 or newer on the node
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  hash:
    description:
      - The profile to keep, by RV(corral.node.profile#module:profile_hash) or the beginning of it. With another one unconfirmed
        the module fails and changes nothing.
    type: str
    default: ''
  lock_timeout:
    description:
      - How many seconds to wait for another run of Corral on this node.
    type: int
    default: 120
seealso:
  - module: corral.node.profile
  - module: corral.node.rollback
"""

EXAMPLES = r"""
- name: Apply a profile that goes back after two minutes
  corral.node.profile:
    profile: "{{ profile }}"
    confirm_timeout: 120
  register: applied

- name: Make a new connection
  ansible.builtin.meta: reset_connection

- name: Keep it
  corral.node.confirm:
    hash: "{{ applied.profile_hash }}"
"""

RETURN = r"""
schema:
  description:
    - The version of what is returned, whose fields the collection's C(docs/json.md) lists. It grows when a field is
      removed or changes its meaning.
  returned: success
  type: int
  sample: 1
confirmed:
  description: The profile that was kept, in check mode the one that would be. V(null) where none was unconfirmed.
  returned: success
  type: dict
  sample: {name: edge, hash: 0a1b2c3d4e5f}
report:
  description: The same as a person reads it.
  returned: success
  type: list
  elements: str
  sample: ["kept: profile edge (0a1b2c3d4e5f)"]
"""

from ansible_collections.corral.node.plugins.module_utils import _confirm


def main() -> None:
    """Module entry point."""
    _confirm.run({"hash": {"type": "str", "default": ""}, "lock_timeout": {"type": "int", "default": 120}})


if __name__ == "__main__":
    main()
