# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The start of Corral's program on the node: for the command line, the timer's tick, and the boot.

Exit codes: 0 in sync, or done; 2 something differs (or a tick changed something); 1 error or wrong usage. The tick runs every few seconds
and mostly ends in this file. Therefore the functions import the modules that only other commands need, such as constants.py (os.EX_OK has
the value of IN_SYNC there).
"""

from __future__ import annotations

import os
import sys

from .host import recorded_inputs
from .host.files import Host, Unreadable
from .host.lock import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

GRANT_UNIT = (["admit", "--start"], ["release", "--stop"])  # see workload_units.py
CONTAINER_HOOK = ["container", "--start"]  # see agent_units.py


def main(argv: t.Optional[t.Sequence[str]] = None) -> int:
    """Run one command. No error of a profile or of the node ends in a traceback. Returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    ticks = words in (["reconcile", "--tick"], ["reconcile", "--boot"])
    by_systemd = ticks or words in (["gc", "--tick"], ["confirm", "--tick"])
    try:
        if ticks:
            return tick(Host(), at_boot=words[1] == "--boot")
        if words[:2] in GRANT_UNIT and len(words) == 3:
            from .cli import grant_service

            return grant_service.run(Host(), words)
        if words[:2] == CONTAINER_HOOK:
            from .cli import container_hook

            return container_hook.run(Host(), words[2:])
        if not words and sys.argv[0].endswith(".fact"):
            from .cli import status_command

            return status_command.do_fact(Host())
        from .cli import commands

        return commands.run(words)
    except BrokenPipeError:
        said = ""
    except OSError as error:
        said = f"{error.filename or 'the node'}: {error.strerror or error}"
    except Exception as error:
        from .model.values.errors import CorralError

        if not isinstance(error, (CorralError, Unreadable)):
            raise
        said = error.advised if isinstance(error, Unreadable) else str(error)
    from .constants import ERROR
    from .model.values.printable_text import printable

    for line in map(printable, said.split("\n") if said else ()):
        sys.stderr.write(f"<3>{line}\n" if by_systemd else f"corral: {line}\n")
    return ERROR


def tick(host: Host, *, at_boot: bool = False) -> int:
    """Check the node once, and correct the node (mode enforce) or report (mode audit). A tick is quiet if nothing changed."""
    began = host.uptime()
    lock = Lock(host)
    wait = 0.0
    if at_boot:
        from .constants import LOCK_SECONDS

        wait = LOCK_SECONDS
    if not lock.take(wait):
        return os.EX_OK  # A module or another tick holds the lock; the next tick checks again.
    try:
        if not at_boot and recorded_inputs.same(host, lambda last, now: metrics_are_fresh(host, last, now, began)):
            return os.EX_OK
        from .pipeline.tick import run

        return run(host, at_boot=at_boot, began=began)
    finally:
        lock.release()


def metrics_are_fresh(host: Host, last: int, now: int, began: float) -> bool:
    """Whether the metrics are of this minute of the clock. Older metrics are written again; False if the write fails."""
    if last // recorded_inputs.METRICS_SECONDS == now // recorded_inputs.METRICS_SECONDS:
        return True
    from .host.agent import metrics_file

    return metrics_file.refresh(host, now, began)
