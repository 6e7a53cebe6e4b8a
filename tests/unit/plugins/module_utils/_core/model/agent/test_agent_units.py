# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's units: what runs where."""

from __future__ import annotations

import re

import pytest
from _core.host.agent import node_hooks
from _core.host.kubelet import kubelet_unit
from _core.model.agent import agent_units
from _core.model.agent.agent_units import BOOT, CONFIRM_SERVICE, SERVICE, SERVICES, SLICE, TIMER, AgentOptions
from _core.model.devices import device_check_units
from _core.model.devices.device import Check
from _core.model.gc import gc_units
from _core.model.profile.profile_gc import GC, ContainerGC
from _core.model.workload import workload_units
from shared_data import REPOSITORY

UNITS = agent_units.units(AgentOptions(10, "/usr/bin/python3"))


@pytest.mark.parametrize("unit", [*SERVICES, BOOT])
def test_no_limit_of_another_slice_stops_the_agent(unit: str) -> None:
    assert f"\nSlice={SLICE}\n" in UNITS[unit]


def test_the_agents_slice_is_there_before_the_first_tick() -> None:
    assert f"\nWants={SLICE}\n" in UNITS[TIMER].partition("[Timer]")[0]


@pytest.mark.parametrize("unit", SERVICES)
def test_what_is_told_to_end_has_not_failed(unit: str) -> None:
    assert "\nSuccessExitStatus=2 SIGTERM\n" in UNITS[unit]


def test_what_workloads_need_is_not_in_a_slice_that_stops_with_the_agent() -> None:
    for text in (gc_units.SERVICE_TEXT, workload_units.GRANT_TEXT):
        assert "\nSlice=system.slice\n" in text


def test_a_workload_that_may_start_often_is_not_stopped_by_what_holds_its_grant() -> None:
    for text in (gc_units.SERVICE_TEXT, workload_units.GRANT_TEXT):
        assert "\nStartLimitIntervalSec=0\n" in text.partition("[Service]")[0]


@pytest.mark.parametrize("unit", [SERVICE, BOOT])
def test_a_look_has_no_network_and_sees_the_interfaces_of_the_machine(unit: str) -> None:
    # systemd.exec(5) of 254: with PrivateNetwork= /sys is mounted anew, for the new network namespace.
    lines = UNITS[unit].splitlines()
    assert "RestrictAddressFamilies=AF_UNIX" in lines
    assert [line for line in lines if line.startswith("PrivateNetwork")] == []


def test_a_way_back_is_tried_again_as_often_as_the_fleets_page_says() -> None:
    page = " ".join((REPOSITORY / "docs/fleet.md").read_text(encoding="utf-8").split())
    (seconds,) = re.findall(r"is tried again every (\d+) seconds", page)
    assert f"OnUnitInactiveSec={seconds}s\n" in agent_units.CONFIRM_TIMER_TEXT


def test_systemd_ends_no_way_back_whose_steps_still_take_their_time() -> None:
    """It would begin anew with the first step, and never come to the others."""
    (limit,) = re.findall(r"^TimeoutStartSec=(.+)$", agent_units.CONFIRM_SERVICE_TEXT, re.MULTILINE)
    hooks = 2 * node_hooks.HOOK_SECONDS  # drain, resume
    steps = hooks + 2 * kubelet_unit.START_SECONDS + node_hooks.HEALTH_SECONDS + node_hooks.READY_SECONDS
    assert limit == "infinity" or float(limit) > steps


def test_a_pass_of_garbage_collection_runs_on_the_oldest_systemd() -> None:
    lines = gc_units.units(COLLECTS, "")[gc_units.SERVICE].splitlines()
    assert "CPUWeight=1" in lines, "idle is refused before systemd 252"


CHECKS = device_check_units.units([Check(("/bin/true",), 30, 5)])[device_check_units.SERVICE]
COLLECTS = GC(None, ContainerGC(0, 1, -1, "all", 60, False, (), ()), ("alice", "bob"))
CORRALS = {
    **{unit: UNITS[unit] for unit in (*SERVICES, BOOT)},
    "checks": CHECKS,
    "grant@": workload_units.grant_unit_text(),
    "gc": gc_units.units(COLLECTS)[gc_units.SERVICE],
    "regrant@": workload_units.regrant_unit_text(),
}
CONFINED = {
    **dict.fromkeys(
        ("LockPersonality", "MemoryDenyWriteExecute", "NoNewPrivileges", "PrivateTmp", "ProtectClock"), "yes"
    ),
    **dict.fromkeys(("ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules"), "yes"),
    **dict.fromkeys(("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID"), "yes"),
    "SystemCallArchitectures": "native",
    "SystemCallFilter": "@system-service",
    "UMask": "0077",
}
# As docs/maintenance.md has it.
WRITTEN = ["/run", "/etc/systemd", "/etc/sysctl.d", "/etc/corral", "/var/lib/corral", "/usr/libexec/corral"]


@pytest.mark.parametrize("unit", CORRALS)
def test_what_runs_corral_alone_is_confined(unit: str) -> None:
    """What systemd makes of it is read on a VM: tests/lab/devices.py, exposures()."""
    service = CORRALS[unit].partition("[Service]\n")[2].partition("[Install]")[0].splitlines()
    settings = dict(line.split("=", 1) for line in service if "=" in line and not line.startswith("#"))
    assert {name: settings.get(name) for name in CONFINED} == CONFINED
    assert settings["ProtectHome"] == ("read-only" if unit == "gc" else "yes")
    assert settings["ProtectSystem"] == {CONFIRM_SERVICE: "yes", BOOT: "full"}.get(unit, "strict")
    families = {"AF_UNIX", *(("AF_INET", "AF_INET6") if unit == CONFIRM_SERVICE else ())}
    assert set(settings["RestrictAddressFamilies"].split()) == families
    paths = [path.lstrip("-") for path in settings["ReadWritePaths"].split()]
    assert set(paths) <= {*WRITTEN, agent_units.METRICS_DIR}
    assert settings.get("StateDirectoryMode", "0700") == "0700"
    capabilities = ("DAC_OVERRIDE",) if unit == "gc" else ("DAC_OVERRIDE", "SYS_RESOURCE", "SYS_PTRACE", "SYS_NICE")
    assert set(settings["CapabilityBoundingSet"].split()) <= {f"CAP_{name}" for name in capabilities}


def test_a_pass_of_garbage_collection_is_confined_since_podman_runs_elsewhere() -> None:
    lines = gc_units.units(COLLECTS, "/srv/metrics")[gc_units.SERVICE].splitlines()
    assert {"MemoryMax=768M", "TasksMax=64"} <= set(lines)
    assert {"PrivateDevices=yes", "PrivateNetwork=yes", "ProtectControlGroups=yes", "ProtectKernelTunables=yes"} <= set(
        lines
    )
    assert "ReadWritePaths=/run -/srv/metrics" in lines
    assert "ReadWritePaths=/run" in gc_units.units(COLLECTS, "")[gc_units.SERVICE].splitlines()


def test_the_way_back_may_remove_corrals_own_state() -> None:
    """A path in ReadWritePaths= is a mount, which cannot be removed."""
    (paths,) = re.findall(r"^ReadWritePaths=(.*)$", UNITS[CONFIRM_SERVICE], re.MULTILINE)
    assert paths == f"-{agent_units.FOLDER}"
