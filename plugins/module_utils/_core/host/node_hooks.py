# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Steps that others take part in: a program of the administrator's, and the wait for a service that says that it is healthy."""

from __future__ import annotations

import time
import typing as t

from ..model.plan.plan import Step
from . import cgroup, foreign_program, state, systemd
from .files import Host

HOOK_SECONDS = 1800.0
HOOK_UNIT = "corral-hook.service"  # The node's lock is held.
HEALTH_SECONDS = READY_SECONDS = 120.0
# A kubelet answers before its managers have read their state files, and ends where it refuses one.
STEADY_SECONDS = 8.0
BETWEEN_SECONDS = 0.5
BETWEEN_REQUESTS = 3.0  # to an API server, which all nodes ask
CLOCK_SECONDS = 1.0  # A report's time is in whole seconds.
LOG_LINES = 5
# With so many processes, one after the other, Restart= will not help.
ENDS = 4


def refused(host: Host, step: Step) -> str:
    """Run the hook, or wait. The reason why it failed; "" where it did not."""
    if step.kind == "hook":
        return run_hook(host, step)
    return wait_until_ready(host, step) if step.name else wait_for_health(host, step)


def run_hook(host: Host, step: Step) -> str:
    """Run the program with its argument. That the node is drained is kept from before that until it has resumed."""
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
    """The hook that has drained the node and not resumed it, and what its failed resume said; empty where there is none, or a torn one."""
    path, end, said = (state.read_text(host, state.DRAINED) or "").partition("\n")
    return (path, said.strip()) if end and path.startswith("/") else ("", "")


def wait_for_health(host: Host, step: Step) -> str:
    """Ask for /healthz until it is 200 for some seconds; when time is up, or the service has ended again and again, its last log lines
    say why it is not.
    """
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
        found = host.processes(f"{cgroup.service_group(host, step.target)}/cgroup.procs")
        processes.update(sorted(map(int, found))[:1])  # The main one: those that it started came later.
        if now - began > HEALTH_SECONDS or len(processes) >= ENDS:
            break
        time.sleep(BETWEEN_SECONDS)
    said = f"status {status}: {text}" if status else text
    return (
        f"{step.target}: not healthy for {now - began:.0f} s{ended(processes)} (http://{step.value}/healthz: {' '.join(said.split())[:200]}); its last "
        f"log lines: {last_lines(host, step.target)}"
    )


def wait_until_ready(host: Host, step: Step) -> str:
    """Ask the API server until the node is Ready by a report of the kubelet that runs now; "" then, else what it said last."""
    from . import kubelet_node, kubelet_ready  # Only a change of a kubelet's configuration asks.

    began = time.monotonic()
    while True:
        found = kubelet_ready.readiness(host, step.value or "", step.name)
        running = kubelet_node.of_unit(host)
        since = (running.began if running else None) or 0.0
        said = found.said or (
            "its kubelet has not reported since it started" if found.reported + CLOCK_SECONDS < since else ""
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
    """How often the service ended, where it did."""
    return f", and it ended {len(processes) - 1} times" if len(processes) > 1 else ""


def last_lines(host: Host, unit: str) -> str:
    """The last lines that a unit's processes logged, on one line; --unit would have systemd's as well."""
    answer = host.run("journalctl", "--no-pager", "--output=cat", f"--lines={LOG_LINES}", f"_SYSTEMD_UNIT={unit}")
    lines = [" ".join(line.split())[:300] for line in answer.out.splitlines() if line.strip()]
    return " | ".join(lines[-LOG_LINES:]) or f"none (journalctl -u {unit})"
