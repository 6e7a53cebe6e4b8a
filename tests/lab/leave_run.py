# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs `corral reconcile` in this process, and sends this process a signal once an act of it has been done.

That is right before the act after it, so a moment cannot be missed (kill_at_act.py). The arguments are the signal's name, as SIGSTOP,
and a regular expression for the act in words; of several in a row that it fits, the last one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import kill_at_act


def begin(name: str, act: str) -> subprocess.Popen[str]:
    """Begin such a run; its process leads a group of its own."""
    words = [sys.executable, "-E", "-s", "-B", os.path.abspath(__file__), name, act]
    return subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def leave_after(number: signal.Signals, wanted: str) -> None:
    """Send this process the signal right after such an act."""
    done = False

    def look(act: str) -> None:
        nonlocal done
        fits = re.search(wanted, act) is not None
        if done and not fits:
            done = False
            os.kill(os.getpid(), number)
        done = done or fits

    kill_at_act.before_each(look)


def main(name: str, act: str) -> int:
    kill_at_act.import_program()
    from _core.main import main as corral

    leave_after(signal.Signals[name], act)
    return corral(["reconcile"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
