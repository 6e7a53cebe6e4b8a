# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The text of the systemd units of garbage collection."""

from __future__ import annotations

from ..agent.agent_units import LAUNCHER, METRICS_DIR
from ..profile.profile_gc import GC
from ..systemd.confinement import confined
from ..systemd.pass_units import timer_text
from ..systemd.unit_file import HEADER

TIMER = "corral-gc.timer"
SERVICE = "corral-gc.service"


def period(gc: GC) -> int:
    """Seconds between two starts of the service: the shortest interval. A pass that is not due yet waits for a later start."""
    return min(part.interval for part in (gc.images, gc.containers) if part is not None)


def units(gc: GC, metrics: str = METRICS_DIR) -> dict[str, str]:
    """The text of each unit, by the unit's name. ``metrics`` is the folder for metrics (empty: no metrics)."""
    seconds = period(gc)
    run, folder = f"{LAUNCHER} gc --tick", f" -{metrics}" if metrics else ""
    return {
        TIMER: timer_text("collect images and dead containers", seconds, seconds),
        SERVICE: HEADER
        + SERVICE_TEXT.format(run=run, memory=512 + 128 * len(gc.users))
        # All of /run is writable, since /run/corral may have to be made. Homes are readable, to measure the file system of root's storage.
        # The service needs CAP_DAC_OVERRIDE, since another user owns the folder for metrics.
        + confined(f"/run{folder}", home="read-only", capabilities="CAP_DAC_OVERRIDE"),
    }


# Podman does not work inside a hardened unit: Corral runs Podman in transient units (podman_unit.py).
SERVICE_TEXT = """\
[Unit]
Description=Corral: remove images and dead containers that the profile does not keep
ConditionPathExists=/usr/libexec/corral/corral
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart={run}
# 2: something was removed, or would be in audit mode.
SuccessExitStatus=2
# A pass ends by itself after 300 s; this is for one whose last command hangs. It may be stopped at any point.
TimeoutStartSec=600
# Podman leaves layers behind when a removal is killed: only this process gets the signal, and ends after the current removal.
KillMode=mixed
TimeoutStopSec=200
LogLevelMax=notice
Slice=system.slice
# What users' Podmans may answer, and a pass over 10,000 images.
MemoryMax={memory}M
TasksMax=64
CPUSchedulingPolicy=idle
IOSchedulingClass=idle
CPUWeight=1
StateDirectory=corral
StateDirectoryMode=0700
PrivateDevices=yes
PrivateNetwork=yes
ProtectControlGroups=yes
ProtectKernelTunables=yes
"""
