# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible callback: the seconds of each task of a scenario, and of each step that a task's script names in its output.

Appends a line of JSON for each to the file that CORRAL_STEP_TIMES names, as soon as it has ended: playbook, file (of
the task), task, step (SCRIPT.STEP, else null), seconds. Prints the tasks of a second and more when a playbook ends.
"""

from __future__ import annotations

import json
import os
import re
import time
import typing as t

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: step_times
type: aggregate
short_description: Writes the seconds of tasks and steps to a file.
description:
  - Appends a line of JSON for each task, and for each step in its output, to a file.
requirements:
  - CORRAL_STEP_TIMES in the environment
"""

STEP = re.compile(r"^step ([\w.]+): (?:passed in|FAILED after) ([0-9.]+) s", re.MULTILINE)
LEAST = 1.0


class CallbackModule(CallbackBase):  # type: ignore[misc] # ansible has no types
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "step_times"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.playbook, self.task, self.file, self.began = "", "", "", 0.0
        self.rows: list[dict[str, t.Any]] = []

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        self.playbook = os.path.basename(playbook._file_name).partition(".")[0]

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        self.end_task(task.get_name())
        self.file = os.path.relpath((task.get_path() or ".:").rpartition(":")[0])

    v2_playbook_on_handler_task_start = v2_playbook_on_task_start

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self.add_steps(result.result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        self.add_steps(result.result)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        self.end_task("")
        for row in self.rows:
            if row["seconds"] >= LEAST:
                self._display.display(
                    f"{row['seconds']:7.1f} s  {row['task']}{': ' + row['step'] if row['step'] else ''}"
                )

    def end_task(self, name: str) -> None:
        """The task before this one has ended."""
        now = time.monotonic()
        if self.task:
            self.add_row(self.task, None, now - self.began)
        self.task, self.began = name, now

    def add_steps(self, result: t.Mapping[str, t.Any]) -> None:
        """The steps that a script names in its output."""
        for name, seconds in STEP.findall(str(result.get("stdout") or "").replace("\r", "")):
            self.add_row(self.task, name, float(seconds))

    def add_row(self, task: str, step: str | None, seconds: float) -> None:
        row = {"playbook": self.playbook, "file": self.file, "task": task, "step": step, "seconds": round(seconds, 1)}
        self.rows.append(row)
        path = os.environ.get("CORRAL_STEP_TIMES")
        if path:  # at once: a playbook that is ended early, or hangs, leaves what it had done
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
