# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What systemd's files say, read without asking systemd, and the few commands that change it."""

from __future__ import annotations

import typing as t

from ..model.unitproperty import ETC, PERSISTENT_CONTROL, RUNTIME_CONTROL, Setting
from .files import Host

# systemd.unit(5), "Unit File Load Path": the first directory that has a file of a name wins.
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


def runs(host: Host) -> bool:
    """Whether systemd is PID 1 (sd_booted(3))."""
    return host.is_dir("/run/systemd/system")


def active(host: Host, units: t.Sequence[str]) -> frozenset[str]:
    """Which of the units are active; one call for all. Units without processes leave no trace to read."""
    answer = host.run("systemctl", "is-active", "--", *units)
    return frozenset(unit for unit, state in zip(units, answer.out.split("\n")) if state.strip() == "active")


def usual_slice(unit: str) -> str:
    """Where a service runs that says nothing: instances of a template have a slice of their own (systemd.service(5))."""
    stem, at, dummy = unit.partition("@")
    return f"system-{stem.replace('-', chr(92) + 'x2d')}.slice" if at else "system.slice"


def unit_settings(host: Host, unit: str, name: str) -> list[Setting]:
    """All assignments of ``name`` for ``unit``, in the order in which systemd applies them."""
    stem, dummy, kind = unit.rpartition(".")
    parts = stem.split("-")
    folders = [f"{kind}.d"]
    folders += ["-".join(parts[:depth]) + f"-.{kind}.d" for depth in range(1, len(parts))]
    folders.append(f"{unit}.d")
    files: dict[str, str] = {}
    # systemd.unit(5): of two drop-ins with one name the more specific folder wins, then the earlier load path.
    for folder in reversed(folders):
        for base in LOAD_PATH:
            for file in host.names(f"{base}/{folder}"):
                if file.endswith(".conf"):
                    files.setdefault(file, f"{base}/{folder}/{file}")
    fragment = next((f"{base}/{unit}" for base in LOAD_PATH if host.exists(f"{base}/{unit}")), None)
    ordered = ([fragment] if fragment else []) + [files[file] for file in sorted(files)]
    return assignments(host, ordered, name)


def system_settings(host: Host, name: str) -> list[Setting]:
    """All assignments of ``name`` in systemd-system.conf(5) and its drop-ins, in the order of application."""
    files: dict[str, str] = {}
    for base in SYSTEM_CONF_PATH:
        for file in host.names(base):
            if file.endswith(".conf"):
                files.setdefault(file, f"{base}/{file}")
    return assignments(host, ["/etc/systemd/system.conf", *(files[file] for file in sorted(files))], name)


def assignments(host: Host, files: t.Iterable[str], name: str) -> list[Setting]:
    """Each ``name=value`` of the files, in order."""
    found = []
    for file in files:
        for line in (host.read(file) or "").splitlines():
            key, equals, value = line.partition("=")
            if equals and key.strip() == name:
                found.append(Setting(file, value.strip()))
    return found


def complaint(err: str, out: str = "") -> str:
    """What systemctl said, on one line."""
    return " ".join((err or out).split()) or "no message"
