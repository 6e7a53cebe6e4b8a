# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Which PCI functions the machine used before its boot, and so uses again once its network is configured and its disks are mounted.

Until then their interfaces are down, and look free to a workload that starts at boot. Source: systemctl(1), is-system-running.
"""

from __future__ import annotations

import typing as t

from ..model.plan.plan import Change
from . import state

if t.TYPE_CHECKING:
    from .files import Host

STARTED = ("running", "degraded")


def of_boot_before(host: Host, addresses: t.Iterable[str]) -> dict[str, str]:
    """Why each of these functions was used, by address; empty once the node has started, or keep() has looked since the boot.

    A record may be of long ago: nothing looks any more where no device is to be bound, or the agent is gone.
    """
    kept = record(host)
    if kept is not None and (not kept["used"] or kept["boot"] == host.boot_id()):
        return {}
    if (kept is None and not state.there(host, state.PCI_USED)) or has_started(host):
        return {}
    said = "the node is still starting (systemctl is-system-running), and"
    if kept is None:
        return dict.fromkeys(addresses, f"{said} {state.PCI_USED}, with what it used before it booted, cannot be read")
    # What to do about it is for a node that has started.
    return {
        address: f"{said} before it booted this was so: {why.partition(': ')[0]}"
        for address, why in kept["used"].items()
    }


def keep(host: Host, found: t.Mapping[str, str]) -> bool:
    """Keep which of the functions that may be bound are used now (``found``: why, by address; "" for no use); written where that
    changed, and once after each boot.

    False where one is used no longer and the node is starting or stops: what it used before counts until it has started again.
    """
    kept = record(host)
    is_damaged = kept is None and state.there(host, state.PCI_USED)
    used = {address: why for address, why in found.items() if why}
    now = {"boot": host.boot_id(), "used": used}
    if kept == now or not (kept or used or is_damaged):
        return True
    is_less = kept is not None and not kept["used"].keys() <= used.keys()
    if (is_damaged or is_less) and not has_started(host):
        return False
    state.write_checked(host, state.PCI_USED, now, spare=False)
    return True


def unwritten(host: Host, found: t.Mapping[str, str], error: OSError) -> Change:
    """The drift where keep() has failed: what the machine began to use since would look free while the node starts again."""
    kept = record(host)
    sides = [
        "; ".join(f"{address}: {why.partition(': ')[0]}" for address, why in sorted(used.items()) if why)
        or "none is used"
        for used in (kept["used"] if kept else {}, found)
    ]
    reason = (
        f"cannot be written ({error.strerror}): make room, or mount it for writing; while the node starts after its next boot, "
        "a PCI function that is not in it may be given to a workload"
    )
    return Change("devices", state.PCI_USED, "content", sides[0], sides[1], reason, state.PCI_USED)


def record(host: Host) -> t.Optional[dict[str, t.Any]]:
    """What was kept: the boot, and why each function was used by address. None where there is none, and for one that is damaged."""
    kept = state.checked(host, state.PCI_USED)
    if not isinstance(kept, dict) or "boot" not in kept or not isinstance(kept.get("used"), dict):
        return None
    return kept if all(isinstance(why, str) for why in kept["used"].values()) else None


def has_started(host: Host) -> bool:
    """Whether systemd has started all that it starts at a boot, and is not about to stop it."""
    return host.run("systemctl", "is-system-running").out.strip() in STARTED
