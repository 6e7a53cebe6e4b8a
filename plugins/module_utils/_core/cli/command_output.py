# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The output of a command, and the profile that a command uses."""

from __future__ import annotations

import argparse
import json
import os
import sys
import typing as t

from ..constants import SCHEMA
from ..host import state
from ..host.files import Host
from ..model.profile import profile
from ..model.profile.profile import Profile
from ..model.values.errors import refusal
from ..pipeline import declared_profile
from . import profile_file


def show(args: argparse.Namespace, data: t.Mapping[str, t.Any], lines: t.Iterable[str], *, schema: bool = True) -> None:
    """Print ``data`` as JSON, or ``lines``. With ``schema`` the JSON has the version of its form; a profile has a version of its own."""
    if args.json:
        whole = {"schema": SCHEMA, **data} if schema else data
        sys.stdout.write(json.dumps(whole, indent=2, sort_keys=True) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)


def coloured() -> bool:
    """Whether CPU maps have colours: on a terminal with colours, unless NO_COLOR (https://no-color.org) is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def the_profile(host: Host, path: t.Optional[str]) -> Profile:
    """The profile in the file at ``path``; if ``path`` is None, the node's declared profile."""
    if path is None:
        declared = declared_profile.in_force(host)
        if declared is None:
            raise refusal("no profile is declared here: name one with --profile", path=state.DECLARED)
        return declared
    return profile.parse(read_file(path))


def read_file(path: str) -> t.Any:
    """The data of a profile's file, not yet checked by the profile's schema."""
    return profile_file.load(profile_file.read(path), path)
