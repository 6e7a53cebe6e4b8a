# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""corral diff: machines and JSON files side by side, and what it refuses."""

from __future__ import annotations

import json
import shutil
import typing as t
from pathlib import Path

import node
import pytest
from _core.constants import SCHEMA
from _core.main import main
from _core.model.status import command_shapes
from _core.reports import data_diff
from shapes import misfits

Make = t.Callable[..., node.Node]


def corral(*words: object) -> int:
    return main(["diff", *map(str, words)])


def written(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data))
    return path


ROWS: list[tuple[str, object, object, list[tuple[str, str | None, str | None]]]] = [
    ("the same", {"a": [1, 2], "b": {"c": None}}, {"b": {"c": None}, "a": [1, 2]}, []),
    ("a value", {"a": {"b": 1}}, {"a": {"b": 2}}, [("a.b", "1", "2")]),
    ("a number and a text", {"a": 4, "b": True}, {"a": "4", "b": "true"}, [("a", "4", '"4"'), ("b", "true", '"true"')]),
    ("a key that came", {}, {"a": "x"}, [("a", None, "x")]),
    ("CPUs as the kernel writes them", {"cpus": [0, 1, 2, 8]}, {"cpus": [0, 1]}, [("cpus", "0-2,8", "0-1")]),
    ("lists of CPUs", {"a": [[0, 4], [1, 5]]}, {"a": [[0], [1, 5]]}, [("a", "0,4 | 1,5", "0 | 1,5")]),
    ("numbers in no order", {"a": [2, 1]}, {"a": [1, 2]}, [("a", "[2, 1]", "1-2")]),
    ("rows by name, in any order", {"a": [{"name": "x", "v": 1}, {"name": "y", "v": 1}]},
     {"a": [{"name": "y", "v": 2}, {"name": "x", "v": 1}]}, [("a[y].v", "1", "2")]),
    ("a row that went", {"a": [{"name": "x", "v": 1}]}, {"a": []},
     [("a[x].name", "x", None), ("a[x].v", "1", None)]),
    ("rows of one name", {"a": [{"name": "x", "v": 1}, {"name": "x", "v": 2}]},
     {"a": [{"name": "x", "v": 1}, {"name": "x", "v": 3}]}, [("a[x#2].v", "2", "3")]),
    ("items of one subject", {"a": [{"subject": "s", "property": "p", "v": 1}, {"subject": "s", "property": "q", "v": 1}]},
     {"a": [{"subject": "s", "property": "q", "v": 2}, {"subject": "s", "property": "p", "v": 1}]},
     [("a[s/q].v", "1", "2")]),
    ("nothing and null", {"a": None}, {"b": []}, []),
    ("times do not count", {"time": 1, "a": {"since": 1, "b": 1}}, {"time": 2, "a": {"since": 2, "b": 1}}, []),
    ("another kind of value", {"a": 1}, {"a": {"b": 1}}, [("a", "1", None), ("a.b", None, "1")]),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "wanted"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_differs_between_data(
    before: object, after: object, wanted: list[tuple[str, str | None, str | None]]
) -> None:
    assert [tuple(one) for one in data_diff.differences(before, after)] == wanted


def test_two_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = written(tmp_path / "one.json", {"time": 1, "hosts": [{"host": "a", "in_sync": True}]})
    two = written(tmp_path / "two.json", {"time": 2, "hosts": [{"host": "a", "in_sync": False}]})
    assert corral(one, two) == 2
    assert capsys.readouterr().out == "hosts[a].in_sync: true -> false\n"
    assert corral(one, one) == 0
    assert capsys.readouterr().out == "nothing differs\n"
    assert corral(one, two, "--json") == 2
    data = json.loads(capsys.readouterr().out)
    assert misfits(data, command_shapes.Differences) == []
    assert data["schema"] == SCHEMA


def test_two_machines_one_of_them_a_snapshot(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, other = tmp_path / "tree", tmp_path / "other"
    for copy in (tree, other):
        shutil.copytree(make().root, copy)
    snapshot = tmp_path / "one.tar.gz"
    monkeypatch.chdir(tmp_path)
    assert main(["snapshot", "--root", str(tree), "-o", str(snapshot)]) == 0
    capsys.readouterr()
    assert corral(snapshot, tree) == 0
    (other / "sys/devices/system/cpu/online").write_text("0-6\n")
    (other / "etc/corral").mkdir(parents=True)
    written(other / "etc/corral/profile.json", {"name": "edge"})
    capsys.readouterr()
    assert corral(snapshot, other) == 2
    said = capsys.readouterr().out.splitlines()
    assert "profile.name: absent -> edge" in said
    assert any(line.startswith("topology.") and "0-7" in line for line in said)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("nothing.json", "data.json", "nothing.json: cannot be read: No such file or directory"),
        ("data.json", "other.txt", "no readable snapshot (not a tar archive): make one"),
        ("data.json", ".", "AFTER: .: is a machine, and data.json is JSON: compare two machines or two JSON files"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    before: str,
    after: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "data.json", {})
    (tmp_path / "sys").mkdir()
    (tmp_path / "other.txt").write_text("{")
    assert corral(before, after) == 1
    assert message in capsys.readouterr().err.replace('"', "")


def test_a_folder_that_is_no_machine_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two of them had nothing that differs."""
    (tmp_path / "sys").mkdir()
    assert corral(tmp_path, tmp_path) == 1
    assert f"{tmp_path}: shows no CPU: give the folder of a machine" in capsys.readouterr().err


def test_json_has_a_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its values take several times as many bytes of memory as the file has."""
    (tmp_path / "a.json").write_text("[" + " " * (64 << 20) + "]")
    assert corral(tmp_path / "a.json", tmp_path / "a.json") == 1
    assert "a.json: is larger than 64 MiB" in capsys.readouterr().err
