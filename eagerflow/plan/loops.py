"""Loops in machine code: repeated steps, as a single step of a segment.

    carry_0 = ring[0, ...]
    matmul = carry_0, W, b0          # one iteration, with the arrays of the first one
    tanh = b0, x_0, ring_1
    loop = *matmul, *tanh, ring, x
    _segment((before, loop, after))

A carry is in a ring of two rows that are read and written in turn; if it is a result of each
iteration, its ring has a row for each, and is itself that result. If each job is work for
one thread, that thread runs the whole loop, and advances the arrays' addresses itself. Otherwise
the jobs of all iterations are in one sequence, and differ in their arrays' addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.layout import like
from eagerflow.codegen.llvm import jobs, launch
from eagerflow.codegen.llvm.loops import LoopJob, Move
from eagerflow.codegen.llvm.stamps import Laps
from eagerflow.plan.segments import Arrays, NativeCall, SegmentStep
from eagerflow.primitives.matrix_product import FixedProduct


class Movement(NamedTuple):
    """The row of a mover that an array is in each iteration: ``first + i * step`` modulo ``rows``.

    ``mover`` is the index of an array with rows along its first axis.
    """

    mover: int
    first: int
    step: int
    rows: int

    def row(self, i: int) -> int:
        """The row of an iteration."""
        return (self.first + i * self.step) % self.rows

    def moves(self, count: int) -> Any:
        """The row of each iteration relative to that of the first one."""
        return (self.first + np.arange(count) * self.step) % self.rows - self.first % self.rows

    @property
    def turns(self) -> tuple[int, int]:
        """The number of rows to advance after even and odd iterations.

        A mover of more than two rows ends before it wraps around.
        """
        if self.rows > 2:
            return self.step, self.step
        return self.row(1) - self.row(0), self.row(2) - self.row(1)


class Iterations:
    """Steps repeated up to ``count`` times, with arrays that move in each iteration.

    Its arrays are those of all steps, concatenated, as they are in the first iteration, and
    then the movers. ``movements`` has the movement of each array of each step, or None. Movers
    in ``fleeting`` are only read in the iteration that has written them.
    """

    def __init__(
        self,
        steps: Sequence[SegmentStep],
        movements: Sequence[Sequence[Movement | None]],
        count: int,
        fleeting: Sequence[int] = (),
    ) -> None:
        self.steps, self.movements, self.count = steps, movements, count
        self.fleeting = frozenset(fleeting)
        ends = [*accumulate(map(len, movements))]
        self.spans = [slice(end - len(own), end) for end, own in zip(ends, movements, strict=True)]
        self.size = ends[-1]

    def natives(self, arrays: Arrays) -> list[NativeCall | None]:
        """The machine code calls of the steps, for arrays like these."""
        rows = [arrays[span] for span in self.spans]
        written = [
            a for step, row in zip(self.steps, rows, strict=True) for a in row[step.inputs :]
        ]
        found = []
        for step, row, moves in zip(self.steps, rows, self.movements, strict=True):
            native = step.native(row[: step.inputs], row[step.inputs :])
            if isinstance(native, FixedProduct) and moves[1] is None:
                weights = row[1]
                if not any(np.may_share_memory(weights, a) for a in written):
                    native = native.repeated()
            found.append(native)
        return found

    def one_by_one(self, arrays: Arrays, start: int, limit: int) -> int:
        """Run iterations step by step, in Python; returns the next one, or where it ends.

        Fleeting movers hold the iterations from 0 on.
        """
        strides = [a.strides[0] for a in arrays[self.size :]]
        for i in range(start, limit):
            for step, span, own in zip(self.steps, self.spans, self.movements, strict=True):
                row = [
                    a if m is None else _moved(a, (m.row(i) - m.row(0)) * strides[m.mover])
                    for a, m in zip(arrays[span], own, strict=True)
                ]
                if isinstance(step.step, Test) and not row[0]:
                    return i
                step.call(row[: step.inputs], row[step.inputs :])
        return limit


class Loop(Iterations):
    """Steps repeated ``count`` times, as a step of a segment that writes all of its arrays."""

    def as_step(self, node: Any) -> SegmentStep:
        """The loop as a step, for a node of the plan's graph."""
        return SegmentStep(node, 0, self.call, self._native)

    def call(self, inputs: Arrays, outputs: Arrays) -> None:
        """Run all iterations one by one, without machine code of the loop."""
        self.one_by_one(outputs, 0, self.count)

    def _native(self, inputs: Arrays, outputs: Arrays) -> NativeLoop:
        return NativeLoop(self, outputs)


class NativeLoop:
    """A loop in machine code, for arrays of certain strides."""

    movable, chain_rows = False, None

    def __init__(self, loop: Iterations, arrays: Arrays) -> None:
        self.loop, self._natives = loop, loop.natives(arrays)
        self._movers = like(*arrays[loop.size :])
        # Data packed once for all iterations must not move.
        self._sizes = [0 if n is None else launch.whole_lines(n.workspace) for n in self._natives]
        self.workspace = sum(self._sizes)

    def member(self, rows: int) -> None:
        """None: it is part of no chain."""

    def new_jobs(self, step: int, workspace: int, laps: Laps | None = None) -> list[Any] | None:
        """All iterations as a LoopJob or Unrolled; None if Python is needed.

        ``laps`` record the time of each of the loop's steps.
        """
        found: list[jobs.Job] = []
        for number, native in enumerate(self._natives):
            own = None if native is None else native.new_jobs(number, workspace)
            if own is None:
                return None
            found += own
            workspace += self._sizes[number]
        once, each = ([job for job in found if job.prepares is first] for first in (True, False))
        alone = all(job.pieces == 1 for job in found)
        if laps is not None:
            once, each = laps.among(once, each, alone)
            found = [*once, *each]
        moving = [self._moves(job) for job in each] if alone else []
        offsets = [] if alone else [self._offsets(job) for job in each]
        for job in found:
            job.place_at(step, self.loop.spans[job.step].start)
        count, places = self.loop.count, range(self.loop.size, self.loop.size + len(self._movers))
        movers = jobs.Operands((0,) * len(places), (0,) * len(places), places, self._movers)
        if alone:
            return [LoopJob(once, each, [m for own in moving for m in own], count, movers, step)]
        made = Unrolled(once, each, offsets, count, movers, step)
        if laps is not None:
            laps.spread(made.frames)
        return [made]

    def _moves(self, job: jobs.Job) -> list[Move]:
        """The movements of the addresses of a job's arrays."""
        own, found = self.loop.movements[job.step], []
        for operand, place in enumerate(job.places):
            movement = own[place]
            if movement is not None and movement.mover not in self.loop.fleeting:
                stride = self._movers[movement.mover].strides[0]
                even, odd = (rows * stride for rows in movement.turns)
                found.append(Move(job, operand, even, odd))
        return found

    def _offsets(self, job: jobs.Job) -> Any:
        """Bytes to add to each array's address of a job in each iteration."""
        own, count = self.loop.movements[job.step], self.loop.count
        found = np.zeros((count, len(job.places)), np.int64)
        for column, place in enumerate(job.places):
            if (movement := own[place]) is not None:
                found[:, column] = movement.moves(count) * self._movers[movement.mover].strides[0]
        return found


class Unrolled:
    """Jobs of all iterations in sequence, for a team; ``each`` has its ``offsets``."""

    flags, prepares = None, False

    def __init__(
        self,
        once: Sequence[jobs.Job],
        each: Sequence[jobs.Job],
        offsets: Sequence[Any],
        count: int,
        movers: jobs.Operands,
        step: int,
    ) -> None:
        pairs = zip(each, offsets, strict=True)
        every = [_Repeated(job, count, own) for job, own in pairs]
        rows = np.stack([own.addresses for own in every], axis=1)
        self.frames = {job: own.frames for job, own in zip(each, every, strict=True)}
        """The jobs for each original one, one for each iteration."""
        none = (ctypes.c_int64 * 0)()
        look = jobs.Job(0, (ctypes.c_int64 * 1)(), none, movers, step=step)
        self.run = [job.address for job in once] + rows.ravel().tolist()
        self.taken = [look.address, *self.run]
        self.once, self.each = len(once), len(each)
        self.pieces, self.scratch = (
            max(getattr(job, word) for job in (*once, *each)) for word in ("pieces", "scratch")
        )
        self._held = once, every, look


class _Repeated:
    """A job for each iteration, made of the first one's."""

    def __init__(self, job: jobs.Job, count: int, offsets: Any) -> None:
        words, frame, counters = job.words, job.frame, job.counters
        size = len(job.places)
        self.frames = np.tile(np.array(frame, np.int64), (count, 1))
        self._counters = np.zeros((count, len(counters)), np.int64)
        self._words = np.tile(np.array(words, np.int64), (count, 1))
        for column, block in ((jobs.FRAME, self.frames), (jobs.COUNTERS, self._counters)):
            self._words[:, column] = launch.address(block) + np.arange(count) * block.strides[0]
        self._words[:, jobs.HEAD_WORDS + size : jobs.HEAD_WORDS + 2 * size] += offsets
        self.addresses = launch.address(self._words) + np.arange(count) * self._words.strides[0]
        self._job = job  # keeps shared data alive


def _moved(array: Any, offset: int) -> Any:
    """An array of the same shape and strides, this many bytes further in the same memory."""
    low = sum(min(s * (n - 1), 0) for s, n in zip(array.strides, array.shape, strict=True))
    high = sum(max(s * (n - 1), 0) for s, n in zip(array.strides, array.shape, strict=True))
    start = array.ctypes.data + offset + low
    memory = (ctypes.c_char * (high - low + array.itemsize)).from_address(start)
    return np.ndarray(array.shape, array.dtype, memory, -low, array.strides)


# Steps of loops ----------------------------------------------------------------------------------


class Test(NamedTuple):
    """A step that ends a loop if a bool is false."""

    inputs: tuple[Any, ...]
    """The value of the bool."""
    outputs: tuple[Any, ...]
    """None."""
    source: Any
    """The user's line."""

    def as_step(self) -> SegmentStep:
        """The test as a step of a loop; it reads the bool itself if Python runs the steps."""
        return SegmentStep(self, 1, lambda inputs, outputs: None, lambda *given: _NativeTest())


class _NativeTest:
    """A Test in machine code."""

    workspace, movable, chain_rows = 0, False, None

    def member(self, rows: int) -> None:
        """None: it is part of no chain."""

    def new_jobs(self, step: int, workspace: int) -> list[jobs.Job]:
        """Its one job."""
        return [jobs.test_job(step)]
