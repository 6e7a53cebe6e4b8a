# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with an unconfirmed profile: waits until the node has gone back by itself, and prints what its journal says.

With the argument now the time for a confirmation is over at once: what is kept of it is made to say a second.
"""

from __future__ import annotations

import os
import sys

from on_node import run, wait

PROGRAM = os.path.dirname(os.path.realpath("/usr/libexec/corral/corral"))
DECLARED = "/etc/corral/profile.json"
UNCONFIRMED = "/var/lib/corral/unconfirmed.json"
CONFIRM = "corral-confirm.service"


def let_it_be_over() -> None:
    sys.path.insert(0, PROGRAM)
    sys.dont_write_bytecode = True
    from _core.host.agent import unconfirmed_file
    from _core.host.files import Host

    found = unconfirmed_file.pending(Host())
    assert found is not None, "no profile is unconfirmed"
    unconfirmed_file.write(Host(), found._replace(seconds=1))


def main(words: list[str]) -> int:
    if words == ["now"]:
        let_it_be_over()
    wait("the node goes back", lambda: not os.path.exists(UNCONFIRMED), 600, pause=0.5)
    # The service that went back says so when its files are gone: a start joins it, and the journal is told to take it.
    run("systemctl", "start", CONFIRM, code=None)
    run("journalctl", "--sync")
    print(run("journalctl", "--boot", "--quiet", "--no-pager", "--output=cat", f"--unit={CONFIRM}", code=None))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
