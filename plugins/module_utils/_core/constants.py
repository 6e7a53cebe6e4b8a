# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What all commands have in common: Corral's version, their exit codes, the version of their JSON, how long each waits for the
node's lock.

A tick that finds nothing changed does not load this file.
"""

from __future__ import annotations

VERSION = "0.1.0"  # the collection's (galaxy.yml)
IN_SYNC, ERROR, DIFFERS = 0, 1, 2
LOCK_SECONDS = 120.0
SCHEMA = 1  # of all that programs read: see model/status/json_shapes.py
