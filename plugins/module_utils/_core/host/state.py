# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Corral's own files on a node: where they are, and how they survive a crash or a manual edit."""

from __future__ import annotations

import errno
import functools
import json
import os
import stat
import typing as t
import zlib

from ..model.values.printable_text import printable_data
from ..model.values.records import NamedTuple
from . import lock
from .files import READ_LIMIT, Host, Unreadable

if t.TYPE_CHECKING:
    from ..model.plan.undo import Original
    from ..model.status.history import HistoryEntry

ETC = "/etc/corral"
STATE = "/var/lib/corral"
RUN = lock.RUN
REMOVAL = "removal of the profile"
BOOT = "the boot"
BESIDE = "beside it, .previous"
LOOK = "each look writes it"
AGAIN = "the next run writes it again"
ITSELF = "whatever is there stands for it"


class OwnFile(NamedTuple):
    """A file of Corral's own: the event that ``ends`` it, and what happens if the file is ``lost``. docs/maintenance.md has this table.

    A lost file is gone or torn, or a folder, a link, a FIFO, a socket or a device has its path. ``spare`` is a file with the same data ("":
    no such file). A ``checked`` file has a version and a checksum. If a ``told`` file is torn or of another kind, an item of the status
    names the file; a file that is not told has an item of its own, or each look at the node writes the file. Each run writes a ``written``
    file, beside the steps of its plan. The removal of the profile deletes a ``deleted`` file, beside the steps that restore originals.
    """

    path: str
    ends: str
    lost: str
    spare: str = ""
    checked: bool = False
    told: bool = False
    written: bool = False
    deleted: bool = False

    @property
    def copies(self) -> tuple[str, ...]:
        """The file and its second copy, in the order in which they are deleted."""
        return rest_of(self.path) if self.spare == BESIDE else (self.path,)

    @property
    def lasts(self) -> bool:
        """Whether the file survives a boot."""
        return not self.path.startswith(f"{RUN}/")


DECLARED = f"{ETC}/profile.json"
ORIGINS = f"{ETC}/origins.json"
AGENT = f"{ETC}/agent.json"
APPLIED = f"{STATE}/applied.json"
HISTORY = f"{STATE}/journal/profiles.json"
BEFORE = f"{STATE}/journal/before.json"
LOST = f"{BEFORE}.damaged"  # a copy of an unreadable BEFORE; empty if BEFORE was missing
UNREADABLE = f"{BEFORE}.unreadable"  # the unreadable records, unchanged; this file stays until a user deletes it
ADMITTED = f"{STATE}/admitted.json"
CHECKPOINT = f"{STATE}/checkpoint.json"
WORKLOADS = (ADMITTED, CHECKPOINT)
UNCONFIRMED = f"{STATE}/unconfirmed.json"
REJECTED = f"{STATE}/rejected.json"
PAUSE = f"{STATE}/pause.json"
# This file exists from before a hook drains the node until the hook has resumed the node, also over boots. Its lines are the hook's path,
# and the error of a failed resume.
DRAINED = f"{STATE}/drained"
PROGRAM = f"{STATE}/program.json"  # digests of the agent's program, as it was installed: program_check.py
PCI_USED = f"{STATE}/pci-used.json"  # the PCI functions that may be bound and that the machine uses: pci_used_before.py
GC_RECORDS = f"{STATE}/gc.json"
EFFECTIVE_PROFILE = f"{STATE}/effective-profile.json"
SINCE = f"{STATE}/drift-since.json"
STATUS = f"{RUN}/status.json"
PUBLISHED = (STATUS, f"{RUN}/pools.json", f"{RUN}/pools.env")
ATTEMPTS = f"{RUN}/attempts.json"
RELOAD_DUE = f"{RUN}/reload-due"  # exists from before a run writes files of systemd until systemd has reloaded them
# This file exists from before a kubelet is stopped until the new kubelet is healthy. Its text is the path of the hook that drained the
# node, if any.
KUBELET_DUE = f"{RUN}/kubelet-due"
WAY_BACK = f"{RUN}/way-back.json"
KUBELET_FINDINGS = f"{RUN}/kubelet-findings.json"  # when each finding was first seen
# The results of the commands that check devices, written when a result changes; the time of each check, written by each pass.
DEVICE_CHECKS, DEVICES_CHECKED = f"{RUN}/device-checks.json", f"{RUN}/devices-checked.json"
GC_STATUS = f"{RUN}/gc.json"
GC_DRIFT = f"{RUN}/gc-drift.json"
GC_IDLE = f"{RUN}/gc-idle.json"
FILES = (
    OwnFile(
        DECLARED, REMOVAL, "the profile applied last stays in force; the rollout or corral reconcile writes it again", spare=APPLIED
    ),
    OwnFile(ORIGINS, REMOVAL, "keys have no origins until the next rollout", told=True),
    OwnFile(
        AGENT, "removal of the agent",
        "the agent runs on, and its units are not corrected: install it again (corral.node.agent, or the rollout)", told=True,
    ),
    OwnFile(APPLIED, REMOVAL, AGAIN, spare=HISTORY, written=True, deleted=True),
    OwnFile(EFFECTIVE_PROFILE, REMOVAL, LOOK, written=True, deleted=True),
    OwnFile(HISTORY, "removal of profile and agent", AGAIN, spare=BESIDE, checked=True, written=True),
    OwnFile(BEFORE, REMOVAL, AGAIN, spare=BESIDE, checked=True, written=True),
    OwnFile(ADMITTED, "the last release, or " + REMOVAL, AGAIN, spare=BESIDE, checked=True, deleted=True),
    OwnFile(
        CHECKPOINT, REMOVAL, "grants are as the slices show them; the next run writes it again", spare=BESIDE, checked=True, deleted=True
    ),
    OwnFile(
        UNCONFIRMED, "confirmation, or going back",
        "the node keeps its profile, and does not go back: corral rollback does", checked=True, told=True,
    ),
    OwnFile(
        REJECTED, "a rollout with force",
        "no profile but the one applied last is taken up by a tick: run the rollout, or remove the file",
        checked=True, told=True, deleted=True,
    ),
    OwnFile(
        PAUSE, "its time, corral resume, or its deletion", "the node stays paused as the last status says", spare=STATUS, checked=True
    ),
    OwnFile(
        DRAINED, "the hook that resumes the node",
        "which hook drained the node is not known: resume it by hand, then remove what is there", told=True,
    ),
    OwnFile(PROGRAM, "removal of the agent", "the program cannot be compared: install it again (the rollout)", checked=True),
    OwnFile(PCI_USED, REMOVAL, "no PCI function is bound until the node has started", checked=True),
    OwnFile(GC_RECORDS, "gc leaving the profile", "ages of images begin again", spare=BESIDE, checked=True),
    OwnFile(SINCE, "the last item", LOOK, spare=STATUS, deleted=True),
    OwnFile(ATTEMPTS, BOOT, "what was refused is asked for again", deleted=True),
    *(OwnFile(path, BOOT, LOOK, written=True, deleted=True) for path in PUBLISHED),
    OwnFile(RELOAD_DUE, "the reload of systemd", ITSELF),
    OwnFile(KUBELET_DUE, "a healthy kubelet", ITSELF),
    OwnFile(WAY_BACK, "confirmation, or going back", "a failure is logged once more"),
    OwnFile(KUBELET_FINDINGS, BOOT, LOOK),
    OwnFile(DEVICE_CHECKS, BOOT, "the devices are checked again", checked=True),
    OwnFile(DEVICES_CHECKED, BOOT, "the devices are checked again"),
    OwnFile(GC_STATUS, BOOT, "the next pass writes it"),
    OwnFile(GC_DRIFT, BOOT, "the next pass writes it"),
    OwnFile(GC_IDLE, BOOT, "the next pass writes it", checked=True),
)  # fmt: skip
DEVICE_CHECKS_LOCK = f"{RUN}/device-checks.lock"
# The CDI spec and the folder of files that give containers and units their granted devices: model/devices/device_delivery.py.
GRANTS_SPEC, DEVICES = "/run/cdi/corral.node-grant.json", f"{RUN}/devices"
KINDS = {
    stat.S_IFREG: "",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
AGENT_MANAGER = "agent"  # the manager of the agent's originals, which no profile caused
PRIVATE = 0o600
VERSION = 1  # the version of checksummed files


class Record(NamedTuple):
    """An original and its manager."""

    manager: str
    subject: str
    before: Original


def kind(host: Host, path: str) -> str:
    """The kind of thing at the path of a file of Corral's own, such as "a link"; empty for a regular file or an absent path."""
    found = host.permissions(path)
    return "" if found is None else KINDS.get(stat.S_IFMT(found[0]), "something else")


def there(host: Host, path: str) -> bool:
    """Whether anything has the path of a file of Corral's own: a file, or something else, such as a link that leads nowhere."""
    return host.permissions(path) is not None


def read_text(host: Host, path: str) -> t.Optional[str]:
    """The text of a file of Corral's own; None if the path is absent or no regular file.

    Only a regular file is opened: the error for a folder or a link would look like the error of a disk.
    """
    found = host.permissions(path)
    return host.read(path, follow=False) if found is not None and stat.S_ISREG(found[0]) else None


def declared_text(host: Host) -> t.Optional[str]:
    """The text of the declared profile, whose path may be a link; None if the path leads to no file."""
    path = DECLARED
    if kind(host, path) == KINDS[stat.S_IFLNK]:
        from . import link_walk

        try:
            path = list(link_walk.steps(host, path))[-1][0]
        except OSError:  # a circle of links
            return None
    return read_text(host, path)


def wrong(host: Host, path: str, stored: t.Any, *, is_checked: bool = True) -> str:
    """What is wrong with a file of Corral's own whose JSON value is ``stored``; an empty string if the file is in order."""
    if not there(host, path):
        return "is gone"
    other = kind(host, path)
    if other:
        return f"is {other}, not a file" + (f" (it becomes {path}.folder)" if other == KINDS[stat.S_IFDIR] else "")
    try:
        if is_checked:
            checked_data(stored)
    except ValueError as error:
        return str(error)
    return "is not JSON: truncated, or not Corral's" if stored is None else ""


def read_json(host: Host, path: str) -> t.Any:
    """The JSON value in a file of Corral's own; None if the file is absent, of another kind, or not JSON."""
    try:
        return json.loads(read_text(host, path) or "null")
    except (ValueError, RecursionError):
        return None


def refuse_unreadable(host: Host) -> None:
    """Raise Unreadable if a published file cannot be read, so that a run notices before it changes the node."""
    for path in PUBLISHED:
        host.read(path)


def read_published(host: Host, path: str) -> t.Any:
    """The result of read_json() with printable texts: a file that was copied from a node may come from another program."""
    try:
        return printable_data(read_json(host, path))
    except RecursionError:
        return None


def checked(host: Host, path: str) -> t.Any:
    """The data of a checksummed file; None if the file is absent, truncated, foreign or of another version."""
    try:
        return checked_data(read_json(host, path))
    except ValueError:
        return None


def either(host: Host, path: str) -> t.Any:
    """The data of a checksummed file, or of its second copy if the file cannot be read; None if neither can be read.

    If the copies differ, one copy is older: a run was killed between the two writes, or the file was restored from a backup. For a file in
    UNITED the result has the rows of both copies: an original without a row would never be restored, a workload without a row never released.
    """
    found, second = (checked(host, one) for one in (path, f"{path}.previous"))
    if found is None or second is None or found == second or path not in UNITED:
        return second if found is None else found
    known = [UNITED[path](row) for row in found]
    return [*found, *(row for row in second if UNITED[path](row) not in known)]


def key_of_record(row: t.Any) -> t.Any:
    """The kind, target and name of the original in a row of BEFORE; the row itself if Corral cannot read the row."""
    before = row.get("before") if isinstance(row, dict) else None
    return [before.get(word) for word in ("kind", "target", "name")] if isinstance(before, dict) else row


UNITED: dict[str, t.Callable[[t.Any], t.Any]] = {
    BEFORE: key_of_record,
    ADMITTED: lambda row: row.get("name") if isinstance(row, dict) else row,
}


def checked_data(stored: t.Any) -> t.Any:
    """The data in the JSON value of a checksummed file. Raises ValueError that says what is wrong with the file."""
    if stored is None:
        raise ValueError("is not JSON: truncated, or not Corral's")
    if not isinstance(stored, dict) or not {"version", "checksum", "data"} <= stored.keys():
        raise ValueError("is not Corral's")
    if stored["version"] != VERSION:
        raise ValueError(f"is of version {stored['version']}, this Corral writes {VERSION}")
    if stored["checksum"] != checksum(stored["data"]):
        raise ValueError("was changed by hand, or is damaged (its checksum differs)")
    return stored["data"]


def checked_text(data: t.Any) -> str:
    """The text of a checksummed file."""
    return json.dumps({"version": VERSION, "checksum": checksum(data), "data": data}, sort_keys=True) + "\n"


def checksum(data: t.Any) -> str:
    """CRC-32 of the canonical JSON. A checksum shows truncation and careless edits; the file's mode 0600 protects against malice."""
    return f"{zlib.crc32(json.dumps(data, sort_keys=True).encode()):08x}"


def written_before(host: Host, path: str) -> bool:
    """Whether the file or its second copy exists: Corral wrote the file and did not delete it since. (A second copy alone shows a loss.)"""
    return there(host, path) or there(host, f"{path}.previous")


def rest_of(path: str) -> tuple[str, str]:
    """The paths of a file and its second copy, in the order of deletion: a second copy without its file would look like a loss."""
    return f"{path}.previous", path


def write_checked(host: Host, path: str, data: t.Any, *, spare: bool = True) -> None:
    """Write a checksummed file. With ``spare`` also write the second copy, which Corral reads if the file is lost."""
    text = readable(path, checked_text(data))
    state_folder(host, os.path.dirname(path))
    host.write_file(path, text, PRIVATE)
    if spare:
        host.write_file(f"{path}.previous", text, PRIVATE)


def readable(path: str, text: str) -> str:
    """Return ``text`` unchanged. Raises OSError if ``text`` is larger than READ_LIMIT, since Corral could not read such a file again."""
    if len(text.encode("utf-8", "surrogateescape")) > READ_LIMIT:
        raise OSError(errno.EFBIG, f"more than {READ_LIMIT >> 20} MiB, which is the most that is read", path)
    return text


def state_folder(host: Host, path: str) -> None:
    """Make the state folder and ``path`` in it, readable by root only."""
    for folder in (STATE, path) if path.startswith(STATE) else ():
        lock.own_folder(host, folder, 0o700)


def records(host: Host) -> tuple[list[Record], t.Optional[str]]:
    """The originals, oldest first, and a warning if the originals come from the second copy or cannot be read at all."""
    copies = [read_text(host, path) or "" for path in (BEFORE, f"{BEFORE}.previous")]
    found, warning = records_in(copies[0]), None
    if found is not None and copies[1] != copies[0]:
        found = records_in(checked_text(either(host, BEFORE)))
    if found is None and were_recorded(host):
        found = records_in(copies[1])
        warning = f"{BEFORE}: {'not readable as Corral wrote it' if there(host, BEFORE) else 'is gone'}: " + (
            "its second copy is used" if found is not None else "there is no second copy: removal cannot restore"
        )
    return list(found or ()), warning


def were_recorded(host: Host) -> bool:
    """Whether a file of originals must exist: Corral writes this file whenever it applies a profile or installs an agent."""
    return written_before(host, BEFORE) or there(host, APPLIED) or there(host, AGENT)


def originals_lost(host: Host) -> bool:
    """Whether the originals are lost: a file of originals must exist, and neither copy can be read, in this run or in an earlier run.

    A run after the loss records the present values, which are not the values from before Corral: the loss stays until the state is removed.
    """
    if there(host, LOST):
        return True
    copies = (read_text(host, path) or "" for path in (BEFORE, f"{BEFORE}.previous"))
    if any(records_in(text) is not None for text in copies):
        return False
    from . import own_files  # Imported here: needed only if both copies are unreadable or gone.

    return were_recorded(host) or next(own_files.written(host), None) is not None


def records_in(text: str) -> t.Optional[tuple[Record, ...]]:
    """The readable originals in a checksummed text; None for a text that Corral did not write."""
    rows = rows_in(text)
    return None if rows is None else rows[0]


@functools.lru_cache(maxsize=2)  # One run reads the same text again and again.
def rows_in(text: str) -> t.Optional[tuple[tuple[Record, ...], tuple[t.Any, ...]]]:
    """The originals in a checksummed text, and the rows that cannot be read; None for a text that Corral did not write."""
    try:
        data = checked_data(json.loads(text or "null"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, list):
        return None
    from ..model.plan import undo  # A tick that only writes the metrics does not load this module.

    found, others = [], []
    for row in data:
        try:
            record = Record(row["manager"], row["subject"], undo.from_data(row["before"]))
            if not isinstance(record.manager, str) or not isinstance(record.subject, str):
                raise TypeError
            found.append(record)
        except (KeyError, TypeError):
            others.append(row)
    return tuple(found), tuple(others)


def unread_rows(host: Host) -> list[t.Any]:
    """The unreadable rows in the file of originals, which save_records() copies to UNREADABLE."""
    for path in (BEFORE, f"{BEFORE}.previous"):
        rows = rows_in(read_text(host, path) or "")
        if rows is not None:
            return list(rows[1])
    return []


def unreadable(host: Host) -> list[t.Any]:
    """All unreadable rows of originals: first the rows in UNREADABLE. The original of each row counts as lost."""
    kept = read_json(host, UNREADABLE) if there(host, UNREADABLE) else None
    aside = kept if isinstance(kept, list) else []
    return [*aside, *(row for row in unread_rows(host) if row not in aside)]


def save_records(host: Host, kept: t.Sequence[Record]) -> None:
    """Write the originals, and return once the disk has them.

    If the earlier originals are lost, the file LOST is written first; unreadable rows are first copied to UNREADABLE.
    """
    if not there(host, LOST) and originals_lost(host):
        state_folder(host, os.path.dirname(BEFORE))
        damaged = read_text(host, BEFORE) or read_text(host, f"{BEFORE}.previous") or ""
        host.write_file(LOST, damaged, PRIVATE)
    if unread_rows(host):
        state_folder(host, os.path.dirname(UNREADABLE))
        host.write_file(UNREADABLE, json.dumps(unreadable(host), indent=2) + "\n", PRIVATE)
    rows = [{"manager": row.manager, "subject": row.subject, "before": row.before._asdict()} for row in kept]
    write_checked(host, BEFORE, rows)


def applied(host: Host) -> t.Any:
    """The data of the profile that was applied last; None without a profile.

    If the file APPLIED is lost, the newest profile in HISTORY counts, since a run writes HISTORY before APPLIED. The node must then have a
    declared profile and originals of a profile's changes: without these, the profile was removed.
    """
    found = read_json(host, APPLIED)
    if found is None and declared_text(host) is not None and has_changed(host):
        rows = either(host, HISTORY)
        if rows:
            from ..model.status import history as applied_profiles

            found = next((one.profile for one in applied_profiles.from_data(rows)), None)
    return found


def was_applied(host: Host) -> bool:
    """Whether a profile was applied and not removed since. APPLIED or EFFECTIVE_PROFILE is enough as proof: the other file may be lost."""
    return there(host, APPLIED) or there(host, EFFECTIVE_PROFILE)


def has_changed(host: Host) -> bool:
    """Whether originals of a profile's changes exist, beside the originals of the agent."""
    return any(record.manager != AGENT_MANAGER for record in records(host)[0])


def record_profile(host: Host, profile: t.Any) -> None:
    """Keep the profile that has just been applied, and the profiles before it for ``corral rollback``."""
    last = applied(host)
    if last == profile and read_json(host, APPLIED) is not None:
        return
    if not were_recorded(host):
        save_records(host, ())  # An empty file of originals is written too: from now on a missing file is a loss.
    from ..model.status import history as applied_profiles  # A tick that changes nothing does not get here.

    if last != profile:
        kept = applied_profiles.from_data(either(host, HISTORY))
        save_history(host, applied_profiles.with_profile(kept, last, profile, int(host.now())))
    state_folder(host, STATE)
    host.write_file(APPLIED, json.dumps(profile, sort_keys=True) + "\n", PRIVATE)


def history(host: Host) -> tuple[t.Optional[HistoryEntry], list[HistoryEntry]]:
    """The profile in force (None without a profile), and the profiles applied before it, the newest first."""
    from ..model.status import history as applied_profiles

    return applied_profiles.divided(applied_profiles.from_data(either(host, HISTORY)), applied(host))


def save_history(host: Host, kept: t.Sequence[HistoryEntry]) -> None:
    """Keep the profiles that were applied, the newest first."""
    from ..model.status import history as applied_profiles

    write_checked(host, HISTORY, applied_profiles.to_data(kept))


def leave_nothing(host: Host, path: str) -> None:
    """Remove the lock ``path`` and its folder RUN, if RUN has no other file and the folder STATE does not exist.

    The caller holds the lock and releases it afterwards. If a folder cannot be read, nothing is removed.
    """
    try:
        alone = not host.exists(STATE) and [f"{RUN}/{name}" for name in host.names(RUN)] == [path]
    except Unreadable:
        return
    if alone:
        host.remove(path)
        host.remove_dir(RUN)


def delete_with_profile(host: Host, but: str) -> None:
    """Delete the ``deleted`` files of FILES except ``but``, and the damaged copies of WORKLOADS: no step of a plan removes these files."""
    aside = [f"{path}.damaged" for path in WORKLOADS]
    for path in (*aside, *(path for one in FILES if one.deleted and one.path != but for path in one.copies)):
        if there(host, path):
            host.remove(path)


def forget(host: Host) -> None:
    """Remove all of Corral's own state except the node's lock.

    The run that holds the lock removes the lock last (leave_nothing()). A folder inside Corral's folders stays, and so do the folders above
    it; /etc/corral stays if it has files.
    """
    for folder in (f"{STATE}/journal", STATE, DEVICES, RUN):
        # Second copies first: a second copy without its file would look like a loss.
        for name in sorted(host.names(folder), key=lambda name: not name.endswith(".previous")):
            if f"{folder}/{name}" != lock.LOCK and not host.is_dir(f"{folder}/{name}"):
                host.remove(f"{folder}/{name}")
        host.remove_dir(folder)
    host.remove_dir(os.path.dirname(DECLARED))
