# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last passes of garbage collection as lines, whatever their file holds: the profile's result has them too."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pathlib
import typing as t

from _core.host import state
from _core.host.files import Host
from _core.reports import gc_report

PASS: dict[str, t.Any] = {"time": 5, "dry": "", "errors": [], "removed": [{"bytes": 20}], "refused": []}
DISK = {
    "path": "/",
    "used_percent": 3,
    "capacity": 100,
    "high": 85,
    "low": 80,
    "removed": [{"bytes": 5}],
    "refused": [],
}
STATUS: dict[str, t.Any] = {
    "images": {"time": 5, "dry": "", "errors": [], "file_systems": [DISK]},
    "containers": {**PASS, "dead": 3},
    "totals": {"images": 1, "containers": 1, "bytes": 5, "errors": 2},
}
ODD = (None, True, 7, -1, math.inf, math.nan, 10**400, "x", "", [], [1], {}, {"a": 1})


def changed(keys: tuple[t.Any, ...], value: t.Any) -> t.Any:
    """The file with another value in one place."""
    found: t.Any = {"": copy.deepcopy(STATUS)}
    inner = found
    for key in ("", *keys)[:-1]:
        inner = inner[key]
    inner[("", *keys)[-1]] = value
    return found[""]


def places(data: t.Any, keys: tuple[t.Any, ...] = ()) -> t.Iterator[tuple[t.Any, ...]]:
    yield keys
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield from places(value, (*keys, key))


def test_lines() -> None:
    assert gc_report.lines_of(STATUS, 9.0) == [
        "gc: /: 3 % of 100 used, images go from 85 % down to 80 %  4 s ago: 1 removed, 5 freed",
        "gc: containers: 2 dead                                    4 s ago: 1 removed, 20 freed",
        "gc: since the node started 1 images and 1 containers removed, 5 freed, 2 failures",
    ]
    assert "  0 s ago: " in gc_report.lines_of(STATUS, 3.0)[0], "the clock was set back"
    dry = changed(("containers",), {**PASS, "dead": 3, "dry": "dry run", "refused": [1], "errors": [1, 2]})
    assert gc_report.lines_of(dry, 9.0)[1].split("  ")[-1].strip() == (
        "4 s ago: 1 would go (dry run), 20, 1 refused, 2 failed"
    )


def test_a_pass_that_did_not_see_all_says_so() -> None:
    dry = changed(("containers",), {**PASS, "dead": 3, "dry": "dry run"})
    assert gc_report.lines_of(dry, 9.0)[1].startswith("gc: containers: 3 dead  "), "none of them went"
    failed = gc_report.lines_of(changed(("images", "errors"), ["root", "alice"]), 9.0)
    assert failed[0].endswith("4 s ago: 1 removed, 5 freed"), "on this file system nothing failed"
    assert failed[1].startswith("gc: images: not all known") and failed[1].endswith("4 s ago: 2 failed")
    nowhere = gc_report.lines_of(changed(("images", "file_systems"), []), 9.0)
    assert nowhere[0].startswith("gc: images: not all known")


def test_a_file_that_is_not_as_corral_writes_it_is_lines_too(tmp_path: pathlib.Path) -> None:
    file = tmp_path / state.GC_STATUS.lstrip("/")
    file.parent.mkdir(parents=True)
    said = set()
    for keys, odd in itertools.product(places(STATUS), ODD):
        file.write_text(json.dumps(changed(keys, odd)), encoding="utf-8")
        lines = gc_report.lines(Host(str(tmp_path), clock=lambda: 9.0))
        said.update(lines)
        assert lines or (keys, odd) == ((), None), (keys, odd)
    assert f"gc: {state.GC_STATUS} is not as Corral wrote it: the next pass replaces it" in said
    file.unlink()
    assert gc_report.lines(Host(str(tmp_path))) == [], "no pass was made"
