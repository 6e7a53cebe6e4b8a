# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of a rollout's hosts, as Ansible's own inventory reads it: no order adds a host or leaves one out."""

from __future__ import annotations

import controller_plugins
import pytest

pytest.importorskip("ansible")
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader

rollout_hosts = controller_plugins.load("filter.rollout_hosts").rollout_hosts

ODD = ("web-1.example.com", "fe80::1", "web[1]", "a b", "!d", "~e", "*", "x,y", "localhost")
GROUPS = {
    "web": ["w1", "w2", "w3"],
    "db": ["d1", "db", "w3"],  # one of its hosts has its name
    "odd": list(ODD),
    "parts": ["a", "b", "x", "y", "d", "e"],  # what Ansible could read in the odd names
}


@pytest.fixture(name="inventory", scope="module")
def make_inventory() -> InventoryManager:
    inventory = InventoryManager(DataLoader(), parse=False)
    for group, hosts in GROUPS.items():
        inventory.add_group(group)
        for host in hosts:
            inventory.add_host(host, group=group)
    inventory.reconcile_inventory()
    return inventory


def in_order(inventory: InventoryManager, pattern: str | list[str], first: list[str]) -> tuple[list[str], list[str]]:
    """The hosts of the pattern, and the hosts of the play with these first."""
    names = [host.name for host in inventory.get_hosts(pattern)]
    return names, [host.name for host in inventory.get_hosts(rollout_hosts(pattern, names, first))]


@pytest.mark.parametrize("pattern", [
    "all", "web", "web:db", "db,web", "w3,w1,w2", "!web", "&db", "web:!w2", "all:&db:!d1", ["web", "db:!w3"], "web[0:1]", "~w[13]",
    "w*", "ungrouped", "localhost", "nowhere:web",
])  # fmt: skip
def test_some_come_first_and_the_hosts_are_those_of_the_pattern_in_its_order(
    pattern: str | list[str], inventory: InventoryManager
) -> None:
    for first in (
        [],
        ["w3", "w2"],
        ["db"],
        ["d1", "gone", "w1"],
        ["w3", "web-1.example.com", "fe80::1", "web[1]", "~e", "*", "localhost"],
    ):
        names, found = in_order(inventory, pattern, first)
        ahead = [name for name in first if name in names]
        assert found == [*ahead, *(name for name in names if name not in ahead)]


@pytest.mark.parametrize("name", ODD)
def test_a_name_that_reads_as_a_pattern_adds_no_host_and_leaves_none_out(
    name: str, inventory: InventoryManager
) -> None:
    for pattern in ("all", "odd", "web", "odd:!x"):
        names, found = in_order(inventory, pattern, [name, "w2"])
        assert sorted(found) == sorted(names)
