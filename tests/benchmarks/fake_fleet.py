# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fake nodes as hosts of Ansible: a process that keeps them, and for each an interpreter that sends it the modules."""

from __future__ import annotations

import ast
import contextlib
import io
import multiprocessing
import os
import re
import socket
import sys
import typing as t
from pathlib import Path
from unittest import mock

import controller_plugins
import node
import trees

PYTHON = "/usr/bin/python3"  # of each node
OURS = ("agent", "confirm", "profile", "rollback")
PING = "ping"
# A host's interpreter. Ansible gives it a module as a file, or with pipelining as its input. Other modules than those run in a
# Python of their own.
CLIENT = """
import os, re, socket, sys, tempfile
python, address, host, *words = sys.argv[1:]
if words:
    name = os.path.basename(words[0])[len("AnsiballZ_"):-len(".py")]
    text = open(words[0], encoding="utf-8").read() if name in {served!r} else ""
else:
    text = sys.stdin.read()
    name = "".join(re.findall("^ *module_fqn='.*[.](.*)',$", text, re.MULTILINE))
if name not in {served!r}:
    if text:
        kept = tempfile.TemporaryFile("w+", encoding="utf-8")
        kept.write(text)
        kept.seek(0)
        os.dup2(kept.fileno(), 0)
    os.execv(python, [python, *words])
with socket.socket(socket.AF_UNIX) as end:
    end.connect(address)
    end.sendall((host + "\\n" + name + "\\n" + text).encode())
    end.shutdown(socket.SHUT_WR)
    with end.makefile("r", encoding="utf-8") as answer:
        code = int(answer.readline())
        sys.stdout.write(answer.read())
sys.exit(code)
"""


class FakeFleet:
    """Fake nodes in a folder, one for each of these names of hosts, as long as this is entered.

    ``pages`` has hosts whose NUMA node 1 gives no more than so many hugepages of 2 MiB.
    """

    def __init__(self, folder: Path, hosts: t.Sequence[str], pages: t.Mapping[str, int] | None = None) -> None:
        self.folder = folder
        self.pages = pages or {}
        self.address = str(folder / "socket")
        self.hosts = hosts
        self.programs = folder / "bin"
        self.process: multiprocessing.process.BaseProcess | None = None

    def __enter__(self) -> FakeFleet:
        self.programs.mkdir()
        write_program(self.programs / "systemctl", "exit 0")  # no unit has failed
        client = self.folder / "client.py"
        client.write_text(CLIENT.format(served=(*OURS, PING)), encoding="utf-8")
        for host in self.hosts:
            python = sys.executable
            words = f'exec {python} -SE {client} {python} {self.address} {host} "$@"'
            write_program(self.programs / f"python-{host}", words)
        context = multiprocessing.get_context("fork")
        ready = context.Event()
        self.process = context.Process(
            target=serve, args=(self.folder, self.hosts, self.pages, self.address, ready), daemon=True
        )
        self.process.start()
        if not ready.wait(600):
            raise SystemExit("the fake nodes did not come up")
        return self

    def __exit__(self, *dummy: object) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.join()

    def inventory(self) -> dict[str, dict[str, t.Any]]:
        """The hosts with their variables."""
        return {
            host: {
                "ansible_connection": "local",
                "ansible_become": False,
                "ansible_python_interpreter": str(self.programs / f"python-{host}"),
                "ansible_remote_tmp": str(self.folder / "remote" / host),
            }
            for host in self.hosts
        }

    def not_rolled_out(self) -> list[str]:
        """The hosts that have no profile."""
        return [host for host in self.hosts if not (self.folder / host / "etc/corral/profile.json").exists()]


def write_program(path: Path, text: str) -> None:
    """A program of a line."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def serve(folder: Path, hosts: t.Sequence[str], pages: t.Mapping[str, int], address: str, ready: t.Any) -> None:
    """Make the nodes, and run the modules that come for them, one after the other."""
    template = folder / "machine"
    trees.build(template, node.MACHINE)
    nodes = {host: node.Node(folder / host, template) for host in hosts}
    for host, one in nodes.items():
        one.put(PYTHON, "")
        if host in pages:
            one.room[1, 2048] = pages[host]
    core = controller_plugins.load("module_utils._module")
    apply_step = controller_plugins.load("module_utils._core.host.plan.apply_step")
    quick: list[contextlib.AbstractContextManager[object]] = [
        mock.patch.object(os, "fsync"),
        mock.patch.object(apply_step, "READ_BACK_SECONDS", 0.0),
    ]
    with socket.socket(socket.AF_UNIX) as server, contextlib.ExitStack() as stack:
        for patch in quick:
            stack.enter_context(patch)
        server.bind(address)
        server.listen(1000)
        ready.set()
        while True:
            end, dummy = server.accept()
            with end, end.makefile("rw", encoding="utf-8") as stream:
                host, name, text = stream.read().split("\n", 2)
                code, said = answer(core, nodes[host], name, text)
                stream.write(f"{code}\n{said}")


def answer(core: t.Any, fake: node.Node, name: str, payload: str) -> tuple[int, str]:
    """Run a module on a node, as Ansible sent it: its exit code, and what it prints."""
    from ansible.module_utils import basic
    from ansible.module_utils.common import warnings
    from ansible.modules import ping

    (text,) = re.findall(r"^ *params=(.*),$", payload, re.MULTILINE)
    for kept in ("_global_warnings", "_global_deprecations"):  # a module's process has none at its start
        getattr(warnings, kept).clear()
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        mock.patch.multiple(
            basic, _ANSIBLE_ARGS=ast.literal_eval(text).encode(), _ANSIBLE_PROFILE="legacy", create=True
        ),
        mock.patch.object(core, "Host", fake.host),
        mock.patch.object(sys, "executable", PYTHON),
    ):
        try:
            (ping if name == PING else controller_plugins.load(f"modules.{name}")).main()
        except SystemExit as ended:
            return int(ended.code or 0), said.getvalue()
    return 1, said.getvalue()
