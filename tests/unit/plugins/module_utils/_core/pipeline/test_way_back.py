# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a plan is for the way back of an unconfirmed profile: only where it is for the profile before that one."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from _core.host import state
from _core.host.files import Host
from _core.model.profile import profile
from _core.pipeline import declared_profile

BEFORE, OTHER = {"name": "before", "pids": {"pid_max": 80000}}, {"name": "before", "pids": {"pid_max": 90000}}
PENDING = {
    "name": "new",
    "hash": "0123456789ab",
    "since": 1700000000,
    "seconds": 120,
    "boot_id": "b",
    "uptime": 5.0,
    "origins": {},
}


@pytest.mark.parametrize(
    ("before", "declared", "back"),
    [
        (BEFORE, BEFORE, True),
        (BEFORE, OTHER, False),
        (BEFORE, None, False),
        (None, None, True),
        (None, BEFORE, False),
    ],
)
def test_the_way_back_is_to_the_profile_before(
    before: dict[str, t.Any] | None, declared: dict[str, t.Any] | None, back: bool, tmp_path: Path
) -> None:
    host, file = Host(str(tmp_path)), tmp_path / "var/lib/corral/unconfirmed.json"
    wanted = None if declared is None else profile.parse(declared)
    assert declared_profile.goes_back_to(host, wanted) is False, "nothing is unconfirmed"
    file.parent.mkdir(parents=True)
    kept = None if before is None else profile.to_data(profile.parse(before))
    file.write_text(state.checked_text({**PENDING, "before": kept}))
    assert declared_profile.goes_back_to(host, wanted) is back
    file.write_text("torn")
    assert declared_profile.goes_back_to(host, wanted) is False
