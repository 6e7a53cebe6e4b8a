# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What a look that found the node in sync had read: as long as all of it reads the same, the node is in sync.

A look is a function of the answers that Host gave it, of the program and of the clock. The next tick asks the same
questions again, without loading the pipeline, and where each answer is the same it publishes the same status with the
new time. A different answer, another program or Python, and the first tick of every ten minutes take the look in full.
"""

from __future__ import annotations

import marshal
import os
import sys
import zlib

from .lock import RUN

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

    from .files import Host

# Questions, answers and published texts, as Python keeps its compiled files, behind a checksum; none but this Python
# reads it.
KEPT = f"{RUN}/inputs"
# Bounds what rests on the things that are not asked again: the clock, and most of the topology (sysfs.watched).
FULL_LOOK_SECONDS = 600
MARSHAL_VERSION = 2  # The same data give the same bytes.
COMPRESSION = 1  # The same paths again and again: megabytes become a tenth, which costs less than to read them.


def keep(host: Host, published: t.Sequence[str], now: int) -> None:
    """Keep what this look has been told since the host records; it found the node in sync, and changed nothing.

    ``published`` are the files that tell of it: the one with the time ``now`` in it is rewritten each tick.
    """
    told, host.told = host.told, None
    if told is None or host.commands:
        return
    asked = [(*question, answer) for question, answer in told.items()]
    texts = []
    for path in published:
        text = host.read(path, follow=False) or ""
        if text.count(str(now)) > 1:
            return  # Something else is of this second as well, and must not move with the time of the look.
        if str(now) in text:
            texts.append((path, text.split(str(now))))
        else:
            asked.append(("read_bytes", path, False, text.encode()))
    data = zlib.compress(marshal.dumps((conditions(), program(), asked, texts), MARSHAL_VERSION), COMPRESSION)
    text = f"{zlib.crc32(data):08x}{data.hex()}"
    if host.read(KEPT, follow=False) != text:
        try:
            host.write_file(KEPT, text, 0o600)
        except OSError:
            pass  # The next tick looks in full.


def same(host: Host, agree: t.Callable[[int, int], bool] = lambda last, now: True) -> bool:
    """Whether all is as it was kept; then the status is published with the new time.

    ``agree`` is asked before that, with the time of the last status and the new one.
    """
    last = 0
    try:
        kept = host.read(KEPT, follow=False) or ""
        data = bytes.fromhex(kept[8:])
        if kept[:8] != f"{zlib.crc32(data):08x}":
            return False
        known, files, asked, texts = marshal.loads(zlib.decompress(data))  # noqa: S302 - no other than keep() wrote it
        if known != conditions() or [stamp(file) for file, *dummy in files] != files:
            return False
        now = int(host.now())
        for path, parts in texts:
            text = host.read(path, follow=False) or ""
            before = text[len(parts[0]) :].partition(parts[1])[0]
            if text != before.join(parts) or int(before) // FULL_LOOK_SECONDS != now // FULL_LOOK_SECONDS:
                return False
            last = int(before)
        if any(getattr(host, method)(*words) != answer for method, *words, answer in asked):
            return False
        if not agree(last, now):
            return False
        for path, parts in texts:
            host.write_file(path, str(now).join(parts))
    except (OSError, ValueError, zlib.error):
        return False
    return True


def conditions() -> list[str]:
    """What a look depends on beside files: this Python, and which unit started it."""
    return [sys.version, os.environ.get("TRIGGER_UNIT", "")]


def program() -> list[tuple[str, int, int]]:
    """The files of the program that looked."""
    package = __name__.rpartition("host.")[0]
    files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith(package)]
    return [stamp(file) for file in files if file]


def stamp(file: str) -> tuple[str, int, int]:
    """A file, and what changes when it is written."""
    status = os.stat(file)
    return file, status.st_mtime_ns, status.st_size
