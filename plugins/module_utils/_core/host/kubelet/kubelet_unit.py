# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What the files of kubelet.service say: the command that the unit starts, and the file that sets a flag."""

from __future__ import annotations

import fnmatch
import re
import shlex
import typing as t

from ...model.systemd import environment_file
from .. import cgroup, systemd
from ..files import Host
from ..systemd import UnitFiles

UNIT = "kubelet.service"
START_SECONDS = 120.0
TRANSIENT = "/run/systemd/transient/"  # the folder of units of systemd-run(1); systemd removes such a unit when it ends
# $NAME as a whole word stands for the words in a variable's value; ${NAME} inside a word stands for the value.
_WORD = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_INNER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def command(host: Host) -> tuple[str, ...]:
    """The program of the unit and its arguments, with variables expanded (systemd.service(5), "Command lines"); empty without the unit."""
    files = UnitFiles(host, [UNIT])
    lines: list[str] = []
    for setting in files.settings(UNIT, "ExecStart"):
        lines = [*lines, setting.value] if setting.value else []
    if not lines:
        return ()
    environ = environment(host, files)
    words: list[str] = []
    for word in split(lines[-1].lstrip("@-:+!")):
        whole = _WORD.fullmatch(word)
        if whole:
            words += environment_file.words(environ.get(whole.group(1), ""))
        else:
            words.append(_INNER.sub(lambda match: environ.get(match.group(1), ""), word))
    return tuple(words)


def is_installed(host: Host) -> bool:
    """Whether kubelet.service has a unit file, or is masked."""
    return UnitFiles(host, [UNIT]).fragment(UNIT) is not None


def cannot_start(host: Host) -> str:
    """Why systemd would not start the unit after a stop; empty if systemd would. A kubelet runs on when its unit is masked or removed."""
    files = UnitFiles(host, [UNIT])
    fragment = files.fragment(UNIT)
    if fragment is None:
        return "has no unit file any more: install it again"
    if not (host.read(fragment) or "").strip():
        return f"is masked ({fragment}): systemctl unmask {UNIT}"
    if fragment.startswith(TRANSIENT):
        return f"is transient, and its file is removed when it stops ({fragment}): make it a unit of its own"
    lost = [
        one for one in environment_patterns(files) if one[:1] != "-" and not any(map(host.exists, matching(host, one)))
    ]
    if lost:
        return f"needs {lost[0]} (EnvironmentFile=), which is not there: make it, or write a - before it in the unit"
    return "" if command(host) else f"has no ExecStart= ({fragment}): correct it"


def start_again(host: Host) -> str:
    """Start the kubelet that a killed run had stopped, with the present files. Returns a message; an empty string if the kubelet runs.

    The files always fit together: a run moves a state file away before it writes a configuration that does not fit this file.
    """
    if cgroup.service_runs(host, UNIT):
        return ""
    answer = systemd.control(host, "start", UNIT, timeout=START_SECONDS)
    failed = f": {systemd.complaint(answer.err, answer.out)}" if answer.code else ""
    return f"started {UNIT}, which a run had stopped before the run was killed{failed}"


def environment(host: Host, files: UnitFiles) -> dict[str, str]:
    """The variables that the unit's files set; variables from EnvironmentFile= override Environment=."""
    found: dict[str, str] = {}
    for setting in files.settings(UNIT, "Environment"):
        found = {} if not setting.value else {**found, **assigned(split(setting.value))}
    for path in environment_files(host, files):
        found.update(variables(host, path))
    return found


def variables(host: Host, path: str) -> dict[str, str]:
    """The variables of a file that EnvironmentFile= names."""
    text = host.read(path) or ""
    found, earlier = environment_file.parse(text), environment_file.parse(text, long_comments=True)
    return found if found == earlier or (systemd.release(host) or 0) >= environment_file.COMMENTS_END else earlier


def environment_files(host: Host, files: UnitFiles) -> list[str]:
    """The files that EnvironmentFile= names, in their order."""
    return [path for pattern in environment_patterns(files) for path in matching(host, pattern.lstrip("-"))]


def environment_patterns(files: UnitFiles) -> list[str]:
    """The paths or patterns (glob(7)) in EnvironmentFile=; a file with a leading - may be missing."""
    found: list[str] = []
    for setting in files.settings(UNIT, "EnvironmentFile"):
        found = [*found, setting.value] if setting.value else []
    return found


def matching(host: Host, pattern: str) -> list[str]:
    """The paths that match a pattern, sorted; a path without wildcards is returned as it is. No wildcard matches a leading dot."""
    if not re.search(r"[*?[]", pattern):
        return [pattern]
    folder, dummy, name = pattern.rpartition("/")
    return [
        f"{one}/{found}"
        for one in matching(host, folder)
        for found in ([name] if not re.search(r"[*?[]", name) else host.names(one))
        if fnmatch.fnmatchcase(found, name) and (name[:1] == "." or found[:1] != ".")
    ]


def assigned(words: t.Iterable[str]) -> dict[str, str]:
    """NAME=VALUE words as a mapping."""
    return {name: value for name, equals, value in (word.partition("=") for word in words) if equals}


def split(line: str) -> list[str]:
    """The words of a line, without the quotes; if a quote has no end, the line is split at its blanks."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def file_of_flag(host: Host, flag: str) -> str:
    """The last file that sets a flag (``--max-pods``), else UNIT. The files of EnvironmentFile= come after the unit's files."""
    files = UnitFiles(host, [UNIT])
    named_flag = re.compile(rf"{re.escape(flag)}(?![a-z0-9-])")
    own = [(path, files.text(path)) for path in files.files(UNIT)]
    having = [path for path, text in own if text and named_flag.search(code(text))]
    having += [path for path in environment_files(host, files)
               if any(map(named_flag.search, variables(host, path).values()))]  # fmt: skip
    return having[-1] if having else UNIT


def code(text: str) -> str:
    """A file's lines without comments."""
    return "\n".join(systemd.logical_lines(text))
