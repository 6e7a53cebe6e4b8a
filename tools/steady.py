# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run scenarios several times beside busy loops: `steady.py NAME... [--runs 10] [--loops 2] [--at-once 3]`.

A verdict must not depend on what else the machine does. A scenario that failed is not run again: its log and the state
of its node stay, so that the cause can be found.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import subprocess
import sys
import typing as t

import scenarios
import suite
from steps import Step, complaints
from tally import Tally

# It ends with the process that started it and gave it its number, however and however early that ended.
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for i in range(1_000_000): pass"


@contextlib.contextmanager
def busy(loops: int) -> t.Iterator[None]:
    """So many processes, each of which takes all of a CPU that it can get."""
    with contextlib.ExitStack() as stack:
        for dummy in range(loops):
            words = [sys.executable, "-I", "-S", "-c", BUSY, str(os.getpid())]
            process = stack.enter_context(subprocess.Popen(words, start_new_session=True))
            stack.callback(process.kill)
        yield


def chain(name: str, runs: int) -> suite.Chain:
    """The runs of a scenario."""
    return [
        Step(f"{name} {number}/{runs}", functools.partial(scenarios.tallied, name)) for number in range(1, runs + 1)
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run scenarios several times beside busy loops.")
    parser.add_argument("names", nargs="+", metavar="NAME", choices=scenarios.names(), help="a folder of molecule/")
    parser.add_argument("--runs", type=int, default=10, help="of each scenario (%(default)s)")
    parser.add_argument("--loops", type=int, default=2, help="processes that keep a CPU busy (%(default)s)")
    parser.add_argument("--at-once", type=int, default=scenarios.AT_ONCE, help="scenarios at once (%(default)s)")
    asked = parser.parse_args(arguments)
    scenarios.CACHE.mkdir(exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, suite.end)
    with busy(asked.loops):
        print(f"limits of time are multiplied by {scenarios.patience():.1f}", flush=True)
        chains = [chain(name, asked.runs) for name in asked.names]
        ended = suite.together(chains, at_once=asked.at_once, go_on=False)
    total = functools.reduce(Tally.plus, (tally for dummy, tally in ended), Tally())
    print("\n".join(["", *(line for line, dummy in ended), "", *complaints, total.line()]), flush=True)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
