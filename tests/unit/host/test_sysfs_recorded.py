# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovery on recorded machines against what hwloc, lscpu and the kernel's masks agree on."""

from __future__ import annotations

import json
import tarfile
import typing as t
from pathlib import Path

import pytest
from _core.host.files import Host
from _core.host.sysfs import discover, online_cpus
from _core.model import allocation
from _core.model.topology import from_dict, to_dict
from shared_data import TOPOLOGIES, absent

# Not facts of the machine: how the expectation was made, and hwloc's own view.
ABOUT = {"name", "sources", "notes", "contested", "hwloc_cpukinds"}
CGROUP = {"hwloc_cgroup_allowed_cpus", "hwloc_cgroup_allowed_nodes"}


def machines() -> list[t.Any]:
    found = sorted(TOPOLOGIES.glob("*.tar.gz"))
    if not found:
        return [absent(TOPOLOGIES, "CORRAL_TOPOLOGIES")]
    return [pytest.param(path, id=path.name[: -len(".tar.gz")]) for path in found]


def unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        # Python 3.9 has no extraction filter; links are relative and stay inside, see the data's README.
        if hasattr(tarfile, "tar_filter"):
            tar.extractall(folder, filter="tar")
        else:
            tar.extractall(folder)
    return folder / archive.name[: -len(".tar.gz")]


@pytest.mark.parametrize("archive", machines())
def test_recorded_machine(archive: Path, tmp_path: Path) -> None:
    name = archive.name[: -len(".tar.gz")]
    expected = json.loads((TOPOLOGIES / "expected" / f"{name}.json").read_text(encoding="utf-8"))
    host = Host(str(unpack(archive, tmp_path)))

    topology = discover(host)
    found = to_dict(topology)

    facts = expected.keys() - ABOUT - CGROUP - set(expected.get("contested", ()))
    assert {fact: found[fact] for fact in facts} == {fact: expected[fact] for fact in facts}
    assert from_dict(json.loads(json.dumps(found))) == topology
    assert online_cpus(host) == topology.online
    assert host.writes == [] and host.commands == []
    if "hwloc_cpukinds" in expected and topology.kinds:
        assert sorted(sorted(cpus) for _kind, cpus in topology.kinds) == sorted(expected["hwloc_cpukinds"])

    # A recorded machine can be allocated from, whatever its ids look like.
    view = allocation.of(topology)
    assert allocation.take_packed(view, topology.online, len(topology.online)) == topology.online
