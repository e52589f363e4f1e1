"""Region calls on arrays that differ only in addresses, with minimal overhead."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from numpy.lib.stride_tricks import as_strided

from eagerflow.codegen.layout import Like, lies_in_order, operands_of
from eagerflow.codegen.llvm import jobs, joins, launch
from eagerflow.codegen.llvm.chains import Access, Member, Ranges
from eagerflow.codegen.llvm.jobs import Job, Operands
from eagerflow.codegen.llvm.team import Team
from eagerflow.codegen.reductions import joined
from eagerflow.codegen.region import Input
from eagerflow.dtypes import as_dtype
from eagerflow.handlers import raised_here
from eagerflow.runtime import threads


def possible(call: Any) -> bool:
    """Whether a prepared call needs only the addresses of its arrays."""
    return not (call.copies or call.lookups or call.saved) and jobs.arrays_lie_open()


class RegionJob(Job):
    """A region's kernel, with memory for the parts of its column reductions."""

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
        if own.count == 1:
            whole = own.side if own.variant == "side" else own.width
            self.whole = [*own.code.linked.pieces.values()], own.rows, whole
        self.team = Team([self.address], self.held, own.own_scratch if self.scratch else None)


class FixedCall:
    """A ``launch.KernelCall`` for arrays of the same layout, at any addresses.

    ``likes`` are strides and dtypes of the inputs, and of the outputs if there are more, which are
    checked, and ``offsets`` bytes to add to the addresses of inputs. Shapes are not checked; the
    axes of ``outputs`` are in the region's order. Several threads may call it at once.
    """

    def __init__(
        self,
        call: launch.KernelCall,
        likes: Sequence[Like],
        offsets: Sequence[int],
        outputs: Sequence[Any],
    ) -> None:
        self.call, self.launch = call, call.launch
        own = call.launch
        self.inputs = len(call.region.inputs)
        self.direct = call.direct
        count = len(own.pointers)
        places = [*range(self.inputs), *(self.inputs + i for i in self.direct)]
        offsets = [*offsets, *[0] * (count - len(offsets))]
        self.operands = Operands(
            own.pointers, offsets, places, [likes[i] for i in places if i < len(likes)]
        )
        self.threads = own.count if own.parallel else 1
        self._start = jobs.functions().start
        self._places = {i: (outputs[i].shape, outputs[i].strides) for i in call.columns}
        self.joins = [self._join(i) for i in call.columns]
        self._jobs: list[RegionJob] = []

    @property
    def entry(self) -> int:
        """The address of the code, as soon as it is compiled."""
        return ctypes.cast(self.launch.code.function, ctypes.c_void_p).value or 0

    def new_job(self) -> RegionJob:
        """The state of one call at a time."""
        return RegionJob(self)

    @property
    def can_wait(self) -> bool:
        """Whether a job is all there is to run, by any thread, at any time after it is filled."""
        own = self.launch
        return not self.joins and not (own.scratch and own.variant != "stages")

    workspace = 0  # bytes of memory shared by all threads of a call, besides the jobs' own

    def new_jobs(self, step: int, workspace: int) -> list[Job] | None:
        """The jobs of a step, in order; None if NumPy is needed.

        Its arrays are the inputs, then the outputs, contiguous for column reductions. ``workspace``
        is the address of working memory.
        """
        job = RegionJob(self, step)
        found: list[Job] = [job]
        outputs = self.call.region.outputs
        last = {outputs[i].value: i for i in self.call.columns}
        for i in self.call.columns:
            out = outputs[i]
            part: Any = self.call.region.statement(out.value)
            lines = job.partial[out.value]
            if not self._joins_alike(i) or out.dtype not in joins.KINDS:
                return None
            place = self.inputs + i
            clears = last[out.value] == i
            found.append(joins.join_job(part.instruction, out.dtype, lines, place, step, clears))
        return found

    chain_rows = None  # does not begin chains

    @property
    def movable(self) -> bool:
        """Whether it certainly has jobs, and may be reordered with its neighbors."""
        outputs = self.call.region.outputs
        kinds = all(outputs[i].dtype in joins.KINDS for i in self.call.columns)
        return kinds and all(self._joins_alike(x) for x in self.call.columns)

    def member(self, rows: int) -> Member | None:
        """The call as part of a chain over rows; None if its rows do not match."""
        own = self.launch
        many, function = self._rows_of(rows), own.code.piece
        if many is None or not function or (own.variant == "stages" and own.region.columns):
            return None
        alignment = 1
        if own.region.columns:
            alignment, rest = divmod(own.height, many)
            if rest or own.height >= own.rows:
                return None
        found = [self._access(i, many) for i in range(len(self.operands.places))]
        found += [Access(self.inputs + i, 0, None, 0, True, 1) for i in self.call.columns]
        return Member(rows, function, 0, alignment, tuple(found), partial(self._cut, many))

    def _rows_of(self, rows: int) -> int | None:
        """The number of rows of the kernel, or elements of its single row, per row of a chain."""
        own = self.launch
        if own.variant == "stages" and own.rows == 1:
            many, rest = divmod(own.width, rows)
        else:
            many, rest = divmod(own.rows, rows)
        return None if rest or rows < 2 or not many else many

    def _cut(self, many: int, frame: Any, height: int) -> Ranges:
        """The ranges of pieces of a number of a chain's rows."""
        own = self.launch
        if own.rows == 1:
            return Ranges(0, 1, 1, height * many, own.width)
        together = own.height if own.region.columns else height * many
        return Ranges(height * many, own.rows, together, 0, own.width)

    def _access(self, operand: int, many: int) -> Access:
        """The access to an operand by rows of a chain."""
        own = self.launch
        part = operands_of(own.region)[operand]
        outer, inner = own.binding.strides[operand]
        item = as_dtype(part.dtype).itemsize
        row, size = outer[-1], (own.width - 1) * inner + item
        if own.rows == 1:
            row, size = many * inner, (many - 1) * inner + item
        else:
            pairs = zip(outer, outer[1:], own.binding.extents[1:], strict=False)
            if any(stride != after * extent for stride, after, extent in pairs):
                row = 0
            row, size = many * row, (many - 1) * row + size
        whole = row <= 0 or inner < 0 or (isinstance(part, Input) and part.gather)
        place, offset = self.operands.places[operand], self.operands.offsets[operand]
        return Access(place, offset, None if whole else row, size, operand >= self.inputs)

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
        """Fill ``outputs`` with the region's results on ``inputs``, and return 0.

        If an input has other strides, or something is not an array, it does nothing and returns 1.
        """
        try:
            job = self._jobs.pop()
        except raised_here(IndexError):
            job = RegionJob(self)
        if self.joins:
            given = [*map(id, inputs), *[id(outputs[i]) for i in self.direct]]
            for array, neutral in job.partials:
                array.fill(neutral)
        else:
            given = [*map(id, inputs), *map(id, outputs)]
        job.objects[:] = given
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
        """Whether the parts of a column reduction have the order and the type of the output."""
        out = self.call.region.outputs[number]
        part: Any = self.call.region.statement(out.value)
        _, middle, across = self.launch.column_shapes[out.value]
        same = middle * across == prod(self.call.sizes[a] for a in out.axes)
        in_order = lies_in_order(*self._places[number], as_dtype(out.dtype).itemsize)
        return same and in_order and bool(out.dtype == part.dtype)

    def _join(self, number: int) -> Any:
        """The job that combines a column reduction's parts into its output."""
        call = self.call
        out = call.region.outputs[number]
        part: Any = call.region.statement(out.value)
        if not self._joins_alike(number):
            place = self._places[number]

            def join_view(job: RegionJob, outputs: Sequence[Any]) -> None:
                call._join_one(job.partial, {number: as_strided(outputs[number], *place)}, number)

            return join_view

        def join(job: RegionJob, outputs: Sequence[Any]) -> None:
            lines, result = job.partial[out.value], outputs[number]
            if not result.flags.c_contiguous:
                call._join_one(job.partial, outputs, number)
            else:
                joined(part.instruction, lines, result.reshape(lines.shape[1:]))

        return join
