# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""One process of Podman that answers requests (podman-system-service(1)), for as long as a pass asks.

Corral passes it a socket, like a socket unit of systemd (LISTEN_FDS): the socket has no name in any folder while
Podman runs, so that no other process can reach it, and a user's Podman cannot put another one in its place.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
import typing as t

from ..model.values.records import NamedTuple

# Podman ends that long after the last connection is gone: one connection stays open until the end of the pass, also
# when that is killed.
IDLE_SECONDS = 10
END_SECONDS = 10.0
FOLDER = "/run"
NOT_INSTALLED = 127
LARGEST = 64 << 20  # bytes of an answer; the list of 10,000 images has 10 MB
# Becomes Podman, with its standard input as descriptor 3, the first that sd_listen_fds(3) looks at. LISTEN_PID is the
# process's own number, which only that process knows where runuser starts it.
SERVE = f"""
import os
os.dup2(0, 3)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
try:
    os.execvp("podman", ["podman", "system", "service", "--time={IDLE_SECONDS}"])
except FileNotFoundError:
    os.write(2, b"podman")
    os._exit({NOT_INSTALLED})
"""
PYTHON = ("python3", "-I", "-S", "-c", SERVE)  # of the system: a user may not reach the one that runs this


class Reply(NamedTuple):
    """The answer to a request: its HTTP status and its body."""

    status: int
    body: str


class ServiceError(Exception):
    """No answer: ``code`` is that of a command that fails so (124: in time; 127: not installed), the text what was
    said, or is not installed."""

    def __init__(self, code: int, said: str = "") -> None:
        super().__init__(said)
        self.code = code


class Service:
    """A process of Podman, started with ``prefix`` before its command. Raises ServiceError."""

    def __init__(self, prefix: t.Sequence[str]) -> None:
        import subprocess

        listener, self.inode = unnamed_socket()
        self.said = os.memfd_create("podman")
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
        try:
            self.lease = self.connect(END_SECONDS)
            self.process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with  # it ends in close()
                [*prefix, *PYTHON],
                stdin=listener.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self.said,
                env=environment,
                start_new_session=True,  # no terminal of root's, as in run_command
                umask=0o022,
            )
        except OSError as error:
            os.close(self.said)
            os.close(self.inode)
            if isinstance(error, FileNotFoundError):
                raise ServiceError(NOT_INSTALLED, [*prefix, *PYTHON][0]) from None
            raise ServiceError(126, str(error)) from None
        finally:
            listener.close()  # Once Podman has ended a request is refused.

    def connect(self, timeout: float) -> socket.socket:
        """A connection; Podman need not be ready yet."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        made.settimeout(timeout)
        try:
            made.connect(f"/proc/self/fd/{self.inode}")
        except OSError:
            made.close()
            raise
        return made

    def request(self, method: str, path: str, timeout: float) -> Reply:
        """Ask, and wait for the whole answer. Raises ServiceError.

        HTTP 1.0: the answer ends with its connection.
        """
        until = time.monotonic() + timeout
        parts: list[bytes] = []
        try:
            with self.connect(timeout) as connection:
                connection.sendall(f"{method} {path} HTTP/1.0\r\nHost: podman\r\n\r\n".encode())
                size = 0
                while not parts or parts[-1]:
                    connection.settimeout(max(until - time.monotonic(), 0.001))
                    parts.append(connection.recv(1 << 16))
                    size += len(parts[-1])
                    if size > LARGEST:
                        raise ServiceError(125, f"its answer is larger than {LARGEST >> 20} MiB")
        except socket.timeout:
            raise ServiceError(124) from None
        except OSError as error:
            raise self.ended(error.strerror or "") from None
        return self.reply(b"".join(parts))

    def reply(self, answer: bytes) -> Reply:
        """An answer as it came over the connection. Raises ServiceError for half of one."""
        head, end, body = answer.partition(b"\r\n\r\n")
        lines = head.decode(errors="replace").split("\r\n")
        status = re.match(r"HTTP/1\.[01] ([1-5][0-9][0-9]) ", f"{lines[0]} ")
        if not end or status is None:
            raise self.ended("it closed the connection")
        for line in lines[1:]:
            name, dummy, value = line.partition(":")
            if name.lower() == "content-length" and value.strip() != str(len(body)):
                raise self.ended("its answer is cut off")
        return Reply(int(status[1]), body.decode(errors="replace"))

    def ended(self, why: str) -> ServiceError:
        """Why there is no answer: what Podman said before it ended, else ``why``."""
        import subprocess

        code: t.Optional[int] = None
        try:
            code = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        said = os.pread(self.said, 1 << 16, 0).decode(errors="replace")
        if code == NOT_INSTALLED:  # SERVE's, or that of env, which runs it as another user
            return ServiceError(NOT_INSTALLED, said if said == "podman" else PYTHON[0])
        return ServiceError(125, said or why)

    def close(self) -> None:
        """End Podman, and wait until it did."""
        import subprocess

        self.lease.close()
        try:
            if self.process.poll() is None:  # else its number may be another process's by now
                # runuser waits for what it started, and would kill that; a user's Podman hands its signals on.
                for one in children(self.process.pid) or [self.process.pid]:
                    os.kill(one, signal.SIGTERM)
            self.process.wait(END_SECONDS)
        except ProcessLookupError:
            self.process.wait()
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.inode)
        os.close(self.said)


def unnamed_socket() -> tuple[socket.socket, int]:
    """A listening socket that has no name any more, and a descriptor of its inode, by which it can be reached."""
    path = f"{FOLDER}/corral-podman-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # of a pass with this process id that was killed right here
        listener.bind(path)
        try:
            os.chmod(path, 0o600)
            inode = os.open(path, os.O_PATH | os.O_CLOEXEC)
        finally:
            os.unlink(path)
        listener.listen(16)
    except OSError as error:
        listener.close()
        raise ServiceError(126, f"{path}: {error.strerror}") from None
    return listener, inode


def children(pid: int) -> list[int]:
    """The children of runuser; none of another process, or where the kernel does not list them."""
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii") as file:
            if file.read() != "runuser\n":
                return []
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except (OSError, ValueError):
        return []
