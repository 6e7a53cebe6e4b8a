# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This doc fragment is private to the collection corral.node.
"""What the modules that manage one part of a node have in common."""

from __future__ import annotations


class ModuleDocFragment:
    """Use as corral.node._part, beside corral.node._attributes."""

    DOCUMENTATION = r"""
requirements:
  - Debian 11 or a distribution with systemd 247 or newer, with cgroup v2, or v1 and its cpuset controller
  - Python 3.9 or newer on the node
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - With V(present) this is declared on the node and made true.
      - With V(absent) it is no longer declared, and what was there before Corral is back. After the last part nothing of
        Corral is left but the agent, where that is installed.
    type: str
    choices: [present, absent]
    default: present
  during_pause:
    description:
      - What to do on a node that is paused for maintenance (C(corral pause), M(corral.node.pause)).
      - With V(refuse) nothing is changed and the module fails, unless there is nothing to change. Check mode works either
        way.
    type: str
    choices: [refuse, apply]
    default: refuse
  lock_timeout:
    description:
      - How many seconds to wait for another run of Corral on this node.
    type: int
    default: 120
notes:
  - What the modules M(corral.node.cpuset), M(corral.node.hugepages), M(corral.node.hugetlbfs_mount),
    M(corral.node.pid_limits) and M(corral.node.gc) declare is kept on the node as one profile of the name V(parts). Where
    M(corral.node.agent) is installed it keeps that profile like any other, and M(corral.node.profile) without a profile
    applies it.
  - A task plans and changes its own part, with what that asks of the others, such as the task limits of new slices. Drift
    of the others is left to them. The plan is validated against the whole node all the same.
  - A node that has a profile of M(corral.node.profile) refuses a part that differs from it. The other way round, a
    profile replaces all parts.
seealso:
  - module: corral.node.profile
  - module: corral.node.agent
"""
