# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manual page and the completion, read by the programs that they are for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from _core.cli import commands, parser_pages
from _core.constants import VERSION
from _core.main import main

PAGE = parser_pages.man_page(commands.parser(), VERSION)
NAMES = [one.name for one in parser_pages.commands(commands.parser())]
SCRIPT = parser_pages.bash_completion(commands.parser())


def completed(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    (folder / "corral.bash").write_text(SCRIPT)
    quoted = " ".join(f"'{word}'" for word in ("corral", *words))
    ask = f"source ./corral.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _corral; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", ask], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("dri",), ["drift"]),
        (("re",), ["reconcile", "release", "resume"]),
        (("--v",), ["--version"]),
        (("status", "--t"), ["--tenants"]),
        (("admit", "x", "--hold", ""), ["declared", "running"]),
        (("admit", "x", "--hold", "r"), ["running"]),
        (("pools", "--profile", "pro"), ["profile.yml"]),
        (("diff", "pro"), ["profile.yml"]),
        (("diff", "profile.yml", "pro"), ["profile.yml"]),
        (("pause", "--for", "1"), []),
        (("status", "pro"), []),
    ],
)
def test_bash_offers(words: tuple[str, ...], wanted: list[str], tmp_path: Path) -> None:
    (tmp_path / "profile.yml").touch()
    assert completed(tmp_path, *words) == wanted


def test_nothing_hidden_is_offered_or_described() -> None:
    assert "--tick" not in SCRIPT
    assert "tick)" not in PAGE
    assert "\\-\\-tick" not in PAGE


def test_the_page_has_each_command_and_option() -> None:
    found = parser_pages.commands(commands.parser())
    assert len(found) == len(NAMES) > 20
    for one in found:
        assert f".SS corral {one.name}" in PAGE
        for option in one.options:
            assert parser_pages.roff(", ".join(option.option_strings)) in PAGE


@pytest.mark.parametrize("command", NAMES)
def test_each_command_has_its_function(command: str) -> None:
    assert callable(commands.handler(command))


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_the_page_is_one_that_groff_reads_without_a_warning() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-P-cbou"], input=PAGE, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "corral confirm HASH" in done.stdout
    assert "100%" in parser_pages.roff("100%%")


@pytest.mark.parametrize(("words", "begins"), [(["man"], ".TH CORRAL 8"), (["completion"], "# Completion of")])
def test_the_commands_print_them(words: list[str], begins: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out.startswith(begins)


def test_the_readme_names_each_command() -> None:
    text = (Path(__file__).parents[6] / "README.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}`" not in text and f"corral {name}" not in text] == []
