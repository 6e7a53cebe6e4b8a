# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What nodes of a release compiled (node_compiled.py), kept here and brought to the next ones."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import tempfile
import time
import typing as t

import lab_base

ON_NODE = "/var/cache/lab-compiled"
NAME_LENGTH = 32  # of a digest; what is still being written has a longer name
KEPT_SECONDS = 2 * 86400  # Then it is compiled and kept anew: what nobody needs any more goes.


def folder(release: str) -> pathlib.Path:
    """Where the compiled files of a release are."""
    found = lab_base.cache() / "compiled" / release
    found.mkdir(parents=True, exist_ok=True)
    return found


def bring(release: str, ssh: t.Sequence[str]) -> None:
    """Put what earlier nodes compiled on a node; ``ssh`` is the command line that reaches it."""
    kept = folder(release)
    limit = time.time() - KEPT_SECONDS
    for path in kept.iterdir():
        if path.stat().st_mtime < limit:
            path.unlink(missing_ok=True)
    there = f"tar --extract --directory {ON_NODE} && touch {ON_NODE}/brought"
    pipe(f"tar --create --directory {shlex.quote(str(kept))} . | {shlex.join([*ssh, there])}")


def collect(release: str, ssh: t.Sequence[str]) -> None:
    """Keep what a node compiled. Other labs may do the same."""
    kept = folder(release)
    new = f"cd {ON_NODE} && find . -type f -newer brought ! -name brought -print0 | tar --create --null --files-from -"
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
    shutil.rmtree(lab_base.cache() / "compiled", ignore_errors=True)


def pipe(command: str) -> None:
    """Run a pipe of which each part must end well."""
    lab_base.run("bash", "-c", f"set -o pipefail; {command}", timeout=60)
