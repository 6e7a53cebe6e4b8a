# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The folders and links on the way to a path's target, in the kernel's order (path_resolution(7))."""

from __future__ import annotations

import errno
import typing as t

if t.TYPE_CHECKING:
    from .files import Host

LINK_LIMIT = 40  # MAXSYMLINKS


def steps(host: Host, path: str) -> t.Iterator[tuple[str, t.Optional[str]]]:
    """Yields the path of each folder and link from the root ("") to the target, with a link's text (None: a folder). The last path is the
    real path of the target. Raises OSError (ELOOP) for a circle of links.
    """
    here, left, links = "", path.split("/")[::-1], 0
    yield here, None
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = here.rpartition("/")[0]
            continue
        text = host.link(f"{here}/{name}")
        yield f"{here}/{name}", text
        if text is None:
            here = f"{here}/{name}"
            continue
        links += 1
        if links > LINK_LIMIT:
            raise OSError(errno.ELOOP, "a circle of links", path)
        here = "" if text.startswith("/") else here
        left += text.split("/")[::-1]
    yield here, None
