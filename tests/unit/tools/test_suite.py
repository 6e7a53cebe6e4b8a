# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the suite ends when it is told to."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import suite

# A step that ends its node when it is to stop, which takes a while.
PROGRAM = """
import pathlib, signal, sys, time
import scenarios, suite
from steps import Step
from tally import Tally

def step():
    print("it runs", flush=True)
    scenarios.stopping.wait()
    print("it ends", flush=True)
    time.sleep(1)
    pathlib.Path(sys.argv[1]).write_text("its node is gone")
    return Tally(failed=1)

signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
suite.PARTS["check"] = lambda: [Step("a node", step)]
scenarios.patience = lambda: 1.0
raise SystemExit(suite.main(["check"]))
"""


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_another_signal_on_the_way_out_leaves_no_node(tmp_path: Path, first: int, second: int) -> None:
    path = str(Path(suite.__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "gone")],
        env={"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for number, said in ((first, "it runs"), (second, "it ends")):
            assert any(said in line for line in process.stdout)
            process.send_signal(number)
        assert process.wait() != 0
    assert (tmp_path / "gone").read_text() == "its node is gone"
