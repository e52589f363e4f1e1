"""Segments: neighbouring steps of a plan that are one call.

    matmul = x, W, b0            # train.py:12
    add_gelu = b0, b1, b2, b3    # train.py:12
    _segment((matmul, add_gelu))

Steps that have machine code become jobs of a team: its threads walk through them together, each
beginning with a step when all pieces of the one before are complete, so that a segment wakes the
other threads once. Other steps are called between teams. What is prepared is so for arrays of
certain strides; arrays with others are prepared for when they come.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from eagerflow.codegen.llvm import jobs, launch
from eagerflow.codegen.llvm.team import Team
from eagerflow.runtime import threads

MAX_LAYOUTS = 16  # combinations of strides that a segment is kept ready for

Arrays = Sequence[Any]


class NativeCall(Protocol):
    """A step that machine code does, for arrays of known shapes and strides."""

    @property
    def workspace(self) -> int:
        """Bytes of memory that its threads share while it runs."""

    def new_jobs(self, step: int, workspace: int) -> list[jobs.Job] | None:
        """Its jobs, as the step of this number; None where Python has to help."""


class SegmentStep(NamedTuple):
    """A step of a segment, whose arrays are ``inputs`` to read, and then those to write.

    ``call(inputs, outputs)`` does it in Python; ``native(inputs, outputs)`` gives what does it in
    machine code, or None.
    """

    step: Any
    """A step of the plan, or what stands for one."""
    inputs: int
    call: Callable[[Arrays, Arrays], Any]
    native: Callable[[Arrays, Arrays], NativeCall | None]


class _NativePart:
    """Steps one behind the other that are jobs of one team."""

    def __init__(self, own: list[jobs.Job], workspace: Any) -> None:
        addresses = [job.address for job in own]
        self._addresses, self._count = (ctypes.c_int64 * len(own))(*addresses), len(own)
        self._place = ctypes.addressof(self._addresses)
        self._helpers = max(job.pieces for job in own) - 1
        # Each power of two has memory of its own: small kernels leave the large ones' alone.
        bits = max(job.scratch for job in own).bit_length()
        memory = (lambda: launch.own_scratch(f"segment {bits}", 2 << bits)) if bits else None
        self._team = Team(addresses, (own, workspace), memory)
        self._take = jobs.functions().take

    def take(self, rows: tuple[tuple[Any, ...], ...]) -> int:
        """Make it ready for the arrays of all steps; 1 where some differ, else 0."""
        found: int = self._take(self._place, self._count, rows)
        return found

    def run(self, rows: tuple[tuple[Any, ...], ...]) -> None:
        """Do the steps."""
        self._team.run(min(self._helpers, threads.helpers()) if self._helpers > 0 else 0)


class PythonPart:
    """A step that Python calls."""

    def __init__(self, step: SegmentStep, number: int) -> None:
        self.step, self._number = step.step, number
        self._call, self._inputs = step.call, step.inputs

    def take(self, rows: tuple[tuple[Any, ...], ...]) -> int:
        """It takes all arrays."""
        return 0

    def run(self, rows: tuple[tuple[Any, ...], ...]) -> None:
        """Do the step."""
        arrays = rows[self._number]
        self._call(arrays[: self._inputs], arrays[self._inputs :])


class _Layout:
    """A segment for arrays of certain strides: the parts of one run at a time."""

    def __init__(self, steps: Sequence[SegmentStep], natives: list[NativeCall | None]) -> None:
        self.parts: list[_NativePart | PythonPart] = []
        size = max((n.workspace for n in natives if n is not None), default=0)
        self._memory = np.empty(size + launch.VECTOR_ALIGNMENT_BYTES, np.uint8)
        start = launch.aligned_address(self._memory)
        waiting: list[jobs.Job] = []
        for number, (step, native) in enumerate(zip(steps, natives, strict=True)):
            own = None if native is None else native.new_jobs(number, start)
            if own is None:
                self._end(waiting)
                self.parts.append(PythonPart(step, number))
            else:
                waiting += own
        self._end(waiting)

    def take(self, rows: tuple[tuple[Any, ...], ...]) -> bool:
        """Make it ready for the arrays of all steps; whether they are as they should be."""
        return not any(part.take(rows) for part in self.parts)

    def run(self, rows: tuple[tuple[Any, ...], ...]) -> None:
        """Do all steps."""
        for part in self.parts:
            part.run(rows)

    def _end(self, waiting: list[jobs.Job]) -> None:
        if waiting:
            self.parts.append(_NativePart(waiting[:], self._memory))
            waiting.clear()


class Segment:
    """Steps as one function of a tuple of the tuples of their arrays."""

    def __init__(self, steps: Sequence[SegmentStep]) -> None:
        self.steps = steps
        self._natives: dict[Any, list[NativeCall | None]] = {}
        self._free: list[_Layout] = []

    def __call__(self, rows: tuple[tuple[Any, ...], ...]) -> None:
        """Do all steps, in their order."""
        try:
            layout = self._free.pop()
        except IndexError:
            layout = self._for(rows)
        if not layout.take(rows):
            layout = self._for(rows)  # they have other strides than those of the last run
            if not layout.take(rows):
                # Arrays of other types, as NumPy's mapped and masked ones.
                _Layout(self.steps, [None] * len(self.steps)).run(rows)
                return
        layout.run(rows)
        self._free.append(layout)

    def _for(self, rows: tuple[tuple[Any, ...], ...]) -> _Layout:
        key = tuple([a.strides for row in rows for a in row])
        natives = self._natives.get(key)
        if natives is None:
            if len(self._natives) >= MAX_LAYOUTS:
                self._natives.clear()
            natives = self._natives[key] = [
                step.native(row[: step.inputs], row[step.inputs :])
                for step, row in zip(self.steps, rows, strict=True)
            ]
        return _Layout(self.steps, natives)
