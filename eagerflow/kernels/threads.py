"""A small pool of threads for kernels, and BLAS kept to one thread while it works.

``run(function, count)`` calls ``function(0)`` ... ``function(count - 1)``, shared between the
calling thread and the pool. NumPy and BLAS release the interpreter lock, so the calls overlap.
A kernel cuts its work by shape alone, never by the number of threads, and the calls write to
places of their own; so results have the same bits with any number of threads.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np

__all__ = ["run", "scratch", "set_thread_count", "single_threaded_blas", "thread_count"]


class _Job:
    """The calls of one ``run``; each thread takes the next one that nobody has taken."""

    def __init__(self, function: Callable[[int], Any], count: int) -> None:
        self.function = function
        self.count = count
        self.errors: list[BaseException] = []
        # Counters of itertools are atomic, and cheaper than a lock.
        self._take = itertools.count().__next__
        self._guard = threading.Lock()
        self._helping = 0  # threads of the pool that are at work
        self._closed = False
        self._left = threading.Lock()
        self._left.acquire()

    def work(self) -> None:
        """Make calls until none is left."""
        while (i := self._take()) < self.count:
            if not self.errors:
                try:
                    self.function(i)
                except BaseException as error:
                    self.errors.append(error)  # raised by run(), in the thread that called it

    def help(self) -> None:
        """Work as a thread of the pool, unless the job is over."""
        with self._guard:
            if self._closed:
                return
            self._helping += 1
        try:
            self.work()
        finally:
            with self._guard:
                self._helping -= 1
                if self._closed and not self._helping:
                    self._left.release()

    def finish(self) -> None:
        """Make what calls are left, and return when nobody works on any.

        Calls write into memory of whoever called ``run``. So Ctrl-C stops the calls that have
        not begun, but is raised only when all others have ended.
        """
        while True:
            try:
                self.work()
                self._closed = True
                with self._guard:
                    if not self._helping:
                        return
                self._left.acquire()
            except BaseException as error:
                self.errors.append(error)


class _Pool:
    """Threads that wait for jobs; all of them end with the process."""

    def __init__(self, size: int) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._off = -1  # the core that they keep off
        self._threads = [
            threading.Thread(target=self._serve, name=f"eagerflow-{i}", daemon=True)
            for i in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def keep_off(self, core: int) -> None:
        """Keep the threads off a core, that of the thread that they are to help.

        Who wakes a thread often gets it onto the very core that it runs on itself.
        """
        if core == self._off or core < 0:
            return
        self._off = core
        cores = os.sched_getaffinity(os.getpid()) - {core}
        for thread in self._threads:
            try:
                os.sched_setaffinity(thread.native_id or 0, cores)
            except OSError:
                pass  # not allowed: it runs where it may

    def _serve(self) -> None:
        np.seterr(all="ignore")  # as for every kernel; the setting is this thread's own
        _local.inside = True
        while (job := self._jobs.get()) is not None:
            job.help()
            del job  # it holds arrays

    def offer(self, job: _Job, helpers: int) -> None:
        """Ask that many threads to help with a job."""
        for _ in range(min(helpers, len(self._threads))):
            self._jobs.put(job)

    def close(self) -> None:
        """Let the threads end."""
        for _ in self._threads:
            self._jobs.put(None)


class _Local(threading.local):
    """Per thread: whether it is in a call of ``run`` already, and memory to work in."""

    inside = False

    def __init__(self) -> None:
        self.buffers: dict[str, Any] = {}


def _available() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_local = _Local()
_lock = threading.Lock()
_busy = threading.Lock()
_pool: _Pool | None = None
_count: int | None = None


def thread_count() -> int:
    """Threads that share the work of a kernel, the calling one included.

    >>> thread_count() >= 1
    True
    """
    global _count
    if _count is None:
        _count = _available()
    return _count


def set_thread_count(count: int | None) -> None:
    """Use that many threads from now on; None stands for all processors.

    >>> set_thread_count(None)
    """
    global _count, _pool
    with _busy, _lock:
        if _pool is not None:
            _pool.close()
        _pool, _count = None, count


def _after_fork() -> None:
    # Only the forking thread lives on in the child: locks and threads are made afresh.
    global _lock, _busy, _pool, _blas_lock, _blas_users
    _lock, _busy, _blas_lock = threading.Lock(), threading.Lock(), threading.Lock()
    _pool = None
    if _blas_users:
        _blas_users = 0
        _restore_blas()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _started() -> _Pool:
    global _pool
    with _lock:
        if _pool is None:
            _pool = _Pool(thread_count() - 1)
        return _pool


@cache
def _getcpu() -> Callable[[], int] | None:
    """The system's function that tells the core that the calling thread runs on."""
    if not hasattr(os, "sched_setaffinity") or _available() < 2:
        return None
    try:
        found: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    except (AttributeError, OSError):
        return None
    return found


def _core() -> int:
    function = _getcpu()
    return -1 if function is None else function()


def run(function: Callable[[int], Any], count: int) -> None:
    """Call ``function`` with 0 ... ``count - 1``, in any order, with BLAS at one thread.

    The first exception of a call is raised after all calls that had begun have ended. Calls
    from inside of a call, and while another thread uses the pool, are made one by one.

    >>> squares = [0] * 4
    >>> run(lambda i: squares.__setitem__(i, i * i), 4)
    >>> squares
    [0, 1, 4, 9]
    """
    with single_threaded_blas:
        if count < 2 or _local.inside or thread_count() < 2 or not _busy.acquire(blocking=False):
            for i in range(count):
                function(i)
            return
        _local.inside = True
        try:
            job = _Job(function, count)
            pool = _started()
            pool.keep_off(_core())
            pool.offer(job, count - 1)
            job.finish()
        finally:
            _local.inside = False
            _busy.release()
    if job.errors:
        raise job.errors[0]


def scratch(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of arbitrary values in memory that this thread uses again and again.

    It is valid until the thread asks for the same ``name`` again, and never leaves a kernel.

    >>> scratch("columns", (2, 3), "float32").shape
    (2, 3)
    """
    itemsize = np.dtype(dtype).itemsize
    needed = itemsize
    for size in shape:
        needed *= size
    buffer = _local.buffers.get(name)
    if buffer is None or buffer.nbytes < needed or buffer.nbytes > 4 * needed + (1 << 20):
        # Too small, or so large that an unusual call would hold its memory for good.
        buffer = _local.buffers[name] = np.empty(needed, np.uint8)
    return np.ndarray(shape, dtype, buffer)


# BLAS ------------------------------------------------------------------------------------------


@cache
def _blas() -> tuple[Any, Any] | None:
    """Functions that set and tell the number of threads of NumPy's OpenBLAS, if that is it."""
    for path in _blas_paths():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for prefix, suffix in itertools.product(("scipy_", ""), ("64_", "", "64")):
            name = f"{prefix}openblas_%s_num_threads{suffix}"
            if hasattr(library, name % "set"):
                setter, getter = getattr(library, name % "set"), getattr(library, name % "get")
                setter.argtypes, setter.restype = (ctypes.c_int,), None
                getter.argtypes, getter.restype = (), ctypes.c_int
                return setter, getter
    return None


def _blas_paths() -> list[str]:
    """Files that may be the BLAS in use: beside NumPy in its wheels, else what is mapped."""
    package = os.path.dirname(np.__file__)
    folders = (package + ".libs", os.path.join(package, ".dylibs"), os.path.join(package, ".libs"))
    found = [
        os.path.join(folder, file)
        for folder in folders
        if os.path.isdir(folder)
        for file in sorted(os.listdir(folder))
        if "openblas" in file
    ]
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            mapped = {line.split(maxsplit=5)[5].strip() for line in maps if "blas" in line}
    except OSError:  # only Linux has it
        return found
    return [p for p in found if p in mapped] or sorted(p for p in mapped if ".so" in p)


_blas_lock = threading.Lock()
_blas_users = 0
_blas_before = 1


class _SingleThreadedBlas:
    """A context in which BLAS calls use one thread; the first user switches, the last restores.

    Without an OpenBLAS that can be found it does nothing.
    """

    def __enter__(self) -> None:
        global _blas_users, _blas_before
        functions = _blas()
        if functions is None:
            return
        with _blas_lock:
            if not _blas_users:
                _blas_before = functions[1]()
                if _blas_before != 1:
                    functions[0](1)
            _blas_users += 1

    def __exit__(self, *_: object) -> None:
        global _blas_users
        if _blas() is None:
            return
        with _blas_lock:
            _blas_users -= 1
            if not _blas_users:
                _restore_blas()


def _restore_blas() -> None:
    functions = _blas()
    if functions is not None and _blas_before != 1:
        functions[0](_blas_before)


single_threaded_blas = _SingleThreadedBlas()
