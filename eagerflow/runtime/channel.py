"""Messages between processes: JSON with the bytes of arrays behind it.

A message is its JSON's length in four bytes, the JSON, and the arrays' numbers, as the JSON's
``arrays`` says: names of dtypes with shapes. Nothing in it can be run. Numbers are little-endian,
as they lie in memory on all machines that Python's wheels are made for.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import numpy as np

from eagerflow import errors
from eagerflow.dtypes import as_dtype
from eagerflow.errors import EagerflowError

__all__ = ["Channel", "as_error", "described"]

_LENGTH = struct.Struct("<I")
_SMALL = 1 << 16  # bytes up to which what is sent is joined first: one system call for all
_PIECE = 1 << 22  # bytes between two looks at the clock
_encode = json.JSONEncoder(separators=(",", ":")).encode


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
        """Held by whoever sends or receives: another thread does not close the file meanwhile."""
        self.sent_at = self.received_at = monotonic()
        """When the system last took something to send, and when something last came."""

    def send(self, message: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
        """Send a message; TimeoutError where the other end does not read it."""
        kept = [np.ascontiguousarray(x) for x in arrays]
        rows = [[x.dtype.name, x.shape] for x in arrays]
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
        except TimeoutError:
            raise
        except OSError:
            raise EOFError("the other process has gone") from None

    def receive(self, limit: int | None = None) -> tuple[dict[str, Any], list[Any]]:
        """The next message and its arrays; TimeoutError where none comes in time.

        With a ``limit`` of bytes a longer message, or one with arrays, ends the connection: so
        who is not known yet cannot ask for memory.
        """
        (length,) = _LENGTH.unpack(self._read(bytearray(_LENGTH.size)))
        if limit is not None and length > limit:
            raise EOFError("the other process sends more than it may")
        message = _parsed(self._read(bytearray(length)))
        arrays = []
        for name, shape in message.pop("arrays", ()) if limit is None else ():
            array = np.empty(shape, as_dtype(name))
            self._read(array.reshape(-1).view(np.uint8))
            arrays.append(array)
        return message, arrays

    def _read(self, memory: Any) -> Any:
        """Fill memory with what comes."""
        view = memoryview(memory)
        done = 0
        try:
            while done < len(view):
                count = self.socket.recv_into(view[done:])
                if not count:
                    raise EOFError("the other process has gone")
                done += count
                self.received_at = monotonic()
        except TimeoutError:
            raise
        except OSError:
            raise EOFError("the other process has gone") from None
        return memory

    def send_file(self, file: int) -> None:
        """Give the other end an open file, behind a message that told of it."""
        try:
            socket.send_fds(self.socket, [b"f"], [file])
        except TimeoutError:
            raise
        except OSError:
            raise EOFError("the other process has gone") from None

    def receive_file(self) -> int:
        """The file that was sent behind the last message."""
        data, files, _, _ = socket.recv_fds(self.socket, 1, 1)
        if not data or not files:
            raise EOFError("the other process has gone")
        return files[0]

    def is_there(self) -> bool:
        """Whether the other end is still open; for one that says nothing unasked."""
        try:
            with self.lock:
                self.socket.settimeout(0.0)
                self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        """End the connection, also for a thread that reads from it."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        with self.lock:
            self.socket.close()


def _parsed(text: bytearray) -> dict[str, Any]:
    """The object of a JSON text; EOFError where it is none, as nothing can follow on it."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if type(found) is not dict:
        raise EOFError("the other process sends what is no message")
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
