# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Commands of a service that run a container outside the service's own slice (podman-run(1), ``--cgroups``)."""

from __future__ import annotations

import shlex
import typing as t

PROGRAMS = ("podman", "docker")
PREFIXES = "@-:+!|"  # the characters that a unit file may have before a command line (systemd.service(5))
# Options before the verb that take the next word as their value (podman(1), docker(1)).
VALUED = (
    "--cgroup-manager", "--config", "-c", "--connection", "--conmon", "--context", "--events-backend", "--host", "-H",
    "--hooks-dir", "--identity", "-l", "--log-level", "--module", "--network-cmd-path", "--network-config-dir", "--out",
    "--root", "--runroot", "--runtime", "--runtime-flag", "--ssh", "--storage-driver", "--storage-opt", "--tmpdir",
    "--url", "--volumepath",
)  # fmt: skip
# The values of --cgroups with which the container's processes stay in the control group of the service.
INSIDE = ("split", "disabled")
# The verbs that start existing containers, or the containers of a file such as a compose file.
OTHERS = ("start", "restart", "kube", "play", "pod", "compose")


def run_elsewhere(commands: t.Iterable[str], slice_name: str) -> str:
    """The first command, such as "podman run", that runs a container outside of ``slice_name``; an empty string without such a command.

    ``commands`` are the values of ExecStart=. Whatever the service's slice is, Podman without ``--cgroups=split`` gives the container a
    scope in machine.slice, and Docker's daemon gives the container a scope in system.slice.
    """
    for program, words in of_programs(commands):
        if verb(words) != "run":
            continue
        options = options_of(words[words.index("run") + 1 :])
        kept = program == "podman" and value_of(options, "--cgroups") in INSIDE
        parent = value_of(options, "--cgroup-parent").rstrip("/").rpartition("/")[2]
        if not kept and parent != slice_name and "%" not in parent:  # "%": a specifier may stand for the slice
            return f"{program} run"
    return ""


def starts_others(commands: t.Iterable[str]) -> str:
    """The first command, such as "podman start", that names no cgroup for its containers; an empty string without such a command."""
    return next((f"{program} {verb(words)}" for program, words in of_programs(commands) if verb(words) in OTHERS), "")


def of_programs(commands: t.Iterable[str]) -> t.Iterator[tuple[str, list[str]]]:
    """The commands that run Podman or Docker, each as the program's name and its arguments."""
    for command in commands:
        try:
            words = shlex.split(command)
        except ValueError:
            continue  # The quotes are unbalanced: systemd refuses this command, too.
        for line in lines(words):
            prefix = line[0][: len(line[0]) - len(line[0].lstrip(PREFIXES))]
            program = line[0].rpartition("/")[2].lstrip(PREFIXES)
            if program in PROGRAMS:
                yield program, line[2:] if "@" in prefix else line[1:]  # @: the next word is the process's name.


def lines(words: t.Sequence[str]) -> t.Iterator[list[str]]:
    """The command lines of one ExecStart=; the word ";" stands between two command lines."""
    begin = 0
    for index, word in enumerate([*words, ";"]):
        if word == ";":
            if words[begin:index]:
                yield [*words[begin:index]]
            begin = index + 1


def options_of(words: t.Sequence[str]) -> list[str]:
    """The options in the arguments of ``podman run``, which the image and the container's command follow.

    An option without "=" may take the next word as its value. So the options end at the second of two successive words without a leading
    "-": the second word is the image, or comes after the image.
    """
    options: list[str] = []
    for before, word in zip(["-", *words], words):
        if not word.startswith("-") and not before.startswith("-"):
            break
        options.append(word)
    return options


def verb(words: t.Sequence[str]) -> str:
    """The verb of a command: the first word that is no option, no option's value and not ``container`` (as in ``podman container run``)."""
    before = ""
    for word in words:
        if not word.startswith("-") and before not in VALUED and word != "container":
            return word
        before = word
    return ""


def value_of(words: t.Sequence[str], option: str) -> str:
    """The last value of an option, written ``--option=value`` or ``--option value``; an empty string without the option."""
    value = ""
    for index, word in enumerate(words):
        if word.startswith(f"{option}="):
            value = word[len(option) + 1 :]
        elif word == option and index + 1 < len(words):
            value = words[index + 1]
    return value
