# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""corral status --html, corral topology --svg and corral pools --svg on a node."""

from __future__ import annotations

import html.parser
import json

import node
import pytest
import runs
import services
from _core.cli import commands
from _core.host import state
from test_exclusive import CGROUP
from test_workloads import BATCH, rolled

__all__ = ["rolled"]

VOID = {"meta", "br"}


class Page(html.parser.HTMLParser):
    """The texts of a page by the path of their elements; AssertionError for elements that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(("/".join(self.open), data.strip()))

    def under(self, tag: str) -> list[str]:
        return [text for path, text in self.texts if path.endswith(tag)]


def page(fake: node.Node, capsys: pytest.CaptureFixture[str], code: int) -> Page:
    capsys.readouterr()
    assert runs.command(fake.host(), "status", "--html") == code
    return Page(capsys.readouterr().out)


def test_the_page_shows_what_is_and_what_differs(rolled: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert services.start(rolled, BATCH)
    runs.tick(rolled.host())
    fine = page(rolled, capsys, 0)
    assert fine.under("svg/title") == ["CPUs as they are"]
    assert "What differs" not in fine.under("h2")
    assert [text for text in fine.under("tr/th") if "dataplane" in text or "batch" in text] == [
        "dataplane",
        "batch:batch@a",
        "batch:batch@b",
    ]
    titles = fine.under("/g/title")
    assert "CPU 2: exclusive, workload dataplane" in titles
    assert not [title for title in titles if "declared" in title]
    assert [name for tag, attributes in fine.attributes for name in ("src", "href") if name in attributes] == []
    # By hand, and seen by no tick yet.
    rolled.kernel_write(f"{CGROUP}/system.slice/cpuset.cpus", "0,3\n")
    assert "CPU 3: reserved, declared shared" in page(rolled, capsys, 0).under("/g/title")
    said = runs.printed(rolled.host(), "status", code=None)
    assert "what is in force differs:\n" in said
    assert "small letters: not as declared, 3\n" in said
    runs.tick(rolled.host())
    assert "what is in force differs" not in runs.printed(rolled.host(), "status", code=None)
    assert "CPU 3: shared" in page(rolled, capsys, 0).under("/g/title")


def table(shown: Page, caption: str) -> list[list[str]]:
    """The rows of a table, its head among them."""
    rows: list[list[str]] = []
    here = False
    for path, text in shown.texts:
        if path.endswith("/caption"):
            here = text == caption
        elif here and path.endswith(("/th", "/td")):
            if path.endswith("tbody/tr/th") or not rows:
                rows.append([])
            rows[-1].append(text)
        elif here and "/table" not in path:
            here = False
    return rows


def test_the_page_has_what_the_text_of_corral_status_has(rolled: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert services.start(rolled, BATCH)
    assert runs.command(rolled.host(), "pause", "--for", "1h") == 0
    rolled.kernel_write(node.pool_file(1), "31\n")
    rolled.kernel_write("/proc/sys/kernel/pid_max", "40000\n")
    runs.tick(rolled.host())
    shown = page(rolled, capsys, 2)
    text = runs.printed(rolled.host(), "status", code=None).splitlines()
    assert shown.under("h1") == ["node: workloads"]
    assert shown.under("h2") == ["What differs", "CPUs as they are", "Workloads", "Hugepages"]
    said = shown.under("main/p")
    assert said[0].startswith("as the tick of 2023-11-14 22:13:30 UTC saw it")
    assert said[1].startswith("profile workloads   mode enforce")
    assert said[1:] == text[: len(said) - 1]
    lines = shown.under("section/ul/li/code")
    items = json.loads(rolled.get(state.STATUS))["items"]
    assert len(items) == 2
    assert [line.strip() for line in text if line.strip() in lines] == lines, "items, then the budget"
    assert len(lines) == len(items) + 4
    rows = table(shown, "Workloads and what they have")
    assert [row[:3] for row in rows[1:]] == [
        ["dataplane", "Guaranteed", "declared"],
        ["feed", "Burstable", "declared"],
        ["batch:batch@a", "Guaranteed", "running"],
        ["batch:batch@b", "Guaranteed", "running"],
    ]
    assert [row[-2:] for row in rows] == [
        ["state", "since"],
        ["granted", "2023-11-14 22:13:20 UTC"],
        ["granted", "2023-11-14 22:13:20 UTC"],
        ["granted", "2023-11-14 22:13:30 UTC"],
        ["waiting", "-"],
    ]
    assert table(shown, "Pools of hugepages, in pages") == [
        ["size", "where", "declared", "there"],
        ["2Mi", "node 1", "32", "31"],
    ]


def test_what_differs_comes_first_and_is_text(rolled: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    status = json.loads(rolled.get(state.STATUS))
    item = {**dict.fromkeys(("manager", "subject", "property", "actual", "wanted", "reason", "location"), "x")}
    item.update(
        subject="<script>alert(1)</script>\x1b[2J", verdict="drift", since=1, steps=[], when="now", disruption="none"
    )
    rolled.put(state.STATUS, json.dumps({**status, "items": [item], "in_sync": False}))
    shown = page(rolled, capsys, 2)
    assert shown.under("h2")[0] == "What differs"
    assert "script" not in [tag for tag, dummy in shown.attributes]
    (line,) = shown.under("section/ul/li/code")[:1]
    assert "<script>alert(1)</script>\\x1b[2J" in line


def test_a_node_without_pools_or_with_a_broken_profile_has_a_page(
    fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.declare(fake.host(), cpu=None)
    text = fake.get(state.DECLARED)
    assert page(fake, capsys, 0).under("svg/title") == ["CPUs, without pools"]
    fake.put(state.DECLARED, text.replace("{", '{"none": 1, ', 1))
    assert any("no CPU map: " in text for text in page(fake, capsys, 0).under("code"))


def test_topology_and_pools_are_drawn(rolled: node.Node) -> None:
    machine = Page(runs.printed(rolled.host(), "topology", "--svg"))
    assert sorted(machine.under("/g/title")) == [f"CPU {cpu}" for cpu in range(8)]
    assert "CPU 2: exclusive, workload dataplane" in Page(runs.printed(rolled.host(), "pools", "--svg")).under(
        "/g/title"
    )


@pytest.mark.parametrize("words", [("status", "--html"), ("topology", "--svg"), ("pools", "--svg")])
def test_a_page_or_drawing_is_no_json(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        commands.parser().parse_args([*words, "--json"])
    assert f"argument --json: not allowed with argument {words[1]}" in capsys.readouterr().err
