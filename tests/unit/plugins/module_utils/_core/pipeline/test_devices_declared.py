# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices in the declared profile of a fake node: they are shown, and change nothing but the profile."""

from __future__ import annotations

import json

import node
import pytest
import runs

DEVICES = [{"name": "example.com/tty", "match": {"path": "/dev/ttyUSB*"}}]


def test_a_resource_is_kept_with_the_profile_and_shown(fake: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    runs.declare(fake.host())
    outcome = runs.declare(fake.host(), devices=DEVICES)
    assert {change.manager for change in outcome.applied} == {"profile"}
    assert not runs.declare(fake.host(), devices=DEVICES).applied
    capsys.readouterr()
    assert runs.command(fake.host(), "devices", "--json") == 2
    data = json.loads(capsys.readouterr().out)
    assert data["resources"] == [{"name": "example.com/tty", "healthy": 0, "granted": 0, "devices": [], "missing": []}]
    assert runs.command(fake.host(), "profile", "--json") == 0
    assert json.loads(capsys.readouterr().out)["devices"] == DEVICES
    assert not runs.declare(fake.host()).error
    assert runs.command(fake.host(), "devices") == 0
    assert capsys.readouterr().out == "the profile declares no devices\n"
