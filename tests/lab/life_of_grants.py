# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node whose profile has the workload life with two CPUs of its own while it runs: the life of a unit, and that of its grant.

Each row of the table causes what can happen to a start or to a run. After the next tick nothing is left of a grant without a run, by the
checkpoint, by systemd and by the CPUs that the kernel gives to all others; and each process that ran had the CPUs of a grant at its first
instruction. With names of rows as arguments it takes those alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
import typing as t

from cpu_list import cpus
from on_node import expect, in_sync, read, run, run_steps, select_steps, tick, wait, write
from workloads import CGROUP, ETC, SHARED, first, forget_first, grants, main_pid, sets

UNIT = "life.service"
HOLDER = "corral-grant@life.service"
DECLARED = "dataplane.service"
ATTEMPTS = "/run/corral/attempts.json"
DROPIN = f"{ETC}/{UNIT}.d/50-life.conf"
TEXT = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/usr/local/bin/spin life\n"
SLOW = "slow.service"
WAITS = f"[Unit]\nWants={SLOW}\nAfter={SLOW}\n"
OTHERS = {
    SLOW: "[Service]\nType=oneshot\nExecStart=/bin/sleep 3600\n",
    "fails.service": "[Service]\nType=oneshot\nExecStart=/bin/false\n",
}
FREE: dict[str, frozenset[int]] = {}


def systemctl(*words: str, code: t.Optional[int] = 0) -> str:
    return run("systemctl", *words, code=code).strip()


def state(unit: str) -> str:
    return systemctl("is-active", unit, code=None)


def with_lines(text: str, file: str = DROPIN) -> None:
    os.makedirs(os.path.dirname(file), exist_ok=True)
    write(file, text)
    systemctl("daemon-reload")


def over(what: str) -> None:
    """Nothing is left of a grant, soon after a tick."""
    if "life" in grants():
        tick()
    wait(f"{what}: the grant has ended", lambda: "life" not in grants())
    wait(f"{what}: {HOLDER} has stopped", lambda: state(HOLDER) in ("inactive", "failed"))
    wait(f"{what}: no job is left", lambda: "life" not in systemctl("list-jobs"))
    wait(f"{what}: all others have the shared CPUs", lambda: sets(SHARED) == FREE["shared"])
    expect(f"{what}: the file that lets it start", os.path.exists("/run/corral/granted-life"), False)


def has_grant(what: str) -> None:
    """It runs on CPUs of its own since its first instruction."""
    wait(f"{what}: it runs", lambda: os.path.exists("/run/first-life"))
    own = frozenset(first("life")[0])
    expect(f"{what}: it has CPUs of its own", (len(own), own & sets(SHARED)), (2, frozenset()))
    expect(f"{what}: its grant", "life" in grants(), True)


def runs(what: str) -> None:
    """A real start has a grant, and its stop gives it back."""
    forget_first()
    systemctl("start", UNIT)
    has_grant(what)
    systemctl("stop", UNIT)
    over(f"{what}, stopped")


def waiting() -> None:
    """A start whose grant was made, and that waits for another unit."""
    with_lines(WAITS)
    systemctl("start", "--no-block", UNIT)
    wait("the grant is made", lambda: os.path.exists("/run/corral/granted-life"))
    tick()
    expect("it keeps what it waits with", ("life" in grants(), state(UNIT)), (True, "inactive"))


def refused(text: str) -> t.Callable[[], None]:
    def act() -> None:
        with_lines(text)
        systemctl("start", UNIT, code=None)
        expect("it does not run", main_pid(UNIT), "0")

    return act


def cancelled(*words: str) -> t.Callable[[], None]:
    def act() -> None:
        waiting()
        systemctl(*words, code=None)

    return act


def cancelled_before() -> None:
    """While its grant is being made."""
    with_lines(WAITS)
    for words in (("stop", UNIT), ("cancel",)):
        systemctl("start", "--no-block", UNIT)
        wait("its grant is asked for", lambda: state(HOLDER) == "activating", pause=0.02)
        systemctl(*words, code=None)
        over(words[0])


def job_ended() -> None:
    with_lines(f"{WAITS}JobTimeoutSec=4\n")
    systemctl("start", UNIT, code=None)


def mask(unit: str) -> None:
    """Its file is in /etc, where `systemctl mask` masks none."""
    os.rename(f"{ETC}/{unit}", f"{ETC}/{unit}.kept")
    os.symlink("/dev/null", f"{ETC}/{unit}")
    systemctl("daemon-reload")


def unmask(unit: str) -> None:
    os.replace(f"{ETC}/{unit}.kept", f"{ETC}/{unit}")
    systemctl("daemon-reload")


def masked() -> None:
    waiting()
    mask(UNIT)
    systemctl("stop", UNIT, code=None)
    systemctl("start", UNIT, code=None)
    expect("it does not run", main_pid(UNIT), "0")
    tick()
    over("masked")
    unmask(UNIT)


def deleted() -> None:
    waiting()
    os.remove(f"{ETC}/{UNIT}")
    systemctl("stop", UNIT, code=None)
    systemctl("daemon-reload")
    tick()
    over("deleted")
    write(f"{ETC}/{UNIT}", TEXT)


def start_limit() -> None:
    with_lines(
        "[Unit]\nStartLimitIntervalSec=60\nStartLimitBurst=2\n[Service]\nRestart=always\nRestartSec=100ms\nExecStart=\nExecStart=/bin/false\n"
    )
    systemctl("start", UNIT, code=None)
    wait("it has failed", lambda: state(UNIT) == "failed")
    systemctl("start", UNIT, code=None)
    over("at its limit")
    systemctl("reset-failed", UNIT)


def killed() -> None:
    with_lines("")
    forget_first()
    systemctl("start", UNIT)
    has_grant("before it is killed")
    systemctl("kill", "--signal=KILL", UNIT)
    wait("it has failed", lambda: state(UNIT) == "failed")
    systemctl("reset-failed", UNIT)


def restarts() -> None:
    """By Restart=, by hand, after a release while it runs, and over a daemon-reexec: it never runs without a grant."""
    with_lines("[Service]\nRestart=always\nRestartSec=100ms\n")
    systemctl("start", UNIT)
    for how in (
        "Restart=",
        "a restart",
        "Restart= after a release",
        "a restart after a release",
        "a restart after daemon-reexec",
    ):
        if "release" in how:
            run("corral", "release", "life")
        if "reexec" in how:
            systemctl("daemon-reexec")
        before = main_pid(UNIT)
        forget_first()
        if how.startswith("Restart="):
            systemctl("kill", "--signal=KILL", UNIT)
        else:
            systemctl("restart", UNIT)
        has_grant(how)
        expect(f"{how}: it is another process", main_pid(UNIT) != before, True)
    systemctl("stop", UNIT)


def released_and_started() -> None:
    """The unit that holds grants may be active still, and nothing is admitted by it then."""
    waiting()
    systemctl("stop", UNIT, SLOW)
    os.remove(DROPIN)
    run("corral", "release", "life")
    forget_first()
    systemctl("start", UNIT)
    has_grant("after a release")
    systemctl("stop", UNIT)


def released_while_it_waits() -> None:
    waiting()
    run("corral", "release", "life")
    systemctl("stop", SLOW)
    wait("its job has ended", lambda: UNIT not in systemctl("list-jobs"))
    expect("it does not run", main_pid(UNIT), "0")
    tick()


def without_dependencies() -> None:
    with_lines("")
    systemctl("start", "--job-mode=ignore-dependencies", UNIT, code=None)
    expect("it does not run", main_pid(UNIT), "0")


def odd_names() -> None:
    """Instances whose names no slice or holder can have; systemd ignores dependencies and assertions that are too long."""
    for name in ("a@b", "x" * 236):
        systemctl("start", f"batch@{name}", code=None)
        expect(f"{name} does not run", main_pid(f"batch@{name}"), "0")
    tick()
    expect("no slice is left", [one for one in os.listdir(CGROUP) if one.startswith("corral_batch")], [])


def others_start() -> None:
    """A start that needs the CPUs which a cancelled one has waits for no tick."""
    waiting()
    systemctl("stop", UNIT)
    systemctl("start", "batch@1")
    expect("grants", sorted(grants().keys() & {"life", "batch:batch@1"}), ["batch:batch@1"])
    systemctl("stop", "batch@1")


def item_of_life() -> dict[str, t.Any]:
    """The item that a tick has of the place of the unit."""
    (found,) = [one for one in tick()["items"] if one["manager"] == "workloads"]
    expect("it is about", found["subject"], UNIT)
    return t.cast("dict[str, t.Any]", found)


def group_of(unit: str) -> str:
    return read(f"/proc/{main_pid(unit)}/cgroup")[len("0::/") :]


def moved_by_hand() -> None:
    """Out of its slice: the kernel lets it run elsewhere, and for systemd it is active."""
    with_lines("")
    systemctl("start", UNIT)
    has_grant("before it is moved")
    pid = main_pid(UNIT)
    write(f"{CGROUP}/cgroup.procs", pid)
    expect("it runs", (state(UNIT), main_pid(UNIT), group_of(UNIT)), ("active", pid, ""))
    expect("its slice", "populated 0" in read(f"{CGROUP}/corral_life.slice/cgroup.events"), True)
    expect("it is named", item_of_life()["actual"], f"the root (PID {pid} spin)")
    expect("its grant", "life" in grants(), True)
    systemctl("restart", UNIT)
    in_sync()
    systemctl("stop", UNIT)


def placed_elsewhere() -> None:
    """By a later drop-in: no restart helps while it is there."""
    with_lines("")
    late = f"{ETC}/{UNIT}.d/99-place.conf"
    write(late, "[Service]\nSlice=other.slice\n")
    systemctl("daemon-reload")
    for verb in ("start", "restart"):
        systemctl(verb, UNIT)
        expect("where it runs", group_of(UNIT), f"other.slice/{UNIT}")
        expect("the file is named", item_of_life()["reason"].partition(" ")[0], late)
    os.remove(late)
    systemctl("daemon-reload")
    systemctl("restart", UNIT)
    expect("where it runs", group_of(UNIT), f"corral_life.slice/{UNIT}")
    in_sync()
    systemctl("stop", UNIT)


def declared() -> None:
    """With hold: declared a grant outlives whatever becomes of the unit, which has its CPUs at each start."""
    file = f"{ETC}/{DECLARED}.d/50-life.conf"
    before = grants()["dataplane"]

    def stays(what: str, *, starts: bool) -> None:
        forget_first()
        systemctl("restart", DECLARED, code=None)
        expect(f"{what}: it runs", main_pid(DECLARED) != "0", starts)
        if starts:
            wait(f"{what}: it began", lambda: os.path.exists("/run/first-dataplane"))
            expect(f"{what}: its CPUs", frozenset(first("dataplane")[0]), cpus(before["cpus"]))
        tick()
        expect(f"{what}: its grant", grants()["dataplane"], before)

    for line in (
        "ConditionPathExists=/nowhere",
        "AssertPathExists=/nowhere",
        "Requires=fails.service\nAfter=fails.service",
    ):
        with_lines(f"[Unit]\n{line}\n", file)
        stays(line.partition("=")[0], starts=False)
    os.remove(file)
    systemctl("stop", DECLARED)
    mask(DECLARED)
    stays("masked", starts=False)
    unmask(DECLARED)
    stays("unmasked", starts=True)
    systemctl("kill", "--signal=KILL", DECLARED)
    wait("it has failed", lambda: state(DECLARED) == "failed")
    tick()
    expect("killed: its grant", grants()["dataplane"], before)
    systemctl("daemon-reexec")
    stays("after daemon-reexec", starts=True)


def refused_once() -> None:
    """A partition that the kernel refused, and that is in force again, is mended at the first tick after a later fault."""
    with_lines("")
    systemctl("start", UNIT)
    has_grant("before the fault")
    group, own = f"{CGROUP}/stranger", f"{CGROUP}/corral_life.slice"
    file = f"{own}/cpuset.cpus.partition"

    def attempts() -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads(read(ATTEMPTS))) if os.path.exists(ATTEMPTS) else {}

    def refused() -> None:
        write(ATTEMPTS, json.dumps({**attempts(), file: [1, 0, time.time()]}))

    refused()
    tick()
    expect("it is seen in force", (read(file), file in attempts()), ("root", False))
    os.mkdir(group)
    write(f"{group}/cpuset.cpus", read(f"{own}/cpuset.cpus"))
    os.rmdir(group)
    expect("a later fault", "invalid" in read(file), True)
    tick()
    expect("it is mended", read(file), "root")
    refused()
    systemctl("stop", UNIT)
    wait("its slice is gone", lambda: not os.path.exists(own))
    systemctl("start", UNIT)
    expect("a new run is not held to it", (read(file), file in attempts()), ("root", False))
    systemctl("stop", UNIT)


ROWS: dict[str, t.Callable[[], None]] = {
    "condition": refused("[Unit]\nConditionPathExists=/nowhere\n"),
    "assert": refused("[Unit]\nAssertPathExists=/nowhere\n"),
    "dependency": refused("[Unit]\nRequires=fails.service\nAfter=fails.service\n"),
    "stopped": cancelled("stop", UNIT),
    "cancelled": cancelled("cancel"),
    "cancelled_before": cancelled_before,
    "job_timeout": job_ended,
    "masked": masked,
    "deleted": deleted,
    "start_limit": start_limit,
    "killed": killed,
    "restarts": restarts,
    "released_and_started": released_and_started,
    "released_while_it_waits": released_while_it_waits,
    "without_dependencies": without_dependencies,
    "others_start": others_start,
    "moved_by_hand": moved_by_hand,
    "placed_elsewhere": placed_elsewhere,
    "declared": declared,
    "refused_once": refused_once,
    "odd_names": odd_names,
}


def row(name: str) -> t.Callable[[], None]:
    """The step of a row."""

    def step() -> None:
        ROWS[name]()
        over(name)
        systemctl("stop", SLOW)
        with_lines("")
        if name in ("condition", "stopped", "masked", "deleted", "start_limit"):
            runs(f"after {name}")

    step.__name__ = name
    return step


def before_soft_reboot() -> None:
    """A run that nothing starts again, on the CPUs that batch gets afterwards, which is enabled."""
    write(f"{ETC}/{UNIT}", TEXT)
    with_lines("")
    forget_first()
    systemctl("stop", "batch@1")
    systemctl("start", UNIT)
    has_grant("before a soft reboot")
    forget_first()


def after_soft_reboot() -> None:
    """The kernel, the boot's id and /run are those of before."""
    wait("it has ended", lambda: main_pid(UNIT) == "0")
    tick()
    wait("its grant has ended", lambda: "life" not in grants())
    wait("its holder has stopped", lambda: state(HOLDER) == "inactive")
    wait("batch runs", lambda: os.path.exists("/run/first-batch-1"))
    expect("batch has its grant", frozenset(first("batch-1")[0]), cpus(grants()["batch:batch@1"]["cpus"]))
    os.remove(DROPIN)
    os.remove(f"{ETC}/{UNIT}")
    systemctl("daemon-reload")


def main(names: list[str]) -> int:
    if names in (["before_soft_reboot"], ["after_soft_reboot"]):
        return run_steps([before_soft_reboot if "before" in names[0] else after_soft_reboot])
    kept = {name: one for name, one in grants().items() if one["hold"] == "declared"}
    systemctl("stop", "batch@1")
    wait("runs have given back what they had", lambda: not grants().keys() & {"life", "batch:batch@1"})
    tick()
    FREE["shared"] = sets(SHARED)
    for unit, text in {UNIT: TEXT, **OTHERS}.items():
        write(f"{ETC}/{unit}", text)
    with_lines("")
    try:
        failed = run_steps(select_steps([row(name) for name in ROWS], names))
        if failed:
            return failed
    finally:
        systemctl("stop", UNIT, SLOW, code=None)
        for file in (DROPIN, *(f"{ETC}/{unit}" for unit in (UNIT, *OTHERS))):
            os.remove(file)
        systemctl("daemon-reload")
    expect("what is declared stays", {name: one for name, one in grants().items() if name in kept}, kept)
    systemctl("start", "batch@1")
    print(f"{len(names or ROWS)} rows: no grant was left over, and nothing started without one")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
