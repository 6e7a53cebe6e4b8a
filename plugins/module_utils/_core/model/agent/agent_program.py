# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The agent's program on a node: each release has a folder, and a link selects the release that runs.

/usr/libexec/corral/corral -> releases/0f3a5c7e9b21/corral     replaced by rename(2): a start runs the old release or the new one
    /usr/libexec/corral/releases/0f3a5c7e9b21/corral               the launcher, which imports the core beside it
    /usr/libexec/corral/releases/0f3a5c7e9b21/_core/...

A folder is named after its content, so a new release never overwrites the files of a release that runs or of an earlier release. Earlier
versions of Corral have the launcher and its core in /usr/libexec/corral itself.
"""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple
from .agent_units import FOLDER, LAUNCHER, RELEASES

LAUNCHER_NAME = LAUNCHER.rpartition("/")[2]
NO_RELEASE = ""  # the release of a program that an earlier version of Corral installed, directly in FOLDER
DIGITS = 12  # the hexadecimal digits of SHA-256 in the name of a release


class Program(NamedTuple):
    """A release: its name, and the text of each file, by the file's path below the release's folder."""

    name: str
    files: dict[str, str]

    @property
    def folder(self) -> str:
        """The release's folder on a node."""
        return f"{RELEASES}/{self.name}"

    @property
    def link(self) -> str:
        """The target of the symbolic link LAUNCHER while this release is installed."""
        return f"{self.folder[len(FOLDER) + 1 :]}/{LAUNCHER_NAME}"

    def mode(self, path: str) -> int:
        """The permission bits of a file of the release."""
        return 0o755 if path == f"{self.folder}/{LAUNCHER_NAME}" else 0o644


def program(core: t.Mapping[str, str], python: str) -> Program:
    """The release that contains the files ``core`` (texts by path) and a launcher for the interpreter ``python``."""
    import hashlib  # a tick does not need this module

    files = {**core, LAUNCHER_NAME: launcher(python)}
    content = "".join(f"{name}\0{text}\0" for name, text in sorted(files.items()))
    return Program(hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()[:DIGITS], files)


def launcher(python: str) -> str:
    """The text of the command ``corral``. It loads the whole core from one release, even while another release is installed."""
    return (
        f"#!{python} -I\n"
        f'"""Corral\'s command line; installed by the module corral.node.agent."""\n\n'
        f"import os\nimport sys\n\n"
        f"sys.dont_write_bytecode = True  # a removal must find what it compiled, and no more\n"
        f"sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))\n\n"
        f"from _core import main\n\nraise SystemExit(main.main(sys.argv[1:]))\n"
    )


def release_at(path: str) -> str:
    """The name of the release to which a path below FOLDER belongs; NO_RELEASE for a path in FOLDER itself."""
    inside = path[len(RELEASES) + 1 :] if path.startswith(f"{RELEASES}/") else ""
    return inside.partition("/")[0]


def release_of(link: t.Optional[str]) -> str:
    """The name of the release to which the launcher's link leads; empty without a release. ``link``: the link's target, or None."""
    return release_at(link if link.startswith("/") else f"{FOLDER}/{link}") if link else ""
