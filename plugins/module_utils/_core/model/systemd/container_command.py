# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Commands of a service that run a container outside the service's own slice (podman-run(1), ``--cgroups``)."""

from __future__ import annotations

import shlex
import typing as t

PROGRAMS = ("podman", "docker")
PREFIXES = "@-:+!|"  # of a command line in a unit file (systemd.service(5))
# With these the container's processes stay in the control group of the service.
INSIDE = ("split", "disabled")


def run_elsewhere(commands: t.Iterable[str], slice_name: str) -> str:
    """What runs a container that is not in ``slice_name`` ("podman run"); "" where none of the commands does.

    ``commands`` are the values of ExecStart=. Without ``--cgroups=split`` Podman gives a container a scope in
    machine.slice, and Docker's daemon gives it one in system.slice, whatever slice the service is in.
    """
    for command in commands:
        try:
            words = shlex.split(command.lstrip(PREFIXES))
        except ValueError:
            continue  # systemd refuses it as well
        program = words[0].rpartition("/")[2] if words else ""
        verbs = [word for word in words[1:] if not word.startswith("-") and word != "container"]
        if program not in PROGRAMS or verbs[:1] != ["run"]:
            continue
        options = words[words.index("run") + 1 :]
        kept = program == "podman" and any(value_of(options, "--cgroups") == one for one in INSIDE)
        if not kept and value_of(options, "--cgroup-parent").rpartition("/")[2] != slice_name:
            return f"{program} run"
    return ""


def value_of(words: t.Sequence[str], option: str) -> str:
    """The last value of an option, written ``--option=value`` or ``--option value``; "" without it."""
    found = ""
    for index, word in enumerate(words):
        if word.startswith(f"{option}="):
            found = word[len(option) + 1 :]
        elif word == option and index + 1 < len(words):
            found = words[index + 1]
    return found
