"""Shadows: versions that recompute requests that another version has served, and compare."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from eagerflow.dtypes import is_inexact
from eagerflow.serving.batching import Batcher
from eagerflow.serving.errors import BusyError, UnavailableError
from eagerflow.serving.metrics import Metrics
from eagerflow.serving.model import Row
from eagerflow.serving.traffic import Shadowing

__all__ = ["Shadow", "Shadowed", "difference"]

OUTCOMES = ("equal", "close", "different", "failed", "dropped")
MAX_PENDING = 64  # requests that wait for the shadow; more are dropped
MAX_PENDING_BYTES = 64 << 20
MAX_SAMPLES = 20
PAUSE = 0.001  # seconds between two checks whether the model is idle
LOWEST = sys.maxsize


class Difference(NamedTuple):
    """The difference of two arrays: one of ``OUTCOMES``, and the largest absolute difference."""

    outcome: str
    largest: float


def difference(found: Any, wanted: Any, units: float = 0.0, tolerance: float = 0.0) -> Difference:
    """Compare an array with the expected one.

    Equal arrays have the same numbers, dtype and shape; in close ones each number is within
    ``units`` in the last place of the larger, or within ``tolerance``. NaN equals NaN.

    >>> from eagerflow.serving.shadow import difference
    >>> x = np.asarray([1.0, 2.0], "float32")
    >>> difference(np.nextafter(x, 9), x, units=1)
    Difference(outcome='close', largest=2.384185791015625e-07)
    """
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return Difference("different", float("inf"))
    if not is_inexact(wanted.dtype):
        same = np.array_equal(found, wanted)
        apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max(initial=0.0)
        return Difference("equal" if same else "different", float(apart))
    if found.dtype.kind == "c":
        parts = [(found.real, wanted.real), (found.imag, wanted.imag)]
        both = [difference(a, b, units, tolerance) for a, b in parts]
        return max(both, key=lambda d: (OUTCOMES.index(d.outcome), d.largest))
    wide = found.astype(np.float64), wanted.astype(np.float64)
    off = ~((wide[0] == wide[1]) | (np.isnan(wide[0]) & np.isnan(wide[1])))
    if not off.any():
        return Difference("equal", 0.0)
    a, b = wide[0][off], wide[1][off]
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        larger = np.where(np.abs(a) > np.abs(b), found[off], wanted[off])
        last = np.abs(np.spacing(larger)).astype(np.float64)
        close = (apart <= units * last) | (apart <= tolerance)
    largest = float("inf") if np.isnan(apart).any() else float(apart.max())
    return Difference("close" if close.all() else "different", largest)


class _Answered(NamedTuple):
    """A served request, with its outputs."""

    signature: str | None
    inputs: dict[str, Any]
    outputs: Sequence[str] | None
    found: Mapping[str, Any]
    size: int


class Shadow:
    """A version of a model that is tried with requests that other versions have served.

    It computes while the model is idle, in the order of arrival, and drops requests while its queue
    is full. ``counts`` has the number of results for each of ``OUTCOMES``, ``largest`` the largest
    difference, ``samples`` the latest differing requests: the inputs' hashes, and the largest
    difference of each output that is not close, or the error.
    """

    def __init__(
        self, name: str, ready: Mapping[int, Batcher], settings: Shadowing, metrics: Metrics | None
    ) -> None:
        self.settings = settings
        self.counts = Counter(dict.fromkeys(OUTCOMES, 0))
        self.largest = 0.0
        self.samples: deque[dict[str, Any]] = deque(maxlen=MAX_SAMPLES)
        self._ready = ready
        self._metrics = metrics
        self._labels = name, str(settings.version)
        self._owed = 0.0
        self._pending: deque[_Answered] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._is_open = True

    def offer(
        self,
        signature: str | None,
        inputs: dict[str, Any],
        outputs: Sequence[str] | None,
        found: Mapping[str, Any],
    ) -> None:
        """Take a served request, if it falls into the share; returns at once."""
        self._owed += self.settings.share
        if self._owed < 1.0 or not self._is_open:
            return
        self._owed -= 1.0
        size = sum(x.nbytes for x in [*inputs.values(), *found.values()])
        if len(self._pending) >= MAX_PENDING or self._bytes + size > MAX_PENDING_BYTES:
            self._count("dropped")
            return
        self._pending.append(_Answered(signature, inputs, outputs, found, size))
        self._bytes += size
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def close(self) -> None:
        """Take no more requests, and drop pending ones."""
        self._is_open = False
        self._pending.clear()

    async def _work(self) -> None:
        """Compute pending requests while the model is idle."""
        try:
            await asyncio.sleep(PAUSE)  # so that the response is sent first
            while self._pending:
                if any(batcher.is_busy for batcher in list(self._ready.values())):
                    await asyncio.sleep(PAUSE)
                    continue
                answered = self._pending.popleft()
                self._bytes -= answered.size
                await self._try(answered)
        finally:
            self._task = None

    async def _try(self, answered: _Answered) -> None:
        batcher = self._ready.get(self.settings.version)
        if batcher is None:
            self._count("dropped")
            return
        try:
            part = batcher.by_signature(answered.signature)
            found = await part.run(answered.inputs, answered.outputs, priority=LOWEST)
        except (BusyError, UnavailableError):
            self._count("dropped")
        except Exception as error:
            told = f"{type(error).__name__}: {str(error)[:500]}"
            self._sample(answered, error=told)
            self._count("failed")
        else:
            # In a thread, since arrays may be large.
            apart = await asyncio.to_thread(self._differences, found, answered.found)
            off = {name: d.largest for name, d in apart.items() if d.outcome == "different"}
            if off:
                self._sample(answered, outputs={name: _number(x) for name, x in off.items()})
            self.largest = max([self.largest, *(d.largest for d in apart.values())])
            words = [d.outcome for d in apart.values()]
            self._count(max(words, key=OUTCOMES.index, default="equal"))

    def _differences(
        self, found: Mapping[str, Any], wanted: Mapping[str, Any]
    ) -> dict[str, Difference]:
        """The difference of each output; an output that only one side has is different."""
        limits = self.settings.units, self.settings.tolerance
        both = found.keys() & wanted.keys()
        apart = dict.fromkeys(found.keys() | wanted.keys(), Difference("different", float("inf")))
        return apart | {name: difference(found[name], wanted[name], *limits) for name in both}

    def _sample(self, answered: _Answered, **what: Any) -> None:
        """Keep a sample, identified by prefixes of the inputs' SHA-256."""
        hashes = {name: sha256(x.tobytes()).hexdigest()[:16] for name, x in answered.inputs.items()}
        self.samples.append({"inputs": hashes} | what)

    def _count(self, outcome: str) -> None:
        self.counts[outcome] += 1
        if self._metrics is not None:
            self._metrics.shadowed(*self._labels, outcome, self.largest)

    def told(self) -> dict[str, Any]:
        """The findings, as JSON."""
        return {
            "answers": dict(self.counts),
            "largest_difference": _number(self.largest),
            "samples": list(self.samples),
        }


def _number(value: float) -> float | str:
    """A number for JSON, which cannot represent infinity."""
    return value if value < float("inf") else "inf"


class Shadowed:
    """A serving version that offers its results to a shadow."""

    def __init__(self, batcher: Batcher, shadow: Shadow, signature: str | None = None) -> None:
        self.version = batcher.version
        self._batcher = batcher
        self._shadow = shadow
        self._signature = signature

    def by_signature(self, name: Any = None) -> Shadowed:
        """As for ``Batcher.by_signature``."""
        return Shadowed(self._batcher.by_signature(name), self._shadow, name)

    def check_room(self) -> None:
        """As for ``Batcher.check_room``."""
        self._batcher.check_room()

    async def run(
        self, given: Row, outputs: Sequence[str] | None = None, **how: Any
    ) -> dict[str, Any]:
        """As for ``Batcher.run``."""
        inputs = self.version.named(given)
        found = await self._batcher.run(inputs, outputs, **how)
        self._shadow.offer(self._signature, inputs, outputs, found)
        return found
