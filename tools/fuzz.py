# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fuzzer: hostile inputs for everything that Corral reads; exit code 1 if one did what none may do.

fuzz.py --seed SEED --count INPUTS-OF-EACH-TARGET | --seconds SECONDS [--only TARGET,TARGET], or --replay FILE.
The inputs of a seed are always the same ones; without one it is chosen, and printed. Ctrl-C ends a run with its figures.
"""

from __future__ import annotations

import argparse
import importlib
import os
import secrets
import signal
import sys

import setup

TESTS = setup.CHECKOUT / "tests"
CACHE = setup.CHECKOUT / ".cache" / "fuzz"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="")
    parser.add_argument("--count", default="", help="inputs of each target (default: 1000, without --seconds)")
    parser.add_argument("--seconds", default="", help="how long, for all targets")
    parser.add_argument("--only", default="", help="targets, with commas")
    parser.add_argument("--replay", default="", metavar="FILE", help="an input that was kept in .cache/fuzz")
    args = parser.parse_args(arguments)
    folders = {str(test.parent) for test in (TESTS / "unit").rglob("test_*.py")}
    sys.path[:0] = [
        str(setup.CHECKOUT / "plugins" / "module_utils"), str(TESTS / "unit"), str(TESTS / "fuzz"), *sorted(folders),
    ]  # fmt: skip
    engine = importlib.import_module("engine")
    if args.replay:
        findings = engine.replay(args.replay)
        print(*findings, sep="\n")
        return 1 if findings else 0
    names = tuple(args.only.split(",")) if args.only else tuple(engine.targets())
    unknown = sorted(set(names) - set(engine.targets()))
    if unknown:
        parser.error(f"no target {', '.join(unknown)}; the targets are {', '.join(engine.targets())}")
    seed = args.seed or secrets.token_hex(4)
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    count = int(args.count or (0 if args.seconds else 1000))
    wanted = engine.Wanted(names, seed, count, float(args.seconds or 0), os.cpu_count() or 1)
    found = engine.run(wanted, str(CACHE))
    print(*engine.lines(found, seed), sep="\n", flush=True)
    return 1 if any(report.findings for report in found.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
