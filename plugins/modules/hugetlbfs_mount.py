#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hugetlbfs_mount
short_description: Keep a hugetlbfs file system mounted
version_added: 0.1.0
description:
  - Mounts a hugetlbfs by a systemd mount unit, and compares the options with those that the kernel has in force.
  - The kernel ignores new options on a live mount, so the module mounts it again. A mount that is in use stays, and RV(drift)
    names the processes that use it.
  - A mount never hides other files. A path where another file system is mounted, or whose directory holds files, is refused.
  - M(corral.node.agent) mounts it at boot, after the pools that it needs and before any workload starts.
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
  - corral.node._part
options:
  path:
    description:
      - Where it is mounted. The path identifies the mount. The directory is made when it is missing.
    type: path
    required: true
  pagesize:
    description:
      - The size of its pages, such as V(2Mi) or V(1Gi).
      - Required when O(state=present).
    type: str
  size:
    description:
      - The most that it may hold, a multiple of O(pagesize). Without it the mount may use the whole pool.
    type: str
  min_size:
    description:
      - What is reserved for it in the pool when it is mounted, a multiple of O(pagesize).
    type: str
  mode:
    description:
      - Permission bits of its root directory, as three or four octal digits in quotes. The default is V(0755).
    type: raw
  user:
    description:
      - The owner, by name. The default is root, if O(uid) is not set either.
    type: str
  uid:
    description:
      - The owner, as a number, instead of O(user).
    type: int
  group:
    description:
      - The group, by name. The default is root, if O(gid) is not set either.
    type: str
  gid:
    description:
      - The group, as a number, instead of O(group).
    type: int
seealso:
  - module: corral.node.hugepages
"""

EXAMPLES = r"""
- name: Mount a pool of 2 MiB pages for one group
  corral.node.hugetlbfs_mount:
    path: /dev/hugepages-2Mi
    pagesize: 2Mi
    size: 512Mi
    mode: "0770"
    group: hugetlb

- name: Unmount it
  corral.node.hugetlbfs_mount:
    path: /dev/hugepages-2Mi
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
    - manager: memory
      subject: /dev/hugepages-2Mi
      property: mounted
      actual: null
      wanted: pagesize=2M,mode=770,size=536870912,gid=996
      reason: it is not mounted
      location: /dev/hugepages-2Mi
      verdict: drift
      when: now
      disruption: none
      text: "~ memory /dev/hugepages-2Mi mounted: absent -> pagesize=2M,mode=770,size=536870912,gid=996 (it is not mounted)"
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
  sample: [{path: group, value: hugetlb, message: "this node has no group of that name: create it first, or name another"}]
undone:
  description: When a write was refused in the middle, what was taken back.
  returned: failure
  type: list
  elements: str
  sample: ["mount dev-hugepages\\x2d2Mi.mount"]
"""

from ansible_collections.corral.node.plugins.module_utils import _parts


def main() -> None:
    """Module entry point."""
    spec = {
        "path": {"type": "path", "required": True},
        "pagesize": {"type": "str"},
        "size": {"type": "str"},
        "min_size": {"type": "str"},
        "mode": {"type": "raw"},
        "user": {"type": "str"},
        "uid": {"type": "int"},
        "group": {"type": "str"},
        "gid": {"type": "int"},
    }
    _parts.run(
        "hugetlbfs_mount",
        spec,
        required_if=[("state", "present", ("pagesize",))],
        mutually_exclusive=[("user", "uid"), ("group", "gid")],
    )


if __name__ == "__main__":
    main()
