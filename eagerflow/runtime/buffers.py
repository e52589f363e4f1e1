"""Memory for large arrays, reused after they are freed.

Mapping fresh pages costs more than arithmetic on them, and the system takes pages back as soon
as a large array is freed. So memory of large arrays comes from a pool: blocks of pages in size
classes, each used again for the next array that fits.

An array from the pool is a plain NumPy array. It and all its views, including those made by
``memoryview``, DLPack or ``np.frombuffer``, keep one inner array alive, and a weak reference to
the latter reports when the block is free. Addresses keep nothing alive: one read from
``array.ctypes.data`` or ``__array_interface__`` is valid no longer than the array.

The inner array is of NumPy's own class, which the garbage collector does not track: it clears
weak references to what it tracks before it runs finalizers, and these may still use the memory.
"""

from __future__ import annotations

import ctypes
import gc
import math
import mmap
import os
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache
from operator import attrgetter, index
from typing import Any
from weakref import getweakrefs

import numpy as np

from eagerflow.errors import OutOfMemoryError
from eagerflow.handlers import raised_here
from eagerflow.locks import reentrant_lock
from eagerflow.runtime import allocation

Array = np.ndarray[Any, Any]

CLASS_BITS = 3  # 8 size classes for each power of two, so that at most an eighth is unused
HUGE_PAGE_BYTES = 1 << 21  # first use of a huge page costs a quarter of that of small ones
MAX_KEPT_BYTES = 4 << 30
CGROUP_LIMITS = (  # of version 2 and of version 1
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)

HINT = (
    "drop tensors that are no longer needed, work on smaller batches, or raise the limit with"
    " ef.set_memory_limit"
)
REFUSALS = (OSError, OverflowError, ValueError)  # of pages, by the system

# The system --------------------------------------------------------------------------------------


def min_pooled_bytes() -> int:
    """Bytes from which the pool saves more time than it costs.

    glibc keeps blocks of up to 32 MiB by itself, so that fewer of them are mapped afresh.
    """
    try:
        glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except raised_here(AttributeError, ValueError, OSError):
        glibc = False
    return 1 << (20 if glibc else 18)


def map_pages(size: int) -> Any:
    """``size`` bytes of fresh pages, unmapped when the object and all buffers of it are gone.

    Raises one of REFUSALS if the system has not enough memory.
    """
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, size)
    # Shared pages, Python's default, would be shared with forked processes.
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            pages.madvise(mmap.MADV_HUGEPAGE)
        except raised_here(OSError):
            pass  # a kernel without huge pages
    return pages


@cache
def system_trim() -> Callable[[int], object]:
    """A function that returns memory kept by ``malloc``: glibc's ``malloc_trim``; else a no-op."""
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except raised_here(AttributeError, TypeError, OSError):  # musl and macOS; Windows
        return lambda pad: None
    return trim


def memory_of_machine() -> int | None:
    """Bytes of physical memory that this process may use; None if unknown."""
    found = []
    try:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except raised_here(AttributeError, ValueError, OSError):
        return None
    for path in CGROUP_LIMITS:
        try:
            with open(path) as file:
                found.append(int(file.read()))
        except raised_here(OSError, ValueError):  # no such file, or "max"
            continue
    return min(found)


def default_kept_limit() -> int:
    """A quarter of the memory, at most 4 GiB; 1 GiB if it is not known."""
    memory = memory_of_machine()
    return min(MAX_KEPT_BYTES, (memory or MAX_KEPT_BYTES) // 4)


MIN_POOLED_BYTES = min_pooled_bytes()

# The pool ----------------------------------------------------------------------------------------


class _Block:
    """Pages of memory, the lease of the array that uses them, and their free list."""

    __slots__ = ("home", "lease", "pages", "since", "size")

    def __init__(self, size: int, home: deque[_Block]) -> None:
        self.size = size
        self.home = home
        self.pages = memoryview(map_pages(size))
        self.lease: _Lease | None = None
        self.since = 0  # time of the last return


class _Lease(weakref.ref[Array]):
    """A reference to the inner array that all views of a block keep alive."""

    __slots__ = ("block",)

    block: _Block


class BufferPool:
    """Blocks of memory in use by arrays, and kept free blocks.

    ``kept_limit`` bounds the bytes of kept blocks; None stands for a quarter of the machine's
    memory, at most 4 GiB. Any thread may use a pool at any time, including a
    finalizer or a signal handler that interrupts it: its lock is reentrant,
    and every statement under it leaves consistent figures for such a caller, and for a
    forked child. The lock is Python's own, since a microsecond matters here.
    """

    def __init__(self, kept_limit: int | None = None) -> None:
        self.lock = reentrant_lock()
        self._blocks: set[_Block] = set()
        self._kept: dict[int, deque[_Block]] = {}  # by size, most recent at the right
        self._limit: float = math.inf
        self._kept_limit = default_kept_limit() if kept_limit is None else kept_limit
        self._mapped = self._in_use = self._peak = 0  # bytes
        self._reuses = self._made = self._time = 0
        self._counts = False  # whether NumPy's own arrays count as well
        self._when_dead = self._take_back  # one bound method for all leases

    # Arrays ----------------------------------------------------------------------------------

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float64) -> Array:
        """A C-contiguous array of arbitrary values, as from ``np.empty``.

        From ``MIN_POOLED_BYTES`` on, its memory comes from the pool and starts at a page. Raises
        OutOfMemoryError if the limit or the system refuses the memory.

        >>> BufferPool().empty((1000, 1000), np.float32).flags.c_contiguous
        True
        """
        if not isinstance(dtype, np.dtype):
            dtype = np.dtype(dtype)
        try:
            count = math.prod(shape)  # type: ignore[arg-type]
        except raised_here(TypeError):
            count = index(shape)  # type: ignore[arg-type]
        nbytes = count * dtype.itemsize
        if nbytes < MIN_POOLED_BYTES or dtype.hasobject or dtype.subdtype:
            return np.empty(shape, dtype)
        nbytes = int(nbytes)
        shift = (nbytes - 1).bit_length() - CLASS_BITS - 1
        size = (((nbytes - 1) >> shift) + 1) << shift
        inner = self.lend(size, dtype, count)
        if inner is None:
            gc.collect()  # reference cycles may hold unreachable arrays
            self.stats()  # recounts
            inner = self.lend(size, dtype, count)
            if inner is None:
                raise self._refusal(nbytes)
        return inner.reshape(shape)

    def empty_like(self, array: Array) -> Array:
        """An array of the shape and dtype of ``array``, with its order of axes in memory.

        It is contiguous even if ``array`` is not; if the order of the axes is neither
        C's nor Fortran's, it is C's. Raises the errors of ``empty``.

        >>> BufferPool().empty_like(np.ones((300, 4000)).T).flags.f_contiguous
        True
        """
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            return self.empty(array.shape[::-1], array.dtype).T
        return self.empty(array.shape, array.dtype)

    def has_made(self, inner: Array) -> bool:
        """Whether an array is directly in a block of the pool, with no other array as its base."""
        return any(type(ref) is _Lease and ref.block in self._blocks for ref in getweakrefs(inner))

    def lend(self, size: int, dtype: np.dtype[Any], count: int) -> Array | None:
        """An inner array on a block of ``size`` bytes; None if no memory is available."""
        with self.lock:
            try:
                # The most recently used block: its pages may still be in a cache.
                block = self._kept[size].pop()
            except raised_here(KeyError, IndexError):
                found = self._make(size)
                if found is None:
                    return None
                block = found
            else:
                self._reuses += 1
            inner = np.frombuffer(block.pages, dtype, count)
            lease = _Lease(inner, self._when_dead)
            lease.block = block
            block.lease = lease
            self._lent(size)
        return inner

    def _lent(self, size: int) -> None:
        """Count ``size`` more bytes in use, which lowers the limit for NumPy's arrays."""
        self._in_use = used = self._in_use + size
        if self._counts:
            allocation.counters[allocation.LENT] = used
            used += allocation.counted_bytes()
        if used > self._peak:
            self._peak = used

    def _room(self) -> float:
        """Bytes that may still be used."""
        return self._limit - self._in_use - (allocation.counted_bytes() if self._counts else 0)

    def _make(self, size: int) -> _Block | None:
        """A new block, after dropping kept ones to make room."""
        if size > self._room():
            return None
        home = self._kept.setdefault(size, deque())
        for room in (self._room() - size, 0):
            self._forget(room)
            try:
                block = _Block(size, home)
                break
            except REFUSALS:
                continue
        else:
            return None
        self._blocks.add(block)
        self._mapped += size
        self._made += 1
        return block

    def _take_back(self, lease: _Lease) -> None:
        """Keep the block of a freed array: called by its lease, a weak reference."""
        block = lease.block
        with self.lock:
            if block.lease is not lease:
                return
            block.lease = None
            self._time = block.since = self._time + 1
            self._lent(-block.size)
            used = self._in_use
            block.home.append(block)
            mapped = self._mapped
            if mapped - used <= self._kept_limit and mapped <= self._limit:
                return
            gone = self._forget(self._limit - used)
        gone.clear()  # unmapping takes time, so it is done after the lock

    def _forget(self, room: float) -> list[_Block]:
        """Remove kept blocks, the oldest first, until the others fit into ``room`` bytes."""
        room = max(0, min(room, self._kept_limit))
        gone: list[_Block] = []
        while self._mapped - self._in_use > room:
            oldest = [blocks[0] for blocks in self._kept.copy().values() if blocks]
            if not oldest:
                break
            block = min(oldest, key=attrgetter("since")).home.popleft()
            self._blocks.discard(block)
            self._mapped -= block.size
            gone.append(block)
        return gone

    # Limits and figures ----------------------------------------------------------------------

    def set_limit(self, size: int | None) -> None:
        """Limit arrays of the pool to ``size`` bytes in all; None lifts the limit.

        Kept blocks are dropped if they do not fit. Only arrays from ``empty``
        with ``MIN_POOLED_BYTES`` or more count.
        """
        self._set("_limit", math.inf if size is None else size)

    def set_common_limit(self, size: int | None) -> None:
        """Limit all arrays that kernels make to ``size`` bytes in all; None lifts the limit.

        Arrays that NumPy allocates itself count from when the limit is set; without llvmlite only
        those of the pool do.
        """
        with self.lock:
            self._recount()
            lent = self._in_use
        self._counts = allocation.limit(size, lent)
        self.set_limit(size)

    def set_kept_limit(self, size: int | None) -> None:
        """Keep free blocks of ``size`` bytes in all; None stands for the default."""
        self._set("_kept_limit", default_kept_limit() if size is None else size)

    def _set(self, name: str, value: float) -> None:
        with self.lock:
            setattr(self, name, value)
            gone = self._forget(self._limit - self._in_use)
        gone.clear()

    def release(self) -> int:
        """Return all kept blocks to the system, and memory kept by ``malloc``.

        Returns the bytes of the blocks.
        """
        with self.lock:
            self._recount()
            size = self._mapped - self._in_use
            gone = self._forget(0)
        gone.clear()
        system_trim()(0)
        return size

    def stats(self) -> dict[str, int]:
        """Figures of the pool, in bytes and in counts since it was made.

        ``bytes_in_use`` by arrays and their peak, ``bytes_kept`` in free blocks,
        ``allocations`` of arrays and how many of them were ``reuses`` of a kept block;
        ``bytes_limit`` is 0 without a limit. Under a common limit, arrays that NumPy has made
        since it was set count as in use too.
        """
        with self.lock:
            self._recount()
            counted = self._counts
            return {
                "bytes_in_use": self._in_use + (allocation.counted_bytes() if counted else 0),
                "bytes_kept": self._mapped - self._in_use,
                "peak_bytes_in_use": max(
                    self._peak, allocation.counters[allocation.PEAK] if counted else 0
                ),
                "allocations": self._made + self._reuses,
                "reuses": self._reuses,
                "bytes_limit": 0 if self._limit is math.inf else int(self._limit),
            }

    def _recount(self) -> None:
        """Correct figures after an interrupt in the middle of a call, such as Ctrl-C."""
        kept = {block for blocks in self._kept.copy().values() for block in blocks.copy()}
        self._blocks |= kept
        for block in self._blocks.copy():
            lease = block.lease
            if lease is None and block not in kept:
                self._blocks.discard(block)
            elif lease is not None and lease() is None:
                self._take_back(lease)
        blocks = self._blocks.copy()
        self._in_use = 0
        self._lent(sum([block.size for block in blocks if block.lease is not None]))
        self._mapped = sum([block.size for block in blocks])

    def _refusal(self, nbytes: int) -> OutOfMemoryError:
        used = self.stats()["bytes_in_use"]
        if self._limit is math.inf:
            return OutOfMemoryError(
                f"the system has no {nbytes:,} bytes for an array; arrays have {used:,} in use",
                hint="drop tensors that are no longer needed, or work on smaller batches",
            )
        return OutOfMemoryError(
            f"an array of {nbytes:,} bytes exceeds the limit of {self._limit:,};"
            f" {used:,} are in use",
            hint=HINT,
        )


_pool = BufferPool()

empty = _pool.empty
empty_like = _pool.empty_like
set_limit = _pool.set_common_limit
set_kept_limit = _pool.set_kept_limit
release = _pool.release
has_made = _pool.has_made
stats = _pool.stats
