# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples and the reference page are what the schema says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from _core.model.cpu import pools
from _core.model.profile import capacity_check, node_intent, profile
from _core.model.values import cpuset
from _core.model.values.errors import CorralError
from machines import machine
from shared_data import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tools"))

import profile_reference

EXAMPLES = sorted(set((REPOSITORY / "examples").glob("*.yml")) - {REPOSITORY / "examples" / "prometheus-rules.yml"})


def read(path: Path) -> profile.Profile:
    return profile.parse(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_profile(path: Path) -> None:
    found = read(path)
    assert profile.parse(profile.to_data(found)) == found


def test_the_example_of_the_readme_is_for_the_machine_of_the_lab() -> None:
    edge = read(REPOSITORY / "examples" / "edge.yml")
    lab = machine(memory_kib=960 * 1024)  # 2 nodes of 1 GiB, less what the kernel keeps; siblings are neighbours
    here = node_intent.resolve(edge, lab)
    assert (here.problems, here.notes) == ((), ())
    assert capacity_check.check_node(here.profile, lab) == []
    assert capacity_check.notes(here.profile, lab) == ()
    assert [(row.node, row.pages) for row in here.profile.memory.hugepages] == [(0, 32), (1, 32)]
    found = pools.compute(here.profile, lab)
    assert [cpuset.format(cpus) for cpus in (found.reserved, found.shared, found.isolated)] == ["0-1,4-5", "2-3", "6-7"]
    assert found.notes == ()


def test_the_reference_page_is_up_to_date() -> None:
    page = profile_reference.PAGE.read_text(encoding="utf-8")
    assert page == profile_reference.page(), "run tools/profile_reference.py"


def test_the_page_shows_refusals_as_they_are() -> None:
    """The keys of the example that are refused by name alone: unknown, or of a later version."""
    lines = profile_reference.HEAD.partition("```text\n")[2].partition("```")[0].splitlines()
    edge = yaml.safe_load((REPOSITORY / "examples" / "edge.yml").read_text(encoding="utf-8"))
    with pytest.raises(CorralError) as caught:
        profile.parse({**edge, "cpu": {**edge["cpu"], "isolatd": {}}, "irq": {}})
    assert [problem.line() for problem in caught.value.problems] == lines[1:]
