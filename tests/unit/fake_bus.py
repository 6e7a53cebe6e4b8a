# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PID 1 on a socket of its own, or behind a message broker: the calls that it got, and the answers of a test.

It speaks the D-Bus protocol by itself (D-Bus Specification, "Message Protocol"), so the messages of libsystemd are read from the wire.
"""

from __future__ import annotations

import socket
import struct
import threading
import typing as t
from pathlib import Path

RETURN, ERROR, SIGNAL = 2, 3, 4
SIZES = {"y": 1, "b": 4, "u": 4, "t": 8, "s": 4, "o": 4, "g": 1, "a": 4, "(": 8, "v": 1}
NUMBERS = {"y": "<B", "b": "<I", "u": "<I", "t": "<Q"}
FIELDS = {
    1: "path",
    2: "interface",
    3: "member",
    4: "error",
    5: "serial",
    6: "destination",
    7: "sender",
    8: "signature",
}
KINDS = {1: "o", 2: "s", 3: "s", 4: "s", 5: "u", 6: "s", 7: "s", 8: "g"}
BROKER = {"Hello": ("s", ":1.7"), "AddMatch": None, "Subscribe": None}
MANAGER = {1: "/org/freedesktop/systemd1", 2: "org.freedesktop.systemd1.Manager", 3: "JobRemoved"}


class Call(t.NamedTuple):
    """A method call as it came in."""

    path: str
    interface: str
    member: str
    words: list[t.Any]


class Answer(t.NamedTuple):
    """The answer to a call: a value and its type, or an error's name and message; jobs that end ``before`` the answer or ``after`` it, as
    (path, result). Neither ``value`` nor ``error``: an empty answer. ``silent``: none at all. ``hang_up``: the connection is closed.
    """

    value: tuple[str, str] | None = None
    error: tuple[str, str] | None = None
    before: tuple[tuple[str, str], ...] = ()
    after: tuple[tuple[str, str], ...] = ()
    silent: bool = False
    hang_up: bool = False


class Reader:
    """Takes values off a message."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def align(self, size: int) -> None:
        self.at += -self.at % size

    def value(self, kind: str) -> t.Any:
        """One value of a complete type."""
        self.align(SIZES[kind[0]])
        if kind in NUMBERS:
            return struct.unpack(NUMBERS[kind], self.take(SIZES[kind]))[0]
        if kind in ("s", "o", "g"):
            length = self.take(1)[0] if kind == "g" else struct.unpack("<I", self.take(4))[0]
            return self.take(length + 1)[:-1].decode()
        if kind == "v":
            inner = self.value("g")
            return inner, self.value(inner)
        if kind[0] == "(":
            return tuple(self.value(one) for one in split(kind[1:-1]))
        length = struct.unpack("<I", self.take(4))[0]
        self.align(SIZES[kind[1]])
        end, found = self.at + length, []
        while self.at < end:
            found.append(self.value(kind[1:]))
        return found


def split(signature: str) -> list[str]:
    """The complete types of a signature."""
    found, at = [], 0
    while at < len(signature):
        end = at
        while signature[end] == "a":
            end += 1
        end = signature.index(")", end) + 1 if signature[end] == "(" else end + 1
        found.append(signature[at:end])
        at = end
    return found


def packed(kind: str, value: t.Any, at: int = 0) -> bytes:
    """A value as it stands in a message whose length is ``at`` so far."""
    pad = b"\0" * (-at % SIZES[kind[0]])
    if kind in NUMBERS:
        return pad + struct.pack(NUMBERS[kind], value)
    if kind == "v":
        head = packed("g", value[0])
        return head + packed(value[0], value[1], at + len(head))
    text: bytes = value.encode()
    length = bytes([len(text)]) if kind == "g" else struct.pack("<I", len(text))
    return pad + length + text + b"\0"


def message(kind: int, serial: int, fields: dict[int, t.Any], values: t.Sequence[tuple[str, t.Any]]) -> bytes:
    """A whole message."""
    body = b""
    for one, value in values:
        body += packed(one, value, len(body))
    if values:
        fields = {**fields, 8: "".join(one for one, dummy in values)}
    head = b""
    for code, value in fields.items():
        head += b"\0" * (-len(head) % 8) + bytes([code])
        head += packed("v", (KINDS[code], value), len(head))
    return (
        struct.pack("<cBBBIII", b"l", kind, 1, 1, len(body), serial, len(head)) + head + b"\0" * (-len(head) % 8) + body
    )


class FakeBus:
    """Listens at ``path``; ``answers`` has the answers to the next calls, ``calls`` the calls so far."""

    def __init__(self, path: Path) -> None:
        self.address = f"unix:path={path}"
        self.answers: list[Answer] = []
        self.calls: list[Call] = []
        self.rules: list[str] = []
        self.serial = 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.listener.close()

    def serve(self) -> None:
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            with client, client.makefile("rb") as stream:
                try:
                    self.greet(client, stream)
                    while self.one_call(client, stream):
                        pass
                except (OSError, struct.error):  # The other side is gone.
                    pass

    @staticmethod
    def greet(client: socket.socket, stream: t.IO[bytes]) -> None:
        """Let the other side in (D-Bus Specification, "Authentication Protocol")."""
        stream.read(1)
        answers = {
            b"AUTH": b"DATA",
            b"DATA": b"OK 0123456789abcdef0123456789abcdef",
            b"NEGOTIATE_UNIX_FD": b"AGREE_UNIX_FD",
        }
        for line in iter(stream.readline, b""):
            words = line.split()
            if words[0] == b"BEGIN":
                return
            client.sendall(answers[b"DATA" if len(words) == 3 else words[0]] + b"\r\n")

    def one_call(self, client: socket.socket, stream: t.IO[bytes]) -> bool:
        size, serial, length = struct.unpack("<xxxxIII", stream.read(16))
        fields = Reader(stream.read(length + -length % 8))
        found: dict[str, t.Any] = {}
        while fields.at < length:
            fields.align(8)
            code = fields.value("y")
            found[FIELDS[code]] = fields.value("v")[1]
        body = Reader(stream.read(size))
        words = [body.value(kind) for kind in split(found.get("signature", ""))]
        answer = self.answer(Call(found["path"], found["interface"], found["member"], words))
        if answer.hang_up:
            return False
        for job, result in answer.before:
            client.sendall(self.job_removed(job, result))
        if not answer.silent:
            client.sendall(self.reply(serial, answer))
        for job, result in answer.after:
            client.sendall(self.job_removed(job, result))
        return True

    def answer(self, call: Call) -> Answer:
        if call.member in BROKER:
            self.rules += call.words
            return Answer(BROKER[call.member])
        self.calls.append(call)
        return self.answers.pop(0) if self.answers else Answer()

    def reply(self, serial: int, answer: Answer) -> bytes:
        self.serial += 1
        if answer.error:
            return message(ERROR, self.serial, {4: answer.error[0], 5: serial}, [("s", answer.error[1])])
        return message(RETURN, self.serial, {5: serial}, [answer.value] if answer.value else [])

    def job_removed(self, job: str, result: str) -> bytes:
        self.serial += 1
        values = [("u", 7), ("o", job), ("s", "any.slice"), ("s", result)]
        return message(SIGNAL, self.serial, MANAGER, values)
