"""Time stamps: jobs that note when the jobs before them are complete.

A stamp is a job like any other, which stands in a row with those that compute something. As no
thread begins with a job before all pieces of those before it are complete, the first thread that
comes to a stamp reads the clock there. Kernels stay as they are, and what has no stamps is the same
code as ever.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache, partial

import numpy as np

from eagerflow.codegen.llvm import launch
from eagerflow.codegen.llvm.driver import COUNTER_WORDS
from eagerflow.codegen.llvm.instructions import Code
from eagerflow.codegen.llvm.jobs import Job, Operands
from eagerflow.codegen.llvm.team import library

_WORDS = 3  # of a frame: the time, the address of the clock's function, the clock's number
_NANOSECONDS = 10**9


def _now(code: Code) -> str:
    """Write a call of ``clock_gettime``; the time in nanoseconds."""
    place = code.entry("alloca [2 x i64], align 8")
    clock = code.word("ptr", "%frame", 1)
    number = code.value(f"trunc i64 {code.word('i64', '%frame', 2)} to i32")
    code.value(f"call i32 {clock}(i32 {number}, ptr {place})")
    seconds = code.number("mul", code.word("i64", place, 0), _NANOSECONDS)
    return code.number("add", seconds, code.word("i64", place, 1))


def _text() -> str:
    """The function ``stamp`` of a job: the first thread that comes leaves the time in the frame."""
    code = Code()
    with code.function("stamp(ptr %frame, i64 %memory, ptr %counters)"):
        before = code.value("load atomic i64, ptr %frame monotonic, align 8")
        with code.where(code.value(f"icmp eq i64 {before}, 0")):
            now = _now(code)
            code.value(f"cmpxchg ptr %frame, i64 0, i64 {now} monotonic monotonic")
    return code.text()


@cache
def _entry() -> int:
    return library(_text(), "stamp")["stamp"]


@cache
def _clock() -> int | None:
    """The address of the C library's ``clock_gettime``; None where it has none, as on Windows."""
    try:
        return ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value
    except (AttributeError, TypeError, OSError):
        return None


def can_stamp() -> bool:
    """Whether jobs can read a clock here."""
    return _clock() is not None and hasattr(time, "CLOCK_MONOTONIC")


@cache
def _offset() -> int:
    """Nanoseconds by which ``time.perf_counter_ns`` is ahead of the clock of stamps."""
    if time.get_clock_info("perf_counter").implementation == "clock_gettime(CLOCK_MONOTONIC)":
        return 0
    pairs = [(time.perf_counter_ns(), time.clock_gettime_ns(time.CLOCK_MONOTONIC)) for _ in "1234"]
    return min(ours - theirs for ours, theirs in pairs)


class Stamps:
    """Up to ``most`` times that are noted in a run, on the clock of ``time.perf_counter_ns``."""

    def __init__(self, most: int) -> None:
        self._frames = np.zeros((most, COUNTER_WORDS), np.int64)  # each on a cache line of its own
        self._times = self._frames[:, 0]
        self._count = 0

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def job(self) -> Job:
        """A job that notes when those before it are complete, whichever threads do them."""
        row = self._frames[self._next()]
        row[1:_WORDS] = _clock() or 0, time.CLOCK_MONOTONIC
        frame = (ctypes.c_int64 * _WORDS).from_address(launch.address(row))
        none = (ctypes.c_int64 * 0)()
        return Job(_entry(), frame, none, Operands((), (), ()), held=self._frames)

    def note(self) -> Callable[[], None]:
        """A function that notes the time when it is called."""
        return partial(self._note, self._next())

    def _note(self, number: int) -> None:
        self._times[number] = time.perf_counter_ns() - _offset()

    def reset(self) -> None:
        """Be ready for the next run."""
        self._times[:] = 0

    def read(self) -> list[int]:
        """All times of the last run, in the order in which they were asked for."""
        return (self._times[: self._count] + _offset()).tolist()
