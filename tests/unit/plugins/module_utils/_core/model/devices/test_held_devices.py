# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has a device: the index says of any holders what a search through all of their devices says."""

from __future__ import annotations

import typing as t

from _core.model.devices.device import Device, GrantedDevice
from _core.model.devices.held_devices import HeldDevices
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

WORKLOADS = ("a", "b", "c")
KEYS = ("/dev/x", "/dev/x/y", "devices/p", "devices/p/q", "devices/p/q/r", "devices/p/qq", "devices/s", "devices/s/q")
Held = dict[str, tuple[GrantedDevice, ...]]


def part_of(inner: str, outer: str) -> bool:
    """Whether a key is another one, or in its folder of sysfs."""
    return inner == outer or (inner.startswith("devices/") and inner.startswith(f"{outer}/"))


def keys_of_others(held: Held, workload: str) -> list[str]:
    return [key for name, rows in held.items() if name != workload for one in rows for key in (one.id, *one.keys)]


def is_shared(held: Held, device: Device, workload: str) -> bool:
    """Whether another workload has the device, a part of it, or a device that it is a part of."""
    taken = keys_of_others(held, workload)
    whole = {*device.keys, device.id}
    return any(part_of(key, own) for key in taken for own in whole) or bool(device.within.intersection(taken))


def ids() -> st.SearchStrategy[str]:
    return st.sampled_from(("0000:01:00.0", "vendor.com/gpu=0", *KEYS))


def several() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(KEYS), max_size=3)


def granted() -> st.SearchStrategy[GrantedDevice]:
    return st.builds(lambda name, keys: GrantedDevice("", "nic", name, tuple(keys)), ids(), several())


def devices() -> st.SearchStrategy[Device]:
    def made(name: str, keys: list[str], within: list[str]) -> Device:
        return Device(name, 0, "", (), None, (), (), frozenset(keys), frozenset(within))

    return st.builds(made, ids(), several(), several())


@settings(max_examples=examples(300))
@given(
    turns=st.lists(st.tuples(st.sampled_from(WORKLOADS), st.lists(granted(), max_size=3)), max_size=6),
    asked=devices(),
)
def test_the_index_says_what_a_search_says(turns: list[tuple[str, list[GrantedDevice]]], asked: Device) -> None:
    index, held = HeldDevices(), t.cast("Held", {})
    for name, rows in turns:
        index.give(name, tuple(rows))
        held.pop(name, None)
        if rows:
            held[name] = tuple(rows)
        assert list(index.by_workload.items()) == list(held.items()), "in the order in which they were given"
        for other in (*WORKLOADS, "another"):
            taken = keys_of_others(held, other)
            assert [key for key in KEYS if index.other_has(key, other)] == [key for key in KEYS if key in taken]
            assert index.other_shares(asked, other) == is_shared(held, asked, other)


def test_a_device_around_or_within_what_another_one_has_is_not_free() -> None:
    index = HeldDevices()
    index.give("a", (GrantedDevice("", "nic", "one", ("devices/p/q",)),))

    def shared(*keys: str, within: tuple[str, ...] = ()) -> bool:
        found = Device("two", 0, "", (), None, (), (), frozenset(keys), frozenset(within))
        return index.other_shares(found, "b")

    assert shared("devices/p"), "all of the folder around it"
    assert shared("devices/p/q/r", within=("devices/p/q",)), "a part of it"
    assert not shared("devices/p/r", within=("devices/p",)), "a neighbour"
    index.give("a", ())
    assert not shared("devices/p")
