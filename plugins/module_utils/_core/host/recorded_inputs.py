# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The inputs of a tick that found the node in sync: while all of them read the same, the node is in sync.

The result of a full tick follows from the answers that Host gave it, of the program and of the clock. The next tick asks the same
questions again, without loading the pipeline, and where each answer is the same it publishes the same status with the
new time. A different answer, another program or Python, and the first tick of every ten minutes take the look in full.

Files of the kernel (cgroups, /proc, /sys) are read again, each with one read. For other files and folders it is
enough that the kernel shows the same inode with the same times: no write or rename leaves them as they were, unless it
follows another one within a step of the kernel's clock. So what was younger than STEADY_SECONDS is read again as well.

Of thousands of files the paths are kept as one text, the bytes as one, and the times as one number: to load each of them and
compare it would take as long as to read it.
"""

from __future__ import annotations

import gc
import marshal
import os
import stat
import sys
import time
import zlib

from .files import ONE_READ, READ_FLAGS, Unreadable
from .lock import RUN

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

    from .files import Host

    Stamp = tuple[int, ...]  # device, inode, size, time of the content, time of the inode (ns)
    Read = tuple[str, bytes, list[int]]  # paths, the bytes of all, and how many each has
    Reads = tuple[Read, Read]  # paths below CGROUPS, without that, and others
    Rows = list[tuple[tuple[t.Any, ...], list[tuple[str, t.Any]]]]  # by method and words: path and answer
    # A control group, the usual score in it, and what is in it: oom_score.groups() by names below CGROUPS, and cgroup.events
    # where it was asked for.
    Scores = list[tuple[str, str, list[tuple[str, int, bytes]]]]
    # Stamps; bytes; scores; questions; each stamp and the questions that stamps spare, packed.
    Facts = tuple[tuple[str, int], Reads, Scores, Rows, bytes]

# Questions, answers and published texts, as Python keeps its compiled files, behind a checksum; none but this Python
# reads it.
KEPT = f"{RUN}/inputs"
# Bounds what rests on the things that are not asked again: the clock, and most of the topology (sysfs.watched).
FULL_TICK_SECONDS = 600
METRICS_SECONDS = 60  # the metrics are written in every minute of the clock
STEADY_SECONDS = 2  # many times the step of the kernel's clock
FOLDERS = ("names", "names_like", "among", "folders")  # questions about the names in a folder
# The kernel makes these files as they are read: they change without their time changing (kernfs, procfs).
MADE_BY_KERNEL = ("/proc/", "/sys/")
MARSHAL_VERSION = 2  # The same data give the same bytes.
BETWEEN = "\0"  # paths: none has this character
CGROUPS = "/sys/fs/cgroup/"  # Most paths are below it, and are looked up from there: a tenth less per file.
COMPRESSION = 1  # The same paths again and again: megabytes become a tenth, which costs less than to read them.


def moment(now: int, since_boot: int) -> str:
    """When the node was looked at, as the status has it: by the clock, and in seconds since the boot."""
    return f'"time": {now}, "time_since_boot": {since_boot}'


def keep(host: Host, published: t.Sequence[str], now: str) -> None:
    """Keep the answers that the host has recorded for this tick, which found the node in sync and changed nothing.

    ``published`` are the files that tell of it: the one with the moment ``now`` in it is rewritten each tick.
    """
    recorded, host.recorded = host.recorded, None
    if recorded is None or host.commands:
        return
    asked = dict(recorded)
    texts = []
    for path in published:
        text = host.read(path, follow=False) or ""
        if now in text:
            texts.append((path, text.split(now)))
        else:
            asked["read_bytes", path, False] = text.encode()
    facts = facts_of(host, asked)
    if facts is None:
        return
    data = zlib.compress(marshal.dumps((conditions(), program(), facts, texts), MARSHAL_VERSION), COMPRESSION)
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
    collects = gc.isenabled()
    gc.disable()  # Thousands of objects, and none of them in a cycle: to look for one takes as long as to read 300 files.
    try:
        kept = host.read(KEPT, follow=False) or ""
        data = bytes.fromhex(kept[8:])
        if kept[:8] != f"{zlib.crc32(data):08x}":
            return False
        known, files, facts, texts = marshal.loads(zlib.decompress(data))  # noqa: S302 - no other than keep() wrote it
        if known != conditions() or [stamp(file) for file, *dummy in files] != files:
            return False
        now = int(host.now())
        for path, parts in texts:
            text = host.read(path, follow=False) or ""
            before = text[len(parts[0]) :].partition(parts[1])[0]
            last = int(before.split(" ")[1][:-1])
            if text != before.join(parts) or last // FULL_TICK_SECONDS != now // FULL_TICK_SECONDS:
                return False
        if not hold(host, facts):
            return False
        if not agree(last, now):
            return False
        for path, parts in texts:
            host.write_file(path, moment(now, int(host.uptime())).join(parts))
    except (IndexError, OSError, ValueError, zlib.error, Unreadable):
        return False
    finally:
        if collects:
            gc.enable()
    return True


def facts_of(host: Host, asked: dict[tuple[t.Any, ...], t.Any]) -> t.Optional[Facts]:
    """Questions and answers as hold() compares them; None where a file has changed since it was read."""
    stamps: dict[str, Stamp] = {}
    reads: dict[str, bytes] = {}
    scores: Scores = []
    questions: dict[tuple[t.Any, ...], list[tuple[str, t.Any]]] = {}
    spare: dict[tuple[t.Any, ...], list[tuple[str, t.Any]]] = {}
    youngest = (time.time() - STEADY_SECONDS) * 1e9  # The kernel's clock, whatever the host's is.
    for (method, path, *words), answer in asked.items():
        key = (method, *words)
        follow = method != "read_bytes" or words[0]
        is_file = method == "read_bytes"
        if is_file or method in FOLDERS:
            # A link takes the place of a file that it leads to with another time, so stamps_now() need not tell them apart.
            stamp = stamp_of(host, path) if follow or host.link(path) is None else None
            if stamp is not None and max(stamp[3:], default=0) < youngest:
                # The stamp comes first: a later change shows in the answer now, or in the stamp later.
                if getattr(host, method)(path, *words) != answer:
                    return None
                stamps[path] = stamp
                spare.setdefault(key, []).append((path, ... if is_file else answer))
                continue
        if is_file and follow and answer is not None and len(answer) < ONE_READ:
            reads[path] = answer
            continue
        rows = score_rows(host, path) if method == "oom_scores" and not answer else None
        if rows is not None:
            scores.append((path, words[0], rows))
            continue
        questions.setdefault(key, []).append((path, answer))
    leave_out_shown(reads, scores, questions)
    unasked = zlib.compress(marshal.dumps((list(stamps.items()), list(spare.items())), MARSHAL_VERSION), COMPRESSION)
    stamped = BETWEEN.join(stamps), hash(tuple(stamps.values()))
    below = {path[len(CGROUPS) :]: reads.pop(path) for path in list(reads) if path.startswith(CGROUPS)}
    return stamped, (packed(below), packed(reads)), scores, list(questions.items()), unasked


def score_rows(host: Host, path: str) -> t.Optional[list[tuple[str, int, bytes]]]:
    """The control groups below one whose processes all have the wanted oom_score_adj; None where they cannot be told."""
    from .pids import oom_score

    groups = oom_score.groups(host, path) if path.startswith(CGROUPS) else None
    return None if groups is None else [(group[len(CGROUPS) :], links, b"") for group, links in groups]


def leave_out_shown(
    reads: dict[str, bytes], scores: Scores, questions: dict[tuple[t.Any, ...], list[tuple[str, t.Any]]]
) -> None:
    """Leave out the questions whose answers are shown by others.

    The processes that are looked at show whether there are any, in a control group without others in it. What is in a folder that
    is read shows that the folder is there.
    """
    from .pids import oom_score

    for dummy, dummy, known in scores:
        for index, row in enumerate(known):
            if row[1] == oom_score.NO_FOLDERS:
                known[index] = (*row[:2], reads.pop(f"{CGROUPS}{row[0]}/cgroup.events", b""))
    seen = {path.rpartition("/")[0] for path in reads}
    for key in (("is_dir",), ("exists",)):
        questions[key] = [row for row in questions.get(key, []) if not (row[1] and row[0] in seen)]


def packed(reads: dict[str, bytes]) -> Read:
    """What files have, as same_bytes() compares it."""
    return BETWEEN.join(reads), b"".join(reads.values()), list(map(len, reads.values()))


def hold(host: Host, facts: Facts) -> bool:
    """Whether all questions have the same answers still."""
    stamped, reads, scores, questions, spare = facts
    if hash(tuple(stamps_now(host, stamped[0]))) != stamped[1]:
        # The bytes of a file are not kept: any that it has now are another answer.
        stamps, unasked = marshal.loads(zlib.decompress(spare))  # noqa: S302 - as in same()
        now = stamps_now(host, stamped[0])
        others = {path for (path, before), after in zip(stamps, now) if after != before}
        questions = questions + [(key, [row for row in rows if row[0] in others]) for key, rows in unasked]
    for (method, *words), rows in questions:
        ask = question(host, method)
        if any(ask(path, *words) != answer for path, answer in rows):
            return False
    in_groups, elsewhere = reads
    if not same_bytes(host.root, None, *elsewhere):
        return False
    if not in_groups[0] and not scores:
        return True
    folder = os.open(host.at(CGROUPS), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return same_bytes("", folder, *in_groups) and (not scores or usual_scores(host, folder, scores))
    finally:
        os.close(folder)


def usual_scores(host: Host, folder: int, scores: Scores) -> bool:
    """Whether the processes of all these control groups have their usual scores; the folder is CGROUPS."""
    from .pids import oom_score

    return all(
        oom_score.usual(host, folder, known, usual.encode())
        or (
            not oom_score.scores(host, path, usual)
            and all(
                host.read_bytes(f"{CGROUPS}{group}/cgroup.events") == events for group, dummy, events in known if events
            )
        )
        for path, usual, known in scores
    )


def same_bytes(prefix: str, folder: t.Optional[int], paths: str, wanted: bytes, lengths: list[int]) -> bool:
    """Whether the files (links followed) have these bytes. As Host.read_bytes(), but with one read: they are short.

    A path is the prefix with one of the paths; where it is relative, it is so to the open folder.
    """
    opened, read, close, flags = os.open, os.read, os.close, READ_FLAGS
    found = []
    try:
        for path in paths.split(BETWEEN) if paths else ():
            file = opened(prefix + path, flags, dir_fd=folder)
            try:
                found.append(read(file, ONE_READ))
            finally:
                close(file)
    except (OSError, ValueError):
        return False
    return b"".join(found) == wanted and list(map(len, found)) == lengths


def stamp_of(host: Host, path: str) -> t.Optional[Stamp]:
    """What changes when the names in a directory or the bytes of a file do, links followed: compare with stamps_now().

    Empty where nothing is there. None for a file that the kernel makes, and for what is neither file nor directory.
    A time that is younger than a step of the kernel's clock may be that of two changes.
    """
    if path.startswith(MADE_BY_KERNEL):
        return None
    try:
        found = os.stat(host.at(path))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def stamps_now(host: Host, paths: str) -> list[Stamp]:
    """The stamp of each path now, as stamp_of() has it; one that no path has where it cannot be looked at."""
    found: list[Stamp] = []
    root, status = host.root, os.stat
    for path in paths.split(BETWEEN) if paths else ():
        try:
            now = status(root + path)
        except (FileNotFoundError, NotADirectoryError):
            found.append(())
        except (OSError, ValueError):
            found.append((0,))
        else:
            found.append((now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns))
    return found


def question(host: Host, method: str) -> t.Callable[..., t.Any]:
    """What asks a recorded question again: a method of Host, or a reader of many files whose answer is recorded as one."""
    if method == "oom_scores":
        from .pids import oom_score

        return lambda path, usual: oom_score.scores(host, path, usual)
    if method == "account":
        from . import accounts

        return lambda path, name: accounts.other_sources(host, path, name)
    if method == "containers":
        from .containers import conmon

        return lambda path, patterns: conmon.containers(host, path, patterns)
    if method == "container_groups":
        from .containers import container_groups

        return lambda path, slices: container_groups.containers(host, path, slices)
    if method == "pid_namespaces":
        from .pids import pid_namespaces

        return lambda path, slices: pid_namespaces.containers(host, path, slices)
    found: t.Callable[..., t.Any] = getattr(host, method)
    return found


def conditions() -> list[str]:
    """What a full tick depends on beside files: this Python, which release's program it is, and which unit started it."""
    return [sys.version, __file__, os.environ.get("TRIGGER_UNIT", "")]


def program() -> list[tuple[str, int, int]]:
    """The files of the program that looked."""
    package = __name__.rpartition("host.")[0]
    files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith(package)]
    return [stamp(file) for file in files if file]


def stamp(file: str) -> tuple[str, int, int]:
    """A file, and what changes when it is written."""
    status = os.stat(file)
    return file, status.st_mtime_ns, status.st_size
