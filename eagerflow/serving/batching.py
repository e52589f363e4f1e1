"""Dynamic batching: pending requests are computed together, and their results split again."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eagerflow.errors import ArgumentError
from eagerflow.recorder import with_recorder
from eagerflow.serving.access_log import Record, current
from eagerflow.serving.errors import BusyError, LateError, UnavailableError
from eagerflow.serving.executors import Executor, InProcess
from eagerflow.serving.metrics import VersionMetrics
from eagerflow.serving.model import ModelVersion, Row
from eagerflow.serving.statistics import Statistics

__all__ = ["Batcher", "Batching"]

DEFAULT_SIGNATURE = "serving_default"


class Batching(NamedTuple):
    """The settings of dynamic batching for a model.

    ``max_rows`` is the largest batch (1: each request runs alone), ``max_wait`` how many seconds
    waits for others; 0 joins the requests that arrived while the previous batch was computed.
    ``sizes`` are the numbers of rows that batches are filled up to, which each have a plan
    (default: powers of two). ``max_queue`` is how many requests may wait; one more is refused.

    >>> ef.serving.Batching(max_rows=12).steps()
    [1, 2, 4, 8, 12]
    """

    max_rows: int = 32
    max_wait: float = 0.0
    sizes: tuple[int, ...] = ()
    max_queue: int = 1024

    def steps(self) -> list[int]:
        """The batch sizes that are computed, in order."""
        given = self.sizes or [1 << i for i in range(self.max_rows.bit_length())]
        return sorted({*(n for n in given if n <= self.max_rows), self.max_rows})

    def checked(self) -> Batching:
        """These settings, validated; ArgumentError for a number out of range."""
        counts = {"max_rows": self.max_rows, "max_queue": self.max_queue}
        for name, value in [*counts.items(), *(("sizes", n) for n in self.sizes)]:
            if type(value) is not int or value < 1:
                raise ArgumentError(
                    f"{value!r} is not a count",
                    op="batching",
                    argument=name,
                    expected="an integer of at least 1",
                )
        if not isinstance(self.max_wait, int | float) or not 0 <= self.max_wait < 3600:
            raise ArgumentError(
                f"{self.max_wait!r} is not a time to wait",
                op="batching",
                argument="max_wait",
                expected="seconds, from 0 to 3600",
            )
        return self


class Request(NamedTuple):
    """A pending request: ordered by priority, then by arrival.

    ``rows`` is its share of a batch; ``sequence`` is the sequence that it continues, and ``then``
    computes its result from its outputs, where it is a part of a larger request.
    """

    priority: int
    number: int
    arrived: float
    deadline: float
    inputs: Sequence[Any]
    rows: int
    shapes: tuple[Any, ...]
    places: Sequence[int]
    future: asyncio.Future[Any]
    record: Record | None = None
    sequence: Any = None
    then: Callable[[list[Any]], Any] | None = None


class Batcher:
    """Runs the requests of one version, in batches; belongs to the event loop that calls it.

    ``running`` counts the requests that are queued or computed. ``signatures`` has a Batcher for
    each signature of the version's file.
    """

    def __init__(
        self,
        version: ModelVersion,
        batching: Batching,
        metrics: VersionMetrics | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.version = version
        self.batching = batching.checked()
        self.running = 0
        self.recent: deque[float] = deque(maxlen=1000)  # seconds that the latest responses took
        self.metrics = metrics
        if metrics is not None:
            metrics.watch(lambda: self.running)
        self.signatures: dict[str, Batcher] = {}
        self.is_open = True
        self.joins = version.signature.batch is not None and batching.max_rows > 1
        self._sums = Statistics()
        self._steps = batching.steps()
        self._planned = frozenset(self._steps if self.joins else (1,))
        self._waiting: list[Request] = []
        self._number = itertools.count().__next__
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._executor = executor or InProcess(version)

    def warm_up(self) -> None:
        """Make the plans for all batch sizes, and time the smallest."""
        try:
            for part in self.parts():
                part._executor.prepare(part._sizes())
        except BaseException:
            self.release()
            raise

    def _sizes(self) -> list[dict[str, int]]:
        """The free sizes that have plans, the smallest first."""
        batch = self.version.signature.batch
        return [{batch: n} for n in self._steps] if self.joins and batch else [{}]

    def parts(self) -> list[Batcher]:
        """This Batcher, and those of the signatures."""
        return [self, *self.signatures.values()]

    def statistics(self) -> Statistics:
        """The statistics of all signatures together."""
        return Statistics.of(part._sums for part in self.parts())

    @property
    def answered(self) -> int:
        """The number of requests that have been answered."""
        return self._sums.success

    @property
    def is_busy(self) -> bool:
        """Whether requests are queued or computed, for any signature."""
        return any(part.running for part in self.parts())

    def by_signature(self, name: Any = None) -> Batcher:
        """The Batcher of a signature; ArgumentError for an unknown name.

        ``serving_default``, an empty text and None are all outputs of the graph, if its file has
        no signature of this name.
        """
        if not self.signatures and name in (None, ""):
            return self
        name = DEFAULT_SIGNATURE if name in (None, "") else name
        parts = {DEFAULT_SIGNATURE: self, **self.signatures}
        if isinstance(name, str) and name in parts:
            return parts[name]
        raise ArgumentError(
            f"there is no signature {name!r:.80}",
            op=self.version.name,
            argument="signature_name",
            expected="one of " + ", ".join(parts),
        )

    async def run(
        self,
        given: Row,
        outputs: Sequence[str] | None = None,
        *,
        timeout: float | None = None,
        priority: int = 0,
    ) -> dict[str, Any]:
        """The outputs by name (all, or those requested) for an array for each input.

        ``timeout`` limits the seconds in the queue; a smaller ``priority`` goes first. Raises what
        ``ModelVersion.run`` raises, BusyError where the queue is full, LateError where the timeout
        has passed, and UnavailableError when the version is shutting down.
        """
        if not self.is_open:
            raise UnavailableError(
                f"{self.version!r} is shutting down", hint="send the request again"
            )
        places = self.version.signature.outputs_of(outputs)
        inputs = self.version.arrays(given)
        rows = inputs[0].shape[0] if self.joins else 1
        if self._joins_nothing(rows):
            found = self._at_once(inputs, places, rows)
        else:
            self.running += 1
            try:
                found = await self._queued(inputs, places, rows, timeout, priority)
            finally:
                self.running -= 1
        names = self.version.signature.all_outputs
        return dict(zip([names[i] for i in places], found, strict=True))

    def _joins_nothing(self, rows: int) -> bool:
        """Whether a request of so many rows gains nothing by waiting for others."""
        is_alone = not self._waiting and not self.batching.max_wait and rows in self._planned
        return is_alone and self._executor.is_quick

    def _at_once(self, inputs: Sequence[Any], places: Sequence[int], rows: int) -> list[Any]:
        """The outputs of a request that is computed alone, at once."""
        begun = time.monotonic()
        found = with_recorder(None, self._executor.compute, inputs, places)
        seconds = time.monotonic() - begun
        record = current.get()
        if record is not None:
            record.computed(self.version.name, self.version.number, rows, (0.0, seconds))
        self._count_batch(rows, 0.0, seconds)
        self.count(seconds)
        return found

    async def _queued(
        self,
        inputs: Sequence[Any],
        places: Sequence[int],
        rows: int,
        timeout: float | None,
        priority: int,
    ) -> list[Any]:
        if rows > self.batching.max_rows:
            return await self._cut(inputs, places, timeout, priority)
        self._check_queue(len(self._waiting))
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        return await self._put(inputs, places, rows, deadline, priority)

    def check_room(self) -> None:
        """Raise BusyError where a request would be refused, before it is parsed."""
        if not self.signatures:  # each of which has a queue of its own
            self._check_queue(len(self._waiting))

    def _check_queue(self, waiting: int) -> None:
        if waiting >= self.batching.max_queue:
            raise BusyError(
                f"the queue of {self.version.name!r} is full",
                received=f"{waiting} requests are waiting",
                hint="send the request again, later",
            )

    def _put(
        self,
        inputs: Sequence[Any],
        places: Sequence[int],
        rows: int,
        deadline: float,
        priority: int,
        **more: Any,
    ) -> asyncio.Future[Any]:
        """A future of the outputs of a request, which is queued now."""
        shapes = tuple([x.shape[1:] for x in inputs]) if self.joins else ()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        number, now = self._number(), time.monotonic()
        request = Request(
            priority,
            number,
            now,
            deadline,
            inputs,
            rows,
            shapes,
            places,
            future,
            current.get(),
            **more,
        )
        heapq.heappush(self._waiting, request)
        self._plan()
        return future

    async def _cut(self, inputs: Sequence[Any], places: Sequence[int], *more: Any) -> list[Any]:
        """Split a request of many rows into several."""
        step = self.batching.max_rows
        parts = [
            self._queued(part, places, part[0].shape[0], *more)
            for part in (
                [x[i : i + step] for x in inputs] for i in range(0, inputs[0].shape[0], step)
            )
        ]
        found = await asyncio.gather(*parts)
        return [np.concatenate(columns) for columns in zip(*found, strict=True)]

    # Scheduling --------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Schedule the pending requests: now, soon, or when the oldest has waited long enough."""
        if not self._waiting or not self._executor.is_free(self._plan):
            return
        wait = 0.0
        if self.joins and self.batching.max_wait:
            rows = sum(request.rows for request in self._waiting)
            if rows < self.batching.max_rows:
                oldest = min(request.arrived for request in self._waiting)
                wait = oldest + self.batching.max_wait - time.monotonic()
        if self._timer is not None:
            if wait > 0:
                return  # set when the oldest request arrived
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        # "Soon" is after everything that has arrived was read, so that it can be joined.
        self._timer = (
            loop.call_later(wait, self._begin) if wait > 0 else loop.call_soon(self._begin)
        )

    def _begin(self) -> None:
        """Compute the next batch."""
        self._timer = None
        if not self._executor.is_free(self._plan):
            return
        batch = self._next_batch()
        if not batch:
            return
        end = partial(self._end, batch, time.monotonic())
        self._executor.begin(partial(self._outcomes, batch), len(batch), end)
        self._plan()

    def _end(self, batch: list[Request], begun: float, outcomes: list[Any] | BaseException) -> None:
        now = time.monotonic()
        if isinstance(outcomes, BaseException):
            outcomes = [outcomes] * len(batch)
        rows = sum(request.rows for request in batch)
        waited = sum(begun - request.arrived for request in batch)
        self._count_batch(rows, waited, now - begun)
        for request, outcome in zip(batch, outcomes, strict=True):
            if request.record is not None:
                times = begun - request.arrived, now - begun
                request.record.computed(self.version.name, self.version.number, request.rows, times)
            if request.future.done():  # the client has disconnected
                continue
            if isinstance(outcome, BaseException):
                self._sums.ended(now - request.arrived, failed=True)
                request.future.set_exception(outcome)
            else:
                request.future.set_result(outcome)
                if request.then is None:
                    self.count(now - request.arrived)
        self._plan()

    def _count_batch(self, rows: int, waited: float, seconds: float) -> None:
        self._sums.computed(rows, waited, seconds)
        if self.metrics is not None:
            self.metrics.computed(rows)

    def count(self, seconds: float) -> None:
        """Count a request with the seconds that its response took."""
        self._sums.ended(seconds, failed=False)
        self.recent.append(seconds)
        if self.metrics is not None:
            self.metrics.answered(seconds)

    def _next_batch(self) -> list[Request]:
        """The requests to compute together next: the first, and others of its shapes."""
        batch: list[Request] = []
        left: list[Request] = []
        rows, now = 0, time.monotonic()
        while self._waiting and rows < self.batching.max_rows:
            request = heapq.heappop(self._waiting)
            if request.future.done():
                continue
            if request.deadline < now:
                self._sums.ended(now - request.arrived, failed=True)
                request.future.set_exception(
                    LateError(
                        "the deadline passed before the request was begun",
                        op=self.version.name,
                        received=f"{now - request.arrived:.3f} s in the queue",
                    )
                )
            elif batch and not (
                self.joins
                and request.shapes == batch[0].shapes
                and rows + request.rows <= self.batching.max_rows
            ):
                left.append(request)
                if not self.joins:
                    break
            else:
                batch.append(request)
                rows += request.rows
        for request in left:
            heapq.heappush(self._waiting, request)
        return batch

    # Computing ---------------------------------------------------------------------------------

    def _outcomes(self, batch: list[Request]) -> list[Any]:
        """The outputs of each request of a batch, or its error; called in any thread."""
        try:
            return with_recorder(None, self._joined, batch)
        except UnavailableError as error:  # not the fault of a request
            return [error] * len(batch)
        except Exception as error:
            if len(batch) == 1:
                return [error]
        # One of the requests is at fault: run each alone, so that the others have their results.
        return [self._outcomes([request])[0] for request in batch]

    def _joined(self, batch: list[Request]) -> list[Any]:
        places = sorted({place for request in batch for place in request.places})
        rows = sum(request.rows for request in batch)
        wanted = next(n for n in self._steps if n >= rows) if self.joins else rows
        inputs = batch[0].inputs
        if len(batch) > 1 or wanted != rows:
            inputs = [
                filled([x.numpy() for x in column], wanted - rows)
                for column in zip(*(request.inputs for request in batch), strict=True)
            ]
        found = dict(zip(places, self._executor.compute(inputs, places), strict=True))
        if not self.joins:
            return [[found[i] for i in batch[0].places]]
        outcomes, begin = [], 0
        for request in batch:
            end = begin + request.rows
            outcomes.append([found[i][begin:end] for i in request.places])
            begin = end
        return outcomes

    # Shutdown ----------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Accept no more requests, and return when all pending ones are answered."""
        for part in self.parts():
            part.is_open = False
        while self.is_busy:
            await asyncio.sleep(0.005)
        await asyncio.get_running_loop().run_in_executor(None, self.release)

    def release(self) -> None:
        """Release the resources of the version; it computes nothing afterwards."""
        for part in self.parts():
            part._executor.release()


def filled(arrays: list[Any], more: int) -> Any:
    """Arrays joined, padded by copies of the first row."""
    extra = [np.broadcast_to(arrays[0][:1], (more, *arrays[0].shape[1:]))] if more else []
    return np.concatenate([*arrays, *extra])
