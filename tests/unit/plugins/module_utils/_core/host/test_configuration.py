# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of systemd, sysctl and the kernel as hosts read them: which wins, and what garbage does."""

from __future__ import annotations

from pathlib import Path

import pytest
from _core.host import mounts, systemd
from _core.host.files import Host
from _core.host.pids import sysctl
from _core.managers.pids.pids import SYSCTL_FILE


def put(root: Path, files: dict[str, str]) -> Host:
    for path, text in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("latin-1"))
    return Host(str(root))


PRECEDENCE: dict[str, tuple[dict[str, str], list[str]]] = {
    "file names sort over folders": (
        {"/etc/systemd/system/a.slice.d/20-x.conf": "E", "/usr/lib/systemd/system/a.slice.d/10-y.conf": "U"}, ["U", "E"]
    ),
    "the same name: /etc hides /run hides /usr": (
        {f"{base}/systemd/system/a.slice.d/10-x.conf": base for base in ("/etc", "/run", "/usr/lib")}, ["/etc"]
    ),
    "set-property wins over /etc for the same name": (
        {"/etc/systemd/system/a.slice.d/50-X.conf": "E", "/run/systemd/system.control/a.slice.d/50-X.conf": "R"}, ["R"]
    ),
    "persistent set-property wins over runtime": (
        {f"{base}/systemd/system.control/a.slice.d/50-X.conf": base for base in ("/etc", "/run")}, ["/etc"]
    ),
    "the unit's own file comes first": (
        {"/usr/lib/systemd/system/a.slice": "F", "/etc/systemd/system/a.slice.d/00-x.conf": "D"}, ["F", "D"]
    ),
    "drop-ins for the type": (
        {"/etc/systemd/system/slice.d/10-t.conf": "T", "/etc/systemd/system/a.slice.d/05-x.conf": "A"}, ["A", "T"]
    ),
    "the more specific folder hides the type's": (
        {"/etc/systemd/system/slice.d/10-x.conf": "T", "/usr/lib/systemd/system/a.slice.d/10-x.conf": "A"}, ["A"]
    ),
    "not a .conf": ({"/etc/systemd/system/a.slice.d/10-x.conf~": "N"}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", PRECEDENCE)
def test_which_assignment_systemd_applies_when(name: str, tmp_path: Path) -> None:
    files, wanted = PRECEDENCE[name]
    host = put(tmp_path, {path: f"[Slice]\n# X=no\nX = {value}\nXY=no\n" for path, value in files.items()})
    assert [item.value for item in systemd.unit_settings(host, "a.slice", "X")] == wanted


def test_a_slice_with_dashes_has_the_drop_ins_of_its_prefixes(tmp_path: Path) -> None:
    host = put(tmp_path, {f"/etc/systemd/system/{folder}/10-{folder}.conf": "X=1" for folder in ("a-.slice.d", "a-b-.slice.d", "a-b-c.slice.d")})  # fmt: skip
    assert len(systemd.unit_settings(host, "a-b-c.slice", "X")) == 3


def test_system_conf_comes_before_its_drop_ins(tmp_path: Path) -> None:
    host = put(tmp_path, {"/etc/systemd/system.conf": "X=1", "/run/systemd/system.conf.d/a.conf": "X=2"})
    assert [item.value for item in systemd.system_settings(host, "X")] == ["1", "2"]


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"/etc/sysctl.d/99-x.conf": "kernel.pid_max = 5"}, "5"),
        ({"/etc/sysctl.d/99-x.conf": "kernel/pid_max=5"}, "5"),
        ({"/etc/sysctl.d/99-x.conf": "-kernel.pid_max=5"}, "5"),
        ({"/etc/sysctl.d/99-x.conf": "# kernel.pid_max=5\n;kernel.pid_max=5"}, None),
        ({"/etc/sysctl.d/10-x.conf": "kernel.pid_max=5"}, None),
        ({"/usr/lib/sysctl.d/95-x.conf": "kernel.pid_max=5", "/run/sysctl.d/96-x.conf": "kernel.pid_max=6"}, "6"),
        ({"/usr/lib/sysctl.d/95-x.conf": "kernel.pid_max=5", "/etc/sysctl.d/95-x.conf": ""}, None),
        ({"/etc/sysctl.d/99-x.txt": "kernel.pid_max=5"}, None),
        ({"/etc/sysctl.d/99-x.conf": "kernel.pid_max\nkernel.pid_max_x=5\n\xff\xfe"}, None),
    ],
)  # fmt: skip
def test_which_sysctl_file_wins_at_boot(files: dict[str, str], wanted: str | None, tmp_path: Path) -> None:
    entry = sysctl.later_entries(put(tmp_path, files), ("kernel.pid_max",), SYSCTL_FILE).get("kernel.pid_max")
    assert (entry.value if entry else None) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("0.0 0.0 0.0 2/345 99\n", 345), ("", None), ("1 2 3", None), ("1 2 3 4 5", 4), ("1 2 3 x/y 5", None)],
)
def test_how_many_tasks_run(text: str, wanted: int | None, tmp_path: Path) -> None:
    assert sysctl.running_tasks(put(tmp_path, {"/proc/loadavg": text})) == wanted


def test_the_table_of_mounts(tmp_path: Path) -> None:
    lines = [
        r"22 1 0:20 / /with\040blank\134and\011tab rw - hugetlbfs none rw,pagesize=2M,size=4M",
        "23 1 0:21 / /x rw,relatime shared:7 master:1 - tmpfs tmpfs rw",
        "24 1 0:22 / /x rw - hugetlbfs hugetlbfs rw",
        "garbage", "", "1 2 3 4 5 6 7 8", "25 1 0:22 / /y rw - hugetlbfs", "\xff\xfe - - -",
    ]  # fmt: skip
    host = put(tmp_path, {"/proc/1/mountinfo": "\n".join(lines)})
    assert [mount.path for mount in mounts.table(host.read(mounts.TABLE))] == ["/with blank\\and\ttab", "/x", "/x"]
    top = mounts.at(host, "/x")
    assert top is not None
    assert top.fstype == "hugetlbfs"
    assert mounts.table(host.read(mounts.TABLE))[0].options == {"rw": "", "pagesize": "2M", "size": "4M"}
    assert mounts.at(host, "/z") is None


@pytest.mark.parametrize("text", [r"/a\134040b", r"/a\0400b", r"/\134134"])
def test_octal_escapes_are_read_once(text: str, tmp_path: Path) -> None:
    wanted = {r"/a\134040b": "/a\\040b", r"/a\0400b": "/a 0b", r"/\134134": "/\\134"}[text]
    host = put(tmp_path, {"/proc/1/mountinfo": f"22 1 0:20 / {text} rw - tmpfs t rw"})
    assert mounts.table(host.read(mounts.TABLE))[0].path == wanted
