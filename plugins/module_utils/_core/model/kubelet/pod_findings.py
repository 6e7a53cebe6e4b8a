# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The differences between a kubelet's assignments and its pods' control groups: leaks and overlaps, which the kubelet does not report."""

from __future__ import annotations

import typing as t

from ..values import cpuset
from ..values.records import NamedTuple
from ..workload.qos import GUARANTEED_OOM_SCORE_ADJ
from .pod_cgroups import Container
from .state_files import CpuState

Kind = t.Literal["leaked", "ended", "other_cpus", "overlap", "host_process", "stopped", "oom_score"]
KUBELET = "kubelet.service"  # The kubelet sets its own oom_score_adj at its start.
Item = tuple[str, str, str]  # kind, subject, container


class Finding(NamedTuple):
    """A difference from the kubelet's state. A text that does not apply is empty.

    ``subject`` is the pod's name or UID, a control group or a unit; ``cpus`` are the CPUs concerned, ``wanted`` the assigned CPUs.
    """

    kind: Kind
    subject: str
    container: str
    cpus: str
    wanted: str
    message: str

    def item(self) -> Item:
        """The identity of a finding; the identity does not change as long as the difference exists."""
        return self.kind, self.subject, self.container


def leaked(pods: t.Iterable[str], present: t.Container[str], cpus: t.Mapping[str, frozenset[int]]) -> list[Finding]:
    """The pods that have assignments, but neither a control group nor files on the node (kubernetes#107074).

    ``cpus`` are the exclusive CPUs of each pod.
    """
    return [
        Finding("leaked", pod, "", cpuset.format(cpus.get(pod, ())), "", leak_text(cpus.get(pod, frozenset())))
        for pod in sorted(set(pods))
        if pod not in present
    ]


def leak_text(cpus: frozenset[int]) -> str:
    """The message about a leak: its effect, and what to do."""
    lost = f"CPUs {cpuset.format(cpus)} are" if cpus else "what it had is"
    return (
        f"the pod is gone and its assignment is not: {lost} given to no other pod until the kubelet is restarted "
        "with this state file set aside"
    )


def exclusive_of(state: CpuState) -> dict[str, frozenset[int]]:
    """The exclusive CPUs of each pod."""
    found: dict[str, frozenset[int]] = {pod: cpus for pod, cpus in state.pods.items() if cpus}
    for pod, containers in state.containers.items():
        found[pod] = found.get(pod, frozenset()).union(*containers.values())
    return found


def ended(state: CpuState, containers: t.Iterable[Container], logged: t.Iterable[Container]) -> list[Finding]:
    """The ended containers of running pods that keep CPUs, if no other container of the pod has these CPUs (kubernetes#122171).

    An init container keeps its CPUs if later containers took other CPUs. ``logged``: the containers with a log, which have begun.
    """
    running: dict[str, set[str]] = {}
    uids = {}
    for one in containers:
        if one.name:
            running.setdefault(one.pod, set()).add(one.name)
            uids[one.pod_name] = one.pod
    found = []
    for pod_name, name in sorted({(one.pod_name, one.name) for one in logged}):
        own = state.containers.get(uids.get(pod_name, ""), {})
        cpus = own.get(name, cpuset.EMPTY).difference(*(other for key, other in own.items() if key != name))
        if cpus and name not in running[uids[pod_name]]:
            text = cpuset.format(cpus)
            message = (
                f"has ended and keeps CPUs {text}, which no other container of its pod has: no pod gets them until this one is gone. "
                "Let an init container request as many CPUs as the containers after it"
            )
            found.append(Finding("ended", pod_name, name, text, "", message))
    return found


def strayed(state: CpuState, containers: t.Iterable[Container]) -> list[Container]:
    """The containers on shared CPUs that may also run on exclusive CPUs. The kubelet would set the CPUs of these containers again.

    Containers with an assignment (another program changed their control groups) and containers without a known name are left out.
    """
    exclusive = exclusive_of(state)
    taken = frozenset().union(*exclusive.values())
    return [
        one
        for one in containers
        if one.name
        and not state.pods.get(one.pod)
        and one.name not in state.containers.get(one.pod, {})
        and one.cpus & taken
    ]


def of_containers(state: CpuState, containers: t.Iterable[Container]) -> list[Finding]:
    """The containers that do not run on their assigned CPUs, and containers without assigned CPUs on exclusive CPUs (the overlap window).

    A pod's sandbox is left out: every kubelet leaves the sandbox, whose only process sleeps, on all CPUs. The sandbox is the container
    without a log in a pod whose other containers have logs.
    """
    everybody = exclusive_of(state)
    found = []
    all_of_them = sorted(containers, key=lambda one: (one.pod_name, one.pod, one.name, one.id))
    logged = {one.pod for one in all_of_them if one.name}
    for one in all_of_them:
        if not one.name and one.pod in logged:
            continue
        subject, name = one.pod_name or one.pod, one.name or one.id[:12]
        own = everybody.get(one.pod, frozenset())
        assigned = state.containers.get(one.pod, {}).get(one.name) if one.name else None
        if assigned is not None and one.cpus != assigned:
            cpus, wanted = cpuset.format(one.cpus), cpuset.format(assigned)
            message = f"runs on CPUs {cpus or 'none'}, and the kubelet assigned {wanted} to it: its cgroup was changed by others"
            found.append(Finding("other_cpus", subject, name, cpus, wanted, message))
            continue
        others = frozenset().union(*(cpus for pod, cpus in everybody.items() if pod != one.pod)) & one.cpus
        # A container without a known name may be the sandbox, or the container with its pod's exclusive CPUs.
        if assigned is None and one.name and own and not state.pods.get(one.pod):
            others |= own & one.cpus
        if others:
            holders = sorted(pod for pod, cpus in everybody.items() if cpus & others)
            message = f"may run on CPUs {cpuset.format(others)}, which are exclusively of pod {', '.join(holders)}"
            found.append(Finding("overlap", subject, name, cpuset.format(others), "", message))
    return found


def of_host(others: t.Iterable[tuple[str, frozenset[int], tuple[str, ...]]]) -> list[Finding]:
    """A finding for each control group of the host whose processes may run on pods' exclusive CPUs. ``others``: group, CPUs, processes."""
    return [
        Finding(
            "host_process", group, "", cpuset.format(cpus), "",
            f"processes of the host ({', '.join(processes)} …) may run on pods' exclusive CPUs {cpuset.format(cpus)}: "
            "declare cpu.reserved with Corral, or AllowedCPUs= for this slice",
        )
        for group, cpus, processes in others
    ]  # fmt: skip


def of_stopped(running: bool, containers: t.Sequence[Container]) -> list[Finding]:
    """A finding if containers run while no kubelet is ``running``."""
    if running or not containers:
        return []
    pods = len({one.pod for one in containers})
    message = (
        f"{len(containers)} containers of {pods} pods run and the kubelet does not: nothing keeps their CPUs apart"
    )
    return [Finding("stopped", "kubelet", "", "", "", message)]


def of_scores(scores: t.Mapping[str, int]) -> list[Finding]:
    """A finding for each unit that the kernel may end before containers of Guaranteed pods. ``scores``: oom_score_adj by unit."""
    return [
        Finding(
            "oom_score", unit, "", "", "",
            f"has oom_score_adj {score} and containers of Guaranteed pods have {GUARANTEED_OOM_SCORE_ADJ}: when memory is short the kernel may "
            f"end it first; set {'oomScoreAdj: -999 in its configuration' if unit == KUBELET else f'OOMScoreAdjust=-999 in {unit}'}",
        )
        for unit, score in sorted(scores.items())
        if score >= GUARANTEED_OOM_SCORE_ADJ
    ]  # fmt: skip
