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
# Each command is a child of one process. All of them send the same modules, which Ansible then packs only once: a module of
# this collection costs it two seconds. It forks for each task of a host, and where nothing collects garbage these share their memory.
COMMANDS = """
import gc, json, os, sys
gc.disable()
from ansible.cli import playbook
gc.freeze()
for line in sys.stdin:
    words, output = json.loads(line)
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        sys.argv = ["ansible-playbook", *words]
        code = 250
        try:
            playbook.main()
        except SystemExit as ended:
            code = ended.code
        finally:
            sys.stdout.flush()
            os._exit(code or 0)
    print(os.WEXITSTATUS(os.waitpid(child, 0)[1]), flush=True)
"""
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
    said: str

    @property
    def in_one_line(self) -> str:
        """What it said, each space as one."""
        return " ".join(self.said.split())

    def lines_of(self, task: str) -> list[str]:
        """The lines that a task of the first host shows: Ansible writes them as a list in JSON."""
        shown = self.said.partition(f"TASK [{task}] ***")[2].partition(" => ")[2]
        return t.cast("list[str]", json.JSONDecoder().raw_decode(shown)[0]["msg"])


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
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMANDS],
            cwd=self.folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self

    def __exit__(self, *dummy: object) -> None:
        self.process.communicate()
        self.fleet.__exit__()

    def play(self, *words: str) -> Played:
        """Run ansible-playbook with these words to its end."""
        output = self.folder / "output"
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([words, str(output)]) + "\n")
        self.process.stdin.flush()
        return Played(int(self.process.stdout.readline()), output.read_text(encoding="utf-8"))
