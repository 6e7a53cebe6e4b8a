# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The benchmarks' virtual node, and playbooks on it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import bench
import setup

NODE = "corral-bench"
LAB = bench.CHECKOUT / "lab" / "lab"
REQUIREMENTS = bench.HERE / "requirements.txt"
RUN_LIMIT = 900  # s
RECAP = re.compile(r"ok=(\d+)\s+changed=(\d+)\s+unreachable=0\s+failed=0\s+skipped=(\d+)")


class Play(t.NamedTuple):
    """One run of a playbook: wall-clock seconds of the whole command, tasks (skipped ones too), and how many changed."""

    seconds: float
    tasks: int
    changed: int
    output: str


class Failed(Exception):
    """A playbook that did not end well."""


def tools() -> Path:
    """A venv with ansible-core and ansible.posix, in the cache: made once for each state of requirements.txt."""
    cache = Path(os.environ.get("CORRAL_CACHE") or Path.home() / ".cache" / "corral") / "benchmarks"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    place = cache / wanted
    if not (place / "ready").is_file():
        bench.progress(f"making {place} with the package ansible (60 MB from PyPI)")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)
        (place / "ready").touch()
    return place


def lab(*words: str) -> None:
    """Run the lab; what it says is progress."""
    subprocess.run([str(LAB), *words], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True)


@contextlib.contextmanager
def node(folder: Path) -> t.Iterator[Path]:
    """The node as its saved state has it; yields its inventory. It ends on every way out."""
    inventory = folder / "hosts.yml"
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        lab("up", NODE)
        lab("inventory", NODE, "--output", str(inventory))
        yield inventory
    finally:
        lab("down", NODE)


def play(venv: Path, inventory: Path, name: str, *options: str) -> Play:
    """Run a playbook. Raises Failed with its output."""
    command = [str(venv / "bin" / "ansible-playbook"), "--inventory", str(inventory), *options]
    command.append(str(bench.HERE / "playbooks" / f"{name}.yml"))
    environment = {**setup.environment(), "ANSIBLE_NOCOLOR": "1"}
    # A file: the connection that ControlPersist leaves open would hold a pipe.
    with tempfile.TemporaryFile("w+") as out:
        begin = time.perf_counter()
        done = subprocess.run(
            command, cwd=bench.CHECKOUT, env=environment, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, timeout=RUN_LIMIT, check=False,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        out.seek(0)
        output = out.read()
    recap = RECAP.search(output)
    if done.returncode != 0 or recap is None:
        raise Failed(f"{name}.yml ended with {done.returncode}:\n{output}")
    ok, changed, skipped = map(int, recap.groups())
    bench.progress(f"{name}: {seconds:.1f} s, {ok + skipped} tasks, {changed} changed")
    return Play(seconds, ok + skipped, changed, output)


def script(path: Path, turns: int) -> tuple[int, dict[str, t.Any]]:
    """Run a script on the node: its exit code, and the JSON that it prints. Raises RuntimeError without any."""
    words = [str(LAB), "ssh", NODE, "python3", "-", str(turns)]
    with path.open() as text, tempfile.TemporaryFile("w+") as out:
        done = subprocess.run(words, stdin=text, stdout=out, timeout=RUN_LIMIT, check=False)
        out.seek(0)
        output = out.read()
    if not output.startswith("{"):
        raise RuntimeError(f"{path.name} on the node ended with {done.returncode}: {output}")
    return done.returncode, json.loads(output)
