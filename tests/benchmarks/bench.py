# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the benchmarks share: measuring by turns, figures, Markdown tables, the way to the core, its test trees and the tools."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import sys
import time
import typing as t
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]

sys.path[:0] = [str(CHECKOUT / part) for part in ("plugins/module_utils", "tests/unit", "tools")]

Seconds = list[float]


def by_turns(
    works: t.Mapping[str, t.Callable[[], object]], turns: int, clock: t.Callable[[], float] = time.perf_counter
) -> dict[str, Seconds]:
    """Run every work once a turn, so that a machine that is busy for a while is so for all of them; each one's times.

    One turn more is run first and not counted.
    """
    taken: dict[str, Seconds] = {name: [] for name in works}
    for turn in range(turns + 1):
        for name, work in works.items():
            begin = clock()
            work()
            if turn:
                taken[name].append(clock() - begin)
    return taken


def median(times: Seconds) -> float:
    """The middle one."""
    return statistics.median(times)


def spread(times: Seconds, digits: int = 2) -> str:
    """``median (min-max)``."""
    return f"{median(times):.{digits}f} ({min(times):.{digits}f}–{max(times):.{digits}f})"


def ratio(times: Seconds, floor: Seconds) -> str:
    """How many times as long as the floor, by the medians."""
    return f"{median(times) / median(floor):.1f}×"


def table(head: t.Sequence[str], rows: t.Iterable[t.Sequence[object]]) -> str:
    """A Markdown table; all columns but the first are numbers, to the right."""
    lines = [list(head), ["---", *("---:" for dummy in head[1:])], *([str(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def say(text: str = "") -> None:
    """A line of the report."""
    print(text, flush=True)


def progress(text: str) -> None:
    """A line for who waits; not part of the report."""
    print(f"==> {text}", file=sys.stderr, flush=True)


def header(command: str) -> None:
    """The command, the day and the machine."""
    options = f" ({' '.join(sys.argv[1:])})" if sys.argv[1:] else ""
    today = datetime.datetime.now(datetime.timezone.utc).date()
    say(f"`{command}`{options}, {today}, {os.cpu_count()} CPUs, {load()} at the start,")
    say(f"Linux {platform.release()}, Python {platform.python_version()}:\n")


def footer() -> None:
    """How busy the machine was meanwhile."""
    say(f"At the end: {load()}.")


def load() -> str:
    """How many processes run or wait for a CPU, of late."""
    return f"load average {os.getloadavg()[0]:.1f}"
