# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The inputs of a tick that found the node in sync: while all inputs stay the same, the node is in sync.

The result of a full tick follows from the answers of Host, the program and the clock. The next tick asks the same questions again, without
loading the pipeline. If each answer is the same, this tick publishes the same status with the new time. A tick runs in full after a
different answer, with another program or Python, and as the first tick of every ten minutes.

Files of the kernel (cgroups, /proc, /sys) are read again, each with one read. Other files and folders count as unchanged if the inode and
its times are the same: each write or rename changes a time, unless an earlier change was within the same step of the kernel's clock. So a
file that was younger than STEADY_SECONDS is read again too.

The paths of thousands of files are kept as one text, the bytes as one byte string, and the times as one number (a hash). To load and
compare separate values would take as long as to read the files.
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
    Read = tuple[str, bytes, list[int]]  # paths, the bytes of all files, the number of bytes of each file
    Reads = tuple[Read, Read]  # files below CGROUPS (with paths relative to CGROUPS), and other files
    Rows = list[tuple[tuple[t.Any, ...], list[tuple[str, t.Any]]]]  # paths with answers, by method and arguments
    # A control group, the usual score of its processes, and a tuple for this group and each inner group: the path below CGROUPS, the number
    # of links (oom_score.groups()), and the text of cgroup.events if a question asked for this file.
    Scores = list[tuple[str, str, list[tuple[str, int, bytes]]]]
    # Stamps, bytes, scores and questions; as compressed bytes, the stamps with the questions that unchanged stamps answer.
    Facts = tuple[tuple[str, int], Reads, Scores, Rows, bytes]

# The file has a checksum, then questions, answers and published texts in the format of Python's compiled files, which only the same Python
# reads.
KEPT = f"{RUN}/inputs"
# The time between full ticks. Only a full tick asks for the clock and for most of the topology again (sysfs.watched).
FULL_TICK_SECONDS = 600
METRICS_SECONDS = 60  # The metrics are written once in each minute of the clock.
STEADY_SECONDS = 2  # many times the step of the kernel's clock
FOLDERS = ("names", "names_like", "among", "folders")  # questions about the names in a folder
# The kernel makes the content of these files at each read: the content changes while the files' times stay the same (kernfs, procfs).
MADE_BY_KERNEL = ("/proc/", "/sys/")
MARSHAL_VERSION = 2  # With this version the same data give the same bytes.
BETWEEN = "\0"  # between paths: no path has this character
CGROUPS = "/sys/fs/cgroup/"  # Most files are below this folder: to open a file relative to this folder takes a tenth less time.
COMPRESSION = 1  # Paths resemble each other: megabytes shrink to a tenth, in less time than to read the megabytes.


def moment(now: int, since_boot: int) -> str:
    """The time of an observation in the JSON text of the status: by the clock, and in seconds since the boot."""
    return f'"time": {now}, "time_since_boot": {since_boot}'


def keep(host: Host, published: t.Sequence[str], now: str) -> None:
    """Keep the answers that the host has recorded for this tick, which found the node in sync and changed nothing.

    ``published`` are the files that describe the node. Each tick rewrites the files that contain ``now`` (see moment()).
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
            pass  # The next tick runs in full.


def same(host: Host, agree: t.Callable[[int, int], bool] = lambda last, now: True) -> bool:
    """Whether all answers are the answers that keep() kept, and ``agree`` returns True; if so, the status is published with the new time.

    ``agree`` gets the time of the last status and the new time.
    """
    last = 0
    collects = gc.isenabled()
    gc.disable()  # The thousands of objects form no cycle, and a search for cycles takes as long as to read 300 files.
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
    """The recorded questions and answers in the form that hold() compares; None if a file has changed since the tick read it."""
    stamps: dict[str, Stamp] = {}
    reads: dict[str, bytes] = {}
    scores: Scores = []
    questions: dict[tuple[t.Any, ...], list[tuple[str, t.Any]]] = {}
    spare: dict[tuple[t.Any, ...], list[tuple[str, t.Any]]] = {}
    youngest = (time.time() - STEADY_SECONDS) * 1e9  # The times of files are by the kernel's clock, not by host.now().
    for (method, path, *words), answer in asked.items():
        key = (method, *words)
        follow = method != "read_bytes" or words[0]
        is_file = method == "read_bytes"
        if is_file or method in FOLDERS:
            # If a link takes the place of a moved file, the move changes the file's time: stamps_now() may follow links.
            stamp = stamp_of(host, path) if follow or host.link(path) is None else None
            if stamp is not None and max(stamp[3:], default=0) < youngest:
                # A change after stamp_of() shows either in this answer or in the next tick's stamp.
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
    """For a control group and each inner group, as in ``Scores``: the path, the number of links, and no text yet.

    None if oom_score.groups() cannot tell which groups exist.
    """
    from .pids import oom_score

    groups = oom_score.groups(host, path) if path.startswith(CGROUPS) else None
    return None if groups is None else [(group[len(CGROUPS) :], links, b"") for group, links in groups]


def leave_out_shown(
    reads: dict[str, bytes], scores: Scores, questions: dict[tuple[t.Any, ...], list[tuple[str, t.Any]]]
) -> None:
    """Leave out the questions that other questions answer too.

    In a control group without inner groups, cgroup.procs also shows whether the group is populated, like cgroup.events. A file that is read
    shows that its folder exists.
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
    """The bytes of files in the form that same_bytes() compares."""
    return BETWEEN.join(reads), b"".join(reads.values()), list(map(len, reads.values()))


def hold(host: Host, facts: Facts) -> bool:
    """Whether all questions of ``facts`` still have the same answers."""
    stamped, reads, scores, questions, spare = facts
    if hash(tuple(stamps_now(host, stamped[0]))) != stamped[1]:
        # The bytes of a stamped file are not kept: the kept answer is ``...``, from which any bytes differ.
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
    """Whether the processes of all control groups in ``scores`` have the usual scores. ``folder`` is a descriptor of CGROUPS."""
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
    """Whether the files (links followed) have the bytes ``wanted``, split by ``lengths``. The files are short: one read is enough.

    Each path is ``prefix`` followed by an element of ``paths``. A relative path starts at the open ``folder``.
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
    """The stamp of a path, links followed: a stamp changes with the names in a directory, or with the bytes of a file.

    The stamp of an absent path is empty. The result is None for a file of the kernel, and for anything else than a file or directory. Two
    changes within a step of the kernel's clock have the same time.
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
    """The present stamp of each path, in the form of stamp_of(); after an error ``(0,)``, which is no path's stamp."""
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
    """The function that asks a recorded question again: a method of Host, or a reader of many files that records one answer."""
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
    """The inputs of a full tick that are no files: this Python, the path of this program's release, the unit that triggered the tick."""
    return [sys.version, __file__, os.environ.get("TRIGGER_UNIT", "")]


def program() -> list[tuple[str, int, int]]:
    """A stamp for each loaded file of the program."""
    package = __name__.rpartition("host.")[0]
    files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith(package)]
    return [stamp(file) for file in files if file]


def stamp(file: str) -> tuple[str, int, int]:
    """A file, the time of its last write in nanoseconds, and its size."""
    status = os.stat(file)
    return file, status.st_mtime_ns, status.st_size
