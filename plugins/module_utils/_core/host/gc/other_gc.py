# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Other programs that remove images and containers: a kubelet, and timers or cron jobs that prune."""

from __future__ import annotations

import re
import typing as t

from ...model.systemd.unit_property import ETC
from .. import cgroup, systemd
from ..files import Host

# Services that are a kubelet or contain a kubelet.
KUBELETS = (
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "k0scontroller.service",
    "k0sworker.service",
    "microshift.service",
    "snap.microk8s.daemon-kubelite.service",
    "snap.kubelet-eks.daemon.service",
)
WANTS = ("multi-user.target.wants", "default.target.wants")
EXEC = ("ExecStart", "ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost")
PRUNES = re.compile(
    r"\bpodman\s[^;&|]*\bprune\b|\bpodman(?:\s+-\S+)*\s+(?:[a-z]+\s+)?rmi?\s(?:[^;&|]*\s)?(?:--all\b|-[a-z]*a[a-z]*\b)"
)
# A command that removes only images without a name; podman-auto-update.service runs such a command after an update.
DANGLING = re.compile(r"\bpodman\s+image\s+prune(?!.*\s(?:-[a-z]*a|--all))")
CRON_FILES = ("/etc/crontab", "/var/spool/cron/crontabs/root", "/var/spool/cron/root")
CRON_FOLDERS = ("/etc/cron.d", "/etc/cron.hourly", "/etc/cron.daily", "/etc/cron.weekly", "/etc/cron.monthly")


def kubelet(host: Host) -> t.Optional[str]:
    """The service that is this node's kubelet, running now or enabled for the next boot; None without a kubelet.

    An enabled unit must have its unit file: the link of a removed package stays until the package is purged.
    """
    for service in KUBELETS:
        if cgroup.service_runs(host, service):
            return service
        if any(host.link(f"{ETC}/{folder}/{service}") for folder in WANTS):
            if systemd.UnitFiles(host, [service]).fragment(service) is not None:
                return service
    return None


def pruners(host: Host) -> list[tuple[str, str]]:
    """The enabled timers and cron files that prune Podman's storage, each with its pruning command."""
    jobs = []
    timers = [name for name in host.names(f"{ETC}/timers.target.wants") if name.endswith(".timer")]
    files = systemd.UnitFiles(host, timers)
    started = {timer: [row.value for row in files.settings(timer, "Unit")] for timer in timers}
    services = {timer: (units or [""])[-1] or f"{timer[: -len('.timer')]}.service" for timer, units in started.items()}
    files = systemd.UnitFiles(host, services.values())
    for timer, service in services.items():
        line = next((line for line in commands(files, service) if PRUNES.search(line)), None)
        if line is not None:
            jobs.append((timer, line))
    crons = [*CRON_FILES, *(f"{folder}/{name}" for folder in CRON_FOLDERS for name in host.names(folder))]
    for file in crons:
        text = host.lines(file, "podman") or ""
        rows = (row.strip() for row in text.splitlines())
        line = next((row for row in rows if not row.startswith("#") and PRUNES.search(row)), None)
        if line is not None:
            jobs.append((file, line))
    return jobs


def commands(files: systemd.UnitFiles, service: str) -> list[str]:
    """The commands of a service; an empty assignment removes the earlier commands (systemd.service(5))."""
    lines: list[str] = []
    for name in EXEC:
        own: list[str] = []
        for row in files.settings(service, name):
            own = [*own, row.value] if row.value else []
        lines += own
    return lines
