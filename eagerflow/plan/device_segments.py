"""Segments on devices: neighbouring steps that are recorded once, and then launched together.

    matmul = x_0, W, b0             # train.py:12
    add_gelu = b0, b1, b2           # train.py:12
    _segment((matmul, add_gelu))

A recording contains the addresses of its arrays, so it is only launched again for
these addresses; they are compared in each call, except for fixed memory of the plan.
The first call with new addresses launches steps one by one:
that prepares all code, and addresses that never repeat are never recorded. Steps that cannot be
recorded, such as library calls that wait, are called between recordings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from eagerflow.fusion.kernels import Step
from eagerflow.handlers import raised_here
from eagerflow.locks import Locked, reentrant_lock

MAX_RECORDINGS = 64  # maximum combinations of addresses with recordings
MAX_SEEN = 256  # maximum combinations of addresses to remember

Arrays = Sequence[Any]
Rows = tuple[tuple[Any, ...], ...]


class DeviceStep(NamedTuple):
    """A step of a segment with its arrays: ``inputs`` to read, then those to write.

    ``call(inputs, outputs)`` starts it. ``moving`` are the indices of the arrays with
    addresses that may differ in each call.
    """

    step: Step
    inputs: int
    call: Callable[[Arrays, Arrays], Any]
    moving: tuple[int, ...]


class _RefusedError(Exception):
    """The step of this number could not be recorded; None if the step is unknown."""

    def __init__(self, number: int | None) -> None:
        super().__init__(number)
        self.number = number


def start(own: DeviceStep, row: tuple[Any, ...]) -> None:
    """Start a step, on the current stream."""
    own.call(row[: own.inputs], row[own.inputs :])


class DeviceSegment:
    """Steps on a device as one function of a tuple of the tuples of their arrays.

    Several threads may call it at once, with separate memory of the plan.
    """

    def __init__(self, steps: Sequence[DeviceStep], backend: Any) -> None:
        self.steps = steps
        self._backend = backend
        self._moving = [(i, k) for i, own in enumerate(steps) for k in own.moving]
        # The address of the plan's own memory identifies a concurrent run.
        fixed = ((i, own.inputs) for i, own in enumerate(steps) if own.inputs not in own.moving)
        self._anchor = next(fixed, None)
        self._alone: set[int] = set()  # numbers of steps that cannot be recorded
        self._seen: dict[Any, None] = {}
        self._recordings: dict[Any, list[Callable[[], None] | int]] = {}
        self._lock = reentrant_lock()

    def __call__(self, rows: Rows) -> None:
        """Start all steps, in their order."""
        key = self.key(rows)
        parts = self._recordings.get(key)
        if parts is None:
            if key is None or key not in self._seen:
                for own, row in zip(self.steps, rows, strict=True):
                    start(own, row)
                if key is not None:
                    self._keep(self._seen, key, None, MAX_SEEN)
                return
            parts = self._recorded(rows)
            self._keep(self._recordings, key, parts, MAX_RECORDINGS)
        for part in parts:
            if isinstance(part, int):
                start(self.steps[part], rows[part])
            else:
                part()

    def release(self) -> None:
        """Release all recordings, and their memory."""
        with Locked(self._lock):
            self._recordings.clear()

    def key(self, rows: Rows) -> Any:
        """Addresses and layouts of the arrays; None if some are not on a device."""
        moving = [rows[i][k] for i, k in self._moving]
        own = self._backend.array_type
        if not all(isinstance(x, own) for x in moving):
            return None
        address = self._backend.address
        first = 0 if self._anchor is None else address(rows[self._anchor[0]][self._anchor[1]])
        return first, *[(address(x), x.strides) for x in moving]

    # Recording -----------------------------------------------------------------------------------

    def _recorded(self, rows: Rows) -> list[Callable[[], None] | int]:
        """Recordings for these arrays, and numbers of the steps between them."""
        numbers = range(len(self.steps))
        while True:
            parts: list[Callable[[], None] | int] = []
            try:
                for alone, some in groupby(numbers, self._alone.__contains__):
                    own = list(some)
                    parts += own if alone else [self._record(own, rows)]
            except _RefusedError as error:
                self._alone.update(numbers if error.number is None else [error.number])
            else:
                return parts

    def _record(self, numbers: Sequence[int], rows: Rows) -> Callable[[], None]:
        """The recording of consecutive steps."""
        begun: list[int] = []

        def work() -> None:
            for number in numbers:
                begun.append(number)
                start(self.steps[number], rows[number])
            begun.clear()

        try:
            found: Callable[[], None] = self._backend.record(work)
        except raised_here(Exception) as error:  # libraries raise various errors
            raise _RefusedError(begun[-1] if begun else None) from error
        return found

    def _keep(self, cache: dict[Any, Any], key: Any, found: Any, most: int) -> None:
        """Store an entry; the oldest one is dropped beyond ``most``."""
        with Locked(self._lock):
            if len(cache) >= most:
                cache.pop(next(iter(cache)))
            cache[key] = found
