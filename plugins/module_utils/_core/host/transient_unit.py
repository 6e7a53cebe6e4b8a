# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The command that runs a foreign program in its own unit, so that Corral's units can have every restriction."""

from __future__ import annotations

import typing as t


def command_line(
    argv: t.Sequence[str], properties: t.Mapping[str, str], variables: t.Mapping[str, str], *, unit: str = ""
) -> tuple[str, ...]:
    """The command that runs ``argv`` in a transient service with these properties and environment variables.

    ``argv`` gets the caller's standard streams, and systemd-run ends with the exit code of ``argv`` (systemd-run(1), --pipe and --wait).
    systemd starts the processes, so they do not have the caller's control group, capabilities, mounts and limits; when ``argv`` ends,
    systemd ends the processes that are left. Each dollar sign is doubled: systemd replaces variables (systemd.service(5)).
    """
    named = (f"--unit={unit}",) if unit else ()
    given = [f"--property={name}={value}" for name, value in properties.items()]
    given += [f"--setenv={name}={value}" for name, value in variables.items()]
    doubled = [word.replace("$", "$$") for word in argv[1:]]
    return ("systemd-run", "--quiet", "--pipe", "--wait", "--collect", *named, *given, "--", argv[0], *doubled)
