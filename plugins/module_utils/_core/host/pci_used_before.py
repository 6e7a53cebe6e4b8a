# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Which PCI functions the machine used before its boot, and so uses again once its network is configured and its disks are mounted.

Until then their interfaces are down, and look free to a workload that starts at boot. Source: systemctl(1), is-system-running.
"""

from __future__ import annotations

import typing as t

from . import state

if t.TYPE_CHECKING:
    from .files import Host

STARTING = ("initializing", "starting")


def of_boot_before(host: Host) -> dict[str, str]:
    """Why each function was used, by address; empty once keep() has looked since the boot, and where nothing was kept."""
    kept = state.checked(host, state.PCI_USED)
    if not isinstance(kept, dict) or kept.get("boot") == host.boot_id() or not isinstance(kept.get("used"), dict):
        return {}
    return {
        address: f"before the reboot {why}, and the node is still starting"
        for address, why in kept["used"].items()
        if isinstance(why, str)
    }


def keep(host: Host, found: t.Mapping[str, str]) -> bool:
    """Keep which of the functions that may be bound are used now (``found``: why, by address; "" for no use); written where that
    changed, and once after each boot.

    False while the node is starting: what it used before counts until it has started.
    """
    kept = state.checked(host, state.PCI_USED)
    used = {address: why for address, why in found.items() if why}
    now = {"boot": host.boot_id(), "used": used}
    if kept == now or not (kept or used):
        return True
    is_new = not isinstance(kept, dict) or kept.get("boot") != now["boot"]
    if kept and is_new and host.run("systemctl", "is-system-running").out.strip() in STARTING:
        return False
    state.write_checked(host, state.PCI_USED, now, spare=False)
    return True
