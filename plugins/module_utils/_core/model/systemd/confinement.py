# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What each unit that runs Corral alone bears, as text: what it runs on behalf of others runs in units of their own.

Tried setting by setting: ProtectKernelTunables and ProtectControlGroups would break sysctl, hugepages and cgroup writes. SYS_PTRACE
reads the mounts of PID 1, DAC_OVERRIDE and SYS_RESOURCE write other users' limits.
"""

from __future__ import annotations

# With AF_UNIX a unit has no network. Not by PrivateNetwork=: from systemd 254 on that hides the machine's interfaces in /sys,
# which are looked at.
CONFINED = """\
UMask=0077
ProtectSystem={system}
ReadWritePaths={paths}
ProtectHome={home}
PrivateTmp=yes
NoNewPrivileges=yes
RestrictAddressFamilies={families}
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
CapabilityBoundingSet={capabilities}
"""
# A path that is named is a mount, which cannot be removed. All of /run: /run/cdi may have to be made, and who writes units in
# /run/systemd needs no other place there.
STATE_PATHS = "/run -/etc/corral -/var/lib/corral"


CAPABILITIES = "CAP_DAC_OVERRIDE CAP_SYS_RESOURCE CAP_SYS_PTRACE CAP_SYS_NICE"


def confined(
    paths: str,
    *,
    system: str = "strict",
    families: str = "AF_UNIX",
    home: str = "yes",
    capabilities: str = CAPABILITIES,
) -> str:
    """The settings, with what may be written beside the kernel's own files, and with what is reached (systemd.exec(5))."""
    return CONFINED.format(paths=paths, system=system, families=families, home=home, capabilities=capabilities)
