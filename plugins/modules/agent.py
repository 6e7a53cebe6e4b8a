#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: agent
short_description: Install the agent that keeps a node as its profile declares
version_added: 0.1.0
description:
  - Installs on the node the core that this module was shipped with, so node and collection always have the same version.
  - C(corral-reconcile.timer) checks the node every O(interval) seconds, and C(corral-reconcile.path) checks it when the
    profile changes. C(corral-boot.service) restores all settings at boot before workloads start. No daemon stays in memory.
  - The command C(corral) on the node has the subcommands C(status), C(drift), C(plan), C(topology), C(pools), C(profile),
    C(reconcile), C(gc), C(snapshot), C(rollback), C(pause) and C(resume).
  - Metrics for Prometheus go to a file for node_exporter. The collection's C(docs/metrics.md) lists every one.
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
    support: full
options:
  interval:
    description:
      - Seconds between two checks of the node. The default is the installed agent's value, else 10, as in the kubelet.
    type: int
  python:
    description:
      - The Python that runs the agent. The default is the installed agent's Python, else the Python that runs this module.
        Only root may be able to change it, the folders above it and what links lead to.
    type: path
  metrics_dir:
    description:
      - The folder for the file C(corral.prom) that node_exporter's textfile collector reads. It is written when something
        changed and once a minute. Beside it C(corral-gc.prom) is written at each pass of garbage collection.
      - The default is the installed agent's folder, else C(/var/lib/prometheus/node-exporter) (Debian's) if that folder
        exists. Empty for no metrics.
    type: path
  during_pause:
    description:
      - What O(state=absent) does on a node that is paused for maintenance. With V(refuse) nothing is changed and the
        module fails.
    type: str
    choices: [refuse, apply]
    default: refuse
  state:
    description:
      - With V(present) the agent is installed and its timer runs.
      - With V(absent) the agent and its units are removed, and what was there before is restored. The profile's state stays.
    type: str
    choices: [present, absent]
    default: present
  lock_timeout:
    description:
      - How many seconds to wait for another run of Corral on this node.
    type: int
    default: 120
seealso:
  - module: corral.node.profile
  - module: corral.node.pause
"""

EXAMPLES = r"""
- name: Keep the node as its profile declares
  corral.node.agent:

- name: Look once a minute
  corral.node.agent:
    interval: 60

- name: Remove the agent
  corral.node.agent:
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
    - manager: agent
      subject: corral-reconcile.timer
      property: state
      actual: disabled, inactive
      wanted: enabled, active
      reason: the agent does not keep the node without it
      location: /etc/systemd/system/timers.target.wants/corral-reconcile.timer
      verdict: drift
      when: now
      disruption: none
      text: >-
        ~ agent corral-reconcile.timer state: disabled, inactive -> enabled, active (the agent does not keep the node without it)
        [/etc/systemd/system/timers.target.wants/corral-reconcile.timer]
drift:
  description: What still differs after the run. In check mode all of it.
  returned: success
  type: list
  elements: dict
  sample: []
in_sync:
  description: Whether nothing differs and everything could be read.
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
  description: When the run is refused, every reason.
  returned: failure
  type: list
  elements: dict
  sample: [{path: "", value: null, message: "changing a node needs root: run with become (Ansible), sudo or as root"}]
undone:
  description: When a write was refused in the middle, what was taken back.
  returned: failure
  type: list
  elements: str
  sample: ["file /etc/systemd/system/corral-reconcile.timer"]
"""

from ansible_collections.corral.node.plugins.module_utils import _module


def main() -> None:
    """Module entry point."""
    spec = {
        "interval": {"type": "int"},
        "python": {"type": "path"},
        "metrics_dir": {"type": "path"},
        "during_pause": {"type": "str", "choices": ["refuse", "apply"], "default": "refuse"},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "lock_timeout": {"type": "int", "default": 120},
    }
    _module.run(spec, _module.agent_task)


if __name__ == "__main__":
    main()
