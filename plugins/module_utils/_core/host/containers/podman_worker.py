# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The program that asks one user's Podman, as that user; root reads only its short lines of JSON.

This file imports nothing of the collection: podman_unit.py sends the file's text to the system's Python in the user's own unit. Each line
of the standard input is a request. The answer has a list on each line (the rows), and ends with an object: a text ``said``, and ``status``
(HTTP's; 0: Podman's answer has an unexpected form) or ``code`` (like a command's exit code: 124 timeout, 127 not installed).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import typing as t

# Podman ends so many seconds after its last connection ends. One connection stays open for the whole pass, so that Podman also ends when
# the pass is killed.
IDLE_SECONDS = 10
END_SECONDS = 5.0
NOT_INSTALLED = 127
LARGEST = 32 << 20  # the most bytes of Podman's answer; the list of 10,000 images has 10 MB
TAIL = 64 << 10  # the bytes that are kept from the end of Podman's output
SAID = 2000  # the most characters of an error for root

Ask = t.Callable[[str, str, float], "tuple[int, str]"]


class Failed(Exception):
    """There is no answer; ``code`` is like a command's exit code (124: timeout; 127: not installed)."""

    def __init__(self, code: int, said: str = "") -> None:
        super().__init__(said)
        self.code = code


class Podman:
    """The process of Podman that answers requests (podman-system-service(1)), started by the first request.

    Podman gets its socket as if from a socket unit (LISTEN_FDS). The socket has no name in any folder.
    """

    def __init__(self, folder: str, words: t.Sequence[str] = ("podman", "system", "service", f"--time={IDLE_SECONDS}")):
        self.folder, self.words = folder, words
        self.process: t.Optional[subprocess.Popen[bytes]] = None
        self.inode = -1
        self.tail = bytearray()

    def start(self) -> None:
        """Start Podman, if it does not run. Raises Failed."""
        if self.process is not None:
            return
        self.inode, listener = unnamed_socket(f"{self.folder}/corral-podman-{os.getpid()}")
        try:
            self.lease = self.connect(END_SECONDS)
            self.process = subprocess.Popen(  # pylint: disable=all  # it ends in close(), and no thread runs yet
                list(self.words),
                stdin=listener.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                close_fds=False,  # hand_over() closes the other descriptors
                start_new_session=True,
                preexec_fn=hand_over,  # noqa: PLW1509
            )
        except FileNotFoundError:
            raise Failed(NOT_INSTALLED, self.words[0]) from None
        finally:
            listener.close()  # With the listener closed, requests are refused once Podman has ended.
        self.reader = threading.Thread(target=self.keep_tail, args=(self.process.stderr,), daemon=True)
        self.reader.start()

    def keep_tail(self, stream: t.IO[bytes]) -> None:
        """Read Podman's error output, and keep its end."""
        while True:
            chunk = os.read(stream.fileno(), TAIL)
            if not chunk:
                return
            self.tail += chunk
            del self.tail[:-TAIL]

    def connect(self, timeout: float) -> socket.socket:
        """A connection to the socket; Podman need not be ready yet."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        try:
            connection.connect(f"/proc/self/fd/{self.inode}")
        except OSError:
            connection.close()
            raise
        return connection

    def request(self, method: str, path: str, timeout: float) -> tuple[int, str]:
        """Send a request and wait for the whole answer. Returns its status and body. Raises Failed.

        With HTTP 1.0 the end of the connection ends the answer.
        """
        self.start()
        until = time.monotonic() + timeout
        answer = bytearray()
        try:
            with self.connect(timeout) as connection:
                connection.sendall(f"{method} {path} HTTP/1.0\r\nHost: podman\r\n\r\n".encode())
                while True:
                    connection.settimeout(max(until - time.monotonic(), 0.001))
                    part = connection.recv(1 << 16)
                    answer += part
                    if len(answer) > LARGEST:
                        raise Failed(125, f"its answer is larger than {LARGEST >> 20} MiB")
                    if not part:
                        return self.reply(bytes(answer))
        except socket.timeout:
            raise Failed(124) from None
        except OSError as error:
            raise self.ended(error.strerror or "") from None

    def reply(self, answer: bytes) -> tuple[int, str]:
        """Status and body of the bytes of an answer. Raises Failed for an incomplete answer."""
        head, end, body = answer.partition(b"\r\n\r\n")
        lines = head.decode(errors="replace").split("\r\n")
        words = lines[0].split(" ")
        if not end or words[0] not in ("HTTP/1.0", "HTTP/1.1") or len(words) < 2 or len(words[1]) != 3:
            raise self.ended("it closed the connection")
        for line in lines[1:]:
            name, dummy, value = line.partition(":")
            if name.lower() == "content-length" and value.strip() != str(len(body)):
                raise self.ended("its answer is cut off")
        try:
            return int(words[1]), body.decode(errors="replace")
        except ValueError:
            raise self.ended("it closed the connection") from None

    def ended(self, why: str) -> Failed:
        """The error for a missing answer: Podman's last output, or ``why`` without an output."""
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
            self.reader.join(END_SECONDS)
        return Failed(125, bytes(self.tail).decode(errors="replace") or why)

    def close(self) -> None:
        """End Podman and wait for it; a process that does not end in time ends with the unit."""
        if self.process is None:
            return
        self.lease.close()
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)


def hand_over() -> None:
    """Make the standard input descriptor 3, the first descriptor of sd_listen_fds(3), in the process that becomes Podman.

    sd_listen_fds(3) compares LISTEN_PID with the process's own PID, which only this process knows.
    """
    os.dup2(0, 3)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 3:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)
    os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))


def unnamed_socket(path: str) -> tuple[int, socket.socket]:
    """A descriptor of a socket's inode, through which a process can connect, and the listening socket, which has no name."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # A killed process with the same PID may have left this file.
        listener.bind(path)
        try:
            os.chmod(path, 0o600)
            inode = os.open(path, os.O_PATH)
        finally:
            os.unlink(path)
        listener.listen(16)
    except OSError as error:
        listener.close()
        raise Failed(126, f"{path}: {error.strerror}") from None
    return inode, listener


def answers(request: dict[str, t.Any], ask: Ask) -> t.Iterator[bytes]:
    """The lines that answer a request; ``ask`` asks Podman (Podman.request)."""
    try:
        end: dict[str, t.Any] = {"status": 200, "said": ""}
        rows: t.Iterable[t.Any] = ()
        if "stat" in request:
            rows = [stamp(path) for path in request["stat"]]
        elif "device" in request:
            rows = [[device_of(request["device"])]]
        elif "version" in request:
            rows = [[version()]]
        elif "file" in request:
            rows = picked(text_of(request["file"]), request)
        else:
            status, body = ask(request["method"], request["path"], request["timeout"])
            end["status"] = status
            if status >= 300:
                end["said"] = message(body)[:SAID]
            elif request.get("events"):
                rows = last_events(body)
            else:
                rows = picked(body, request)
        for row in rows:
            yield line_of(row)
    except ValueError as error:
        end = {"status": 0, "said": str(error)[:SAID]}
    except Failed as error:
        end = {"code": error.code, "said": str(error)[-SAID:]}
    except OSError as error:
        end = {"code": 126, "said": str(error)[:SAID]}
    yield line_of(end)


def line_of(value: t.Any) -> bytes:
    """A value as a line of JSON."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def picked(body: str, request: dict[str, t.Any]) -> list[list[t.Any]]:
    """The values of the requested keys in each object of an answer. Raises ValueError for an answer of another form."""
    try:
        data = json.loads(body or "null")  # null and [] both stand for an empty list
    except (ValueError, RecursionError):
        raise ValueError("its answer is not JSON") from None
    rows = data if isinstance(data, list) else [] if data is None else [data]
    if (request.get("list") and not (data is rows or data is None)) or not all(isinstance(row, dict) for row in rows):
        if request.get("list"):
            raise ValueError("its answer is not as expected: no list of objects")
        rows = [row for row in rows if isinstance(row, dict)]
    return [[row.get(key) for key in request["pick"]] for row in rows]


def last_events(text: str) -> list[list[t.Any]]:
    """Image name and time of each container event in ``text``, which has one event a line; a line in another form is left out.

    An image has one row with its latest time, or a row for each time if the times are texts.
    """
    rows: dict[tuple[str, str], list[t.Any]] = {}
    latest: dict[str, float] = {}
    for line in text.splitlines():
        try:
            row = json.loads(line)
            name, when = row["Actor"]["Attributes"]["image"], row["time"]
        except (ValueError, RecursionError, TypeError, KeyError):
            continue
        if not isinstance(name, str):
            continue
        if isinstance(when, (int, float)) and not isinstance(when, bool):
            if when >= latest.get(name, when):
                latest[name] = when
                rows[name, ""] = [name, when]
        elif isinstance(when, str):
            rows[name, when] = [name, when]
    return list(rows.values())


def message(body: str) -> str:
    """The message in the body of a refusal."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return body
    said = data.get("message") if isinstance(data, dict) else None
    return said if isinstance(said, str) and said else body


def stamp(path: str) -> list[int]:
    """A file's inode, size in bytes, and times of the last write and change in nanoseconds; an empty list for an absent file."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def device_of(path: str) -> str:
    """The device number of a folder's file system, as in proc_pid_mountinfo(5). Raises OSError."""
    folder = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        with open(f"/proc/self/fdinfo/{folder}", encoding="ascii") as file:
            mount = next(line.split()[1] for line in file if line.startswith("mnt_id:"))
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace", newline="\n") as file:
            return next((line.split(" ")[2] for line in file if line.startswith(f"{mount} ")), "")
    finally:
        os.close(folder)


def text_of(path: str) -> str:
    """The text of a regular file. Raises ValueError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(file, "rb") as opened:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise ValueError("it is no file")
            data = opened.read(LARGEST + 1)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST >> 20} MiB")
    return data.decode(errors="replace")


def version() -> str:
    """The output of ``podman --version``; an empty string after an error."""
    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            ["podman", "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")[:200]


def main() -> None:
    """Answer requests until the input ends."""
    podman = Podman(os.environ.get("XDG_RUNTIME_DIR") or "/run")
    try:
        for line in sys.stdin.buffer:
            for part in answers(json.loads(line), podman.request):
                sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
    finally:
        podman.close()


if __name__ == "__main__":
    main()
