# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Virtual environments beside .venv: another ansible-core, a node's Python, a tool that gets on with no other.

They are cached for all checkouts of this machine, each under a name that says what it was made from.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

import setup

CACHE = pathlib.Path(os.environ.get("CORRAL_CACHE") or "~/.cache/corral").expanduser()
TOOLS = setup.CHECKOUT / "tools"
NODE = range(9, 15)  # Python 3.9 (RHEL 9) to 3.14: what a node may have
NEWEST = (14, 13, 12)  # what the newest ansible-core runs on
OLDEST = (11, 12, 10)  # what the oldest ansible-core runs on; the first is what most machines have for .venv
UNUSED = 30 * 24 * 3600  # s; after that a virtual environment goes


def made(name: str, python: str) -> pathlib.Path:
    """The virtual environment of tools/NAME.txt with this Python; it is made when there is none from the same pins."""
    recipe = "\n".join([os.path.realpath(python), *(file.read_text(encoding="utf-8") for file in recipes(name))])
    folder = CACHE / "venvs" / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").is_file() or not runs(folder):
            setup.say(f"making the virtual environment {folder.name} with {python}")
            subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
            subprocess.run([*pip, "--progress-bar=off", "--requirement", str(TOOLS / f"{name}.txt")], check=True)
        (folder / "complete").touch()
    return folder


def recipes(name: str) -> list[pathlib.Path]:
    """tools/NAME.txt and the files that it names."""
    file = TOOLS / f"{name}.txt"
    words = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    return [file, *(TOOLS / line[1] for line in words if line and line[0] in ("-c", "-r"))]


def runs(folder: pathlib.Path) -> bool:
    """Its interpreter may have gone with the version manager's."""
    return subprocess.run([str(folder / "bin" / "python"), "-c", ""], capture_output=True, check=False).returncode == 0


def prune() -> None:
    """Remove the environments of pins that were not used for long."""
    for complete in (CACHE / "venvs").glob("*/complete"):
        if time.time() - complete.stat().st_mtime > UNUSED:
            shutil.rmtree(complete.parent, ignore_errors=True)


@functools.cache
def found(minor: int) -> str | None:
    """setup.interpreter, asked only once."""
    return setup.interpreter(minor)


def newest_python() -> str | None:
    """A Python for the newest ansible-core, when that of .venv is too old for it."""
    if sys.version_info[1] in NEWEST:
        return None
    return next(filter(None, map(found, NEWEST)), None)


def node_python() -> str | None:
    """The oldest Python that a node may have, of those that are here and older than that of .venv."""
    return next(filter(None, map(found, range(NODE.start, sys.version_info[1]))), None)


def oldest_python() -> str | None:
    """A Python for the oldest ansible-core."""
    return sys.executable if sys.version_info[1] in OLDEST else next(filter(None, map(found, OLDEST)), None)


def minor_of(venv: pathlib.Path) -> int:
    """The minor version of its Python."""
    asked = [str(venv / "bin" / "python"), "-c", "import sys; print(sys.version_info[1])"]
    return int(subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout)


def core_of(venv: pathlib.Path) -> str:
    """Its ansible-core: 2.21."""
    asked = [str(venv / "bin" / "python"), "-c", "import ansible.release as r; print(r.__version__)"]
    version = subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout.decode()
    return ".".join(version.split(".")[:2])
