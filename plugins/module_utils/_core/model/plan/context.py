# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The input of every manager: the profile, the machine, and the values that one manager decides for another."""

from __future__ import annotations

import typing as t

from ..cpu.pools import Pools
from ..profile.profile import Profile
from ..topology.topology import Topology
from ..values.records import NamedTuple

if t.TYPE_CHECKING:  # Imported for type checkers only: a node without workloads does not load these modules.
    from ..devices.device import Inventory
    from ..profile.node_intent import Resolved
    from ..profile.profile_workloads import Workload
    from ..values.vocabulary import Run
    from ..workload.admission import AllocationResult, WorkloadStatus
    from ..workload.grants import Checkpoint, Grant
    from ..workload.resource_requirements import ResourceRequirements


class Attempt(NamedTuple):
    """The last request that the kernel or systemd may refuse: the wanted and the given hugepages, and the time (epoch seconds).

    A request for a partition, or for AllowedCPUs= of an unmanaged unit, counts as 1 wanted and 0 given.
    """

    wanted: int
    got: int
    time: float


class Workloads(NamedTuple):
    """The declared workloads on this node.

    ``needs``: in the order of the profile. ``checkpoint``: the checkpoint as read; ``damage``: the error in the checkpoint. ``allocated``:
    the wanted grants. ``persistent_pools``: the pools without the CPUs of persistent grants. ``admitted``: the workloads admitted at run
    time (None: unchanged). ``pids``: the tasks that workloads may have. ``drifted``: the changes of the NUMA nodes' memory since the
    checkpoint. ``released``: the workloads whose units stop in this run. ``devices``: the node's devices, if a workload uses devices.
    """

    needs: tuple[ResourceRequirements, ...]
    checkpoint: Checkpoint
    allocated: AllocationResult
    totals: t.Mapping[int, t.Mapping[str, int]]
    persistent_pools: Pools
    status: WorkloadStatus
    damage: str = ""
    notes: tuple[str, ...] = ()
    admitted: t.Optional[tuple[Workload, ...]] = None
    pids: t.Optional[int] = None
    drifted: tuple[str, ...] = ()
    released: frozenset[str] = frozenset()
    devices: t.Optional[Inventory] = None


class Context(NamedTuple):
    """The profile on this node, with its intents ``resolved``.

    ``fresh``: the profile changed or the node booted, so hugepages are requested at once. ``before``: by file, the original kernel values
    that Corral has changed; a value that the profile no longer declares returns to its original. ``original_cpus``: the CPUs that each
    unit requested before Corral changed them (empty: no CPUs). ``declared_pools``: the pools of the profile if ``pools`` differ, because
    the running kubelet reserves other CPUs (None: no difference). ``origins``: the layer of each leaf of the profile, if known
    (compose.py). ``run``: see vocabulary.py. ``goes_back``: the node returns to this profile from an unconfirmed profile, and the
    unconfirmed profile must not prevent the return.
    """

    profile: Profile
    topology: Topology
    pools: Pools
    now: float
    attempts: t.Mapping[str, Attempt] = {}
    fresh: bool = False
    before: t.Mapping[str, str] = {}
    original_cpus: t.Mapping[str, str] = {}
    origins: t.Mapping[str, str] = {}
    run: Run = "rollout"
    goes_back: bool = False
    workloads: t.Optional[Workloads] = None
    resolved: t.Optional[Resolved] = None
    declared_pools: t.Optional[Pools] = None

    @property
    def in_tick(self) -> bool:
        """Whether this run is a tick, or a report on what a tick would find; False at boot."""
        return self.run in ("tick", "timer")

    @property
    def declared(self) -> Profile:
        """The declared profile, with its intents."""
        return self.resolved.declared if self.resolved else self.profile

    @property
    def grants(self) -> tuple[Grant, ...]:
        """The grants after the plan."""
        return self.workloads.allocated.grants if self.workloads else ()

    @property
    def persistent_pools(self) -> Pools:
        """The pools after a reboot, when grants that end with a run no longer exist."""
        return self.workloads.persistent_pools if self.workloads else self.pools
