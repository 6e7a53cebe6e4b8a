# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The text of the agent's systemd units."""

from __future__ import annotations

import re

from ..profile.schema_types import AGENT_SLICE
from ..systemd.confinement import STATE_PATHS, confined
from ..systemd.unit_file import HEADER
from ..values.records import NamedTuple

FOLDER = "/usr/libexec/corral"
RELEASES = f"{FOLDER}/releases"
LAUNCHER = f"{FOLDER}/corral"  # see agent_program.py
# The arguments of the hook that an engine runs before the first instruction of a pod's container: cli/container_hook.py.
CONTAINER_HOOK = ("container", "--start")
COMMAND = "/usr/local/bin/corral"
FACT = "/etc/ansible/facts.d/corral.fact"  # Ansible's module setup runs this file and returns the output as ansible_local.corral
TIMER = "corral-reconcile.timer"
SERVICE = "corral-reconcile.service"
PATH = "corral-reconcile.path"
BOOT = "corral-boot.service"
CONFIRM_TIMER = "corral-confirm.timer"
CONFIRM_SERVICE = "corral-confirm.service"
SLICE = AGENT_SLICE
# The target that wants each enabled unit. The timers and the path unit start the services.
WANTED_BY = {TIMER: "timers.target", PATH: "paths.target", BOOT: "basic.target", CONFIRM_TIMER: "timers.target"}
SERVICES = (SERVICE, CONFIRM_SERVICE)
STARTED = (TIMER, PATH)
INTERVAL = 10  # s, as in the kubelet
# The folder in which Debian's node_exporter looks for the metrics of other programs.
METRICS_DIR = "/var/lib/prometheus/node-exporter"
METRICS_NAME = "corral.prom"
GC_METRICS_NAME = "corral-gc.prom"


class AgentOptions(NamedTuple):
    """The options of the agent: seconds between ticks, the Python that runs the agent, and the folder for metrics (empty: no metrics)."""

    interval: int
    python: str
    metrics_dir: str = METRICS_DIR


def metrics_dir(data: object) -> str:
    """The folder for metrics that ``data`` (agent.json) names, else Debian's folder; an empty string if metrics are switched off."""
    chosen = data.get("metrics_dir") if isinstance(data, dict) else None
    return chosen if isinstance(chosen, str) else METRICS_DIR


def metrics_file(folder: str) -> str:
    """The path of the agent's metrics; an empty string if metrics are switched off."""
    return f"{folder}/{METRICS_NAME}" if folder else ""


def gc_metrics_file(folder: str) -> str:
    """The path of garbage collection's metrics; an empty string if metrics are switched off."""
    return f"{folder}/{GC_METRICS_NAME}" if folder else ""


def metrics_place(name: str) -> str:
    """A regular expression for the path of a metrics file ``name`` in any folder."""
    return rf"(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+/{re.escape(name)}"


def units(options: AgentOptions) -> dict[str, str]:
    """The text of each unit of the agent, by the unit's name."""
    # -S: the tick needs only the standard library, and importing site is a quarter of its start-up. -B: see tick.compile_once.
    program = f"{options.python} -I -S -B {LAUNCHER}"
    run = f"{program} reconcile"
    # FOLDER is writable, since the first run with a new Python compiles the program there.
    paths = f"/etc/systemd /etc/sysctl.d {STATE_PATHS} -{FOLDER}"
    paths += f" -{options.metrics_dir}" if options.metrics_dir else ""
    return {
        SLICE: HEADER + SLICE_TEXT,
        TIMER: HEADER + TIMER_TEXT.format(interval=options.interval),
        SERVICE: HEADER + SERVICE_TEXT.format(run=run) + confined(paths),
        PATH: HEADER + PATH_TEXT,
        # A boot sets state files aside that a kubelet would refuse, in any folder that a kubelet may have in --root-dir.
        BOOT: HEADER + BOOT_TEXT.format(run=run) + confined(paths, system="full") + BOOT_INSTALL_TEXT,
        CONFIRM_TIMER: HEADER + CONFIRM_TIMER_TEXT,
        CONFIRM_SERVICE: HEADER
        + CONFIRM_SERVICE_TEXT.format(run=f"{program} confirm --tick")
        + confined(f"-{FOLDER}", system="yes", families="AF_UNIX AF_INET AF_INET6"),
    }


# The agent has its own slice, so that the agent can run and undo a run even if the limits of other slices leave no room for a task.
SLICE_TEXT = """\
[Unit]
Description=Corral: the agent
"""

TIMER_TEXT = """\
[Unit]
Description=Corral: check the node every {interval} s
Wants=corralagent.slice

[Timer]
OnBootSec=5s
OnUnitInactiveSec={interval}s
# The default of a minute would let drift stand for that long.
AccuracySec=100ms

[Install]
WantedBy=timers.target
"""

PATH_TEXT = """\
[Unit]
Description=Corral: the profile changed

[Path]
PathChanged=/etc/corral/profile.json
Unit=corral-reconcile.service

[Install]
WantedBy=paths.target
"""

SERVICE_TEXT = """\
[Unit]
Description=Corral: keep the node as its profile declares
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart={run} --tick
# 2: something differed; it was corrected, or reported in audit mode.
# Told to end when the agent is removed, while it waits for the removal: that is no failure either.
SuccessExitStatus=2 SIGTERM
TimeoutStartSec=180
# systemd's own three lines a tick are info; changes and failures are notice and above.
LogLevelMax=notice
Slice=corralagent.slice
StateDirectory=corral
StateDirectoryMode=0700
RuntimeDirectory=corral
RuntimeDirectoryPreserve=yes
"""

BOOT_TEXT = """\
[Unit]
Description=Corral: bring back pools, hugepages and limits before workloads start
DefaultDependencies=no
After=sysinit.target
Before=basic.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={run} --boot
SuccessExitStatus=2
TimeoutStartSec=300
LogLevelMax=notice
Slice=corralagent.slice
"""
BOOT_INSTALL_TEXT = """\

[Install]
WantedBy=basic.target
"""

# A run that waits for its confirmation starts this timer, and a boot before the confirmation starts the timer again. The timer elapses
# every few seconds, since the remaining time is computed from two clocks, and an administrator can set one of these clocks.
CONFIRM_TIMER_TEXT = """\
[Unit]
Description=Corral: a profile waits to be confirmed
ConditionPathExists=/var/lib/corral/unconfirmed.json

[Timer]
OnActiveSec=1s
OnUnitInactiveSec=5s
AccuracySec=100ms

[Install]
WantedBy=timers.target
"""

# This service may have to undo all changes of a run. So only /usr is read-only (a kubelet's files may be anywhere else), and the service
# has the network, to wait for the kubelet.
CONFIRM_SERVICE_TEXT = """\
[Unit]
Description=Corral: go back to the profile before one that was not confirmed
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart={run}
SuccessExitStatus=2 SIGTERM
# Each step has a time limit of its own; draining the node may take half an hour. If systemd ended the unit, all would start again.
TimeoutStartSec=infinity
LogLevelMax=notice
Slice=corralagent.slice
"""
