# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs the pools may have beside a kubelet that is not restarted: those that no pod may get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _core.host import state
from _core.host.agent import other_agents
from _core.host.files import Host
from _core.host.kubelet import kubelet_cpus
from _core.model.status import conflicts
from _core.model.values import cpuset


@pytest.mark.parametrize(
    ("files", "is_newer", "of_pods", "published", "reserved"),
    [
        pytest.param("0-3", False, "", "0-3", "0-3", id="it reserves what is declared"),
        pytest.param("0-1", False, "", "0-3", "0-1", id="it reserves less"),
        pytest.param(
            "0-1,6", True, "", "0-2", "0-1", id="it has not read its files: what it reserves before and after"
        ),
        pytest.param("0-1", True, "", "2", "2", id="after its next start it reserves none of these"),
        pytest.param("0-1", True, "", "", "0-1", id="it is not known what it reserves"),
        pytest.param("0-1", True, "1", "0-1", "0", id="a pod has one of them"),
        pytest.param("0-1", False, "1", "0-1", "0", id="a pod has one that its files reserve"),
        pytest.param("1", False, "1", "1", "0,2-3", id="it reserves none but a pod's"),
        pytest.param("", False, "1", "", "0,2-3", id="it reserves none"),
    ],
)
def test_the_pools_have_no_cpu_that_a_pod_may_get(
    files: str,
    is_newer: bool,
    of_pods: str,
    published: str,
    reserved: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = conflicts.KubeletCpuManager(
        "config.yaml", "static", cpuset.parse(files), newer=("config.yaml",) * is_newer
    )
    monkeypatch.setattr(other_agents, "configured_kubelet", lambda dummy: config)
    monkeypatch.setattr(kubelet_cpus, "of_pods", lambda *dummy, **more: cpuset.parse(of_pods))
    file = tmp_path / state.PUBLISHED[1].lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"reserved": published, "isolated": ""}))
    assert cpuset.format(kubelet_cpus.for_pools(Host(str(tmp_path)), cpuset.parse("0-3"))) == reserved
