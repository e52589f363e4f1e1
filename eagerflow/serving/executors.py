"""Where the batches of a version are computed: in the server's process, or by its workers."""

from __future__ import annotations

import asyncio
import io
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from eagerflow.capture.saving.file import map_open, write_open
from eagerflow.graph.graph import Graph
from eagerflow.serving.model import ModelVersion
from eagerflow.serving.processes import WorkerSettings
from eagerflow.serving.workers import WORKER_COMMAND, Workers
from eagerflow.variable import Variable, put_together

__all__ = ["Executor", "InProcess", "InWorkers", "Pool"]

INLINE_SECONDS = 0.0005
"""Models that take less run in the server's own thread: a handover takes 0.1 ms."""

QUICK_SECONDS = 0.00005
"""Models that take less run when a request arrives: joining them with others takes as long."""

Work = Callable[[], list[Any]]
End = Callable[[list[Any] | BaseException], None]


class Executor(ABC):
    """Computes the batches of one version; belongs to the event loop, unless noted."""

    def __init__(self, version: ModelVersion) -> None:
        self.version = version

    @abstractmethod
    def prepare(self, sizes: Sequence[Mapping[str, int]]) -> None:
        """Try the version with these free sizes; called in any thread, may take long."""

    @abstractmethod
    def is_free(self, later: Callable[[], None]) -> bool:
        """Whether a batch can begin now; if not, ``later`` is called when one can."""

    @property
    def is_quick(self) -> bool:
        """Whether ``compute`` can be called now, and is faster than queueing."""
        return False

    @abstractmethod
    def begin(self, work: Work, count: int, end: End) -> None:
        """Call ``work``, which calls ``compute``, for ``count`` requests; then call ``end``."""

    @abstractmethod
    def compute(self, inputs: Sequence[Any], outputs: Sequence[int]) -> list[Any]:
        """The outputs at these positions, as NumPy arrays; called in any thread."""

    @abstractmethod
    def of_signature(self, name: str, version: ModelVersion) -> Executor:
        """The executor of a signature of the version, with the same weights."""

    @abstractmethod
    def release(self) -> None:
        """Release the resources of the version; called in any thread, may take long."""


def _begun(pool: ThreadPoolExecutor, work: Work, end: End) -> None:
    """Call ``work`` in a thread, then ``end`` in the event loop."""

    def tell(done: asyncio.Future[list[Any]]) -> None:
        error = done.exception()
        end(done.result() if error is None else error)

    asyncio.get_running_loop().run_in_executor(pool, work).add_done_callback(tell)


class InProcess(Executor):
    """Batches one at a time: short ones at once, others in a thread."""

    def __init__(self, version: ModelVersion) -> None:
        super().__init__(version)
        self._busy = False
        self._pool: ThreadPoolExecutor | None = None

    def prepare(self, sizes: Sequence[Mapping[str, int]]) -> None:
        """See ``Executor.prepare``."""
        self.version.try_out(sizes)

    def is_free(self, later: Callable[[], None]) -> bool:
        """See ``Executor.is_free``."""
        return not self._busy  # the end of the running batch leads back here

    @property
    def is_quick(self) -> bool:
        """See ``Executor.is_quick``."""
        return not self._busy and 0 < self.version.seconds < QUICK_SECONDS

    def begin(self, work: Work, count: int, end: End) -> None:
        """See ``Executor.begin``."""
        if self.version.seconds * count < INLINE_SECONDS:
            end(work())
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, f"eagerflow-{self.version.name}")
        self._busy = True

        def ended(found: list[Any] | BaseException) -> None:
            self._busy = False
            end(found)

        _begun(self._pool, work, ended)

    def compute(self, inputs: Sequence[Any], outputs: Sequence[int]) -> list[Any]:
        """See ``Executor.compute``."""
        return self.version.compute(inputs, outputs)

    def of_signature(self, name: str, version: ModelVersion) -> Executor:
        """See ``Executor.of_signature``."""
        return InProcess(version)

    def release(self) -> None:
        """See ``Executor.release``."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        self.version.release()


class Pool:
    """Worker processes shared by versions: each batch begins when a worker is free for it.

    ``command`` is the command line of a worker.
    """

    def __init__(self, settings: WorkerSettings, command: Sequence[str] = WORKER_COMMAND) -> None:
        self.workers = Workers(settings, command)
        self._free = settings.processes
        self._waiting: list[Callable[[], None]] = []
        self.is_ending = False
        self._threads = ThreadPoolExecutor(settings.processes, "eagerflow-batch")

    def __call__(self, version: ModelVersion) -> InWorkers:
        """The executor of a version."""
        return InWorkers(version, self)

    def is_free(self, later: Callable[[], None]) -> bool:
        """See ``Executor.is_free``."""
        if not self._free and later not in self._waiting:
            self._waiting.append(later)
        return self._free > 0

    def begin(self, work: Work, end: End) -> None:
        """See ``Executor.begin``."""
        self._free -= 1

        def ended(found: list[Any] | BaseException) -> None:
            self._free += 1
            waiting, self._waiting = self._waiting, []
            for later in waiting:
                later()
            end(found)

        _begun(self._threads, work, ended)

    def drop(self, key: int) -> None:
        """Let all workers drop a version, unless they are ending."""
        if not self.is_ending:
            self.workers.drop(key)

    async def close(self) -> None:
        """End the workers."""
        await asyncio.get_running_loop().run_in_executor(None, self.workers.close)
        self._threads.shutdown(wait=False)


class InWorkers(Executor):
    """Batches in the workers of a pool, one for each worker at a time.

    ``signature`` is the signature that is computed, of the version that ``whole`` has loaded.
    """

    def __init__(
        self,
        version: ModelVersion,
        pool: Pool,
        whole: InWorkers | None = None,
        signature: str | None = None,
    ) -> None:
        super().__init__(version)
        self._pool = pool
        self._whole = whole
        self._signature = signature
        self._key: int | None = None

    def of_signature(self, name: str, version: ModelVersion) -> Executor:
        """See ``Executor.of_signature``; the version itself must be prepared first."""
        return InWorkers(version, self._pool, self, name)

    def prepare(self, sizes: Sequence[Mapping[str, int]]) -> None:
        """Load the version into the workers, all of which map one file."""
        version, workers = self.version, self._pool.workers
        if self._whole is None:
            file = _with_weights(version.graph)
        else:
            assert self._whole._key is not None, "prepare has not been called"
            file = workers.file(self._whole._key)
        try:
            told = version.name, version.number, self._signature, version.numerics, sizes
            self._key, version.seconds = workers.load(file, *told)
        except BaseException:
            file.close()
            raise

    def is_free(self, later: Callable[[], None]) -> bool:
        """See ``Executor.is_free``."""
        return self._pool.is_free(later)

    def begin(self, work: Work, count: int, end: End) -> None:
        """See ``Executor.begin``."""
        self._pool.begin(work, end)

    def compute(self, inputs: Sequence[Any], outputs: Sequence[int]) -> list[Any]:
        """See ``Executor.compute``."""
        assert self._key is not None, "prepare has not been called"
        return self._pool.workers.compute(self._key, [np.asarray(x) for x in inputs], outputs)

    def release(self) -> None:
        """See ``Executor.release``."""
        if self._key is not None:
            self._pool.drop(self._key)
            self._key = None


def _with_weights(graph: Graph) -> io.FileIO:
    """An anonymous file with a copy of the graph; the graph's weights are mapped from it
    afterwards.

    The original file is not mapped: overwriting or truncating it would change the weights.
    """
    file = _nameless()
    try:
        write_open(graph, file)
        mapped = map_open(file)
        put_together(_variables(graph), [v.value for v in _variables(mapped)])
    except BaseException:
        file.close()
        raise
    return file


def _variables(graph: Graph) -> list[Variable]:
    return [cell.variable for cell in graph.cells]


def _nameless() -> io.FileIO:
    """A new anonymous file, in memory if the system supports it."""
    if hasattr(os, "memfd_create"):
        return io.FileIO(os.memfd_create("eagerflow-weights"), "r+")
    return tempfile.TemporaryFile(buffering=0)  # type: ignore[return-value]
