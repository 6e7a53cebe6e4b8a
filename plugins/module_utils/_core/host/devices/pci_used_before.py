# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The PCI functions that the machine used before its boot, and uses again once the network is up and the disks are mounted.

Until then these functions look free to a workload that starts at boot. Source: systemctl(1), is-system-running.
"""

from __future__ import annotations

import typing as t

from ...model.plan.plan import Change
from .. import state

if t.TYPE_CHECKING:
    from ..files import Host

STARTED = ("running", "degraded")


def of_boot_before(host: Host, addresses: t.Iterable[str]) -> dict[str, str]:
    """Why each recorded function was used before the boot, by address; if the record is damaged, a reason for each of ``addresses``.

    The result is empty if the node has started, or if keep() has run since the boot. A record may be old: keep() runs only on nodes with an
    agent and devices to bind.
    """
    kept = record(host)
    if kept is not None and (not kept["used"] or kept["boot"] == host.boot_id()):
        return {}
    if (kept is None and not state.there(host, state.PCI_USED)) or has_started(host):
        return {}
    said = "the node is still starting (systemctl is-system-running), and"
    if kept is None:
        return dict.fromkeys(addresses, f"{said} {state.PCI_USED}, with what it used before it booted, cannot be read")
    # The text after ": " is advice for a node that has started, and is left out.
    return {
        address: f"{said} before it booted this was so: {why.partition(': ')[0]}"
        for address, why in kept["used"].items()
    }


def keep(host: Host, uses: t.Mapping[str, str]) -> bool:
    """Record the functions that are used now, after a change and once after each boot. ``uses``: the reason by address ("": not used).

    While the node starts or stops, keep() does not replace a damaged record, or a record with a function that is not used now, and returns
    False.
    """
    kept = record(host)
    is_damaged = kept is None and state.there(host, state.PCI_USED)
    used = {address: why for address, why in uses.items() if why}
    now = {"boot": host.boot_id(), "used": used}
    if kept == now or not (kept or used or is_damaged):
        return True
    is_less = kept is not None and not kept["used"].keys() <= used.keys()
    if (is_damaged or is_less) and not has_started(host):
        return False
    state.write_checked(host, state.PCI_USED, now, spare=False)
    return True


def unwritten(host: Host, uses: t.Mapping[str, str], error: OSError) -> Change:
    """The drift after a failed keep(): at the next start, functions that the record lacks would look free."""
    kept = record(host)
    sides = [
        "; ".join(f"{address}: {why.partition(': ')[0]}" for address, why in sorted(used.items()) if why)
        or "none is used"
        for used in (kept["used"] if kept else {}, uses)
    ]
    reason = (
        f"cannot be written ({error.strerror}): make room, or mount it for writing; while the node starts after its next boot, "
        "a PCI function that is not in it may be given to a workload"
    )
    return Change("devices", state.PCI_USED, "content", sides[0], sides[1], reason, state.PCI_USED)


def record(host: Host) -> t.Optional[dict[str, t.Any]]:
    """The record: the id of a boot, and why each function was used, by address. None for an absent or damaged record."""
    kept = state.checked(host, state.PCI_USED)
    if not isinstance(kept, dict) or "boot" not in kept or not isinstance(kept.get("used"), dict):
        return None
    return kept if all(isinstance(why, str) for why in kept["used"].values()) else None


def has_started(host: Host) -> bool:
    """Whether systemd has started everything for this boot, and is not shutting down."""
    return host.run("systemctl", "is-system-running").out.strip() in STARTED
