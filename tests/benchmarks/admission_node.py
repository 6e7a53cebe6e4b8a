# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the lab's node with the agent: starts and stops services that have two CPUs of their own, TURNS times.

One has them while it runs, the other one always, by turns with an equal service that Corral does not know. The
reconciler's own units are off meanwhile. On stdout: JSON with lists of seconds. ``plain`` and ``start`` are whole
``systemctl start``s, ``python`` is one of an equal service with an empty Python before it, ``held`` one of an equal service
that requires another one as a workload requires what holds its grant, in a slice of its own, ``kept`` one of the service
whose CPUs are always its own, ``load`` is a Python that loads what an admission needs and ends, ``back`` is from
``systemctl stop`` until the shared pool has its CPUs again. Then the same admission and release in this process, with every
step and its read-back timed: ``admit`` and ``release`` as a whole, ``…_steps`` from the first write to the last read-back,
``…_cpus`` from the first to the last step that moves CPUs. The node keeps the profile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import typing as t

PROGRAM = os.path.dirname(os.path.realpath("/usr/libexec/corral/corral"))
sys.path.insert(0, PROGRAM)
sys.dont_write_bytecode = True

SHARED = "/sys/fs/cgroup/corral.slice/cpuset.cpus.effective"
RECONCILER = ("corral-reconcile.timer", "corral-reconcile.path")
NAME, KEPT_NAME = "lane", "kept"
LANE, KEPT, PLAIN, PYTHON = f"{NAME}.service", f"{KEPT_NAME}.service", "plain.service", "plain-python.service"
HELD, HOLDER = "plain-held.service", "plain-holder.service"
EMPTY = ["/usr/bin/python3", "-I", "-c"]
LOAD = f"import sys; sys.path.insert(0, '{PROGRAM}'); sys.dont_write_bytecode = True; import _core.cli.grant_service, _core.host.sd_bus"
UNIT = "[Service]\nType=exec\nExecStart=/usr/bin/sleep infinity\n"
# As corral-grant@.service, with programs that do nothing.
HOLDER_TEXT = """[Unit]
StopWhenUnneeded=yes
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStopPost=/bin/true
"""
LIMIT = 60.0  # s

# Beside what the node declares; see examples/workloads.yml.
CPU = {"reserved": {"cpus": "0-1"}, "policy": "static", "options": {"full-pcpus-only": True}}
WORKLOAD = {
    "name": NAME,
    "match": {"unit": LANE},
    "hold": "running",
    "limits": {"cpu": "2", "memory": "64Mi"},
}
KEPT_WORKLOAD = {**WORKLOAD, "name": KEPT_NAME, "match": {"unit": KEPT}, "hold": "declared"}
SECTIONS = {"cpu": CPU, "topology": {"policy": "single-numa-node"}, "workloads": [WORKLOAD, KEPT_WORKLOAD]}

Times = dict[str, list[float]]


def systemctl(*words: str) -> None:
    subprocess.run(["systemctl", *words], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def seconds(work: t.Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def shared() -> str:
    with open(SHARED, encoding="ascii") as file:
        return file.read().strip()


def check_kept() -> None:
    """The service whose CPUs are always its own runs on two, and they are its partition's."""
    place = subprocess.run(
        ["systemctl", "show", "-P", "ControlGroup", KEPT], check=True, capture_output=True, text=True
    )
    top = place.stdout.strip().split("/")[1]
    with open(f"/sys/fs/cgroup/{top}/cpuset.cpus.partition", encoding="ascii") as file:
        partition = file.read().strip()
    pid = subprocess.run(["systemctl", "show", "-P", "MainPID", KEPT], check=True, capture_output=True, text=True)
    cpus = os.sched_getaffinity(int(pid.stdout))
    if (top, partition, len(cpus)) != (f"corral_{KEPT_NAME}.slice", "root", 2):
        raise SystemExit(f"{KEPT} runs in {top}, {partition}, on {sorted(cpus)}")


def stopped(before: str) -> None:
    """Stop the service and wait until the shared pool has its CPUs again."""
    systemctl("stop", LANE)
    deadline = time.monotonic() + LIMIT
    while shared() != before:
        if time.monotonic() > deadline:
            raise SystemExit(f"the shared pool has {shared()} {LIMIT:.0f} s after the stop, not {before}")
        time.sleep(0.005)


def declare(host: t.Any, data: t.Mapping[str, t.Any]) -> None:
    from _core.model.profile import profile
    from _core.pipeline import applying, locked_run

    # A tick may run that began before its timer was stopped.
    outcome = locked_run.locked(host, lambda: applying.declare(host, profile.parse(data)), wait=LIMIT)
    if outcome.error or outcome.remaining:
        raise SystemExit(outcome.error or f"drift is left: {outcome.remaining}")


def timed_steps(work: t.Callable[[], object]) -> dict[str, float]:
    """How long all of the work took, from its first step to the end of the last one, and the same of those of CPUs."""
    from _core.host.plan import apply_step
    from _core.model.plan.plan import CPUS

    steps: list[tuple[int, float, float]] = []
    perform = apply_step.perform

    def timed(host: t.Any, step: t.Any, masks: t.Any = None) -> None:
        begin = time.monotonic()
        perform(host, step, masks)
        steps.append((step.phase, begin, time.monotonic()))

    apply_step.perform = timed
    try:
        whole = seconds(work)
    finally:
        apply_step.perform = perform
    moves = [step for step in steps if step[0] == CPUS]
    if not moves:
        raise SystemExit("no CPUs moved")
    return {"": whole, "_steps": steps[-1][2] - steps[0][1], "_cpus": moves[-1][2] - moves[0][1]}


def in_process(host: t.Any, found: Times) -> None:
    """One admission and one release, step by step."""
    from _core.pipeline import admit_workload

    for name, work in (
        ("admit", lambda: admit_workload.start(host, NAME, "")),
        ("release", lambda: admit_workload.stop(host, NAME, "")),
    ):
        for part, taken in timed_steps(work).items():
            found.setdefault(f"{name}{part}", []).append(taken)


def main(turns: int) -> int:
    from _core.host.files import Host
    from _core.model.profile import profile
    from _core.pipeline import declared_profile

    host = Host()
    declared = declared_profile.read_declared(host)
    if declared is None:
        raise SystemExit("no profile is declared here")
    data = profile.to_data(declared)
    for unit, before in ((LANE, ""), (KEPT, ""), (PLAIN, ""), (PYTHON, f"ExecStartPre={' '.join(EMPTY)} pass\n")):
        host.write_file(f"/etc/systemd/system/{unit}", UNIT + before)
    held = f"[Unit]\nRequires={HOLDER}\nAfter={HOLDER}\n{UNIT}Slice=plainheld.slice\n"
    for unit, text in ((HELD, held), (HOLDER, HOLDER_TEXT)):
        host.write_file(f"/etc/systemd/system/{unit}", text)
    systemctl("daemon-reload")
    systemctl("stop", *RECONCILER)
    found: Times = {}
    try:
        declare(host, {**data, **SECTIONS})
        before = shared()
        for dummy in range(turns):
            for name, work in (
                ("plain", lambda: systemctl("start", PLAIN)),
                ("plain_stop", lambda: systemctl("stop", PLAIN)),
                ("python", lambda: systemctl("start", PYTHON)),
                ("held", lambda: systemctl("start", HELD)),
                ("kept", lambda: systemctl("start", KEPT)),
                ("kept_stop", lambda: systemctl("stop", KEPT)),
                ("load", lambda: subprocess.run([*EMPTY, LOAD], check=True)),
                ("start", lambda: systemctl("start", LANE)),
                ("back", lambda: stopped(before)),
            ):
                found.setdefault(name, []).append(seconds(work))
                if name == "kept":
                    check_kept()
            systemctl("stop", PYTHON, HELD, HOLDER)
            # As systemd does it before it starts what holds the grant.
            systemctl("start", f"corral_{NAME}.slice")
            in_process(host, found)
    finally:
        for unit in (LANE, KEPT, PLAIN, PYTHON, HELD, HOLDER):
            systemctl("stop", unit)
            os.unlink(f"/etc/systemd/system/{unit}")
        systemctl("daemon-reload")
        systemctl("start", *RECONCILER)
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))
