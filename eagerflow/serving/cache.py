"""A response cache: equal requests to one version are computed once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from eagerflow.errors import ArgumentError
from eagerflow.serving.batching import Batcher
from eagerflow.serving.errors import BusyError, LateError
from eagerflow.serving.metrics import Metrics
from eagerflow.serving.model import Row
from eagerflow.serving.shadow import Shadowed

__all__ = ["Cache", "Cached"]

Key = tuple[int, bytes]
ENTRY_BYTES = 500  # approximate bytes of an entry beside its arrays


class Cache:
    """The most recently used responses of a model, as many as fit into ``max_bytes``.

    A response belongs to one loaded version, one signature, a choice of outputs and the exact bytes
    of the inputs. Equal requests that arrive during the computation wait for it. Errors are not
    cached.
    """

    def __init__(self, name: str, max_bytes: int, metrics: Metrics | None = None) -> None:
        if type(max_bytes) is not int or max_bytes < 1:
            raise ArgumentError(
                f"{max_bytes!r} is not the size of a cache",
                op="serve",
                argument="cache",
                expected="bytes, at least 1",
            )
        self.max_bytes = max_bytes
        self.bytes = 0
        self._name = name
        self._metrics = metrics
        self._kept: OrderedDict[Key, dict[str, Any]] = OrderedDict()
        self._running: dict[Key, asyncio.Task[dict[str, Any]]] = {}

    async def run(
        self,
        answering: Batcher | Shadowed,
        inputs: Row,
        outputs: Sequence[str] | None,
        how: dict[str, Any],
    ) -> dict[str, Any]:
        """The outputs for these inputs: cached, pending, or computed by the batcher."""
        key = _key(answering, inputs, outputs)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            self._count("hit")
            return found
        task = self._running.get(key)
        if task is not None:
            self._count("joined")
            try:
                return await asyncio.shield(task)
            except (BusyError, LateError):  # of the other request: this one has its own deadline
                return await answering.run(inputs, outputs, **how)
        self._count("miss")
        # A task of its own: others may wait for it after the first client has disconnected.
        task = asyncio.get_running_loop().create_task(answering.run(inputs, outputs, **how))
        self._running[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)

    def _ended(self, key: Key, done: asyncio.Task[dict[str, Any]]) -> None:
        del self._running[key]
        if done.cancelled() or done.exception() is not None:
            return
        # Copies, since the arrays may be views of those of a batch.
        found = {name: np.array(array) for name, array in done.result().items()}
        size = _size(found)
        if size > self.max_bytes:
            return
        self._kept[key] = found
        self.bytes += size
        while self.bytes > self.max_bytes:
            _, gone = self._kept.popitem(last=False)
            self.bytes -= _size(gone)

    def _count(self, outcome: str) -> None:
        if self._metrics is not None:
            self._metrics.cached.labels(self._name, outcome).inc()


def _size(found: dict[str, Any]) -> int:
    return ENTRY_BYTES + sum(array.nbytes for array in found.values())


def _key(answering: Batcher | Shadowed, inputs: Row, outputs: Sequence[str] | None) -> Key:
    """The key of a cache entry; ``serial`` distinguishes versions and signatures."""
    digest = blake2b(repr(None if outputs is None else list(outputs)).encode(), digest_size=32)
    for name, array in inputs.items():
        digest.update(repr((name, array.dtype.name, array.shape)).encode())
        digest.update(array.tobytes())
    return answering.version.serial, digest.digest()


class Cached:
    """A batcher behind a cache."""

    def __init__(self, answering: Batcher | Shadowed, cache: Cache) -> None:
        self.version = answering.version
        self._answering = answering
        self._cache = cache

    def by_signature(self, name: Any = None) -> Cached:
        """As for ``Batcher.by_signature``."""
        return Cached(self._answering.by_signature(name), self._cache)

    def check_room(self) -> None:
        """Never raises: a cached response needs no place in the queue."""

    async def run(
        self, given: Row, outputs: Sequence[str] | None = None, **how: Any
    ) -> dict[str, Any]:
        """As for ``Batcher.run``."""
        self.version.signature.outputs_of(outputs)
        return await self._cache.run(self._answering, self.version.named(given), outputs, how)
