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
from _core.host.files import Host
from _core.host.kubelet import kubelet_unit

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


def unit_with(host: Host, *lines: str) -> None:
    put(host, UNIT, "\n".join(["[Service]", "ExecStart=/usr/bin/kubelet $KUBELET_ARGS $KUBELET_MORE", *lines, ""]))


# As Kubespray's template has it (kubelet.env.v1beta1.j2).
KUBESPRAY = """\
### Upstream source https://github.com/kubernetes/release/blob/master/debian/xenial/kubeadm/channel/stable/etc/systemd/system/kubelet.service.d/
KUBELET_HOSTNAME="--hostname-override=node1"

KUBELET_ARGS="--config=/etc/kubernetes/kubelet-config.yaml \\
--kubeconfig=/etc/kubernetes/kubelet.conf \\
--runtime-cgroups=/system.slice/containerd.service \\
 "
KUBELET_MORE=--max-pods=5"""


def test_the_environment_that_kubespray_writes(host: Host) -> None:
    unit_with(host, "EnvironmentFile=-/etc/kubernetes/kubelet.env")
    put(host, "etc/kubernetes/kubelet.env", KUBESPRAY)
    assert kubelet_unit.command(host)[1:] == (
        "--config=/etc/kubernetes/kubelet-config.yaml",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--runtime-cgroups=/system.slice/containerd.service",
        "--max-pods=5",
    )
    assert kubelet_unit.file_of_flag(host, "--runtime-cgroups") == "/etc/kubernetes/kubelet.env"
    assert kubelet_unit.file_of_flag(host, "--hostname") == "kubelet.service"


@pytest.mark.parametrize(
    ("lines", "arguments"),
    [
        (["EnvironmentFile=/a.env", "EnvironmentFile=/b.env"], ["--b"]),
        (["EnvironmentFile=/b.env", "EnvironmentFile=/a.env"], ["--a"]),
        (["EnvironmentFile=/a.env", "Environment=KUBELET_ARGS=--own KUBELET_MORE=--more"], ["--a", "--more"]),
        (["EnvironmentFile=/a.env", "EnvironmentFile="], []),
        (["EnvironmentFile=-/lost.env", "EnvironmentFile=/a.env"], ["--a"]),
        (["EnvironmentFile=-/etc/k*/[0-9]*.env"], ["--20"]),
        (["EnvironmentFile=/etc/kube/?0.env"], ["--20"]),
        (["EnvironmentFile=/etc/*/10.env"], ["--10"]),
        (["EnvironmentFile=/etc/kube/*"], ["--20"]),
        (["EnvironmentFile=/etc/kube/.*"], ["--hidden"]),
    ],
)
def test_files_of_the_environment_in_their_order(lines: list[str], arguments: list[str], host: Host) -> None:
    for name in ("a", "b", "etc/kube/10", "etc/kube/20", "etc/kube/.hidden"):
        put(host, f"{name}.env", f"KUBELET_ARGS=--{name.rpartition('/')[2].lstrip('.')}")
    unit_with(host, *lines)
    assert kubelet_unit.command(host)[1:] == tuple(arguments)


@pytest.mark.parametrize(("release", "arguments"), [("247", []), ("253.1-2", []), ("254", ["--a"]), ("257", ["--a"])])
def test_a_comment_that_goes_on_is_read_as_the_installed_systemd_does(
    release: str, arguments: list[str], host: Host
) -> None:
    put(host, f"usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-{release}.so", "")
    put(host, "a.env", "# --old \\\nKUBELET_ARGS=--a\n")
    unit_with(host, "EnvironmentFile=/a.env")
    assert kubelet_unit.command(host)[1:] == tuple(arguments)


@pytest.mark.parametrize(
    ("line", "lost"), [("/a.env", "/a.env"), ("-/a.env", ""), ("/etc/kube/*.env", "/etc/kube/*.env"), ("/b.env", "")]
)
def test_a_unit_whose_environment_is_not_there_does_not_start(line: str, lost: str, host: Host) -> None:
    put(host, "b.env", "")
    unit_with(host, f"EnvironmentFile={line}")
    said = kubelet_unit.cannot_start(host)
    assert said.startswith(f"needs {lost} (EnvironmentFile=), which is not there: ") if lost else said == ""


def test_without_a_unit_there_is_no_command(host: Host) -> None:
    assert kubelet_unit.command(host) == ()


def test_a_quote_without_an_end_does_not_stop_it(host: Host) -> None:
    put(host, UNIT, "[Service]\nExecStart=/usr/bin/kubelet --a='b\n")
    assert kubelet_unit.command(host) == ("/usr/bin/kubelet", "--a='b")


def test_the_agents_python_which_looks_for_no_packages_reads_yaml() -> None:
    core, packages = str(Path(kubelet_unit.__file__).parents[3]), str(Path(yaml.__file__).parents[1])
    # In a virtual environment this Python knows no other packages than those of the one that made it.
    code = (
        f"import site, sys; sys.path.insert(0, {core!r}); site.getsitepackages = lambda: [{packages!r}]\n"
        "from _core.host.kubelet import kubelet_node; print(kubelet_node.load('a: [1]', '/a'))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{'a': [1]}\n", "")
