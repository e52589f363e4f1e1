"""Steps of sequences, joined into batches: each continues from its own state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eagerflow.dims import Dim
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.serving.batching import Batcher, Batching, Request, filled
from eagerflow.serving.errors import UnavailableError, UnknownSequenceError
from eagerflow.serving.metrics import VersionMetrics
from eagerflow.serving.model import ModelVersion, Row
from eagerflow.serving.sequences import Sequence as RequestSequence
from eagerflow.serving.sequences import Sequences, Step
from eagerflow.serving.slots import Slots

__all__ = ["SequenceBatcher"]

_LOOKS = 0.02  # seconds between checks whether sequences have ended


class _Stack:
    """The state of several sequences, as computed by a step: a row for each member, and padding.

    If the same sequences take the next step together, it is used without a copy.
    """

    def __init__(self, arrays: list[Any], members: list[RequestSequence]) -> None:
        self.arrays = arrays
        self.members = members

    def staying(self, others: Sequence[RequestSequence]) -> list[RequestSequence]:
        """The members, except ``others``, that still have their state here."""
        return [m for m in self.members if m.stack is self and m not in others]


class SequenceBatcher(Batcher):
    """Runs the steps of one version's sequences, in batches of different sequences.

    The second size of a request is its share of a batch, so that a step of ``max_rows`` sequences
    takes about as long as one of a single sequence with ``max_rows`` tokens.
    """

    def __init__(
        self,
        version: ModelVersion,
        batching: Batching,
        metrics: VersionMetrics | None = None,
        sequences: Sequences | None = None,
    ) -> None:
        super().__init__(version, batching, metrics)
        self.sequences = sequences or Sequences(version.name)
        self.slots = Slots(self.batching.max_rows, self.batching.max_queue)
        self._length = _free_length(version)
        self.lengths = _lengths(version, self._steps) if self._length else [1]
        """The numbers of tokens that a step can take, where the length is free, in order."""
        self._stack: _Stack | None = None
        if metrics is not None:
            metrics.watch_sequences(lambda: len(self.sequences.of(self)))

    def warm_up(self) -> None:
        """Make the plans for all batch sizes, and time the smallest."""
        batch = self.version.signature.batch if self.joins else None
        self.version.try_out(
            ({batch: rows} if batch else {}) | ({self._length: length} if self._length else {})
            for rows in (self._steps if batch else [1])
            for length in self.lengths
            if rows * length <= self.batching.max_rows
        )

    async def run(self, given: Row, outputs: Any = None, **options: Any) -> dict[str, Any]:
        """Refuse the call: ArgumentError says that a request needs a sequence."""
        raise ArgumentError(
            f"{self.version.name!r} has state, so its requests belong to sequences",
            argument="sequence_id",
            expected="sequence_id, and sequence_start or sequence_end, in the parameters of a "
            "request of the Open Inference Protocol",
        )

    async def answer(
        self,
        given: Row,
        outputs: Sequence[str] | None = None,
        step: Step | None = None,
        *,
        is_named: bool = False,
        timeout: float | None = None,
        priority: int = 0,
    ) -> tuple[ModelVersion, dict[str, Any]]:
        """The version of a sequence, and the outputs by name of its next request.

        A sequence stays on the version where it began; a request that names a different one is
        refused. Raises UnknownSequenceError for an unknown sequence, and the errors of
        ``Batcher.run``.
        """
        if step is None:
            await self.run(given)
        assert step is not None
        if step.start:
            sequence = self.begin(step.id)
        else:
            sequence = self.sequences.find(step.id)
        batcher = sequence.batcher
        number = batcher.version.number
        if is_named and number != self.version.number:
            raise UnknownSequenceError(
                f"the sequence {step.id!r:.80} is on another version",
                received=f"version {self.version.number}",
                expected=f"version {number}, or none",
            )
        found = await batcher.step(
            sequence,
            given,
            outputs,
            is_first=step.start,
            is_last=step.end,
            timeout=timeout,
            priority=priority,
        )
        return batcher.version, found

    def begin(self, id: int | str | None = None) -> RequestSequence:
        """A new sequence; UnavailableError while the version is shutting down, or BusyError."""
        if not self.is_open:
            raise UnavailableError(
                f"{self.version!r} is shutting down", hint="send the request again"
            )
        return self.sequences.begin(self, id)

    async def step(
        self,
        sequence: RequestSequence,
        given: Row,
        outputs: Sequence[str] | None = None,
        *,
        is_first: bool = False,
        is_last: bool = False,
        timeout: float | None = None,
        priority: int = 0,
    ) -> dict[str, Any]:
        """The outputs by name of the next step of a sequence.

        Steps of a sequence are computed in the order of these calls. A failed step leaves the state
        unchanged; a failed first step ends the sequence.
        """
        try:
            places = self.version.signature.outputs_of(outputs)
            self._check_rows(given)
            arrays = self.version.arrays(given)
            inputs = [arrays[place] for place in self.version.given_inputs]
            found = await self.advance(sequence, inputs, places, timeout=timeout, priority=priority)
        except BaseException:
            if is_first:
                self.sequences.end(sequence, "its first request failed")
            raise
        if is_last:
            self.sequences.end(sequence, "a request ended it")
        names = self.version.signature.all_outputs
        return dict(zip([names[i] for i in places], found, strict=True))

    async def advance(
        self,
        sequence: RequestSequence,
        inputs: Sequence[Any],
        places: Sequence[int],
        *,
        timeout: float | None = None,
        priority: int = 0,
        then: Callable[[list[Any]], Any] | None = None,
    ) -> Any:
        """The outputs at these positions, or the result of ``then`` on them, for tensors that fit.

        ``then`` is called in any thread.
        """
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        rows = min(self._weight(inputs), self.batching.max_rows)
        sequence.pending += 1
        self.running += 1
        try:
            self._check_queue(self.running - 1)
            async with sequence.turn:
                sequence.check()
                return await self._put(
                    inputs, places, rows, deadline, priority, sequence=sequence, then=then
                )
        finally:
            sequence.pending -= 1
            self.running -= 1
            self.sequences.settle(sequence)

    def _check_rows(self, given: Row) -> None:
        batch = self.version.signature.batch
        for name, spec in self.version.signature.inputs.items() if batch else ():
            shape = np.shape(given.get(name, ((),)))
            if len(shape) == len(spec.shape) and shape[0] != 1:
                raise ShapeError(
                    "a request of a sequence has one row, which is the sequence's",
                    op=self.version.name,
                    argument=name,
                    received=f"shape {shape}",
                    expected=f"shape {(1, *spec.shape[1:])}",
                )

    def _weight(self, inputs: Sequence[Any]) -> int:
        """A request's share of a batch: its length, where the graph leaves it free."""
        if self._length is None:
            return 1
        length: int = inputs[0].shape[1]
        return max(1, length)

    # Computing ---------------------------------------------------------------------------------

    def _joined(self, batch: list[Request]) -> list[Any]:
        members = [request.sequence for request in batch]
        version = self.version
        wanted = next(n for n in self._steps if n >= len(batch)) if self.joins else 1
        state = self._gathered(members, wanted)
        given = [
            self._column([x.numpy() for x in column], wanted)
            for column in zip(*(request.inputs for request in batch), strict=True)
        ]
        places = sorted({place for request in batch for place in request.places})
        computed = version.compute(
            version.inputs_of(given, state), [*places, *version.state_outputs]
        )
        found = dict(zip(places, computed, strict=False))
        outcomes = []
        for row, request in enumerate(batch):
            own = slice(row, row + 1) if self.joins else ...
            outcomes.append(_outcome(request, [found[i][own] for i in request.places]))
        self._keep(members, computed[len(places) :])
        return outcomes

    def _column(self, arrays: list[Any], wanted: int) -> Any:
        """An input, or a part of the state, of all members, padded to a size that has a plan."""
        if len(arrays) == wanted == 1:
            return arrays[0]
        return filled(arrays, wanted - len(arrays))

    def _gathered(self, members: list[RequestSequence], wanted: int) -> list[Any]:
        """The state of these sequences, as arrays with a row for each."""
        stack = self._stack
        if stack is not None and stack.members == members == stack.staying(()):
            return stack.arrays
        rows = [member.rows() for member in members]
        return [self._column(list(column), wanted) for column in zip(*rows, strict=True)]

    def _keep(self, members: list[RequestSequence], arrays: list[Any]) -> None:
        """Store the new state of these sequences.

        It stays stacked, except for a few sequences beside a larger stack: when these alternate, as
        prompts do with running generations, little is copied.
        """
        if not self.joins:
            members[0].put(arrays)
            return
        stack = self._stack
        if stack is not None:
            staying = stack.staying(members)
            apart = not any(member.stack is stack for member in members)
            if apart and len(staying) > len(members):
                for row, member in enumerate(members):
                    member.put([_row(array, row) for array in arrays])
                return
            for member in staying:
                member.put([_row(array, member.row) for array in stack.arrays])
        self._stack = made = _Stack(arrays, members)
        for row, member in enumerate(members):
            member.share(made, row)

    # The end -----------------------------------------------------------------------------------

    def is_without_sequences(self) -> None:
        """Release the state of sequences that have ended."""
        self._stack = None

    async def drain(self) -> None:
        """Begin no more sequences, wait for active ones within the time limit, then stop."""
        self.is_open = False
        sequences = self.sequences
        last = sequences.clock() + sequences.limits.leaving_seconds
        while sequences.clock() < last and any(
            s.pending or not sequences.is_closing for s in sequences.of(self)
        ):
            await asyncio.sleep(_LOOKS)
        for sequence in sequences.of(self):
            sequences.end(sequence, f"version {self.version.number} has left")
        await super().drain()


def _free_length(version: ModelVersion) -> str | None:
    """The name of the second size of the first input, if it is free."""
    first = next(iter(version.signature.inputs.values()), None)
    if first is None or len(first.shape) < 2 or not isinstance(first.shape[1], Dim):
        return None
    name = str(first.shape[1])
    return name if name.isidentifier() and name != str(first.shape[0]) else None


def _lengths(version: ModelVersion, steps: list[int]) -> list[int]:
    """The lengths among ``steps`` that a sequence can have, and 1."""
    state = version.signature.state
    most = None if state is None or state.decoder is None else state.decoder.context
    return sorted({1, *(n for n in steps if most is None or n <= most)})


def _row(array: Any, row: int) -> Any:
    return array[row : row + 1].copy()


def _outcome(request: Request, outputs: list[Any]) -> Any:
    """The result of a request, or its error."""
    if request.then is None:
        return outputs
    try:
        return request.then(outputs)
    except Exception as error:
        return error
