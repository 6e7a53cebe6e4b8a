# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of the user's: real programs that print too much, hang, leave processes behind, or are none."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from _core.host.command import TAIL, run_foreign
from _core.model.values import exit_text


def program(folder: Path, text: str, mode: int = 0o755) -> str:
    path = folder / "nic-ok"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def script(folder: Path, *lines: str) -> str:
    return program(folder, "\n".join(["#!/bin/sh", *lines, ""]))


def reason(path: str, seconds: float = 20) -> str:
    answer = run_foreign([path, "0000:3b:00.0"], seconds, {})
    return exit_text.why_failed(path, answer.code, answer.out, answer.err)


def test_it_finds_the_device_as_an_argument_and_in_its_environment(tmp_path: Path) -> None:
    path = script(tmp_path, 'echo "$# $1 $CORRAL_RESOURCE $LC_ALL $HOME"; read line || echo "no input"')
    answer = run_foreign([path, "a b;c"], 20, {"CORRAL_RESOURCE": "example.com/nic"})
    assert answer == (0, "1 a b;c example.com/nic C \nno input\n", "")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["exit 0"], ""),
        (["echo broken", "exit 0"], ""),
        (["exit 3"], "exit code 3"),
        (["echo first; echo 'link flaps ' >&2; echo; exit 1"], "exit code 1: link flaps"),
        (["printf 'no newline'; exit 1"], "exit code 1: no newline"),
        ([r"printf '\033[31mred\007\000\377\n'; exit 1"], "exit code 1: \\x1b[31mred\\x07\\x00�"),
        (["kill -9 $$"], "ended by signal 9"),
    ],
)
def test_its_last_line_is_the_reason(tmp_path: Path, lines: list[str], said: str) -> None:
    path = script(tmp_path, *lines)
    assert reason(path) == (said and f"{path}: {said}")


def test_megabytes_of_output_are_read_and_forgotten(tmp_path: Path) -> None:
    path = program(tmp_path, f"#!/bin/sh\nhead -c {64 << 20} /dev/zero | tr '\\0' x\necho\necho it is dead\nexit 1\n")
    answer = run_foreign([path], 120, {})
    assert (answer.code, len(answer.out)) == (1, TAIL)
    assert exit_text.why_failed("p", answer.code, answer.out, answer.err) == "p: exit code 1: it is dead"
    path = program(tmp_path, f"#!/bin/sh\nhead -c {8 << 20} /dev/zero | tr '\\0' x\nexit 1\n")
    assert len(reason(path, 120)) < 500


def test_one_that_prints_for_ever_is_ended_in_time(tmp_path: Path) -> None:
    path = program(tmp_path, "#!/bin/sh\nexec yes\n")
    assert reason(path, 0.5) == f"{path}: no answer within 0.5 s"


def test_one_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    path = script(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/child", "trap '' TERM", "wait")
    assert reason(path, 1) == f"{path}: no answer within 1 s"
    child = int((tmp_path / "child").read_text())
    for dummy in range(200):  # It is a zombie until the first process of the machine has waited for it.
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("what it started runs on")


def test_one_that_closed_its_output_and_hangs_is_ended_too(tmp_path: Path) -> None:
    path = script(tmp_path, "exec >&- 2>&-", "exec sleep 1000")
    assert reason(path, 0.5) == f"{path}: no answer within 0.5 s"


def test_what_it_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    path = script(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/child", "echo bad; exit 1")
    assert reason(path, 100) == f"{path}: exit code 1: bad"
    os.kill(int((tmp_path / "child").read_text()), 9)


def test_what_is_no_program_has_a_reason(tmp_path: Path) -> None:
    none = f"{tmp_path}/none"
    assert reason(none) == f"{none}: not there, or a program that its first line names is not"
    assert reason(program(tmp_path, "#!/no/such\n")).endswith(
        "not there, or a program that its first line names is not"
    )
    assert reason(program(tmp_path, "\x7fELF rubbish")).endswith(": Exec format error")
    assert reason(program(tmp_path, "#!/bin/sh\n", mode=0o644)).endswith(": Permission denied")
    assert reason(str(tmp_path)).endswith(": Permission denied")
    answer = run_foreign(["/bin/true", "a\0b"], 5, {})
    assert (answer.code, "null byte" in answer.err) == (126, True)
