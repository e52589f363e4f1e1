"""Time stamps: jobs that record the time at which earlier jobs are complete.

A stamp is a job in a sequence of ordinary jobs. As no thread begins a job before all pieces of
earlier ones are complete, the first thread that reaches a stamp reads the clock. Kernels are not
modified, and code without stamps is unaffected.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from eagerflow.codegen.llvm import launch
from eagerflow.codegen.llvm.driver import COUNTER_WORDS
from eagerflow.codegen.llvm.instructions import Code
from eagerflow.codegen.llvm.jobs import Job, Operands
from eagerflow.codegen.llvm.team import library
from eagerflow.handlers import raised_here

# A frame: the time, the address of the clock's function, the clock's number. For a lap the time is
# a sum, followed by the address of the time at which the previous lap has ended.
_WORDS = 4
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
    """The functions of jobs: ``stamp`` and ``lap``.

    The first thread that reaches a stamp stores the time in the frame. A lap is for a single
    thread: it adds the time since the previous one.
    """
    code = Code()
    with code.function("stamp(ptr %frame, i64 %memory, ptr %counters)"):
        before = code.value("load atomic i64, ptr %frame monotonic, align 8")
        with code.where(code.value(f"icmp eq i64 {before}, 0")):
            now = _now(code)
            code.value(f"cmpxchg ptr %frame, i64 0, i64 {now} monotonic monotonic")
    with code.function("lap(ptr %frame, i64 %memory, ptr %counters)"):
        now, before = _now(code), code.word("ptr", "%frame", 3)
        passed = code.number("sub", now, code.word("i64", before, 0))
        total = code.number("add", code.word("i64", "%frame", 0), passed)
        code.line(f"store i64 {total}, ptr %frame, align 8")
        code.line(f"store i64 {now}, ptr {before}, align 8")
    return code.text()


@cache
def _entries() -> dict[str, int]:
    return library(_text(), "stamp", "lap")


def _job(name: str, row: Any, held: Any) -> Job:
    """A job of one of the functions, with a row of an array as its frame."""
    frame = (ctypes.c_int64 * _WORDS).from_address(launch.address(row))
    frame[1:3] = [_clock() or 0, time.CLOCK_MONOTONIC]
    return Job(_entries()[name], frame, (ctypes.c_int64 * 0)(), Operands((), (), ()), held=held)


@cache
def _clock() -> int | None:
    """The address of the C library's ``clock_gettime``; None if it is missing, as on Windows."""
    try:
        return ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value
    except raised_here(AttributeError, TypeError, OSError):
        return None


def can_stamp() -> bool:
    """Whether jobs can read a clock here."""
    return _clock() is not None and hasattr(time, "CLOCK_MONOTONIC")


@cache
def _offset() -> int:
    """The offset in nanoseconds of ``time.perf_counter_ns`` from the clock of stamps."""
    if time.get_clock_info("perf_counter").implementation == "clock_gettime(CLOCK_MONOTONIC)":
        return 0
    pairs = [(time.perf_counter_ns(), time.clock_gettime_ns(time.CLOCK_MONOTONIC)) for _ in "1234"]
    return min(ours - theirs for ours, theirs in pairs)


class Stamps:
    """Up to ``most`` times recorded in a run, on the clock of ``time.perf_counter_ns``."""

    def __init__(self, most: int) -> None:
        self._frames = np.zeros((most, COUNTER_WORDS), np.int64)  # each on a cache line of its own
        self._times = self._frames[:, 0]
        self._count = 0

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def job(self) -> Job:
        """A job that records when earlier ones are complete, on any thread."""
        return _job("stamp", self._frames[self._next()], self._frames)

    def note(self) -> Callable[[], None]:
        """A function that records the time at which it is called."""
        return partial(self._note, self._next())

    def _note(self, number: int) -> None:
        self._times[number] = time.perf_counter_ns() - _offset()

    def reset(self) -> None:
        """Prepare for the next run."""
        self._times[:] = 0

    def read(self) -> list[int]:
        """All times of the last run, in the order in which they were requested."""
        return (self._times[: self._count] + _offset()).tolist()


class Laps:
    """The durations of the steps of a loop, summed over iterations."""

    def __init__(self, most: int) -> None:
        self._frames = np.zeros((most + 1, COUNTER_WORDS), np.int64)
        self._last = np.zeros(1, np.int64)
        self.steps: list[int] = []
        """Indices of the steps that have jobs."""
        self._jobs: list[Job] = []
        self._times: list[Any] = []  # of each job: its times in all iterations

    def among(
        self, once: Sequence[Job], each: Sequence[Job], alone: bool
    ) -> tuple[list[Job], list[Job]]:
        """The jobs of a loop with interspersed time stamps; one thread is ``alone``."""
        made: list[Job] = []
        for number, own in groupby(each, attrgetter("step")):
            self.steps.append(number)
            made += own
            self._jobs.append(self._lap(alone, number))
            made.append(self._jobs[-1])
        return [*once, *([self._lap(True, 0)] if alone else ())], made

    def _lap(self, alone: bool, step: int) -> Job:
        row = self._frames[len(self._jobs)]
        row[3] = launch.address(self._last)
        made = _job("lap" if alone else "stamp", row, (self._frames, self._last))
        made.step = step
        return made

    def spread(self, frames: Mapping[Job, Any]) -> None:
        """Set the frames of each job for each iteration."""
        self._times = [frames[job][:, 0] for job in self._jobs]

    def reset(self) -> None:
        """Prepare for the next run."""
        self._frames[:, 0] = 0
        for times in self._times:
            times[:] = 0

    def read(self, begin: int) -> list[int]:
        """Nanoseconds of each of ``steps`` in the last run, which began at that time."""
        if not self._times:
            return self._frames[: len(self._jobs), 0].tolist()
        times = np.stack(self._times, axis=1)
        passed = np.diff(times.ravel(), prepend=begin - _offset())
        return passed.reshape(times.shape).sum(axis=0).tolist()
