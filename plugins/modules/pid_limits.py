#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: pid_limits
short_description: Limit processes and threads of a node and its slices
version_added: 0.1.0
description:
  - Sets C(kernel.pid_max), C(kernel.threads-max), systemd's C(DefaultTasksMax) and C(TasksMax) of the pools' slices, now
    and for the next boot.
  - The node's capacity is the smaller of O(pid_max) and O(threads_max), as the kubelet counts it. The reserve and the
    limits of the slices must fit into it together. Each limit must be above the number of tasks that run now.
  - Another file that sets one of them at the next boot is reported in RV(drift), with its name.
  - Options that are given are added to those that the node has declared, key by key. O(state=absent) restores the originals
    of all of them.
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
  - corral.node._part
options:
  pid_max:
    description:
      - C(kernel.pid_max), ids for processes and threads.
    type: int
  threads_max:
    description:
      - C(kernel.threads-max), threads on the whole node.
    type: int
  reserved:
    description:
      - What is kept for housekeeping. The slices of the shared pool and C(corral.slice) share what is left, as far as
        O(slices) names no limit for them.
    type: int
  default_tasks_max:
    description:
      - systemd's C(DefaultTasksMax), the limit of each unit that declares none.
    type: int
  slices:
    description:
      - C(TasksMax) by slice, for the slices of the CPU pools (see M(corral.node.cpuset)) and C(corral.slice). Without CPU pools
        these are C(system.slice), C(user.slice), C(machine.slice) and C(corral.slice).
    type: dict
seealso:
  - module: corral.node.cpuset
"""

EXAMPLES = r"""
- name: Let the node have many threads, containers at most half of them
  corral.node.pid_limits:
    pid_max: 4194304
    threads_max: 131072
    reserved: 4096
    slices:
      machine.slice: 65536

- name: Limit each unit that says nothing itself
  corral.node.pid_limits:
    default_tasks_max: 8192

- name: Bring back the limits that were there before
  corral.node.pid_limits:
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
    - manager: pids
      subject: kernel.pid_max
      property: value
      actual: "32768"
      wanted: "4194304"
      reason: the kernel's limit differs
      location: /proc/sys/kernel/pid_max
      verdict: drift
      when: now
      disruption: none
      text: "~ pids kernel.pid_max value: 32768 -> 4194304 (the kernel's limit differs) [/proc/sys/kernel/pid_max]"
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
  sample: [{path: pid_max, value: 320, message: "412 tasks run now: kernel.pid_max must be larger; name a number with room to grow"}]
undone:
  description: When a write was refused in the middle, what was taken back.
  returned: failure
  type: list
  elements: str
  sample: ["value /proc/sys/kernel/pid_max"]
"""

from ansible_collections.corral.node.plugins.module_utils import _parts


def main() -> None:
    """Module entry point."""
    spec = {
        "pid_max": {"type": "int"},
        "threads_max": {"type": "int"},
        "reserved": {"type": "int"},
        "default_tasks_max": {"type": "int"},
        "slices": {"type": "dict"},
    }
    _parts.run("pid_limits", spec, required_if=[("state", "present", tuple(spec), True)])


if __name__ == "__main__":
    main()
