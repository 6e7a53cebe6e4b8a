# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The texts and names of unit files."""

from __future__ import annotations

import re

import pytest
from _core.host import systemd
from _core.model.systemd import unit_file, unit_property
from _core.model.systemd.unit_property import Setting
from _core.model.values import mount_options
from hypothesis import given
from hypothesis import strategies as st

# As systemd-escape --path 252 answers.
ESCAPED = {
    "/": "-",
    "/dev/hugepages": "dev-hugepages",
    "/dev/hugepages-2Mi": "dev-hugepages\\x2d2Mi",
    "//dev///x/": "dev-x",
    "/a b": "a\\x20b",
    "/.hidden/.x": "\\x2ehidden-.x",
    "/a.b:c_d": "a.b:c_d",
    "/ä": "\\xc3\\xa4",
    "/a\\b": "a\\x5cb",
    "/50%": "50\\x25",
}


@pytest.mark.parametrize("path", ESCAPED)
def test_paths_are_escaped_as_systemd_does(path: str) -> None:
    assert unit_file.escaped_path(path) == ESCAPED[path]


@given(st.lists(st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1), min_size=1))
def test_an_escaped_path_is_a_unit_name_and_comes_back(parts: list[str]) -> None:
    name = unit_file.escaped_path("/" + "/".join(parts))
    assert re.fullmatch(r"[A-Za-z0-9:_.\\-]+", name)
    back = re.sub(rb"\\x(..)", lambda match: bytes([int(match.group(1), 16)]), name.replace("-", "/").encode())
    assert back.decode() == "/".join(parts)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([], set()), (["0-1"], {0, 1}), (["0", "2"], {0, 2}), (["0-3", "", "5"], {5}), (["1", ""], set()),
        (["0 2,4"], {0, 2, 4}), (["x"], None), (["0", "9-"], None),
    ],
)  # fmt: skip
def test_cpu_lists_add_up_over_files(values: list[str], wanted: set[int] | None) -> None:
    assert systemd.merged_cpus([Setting("f", value) for value in values]) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("512M", 512 << 20), ("2048K", 2 << 20), ("1G", 1 << 30), ("1t", 1 << 40), ("4096", 4096), ("0", 0),
        (None, None), ("", None), ("M", None), ("12X", None), ("1.5G", None), ("-1", None), ("50%", None), ("²", None),
    ],
)  # fmt: skip
def test_sizes_as_the_kernel_writes_them(text: str | None, wanted: int | None) -> None:
    assert mount_options.bytes_of(text) == wanted


def test_a_drop_in_names_its_unit() -> None:
    etc = unit_property.ETC
    assert unit_property.unit_of_dropin(f"{etc}/a-b.slice.d/10-corral-cpu.conf", "cpu") == "a-b.slice"
    assert unit_property.unit_of_dropin(f"{etc}/init.scope.d/10-corral-pids.conf", "pids") == "init.scope"
    for path in (
        f"{etc}/slices.target.d/10-corral-cpu.conf",
        f"{etc}/a-b.slice.d/10-corral-pids.conf",
        f"{etc}/x.mount",
        "/etc/x.slice.d/10-corral-cpu.conf",
        "",
    ):
        assert unit_property.unit_of_dropin(path, "cpu") == ""
