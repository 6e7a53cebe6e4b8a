# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a node: whatever text is put into it comes out as text, wherever that is."""

from __future__ import annotations

import html.parser

from _core.reports import html_page
from _core.reports.html_page import Part

HOSTILE = "<script>alert('1')</script>&\"<!--\x1b"
SHOWN = HOSTILE.replace("\x1b", "\N{REPLACEMENT CHARACTER}")


class Reader(html.parser.HTMLParser):
    """The elements of a page, and its texts by their element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: set[str] = set()
        self.texts: dict[str, str] = {}
        self.labels: list[str | None] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.labels += [value for name, value in attrs if name == "aria-label"]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts[self.open[-1]] = self.texts.get(self.open[-1], "") + data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def test_every_text_is_escaped() -> None:
    listed = html_page.listed([HOSTILE], "differs")
    table = html_page.table([HOSTILE], [[HOSTILE, HOSTILE]], HOSTILE)
    found = Reader(html_page.page(HOSTILE, [HOSTILE], [Part(HOSTILE, listed + table)]))
    assert not found.open
    assert "script" not in found.elements
    assert found.labels == [SHOWN]
    for element in ("title", "h1", "p", "h2", "code", "caption", "td"):
        assert found.texts[element] == SHOWN, element
    assert found.texts["th"] == SHOWN * 2, "of the head, and of the row"


def test_what_has_no_content_is_left_out() -> None:
    assert (html_page.listed([]), html_page.table(["a"], [], "b")) == ("", "")
    found = Reader(html_page.page("n", [], [Part("Empty", ""), Part("Full", "<p>x</p>")]))
    assert found.texts["h2"] == "Full"
