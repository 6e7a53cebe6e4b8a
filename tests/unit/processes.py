# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of /proc/PID by which a process shows its name, its user and its control group (proc(5))."""

from __future__ import annotations


def files(
    pid: int, name: str, *, user: int = 0, ids: str = "", group: str = "/system.slice/some.service", pids: str = ""
) -> dict[str, str]:
    """Path to text; ``ids`` are the real, effective, saved and file system's user id where they differ."""
    shown = ids or "\t".join([str(user)] * 4)
    return {
        f"/proc/{pid}/comm": f"{name}\n",
        f"/proc/{pid}/status": f"Name:\t{name}\nUid:\t{shown}\nNSpid:\t{pids or pid}\n",
        f"/proc/{pid}/cgroup": f"0::{group}\n",
    }
