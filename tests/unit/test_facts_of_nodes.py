# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that returns facts sets no variable of the collection: what happens on the controller is the inventory's to say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ansible")

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("playbook", ["rollout", "drift"])
def test_a_node_does_not_say_where_the_controller_writes_or_what_it_runs(tmp_path: Path, playbook: str) -> None:
    put, report = tmp_path / "put", tmp_path / "report.json"
    facts = {
        "corral_on_drift": "adopt", "corral_adopted_dir": str(put), "corral_drain_all": True,
        "corral_drain": str(put / "n1.yml"), "corral_report_file": str(report),
    }  # fmt: skip
    result = {
        "ansible_facts": facts,
        "adopted": {"name": "x"},
        "drift": [],
        "changes": [],
        "by_key": [],
        "in_sync": True,
    }
    node = tmp_path / "node"
    node.write_text(f"#!{sys.executable}\nprint({json.dumps(result)!r})\n", encoding="utf-8")
    node.chmod(0o755)
    host = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": str(node)}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"n1": host}}}), encoding="utf-8")
    command = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [str(command), "-i", "hosts.json", f"corral.node.{playbook}", "-e", f"corral_profile_file={CHECKOUT}/examples/edge.yml"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".ansible/collections"), "ANSIBLE_PIPELINING": "0"},
    )  # fmt: skip
    assert done.returncode != 0
    assert "returned facts that are named as variables of Corral" in " ".join(done.stdout.split()), (
        done.stdout + done.stderr
    )
    assert not put.exists() and not report.exists()
