# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a real kubelet made of files, drop-ins and flags, as tests/lab/record_configz.py has recorded it, is what Corral makes of them."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from _core.host.kubelet import kubelet_api
from test_kubelet_inspection import Tree

RECORDED = yaml.safe_load((Path(__file__).resolve().parents[4] / "recorded_configz.yml").read_text(encoding="utf-8"))
CASES: dict[str, dict[str, t.Any]] = RECORDED["cases"]


def node(folder: Path, name: str) -> Tree:
    """A node with the files and the process of a case."""
    tree = Tree(folder)
    for path, text in CASES[name]["files"].items():
        tree.write(path.lstrip("/"), text)
    tree.run(*CASES[name]["flags"])
    return tree


@pytest.mark.parametrize("answered", CASES)
@pytest.mark.parametrize("name", CASES)
def test_a_real_kubelet_merges_as_corral_does(
    name: str, answered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = CASES[answered]["configz"]
    monkeypatch.setattr(kubelet_api, "running_configuration", lambda host, config: answer)
    look = node(tmp_path, name).look()
    assert look.config.problems == ()
    assert look.unlike is not None
    # The answer to another case has other values, so that the comparison sees them.
    assert (look.unlike == ()) == (answer == CASES[name]["configz"])
