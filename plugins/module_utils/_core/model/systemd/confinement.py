# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The security settings of units that run Corral, as text. Programs that do not belong to Corral run in other units.

Each setting was tried alone: ProtectKernelTunables and ProtectControlGroups would break sysctl, hugepages and cgroup writes. SYS_PTRACE is
for reading the mounts of PID 1, DAC_OVERRIDE and SYS_RESOURCE for writing other users' limits.
"""

from __future__ import annotations

# With AF_UNIX alone a unit has no network. From systemd 254 on PrivateNetwork= would hide the machine's interfaces in /sys.
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
# A named path becomes a mount, and a mount point cannot be removed. The list has all of /run, since Corral may have to create /run/cdi.
# Access to all of /run gives no further rights: a process that writes units in /run/systemd can do anything.
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
    """The settings (systemd.exec(5)). ``paths``: writable paths besides the kernel's files. ``families``: the allowed address families."""
    return CONFINED.format(paths=paths, system=system, families=families, home=home, capabilities=capabilities)
