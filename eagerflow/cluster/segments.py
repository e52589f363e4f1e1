"""Segments: memory that two processes of one machine share, for large arrays.

Who sends copies an array into a segment and tells its number; who receives uses it where it lies,
and marks the segment as free when the last array in it has gone. A segment is an open file without
a name, so nothing is left behind when a process is killed. Its first byte says whether it is in
use: the sender sets it before its message, the receiver clears it after the last use, and between
these and the other side's look at it lie a system call or the interpreter's lock, which order
memory.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Any

import numpy as np

__all__ = ["Incoming", "Outgoing", "Segment", "are_there", "settled"]

HEAD_BYTES = 64  # before the array, which so is aligned
STEP_BYTES = 1 << 16
MAX_FREE_BYTES = 256 << 20  # that a sender keeps for arrays to come
WASTE = 2  # times the size of an array that its segment may have
_FREE, _USED = 0, 1


def are_there() -> bool:
    """Whether this system has open files without names."""
    return hasattr(os, "memfd_create")


class Segment:
    """One piece of shared memory, mapped into this process."""

    def __init__(self, file: int, size: int) -> None:
        self.size = size
        self.memory = mmap.mmap(file, size)

    def array(self, shape: Any, dtype: Any, memory: Any = None) -> Any:
        """An array that lies in it."""
        count = int(np.prod(shape, dtype=np.int64))
        whole = self.memory if memory is None else memory
        return np.frombuffer(whole, dtype, count, HEAD_BYTES).reshape(shape)

    def lent(self, shape: Any, dtype: Any) -> Any:
        """An array that lies in it; the segment is free when it and all made of it have gone.

        NumPy may leave out arrays between a view and its memory, but not who has the memory: this
        is an object of its own for each loan.
        """
        memory = (ctypes.c_ubyte * self.size).from_buffer(self.memory)
        weakref.finalize(memory, self.give_back).atexit = False
        return self.array(shape, dtype, memory)

    @property
    def is_free(self) -> bool:
        """Whether nobody uses it."""
        return self.memory[0] == _FREE

    def take(self) -> None:
        """Mark it as in use."""
        self.memory[0] = _USED

    def give_back(self) -> None:
        """Mark it as free."""
        self.memory[0] = _FREE


class Outgoing:
    """The segments of one end of a connection that sends."""

    def __init__(self) -> None:
        self._segments: dict[int, Segment] = {}
        self._count = 0

    def put(self, array: Any) -> tuple[int, int, int]:
        """Copy an array into a segment: its number, its size, and its file if it is new, or -1.

        The file is the caller's to send and to close. Raises OSError where there is no memory.
        """
        wanted = HEAD_BYTES + array.nbytes
        fits = [
            (s.size, number)
            for number, s in self._segments.items()
            if wanted <= s.size <= WASTE * wanted + STEP_BYTES and s.is_free
        ]
        file = -1
        if fits:
            number = min(fits)[1]
            segment = self._segments[number]
        else:
            size = -(-wanted // STEP_BYTES) * STEP_BYTES
            file = os.memfd_create("eagerflow", os.MFD_CLOEXEC)
            try:
                os.posix_fallocate(file, 0, size)  # an error here is better than a signal later
                segment = Segment(file, size)
            except BaseException:
                os.close(file)
                raise
            number = self._count = self._count + 1
            self._segments[number] = segment
        segment.take()
        segment.array(array.shape, array.dtype)[...] = array
        return number, segment.size, file

    def surplus(self) -> list[int]:
        """Numbers of free segments beyond what is kept, which are forgotten here."""
        free = [(number, s.size) for number, s in self._segments.items() if s.is_free]
        total = sum(size for _, size in free)
        found = []
        for number, size in free:
            if total <= MAX_FREE_BYTES:
                break
            total -= size
            found.append(number)
            del self._segments[number]
        return found


class Incoming:
    """The segments of one end of a connection that receives."""

    def __init__(self) -> None:
        self._segments: dict[int, Segment] = {}

    def add(self, number: int, size: int, file: int) -> None:
        """Map a segment whose file has come."""
        try:
            if os.fstat(file).st_size < size:  # a look beyond its end would end this process
                raise EOFError("the other process says more of its memory than there is")
            self._segments[number] = Segment(file, size)
        finally:
            os.close(file)

    def array(self, number: int, shape: Any, dtype: Any) -> Any:
        """The array in a segment; its memory is free when nothing made of it is left."""
        return self._segments[number].lent(shape, dtype)

    def drop(self, numbers: list[int]) -> None:
        """Forget segments that the other end has forgotten."""
        for number in numbers:
            self._segments.pop(number, None)


def settled(array: Any) -> Any:
    """The array, copied where it lies in another process's segment: for what is kept long."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    owner = base.obj if isinstance(base, memoryview) else base
    return array.copy() if isinstance(owner, ctypes.Array) else array
