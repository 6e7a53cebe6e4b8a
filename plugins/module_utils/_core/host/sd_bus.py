# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""One connection to systemd (org.freedesktop.systemd1(5)) for all steps of a plan, through libsystemd.

A systemctl process costs ten times as much as a call here. Only a step that calls systemd loads this file: to import ctypes takes longer
than a converged tick may take. Only functions of sd-bus(3) with a fixed number of arguments are called: ctypes does not know which
arguments are variadic, and some architectures pass variadic arguments in another way.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
import typing as t

from ..model.systemd.bus_values import MANAGER_PATH, Property, covers, object_path, typed

LIBRARY = "libsystemd.so.0"
# systemd's addresses, each with whether a message broker is in between. The first address is for root only, and works before the broker
# runs; systemctl(1) also tries this address first.
ADDRESSES = (("unix:path=/run/systemd/private", False), ("unix:path=/run/dbus/system_bus_socket", True))
CONNECT_SECONDS = 30.0  # PID 1 does not answer during a daemon-reload
NAME = b"org.freedesktop.systemd1"
MANAGER = b"org.freedesktop.systemd1.Manager"
PROPERTIES = b"org.freedesktop.DBus.Properties"
# Exit codes of systemctl(1); 124 as in host/command.py.
FAILED, TIMED_OUT = 1, 124
CODES = {b"org.freedesktop.systemd1.NoSuchUnit": 5}
METHODS = {"start": b"StartUnit", "stop": b"StopUnit", "restart": b"RestartUnit", "daemon-reload": b"Reload"}
LOST = (errno.ENOTCONN, errno.ECONNRESET, errno.EPIPE, errno.ESHUTDOWN, errno.EINTR)


class BusError(Exception):
    """systemd's error message, or a timeout; ``code`` is the exit code that systemctl would have."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Unavailable(Exception):
    """The connection broke. The request may have been carried out."""


class NotCovered(Exception):
    """Only systemctl can carry out the request; the connection did nothing."""


class Error(ctypes.Structure):
    """The C struct sd_bus_error."""

    _fields_ = (("name", ctypes.c_char_p), ("message", ctypes.c_char_p), ("need_free", ctypes.c_int))


HANDLE, TEXT, KIND, INT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char, ctypes.c_int
# The types of the functions' arguments; all functions return an int.
FUNCTIONS: dict[str, tuple[t.Any, ...]] = {
    "sd_bus_new": (HANDLE,),
    "sd_bus_set_address": (HANDLE, TEXT),
    "sd_bus_set_bus_client": (HANDLE, INT),
    "sd_bus_start": (HANDLE,),
    "sd_bus_is_ready": (HANDLE,),
    "sd_bus_process": (HANDLE, HANDLE),
    "sd_bus_wait": (HANDLE, ctypes.c_uint64),
    "sd_bus_call": (HANDLE, HANDLE, ctypes.c_uint64, HANDLE, HANDLE),
    "sd_bus_message_new_method_call": (HANDLE, HANDLE, TEXT, TEXT, TEXT, TEXT),
    "sd_bus_message_append_basic": (HANDLE, KIND, HANDLE),
    "sd_bus_message_append_array": (HANDLE, KIND, HANDLE, ctypes.c_size_t),
    "sd_bus_message_open_container": (HANDLE, KIND, TEXT),
    "sd_bus_message_close_container": (HANDLE,),
    "sd_bus_message_is_signal": (HANDLE, TEXT, TEXT),
    "sd_bus_message_enter_container": (HANDLE, KIND, TEXT),
    "sd_bus_message_read_basic": (HANDLE, KIND, HANDLE),
}
# The functions that free their argument; callers need no result of these functions.
RELEASES = ("sd_bus_close", "sd_bus_unref", "sd_bus_message_unref", "sd_bus_error_free")


def library() -> t.Any:
    """libsystemd with the types of its functions; None if the library is not installed or too old."""
    try:
        lib = ctypes.CDLL(LIBRARY)
        for name, arguments in FUNCTIONS.items():
            getattr(lib, name).argtypes = arguments
        for name in RELEASES:
            getattr(lib, name).argtypes = (HANDLE,)
            getattr(lib, name).restype = HANDLE
    except (OSError, AttributeError):
        return None
    return lib


def connect() -> t.Optional[Connection]:
    """A connection to systemd; None without libsystemd, or when no address answers."""
    lib = library()
    for address, broker in ADDRESSES if lib else ():
        connection = Connection(lib)
        try:
            connection.open(address, broker, CONNECT_SECONDS)
            return connection
        except (Unavailable, BusError):
            connection.close()
    return None


class Connection:
    """A connection to systemd, closed by ``close`` or with its last reference. Only one thread may use it."""

    def __init__(self, lib: t.Any) -> None:
        self.lib = lib
        self.bus = HANDLE()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; a second call does nothing."""
        bus, self.bus = self.bus, HANDLE()
        if bus:
            self.lib.sd_bus_close(bus)
            self.lib.sd_bus_unref(bus)

    def open(self, address: str, broker: bool, seconds: float) -> None:
        """Connect and wait until messages can be sent. Raises Unavailable or BusError."""
        checked(self.lib.sd_bus_new(ctypes.byref(self.bus)))
        checked(self.lib.sd_bus_set_address(self.bus, address.encode()))
        checked(self.lib.sd_bus_set_bus_client(self.bus, int(broker)))
        checked(self.lib.sd_bus_start(self.bus))
        deadline = time.monotonic() + seconds
        while not checked(self.lib.sd_bus_is_ready(self.bus)):
            if not checked(self.lib.sd_bus_process(self.bus, None)):
                self.wait(deadline)
        if broker:
            # Over a broker, signals need both calls: systemd sends signals to subscribers, the broker to connections with a match.
            rule = f"type='signal',path='{MANAGER_PATH.decode()}',interface='{MANAGER.decode()}',member='JobRemoved'"
            bus = (b"org.freedesktop.DBus", b"/org/freedesktop/DBus", b"org.freedesktop.DBus")
            self.call(*bus, b"AddMatch", (rule,), seconds=seconds)
            self.call(NAME, MANAGER_PATH, MANAGER, b"Subscribe", (), seconds=seconds)

    # Requests of Corral; each method raises BusError, Unavailable or NotCovered

    def set_property(self, unit: str, assignment: str, seconds: float) -> None:
        """Set a property until the next boot, live and in a file below /run/systemd/system.control."""
        wanted = typed(assignment)
        if wanted is None or not covers(unit):
            raise NotCovered(assignment)
        self.call(NAME, MANAGER_PATH, MANAGER, b"SetUnitProperties", (unit, True, [wanted]), seconds=seconds)

    def control(self, verb: str, unit: str, mode: str, seconds: float) -> None:
        """Start, stop or restart a unit and wait until the job of the unit has ended. For "daemon-reload" ``unit`` is empty."""
        method = METHODS.get(verb)
        if method is None or (not covers(unit) if unit else verb != "daemon-reload"):
            raise NotCovered(verb)
        deadline = time.monotonic() + seconds
        if not unit:
            self.call(NAME, MANAGER_PATH, MANAGER, method, (), seconds=seconds)
            return
        job = self.call(NAME, MANAGER_PATH, MANAGER, method, (unit, mode), "o", seconds=seconds)
        result = self.result_of(job, deadline)
        if result not in ("done", "skipped"):  # systemctl takes both results as success.
            raise BusError(FAILED, f"the job of {unit} ended with the result {result}: see journalctl -u {unit}")

    def active_state(self, unit: str, seconds: float) -> str:
        """The state of a unit, loaded or not: "active", "inactive" …"""
        if not covers(unit):
            raise NotCovered(unit)
        words = (f"{NAME.decode()}.Unit", "ActiveState")
        return self.call(NAME, object_path(unit), PROPERTIES, b"Get", words, "v", seconds=seconds)

    # Messages

    def call(
        self,
        name: bytes,
        path: bytes,
        interface: bytes,
        member: bytes,
        words: t.Sequence[t.Union[str, bool, t.Sequence[Property]]],
        answer: str = "",
        *,
        seconds: float,
    ) -> str:
        """Call a method and wait for the answer. Returns the answer's first text; ``answer`` is its type ("o": path, "v": variant; "": no
        text).
        """
        message, reply, error = HANDLE(), HANDLE(), Error()
        try:
            new = self.lib.sd_bus_message_new_method_call
            checked(new(self.bus, ctypes.byref(message), name, path, interface, member))
            for word in words:
                self.append(message, word)
            limit = max(int(seconds * 1e6), 1)
            code = self.lib.sd_bus_call(self.bus, message, limit, ctypes.byref(error), ctypes.byref(reply))
            if code < 0:
                raise failure(-code, error, seconds)
            return self.text_of(reply, answer) if answer else ""
        finally:
            self.lib.sd_bus_error_free(ctypes.byref(error))
            self.lib.sd_bus_message_unref(reply)
            self.lib.sd_bus_message_unref(message)

    def append(self, message: ctypes.c_void_p, word: t.Union[str, bool, t.Sequence[Property]]) -> None:
        """Add a text, a boolean, or properties (``a(sv)``) to a message."""
        lib = self.lib
        if isinstance(word, str):
            checked(lib.sd_bus_message_append_basic(message, b"s", word.encode()))
        elif isinstance(word, bool):
            checked(lib.sd_bus_message_append_basic(message, b"b", ctypes.byref(INT(word))))
        else:
            checked(lib.sd_bus_message_open_container(message, b"a", b"(sv)"))
            for prop in word:
                checked(lib.sd_bus_message_open_container(message, b"r", b"sv"))
                self.append(message, prop.name)
                checked(lib.sd_bus_message_open_container(message, b"v", prop.kind.encode()))
                if isinstance(prop.value, bytes):
                    checked(lib.sd_bus_message_append_array(message, b"y", prop.value, len(prop.value)))
                else:
                    checked(lib.sd_bus_message_append_basic(message, b"t", ctypes.byref(ctypes.c_uint64(prop.value))))
                checked(lib.sd_bus_message_close_container(message))
                checked(lib.sd_bus_message_close_container(message))
            checked(lib.sd_bus_message_close_container(message))

    def text_of(self, message: ctypes.c_void_p, kind: str) -> str:
        """The next text of a message."""
        if kind == "v":
            checked(self.lib.sd_bus_message_enter_container(message, b"v", b"s"))
            kind = "s"
        text = TEXT()
        checked(self.lib.sd_bus_message_read_basic(message, kind.encode(), ctypes.byref(text)))
        return (text.value or b"").decode(errors="replace")

    def result_of(self, job: str, deadline: float) -> str:
        """Wait for the end of a job; its result is "done", "failed", "canceled", "timeout", "dependency" …"""
        while True:
            message = HANDLE()
            busy = checked(self.lib.sd_bus_process(self.bus, ctypes.byref(message)))
            if message:
                try:
                    result = self.job_removed(message, job)
                finally:
                    self.lib.sd_bus_message_unref(message)
                if result:
                    return result
            elif not busy:
                self.wait(deadline)

    def job_removed(self, message: ctypes.c_void_p, job: str) -> str:
        """The result of the job if the message is the JobRemoved signal of this job; an empty string for any other message."""
        if self.lib.sd_bus_message_is_signal(message, MANAGER, b"JobRemoved") <= 0:
            return ""
        number = ctypes.c_uint32()
        checked(self.lib.sd_bus_message_read_basic(message, b"u", ctypes.byref(number)))
        path, dummy, result = (self.text_of(message, kind) for kind in "oss")
        return result if path == job else ""

    def wait(self, deadline: float) -> None:
        """Wait until the connection has something to read. Raises BusError after the deadline."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise BusError(TIMED_OUT, "not done in time: see systemctl list-jobs")
        code = self.lib.sd_bus_wait(self.bus, max(int(left * 1e6), 1))
        if code != -errno.EINTR:
            checked(code)


def checked(code: int) -> int:
    """The result of a function of libsystemd. Raises Unavailable for a negative result, which is an errno."""
    if code < 0:
        raise Unavailable(os.strerror(-code))
    return code


def failure(code: int, error: Error, seconds: float) -> Exception:
    """The exception for a failed call: no connection, no answer, or systemd's error."""
    if code in LOST:
        return Unavailable(os.strerror(code))
    if code == errno.ETIMEDOUT:
        return BusError(TIMED_OUT, f"no answer within {seconds:g} s")
    message = (error.message or b"").decode(errors="replace")
    return BusError(CODES.get(error.name or b"", FAILED), message or os.strerror(code))
