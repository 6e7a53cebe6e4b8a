# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Constants of all commands: Corral's version, the exit codes, the version of the JSON output, and the seconds that a command
waits for the node's lock.

A tick that finds nothing changed does not load this file.
"""

from __future__ import annotations

VERSION = "0.1.0"  # the collection's version (galaxy.yml)
IN_SYNC, ERROR, DIFFERS = 0, 1, 2
LOCK_SECONDS = 120.0
SCHEMA = 1  # the version of the JSON output: see model/status/json_shapes.py
