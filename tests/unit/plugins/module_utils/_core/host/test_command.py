# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of the machine: what they are given, and what they are not."""

from __future__ import annotations

import os
import pty

import pytest
from _core.host.command import run_command

OPENS_THE_TERMINAL = ("sh", "-c", "exec </dev/tty")


def on_a_terminal(number: int) -> int:
    """The exit code of a command that opens the terminal of whoever runs it: run by us (0), or through ``sh`` alone (1)."""
    pid, terminal = pty.fork()
    if not pid:
        code = (
            run_command(OPENS_THE_TERMINAL, 30).code if number == 0 else os.spawnvp(os.P_WAIT, "sh", OPENS_THE_TERMINAL)
        )
        os._exit(code)
    dummy, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize(("number", "opens"), [(0, False), (1, True)])
def test_a_command_has_no_terminal_that_it_could_type_into(number: int, opens: bool) -> None:
    assert (on_a_terminal(number) == 0) == opens


def test_what_went_wrong_is_a_code_and_a_reason() -> None:
    assert run_command(("no-such-program",), 5) == (127, "", "no-such-program: not installed")
    assert run_command(("sleep", "60"), 0.1).code == 124
    assert run_command(("sh", "-c", "echo out; echo err >&2; exit 3"), 5) == (3, "out\n", "err\n")
