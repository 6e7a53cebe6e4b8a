# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The agent's program on a node: each release in a folder of its own, and one link that says which of them runs.

    /usr/libexec/corral/corral -> releases/0f3a5c7e9b21/corral     replaced by rename(2): the old program runs, or the new one
    /usr/libexec/corral/releases/0f3a5c7e9b21/corral               the launcher, which imports the core beside it
    /usr/libexec/corral/releases/0f3a5c7e9b21/_core/...

A folder is named after what is in it. So a release that is being written is never one that runs, and a release that ran
before is there as it was. Before there were releases the launcher and its core lay in /usr/libexec/corral itself.
"""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple
from .agent_units import FOLDER, LAUNCHER, RELEASES

LAUNCHER_NAME = LAUNCHER.rpartition("/")[2]
NO_RELEASE = ""  # the name of a program that lies in FOLDER itself
DIGITS = 12  # of SHA-256


class Program(NamedTuple):
    """A release: its name, and its files' texts by their paths below its folder."""

    name: str
    files: dict[str, str]

    @property
    def folder(self) -> str:
        """Where it lies on a node."""
        return f"{RELEASES}/{self.name}"

    @property
    def link(self) -> str:
        """What LAUNCHER is a link to while this one runs."""
        return f"{self.folder[len(FOLDER) + 1 :]}/{LAUNCHER_NAME}"

    def mode(self, path: str) -> int:
        """The permission bits of one of its files."""
        return 0o755 if path == f"{self.folder}/{LAUNCHER_NAME}" else 0o644


def program(core: t.Mapping[str, str], python: str) -> Program:
    """The release that is made of the core's files and the launcher for a Python."""
    import hashlib  # The tick has no use for it.

    files = {**core, LAUNCHER_NAME: launcher(python)}
    content = "".join(f"{name}\0{text}\0" for name, text in sorted(files.items()))
    return Program(hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()[:DIGITS], files)


def launcher(python: str) -> str:
    """The command, for users and units alike: it takes all of its core from one release, whatever is installed meanwhile."""
    return (
        f"#!{python} -I\n"
        f'"""Corral\'s command line; installed by the module corral.node.agent."""\n\n'
        f"import os\nimport sys\n\n"
        f"sys.dont_write_bytecode = True  # a removal must find what it compiled, and no more\n"
        f"sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))\n\n"
        f"from _core import main\n\nraise SystemExit(main.main(sys.argv[1:]))\n"
    )


def release_at(path: str) -> str:
    """The name of the release to which a path below FOLDER belongs; NO_RELEASE for one that lies in FOLDER itself."""
    inside = path[len(RELEASES) + 1 :] if path.startswith(f"{RELEASES}/") else ""
    return inside.partition("/")[0]


def release_of(link: t.Optional[str]) -> str:
    """The release to which the launcher leads whose link has this text (None: it is none); "" where it leads to none."""
    return release_at(link if link.startswith("/") else f"{FOLDER}/{link}") if link else ""
