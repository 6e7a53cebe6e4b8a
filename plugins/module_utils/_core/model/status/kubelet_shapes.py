# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The JSON about a node's kubelet; see json_shapes.py."""

from __future__ import annotations

import typing as t

from ..kubelet.pod_findings import Kind
from .json_shapes import DriftItem


class KubeletSetting(t.TypedDict):
    """A key of the kubelet's configuration in force."""

    value: t.Any
    origin: str
    since: t.Optional[int]


class KubeletFile(t.TypedDict):
    """A state file of the kubelet."""

    path: str
    exists: bool
    version: t.Optional[str]
    refusal: t.Optional[str]
    starts: bool


class KubeletCpus(t.TypedDict):
    """The CPU manager's assignments, as CPU lists."""

    policy: str
    default: str
    containers: dict[str, dict[str, str]]
    pods: dict[str, str]


class KubeletDevice(t.TypedDict):
    """The devices of one resource that a container has."""

    pod: str
    container: str
    resource: str
    devices: dict[str, list[str]]


class KubeletDevices(t.TypedDict):
    """What ``corral devices --kubelet --json`` prints."""

    schema: int
    file: KubeletFile
    devices: list[KubeletDevice]


class KubeletFinding(t.TypedDict):
    """A difference between the node and the kubelet's state files."""

    kind: Kind
    subject: str
    container: str
    cpus: str
    wanted: str
    message: str
    text: str
    since: t.Optional[int]


class KubeletAmount(t.TypedDict):
    """A resource: the node's capacity, the amount for pods, and the amount for pods after the profile is applied."""

    resource: str
    capacity: str
    allocatable: str
    wanted: t.Optional[str]


class KubeletDifference(t.TypedDict):
    """A key with another value in the running kubelet than in the file, flag or default that sets it (``origin``)."""

    key: str
    running: t.Optional[str]
    configured: t.Optional[str]
    origin: str


class KubeletReport(t.TypedDict):
    """What ``corral kubelet --json`` prints and the module kubelet_info returns."""

    schema: int
    running: bool
    pid: t.Optional[int]
    since: t.Optional[int]
    config: dict[str, KubeletSetting]
    config_problems: list[str]
    config_newer: list[str]
    config_running: t.Optional[list[KubeletDifference]]
    files: list[KubeletFile]
    cpus: t.Optional[KubeletCpus]
    devices: list[KubeletDevice]
    findings: list[KubeletFinding]
    allocatable: list[KubeletAmount]
    drift: list[DriftItem]
    mended: list[str]
