"""Segments: neighbouring steps of a plan in one call.

    matmul = x, W, b0            # train.py:12
    add_gelu = b0, b1, b2, b3    # train.py:12
    _segment((matmul, add_gelu))

Steps with machine code become jobs of a team: its threads go through them together, each
starting a step when all pieces of the previous one are complete, so that a segment wakes the
other threads once. Other steps are called between teams. Preparation is specific to arrays of
certain strides; other strides are prepared for when they occur.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from eagerflow.codegen.llvm import jobs, launch
from eagerflow.codegen.llvm.chains import Member, chain_job
from eagerflow.codegen.llvm.loops import LoopJob, in_slices
from eagerflow.codegen.llvm.team import Team
from eagerflow.handlers import raised_here
from eagerflow.plan.chains import Chain, chains
from eagerflow.runtime import threads
from eagerflow.runtime.collector import young

MAX_LAYOUTS = 16  # maximum combinations of strides that a segment is prepared for
MAX_OWN_SCRATCH_BYTES = 1 << 15  # for one-thread segments; else the thread's own scratch

Arrays = Sequence[Any]


class NativeCall(Protocol):
    """A machine code call of a step, for arrays of known shapes and strides."""

    @property
    def workspace(self) -> int:
        """Bytes of memory that its threads share while it runs."""

    @property
    def movable(self) -> bool:
        """Whether it always has jobs, and may be exchanged with its neighbours."""

    @property
    def chain_rows(self) -> int | None:
        """The rows of a chain that may begin with it."""

    def new_jobs(self, step: int, workspace: int) -> list[Any] | None:
        """Its jobs, or objects that stand for several, as the step of this number.

        None if Python is needed.
        """

    def member(self, rows: int) -> Member | None:
        """Its part in a chain of this many rows, if possible."""


class SegmentStep(NamedTuple):
    """A step of a segment with its arrays: ``inputs`` to read, then those to write.

    ``call(inputs, outputs)`` runs it in Python; ``native(inputs, outputs)`` returns its machine
    code call, or None.
    """

    step: Any
    """A step of the plan, or an object in place of one."""
    inputs: int
    call: Callable[[Arrays, Arrays], Any]
    native: Callable[[Arrays, Arrays], NativeCall | None]


class _Jobs:
    """Jobs of a team: the addresses of those that receive arrays, and of those that threads run."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.run: list[int] = []
        self.held: list[Any] = []
        self.last: Any = None
        self.scratch, self.pieces = 0, 1

    def take(self, *own: Any) -> None:
        """Add jobs that receive arrays, but are run by others."""
        self.held += own
        self.taken += [address for job in own for address in job.taken]

    def add(self, *own: Any) -> None:
        """Add jobs that receive arrays, and that threads run."""
        self.take(*own)
        for job in own:
            self.run += job.run
            self.scratch, self.pieces = max(self.scratch, job.scratch), max(self.pieces, job.pieces)
            self.last = job


class NativePart(jobs.Taking):
    """Consecutive steps as jobs of one team.

    ``last`` is the step of the last job if Python may have to repeat it.
    """

    def __init__(self, own: _Jobs, workspace: Any, last: PythonPart | None) -> None:
        super().__init__(own.taken)
        self._flags, self._last = own.last.flags, last
        self._helpers = own.pieces - 1
        memory, kept = launch.scratch_of_segment(own.scratch), None
        if self._helpers < 1 and own.scratch <= MAX_OWN_SCRATCH_BYTES:
            kept = np.empty(own.scratch + launch.VECTOR_ALIGNMENT_BYTES, np.uint8)
        self._team = Team(own.run, (own.held, workspace, kept), memory)
        self._alone = None if kept is None else self._team.owner(launch.aligned_address(kept))

    def run(self, rows: tuple[tuple[Any, ...], ...]) -> None:
        """Do the steps."""
        if self._alone is not None:
            self._alone()
        else:
            self._team.run(min(self._helpers, threads.helpers()) if self._helpers > 0 else 0)
        if self._last is not None and self._flags.any():
            self._last.run(rows)


class SlicedPart(jobs.Taking):
    """A loop with so many iterations that it must be interruptible by signals."""

    def __init__(self, job: LoopJob, workspace: Any) -> None:
        super().__init__(job.taken)
        self._job, self._workspace = job, workspace

    def run(self, rows: tuple[tuple[Any, ...], ...]) -> None:
        """Do the loop."""
        in_slices(self._job.iterate, self._job.count)


class PythonPart:
    """A step called by Python."""

    def __init__(self, step: SegmentStep, number: int) -> None:
        self.step, self._number = step.step, number
        self._call, self._inputs = step.call, step.inputs

    def take(self, rows: tuple[tuple[Any, ...], ...]) -> int:
        """Accept all arrays."""
        return 0

    def run(self, rows: tuple[tuple[Any, ...], ...]) -> None:
        """Do the step."""
        arrays = rows[self._number]
        self._call(arrays[: self._inputs], arrays[self._inputs :])


class Layout:
    """A segment for arrays of certain strides: the parts of one run at a time."""

    def __init__(
        self, steps: Sequence[SegmentStep], natives: list[NativeCall | None], rows: Sequence[Arrays]
    ) -> None:
        self.parts: list[Any] = []  # each with ``take`` and ``run``, for all steps' arrays
        self._natives = natives
        inputs = [step.inputs for step in steps]
        order = [*chains(natives, rows, inputs, threads.thread_count())]
        size = max((sum(self._workspace(x) for x in chain.steps) for chain in order), default=0)
        self._memory = np.empty(size + launch.VECTOR_ALIGNMENT_BYTES, np.uint8)
        self._start = launch.aligned_address(self._memory)
        self._waiting = _Jobs()
        for chain in order:
            if chain.members:
                self._add_chain(chain)
            else:
                self._add(steps[chain.steps[0]], chain.steps[0])
            self._added(chain.steps)
        self._end()

    def _add(self, step: SegmentStep, number: int) -> None:
        """Add a single step."""
        native = self._natives[number]
        own = None if native is None else self._new_jobs(native, number)
        if own is None:
            self._end()
            self.parts.append(PythonPart(step, number))
        elif isinstance(own[0], LoopJob) and own[0].in_slices:
            self._end()
            self.parts.append(SlicedPart(own[0], self._memory))
        else:
            self._waiting.add(*own)
            if own[-1].flags is not None:
                self._end(PythonPart(step, number))

    def _new_jobs(self, native: NativeCall, number: int) -> list[Any] | None:
        """The jobs of a single step."""
        return native.new_jobs(number, self._start)

    def _added(self, numbers: Sequence[int]) -> None:
        """Called when these steps are complete, for subclasses to add something."""

    def _workspace(self, number: int) -> int:
        native = self._natives[number]
        return 0 if native is None else launch.whole_lines(native.workspace)

    def _add_chain(self, chain: Chain) -> None:
        """Add the steps before a chain, the chain, and the steps after it."""
        before: list[jobs.Job] = []
        members: list[jobs.Job] = []
        after: list[jobs.Job] = []
        place = self._start
        for number, member in zip(chain.steps, chain.members, strict=True):
            native = self._natives[number]
            own = None if native is None else native.new_jobs(number, place)
            assert own is not None, "steps of a chain have jobs for sure"
            place += self._workspace(number)
            before += own[: member.main]
            members.append(own[member.main])
            after += own[member.main + 1 :]
        self._waiting.add(*before)
        self._waiting.take(*members)
        self._waiting.add(chain_job(chain.members, members, threads.thread_count()), *after)

    def take(self, rows: tuple[tuple[Any, ...], ...]) -> bool:
        """Prepare for the arrays of all steps; False if they do not fit."""
        return not any(part.take(rows) for part in self.parts)

    def run(self, rows: tuple[tuple[Any, ...], ...]) -> None:
        """Run all steps."""
        for part in self.parts:
            part.run(rows)

    def _end(self, last: PythonPart | None = None) -> None:
        if self._waiting.run:
            self.parts.append(NativePart(self._waiting, self._memory, last))
            self._waiting = _Jobs()


class Segment:
    """Steps as one function of a tuple of the tuples of their arrays."""

    layout = Layout
    stamped: Segment | None = None
    """The same steps with times recorded in between, if requested by a profile."""

    def __init__(self, steps: Sequence[SegmentStep]) -> None:
        self.steps = steps
        self._natives: dict[Any, list[NativeCall | None]] = {}
        self._free: list[Layout] = []

    def __call__(self, rows: tuple[tuple[Any, ...], ...]) -> None:
        """Run all steps, in their order."""
        try:
            layout = self._free.pop()
        except raised_here(IndexError):
            layout = self.layout_for(rows)
        if not layout.take(rows):
            layout = self.layout_for(rows)  # strides differ from those of the last run
            if not layout.take(rows):
                # Arrays of other types, such as NumPy's memmaps and masked arrays.
                self.layout(self.steps, [None] * len(self.steps), rows).run(rows)
                return
        layout.run(rows)
        self._free.append(layout)

    def layout_for(self, rows: tuple[tuple[Any, ...], ...]) -> Layout:
        """A layout for arrays with these strides."""
        key = tuple([a.strides for row in rows for a in row])
        natives = self._natives.get(key)
        if natives is None:
            if len(self._natives) >= MAX_LAYOUTS:
                self._natives.clear()
            with young():
                natives = self._natives[key] = [
                    step.native(row[: step.inputs], row[step.inputs :])
                    for step, row in zip(self.steps, rows, strict=True)
                ]
        return self.layout(self.steps, natives, rows)
