# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a command of Corral's on a node with a busy service, and compares its note on it with the kernel's own counter.

The note says CPUs on average and seconds: their product is the CPU time that burn.service had used when the command
read it, which lies between what its control group's cpu.stat (cgroup-v2.rst) says before and after. How quick the
machine is plays no part. Prints what the command printed; exits 1 when the note is missing or wrong, or when the
command has found nothing to change.
"""

from __future__ import annotations

import re
import subprocess
import sys

STAT = "/sys/fs/cgroup/system.slice/burn.service/cpu.stat"
NOTE = re.compile(r"burn\.service \(python3\) (\d+\.\d\d) over (\d+) (s|min|h)\b")
SECONDS = {"s": 1, "min": 60, "h": 3600}
CHANGES = 2  # the exit code of a plan that has some
ROUNDED = 0.005  # of a CPU; the time is cut off


def used() -> float:
    """CPU seconds so far."""
    with open(STAT, encoding="ascii") as file:
        return int(dict(line.split() for line in file)["usage_usec"]) / 1e6


def main(words: list[str]) -> int:
    before = used()
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    after = used()
    print(done.stdout)
    if done.returncode != CHANGES:
        print(f"exit {done.returncode}, wanted {CHANGES}: something would change")
        return 1
    found = NOTE.search(done.stdout)
    if found is None:
        print("no note on burn.service")
        return 1
    cpus, span, unit = float(found[1]), int(found[2]), SECONDS[found[3]]
    least, most = (cpus - ROUNDED) * span * unit, (cpus + ROUNDED) * (span + 1) * unit
    print(f"noted {least:.2f} to {most:.2f} CPU seconds, counted {before:.2f} before and {after:.2f} after")
    return 0 if least <= after and most >= before else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
