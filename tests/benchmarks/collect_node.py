# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the benchmarks' node: makes images twice, and times Podman's prune and Corral's pass over them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import typing as t

DISK = "/var/containers.ext4"
STORAGE = "/var/lib/containers/storage"


def declare(high: int) -> None:
    images = {"high": high, "low": 1, "min_age": "0s", "interval": "1d"}
    with open("/etc/corral/profile.json", "w", encoding="utf-8") as file:
        json.dump({"name": "bench", "gc": {"images": images}}, file)


def run(*words: str, code: t.Optional[int] = 0) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if code is not None and done.returncode != code:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def make(count: int) -> None:
    """So many images of one MiB, none of which shares anything."""
    for number in range(count):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            with open(f"{folder}/data", "wb") as file:
                file.write(os.urandom(1 << 20))
            run("tar", "-C", folder, "-cf", f"{folder}.tar", ".")
            run("podman", "import", "--quiet", f"{folder}.tar", f"localhost/image{number}:1")
            os.remove(f"{folder}.tar")


def timed(*words: str, code: t.Optional[int] = 0) -> tuple[float, str]:
    begin = time.perf_counter()
    out = run(*words, code=code)
    return time.perf_counter() - begin, out


def left() -> int:
    return len(json.loads(run("podman", "images", "--all", "--format", "json")))


def main(count: int) -> int:
    with open(DISK, "wb") as file:
        file.truncate(100 << 20)
    run("mkfs.ext4", "-q", "-m", "0", DISK)
    os.makedirs(STORAGE, exist_ok=True)
    run("mount", "-o", "loop", DISK, STORAGE)
    make(count)
    time.sleep(1.1)
    prune, dummy = timed("podman", "image", "prune", "--all", "--force", "--filter", "until=1s")
    pruned = count - left()
    make(count)
    declare(99)
    for dummy_pass in range(2):  # The images are seen for the first time; then it is known that nothing is to be done.
        timed("corral", "gc")
    idle, dummy = timed("corral", "gc")
    start, dummy = timed("corral", "--help")
    declare(20)
    gc, out = timed("corral", "gc", "--json", code=None)
    collected = count - left()
    measured = {"prune": prune, "pruned": pruned, "gc": gc, "collected": collected, "idle": idle, "start": start}
    print(json.dumps(measured))
    if pruned != count or not collected:
        print(out, file=sys.stderr)
    return 0 if pruned == count and collected else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
