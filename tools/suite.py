# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the tests: `suite.py check` without VMs, `sanity`, `ecosystem`, `units`, `molecule`, or several of them.

Everything is run to its end, then a table and the plain closing line `N passed, N failed`; exit 1 if one failed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import typing as t
from concurrent import futures
from xml.etree import ElementTree

import ansible_test
import ecosystem
import setup
from steps import DOCS, LINT, Step, linter, tool
from tally import Tally

SCENARIO_LIMIT = 25 * 60  # s; a hung VM must not hold a CI for ever
DESTROY_LIMIT = 2 * 60  # s
# An emulated node takes about one core; what drives it waits for it.
AT_ONCE = max(1, os.cpu_count() or 1)
# Those that take minutes begin first, so that none of them is left alone at the end.
LONGEST = ("endure", "gc-trixie", "workloads", "gc", "trixie", "rollout", "legacy", "drift")

stopping = threading.Event()


def unit_tests() -> Tally:
    """Rings 1 to 3, counted from pytest's own report."""
    report = setup.CHECKOUT / ".cache" / "pytest.xml"
    report.unlink(missing_ok=True)
    command = [tool("pytest"), f"--junitxml={report}"]
    code = subprocess.run(command, cwd=setup.CHECKOUT, env=setup.environment(), check=False).returncode
    tally = Tally()
    if report.is_file():
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314 (pytest wrote it just now)
            ran, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            tally = tally.plus(Tally(ran - failed - skipped, failed, skipped))
    return tally if code == 0 or tally.failed else tally.plus(Tally(failed=1))


def scenario(name: str) -> Step:
    """One molecule scenario on VMs; it has a time limit, and its VMs go on every way out. Only a failing one is shown."""

    def run() -> Tally:
        log = setup.CHECKOUT / ".cache" / f"molecule-{name}.log"
        with log.open("w") as file:
            passed = scenario_passes(name, file)
        if not passed:
            print(log.read_text(errors="replace"), flush=True)
        return Tally(passed=1) if passed else Tally(failed=1)

    return Step(f"molecule {name}", run, beside_others=True)


def scenario_passes(name: str, log: t.TextIO) -> bool:
    """Run a scenario; ended early, by its limit or because all of this is to stop, it still destroys."""
    with molecule_process("test", name, log) as process:
        deadline = time.monotonic() + SCENARIO_LIMIT
        while process.poll() is None and time.monotonic() < deadline and not stopping.is_set():
            time.sleep(0.2)
        if process.poll() is not None:
            return process.returncode == 0
        log.write(f"ERROR: molecule test {name}: ended early\n")
        os.killpg(process.pid, signal.SIGTERM)
    with molecule_process("destroy", name, log) as process:
        try:
            process.wait(DESTROY_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    return False


def molecule_process(action: str, name: str, log: t.TextIO) -> subprocess.Popen[bytes]:
    """molecule, in a process group of its own."""
    return subprocess.Popen(
        [tool("molecule"), action, "--scenario-name", name],
        cwd=setup.CHECKOUT,
        env=setup.environment(),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def check() -> list[Step]:
    """Everything that needs no VM."""
    return [
        linter("ruff check", "ruff", "check", "--no-cache", "--output-format=concise", "."),
        linter("ruff format", "ruff", "format", "--no-cache", "--check", "--output-format=concise", "."),
        *(linter(f"mypy {name}", "mypy", "--no-incremental", *paths) for name, paths in typed().items()),
        linter("yamllint", "yamllint", "--strict", "."),
        linter("antsibull-changelog", "antsibull-changelog", "lint"),
        linter("antsibull-docs", "antsibull-docs", *DOCS),
        linter("ansible-lint", "ansible-lint", *LINT),
        Step("unit tests", unit_tests),
    ]


def typed() -> dict[str, list[str]]:
    """What mypy checks strictly: the plugins, the lab, these tools, the benchmarks; a folder that is not there yet is left out.

    Without its cache: in a package that has no __init__.py it goes on missing a module that has come since.
    """
    folders = {"lab": "lab", "tools": "tools", "benchmarks": "tests/benchmarks"}
    found = {"plugins": ["--package", "ansible_collections.corral.node.plugins"]}
    for name, folder in folders.items():
        files = [str(path.relative_to(setup.CHECKOUT)) for path in sorted((setup.CHECKOUT / folder).rglob("*.py"))]
        if files:
            found[name] = files
    return found


def molecule() -> list[Step]:
    found = sorted((setup.CHECKOUT / "molecule").glob("*/molecule.yml"))
    found.sort(key=lambda path: LONGEST.index(path.parent.name) if path.parent.name in LONGEST else len(LONGEST))
    if not found:
        print("==> no molecule scenarios in this checkout", flush=True)
    return [scenario(path.parent.name) for path in found]


PARTS: dict[str, t.Callable[[], list[Step]]] = {
    "check": check,
    "sanity": lambda: [Step("ansible-test sanity", ansible_test.sanity)],
    "ecosystem": ecosystem.steps,
    "units": ecosystem.units,
    "molecule": molecule,
}


def main(arguments: list[str]) -> int:
    if not arguments or set(arguments) - set(PARTS):
        raise SystemExit(f"usage: suite.py PART...; the parts are {', '.join(PARTS)}")
    (setup.CHECKOUT / ".cache").mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that VMs go then, too
    steps = [step for part in arguments for step in PARTS[part]()]
    ended = [timed(step) for step in steps if not step.beside_others] + together(
        [step for step in steps if step.beside_others]
    )
    total = Tally()
    for dummy, tally in ended:
        total = total.plus(tally)
    print("\n" + "\n".join(line for line, dummy in ended) + "\n\n" + total.line(), flush=True)
    return 1 if total.failed or not total.passed else 0


def timed(step: Step) -> tuple[str, Tally]:
    """Run a step, and say when it begins and how it ended."""
    print(f"==> {step.name}", flush=True)
    begin = time.monotonic()
    tally = step.run()
    line = f"  {step.name:<26} {time.monotonic() - begin:6.1f} s  {tally.line()}"
    if step.beside_others:
        print(line, flush=True)
    return line, tally


def together(steps: list[Step]) -> list[tuple[str, Tally]]:
    """Run steps AT_ONCE at a time; when this is ended early they all end their way."""
    with futures.ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            return list(pool.map(timed, steps))
        except BaseException:
            stopping.set()
            pool.shutdown(cancel_futures=True)
            raise


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
