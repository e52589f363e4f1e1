"""A small pool of threads for kernels; BLAS uses one thread meanwhile.

``run(function, count)`` calls ``function(0)`` ... ``function(count - 1)``, shared between the
calling thread and the pool. NumPy and BLAS release the interpreter lock, so the calls overlap.
A kernel divides its work by shape only, never by the number of threads, and the calls write to
separate memory; so results have the same bits with any number of threads.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from functools import cache
from pickle import PickleBuffer
from queue import SimpleQueue
from typing import Any

import numpy as np

from eagerflow.errors import ArgumentError, short_repr
from eagerflow.guard import ScopeGuard
from eagerflow.handlers import raised_here
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.runtime import blas


class _Job(ScopeGuard):
    """The calls of one ``run``, with the pool's threads; left when none of them is active.

    Each thread takes the next pending call. Counters of itertools, sets and queues
    are atomic, so there is no lock that an exception could leave locked.
    """

    def __init__(self, function: Callable[[int], Any], count: int) -> None:
        self.function = function
        self.count = count
        self.errors: list[BaseException] = []
        self._take = itertools.count().__next__
        self._helping: set[int] = set()  # active threads of the pool
        self._over = False
        self._left: SimpleQueue[int] = SimpleQueue()  # receives each of them when it has ended

    def acquire(self) -> None:
        """Take the pool's threads, unless another run uses them."""
        if _lent.setdefault("pool", self) is self:
            pool = _started()
            pool.keep_off(_core())
            pool.offer(self.help, self.count - 1)

    def release(self) -> None:
        """Return the threads when none is active.

        Calls write into memory of the caller of ``run``. So Ctrl-C prevents pending calls from
        starting, but is raised only when all others have ended.
        """
        while True:
            try:
                self._over = True
                while self._helping:
                    self._left.get()
                break
            except BaseException as error:
                self.errors.append(error)
        if _lent.get("pool") is self:
            _lent.pop("pool", None)

    def work(self) -> None:
        """Make calls until none is left."""
        while (i := self._take()) < self.count and not self._over:
            if not self.errors:
                try:
                    self.function(i)
                except BaseException as error:
                    self.errors.append(error)  # raised by run(), in the thread that called it

    def help(self) -> None:
        """Work as a thread of the pool, unless the job is over."""
        me = threading.get_ident()
        self._helping.add(me)
        try:
            if not self._over:
                self.work()
        finally:
            self._helping.discard(me)
            self._left.put(me)


class _Pool:
    """Threads that wait for calls; they end when the pool is freed."""

    def __init__(self, size: int) -> None:
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._off = -1  # the core that they avoid
        self._threads = [
            threading.Thread(target=_serve, args=(self._calls,), name=f"eagerflow-{i}", daemon=True)
            for i in range(size)
        ]
        end = weakref.finalize(self, _end, self._calls, size)
        end.atexit = False  # type: ignore[misc]
        for thread in self._threads:
            thread.start()

    def keep_off(self, core: int) -> None:
        """Keep the threads off a core, that of the thread that they help.

        Waking a thread often places it on the core that the caller runs on.
        """
        if core == self._off or core < 0:
            return
        self._off = core
        cores = os.sched_getaffinity(os.getpid()) - {core}
        for thread in self._threads:
            bind(thread.native_id or 0, cores)

    def offer(self, call: Callable[[], Any], helpers: int) -> None:
        """Wake this many threads to make a call."""
        for _ in range(min(helpers, len(self._threads))):
            self._calls.put(call)
        _offers[0] += 1


def _serve(calls: SimpleQueue[Callable[[], Any] | None]) -> None:
    np.seterr(all="ignore")  # as for every kernel; the setting is this thread's own
    stand_by = None
    while (call := calls.get()) is not None:
        call()
        del call  # release its arrays
        if stand_by is None and _after_calls is not None:
            stand_by = _after_calls(_offers_address)
        known = _offers[0]
        if stand_by is not None and calls.empty():
            stand_by(known)


_offers = (ctypes.c_int64 * 1)()
"""Incremented with each offered call; polled by spinning threads."""
_offers_address = ctypes.addressof(_offers)
_after_calls: Callable[[int], Callable[[int], object]] | None = None


def dismiss() -> None:
    """Put threads of the pool to sleep at once, to leave their cores to another library."""
    _offers[0] += 1


def after_calls(prepare: Callable[[int], Callable[[int], object]]) -> None:
    """Set a function that prepares a hook for threads of the pool, run before they sleep.

    It gets the address of a number; the hook gets the number, and returns when it changes.
    """
    global _after_calls
    _after_calls = prepare


def _end(calls: SimpleQueue[Callable[[], Any] | None], count: int) -> None:
    for _ in range(count):
        calls.put(None)


class _Local(threading.local):
    """Per thread: whether its kernels run without other threads, and scratch memory."""

    alone = False

    def __init__(self) -> None:
        self.memory: dict[str, tuple[PickleBuffer, int, weakref.ref[Any]]] = {}


def _available() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_local = _Local()
_lock = reentrant_lock()
_lent: dict[str, _Job] = {}  # the run that uses the pool's threads, if any
_pool: _Pool | None = None
_count: int | None = None
_blas_threads: int | None = None  # before the first change


def thread_count() -> int:
    """The number of threads that share the work of a kernel, including the calling one.

    >>> thread_count() >= 1
    True
    """
    global _count
    if _count is None:
        _count = _available()
    return _count


def set_thread_count(count: int | None) -> None:
    """Use this many threads from now on; None stands for all processors.

    >>> set_thread_count(None)
    """
    global _count, _pool
    _pool, _count = None, count


def set_threads(count: int | None = None) -> None:
    """Use this many threads for all ops from now on, NumPy's BLAS included; None for the default.

    The last bits of products may depend on it. Raises ArgumentError for less than one thread.

    >>> ef.set_threads(2)
    >>> ef.set_threads()
    """
    global _blas_threads
    if count is not None and (type(count) is not int or count < 1):
        raise ArgumentError(
            "a number of threads is 1 or more",
            op="set_threads",
            argument="count",
            received=short_repr(count),
            expected="an int from 1 on, or None for the default",
        )
    set_thread_count(count)
    functions = blas.thread_functions()
    if functions is not None:
        setter, getter = functions
        if _blas_threads is None:
            _blas_threads = getter()
        setter(_blas_threads if count is None else count)


def _after_fork() -> None:
    # Only the forking thread lives on in the child: threads are made afresh.
    global _pool
    _pool = None
    _lent.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _started() -> _Pool:
    global _pool
    found = _pool
    if found is None:
        with Locked(_lock):
            found = _pool
            if found is None:
                found = _pool = _Pool(thread_count() - 1)
    return found


@cache
def _getcpu() -> Callable[[], int] | None:
    """The system's function for the core of the calling thread."""
    if not hasattr(os, "sched_setaffinity") or _available() < 2:
        return None
    try:
        found: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    except raised_here(AttributeError, OSError):
        return None
    return found


def bind(thread: int, cores: set[int]) -> None:
    """Restrict a thread, by the system's number, to these cores; 0 is the calling thread."""
    try:
        os.sched_setaffinity(thread, cores)
    except raised_here(OSError):
        pass  # not permitted: leave it unrestricted


def _core() -> int:
    function = _getcpu()
    return -1 if function is None else function()


class Alone(ScopeGuard):
    """A context in which kernels called by this thread use no other threads, and BLAS one."""

    def __init__(self) -> None:
        self._before: bool | None = None
        self._blas = blas.single_threaded()

    def acquire(self) -> None:
        """Begin."""
        self._before = _local.alone
        _local.alone = True
        self._blas.acquire()

    def release(self) -> None:
        """End."""
        self._blas.release()
        if self._before is not None:
            _local.alone = self._before


def run(function: Callable[[int], Any], count: int) -> None:
    """Call ``function`` with 0 ... ``count - 1``, in any order, with BLAS at one thread.

    The first exception of a call is raised after all started calls have ended. Calls
    from within a call, and while another thread uses the pool, are made one by one.

    >>> squares = [0] * 4
    >>> run(lambda i: squares.__setitem__(i, i * i), 4)
    >>> squares
    [0, 1, 4, 9]
    """
    with blas.single_threaded():
        if count < 2 or helpers() < 1:
            for i in range(count):
                function(i)
            return
        with _Job(function, count) as job:
            job.work()
    if job.errors:
        raise job.errors[0]


def run_if(shared: bool, function: Callable[[int], Any], count: int) -> None:
    """``run`` if ``shared``, else the calls one by one without changing BLAS's threads.

    >>> run_if(False, print, 2)
    0
    1
    """
    if shared:
        run(function, count)
    else:
        for i in range(count):
            function(i)


def helpers() -> int:
    """The number of other threads that may help this one; none while a run uses the pool."""
    return 0 if _lent or _local.alone else thread_count() - 1


def invite(call: Callable[[], Any], count: int) -> None:
    """Ask this many threads of the pool to make a call each: soon, late or not at all."""
    pool = _started()
    pool.keep_off(_core())
    if count > 0:
        pool.offer(call, count)


def scratch(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of arbitrary values in memory that this thread reuses.

    The memory is the caller's as long as the array or a view of it lives: a concurrent call with
    the same ``name``, as in a signal handler, gets other memory. It never leaves a kernel.

    >>> scratch("columns", (2, 3), "float32").shape
    (2, 3)
    """
    itemsize = np.dtype(dtype).itemsize
    needed = itemsize
    for size in shape:
        needed *= size
    memory, length, last = _local.memory.get(name) or (None, 0, None)
    if last is not None and last() is not None:
        return np.empty(shape, dtype)
    if memory is None or length < needed or length > 4 * needed + (1 << 20):
        # Too small, or so large that an unusual call would keep its memory forever.
        length = max(needed, 1)
        memory = PickleBuffer(np.empty(length, np.uint8).data)
    made = np.ndarray(shape, dtype, memory)  # type: ignore[arg-type]
    # This array is the base of its views, so it outlives them: its own base is not an array.
    _local.memory[name] = memory, length, weakref.ref(made)
    return made
