# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's commands."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import sys
import typing as t

import lab_base
import lab_compiled
import lab_image
import lab_machine
import lab_nodes
import lab_packages
import lab_qemu
from lab_base import LabError

UNREACHABLE = {"ansible_host": "127.0.0.1", "ansible_port": 1}  # nothing listens there


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="lab", description="Virtual nodes with NUMA, SMT, systemd and cgroups.")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text)

    command("packages", "install the Debian packages that the lab runs on, or name them")
    image = command("image", "make the image of a node")
    image.add_argument("--release", default="bookworm", choices=lab_image.NAMES)
    start = command("up", "start a node and wait until it answers")
    start.add_argument("name")
    start.add_argument("--topology", default=lab_machine.DEFAULT, help=f"one of {', '.join(lab_machine.names())}")
    start.add_argument("--release", default="bookworm", choices=lab_image.NAMES)
    start.add_argument("--cgroup", default="v2", choices=lab_machine.HIERARCHIES, help="v1 is the legacy hierarchy")
    start.add_argument("--fresh", action="store_true", help="boot it, rather than restore a saved state")
    stop = command("down", "end nodes and remove all of them")
    stop.add_argument("names", nargs="*", metavar="name")
    stop.add_argument("--all", action="store_true")
    again = command("reboot", "reboot a node and wait until it answers")
    again.add_argument("name")
    again.add_argument("--append", default="", metavar="WORDS", help="kernel arguments that it has from then on")
    command("cut", "cut a node's power, and wait until it has booted again").add_argument("name")
    for name, text in (("unplug", "take a PCI device out of a node"), ("plug", "put it back")):
        slot = command(name, text)
        slot.add_argument("name")
        slot.add_argument("number", type=int, help="its place in the topology's list of devices, from 0 on")
    command("list", "the nodes that run").add_argument("--json", action="store_true")
    reach = command("ssh", "a shell on a node, or a command there")
    reach.add_argument("name")
    reach.add_argument("words", nargs=argparse.REMAINDER, metavar="command")
    hosts = command("inventory", "Ansible's inventory of nodes, as YAML that is JSON")
    hosts.add_argument("names", nargs="*", metavar="name")
    hosts.add_argument("--output", metavar="FILE", help="write it to a file (*.yml) rather than to stdout")
    hosts.add_argument("--script", action="store_true", help="as an inventory script prints it")
    command("console", "the end of a node's console").add_argument("name")
    command("prune", "remove what dead nodes left, all images, saved states and compiled files")
    return top


def chosen(names: t.Sequence[str], *, only_running: bool = False) -> list[lab_nodes.Node]:
    """The nodes of these names, which run."""
    found = [lab_nodes.node(name) for name in names]
    for one in found:
        if not one.ready() and not only_running:
            raise LabError(f"{one.name}: does not run: lab up {one.name} starts it")
    return [one for one in found if one.ready()]


def do(args: argparse.Namespace) -> int:
    """Run one command."""
    if args.command == "packages":
        lab_packages.ensure()
    elif args.command == "image":
        print(lab_image.ensure(args.release).folder)
    elif args.command == "up":
        one = lab_nodes.up(args.name, args.topology, args.release, args.cgroup, fresh=args.fresh)
        lab_base.say(f"{one.name} answers; reach it with: lab/lab ssh {one.name}")
    elif args.command == "down":
        if not args.names and not args.all:
            raise LabError("name the nodes to end, or say --all")
        lab_nodes.down(lab_nodes.known() if args.all else [lab_nodes.node(name) for name in args.names])
    elif args.command == "reboot":
        lab_nodes.reboot(chosen([args.name])[0], args.append)
    elif args.command == "cut":
        one = chosen([args.name])[0]
        lab_nodes.cut_power(one)
        lab_nodes.booted(one)
        lab_nodes.ssh(one, lab_compiled.MOUNT)
    elif args.command == "unplug":
        lab_nodes.unplug(chosen([args.name])[0], args.number)
    elif args.command == "plug":
        lab_nodes.plug(chosen([args.name])[0], args.number)
    elif args.command == "list":
        rows = [
            {"name": one.name, "kind": one.kind(), "port": one.port(), "pid": one.pid()} for one in lab_nodes.nodes()
        ]
        if args.json:
            print(json.dumps(rows))
        for row in [] if args.json else rows:
            print(f"{row['name']:<24} {row['kind']:<28} port {row['port']}")
    elif args.command == "ssh":
        one = chosen([args.name])[0]
        words = args.words[1:] if args.words[:1] == ["--"] else args.words
        options = lab_nodes.ssh_words()
        os.execvp("ssh", ["ssh", *options, "-p", str(one.port()), "root@127.0.0.1", *words])  # noqa: S606
    elif args.command == "inventory":
        hosts = lab_nodes.host_variables(chosen(args.names, only_running=args.script))
        if args.script:  # on no host at all every play would end well
            hosts = {**{name: dict(UNREACHABLE) for name in args.names}, **hosts}
        script = {"all": {"hosts": list(hosts)}, "_meta": {"hostvars": hosts}}
        text = json.dumps(script if args.script else {"all": {"hosts": hosts}}, indent=2) + "\n"
        if args.output:
            pathlib.Path(args.output).write_text(text)
        else:
            sys.stdout.write(text)
    elif args.command == "console":
        one = lab_nodes.node(args.name)
        if not one.folder.exists():
            raise LabError(f"{one.name}: does not run")
        for name in ("console-before.log", "console.log"):  # before its last reboot, and since
            if (one.folder / name).exists():
                print(f"{name}:\n{lab_nodes.tail(one.folder / name, 40)}")
    elif args.command == "prune":
        lab_nodes.nodes()
        lab_nodes.prune()
        lab_image.prune(lab_qemu.NAME)
        lab_compiled.prune()
    return 0


def main() -> int:
    """Entry point; a signal ends the lab by way of its clean-up."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda which, frame: sys.exit(128 + which))
    args = parser().parse_args()
    try:
        return do(args)
    except (LabError, OSError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        lab_base.leave()
