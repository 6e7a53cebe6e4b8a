# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The core's files: in Ansible's payload, and compiled on a node that has the agent.

Python compiles each file of a payload at each run, which takes longer than all other work of a converged run. This module is imported
before the core, and lets Python load a file that the agent has compiled on the node, if it is the very same file. That is decided for each
file when it is loaded: a file that the node lacks, has in another version or has damaged comes from the payload.
"""

from __future__ import annotations

import importlib
import importlib.util
import marshal
import os
import stat
import struct
import sys
import types
import typing as t
import zipfile
import zlib
from importlib import machinery, resources
from importlib.abc import InspectLoader

CORE = f"{__name__.rpartition('.')[0]}._core"
LAUNCHER = "/usr/libexec/corral/corral"  # model/agent/agent_units.py has it as well: importing that imports the core
HEADER = struct.Struct("<4sIII")  # of a compiled file: magic number, flags, the source's time and size (PEP 552)


def program(main: types.ModuleType) -> dict[str, str]:
    """The core this module was shipped with: path below the agent's folder → text.

    Inside Ansible's payload the package is a zip file. Its content is installed on the node: ``main``, which the node's command starts, and
    all that it imports.
    """
    package = main.__name__.rpartition(".")[0]
    files: dict[str, str] = {}
    folders = [(resources.files(package), "_core")]
    while folders:
        folder, name = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir() and entry.name != "__pycache__":
                folders.append((entry, f"{name}/{entry.name}"))
            elif entry.name.endswith(".py") and entry.name != "__init__.py":
                files[f"{name}/{entry.name}"] = entry.read_text(encoding="utf-8")
    return files


def use_installed(launcher: str = LAUNCHER) -> bool:
    """Let Python load the compiled files of the running release in place of the payload's; False where this is no payload.

    All come from one release: a run of the agent's module changes the release that ``launcher`` links to.
    """
    archive = getattr(importlib.import_module(CORE).__loader__, "archive", None)
    if archive is None:
        return False
    inside = CORE.replace(".", "/") + "/"
    with zipfile.ZipFile(archive) as payload:
        files = {one.filename[len(inside) :]: one for one in payload.infolist() if one.filename.startswith(inside)}
    sys.meta_path.insert(0, Installed(f"{os.path.dirname(os.path.realpath(launcher))}/_core", files))
    return True


class Installed(InspectLoader):
    """Finds modules of the core on the node (importlib.abc.MetaPathFinder), and loads them."""

    def __init__(self, folder: str, payload: t.Mapping[str, zipfile.ZipInfo]) -> None:
        self.folder = folder
        self.payload = payload
        self.code: dict[str, types.CodeType] = {}

    def find_spec(
        self, name: str, path: t.Optional[t.Sequence[str]] = None, target: t.Optional[types.ModuleType] = None
    ) -> t.Optional[machinery.ModuleSpec]:
        """A module's place on the node; None where it comes from the payload: a folder, or a file that is not the same there."""
        file = name[len(CORE) + 1 :].replace(".", "/") + ".py" if name.startswith(f"{CORE}.") else ""
        wanted = self.payload.get(file)
        code = None if wanted is None else compiled(f"{self.folder}/{file}", wanted)
        if code is None:
            return None
        self.code[name] = code
        return importlib.util.spec_from_file_location(name, f"{self.folder}/{file}", loader=self)

    def get_code(self, fullname: str) -> t.Optional[types.CodeType]:
        """The code of a module that was found."""
        return self.code.pop(fullname, None)

    def get_source(self, fullname: str) -> t.Optional[str]:
        """None: a traceback reads the file."""
        return None

    def is_package(self, fullname: str) -> bool:
        """Folders come from the payload."""
        return False


def compiled(path: str, wanted: zipfile.ZipInfo) -> t.Optional[types.CodeType]:
    """The node's compiled form of a file; None unless it is of this very file and no other user could write it."""
    try:
        source, of_source = read(path)
        data, dummy = read(importlib.util.cache_from_source(path))
        if len(source) != wanted.file_size or zlib.crc32(source) != wanted.CRC:
            return None
        header = (importlib.util.MAGIC_NUMBER, 0, int(of_source.st_mtime) & 0xFFFFFFFF, len(source) & 0xFFFFFFFF)
        if HEADER.unpack_from(data) != header:
            return None
        code = marshal.loads(data[HEADER.size :])  # noqa: S302 (it is root's own, and Python would load it as well)
    except (OSError, EOFError, ValueError, TypeError, NotImplementedError, struct.error):
        return None
    return code if isinstance(code, types.CodeType) else None


def read(path: str) -> tuple[bytes, os.stat_result]:
    """A file of root or of this run's user. Raises OSError for a file of another user, or one that others can write to."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022 or not stat.S_ISREG(status.st_mode):
            raise PermissionError(path)
        return file.read(), status


use_installed()
