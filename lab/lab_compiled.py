# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bytecode for nodes of a release (node_compiled.py), lent to each on a disk: compiled here, or kept of earlier nodes."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t

import lab_base
import lab_image
import lab_packages

COMPILE = """
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import node_compiled
node_compiled.FOLDER = sys.argv[2]
for path in sys.stdin.read().splitlines():
    with open(path, "rb") as file:
        node_compiled._frozen_importlib_external.SourceFileLoader("", path).source_to_code(file.read(), path)
"""
ON_NODE = "/var/cache/lab-compiled"  # what this node compiled; below it, read-only, what was kept of others
NAME_LENGTH = 32  # of a digest; what is still being written has a longer name
KEPT_SECONDS = 2 * 86400  # Then it is compiled and kept again: what is not used any more goes.
# A saved state has a disk of this very size (bytes). What is not used of it takes no room on the host.
DISK_SIZE = 512 << 20
# The state may know the first blocks of another disk.
MOUNT = f"blockdev --flushbufs /dev/vdb && mount -o ro,noatime /dev/vdb {ON_NODE}/kept"


def folder(release: str) -> pathlib.Path:
    """Where the compiled files of a release are."""
    found = lab_base.cache() / "bytecode" / release
    found.mkdir(parents=True, exist_ok=True)
    return found


def make_disk(release: str, disk: pathlib.Path) -> None:
    """Make the disk with all that is there for the release: through SSH an emulated node would take ten seconds for it."""
    kept = folder(release)
    limit = time.time() - KEPT_SECONDS
    for path in kept.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another lab removes the same
            if path.stat().st_mtime < limit:
                path.unlink()
    compile_here(release, kept)
    with disk.open("wb") as file:
        file.truncate(DISK_SIZE)
    # Files of a few KiB each.
    search = f"{os.environ.get('PATH', '')}:{lab_packages.SBIN}"
    words = ["mkfs.ext4", "-q", "-O", "^has_journal", "-N", "32768", "-b", "1024", "-d", str(kept), str(disk)]
    lab_base.run("env", f"PATH={search}", *words)


def compile_here(release: str, kept: pathlib.Path) -> None:
    """Compile what nodes get from this checkout and from Ansible, unless it is there: an emulated node takes ten times as long.

    It is a saving and no more: without the release's Python, or when it fails, each node compiles for itself. Another build of the
    same version of Python makes the same bytecode.
    """
    texts = "\n".join(map(str, sources()))
    for python in candidates(lab_image.python(release)):
        words = [python, "-I", "-S", "-c", COMPILE, str(lab_base.HERE), str(kept)]
        with contextlib.suppress(OSError):  # it cannot be executed
            done = subprocess.run(words, input=texts, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return


def sources() -> list[pathlib.Path]:
    """The files that Ansible and the scenarios bring to a node."""
    checkout = lab_base.HERE.parent
    folders = [checkout / "plugins", checkout / "tests" / "lab"]
    ansible = importlib.util.find_spec("ansible")
    if ansible:
        folders += [pathlib.Path(place) / "module_utils" for place in ansible.submodule_search_locations or ()]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def candidates(name: str) -> list[str]:
    """All programs of this name on PATH: a version manager's may only say that it has no such Python."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep) if name else []
    return [found for one in (*folders, os.path.dirname(sys.executable)) if (found := shutil.which(name, path=one))]


def collect(release: str, ssh: t.Sequence[str]) -> None:
    """Keep what a node compiled. Other labs may do the same."""
    kept = folder(release)
    new = f"cd {ON_NODE} && find . -maxdepth 1 -type f -print0 | tar --create --null --files-from -"
    work = pathlib.Path(tempfile.mkdtemp(dir=kept.parent))
    try:
        pipe(f"{shlex.join([*ssh, new])} | tar --extract --directory {shlex.quote(str(work))}")
        for path in work.iterdir():
            if len(path.name) == NAME_LENGTH:
                os.utime(path)
                path.replace(kept / path.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def prune() -> None:
    """Remove all of it."""
    shutil.rmtree(lab_base.cache() / "bytecode", ignore_errors=True)


def pipe(command: str) -> None:
    """Run a pipe of which each part must end well."""
    lab_base.run("bash", "-c", f"set -o pipefail; {command}", timeout=60)
