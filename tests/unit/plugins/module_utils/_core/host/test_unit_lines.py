# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of unit files, as systemd joins them (systemd.syntax(7))."""

from __future__ import annotations

import pytest
from _core.host import systemd


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("Slice=a.slice\n", "Slice", ["a.slice"]),
        (" Slice = a.slice \n", "Slice", ["a.slice"]),
        ("ExecStart=/bin/a \\\n  --b \\\n  c\nSlice=x.slice\n", "ExecStart", ["/bin/a    --b    c"]),
        ("ExecStart=/bin/a \\\n  --b\nSlice=x.slice\n", "Slice", ["x.slice"]),
        ("# logs go to C:\\\nSlice=a.slice\n", "Slice", ["a.slice"]),
        ("; D:\\\nAllowedCPUs=0-7\n", "AllowedCPUs", ["0-7"]),
        ("ExecStart=/bin/a \\\n# Slice=no.slice \\\n  --b\n", "ExecStart", ["/bin/a    --b"]),
        ("Environment=P=C:\\\\\nSlice=a.slice\n", "Slice", ["a.slice"]),
        ("ExecStart=/bin/a \\\n\nSlice=a.slice\n", "Slice", ["a.slice"]),
        ("ExecStart=/bin/a \\", "ExecStart", ["/bin/a"]),
        ("#Slice=a.slice\n", "Slice", []),
        ("", "Slice", []),
        (None, "Slice", []),
    ],
)
def test_the_assignments_of_a_file(text: str | None, name: str, values: list[str]) -> None:
    assert [found.value for found in systemd.assignments("x.conf", text, name)] == values
