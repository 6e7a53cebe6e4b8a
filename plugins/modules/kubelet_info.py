#!/usr/bin/python

# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubelet_info
short_description: Inspect a Kubernetes node's kubelet
version_added: 0.1.0
description:
  - Reads the configuration that the kubelet uses, the state files of its CPU, memory and device managers with their
    checksums, and the control groups of its pods.
  - Returns the state files with which the kubelet would not start, with the kubelet's own message, and assignments that leak or overlap.
  - It needs neither the API server nor the container runtime, and changes nothing.
author:
  - Corral contributors (@corral-project)
extends_documentation_fragment:
  - corral.node._attributes
  - corral.node._attributes.action_group
  - corral.node._attributes.info_module
options:
  root:
    description:
      - A recorded machine instead of this one, on the target. Either a folder or a snapshot made by C(corral snapshot).
    type: path
seealso:
  - module: corral.node.topology_info
"""

EXAMPLES = r"""
- name: Look at the kubelet
  corral.node.kubelet_info:
  register: kubelet

- name: Do not restart a kubelet that would not start again
  ansible.builtin.assert:
    that: kubelet.files | rejectattr('starts') | length == 0
    fail_msg: "{{ kubelet.report | join('\n') }}"
"""

RETURN = r"""
schema:
  description: The version of what is returned. It grows when a field is removed or changes its meaning.
  returned: success
  type: int
  sample: 1
running:
  description: Whether a kubelet runs.
  returned: success
  type: bool
  sample: true
pid:
  description: Its process, V(null) without one.
  returned: success
  type: int
  sample: 1047
since:
  description: When it began, in seconds since 1970. V(null) where that is not known.
  returned: success
  type: int
  sample: 1795427282
config:
  description:
    - Each key of the configuration in force by its path, with what sets it and since when. That is a file, a flag or V(default).
    - Drop-ins of C(--config-dir) are merged over the file, flags win over both.
  returned: success
  type: dict
  sample:
    cpuManagerPolicy: {"value": "static", "origin": "/etc/kubernetes/kubelet.conf.d/20-cpu.conf", "since": 1795427282}
    maxPods: {"value": 110, "origin": "default", "since": null}
config_problems:
  description: What is wrong with files and flags of the configuration.
  returned: success
  type: list
  elements: str
  sample: []
config_newer:
  description: The files, and folders of drop-ins, that were changed after the running kubelet began.
  returned: success
  type: list
  elements: str
  sample: []
config_running:
  description:
    - The keys whose value in the running kubelet, as the kubelet itself reports it, is not that of its files and flags.
    - V(null) where it reports none, such as a kubelet that asks for a certificate which is not on the node.
  returned: success
  type: list
  elements: dict
  sample:
    - {"key": "maxPods", "running": "70", "configured": "50", "origin": "/var/lib/kubelet/config.yaml"}
files:
  description:
    - The kubelet's state files. The refusal is why the kubelet would not use it, V(null) where it would. C(starts) is whether the
      kubelet would start with it.
  returned: success
  type: list
  elements: dict
  sample:
    - path: /var/lib/kubelet/cpu_manager_state
      exists: true
      version: v2
      refusal: null
      starts: true
cpus:
  description: The CPU manager's assignments as CPU lists, V(null) where its file does not say.
  returned: success
  type: dict
  sample:
    policy: static
    default: 0-3
    containers: {"0b2a1f8e-0a1b-4c2d-8e3f-1234567890ab": {"main": "4-5"}}
    pods: {}
devices:
  description: Devices that containers have, by NUMA node. V(-1) stands for devices without one.
  returned: success
  type: list
  elements: dict
  sample:
    - pod: 0b2a1f8e-0a1b-4c2d-8e3f-1234567890ab
      container: main
      resource: example.com/nic
      devices: {"0": ["0000:18:00.1"]}
findings:
  description:
    - Assignments of pods that are gone, containers on other CPUs than theirs, and overlaps; a kubelet or runtime that the kernel may
      end before pods.
    - C(since) is when C(corral kubelet) first saw it on the node, V(null) where it has not. This module keeps no times.
  returned: success
  type: list
  elements: dict
  sample:
    - kind: overlap
      subject: default/web
      container: nginx
      cpus: "4"
      wanted: ""
      message: may run on CPUs 4, which are exclusively of pod 0b2a1f8e-0a1b-4c2d-8e3f-1234567890ab
      text: "default/web nginx: may run on CPUs 4, which are exclusively of pod 0b2a1f8e-0a1b-4c2d-8e3f-1234567890ab"
      since: 1795427282
allocatable:
  description: What pods may have of the node now, and once the declared profile is applied; C(wanted) is V(null) where it declares nothing of the kubelet.
  returned: success
  type: list
  elements: dict
  sample:
    - {"resource": "cpu", "capacity": "8", "allocatable": "6", "wanted": null}
drift:
  description: What differs from the section C(kubelet) of the declared profile.
  returned: success
  type: list
  elements: dict
  sample: []
report:
  description: The same as a person reads it.
  returned: success
  type: list
  elements: str
  sample: ["kubelet: process 1047"]
"""

from ansible_collections.corral.node.plugins.module_utils import _kubelet


def main() -> None:
    """Module entry point."""
    _kubelet.run()


if __name__ == "__main__":
    main()
