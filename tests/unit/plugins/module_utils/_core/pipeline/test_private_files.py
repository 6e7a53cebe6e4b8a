# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of Corral that hold commands and labels of a profile are root's alone."""

from __future__ import annotations

import stat
import typing as t

import node
import pytest
import runs
from _core.host import state

Make = t.Callable[..., node.Node]


def mode_of(fake: node.Node, path: str) -> int:
    return stat.S_IMODE((fake.root / path[1:]).stat().st_mode)


@pytest.mark.parametrize("path", [state.DECLARED, state.ORIGINS])
def test_the_declaration_is_closed_to_other_users(path: str, make: Make) -> None:
    fake = make()
    assert not runs.declare(fake.host(), origin="group_vars/all.yml").error
    assert mode_of(fake, path) == 0o600


@pytest.mark.parametrize("path", [state.DECLARED, state.ORIGINS])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o622])
def test_one_that_is_open_is_closed_by_the_next_rollout(path: str, mode: int, make: Make) -> None:
    fake = make()
    assert not runs.declare(fake.host(), origin="group_vars/all.yml").error
    (fake.root / path[1:]).chmod(mode)
    outcome = runs.declare(fake.host(), origin="group_vars/all.yml")
    assert not outcome.error and not outcome.remaining
    found = [(one.subject, one.property, one.actual, one.wanted) for one in outcome.applied]
    assert found == [(path, "mode", f"{mode:04o}", "0600")]
    assert mode_of(fake, path) == 0o600
    assert not runs.declare(fake.host(), origin="group_vars/all.yml").applied


def test_nothing_below_the_state_folder_is_open(make: Make) -> None:
    fake = runs.converged(make(), with_agent=True)
    runs.declare(fake.host(), pids={"pid_max": 50000})
    runs.tick(fake.host())
    folder = fake.root / state.STATE[1:]
    assert mode_of(fake, state.STATE) == 0o700
    files = [one for one in folder.rglob("*") if one.is_file()]
    assert len(files) > 5
    assert [one.name for one in files if stat.S_IMODE(one.stat().st_mode) & 0o077] == []
