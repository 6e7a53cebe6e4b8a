# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible itself: variables of several groups and a host become one profile, in check mode on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("ansible")
import playing
from ansible import errors
from ansible.parsing.vault import VaultLib, VaultSecret

CHECKOUT = Path(__file__).resolve().parents[2]
INVENTORY = {
    "all": {
        "vars": {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "corral_agent": False,
            "limit": 400000,
            "corral_profile": {"name": "site", "pids": {"pid_max": "{{ limit }}", "reserved": 2048}},
        },
        "children": {
            "edge": {
                "hosts": {"one": {}},
                "vars": {"corral_profile_layer_50_edge": {"mode": "audit", "pids": {"default_tasks_max": 4096}}},
            },
            "big": {
                "hosts": {"one": {}},
                "vars": {"corral_profile_layer_40_big": {"pids": {"pid_max": 800000, "default_tasks_max": 5000}}},
            },
            "none": {
                "hosts": {"one": {"corral_profile_layer_90_host": {"pids": {"reserved": None}}}},
                "vars": {"corral_profile_layer_60_none": None},
            },
        },
    }
}
ORIGINS = {
    "name": "corral_profile",
    "version": "default",
    "mode": "corral_profile_layer_50_edge",
    "pids.pid_max": "corral_profile_layer_40_big",
    "pids.default_tasks_max": "corral_profile_layer_50_edge",
}
# ansible-core before 2.19 names the line further behind.
BARE = "line 2: " if hasattr(errors, "AnsibleValueOmittedError") else ""
# What else is wrong, and what is said then.
WRONG = [
    ({"corral_profile": "{{ nobody_has_this }}"}, "corral_profile: 'nobody_has_this' is undefined"),
    (
        {"corral_profile_layer_50_edge": "{{ nobody_has_this }}"},
        "corral_profile_layer_50_edge: 'nobody_has_this' is undefined",
    ),
    ({"corral_profile_layer_5_edge": {}}, "corral_profile_layer_5_edge: a layer's variable is named"),
    (
        {"corral_profile_layer_5_edge": {}, "corral_profile_layer_host": {}},
        "corral_profile_layer_5_edge, corral_profile_layer_host: a layer's variable is named",
    ),
    ({"corral_profile_layer_50_edge": [1]}, "corral_profile_layer_50_edge is not a mapping"),
    (
        {"corral_profile": "edge.yml"},
        "corral_profile is not a mapping: write keys of a profile (the name of a file goes into corral_profile_file)",
    ),
    (
        {"corral_adopted_dir": "{{ playbook_dir }}/.."},
        "one.yml is not a mapping: write keys of a profile, or remove the file",
    ),
    ({"corral_profile_file": "/no/such/file"}, "/no/such/file: no such file"),
    (
        {"corral_profile_file": "{{ playbook_dir }}/../twice.yml"},
        "twice.yml: line 2: the key name is in one mapping twice",
    ),
    (
        {"corral_profile_file": "{{ playbook_dir }}/../torn.yml"},
        "torn.yml: is not YAML: line 3, column 1: while parsing a flow mapping",
    ),
    ({"corral_profile_file": "{{ playbook_dir }}/../open.yml"}, "open.yml: 'nobody_has_this' is undefined"),
    ({"corral_profile_file": "{{ playbook_dir }}/../bare.yml"}, f"bare.yml: {BARE}"),
    (
        {"corral_profile_layer_95_host": {"pids": {"pid_max": 3}}},
        "pids.pid_max (from corral_profile_layer_95_host): 3: is too small",
    ),
    (
        {"corral_profile_layer_95_host": {"cpu": {"reserved": {"cpus": "60000"}}}},
        "cpu.reserved.cpus (from corral_profile_layer_95_host): 60000: this node has CPUs",
    ),
]


# In a mount namespace where systemd seems to run (sd_booted(3)): check mode refuses what a run would.
BOOTED = [
    "unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount",
    "sh", "-c", 'mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec "$0" "$@"',
]  # fmt: skip
NO_NAMESPACE = subprocess.run([*BOOTED, "true"], capture_output=True, check=False).returncode
pytestmark = pytest.mark.skipif(bool(NO_NAMESPACE), reason="no mount namespace can be made here")


def apply(name: str, variables: dict[str, t.Any]) -> dict[str, t.Any]:
    """The role's task by itself: what goes wrong in it can be rescued."""
    layers = "{{ query('corral.node.profile_layers') or omit }}"
    return {"name": name, "corral.node.profile": {"layers": layers}, "vars": variables}


def see(*conditions: str) -> dict[str, t.Any]:
    return {"name": "See", "ansible.builtin.assert": {"that": list(conditions), "quiet": True}}


PLAY = [
    {
        "hosts": "one",
        "gather_facts": False,
        "tasks": [
            {"name": "The role", "ansible.builtin.include_role": {"name": "corral.node.corral"}},
            see(
                f"__corral_profile.origins == {json.dumps(ORIGINS)}",
                "__corral_profile.effective_profile.pids == {'pid_max': 800000, 'default_tasks_max': 4096}",
                "__corral_profile.mode == 'audit'",
                "'  pids.pid_max            800000  corral_profile_layer_40_big' in __corral_profile.explain",
                "__corral_profile.diff | map(attribute='after_header')"
                " == ['the node as declared', 'the effective profile']",
                "__corral_profile.diff[1].after | from_json == __corral_profile.effective_profile",
            ),
            {
                **apply("A file in the place of corral_profile", {"corral_profile_file": "{{ playbook_dir }}/../my.yml"}),
                "register": "filed",
            },
            see("filed.origins.name == 'my.yml'", "filed.origins['pids.pid_max'] == 'corral_profile_layer_40_big'"),
            *(
                part
                for name in ("templated.yml", "secret.yml", "whole.yml")
                for part in (
                    {**apply(f"The file {name}", {"corral_profile_file": name}), "register": "searched"},
                    see(f"searched.name == '{name[:-4]}-400000'", f"searched.origins.name == '{name}'"),
                )
            ),
            *(  # Where a file lies decides nothing in the module.
                {
                    **see(f"found[0] == {{'origin': '{name}', 'profile': {{'name': '{name[:-4]}-400000'}}}}"),
                    "vars": {"corral_profile_file": name, "found": "{{ query('corral.node.profile_layers') }}"},
                }
                for name in ("beside.yml", "here.yml")
            ),
            {  # Of several files of a name each ansible-core has an order of its own.
                **see("found[0].profile == known | from_yaml", "known is search('-400000|nor-this')"),
                "vars": {
                    "corral_profile_file": "both.yml", "found": "{{ query('corral.node.profile_layers') }}",
                    "known": "{{ lookup('ansible.builtin.file', corral_profile_file) }}",
                },
            },
            *(
                {
                    "name": said,
                    "block": [apply(said, variables), {"name": "Not here", "ansible.builtin.meta": "end_play"}],
                    "rescue": [see(f"{json.dumps(said)} in ansible_failed_result.msg"), {"set_fact": {"rescued": "{{ rescued | default(0) | int + 1 }}"}}],
                }
                for variables, said in WRONG
            ),
            see(f"rescued | int == {len(WRONG)}"),
            {"name": "The end", "ansible.builtin.debug": {"msg": "this is the end"}},
        ],
    }
]  # fmt: skip


def play(tmp_path: Path, *words: str, booted: bool = True, forks: bool = False, **files: t.Any) -> playing.Played:
    """ansible-playbook in a folder with these files and this collection."""
    collections = tmp_path / "collections" / "ansible_collections" / "corral"
    collections.mkdir(parents=True)
    (collections / "node").symlink_to(CHECKOUT)
    for name, data in files.items():
        place = tmp_path / ("books" if name == "play" else ".")
        place.mkdir(exist_ok=True)
        (place / f"{name}.json").write_text(json.dumps(data))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
        "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_SHOW_CUSTOM_STATS": "1",
    }
    with playing.Commands(environment, forks=forks, before=BOOTED if booted else (), folder=tmp_path) as commands:
        return commands.play(tmp_path, "-i", "hosts.json", *words)


def put_files(folder: Path) -> None:
    """Profiles where Ansible looks for files, in the forms in which it reads files of variables."""
    (folder / "password").write_text("open\n")
    vault = VaultLib([("default", VaultSecret(b"open"))])
    secret = vault.encrypt("secret-400000").decode().replace("\n", "\n  ")
    texts = {
        "beside.yml": "name: beside-400000\n",  # beside the playbook
        "files/both.yml": "name: both-400000\n",
        "both.yml": "name: not-this\n",
        "../both.yml": "name: nor-this\n",
        "../here.yml": "name: here-400000\n",  # where Ansible was started
        "templated.yml": "name: templated-{{ limit }}\n",
        "secret.yml": f"name: !vault |\n  {secret}\n",
        "whole.yml": vault.encrypt("name: whole-{{ limit }}\n").decode(),
    }
    for name, text in texts.items():
        file = folder / "books" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_group_and_host_variables_become_one_profile(tmp_path: Path) -> None:
    (tmp_path / "my.yml").write_text("name:\tmine\n")  # which Ansible takes
    (tmp_path / "twice.yml").write_text("name: mine\nname: yours\n")
    (tmp_path / "torn.yml").write_text("name: mine\npids: {pid_max: 400000\n")
    (tmp_path / "open.yml").write_text("name: '{{ nobody_has_this }}'\n")
    (tmp_path / "bare.yml").write_text("name: mine\nmode: {{ limit }}\n")
    (tmp_path / "one.yml").write_text("- pids\n")
    put_files(tmp_path)
    words = ["--check", "--diff", "-vv", "--vault-password-file", "password"]
    done = play(tmp_path, "books/play.json", *words, hosts=INVENTORY, play=PLAY)
    assert done.code == 0, done.said
    assert "this is the end" in done.output


def test_a_report_says_why_a_profile_could_not_be_put_together_and_ends_well(tmp_path: Path) -> None:
    hosts = {
        "one": ({"corral_profile_file": "/no/such<b>file"}, "corral_profile_file: /no/such<b>file: no such file"),
        "two": (
            {"corral_profile_layer_50_edge": "{{ nobody_has_this }}"},
            "corral_profile_layer_50_edge: 'nobody_has_this' is undefined",
        ),
    }
    words = ["corral.node.drift", "-e", json.dumps({"ansible_become": False})]
    common = INVENTORY["all"]["vars"]
    variables = {host: variables for host, (variables, dummy) in hosts.items()}
    done = play(tmp_path, *words, hosts={"all": {"vars": common, "hosts": variables}})
    assert done.code == 0, done.said
    report = json.loads((tmp_path / "corral-drift.json").read_text())
    assert sorted(report) == ["groups", "hosts", "lines", "schema", "summary", "time", "version"]
    for host, (dummy, said) in hosts.items():
        assert report["hosts"][host]["verdict"] == "failed"
        assert report["hosts"][host]["message"].startswith(said), "without the steps of Ansible that led to it"
        assert "unhandled exception" not in report["hosts"][host]["message"], "as ansible-core before 2.19 calls a bug"
    assert "the task failed without a message" not in done.output
    handed_on = json.loads(done.output.partition("CUSTOM STATS:")[2].partition("RUN: ")[2].splitlines()[0])
    assert handed_on == {"corral_drift_summary": report["summary"], "corral_drift_hosts": ["one", "two"]}
    page = (tmp_path / "corral-drift.html").read_text()
    assert "/no/such&lt;b&gt;file: no such file" in page and "<b>file" not in page, "as Ansible writes it"


@pytest.mark.parametrize("setting", ["strategy = free", "any_errors_fatal = true"])
def test_a_report_is_made_once_and_of_all_hosts_whatever_ansible_cfg_says(setting: str, tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text(f"[defaults]\n{setting}\n")
    common = {**INVENTORY["all"]["vars"], "corral_agent": False, "ansible_become": False}
    hosts = {"one": {"corral_profile_file": "nowhere.yml"}, "two": {}, "three": {}}
    words = ["corral.node.drift", "-v"]
    done = play(tmp_path, *words, forks=True, hosts={"all": {"vars": common, "hosts": hosts}})
    assert done.code == 0 and f"Using {tmp_path}/ansible.cfg" in done.output, done.said
    report = json.loads((tmp_path / "corral-drift.json").read_text())["hosts"]
    assert "no such file" in report["one"]["message"]
    assert [report[host]["items"] != [] for host in ("two", "three")] == [True, True], "they were asked"
    assert done.output.count("TASK [Put the fleet's report together]") == 1
    assert "WARNING" not in done.said, "run_once means nothing to another strategy"


@pytest.mark.skipif(os.path.isdir("/run/systemd/system"), reason="systemd runs here")
def test_a_machine_without_systemd_is_refused_in_check_mode_as_by_a_run(tmp_path: Path) -> None:
    words = ["corral.node.drift", "--limit", "one", "-e", "ansible_become=false"]
    done = play(tmp_path, *words, booted=False, hosts=INVENTORY)
    assert done.code == 0, done.said
    report = json.loads((tmp_path / "corral-drift.json").read_text())["hosts"]["one"]
    assert report["verdict"] == "refused"
    assert "systemd is not the init of this machine" in report["message"]
    assert report["items"], "what differs is reported all the same"
    (case,) = ElementTree.fromstring((tmp_path / "corral-drift.xml").read_text())[0]
    assert [(one.tag, one.get("type")) for one in case] == [("error", "refused")]
    for name in ("corral-drift.md", "corral-drift.html"):
        assert "systemd is not the init of this machine" in (tmp_path / name).read_text(), name


@pytest.mark.skipif(os.path.isdir("/run/systemd/system"), reason="systemd runs here")
@pytest.mark.parametrize("tag", ["agent", "profile"])
def test_the_role_says_each_change_once_where_it_is_refused(tag: str, tmp_path: Path) -> None:
    role = [{"hosts": "one", "gather_facts": False, "roles": ["corral.node.corral"]}]
    words = ["books/play.json", "--check", "--tags", tag, "-e", "{corral_agent: true, corral_confirm_timeout: 0}"]
    done = play(tmp_path, *words, booted=False, hosts=INVENTORY, play=role)
    assert done.code != 0, done.said
    fatal = [line for line in done.output.splitlines() if line.startswith("fatal: ")]
    assert len(fatal) == 1 and "systemd is not the init of this machine" in fatal[0]
    items = [line for line in done.output.splitlines() if "~ " in line and " -> " in line]
    assert items and len(items) == len(set(items)), done.output
    assert not any("~ " in line for line in fatal)


def test_the_json_report_is_not_written_where_another_goes(tmp_path: Path) -> None:
    words = ["corral.node.drift", "--limit", "one", "-e", "corral_report_file=fleet.xml"]
    done = play(tmp_path, *words, hosts=INVENTORY)
    assert done.code != 0 and not list(tmp_path.glob("fleet.*"))
    assert "corral_report_file: fleet.xml: this is the JSON file" in " ".join(done.output.split())


def test_a_report_without_a_folder_is_refused_before_a_node_is_asked(tmp_path: Path) -> None:
    words = ["corral.node.drift", "--limit", "one", "-e", "corral_report_file=reports/fleet.json"]
    done = play(tmp_path, *words, hosts=INVENTORY)
    assert done.code != 0
    said = " ".join(done.output.split())
    assert f"corral_report_file: {tmp_path}/reports: no such folder on the controller: make it first" in said
    assert "Plan it in check mode" not in said, "before a node is asked"
