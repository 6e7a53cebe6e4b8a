# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What Corral runs on behalf of others runs in a unit of its own: Corral's own units then bear every restriction."""

from __future__ import annotations

import typing as t


def command_line(
    argv: t.Sequence[str], properties: t.Mapping[str, str], variables: t.Mapping[str, str], *, unit: str = ""
) -> tuple[str, ...]:
    """The command that runs ``argv`` in a transient service with these properties and environment variables.

    Its standard streams are those of the caller, its exit code is the command's (systemd-run(1), --pipe and --wait). systemd
    makes the processes, so they have neither the caller's control group nor its capabilities, mounts and limits; when the
    command ends, systemd ends what it left behind. A dollar sign is doubled: systemd puts variables in (systemd.service(5)).
    """
    named = (f"--unit={unit}",) if unit else ()
    given = [f"--property={name}={value}" for name, value in properties.items()]
    given += [f"--setenv={name}={value}" for name, value in variables.items()]
    doubled = [word.replace("$", "$$") for word in argv[1:]]
    return ("systemd-run", "--quiet", "--pipe", "--wait", "--collect", *named, *given, "--", argv[0], *doubled)
