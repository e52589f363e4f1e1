"""Messages between processes: JSON with the bytes of arrays behind it.

A message is its JSON's length in four bytes, the JSON, and the arrays' numbers, as the JSON's
``arrays`` says: names of dtypes with shapes. Nothing in it can be run. Numbers are little-endian,
as they lie in memory on all machines that Python's wheels are made for.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Sequence
from functools import cache
from time import monotonic
from typing import Any

import numpy as np

from eagerflow import errors
from eagerflow.dtypes import as_dtype
from eagerflow.errors import EagerflowError
from eagerflow.handlers import raised_here, suppress

__all__ = ["Channel", "as_error", "described"]

_LENGTH = struct.Struct("<I")
_SMALL = 1 << 16  # bytes up to which a message is sent, and taken, with one system call
_PIECE = 1 << 22  # bytes between two looks at the clock
_FILE_SPACE = socket.CMSG_SPACE(struct.calcsize("i")) if hasattr(socket, "CMSG_SPACE") else 0
_CLOSED_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode


@cache
def _name(dtype: np.dtype[Any]) -> str:
    """NumPy makes the name anew each time, which takes longer than to send it."""
    return dtype.name


class Channel:
    """One end of a connection between two processes; EOFError where the other one has gone.

    >>> a, b = map(Channel, socket.socketpair())
    >>> a.send({"do": "compute"}, [np.float32([1.0, 2.0])])
    >>> b.receive()
    ({'do': 'compute'}, [array([1., 2.], dtype=float32)])
    >>> a.close()
    >>> b.receive()
    Traceback (most recent call last):
    ...
    EOFError: the other process has gone
    >>> b.close()
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.lock = threading.Lock()
        """Held while sending or receiving: another thread does not close the file meanwhile."""
        self.sent_at = self.received_at = monotonic()
        """When the system last took something to send, and when something last came."""
        self._memory = memoryview(bytearray(_SMALL))
        self._begin = self._end = 0  # of what has come into it and is not taken yet
        self._files: deque[int] = deque()
        self._brings_files = connection.family == getattr(socket, "AF_UNIX", None)

    def send(self, message: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
        """Send a message; TimeoutError where the other end does not read it."""
        kept = [np.ascontiguousarray(x) for x in arrays]
        rows = [[_name(x.dtype), x.shape] for x in arrays]
        text = _encode(message | {"arrays": rows} if rows else message).encode()
        data: list[Any] = [x.reshape(-1).view(np.uint8).data for x in kept]
        head = _LENGTH.pack(len(text)) + text
        self.sent_at = monotonic()
        try:
            if sum(map(len, data)) <= _SMALL:
                self.socket.sendall(b"".join([head, *data]))
                return
            for part in (head, *data):
                for begin in range(0, len(part), _PIECE):
                    self.socket.sendall(part[begin : begin + _PIECE])
                    self.sent_at = monotonic()
        except raised_here(TimeoutError):
            raise
        except raised_here(OSError):
            raise EOFError("the other process has gone") from None

    def receive(self, limit: int | None = None) -> tuple[dict[str, Any], list[Any]]:
        """The next message and its arrays; TimeoutError where none comes in time.

        With a ``limit`` of bytes a longer message, or one with arrays, ends the connection: so
        an unknown peer cannot ask for memory.
        """
        if limit is not None:
            return self._short(limit), []
        (length,) = _LENGTH.unpack(self._taken(_LENGTH.size))
        message = _parsed(self._taken(length))
        arrays = []
        for name, shape in message.pop("arrays", ()):
            found = np.empty(shape, as_dtype(name))
            self._fill(found.reshape(-1).view(np.uint8).data)
            arrays.append(found)
        return message, arrays

    def _short(self, limit: int) -> dict[str, Any]:
        """The next message, and nothing of what is behind it: strangers bring no files."""
        (length,) = _LENGTH.unpack(self._exactly(memoryview(bytearray(_LENGTH.size))))
        if length > limit:
            raise EOFError("the other process sent a message over the limit")
        return _parsed(self._exactly(memoryview(bytearray(length))))

    def _taken(self, count: int) -> memoryview:
        """The next bytes, until something more is taken."""
        begin = self._begin
        if count > _SMALL:
            return self._fill(memoryview(bytearray(count)))
        if self._end - begin < count:
            rest = self._end - begin
            self._memory[:rest] = self._memory[begin : self._end]
            self._begin, self._end, begin = 0, rest, 0
            while self._end < count:
                self._end += self._some(self._memory[self._end :])
        self._begin = begin + count
        return self._memory[begin : self._begin]

    def _fill(self, view: memoryview) -> memoryview:
        """Memory, filled with the next bytes."""
        here = min(len(view), self._end - self._begin)
        view[:here] = self._memory[self._begin : self._begin + here]
        self._begin += here
        if here < len(view):
            self._exactly(view[here:])
        return view

    def _exactly(self, view: memoryview) -> memoryview:
        """Memory, filled with what comes; it is not a file's place."""
        done = 0
        while done < len(view):
            done += self._some(view[done:], plain=True)
        return view

    def _some(self, view: memoryview, plain: bool = False) -> int:
        """How many bytes have come into memory, at least one; files are kept."""
        try:
            if plain or not self._brings_files:
                count = self.socket.recv_into(view)
            else:
                count, told, _, _ = self.socket.recvmsg_into([view], _FILE_SPACE, _CLOSED_ON_EXEC)
                for _, _, data in told:
                    self._files.extend(array.array("i", data))
        except raised_here(TimeoutError):
            raise
        except raised_here(OSError):
            raise EOFError("the other process has gone") from None
        if not count:
            raise EOFError("the other process has gone")
        self.received_at = monotonic()
        return count

    def send_file(self, file: int) -> None:
        """Give the other end an open file, behind a message that told of it."""
        try:
            socket.send_fds(self.socket, [b"f"], [file])
        except raised_here(TimeoutError):
            raise
        except raised_here(OSError):
            raise EOFError("the other process has gone") from None

    def receive_file(self) -> int:
        """The file that was sent behind the last message."""
        self._taken(1)
        if not self._files:
            raise EOFError("the other process has sent no file")
        return self._files.popleft()

    def is_there(self) -> bool:
        """Whether the other end is still open; for one that says nothing unasked."""
        try:
            with self.lock:
                self.socket.settimeout(0.0)
                self.socket.recv(1, socket.MSG_PEEK)
        except raised_here(BlockingIOError):
            return True
        except raised_here(OSError):
            pass
        return False

    def close(self) -> None:
        """End the connection, also for a thread that reads from it."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        with self.lock:
            self.socket.close()
            while self._files:
                os.close(self._files.popleft())


def _parsed(text: memoryview) -> dict[str, Any]:
    """The object of a JSON text; EOFError where it is none, as nothing can follow on it."""
    try:
        found = _decode(str(text, "utf-8"))
    except raised_here(ValueError, RecursionError):
        found = None
    if type(found) is not dict:
        raise EOFError("the other process sent an invalid message")
    return found


# Errors -------------------------------------------------------------------------------------------

_FIELDS = ("problem", "op", "argument", "received", "expected", "hint", "at")


def described(error: Exception) -> dict[str, Any]:
    """An error as what a message can tell of it.

    >>> as_error(described(ef.errors.ShapeError("the ranks differ", op="stack")))
    ShapeError('the ranks differ')
    """
    if isinstance(error, EagerflowError):
        return {"class": type(error).__name__, **{n: getattr(error, n) for n in _FIELDS}}
    return {"class": type(error).__name__, "problem": f"{type(error).__name__}: {error}"}


def as_error(told: dict[str, Any]) -> Exception:
    """The error that a message tells of; RuntimeError for one that is none of eagerflow's."""
    name = told.pop("class")
    if name not in errors.__all__:
        return RuntimeError(told["problem"])
    made: Exception = getattr(errors, name)(**told)
    return made
