# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`cut_power.py NODE CUTS SEED` cuts a node's power at random moments of its hand-overs (molecule/powercut).

The node hands CPUs over by itself, looks after each boot at what is there, and says both on its console
(tests/lab/power_cuts.py): so a cut needs no connection, and its moment is measured by the node's own speed. Ends with 1
when the node found something lost, and when fewer than half of the cuts came inside a hand-over or an admission, or none when
it was known what was admitted last.
"""

from __future__ import annotations

import random
import re
import sys
import time

import setup

sys.path.insert(0, str(setup.CHECKOUT / "lab"))
import lab_base
import lab_nodes

SECONDS = 600.0  # for a boot, a look and a hand-over
FIRST = re.compile(r"power_cuts: hand-over 1 ended in ([0-9.]+) s")
CHECKED = re.compile(r"power_cuts: checked: (.*)")
FAILED = re.compile(r"power_cuts: FAILED: (.*)")
AS_ASKED = " as asked"  # the workload that was admitted or released last was known, and was so
MARK = re.compile(r"power_cuts: (\S+ [0-9]+) (begins|ended)")
# The cut comes up to so many hand-overs after the first one.
HAND_OVERS = 2.0


def console(one: lab_nodes.Node) -> str:
    """What a node has said since it booted: nothing while its QEMU is yet to open the file."""
    path = one.folder / "console.log"
    return path.read_text(errors="replace") if path.exists() else ""


def wait(one: lab_nodes.Node, what: re.Pattern[str]) -> str:
    """Wait until a node says something; SystemExit when it says that something is lost, or nothing for long."""
    deadline = time.monotonic() + SECONDS * lab_base.patience()
    while True:
        said = console(one)
        failed, found = FAILED.search(said), what.search(said)
        if failed:
            raise SystemExit(f"the node found: {failed.group(1)}")
        if found:
            return found.group(1)
        lab_nodes.raise_if_ended(one)
        if time.monotonic() > deadline:
            raise SystemExit(f"{what.pattern}: not said on the console: {lab_nodes.tail(one.folder / 'console.log')}")
        time.sleep(0.1)


def cut(one: lab_nodes.Node, moment: float) -> str:
    """Cut the power so many hand-overs after the first of this boot; the last thing that had begun or ended by then."""
    time.sleep(moment * float(wait(one, FIRST)))
    what, how = MARK.findall(console(one))[-1]
    lab_nodes.cut_power(one)
    return f"{what} {how}"


def main(name: str, cuts: int, seed: str) -> int:
    one, numbers = lab_nodes.node(name), random.Random(seed)  # noqa: S311 - moments, no secrets
    inside = asked = 0
    print(f"seed {seed}", flush=True)
    for number in range(1, cuts + 1):
        moment = numbers.uniform(0, HAND_OVERS)
        last = cut(one, moment)
        inside += last.endswith("begins")
        found = wait(one, CHECKED)
        asked += AS_ASKED in found
        print(f"cut {number}, {moment:.2f} hand-overs later, after {last!r}: {found}", flush=True)
    lab_nodes.booted(one)
    print(
        f"{cuts} cuts, {inside} of them inside a hand-over or an admission, {asked} once it was known who was admitted last: "
        "nothing lost, nothing shared"
    )
    return 0 if inside * 2 >= cuts and asked else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
