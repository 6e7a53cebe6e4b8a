#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: pause
short_description: Pause Corral on a node for maintenance
version_added: 0.1.0
description:
  - While a node is paused the agent checks and reports as in mode C(audit), and changes nothing. Drift is marked as
    under maintenance, and the metric C(corral_paused) is 1.
  - The pause ends by itself, also when the clock is set in the meantime. Then the agent corrects drift.
  - A boot restores the last applied profile on a paused node as well.
  - It is what C(corral pause) and C(corral resume) do on the node.
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
    support: full
  idempotent:
    support: partial
    details:
      - A pause starts again with each run. With O(state=absent) a second run indicates no change.
options:
  state:
    description:
      - With V(present) the node is paused from now on, and an earlier pause is replaced.
      - With V(absent) the pause ends.
    type: str
    choices: [present, absent]
    default: present
  duration:
    description:
      - The length of the pause, for example V(90s), V(15m), V(1h) or V(2d). At most V(30d). Required with O(state=present).
    type: str
  reason:
    description:
      - The reason for the pause. One line of at most 200 characters, shown wherever the pause is reported.
    type: str
    default: ''
  lock_timeout:
    description:
      - How many seconds to wait for another run of Corral on this node.
    type: int
    default: 120
seealso:
  - module: corral.node.profile
  - module: corral.node.agent
"""

EXAMPLES = r"""
- name: Leave the node alone for an hour
  corral.node.pause:
    duration: 1h
    reason: exchanging a disk

- name: Keep it as declared again
  corral.node.pause:
    state: absent
"""

RETURN = r"""
schema:
  description: The version of what is returned. It grows when a field is removed or changes its meaning.
  returned: success
  type: int
  sample: 1
paused:
  description: The pause that is in force after the run, or in check mode would be. V(null) when the node is not paused.
  returned: success
  type: dict
  contains:
    since:
      description: When it began, in seconds since 1970.
      type: int
      returned: always
      sample: 1795255200
    until:
      description: When it ends, in seconds since 1970.
      type: int
      returned: always
      sample: 1795258800
    by:
      description: The user who asked for it.
      type: str
      returned: always
      sample: alice
    uid:
      description: The user's number.
      type: int
      returned: always
      sample: 1000
    reason:
      description: The reason.
      type: str
      returned: always
      sample: exchanging a disk
    text:
      description: All of it on one line, as a person reads it.
      type: str
      returned: always
      sample: "paused until 2026-11-21 11:00:00 UTC by alice: exchanging a disk"
report:
  description: The same as a person reads it.
  returned: success
  type: list
  elements: str
  sample: ["paused until 2026-11-21 11:00:00 UTC by alice: exchanging a disk"]
problems:
  description: When the run is refused, every reason.
  returned: failure
  type: list
  elements: dict
  sample: [{path: duration, value: 1 hour, message: "write a number and s, m, h or d, such as 90s, 15m, 1h or 2d"}]
"""

from ansible_collections.corral.node.plugins.module_utils import _module


def main() -> None:
    """Module entry point."""
    spec = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "duration": {"type": "str"},
        "reason": {"type": "str", "default": ""},
        "lock_timeout": {"type": "int", "default": 120},
    }
    _module.run(spec, _module.pause_task, required_if=[("state", "present", ["duration"])])


if __name__ == "__main__":
    main()
