#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gc
short_description: Collect images and dead containers of a node
version_added: 0.1.0
description:
  - Removes Podman's images and dead containers as the kubelet does on a Kubernetes node, by the thresholds, ages and counts
    that are declared here. The timer C(corral-gc.timer) starts the passes, and needs M(corral.node.agent) on the node. The
    module warns about a node without the agent, because nothing is collected there.
  - Running containers and pods are never removed, no removal is forced, and whatever the keep-lists name stays.
  - With O(collect=true) a pass runs at once, after the options are applied. In check mode that is a dry run, whose
    RV(collected) lists what would be removed and how much space that would free.
  - Options that are given are added to those that the node has declared, key by key; a list replaces the one before.
    O(state=absent) withdraws all of them. Images and containers that were removed are not restored.
  - A node with a kubelet is refused, because the kubelet collects garbage itself. A timer or a cron job that prunes Podman's storage is
    reported in RV(drift), with its name.
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
  - corral.node._part
options:
  images:
    description:
      - When images are removed. Once the use of their file system reaches O(images.high), unused images are removed, least
        recently used first, until it is down to O(images.low).
      - V({}) takes the defaults. Without this option no image is removed.
    type: dict
    suboptions:
      high:
        description:
          - Images are removed from this use of the file system on, in percent. V(100) without O(images.max_age) turns that off.
          - V(85) when nothing was declared before.
        type: int
      low:
        description:
          - Images are removed until the use is down to this percentage, which is below O(images.high).
          - V(80) when nothing was declared before.
        type: int
      min_age:
        description:
          - An image that was first seen more recently than this is never removed. Times are whole numbers with C(s), C(m), C(h) or C(d),
            such as V(90s) or V(1h30m).
          - V(2m) when nothing was declared before.
        type: str
      max_age:
        description:
          - An image that was not used for longer than this is removed however full the disk is; V(0s) means no limit. For an
            image that was never used, the time begins when it was first seen.
          - V(0s) when nothing was declared before.
        type: str
      interval:
        description:
          - The time between two passes over images.
          - V(5m) when nothing was declared before.
        type: str
      keep:
        description:
          - Images that are never removed. A name (with or without a tag), a name with C(*) and C(?), a name with a digest, or a
            digest.
        type: list
        elements: str
  containers:
    description:
      - When dead containers and pods are removed, the oldest first.
      - V({}) takes the defaults. Without this option none is removed.
    type: dict
    suboptions:
      min_age:
        description:
          - A container that died more recently than this is never removed.
          - V(0s) when nothing was declared before.
        type: str
      max_per_workload:
        description:
          - The number of dead containers to keep of each workload; V(-1) means no limit. With O(containers.scope=all) a
            container of no workload counts with those of its systemd unit, else of its image.
          - V(1) when nothing was declared before.
        type: int
      max_total:
        description:
          - The number of dead containers to keep in all of each user; V(-1) means no limit.
          - V(-1) when nothing was declared before.
        type: int
      scope:
        description:
          - With V(declared) the containers of the profile's workloads may be removed, with V(all) every dead container.
          - Workloads are declared by a whole profile (M(corral.node.profile)) only. Without one V(declared) removes nothing,
            which the module warns about.
          - V(declared) when nothing was declared before.
        type: str
        choices: [declared, all]
      interval:
        description:
          - The time between two passes over containers.
          - V(1m) when nothing was declared before.
        type: str
      volumes:
        description:
          - Whether the anonymous volumes of a container are removed with it. Named volumes never are.
          - V(false) when nothing was declared before.
        type: bool
      keep:
        description:
          - Containers and pods that are never removed, by name, C(*) and C(?) allowed.
        type: list
        elements: str
      keep_labels:
        description:
          - Containers and pods that are never removed, by label, C(KEY) or C(KEY=VALUE).
        type: list
        elements: str
  users:
    description:
      - Users whose rootless storage is collected as well. Root's storage always is.
    type: list
    elements: str
  collect:
    description:
      - Whether to run a pass at once, over images and containers as far as they are declared, even if no pass is due.
      - Without other options the pass follows what the node has declared already, by parts or by a profile of any name.
      - With V(true) the module fails when something could not be read; RV(collected) still lists what was done. In mode
        V(audit) of a profile the pass removes nothing. On a paused node O(during_pause) applies.
    type: bool
    default: false
seealso:
  - module: corral.node.pause
"""

EXAMPLES = r"""
- name: Keep the disk of images below 85 percent, and few dead containers
  corral.node.gc:
    images: {}
    containers:
      scope: all
      max_total: 50

- name: Keep the site's own images, and remove what was not used for a month
  corral.node.gc:
    images:
      high: 80
      low: 70
      max_age: 30d
      keep: ["quay.example/base:*", "localhost/tools"]
    users: [build]

- name: Make room now, by what the node has declared
  corral.node.gc:
    collect: true

- name: See what a pass would remove, and what that would free
  corral.node.gc:
    collect: true
  check_mode: true
  register: dry_run

- name: Collect nothing any more
  corral.node.gc:
    state: absent
"""

RETURN = r"""
changed:
  description: Whether the declaration changed, or a pass removed something.
  returned: always
  type: bool
  sample: true
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
    - manager: gc
      subject: corral-gc.timer
      property: state
      actual: disabled, inactive
      wanted: enabled, active
      reason: nothing is collected without it
      location: /etc/systemd/system/timers.target.wants/corral-gc.timer
      verdict: drift
      when: now
      disruption: none
      text: >-
        ~ gc corral-gc.timer state: disabled, inactive -> enabled, active (nothing is collected without it)
        [/etc/systemd/system/timers.target.wants/corral-gc.timer]
drift:
  description: What of this part still differs after the run, what passes could not do among it. In check mode all of it.
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
  description: The changes as a person reads them, then the pass.
  returned: success
  type: list
  elements: str
  sample:
    - "in sync: nothing differs"
    - "/var/lib/containers/storage: 79 % of 20Gi used; images go from 85 % down to 80 %"
    - "- image quay.example/batch:41 removed: 1.2Gi (the disk is 86 % full)"
    - "1 removed, about 1.2Gi"
collected:
  description: The result of the pass. In check mode nothing was removed, and the result says what would be.
  returned: when O(collect) is true
  type: dict
  sample:
    time: 1700000000
    dry: null
    error: null
    images:
      file_systems:
        - path: /var/lib/containers/storage
          users: [root]
          capacity: 21474836480
          available_before: 3006477107
          available: 4509715660
          used_percent: 79
          high: 85
          low: 80
          asked: 1288490189
          short: 0
          why: ""
          images: 14
          removed:
            - user: root
              id: 2f0d4e1f8a55d3a1c1c3f0f0d9f8ed1d0c5b7d2e4d5b3b6a9d3e2e1f0c9b8a70
              names: ["quay.example/batch:41"]
              bytes: 1503238553
              reason: the disk is 86 % full
          refused: []
      freed: 1503238553
      errors: []
      unfinished: false
    containers: null
  contains:
    time:
      description: When the pass was made, in seconds since 1970.
      type: int
    dry:
      description: Why the pass removed nothing (check mode, mode V(audit), a pause), null where it could.
      type: str
    error:
      description: Why the pass checked nothing at all, null when it did.
      type: str
    images:
      description: The pass over images, null when O(images) is not declared.
      type: dict
      contains:
        file_systems:
          description:
            - Each file system that holds images, with its use in percent and bytes before and after, what was asked of the
              pass (RV(collected.images.file_systems[].asked)), by how much it fell short and why, how many images it held,
              those that went and what Podman refused to remove.
          type: list
          elements: dict
          contains:
            asked:
              description: The bytes that lead down to O(images.low), 0 below O(images.high).
              type: int
            removed:
              description: The images that went. The bytes are measured; in check mode they are what layers' sizes promise.
              type: list
              elements: dict
        freed:
          description: The bytes that this gave back.
          type: int
        errors:
          description: What could not be read.
          type: list
          elements: str
        unfinished:
          description: Whether the pass reached its time limit before it was done.
          type: bool
    containers:
      description: The pass over containers and pods, null when O(containers) is not declared.
      type: dict
      contains:
        dead:
          description: How many dead ones there were that might go.
          type: int
        removed:
          description: Those that went.
          type: list
          elements: dict
        refused:
          description: What Podman said of those that it would not remove.
          type: list
          elements: str
        errors:
          description: What could not be read.
          type: list
          elements: str
        unfinished:
          description: Whether the pass reached its time limit before it was done.
          type: bool
problems:
  description: When the task is refused, every reason with the option and its value.
  returned: failure
  type: list
  elements: dict
  sample: [{path: images.low, value: 90, message: "is not below images.high (85): write at most 84, or a larger images.high"}]
undone:
  description: When a write was refused in the middle, what was taken back.
  returned: failure
  type: list
  elements: str
  sample: ["file /etc/systemd/system/corral-gc.timer"]
"""

from ansible_collections.corral.node.plugins.module_utils import _gc


def main() -> None:
    """Module entry point."""
    texts = {"type": "list", "elements": "str"}
    images = {
        "high": {"type": "int"},
        "low": {"type": "int"},
        "min_age": {"type": "str"},
        "max_age": {"type": "str"},
        "interval": {"type": "str"},
        "keep": texts,
    }
    containers = {
        "min_age": {"type": "str"},
        "max_per_workload": {"type": "int"},
        "max_total": {"type": "int"},
        "scope": {"type": "str", "choices": ["declared", "all"]},
        "interval": {"type": "str"},
        "volumes": {"type": "bool"},
        "keep": texts,
        "keep_labels": texts,
    }
    _gc.run(
        {
            "images": {"type": "dict", "options": images},
            "containers": {"type": "dict", "options": containers},
            "users": texts,
        }
    )


if __name__ == "__main__":
    main()
