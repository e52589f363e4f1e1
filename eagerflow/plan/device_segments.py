"""Segments on devices: neighbouring steps that are recorded once, and then started in one launch.

    matmul = x_0, W, b0             # train.py:12
    add_gelu = b0, b1, b2           # train.py:12
    _segment((matmul, add_gelu))

A recording holds the addresses of the arrays that it was made with. So it is started again for
these very addresses alone; they are asked for in each call, but for memory of the plan's own that
stays where it is. Addresses that come for the first time are worked on by launches one by one:
that makes all code ready, and what never comes again is never recorded. Steps that cannot be
recorded, as calls of libraries that wait, are called between recordings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from eagerflow.fusion.kernels import Step
from eagerflow.handlers import raised_here
from eagerflow.locks import Locked, reentrant_lock

MAX_RECORDINGS = 64  # combinations of addresses that a segment keeps recordings for
MAX_SEEN = 256  # combinations of addresses that it remembers

Arrays = Sequence[Any]
Rows = tuple[tuple[Any, ...], ...]


class DeviceStep(NamedTuple):
    """A step of a segment, whose arrays are ``inputs`` to read, and then those to write.

    ``call(inputs, outputs)`` starts it. ``moving`` are the numbers of the arrays that may be
    elsewhere in each call.
    """

    step: Step
    inputs: int
    call: Callable[[Arrays, Arrays], Any]
    moving: tuple[int, ...]


class _RefusedError(Exception):
    """A step of this number could not be recorded; None where it is not known which one."""

    def __init__(self, number: int | None) -> None:
        super().__init__(number)
        self.number = number


def start(own: DeviceStep, row: tuple[Any, ...]) -> None:
    """Start a step, on the stream that is current."""
    own.call(row[: own.inputs], row[own.inputs :])


class DeviceSegment:
    """Steps on a device as one function of a tuple of the tuples of their arrays.

    Several threads may call it at once, with memory of the plan that is their own.
    """

    def __init__(self, steps: Sequence[DeviceStep], backend: Any) -> None:
        self.steps = steps
        self._backend = backend
        self._moving = [(i, k) for i, own in enumerate(steps) for k in own.moving]
        # Where the plan's own memory lies tells one run at a time from another.
        fixed = ((i, own.inputs) for i, own in enumerate(steps) if own.inputs not in own.moving)
        self._anchor = next(fixed, None)
        self._alone: set[int] = set()  # numbers of steps that cannot be recorded
        self._seen: dict[Any, None] = {}
        self._recordings: dict[Any, list[Callable[[], None] | int]] = {}
        self._lock = reentrant_lock()

    def __call__(self, rows: Rows) -> None:
        """Start all steps, in their order."""
        key = self._key(rows)
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
        """Let go of all recordings, and of their memory."""
        with Locked(self._lock):
            self._recordings.clear()

    def _key(self, rows: Rows) -> Any:
        """Where the arrays lie, and how; None where some do not lie on a device."""
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
        """The recording of some steps one behind the other."""
        begun: list[int] = []

        def work() -> None:
            for number in numbers:
                begun.append(number)
                start(self.steps[number], rows[number])
            begun.clear()

        try:
            found: Callable[[], None] = self._backend.record(work)
        except raised_here(Exception) as error:  # libraries say in many ways that they cannot
            raise _RefusedError(begun[-1] if begun else None) from error
        return found

    def _keep(self, cache: dict[Any, Any], key: Any, found: Any, most: int) -> None:
        """Keep something, and no more than so many; what came first goes."""
        with Locked(self._lock):
            if len(cache) >= most:
                cache.pop(next(iter(cache)))
            cache[key] = found
