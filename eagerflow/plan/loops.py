"""Loops in machine code: segments that are done many times, or while a bool is true.

    carry_0 = ring[0, ...]
    matmul = carry_0, W, b0          # one iteration, with the arrays of the first one
    tanh = b0, x_0, ring_1
    _loop((matmul, tanh), (ring, x))

The jobs of all iterations stand in one row, and differ in their arrays' addresses. A carry lies in
a ring of two rows that are read and written in turn; where it is asked for in each iteration, its
ring has a row for each, and is itself what is asked for. Where the number of iterations is not
known, a few of them are one call, and a test among the jobs ends it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.llvm import jobs, launch
from eagerflow.codegen.llvm.team import Team
from eagerflow.fusion.groups import into_of
from eagerflow.fusion.kernels import Step
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.plan.layouts import Layouts
from eagerflow.plan.lifetimes import Lifetimes
from eagerflow.plan.segments import Arrays, NativeCall, SegmentStep
from eagerflow.primitives.copies import copied
from eagerflow.primitives.matrix_product import FixedProduct
from eagerflow.runtime import threads

Rows = tuple[tuple[Any, ...], ...]
"""The arrays of all steps."""


class Movement(NamedTuple):
    """Which row of a mover an array shows in each iteration: ``first + i * step`` modulo ``rows``.

    ``mover`` is the number of an array whose first axis is that of the rows.
    """

    mover: int
    first: int
    step: int
    rows: int

    def row(self, i: int) -> int:
        """The row of an iteration."""
        return (self.first + i * self.step) % self.rows

    def moves(self, count: int) -> Any:
        """How many rows each iteration's is behind that of the first one."""
        return (self.first + np.arange(count) * self.step) % self.rows - self.first % self.rows


class _Repeated:
    """A job for each iteration, made of the first one's."""

    def __init__(self, job: jobs.Job, count: int, offsets: Any) -> None:
        words, frame, counters = job.words, job.frame, job.counters
        size = len(job.arrays)
        self._frames = np.tile(np.array(frame, np.int64), (count, 1))
        self._counters = np.zeros((count, len(counters)), np.int64)
        self._words = np.tile(np.array(words, np.int64), (count, 1))
        for column, block in ((jobs.FRAME, self._frames), (jobs.COUNTERS, self._counters)):
            self._words[:, column] = launch.address(block) + np.arange(count) * block.strides[0]
        self._words[:, jobs.HEAD_WORDS + size : jobs.HEAD_WORDS + 2 * size] += offsets
        self.addresses = launch.address(self._words) + np.arange(count) * self._words.strides[0]
        self._job = job  # it holds what all of them use


class _Layout:
    """A loop for arrays of certain strides: what one run at a time needs."""

    def __init__(
        self, loop: _Iterations, natives: list[NativeCall | None], strides: list[int]
    ) -> None:
        # What is packed once for all iterations has to stay where it is.
        sizes = [0 if n is None else launch.whole_lines(n.workspace) for n in natives]
        self._memory = np.empty(sum(sizes) + launch.VECTOR_ALIGNMENT_BYTES, np.uint8)
        start = launch.aligned_address(self._memory)
        found: list[jobs.Job] = []
        for number, native in enumerate(natives):
            own = None if native is None else native.new_jobs(number, start)
            if own is None:
                self.count = 0
                return
            found += own
            start += sizes[number]
        once = [job for job in found if job.prepares]
        every = [
            _Repeated(job, loop.count, loop.offsets(job, strides))
            for job in found
            if job not in once
        ]
        addresses = [job.address for job in once]
        addresses += np.stack([own.addresses for own in every], axis=1).ravel().tolist()
        self.count, self._once, self._each = len(addresses), len(once), len(every)
        self._addresses = (ctypes.c_int64 * self.count)(*addresses)
        self._place = ctypes.addressof(self._addresses)
        self._helpers = max(job.pieces for job in found) - 1
        bits = max(job.scratch for job in found).bit_length()
        memory = (lambda: launch.own_scratch(f"segment {bits}", 2 << bits)) if bits else None
        self._team = Team(addresses, (once, every, self._memory), memory)
        self._take = jobs.functions().take

    def run(self, rows: Rows, iterations: int) -> bool:
        """Do iterations; False, and nothing is done, where an array is not as it should be."""
        if not self.count or self._take(self._place, self.count, rows):
            return False
        self._team.limit(self._once + iterations * self._each)
        self._team.run(min(self._helpers, threads.helpers()) if self._helpers > 0 else 0)
        return True


class _Iterations:
    """Steps that are done up to ``count`` times, with arrays that move on with each iteration.

    ``movements`` tell for each array of each step how it moves, or None.
    """

    def __init__(
        self,
        steps: Sequence[SegmentStep],
        movements: Sequence[Sequence[Movement | None]],
        count: int,
    ) -> None:
        self.steps, self.movements, self.count = steps, movements, count
        self._free: dict[Any, list[_Layout]] = {}

    def offsets(self, job: jobs.Job, strides: Sequence[int]) -> Any:
        """Bytes to add to each array's address of a job in each iteration."""
        own = self.movements[job.step]
        found = np.zeros((self.count, len(job.places)), np.int64)
        for column, place in enumerate(job.places):
            if (movement := own[place]) is not None:
                found[:, column] = movement.moves(self.count) * strides[movement.mover]
        return found

    def _run(self, rows: Rows, strides: list[int], iterations: int) -> None:
        """Do so many iterations."""
        key = tuple([a.strides for row in rows for a in row]), tuple(strides)
        free = self._free.setdefault(key, [])
        try:
            layout = free.pop()
        except IndexError:
            layout = _Layout(self, self._natives(rows), strides)
        if layout.run(rows, iterations):
            free.append(layout)
        else:
            self._one_by_one(rows, strides, iterations)

    def _natives(self, rows: Rows) -> list[NativeCall | None]:
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

    def _one_by_one(self, rows: Rows, strides: list[int], iterations: int) -> None:
        """Do iterations step by step, in Python."""
        for i in range(iterations):
            for step, row, own in zip(self.steps, rows, self.movements, strict=True):
                arrays = [
                    a if m is None else _moved(a, (m.row(i) - m.row(0)) * strides[m.mover])
                    for a, m in zip(row, own, strict=True)
                ]
                if isinstance(step.step, Test) and not arrays[0]:
                    return
                step.call(arrays[: step.inputs], arrays[step.inputs :])


class Loop(_Iterations):
    """Steps that are done ``count`` times.

    It is called with the tuples of the steps' arrays as they are in the first iteration, and with
    the movers.
    """

    def __call__(self, rows: Rows, movers: tuple[Any, ...]) -> None:
        """Do all iterations."""
        self._run(rows, [a.strides[0] for a in movers], self.count)


class WhileLoop(_Iterations):
    """Steps that are done while a Test among them finds True: ``count`` iterations in one call.

    The last of the movers has a bool for each of these, the others are rings of two rows; so that
    ``count`` is even.
    """

    def __call__(self, rows: Rows, movers: tuple[Any, ...], most: int | None) -> int:
        """Do all iterations, at most ``most`` if that is a number.

        It gives the row of the rings where the state is that was reached.
        """
        strides, going = [a.strides[0] for a in movers], movers[-1]
        done = 0
        while most is None or done < most:
            now = self.count if most is None else min(self.count, most - done)
            self._run(rows, strides, now)
            if not going[:now].all():
                return int(going.argmin()) % 2
            done += now
        return done % 2


def _moved(array: Any, offset: int) -> Any:
    """An array of the same shape and strides, so many bytes further on in the memory."""
    low = sum(min(s * (n - 1), 0) for s, n in zip(array.strides, array.shape, strict=True))
    high = sum(max(s * (n - 1), 0) for s, n in zip(array.strides, array.shape, strict=True))
    start = array.ctypes.data + offset + low
    memory = (ctypes.c_char * (high - low + array.itemsize)).from_address(start)
    return np.ndarray(array.shape, array.dtype, memory, -low, array.strides)


# Scans that are loops of this kind ---------------------------------------------------------------


class RowCopy(NamedTuple):
    """A step that copies a value of a body to a row: of a result, or of a carry's ring."""

    inputs: tuple[Value, ...]
    outputs: tuple[Any, ...]
    """What stands for the row."""
    source: Any
    """The user's line."""

    def as_step(self) -> SegmentStep:
        """As a step of a segment."""

        def call(inputs: Arrays, outputs: Arrays) -> None:
            outputs[0][...] = inputs[0]

        def native(inputs: Arrays, outputs: Arrays) -> Any:
            return copied(inputs[0], outputs[0])

        return SegmentStep(self, 1, call, native)


class Test(NamedTuple):
    """A step that ends a loop where a bool is false."""

    inputs: tuple[Any, ...]
    """What stands for the bool."""
    outputs: tuple[Any, ...]
    """None."""
    source: Any
    """The user's line."""

    def as_step(self) -> SegmentStep:
        """As a step of a loop, which looks at the bool itself where Python does the steps."""
        return SegmentStep(self, 1, lambda inputs, outputs: None, lambda *given: _NativeTest())


class _NativeTest:
    """A Test in machine code."""

    workspace, movable, chain_rows = 0, False, None

    def member(self, rows: int) -> None:
        """It is part of no chain."""

    def new_jobs(self, step: int, workspace: int) -> list[jobs.Job]:
        """Its one job."""
        return [jobs.test_job(step)]


class Rings(NamedTuple):
    """Where the carries of a scan lie, and which of its rows are rings; see ``rings_of``."""

    whole: list[bool]
    """For each carry, whether its ring has a row for each iteration."""
    written: list[bool]
    """For each carry, whether a step writes its ring; else it is copied there."""
    rows: list[tuple[int, bool] | bool]
    """For each result with a row for each iteration the carry that it is, and whether that before
    or after the iteration; for others, whether a step writes it; else it is copied."""


def rings_of(body: Graph, carries: int, steps: Sequence[Step]) -> Rings | None:
    """How the carries of a body lie in memory; None where it makes no loop of this kind.

    All of its steps must have machine code, or be mere views.
    """
    made = made_by(steps)
    if made is None:
        return None
    befores, afters = body.inputs[:carries], body.outputs[:carries]
    free = set(made)  # values that no place was found for yet
    written = []
    for value in afters:
        written.append(value in free)
        free.discard(value)
    rows: list[tuple[int, bool] | bool] = []
    for value in body.outputs[carries:]:
        if value in befores:
            rows.append((befores.index(value), False))
        elif value in afters and written[afters.index(value)]:
            rows.append((afters.index(value), True))
        else:
            rows.append(value in free)
            free.discard(value)
    asked = {row[0] for row in rows if isinstance(row, tuple)}
    return Rings([i in asked for i in range(carries)], written, rows)


def made_by(steps: Sequence[Step]) -> set[Value] | None:
    """The values that kernels and products of a body make; None if it has other steps."""
    made: set[Value] = set()
    layouts = Layouts()
    for step in steps:
        if not isinstance(step, Node):
            if step.checks:
                return None
        elif (into := into_of(step)) is None or into.call is None:
            if not layouts.shows(step):
                return None
            layouts.note(step)
            continue
        made.update(step.outputs)
        for value in step.outputs:
            layouts.add(value)
    return made


def movements_of(
    steps: Sequence[SegmentStep], lifetimes: Lifetimes, moving: dict[Any, Movement]
) -> list[list[Movement | None]]:
    """How the arrays of steps move, by the values that stand for those that share their memory."""
    found = []
    for own in steps:
        values: list[Any] = [*own.step.inputs, *own.step.outputs]
        found.append([moving.get(lifetimes.root(x)) for x in values])
    return found
