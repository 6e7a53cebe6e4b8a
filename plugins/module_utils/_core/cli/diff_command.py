# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""corral diff: the differences between two machines, or between two files that Corral wrote."""

from __future__ import annotations

import argparse
import json
import os
import typing as t

from ..constants import DIFFERS, IN_SYNC
from ..host import user_file
from ..host.files import Host
from ..host.snapshot import recorded_tree
from ..host.topology import sysfs
from ..model.profile import profile
from ..model.topology import topology
from ..model.values.errors import CorralError, refusal
from ..model.values.printable_text import printable
from ..pipeline import declared_profile
from ..reports import data_diff
from . import command_output

MOST_JSON = 64 << 20  # bytes; the parsed values need several times this memory
MACHINE = "a machine"


def do_diff(dummy_host: Host, args: argparse.Namespace) -> int:
    """corral diff"""
    sides = [side(path) for path in (args.before, args.after)]
    kinds = [kind for kind, dummy in sides]
    if kinds[0] != kinds[1]:
        raise refusal(
            f"is {kinds[1]}, and {args.before} is {kinds[0]}: compare two machines or two JSON files",
            path="AFTER", value=args.after,
        )  # fmt: skip
    for path, (kind, data) in zip((args.before, args.after), sides):
        # Without this check, two folders without a machine's files would count as equal.
        if kind == MACHINE and not data["topology"]["online"]:
            raise refusal("shows no CPU: give the folder of a machine, which holds proc, sys and etc", path=path)
    differences = data_diff.differences(sides[0][1], sides[1][1])
    names = printable(args.before), printable(args.after)
    output = {"before": names[0], "after": names[1], "differences": [row._asdict() for row in differences]}
    command_output.show(args, output, data_diff.lines(differences) or ["nothing differs"])
    return DIFFERS if differences else IN_SYNC


def side(path: str) -> tuple[str, t.Any]:
    """The kind of the input at ``path`` ("a machine" or "JSON"), and its data. Raises CorralError."""
    data = None if os.path.isdir(path) else json_of(path)
    if data is not None:
        return "JSON", data
    with recorded_tree.opened(path) as host:
        return MACHINE, machine(host)


def json_of(path: str) -> t.Any:
    """The data of a JSON file; None if the file has no JSON. Raises CorralError if the file cannot be read."""
    try:
        data = user_file.read(path, MOST_JSON)
        if len(data) <= MOST_JSON:
            return json.loads(data.decode("utf-8"))
        if data.lstrip()[:1] in (b"{", b"["):
            raise refusal(f"is larger than {MOST_JSON >> 20} MiB", path=path)
        return None
    except OSError as error:
        raise refusal(f"cannot be read: {error.strerror}", path=path) from None
    except (ValueError, RecursionError):
        return None


def machine(host: Host) -> dict[str, t.Any]:
    """A machine as plain data: its topology, and its declared profile (or why this profile cannot be read)."""
    try:
        declared = declared_profile.in_force(host)
        shown: t.Any = None if declared is None else profile.to_data(declared)
    except CorralError as error:
        shown = str(error)
    return {"topology": topology.to_dict(sysfs.discover(host)), "profile": shown}
