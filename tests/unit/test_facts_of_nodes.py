# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that returns facts sets no variable of the collection: what happens on the controller is the inventory's to say."""

from __future__ import annotations

import json
import os
import sys
import typing as t
from pathlib import Path

import controller_plugins
import playing
import pytest
import yaml

pytest.importorskip("ansible")

host_results = controller_plugins.load("plugin_utils.host_results")
CHECKOUT = Path(__file__).resolve().parents[2]


HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
REFUSED = "returned facts that are named as variables of Corral or of the inventory"


Played = t.Callable[..., tuple[int, str]]


@pytest.fixture(name="played", scope="module")
def play() -> t.Iterator[Played]:
    """Runs a playbook in a folder, on a node each of whose modules returns these facts; returns its exit code and output."""
    common = {
        **os.environ, "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".ansible/collections"), "ANSIBLE_PIPELINING": "0",
        "ANSIBLE_SHOW_CUSTOM_STATS": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
    }  # fmt: skip

    def played(
        folder: Path,
        playbook: str,
        facts: dict[str, object],
        variables: dict[str, object],
        *,
        cached: bool = False,
        **returned: object,
    ) -> tuple[int, str]:
        result = {
            "ansible_facts": facts,
            "adopted": {"name": "x"},
            "drift": [],
            "changes": [],
            "by_key": [],
            "in_sync": True,
            **returned,
        }
        (folder / "result").write_text(json.dumps(result), encoding="utf-8")
        node = folder / "node"
        node.write_text(f"#!/bin/sh\nexec cat {folder}/result\n", encoding="utf-8")
        node.chmod(0o755)
        host = {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": str(node),
            "corral_profile_file": f"{CHECKOUT}/examples/edge.yml",
            **variables,
        }
        (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"n1": host}}}), encoding="utf-8")
        place = {"ANSIBLE_CACHE_PLUGIN_CONNECTION": str(folder / "cache")}
        done = (with_cache if cached else without).play(folder, "-i", "hosts.json", playbook, **place)
        return done.code, done.in_one_line

    with (
        playing.Commands(common) as without,
        playing.Commands({**common, "ANSIBLE_CACHE_PLUGIN": "jsonfile"}) as with_cache,
    ):
        yield played


@pytest.mark.parametrize("playbook", ["corral.node.rollout", "corral.node.drift"])
def test_a_node_does_not_say_where_the_controller_writes_or_what_it_runs(
    tmp_path: Path, playbook: str, played: Played
) -> None:
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
def test_a_node_does_not_say_where_the_inventory_is_and_what_it_is_called_there(
    tmp_path: Path, name: str, played: Played
) -> None:
    """Facts are stronger than these variables of Ansible's own; a rollout writes what it adopts beside the inventory, by the host's name."""
    put = tmp_path / "put"
    code, said = played(tmp_path, "corral.node.rollout", {name: str(put)}, {"corral_on_drift": "adopt"})
    assert code != 0
    assert REFUSED in said, said
    assert not put.exists() and not (tmp_path / "corral_adopted").exists()


@pytest.mark.parametrize(
    "fact", ["corral_drain", "__corral_drains", "inventory_dir", "omit", "query", "dict", "now", "undef", "range"]
)
def test_names_that_are_no_fact_of_a_node(fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        host_results.refuse_facts({"ansible_facts": {fact: 1}})
    host_results.refuse_facts({"ansible_facts": {"distribution": "Debian", "queue": 1, "local": {"corral_x": 1}}})


def steps(tasks: list[dict[str, t.Any]]) -> list[str]:
    """What some tasks, those in blocks among them, look at or have the controller do, in their order."""
    found: list[str] = []
    for task in tasks:
        if str(task.get("ansible.builtin.import_tasks")).endswith("facts.yml"):
            found.append("look")
        elif task.get("delegate_to") == "localhost" and "corral.node.inventory_values" not in str(task):
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


# What acts on the controller, each made of variables that have no name of Corral's.
MADE_OF = {
    "corral_drain": ("rollout", "{{ site }}/drain.yml"),
    "corral_adopted_dir": ("rollout", "{{ lookup('ansible.builtin.vars', 'site') }}/put"),
    "corral_profile_layer_50_site": (
        "rollout",
        "{{ lookup('ansible.builtin.file', site ~ '/layer.yml') | from_yaml }}",
    ),
    "corral_report_file": ("drift", "{{ site }}/put.json"),
}


@pytest.mark.parametrize("name", MADE_OF)
def test_a_node_does_not_say_what_such_a_variable_is_made_of(tmp_path: Path, name: str, played: Played) -> None:
    """In this run, and by an earlier one where facts are cached."""
    playbook, value = MADE_OF[name]
    good, evil = tmp_path / "good", tmp_path / "evil"
    run = f"- debug: {{msg: \"{{{{ lookup('pipe', 'touch {evil}/run') }}}}\"}}"
    for folder, text in (good, "[]"), (evil, run):
        folder.mkdir()
        (folder / "drain.yml").write_text(text)
        (folder / "layer.yml").write_text("{}")
    before = sorted(evil.iterdir())
    variables = {
        "site": f"{{{{ region | default('{good}') }}}}",
        "corral_drain_all": True,
        "corral_on_drift": "adopt",
        name: value,
    }
    for facts in ({"region": str(evil)}, {}):
        dummy, said = played(tmp_path, f"corral.node.{playbook}", facts, variables, cached=True)
        assert f"{name}: it is made of a fact of a node" in said, said
        assert sorted(evil.iterdir()) == before


def test_what_is_made_of_no_fact_is_as_ever_and_a_profile_has_facts_of_its_node(tmp_path: Path, played: Played) -> None:
    right = {
        "{{ plain }}/{{ inventory_hostname }}.{{ domain }}": "/srv/n1.example.org",  # the fact is ansible_domain, and domain in ansible_facts
        "{{ hostvars.n1.shadowed }} {{ none_such | default('x') }} {{ set_here }}": "mine x set",
        "{{ omit }}": None,
    }  # fmt: skip
    wrong = (
        "{{ shadowed }}", "{{ unknown | default('x') }}", "{{ 'a' if unknown is defined else 'b' }}", "{{ vars.unknown }}",
        "{{ lookup('ansible.builtin.vars', 'unknown', default='x') }}", "{{ ansible_domain | default('x') }}",
        "{{ ansible_facts.domain | default('x') }}", "{{ between }}",
    )  # fmt: skip
    names = {f"corral_{number}": text for number, text in enumerate((*right, *wrong))}
    variables = {
        **names, "plain": "/srv", "domain": "example.org", "shadowed": "mine", "between": "{{ unknown }}", "corral_profile_file": None,
        "corral_profile": {"name": "{{ ansible_domain }} {{ ansible_facts.unknown }} {{ domain }}"},
        "corral_x": "{{ none_such }}",
    }  # fmt: skip
    read = "{{ lookup('corral.node.inventory_values', item) if item is search('_') else query('corral.node.profile_layers') }}"
    write = {
        "copy": {"content": read, "dest": f"{tmp_path}/{{{{ item }}}}"},
        "delegate_to": "localhost",
        "ignore_errors": True,
    }
    # No loop: with ansible-core 2.16 the first error ends it.
    asked = [{**write, "vars": {**HERE, "item": item}} for item in (*names, "corral_none", "corral_x", "layers")]
    tasks = [{"ansible.builtin.ping": {}}, {"set_fact": {"set_here": "set"}}, *asked]
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    facts: dict[str, object] = {"ansible_domain": "node.org", "shadowed": "theirs", "unknown": "x"}
    code, said = played(tmp_path, "play.yml", facts, variables)
    assert code == 0, said
    found = {
        name: json.loads((tmp_path / name).read_text())[name]
        for name in (*names, "corral_none")
        if (tmp_path / name).exists()
    }
    assert found == {**dict(zip(names, right.values())), "corral_none": None}, said
    refused = [name for name in names if f"{name}: it is made of a fact of a node" in said]
    assert refused == list(names)[len(right) :], said
    assert "corral_x: 'none_such' is undefined" in said.replace("''", "'"), said  # ansible-core 2.16 prints it as YAML
    layers = json.loads((tmp_path / "layers").read_text())
    assert layers == [{"origin": "corral_profile", "profile": {"name": "node.org x example.org"}}]


@pytest.mark.parametrize(
    "data", [{"corral_drift_hosts": "", "corral_drift_summary": "fine", "corral_hosts": "n9"}, "none", ["a"]]
)
def test_a_node_says_nothing_of_the_whole_run(tmp_path: Path, data: object, played: Played) -> None:
    """Ansible takes statistics of whatever a module returns; those of a run are handed on to the next job."""
    drift = [
        {
            "manager": "cpu",
            "subject": "s",
            "property": "p",
            "verdict": "drift",
            "when": "now",
            "disruption": "none",
            "text": "it drifts",
        }
    ]
    stats = {"data": data, "aggregate": True, "per_host": False}
    code, said = played(tmp_path, "corral.node.drift", {}, {}, ansible_stats=stats, drift=drift)
    assert code == 0 and "Unexpected" not in said, said
    handed = said.partition("CUSTOM STATS")[2].replace("[ ", "[").replace(" ]", "]")
    assert '"corral_drift_hosts": ["n1"]' in handed and "n9" not in handed and "fine" not in handed, handed


def test_a_layer_that_is_made_of_a_fact_is_made_of_no_lookup(tmp_path: Path, played: Played) -> None:
    (tmp_path / "secret").write_text("STOLEN")
    layers = {
        "corral_0": {"name": "{{ lookup('ansible.builtin.file', '" + str(tmp_path) + "/' ~ ansible_facts.domain) }}"},
        "corral_1": {"name": "{{ q('ansible.builtin.pipe', 'touch ' ~ ansible_domain) | first }}"},
        "corral_2": {"name": "{{ ansible_domain }}", "mode": "{{ lookup('ansible.builtin.file', '" + str(tmp_path / "secret") + "') }}",
                     "pids": {"reserved": "{{ omit }}"}},
    }  # fmt: skip
    for name, layer in layers.items():
        folder = tmp_path / name
        folder.mkdir()
        read = "{{ query('corral.node.profile_layers') }}"
        write = {
            "copy": {"content": read, "dest": f"{folder}/layers"},
            "delegate_to": "localhost",
            "vars": HERE,
            "ignore_errors": True,
        }
        (folder / "play.yml").write_text(
            json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.ping": {}}, write]}])
        )
        made = str(folder / "made") if name == "corral_1" else "secret"
        dummy, said = played(
            folder, "play.yml", {"ansible_domain": made}, {"corral_profile": layer, "corral_profile_file": None}
        )
        assert not (folder / "made").exists()
        if name != "corral_2":
            assert "corral_profile: it is made of a fact of a node and of a lookup" in said, said
            assert not (folder / "layers").exists()
            continue
        (found,) = json.loads((folder / "layers").read_text())
        assert (found["profile"]["name"], found["profile"]["mode"]) == ("secret", "STOLEN"), said
        assert len(str(found["profile"]["pids"])) < 60
