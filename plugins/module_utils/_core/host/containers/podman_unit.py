# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A user's Podman, through a process of that user in its own unit (podman_worker.py).

The process may be any program of the user's. So every answer is checked: the length of lines, the number of bytes and values, the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
import typing as t

from ...model.values.records import NamedTuple
from .. import transient_unit
from ..command import ENVIRONMENT
from ..files import Host
from . import podman_worker

NOT_INSTALLED = 127
LINE = 256 << 10  # the most bytes of a line; a line has one item with its labels
ANSWER = 8 << 20  # the most bytes of an answer; 10,000 images have 4 MB
VALUES = 200_000  # the most JSON values of an answer; 10,000 images have 60,000
START_SECONDS = 60.0  # for the start of the unit, in addition to the time for the first request
END_SECONDS = 15.0
# The system's Python: a user may be unable to read the agent's Python. The first line of the input is the program's length.
PYTHON = ("python3", "-I", "-S", "-c", "import sys; i = sys.stdin.buffer; exec(i.read(int(i.readline())))")
LIMITS = {
    "MemoryMax": "1G",
    "TasksMax": "1024",
    "RuntimeMaxSec": "600",
    "TimeoutStopSec": "10",
    "OOMPolicy": "kill",
    "LogLevelMax": "notice",  # systemd's own lines on each start and end are info
    "UMask": "0022",
    "WorkingDirectory": "/",
}
# CPUWeight=idle needs systemd 252.
AS_IDLE = {"CPUSchedulingPolicy": "idle", "IOSchedulingClass": "idle", "CPUWeight": "1"}


class ServiceError(Exception):
    """There is no answer. ``code`` is like a command's exit code (124: timeout; 127: the text names a program that is not installed)."""

    def __init__(self, code: int, said: str = "") -> None:
        super().__init__(said)
        self.code = code


class Account(NamedTuple):
    """The account of a process: the properties of its unit, and its environment."""

    properties: t.Mapping[str, str]
    variables: t.Mapping[str, str]


class Answer(NamedTuple):
    """An answer: the HTTP status (0: Podman's answer has an unexpected form), the error's text, and the rows."""

    status: int
    said: str
    rows: list[list[t.Any]]


class Worker:
    """The process of one account. The methods raise ServiceError."""

    def __init__(self, host: Host, account: Account, argv: t.Sequence[str] = ()) -> None:
        self.host = host
        self.unit = f"corral-podman-{os.urandom(6).hex()}.service"
        properties = {**LIMITS, **account.properties}
        if os.sched_getscheduler(0) == os.SCHED_IDLE:  # a pass of the timer
            properties.update(AS_IDLE)
        words = argv or transient_unit.command_line(PYTHON, properties, account.variables, unit=self.unit)
        try:
            self.process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with  # it ends in close()
                list(words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,  # Only the beginning of this output is read; the process waits while the pipe is full.
                bufsize=0,
                env=ENVIRONMENT,
                start_new_session=True,  # The process gets no terminal of root's.
            )
        except OSError as error:
            code = NOT_INSTALLED if isinstance(error, FileNotFoundError) else 126
            raise ServiceError(code, words[0] if code == NOT_INSTALLED else str(error)) from None
        self.input, self.output, self.said = (t.cast("t.IO[bytes]", stream).fileno() for stream in self.streams)
        for descriptor in (self.input, self.output, self.said):
            os.set_blocking(descriptor, False)
        self.whole: list[bytes] = []  # complete lines that were read, the last one first
        self.rest = b""
        program = program_text().encode()
        self.first = f"{len(program)}\n".encode() + program
        self.until = 0.0
        self.patience = 0.1

    @property
    def streams(self) -> tuple[t.Any, ...]:
        """The standard streams of the process."""
        return (self.process.stdin, self.process.stdout, self.process.stderr)

    def ask(self, request: t.Mapping[str, t.Any], timeout: float, most: float = float("inf")) -> Answer:
        """The answer to a request, within ``most`` seconds including the unit's start. After a ServiceError no more answers come."""
        self.until = time.monotonic() + min(timeout + (START_SECONDS if self.first else 0.0), most)
        first, self.first = self.first, b""
        self.patience = 0.1  # A process that answers wrongly is not waited for.
        self.write(first + json.dumps(request).encode() + b"\n")
        answer = answer_of(self.lines())
        self.patience = END_SECONDS
        return answer

    def write(self, data: bytes) -> None:
        """Send bytes. Raises ServiceError."""
        while data:
            self.wait(self.input, writing=True)
            try:
                data = data[os.write(self.input, data[: select.PIPE_BUF]) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self.ended() from None

    def lines(self) -> t.Iterator[bytes]:
        """The lines of the answer. Raises ServiceError."""
        while True:
            while self.whole:
                yield within(self.whole.pop())
            within(self.rest)
            self.wait(self.output)
            try:
                chunk = os.read(self.output, 1 << 16)
            except BlockingIOError:
                continue
            if not chunk:
                raise self.ended()
            *whole, self.rest = (self.rest + chunk).split(b"\n")
            self.whole = whole[::-1]

    def wait(self, stream: int, *, writing: bool = False) -> None:
        """Wait for a stream. Raises ServiceError when the time is up."""
        left = self.until - time.monotonic()
        streams = [stream]
        if left <= 0 or not any(select.select([] if writing else streams, streams if writing else [], [], left)):
            raise ServiceError(124)

    def ended(self) -> ServiceError:
        """The error for a process that has ended. Its text is the process's error output, or systemd-run's if the unit did not start."""
        code: t.Optional[int] = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(max(min(self.until - time.monotonic(), END_SECONDS), 0.0))
        said = b""
        with contextlib.suppress(BlockingIOError):
            said = os.read(self.said, 1 << 12)
        if code == 203:  # EXIT_EXEC of systemd
            return ServiceError(NOT_INSTALLED, PYTHON[0])
        return ServiceError(125, said.decode(errors="replace") or "the process that asks it has ended")

    def hang_up(self) -> None:
        """Tell the process that no request follows: from now on it has ``patience`` seconds to end."""
        t.cast("t.IO[bytes]", self.process.stdin).close()
        self.until = time.monotonic() + self.patience

    def close(self) -> None:
        """End the process and its unit with all its processes."""
        if not t.cast("t.IO[bytes]", self.process.stdin).closed:
            self.hang_up()
        try:
            self.process.wait(max(self.until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            # Without --no-block the pass would wait up to TimeoutStopSec= for a process that does not end.
            self.host.run("systemctl", "stop", "--no-block", self.unit, timeout=END_SECONDS)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(max(self.until + 1.0 - time.monotonic(), 0.0))
            self.process.kill()
            self.process.wait()
        for stream in self.streams:
            stream.close()


def within(line: bytes) -> bytes:
    """Return ``line``, a whole line or its beginning. Raises ServiceError if ``line`` is too long."""
    if len(line) > LINE:
        raise ServiceError(125, f"a line of its answer is longer than {LINE >> 10} KiB")
    return line


def program_text() -> str:
    """The source of podman_worker.py, which the process runs."""
    spec = t.cast("t.Any", podman_worker).__spec__
    return t.cast("str", spec.loader.get_source(spec.name))


def answer_of(lines: t.Iterator[bytes]) -> Answer:
    """The answer in ``lines``. Raises ServiceError for lines that podman_worker.py does not write."""
    rows: list[list[t.Any]] = []
    size = values = 0
    for line in lines:
        size += len(line)
        values += sum(map(line.count, (b",", b"[", b"{"))) + 1  # never below the real number of values
        if size > ANSWER or values > VALUES:
            raise ServiceError(125, f"its answer is larger than {ANSWER >> 20} MiB or has more than {VALUES} values")
        try:
            row = json.loads(line, parse_constant=no_number, parse_int=whole_number)
        except (ValueError, RecursionError):
            raise ServiceError(125, "a line of its answer is not JSON") from None
        if isinstance(row, list):
            rows.append(row)
            continue
        if not isinstance(row, dict):
            break
        said, code, status = row.get("said"), row.get("code"), row.get("status")
        if not isinstance(said, str):
            break
        if isinstance(code, int) and not isinstance(code, bool) and 0 < code < 256:
            raise ServiceError(code, said)
        if isinstance(status, int) and not isinstance(status, bool) and (status == 0 or 100 <= status < 600):
            return Answer(status, said, rows)
        break
    raise ServiceError(125, "a line of its answer is not as expected")


def no_number(dummy: str) -> t.NoReturn:
    """Refuse NaN and Infinity."""
    raise ValueError("no number")


def whole_number(digits: str) -> int:
    """An integer of at most 64 bits. Raises ValueError."""
    if len(digits) > 20:
        raise ValueError("no number of 64 bits")
    return int(digits)
