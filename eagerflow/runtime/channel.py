"""Messages between processes: JSON followed by the bytes of arrays.

A message is its JSON's length in four bytes, the JSON, and the elements of arrays, given by the
JSON's ``arrays``: names of dtypes with shapes. Nothing in it can be run. Numbers are little-endian,
as in memory on all machines that Python's wheels are made for.
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
_SMALL = 1 << 16  # bytes up to which a message takes one system call
_PIECE = 1 << 22  # bytes between two updates of the time
_FILE_SPACE = socket.CMSG_SPACE(struct.calcsize("i")) if hasattr(socket, "CMSG_SPACE") else 0
_CLOSED_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode


@cache
def _name(dtype: np.dtype[Any]) -> str:
    """The name of a dtype; cached, as NumPy's lookup takes longer than sending it."""
    return dtype.name


class Channel:
    """One end of a connection between two processes; EOFError if the other one has ended.

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
        """Held while sending or receiving, so that no other thread closes the file meanwhile."""
        self.sent_at = self.received_at = monotonic()
        """Times of the last progress in sending, and of the last data received."""
        self._memory = memoryview(bytearray(_SMALL))
        self._begin = self._end = 0  # bounds of received data not yet consumed
        self._files: deque[int] = deque()
        self._brings_files = connection.family == getattr(socket, "AF_UNIX", None)

    def send(self, message: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
        """Send a message; TimeoutError if the other end does not read it."""
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
        """The next message and its arrays; TimeoutError if none comes in time.

        With a ``limit`` of bytes a longer message, or one with arrays, ends the connection: so
        an unknown peer cannot cause large allocations.
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
        """The next message, without reading past it, and without files, as the peer is unknown."""
        (length,) = _LENGTH.unpack(self._exactly(memoryview(bytearray(_LENGTH.size))))
        if length > limit:
            raise EOFError("the other process sent a message over the limit")
        return _parsed(self._exactly(memoryview(bytearray(length))))

    def _taken(self, count: int) -> memoryview:
        """The next bytes, valid until the next call."""
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
        """``view``, filled with the next bytes."""
        here = min(len(view), self._end - self._begin)
        view[:here] = self._memory[self._begin : self._begin + here]
        self._begin += here
        if here < len(view):
            self._exactly(view[here:])
        return view

    def _exactly(self, view: memoryview) -> memoryview:
        """``view``, filled directly from the socket, without accepting files."""
        done = 0
        while done < len(view):
            done += self._some(view[done:], plain=True)
        return view

    def _some(self, view: memoryview, plain: bool = False) -> int:
        """Receive into memory; returns the number of bytes, at least one; files are stored."""
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
        """Send an open file, after a message that announces it."""
        try:
            socket.send_fds(self.socket, [b"f"], [file])
        except raised_here(TimeoutError):
            raise
        except raised_here(OSError):
            raise EOFError("the other process has gone") from None

    def receive_file(self) -> int:
        """The file that was sent after the last message."""
        self._taken(1)
        if not self._files:
            raise EOFError("the other process has sent no file")
        return self._files.popleft()

    def is_there(self) -> bool:
        """Whether the other end is still open; for one that sends nothing on its own."""
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
        """End the connection, including for a thread that reads from it."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        with self.lock:
            self.socket.close()
            while self._files:
                os.close(self._files.popleft())


def _parsed(text: memoryview) -> dict[str, Any]:
    """The object of a JSON text; EOFError if it is invalid, as nothing can follow it."""
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
    """An error as data for a message.

    >>> as_error(described(ef.errors.ShapeError("the ranks differ", op="stack")))
    ShapeError('the ranks differ')
    """
    if isinstance(error, EagerflowError):
        return {"class": type(error).__name__, **{n: getattr(error, n) for n in _FIELDS}}
    return {"class": type(error).__name__, "problem": f"{type(error).__name__}: {error}"}


def as_error(told: dict[str, Any]) -> Exception:
    """The error in a message; RuntimeError if it is none of eagerflow's."""
    name = told.pop("class")
    if name not in errors.__all__:
        return RuntimeError(told["problem"])
    made: Exception = getattr(errors, name)(**told)
    return made
