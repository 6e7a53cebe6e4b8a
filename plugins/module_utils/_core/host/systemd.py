# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""systemd's configuration, read from its files without a command, and the few commands that change systemd's state."""

from __future__ import annotations

import errno
import re
import sys
import typing as t

from ..model.profile.schema_types import CORRAL_SLICE
from ..model.systemd.unit_property import (
    DROPINS,
    ETC,
    PERSISTENT_CONTROL,
    RUNTIME_CONTROL,
    Setting,
    control_file,
    dropin,
)
from ..model.workload.grants import ISOLATED_SLICE
from .cgroup import cpu_list, top_level
from .files import Host, Unreadable

if t.TYPE_CHECKING:
    from .command import Command
    from .sd_bus import Connection

SECONDS = 60.0  # the longest wait for an answer of systemd
OLDEST = 247  # the oldest release that Corral is tested with
# For example libsystemd-shared-252.so or libsystemd-shared-254.10-1.fc39.so.
LIBRARY = r"libsystemd-shared-([0-9]{1,6})[^0-9]"
# systemd.unit(5), "Unit File Load Path": of files with the same name, the file in the first directory wins.
LOAD_PATH = (
    PERSISTENT_CONTROL,
    RUNTIME_CONTROL,
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    ETC,
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/run/systemd/generator.late",
)
SYSTEM_CONF_PATH = (
    "/etc/systemd/system.conf.d",
    "/run/systemd/system.conf.d",
    "/usr/local/lib/systemd/system.conf.d",
    "/usr/lib/systemd/system.conf.d",
)


class NoAnswer(Unreadable):
    """systemd does not say whether units are active: the verdict is "unknown"."""

    def __init__(self, units: t.Sequence[str], said: str) -> None:
        super().__init__("systemd", errno.ETIMEDOUT)
        self.said = f"whether {units[0]} is active: {said}"

    @property
    def why(self) -> str:
        return self.said

    @property
    def advice(self) -> str:
        return f"{self.said}: see that systemctl status answers, and what the journal says of systemd and D-Bus"


def runs(host: Host) -> bool:
    """Whether systemd is PID 1 (sd_booted(3))."""
    return host.is_dir("/run/systemd/system")


def release(host: Host) -> t.Optional[int]:
    """The number of systemd's installed release, from the name of its shared library; None if no such library is found.

    To read a name costs less than to ask systemd, and works on a copy of a node's files.
    """
    folders = [
        f"/usr/lib/{name}/systemd"
        for name in host.names_like("/usr/lib", (("", "-linux-gnu"), ("", "-linux-gnueabihf")))
    ]
    matches = [
        re.match(LIBRARY, name)
        for folder in ("/usr/lib/systemd", "/usr/lib64/systemd", "/lib/systemd", *folders)
        for name in host.names_like(folder, (("libsystemd-shared-", ".so"),))
    ]
    return max((int(match[1]) for match in matches if match), default=None)


def active(host: Host, units: t.Sequence[str]) -> frozenset[str]:
    """The units among ``units`` that are active. Only systemd can tell: no file shows an active unit without processes. Raises NoAnswer."""
    argv = ("systemctl", "is-active", "--", *units)
    answer = answered(host, argv, lambda bus: "\n".join(bus.active_state(unit, SECONDS) for unit in units))
    states = answer.out.split()
    # 5: no such unit (systemctl(1), EXIT STATUS).
    if answer.code not in (0, 5) and len(states) < len(units):
        raise NoAnswer(units, complaint(answer.err, answer.out))
    return frozenset(unit for unit, state in zip(units, states) if state == "active")


def main_processes(host: Host, units: t.Iterable[str]) -> t.Optional[dict[str, str]]:
    """The PIDs of services' main processes ("0": no process), by one call for all; None if systemd does not answer."""
    argv = ("systemctl", "show", "--property=Id,MainPID", "--", *units)
    answer = host.run(*argv, timeout=SECONDS)
    rows = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in answer.out.split("\n\n")]
    return None if answer.code else {row["Id"]: row["MainPID"] for row in rows if "MainPID" in row}


def set_property(host: Host, unit: str, assignment: str) -> Command:
    """Set a property of a unit ("NAME=VALUE") until the next boot."""
    argv = ("systemctl", "set-property", "--runtime", "--", unit, assignment)
    return answered(host, argv, lambda bus: bus.set_property(unit, assignment, SECONDS))


def set_properties(host: Host, unit: str, assignments: t.Sequence[str]) -> Command:
    """Set properties of a unit in this order, in one call, until the next boot."""
    return host.run("systemctl", "set-property", "--runtime", "--", unit, *assignments, timeout=SECONDS)


def control(host: Host, verb: str, unit: str, *, mode: str = "replace", timeout: float) -> Command:
    """Start, stop or restart a unit and wait for the end of the job. For "daemon-reload" ``unit`` is empty."""
    modes = () if mode == "replace" else (f"--job-mode={mode}",)
    argv = ("systemctl", verb, *modes, *(("--", unit) if unit else ()))
    return answered(host, argv, lambda bus: bus.control(verb, unit, mode, timeout), timeout)


def end_units(host: Host, *patterns: str, stop: bool) -> None:
    """Make systemd forget units that match ``patterns`` and whose files are gone: failed units, and with ``stop`` active units too."""
    if stop:
        host.run("systemctl", "stop", "--no-block", "--", *patterns, timeout=SECONDS)
    host.run("systemctl", "reset-failed", "--", *patterns, timeout=SECONDS)


def answered(
    host: Host, argv: tuple[str, ...], ask: t.Callable[[Connection], t.Optional[str]], timeout: float = SECONDS
) -> Command:
    """systemd's answer over the host's connection, in the form of systemctl's answer. If there is no connection, or if it breaks or does
    not cover the request, systemctl (``argv``) runs.
    """
    bus = connection(host)
    if bus is not None:
        from .command import Command
        from .sd_bus import BusError, NotCovered, Unavailable

        sys.audit("corral.systemd", *argv)  # Tests count this event and the event of a process start (PEP 578).
        try:
            answer = Command(0, ask(bus) or "", "")
        except BusError as error:
            answer = Command(error.code, "", str(error))
        except NotCovered:
            return host.run(*argv, timeout=timeout)
        except Unavailable:
            close_connection(host, broken=True)  # systemd may have carried out the request; a repetition is harmless.
            return host.run(*argv, timeout=timeout)
        host.commands.append(argv)
        return answer
    return host.run(*argv, timeout=timeout)


def connection(host: Host) -> t.Optional[Connection]:
    """The connection to systemd, opened by the first call; None without a connection: the caller then runs systemctl."""
    if host.connection is None and not host.connection_tried and host.runs_commands:
        host.connection_tried = True
        try:
            from . import sd_bus  # Imported here: a converged tick asks systemd nothing and does not load ctypes.
        except (ImportError, MemoryError):  # A Python without ctypes, or without the right to make memory executable.
            return None
        host.connection = sd_bus.connect()
    return host.connection


def close_connection(host: Host, *, broken: bool = False) -> None:
    """Close the connection to systemd. The next use opens a new connection, unless the closed connection was ``broken``."""
    bus, host.connection, host.connection_tried = host.connection, None, broken
    if bus is not None:
        bus.close()


def usual_slice(unit: str) -> str:
    """The slice of a service without Slice=: instances of a template have the template's slice (systemd.service(5))."""
    stem, at, dummy = unit.partition("@")
    return f"system-{stem.replace('-', chr(92) + 'x2d')}.slice" if at else "system.slice"


def unit_settings(host: Host, unit: str, name: str) -> list[Setting]:
    """All assignments of ``name`` for ``unit``, in the order in which systemd applies them."""
    return UnitFiles(host, [unit]).settings(unit, name)


class UnitFiles:
    """The files of some units, for one observation: each folder of the load path is listed once, and each file is read once."""

    def __init__(self, host: Host, units: t.Iterable[str]) -> None:
        self.host = host
        wanted = tuple(sorted({name for unit in units for name in (*fragments(unit), *dropin_folders(unit))}))
        self.names = {base: frozenset(host.among(base, wanted)) for base in LOAD_PATH}
        self.texts: dict[str, t.Optional[str]] = {}
        self.ordered: dict[str, list[str]] = {}

    def text(self, path: str) -> t.Optional[str]:
        """A file's text; None if the file is absent."""
        if path not in self.texts:
            self.texts[path] = self.host.read(path)
        return self.texts[path]

    def fragment(self, unit: str) -> t.Optional[str]:
        """The path of the unit's own file (for an instance usually its template's file); None if there is no file."""
        paths = (f"{base}/{name}" for name in fragments(unit) for base, names in self.names.items() if name in names)
        return next((path for path in paths if self.text(path) is not None or self.host.exists(path)), None)

    def mask(self, unit: str) -> str:
        """The file that masks a unit: a link to /dev/null or an empty file (systemd.unit(5)); an empty string for a unit without a mask."""
        path = next((f"{base}/{unit}" for base, names in self.names.items() if unit in names), "")
        return path if path and (self.host.link(path) == "/dev/null" or self.text(path) == "") else ""

    def settings(self, unit: str, name: str) -> list[Setting]:
        """All assignments of ``name`` for a unit, in the order in which systemd applies them."""
        return [setting for file in self.files(unit) for setting in assignments(file, self.text(file), name)]

    def files(self, unit: str) -> list[str]:
        """The unit's own file and its drop-ins, in the order in which systemd applies them."""
        if unit in self.ordered:
            return self.ordered[unit]
        files: dict[str, str] = {}
        # systemd.unit(5): of two drop-ins with the same name, the drop-in in the more specific folder wins; in folders of the same name,
        # the drop-in in the earlier directory of the load path.
        for folder in reversed(dropin_folders(unit)):
            for base, names in self.names.items():
                for file in self.host.names(f"{base}/{folder}") if folder in names else ():
                    if file.endswith(".conf"):
                        files.setdefault(file, f"{base}/{folder}/{file}")
        fragment = self.fragment(unit)
        self.ordered[unit] = ([fragment] if fragment else []) + [files[file] for file in sorted(files)]
        return self.ordered[unit]


def fragments(unit: str) -> list[str]:
    """The file names that can define a unit: the unit's name, and for an instance also the name of the template."""
    stem, dummy, kind = unit.rpartition(".")
    prefix, at, instance = stem.partition("@")
    return [unit, f"{prefix}@.{kind}"] if at and instance else [unit]


def dropin_folders(unit: str) -> list[str]:
    """The folders of a unit's drop-ins, the most general first: of the unit's type (service.d), of the name's prefixes, of the unit."""
    stem, dummy, kind = unit.rpartition(".")
    parts = stem.split("-")
    prefixes = ["-".join(parts[:depth]) + f"-.{kind}.d" for depth in range(1, len(parts))]
    return [f"{kind}.d", *prefixes, *(f"{name}.d" for name in reversed(fragments(unit)))]


def system_settings(host: Host, name: str) -> list[Setting]:
    """All assignments of ``name`` in systemd-system.conf(5) and its drop-ins, in the order of application."""
    files: dict[str, str] = {}
    for base in SYSTEM_CONF_PATH:
        for file in host.names(base):
            if file.endswith(".conf"):
                files.setdefault(file, f"{base}/{file}")
    ordered = ["/etc/systemd/system.conf", *(files[file] for file in sorted(files))]
    return [setting for file in ordered for setting in assignments(file, host.read(file), name)]


def assignments(file: str, text: t.Optional[str], name: str) -> list[Setting]:
    """Each assignment of ``name`` in the text of a unit file, in order."""
    settings = []
    for line in logical_lines(text or ""):
        key, equals, value = line.partition("=")
        if equals and key.strip() == name:
            settings.append(Setting(file, value.strip()))
    return settings


def logical_lines(text: str) -> t.Iterator[str]:
    """The lines of a unit file as systemd joins them (systemd.syntax(7), config_parse in its conf-parser.c).

    A line that ends in a backslash continues on the next line, unless another backslash escapes the backslash. Comments are left out, even
    between the parts of a line; a comment does not continue on the next line.
    """
    parts: list[str] = []
    for line in text.splitlines():
        if line.lstrip()[:1] in ("#", ";"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            parts.append(line[:-1])
            continue
        yield " ".join([*parts, line])
        parts = []
    if parts:
        yield " ".join(parts)


def merged_cpus(settings: t.Iterable[Setting]) -> t.Optional[frozenset[int]]:
    """The CPUs of all assignments together: lists add up, and an empty assignment resets them. None if a list is invalid."""
    total: frozenset[int] = frozenset()
    for item in settings:
        # Blanks and commas both separate CPUs (systemd.resource-control(5)).
        part = cpu_list(",".join(item.value.replace(",", " ").split()))
        if part is None:
            return None
        total = total | part if item.value else frozenset()
    return total


def slices_with_dropins(host: Host, prefix: str) -> list[str]:
    """The slices with this prefix that have drop-ins of set-property or of Corral, running or not."""
    folders = (name for base in DROPINS for name in host.names_like(base, ((prefix, ".slice.d"),)))
    names = dict.fromkeys(name[: -len(".d")] for name in folders)
    return [name for name in names if name != f"{prefix}.slice" and not name.endswith("@.slice")]


def cpus_at_start(unit: str, settings: t.Sequence[Setting]) -> frozenset[int]:
    """The CPUs that set-property and Corral's drop-in would give a unit at its start; empty if another file assigns CPUs, since Corral does
    not take back the CPUs of such a file.
    """
    ours = {dropin(unit, "cpu"), *(control_file(unit, "AllowedCPUs", runtime=runtime) for runtime in (True, False))}
    known = all(item.file in ours for item in settings)
    return (known and merged_cpus(settings)) or frozenset()


def top_level_units(host: Host) -> list[str]:
    """The top-level slices and scopes that run or have files, and Corral's own slices."""
    known = dict.fromkeys(top_level(host))
    for base in LOAD_PATH:
        for name in host.names(base):
            unit = name[: -len(".d")] if name.endswith(".d") else name
            if unit == "init.scope" or (unit.endswith(".slice") and "-" not in unit and unit != ".slice"):
                known[unit] = None
    known.update(dict.fromkeys((CORRAL_SLICE, ISOLATED_SLICE)))
    return list(known)


def complaint(err: str, out: str = "") -> str:
    """The output of systemctl on one line."""
    return " ".join((err or out).split()) or "no message"
