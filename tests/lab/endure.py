# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node whose agent is in sync: what happens to a node in its life, and what the next tick makes of it.

Each trouble is caused, looked at and ended; after that one tick must find the node in sync, or mend it. Timer and path
unit start no tick meanwhile, so that no other one is taken for ours. With names of troubles it takes those alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import signal
import subprocess
import sys
import time
import typing as t

import stale
import way_back
from cpu_list import cpus
from on_node import (
    LOCK,
    PATIENCE,
    SERVICE,
    expect,
    in_sync,
    read,
    run,
    run_step,
    select_steps,
    status,
    tick,
    wait,
    without_timer,
    write,
)

CGROUP = "/sys/fs/cgroup"
PID_MAX = "/proc/sys/kernel/pid_max"
ORIGINS = "/etc/corral/origins.json"
POOL = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"


# CPUs


def effective(unit: str) -> frozenset[int]:
    return cpus(read(f"{CGROUP}/{unit}/cpuset.cpus.effective"))


def cpus_offline_and_online() -> None:
    """An isolated and a shared CPU go offline and come back: no pool gets other CPUs meanwhile, and all is as it was."""
    slices = ("system.slice", "corral.slice", "corral_isolated.slice")
    before = [effective(one) for one in slices]
    gone = (7, 3)
    for cpu in gone:
        write(f"/sys/devices/system/cpu/cpu{cpu}/online", "0")
    said = tick()
    print(f"  CPUs {gone} offline: {said['error'] or [item['reason'] for item in said['items']] or 'in sync'}")
    expect("with these CPUs offline", [effective(one) for one in slices], [cpus.difference(gone) for cpus in before])
    for cpu in gone:
        write(f"/sys/devices/system/cpu/cpu{cpu}/online", "1")
    in_sync()
    expect(f"after CPUs {gone} came back", [effective(one) for one in slices], before)


# Python


def python_upgraded() -> None:
    """The compiled files of a new Python are not there: the next tick makes them, once."""
    folder = os.path.dirname(os.path.realpath("/usr/libexec/corral/corral"))

    def compiled() -> dict[str, int]:
        found = glob.glob(f"{folder}/**/*.{sys.implementation.cache_tag}.pyc", recursive=True)
        return {path: os.stat(path).st_mtime_ns for path in found}

    needed = set()
    for path in compiled():
        os.rename(path, path.replace(sys.implementation.cache_tag or "", "cpython-00"))
        needed.add(path)
    in_sync()
    made = compiled()
    if not made or not set(made) <= needed:
        raise AssertionError(f"made {sorted(made)}")
    in_sync()
    run("systemctl", "restart", "corral-boot.service")
    expect("compiled again", {path: compiled()[path] for path in made}, made)
    for path in glob.glob(f"{folder}/**/*.cpython-00.pyc", recursive=True):
        os.rename(path, path.replace("cpython-00", sys.implementation.cache_tag or ""))


# Time


def clock() -> None:
    """The clock jumps forth by ten years and back by eleven: drift is mended at once."""
    begin, monotonic = time.time(), time.monotonic()
    try:
        for jump in (10 * 365 * 86400, -365 * 86400):
            time.clock_settime(time.CLOCK_REALTIME, begin + jump)
            write(PID_MAX, "100000")
            write(POOL, "5")
            said = tick()
            expect("pid_max", read(PID_MAX), "65536")
            expect("hugepages", read(POOL), "32")
            if abs(said["time"] - time.time()) > 100:
                raise AssertionError(f"status.json is of {said['time']}, now it is {time.time()}")
    finally:
        time.clock_settime(time.CLOCK_REALTIME, begin + time.monotonic() - monotonic)


# Full disks


@contextlib.contextmanager
def full(folder: str) -> t.Iterator[None]:
    """A file system without a free block. Memory is made scarce first: filling it is slow where a machine is emulated."""
    filler = f"{folder}/filler"
    state = os.statvfs(folder)
    in_memory, size = os.path.ismount(folder), state.f_blocks * state.f_frsize
    try:
        if in_memory:
            resize(folder, (state.f_blocks - state.f_bfree) * state.f_frsize + (1 << 20))
            state = os.statvfs(folder)
        with contextlib.suppress(OSError), open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, state.f_frsize * (state.f_bavail or 1))
        with contextlib.suppress(OSError), open(filler, "ab") as file:
            while True:
                file.write(b"\0" * 4096)
                file.flush()
        with contextlib.suppress(OSError), open(f"{filler}2", "wb", buffering=0) as file:
            while True:
                file.write(b"\0")
        yield
    finally:
        for path in (filler, f"{filler}2"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
        if in_memory:
            resize(folder, size)


def resize(folder: str, size: int) -> None:
    run("mount", "-o", f"remount,size={size}", folder)


def told_of_no_room() -> int:
    """How many lines of the agent in the journal say so."""
    words = ("journalctl", "--unit", SERVICE, "--output=cat", "--quiet", "--no-pager")
    return run(*words, code=None).count("No space left on device")


def disk_full() -> None:
    """No room on the root file system (with /var and /etc), then in /run: what is tampered with is mended when there is."""
    dropin = "/etc/systemd/system/user.slice.d/10-corral-cpu.conf"
    # The journal is in /run: a new file has room for lines from its beginning, an old one may have to grow.
    run("journalctl", "--rotate")
    for folder in ("/var", "/run"):
        text = read(dropin)
        os.remove(dropin)
        told = told_of_no_room()
        with full(folder):
            write(PID_MAX, "100000")
            run("systemctl", "start", SERVICE, code=None)
            # The journal's own process writes down what a tick has said, and may do so after that has ended.
            wait(f"{folder} full: a line in the journal", lambda told=told: told_of_no_room() > told, pause=1)
        in_sync()
        expect(f"{dropin} after {folder} was full", read(dropin), text)
        expect("pid_max", read(PID_MAX), "65536")
        left = [path for tree in ("/etc/systemd", "/etc/corral", "/var/lib/corral", "/run/corral", "/run/systemd/system.control")
                for path in glob.glob(f"{tree}/**/.*.corral", recursive=True)]  # fmt: skip
        expect("left behind", left, [])


# One writer


def lock_of_a_killed_holder() -> None:
    """The holder of the lock is killed: the next tick does not wait for it."""
    holder = subprocess.Popen(
        [sys.executable, "-c", "import fcntl,time; f=open('/run/corral/lock'); fcntl.flock(f,2); print(1,flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    (holder.stdout or sys.stdin).readline()
    write(PID_MAX, "100000")
    run("systemctl", "start", SERVICE, code=None)
    expect("pid_max while another process holds the lock", read(PID_MAX), "100000")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    in_sync()
    expect("pid_max once the holder was killed", read(PID_MAX), "65536")


def two_at_once() -> None:
    """Two ticks and a reconcile by hand begin in one instant: one works, others wait or yield, none fails."""
    with open(LOCK, encoding="ascii") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        write(PID_MAX, "100000")
        ticking = ["/usr/bin/python3", "-I", "-S", "-B", "/usr/libexec/corral/corral", "reconcile"]
        waiting = [subprocess.Popen(["corral", "reconcile", "--json"], stdout=subprocess.PIPE) for dummy in range(2)]
        yielding = [subprocess.Popen([*ticking, "--tick"]) for dummy in range(2)]
        expect("ticks that find the lock taken", [one.wait(60 * PATIENCE) for one in yielding], [0, 0])
        expect("pid_max while the lock is taken", read(PID_MAX), "100000")
    said = [json.loads(one.communicate(timeout=120 * PATIENCE)[0]) for one in waiting]
    expect("two by hand: one mends, one finds it mended", sorted(len(one["changed"]) for one in said), [0, 1])
    expect("exit codes", [one.returncode for one in waiting], [0, 0])
    expect("in sync, as they published it", status()["in_sync"], True)


def reexec() -> None:
    """systemd re-executes itself: every value holds without a tick."""
    values = [f"{CGROUP}/{unit}/{name}" for unit in ("system.slice", "init.scope", "corral_isolated.slice")
              for name in ("cpuset.cpus.effective", "pids.max")]  # fmt: skip
    before = [read(path) for path in values]
    for verb in ("daemon-reload", "daemon-reexec"):
        run("systemctl", verb)
        expect(f"after {verb}", [read(path) for path in values], before)
    run("corral", "drift")


def timer_after_a_jump() -> None:
    """The timer, as it is installed, goes on to tick while the clock jumps."""
    begin, monotonic = time.time(), time.monotonic()
    try:
        for jump in (86400, -86400):
            time.clock_settime(time.CLOCK_REALTIME, begin + jump)
            last = status()["time"]
            wait(f"a tick after a jump by {jump} s", lambda last=last: status()["time"] != last)
    finally:
        time.clock_settime(time.CLOCK_REALTIME, begin + time.monotonic() - monotonic)


# Pull mode


def pulled_profile() -> None:
    """A profile that is put into its file stays once its own command succeeds, and goes back where that does not."""
    text, before = read(way_back.DECLARED), read(PID_MAX)
    with open(ORIGINS, encoding="utf-8") as file:
        origins = file.read()
    healthy = "/run/lab-healthy"
    command = {"command": ["/usr/bin/test", "-e", healthy], "timeout": "1d"}

    def pull(pid_max: int) -> None:
        data = json.loads(text)
        data["confirm"] = command
        data["pids"] = {**data.get("pids", {}), "pid_max": pid_max}
        write(way_back.DECLARED, json.dumps(data))
        tick()
        expect("the limit that was pulled", read(PID_MAX), str(pid_max))
        expect("it waits", os.path.exists(way_back.UNCONFIRMED), True)

    def asked() -> int:
        done = "test: exit code 1"
        return run("journalctl", "--boot", "--quiet", f"--unit={way_back.CONFIRM}", "--output=cat").count(done)

    kept = int(before) + 1
    try:
        pull(kept)
        wait("the command is asked", lambda: asked() > 0)
        expect("it waits still", os.path.exists(way_back.UNCONFIRMED), True)
        write(healthy, "")
        wait("it is confirmed", lambda: not os.path.exists(way_back.UNCONFIRMED))
        expect("the limit stays", read(PID_MAX), str(kept))
        os.unlink(healthy)
        pull(kept + 1)
        way_back.let_it_be_over()
        wait("the node goes back", lambda: not os.path.exists(way_back.UNCONFIRMED), 120)
        expect("the limit before", read(PID_MAX), str(kept))
        expect("the profile before", json.loads(read(way_back.DECLARED))["pids"]["pid_max"], kept)
        in_sync()
    finally:
        write(way_back.DECLARED, text)
        run("corral", "reconcile")
        write(ORIGINS, origins)  # A profile that goes back has those of its own, and this one had none.
        os.chmod(ORIGINS, 0o600)
    expect("the limit at first", read(PID_MAX), before)


TROUBLES = (
    reexec,
    cpus_offline_and_online,
    python_upgraded,
    clock,
    disk_full,
    lock_of_a_killed_holder,
    two_at_once,
    pulled_profile,
    *stale.STEPS,
)
BY_THE_TIMER = (timer_after_a_jump,)


def main(names: t.Sequence[str]) -> int:
    taken = select_steps((*TROUBLES, *BY_THE_TIMER), names)
    with without_timer():
        passed = [run_step(trouble) for trouble in TROUBLES if trouble in taken]
    passed += [run_step(trouble) for trouble in BY_THE_TIMER if trouble in taken]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
