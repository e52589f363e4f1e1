"""while_loop in machine code: iterations while a bool is true, many of them per call.

    less = going, ...
    test = row,
    loop = *less, *test, *body, ring, going
    last = _loop(loop, most)

Iterations for a single thread are a call for as many as fit in a short time; of others, several
consecutive ones are one. A test among the jobs ends them. Signals are handled between calls.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from eagerflow.codegen.llvm import jobs, launch
from eagerflow.codegen.llvm.loops import LoopJob, in_slices
from eagerflow.codegen.llvm.team import Team
from eagerflow.plan.loops import Iterations, NativeLoop, Unrolled
from eagerflow.plan.segments import Arrays
from eagerflow.runtime import threads


class WhileLoop(Iterations):
    """Steps that are repeated while a Test among them finds True.

    The last of the movers has a bool for each of ``count`` iterations, the others are rings of two
    rows; so ``count`` is even.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._free: list[LoopLayout] = []

    def __call__(self, arrays: tuple[Any, ...], most: int | None) -> int:
        """Run all iterations, at most ``most`` if that is a number.

        It returns the row of the rings with the final state.
        """
        layout = self._free.pop() if self._free else LoopLayout(self, arrays)
        if not layout.take(arrays):
            layout = LoopLayout(self, arrays)  # strides differ from those of the last run
            if not layout.take(arrays):
                # An array is of another type, or a step has no machine code for it.
                return in_slices(partial(self.one_by_one, arrays), most) % 2
        reached = in_slices(partial(layout.run, arrays), most)
        self._free.append(layout)
        return reached % 2


class LoopLayout:
    """A while_loop for arrays of certain strides: the state of one run at a time."""

    def __init__(self, loop: WhileLoop, arrays: Arrays) -> None:
        native = NativeLoop(loop, arrays)
        self._memory = np.empty(native.workspace + launch.VECTOR_ALIGNMENT_BYTES, np.uint8)
        (job,) = native.new_jobs(0, launch.aligned_address(self._memory)) or [None]
        self._job, self._count = job, loop.count
        self._taking = None if job is None else jobs.Taking(job.taken)
        if isinstance(job, Unrolled):
            self._team = Team(job.run, job, launch.scratch_of_segment(job.scratch))

    def take(self, arrays: Arrays) -> bool:
        """Prepare for arrays; False if they do not fit."""
        return self._taking is not None and not self._taking.take((arrays,))

    def run(self, arrays: Arrays, start: int, limit: int) -> int:
        """Run iterations; returns the next one, or where the loop ends."""
        if isinstance(self._job, LoopJob):
            return self._job.iterate(start, limit)
        job = self._job
        for first in range(start, limit, self._count):
            now = min(self._count, limit - first)
            if first:
                self.take(arrays)
            self._team.limit(job.once + now * job.each)
            self._team.run(min(job.pieces - 1, threads.helpers()))
            going = arrays[-1][:now]
            if not going.all():
                return first + int(going.argmin())
        return limit
