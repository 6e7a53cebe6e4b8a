# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices in the declared profile of a fake node: they are shown, and change nothing but the profile."""

from __future__ import annotations

import json

import node
import runs

DEVICES = [{"name": "example.com/tty", "match": {"path": "/dev/ttyUSB*"}}]


def test_a_resource_is_kept_with_the_profile_and_shown(fake: node.Node) -> None:
    runs.declare(fake.host())
    outcome = runs.declare(fake.host(), devices=DEVICES)
    assert {change.manager for change in outcome.applied} == {"profile"}
    assert not runs.declare(fake.host(), devices=DEVICES).applied
    data = json.loads(runs.printed(fake.host(), "devices", "--json", code=2))
    assert data["resources"] == [{"name": "example.com/tty", "healthy": 0, "granted": 0, "devices": [], "missing": []}]
    assert json.loads(runs.printed(fake.host(), "profile", "--json"))["devices"] == DEVICES
    assert not runs.declare(fake.host()).error
    assert runs.printed(fake.host(), "devices") == "the profile declares no devices\n"


def test_check_mode_notes_what_no_device_matches_and_what_two_resources_match(fake: node.Node) -> None:
    """A workload would only be refused for want of a device later, and with devices of the wrong resource not at all."""
    fake.put("/dev/ttyUSB0", "char/188:0\n")
    gone = {"name": "example.com/gone", "match": {"path": "/dev/ttyACM*"}}
    same = {"name": "example.com/same", "match": {"path": "/dev/ttyUSB0"}}
    assert not runs.declare(fake.host(), devices=[*DEVICES, gone, same]).error
    assert [line for line in runs.printed(fake.host(), "plan", code=None).splitlines() if "devices[" in line] == [
        "devices[1].match: path /dev/ttyACM*: no device of this node matches: compare it with ls -l of that folder",
        "devices[2].match: path /dev/ttyUSB0: /dev/ttyUSB0 is in devices[0] (example.com/tty) already: narrow one of the two",
    ]
