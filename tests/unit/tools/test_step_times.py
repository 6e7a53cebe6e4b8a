# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The callback that writes down the seconds of a playbook's tasks and of the steps in their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ansible.plugins.callback")
CALLBACKS = Path(__file__).resolve().parents[3] / "tools" / "callback"
BOOK = """
- hosts: localhost
  gather_facts: false
  connection: local
  tasks:
    - name: Live
      ansible.builtin.raw: |
        sleep 0.3
        printf 'step one: passed in 12.5 s\\nstep two: FAILED after 3.0 s\\n'
        exit 3
      ignore_errors: true
    - name: Rest
      ansible.builtin.raw: sleep 1.2
"""


def test_tasks_and_steps_are_written_with_their_seconds(tmp_path: Path) -> None:
    book, times = tmp_path / "converge.yml", tmp_path / "times"
    book.write_text(BOOK)
    environment = {
        **os.environ,
        "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
        "ANSIBLE_CALLBACKS_ENABLED": "step_times",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "CORRAL_STEP_TIMES": str(times),
        "HOME": str(tmp_path),
    }
    words = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(book)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in times.read_text().splitlines()]
    assert [(row["playbook"], row["task"], row["step"]) for row in rows] == [
        ("converge", "Live", "one"),
        ("converge", "Live", "two"),
        ("converge", "Live", None),
        ("converge", "Rest", None),
    ]
    assert [row["seconds"] for row in rows[:2]] == [12.5, 3.0]
    assert [row["seconds"] >= least for row, least in zip(rows[2:], (0.3, 1.2), strict=True)] == [True, True]
    assert "Rest" in done.stdout.partition("PLAY RECAP")[2]


def test_a_playbook_that_is_killed_leaves_the_seconds_of_what_it_had_done(tmp_path: Path) -> None:
    book, times = tmp_path / "converge.yml", tmp_path / "times"
    book.write_text(BOOK.replace("sleep 1.2", "sleep 5"))
    environment = {
        **os.environ,
        "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
        "ANSIBLE_CALLBACKS_ENABLED": "step_times",
        "CORRAL_STEP_TIMES": str(times),
        "HOME": str(tmp_path),
    }
    words = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(book)]
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while "Live" not in (times.read_text() if times.exists() else ""):
            time.sleep(0.05)
        process.kill()
    rows = [json.loads(line) for line in times.read_text().splitlines()]
    assert [(row["task"], row["step"]) for row in rows][:2] == [("Live", "one"), ("Live", "two")]
