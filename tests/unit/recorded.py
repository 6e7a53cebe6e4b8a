# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded machines as hosts, straight out of their archives: unpacking thousands of tiny files costs far more.

Beside them the project's own ones, which described.py makes of small texts. Those are in each checkout.
"""

from __future__ import annotations

import functools
import json
import posixpath
import tarfile
import typing as t
from pathlib import Path

import described
import pytest
from _core.host.files import Host
from _core.host.topology.sysfs import discover
from _core.model.topology.topology import Topology
from shared_data import TOPOLOGIES, absent

SUFFIX = ".tar.gz"


def name_of(archive: Path) -> str:
    return archive.stem if archive.suffix == ".yml" else archive.name[: -len(SUFFIX)]


def archives() -> list[t.Any]:
    """The archives as pytest parameters; one skipped parameter with the reason when there are none."""
    found = sorted(TOPOLOGIES.glob(f"*{SUFFIX}"))
    return [pytest.param(path, id=name_of(path)) for path in found] or [absent(TOPOLOGIES, "CORRAL_TOPOLOGIES")]


def machines() -> list[t.Any]:
    """All machines, the project's own and recorded ones, as pytest parameters."""
    own = sorted(described.FOLDER.glob("*.yml"))
    return [*(pytest.param(path, id=name_of(path)) for path in own), *archives()]


def expected(archive: Path) -> dict[str, t.Any]:
    """What discovery must find."""
    if archive.suffix == ".yml":
        return described.facts(archive)
    text = (TOPOLOGIES / "expected" / f"{name_of(archive)}.json").read_text(encoding="utf-8")
    return t.cast("dict[str, t.Any]", json.loads(text))


@functools.cache
def topology_of(archive: Path) -> Topology:
    return discover(Archive(archive))


class Archive(Host):
    """A machine in memory, read from its archive or made of its text. It cannot be written."""

    def __init__(self, archive: Path) -> None:
        super().__init__("/nonexistent", record=True)
        self._files: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        self._entries: dict[str, set[str]] = {"/": set()}
        if archive.suffix == ".yml":
            for path, text in described.files(archive).items():
                self._files[path] = text.encode()
                self._list(path, is_folder=False)
            return
        with tarfile.open(archive) as tar:
            for member in tar:
                path = "/" + posixpath.normpath(member.name).partition("/")[2]
                if member.issym():
                    self._links[path] = member.linkname
                elif member.isfile():
                    file = tar.extractfile(member)
                    self._files[path] = file.read() if file else b""
                self._list(path, is_folder=member.isdir())

    def _list(self, path: str, *, is_folder: bool) -> None:
        if is_folder:
            self._entries.setdefault(path, set())
        while path != "/":
            path, _slash, name = path.rpartition("/")
            path = path or "/"
            known = path in self._entries
            self._entries.setdefault(path, set()).add(name)
            if known:
                return

    def _real(self, path: str, links: int = 40) -> str:
        real = ""
        parts = path.split("/")
        for at, part in enumerate(parts):
            if part in ("", "."):
                continue
            if part == "..":
                real = real.rpartition("/")[0]
                continue
            target = self._links.get(f"{real}/{part}")
            if target is None:
                real = f"{real}/{part}"
            elif links:
                rest = "/".join([target, *parts[at + 1 :]])
                return self._real(rest if target.startswith("/") else f"{real}/{rest}", links - 1)
        return real or "/"

    def read_bytes(self, path: str, follow: bool = True) -> bytes | None:
        return self.tell(self._files.get(self._real(path)), "read_bytes", path, follow)

    def names(self, path: str) -> list[str]:
        return sorted(self._entries.get(self._real(path), ()))

    def exists(self, path: str) -> bool:
        real = self._real(path)
        return real in self._files or real in self._entries

    def is_dir(self, path: str) -> bool:
        return self._real(path) in self._entries

    def link(self, path: str) -> str | None:
        folder, _slash, name = path.rpartition("/")
        return self._links.get(f"{self._real(folder)}/{name}".replace("//", "/"))


class Overlay(Archive):
    """A recorded machine on which some files hold something else."""

    def __init__(self, archive: Path, files: dict[str, bytes]) -> None:
        self.__dict__.update(_loaded(archive).__dict__)
        self.overlay = files

    def read_bytes(self, path: str, follow: bool = True) -> bytes | None:
        return self.overlay[path] if path in self.overlay else super().read_bytes(path, follow=follow)


_loaded = functools.cache(Archive)
