# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of the section ``confirm``: how a node confirms a profile by itself."""

from __future__ import annotations

from . import schema_types as types
from .schema_key import LIST, Key

KEYS: tuple[Key, ...] = (
    Key(
        "confirm",
        None,
        "How a node itself confirms a profile that something other than a run of Corral put into `/etc/corral/profile.json`, such as an "
        "image, `ansible-pull` or a copy ([pull mode](fleet.md#pull-mode)). Without this section such a profile stays once it is applied.",
    ),
    Key(
        "confirm.command",
        types.COMMAND_WORD,
        "A command, as a list of words that no shell reads, with the absolute path of the program first. It runs as root on the "
        "reserved CPUs, again and again until it ends with exit code 0: then the profile is confirmed. Only root may be able to change "
        "the program and what paths among the words lead to ([devices.md](devices.md#what-root-runs-only-root-may-change)).",
        example="[/usr/local/bin/node-is-healthy]",
        many=LIST,
        required=True,
    ),
    Key(
        "confirm.timeout",
        types.WAIT,
        "How long the node waits for exit code 0 before it goes back to the previous profile.",
        example="5m",
        default="2m",
    ),
)
