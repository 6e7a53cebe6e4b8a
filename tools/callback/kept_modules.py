# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible callback: what one playbook sends to nodes as a module is there for the next one.

Ansible makes a module's payload once for each run of a playbook: it parses all that the module imports, which takes two seconds
of CPU for one of this collection, and a scenario runs many playbooks. What it made of the collection's modules goes into the folder
that CORRAL_KEPT_MODULES names, under a hash of ansible-core's version and of all files that can be in a payload.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pathlib
import shutil
import sys
import tempfile
import typing as t

from ansible import constants
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__

DOCUMENTATION = r"""
name: kept_modules
type: aggregate
short_description: Keeps the payloads of the collection's modules for the next playbook.
description:
  - Puts them where Ansible looks for one that it has made already, and keeps those that are new.
requirements:
  - CORRAL_KEPT_MODULES in the environment
"""

COLLECTION = "ansible_collections.corral.node"
PLUGINS = ("modules", "module_utils")


class CallbackModule(CallbackBase):  # type: ignore[misc] # ansible has no types
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kept_modules"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.made = pathlib.Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache")  # of ansible/executor/module_common.py
        self.kept: pathlib.Path | None = None

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        folder = os.environ.get("CORRAL_KEPT_MODULES")
        if folder:
            self.kept = pathlib.Path(folder, version())
            put(self.kept, self.made)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        if self.kept:
            put(self.made, self.kept)
            for other in set(self.kept.parent.glob("*")) - {self.kept}:
                shutil.rmtree(other)


def version() -> str:
    """A hash of what decides what is in a payload of this collection."""
    found = hashlib.sha256(f"{__version__} {sys.version}".encode())
    for folder in importlib.import_module(COLLECTION).__path__:
        for file in sorted(path for name in PLUGINS for path in pathlib.Path(folder, "plugins", name).rglob("*.py")):
            found.update(f"{file}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()


def put(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy the payloads of the collection's modules that the target lacks. Another playbook may do the same at the same time."""
    for file in source.glob(f"{COLLECTION}.*"):
        if file.name.endswith((".lock", "-part")) or (target / file.name).exists():
            continue
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target, prefix=".", delete=False) as copy, file.open("rb") as made:
            shutil.copyfileobj(made, copy)
        os.replace(copy.name, target / file.name)
