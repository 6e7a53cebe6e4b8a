# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.inventory.manager import order_patterns, split_host_pattern

DOCUMENTATION = r"""
name: rollout_hosts
short_description: Order the hosts of a rollout
version_added: 0.1.0
author:
  - Corral contributors (@corral-project)
description:
  - Returns the hosts of a pattern as another pattern, which has some of these hosts first. A play takes its hosts, and so its batches,
    in the order of its pattern.
  - The result has the hosts of O(_input) in every case, whatever O(_first) says.
positional: _names, _first
options:
  _input:
    description: A pattern of hosts, or a list of patterns, as the keyword C(hosts) of a play takes them.
    type: raw
    required: true
  _names:
    description: The names of the hosts that the pattern has in the inventory. Names of other hosts are never put first.
    type: list
    elements: str
    required: true
  _first:
    description: The names of the hosts that come first, in their order.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: A canary among the hosts that change
  hosts: "{{ 'edge' | corral.node.rollout_hosts(query('inventory_hostnames', 'edge'), ['edge7', 'edge2']) }}"
  serial: [1, "100%"]
"""

RETURN = r"""
_value:
  description: The pattern as the keyword C(hosts) of a play takes it.
  type: list
  elements: str
"""


def rollout_hosts(pattern: str | t.Sequence[str], names: t.Iterable[str], first: t.Iterable[str]) -> list[str]:
    """The hosts of the pattern, those of ``first`` before the others."""
    known = set(names)
    ahead = [name for name in first if name in known and is_plain(name)]
    # A pattern that only excludes hosts means all other hosts. Beside names it needs "all", which order_patterns() adds.
    parts = split_host_pattern([pattern] if isinstance(pattern, str) else list(pattern))
    return [*ahead, *order_patterns(parts)]


def is_plain(name: str) -> bool:
    """Whether Ansible reads this text as one pattern, and so as the name of one host. A comma makes it two patterns."""
    return bool(split_host_pattern(name) == [name])


class FilterModule:
    """The collection's filters."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters by name."""
        return {"rollout_hosts": rollout_hosts}
