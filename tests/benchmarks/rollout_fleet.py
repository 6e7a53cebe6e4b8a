# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rollout over many hosts costs the controller, against a ping of as many: seconds of CPU and memory for each host.

The hosts are fake nodes (tests/unit/node.py), each in a folder of its own. Ansible sends its modules to them as to any host,
by the connection local: no ssh is counted. What is sent to the interpreter of a host is a module with its arguments. The
modules of this collection and the ping run in one process beside the controller, which keeps the fake nodes and is not measured;
others run in a Python of their own, which is counted. That process runs one module after the other, so ``seconds`` is no time that
a rollout takes. Each row is one run. A task is a result of a host, also of one that runs on the controller alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import typing as t
from pathlib import Path

import bench
import psutil
from fake_fleet import FakeFleet

SIZES = (20, 200)
FORKS = 10
HEAD = ("", "hosts", "tasks", "seconds", "CPU s", "CPU ms/host", "CPU ms/task", "peak MB", "KB/host more")
SAMPLE_SECONDS = 0.2


class Cost(t.NamedTuple):
    """What a command cost: seconds, seconds of CPU with its children's, and the most memory (PSS) of all of them in bytes."""

    seconds: float
    cpu: float
    memory: int
    said: str


def memory_of(pid: int) -> int:
    """The memory of a process and its children, what they share counted once."""
    total = 0
    with contextlib.suppress(psutil.Error):
        main = psutil.Process(pid)
        for one in (main, *main.children(recursive=True)):
            with contextlib.suppress(OSError, StopIteration):  # It ended meanwhile.
                text = Path(f"/proc/{one.pid}/smaps_rollup").read_text(encoding="ascii")
                total += next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))
    return total


def cost(command: t.Sequence[str], environment: t.Mapping[str, str]) -> Cost:
    """Run a command to its end; SystemExit with its last lines if it fails."""
    most, ended = 0, threading.Event()
    before, begin = os.times(), time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as out,
        subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT) as process,
    ):

        def watch() -> None:
            nonlocal most
            while not ended.wait(SAMPLE_SECONDS):
                most = max(most, memory_of(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = process.wait()
        ended.set()
        watcher.join()
        out.seek(0)
        said = out.read()
    if code:
        raise SystemExit("\n".join([f"{command[0]} ended with {code}:", *said.splitlines()[-30:]]))
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(time.monotonic() - begin, cpu, most, said)


def tasks_of(said: str, hosts: t.Collection[str]) -> float:
    """How many tasks had a result, for each host: by the recap, or the one of a ping."""
    counts = [line.partition("ok=")[2].split()[0] for line in said.splitlines() if "ok=" in line and "failed=0" in line]
    return sum(int(count) for count in counts) / len(hosts) if counts else 1.0


def measured(folder: Path, count: int) -> dict[str, tuple[Cost, float]]:
    """What so many hosts cost, and their tasks: of a rollout, of the same again, and of a ping."""
    with FakeFleet(folder, [f"n{number}" for number in range(1, count + 1)]) as fleet:
        inventory = folder / "hosts.json"
        inventory.write_text(json.dumps({"all": {"hosts": fleet.inventory()}}), encoding="utf-8")
        (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "ANSIBLE_COLLECTIONS_PATH": str(bench.CHECKOUT / ".ansible/collections"),
            "ANSIBLE_HOME": str(folder / "home"),
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORKS": str(FORKS),
            "ANSIBLE_INVENTORY_ENABLED": "yaml",
            "PATH": f"{fleet.programs}:{os.environ['PATH']}",
        }
        tools = Path(sys.executable).parent
        rollout = [str(tools / "ansible-playbook"), "-i", str(inventory), "corral.node.rollout"]
        rollout += ["-e", f"corral_profile_file={bench.CHECKOUT / 'examples/edge.yml'}"]
        commands = {
            "rollout": rollout,
            "the same again": rollout,
            "ping": [str(tools / "ansible"), "-i", str(inventory), "all", "-m", "ansible.builtin.ping"],
        }
        found = {}
        for name, command in commands.items():
            bench.progress(f"{count} hosts: {name}")
            one = cost(command, environment)
            found[name] = one, tasks_of(one.said, fleet.hosts)
        wrong = fleet.not_rolled_out()
        if wrong:
            raise SystemExit(f"the rollout changed nothing on {', '.join(wrong)}")
        again = [line for line in found["the same again"][0].said.splitlines() if "ok=" in line]
        if len(again) != count or not all("changed=0 " in line for line in again):
            raise SystemExit("\n".join(["the same again changed something:", *again]))
        return found


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=SIZES, help="how many (default: 20 200)")
    arguments = parser.parse_args()
    bench.header("make bench-rollout-fleet")
    rows: list[list[object]] = []
    least: dict[str, tuple[int, int]] = {}  # the first number of hosts, and its memory
    for count in arguments.hosts:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
            found = measured(Path(folder), count)
        for name, (one, tasks) in found.items():
            first, memory = least.setdefault(name, (count, one.memory))
            more = f"{(one.memory - memory) / (count - first) / 1e3:.0f}" if count > first else "-"
            rows.append([
                name, count, f"{tasks:.1f}", f"{one.seconds:.1f}", f"{one.cpu:.1f}", f"{1000 * one.cpu / count:.0f}",
                f"{1000 * one.cpu / count / tasks:.0f}", f"{one.memory / 1e6:.0f}", more,
            ])  # fmt: skip
    bench.say(bench.table(HEAD, rows))


if __name__ == "__main__":
    main()
