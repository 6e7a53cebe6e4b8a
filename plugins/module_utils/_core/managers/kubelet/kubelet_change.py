# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The change of a kubelet's configuration without a crash loop: which state files are set aside, and the steps in their order.

drain → stop → set the state files aside that the kubelet would refuse → write → start → healthy, Ready → resume. If a step fails, all steps
are undone (pipeline/applying.py): the files come back, and the kubelet starts with its former configuration.
"""

from __future__ import annotations

import time
import typing as t

from ...host.files import Host
from ...host.kubelet import kubelet_api, kubelet_node, kubelet_ready, kubelet_state, kubelet_unit
from ...model.kubelet import kubelet_drift, kubelet_sizing, pod_findings
from ...model.kubelet.kubelet_config import Config, effective
from ...model.kubelet.kubelet_drift import Difference
from ...model.kubelet.pod_cgroups import Container
from ...model.plan import make_step
from ...model.plan.context import Context
from ...model.plan.plan import CLAIM, DECLARE, START, STOP, Change, Step
from ...model.values.errors import Problem
from ...model.values.records import NamedTuple
from .kubelet_observed import ObservedKubelet
from .kubelet_obstacles import acts
from .kubelet_places import DRAINED, DUE, NAME

HEALTHZ_ADDRESS, HEALTHZ_PORT = "127.0.0.1", 10248
# Words in the text of a refusal, and the name of its cause.
CAUSES = (
    ("differs from state checkpoint policy", "policy"),
    ("reserved cpus", "reserved"),
    ("set of available CPUs", "cpus"),
    ("machine state is different", "memory"),
)
NAMED = 4
WAY_OUT = "Drain the node first, or set kubelet.drain to a program that does, or to none to continue without draining"
WAY_OUT_OF_LEAVING = (
    "Drain the node and try again; or first apply the profile with kubelet.drain, a program that drains the node or none to continue "
    "without draining, and then leave the section out or remove the profile"
)


class RefusedFile(NamedTuple):
    """A state file with which the kubelet would not start, and the refusal."""

    path: str
    text: str
    mode: int
    refusal: str


class StateFiles(NamedTuple):
    """The state files that the kubelet would refuse if it ran with a configuration (``refused``), and the paths of ``absent`` state files.

    Only if the kubelet would refuse a file: the ``running`` containers, and the pods with CPUs or memory in a refused file (``assigned``).
    """

    refused: tuple[RefusedFile, ...] = ()
    running: tuple[Container, ...] = ()
    assigned: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


class Transition(NamedTuple):
    """The change from the configuration ``now`` to ``then``: its keys, and the state files that the kubelet would refuse ``after`` the
    change.

    ``unfit``: no key changes, but hugepages make a state file unfit. ``hook``: the program that drains the node ("none": no draining; None:
    not declared). ``may_fail``: the change goes on even if the hook fails.
    """

    now: Config
    then: Config
    differences: tuple[Difference, ...]
    after: StateFiles
    unfit: bool
    hook: t.Optional[str]
    may_fail: bool

    @property
    def restarts(self) -> bool:
        """Whether a running kubelet has to start again. A kubelet that does not run starts only if an interrupted run stopped it."""
        return bool(self.differences) or self.unfit


def transition(
    host: Host, seen: ObservedKubelet, then: Config, hook: t.Optional[str], context: Context, keys: t.Any = None
) -> Transition:
    """The transition from the configuration in force to ``then``.

    ``keys``: the keys that a tick compares, without reading state files (None: compare all keys, and read the state files).
    """
    now = effective(seen.layers, seen.flags)
    differences = tuple(kubelet_drift.changing(now, then, keys))
    after = state_under(host, seen, then, context) if keys is None else StateFiles()
    unfit = False
    if after.refused and not differences:
        as_it_is = seen._replace(machine=seen.machine._replace(numa=kubelet_state.totals(context.topology)))
        before = {one.path for one in state_under(host, as_it_is, now, context).refused}
        unfit = any(one.path not in before for one in after.refused)
    if context.goes_back:  # the unconfirmed profile may have cut the node off, so that the hook fails
        return Transition(now, then, differences, after, unfit, hook or "none", may_fail=True)
    return Transition(now, then, differences, after, unfit, hook, may_fail=False)


def state_under(host: Host, seen: ObservedKubelet, config: Config, context: Context) -> StateFiles:
    """The state files that the kubelet would refuse under ``config``, and the pods that would lose the CPUs or memory in these files."""
    root = seen.places.root_dir
    cpu_file, cpus = kubelet_state.inspect_cpus(host, root, config, context.topology)
    memory_file, memory = kubelet_state.inspect_memory(host, root, config, seen.machine.numa)
    refused = [file for file in (cpu_file, memory_file) if file.refusal]
    absent = tuple(file.path for file in (cpu_file, memory_file) if not file.exists)
    if not refused:
        return StateFiles(absent=absent)
    running = tuple(kubelet_node.containers(host))
    names = {one.pod: one.pod_name or one.pod for one in running}
    assigned = {
        pod for pod, own in (pod_findings.exclusive_of(cpus) if cpus else {}).items() if own and cpu_file.refusal
    }
    assigned |= set(memory.containers) if memory and memory_file.refusal else set()
    # Bytes that are no UTF-8 stay unchanged.
    texts = [(host.read_bytes(one.path) or b"").decode("utf-8", "surrogateescape") for one in refused]
    found = [
        RefusedFile(one.path, text, host.mode(one.path) or 0o600, one.refusal) for one, text in zip(refused, texts)
    ]
    return StateFiles(tuple(found), running, tuple(sorted(names[pod] for pod in assigned if pod in names)), absent)


def problems(state: StateFiles, hook: t.Optional[str], way_out: str = WAY_OUT) -> list[Problem]:
    """The problem of a change that takes CPUs or memory from pods, if the profile says nothing about draining the node."""
    if not (state.refused and state.assigned) or hook is not None:
        return []
    pods = ", ".join(state.assigned[:NAMED]) + (" …" if len(state.assigned) > NAMED else "")
    files = " and ".join(one.path for one in state.refused)
    message = (
        f"the kubelet would not start with {files}, which has to be set aside; then these pods lose their exclusive CPUs or memory: "
        f"{pods}. {way_out}"
    )
    return [Problem("kubelet.drain", None, message)]


def standing_notes(seen: ObservedKubelet, after: StateFiles, context: Context) -> list[str]:
    """Notes on a kubelet that is not restarted: it could not start again, or it has not counted the present hugepages."""
    if seen.process is None:
        return []
    found = [f"the kubelet would not start again with {one.path}: {one.refusal}" for one in after.refused]
    if seen.machine.numa != kubelet_state.totals(context.topology):
        found.append(
            f"the kubelet counts hugepages when it starts: systemctl restart {kubelet_unit.UNIT} once they are there"
        )
    return found


def aside(state: StateFiles, now: float) -> list[Step]:
    """The steps that set the refused files aside, with the cause and the time in their new names."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    steps = []
    for order, one in enumerate(state.refused):
        copy = f"{one.path}.corral-{cause(one.refusal)}-{stamp}"
        steps.append(make_step.file(copy, one.text, STOP, 60 + 2 * order, mode=one.mode))
        steps.append(make_step.file(one.path, None, STOP, 61 + 2 * order))
    return steps


def cause(refusal: str) -> str:
    """The cause of a refusal as one word."""
    return next((word for text, word in CAUSES if text in refusal), "unreadable")


def stops(seen: ObservedKubelet) -> bool:
    """Whether the kubelet has to be stopped and started: the kubelet runs, or an earlier run stopped it."""
    return seen.process is not None or seen.due


def readiness(host: Host, seen: ObservedKubelet) -> tuple[list[Step], list[str]]:
    """The step that waits until the node is Ready again; instead a note if the node is not Ready now, or its state is unknown."""
    kubeconfig = seen.places.flags.get("kubeconfig", "")
    if not kubeconfig or seen.process is None:
        return [], []
    node = kubelet_ready.node_name(host, seen.places.flags)
    found = kubelet_ready.readiness(host, kubeconfig, node)
    if found.ready:
        return [make_step.ready(kubelet_unit.UNIT, kubeconfig, node, START, 61)], []
    why = f"it is not Ready now: {found.said}" if found.ready is False else found.said
    return [], [f"after the kubelet's start it is not checked whether node {node} is Ready ({why})"]


def restart(
    host: Host, seen: ObservedKubelet, move: Transition, context: Context, refusals: t.Sequence[Problem]
) -> tuple[list[Step], list[str]]:
    """The steps around the write of a configuration, and notes on checks that are left out.

    A kubelet that does not run is not started: the configuration applies at its next start. A run asks the API server whether the node is
    Ready only if the run takes the steps, and does not return to an earlier profile.
    """
    state = move.after
    if not stops(seen):
        return aside(state, context.now), []
    asks = acts(seen, context) and not refusals and not context.goes_back
    ready, unasked = readiness(host, seen) if asks else ([], [])
    loses = state.refused and state.running  # pods could lose their CPUs or memory
    hook = move.hook if move.hook != "none" and loses else None
    steps = [make_step.file(DUE, "", CLAIM, -20)]
    if hook:
        steps.append(make_step.hook(hook, "drain", CLAIM, -10)._replace(optional=move.may_fail))
    # A started kubelet creates absent state files. These steps let an undo remove them: they would not fit the former configuration.
    made = [make_step.file(path, None, STOP, 70 + order) for order, path in enumerate(state.absent)]
    steps += [make_step.unit(kubelet_unit.UNIT, "stop", STOP, 50), *aside(state, context.now), *made]
    steps.append(make_step.unit(kubelet_unit.UNIT, "start", START, 50))
    address = health_address(move.then)
    if address:
        steps.append(make_step.health(kubelet_unit.UNIT, address, START, 60))
    return [*steps, *ready, *finish(hook or seen.drained[0])], unasked


def finish(hook: str) -> list[Step]:
    """The steps after a change: the hook resumes the node. If the hook fails, the change stays, and the drained node is drift."""
    resume = [make_step.hook(hook, "resume", DECLARE, -20)._replace(optional=True)] if hook else []
    return [*resume, make_step.file(DUE, None, DECLARE, -10)]


def unfinished(seen: ObservedKubelet, *, by_tick: bool) -> list[Change]:
    """The items for a change that an interrupted run left unfinished. A tick starts the kubelet before planning; all else needs a run."""
    if not seen.due:
        return still_drained(seen, by_tick=by_tick)
    reason = "a run was ended while it changed the kubelet" + (": roll the profile out again" if by_tick else "")
    steps: list[Step] = []
    if not by_tick:
        start = [make_step.unit(kubelet_unit.UNIT, "start", START, 50)] if seen.process is None else []
        steps = [*start, *finish(seen.drained[0])]
    return [Change(NAME, kubelet_unit.UNIT, "change", "unfinished", "finished", reason, DUE, tuple(steps))]


def still_drained(seen: ObservedKubelet, *, by_tick: bool) -> list[Change]:
    """The item for a node that a hook drained and did not resume: the run or the machine was stopped, or the hook failed."""
    hook, said = seen.drained
    if not hook:
        return []
    reason = said or "a run was ended before it resumed the node"
    steps = () if by_tick else (make_step.hook(hook, "resume", DECLARE, -20)._replace(optional=True),)
    reason += ": corral reconcile, or a rollout, tries it again" if by_tick or said else ""
    return [Change(NAME, "node", "drain", "drained", "resumed", reason, DRAINED, steps)]


def health_address(config: Config) -> str:
    """ADDRESS:PORT of the kubelet's healthz; an empty string if healthz is turned off."""
    port, address = config.get("healthzPort"), config.get("healthzBindAddress") or HEALTHZ_ADDRESS
    if port == 0:
        return ""
    number = port if isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536 else HEALTHZ_PORT
    return f"{kubelet_api.ANY.get(address, address)}:{number}"


def sizing_notes(host: Host, move: Transition, seen: ObservedKubelet) -> list[str]:
    """Notes on changed allocatable amounts of pods, and on reserves that are smaller than the usage of all processes outside pods."""
    before, after = (kubelet_sizing.sizing(config, seen.machine) for config in (move.now, move.then))
    changed = [
        f"allocatable {new.resource} of the kubelet: {new.about(old.allocatable)} -> {new.about(new.allocatable)} (of {new.about(new.capacity)})"
        for old, new in kubelet_sizing.compared(before, after)
    ]
    return [*changed, *kubelet_sizing.exceeded(move.then, kubelet_node.used_beside_pods(host))]
