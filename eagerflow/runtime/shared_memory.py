"""Shared memory for the processes of a machine: large arrays are passed by their location.

Each process has one unnamed file, mapped once, so that nothing is left behind when it is
killed. It is divided into segments: a header, followed by an array. Other processes get the file,
and then locations of arrays in it: arrays made there are read in place, others are copied there.

Each byte of a segment's header is a loan: one for the process itself, and one each time an array
is passed to another process. The owner sets it before, the borrower clears it after the
last use, and a segment without loans is free. Between these accesses and the other side's lies a
system call or the interpreter lock, which order memory. Loans of dead processes are released.

A shared array is read-only, and the owner does not overwrite it either: to others it is
equivalent to a copy.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import threading
import weakref
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from eagerflow.handlers import raised_here
from eagerflow.runtime import buffers

__all__ = ["MIN_BYTES", "Incoming", "Outgoing", "Place", "are_there", "empty", "is_here", "settled"]

MIN_BYTES = 1 << 15  # arrays from this size are shared; see benchmarks/cluster_transport.py
MAX_FREE_BYTES = 256 << 20  # kept free for later arrays
HEAD_BYTES = mmap.PAGESIZE  # before the array, which is aligned thereby
CLASS_BITS = 2  # 4 sizes of segments for each power of two
MAX_BYTES = 1 << 42  # of reserved addresses
_FREE, _USED = 0, 1


def are_there() -> bool:
    """Whether this system supports unnamed open files."""
    return hasattr(os, "memfd_create")


class Place(NamedTuple):
    """The location of a shared array: its loan's byte, and its first byte."""

    loan: int
    begin: int


class _Segment:
    """A part of a process's shared memory: its header, and space for an array."""

    __slots__ = ("begin", "memory", "size")

    def __init__(self, memory: mmap.mmap, begin: int, size: int) -> None:
        self.memory, self.begin, self.size = memory, begin, size

    @property
    def is_free(self) -> bool:
        """Whether it has no loans."""
        return self.memory.find(b"\1", self.begin, self.begin + HEAD_BYTES) < 0

    def loan(self) -> int | None:
        """Set a byte of its header for another loan; None if all are used."""
        found = self.memory.find(b"\0", self.begin + 1, self.begin + HEAD_BYTES)
        if found < 0:
            return None
        self.memory[found] = _USED
        return found


def _lent(memory: mmap.mmap, loan: int, begin: int, shape: Any, dtype: Any) -> Any:
    """An array in shared memory; its loan ends when it and everything derived from it are freed.

    NumPy may skip arrays between a view and its memory, but not the memory's owner: this is
    a separate object for each loan.
    """
    count = math.prod(shape)
    whole = (ctypes.c_ubyte * (count * dtype.itemsize)).from_buffer(memory, begin)
    weakref.finalize(whole, _give_back, memory, loan, os.getpid()).atexit = False
    return np.frombuffer(whole, dtype, count).reshape(shape)


def _give_back(memory: mmap.mmap, loan: int, process: int) -> None:
    if os.getpid() == process:  # not in a forked child
        memory[loan] = _FREE


class SharedMemory:
    """A process's memory that others can read, with its segments and loans."""

    def __init__(self) -> None:
        self.file = os.memfd_create("eagerflow", os.MFD_CLOEXEC)
        self.size = min(4 * (buffers.memory_of_machine() or MAX_BYTES), MAX_BYTES)
        while True:
            try:
                os.ftruncate(self.file, self.size)  # ``_new`` allocates pages
                self.memory = mmap.mmap(self.file, self.size)
                break
            except raised_here(OSError, OverflowError):
                if self.size <= 1 << 26:
                    os.close(self.file)
                    raise
                self.size >>= 1
        self.address = ctypes.addressof(ctypes.c_ubyte.from_buffer(self.memory))
        self.lock = threading.Lock()
        self._end = 0
        self._holes: dict[int, list[int]] = {}  # by size, the offsets of released segments
        self._sized: dict[int, deque[_Segment]] = {}
        self._at: dict[int, _Segment] = {}  # by the offsets of their arrays
        self._holders: dict[int, Outgoing] = {}  # receivers of loans, by their bytes
        self._orphans: list[tuple[int, int]] = []  # loans of lost receivers, with their processes

    def empty(self, shape: Any, dtype: Any) -> Any:
        """An array of arbitrary values; OSError or MemoryError if there is no space."""
        wanted = math.prod(shape) * dtype.itemsize
        step = max(1 << ((wanted - 1).bit_length() - CLASS_BITS - 1), mmap.PAGESIZE)
        size = HEAD_BYTES + -(-wanted // step) * step
        with self.lock:
            segment = self._free(size) or self._new(size)
            self.memory[segment.begin] = _USED
        return _lent(self.memory, segment.begin, segment.begin + HEAD_BYTES, shape, dtype)

    def _free(self, size: int) -> _Segment | None:
        """A free segment: the one free for longest, so that few are checked."""
        own = self._sized.setdefault(size, deque())
        for _ in range(len(own)):
            own.rotate(-1)
            if own[-1].is_free:
                return own[-1]
        return None

    def _new(self, size: int) -> _Segment:
        self.end_orphans()
        self._give_up_surplus()
        holes = self._holes.get(size)
        begin = holes[-1] if holes else self._end
        if begin + size > self.size:
            raise MemoryError("there are no addresses left for shared memory")
        os.posix_fallocate(self.file, begin, size)  # an error here is better than a signal later
        if holes:
            holes.pop()
        else:
            self._end += size
        found = _Segment(self.memory, begin, size)
        self._sized[size].append(found)
        self._at[begin + HEAD_BYTES] = found
        return found

    def _give_up_surplus(self) -> None:
        """Return free segments beyond the limit to the system."""
        free = [s for own in self._sized.values() for s in own if s.is_free]
        total = sum(s.size for s in free)
        for segment in free:
            if total <= MAX_FREE_BYTES:
                break
            total -= segment.size
            self._sized[segment.size].remove(segment)
            del self._at[segment.begin + HEAD_BYTES]
            self.memory.madvise(mmap.MADV_REMOVE, segment.begin, segment.size)
            self._holes.setdefault(segment.size, []).append(segment.begin)

    def lend(self, array: Any, to: Outgoing) -> Place | None:
        """Make a loan of an array in this memory; None if that is impossible."""
        begin = _address(array) - self.address
        segment = self._at.get(begin)
        if segment is None or not array.flags.c_contiguous:
            return None
        with self.lock:
            loan = segment.loan()
            if loan is not None:
                self._holders[loan] = to
        return None if loan is None else Place(loan, begin)

    def holds(self, array: Any) -> bool:
        """Whether an array is in this memory."""
        return 0 <= _address(array) - self.address < self._end

    def leave(self, holder: Outgoing, process: int) -> None:
        """Mark the loans of a lost receiver; they are released when its process is dead."""
        with self.lock:
            own = [loan for loan, other in self._holders.items() if other is holder]
            for loan in own:
                del self._holders[loan]
            self._orphans += [(loan, process) for loan in own if self.memory[loan]]
            self.end_orphans()

    def end_orphans(self) -> None:
        dead = {process for _, process in self._orphans if is_dead(process)}
        for loan, process in self._orphans:
            if process in dead and loan not in self._holders:  # skip loans returned and made again
                self.memory[loan] = _FREE
        self._orphans = [row for row in self._orphans if row[1] not in dead]


def _address(array: Any) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def is_dead(process: int) -> bool:
    """Whether a process has definitely ended."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in b"ZX"
    except raised_here(FileNotFoundError):
        return os.path.exists("/proc/self/stat") and process > 0
    except raised_here(OSError):
        return False


_own: SharedMemory | None = None
_making = threading.Lock()


def _memory() -> SharedMemory:
    global _own
    found = _own
    if found is None:
        with _making:
            found = _own = _own or SharedMemory()
    return found


def _in_child() -> None:
    """Drop the parent's memory in a forked child."""
    global _own, _making
    _own, _making = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def empty(shape: Any, dtype: Any) -> Any:
    """An array of arbitrary values, in shared memory if available.

    ``shape`` and ``dtype`` are as for ``np.empty``, which is used for small arrays.

    >>> from eagerflow.runtime import shared_memory
    >>> shared_memory.empty((2, 3), np.dtype("float32")).shape
    (2, 3)
    """
    if math.prod(shape) * dtype.itemsize < MIN_BYTES or not are_there():
        return buffers.empty(shape, dtype)
    try:
        return _memory().empty(shape, dtype)
    except raised_here(OSError, MemoryError):
        return buffers.empty(shape, dtype)


def is_here(array: Any) -> bool:
    """Whether other processes may read an array in place: then it is not overwritten."""
    return _own is not None and _own.holds(array)


def settled(array: Any) -> Any:
    """The array, copied if it is in shared memory: for long-lived values."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    owner = base.obj if isinstance(base, memoryview) else base
    return array.copy() if isinstance(owner, ctypes.Array) else array


class Outgoing:
    """The sending end of a connection that shares arrays with a process."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._memory: SharedMemory | None = None
        """The memory of shared arrays."""
        self._has_file = False  # whether the other end has the file

    def file(self) -> tuple[int, int] | None:
        """The file of this process's memory, to be sent first, and its size; None if sent."""
        if self._has_file:
            return None
        own = _memory()
        self._has_file = True
        return own.file, own.size

    def put(self, array: Any) -> Place:
        """The location of a shared array, which is copied if it is not in shared memory.

        Raises OSError or MemoryError if there is no space.
        """
        own = self._memory = _memory()
        found = own.lend(array, self)
        if found is None:
            copy = own.empty(array.shape, array.dtype)
            copy[...] = array
            found = own.lend(copy, self)
            assert found is not None
        return found

    def close(self) -> None:
        """Release loans: the other end is lost, or cannot be reached any more."""
        if self._memory is not None:
            self._memory.leave(self, self._process)


class Incoming:
    """The receiving end: the memory of another process."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None

    def map(self, file: int, size: int) -> None:
        """Map the file that is sent first; EOFError if it is shorter than its sender claims."""
        try:
            if os.fstat(file).st_size < size:  # an access beyond its end would kill this process
                raise EOFError("the other process claims more memory than there is")
            self._memory = mmap.mmap(file, size)
        finally:
            os.close(file)

    def array(self, place: Place, shape: Any, dtype: Any) -> Any:
        """The array at a location, read-only; its loan ends when it and its views are freed."""
        if self._memory is None:
            raise EOFError("the other process shared arrays without memory")
        if not 0 <= place.loan < place.begin < len(self._memory):
            raise EOFError("the other process shared memory that it does not have")
        found = _lent(self._memory, *place, shape, dtype)
        found.flags.writeable = False
        return found
