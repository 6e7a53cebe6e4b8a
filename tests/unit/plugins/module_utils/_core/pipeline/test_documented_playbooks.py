# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What README and docs show of plays, tasks and variables is so: Ansible reads them, and nodes get from them what is shown."""

from __future__ import annotations

import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import typing as t
from pathlib import Path

import controller_plugins
import node
import pytest
import test_agent_conflicts
import test_documented_examples
import trees
import yaml
from _core.model.profile import compose, profile
from _core.model.values.errors import CorralError
from _core.pipeline import applying, planning
from documented import commands, differences, in_columns, shows
from shared_data import REPOSITORY

Data = dict[str, t.Any]
Machines = t.Callable[[trees.Machine], node.Node]
NIC: Data = {"pci": {"0000:3b:00.0": 1}, "net": {"ens1f0": "0000:3b:00.0"}}
SPECS = yaml.safe_load((REPOSITORY / "roles/corral/meta/argument_specs.yml").read_text(encoding="utf-8"))
OPTIONS: Data = SPECS["argument_specs"]["main"]["options"]
GALAXY = yaml.safe_load((REPOSITORY / "galaxy.yml").read_text(encoding="utf-8"))


@pytest.fixture
def machines(tmp_path: Path, folder: Path, quick: None) -> t.Iterator[Machines]:
    """Makes fresh nodes that are other machines than usual, with devices."""
    nodes: list[node.Node] = []

    def make_one(machine: trees.Machine) -> node.Node:
        template = tmp_path / f"machine{len(nodes)}"
        trees.build(template, machine)
        nodes.append(node.Node(folder / f"machine{len(nodes)}", template, machine=machine))
        others = shutil.ignore_patterns("system", "kernel")  # a node has these
        shutil.copytree(template / "sys", nodes[-1].root / "sys", symlinks=True, dirs_exist_ok=True, ignore=others)
        return nodes[-1]

    yield make_one
    assert [line for one in nodes for line in one.seen] == []


# README


@shows("README.md", "ansible-galaxy collection install path/to/checkout")
def test_the_collection_can_be_installed_from_a_checkout(shown: str) -> None:
    pytest.importorskip("ansible.cli.galaxy")
    from ansible.cli.galaxy import GalaxyCLI

    words = shlex.split(shown)
    cli = GalaxyCLI(words)
    cli.init_parser()
    assert cli.parser.parse_args(words[1:]).args == ["path/to/checkout"]
    assert GALAXY.get("dependencies", {}) == {}, "nothing else has to be there"


@shows("README.md", "- name: Give the nodes their pools")
def test_a_play_of_your_own(shown: str, machines: Machines, tmp_path: Path) -> None:
    pytest.importorskip("ansible.cli.playbook")
    done = playbook(tmp_path, yaml.safe_load(shown), "--syntax-check", inventory={"edge": {"hosts": {"n1": None}}})
    assert done.returncode == 0, done.stderr
    (role,) = yaml.safe_load(shown)[0]["roles"]
    assert set(role["vars"]) <= set(OPTIONS)
    fake = machines(trees.Machine(sockets=2, cores=8, **NIC))
    test_documented_examples.roll_out(fake, role["vars"]["corral_profile"])
    assert len(fake.cpus(node.ISOLATED)) == 8 and fake.pool(0) == 512


# docs/compose.md


def playbook(folder: Path, plays: t.Any, *words: str, inventory: Data) -> subprocess.CompletedProcess[str]:
    """ansible-playbook in a folder, with this collection."""
    collections = folder / "collections" / "ansible_collections" / "corral"
    collections.mkdir(parents=True)
    (collections / "node").symlink_to(REPOSITORY)
    (folder / "hosts.json").write_text(json.dumps({"all": {"children": inventory}}))
    (folder / "play.json").write_text(json.dumps(plays))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
        "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_NOCOLOR": "1",
    }
    command = [sys.executable, "-m", "ansible.cli.playbook", "-i", "hosts.json", "play.json", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def files_of(block: str) -> dict[str, str]:
    """The files of variables that a block shows, each below a comment with its name."""
    found = {}
    for text in block.split("\n\n"):
        name = re.match(r"# ([\w/]+\.yml)", text)
        assert name, text
        found[name[1]] = text
    return found


def layers_of(folder: Path, variables: str, task: str) -> list[compose.Layer]:
    """The layers of host n7 as the task of the page asks Ansible for them."""
    for name, text in files_of(variables).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (shown,) = yaml.safe_load(task)
    kept = {
        "content": shown["corral.node.profile"]["layers"].replace("or omit", "| to_json"),
        "dest": f"{folder}/layers",
    }
    tasks = [
        {**shown, "when": False},  # this machine is no node
        {"name": "Keep them", "ansible.builtin.copy": kept, "delegate_to": "localhost"},
    ]
    plays = [{"hosts": "n7", "gather_facts": False, "connection": "local", "tasks": tasks}]
    python = {"ansible_python_interpreter": sys.executable}
    done = playbook(folder, plays, inventory={"edge": {"hosts": {"n7": None}, "vars": python}})
    assert done.returncode == 0, done.stdout + done.stderr
    return [compose.Layer(row["origin"], row["profile"]) for row in json.loads((folder / "layers").read_text())]


@shows(
    "docs/compose.md",
    "# group_vars/all.yml",
    "- name: Apply the profile that the variables make",
    "cpu.isolated.cores (from corral_profile_layer_90_host): 9: NUMA node 1 has 3 cores left after those with reserved CPUs: "
    "isolate at most 3, or take them from another NUMA node",
    "$ corral drift --explain",
)
def test_layers(shown: list[str], machines: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ansible.cli.playbook")
    layers = layers_of(tmp_path, shown[0], shown[1])
    composed = compose.compose(layers)
    fake = machines(trees.Machine(sockets=2, cores=4, threads=1, **NIC))
    outcome = applying.declare(fake.host(), profile.parse(composed.data), composed.origins)
    assert (outcome.error, outcome.remaining) == ("", ())
    fake.systemctl("set-property", "--runtime", "system.slice", "AllowedCPUs=0-4")
    (explain,) = commands(shown[3])
    printed = test_documented_examples.corral(fake, capsys, explain.words)
    assert differences(in_columns(explain.output), in_columns(printed)) == []
    more = compose.Layer(layers[-1].origin, {"cpu": {"isolated": {"cores": 9}}})
    wrong = compose.compose([*layers[:-1], more])
    with pytest.raises(CorralError) as error:
        planning.compile_profile(fake.host(), profile.parse(wrong.data))
    assert f"{compose.rewrite_paths(error.value, wrong.origins)}\n" == shown[2]


# roles/corral/README.md


@shows("roles/corral/README.md", "- name: Give the nodes their pools")
def test_a_play_with_the_role(shown: str, fake: node.Node) -> None:
    (role,) = yaml.safe_load(shown)[0]["roles"]
    assert role["role"] == f"{GALAXY['namespace']}.{GALAXY['name']}.corral"
    assert set(role["vars"]) <= set(OPTIONS)
    test_documented_examples.roll_out(fake, role["vars"]["corral_profile"])


def test_each_variable_of_the_role_has_a_row_with_its_default() -> None:
    text = (REPOSITORY / "roles/corral/README.md").read_text(encoding="utf-8")
    table = text.partition("| variable |")[2].partition("## Group variables")[0]
    rows = dict(re.findall(r"^\| `(corral_[a-z_]+)` \| (.*?) \|", table, re.MULTILINE))
    assert rows.keys() == OPTIONS.keys()
    for name, option in OPTIONS.items():
        if "default" in option:
            assert yaml.safe_load(rows[name].strip("`")) == option["default"], name


@shows(
    "roles/corral/README.md",
    "# group_vars/all.yml",
    "cpu.reserved.cpus (from corral_profile_layer_90_host): 0-1,32-33: this node has CPUs 0-7; name CPUs among those, or use "
    "cores_per_numa",
)
def test_layers_of_the_role(shown: list[str], machines: Machines, fake: node.Node) -> None:
    layers = [compose.Layer(*pair) for text in files_of(shown[0]).values() for pair in yaml.safe_load(text).items()]
    composed = compose.compose(layers)
    large = machines(trees.Machine(sockets=2, cores=16, **NIC))
    test_documented_examples.roll_out(large, composed.data)
    assert large.cpus("system.slice") == {0, 1, 32, 33}
    assert len(large.cpus(node.ISOLATED)) == 4, "two cores"
    reserved = {"name": "site", "cpu": {"reserved": composed.data["cpu"]["reserved"]}}
    with pytest.raises(CorralError) as error:
        planning.compile_profile(fake.host(), profile.parse(reserved))
    assert f"{compose.rewrite_paths(error.value, composed.origins)}\n" == shown[1]


# docs/fleet.md


class LoadBalancer(http.server.BaseHTTPRequestHandler):
    """Notes what it is asked for."""

    asked: t.ClassVar[list[tuple[str, object]]] = []

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *dummy: t.Any) -> None:
        """Say nothing."""


@shows("docs/fleet.md", "# drain.yml")
def test_a_host_is_taken_out_of_a_load_balancer(shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ansible")
    import test_rollout_playbook

    monkeypatch.setattr(LoadBalancer, "asked", [])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), LoadBalancer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        assert shown.count("https://lb.example.com/") == 1
        local = shown.replace("https://lb.example.com/", f"http://127.0.0.1:{server.server_port}/")
        (tmp_path / "drain.yml").write_text(local)
        with test_rollout_playbook.fleet_in(tmp_path) as fleet:
            fleet.set("b", profile="new")  # nothing to change
            code, said, dummy = fleet.play("--limit", "a,b", corral_drain=str(tmp_path / "drain.yml"))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert code == 0, said
    assert LoadBalancer.asked == [("/api/servers/a", {"state": "drain"})]


@shows("docs/fleet.md", "# reboots.yml")
def test_a_play_before_a_rollout_names_the_hosts_to_reboot(shown: str, tmp_path: Path) -> None:
    pytest.importorskip("ansible")
    import test_rollout_playbook

    (tmp_path / "b-needs").touch()
    mark = "/run/reboot-required"
    assert shown.count(mark) == 1
    plays = shown.replace(mark, f"{tmp_path}/{{{{ inventory_hostname }}}}-needs")
    with test_rollout_playbook.fleet_in(tmp_path) as fleet:
        for host in ("a", "b"):
            fleet.set(host, profile="new")  # nothing to change
        code, said, order = fleet.play("--limit", "a,b", playbook="reboots", plays=plays)
        assert code == 0 and test_rollout_playbook.changed(order, "reboot") == ["b"], said
        assert fleet.node("b")["why"] == f"Corral: {tmp_path}/b-needs is there"


def edge(cores: int) -> list[Data]:
    """The layers of a host of the group edge."""
    base = {"name": "site", "cpu": {"reserved": {"cores_per_numa": 1}}}
    group = {"cpu": {"isolated": {"cores": cores}}}
    return [{"origin": "corral_profile", "profile": base}, {"origin": "corral_profile_layer_50_edge", "profile": group}]


def result_of(fake: node.Node, layers: list[Data], *, check: bool = True) -> Data:
    """What the module profile returns; a refusal as Ansible registers it."""
    import test_workload_module

    modules = test_workload_module.WORKLOAD
    module = test_workload_module.Module(check=check, layers=layers, profile=None, during_pause="apply")
    try:
        return t.cast("Data", modules._module.profile_task(module, fake.host()))
    except modules.CorralError as error:
        return {"failed": True, "msg": str(error), "problems": [one._asdict() for one in error.problems]}


@shows("docs/fleet.md", "n1,n2,n3: as follows")
def test_the_plan_of_a_rollout(shown: str, machines: Machines) -> None:
    pytest.importorskip("ansible.module_utils.basic")
    usual, has_it = machines(trees.Machine(cores=4)), machines(trees.Machine(cores=4))
    small = machines(trees.Machine(cores=2))
    for fake, cores in ((usual, 1), (has_it, 2)):
        assert result_of(fake, edge(cores), check=False)["drift"] == []
    of_usual = result_of(usual, edge(2))
    test_agent_conflicts.run_irqbalance(usual)
    results = {
        **dict.fromkeys(("n1", "n2", "n3"), of_usual),
        "n2": result_of(usual, edge(2)),
        "n4": result_of(has_it, edge(2)),
        "n5": result_of(small, edge(2)),
    }
    filters = controller_plugins.load("filter.rollout_plan")
    plan = filters.rollout_plan(results, {host: {"skipped": True} for host in results})
    assert differences(shown.splitlines(), plan["lines"]) == []
