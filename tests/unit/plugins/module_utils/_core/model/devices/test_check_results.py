# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the results of check commands make of devices, and how a file has them."""

from __future__ import annotations

import pytest
from _core.model.devices import device_checks
from _core.model.devices.device import Check, Device, Inventory, Match, Resource

CHECK = Check(("/usr/bin/check",), 60, 5)
OTHER = Resource("example.com/other", Match(path="/dev/other*"))
NIC = Resource("example.com/nic", Match(path="/dev/nic*"), check=CHECK)


def device(number: int, unhealthy: str = "") -> Device:
    name = f"/dev/nic{number}"
    return Device(name, -1, unhealthy, (), None, (), (name,), frozenset({name}), frozenset())


def with_results(devices: tuple[Device, ...], said: dict[int, str]) -> Inventory:
    found = Inventory({NIC.name: devices}, (), ("a note",))
    results = {device_checks.key_of(NIC.name, f"/dev/nic{number}", CHECK): why for number, why in said.items()}
    return device_checks.with_results(found, [OTHER, NIC], results)


@pytest.mark.parametrize(
    ("unhealthy", "said", "note"),
    [
        (["", "", "no link"], {}, "devices[1].check: /dev/nic0 and 1 more: not checked yet"),
        (["", "", "no link"], {0: ""}, "devices[1].check: /dev/nic1: not checked yet"),
        (["", "", ""], {2: "bad"}, "devices[1].check: /dev/nic0 and 1 more: not checked yet"),
        (["", "", "no link"], {0: "", 1: "bad", 2: "bad"}, ""),
    ],
)
def test_a_note_says_which_devices_were_not_checked_yet(unhealthy: list[str], said: dict[int, str], note: str) -> None:
    found = with_results(tuple(device(number, why) for number, why in enumerate(unhealthy)), said)
    assert found.notes == ("a note", *([note] if note else []))
    wanted = [why or said.get(number, "") for number, why in enumerate(unhealthy)]
    assert [one.unhealthy for one in found.devices[NIC.name]] == wanted, "the first reason stays"


def test_a_file_has_results_in_one_order_and_rows_in_another_form_are_none() -> None:
    results = {("b", "1", "x"): "", ("a", "2", "x"): "bad", ("a", "1", "x"): ""}
    data = device_checks.to_data(results)
    assert data == [["a", "1", "x", ""], ["a", "2", "x", "bad"], ["b", "1", "x", ""]]
    assert device_checks.from_data(data) == results
    bad = [["a", "1", "x"], ["a", "1", "x", None], ["a", 1, "x", ""], "abcd", None]
    assert device_checks.from_data([*bad, *data]) == results
    assert device_checks.from_data({"a": 1}) == {}
