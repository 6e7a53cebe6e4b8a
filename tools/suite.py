# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the tests: `suite.py check` without VMs, `sanity`, `ecosystem`, `browser`, `units`, `molecule`, or several of them.

Everything is run to its end, three at once on two cores, then the seconds of everything, the slowest tasks of
the scenarios, what failed and why, and the plain closing line `N passed, N failed`; exit 1 if one failed.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
import time
import typing as t
from concurrent import futures

import ansible_test
import browser_tests
import ecosystem
import scenarios
import setup
from steps import DOCS, LINT, Step, complaints, judged, linter
from tally import Tally
from unit_tests import unit_tests


def check() -> list[Step]:
    """Everything that needs no VM. The unit tests come first: they take as long as all others."""
    return [
        Step("unit tests", unit_tests),
        linter("ruff check", "ruff", "check", "--no-cache", "--output-format=concise", "."),
        linter("ruff format", "ruff", "format", "--no-cache", "--check", "--output-format=concise", "."),
        *(linter(f"mypy {name}", "mypy", "--no-incremental", *paths) for name, paths in typed().items()),
        linter("yamllint", "yamllint", "--strict", "."),
        linter("antsibull-changelog", "antsibull-changelog", "lint"),
        linter("antsibull-docs", "antsibull-docs", *DOCS),
        # The scenarios' playbooks are most of its time, and Ansible runs them: make test-long lints them.
        linter(
            "ansible-lint", "ansible-lint", *LINT, *([] if os.environ.get("CORRAL_LONG") else ["--exclude", "molecule"])
        ),
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


Chain = list[Step]  # in their order; chains go beside each other

PARTS: dict[str, t.Callable[[], list[Step]]] = {
    "check": check,
    "sanity": lambda: [Step("ansible-test sanity", ansible_test.sanity_once_each)],
    "ecosystem": ecosystem.steps,
    "browser": browser_tests.steps,
    "units": ecosystem.units,
    "molecule": scenarios.steps,
}
# These share the virtual environments that ansible-test makes: one after the other.
ONE_BY_ONE = ("sanity", "ecosystem", "units")


def chains(parts: t.Sequence[str]) -> list[Chain]:
    """What is asked for, as chains of steps that need not wait for each other: unit tests, linters, ansible-test, each scenario."""
    checks = PARTS["check"]() if "check" in parts else []
    shared = [step for part in parts if part in ONE_BY_ONE for step in PARTS[part]()]
    found = [chain for chain in (checks[:1], shared, checks[1:]) if chain]
    found += [PARTS["browser"]()] if "browser" in parts else []
    return found + ([[step] for step in PARTS["molecule"]()] if "molecule" in parts else [])


def main(arguments: list[str]) -> int:
    if not arguments or set(arguments) - set(PARTS):
        raise SystemExit(f"usage: suite.py PART...; the parts are {', '.join(PARTS)}")
    (setup.CHECKOUT / ".cache").mkdir(exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    began = time.monotonic()
    print(
        f"limits of time are multiplied by {scenarios.patience():.1f} (CORRAL_PATIENCE, else measured now)", flush=True
    )
    ended = together(chains(arguments))
    total = Tally()
    for dummy, tally in ended:
        total = total.plus(tally)
    ran = PARTS["molecule"]() if "molecule" in arguments else []
    table = scenarios.slowest([step.name.split()[-1] for step in ran])
    print(
        "\n" + "\n".join([*(line for line, dummy in ended), "", *table, f"\nin all {time.monotonic() - began:.0f} s"])
    )
    print("\n".join(["", *complaints, total.line()]), flush=True)
    return 1 if total.failed or not total.passed else 0


def end(which: int, dummy: object) -> t.NoReturn:
    """End as after Ctrl-C, so that VMs go."""
    ignore_signals()
    sys.exit(128 + which)


def ignore_signals() -> None:
    """Let one signal be all: another one in the middle of the way out would leave nodes running."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def timed(step: Step) -> tuple[str, Tally]:
    """Run a step, and say when it begins and how it ended."""
    say(f"==> {step.name}")
    begin = time.monotonic()
    tally = judged(step)
    line = f"  {step.name:<26} {time.monotonic() - begin:6.1f} s  {tally.line()}"
    say(line)
    return line, tally


def say(line: str) -> None:
    """One write for a line and its end: several steps speak at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def together(
    chains: t.Sequence[Chain], *, at_once: int = scenarios.AT_ONCE, go_on: bool = True
) -> list[tuple[str, Tally]]:
    """Run chains, so many at a time; when this is ended early they all end their way. See ``in_order``."""
    with futures.ThreadPoolExecutor(at_once) as pool:
        try:
            begun = [pool.submit(in_order, chain, go_on=go_on) for chain in chains]
            # Python handles a signal between two steps of the main thread: a wait without end may not have one.
            while futures.wait(begun, timeout=0.5).not_done:
                pass
            return [row for one in begun for row in one.result()]
        except BaseException:
            ignore_signals()
            scenarios.stopping.set()
            end_children()
            pool.shutdown(cancel_futures=True)
            raise


def in_order(chain: Chain, *, go_on: bool = True) -> list[tuple[str, Tally]]:
    """Run the steps of a chain; none begins once all of this is to stop, nor without ``go_on`` after one that failed."""
    done: list[tuple[str, Tally]] = []
    for step in chain:
        if scenarios.stopping.is_set() or (done and done[-1][1].failed and not go_on):
            break
        done.append(timed(step))
    return done


def end_children() -> None:
    """End the commands that steps wait for. A scenario ends its own."""
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # a thread or a child may end meanwhile
            for pid in (task / "children").read_text(encoding="ascii").split():
                if os.getpgid(int(pid)) == os.getpgrp():
                    os.kill(int(pid), signal.SIGTERM)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
