# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugins that run on the controller, imported under the collection's name from any checkout path."""

from __future__ import annotations

import importlib
import sys
import types
import typing as t
from pathlib import Path

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
NAME = "ansible_collections.corral.node.plugins"


def load(plugin: str) -> t.Any:
    """A plugin by its folder and name, such as ``filter.fleet_report``."""
    if "ansible_collections" not in sys.modules:  # ansible-test has its own loader
        parts = NAME.split(".")
        for count in range(len(parts)):
            package = types.ModuleType(".".join(parts[: count + 1]))
            package.__path__ = [str(PLUGINS)] if count == len(parts) - 1 else []
            sys.modules[package.__name__] = package
    return importlib.import_module(f"{NAME}.{plugin}")
