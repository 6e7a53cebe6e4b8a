# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""An HTML page of parts with headings, lists and tables, for people.

The page loads nothing and has no script. Every text is escaped.
"""

from __future__ import annotations

import html
import typing as t

from ..model.values.records import NamedTuple

# The style of the fleet's report, playbooks/templates/fleet.html.j2.
STYLE = """\
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; --line: #8884; }
body { max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; }
section { border-top: 1px solid var(--line); } .differs { border-left: .4rem solid #d98200; padding-left: 1rem; }
code, pre { font: .85rem/1.3 ui-monospace, monospace; overflow-wrap: anywhere; } pre, figure { overflow-x: auto; margin: 0; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line); }
"""


class Part(NamedTuple):
    """A part of the page, as HTML: its heading, and the content below the heading."""

    heading: str
    content: str


def page(title: str, summary: t.Sequence[str], parts: t.Sequence[Part]) -> str:
    """The HTML page: the lines of the summary, then each part that has content."""
    sections = [
        f'<section aria-label="{escaped(part.heading)}">\n<h2>{escaped(part.heading)}</h2>\n{part.content}\n</section>'
        for part in parts
        if part.content
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escaped(title)}</title>",
            f"<style>\n{STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            f"<h1>{escaped(title)}</h1>",
            *(f"<p>{escaped(line)}</p>" for line in summary),
            *sections,
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def listed(lines: t.Sequence[str], kind: str = "") -> str:
    """Lines as an HTML list; an empty string without lines."""
    if not lines:
        return ""
    rows = "\n".join(f"<li><code>{escaped(line)}</code></li>" for line in lines)
    return f'<ul class="{kind}">\n{rows}\n</ul>' if kind else f"<ul>\n{rows}\n</ul>"


def table(head: t.Sequence[str], rows: t.Sequence[t.Sequence[str]], caption: str) -> str:
    """An HTML table with a caption; an empty string without rows. The first column names the row."""
    if not rows:
        return ""
    columns = "".join(f'<th scope="col">{escaped(name)}</th>' for name in head)
    body = "\n".join(
        f'<tr><th scope="row">{escaped(first)}</th>{"".join(f"<td>{escaped(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return f"<table>\n<caption>{escaped(caption)}</caption>\n<thead><tr>{columns}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def escaped(text: str) -> str:
    """Text of a node as HTML. Control characters, which a page must not have, become U+FFFD."""
    return html.escape("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text))
