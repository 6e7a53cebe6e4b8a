# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of ansible-playbook in README and docs, played on fake nodes as they are written there, one after the other."""

from __future__ import annotations

import json
import os
import re
import shlex
import typing as t
from pathlib import Path

import documented
import playing
from documented import PLAYBOOK, claims, commands, differences, example
from shared_data import REPOSITORY

LOOK = "ansible-playbook -i hosts.yml --check corral.node.drift -e corral_profile_file=edge.yml"
PLAN = "ansible-playbook -i hosts.yml corral.node.rollout --check -e corral_profile_file=edge.yml"
ROLLOUT = "ansible-playbook -i hosts.yml corral.node.rollout -e corral_profile_file=edge.yml"
DRIFT = "ansible-playbook -i hosts.yml corral.node.drift -e corral_profile_file=edge.yml"
ROLLBACK = "ansible-playbook -i hosts.yml corral.node.rollback"
REMOVAL_PLAN = "ansible-playbook -i hosts.yml corral.node.remove --check"
REMOVE = "ansible-playbook -i hosts.yml corral.node.remove"
COMMANDS = {LOOK, PLAN, ROLLOUT, DRIFT, ROLLBACK, REMOVAL_PLAN, REMOVE}

DIFF, FORKS, EXPLAIN, AGENT, TO = "--diff", "-f", "-vv", "--tags agent", "-e corral_to="
LIMIT, LIMIT_OF_THE_README = "--limit '!n5'", "--limit '!n3.example.com'"
OPTIONS = {DIFF, FORKS, EXPLAIN, AGENT, TO, LIMIT, LIMIT_OF_THE_README}
# What is not played here: why, and the test or scenario that plays it.
ELSEWHERE = {
    "-e corral_drain_all=true": (
        "needs files of tasks that drain: it is played with stand-ins for the modules",
        "tests/unit/test_rollout_playbook.py",
    ),
    "--tags profile": (
        "a rollout of its own, for what the tag selects: it is played with stand-ins for the modules",
        "tests/unit/test_rollout_playbook.py",
    ),
}
FIRST_LOOK = f"$ {LOOK}"
HOSTS = ["n1.example.com", "n2.example.com"]
PAGES = "sys/devices/system/node/node{}/hugepages/hugepages-2048kB/nr_hugepages"
Files = dict[str, t.Union[str, bytes]]


def test_each_documented_command_and_option_is_played() -> None:
    found, options = documented.playbook_commands()
    assert sorted(found - COMMANDS - ELSEWHERE.keys()) == [], "neither played nor in the table"
    assert sorted(COMMANDS - found) == [], "played, and in no document"
    words = {word for one in (*COMMANDS, *OPTIONS) for word in one.split()}
    assert sorted(options - OPTIONS - ELSEWHERE.keys() - words) == [], "neither played nor in the table"
    assert sorted(OPTIONS - options) == [], "played, and in no document"
    assert sorted(ELSEWHERE.keys() - found - options) == [], "in the table, and in no document"
    assert [place for dummy, place in ELSEWHERE.values() if not (REPOSITORY / place).exists()] == []


class Story:
    """Plays documented commands, one after the other, and keeps which."""

    def __init__(self, controller: playing.Controller) -> None:
        self.controller = controller
        self.played: set[str] = set()

    def play(self, command: str, *options: str, value: str = "") -> playing.Played:
        """A command as documented, or with documented options, of which the last one gets this value."""
        self.played |= {command, *options}
        words = shlex.split(" ".join([command.removeprefix(PLAYBOOK), *options]))
        if value:
            before = words.pop()
            words += [before + value] if before.endswith("=") else [before, value] if before == FORKS else [value]
        return self.controller.play(*words)

    def folder(self, host: str) -> Path:
        return self.controller.folder / host

    def pages(self) -> list[list[int]]:
        """The hugepages of each host, by NUMA node."""
        return [[int((self.folder(host) / PAGES.format(one)).read_text()) for one in (0, 1)] for host in HOSTS]

    def cpus(self, name: str) -> set[str]:
        """The CPUs of a slice on the hosts; what they have alike is one text."""
        files = [self.folder(host) / "sys/fs/cgroup" / name / "cpuset.cpus" for host in HOSTS]
        return {file.read_text().strip() if file.exists() else "absent" for file in files}

    def has(self, path: str) -> list[bool]:
        """For each host whether there is such a file."""
        return [os.path.lexists(self.folder(host) / path) for host in HOSTS]

    def files(self) -> Files:
        """All that is on the hosts."""
        found: Files = {}
        for host in HOSTS:
            for path in self.folder(host).rglob("*"):
                if path.is_symlink():
                    found[str(path)] = os.readlink(path)
                elif path.is_file():
                    found[str(path)] = path.read_bytes()
        return found


@claims("README.md", "edge:", "name: edge", FIRST_LOOK, ROLLOUT, ROLLBACK)
@claims("docs/fleet.md", f"{PLAN}     # the plan, and no more", DRIFT)
@claims("docs/maintenance.md", f"{REMOVAL_PLAN}     # what would go back")
def test_the_documented_commands_do_what_is_documented(tmp_path: Path) -> None:
    inventory, profile = example("README.md", "edge:"), example("README.md", "name: edge")
    (tmp_path / "hosts.yml").write_text(inventory)
    (tmp_path / "edge.yml").write_text(profile)
    three = [*HOSTS, "n3.example.com"]
    (tmp_path / "n3.example.com.down").touch()
    (tmp_path / "host_vars").mkdir()
    for host in HOSTS:  # No agent looks at a fake node, and this test takes longer than three of its usual intervals.
        (tmp_path / f"host_vars/{host}.yml").write_text("corral_agent_interval: 3600")
    # Ansible's default, with which a host that does not answer has the message in the README.
    (tmp_path / "host_vars/n3.example.com.yml").write_text("ansible_pipelining: false")
    with playing.Controller(tmp_path, three) as controller:
        story = Story(controller)
        fresh = story.files()

        # A first look: one host of the inventory does not answer.
        done = story.play(LOOK)
        (look,) = commands(example("README.md", FIRST_LOOK))
        assert done.code == 0, done.said
        assert differences(look.output, done.lines_of("Show it")) == []
        assert len(look.output) > 8
        report = json.loads((tmp_path / "corral-drift.json").read_text())
        assert {host: one["verdict"] for host, one in report["hosts"].items()} == dict(
            zip(three, ("not_managed", "not_managed", "unreachable"))
        )
        assert all((tmp_path / f"corral-drift.{kind}").exists() for kind in ("html", "md", "xml"))
        assert re.search(r'"corral_drift_hosts": \[\s*"n3\.example\.com",\s*"n1', done.said), done.said

        # The plan of a rollout names it, and the rollout would end there.
        done = story.play(PLAN, DIFF, FORKS, value="2")
        plan = done.lines_of("Show it")
        assert done.code == 2, done.said
        assert plan[0] == "n1.example.com,n2.example.com: as follows"
        assert "n3.example.com: cannot have it" in plan
        assert plan[-1] == "3 hosts: 2 would change, 1 cannot have the profile"
        above, dummy, dummy = done.said.partition("TASK [Show it]")
        assert "\n-memory hugepages-2Mi node 0 nr_hugepages: 0\n" in above, "each item before and after"
        assert "\n+memory hugepages-2Mi node 0 nr_hugepages: 64\n" in above
        assert story.files() == fresh, "neither of them changed anything"

        # The others get it without that one.
        done = story.play(ROLLOUT, EXPLAIN, LIMIT_OF_THE_README)
        assert done.code == 0, done.said
        (first,) = set(re.findall(r"profile edge \((\w+)\) is unconfirmed", done.said))
        assert story.pages() == [[64, 64], [64, 64]]
        assert (story.cpus("system.slice"), story.cpus("machine.slice")) == ({"0,2,4,6"}, {"1,3,5,7"})
        assert "memory.hugepages[0].count 64 edge.yml" in done.in_one_line, "the origin of each key"
        assert story.has("usr/local/bin/corral") == [True, True]
        assert story.has("var/lib/corral/unconfirmed.json") == [False, False]

        # It is out of the inventory from here on.
        (tmp_path / "hosts.yml").write_text(inventory.replace("[1:3]", "[1:2]"))
        done = story.play(DRIFT)
        assert done.code == 0, done.said
        assert done.lines_of("Show it") == [
            "n1.example.com,n2.example.com: in sync (profile edge, mode enforce)",
            "2 hosts: 2 in sync",
        ]

        # The next profile, and the way back.
        (tmp_path / "edge.yml").write_text(profile.replace("count: 64", "count: 32"))
        done = story.play(ROLLOUT)
        assert done.code == 0, done.said
        assert story.pages() == [[32, 32], [32, 32]]
        done = story.play(ROLLBACK)
        assert done.code == 0, done.said
        assert story.pages() == [[64, 64], [64, 64]]
        done = story.play(ROLLBACK, TO, value=first)
        assert done.code == 0, done.said
        assert story.pages() == [[64, 64], [64, 64]]
        assert done.said.count("changed=0") == 2, "by its hash a second run changes nothing"

        # Removal: what would go back, the agent alone of one host, all of it.
        before = story.files()
        done = story.play(REMOVAL_PLAN)
        assert done.code == 0 and "19 differ (agent)" in done.said, done.said
        assert story.files() == before
        done = story.play(REMOVE, AGENT, LIMIT, value="!n2.example.com")
        assert done.code == 0, done.said
        assert story.has("usr/local/bin/corral") == [False, True]
        assert story.has("etc/corral/profile.json") == [True, True]
        assert story.pages() == [[64, 64], [64, 64]]
        done = story.play(REMOVE)
        assert done.code == 0, done.said
        assert "in sync" not in done.said, "beside what went back"
        assert story.files() == fresh

        assert story.played == COMMANDS | OPTIONS
