# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: inventory_values
short_description: Read variables of a host without facts of the host
version_added: 0.1.0
author:
  - Corral contributors (@corral-project)
description:
  - Returns variables as the inventory, the playbooks and C(-e) have them, and so the variables that they are made of.
  - Ansible makes each fact that a node returns a variable, stronger than the inventory's. A node must not decide in this way what its
    controller reads, writes or runs.
  - A variable that is made of a fact is an error, also of a fact from the cache of an earlier run. A node that returned a fact with a
    name of Corral's or of the inventory's is an error as well. A variable that a task sets (C(set_fact), C(register)) is the playbook's.
options:
  _terms:
    description: Names of variables.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Ask a URL that the host cannot choose
  ansible.builtin.uri:
    url: "{{ lookup('corral.node.inventory_values', 'corral_health_url').corral_health_url }}"
  delegate_to: localhost
"""

RETURN = r"""
_list:
  description: One mapping of each name to its value, V(null) where there is none.
  type: list
  elements: dict
"""

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.corral.node.plugins.plugin_utils import without_facts
from ansible_collections.corral.node.plugins.plugin_utils.host_results import refuse_facts


class LookupModule(LookupBase):
    def run(
        self, terms: list[t.Any], variables: t.Optional[dict[str, t.Any]] = None, **kwargs: t.Any
    ) -> list[dict[str, t.Any]]:
        self.set_options(var_options=variables, direct=kwargs)
        known = variables or {}
        if not terms:
            raise AnsibleLookupError(without_facts.FACT)
        try:
            refuse_facts(known)
        except ValueError as error:
            raise AnsibleLookupError(str(error)) from error
        return [{name: without_facts.value(self._loader, known, name) for name in terms}]
