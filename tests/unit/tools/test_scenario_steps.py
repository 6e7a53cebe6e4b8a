# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenarios that run some steps on one release and some on another: no step of their scripts is left out on all."""

from __future__ import annotations

import ast
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[3]


def names_in(script: str, variable: str) -> set[str]:
    """The functions in a tuple of a script, which imports what only a node has."""
    text = (REPOSITORY / "tests" / "lab" / script).read_text(encoding="utf-8")
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == variable:
            assert isinstance(statement.value, ast.Tuple)
            return {ast.unparse(one) for one in statement.value.elts}
    raise AssertionError(f"{script} has no {variable}")


def test_each_step_of_workloads_runs_on_some_release() -> None:
    converge = yaml.safe_load((REPOSITORY / "molecule" / "workloads" / "converge.yml").read_text(encoding="utf-8"))
    listed = {name for one in ("older", "newer") for name in converge[0]["vars"][one].split()}
    assert listed == names_in("workloads.py", "STEPS")
