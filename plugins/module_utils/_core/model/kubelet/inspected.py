# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The results of an inspection of a node's kubelet, and of the correction of its containers' CPUs."""

from __future__ import annotations

import typing as t

from ..plan.plan import Change
from ..values.records import NamedTuple
from . import state_files
from .kubelet_config import Config
from .kubelet_drift import Difference
from .kubelet_sizing import Amount
from .pod_cgroups import Container
from .pod_findings import Finding, Item
from .state_files import CpuState, DeviceState, MemoryState


class StateFile(NamedTuple):
    """A state file: its path, whether the file exists, its version or the state of its checksum, and the kubelet's reason to refuse
    the file (empty: the kubelet would use the file)."""

    path: str
    exists: bool
    version: str = ""
    refusal: str = ""

    @property
    def starts(self) -> bool:
        """Whether the kubelet would start with this file. The device manager starts even if its file cannot be read."""
        return not self.refusal or self.path.endswith(state_files.DEVICE_FILE)


class Outlook(NamedTuple):
    """The node's resources for pods: the present amounts (``now``), and the amounts after the profile is applied (``then``).

    ``then`` is None if the profile has no section kubelet or Corral cannot edit the kubelet's files.
    """

    now: tuple[Amount, ...]
    then: t.Optional[tuple[Amount, ...]]


class Inspection(NamedTuple):
    """The observed state of a node's kubelet."""

    pid: t.Optional[int]
    began: t.Optional[float]
    config: Config
    newer: tuple[str, ...]
    files: tuple[StateFile, ...]
    cpus: t.Optional[CpuState]
    memory: t.Optional[MemoryState]
    devices: t.Optional[DeviceState]
    findings: tuple[Finding, ...]
    changed: t.Mapping[str, float] = {}  # when each file of the configuration was last changed
    drift: tuple[Change, ...] = ()  # differences from the section kubelet of the declared profile
    outlook: t.Optional[Outlook] = None
    # The keys whose values in the running kubelet differ from its files and flags; None if the kubelet does not report its values.
    unlike: t.Optional[tuple[Difference, ...]] = None
    # When each finding (``since``) and each item of drift (``drift_since``) was first seen: see kubelet_since.py.
    since: t.Mapping[Item, int] = {}
    drift_since: t.Mapping[Item, int] = {}

    @property
    def refusals(self) -> tuple[StateFile, ...]:
        """The state files that the kubelet would not use."""
        return tuple(one for one in self.files if one.refusal)


class Mended(NamedTuple):
    """A container, the CPUs that Corral wanted to set for the container, and the error (empty: no error)."""

    container: Container
    wanted: frozenset[int]
    error: str = ""
