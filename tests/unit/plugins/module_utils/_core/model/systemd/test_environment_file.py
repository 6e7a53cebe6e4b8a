# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of EnvironmentFile=: each value is what systemd 252 (load_env_file, strv_split_full) makes of the text."""

from __future__ import annotations

import pytest
from _core.model.systemd import environment_file

FILES = {
    "A=1\nB=2": {"A": "1", "B": "2"},
    "A=1\nA=2\n": {"A": "2"},
    "  A = b c \t\n": {"A": "b c"},
    "A=\nB=1": {"A": "", "B": "1"},
    "A": {},
    "": {},
    "export A=1\n1A=1\n=1\nA-B=1\nC=1": {"C": "1"},
    "# A=1\n;B=1\n \t#C=1\nD=#1 ;\n": {"D": "#1 ;"},
    "A=1\r\nB=2\r\n": {"A": "1", "B": "2"},
    # Quotes: the first part of a value, or several, with nothing between them. Within a plain part they are plain.
    'A="b c"': {"A": "b c"},
    "A='b \"c\" \\d'": {"A": 'b "c" \\d'},
    "A=\"b\" 'c' d": {"A": "bcd"},
    'A=b"c d"': {"A": 'b"c d"'},
    'A="b\nc"\nD=1': {"A": "b\nc", "D": "1"},
    "A='b\nc' \nD=1": {"A": "b\nc", "D": "1"},
    'A="b\nD=1': {"A": "b\nD=1"},
    'A=" b "  ': {"A": " b "},
    # Escapes
    r'A="\"\\\`\$\a"': {"A": '"\\`$\\a'},
    r"A=\"b\ c\\": {"A": '"b c\\'},
    "A=b\\ \nB=1": {"A": "b ", "B": "1"},
    # Lines that go on
    'A="--x=1 \\\n  --y=2 \\\n"\nB=1': {"A": "--x=1   --y=2 ", "B": "1"},
    "A=--x=1 \\\n  --y=2  \nB=1": {"A": "--x=1   --y=2", "B": "1"},
    "A=\\\nb": {"A": "b"},
    "A=b\\": {"A": "b"},
    "A=b\\\n\nB=1": {"A": "b", "B": "1"},
    "A=b\\\n#c\nB=1": {"A": "b#c", "B": "1"},
    "A='b\\\nc'": {"A": "b\\\nc"},
}


@pytest.mark.parametrize(("text", "found"), FILES.items())
@pytest.mark.parametrize("long_comments", [False, True])
def test_the_variables_of_a_file(text: str, found: dict[str, str], long_comments: bool) -> None:
    assert environment_file.parse(text, long_comments=long_comments) == found


@pytest.mark.parametrize(
    ("text", "until_253", "later"),
    [
        ("#a \\\nA=1\nB=2", {"B": "2"}, {"A": "1", "B": "2"}),
        (";a \\\n# b\nA=1", {"A": "1"}, {"A": "1"}),
        ("#a \\b\nA=1", {"A": "1"}, {"A": "1"}),
        ("#a \\\\\nA=1", {"A": "1"}, {"A": "1"}),
    ],
)
def test_a_comment_went_on_after_a_backslash_before_systemd_254(
    text: str, until_253: dict[str, str], later: dict[str, str]
) -> None:
    assert environment_file.parse(text, long_comments=True) == until_253
    assert environment_file.parse(text) == later


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", []),
        (" \t", []),
        ("--a --b=c\n--d", ["--a", "--b=c", "--d"]),
        ("--a='b c' \"d e\"f", ["--a=b c", "d ef"]),
        ("'' a", ["", "a"]),
        (r"a\ b \'c '\'d' \n", ["a b", "'c", "'d", "n"]),
        ("a 'b c", ["a", "b c"]),
        ("a\\", ["a"]),
        ("\\", [""]),
    ],
)
def test_the_words_of_a_variable(value: str, words: list[str]) -> None:
    assert environment_file.words(value) == words
