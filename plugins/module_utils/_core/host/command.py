# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Commands of the machine. A converged tick starts none, and does not load this file."""

from __future__ import annotations

import typing as t

from ..model.values.records import NamedTuple


class Command(NamedTuple):
    """What a command answered: exit code (127: not there, 124: timed out) and its two outputs as text."""

    code: int
    out: str
    err: str


def run_command(argv: t.Sequence[str], timeout: float) -> Command:
    """Run ``argv`` without a shell, in the C locale, with no standard input and no terminal; never raises.

    What runs as another user must not have root's terminal: it could type into it (TIOCSTI) once its user took it over.
    """
    import subprocess  # What systemd answers over its connection is a Command as well, and starts no process.

    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function  # the agent has no AnsibleModule
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            env=environment,
            start_new_session=True,
            umask=0o022,  # the agent's own would keep others from reading what is compiled
            check=False,
        )
    except FileNotFoundError:
        return Command(127, "", f"{argv[0]}: not installed")
    except subprocess.TimeoutExpired:
        return Command(124, "", f"{argv[0]}: no answer within {timeout:g} s")
    except OSError as error:
        return Command(126, "", f"{argv[0]}: {error.strerror}")
    return Command(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
