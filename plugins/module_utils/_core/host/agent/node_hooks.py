# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Steps that depend on other programs: the administrator's hook, and the wait until a service reports that it is healthy."""

from __future__ import annotations

import time
import typing as t

from ...model.plan.plan import Step
from .. import cgroup, state, systemd
from ..files import Host
from . import foreign_program

HOOK_SECONDS = 1800.0
HOOK_UNIT = "corral-hook.service"  # the same name for each run: the node's lock excludes a second run of a hook
HEALTH_SECONDS = READY_SECONDS = 120.0
# A kubelet answers before its managers have read their state files, and ends if it refuses one of these files.
STEADY_SECONDS = 8.0
BETWEEN_SECONDS = 0.5
BETWEEN_REQUESTS = 3.0  # between two requests to the API server, which serves all nodes
CLOCK_SECONDS = 1.0  # the precision of a report's time
LOG_LINES = 5
# The number of main processes, one after the other, after which a further restart (Restart=) will not help.
ENDS = 4


def refused(host: Host, step: Step) -> str:
    """Carry out a step: run the hook, or wait for the service. Returns the reason of a failure; an empty string for success."""
    if step.kind == "hook":
        return run_hook(host, step)
    return wait_until_ready(host, step) if step.name else wait_for_health(host, step)


def run_hook(host: Host, step: Step) -> str:
    """Run the hook of a step (drain or resume). The file DRAINED exists from before the drain until a resume has succeeded."""
    if step.value == "drain":
        state.state_folder(host, state.STATE)
        host.write_file(state.DRAINED, f"{step.target}\n", state.PRIVATE)
    answer = foreign_program.run(host, [step.target, step.value or ""], HOOK_SECONDS, {}, unit=HOOK_UNIT)
    said = systemd.complaint(answer.err, answer.out)[-500:]
    failed = f"{step.target} {step.value}: exit code {answer.code}: {said}" if answer.code else ""
    if step.value == "resume" and state.there(host, state.DRAINED):
        if failed:
            host.write_file(state.DRAINED, f"{step.target}\n{' '.join(failed.split())}\n", state.PRIVATE)
        else:
            host.remove(state.DRAINED)
    return failed


def drained_by(host: Host) -> tuple[str, str]:
    """The hook that drained the node and has not resumed it, and the last resume's error; two empty strings without a complete record."""
    path, end, said = (state.read_text(host, state.DRAINED) or "").partition("\n")
    return (path, said.strip()) if end and path.startswith("/") else ("", "")


def wait_for_health(host: Host, step: Step) -> str:
    """Ask the service for /healthz until the status has been 200 for STEADY_SECONDS. Returns an empty string, or why the wait failed."""
    address, dummy, port = (step.value or "").rpartition(":")
    began = time.monotonic()
    healthy_since = None
    processes: set[int] = set()
    while True:
        status, text = host.ask(address, int(port), "/healthz")
        now = time.monotonic()
        healthy_since = None if status != 200 else now if healthy_since is None else healthy_since
        if healthy_since is not None and now - healthy_since >= STEADY_SECONDS:
            return ""
        pids = host.processes(f"{cgroup.service_group(host, step.target)}/cgroup.procs")
        processes.update(sorted(map(int, pids))[:1])  # The lowest PID is the main process.
        if now - began > HEALTH_SECONDS or len(processes) >= ENDS:
            break
        time.sleep(BETWEEN_SECONDS)
    said = f"status {status}: {text}" if status else text
    return (
        f"{step.target}: not healthy for {now - began:.0f} s{ended(processes)} (http://{step.value}/healthz: {' '.join(said.split())[:200]}); its last "
        f"log lines: {last_lines(host, step.target)}"
    )


def wait_until_ready(host: Host, step: Step) -> str:
    """Ask the API server until the running kubelet has reported the node Ready. Returns an empty string, or why the wait failed."""
    from ..kubelet import kubelet_node, kubelet_ready  # Only a changed kubelet configuration needs these modules.

    began = time.monotonic()
    while True:
        node_report = kubelet_ready.readiness(host, step.value or "", step.name)
        running = kubelet_node.of_unit(host)
        since = (running.began if running else None) or 0.0
        said = node_report.said or (
            "its kubelet has not reported since it started" if node_report.reported + CLOCK_SECONDS < since else ""
        )
        if running is not None and not said:
            return ""
        waited = time.monotonic() - began
        if waited > READY_SECONDS:
            break
        time.sleep(BETWEEN_REQUESTS)
    said = said or f"{step.target} does not run"
    return f"node {step.name} is not Ready for {waited:.0f} s ({said}); the last log lines of {step.target}: {last_lines(host, step.target)}"


def ended(processes: t.Collection[int]) -> str:
    """A part of a message: how often the service ended; an empty string if the service never ended."""
    return f", and it ended {len(processes) - 1} times" if len(processes) > 1 else ""


def last_lines(host: Host, unit: str) -> str:
    """The last lines that a unit's processes logged, as one line. (--unit of journalctl would add systemd's own lines.)"""
    answer = host.run("journalctl", "--no-pager", "--output=cat", f"--lines={LOG_LINES}", f"_SYSTEMD_UNIT={unit}")
    lines = [" ".join(line.split())[:300] for line in answer.out.splitlines() if line.strip()]
    return " | ".join(lines[-LOG_LINES:]) or f"none (journalctl -u {unit})"
