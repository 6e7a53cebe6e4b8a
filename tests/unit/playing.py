# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of ansible-playbook with this collection, on the fake nodes of tests/benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from shared_data import REPOSITORY

BENCHMARKS = REPOSITORY / "tests" / "benchmarks"
# Ansible's own connection, to nodes that are folders of this machine.
SSH = """
while [ $# -gt 2 ]; do shift; done
[ -d "{folder}/$1" ] || exit 0
if [ -e "{folder}/$1.down" ]; then
  echo "ssh: connect to host $1 port 22: Connection timed out" >&2
  exit 255
fi
exec /bin/sh -c "$2"
"""


class Played(t.NamedTuple):
    """What became of a command."""

    code: int
    output: str
    errors: str

    @property
    def said(self) -> str:
        """What it printed."""
        return self.output + self.errors

    @property
    def in_one_line(self) -> str:
        """What it said, each space as one."""
        return " ".join(self.said.split())

    def lines_of(self, task: str) -> list[str]:
        """The lines that a task of the first host shows: Ansible writes them as a list in JSON."""
        shown = self.said.partition(f"TASK [{task}] ***")[2].partition(" => ")[2]
        return t.cast("list[str]", json.JSONDecoder().raw_decode(shown)[0]["msg"])


class Commands:
    """Runs commands of ansible-playbook with this environment, each task of them in a process of its own or in the command's.

    Ansible reads most of its environment when it is imported, so commands with another one are another object's. It reads
    ``ansible.cfg`` of the folder where it is started. ``before`` is a command that starts this one.
    """

    def __init__(
        self,
        environment: t.Mapping[str, str],
        *,
        forks: bool = False,
        before: t.Sequence[str] = (),
        folder: Path | None = None,
    ) -> None:
        words = [
            *before,
            sys.executable,
            str(Path(__file__).with_name("ansible_commands.py")),
            *(["forks"] if forks else []),
        ]
        self.process = subprocess.Popen(
            words, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *dummy: object) -> None:
        self.process.communicate()

    def play(self, folder: Path, *words: str, **more: str) -> Played:
        """Run ansible-playbook with these words in a folder to its end, with more variables of the environment."""
        files = [folder / "output", folder / "errors"]
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([words, str(folder), more, *map(str, files)]) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        return Played(code, *(file.read_text(encoding="utf-8") for file in files))


class Controller:
    """Runs ansible-playbook in a folder, on the fake nodes with these names, as long as this is entered."""

    def __init__(self, folder: Path, hosts: t.Sequence[str], pages: t.Mapping[str, int] | None = None) -> None:
        pytest.importorskip("ansible")
        if not BENCHMARKS.is_dir():
            pytest.skip("the benchmarks are not in the built collection")
        sys.path.append(str(BENCHMARKS))
        import fake_fleet

        self.folder = folder
        self.fleet = fake_fleet.FakeFleet(folder, hosts, pages)

    def __enter__(self) -> Controller:
        import fake_fleet

        collection = self.folder / "collections/ansible_collections/corral"
        collection.mkdir(parents=True)
        (collection / "node").symlink_to(REPOSITORY)
        self.fleet.__enter__()
        fake_fleet.write_program(self.fleet.programs / "ssh", SSH.format(folder=self.folder))
        (self.folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
        (self.folder / "group_vars").mkdir()
        of_all = {"ansible_python_interpreter": f"{self.fleet.programs}/python-{{{{ inventory_hostname }}}}"}
        (self.folder / "group_vars/all.yml").write_text(json.dumps(of_all), encoding="utf-8")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.folder / "home"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_SHOW_CUSTOM_STATS": "1",
            "PATH": f"{self.fleet.programs}:{os.environ['PATH']}",
        }
        self.commands = Commands(environment)
        return self

    def __exit__(self, *dummy: object) -> None:
        self.commands.__exit__()
        self.fleet.__exit__()

    def play(self, *words: str) -> Played:
        """Run ansible-playbook with these words to its end."""
        return self.commands.play(self.folder, *words)
