# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Runs a program that a profile names in a transient unit, if only root could have changed the program."""

from __future__ import annotations

import signal
import typing as t

from .. import transient_unit, trusted_program
from ..command import ENVIRONMENT, Command, run_foreign

if t.TYPE_CHECKING:
    from ..files import Host

NOT_RUN = 125  # the exit code if systemd did not start the program
SYSTEMD_SECONDS = 60.0  # the time that systemd itself may take, also on a busy machine
PROPERTIES = {
    "Slice": "system.slice",
    "UMask": "0022",
    "TasksMax": "512",
    "MemoryMax": "1G",
    # When the time is up or the first process has ended, systemd kills the whole unit at once.
    "KillSignal": "SIGKILL",
    # systemd would log several lines for each run. The caller reports the exit code instead.
    "LogLevelMax": "err",
    # printenv prints how the program ended, after the program's output (systemd.exec(5), "Environment Variables Set on the Service"). An
    # ${NAME} in this command would not work: systemd 257 doubles each $ in a transient unit's file, and reads the file after a
    # daemon-reload.
    "ExecStopPost": "/usr/bin/printenv CORRAL_END SERVICE_RESULT EXIT_CODE EXIT_STATUS",
}
END = {"CORRAL_END": ""}  # printenv prints an empty line: the program's last line may lack its line feed.
# The program runs as a user that exists only for this run, with its own /tmp, and with the rights that every user has.
UNPRIVILEGED = {"DynamicUser": "yes", "ProtectHome": "yes", "CapabilityBoundingSet": ""}


def run(
    host: Host,
    argv: t.Sequence[str],
    timeout: float,
    variables: t.Mapping[str, str],
    *,
    as_root: bool = True,
    unit: str = "",
) -> Command:
    """Run a command in a transient service. The answer has the form of command.run_foreign(). Never raises.

    ``unit``: the name of the service, for a caller whose lock excludes a second run. A service of this name that a killed caller left is
    stopped first.
    """
    dummy, refused = trusted_program.why_not(host, argv)
    if refused:
        return Command(126, "", f"{argv[0]}: not run: {refused}")
    if not host.runs_commands:
        return host.run(*argv, timeout=timeout)
    host.commands.append(tuple(argv))
    if not host.is_dir("/run/systemd/system"):  # sd_booted(3)
        return Command(126, "", f"{argv[0]}: not run: systemd does not run here, and would run it in a unit of its own")
    if not host.exists(argv[0]):
        return Command(127, "", f"{argv[0]}: not there")
    properties = {
        **PROPERTIES,
        "Description": f"Corral: run {argv[0]}",
        "RuntimeMaxSec": f"{timeout:g}s",
        **({} if as_root else UNPRIVILEGED),
        **bound(host),
    }
    if unit:
        host.run("systemctl", "stop", unit, timeout=SYSTEMD_SECONDS)
    words = transient_unit.command_line(argv, properties, {**ENVIRONMENT, **variables, **END}, unit=unit)
    return outcome(argv[0], timeout, run_foreign(words, timeout + SYSTEMD_SECONDS, {}))


def bound(host: Host) -> dict[str, str]:
    """The property with which systemd stops the service as soon as the caller's service ends; empty in a login session, which has no
    service.

    After= is not set: with After= the service would wait until a caller of Type=oneshot has ended (systemd.unit(5)).
    """
    lines = host.unrecorded(lambda: host.read("/proc/self/cgroup") or "").splitlines()
    groups = [line.split(":", 2)[2] for line in lines if line.startswith("0::/") or ":name=systemd:/" in line]
    for name in (name for group in groups for name in group.split("/") if name and not name.endswith(".slice")):
        if name.endswith(".service"):  # Deeper names are control groups inside the service.
            return {"BindsTo": name.replace("\\", "\\\\")}  # systemd-run removes one backslash
        break
    return {}


def outcome(program: str, timeout: float, answer: Command) -> Command:
    """The program's answer, from the answer of systemd-run: the last lines of the output say how the program ended."""
    if answer.code == 124:
        return Command(124, "", f"{program}: no answer within {timeout:g} s")
    output, result, how, status, *dummy = [*answer.out.rsplit("\n", 4), "", "", ""]
    if answer.err or how not in ("exited", "killed", "dumped"):
        said = answer.err or answer.out.strip().rpartition("\n")[2]
        return Command(NOT_RUN, "", f"{program}: systemd did not run it: {said or 'no reason given'}")
    if result == "timeout":
        return Command(124, "", f"{program}: no answer within {timeout:g} s")
    if result == "oom-kill":
        return Command(126, "", f"{program}: killed, as it needs more than {PROPERTIES['MemoryMax']} of memory")
    if status == "203":  # EXIT_EXEC: systemd.exec(5), "Process Exit Codes"
        said = "its user may not execute it, or a program that its first line names is not there"
        return Command(126, "", f"{program}: {said}")
    return Command(int(status) if status.isdecimal() else -signal_number(status), output, "")


def signal_number(name: str) -> int:
    """The number of a signal that systemd names without SIG."""
    return int(getattr(signal, f"SIG{name}", signal.SIGKILL))
