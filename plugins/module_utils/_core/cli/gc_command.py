# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""corral gc: a pass of garbage collection, by hand or by the timer. This file loads no other command."""

from __future__ import annotations

import argparse
import signal

from ..constants import DIFFERS, ERROR, IN_SYNC
from ..gc import gc_outcome, gc_pass
from ..host.files import Host
from ..host.plan import preflight
from ..pipeline import declared_profile, tick
from . import command_output


def do_gc(host: Host, args: argparse.Namespace) -> int:
    """corral gc"""
    stop = gc_pass.new_stop(host)
    before = signal.signal(signal.SIGTERM, lambda *dummy: stop.end())
    try:
        preflight.refuse_node(host)
        if args.tick:
            result = gc_pass.tick(host, tick.notice, stop)
        else:
            declared = declared_profile.read_declared(host) or command_output.the_profile(host, None)
            result = gc_pass.now(host, declared, dry=args.dry_run, stop=stop)
            command_output.show(args, gc_outcome.result_data(result), gc_outcome.lines(result))
    finally:
        signal.signal(signal.SIGTERM, before)
    return ERROR if result.errors else DIFFERS if result.drift else IN_SYNC
