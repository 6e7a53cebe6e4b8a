#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: workload
short_description: Give a workload CPUs, memory and limits of its own at run time
version_added: 0.1.0
description:
  - Admits a systemd service or a Podman container or pod on a node, beside the workloads of the node's profile, and gives it
    what a kubelet gives to a pod. A Guaranteed workload that requests whole CPUs gets them exclusively. Its memory and
    hugepages come from suitable NUMA nodes, and its slice has weight, quota, memory and task limits.
  - A workload that does not fit is refused. The message says what is missing, where, and which workloads use it. Nothing is
    changed then.
  - An admission lasts over reboots, until O(state=absent). It is what C(corral admit) and C(corral release) do on the node.
    Workloads that always belong to a node are better declared in its profile (M(corral.node.profile)).
  - An admission also works in mode V(audit) of the profile and on a paused node, because it starts a workload and does not
    correct drift. It corrects drifted CPUs and workloads of the node only because a workload cannot be given CPUs that
    another one uses.
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
requirements:
  - Debian 11 or a distribution with systemd 247 or newer
  - Python 3.9 or newer on the node
  - A profile with C(cpu.reserved) on the node, and C(cpu.policy=static) in it for workloads with CPUs of their own
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  name:
    description:
      - The name of the workload. A workload of this name that was admitted before is replaced.
      - The name of a workload of the node's profile is refused.
    type: str
    required: true
  match:
    description:
      - Which processes belong to the workload. Exactly one of O(match.unit), O(match.container), O(match.pod) and O(match.label).
      - Required when O(state=present).
    type: dict
    suboptions:
      unit:
        description:
          - The service. It is placed in the workload's slice by a drop-in, so a running service moves there at its next restart.
        type: str
      container:
        description:
          - The container's name, C(*) and C(?) allowed. Start it with C(--cgroup-parent) of the slice in RV(grant).
        type: str
      pod:
        description:
          - The pod's name, C(*) and C(?) allowed. Create it with C(--cgroup-parent) of the slice in RV(grant).
        type: str
      label:
        description:
          - A label of the container or pod, C(KEY) or C(KEY=VALUE).
        type: str
  hold:
    description:
      - How long the workload keeps its grant.
      - With V(declared) the grant lasts until O(state=absent).
      - With V(running) the grant lasts for one run. A service is admitted before each start, and its grant is released after
        each stop. A container is admitted by the task and must start within two minutes. Its grant is released once it has
        ended, and the next run needs the task again.
    type: str
    choices: [declared, running]
    default: declared
  priority:
    description:
      - The name of its priority, by which quotas of tenants tell workloads apart.
    type: str
  requests:
    description:
      - What the workload requests. V(cpu), V(memory), hugepages by page size such as V(hugepages-2Mi), as Kubernetes quantities,
        and a number of devices by a resource of the node's profile such as V(example.com/nic).
      - A request that is missing equals the limit. A request for hugepages or devices must equal its limit.
    type: dict
  limits:
    description:
      - The most that the workload may use. Also V(pids), the number of its tasks.
    type: dict
  containers:
    description:
      - The containers of a pod, in the order in which they start. The pod gets what they need together, and
        cannot have O(requests) and O(limits) itself.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - The container's name.
        type: str
        required: true
      role:
        description:
          - The role of the container. An V(init) container ends before the next one starts, which can then use its CPUs. A
            V(sidecar) starts among the init containers and keeps running.
        type: str
        choices: [app, init, sidecar]
        default: app
      requests:
        description:
          - What the container requests.
        type: dict
      limits:
        description:
          - The most that the container may use.
        type: dict
  state:
    description:
      - With V(present) the workload is admitted, and these options replace those of an earlier admission.
      - With V(absent) the workload and its grant are released. Only O(name) matters then.
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
  - module: corral.node.pools_info
"""

EXAMPLES = r"""
- name: Give a service four CPUs and memory of its own
  corral.node.workload:
    name: dataplane
    match: {unit: dataplane.service}
    limits: {cpu: 4, memory: 2Gi, pids: 512}
  notify: Restart dataplane

- name: Admit a container for one run
  corral.node.workload:
    name: batch
    match: {container: batch}
    hold: running
    limits: {cpu: 2, memory: 1Gi}
  register: batch

- name: Start it with its own CPUs
  ansible.builtin.command:
    cmd: podman run --detach --name batch --cgroup-parent={{ batch.grant.slice }} quay.example/batch

- name: A pod whose init container hands its CPUs on
  corral.node.workload:
    name: web
    match: {pod: web}
    containers:
      - name: load
        role: init
        limits: {cpu: 4, memory: 1Gi}
      - name: app
        limits: {cpu: 2, memory: 1Gi}

- name: See whether it would fit, and where
  corral.node.workload:
    name: analysis
    match: {unit: analysis.service}
    limits: {cpu: 16, memory: 32Gi, hugepages-1Gi: 8Gi}
  check_mode: true
  register: what_if

- name: Take it back
  corral.node.workload:
    name: dataplane
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
    - manager: workloads
      subject: dataplane
      property: grant
      actual: null
      wanted: CPUs 2-3, memory of node 1
      reason: granted
      location: /var/lib/corral/checkpoint.json
      verdict: drift
      when: now
      disruption: none
      text: "~ workloads dataplane grant: absent -> CPUs 2-3, memory of node 1 (granted) [/var/lib/corral/checkpoint.json]"
drift:
  description:
    - What of CPUs and workloads still differs after the run, such as a service that has to be restarted to move. In check
      mode all of it.
  returned: success
  type: list
  elements: dict
  sample: []
in_sync:
  description: Whether nothing of CPUs and workloads differs and everything could be read.
  returned: success
  type: bool
  sample: true
grant:
  description: What the workload has, or in check mode would have. V(null) with O(state=absent).
  returned: success
  type: dict
  sample:
    name: dataplane
    state: granted
    reason: null
    tenant: null
    match: {unit: dataplane.service}
    qos: Guaranteed
    hold: declared
    run: null
    slice: corral_dataplane.slice
    cpus: 2-3
    containers: {}
    memory_nodes: "1"
    devices: {}
    memory: [["1", memory, 134217728]]
    requests: {cpu: "2", memory: 128Mi}
    limits: {cpu: "2", memory: 128Mi}
    since: 1795255200
  contains:
    name:
      description: The workload.
      type: str
    state:
      description:
        - V(granted), or V(waiting) for a service with O(hold=running) that is not started.
      type: str
    reason:
      description: Why it was refused. V(null) here, since the task fails then.
      type: str
    tenant:
      description: Its tenant, V(null) without one.
      type: str
    match:
      description: What belongs to it.
      type: dict
    qos:
      description: Its class, V(Guaranteed), V(Burstable) or V(BestEffort).
      type: str
    hold:
      description: How long it keeps what it has.
      type: str
    run:
      description: Which run the grant is for. V(null) with O(hold=declared).
      type: str
    slice:
      description: Its slice. V(null) while it has nothing.
      type: str
    cpus:
      description: The CPUs of its own, empty when it runs on the shared pool.
      type: str
    containers:
      description: The CPUs of each container of a pod.
      type: dict
    memory_nodes:
      description: The NUMA nodes that its memory is bound to. V(null) when it is not.
      type: str
    devices:
      description: The ids of its devices by resource.
      type: dict
    memory:
      description: What it was promised there. NUMA nodes, resource and bytes.
      type: list
      elements: list
    requests:
      description: What it asks for, a missing request filled in.
      type: dict
    limits:
      description: What it may have at most.
      type: dict
    since:
      description: When it was granted, in seconds since 1970.
      type: int
explanation:
  description: Why it has what it has, as C(corral explain) says it. Empty with O(state=absent).
  returned: success
  type: list
  elements: str
  sample:
    - "dataplane: granted"
    - "class: Guaranteed, requests equal limits for CPU and memory"
    - "CPUs: 2 of its own"
    - "has: 2-3 on NUMA node 1, in corral_dataplane.slice"
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
  sample: [{path: requests.cpu, value: "8", message: "4 CPUs missing: 4 are free (free: node 0: 2, node 1: 2)"}]
"""

from ansible_collections.corral.node.plugins.module_utils import _workload


def main() -> None:
    """Module entry point."""
    kinds = ("unit", "container", "pod", "label")
    amounts = {"requests": {"type": "dict"}, "limits": {"type": "dict"}}
    container = {
        "name": {"type": "str", "required": True},
        "role": {"type": "str", "choices": ["app", "init", "sidecar"], "default": "app"},
        **amounts,
    }
    spec = {
        "name": {"type": "str", "required": True},
        "match": {
            "type": "dict",
            "options": {kind: {"type": "str"} for kind in kinds},
            "mutually_exclusive": [kinds],
            "required_one_of": [kinds],
        },
        "hold": {"type": "str", "choices": ["declared", "running"], "default": "declared"},
        "priority": {"type": "str"},
        **amounts,
        "containers": {"type": "list", "elements": "dict", "options": container},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "lock_timeout": {"type": "int", "default": 120},
    }
    _workload.run(spec, required_if=[("state", "present", ["match"])])


if __name__ == "__main__":
    main()
