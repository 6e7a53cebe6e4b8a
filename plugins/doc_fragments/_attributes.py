# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This doc fragment is private to the collection corral.node.
"""The attributes that all modules have in common; a module itself only fills in ``support``."""

from __future__ import annotations


class ModuleDocFragment:
    """Use as corral.node._attributes and corral.node._attributes.action_group (and .info_module)."""

    # A module that changes the node: it says `support` of each.
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)), when in diff mode.
  idempotent:
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation indicates no change.
      - This assumes that the system controlled or queried by the module has not changed in a relevant way.
  platform:
    description: Target operating systems and families against which the module can be used.
    platforms: Linux
    support: full
"""

    # A member of the one action group of the collection.
    ACTION_GROUP = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/corral.node.node) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - corral.node.node
"""

    # A module that only reads.
    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This action does not modify state.
  diff_mode:
    support: N/A
    details:
      - This action does not modify state.
  idempotent:
    support: full
    details:
      - This action does not modify state.
"""
