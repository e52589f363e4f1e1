"""Calls of regions whose arrays differ in nothing but their addresses, at the least cost."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

from eagerflow.codegen.llvm import jobs, joins, launch
from eagerflow.codegen.llvm.jobs import Job, Operands
from eagerflow.codegen.llvm.team import Team
from eagerflow.codegen.reductions import ufunc
from eagerflow.runtime import threads


def possible(call: Any) -> bool:
    """Whether a prepared call needs nothing but its arrays' addresses."""
    return not (call.copies or call.lookups or call.saved) and jobs.arrays_lie_open()


class RegionJob(Job):
    """A region's kernel, with the memory for its column reductions, each of them in parts."""

    def __init__(self, call: FixedCall, step: int = 0, operands: Operands | None = None) -> None:
        own = call.launch
        frame = own.frame_type.from_buffer_copy(own.template)
        self.partial = own.partial_columns(frame)
        # Arrays, and the number to fill them with.
        self.partials = [(array, own.neutral[name]) for name, array in self.partial.items()]
        shared, reserved = 0, own.reserve(frame) if own.variant == "stages" else []
        if own.scratch and own.variant == "stages":
            shared = launch.address(reserved[-1])
        super().__init__(
            call.entry,
            frame,
            own.code.counters(),
            operands or call.operands,
            call.threads,
            shared,
            0 if shared else own.scratch,
            step,
            (self.partials, reserved, own.code),
        )
        self.team = Team([self.address], self.held, own.own_scratch if self.scratch else None)


class FixedCall:
    """A ``launch.KernelCall`` for arrays like those that it was made for, whatever their addresses.

    ``strides`` are those of the first inputs, which are looked at, and ``offsets`` bytes to add
    to the addresses of inputs. Nothing else is checked: shapes and dtypes have to be those that
    it was made for. Several threads may call it at once.
    """

    def __init__(
        self, call: launch.KernelCall, strides: Sequence[Sequence[int]], offsets: Sequence[int]
    ) -> None:
        self.call, self.launch = call, call.launch
        own = call.launch
        self.inputs = len(call.region.inputs)
        self.direct = call.direct
        count = len(own.pointers)
        places = [*range(self.inputs), *(self.inputs + i for i in self.direct)]
        offsets = [*offsets, *[0] * (count - len(offsets))]
        self.operands = Operands(own.pointers, offsets, places, strides)
        self.threads = own.count if own.parallel else 1
        self._start = jobs.functions().start
        self.joins = [self._join(i) for i in call.columns]
        self._jobs: list[RegionJob] = []

    @property
    def entry(self) -> int:
        """Where the code begins, as soon as it is made."""
        return ctypes.cast(self.launch.code.function, ctypes.c_void_p).value or 0

    def new_job(self) -> RegionJob:
        """What one call at a time needs."""
        return RegionJob(self)

    @property
    def can_wait(self) -> bool:
        """Whether a job is all that has to be run, by any thread, some time after it is filled."""
        own = self.launch
        return not self.joins and not (own.scratch and own.variant != "stages")

    workspace = 0  # bytes of memory that all threads of a call share, besides the jobs' own

    def new_jobs(self, step: int, workspace: int) -> list[Job] | None:
        """Jobs that do all of a step, one after the other; None where NumPy has to help.

        Its arrays are the inputs, then the outputs, contiguous where they are column reductions.
        ``workspace`` is the address of memory of so many bytes.
        """
        job = RegionJob(self, step)
        found: list[Job] = [job]
        for i in self.call.columns:
            out = self.call.region.outputs[i]
            part: Any = self.call.region.statement(out.value)
            lines = job.partial[out.value]
            if not self._joins_alike(i) or out.dtype not in joins.KINDS:
                return None
            place = self.inputs + i
            found.append(joins.join_job(part.instruction, out.dtype, lines, place, step))
        return found

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
        """Fill ``outputs`` with what the region computes from ``inputs``, and give 0.

        Where an input has other strides, or something is no array, nothing is done, and it
        gives 1.
        """
        try:
            job = self._jobs.pop()
        except IndexError:
            job = RegionJob(self)
        if self.joins:
            given = [*map(id, inputs), *[id(outputs[i]) for i in self.direct]]
            for array, neutral in job.partials:
                array.fill(neutral)
        else:
            given = [*map(id, inputs), *map(id, outputs)]
        job.arrays[:] = given
        helpers = min(self.threads - 1, threads.helpers()) if self.threads > 1 else 0
        if helpers:
            differs: int = jobs.functions().fill_if_fit(job.address)
            if not differs:
                job.team.run(helpers)
        else:
            differs = self._start(job.address)
        if not differs:
            for join in self.joins:
                join(job, outputs)
        self._jobs.append(job)
        return differs

    def _joins_alike(self, number: int) -> bool:
        """Whether the parts of a column reduction have its elements in its order, and its type."""
        out = self.call.region.outputs[number]
        part: Any = self.call.region.statement(out.value)
        _, middle, across = self.launch.column_shapes[out.value]
        same = middle * across == prod(self.call.sizes[a] for a in out.axes)
        return same and bool(out.dtype == part.dtype)

    def _join(self, number: int) -> Any:
        """What brings a column reduction's parts into its output."""
        call = self.call
        out = call.region.outputs[number]
        part: Any = call.region.statement(out.value)
        blocks, middle, across = self.launch.column_shapes[out.value]
        reduce = ufunc(part.instruction).reduce
        if not self._joins_alike(number):
            return lambda job, outputs: call._join_one(job.partial, outputs, number)

        def join(job: RegionJob, outputs: Sequence[Any]) -> None:
            lines, result = job.partial[out.value], outputs[number]
            if not result.flags.c_contiguous:
                call._join_one(job.partial, outputs, number)
            elif blocks == 1:
                result[...] = lines.reshape(result.shape)
            else:
                reduce(lines, 0, None, result.reshape(middle, across))

        return join
