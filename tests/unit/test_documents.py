# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documents name exists: tests, scenarios, commands, benchmarks, and the places that links lead to."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import documented
import pytest
import yaml
from _core.cli import commands, parser_pages
from shared_data import REPOSITORY

DESIGN = REPOSITORY / "docs/design.md"
SECURITY = REPOSITORY / "SECURITY.md"
DOCUMENTS = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")), SECURITY, *sorted((REPOSITORY / "docs").glob("*.md")),
]  # fmt: skip
PLUGINS = REPOSITORY / "plugins"
SCENARIOS = {path.parent.name for path in (REPOSITORY / "molecule").glob("*/molecule.yml")}
MAKEFILE = "".join((REPOSITORY / name).read_text(encoding="utf-8") for name in ("Makefile", "lab/lab.mk"))
TARGETS = {name for line in re.findall(r"^([a-z- ]+):", MAKEFILE, re.MULTILINE) for name in line.split()}
COMMANDS = [command.name for command in parser_pages.commands(commands.parser())]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def anchors(path: Path) -> set[str]:
    """The headings of a document as GitHub and GitLab name them in a link."""
    found = re.findall(r"^#+ (.+)$", text_of(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_tests_and_commands_of_make_that_are_named_exist(path: Path) -> None:
    tests = {test.name for test in (REPOSITORY / "tests").rglob("test_*.py")}
    assert set(re.findall(r"\btest_\w+\.py", text_of(path))) <= tests
    assert set(re.findall(r"`make ([a-z-]+)", text_of(path))) <= TARGETS


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_of_corral_that_are_named_exist(path: Path) -> None:
    assert set(re.findall(r"(?:^|[`#] ?|bin/)corral ([a-z]+)", text_of(path), re.MULTILINE)) <= set(COMMANDS)


def test_the_readme_lists_each_command_of_a_node() -> None:
    (section,) = re.findall(r"^## On the node\n(.*?)^## ", text_of(REPOSITORY / "README.md"), re.MULTILINE | re.DOTALL)
    listed = re.findall(r"`(?:corral )?([a-z]+)`", section.partition("(with `--json`)")[0])
    assert sorted(listed) == sorted(set(COMMANDS) - {"man", "completion"})


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_a_place(path: Path) -> None:
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(path)):
        if "://" in link:
            continue
        name, dummy, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def test_each_rule_of_the_design_names_the_place_that_keeps_it_and_a_test() -> None:
    (section,) = re.findall(r"^## Rules\n(.*?)^## ", text_of(DESIGN), re.MULTILINE | re.DOTALL)
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert [rule.split(".")[0] for rule, _places, _tests in rows] == [str(number) for number in range(1, 14)]
    for rule, places, tests in rows[:-1]:
        assert re.search(r"`[a-z_/]+\.py`", places), rule
        assert re.search(r"`test_\w+\.py`", tests), rule
        named = {name for words in re.findall(r"scenarios? (.*)", tests) for name in re.findall(r"`([a-z-]+)`", words)}
        assert named <= SCENARIOS, rule


def test_each_place_that_the_design_names_is_there() -> None:
    names = set(re.findall(r"`([a-z_/]+\.py)`", text_of(DESIGN)))
    assert len(names) > 30
    core = {name for name in names if "/" in name}
    assert {name for name in core if not (PLUGINS / "module_utils/_core" / name).is_file()} == set()
    assert {name for name in names - core if not name.startswith("test_")} == set()


def test_each_promise_of_security_names_the_place_that_keeps_it_and_a_test() -> None:
    (section,) = re.findall(r"^## What is promised\n(.*?)^## ", text_of(SECURITY), re.MULTILINE | re.DOTALL)
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    for promise, places, tests in rows:
        named = re.findall(r"`([a-z_/]+\.py)`", places)
        assert named, promise
        for name in set(named):
            assert any((PLUGINS / folder / name).is_file() for folder in ("", "module_utils/_core")), (
                f"{promise}: {name}"
            )
        scenarios = {
            name for words in re.findall(r"scenarios? (.*)", tests) for name in re.findall(r"`([a-z-]+)`", words)
        }
        assert scenarios <= SCENARIOS, promise
        assert scenarios or "test_" in tests, promise


def test_a_reader_of_the_built_collection_has_security() -> None:
    ignored = yaml.safe_load((REPOSITORY / "galaxy.yml").read_text(encoding="utf-8"))["build_ignore"]
    assert not any(fnmatch.fnmatch(SECURITY.name, pattern) for pattern in ignored)


def test_contributors_find_a_row_for_each_scenario() -> None:
    table = [line for line in text_of(REPOSITORY / "CONTRIBUTING.md").splitlines() if line.startswith("| `")]
    assert {name for line in table for name in re.findall(r"`([a-z-]+)`", line.split(" | ")[0])} >= SCENARIOS


def test_each_benchmark_has_a_row_and_each_row_a_benchmark() -> None:
    rows = re.findall(r"^\| `make (bench-[a-z-]+)` \|", text_of(REPOSITORY / "docs/benchmarks.md"), re.MULTILINE)
    assert sorted(rows) == sorted(target for target in TARGETS if target.startswith("bench-"))


def test_each_example_has_one_test_and_each_test_its_example() -> None:
    import test_documented_commands
    import test_documented_examples
    import test_documented_playbooks

    assert test_documented_commands and test_documented_examples and test_documented_playbooks, (
        "they claim the examples"
    )
    found = documented.examples()
    fences = [
        line for name in documented.DOCUMENTS for line in text_of(REPOSITORY / name).splitlines() if "```" in line
    ]
    assert len(fences) == 2 * len(found), "a fence has another form"
    assert len(found) == len(set(found)), "two examples of a document begin with the same line"
    assert sorted(set(found) - documented.CLAIMS.keys()) == [], "no test has these examples"
    assert sorted(documented.CLAIMS.keys() - set(found)) == [], "the documents have no such examples"
    assert [claim for claim, tests in documented.CLAIMS.items() if len(tests) > 1] == []


def test_an_example_that_leaves_lines_out_says_so() -> None:
    printed = ["one", "two 4 s ago", "three", "four"]
    assert documented.differences(["one", "two 9 s ago", "...", "four"], printed) == []
    assert documented.differences(["one", "  …", "four"], printed) == []
    assert documented.differences(["one", "three", "four"], printed) == ["left out: two N s ago"]
    assert documented.differences(["one", "…", "five"], printed) == ["not printed: five"]
    assert documented.differences(["one", "…", "three"], printed) == ["left out: four"]


def test_an_example_is_compared_but_for_times_and_releases() -> None:
    line = "0f3a5c7e9b21 (13 files) 2026-11-25 09:12:40 UTC, 4 s ago"
    assert documented.comparable(line) == "RELEASE (N files) TIME, N s ago"
    for line in ("2 differ", "CPUs 0-3", "4 steps ago", "deadbeef", "(2 changes)", "2026-11-25"):
        assert documented.comparable(line) == line
