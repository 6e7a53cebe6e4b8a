# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers on shared CPUs that may run on exclusive ones get the kubelet's shared CPUs again, and nothing else is touched."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from _core.host.command import Command
from _core.host.files import Host
from _core.main import main
from _core.pipeline import kubelet_mending
from _core.reports import kubelet_report
from test_kubelet_inspection import GONE, ID, UID, Tree

OTHER = ID[::-1]
SHARED = "0-3,6-7"


class Systemd:
    """set-property of scopes, as systemd and the kernel do it; ``says`` is its refusal, ``keeps`` what the kernel has instead."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, ...]] = []
        self.says, self.keeps = "", ""

    def __call__(self, argv: t.Sequence[str], dummy: float) -> Command:
        self.asked.append(tuple(argv))
        if self.says:
            return Command(1, "", self.says)
        (scope,) = self.folder.rglob(argv[-2])
        (scope / "cpuset.cpus").write_text(self.keeps or argv[-1].partition("=")[2])
        return Command(0, "", "")


@pytest.fixture(name="tree")
def made_tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.run("--config=/var/lib/kubelet/config.yaml", "--config-dir=/etc/kubelet.d")
    tree.state(default=SHARED, entries={UID: {"main": "4-5"}})
    tree.container("4-5")
    return tree


@pytest.fixture(name="systemd")
def fake_systemd(tree: Tree) -> Systemd:
    return Systemd(tree.folder)


def mended(tree: Tree, systemd: Systemd) -> list[str]:
    host = Host(str(tree.folder), clock=lambda: 10_000.0, uptime=lambda: 1000.0, run=systemd)
    return kubelet_report.mended_lines(kubelet_mending.mend(host))


def test_a_shared_container_on_exclusive_cpus_gets_the_shared_ones(tree: Tree, systemd: Systemd) -> None:
    tree.container("0-7", pod=GONE, name="web", identity=OTHER)
    assert mended(tree, systemd) == ["default/web web: CPUs 0-7 -> 0-3,6-7"]
    words = ("systemctl", "set-property", "--runtime", "--", f"cri-containerd-{OTHER}.scope", f"AllowedCPUs={SHARED}")
    assert systemd.asked == [words]


def test_without_systemds_scope_the_control_group_itself_is_written(tree: Tree, systemd: Systemd) -> None:
    place = f"sys/fs/cgroup/kubepods/burstable/pod{GONE}/{OTHER}"
    tree.write(f"{place}/cpuset.cpus.effective", "0-7")
    tree.write(f"{place}/cpuset.cpus", "")
    tree.write(f"var/log/containers/web_default_web-{OTHER}.log", "")
    assert mended(tree, systemd) == ["default/web web: CPUs 0-7 -> 0-3,6-7"]
    assert (tree.folder / place / "cpuset.cpus").read_text() == SHARED
    assert systemd.asked == []


def test_with_cgroup_v1_where_systemd_sets_no_cpus_the_control_group_of_its_scope_is_written(
    tree: Tree, systemd: Systemd
) -> None:
    (tree.folder / "sys/fs/cgroup/cgroup.controllers").unlink()
    place = (
        f"sys/fs/cgroup/cpuset/kubepods.slice/kubepods-pod{GONE.replace('-', '_')}.slice/cri-containerd-{OTHER}.scope"
    )
    tree.write(f"{place}/cpuset.cpus", "0-7")
    tree.write(f"var/log/containers/web_default_web-{OTHER}.log", "")
    assert mended(tree, systemd) == ["default/web web: CPUs 0-7 -> 0-3,6-7"]
    assert (tree.folder / place / "cpuset.cpus").read_text() == SHARED
    assert systemd.asked == []


@pytest.mark.parametrize(
    ("says", "keeps", "why"),
    [
        ("Unit not found.", "", "Unit not found."),
        ("", "0-7", "0-3,6-7 was set, and the kernel has 0-7"),
    ],
)
def test_what_systemd_or_the_kernel_refuses_is_told(
    says: str, keeps: str, why: str, tree: Tree, systemd: Systemd
) -> None:
    tree.container("0-7", pod=GONE, name="web", identity=OTHER)
    systemd.says, systemd.keeps = says, keeps
    assert mended(tree, systemd) == [f"default/web web: {why}"]


def test_a_container_with_cpus_of_its_own_and_a_sandbox_are_left_alone(tree: Tree, systemd: Systemd) -> None:
    tree.container("0-5")  # of the pod with CPUs 4-5: others changed it
    slices = f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
    tree.write(f"sys/fs/cgroup/{slices}/cri-containerd-{OTHER}.scope/cpuset.cpus.effective", "0-7")
    assert mended(tree, systemd) == []
    assert systemd.asked == []


def test_a_state_file_that_the_kubelet_would_refuse_is_not_enforced(tree: Tree, systemd: Systemd) -> None:
    tree.container("0-7", pod=GONE, name="web", identity=OTHER)
    tree.state(default="0-2", entries={UID: {"main": "4-5"}})
    assert mended(tree, systemd) == []
    assert systemd.asked == []


def test_without_a_state_file_nothing_is_known_of_shared_cpus(tree: Tree, systemd: Systemd) -> None:
    tree.container("0-7", pod=GONE, name="web", identity=OTHER)
    (tree.folder / "var/lib/kubelet/cpu_manager_state").unlink()
    assert mended(tree, systemd) == []
    assert systemd.asked == []


def test_a_torn_file_of_devices_with_which_the_kubelet_starts_keeps_nothing_from_it(
    tree: Tree, systemd: Systemd
) -> None:
    tree.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", "{")
    test_a_shared_container_on_exclusive_cpus_gets_the_shared_ones(tree, systemd)


def test_a_copy_of_a_node_is_not_mended(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kubelet", "--mend-shared", "--root", str(tree.folder)]) == 1
    assert "--mend-shared: changes containers of this machine" in capsys.readouterr().err
