# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The command line: the commands, their options, and running a command on this node or on a recorded tree."""

from __future__ import annotations

import argparse
import sys
import typing as t

from ..constants import ERROR, IN_SYNC, VERSION
from ..host.files import Host

Handler = t.Callable[[Host, argparse.Namespace], int]


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="corral", description="Node resource management: pools, hugepages, limits.")
    top.exit_on_error = True
    top.add_argument("--version", action="version", version=f"corral {VERSION}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    forms = {}  # by command: the options for the form of its output, which exclude one another

    def command(name: str, text: str, *, tree: bool = False, profiles: bool = False) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        forms[name] = sub.add_mutually_exclusive_group()
        forms[name].add_argument("--json", action="store_true", help="print JSON instead of a table")
        if tree:
            sub.add_argument("--root", metavar="TREE", help="a recorded machine: a folder or a snapshot (tar)")
        if profiles:
            sub.add_argument("--profile", metavar="FILE", help="a profile (YAML or JSON) instead of the declared one")
        return sub

    seen = command("status", "what the last tick saw: pools, drift, last change")
    forms["status"].add_argument(
        "--html", action="store_true", help="print a page for a browser, with a map of the CPUs as they are"
    )
    seen.add_argument("--tenants", action="store_true", help="the quotas of tenants as they are now: used and hard")
    for name, text in (
        ("drift", "check now what differs from the profile"),
        ("plan", "what would be changed, and why"),
    ):
        sub = command(name, text, tree=True, profiles=True)
        sub.add_argument("--explain", action="store_true", help="also each key's origin, and its effect on this node")
    command("topology", "what the machine is made of", tree=True)
    command("pools", "the pools of CPUs that the profile gives this machine", tree=True, profiles=True)
    for name in ("topology", "pools"):
        forms[name].add_argument(
            "--svg", action="store_true", help="print a drawing: sockets, NUMA nodes, caches, cores, threads"
        )
    had = command("devices", "the devices of each resource that the profile declares, and who has them", profiles=True)
    either = had.add_mutually_exclusive_group()
    either.add_argument("--check", action="store_true", help="first run the profile's commands for their health again")
    either.add_argument(
        "--kubelet", action="store_true", help="instead, the devices that the node's kubelet has given to containers"
    )
    had.add_argument("--tick", action="store_true", help=argparse.SUPPRESS)  # for corral-device-checks.service
    shown = command("profile", "the declared profile, or one that describes the node as it is", tree=True)
    shown.add_argument("--from-node", action="store_true", help="print a profile that describes this node as it is")
    shown.add_argument("--name", metavar="NAME", help="with --from-node: what to call it (default: the host's name)")
    now = command("reconcile", "apply the declared profile now: correct what differs")
    of_pods = command(
        "kubelet",
        "the kubelet's configuration in force, its state files, and assignments that leak or overlap",
        tree=True,
    )
    of_pods.add_argument(
        "--mend-shared",
        action="store_true",
        help="first give containers on shared CPUs the kubelet's shared CPUs again",
    )
    save = command("snapshot", "record what Corral reads of this machine in a tar", tree=True)
    save.add_argument(
        "-o", "--output", metavar="FILE", help="default: corral-HOST.tar.gz here; a regular file there is replaced"
    )
    pair = command(
        "diff", "what differs between two machines, or two JSON files of Corral's; exit code 2 if anything does"
    )
    for word, text in (("before", "a snapshot, the root of a tree (/ is this machine), or JSON"), ("after", "another")):
        pair.add_argument(word, metavar=word.upper(), help=text)
    back = command("rollback", "go back to a profile applied before this one")
    back.add_argument(
        "--to", metavar="N|HASH", default="1", help="how many profiles back, or the hash of one kept (corral history)"
    )
    command("history", "the profile in force and those applied before it")
    for sub in (now, back):
        sub.add_argument(
            "--force",
            action="store_true",
            help="also on a paused node, and also with a profile that went back unconfirmed, or goes back now",
        )
        sub.add_argument(
            "--confirm-timeout",
            metavar="DURATION",
            default="0s",
            help="go back unless corral confirm comes in time: 120s, 10m (default: 0s, never)",
        )
    kept = command("confirm", "confirm the unconfirmed profile, so that the node does not go back to the one before")
    kept.add_argument("hash", metavar="HASH", nargs="?", default="", help="keep no other profile than this one")
    kept.add_argument("--tick", action="store_true", help=argparse.SUPPRESS)  # for corral-confirm.service
    why = command("explain", "why a workload has what it has, or was refused, and what would help")
    why.add_argument("name", metavar="WORKLOAD")
    let_in = command(
        "admit", "grant a workload its resources: a declared one for its next start, or another one until its release"
    )
    let_in.add_argument("name", metavar="WORKLOAD")
    let_in.add_argument("--unit", metavar="UNIT", help="admit a workload that the profile does not declare: its unit")
    let_in.add_argument("--container", metavar="NAME", help="or its container")
    let_in.add_argument("--requests", metavar="LIST", default="", help="its requests: cpu=4,memory=2Gi")
    let_in.add_argument("--limits", metavar="LIST", default="", help="its limits; a missing request equals its limit")
    let_in.add_argument(
        "--hold", choices=("declared", "running"), default="declared", help="until its release, or its stop"
    )
    let_in.add_argument("--priority", metavar="NAME", default="", help="its priority, as quotas of tenants know it")
    let_in.add_argument("--dry-run", action="store_true", help="show the result, and change nothing")
    let_go = command("release", "take back what a workload was given at run time")
    let_go.add_argument("name", metavar="WORKLOAD")
    collect = command("gc", "collect images and dead containers now, as the profile declares")
    collect.add_argument("--dry-run", action="store_true", help="show what would be removed and what that would free")
    collect.add_argument("--tick", action="store_true", help=argparse.SUPPRESS)  # for corral-gc.service
    hold = command("pause", "maintenance: check and report, change nothing; ends by itself")
    hold.add_argument("--for", dest="duration", metavar="TIME", required=True, help="how long: 90s, 15m, 1h, 2d")
    hold.add_argument("--reason", metavar="TEXT", default="", help="the reason, shown with the pause")
    command("resume", "end the pause now")
    for name, text in (
        ("man", "the manual page: corral man | man -l -"),
        ("completion", "a script that completes corral's words in bash, and in zsh after bashcompinit"),
    ):
        commands.add_parser(name, help=text, description=text)
    return top


def do_man(dummy_host: Host, dummy_args: argparse.Namespace) -> int:
    """corral man"""
    from . import parser_pages

    sys.stdout.write(parser_pages.man_page(parser(), VERSION))
    return IN_SYNC


def do_completion(dummy_host: Host, dummy_args: argparse.Namespace) -> int:
    """corral completion"""
    from . import parser_pages

    sys.stdout.write(parser_pages.bash_completion(parser()))
    return IN_SYNC


def run(words: t.Sequence[str]) -> int:
    """Run one command. Wrong usage ends with exit code 1, like other errors."""
    try:
        args = parser().parse_args(list(words))
    except SystemExit as stop:
        return IN_SYNC if stop.code in (None, 0) else ERROR
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # A character that the locale lacks must not end in a traceback.
    root = getattr(args, "root", None)
    if not root:
        return handler(args.command)(Host("/"), args)
    from ..host.snapshot import recorded_tree

    with recorded_tree.opened(root) as host:
        return handler(args.command)(host, args)


def handler(command: str) -> Handler:
    """The function of a command. This loads only the command's module: the timer of garbage collection runs a command each minute."""
    if command in ("man", "completion"):
        return do_man if command == "man" else do_completion
    if command == "gc":
        from . import gc_command

        return gc_command.do_gc
    if command == "status":
        from . import status_command

        return status_command.do_status
    if command == "confirm":
        from . import confirm_command

        return confirm_command.do_confirm
    if command == "devices":
        from . import devices_command

        return devices_command.do_devices
    if command == "kubelet":
        from . import kubelet_command

        return kubelet_command.do_kubelet
    if command == "diff":
        from . import diff_command

        return diff_command.do_diff
    if command in ("explain", "admit", "release"):
        from . import workload_commands

        return t.cast("Handler", getattr(workload_commands, f"do_{command}"))
    from . import node_commands

    return t.cast("Handler", getattr(node_commands, f"do_{command}"))
