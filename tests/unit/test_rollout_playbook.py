# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook rollout by Ansible itself on four hosts of this machine: order, batches, health, the way back, going on.

Its modules are stand-ins that keep a node in a file; what the real ones do to a node, the scenarios see.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import shutil
import sys
import threading
import typing as t
from pathlib import Path

import playing
import pytest

pytest.importorskip("ansible")

CHECKOUT = Path(__file__).resolve().parents[2]
HOSTS = ("a", "b", "c", "d")
COPIED = ("playbooks", "roles")
LINKED = ("plugins/filter", "plugins/lookup", "plugins/module_utils", "plugins/plugin_utils", "meta", "galaxy.yml")
# What the role calls, and what it calls here. Ansible refuses to reboot the machine that it runs on.
INSTEAD = {
    "ansible.builtin.reboot:": "corral.node.reboot:",
    "ansible.builtin.command:": "corral.node.command:",
    "ansible.builtin.wait_for_connection:": "corral.node.login:",
}

# A node is {"profile": name or null, "past": [...], "log": [...]} in $NODE. Action plugins, since nothing has to be sent to
# another machine: the tests take half of the time.
STAND_IN = """
import json
from ansible.plugins.action import ActionBase

ACTION = "{action}"
OPTIONS = dict(
    layers=None, state="present", during_pause=None, lock_timeout=None, interval=None, metrics_dir=None, adopt=None,
    reboot_timeout=None, msg=None, to="1", hash=None, force=None, confirm_timeout=0, with_agent=False,
    **{{"from": ""}})


def back(node, to):
    number = int(to) if to.isdigit() else node["past"].index(to) + 1
    return {{**node, "waits": False, "profile": node["past"][number - 1], "past": node["past"][number:]}}


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        given = {{name: value for name, value in self._task.args.items() if value is not None}}
        unknown = set(given) - set(OPTIONS)
        if unknown:
            return dict(failed=True, msg="no such option: " + ", ".join(sorted(unknown)))
        asked = {{**OPTIONS, **given}}
        places = task_vars["node_environment"]
        with open(places["NODE"]) as file:
            node = json.load(file)
        dies = ACTION in node.get("dies", ()) or node.get("leaves") and asked["state"] == "absent"
        if dies and not self._task.check_mode:
            return dict(unreachable=True, msg="no route to host")
        result, after = decided(node, asked, self._task.check_mode)
        killed = ACTION == "profile" and node.get("killed") and not self._task.check_mode
        if killed:
            after, result = {{**after, "killed": False}}, dict(failed=True, msg="MODULE FAILURE")
        if after is not None and not self._task.check_mode:
            after["log"] = [*node["log"], [ACTION, asked["state"], after["profile"]]]
            with open(places["NODE"], "w") as file:
                json.dump(after, file)
            with open(places["ORDER"], "a") as file:
                file.write(places["HOST"] + " " + ACTION + "\\n")
        return result


def decided(node, asked, check):
    seconds = int(asked["confirm_timeout"])
    declared = {{"subject": "/etc/corral/profile.json", "actual": None if node.get("gone", node["profile"] is None) else "another profile",
                 "text": "the declared profile"}}
    result = dict(changed=False, changes=[], drift=[], in_sync=True, report=["in sync: nothing differs"], by_key=[], notes=[],
                  cpu_map=[], paused=None, unconfirmed=None, profile_hash="5d2f")
    after = dict(node)
    if ACTION == "profile" and seconds and not node.get("agent", True):
        problem = dict(path="confirm_timeout", value=seconds, message="only an agent can take the node back")
        return dict(failed=True, msg=problem["message"], problems=[problem]), None
    if ACTION == "agent":
        after["agent"] = asked["state"] == "present"
        if after["agent"] and not node.get("agent", True):
            program = dict(subject="/usr/libexec/corral", property="program", actual=None, text="~ agent program")
            result.update(changed=True, changes=[program], report=["1 changed (agent)"])
    if ACTION == "profile" and not node.get("agent", True) and not asked["with_agent"]:
        result["notes"].append("it waits for the agent")
    if ACTION == "profile" and asked["state"] == "present":
        wanted = asked["layers"][0]["profile"]["name"] if asked["layers"] else node["profile"]
        if node.get("refuses"):
            problem = dict(path="cpu", value=None, message=node["refuses"])
            return dict(failed=True, msg=node["refuses"], problems=[problem]), None
        if node["profile"] != wanted:
            after.update(profile=wanted, past=[node["profile"], *node["past"]], waits=seconds > 0)
            key = dict(kind="edited", key="name", before=node["profile"], after=wanted, origin=None, disruption="none",
                       changes=["~ it"])
            result.update(changed=True, changes=[declared], by_key=[key], report=["1 changed (cpu)"])
            result["diff"] = dict(before="name: %s\\n" % node["profile"], after="name: %s\\n" % wanted)
        elif node.get("edited"):
            result.update(changed=True, changes=[declared], report=["1 changed (profile)"])
        last = (asked["layers"] or [dict(origin=None, profile=None)])[-1]
        after["last"] = [last["origin"], last["profile"]]
        result["adopted"] = node.get("adoptable") if asked["adopt"] else None
        if node.get("drifted") or node.get("adoptable") and not asked["adopt"]:
            key = dict(kind="drift", key="", before=None, after=None, origin=None, disruption="none", changes=["~ by hand"])
            result["by_key"].append(key)
    elif ACTION in node.get("stuck", ()):
        kept = dict(name=node["profile"], profile_hash="5d2f", report=["1 changed (" + ACTION + ")"])
        return dict(failed=True, msg=ACTION + " is stuck", changed=True, by_key=[], **kept), None
    elif ACTION == "profile" and node["profile"] is not None:
        after.update(profile=None, past=[])
        result.update(changed=True, report=["1 changed (cpu)"])
    elif ACTION == "confirm" and node.get("slow"):
        after = back(node, "1")
        result.update(confirmed=None)
    elif ACTION == "confirm" and node.get("waits") and node["profile"] != asked["hash"]:
        return dict(failed=True, msg="the unconfirmed profile is " + node["profile"]), None
    elif ACTION == "confirm":
        after["waits"] = False
        kept = dict(name=node["profile"], hash="5d2f") if node.get("waits") else None
        result.update(changed=node.get("waits", False), confirmed=kept)
    elif ACTION == "rollback" and asked["from"] in ("", node["profile"]):
        after = back(node, asked["to"])
        result.update(changed=True, changes=[declared], name=after["profile"], profile_hash="5d2f")
    elif ACTION == "reboot":
        after.update(boots=node.get("boots", 0) + 1, why=asked["msg"], waited=node.get("waits"))
    if ACTION in ("profile", "rollback") and node.get("boots", 0) < node.get("needs", 0) and after["profile"] == "new":
        item = dict(subject="the command line", property="kernel", when="next boot", verdict="drift", disruption="none", text="~ the command line",
                    manager="cpu")
        result.update(drift=[item], in_sync=False)
    if ACTION == "profile" and node.get("boots") and not node.get("settles", True):
        item = dict(subject="/dev/huge", property="mount", when="now", verdict="drift", disruption="none", text="~ a mount is missing", manager="memory")
        result.update(drift=[item], in_sync=False)
    if ACTION == "profile" and node.get("moves"):
        item = dict(subject="db.service", property="slice", when="next start", verdict="unchangeable", disruption="service restart",
                    text="! db.service: restart it", manager="cpu")
        result.update(drift=[item], in_sync=False)
    if ACTION == "profile" and node.get("stays"):
        item = dict(subject="x.service", when="now", verdict="unchangeable", disruption="none", text="! x.service: outside all slices",
                    manager=node["stays"], property=node.get("left", "owner"))
        result.update(drift=[item], in_sync=False)
    if ACTION == "profile":
        after["seconds"] = seconds or node.get("seconds")
        waiting = node if check else after
        result["unconfirmed"] = dict(text="waits", hash=waiting["profile"]) if waiting.get("waits") else None
        result.update(name=after["profile"], profile_hash=after["profile"], profile_hash_before=node.get("confirmed", node["profile"]))
    return result, after
"""

# The role in a play of its own.
ROLE = """
- hosts: all
  gather_facts: false
  roles: [corral.node.corral]
"""

# The facts of the role, each as a play after it sees them.
EXPORTED = """
  tasks:
    - ansible.builtin.set_stats:
        data:
          facts: "{{ {inventory_hostname: found} }}"
      vars:
        found: "{{ [corral_changed, corral_in_sync, corral_units_to_restart, corral_reboot_required, corral_reboot_reasons] }}"
"""

# A connection that notes when it is closed, so that the next task has to log in.
CONNECTION = '''
from ansible.plugins.connection.local import Connection as Local

DOCUMENTATION = """
name: noted
short_description: local
description: [local]
author: [local]
"""


class Connection(Local):
    transport = "corral.node.noted"

    def reset(self):
        with open("{order}", "a") as file:
            file.write(self._play_context.remote_addr + " reset\\n")
'''

# The two modules of the health checks, without a Python for each.
COMMAND = """
import os
import shlex
import subprocess
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        asked = dict(self._task.args)
        words = asked.pop("argv", None) or shlex.split(asked.pop("cmd"))
        assert not asked, asked
        places = {**os.environ, **task_vars["node_environment"]}
        done = subprocess.run(words, env=places, capture_output=True, text=True, check=False)
        said = dict(stdout=done.stdout, stdout_lines=done.stdout.splitlines(), stderr=done.stderr)
        return dict(said, rc=done.returncode, failed=done.returncode != 0, changed=True, msg="exit code %d" % done.returncode)
"""
LOGIN = """
import json
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        assert int(self._task.args["timeout"]) > 0 and len(self._task.args) == 1, self._task.args
        with open(task_vars["node_environment"]["NODE"]) as file:
            lost = json.load(file).get("lost", False)
        return dict(changed=False, failed=lost, msg="timed out waiting for ping")
"""


def environment(ground: Path) -> dict[str, str]:
    """Of commands on a fleet in this folder: it lies in a folder of its own, beside what Ansible keeps for all commands."""
    folder = ground / "fleet"
    (ground / "ansible.cfg").write_text("[defaults]\n")
    return {
        **os.environ, "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"), "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_SHOW_CUSTOM_STATS": "1", "ANSIBLE_INVENTORY_ENABLED": "yaml",
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "ANSIBLE_FORKS": "4", "ANSIBLE_CONFIG": str(ground / "ansible.cfg"),
        "ANSIBLE_LOCAL_TEMP": str(ground / "tmp"), "ANSIBLE_REMOTE_TEMP": str(ground / "remote"),
    }  # fmt: skip


@contextlib.contextmanager
def fleet_in(ground: Path) -> t.Iterator[Fleet]:
    """A fleet for a test of another file."""
    with playing.Commands(environment(ground)) as commands:
        yield Fleet(ground / "fleet", commands)


@pytest.fixture(name="commands", scope="module")
def start_commands(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[tuple[Path, playing.Commands]]:
    ground = tmp_path_factory.mktemp("ground")
    with playing.Commands(environment(ground)) as commands:
        yield ground, commands


@pytest.fixture(name="fleet")
def make_fleet(commands: tuple[Path, playing.Commands]) -> t.Iterator[Fleet]:
    ground, runner = commands
    yield Fleet(ground / "fleet", runner)
    shutil.rmtree(ground / "fleet")


class Fleet:
    """Four nodes, each a file, and a collection with the playbooks as they are and stand-ins for the modules."""

    def __init__(self, folder: Path, commands: playing.Commands) -> None:
        self.folder = folder
        self.commands = commands
        collection = folder / "collections" / "ansible_collections" / "corral" / "node"
        (collection / "plugins" / "action").mkdir(parents=True)
        for part in COPIED:
            shutil.copytree(CHECKOUT / part, collection / part)
        for part in LINKED:
            (collection / part).symlink_to(CHECKOUT / part)
        actions = {
            "command": COMMAND,
            "login": LOGIN,
            **{name: STAND_IN.format(action=name) for name in ("profile", "agent", "rollback", "confirm", "reboot")},
        }
        for name, text in actions.items():
            (collection / "plugins" / "action" / f"{name}.py").write_text(text)
        for file in (collection / "roles" / "corral" / "tasks").iterdir():
            text = file.read_text()
            for real, stand_in in INSTEAD.items():
                text = text.replace(real, stand_in)
            assert not re.search(r"builtin\.(reboot|command|shell|service|wait_for|setup|ping)", text), file
            file.write_text(text)
        tools = folder / "bin"
        tools.mkdir()
        (tools / "systemctl").write_text("#!/bin/sh\nexit 0\n")
        (tools / "systemctl").chmod(0o755)
        for host in HOSTS:
            self.set(host, profile="old", past=[None], log=[])

    def node(self, host: str) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads((self.folder / f"{host}.json").read_text()))

    def set(self, host: str, **facts: object) -> None:
        file = self.folder / f"{host}.json"
        file.write_text(json.dumps({**(json.loads(file.read_text()) if file.exists() else {}), **facts}))

    def have(self) -> dict[str, str | None]:
        return {host: self.node(host)["profile"] for host in HOSTS}

    def play(
        self, *options: str, playbook: str = "rollout", plays: str = "", **variables: object
    ) -> tuple[int, str, list[str]]:
        """Run the playbook, or these plays; the exit code, what was printed, and who was changed by what, in order."""
        order = self.folder / "order"
        order.write_text("")
        hosts = {
            host: {"node_environment": {"NODE": str(self.folder / f"{host}.json"), "HOST": host, "ORDER": str(order)}}
            for host in HOSTS
        }
        common = {
            "ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False,
            "corral_profile": {"name": "new"}, "corral_login_timeout": 5, **variables,
        }  # fmt: skip
        (self.folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": common}}))
        # The environment of a task is the host's: each stand-in knows its node by it.
        book = self.folder / "collections/ansible_collections/corral/node/playbooks" / f"{playbook}.yml"
        text = plays or (CHECKOUT / "playbooks" / f"{playbook}.yml").read_text()
        book.write_text(
            text.replace("  gather_facts: false\n", '  gather_facts: false\n  environment: "{{ node_environment }}"\n')
        )
        done = self.commands.play(self.folder, "-i", str(self.folder / "hosts.json"), str(book), *options)
        return done.code, done.said, order.read_text().splitlines()


def stats(said: str) -> dict[str, t.Any]:
    """What a run handed on with set_stats, each list in the order of the hosts: they answer in any."""
    found = json.loads(said.partition("CUSTOM STATS:")[2].partition("RUN: ")[2].splitlines()[0])
    return {name: sorted(value) if isinstance(value, list) else value for name, value in found.items()}


def changed(order: t.Iterable[str], action: str = "profile") -> list[str]:
    return [line.split()[0] for line in order if line.split()[1] == action]


def test_a_host_first_then_two_then_all_and_a_failed_batch_goes_back_and_the_rest_is_untouched(fleet: Fleet) -> None:
    marker = fleet.folder / "sick"
    marker.write_text("c")
    check = f'sh -c \'test "$HOST" != "$(cat {marker})" || {{ echo began; echo no disk >&2; exit 3; }}\''
    code, said, order = fleet.play("-e", "corral_serial=1,2,100%", corral_health_command=check)
    assert code != 0 and order, said
    assert changed(order)[0] == "a" and sorted(changed(order)[1:]) == ["b", "c"], said
    assert "1 changed (cpu)" in said and "in sync: nothing differs" not in said, "the agent's report, which has no item"
    assert fleet.have() == {"a": "new", "b": "old", "c": "old", "d": "old"}
    assert sorted(changed(order, "rollback")) == ["b", "c"]
    assert sorted(changed(order, "confirm")) == ["a", "b"], "a host whose check failed is not confirmed"
    words = " ".join(said.split())
    assert (
        "Run the health command: exit code 3: no disk. The host has" in words and "run the same command again" in words
    )
    assert "healthy, but its batch goes back, because c failed" in said
    assert stats(said) == {
        "corral_would_change_hosts": list(HOSTS), "corral_refused_hosts": [], "corral_changed_hosts": ["a"],
        "corral_went_back_hosts": ["b", "c"], "corral_out_of_sync_hosts": [], "corral_reboot_required_hosts": [],
        "corral_units_to_restart": {},
    }  # fmt: skip

    marker.write_text("nobody")
    code, said, order = fleet.play("-e", "corral_serial=1,2,100%", corral_health_command=check)
    assert code == 0, said
    assert set(fleet.have().values()) == {"new"}
    assert "a: nothing to change" in said and "b,c,d: as follows" in said and "name: old -> new" in said
    assert fleet.node("a")["past"] == ["old", None], "it was left as it is"
    kept = changed(order, "confirm")
    assert kept[0] == "b" and sorted(kept[1:]) == ["c", "d"], "the first of those that change is their canary"


def test_the_time_until_a_host_goes_back_is_as_long_as_its_batch_takes_unless_it_is_given(fleet: Fleet) -> None:
    words = ("-e", "corral_serial=1,3", "-f", "1")
    code, said, dummy = fleet.play(*words)
    assert code == 0, said
    # Ansible does each task on one host after the other.
    assert [fleet.node(host)["seconds"] for host in HOSTS] == [120, *[120 + 2 * 30] * 3]
    profile = {"name": "with two reboots"}
    may_reboot = "{{ inventory_hostname in ['c', 'd'] }}"
    code, said, dummy = fleet.play(*words, corral_reboot_ok=may_reboot, corral_profile=profile)
    assert code == 0, said
    # The one that is not rebooted waits for those that are, one after the other.
    assert [fleet.node(host)["seconds"] for host in HOSTS] == [120, *[120 + 2 * 30 + 2 * 600] * 3]
    given: dict[str, t.Any] = {"corral_confirm_timeout": 7, "corral_profile": {"name": "newer"}}
    code, said, dummy = fleet.play("--limit", "a", *words, **given)
    assert code == 0 and fleet.node("a")["seconds"] == 7, said


def test_so_it_is_with_the_role_alone(fleet: Fleet) -> None:
    for reboots in (False, True):
        code, said, dummy = fleet.play("-f", "3", plays=ROLE, corral_reboot_ok=reboots)
        assert code == 0, said
        assert [fleet.node(host)["seconds"] for host in HOSTS] == [120 + 30 + (600 + 600) * reboots] * 4
        for host in HOSTS:
            fleet.set(host, profile="old", past=[None])


def test_a_budget_lets_the_others_go_on_and_a_first_rollout_goes_back_to_nothing(fleet: Fleet) -> None:
    for host in HOSTS:
        fleet.set(host, profile=None, past=[])
    check = "sh -c 'test \"$HOST\" != b'"
    code, said, order = fleet.play(
        "-e", "corral_serial=50% corral_max_fail_percentage=60%", corral_health_command=check
    )
    assert code != 0, "a host has not what it should have"
    assert fleet.have() == {"a": "new", "b": None, "c": "new", "d": "new"}, said
    assert changed(order, "rollback") == []
    assert [row[:2] for row in fleet.node("b")["log"] if row[0] == "profile"] == [
        ["profile", "present"],
        ["profile", "absent"],
    ]


def test_a_budget_of_the_inventory_has_no_effect(fleet: Fleet) -> None:
    check = "sh -c 'test \"$HOST\" != b'"
    code, said, dummy = fleet.play(
        "-e", "corral_serial=50%", corral_health_command=check, corral_max_fail_percentage=60
    )
    assert code != 0 and set(fleet.have().values()) == {"old"}, said


def test_an_agent_that_was_there_before_a_first_profile_stays(fleet: Fleet) -> None:
    for host, there in (("a", True), ("b", False)):
        fleet.set(host, profile=None, past=[], agent=there)
    code, said, dummy = fleet.play("--limit", "a,b", "-e", "corral_serial=2", corral_health_command="false")
    assert code != 0, said
    assert [(fleet.node(host)["profile"], fleet.node(host)["agent"]) for host in "ab"] == [(None, True), (None, False)]


def test_a_host_that_cannot_go_back_from_a_first_profile_keeps_the_agent_that_takes_it_back_later(fleet: Fleet) -> None:
    fleet.set("a", profile=None, past=[], agent=False, stuck=["profile"])
    code, said, dummy = fleet.play("--limit", "a", corral_health_command="false")
    assert code != 0 and "The host did not go back: profile is stuck" in " ".join(said.split()), said
    assert (fleet.node("a")["profile"], fleet.node("a")["agent"], fleet.node("a")["waits"]) == ("new", True, True)


def test_a_host_that_does_not_answer_any_more_counts_and_takes_its_batch_back(fleet: Fleet) -> None:
    fleet.set("b", dies=["profile"])
    code, said, dummy = fleet.play("-e", "corral_serial=1,2,100%")
    assert code != 0, said
    assert fleet.have() == {"a": "new", "b": "old", "c": "old", "d": "old"}, said
    assert "healthy, but its batch goes back, because b failed" in said


@pytest.mark.parametrize(("before", "variables", "then"), [
    ("old", {"corral_confirm_timeout": 7}, "7 s after its change it goes back by itself"),
    (None, {"corral_confirm_timeout": 7}, "7 s after its change it goes back by itself"),
    ("old", {"corral_confirm_timeout": 0}, "it keeps what it was given"),
    ("old", {"corral_agent": False}, "it keeps what it was given"),
    ("old", {"corral_reboot_ok": "true", "corral_reboot_timeout": 30}, "150 s after its change it goes back by itself"),
])  # fmt: skip
def test_a_host_that_does_not_answer_on_its_way_back_is_told_apart(
    before: str | None, variables: dict[str, t.Any], then: str, fleet: Fleet
) -> None:
    for host in "ab":
        fleet.set(host, profile=before, past=[])
    fleet.set("b", past=[before, None], dies=["rollback"] if before else [], leaves=True)
    check = "sh -c 'test \"$HOST\" != b'"
    options = ("-e", "corral_serial=2", "--limit", "a,b")
    code, said, dummy = fleet.play(*options, corral_health_command=check, **variables)
    words = " ".join(said.split())
    assert code != 0 and fleet.have()["a"] == before, said
    assert f"The host does not answer: {then}. Correct the cause and run the same command again" in words
    assert "because b failed. The host has what it had before. Correct" in words
    assert stats(said)["corral_went_back_hosts"] == ["a"]


def test_a_host_whose_new_login_fails_is_said_to_go_back_by_itself(fleet: Fleet) -> None:
    fleet.set("a", lost=True, dies=["rollback"])
    code, said, dummy = fleet.play("--limit", "a")
    words = " ".join(said.split())
    assert (
        code != 0 and "Log in again: timed out waiting for ping. The host does not answer: 120 s after its" in words
    ), said


def test_a_host_that_was_confirmed_and_does_not_answer_any_more_is_not_said_to_go_back_by_itself(fleet: Fleet) -> None:
    fleet.set("a", dies=["rollback"])
    check = "sh -c 'test \"$HOST\" != b'"
    code, said, order = fleet.play("-e", "corral_serial=2", "--limit", "a,b", corral_health_command=check)
    words = " ".join(said.split())
    assert code != 0 and changed(order, "confirm") == ["a"] and fleet.have()["a"] == "new", said
    assert (
        "its batch goes back, because b failed. The host does not answer: it keeps what it was given. Correct" in words
    )


def test_a_host_that_cannot_go_back_keeps_no_other_from_it(fleet: Fleet) -> None:
    fleet.set("a", stuck=["rollback"])
    fleet.set("b", profile=None, past=[])
    check = "sh -c 'test \"$HOST\" != a'"
    code, said, dummy = fleet.play("-e", "corral_serial=3", "--limit", "a,b,c", corral_health_command=check)
    words = " ".join(said.split())
    assert code != 0 and fleet.have() == {"a": "new", "b": None, "c": "old", "d": "old"}, said
    assert "The host did not go back: rollback is stuck. Correct the cause" in words
    assert '"by_key"' not in said, "all that the module returned"
    assert "because a failed. The host has what it had before. Correct" in words
    assert stats(said)["corral_went_back_hosts"] == ["b", "c"]


@pytest.mark.parametrize(("setting", "value"), [
    ("ANSIBLE_STRATEGY", "free"), ("ANSIBLE_STRATEGY", "host_pinned"), ("ANSIBLE_ANY_ERRORS_FATAL", "true"),
])  # fmt: skip
def test_no_setting_of_ansible_keeps_a_failed_batch_from_going_back_or_lets_the_next_one_begin(
    setting: str, value: str, tmp_path: Path
) -> None:
    check = "sh -c 'test \"$HOST\" != b || { sleep 2; exit 1; }'"  # the other one is done long before
    with playing.Commands({**environment(tmp_path), setting: value}, forks=True) as commands:
        fleet = Fleet(tmp_path / "fleet", commands)
        code, said, dummy = fleet.play("-e", "corral_serial=2,2", corral_health_command=check)
    assert code != 0 and fleet.have() == dict.fromkeys(HOSTS, "old"), said
    assert "healthy, but its batch goes back, because b failed. The host has what it had before." in said
    assert [fleet.node(host)["log"] for host in "cd"] == [[], []]


@pytest.mark.parametrize(("task", "because"), [
    ("fail: {msg: busy}\n  run_once: true", "Ask: busy"),
    ("include_tasks: nowhere.yml\n  when: inventory_hostname == 'a'", "failed: Ansible's own error above says why"),
    ("fail: {msg: busy}\n  when: inventory_hostname == 'a'\n  any_errors_fatal: true", "Ask: busy"),
])  # fmt: skip
def test_a_batch_goes_back_from_a_failure_of_which_ansible_does_not_tell_each_host(
    task: str, because: str, fleet: Fleet
) -> None:
    (fleet.folder / "undrain.yml").write_text(f"- name: Ask\n  ansible.builtin.{task}\n")
    code, said, order = fleet.play("-e", "corral_serial=2,2", corral_undrain="undrain.yml")
    assert sorted(changed(order, "confirm")) == ["a", "b"], said
    assert code != 0 and fleet.have() == dict.fromkeys(HOSTS, "old"), said
    assert f"{because}. The host has what it had before. It may still be drained. Correct the cause" in said
    assert said.count("The host has what it had before") >= 2 and "undefined" not in said
    assert [fleet.node(host)["log"] for host in "cd"] == [[], []]


def test_no_batch_begins_after_one_that_went_back_without_a_host_that_ended_early(fleet: Fleet) -> None:
    # The name of the file is a template: it is not read before the rollout.
    (fleet.folder / "drain.yml").write_text("- ansible.builtin.include_tasks: '{{ inventory_hostname }}.yml'\n")
    for host in HOSTS:
        (fleet.folder / f"{host}.yml").write_text("- ansible.builtin.meta: end_host\n" if host == "a" else "")
    code, said, dummy = fleet.play("-e", "corral_serial=2,2", corral_drain="drain.yml")
    assert code != 0 and "healthy, but its batch goes back, because a failed" in said, said
    assert fleet.have() == dict.fromkeys(HOSTS, "old") and fleet.node("c")["log"] == [], said


def importable(fleet: Fleet) -> None:
    """The rollout as each.yml beside the playbook, to be imported more than once."""
    book = fleet.folder / "collections/ansible_collections/corral/node/playbooks/each.yml"
    text = (CHECKOUT / "playbooks/rollout.yml").read_text()
    book.write_text(
        text.replace("  gather_facts: false\n", '  gather_facts: false\n  environment: "{{ node_environment }}"\n')
    )


def test_a_second_rollout_of_the_same_run_goes_back_to_what_the_first_one_gave(fleet: Fleet) -> None:
    (fleet.folder / "drain.yml").write_text("- name: Drain\n  ansible.builtin.fail: {msg: busy}\n")
    importable(fleet)
    plays = """
- import_playbook: each.yml
- import_playbook: each.yml
  vars: {corral_profile: {name: newer}, corral_drain: drain.yml}
"""
    code, said, order = fleet.play("--limit", "a", plays=plays)
    assert code != 0 and "Drain: busy. The host has what it had before" in said, said
    assert fleet.have()["a"] == "new" and changed(order, "rollback") == [], said


def test_a_second_rollout_of_the_same_run_has_hosts_and_an_order_of_its_own(fleet: Fleet) -> None:
    importable(fleet)
    fleet.set("b", profile="newer")  # nothing to change in the second one
    plays = """
- import_playbook: each.yml
  vars: {corral_hosts: a}
- import_playbook: each.yml
  vars: {corral_hosts: "a:b:c", corral_profile: {name: newer}}
"""
    health = 'sh -c \'echo "$HOST health" >>"$ORDER"\''
    code, said, order = fleet.play(plays=plays, corral_health_command=health)
    assert code == 0 and fleet.have() == {"a": "newer", "b": "newer", "c": "newer", "d": "old"}, said
    assert changed(order, "confirm") == ["a", "a", "c"]
    assert changed(order, "health") == ["a", "a", "c", "b"], "the order of the second one is its own"
    assert "Could not match" not in said, said


def test_a_second_rollout_without_a_host_of_this_run_touches_none_of_the_first_one(fleet: Fleet) -> None:
    importable(fleet)
    plays = """
- import_playbook: each.yml
  vars: {corral_hosts: "a:b"}
- import_playbook: each.yml
  vars: {corral_hosts: "c:d", corral_profile: {name: newer}}
"""
    code, said, order = fleet.play("--limit", "a,b", plays=plays)
    assert code == 0 and fleet.have() == {"a": "new", "b": "new", "c": "old", "d": "old"}, said
    assert changed(order) == ["a", "b"]


def test_a_second_rollout_refuses_a_host_that_failed_in_the_first_one(fleet: Fleet) -> None:
    importable(fleet)
    plays = """
- import_playbook: each.yml
- import_playbook: each.yml
  vars: {corral_profile: {name: newer}}
"""
    check = "sh -c 'test \"$HOST\" != b'"
    options = ("-e", "corral_serial=2 corral_max_fail_percentage=50", "--limit", "a,b,c")
    code, said, dummy = fleet.play(*options, plays=plays, corral_health_command=check)
    assert code != 0 and fleet.have() == {"a": "new", "b": "old", "c": "new", "d": "old"}, said
    told = " ".join(said.rpartition("TASK [Show it]")[2].split())
    assert "b: cannot have it" in told and "the node was not asked, since the host failed before" in told, said
    assert "1 of 3 hosts cannot have the profile, and no host was changed: b" in told


def test_a_rollout_of_ungrouped_hosts_takes_them_all_and_its_profile_is_that_of_the_plan(fleet: Fleet) -> None:
    fleet.set("a", adoptable={"pids": {"pid_max": 40000}})
    code, said, dummy = fleet.play(
        "-e",
        "corral_hosts=ungrouped",
        corral_on_drift="adopt",
        corral_profile={"name": "{{ group_names | join(' ') }}"},
    )
    assert code == 0 and "name: old -> ungrouped" in said, said
    assert set(fleet.have().values()) == {"ungrouped"}
    assert [file.name for file in (fleet.folder / "corral_adopted").iterdir()] == ["a.yml"]


def test_no_batch_begins_where_an_adopted_layer_cannot_be_written(fleet: Fleet) -> None:
    fleet.set("a", adoptable={"pids": {"pid_max": 40000}})
    (fleet.folder / "file").write_text("")
    code, said, order = fleet.play(corral_on_drift="adopt", corral_adopted_dir=str(fleet.folder / "file" / "adopted"))
    assert code != 0 and order == [] and set(fleet.have().values()) == {"old"}, said


def test_hosts_with_something_to_do_come_first_in_the_order_of_the_pattern_and_then_the_others(fleet: Fleet) -> None:
    fleet.set("a", profile="new", past=["old", None])
    fleet.set("c", profile="new", past=["old", None])
    health = 'sh -c \'echo "$HOST health" >>"$ORDER"\''
    words = ("-e", "corral_serial=1 corral_hosts=d,c,b,a", "-f", "1")
    code, said, order = fleet.play(*words, corral_health_command=health)
    assert code == 0 and changed(order, "health") == ["d", "b", "c", "a"], said
    assert stats(said)["corral_would_change_hosts"] == ["b", "d"]
    # Of those with nothing to change: one is rebooted, and one has a change that nothing confirmed.
    fleet.set("b", waits=True, confirmed="new")
    due = "{{ ['a new kernel'] if inventory_hostname == 'c' else [] }}"
    words = ("-e", "corral_serial=1 corral_hosts=!d", "-f", "1")
    code, said, order = fleet.play(*words, corral_health_command=health, corral_reboot_ok=True, corral_reboot_for=due)
    assert code == 0 and changed(order, "health") == ["b", "c", "a"], said
    assert changed(order, "reboot") == ["c"] and "3 hosts: 0 would change" in said
    # The first host of the pattern is not in the limit.
    fleet.set("c", profile="old", past=[None])
    words = ("-e", "corral_serial=1", "-f", "1", "--limit", "b,c,d")
    code, said, order = fleet.play(*words, corral_health_command=health)
    assert code == 0 and changed(order, "health") == ["c", "b", "d"], said


def test_a_host_that_went_back_by_itself_does_not_go_back_once_more(fleet: Fleet) -> None:
    fleet.set("a", past=["older", None], slow=True)
    code, said, dummy = fleet.play("--limit", "a", corral_confirm_timeout=7)
    assert code != 0, said
    assert fleet.have()["a"] == "old", said
    words = " ".join(said.split())
    assert (
        "went back before it was confirmed: apply it again with corral_force=true and a corral_confirm_timeout that is longer"
        in words
    )
    assert "reset_connection" not in said, "no warning"


@pytest.mark.parametrize(("facts", "then", "past"), [
    # Somebody edited or removed the file of the profile on a host that has the profile already.
    ({"profile": "new", "past": ["old", None], "edited": True}, "new", ["old", None]),
    ({"profile": "new", "past": ["old", None], "edited": True, "gone": True}, "new", ["old", None]),
    ({"gone": True}, "old", [None]),
    # Nothing confirmed what an earlier run applied, which was killed.
    ({"profile": "bad", "past": ["old", None], "waits": True, "confirmed": "old"}, "old", [None]),
    ({"profile": "new", "past": ["old", None], "waits": True, "confirmed": "old"}, "old", [None]),
    # The module was killed after it had declared the profile.
    ({"killed": True}, "old", [None]),
])  # fmt: skip
def test_a_host_goes_back_to_what_was_confirmed_last(
    facts: dict[str, t.Any], then: str, past: list[str | None], fleet: Fleet
) -> None:
    fleet.set("a", **facts)
    code, said, dummy = fleet.play("--limit", "a", corral_health_command="false", corral_confirm_timeout=7)
    node = fleet.node("a")
    assert code != 0 and "The host has what it had before" in " ".join(said.split()), said
    assert (node["profile"], node["past"]) == (then, past), said
    assert not any(row[1] == "absent" for row in node["log"]), "neither Corral nor its agent is removed"


@pytest.mark.parametrize("profile", ["bad", "new"])
def test_the_role_in_check_mode_refuses_nothing_that_the_run_does(profile: str, fleet: Fleet) -> None:
    fleet.set("a", profile=profile, past=["old", None], waits=True, confirmed="old")
    for options in (("--check",), ()):
        code, said, dummy = fleet.play("--limit", "a", *options, plays=ROLE, corral_confirm_timeout=7)
        assert code == 0, said
    assert (fleet.node("a")["profile"], fleet.node("a")["waits"]) == ("new", False)


def test_a_host_that_cannot_have_it_stops_all_before_the_first_is_touched(fleet: Fleet) -> None:
    for name in "bc":
        fleet.set(name, refuses="cpu: this node has a single CPU")
    fleet.set("d", drifted=True)
    code, said, order = fleet.play("--check")
    assert code != 0 and order == [], "the same exit code"
    code, said, order = fleet.play()
    assert code != 0 and order == [], said
    words = " ".join(said.split())
    assert "3 of 4 hosts cannot have the profile, and no host was changed: b, c, d. The plan has the reasons" in words
    assert "b,c: cannot have it" in said, "hosts with the same reason are one group"
    assert "this node has a single CPU" in said and "~ by hand" in said
    assert stats(said) == {"corral_would_change_hosts": ["a"], "corral_refused_hosts": ["b", "c", "d"]}
    assert set(fleet.have().values()) == {"old"}
    for name in "bc":
        fleet.set(name, refuses="")
    code, said, order = fleet.play("--check", corral_on_drift="overwrite")
    assert code == 0 and order == [], said
    assert "4 hosts: 4 would change" in said


def test_the_plan_shows_what_differs_on_each_host_with_diff(fleet: Fleet) -> None:
    for words, shown in ((("--check", "--diff"), True), (("--check",), False)):
        code, said, order = fleet.play("--limit", "a", *words)
        assert code == 0 and order == [], said
        assert ("\n-name: old\n+name: new\n" in said) == shown, said
        assert "name: old -> new" in said


def test_what_a_host_has_otherwise_becomes_a_layer_of_its_own(fleet: Fleet) -> None:
    keys = {"pids": {"pid_max": 40000}, "memory": {"mounts": [{"path": "/dev/huge", "mode": "0770"}]}}
    fleet.set("b", adoptable=keys)
    code, said, order = fleet.play("--limit", "b")
    assert code != 0 and order == [], said
    assert "set corral_on_drift to overwrite to correct it, or to adopt to keep it" in " ".join(said.split())
    folder = fleet.folder / "corral_adopted"
    code, said, order = fleet.play("--limit", "b", "--check", corral_on_drift="adopt")
    assert code == 0 and order == [] and not folder.exists(), said
    code, said, dummy = fleet.play("--limit", "b,c", corral_on_drift="adopt")
    assert code == 0, said
    assert [file.name for file in folder.iterdir()] == ["b.yml"], "only what differed is kept"
    assert fleet.node("b")["last"] == ["corral_adopted/b.yml", keys]
    assert fleet.node("c")["last"] == ["corral_profile", {"name": "new"}]
    fleet.set("b", profile="old", adoptable=None)
    elsewhere = fleet.folder / "elsewhere"
    folder.rename(elsewhere)
    code, said, dummy = fleet.play("--limit", "b", corral_adopted_dir=str(elsewhere))
    assert code == 0 and fleet.node("b")["last"] == ["corral_adopted/b.yml", keys], said


def test_what_is_to_be_done_about_a_host_is_its_own(fleet: Fleet) -> None:
    for host in "ab":
        fleet.set(host, drifted=True)
    of_host = "{{ 'overwrite' if inventory_hostname == 'a' else 'stop' }}"
    code, said, order = fleet.play(corral_on_drift=of_host)
    assert code != 0 and order == [], said
    assert "1 of 4 hosts cannot have the profile, and no host was changed: b." in " ".join(said.split())
    for host in "ab":
        fleet.set(host, drifted=False, stays="cpu")
    code, said, order = fleet.play("--check", corral_require_in_sync="{{ inventory_hostname == 'b' }}")
    assert code == 0 and order == [], said
    of_a, dummy, of_b = said.partition('"b: as follows"')
    assert "goes back unless" not in of_a and "goes back unless" in of_b, said


def test_what_cannot_be_adopted_is_named_and_stops_the_rollout(fleet: Fleet) -> None:
    fleet.set("a", adoptable={"pids": {"pid_max": 40000}})
    fleet.set("d", drifted=True)
    code, said, order = fleet.play(corral_on_drift="adopt")
    assert code != 0 and order == [], said
    assert "this cannot be adopted" in said and "~ by hand" in said
    assert "1 of 4 hosts cannot have the profile, and no host was changed: d" in " ".join(said.split())
    assert not (fleet.folder / "corral_adopted").exists()


def test_what_stays_is_named_before_the_first_host_is_touched_and_is_why_it_goes_back(fleet: Fleet) -> None:
    fleet.set("a", stays="cpu")
    for asked, head in (
        (True, "stays, so the host goes back unless corral_require_in_sync is false:"),
        (False, "stays:"),
    ):
        code, said, order = fleet.play("--check", corral_require_in_sync=asked)
        assert code == 0 and order == [], said
        assert head in said and "! x.service: outside all slices" in said
    code, said, order = fleet.play(corral_serial=4)
    assert code != 0
    assert fleet.have()["a"] == "old"
    assert "! x.service: outside all slices" in said


def test_what_garbage_collection_left_undone_stops_no_rollout(fleet: Fleet) -> None:
    """A user whose storage is collected could bring it about."""
    fleet.set("a", stays="gc")
    code, said, order = fleet.play("--check", "--limit", "a")
    assert code == 0 and "goes back unless" in said, "a second program that collects is no user's doing"
    fleet.set("a", stays="gc", left="pass")
    code, said, order = fleet.play(
        "--limit", "a", corral_health_command=["sh", "-c", 'echo "$HOST healthy" >>"$ORDER"']
    )
    assert code == 0 and fleet.have()["a"] == "new" and changed(order, "healthy") == ["a"], said
    assert "stays:" in said and "goes back unless" not in said
    code, said, order = fleet.play("--limit", "a", corral_health_command={"sh": "-c"})
    assert code != 0 and order == [] and "write a command, or a list of its words" in said, said


def test_what_waits_for_a_restart_is_in_the_plan_and_goes_no_way_back(fleet: Fleet) -> None:
    fleet.set("a", moves=True)
    code, said, order = fleet.play("--check")
    assert code == 0 and order == [], said
    assert "waits for a restart, which the rollout leaves to you:" in said and "! db.service: restart it" in said
    assert "goes back unless" not in said
    code, said, order = fleet.play("--limit", "a,b")
    assert code == 0, said
    assert fleet.have()["a"] == "new"
    assert stats(said)["corral_units_to_restart"] == {"a": ["db.service"]}
    assert stats(said)["corral_out_of_sync_hosts"] == ["a"]


def test_a_reboot_that_is_not_allowed_is_said_and_the_rollout_goes_on(fleet: Fleet) -> None:
    fleet.set("a", needs=1)
    # As text, which the command line and a survey of AWX give.
    code, said, order = fleet.play("--limit", "a,b", "-e", "corral_reboot_ok=false")
    assert code == 0 and changed(order, "reboot") == [], said
    words = " ".join(said.split())
    assert (
        words.count("this node needs a reboot, which corral_reboot_ok=true allows:") == 1
        and "~ the command line" in said
    )
    assert fleet.have()["a"] == "new" and fleet.node("a")["seconds"] == 120
    assert stats(said)["corral_reboot_required_hosts"] == ["a"]
    assert sorted(stats(said)["corral_changed_hosts"]) == ["a", "b"], "of all batches"


def test_a_host_that_needs_it_is_rebooted_once_before_its_health_and_its_confirmation(fleet: Fleet) -> None:
    fleet.set("a", needs=1)
    tasks = fleet.folder / "drain.yml"
    tasks.write_text("- set_fact:\n    corral_reboot_for: [a new kernel]\n  when: inventory_hostname == 'b'\n")
    health = f"sh -c 'echo \"$HOST health\" >> {fleet.folder / 'order'}'"
    code, said, order = fleet.play(
        "--limit", "a,b,c", corral_reboot_ok=True, corral_health_command=health, corral_drain=str(tasks)
    )
    assert code == 0, said
    assert changed(order, "reboot") == ["a", "b"]
    of_a = [line.split()[1] for line in order if line.startswith("a ")]
    assert [one for one in of_a if one != "agent"] == ["profile", "reboot", "health", "confirm"]
    assert [fleet.node(host).get("why") for host in "abc"] == [
        "Corral: ~ the command line",
        "Corral: a new kernel",
        None,
    ]
    assert fleet.node("a")["waited"], "the change waits for its confirmation over the reboot"
    assert fleet.node("a")["seconds"] == 120 + 600
    code, said, order = fleet.play("--limit", "a", corral_reboot_ok=True)
    assert code == 0 and changed(order, "reboot") == [], said


def test_a_host_that_differs_after_its_reboot_goes_back_unless_drift_is_allowed(fleet: Fleet) -> None:
    for host in "ab":
        fleet.set(host, needs=1, settles=False)
    strict = "{{ inventory_hostname == 'a' }}"
    code, said, order = fleet.play(
        "--limit", "a,b", "-e", "corral_serial=2 corral_max_fail_percentage=50",
        corral_reboot_ok=True, corral_require_in_sync=strict, corral_login_timeout=10,
    )  # fmt: skip
    assert code != 0 and sorted(changed(order, "reboot")) == ["a", "b"], said
    assert "See that nothing differs from the profile: ~ a mount is missing" in " ".join(said.split())
    assert (fleet.have()["a"], fleet.have()["b"]) == ("old", "new")


def test_a_host_that_needs_a_second_reboot_goes_back(fleet: Fleet) -> None:
    fleet.set("a", needs=2)
    code, said, order = fleet.play("--limit", "a", corral_reboot_ok=True, corral_login_timeout=10)
    assert code != 0 and changed(order, "reboot") == ["a"], said
    assert "after a reboot this node still needs one, and is not rebooted again: ~ the command line" in " ".join(
        said.split()
    )
    assert fleet.have()["a"] == "old"


class Health(http.server.BaseHTTPRequestHandler):
    """Healthy are all hosts but b."""

    def do_GET(self) -> None:
        self.send_response(503 if self.path == "/b" else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *dummy: t.Any) -> None:
        """Say nothing."""


FAILED = """#!/bin/sh
echo "old.service loaded failed failed Failed before"
if grep -q '"profile": "new"' "$NODE" && [ "$HOST" = a ]; then echo "broken.service loaded failed failed Fails since"; fi
"""


def test_a_unit_that_failed_since_or_a_url_that_answers_otherwise_takes_a_host_back(fleet: Fleet) -> None:
    (fleet.folder / "bin" / "systemctl").write_text(FAILED)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/{{{{ inventory_hostname }}}}"
        words = ("-e", "corral_serial=100% corral_max_fail_percentage=60")
        code, said, order = fleet.play(*words, corral_health_url=url)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert code != 0
    assert fleet.have() == {"a": "old", "b": "old", "c": "new", "d": "new"}, said
    assert sorted(changed(order, "confirm")) == ["c", "d"]
    words = " ".join(said.split())
    assert "See that no unit has failed since: broken.service failed after the change" in words, said
    assert "Ask the health URL: " in said and "503" in said


def test_what_a_health_command_printed_moves_no_cursor_of_a_terminal(fleet: Fleet) -> None:
    check = "sh -c 'printf \"began\\nno \\033[2Jdisk\\r\\n\" >&2; exit 3'"
    code, said, dummy = fleet.play("--limit", "a", corral_health_command=check)
    assert code != 0 and "\x1b" not in said, said
    assert "exit code 3: no ?[2Jdisk. The host has" in " ".join(said.split()), said


def test_a_host_is_drained_before_its_change_and_undrained_once_it_is_kept(fleet: Fleet) -> None:
    for name in ("drain", "undrain"):
        text = f'- name: Note it\n  ansible.builtin.shell: echo "$HOST {name}" >>"$ORDER"\n'
        (fleet.folder / f"{name}.yml").write_text(text)
    places = {f"corral_{name}": str(fleet.folder / f"{name}.yml") for name in ("drain", "undrain")}
    code, said, order = fleet.play("--limit", "a", **places)
    assert code == 0, said
    found = [line.split()[1] for line in order]
    assert [one for one in found if one in ("drain", "profile", "confirm", "undrain")] == [
        "drain", "profile", "confirm", "undrain",
    ], said  # fmt: skip
    code, said, order = fleet.play("--limit", "b", corral_health_command="false", **places)
    assert code != 0 and "b drain" in order and "b undrain" not in order, said


def hooks(fleet: Fleet, *more: str) -> dict[str, str]:
    """Both files of tasks, which note that they ran; the first one has these tasks as well."""
    for name in ("drain", "undrain"):
        text = f'- name: Note it\n  ansible.builtin.shell: echo "$HOST {name}" >>"$ORDER"\n'
        (fleet.folder / f"{name}.yml").write_text(text + "".join(more if name == "drain" else ()))
    return {f"corral_{name}": f"{name}.yml" for name in ("drain", "undrain")}


def test_a_host_with_nothing_to_change_is_neither_drained_nor_undrained_and_its_health_is_checked(fleet: Fleet) -> None:
    files = hooks(fleet)
    fleet.set("a", profile="new", past=["old", None])
    # Its file is written again, and nothing on the node differs.
    fleet.set("b", profile="new", past=["old", None], edited=True)
    fleet.set("c", profile="new", past=["old", None], agent=False)
    health = 'sh -c \'echo "$HOST health" >>"$ORDER"\''
    code, said, order = fleet.play(corral_health_command=health, **files)
    assert code == 0, said
    assert (sorted(changed(order, "drain")), sorted(changed(order, "undrain"))) == (["c", "d"], ["c", "d"]), said
    assert sorted(changed(order, "health")) == list(HOSTS), said
    code, said, order = fleet.play(corral_health_command=health, **files)
    assert code == 0 and not {"drain", "undrain"} & {line.split()[1] for line in order}, said
    assert sorted(changed(order, "health")) == list(HOSTS), said
    code, said, order = fleet.play("--limit", "a", "-e", "corral_drain_all=true", **files)
    assert code == 0 and (changed(order, "drain"), changed(order, "undrain")) == (["a"], ["a"]), said
    code, said, order = fleet.play("--limit", "a", "-e", "corral_drain_all=false", **files)
    assert code == 0 and (changed(order, "drain"), changed(order, "undrain")) == ([], []), said


def test_with_the_tag_agent_a_host_is_drained_only_where_the_agent_changes(fleet: Fleet) -> None:
    fleet.set("b", agent=False)
    code, said, order = fleet.play("--limit", "a,b", "--tags", "agent", **hooks(fleet))
    assert code == 0 and (changed(order, "drain"), changed(order, "undrain")) == (["b"], ["b"]), said
    due = {"corral_reboot_ok": True, "corral_reboot_for": ["a new kernel"]}
    code, said, order = fleet.play("--limit", "a", "--tags", "agent", **hooks(fleet), **due)
    assert code == 0 and order == ["a agent"] and "is rebooted" not in said, "no task of the tag reboots a host"


def test_the_plan_says_which_hosts_are_rebooted_and_why(fleet: Fleet) -> None:
    fleet.set("a", needs=1)
    fleet.set("b", profile="new")
    allowed = "{{ inventory_hostname == 'b' }}"
    of_b = "{{ ['a new kernel'] if inventory_hostname == 'b' else [] }}"
    code, said, order = fleet.play("--limit", "a,b,c", "--check", corral_reboot_ok=allowed, corral_reboot_for=of_b)
    assert code == 0 and order == [], said
    words = " ".join(said.split())
    assert words.count("waits for a reboot, which corral_reboot_ok=true allows:") == 1, said
    assert words.count("is rebooted:") == 1 and "3 hosts: 2 would change" in words, said
    assert (
        "~ the command line" in words.partition("waits for a reboot")[2]
        and "a new kernel" in words.partition("is rebooted:")[2]
    )


@pytest.mark.parametrize(("facts", "variables", "drained"), [
    ({}, {"corral_reboot_for": ["a new kernel"], "corral_reboot_ok": True}, True),
    ({}, {"corral_reboot_for": ["a new kernel"]}, False),
    ({}, {"corral_reboot_for": [], "corral_reboot_ok": True}, False),
    ({"needs": 1}, {"corral_reboot_ok": "true"}, True),
    ({"needs": 1}, {"corral_reboot_ok": "false"}, False),
    # An earlier run was killed before it was confirmed: it may have left the host drained.
    ({"waits": True, "confirmed": "old"}, {}, True),
])  # fmt: skip
def test_a_host_with_nothing_to_change_is_drained_for_a_reboot_that_is_allowed_and_to_end_what_was_begun(
    facts: dict[str, t.Any], variables: dict[str, t.Any], drained: bool, fleet: Fleet
) -> None:
    fleet.set("a", profile="new", past=["old", None], **facts)
    code, said, order = fleet.play("--limit", "a", **hooks(fleet), **variables)
    assert code == 0 and "1 host: 0 would change" in said, said
    assert (changed(order, "drain"), changed(order, "undrain")) == ((["a"], ["a"]) if drained else ([], [])), said
    assert changed(order, "reboot") == (["a"] if drained and variables else [])


def test_tasks_of_the_drain_ask_for_a_reboot_where_they_run(fleet: Fleet) -> None:
    files = hooks(fleet, "- ansible.builtin.set_fact: {corral_reboot_for: [a new kernel]}\n")
    fleet.set("b", profile="new", past=["old", None])
    code, said, order = fleet.play("--limit", "a,b", corral_reboot_ok=True, **files)
    assert code == 0 and changed(order, "reboot") == ["a"] and changed(order, "undrain") == ["a"], said


def test_a_host_that_failed_after_its_drain_is_said_to_be_drained_perhaps(fleet: Fleet) -> None:
    check = "sh -c 'test \"$HOST\" != b'"
    code, said, dummy = fleet.play(
        "-e", "corral_serial=3", "--limit", "a,b,c", corral_health_command=check, **hooks(fleet)
    )
    told = " ".join(said.partition("TASK [Say how to go on")[2].split())
    assert code != 0 and "exit code 1. The host has what it had before. It may still be drained. Correct" in told, said
    assert "because b failed. The host has what it had before. Correct" in told, said


def test_files_of_tasks_are_looked_for_where_ansible_was_started_and_before_a_host_is_touched(fleet: Fleet) -> None:
    (fleet.folder / "drain.yml").write_text('- name: Note it\n  ansible.builtin.shell: echo "$HOST drain" >>"$ORDER"\n')
    code, said, order = fleet.play("--limit", "a", corral_drain="drain.yml")
    assert code == 0 and order[0] == "a drain", said
    for options in ((), ("--check",)):
        code, said, order = fleet.play("--limit", "b", *options, corral_drain="drain.yml", corral_undrain="nowhere.yml")
        assert code != 0 and order == [], said
        assert "corral_undrain: nowhere.yml: no such file beside the playbook or where" in " ".join(said.split())


@pytest.mark.parametrize(("text", "because"), [
    ("- name: Note it\n ansible.builtin.command: ls\n", "undrain.yml: line 2: "),
    ("name: Note it\n", "undrain.yml: a file of tasks is a list of tasks"),
    ("- Note it\n", "undrain.yml: "),
    ("- nowhere.no.module: {a: 1}\n", "couldn't resolve module/action 'nowhere.no.module'"),
    ("- {ansible.builtin.command: ls, wenn: true}\n", "'wenn' is not a valid attribute for a Task"),
    ("- {block: [ansible.builtin.command: ls], wenn: true}\n", "'wenn' is not a valid attribute for a Block"),
    ("- block:\n  - ansible.builtin.meta: end_host\n", "meta: end_host would end the rollout of the host halfway"),
    ("- meta: end_play\n  when: false\n", "meta: end_play would end the rollout of the host halfway"),
    ("- include_role: {nam: web}\n", "'name' is a required field for include_role"),
    ("- include_tasks:\n", "No file specified for include_tasks"),
    ("- meta: end_role\n", "end_role"),  # ansible-core 2.19 says it itself
    ("- ansible.builtin.import_tasks: more.yml\n", "couldn't resolve module/action 'nowhere'"),
    ("$ANSIBLE_VAULT;1.1;AES256\n3333\n", "no vault secrets"),
])  # fmt: skip
def test_a_file_of_tasks_that_ansible_cannot_run_is_named_before_a_host_is_touched(
    text: str, because: str, fleet: Fleet
) -> None:
    files = hooks(fleet)
    (fleet.folder / "more.yml").write_text("- nowhere:\n")
    (fleet.folder / "undrain.yml").write_text(text)
    for options in ((), ("--check",)):
        code, said, order = fleet.play("--limit", "a,b", "-e", "corral_serial=1", *options, **files)
        assert code != 0 and order == [] and fleet.have()["a"] == "old", said
        told = " ".join(said.split())
        assert f"corral_undrain: undrain.yml: {fleet.folder}/" in told and because in told, said
        assert ": correct the file" in told and "4 hosts:" not in told, said


def test_a_file_of_tasks_of_one_host_stops_all_of_them(fleet: Fleet) -> None:
    (fleet.folder / "drain.yml").write_text("- nowhere:\n")
    code, said, order = fleet.play(corral_drain="{{ 'drain.yml' if inventory_hostname == 'd' else '' }}")
    assert code != 0 and order == [] and "corral_drain: drain.yml: " in said, said
    assert set(fleet.have().values()) == {"old"}


def test_tasks_of_many_kinds_are_run_as_they_are(fleet: Fleet) -> None:
    text = """
- name: A block
  block:
    - ansible.builtin.include_tasks: "{{ 'more' }}.yml"
    - ansible.builtin.import_tasks: more.yml
    - ansible.builtin.include_tasks: {file: empty.yml}
    - action: "{{ 'ansible.builtin.debug' }}"
    - local_action: {module: ansible.builtin.debug, msg: here}
  rescue:
    - ansible.builtin.fail:
  always:
    - ansible.builtin.shell: |
        echo "$HOST {{ item }}" >>"$ORDER"
      with_items: [one, two]
      notify: nothing
      when: false
  vars: {a: 1}
- include_role: {name: nowhere, tasks_from: other, apply: {tags: always}}
  when: false
- set_fact: x=1
- meta: flush_handlers
- agent:
  when: false
"""
    (fleet.folder / "more.yml").write_text('- ansible.builtin.shell: echo "$HOST more" >>"$ORDER"\n')
    (fleet.folder / "empty.yml").write_text("")
    (fleet.folder / "drain.yml").write_text(text)
    code, said, order = fleet.play("--limit", "a", "-e", "corral_drain=drain.yml")
    assert code == 0 and changed(order, "more") == ["a", "a"], said


def test_health_and_confirmation_each_have_a_connection_of_their_own(fleet: Fleet) -> None:
    folder = fleet.folder / "collections/ansible_collections/corral/node/plugins/connection"
    folder.mkdir()
    (folder / "noted.py").write_text(CONNECTION.replace("{order}", str(fleet.folder / "order")))
    health = f"sh -c 'echo \"$HOST health\" >> {fleet.folder / 'order'}'"
    code, said, order = fleet.play("--limit", "a", ansible_connection="corral.node.noted", corral_health_command=health)
    assert code == 0, said
    assert [line.split()[1] for line in order] == ["agent", "profile", "reset", "health", "reset", "confirm"]


def test_the_role_exports_what_came_of_it(fleet: Fleet) -> None:
    fleet.set("a", moves=True)
    fleet.set("b", needs=1)
    fleet.set("c", profile="new")
    code, said, dummy = fleet.play(
        plays=f"{ROLE}{EXPORTED}", corral_reboot_for="{{ ['mine'] if inventory_hostname == 'd' else [] }}"
    )
    assert code == 0, said
    assert stats(said)["facts"] == {
        "a": [True, False, ["db.service"], False, []],
        "b": [True, False, [], True, ["~ the command line"]],
        "c": [False, True, [], False, []],
        "d": [True, True, [], True, ["mine"]],
    }


def test_a_host_that_cannot_be_drained_is_left_as_it_is(fleet: Fleet) -> None:
    tasks = fleet.folder / "drain.yml"
    tasks.write_text("- name: Drain\n  ansible.builtin.fail:\n    msg: busy\n")
    code, said, order = fleet.play(corral_drain=str(tasks))
    assert code != 0 and changed(order) == [], said
    assert "Drain: busy. The host has what it had before." in said
    assert set(fleet.have().values()) == {"old"}


def test_a_task_with_no_log_keeps_to_itself_what_its_command_printed(fleet: Fleet) -> None:
    tasks = fleet.folder / "drain.yml"
    text = "- name: Drain\n  ansible.builtin.shell: echo my-token; echo my-secret >&2; exit 1\n  no_log: true\n"
    tasks.write_text(text)
    code, said, dummy = fleet.play("--limit", "a", corral_drain=str(tasks))
    assert code != 0 and "my-secret" not in said and "my-token" not in said, said
    assert "Drain: failed (no_log hides why). The host has what it had before." in " ".join(said.split())


@pytest.mark.parametrize("hidden", [False, True])
def test_a_task_with_a_loop_says_which_item_failed_and_why(fleet: Fleet, hidden: bool) -> None:
    tasks = fleet.folder / "drain.yml"
    text = "- name: Drain\n  ansible.builtin.shell: echo {{ item }} is busy >&2; test {{ item }} != db\n  loop: [web, db, dns]\n"
    tasks.write_text(text + "  no_log: true\n" * hidden)
    code, said, dummy = fleet.play("--limit", "a", corral_drain=str(tasks))
    words = " ".join(said.split())
    assert code != 0 and "dns: " not in words, said
    assert ("Drain: db: non-zero return code: db is busy. The host has" in words) is not hidden, said
    assert ("Drain: failed (no_log hides why). The host has" in words) is hidden, said


def test_no_log_of_a_single_item_hides_that_item(fleet: Fleet) -> None:
    items = [{"name": name, "secret": name == "db"} for name in ("web", "db")]
    for order, shown in ((items, True), (items[::-1], False)):
        text = "- name: Drain\n  ansible.builtin.fail: {msg: '{{ item.name }} is busy'}\n"
        text += f"  loop: {json.dumps(order)}\n  loop_control: {{label: '{{{{ item.name }}}}'}}\n  no_log: '{{{{ item.secret }}}}'\n"
        (fleet.folder / "drain.yml").write_text(text)
        code, said, dummy = fleet.play("--limit", "a", corral_drain="drain.yml")
        told = " ".join(
            said.partition("TASK [Say how to go on")[2].split()
        )  # Ansible 2.19's own error says it all the same
        assert code != 0 and "db is busy" not in told and "The host has what it had before" in told, said
        assert ("Drain: web: web is busy. The host" in told) is shown, said


def test_a_task_with_a_label_of_its_items_is_said_to_fail_by_the_label(fleet: Fleet) -> None:
    text = "- name: Drain\n  ansible.builtin.fail: {msg: busy}\n  loop: [{name: db, port: 1}]\n  loop_control: {label: '{{ item.name }}'}\n"
    (fleet.folder / "drain.yml").write_text(text)
    code, said, dummy = fleet.play("--limit", "a", corral_drain="drain.yml")
    assert code != 0 and "Drain: db: busy. The host has" in " ".join(said.split()), said


ODD = """
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        return dict(failed=True, msg="odd", results={results})
"""


@pytest.mark.parametrize("results", ["'text'", "{'a': 1}", "['web']", "[dict(failed=True, msg='inner')]"])
def test_a_host_goes_back_whatever_results_a_failed_task_returns(results: str, fleet: Fleet) -> None:
    action = fleet.folder / "collections/ansible_collections/corral/node/plugins/action/odd.py"
    action.write_text(ODD.replace("{results}", results))
    (fleet.folder / "undrain.yml").write_text("- name: Undrain\n  corral.node.odd:\n")
    code, said, dummy = fleet.play("--limit", "a", corral_undrain="undrain.yml")
    assert code != 0 and "Undrain: odd. The host has what it had before" in " ".join(said.split()), said
    assert fleet.have()["a"] == "old"


def test_no_message_and_no_item_of_a_failed_task_moves_the_cursor_of_a_terminal(fleet: Fleet) -> None:
    text = '- name: Drain\n  ansible.builtin.fail: {msg: "no\\e[2Jdisk\\nat all"}\n  loop: ["a\\e[2Jb"]\n'
    (fleet.folder / "drain.yml").write_text(text)
    code, said, dummy = fleet.play("--limit", "a", corral_drain="drain.yml")
    told = said.partition("TASK [Say how to go on")[2]
    assert code != 0 and "\x1b" not in told, said
    assert "Drain: a?[2Jb: no?[2Jdisk" in told


def test_the_playbook_rollback_goes_back_as_far_as_it_is_told(fleet: Fleet) -> None:
    for host in HOSTS:
        fleet.set(host, profile="new", past=["old", "older", None])
    code, said, order = fleet.play("--limit", "a,b", "-e", "corral_to=2 corral_serial=1", playbook="rollback")
    assert code == 0 and order == ["a rollback", "b rollback"], said
    assert fleet.have() == {**dict.fromkeys(HOSTS, "new"), "a": "older", "b": "older"}
    assert "profile older (5d2f)" in said


def test_the_playbook_rollback_says_in_lines_what_changed_where_it_fails(fleet: Fleet) -> None:
    fleet.set("a", profile="new", past=["old", None], stuck=["rollback"])
    code, said, dummy = fleet.play("--limit", "a", playbook="rollback")
    assert code != 0 and '"by_key"' not in said, said
    assert '"1 changed (rollback)"' in said.partition("TASK [Say what changed]")[2]
    assert '"msg": "rollback is stuck"' in said


def test_tags_select_the_profile_or_the_agent_and_the_gates_always_run(fleet: Fleet) -> None:
    health = f"sh -c 'echo \"$HOST health\" >> {fleet.folder / 'order'}'"
    code, said, order = fleet.play("--limit", "a", "--tags", "agent", corral_health_command=health)
    assert code == 0 and order == ["a agent", "a health"], said
    assert fleet.have()["a"] == "old" and "a: nothing to change" in said
    code, said, order = fleet.play("--limit", "a", "--tags", "profile", corral_health_command=health)
    assert code == 0 and order == ["a profile", "a health", "a confirm"], said
    assert fleet.have()["a"] == "new" and "a: as follows" in said
    code, said, order = fleet.play("--limit", "b", "--tags", "profile", corral_health_command="false")
    assert code != 0 and order == ["b profile", "b rollback"], said
    assert fleet.have()["b"] == "old" and "The host has what it had before." in " ".join(said.split())
    code, said, order = fleet.play("--limit", "a", "--tags", "agent", playbook="remove")
    assert code == 0 and order == ["a agent"], said
    assert fleet.have()["a"] == "new"


def test_check_mode_refuses_a_profile_that_the_node_could_not_take_back_as_the_run_does(fleet: Fleet) -> None:
    for plays in ("", ROLE):
        fleet.set("a", agent=False)
        for words in (("--check",), ()):
            code, said, order = fleet.play("--limit", "a", "--tags", "profile", *words, plays=plays)
            assert code != 0 and order == [] and "only an agent can take the node back" in said, said
            assert ("a: cannot have it" in said) == (not plays)
        for more in ({"corral_agent": False}, {"corral_confirm_timeout": 0}):
            code, said, order = fleet.play("--limit", "a", "--tags", "profile", "--check", plays=plays, **more)
            assert code == 0 and "it waits for the agent" in said, said
        for words in (("--check",), ()):
            code, said, order = fleet.play("--limit", "a", *words, plays=plays)
            assert code == 0 and "it waits for the agent" not in said, "the run installs it"
        fleet.set("a", profile="old", past=[None])


def test_a_variable_that_the_change_would_refuse_is_refused_in_check_mode_as_well(fleet: Fleet) -> None:
    code, said, order = fleet.play("--check", corral_confirm_timeout="{{ '2m' if inventory_hostname == 'b' else 60 }}")
    assert code != 0 and order == [], said
    plan = said.partition("TASK [Show it]")[2]
    assert "b: cannot have it" in plan and "corral_confirm_timeout" in plan and "a,c,d: as follows" in plan, said
    assert "4 hosts: 3 would change, 1 cannot have the profile" in plan


def test_a_time_longer_than_a_day_is_refused_in_the_plan_and_in_the_role(fleet: Fleet) -> None:
    for plays in ("", ROLE):
        code, said, order = fleet.play("--limit", "a", "--check", plays=plays, corral_confirm_timeout=86401)
        assert code != 0 and order == [] and "corral_confirm_timeout: 86401: " in said, said
    code, said, order = fleet.play("--limit", "a", "--check", corral_confirm_timeout=86400, corral_reboot_ok=True)
    assert code != 0 and "at most 86400 s" in said, said


def test_a_rollout_removes_nothing(fleet: Fleet) -> None:
    code, said, order = fleet.play(corral_state="absent")
    assert code != 0 and order == [] and "corral.node.remove removes Corral" in said, said


def test_batches_that_are_none_are_refused_by_name(fleet: Fleet) -> None:
    code, said, order = fleet.play("-e", "corral_serial=1,none")
    assert code != 0 and order == []
    assert "corral_serial: 'none': write numbers of hosts or shares, such as 1,10%,100%" in said
    assert "this is probably a bug" not in said and "Traceback" not in said


@pytest.mark.parametrize("value", ["-1", "101", "ten", "''"])
def test_a_share_of_failures_that_is_none_is_refused_by_name_in_check_mode_as_well(value: str, fleet: Fleet) -> None:
    code, said, order = fleet.play("--check", "-e", f"corral_max_fail_percentage={value}")
    assert code != 0 and order == []
    said = " ".join(said.split())
    assert f"corral_max_fail_percentage: {value.strip(chr(39))}: write a number from 0 to 100" in said
    assert "hosts: 4 would change" not in said, "before the plan"


@pytest.mark.parametrize("stuck", ["agent", "profile"])
def test_a_removal_tells_in_one_run_what_went_back_and_what_did_not(stuck: str, fleet: Fleet) -> None:
    fleet.set("a", stuck=[stuck])
    code, said, dummy = fleet.play("--limit", "a,b", playbook="remove")
    assert code != 0 and f"{stuck} is stuck" in said
    assert fleet.have()["a"] == (None if stuck == "agent" else "old"), said
    assert fleet.have()["b"] is None
    told = said.partition("TASK [corral.node.corral : Say what went back]")[2]
    told = told.partition("ok: [a]")[2].partition("ok: [b]")[0]  # whichever answers first
    assert said.count(f"1 changed ({stuck})") == 1, "said once"
    assert f"1 changed ({stuck})" in told, said
    assert ("1 changed (cpu)" in told) is (stuck == "agent"), said
    assert "in sync" not in told, "of the agent, beside what is wrong with the profile"
    without = [host for host in "ab" if ["agent", "absent"] in [row[:2] for row in fleet.node(host)["log"]]]
    assert without == ["b"], "the agent stays with what is left of the profile"
