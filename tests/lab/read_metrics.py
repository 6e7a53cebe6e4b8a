# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with metrics: are they in Prometheus' text format, and what they must be?

The arguments are samples that the file must hold, such as `corral_paused=1` or `corral_mode{mode="enforce"}=1`. Prints
what is wrong and exits 1, or counts what was looked at. The unit tests use its parser as well.
"""

from __future__ import annotations

import os
import re
import stat
import sys

FILE = "/var/lib/prometheus/node-exporter/corral.prom"
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME}(?:\{{{LABEL}(?:,{LABEL})*\}})?) (-?[0-9]+(?:\.[0-9]+)?)")
COMMENT = re.compile(rf"# (HELP|TYPE) ({NAME}) (.+)")
TYPES = ("counter", "gauge")


def parse(text: str) -> tuple[dict[str, float], list[str]]:
    """The samples by name with labels, and what is against the format's rules."""
    samples: dict[str, float] = {}
    types: dict[str, str] = {}
    helped: set[str] = set()
    wrong = [] if text.endswith("\n") else ["no line feed at the end"]
    current = ""
    for line in text.rstrip("\n").split("\n"):
        comment, sample = COMMENT.fullmatch(line), SAMPLE.fullmatch(line)
        if comment:
            current = comment[2]
            if comment[1] == "HELP":
                wrong += [f"{line}: told twice"] if current in helped else []
                helped.add(current)
            else:
                right = current in helped and current not in types and comment[3] in TYPES
                wrong += [] if right else [f"{line}: after HELP, once, and one of {TYPES}"]
                types[current] = comment[3]
        elif sample:
            name = sample[1].partition("{")[0]
            wrong += [] if name == current and name in types else [f"{line}: not below its own HELP and TYPE"]
            wrong += [f"{line}: told twice"] if sample[1] in samples else []
            samples[sample[1]] = float(sample[2])
        else:
            wrong.append(f"{line}: no line of the format")
    for name, kind in types.items():
        if (kind == "counter") != name.endswith("_total"):
            wrong.append(f"{name}: a {kind}, by its name it is none")
        if name not in {sample.partition("{")[0] for sample in samples}:
            wrong.append(f"{name}: no samples")
    return samples, wrong


def main(wanted: list[str]) -> int:
    with open(FILE, encoding="utf-8") as file:
        samples, wrong = parse(file.read())
    mode = stat.S_IMODE(os.stat(FILE).st_mode)
    wrong += [] if mode == 0o644 else [f"mode {mode:o}"]
    left = [name for name in os.listdir(os.path.dirname(FILE)) if name.startswith(".")]
    wrong += [f"left beside it: {left}"] if left else []
    for text in wanted:
        name, dummy, value = text.rpartition("=")
        if samples.get(name) != float(value):
            wrong.append(f"{name}: {samples.get(name)}, wanted {value}")
    print("\n".join(wrong) or f"{len(samples)} samples, {len(wanted)} of them looked at")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
