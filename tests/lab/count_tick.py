# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node whose agent is in sync: one tick as the timer would start it, with what it wrote and started counted.

Exits 1 when it did anything but write its status.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, "/usr/libexec/corral")
os.environ["TRIGGER_UNIT"] = "corral-reconcile.timer"

from _core import agent
from _core.host.files import Host

host = Host()
code = agent.tick(host)
print(f"exit {code}, writes {host.writes}, processes {host.commands}")
raise SystemExit(0 if (code, host.writes, host.commands) == (0, ["/run/corral/status.json"], []) else 1)
