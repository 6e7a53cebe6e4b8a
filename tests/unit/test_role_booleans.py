# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A variable that is true or false can come as text (-e corral_agent=false): each condition makes a truth value of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = yaml.safe_load((ROOT / "roles/corral/meta/argument_specs.yml").read_text())["argument_specs"]["main"][
    "options"
]
OF_PLAYBOOKS = {"corral_drain_all", "corral_fail_on_drift"}
NAMES = OF_PLAYBOOKS | {name for name, option in OPTIONS.items() if option["type"] == "bool"}
FILES = [path for folder in ("roles/corral/tasks", "playbooks") for path in sorted((ROOT / folder).rglob("*.yml"))]
# Alone in its template it is handed on as it is: the option of a module makes a truth value of it.
HANDED_ON = r'"\{\{ NAME( \| default\([^)]*\))? \}\}"'
CONVERTED = r"\bNAME( \| default\([^)]*\))? \| bool\b"
SET_OR_TOLD = r"\bNAME[:=]"


def test_there_are_such_variables() -> None:
    assert {"corral_agent", "corral_confirm", "corral_require_in_sync", "corral_force", "corral_reboot_ok"} <= NAMES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_condition_takes_text_for_true(path: Path) -> None:
    wrong = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        code = re.sub(r"(^|\s)#.*", "", line)
        for name in NAMES:
            for pattern in (HANDED_ON, CONVERTED, SET_OR_TOLD):
                code = re.sub(pattern.replace("NAME", name), "", code)
            if re.search(rf"\b{name}\b", code):
                wrong.append(f"{number}: {line.strip()}")
    assert not wrong
