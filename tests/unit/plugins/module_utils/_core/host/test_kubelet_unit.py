# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kubelet.service starts, by its files, and which file sets a flag."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from _core.host import kubelet_unit
from _core.host.files import Host

UNIT = "usr/lib/systemd/system/kubelet.service"
KUBEADM = "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(str(tmp_path))


def put(host: Host, path: str, text: str) -> None:
    file = Path(host.at("/" + path))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def kubeadm(host: Host) -> None:
    """The files of kubeadm's package."""
    put(host, UNIT, "[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n")
    put(
        host,
        KUBEADM,
        """# --max-pods=1 is not set here
[Service]
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml" KUBELET_NONE=
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=-/usr/bin/kubelet $KUBELET_NONE $KUBELET_CONFIG_ARGS \\
  $KUBELET_KUBEADM_ARGS --node-labels=a${KUBELET_LABEL}b $KUBELET_EXTRA_ARGS
""",
    )
    put(
        host,
        "var/lib/kubelet/kubeadm-flags.env",
        'KUBELET_KUBEADM_ARGS="--pod-infra-container-image=pause:3.9 --v=2"\n',
    )
    put(host, "etc/default/kubelet", "# mine\nKUBELET_EXTRA_ARGS=--max-pods=70\nKUBELET_LABEL=x\n")


def test_variables_are_expanded_as_systemd_does(host: Host) -> None:
    kubeadm(host)
    assert kubelet_unit.command(host) == (
        "/usr/bin/kubelet",
        "--config=/var/lib/kubelet/config.yaml",
        "--pod-infra-container-image=pause:3.9",
        "--v=2",
        "--node-labels=axb",
        "--max-pods=70",
    )


@pytest.mark.parametrize(
    ("flag", "file"),
    [
        ("--max-pods", "/etc/default/kubelet"),
        ("--config", f"/{KUBEADM}"),
        ("--node-labels", f"/{KUBEADM}"),
        ("--v", "/var/lib/kubelet/kubeadm-flags.env"),
        ("--pod-max-pids", "kubelet.service"),
    ],
)
def test_the_file_that_sets_a_flag_is_found(flag: str, file: str, host: Host) -> None:
    kubeadm(host)
    assert kubelet_unit.file_of_flag(host, flag) == file


def test_without_a_unit_there_is_no_command(host: Host) -> None:
    assert kubelet_unit.command(host) == ()


def test_a_quote_without_an_end_does_not_stop_it(host: Host) -> None:
    put(host, UNIT, "[Service]\nExecStart=/usr/bin/kubelet --a='b\n")
    assert kubelet_unit.command(host) == ("/usr/bin/kubelet", "--a='b")


def test_the_agents_python_which_looks_for_no_packages_reads_yaml() -> None:
    core, packages = str(Path(kubelet_unit.__file__).parents[2]), str(Path(yaml.__file__).parents[1])
    # In a virtual environment this Python knows no other packages than those of the one that made it.
    code = (
        f"import site, sys; sys.path.insert(0, {core!r}); site.getsitepackages = lambda: [{packages!r}]\n"
        "from _core.host import kubelet_node; print(kubelet_node.load('a: [1]', '/a'))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{'a': [1]}\n", "")
