# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that returns facts sets no variable of the collection: what happens on the controller is the inventory's to say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import controller_plugins
import pytest
import yaml

pytest.importorskip("ansible")

host_results = controller_plugins.load("plugin_utils.host_results")
CHECKOUT = Path(__file__).resolve().parents[2]


REFUSED = "returned facts that are named as variables of Corral or of the inventory"


def played(folder: Path, playbook: str, facts: dict[str, object], variables: dict[str, object]) -> tuple[int, str]:
    """Run a playbook on a node each of whose modules returns these facts; returns its exit code and output."""
    result = {
        "ansible_facts": facts,
        "adopted": {"name": "x"},
        "drift": [],
        "changes": [],
        "by_key": [],
        "in_sync": True,
    }
    node = folder / "node"
    node.write_text(f"#!{sys.executable}\nprint({json.dumps(result)!r})\n", encoding="utf-8")
    node.chmod(0o755)
    host = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": str(node),
        **variables,
    }
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"n1": host}}}), encoding="utf-8")
    command = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [str(command), "-i", "hosts.json", f"corral.node.{playbook}", "-e", f"corral_profile_file={CHECKOUT}/examples/edge.yml"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".ansible/collections"), "ANSIBLE_PIPELINING": "0"},
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("playbook", ["rollout", "drift"])
def test_a_node_does_not_say_where_the_controller_writes_or_what_it_runs(tmp_path: Path, playbook: str) -> None:
    put, report = tmp_path / "put", tmp_path / "report.json"
    facts = {
        "corral_on_drift": "adopt", "corral_adopted_dir": str(put), "corral_drain_all": True,
        "corral_drain": str(put / "n1.yml"), "corral_report_file": str(report),
    }  # fmt: skip
    code, said = played(tmp_path, playbook, facts, {})
    assert code != 0
    assert REFUSED in said, said
    assert not put.exists() and not report.exists()


@pytest.mark.parametrize("name", ["inventory_dir", "inventory_hostname", "group_names"])
def test_a_node_does_not_say_where_the_inventory_is_and_what_it_is_called_there(tmp_path: Path, name: str) -> None:
    """Facts are stronger than these variables of Ansible's own; a rollout writes what it adopts beside the inventory, by the host's name."""
    put = tmp_path / "put"
    code, said = played(tmp_path, "rollout", {name: str(put)}, {"corral_on_drift": "adopt"})
    assert code != 0
    assert REFUSED in said, said
    assert not put.exists() and not (tmp_path / "corral_adopted").exists()


@pytest.mark.parametrize("fact", ["corral_drain", "__corral_drains", "inventory_dir", "omit", "query"])
def test_the_lookups_and_the_role_know_the_same_names(fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        host_results.refuse_facts({"ansible_facts": {fact: 1}})
    host_results.refuse_facts({"ansible_facts": {"distribution": "Debian", "queue": 1, "local": {"corral_x": 1}}})
    assert f"'{host_results.RESERVED.pattern}'" in (CHECKOUT / "roles/corral/tasks/facts.yml").read_text(
        encoding="utf-8"
    )


def steps(tasks: list[dict[str, t.Any]]) -> list[str]:
    """What some tasks, those in blocks among them, look at or have the controller do, in their order."""
    found: list[str] = []
    for task in tasks:
        if str(task.get("ansible.builtin.import_tasks")).endswith("facts.yml"):
            found.append("look")
        elif task.get("delegate_to") == "localhost":
            found.append("act")
        found += steps(task.get("block") or [])
    return found


FILES = [*CHECKOUT.glob("playbooks/*.yml"), *CHECKOUT.glob("roles/*/tasks/*.yml")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CHECKOUT)))
def test_after_a_node_ran_something_its_facts_are_looked_at_before_the_controller_does(file: Path) -> None:
    """Also where tags select some of the tasks."""
    read = yaml.safe_load(file.read_text(encoding="utf-8"))
    if file.name == "facts.yml":
        assert [task["tags"] for task in read] == ["always"]
    looked = False
    for play in read if file.parent.name == "playbooks" else [{"tasks": read}]:
        found = steps(play["tasks"])
        assert looked or "act" not in found or found[0] == "look"
        looked = play.get("become") is False  # no node ran anything in such a play
