# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The only access to a machine: reads, writes, commands and the clock, under a root directory.

A live node (root "/"), a recorded machine (recorded_tree.py) and a test's tree have the same type, so every decision can be replayed
offline. Each path argument is a path of the live node ("/sys/devices/system/cpu/online").
"""

from __future__ import annotations

import errno
import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # Each tick loads this file, and importing typing takes time.
    import typing as t

    from .command import Command
    from .kubelet.http_answer import Tls
    from .sd_bus import Connection

    Answer = t.TypeVar("Answer")

# The largest file that Corral reads, so that no file can fill the memory. A larger file is unreadable (EFBIG).
READ_LIMIT = 4 * 1024 * 1024
TOO_LARGE = f"it has more than {READ_LIMIT} bytes (4 MiB), which is the most that is read: make it smaller"
# Files are opened with os.open(): an observation reads hundreds of tiny files, and open() takes five times as long.
READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
# One read(2) returns a whole kernel file of fewer bytes: the kernel makes files of short lines page by page (seq_file).
ONE_READ = 2048
OWN_FOLDERS = ("/etc/corral/", "/var/lib/corral/", "/run/corral/")  # folders that hold only Corral's own files
TRIES = 100  # the most attempts to make a folder while other processes remove it
# Errors that mean "absent": no such name, an impossible name, a folder, links that lead to no file, a process or device that is gone
# (procfs, kernfs), a value that the object does not have (the processes of a threaded group).
ABSENT = (
    errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR, errno.ELOOP, errno.ESRCH, errno.ENODEV, errno.EOPNOTSUPP
)  # fmt: skip
DENIED = "run as root; where root is denied, see the log of the security module, and how the file system is mounted"
WAY_OUT = {
    errno.EACCES: DENIED,
    errno.EPERM: DENIED,
    errno.EFBIG: "make it smaller, or remove it",
    errno.EMFILE: "raise the limit of open files of this process (LimitNOFILE=, ulimit -n)",
    errno.ENFILE: "raise fs.file-max, or end what holds files open",
    errno.ENOMEM: "free memory",
}
OTHER_WAY = "see the kernel's log (dmesg), and mend what it names"


class Unreadable(Exception):
    """A path that exists, or may exist, cannot be read: the verdict is "unknown", and nothing is written.

    Unreadable is neither an OSError nor a CorralError: code that handles those errors as "absent" or "refused" must not catch it.
    """

    def __init__(self, path: str, number: int) -> None:
        super().__init__(path, number)
        self.path, self.errno = path, number

    def __str__(self) -> str:
        return f"{self.path}: cannot be read: {self.why}"

    @property
    def why(self) -> str:
        """The kernel's text for the error, and the error's name."""
        if self.errno == errno.EFBIG:
            return TOO_LARGE
        return f"{os.strerror(self.errno)} ({errno.errorcode.get(self.errno, self.errno)})"

    @property
    def advised(self) -> str:
        """The path, the reason of the error, and what to do."""
        return f"{self.path}: cannot be read: {self.advice}"

    @property
    def advice(self) -> str:
        """The reason of the error, and what to do."""
        return f"{self.why}: {WAY_OUT.get(self.errno, OTHER_WAY)}"


def boot_clock() -> float:
    """Seconds since the machine started, including the time in suspend; this clock cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Host:
    """A machine under ``root``. A read has three outcomes: a value, None (or nothing) where the path is absent, and Unreadable.

    Writes raise OSError. While recording, ``recorded`` has the first answer to each question (a method and its arguments). ``writes`` and
    ``commands`` are kept so that tests can show that a converged run has neither.
    """

    def __init__(
        self,
        root: str = "/",
        *,
        run: t.Optional[t.Callable[[t.Sequence[str], float], Command]] = None,
        clock: t.Callable[[], float] = time.time,
        uptime: t.Callable[[], float] = boot_clock,
        record: bool = False,
    ) -> None:
        self.root = os.path.abspath(root).rstrip("/")
        self.recorded: t.Optional[dict[tuple[t.Any, ...], t.Any]] = {} if record else None
        self.writes: list[str] = []
        self.commands: list[tuple[str, ...]] = []
        self._run = run
        self._clock = clock
        self._uptime = uptime
        self.connection: t.Optional[Connection] = None  # opened and closed by systemd.py
        self.connection_tried = False
        self.device_checks: dict[tuple[str, str, str], str] = {}  # the device checks of this run: checked_devices.py

    @property
    def live(self) -> bool:
        """True for the machine on which this program runs, False for a recorded or made-up tree."""
        return not self.root

    @property
    def runs_commands(self) -> bool:
        """Whether run() starts processes on this machine: False for a tree, and if a test answers the commands."""
        return self.live and self._run is None

    @property
    def answers(self) -> bool:
        """Whether commands get an answer: False for a tree, unless a test answers them."""
        return self.live or self._run is not None

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock()

    def uptime(self) -> float:
        """Seconds since the machine started, for uses that must not depend on a clock that can be set."""
        return self._uptime()

    def boot_id(self) -> str:
        """The id of this boot (random(4)); an empty string if the kernel does not show an id."""
        return (self.read("/proc/sys/kernel/random/boot_id") or "").strip()

    def at(self, path: str) -> str:
        """The real path on this machine: ``path`` below ``root``."""
        return self.root + path

    # Reading

    @property
    def seen(self) -> set[str]:
        """The paths that were read while recording: the content of a snapshot."""
        return {question[1] for question in self.recorded or ()}

    def tell(self, answer: Answer, *question: t.Any) -> Answer:
        """Return ``answer`` unchanged; while recording, keep the answer for ``question`` (a method and its arguments)."""
        if self.recorded is not None:
            self.recorded.setdefault(question, answer)
        return answer

    def unrecorded(self, ask: t.Callable[[], Answer]) -> Answer:
        """The result of ``ask``; a recording does not keep the questions that ``ask`` puts to the host."""
        recorded, self.recorded = self.recorded, None
        try:
            return ask()
        finally:
            self.recorded = recorded

    def attempt(self, ask: t.Callable[..., Answer], path: str, *words: t.Any) -> t.Union[Answer, Unreadable]:
        """The answer of ``ask`` (a method below) for ``path``, or the Unreadable that ``ask`` raised."""
        try:
            return ask(path, *words)
        except Unreadable as error:
            self.tell(error.errno, "errno_of", path, ask.__name__, *words)
            return error

    def if_readable(self, ask: t.Callable[..., Answer], path: str, *words: t.Any) -> t.Optional[Answer]:
        """The answer of ``ask`` (a method below), or None for Unreadable. Not for decisions (test_reads.py lists all callers)."""
        answer = self.attempt(ask, path, *words)
        return None if isinstance(answer, Unreadable) else answer

    def errno_of(self, path: str, method: str, *words: t.Any) -> int:
        """The errno if the method of this name raises Unreadable for ``path``; 0 if the method returns an answer."""
        answer = self.unrecorded(lambda: self.attempt(getattr(self, method), path, *words))
        return answer.errno if isinstance(answer, Unreadable) else 0

    @staticmethod
    def absent(path: str, error: Exception) -> None:
        """Return None for an error that means that nothing is at the path (ValueError: an impossible name). Else raise Unreadable."""
        number = errno.ENOENT if isinstance(error, ValueError) else getattr(error, "errno", None) or errno.EIO
        if number not in ABSENT and path:  # The path "" is always absent, although at("") of a tree is the tree's root.
            raise Unreadable(path, number) from None

    def found(self, path: str, follow: bool = True) -> t.Optional[os.stat_result]:
        """The result of stat(2); None for an absent path. found() records nothing: its callers record their own answers."""
        try:
            return os.stat(self.at(path), follow_symlinks=follow)
        except (OSError, ValueError) as error:
            return self.absent(path, error)

    def read(self, path: str, *, follow: bool = True) -> t.Optional[str]:
        """The file's text with undecodable bytes replaced; None for an absent path, a folder, and, without ``follow``, a link."""
        data = self.read_bytes(path, follow=follow)
        return None if data is None else data.decode("utf-8", "replace")

    def read_bytes(self, path: str, follow: bool = True) -> t.Optional[bytes]:
        """The file's bytes; None as in read(). A file of more than READ_LIMIT bytes is unreadable (EFBIG)."""
        data: t.Optional[bytes] = None
        try:
            data = self._read(path, follow)
        except (OSError, ValueError) as error:
            self.absent(path, error)
        return self.tell(data, "read_bytes", path, follow)

    def lines(self, path: str, word: str) -> t.Optional[str]:
        """The lines of a file that contain ``word``; None as in read(). A recording keeps only these lines."""
        text = self.unrecorded(lambda: self.read(path))
        if text is not None:
            text = "".join(line for line in text.splitlines(keepends=True) if word in line)
        return self.tell(text, "lines", path, word)

    def processes(self, path: str) -> list[str]:
        """The processes in a cgroup.procs file, each once, without this process, which ends soon.

        A word that is no PID is left out: in a made-up tree such a word could lead out of /proc.
        """
        words = dict.fromkeys((self.unrecorded(lambda: self.read(path)) or "").split())
        words.pop(str(os.getpid()), None)
        return self.tell([word for word in words if word.isascii() and word.isdigit()], "processes", path)

    def _read(self, path: str, follow: bool) -> bytes:
        """The bytes of a file. Raises OSError and ValueError."""
        try:
            file = os.open(self.at(path), READ_FLAGS if follow else READ_FLAGS | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno == errno.ENXIO and not stat.S_ISREG(os.stat(self.at(path)).st_mode):
                error.errno = errno.EISDIR  # A socket, or a device without a driver, counts as no file.
            raise
        try:
            chunks = [os.read(file, 65536)]
            size = len(chunks[0])
            while chunks[-1]:
                if size > READ_LIMIT:
                    raise OSError(errno.EFBIG, TOO_LARGE)
                chunks.append(os.read(file, 65536))
                size += len(chunks[-1])
            return b"".join(chunks)
        finally:
            os.close(file)

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; an empty list for an absent directory."""
        try:
            names = sorted(self._names(path))
        except (OSError, ValueError) as error:
            self.absent(path, error)
            names = []
        return self.tell(names, "names", path)

    def _names(self, path: str) -> list[str]:
        """The names in a directory. Raises OSError and ValueError."""
        return os.listdir(self.at(path))

    def folders(self, path: str) -> list[str]:
        """The names of the directories in a directory, sorted, links not followed; an empty list for an absent directory."""
        try:
            names = sorted(self._folders(path))
        except (OSError, ValueError) as error:
            self.absent(path, error)
            names = []
        return self.tell(names, "folders", path)

    def _folders(self, path: str) -> list[str]:
        """The names of the directories in a directory. Raises OSError and ValueError."""
        with os.scandir(self.at(path)) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]

    def names_like(self, path: str, ends: tuple[tuple[str, str], ...]) -> list[str]:
        """The names in a directory, sorted, that match a pair of ``ends``: the beginning and the end of a name."""
        names = self.unrecorded(lambda: self.names(path))
        matching = [name for name in names if any(name.startswith(start) and name.endswith(end) for start, end in ends)]
        return self.tell(matching, "names_like", path, ends)

    def among(self, path: str, wanted: tuple[str, ...]) -> list[str]:
        """The names of ``wanted`` that are in a directory, sorted. A recording keeps only these names."""
        present = set(self.unrecorded(lambda: self.names(path)))
        return self.tell(sorted(present.intersection(wanted)), "among", path, wanted)

    def exists(self, path: str) -> bool:
        """Whether something is at the path, links followed."""
        return self.tell(self.found(path) is not None, "exists", path)

    def is_dir(self, path: str) -> bool:
        """Whether a directory is at the path, links followed."""
        status = self.found(path)
        return self.tell(status is not None and stat.S_ISDIR(status.st_mode), "is_dir", path)

    def link(self, path: str) -> t.Optional[str]:
        """The text of a symbolic link; None for any other path."""
        try:
            text = self._link(path)
        except (OSError, ValueError) as error:
            text = None
            if getattr(error, "errno", None) != errno.EINVAL:  # EINVAL: no link (readlink(2)).
                self.absent(path, error)
        return self.tell(text, "link", path)

    def _link(self, path: str) -> str:
        """The text of a symbolic link. Raises OSError and ValueError."""
        return os.readlink(self.at(path))

    def device(self, path: str) -> t.Optional[str]:
        """The name of a device file's device below /sys/dev (``char/1:3``, ``block/8:0``), links followed; None for any other path."""
        status = self.found(path)
        return self.tell(None if status is None else device_number(status), "device", path)

    def is_claimed(self, path: str) -> bool:
        """Whether a device is in exclusive use (EBUSY, EPERM): a mounted disk, a part of another disk, an open IOMMU group. Also True for an
        impossible path, such as a circle of links.
        """
        claimed = False
        try:
            os.close(os.open(self.at(path), READ_FLAGS | os.O_EXCL))
        except (OSError, ValueError) as error:
            number = getattr(error, "errno", None)
            claimed = number not in (errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.ENOMEDIUM)
            if claimed and number not in (errno.EBUSY, errno.EPERM):
                self.absent(path, error)
        return self.tell(claimed, "is_claimed", path)

    def mode(self, path: str) -> t.Optional[int]:
        """The permission bits of a path (0o644), links not followed; None for an absent path."""
        status = self.found(path, False)
        return self.tell(None if status is None else stat.S_IMODE(status.st_mode), "mode", path)

    def permissions(self, path: str) -> t.Optional[tuple[int, int]]:
        """The mode with the file type, and the owner's uid, links not followed; None for an absent path."""
        status = self.found(path, False)
        return self.tell(None if status is None else (status.st_mode, status.st_uid), "permissions", path)

    def is_setuid(self, path: str) -> bool:
        """Whether a program runs with its owner's user id, links followed."""
        status = self.found(path)
        return self.tell(status is not None and bool(status.st_mode & stat.S_ISUID), "is_setuid", path)

    def first_line(self, path: str) -> str:
        """The text after #! in a program, as the kernel reads it (execve(2)); an empty string without #!, and for an absent program."""
        try:
            file = os.open(self.at(path), READ_FLAGS)
            try:
                data = os.read(file, 256) if stat.S_ISREG(os.fstat(file).st_mode) else b""
            finally:
                os.close(file)
        except (OSError, ValueError) as error:
            self.absent(path, error)
            data = b""
        return self.tell(os.fsdecode(data[2:].split(b"\n")[0]) if data.startswith(b"#!") else "", "first_line", path)

    def modified(self, path: str) -> t.Optional[float]:
        """When a file was last written, in epoch seconds, links followed; None for an absent path."""
        status = self.found(path)
        return self.tell(None if status is None else status.st_mtime, "modified", path)

    def changed(self, path: str) -> t.Optional[float]:
        """When a file, a link to the file, or the names in a folder last changed, in epoch seconds; None for an absent path.

        Programs can set the time of modified(), but not the time of changed(): a copy that keeps the old time of a file counts as changed
        now.
        """
        target, itself = self.found(path), self.found(path, False)
        changed = None if target is None or itself is None else max(target.st_ctime, itself.st_ctime)
        return self.tell(changed, "changed", path)

    def stamp(self, path: str) -> t.Optional[list[int]]:
        """A file's inode, size in bytes, and times of the last write and change in nanoseconds; None for an absent path."""
        status = self.found(path)
        facts = None if status is None else [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
        return self.tell(facts, "stamp", path)

    def links(self, path: str) -> t.Optional[int]:
        """The number of links of a directory: two, and one for each directory inside; 1 if the file system does not count links; None for
        an absent path. links() records nothing: its callers record their own answers.
        """
        status = self.found(path)
        return None if status is None else status.st_nlink

    def writable(self, path: str) -> bool:
        """Whether this process may write a file, or make names in a folder; False if the file or folder is immutable or mounted read-only.

        os.access() alone would return False after any error; found() raises Unreadable.
        """
        there = self.found(path) is not None
        return self.tell(there and os.access(self.at(path), os.W_OK), "writable", path)

    def read_only(self, path: str) -> bool:
        """Whether the file system of ``path`` is mounted read-only."""
        try:
            answer = bool(os.statvfs(self.at(path)).f_flag & os.ST_RDONLY)
        except OSError as error:
            self.absent(path, error)
            answer = False
        return self.tell(answer, "read_only", path)

    def space(self, path: str) -> t.Optional[tuple[int, int, int]]:
        """The file system of ``path``: its device, its size, and the bytes free for users other than root; None for an absent path."""
        try:
            usage, device = os.statvfs(self.at(path)), os.stat(self.at(path)).st_dev
        except OSError as error:
            return self.absent(path, error)
        return device, usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize

    def device_space(self, device: str) -> t.Optional[tuple[int, int, int]]:
        """The result of space() for the local file system with this device number in the table of mounts ("8:1").

        The mount's folder is opened without following links, and FUSE is left out, so that only the kernel answers.
        """
        # splitlines() would also split at other characters in a folder's name; the kernel writes a line feed as \012.
        for line in (self.read("/proc/self/mountinfo") or "").split("\n")[:-1]:
            mount, dummy, number, dummy, folder, dummy = line.split(" ", 5)
            kind = line.partition(" - ")[2].split(" ")[0]
            local = not number.startswith("0:") or kind in ("bcachefs", "btrfs", "overlay", "tmpfs", "zfs")
            if number != device or not local or kind.startswith("fuse"):
                continue
            for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                folder = folder.replace(code, char)
            try:
                file = os.open(self.at(folder), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError as error:
                if error.errno != errno.EACCES:  # EACCES: a user's FUSE mount, closed to root, hides the folder.
                    self.absent(folder, error)
                continue  # The mount point is no folder, or another mount hides the mount point.
            try:
                usage = os.statvfs(file)
                if f"\nmnt_id:\t{mount}\n" in (self.read(f"/proc/self/fdinfo/{file}") or ""):
                    number_of = os.makedev(*map(int, number.split(":")))
                    return number_of, usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize
            except OSError as error:
                self.absent(folder, error)
            finally:
                os.close(file)
        return None

    # Writing

    def write_value(self, path: str, text: str) -> None:
        """Write a kernel file (sysfs, procfs, cgroup) in one write(2); the kernel's refusal is an OSError."""
        self.writes.append(path)
        file = os.open(self.at(path), os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)

    def write_value_within(self, path: str, text: str, seconds: float) -> None:
        """Do the same as write_value() for a write that may never end; raises TimeoutError (an OSError) after ``seconds``."""
        if not self.live or self._run is not None:
            return self.write_value(path, text)
        from .slow_write import write_within

        self.writes.append(path)
        return write_within(path, text, seconds)

    def write_file(self, path: str, text: str, mode: int = 0o644) -> None:
        """Replace a whole file: write a temporary file in the same folder, flush it, and rename it. Missing folders are made (0755).

        A reader sees the old text or the new text, even after a power cut. A link at ``path`` is replaced, not followed. If ``path``
        belongs to Corral's own files and a folder is there, the folder gets another name first.
        """
        self.writes.append(path)
        target = self.at(path)
        folder = os.path.dirname(target)
        make_folders(folder)
        temporary = f"{folder}/.{os.path.basename(target)}.corral"
        try:
            os.unlink(temporary)  # A killed writer may have left this file. (O_EXCL below refuses a planted link.)
        except FileNotFoundError:
            pass
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                data = text.encode("utf-8", "surrogateescape")
                while data:
                    data = data[os.write(file, data) :]
                os.fchmod(file, mode)
                os.fsync(file)
            finally:
                os.close(file)
            if path.startswith(OWN_FOLDERS):
                move_folder_away(target)
            os.rename(temporary, target)
        except OSError:
            os.unlink(temporary)
            raise
        sync_folder(folder)

    def write_link(self, path: str, text: str) -> None:
        """Make a symbolic link as write_file() makes a file: a present link or file is replaced."""
        self.writes.append(path)
        target = self.at(path)
        folder = os.path.dirname(target)
        make_folders(folder)
        temporary = f"{folder}/.{os.path.basename(target)}.corral"
        try:
            os.unlink(temporary)
        except FileNotFoundError:
            pass
        os.symlink(text, temporary)
        try:
            os.rename(temporary, target)
        except OSError:
            os.unlink(temporary)
            raise
        sync_folder(folder)

    def remove(self, path: str) -> None:
        """Remove a file or link if it exists, and the temporary file of a killed writer. The removal survives a power cut."""
        self.writes.append(path)
        folder, name = os.path.split(self.at(path))
        if path.startswith(OWN_FOLDERS):
            move_folder_away(f"{folder}/{name}")
        gone = False
        for target in (f"{folder}/{name}", f"{folder}/.{name}.corral"):
            try:
                os.unlink(target)
                gone = True
            except (FileNotFoundError, NotADirectoryError):
                pass
        if gone:
            sync_folder(folder)

    def make_dir(self, path: str, mode: int = 0o755) -> None:
        """Make a directory with exactly this mode; a directory that exists already keeps its mode."""
        if make_folders(self.at(path), mode):
            self.writes.append(path)

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory; an absent, filled or read-only directory is no error."""
        self.writes.append(path)
        try:
            os.rmdir(self.at(path))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.EROFS):
                raise

    def sync(self, folder: str) -> None:
        """Flush a directory, its files and their names to disk, so that a power cut loses none of them. Links are not followed."""
        for name in os.listdir(self.at(folder)):
            path = self.at(f"{folder}/{name}")
            if stat.S_ISREG(os.lstat(path).st_mode):
                file = os.open(path, READ_FLAGS | os.O_NOFOLLOW)
                try:
                    os.fsync(file)
                finally:
                    os.close(file)
        sync_folder(self.at(folder))
        sync_folder(os.path.dirname(self.at(folder)))

    # Commands

    def run(self, *argv: str, timeout: float = 60.0) -> Command:
        """Run a command of the machine, never through a shell."""
        self.commands.append(argv)
        if self._run is not None:
            return self._run(argv, timeout)
        from .command import Command, run_command

        return run_command(argv, timeout) if self.live else Command(127, "", f"{argv[0]}: a tree runs nothing")

    def ask(
        self, address: str, port: int, path: str, timeout: float = 5.0, tls: t.Optional[Tls] = None, longest: int = 4096
    ) -> tuple[int, str]:
        """The status and the body of an HTTP server's answer; 0 and the reason if the server does not answer."""
        from .kubelet import http_answer

        if not self.live:
            return 0, "a tree answers nothing"
        return http_answer.get(address, port, path, timeout, tls, longest)


def device_number(status: os.stat_result) -> t.Optional[str]:
    """The name of a device file's device below /sys/dev (``char/1:3``, ``block/8:0``); None for any other file."""
    kind = "char" if stat.S_ISCHR(status.st_mode) else "block" if stat.S_ISBLK(status.st_mode) else None
    return f"{kind}/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}" if kind else None


def move_folder_away(path: str) -> None:
    """Rename a folder at ``path``, with its content, to PATH.folder; if this name is taken, to PATH.folder1, PATH.folder2 …"""
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            return
    except (FileNotFoundError, NotADirectoryError):
        return
    free = (f"{path}.folder{number or ''}" for number in range(TRIES))
    os.rename(path, next((name for name in free if not os.path.lexists(name)), f"{path}.folder"))


def make_folders(folder: str, mode: int = 0o755) -> bool:
    """Make a folder with exactly this mode, and missing parents with 0755, whatever the umask is (the agent's is 077).

    Returns whether this process made the folder: other processes may make and remove the same folders meanwhile. Raises OSError if a file
    has the name.
    """
    for dummy in range(TRIES):
        if os.path.isdir(folder):
            return False
        make_folders(os.path.dirname(folder))
        try:
            make_folder(folder, mode)
            sync_folder(os.path.dirname(folder))
            return True
        except FileExistsError:  # Another process made the folder, or a file has the name.
            if os.path.lexists(folder) and not os.path.isdir(folder):
                raise
        except FileNotFoundError:  # Another process removed the parent.
            pass
    raise OSError(errno.EBUSY, "other processes make and remove this folder again and again", folder)


def make_folder(folder: str, mode: int) -> None:
    """Make one folder, with its mode from the start: a process could be killed before a chmod(2)."""
    umask = os.umask(0)
    try:
        os.mkdir(folder, mode)
    finally:
        os.umask(umask)


def sync_folder(folder: str) -> None:
    """Make changes of the names in ``folder`` survive a power cut (fsync(2))."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno != errno.EINVAL:  # A control group is not stored on a disk.
            raise
    finally:
        os.close(file)
