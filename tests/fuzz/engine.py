# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs inputs through targets, in processes with limits of time and memory, and counts what must not be.

An input is made of the seed, its target and its number alone: these three are enough to make it again.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import queue
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import typing as t
from pathlib import Path

import oracles
from fuzz_target import Outcome, Target

MODULES = ("fuzz_profiles", "fuzz_machines", "fuzz_nodes", "fuzz_texts", "fuzz_secrets", "fuzz_results")
SECONDS = 15  # of a processor that an input may take
WAIT = 120  # seconds that it may take in all, however busy the machine is
MEMORY = 768 << 20  # more than a worker has when it begins
BLOCK = 25  # inputs that a worker takes at once
KINDS = (
    "traceback",
    "hang",
    "memory",
    "control character",
    "forged line",
    "written outside",
    "not the same twice",
    "wrong answer",
    "died",
)


class Hang(BaseException):
    """An input took too long."""


class Finding(t.NamedTuple):
    """What an input did that none may do. ``what`` is the same for the same fault, as far as can be told."""

    target: str
    number: int
    kind: str
    what: str


class Report(t.NamedTuple):
    """What was counted of one target."""

    inputs: int
    depths: dict[str, int]
    findings: list[Finding]


def targets() -> dict[str, type[Target]]:
    """All targets by name."""
    found: dict[str, type[Target]] = {}
    for module in MODULES:
        found.update(importlib.import_module(module).TARGETS)
    return found


def input_of(target: Target, seed: str, name: str, number: int) -> t.Any:
    return target.make(random.Random(f"{seed}/{name}/{number}"))


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def too_long(*dummy: object) -> t.NoReturn:
    raise Hang


@contextlib.contextmanager
def time_limit() -> t.Iterator[None]:
    for timer, seconds in ((signal.ITIMER_PROF, SECONDS), (signal.ITIMER_REAL, WAIT)):
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)


def place_of(error: BaseException) -> str:
    """The exception, and the last line of the project's own in its traceback."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "/plugins/" in one.filename]
    frames = frames or traceback.extract_tb(error.__traceback__)[-1:]
    last = frames[-1] if frames else None
    where = f"{last.filename.rpartition('/plugins/')[2]}:{last.lineno}" if last else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:150]!r}"


def tried(target: Target, data: t.Any, guard: oracles.Guard, folder: str) -> tuple[Outcome, str, str]:
    """(what came of an input, kind of finding, what): the kind is "" where nothing is wrong."""
    try:
        with time_limit(), guard.on(folder):
            found = target.run(data)
    except Hang as error:
        return Outcome("hang"), "hang", place_of(error)
    except MemoryError as error:
        return Outcome("memory"), "memory", place_of(error)
    except oracles.Outside as error:
        return Outcome("written outside"), "written outside", str(error).replace(folder, "FOLDER")
    except Exception as error:
        return Outcome("traceback"), "traceback", place_of(error)
    if guard.seen:
        return found, "written outside", guard.seen[0].replace(folder, "FOLDER")
    if found.wrong:
        return found, "wrong answer", found.wrong
    kind, where = oracles.unprintable(found.said)
    return found, kind, where


def twice(number: int) -> bool:
    """Whether an input is run a second time, whose answer has to be the same."""
    return number % 10 == 0


class Worker:
    """One process: its targets, each made when it is asked for first."""

    def __init__(self) -> None:
        sys.dont_write_bytecode = True
        sys.setrecursionlimit(1000)
        for number in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(number, too_long)
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.mkdtemp(prefix="corral-fuzz-", dir=memory)
        self.guard = oracles.Guard()
        self.known = targets()
        self.made: dict[str, Target] = {}

    def target(self, name: str) -> tuple[Target, str]:
        folder = Path(self.folder, name)
        if name not in self.made:
            (folder / "tmp").mkdir(parents=True)
            self.made[name] = self.known[name](folder)
        tempfile.tempdir = str(folder / "tmp")
        return self.made[name], str(folder)

    def run(self, name: str, seed: str, number: int) -> tuple[Outcome, Finding | None, t.Any]:
        target, folder = self.target(name)
        data = input_of(target, seed, name, number)
        return (*self.judged(name, target, folder, data, number), data)

    def judged(
        self, name: str, target: Target, folder: str, data: t.Any, number: int
    ) -> tuple[Outcome, Finding | None]:
        found, kind, what = tried(target, data, self.guard, folder)
        if not kind and twice(number):
            again = tried(target, data, self.guard, folder)[0]
            if again != found:
                kind, what = "not the same twice", first_difference(found, again)
        if kind in ("memory", "hang"):
            gc.collect()
        return found, Finding(name, number, kind, what) if kind else None

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def first_difference(one: Outcome, other: Outcome) -> str:
    if one.depth != other.depth:
        return f"{one.depth}, then {other.depth}"
    for before, after in zip(one.said, other.said):
        for left, right in zip(before.splitlines(), after.splitlines()):
            if left != right:
                return f"{left[:100]!r}, then {right[:100]!r}"
    return "lengths differ"


def work(jobs: t.Any, results: t.Any, seed: str, cache: str, at: t.Any) -> None:
    """A worker's process: takes blocks of numbers until there are none. ``at`` is the number that it tries now, and its target's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *dummy: sys.exit(0))
    worker = Worker()
    names = sorted(worker.known)
    limited = False
    try:
        while True:
            job = jobs.get()
            if job is None:
                return
            name, first, count = job
            worker.target(name)
            if not limited:
                limit_memory()
                limited = True
            depths: collections.Counter[str] = collections.Counter()
            findings = []
            begun = time.monotonic()
            for number in range(first, first + count):
                at[0], at[1] = names.index(name), number
                found, finding, data = worker.run(name, seed, number)
                depths[found.depth] += 1
                if finding:
                    findings.append(finding)
                    save(cache, seed, finding, data)
            at[0] = -1
            results.put((name, count, dict(depths), findings, time.monotonic() - begun))
    finally:
        worker.close()


def save(cache: str, seed: str, finding: Finding, data: t.Any) -> None:
    """Keep an input, so that it can be run again: ``make fuzz REPLAY=FILE``."""
    Path(cache).mkdir(parents=True, exist_ok=True)
    text = repr(
        {
            "target": finding.target,
            "seed": seed,
            "number": finding.number,
            "kind": finding.kind,
            "what": finding.what,
            "input": data,
        }
    )
    Path(cache, f"{finding.target}-{seed}-{finding.number}").write_text(
        text, encoding="utf-8", errors="surrogateescape"
    )


def replay(file: str) -> list[Finding]:
    """Run a kept input again."""
    kept = ast.literal_eval(Path(file).read_text(encoding="utf-8", errors="surrogateescape"))
    worker = Worker()
    try:
        target, folder = worker.target(kept["target"])
        limit_memory()
        found, finding = worker.judged(kept["target"], target, folder, kept["input"], 0)
        print(found.depth, *found.said, sep="\n")
        if finding and finding.kind == "traceback":
            target.run(kept["input"])
        return [finding] if finding else []
    finally:
        worker.close()


class Wanted(t.NamedTuple):
    """What is to be run: so many inputs of each target, or as many as these seconds allow, of which each target has its share."""

    names: tuple[str, ...]
    seed: str
    count: int
    seconds: float
    workers: int


def run(wanted: Wanted, cache: str) -> dict[str, Report]:
    """Run inputs on several processes. One that dies is a finding, and another one takes its place."""
    context = multiprocessing.get_context("fork")
    jobs, results = context.Queue(), context.Queue()
    found = {name: Report(0, collections.Counter(), []) for name in wanted.names}
    next_of = dict.fromkeys(wanted.names, 0)
    spent = dict.fromkeys(wanted.names, 0.0)
    begun = time.monotonic()
    running: list[tuple[t.Any, t.Any]] = []
    order = sorted(targets())

    def begin() -> None:
        at = context.Array("q", [-1, 0], lock=False)
        process = context.Process(target=work, args=(jobs, results, wanted.seed, cache, at), daemon=True)
        process.start()
        running.append((process, at))

    def feed() -> bool:
        """Give the next block of the target that has had the least."""
        over = wanted.seconds and time.monotonic() - begun > wanted.seconds
        left = [name for name in wanted.names if not wanted.count or next_of[name] < wanted.count]
        if over or not left:
            return False
        name = min(left, key=lambda one: (spent[one] if wanted.seconds else 0.0, next_of[one]))
        count = min(BLOCK, wanted.count - next_of[name]) if wanted.count else BLOCK
        jobs.put((name, next_of[name], count))
        next_of[name] += count
        return True

    def take() -> bool:
        """Take the result of a block, if there is one, or see to a process that died. Whether a block is done with."""
        try:
            name, count, depths, findings, seconds = results.get(timeout=1)
        except queue.Empty:
            dead = next((row for row in running if not row[0].is_alive()), None)
            if dead is None:
                return False
            running.remove(dead)
            process, at = dead
            if at[0] >= 0:
                died = Finding(order[at[0]], at[1], "died", f"exit code {process.exitcode}")
                found[died.target].findings.append(died)
            begin()
            return True
        report = found[name]
        spent[name] += seconds
        for depth, times in depths.items():
            report.depths[depth] = report.depths.get(depth, 0) + times
        found[name] = Report(report.inputs + count, report.depths, report.findings + findings)
        return True

    for dummy in range(wanted.workers):
        begin()
    open_jobs = sum(feed() for dummy in range(2 * wanted.workers))
    try:
        while open_jobs:
            if take():
                open_jobs += feed() - 1
    except KeyboardInterrupt:
        for process, dummy in running:
            process.terminate()
    for dummy in running:
        jobs.put(None)
    for process, dummy in running:
        process.join(30)
    return found


def lines(found: t.Mapping[str, Report], seed: str) -> t.Iterator[str]:
    """The figures, as a person reads them."""
    for name, report in found.items():
        depths = sorted(report.depths.items(), key=lambda row: -row[1])
        yield f"{name}: {report.inputs} inputs; {', '.join(f'{depth} {count}' for depth, count in depths)}"
    rows: dict[tuple[str, str, str], list[Finding]] = {}
    for report in found.values():
        for finding in report.findings:
            rows.setdefault((finding.target, finding.kind, finding.what), []).append(finding)
    for (target, kind, what), same in list(rows.items())[:200]:
        yield f"{target}: {kind}: {what} ({len(same)} times; number {same[0].number})"
        yield f"  again: make fuzz REPLAY=.cache/fuzz/{target}-{seed}-{same[0].number}"
    counts = collections.Counter(finding.kind for report in found.values() for finding in report.findings)
    total = sum(report.inputs for report in found.values())
    yield f"seed {seed}: {total} inputs; " + ", ".join(f"{kind} {counts[kind]}" for kind in KINDS)


def as_json(found: t.Mapping[str, Report]) -> str:
    return json.dumps({name: report._asdict() for name, report in found.items()})
