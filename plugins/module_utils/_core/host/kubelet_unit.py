# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""kubelet.service as its files have it: the command that it starts, and which file sets a flag."""

from __future__ import annotations

import re
import shlex
import typing as t

from . import cgroup, systemd
from .files import Host
from .systemd import UnitFiles

UNIT = "kubelet.service"
START_SECONDS = 120.0
TRANSIENT = "/run/systemd/transient/"  # systemd-run(1): unloaded once it has ended
# A word that stands for a variable of the environment, whose value is split into words, and a variable within a word.
_WORD = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_INNER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def command(host: Host) -> tuple[str, ...]:
    """The program of the unit and its arguments, variables expanded (systemd.service(5), "Command lines"); () without the unit."""
    files = UnitFiles(host, [UNIT])
    lines: list[str] = []
    for setting in files.settings(UNIT, "ExecStart"):
        lines = [*lines, setting.value] if setting.value else []
    if not lines:
        return ()
    variables = environment(host, files)
    words: list[str] = []
    for word in split(lines[-1].lstrip("@-:+!")):
        whole = _WORD.fullmatch(word)
        if whole:
            words += variables.get(whole.group(1), "").split()
        else:
            words.append(_INNER.sub(lambda match: variables.get(match.group(1), ""), word))
    return tuple(words)


def is_installed(host: Host) -> bool:
    """Whether there is a unit that may start, also one that is masked."""
    return UnitFiles(host, [UNIT]).fragment(UNIT) is not None


def cannot_start(host: Host) -> str:
    """Why systemd would not start the unit once it is stopped, as a kubelet runs on whose unit was masked or removed; "" where it would."""
    fragment = UnitFiles(host, [UNIT]).fragment(UNIT)
    if fragment is None:
        return "has no unit file any more: install it again"
    if not (host.read(fragment) or "").strip():
        return f"is masked ({fragment}): systemctl unmask {UNIT}"
    if fragment.startswith(TRANSIENT):
        return f"is transient, and its file is removed when it stops ({fragment}): make it a unit of its own"
    return "" if command(host) else f"has no ExecStart= ({fragment}): correct it"


def start_again(host: Host) -> str:
    """Start the kubelet that a run stopped before it was ended itself, with whatever files are there; what happened, "" for nothing.

    The files fit at each moment: a state is set aside before the configuration is written that needs that.
    """
    if cgroup.service_runs(host, UNIT):
        return ""
    answer = systemd.control(host, "start", UNIT, timeout=START_SECONDS)
    failed = f": {systemd.complaint(answer.err, answer.out)}" if answer.code else ""
    return f"started {UNIT}, which a run had stopped before the run was killed{failed}"


def environment(host: Host, files: UnitFiles) -> dict[str, str]:
    """The variables that the unit's files set; what EnvironmentFile= names comes after Environment=."""
    found: dict[str, str] = {}
    for setting in files.settings(UNIT, "Environment"):
        found = {} if not setting.value else {**found, **assigned(split(setting.value))}
    for path in environment_files(files):
        lines = (line.strip() for line in (host.read(path) or "").splitlines())
        found.update(assigned(f"{name}={' '.join(split(value))}" for name, equals, value in
                              (line.partition("=") for line in lines if line[:1] not in ("", "#", ";")) if equals))  # fmt: skip
    return found


def environment_files(files: UnitFiles) -> list[str]:
    """The files that EnvironmentFile= names, in their order."""
    found: list[str] = []
    for setting in files.settings(UNIT, "EnvironmentFile"):
        found = [*found, setting.value.lstrip("-")] if setting.value else []
    return found


def assigned(words: t.Iterable[str]) -> dict[str, str]:
    """NAME=VALUE words as a mapping."""
    return {name: value for name, equals, value in (word.partition("=") for word in words) if equals}


def split(line: str) -> list[str]:
    """Words of a line, quotes taken off; the line at its blanks where a quote has no end."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def file_of_flag(host: Host, flag: str) -> str:
    """The last file that has a flag (``--max-pods``): one of the unit's, or one that EnvironmentFile= names; the unit where none has."""
    files = UnitFiles(host, [UNIT])
    named_flag = re.compile(rf"{re.escape(flag)}(?![a-z0-9-])")
    own = [(path, files.text(path)) for path in files.files(UNIT)]
    named = [(path, host.read(path)) for path in environment_files(files)]
    having = [path for path, text in (*own, *named) if text and named_flag.search(code(text))]
    return having[-1] if having else UNIT


def code(text: str) -> str:
    """A file's lines without comments."""
    return "\n".join(systemd.logical_lines(text))
