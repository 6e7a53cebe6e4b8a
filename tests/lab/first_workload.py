# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node as a workload that starts at boot: writes down what it finds in its first instant.

The file that the argument names gets: its own CPUs, each pool of hugepages, the hugetlbfs mounts, and pid_max.
"""

from __future__ import annotations

import glob
import json
import os
import sys


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def main(target: str) -> int:
    pools = glob.glob("/sys/devices/system/node/node*/hugepages/*/nr_hugepages")
    found = {
        "cpus": sorted(os.sched_getaffinity(0)),
        "hugepages": {"/".join(path.split("/")[5:8:2]): int(read(path)) for path in pools if int(read(path))},
        "mounts": [line.split()[1] for line in read("/proc/mounts").splitlines() if line.split()[2] == "hugetlbfs"],
        "pid_max": int(read("/proc/sys/kernel/pid_max")),
    }
    with open(target, "w", encoding="utf-8") as file:
        json.dump(found, file, sort_keys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
