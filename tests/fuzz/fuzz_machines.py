# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded trees and snapshots: a machine that somebody else wrote down, or made up."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
import typing as t
from pathlib import Path

import mutation
import trees
from fuzz_target import Outcome, Shown, Target, command, foreign_element
from shared_data import REPOSITORY

PROFILES = [str(REPOSITORY / "examples" / name) for name in ("edge.yml", "workloads.yml", "devices.yml")]
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("topology",), ("topology", "--json"), ("topology", "--svg"),
    *((*words, "--profile", profile) for profile in PROFILES for words in (
        ("pools",), ("pools", "--svg"), ("plan",), ("plan", "--json"), ("plan", "--explain"))),
    ("plan",), ("profile", "--from-node"), ("kubelet",), ("kubelet", "--json"),
)  # fmt: skip
MACHINE = trees.Machine(
    sockets=2,
    cores=2,
    threads=2,
    pci={"0000:3b:00.0": 1, "0000:5e:00.0": 0},
    net={"ens1f0": "0000:3b:00.0", "lo": None},
)
CGROUPS = {
    "": "0-7", "system.slice": "", "system.slice/ssh.service": "", "machine.slice": "", "user.slice": "", "corral.slice": "1,5",
    "corral_isolated.slice": "3,7", "rogue.slice": "0-3",
}  # fmt: skip


def build(root: Path) -> None:
    """A machine with devices and control groups."""
    trees.build(root, MACHINE)
    more = {
        "proc/loadavg": "0.00 0.01 0.05 1/180 4242", "proc/cmdline": "root=/dev/vda1 isolcpus=3,7 nohz_full=3,7", "proc/1/comm": "systemd",
        "proc/sys/kernel/pid_max": "4194304", "proc/sys/kernel/threads-max": "15631", "proc/sys/kernel/osrelease": "6.1.0",
        "proc/1/mountinfo": "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 1 0:27 / /dev/hugepages rw - hugetlbfs h rw,pagesize=2M",
        "etc/passwd": "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh", "etc/group": "root:x:0:\nhugetlb:x:996:",
        "etc/systemd/system/system.slice.d/50-x.conf": "[Slice]\nAllowedCPUs=0-3\nTasksMax=200",
        "etc/systemd/system/dataplane.service": "[Service]\nExecStart=/usr/bin/dataplane\nSlice=corral.slice",
        "etc/sysctl.d/99-x.conf": "kernel.pid_max = 32768",
    }  # fmt: skip
    for path, cpus in CGROUPS.items():
        own = {
            "cgroup.controllers": "cpuset cpu memory pids", "cgroup.subtree_control": "cpuset cpu memory pids", "cgroup.procs": "",
            "cpuset.cpus": cpus if path else None, "cpuset.cpus.effective": cpus or "0-7", "cpuset.mems.effective": "0-1",
            "cpuset.cpus.partition": "member" if path else None, "pids.max": "max" if path else None, "memory.max": "max" if path else None,
            "cgroup.events": "populated 1\nfrozen 0" if path else None,
        }  # fmt: skip
        more.update({f"sys/fs/cgroup/{path}/{name}": text for name, text in own.items() if text is not None})
    for name, text in more.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")


def outcome(shown: Shown, words: t.Sequence[str]) -> Outcome:
    """A refusal is one of a command that printed nothing."""
    return Outcome(
        "refused" if shown.code == 1 and not shown.out else "answered",
        (shown.out, shown.err),
        foreign_element(words, shown.out),
    )


class RecordedTree(Target):
    def prepare(self) -> None:
        self.root = self.folder / "machine"
        build(self.root)
        found = [(folder[len(str(self.root)) + 1 :], files) for folder, dummy, files in os.walk(self.root)]
        self.folders = [folder for folder, dummy in found if folder]
        self.files = [f"{folder}/{name}" for folder, files in found for name in files]

    def make(self, chance: random.Random) -> t.Any:
        changes = []
        for dummy in range(chance.choice((1, 2, 4, 12))):
            where = chance.random()
            if where < 0.8:
                changes.append(mutation.tree_change(chance, self.root, chance.choice(self.files)))
            elif where < 0.9:
                changes.append(mutation.tree_change(chance, self.root, chance.choice(self.folders)))
            else:
                changes.append(mutation.added_name(chance, chance.choice(self.folders)))
        return changes, chance.choice(COMMANDS)

    def run(self, data: t.Any) -> Outcome:
        changes, words = data
        with mutation.Changed(self.root, changes):
            return outcome(command(*words, "--root", str(self.root)), words)


Member = tuple[
    str, bytes, str, bytes, int
]  # name, type, where a link leads, content, size as the header says (-1: its own)
TYPES = (
    tarfile.REGTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.DIRTYPE,
    tarfile.CHRTYPE,
    tarfile.FIFOTYPE,
    tarfile.BLKTYPE,
    b"x",
    b"S",
)
# As an attacker makes them: links to links, links out, a file below a file, a device, a name twice.
CRAFTED: tuple[tuple[Member, ...], ...] = (
    (("d", tarfile.SYMTYPE, ".", b"", -1), ("e", tarfile.SYMTYPE, "d/d/d/../../../../precious", b"", -1), ("e", tarfile.REGTYPE, "", b"own", -1)),
    (("a", tarfile.SYMTYPE, "b", b"", -1), ("b", tarfile.SYMTYPE, "a", b"", -1), ("a/x", tarfile.REGTYPE, "", b"x", -1)),
    (("../precious/x", tarfile.REGTYPE, "", b"own", -1),),
    (("/tmp/corral-precious", tarfile.REGTYPE, "", b"own", -1),),
    (("h", tarfile.LNKTYPE, "../precious/x", b"", -1), ("h", tarfile.REGTYPE, "", b"own", -1)),
    (("sys", tarfile.REGTYPE, "", b"x", -1), ("sys/x", tarfile.REGTYPE, "", b"x", -1)),
    (("dev/zero", tarfile.CHRTYPE, "", b"", -1), ("fifo", tarfile.FIFOTYPE, "", b"", -1)),
    (("x" * 300 + "/" + "y/" * 300, tarfile.REGTYPE, "", b"x", -1),),
    (("sys/devices/system/cpu/online", tarfile.SYMTYPE, "/proc/self/environ", b"", -1),),
    (("sys/devices/system/node", tarfile.SYMTYPE, "cpu", b"", -1), ("sys/devices/system/cpu", tarfile.SYMTYPE, "node", b"", -1)),
    (("big", tarfile.REGTYPE, "", b"", 1 << 40),),
)  # fmt: skip


def archived(members: t.Iterable[Member]) -> bytes:
    """A tar of members."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        for name, kind, link, content, size in members:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = kind, link, 0o755
            entry.size = len(content) if size < 0 and kind == tarfile.REGTYPE else max(size, 0)
            archive.fileobj.write(entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))  # type: ignore[union-attr]
            if kind == tarfile.REGTYPE and size < 0:
                archive.fileobj.write(content + b"\0" * (-len(content) % 512))  # type: ignore[union-attr]
    return file.getvalue()


class Snapshots(Target):
    def prepare(self) -> None:
        self.root = self.folder / "machine"
        build(self.root)
        self.members: list[Member] = []
        for folder, dummy, files in os.walk(self.root):
            for name in files:
                path = Path(folder, name)
                if not path.is_symlink():
                    self.members.append((str(path.relative_to(self.root)), tarfile.REGTYPE, "", path.read_bytes(), -1))
                else:
                    self.members.append((str(path.relative_to(self.root)), tarfile.SYMTYPE, os.readlink(path), b"", -1))
        self.archive = archived(self.members)
        (self.folder / "precious").mkdir()
        self.file = self.folder / "snapshot.tar"

    def make(self, chance: random.Random) -> t.Any:
        """(change of the raw bytes or None, changes of members, form): the seed is the machine's own archive."""
        words = chance.choice(COMMANDS)
        if chance.random() < 0.25:
            return ("bytes", chance.getrandbits(32), chance.random() < 0.3), words
        return ("members", chance.getrandbits(32), chance.random() < 0.3), words

    def content(self, kind: str, seed: int, packed: bool) -> bytes:
        chance = random.Random(seed)
        if kind == "bytes":
            data = gzip.compress(self.archive, 1, mtime=0) if packed else self.archive
            return mutation.mutated(chance, data)
        members = list(self.members)
        for dummy in range(chance.choice((1, 1, 1, 3, 10))):
            place = chance.randrange(len(members))
            name, form, link, content, size = members[place]
            what = chance.choice((0, 0, 0, 1, 2, 3, 4, 5))
            if what == 0:
                members[place] = (name, form, link, mutation.mutated(chance, content), size)
            elif what == 1:
                members[place] = (
                    name,
                    chance.choice(TYPES),
                    chance.choice(("", "..", "/etc", name, members[0][0])),
                    content,
                    size,
                )
            elif what == 2:
                members[place] = (mutation.mutated_text(chance, name)[:3000], form, link, content, size)
            elif what == 3:
                members[place] = (name, form, link, content, chance.choice((0, 1, 511, 1 << 33, 1 << 62)))
            elif what == 4:
                members[place:place] = chance.choice(CRAFTED)
            else:
                members.append(chance.choice(members))
        try:
            data = archived(members)
        except (ValueError, UnicodeError):
            data = self.archive
        return gzip.compress(data, 1, mtime=0) if packed else data

    def run(self, data: t.Any) -> Outcome:
        (kind, seed, packed), words = data
        self.file.write_bytes(self.content(kind, seed, packed))
        return outcome(command(*words, "--root", str(self.file)), words)


TARGETS = {"recorded-tree": RecordedTree, "snapshot": Snapshots}
