# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Molecule scenarios on VMs: `scenarios.py NAME [--keep=yes]` runs one and shows its log as it grows; the suite runs all.

Whatever ends a scenario, its VM goes; a failing one leaves its log and what the node said in files named at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import typing as t
from concurrent import futures

import setup
from steps import Step, remember, tool
from tally import Tally

sys.path.insert(0, str(setup.CHECKOUT / "lab"))
import lab_base

FOLDER = setup.CHECKOUT / "molecule"
CACHE = setup.CHECKOUT / ".cache"
LAB = setup.CHECKOUT / "lab" / "lab"
EVIDENCE = setup.CHECKOUT / "tests" / "lab" / "evidence.sh"
# On a quiet machine (s); multiplied by patience(), as it is by then. A hung VM must not hold a CI for ever.
SCENARIO_LIMIT = 25 * 60 + 60 * setup.number("CORRAL_KILLS")
CLEANUP_LIMIT = 2 * 60  # of a command of the lab, for each node
CONNECT_SECONDS = 20  # of Ansible to a node
TERM_SECONDS = 10  # from SIGTERM to SIGKILL
# An emulated node takes 0.7 of a core, since it waits for what drives it and that waits for it, and up to 4 GiB.
GIB = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
AT_ONCE = max(1, min((os.cpu_count() or 1) * 3 // 2, GIB // 4))
# Only make test-long runs these: the same steps on further releases, and the cuts of power.
LONG_ONLY = (
    "bullseye",
    "cpusets-bullseye",
    "cpusets-forky",
    "cpusets-trixie",
    "devices",
    "devices-forky",
    "gc-trixie",
    "intruders-bullseye",
    "intruders-forky",
    "intruders-trixie",
    "kubelet-fleet-standin",
    "legacy",
    "powercut",
    "trixie",
    "workloads-trixie",
)
# A scenario that needs a program, by the variable that names it: it is no part of this project, nor made by it.
PROGRAMS = dict.fromkeys(("kubelet", "kubelet-fleet", "kubelet-legacy"), "CORRAL_KUBELET_BINARY")
# These take minutes, so they start first: none of them is then the last one to run, alone.
LONGEST = (
    "fleet",
    "gc",
    "workloads",
    "endure",
    "intruders",
    "rollout",
    "legacy",
    "drift",
    "devices-trixie",
    "kubelet",
    "kubelet-standin",
)
# So many rounds take a core of a quiet machine about a second.
LOOP, LOOP_SECONDS = "for i in range(30_000_000): pass", 1.0
SLOWEST = 20
YES, NO = ("1", "yes", "true", "on"), ("", "0", "no", "false", "off")  # for KEEP
PANIC = re.compile(rb"Kernel panic - [^\r\n]*")
NEXT_RESULT = re.compile(r"(TASK|PLAY|RUNNING) |(ok|changed|skipping|fatal|failed): \[")
MISSING = "Executed: Missing playbook"
EXCERPT, WIDTH = 12, 500  # lines of a failed scenario's log that the suite repeats at its end, and half a line
# Reads process groups until this process has ended, however that came: then the last of them and the nodes ($2 and on) go.
GUARD = """
group=
while read -r word; do
    [ "$word" != over ] || exit
    group=$word
done
[ -z "$group" ] || { kill -TERM "-$group"; sleep 3; kill -KILL "-$group"; }
lab=$1
shift
exec "$lab" down "$@"
"""

stopping = threading.Event()
measuring = threading.Lock()  # not beside another measurement


class Row(t.NamedTuple):
    """The seconds of a task, or of a step of the script that it runs."""

    scenario: str
    playbook: str
    what: str
    seconds: float


@functools.cache
def patience() -> float:
    """By what factor this machine, when all of this begins, is slower than a quiet one: CORRAL_PATIENCE, else measured."""
    try:
        return lab_base.patience() if os.environ.get("CORRAL_PATIENCE") else measured()
    except lab_base.LabError as error:
        raise SystemExit(str(error)) from None


def measured() -> float:
    """By what factor this machine, now, is slower than a quiet one, with as many loops at once as there are nodes."""

    def seconds(dummy: int) -> float:
        begin = time.monotonic()
        subprocess.run([sys.executable, "-I", "-S", "-c", LOOP], check=True)
        return time.monotonic() - begin

    with measuring, futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return max(1.0, *(taken / LOOP_SECONDS for taken in pool.map(seconds, range(AT_ONCE))))


def environment(name: str) -> dict[str, str]:
    """Molecule's, with the callbacks that write the seconds of each task to a file, and keep what modules were made of."""
    return {
        **setup.environment(),
        # A Python like a node's, for the lab to compile with, may be a version manager's.
        "PATH": os.pathsep.join([str(setup.VENV / "bin"), *setup.search_path()]),
        "PYTHONUNBUFFERED": "1",
        "CORRAL_PATIENCE": f"{patience():.1f}",
        "CORRAL_STEP_TIMES": str(times_file(name)),
        "ANSIBLE_TIMEOUT": f"{CONNECT_SECONDS * patience():.0f}",
        # Whatever ends Ansible here, its files go with the folder.
        "ANSIBLE_LOCAL_TEMP": str(temporary(name)),
        "TMPDIR": str(temporary(name)),
        "MOLECULE_EPHEMERAL_DIRECTORY": str(CACHE / f"molecule-{name}"),
        "ANSIBLE_CALLBACK_PLUGINS": str(setup.CHECKOUT / "tools" / "callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "step_times,kept_modules",
        "CORRAL_KEPT_MODULES": str(CACHE / "modules"),
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",  # molecule's ansible.cfg replaces the checkout's; a traceback keeps its lines
    }


def temporary(name: str) -> pathlib.Path:
    return CACHE / f"tmp-{name}"


def times_file(name: str) -> pathlib.Path:
    return CACHE / f"molecule-{name}.times"


def log_file(name: str) -> pathlib.Path:
    return CACHE / f"molecule-{name}.log"


def evidence_file(name: str) -> pathlib.Path:
    return CACHE / f"failed-{name}.txt"


def nodes(name: str) -> list[str]:
    """The names of a scenario's nodes: those in its file ``nodes``, else one that is named like it."""
    try:
        lines = (FOLDER / name / "nodes").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return [f"corral-{name}"]
    return [line.split()[0] for line in lines if not line.startswith("#")]


def names() -> list[str]:
    """All scenarios, the longest first."""
    found = sorted(path.parent.name for path in FOLDER.glob("*/molecule.yml"))
    return sorted(found, key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))


def steps() -> list[Step]:
    """A step of the suite for each scenario; some are make test-long's alone, and some need a program that is brought."""
    chosen = [name for name in names() if name not in LONG_ONLY or os.environ.get("CORRAL_LONG")]
    chosen = [name for name in chosen if name not in PROGRAMS or os.environ.get(PROGRAMS[name])]
    return [Step(f"molecule {name}", functools.partial(tallied, name)) for name in chosen]


def tallied(name: str) -> Tally:
    """Run a scenario; only a failing one is shown."""
    passed = run(name)
    for playbook, seconds in sums(rows(name)).items():
        print(f"    {name}: {playbook} {seconds:.0f} s", flush=True)
    if not passed:
        print(log_file(name).read_text(errors="replace"), flush=True)
        remember(*left(name))
    return Tally(passed=1) if passed else Tally(failed=1)


def left(name: str) -> list[str]:
    """The files that are left of a scenario that failed, and where it did."""
    log = log_file(name)
    kept = evidence_file(name)
    node = f", what its node said {kept}" if kept.exists() else ""
    return [f"log {log}{node}", *excerpt(log.read_text(errors="replace"))]


def excerpt(log: str) -> list[str]:
    """The failed task and its result; without a failed task, the log's last lines.

    Of a long result the end is kept: a script's traceback is the last thing in its output.
    """
    lines = log.splitlines()
    for first in (at for at, line in enumerate(lines) if re.match(r"(fatal|failed): \[|ERROR: ", line)):
        rest = itertools.takewhile(lambda line: not NEXT_RESULT.match(line), lines[first + 1 :])
        result = [line for line in (lines[first], *rest) if line.strip()]
        if "...ignoring" not in result:  # the line after a result with ignore_errors
            task = [line for line in lines[:first] if line.startswith("TASK [")][-1:]
            shown = result if len(result) <= EXCERPT else [result[0], "[…]", *result[2 - EXCERPT :]]
            return [shortened(line) for line in (*task, *shown)]
    return [shortened(line) for line in lines[-EXCERPT:]]


def shortened(line: str) -> str:
    return line if len(line) <= 2 * WIDTH else f"{line[:WIDTH]} […] {line[-WIDTH:]}"


def run(name: str, *, keep: bool = False, begun: t.Callable[[], None] = lambda: None) -> bool:
    """Run a scenario on new nodes; on every way out but ``keep`` they go. ``begun`` is called once it runs.

    A scenario whose nodes do not go has failed; the guard tries to end them then.
    """
    CACHE.mkdir(exist_ok=True)
    times_file(name).unlink(missing_ok=True)
    shutil.rmtree(CACHE / f"molecule-{name}", ignore_errors=True)  # what molecule knows of a node that is gone
    shutil.rmtree(temporary(name), ignore_errors=True)
    temporary(name).mkdir()
    kept = evidence_file(name)
    kept.unlink(missing_ok=True)
    all_nodes = nodes(name)
    gone = False
    with log_file(name).open("w") as log, guard(all_nodes) as groups:
        try:
            lab("down", *all_nodes, log=log, count=len(all_nodes))
            begun()
            passed = molecule(name, log, groups)
            if not passed and not stopping.is_set():
                with kept.open("w") as file:
                    for node in all_nodes:
                        lab("ssh", node, "sh -s", log=file, stdin=EVIDENCE)
                        lab("console", node, log=file)
                log.write(f"What the node said: {kept}\n")
        except BaseException as error:
            if not isinstance(error, Exception):  # an error of this scenario's is none of the others'
                stopping.set()
            raise
        finally:
            if keep and not stopping.is_set():
                gone = True
            else:
                with lab_base.undisturbed():
                    gone = lab("down", *all_nodes, log=log, count=len(all_nodes))
            if gone:
                groups.write("over\n")
            else:
                log.write("ERROR: its nodes could not be ended; this is tried once more\n")
            shutil.rmtree(temporary(name), ignore_errors=True)
    return passed and gone


@contextlib.contextmanager
def guard(which: t.Sequence[str]) -> t.Iterator[t.IO[str]]:
    """A process that outlives a SIGKILL of this one, and ends then what this one would: the group that it was told, the nodes.

    What it is told, and by whom, is a line in the pipe: it waits for those who have not spoken yet. Unless the last line is
    "over", it ends them.
    """
    with subprocess.Popen(
        ["sh", "-c", GUARD, "sh", str(LAB), *which],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        yield process.stdin


def molecule(name: str, log: t.IO[str], groups: t.IO[str]) -> bool:
    """Run molecule in a process group of its own, which ends with its limit and when all of this is to stop.

    It does not destroy: the node of a failed scenario is asked first, and the lab ends a node quicker. The group tells
    the guard of itself, before it is molecule: whenever this process is killed, the guard knows or waits for it.
    """
    words = [tool("molecule"), "test", "--destroy=never", "--scenario-name", name]
    with subprocess.Popen(
        ["sh", "-c", 'echo $$; exec "$@" >&2', "sh", *words], cwd=setup.CHECKOUT, env=environment(name),
        stdin=subprocess.DEVNULL, stdout=groups, stderr=log, start_new_session=True,
    ) as process:  # fmt: skip
        limit, began, ended = SCENARIO_LIMIT * patience(), time.monotonic(), ""
        try:
            while process.poll() is None and not stopping.is_set() and not ended:
                time.sleep(0.2)
                ended = next(filter(None, map(panic, nodes(name))), "")
                if time.monotonic() > began + limit:
                    if limit >= (now := SCENARIO_LIMIT * measured()):
                        break
                    limit = now  # Other work has come since it began.
        finally:
            why = ended or (f"over its limit of {limit:.0f} s" if time.monotonic() > began + limit else "interrupted")
            with lab_base.undisturbed():
                end_group(process, log, f"molecule test {name}: {why}")
    return process.returncode == 0 and not ended and not missing_playbook(log)


def missing_playbook(log: t.IO[str]) -> bool:
    """Whether molecule had no playbook for an action of the test_sequence: it warns of that, and goes on."""
    if MISSING not in pathlib.Path(log.name).read_text(errors="replace"):
        return False
    log.write("ERROR: a playbook of its test_sequence is missing\n")
    return True


def end_group(process: subprocess.Popen[t.Any], log: t.IO[str], why: str) -> None:
    """End a process that runs, and its group; the log says why."""
    if process.poll() is None:
        log.write(f"ERROR: {why}\n")
        log.flush()
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TERM_SECONDS)
                break


def panic(node: str) -> str:
    """The line in which a node's kernel says that it panicked: nothing answers any more. Empty while it has not."""
    try:
        console = (lab_base.place() / node / "console.log").read_bytes()
    except OSError:
        return ""  # not there yet, or between two boots
    found = PANIC.search(console)
    return found.group().decode(errors="replace").strip() if found else ""


def lab(*words: str, log: t.IO[str], stdin: pathlib.Path | None = None, count: int = 1) -> bool:
    """Run a command of the lab that concerns so many nodes; whether it ended well, and in time."""
    log.flush()
    limit = CLEANUP_LIMIT * patience() * count
    with open(stdin or os.devnull, "rb") as given:
        try:
            done = subprocess.run(
                [str(LAB), *words], stdin=given, stdout=log, stderr=subprocess.STDOUT, check=False,
                timeout=limit, start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            log.write(f"ERROR: lab {' '.join(words)}: not within {limit:.0f} s\n")
            return False
    return done.returncode == 0


# Seconds


def rows(name: str) -> list[Row]:
    """The tasks and steps of a scenario, as they came; a task that has steps counts as what is left of it."""
    try:
        lines = [json.loads(line) for line in times_file(name).read_text(encoding="utf-8").splitlines()]
    except OSError:
        return []
    found = []
    for one in lines:
        steps = [] if one["step"] else [other for other in lines if other["step"] and of_task(other) == of_task(one)]
        seconds = one["seconds"] - sum(step["seconds"] for step in steps)
        what = one["step"] or ": ".join(filter(None, (one.get("file"), one["task"])))
        found.append(Row(name, one["playbook"], what, seconds))
    return found


def of_task(one: t.Mapping[str, t.Any]) -> tuple[str, str]:
    return one["playbook"], one["task"]


def sums(found: t.Iterable[Row]) -> dict[str, float]:
    """Seconds by playbook: create, prepare, converge, …"""
    total: dict[str, float] = {}
    for row in found:
        total[row.playbook] = total.get(row.playbook, 0.0) + row.seconds
    return total


def slowest(which: t.Sequence[str]) -> list[str]:
    """The table of the slowest tasks and steps of these scenarios, as far as they ran."""
    found = sorted((row for name in which for row in rows(name)), key=lambda row: -row.seconds)
    if not found:
        return []
    table = [
        f"  {row.seconds:6.1f} s  {row.scenario:<17} {row.playbook:<9} {row.what[:110]}" for row in found[:SLOWEST]
    ]
    return [
        f"The slowest {len(table)} tasks and steps; step S.F is F() in tests/lab/S.py; all: .cache/molecule-*.times",
        *table,
    ]


# One by hand


def follow(path: pathlib.Path, ended: threading.Event) -> None:
    """Show a log as it grows."""
    with path.open(errors="replace") as log:
        while True:
            last = ended.is_set()
            sys.stdout.write(log.read())
            sys.stdout.flush()
            if last:
                return
            time.sleep(0.3)


def by_hand(name: str, *, keep: bool) -> int:
    """Run one scenario and show its log; say how to reach its node when it stays."""
    ended = threading.Event()
    shown: list[threading.Thread] = []

    def begun() -> None:
        shown.append(threading.Thread(target=follow, args=(log_file(name), ended)))
        shown[0].start()

    try:
        passed = run(name, keep=keep, begun=begun)
    finally:
        ended.set()
        for one in shown:
            one.join()
    print(
        "\n".join(
            ["", *slowest([name]), "", *(f"{book} {seconds:.0f} s" for book, seconds in sums(rows(name)).items())]
        )
    )
    print(f"\n{name}: {'passed' if passed else 'FAILED'}; its log: {log_file(name)}")
    if not passed and evidence_file(name).exists():
        print(f"what its node said: {evidence_file(name)}")
    where = f"CORRAL_RUN={shlex.quote(os.environ['CORRAL_RUN'])} " if os.environ.get("CORRAL_RUN") else ""
    for node in nodes(name) if keep else ():
        print(f"to copy changed scripts to it: tar -C tests -c lab | {where}lab/lab ssh {node} tar -x -C /root")
        print(f"to run step S.F of the table again: {where}lab/lab ssh {node} python3 /root/lab/S.py F")
        print(f"its node runs: {where}make lab-ssh NAME={node}; to end it: {where}make lab-down NAME={node}")
    return 0 if passed else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Run one molecule scenario and show its log.")
    there = ", ".join(sorted(names()))
    parser.add_argument("name", nargs="?", default="", help=f"one of {there}")
    parser.add_argument("--keep", default="no", metavar="yes|no", help="let its node run afterwards")
    arguments = parser.parse_args()
    if arguments.name not in names():
        said = f"no scenario {arguments.name!r}" if arguments.name else "name a scenario, such as make scenario NAME=gc"
        raise SystemExit(f"{said}; there are {there}")
    if arguments.keep.lower() not in YES + NO:
        raise SystemExit(f"KEEP={arguments.keep}: write one of {', '.join(filter(None, YES + NO))}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda which, frame: sys.exit(128 + which))
    try:
        return by_hand(arguments.name, keep=arguments.keep.lower() in YES)
    except KeyboardInterrupt:
        print(f"\n{arguments.name}: interrupted; its nodes are gone; its log: {log_file(arguments.name)}")
        return 128 + signal.SIGINT


if __name__ == "__main__":
    raise SystemExit(main())
