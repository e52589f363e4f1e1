"""Loops as jobs: repeated calls by one thread, with advancing addresses.

As no other thread works on its jobs, each of them exists once: pieces are not counted, and
addresses in the frames are advanced between iterations. A job of one piece is a plain call of its
functions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.llvm import launch
from eagerflow.codegen.llvm.driver import COUNTER_WORDS, by_one_thread
from eagerflow.codegen.llvm.instructions import Code
from eagerflow.codegen.llvm.jobs import COUNTERS, FRAME, SHARED, Job, Operands
from eagerflow.codegen.llvm.team import library
from eagerflow.runtime import machine_code

_WORDS = ("start", "limit", "done", "once", "once_calls", "each", "calls", "moves", "table")
"""The frame's contents: the first iteration, the limit, the reached one; the numbers of calls made
once, and in each iteration, and their addresses; the moves."""
_AT = {word: at for at, word in enumerate(_WORDS)}

# A call: a function, its frame, working memory, counters, two numbers. With counters it is a job's
# own function, and the first number is that of counters. Without, it is the function of a piece of
# given rows and columns. A null function is a test: if the bool at the address at the beginning of
# the frame is false, the loop ends.
_CALL_WORDS = 6
# A move: an entry of a frame, and its increments after even and after odd iterations.
_MOVE_WORDS = 3


MAX_ITERATIONS = 1 << 12  # of a loop that is a job of a team
FIRST_ITERATIONS = 16  # of a loop in slices; an even number, as rings have two rows
MAX_SECONDS = 1e-3  # of a slice, after which the next one is longer


def in_slices(run: Callable[[int, int], int], most: int | None) -> int:
    """Run iterations, at most ``most`` if that is a number, with regular checks for signals.

    ``run(start, limit)`` runs some, and returns the reached one, or the end.
    """
    done, now = 0, FIRST_ITERATIONS
    while most is None or done < most:
        limit = done + now if most is None else min(done + now, most)
        begin = perf_counter()
        reached = run(done, limit)
        if reached < limit:
            return reached
        done = limit
        if perf_counter() - begin < MAX_SECONDS:
            now *= 2
    return done


class Move(NamedTuple):
    """An advancing address: of an operand of a job, by a number of bytes after each iteration."""

    job: Job
    operand: int
    even: int
    """After iterations with an even index, counted from 0."""
    odd: int
    """After odd iterations."""


def _text(triple: str) -> str:
    """The functions ``iterate``, and ``loop``, which a single thread of a team runs."""
    code = Code()
    with code.function("iterate(ptr %frame)"):
        start, limit, once, each, moves = (
            code.word("i64", "%frame", _AT[x]) for x in ("start", "limit", "once", "each", "moves")
        )
        first, calls, table = (
            code.word("ptr", "%frame", _AT[x]) for x in ("once_calls", "calls", "table")
        )
        done = code.at("%frame", _AT["done"], "i64")
        with code.loop("first", 0, once) as (k, _):
            _call(code, first, k)
        with code.loop("iteration", start, limit) as (i, _):
            code.line(f"store i64 {i}, ptr {done}, align 8")
            with code.loop("call", 0, each) as (k, _):
                _call(code, calls, k)
            delta = code.number("add", code.number("and", i, 1), 1)
            with code.loop("move", 0, moves) as (k, _):
                own = code.at(table, code.number("mul", k, _MOVE_WORDS), "i64")
                place = code.word("ptr", own, 0)
                after = code.number("add", code.word("i64", place, 0), code.word("i64", own, delta))
                code.line(f"store i64 {after}, ptr {place}, align 8")
        code.line(f"store i64 {limit}, ptr {done}, align 8")
    code.lines[-1:] = ["stopped:", "  ret void", "}"]
    head = "loop(ptr %frame, ptr %scratch, ptr %counters)"
    with code.function(head), by_one_thread(code, triple):
        code.line("call void @iterate(ptr %frame)")
    return code.text()


def _call(code: Code, calls: str, number: str) -> None:
    """Make a call, or end the loop."""
    own = code.at(calls, code.number("mul", number, _CALL_WORDS), "i64")
    function, frame, memory, counters = (code.word("ptr", own, i) for i in range(4))
    a, b = (code.word("i64", own, i) for i in (4, 5))
    tests = code.value(f"icmp eq ptr {function}, null")
    piece = code.value(f"icmp eq ptr {counters}, null")
    with code.where(tests):
        found = code.value(f"load i8, ptr {code.word('ptr', frame, 0)}")
        code.go_on(code.value(f"icmp ne i8 {found}, 0"), "stopped")
    no_test = code.value(f"xor i1 {tests}, true")
    with code.where(code.value(f"and i1 {no_test}, {piece}")):
        ranges = f"i64 0, i64 {a}, i64 0, i64 {b}"
        code.line(f"call void {function}({ranges}, ptr {frame}, ptr {memory})")
    with code.where(code.value(f"xor i1 {piece}, true")):
        with code.loop("counter", 0, a) as (k, _):
            counter = code.at(counters, code.number("mul", k, COUNTER_WORDS), "i64")
            code.line(f"store i64 0, ptr {counter}, align 8")
        code.line(f"call void {function}(ptr {frame}, ptr {memory}, ptr {counters})")


class _Functions(NamedTuple):
    iterate: Any
    """``iterate(frame)``: other Python threads run meanwhile."""
    loop: int
    """The address of ``loop``, a job's function."""


@cache
def functions() -> _Functions:
    """The functions, compiled or from the cache."""
    found = library(_text(machine_code.host().triple), *_Functions._fields)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return _Functions(kind(found["iterate"]), found["loop"])


def _calls_of(job: Job) -> list[tuple[int, ...]]:
    """The calls of a job, run entirely by one thread."""
    frame, memory = job.words[FRAME], job.words[SHARED] or job.own_scratch
    if not job.words[0]:
        return [(0, frame, 0, 0, 0, 0)]
    if job.whole is not None:
        functions, rows, columns = job.whole
        return [(function, frame, memory, 0, rows, columns) for function in functions]
    lines = len(job.counters) // COUNTER_WORDS
    return [(job.words[0], frame, memory, job.words[COUNTERS], lines, 0)]


def _table(rows: Sequence[Sequence[int]], width: int) -> Any:
    return np.array([*rows], np.int64).reshape(len(rows), width)


class LoopJob(Job):
    """Jobs that one thread runs ``count`` times, after those that it runs ``once``.

    ``movers`` are the arrays that are checked.
    """

    def __init__(
        self,
        once: Sequence[Job],
        each: Sequence[Job],
        moves: Sequence[Move],
        count: int,
        movers: Operands,
        step: int,
    ) -> None:
        before, calls = (
            _table([call for job in part for call in _calls_of(job)], _CALL_WORDS)
            for part in (once, each)
        )
        table = _table(
            [(ctypes.addressof(m.job.frame) + 8 * m.job.slots[m.operand], *m[2:]) for m in moves],
            _MOVE_WORDS,
        )
        places = [launch.address(part) for part in (before, calls, table)]
        numbers = 0, count, 0, len(before), places[0], len(calls), places[1], len(table), places[2]
        frame = (ctypes.c_int64 * (len(_WORDS) + len(movers.places)))(*numbers)
        slots = range(len(_WORDS), len(frame))
        own = [*once, *each]
        super().__init__(
            functions().loop,
            frame,
            (ctypes.c_int64 * (2 * COUNTER_WORDS))(),
            movers._replace(slots=slots, offsets=[0] * len(slots)),
            step=step,
            held=(own, before, calls, table),
        )
        self.taken = [self.address, *(address for job in own for address in job.taken)]
        self.count, self._once = count, len(before)

    @property
    def in_slices(self) -> bool:
        """Whether it may take so long that signals should be handled meanwhile."""
        return self.count > MAX_ITERATIONS

    def iterate(self, start: int, limit: int) -> int:
        """Continue with iterations up to a limit; returns the reached one, or the end."""
        self.frame[_AT["start"]], self.frame[_AT["limit"]] = start, limit
        self.frame[_AT["once"]] = 0 if start else self._once
        functions().iterate(self.words[FRAME])
        return int(self.frame[_AT["done"]])
