# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import typing as t

from ansible.errors import AnsibleFilterError

DOCUMENTATION = r"""
name: batches
short_description: Read the sizes of a rollout's batches
version_added: 0.1.0
author:
  - Corral contributors (@corral-project)
description:
  - Reads the variable C(corral_serial), which may be a list, one number, one share in percent, or a text such as V(1,10%,100%) as the
    command line gives it.
options:
  _input:
    description: The sizes, each a number of hosts or a share in percent.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: One host, a tenth of them, then all
  hosts: all
  serial: "{{ corral_serial | default('1,10%,100%') | corral.node.batches }}"
"""

RETURN = r"""
_value:
  description: The sizes as the keyword C(serial) of a play takes them.
  type: list
  elements: str
"""

SIZE = re.compile(r"0*[1-9]\d{0,5}|0*(?:100|[1-9]\d?)%")


def batches(value: t.Any) -> list[str]:
    """The sizes of the batches as texts. Raises AnsibleFilterError for an invalid size."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    sizes = [str(part).strip() for part in parts]
    for part in sizes:
        if not SIZE.fullmatch(part):
            raise AnsibleFilterError(f"corral_serial: {part!r}: write numbers of hosts or shares, such as 1,10%,100%")
    if not sizes:
        raise AnsibleFilterError("corral_serial: is empty: write numbers of hosts or shares, such as 1,10%,100%")
    return sizes


class FilterModule:
    """The collection's filters."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters by name."""
        return {"batches": batches}
