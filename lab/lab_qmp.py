# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""QEMU's monitor: enough of QMP to save, restore and end a machine."""

from __future__ import annotations

import json
import pathlib
import socket
import time
import typing as t

from lab_base import LabError, patience


class Monitor:
    """A connection to one machine's monitor."""

    def __init__(self, path: pathlib.Path, wait: float = 10.0, limit: float = 120.0) -> None:
        deadline = time.monotonic() + wait * patience()
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(limit * patience())
            try:
                self.socket.connect(str(path))
                break
            except OSError as error:
                self.socket.close()
                if time.monotonic() > deadline:
                    raise LabError(f"{path}: the machine's monitor does not answer: {error}") from None
                time.sleep(0.05)
        self.file = self.socket.makefile("rw")
        self._answer()
        self.ask("qmp_capabilities")

    def ask(self, command: str, **arguments: t.Any) -> t.Any:
        """Run a command and return its answer; events in between are passed over."""
        try:
            self.file.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
            self.file.flush()
        except OSError as error:
            raise LabError(f"the machine ended: {error}") from None
        return self._answer()

    def _answer(self) -> t.Any:
        while True:
            try:
                line = self.file.readline()
            except OSError as error:
                raise LabError(f"the machine's monitor does not answer: {error}") from None
            if not line:
                raise LabError("the machine ended")
            answer = json.loads(line)
            if "error" in answer:
                raise LabError(f"QEMU: {answer['error'].get('desc')}")
            if "return" in answer or "QMP" in answer:
                return answer.get("return")

    def migrated(self, limit: float = 120.0) -> None:
        """Wait until a migration to or from a file is complete."""
        deadline = time.monotonic() + limit * patience()
        while True:
            status = (self.ask("query-migrate") or {}).get("status")
            if status == "completed":
                return
            if status in ("failed", "cancelled") or time.monotonic() > deadline:
                raise LabError(f"the machine's state could not be moved: {status}")
            time.sleep(0.05)

    def close(self) -> None:
        self.file.close()
        self.socket.close()
