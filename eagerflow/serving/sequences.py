"""Stateful sequences of requests: their ids, number and lifetime."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.serving.errors import BusyError, UnknownSequenceError

__all__ = ["Sequence", "SequenceLimits", "Sequences", "Step"]

MAX_REMEMBERED = 1024  # ended sequences for which the reason is kept
MAX_ID_LETTERS = 256


class SequenceLimits(NamedTuple):
    """Limits on the sequences of a model.

    ``max_sequences`` and ``max_bytes`` of state are for all sequences of a model together; one more
    is refused. A sequence without a request for ``idle_seconds`` is ended. ``leaving_seconds`` is
    how long a version waits for its sequences before it is unloaded. Without ``between_requests`` a
    sequence is one request, such as a generation: the next request may reach another process.

    >>> ef.serving.SequenceLimits(idle_seconds=5).max_sequences
    1024
    """

    max_sequences: int = 1024
    max_bytes: int = 1 << 30
    idle_seconds: float = 60.0
    leaving_seconds: float = 30.0
    between_requests: bool = True

    def checked(self) -> SequenceLimits:
        """These limits, validated; ArgumentError for a number out of range."""
        for name, value in self._asdict().items():
            seconds, flag = name.endswith("seconds"), name == "between_requests"
            kinds = (bool,) if flag else (int, float) if seconds else (int,)
            if type(value) not in kinds or not (flag or value >= (0 if seconds else 1)):
                raise ArgumentError(
                    f"{value!r} is not a limit",
                    op="sequences",
                    argument=name,
                    expected="True or False"
                    if flag
                    else "seconds"
                    if seconds
                    else "an integer of at least 1",
                )
        return self


class Step(NamedTuple):
    """The sequence parameters of a request."""

    id: int | str
    start: bool
    end: bool

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Step | None:
        """Parse the parameters ``sequence_id``, ``sequence_start`` and ``sequence_end``.

        None without a sequence, which an id of 0 or an empty one means, too. Source: Triton
        Inference Server's sequence extension.

        >>> from eagerflow.serving.sequences import Step
        >>> Step.of({"sequence_id": 7, "sequence_start": True})
        Step(id=7, start=True, end=False)
        """
        given = parameters.get("sequence_id", 0)
        fits = type(given) in (int, str) and (type(given) is int or len(given) <= MAX_ID_LETTERS)
        if not fits:
            raise ArgumentError(
                "the parameter sequence_id names no sequence",
                argument="sequence_id",
                received=repr(given)[:80],
                expected=f"an integer, or a text of up to {MAX_ID_LETTERS} letters",
            )
        flags = []
        for name in ("sequence_start", "sequence_end"):
            flag = parameters.get(name, False)
            if type(flag) is not bool:
                raise ArgumentError(
                    f"the parameter {name} is {flag!r:.40}", argument=name, expected="true or false"
                )
            flags.append(flag)
        if given:
            return cls(given, *flags)
        if any(flags):
            raise ArgumentError(
                "a sequence begins or ends without its id",
                argument="sequence_id",
                expected="an integer other than 0, or a text",
            )
        return None


class Sequence:
    """One sequence: its version, and its state between requests.

    ``state`` are arrays of its own, one row each; while it shares a ``stack`` with others, the
    state is ``row`` of that, and ``state`` is empty. ``turn`` keeps its requests in order.
    """

    def __init__(self, batcher: Any, id: int | str | None, state: list[Any], now: float) -> None:
        self.batcher = batcher
        self.id = id
        self.state = state
        self.stack: Any = None
        self.row = 0
        self.turn = asyncio.Lock()
        self.pending = 0
        self.is_replaced = False
        self.used = now
        self.ended: str | None = None
        """The reason of its end; None while it is active."""

    def check(self) -> None:
        """Raise UnknownSequenceError if it has ended."""
        if self.ended is not None:
            raise _unknown(self.id, self.ended)

    def put(self, state: list[Any]) -> None:
        """Replace the state by arrays of its own, if it is active."""
        self.state, self.stack = state if self.ended is None else [], None

    def share(self, stack: Any, row: int) -> None:
        """Replace the state by a row of a stack, if it is active."""
        if self.ended is None:
            self.state, self.stack, self.row = [], stack, row

    def rows(self) -> list[Any]:
        """The state as arrays of one row; UnknownSequenceError if it has ended."""
        self.check()
        stack = self.stack
        if stack is None:
            return self.state
        return [array[self.row : self.row + 1] for array in stack.arrays]


class Sequences:
    """The sequences of one model, on all its versions, within limits.

    ``clock`` returns seconds. Belongs to the event loop that calls it.
    """

    def __init__(
        self,
        name: str,
        limits: SequenceLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.limits = (limits or SequenceLimits()).checked()
        self.clock = clock
        self.is_closing = False
        """Whether the server is shutting down and does not wait for idle sequences."""
        self._known: dict[int | str, Sequence] = {}
        self._active: set[Sequence] = set()
        self._ended: OrderedDict[int | str, str] = OrderedDict()
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def of(self, batcher: Any) -> list[Sequence]:
        """The active sequences of a version."""
        return [sequence for sequence in self._active if sequence.batcher is batcher]

    def begin(self, batcher: Any, id: int | str | None = None) -> Sequence:
        """A new sequence on a version; BusyError beyond the limits.

        An active sequence of the same id ends after its pending requests.
        """
        if id is not None and not self.limits.between_requests:
            raise ArgumentError(
                f"{self.name!r} keeps no state between requests here",
                argument="sequence_id",
                hint="the next request may come to another replica: a server by itself keeps state",
            )
        before = self._known.get(id) if id is not None else None
        size = batcher.version.state_bytes
        if self._is_full(size, before):
            self.sweep()
        if self._is_full(size, before):
            raise BusyError(
                f"{self.name!r} has no room for another sequence",
                received=f"{len(self._active)} sequences, {self._bytes:,} bytes of state",
                expected=f"up to {self.limits.max_sequences} and {self.limits.max_bytes:,} bytes",
                hint="send the request again, later",
            )
        if before is not None:
            self._forget(before)
            before.is_replaced = True
            self.settle(before)
        made = Sequence(batcher, id, list(batcher.version.beginning), self.clock())
        self._active.add(made)
        self._bytes += size
        if id is not None:
            self._known[id] = made
            self._ended.pop(id, None)
        self._watch()
        return made

    def _is_full(self, size: int, replaced: Sequence | None) -> bool:
        count, held = len(self._active), self._bytes
        if replaced is not None:
            count, held = count - 1, held - replaced.batcher.version.state_bytes
        return count >= self.limits.max_sequences or held + size > self.limits.max_bytes

    def find(self, id: int | str) -> Sequence:
        """The sequence of this id; UnknownSequenceError with the reason if there is none."""
        found = self._known.get(id)
        if found is None:
            raise _unknown(id, self._ended.get(id))
        return found

    def end(self, sequence: Sequence, why: str) -> None:
        """End a sequence and release its state."""
        if sequence.ended is not None:
            return
        sequence.ended = why
        if sequence.id is not None and self._known.get(sequence.id) is sequence:
            self._ended[sequence.id] = why
            while len(self._ended) > MAX_REMEMBERED:
                self._ended.popitem(last=False)
        self._forget(sequence)
        sequence.put([])
        if not self.of(sequence.batcher):
            sequence.batcher.is_without_sequences()

    def settle(self, sequence: Sequence) -> None:
        """After a request: end a sequence with a reused id and no pending requests."""
        sequence.used = self.clock()
        if sequence.is_replaced and not sequence.pending:
            self.end(sequence, "a sequence with the same id has begun")

    def _forget(self, sequence: Sequence) -> None:
        if sequence in self._active:
            self._active.remove(sequence)
            self._bytes -= sequence.batcher.version.state_bytes
        if sequence.id is not None and self._known.get(sequence.id) is sequence:
            del self._known[sequence.id]

    def sweep(self) -> None:
        """End sequences that were idle for too long."""
        seconds = self.limits.idle_seconds
        last = self.clock() - seconds
        for sequence in [s for s in self._active if not s.pending and s.used < last]:
            self.end(sequence, f"it was idle for {seconds:g} s")

    def _watch(self) -> None:
        """Sweep periodically while there are sequences."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.05, self.limits.idle_seconds / 4), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.sweep()
        if self._active:
            self._watch()


def _unknown(id: int | str | None, why: str | None) -> EagerflowError:
    name = "sequence" if id is None else f"sequence {id!r:.80}"
    return UnknownSequenceError(
        f"there is no {name}" if why is None else f"the {name} has ended",
        received=why,
        hint="sequence_start in the parameters begins one",
    )
