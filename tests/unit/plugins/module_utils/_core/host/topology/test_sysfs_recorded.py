# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovery on recorded machines against what hwloc, lscpu and the kernel's masks agree on, and on described ones."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pytest
from _core.host.files import Host
from _core.host.topology.sysfs import discover
from _core.model.cpu import allocation
from _core.model.topology.topology import to_dict
from example_counts import LONG
from recorded import Archive, Overlay, expected, machines, name_of
from shared_data import TOPOLOGIES
from topology_json import from_dict

NUMBER = re.compile("[0-9]+")

# Not facts of the machine: how the expectation was made, and hwloc's own view.
ABOUT = {"name", "sources", "notes", "contested", "hwloc_cpukinds"}
CGROUP = {"hwloc_cgroup_allowed_cpus", "hwloc_cgroup_allowed_nodes"}


@pytest.mark.parametrize("archive", machines())
def test_recorded_machine(archive: Path) -> None:
    wanted = expected(archive)
    host = Archive(archive)

    topology = discover(host)
    found = to_dict(topology)

    facts = wanted.keys() - ABOUT - CGROUP - set(wanted.get("contested", ()))
    assert {fact: found[fact] for fact in facts} == {fact: wanted[fact] for fact in facts}
    assert from_dict(json.loads(json.dumps(found))) == topology
    assert host.writes == [] and host.commands == []
    if "hwloc_cpukinds" in wanted and topology.kinds:
        assert sorted(sorted(cpus) for _kind, cpus in topology.kinds) == sorted(wanted["hwloc_cpukinds"])

    # A recorded machine can be allocated from, whatever its ids look like.
    view = allocation.of(topology)
    assert allocation.take_packed(view, topology.online, len(topology.online)) == topology.online


def test_unpacked_tree_is_the_same_machine(tmp_path: Path) -> None:
    archives = sorted(TOPOLOGIES.glob("*.tar.gz"), key=lambda path: path.stat().st_size)
    if not archives:
        pytest.skip(f"no {TOPOLOGIES}; point CORRAL_TOPOLOGIES at the recorded machines")
    # The smallest that has PCI devices, which are reached through links.
    archive = next((path for path in archives if discover(Archive(path)).pci), archives[0])
    with tarfile.open(archive) as tar:
        # Python 3.9 has no extraction filter; the links are relative and stay inside.
        if hasattr(tarfile, "tar_filter"):
            tar.extractall(tmp_path, filter="tar")
        else:
            tar.extractall(tmp_path)
    assert discover(Host(str(tmp_path / name_of(archive)))) == discover(Archive(archive))


RUBBISH = (b"\xff\x00", b"-1\n", b"00000000,00000001\n")


@pytest.mark.parametrize("archive", machines())
def test_broken_files_of_a_recorded_machine_are_values(archive: Path) -> None:
    """Every kind of file that discovery reads, one after another as rubbish, on every CPU, node and device at once.

    Each gets another kind of rubbish, with CORRAL_LONG all of them.
    """
    host = Archive(archive)
    discover(host)
    kinds: dict[str, list[str]] = {}
    for path in host.seen or ():
        kinds.setdefault(NUMBER.sub("N", path.rpartition("/")[2]), []).append(path)
    for number, paths in enumerate(kinds.values()):
        for rubbish in RUBBISH if LONG else RUBBISH[number % len(RUBBISH) :][:1]:
            found = discover(Overlay(archive, dict.fromkeys(paths, rubbish)))
            assert from_dict(json.loads(json.dumps(to_dict(found)))) == found
            assert sorted(cpu for core in found.cores for cpu in core) == sorted(found.online)
