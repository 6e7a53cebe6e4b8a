# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of Corral that fails at each of its writes and commands, each time on a copy of the node."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import typing as t

from _core.model.values.errors import CorralError
from example_counts import in_turn
from node import Killed, Node, NodeHost

Act = t.Callable[[NodeHost], object]
NUMBERS = itertools.count()


def copy_of(fake: Node) -> Node:
    return fake.clone(fake.root.with_name(f"{fake.root.name}-copy{next(NUMBERS)}"))


def tried(fake: Node, act: Act) -> NodeHost:
    """The host on which it was done without a fault, on a copy of the node."""
    host = copy_of(fake).host()
    act(host)
    return host


def number_of(fake: Node, act: Act, text: str) -> int:
    """Which of its writes and commands is the first one with this text."""
    return next(number for number, one in enumerate(tried(fake, act).acts, 1) if text in one)


def each(
    fake: Node,
    act: Act,
    fail: str,
    kinds: t.Sequence[str] = (),
    host: t.Callable[..., NodeHost] = Node.host,
    share: tuple[str, t.Sequence[str]] | None = None,
) -> t.Iterator[tuple[Node, str]]:
    """The copies on which it failed in this way (see NodeHost), and at what; of several ``kinds`` of faults each gets its share.

    ``share`` is a case of several, each of which gets its share instead. ``host`` makes the host of a copy. A run that is
    killed ends by that alone; another fault may be told as an error.
    """
    acts = tried(fake, act).acts
    errors = (Killed,) if fail in ("killed", "torn") else (CorralError, OSError)
    for number in in_turn(len(acts), *(share or (fail, kinds or (fail,)))):
        copy = copy_of(fake)
        failing = host(copy, fail, number)
        with contextlib.suppress(*errors):
            act(failing)
        assert len(failing.acts) >= number, "it was to come to its fault"
        yield copy, f"{number} {acts[number - 1]}"
        shutil.rmtree(copy.root)
