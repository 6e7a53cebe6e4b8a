# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples of README and docs: each fenced block, the test that claims it, and how its text is compared with what is printed."""

from __future__ import annotations

import re
import typing as t

import pytest
from shared_data import REPOSITORY

GENERATED = "docs/profile.md"  # test_profile_reference.py has it
PAGES = [f"docs/{path.name}" for path in sorted((REPOSITORY / "docs").glob("*.md"))]
DOCUMENTS = ["README.md", "roles/corral/README.md", *(page for page in PAGES if page != GENERATED)]
FENCED = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
RELEASE = re.compile(r"\b[0-9a-f]{12}\b")  # a release of the agent, which changes with each change of its code
AGO = re.compile(r"\b\d+ s ago\b")
MOMENT = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")
FILES = re.compile(r"\(\d+ files\)")
LEFT_OUT = ("…", "...")
PLAYBOOK = "ansible-playbook "
PLAYBOOK_OPTION = re.compile(
    rf"(?:{PLAYBOOK})?(?:-[efilt]|-v+|--(?:check|diff|extra-vars|forks|inventory|limit|skip-tags|tags))(?:[ =][^ ]+)?"
)

Test = t.TypeVar("Test", bound=t.Callable[..., None])
Claim = tuple[str, str]

CLAIMS: dict[Claim, set[str]] = {}  # the tests of each example, by document and first line


class Command(t.NamedTuple):
    """A command of an example, and the output that the example shows."""

    words: str
    output: list[str]


def blocks(document: str) -> list[str]:
    """The fenced blocks of a document."""
    return FENCED.findall((REPOSITORY / document).read_text(encoding="utf-8"))


def first_line(block: str) -> str:
    return block.partition("\n")[0]


def examples() -> list[Claim]:
    """Every example, by document and first line."""
    return [(document, first_line(block)) for document in DOCUMENTS for block in blocks(document)]


def example(document: str, line: str) -> str:
    """The example of a document with this first line; nothing if it is gone, which the test of all claims tells."""
    return {first_line(block): block for block in blocks(document)}.get(line, "")


def claims(document: str, *first_lines: str) -> t.Callable[[Test], Test]:
    """The test has these examples of a document."""

    def claim(test: Test) -> Test:
        for line in first_lines:
            CLAIMS.setdefault((document, line), set()).add(test.__name__)
        return test

    return claim


def shows(document: str, *first_lines: str) -> t.Callable[[Test], Test]:
    """The test has these examples of a document, as ``shown``: a text, or the list of them if there are several."""
    texts = [example(document, line) for line in first_lines]

    def claim(test: Test) -> Test:
        given = pytest.mark.parametrize("shown", [texts if len(texts) > 1 else texts[0]], ids=["shown"])
        return t.cast("Test", given(claims(document, *first_lines)(test)))

    return claim


def commands(block: str) -> list[Command]:
    """The commands of a block. Without a prompt, each of its lines is one; a comment behind it is left out."""
    found: list[Command] = []
    has_prompts = block.startswith(("# ", "$ "))
    for line in block.splitlines():
        if not has_prompts or line.startswith(("# ", "$ ")):
            found.append(Command(re.sub(r"\s{2,}# .*", "", line.removeprefix("# ").removeprefix("$ ")), []))
        else:
            found[-1].output.append(line)
    return found


def playbook_commands() -> tuple[set[str], set[str]]:
    """The commands of ansible-playbook in examples and sentences, and its options that sentences name, some with a value."""
    found: set[str] = set()
    options: set[str] = set()
    for document in DOCUMENTS:
        found |= {one.words.strip() for block in blocks(document) for one in commands(block) if PLAYBOOK in one.words}
        text = FENCED.sub("", (REPOSITORY / document).read_text(encoding="utf-8"))
        for span in re.findall(r"`([^`]+)`", text):
            words = " ".join(span.split())
            if PLAYBOOK_OPTION.fullmatch(words):
                options.add(words.removeprefix(PLAYBOOK))
            elif PLAYBOOK in words:
                found.add(words)
    return found, options


def comparable(line: str) -> str:
    """A line without what differs from run to run: releases of the agent, their number of files, times."""
    line = MOMENT.sub("TIME", AGO.sub("N s ago", line))
    return FILES.sub("(N files)", RELEASE.sub("RELEASE", line)).rstrip()


def in_columns(lines: t.Iterable[str]) -> list[str]:
    """The lines of a table whose columns are as wide as the rows that an example leaves out make them."""
    return [re.sub(r"(?<=\S) {2,}", "  ", line) for line in lines]


def differences(shown: t.Sequence[str], printed: t.Sequence[str]) -> list[str]:
    """What an example shows that is not printed there, and what it leaves out without saying so."""
    wrong: list[str] = []
    left, may_skip = [comparable(line) for line in printed], False
    for line in shown:
        if line.strip() in LEFT_OUT:
            may_skip = True
            continue
        wanted = comparable(line)
        if wanted not in left:
            wrong.append(f"not printed: {line}")
            continue
        skipped = left.index(wanted)
        if not may_skip:
            wrong += [f"left out: {one}" for one in left[:skipped]]
        left, may_skip = left[skipped + 1 :], False
    return wrong + ([] if may_skip else [f"left out: {one}" for one in left])
