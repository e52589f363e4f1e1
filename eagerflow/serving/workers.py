"""Workers that all have the same versions loaded: monitored, and replaced when one ends or hangs.

The server holds connections, queues and pending requests; a worker holds nothing but graphs that
can be loaded again. So a killed worker loses nothing: its batch is computed again by another
worker, as inference has no side effects.
"""

from __future__ import annotations

import io
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from eagerflow.runtime.threads import thread_count
from eagerflow.serving.errors import CrashedError, UnavailableError
from eagerflow.serving.processes import Loaded, Worker, WorkerSettings

__all__ = ["WORKER_COMMAND", "Workers"]

_log = logging.getLogger("eagerflow.serving")
WORKER_COMMAND = (sys.executable, "-P", "-m", "eagerflow.serving.worker")


class Workers:
    """A number of workers that all have the same versions loaded.

    ``command`` starts one; see ``Worker``. UnavailableError while none is running.
    """

    START_SECONDS = 120.0  # until a worker is ready
    RETRY = 0.2, 30.0
    """Seconds before a worker that failed twice is started again: at first, and at most."""

    def __init__(
        self,
        settings: WorkerSettings,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        self.settings = settings.checked()
        self._command = command
        self._threads = settings.threads or max(1, thread_count() // settings.processes)
        self._versions: dict[int, Loaded] = {}
        self._number = itertools.count(1).__next__
        self._changed = threading.Condition()
        self._there: set[Worker] = set()
        self._idle: list[Worker] = []
        self._starting = settings.total
        self._problem = ""
        self._closing = threading.Event()
        self.ended = 0
        """The number of workers that have ended unexpectedly."""
        self._keepers = [
            threading.Thread(target=self._keep, name=f"eagerflow-worker-{i}", daemon=True)
            for i in range(settings.total)
        ]
        for keeper in self._keepers:
            keeper.start()

    @property
    def pids(self) -> list[int]:
        """The processes that are running and have all versions loaded."""
        with self._changed:
            return sorted(worker.pid for worker in self._there)

    # Supervision --------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Restart a worker whenever it ends."""
        wait, (first, longest) = 0.0, self.RETRY  # a first crash may be accidental
        while not self._closing.is_set():
            worker = None
            try:
                worker = Worker(self._command, self._threads, self.settings)
                self._enter(worker)
            except Exception as error:
                self._fail(error, wait)
                if worker is not None:
                    worker.end()
                self._closing.wait(wait)
                wait = min(wait * 2 or first, longest)
                self._count_starting(+1)
            else:
                wait = 0.0
                worker.process.wait()
                self._leave(worker)

    def _count_starting(self, change: int) -> None:
        with self._changed:
            self._starting += change
            self._changed.notify_all()

    def _enter(self, worker: Worker) -> None:
        """Let a worker take batches once it has loaded all versions, and no others."""
        while True:
            with self._changed:
                if self._closing.is_set():
                    raise EOFError("the server ends")
                wanted = dict(self._versions)
                if worker.keys == wanted.keys():
                    self._count_starting(-1)
                    self._there.add(worker)
                    self._idle.append(worker)
                    return
            for key in worker.keys - wanted.keys():
                worker.drop(key)
            for key in wanted.keys() - worker.keys:
                worker.load(wanted[key])

    def _fail(self, error: Exception, wait: float) -> None:
        self._problem = str(error)
        self._count_starting(-1)
        if not self._closing.is_set():
            _log.error("a worker could not be started, next try in %g s: %s", wait, error)

    def _leave(self, worker: Worker) -> None:
        with self._changed:
            self._there.discard(worker)
            if worker in self._idle:
                self._idle.remove(worker)
            self._count_starting(+1)
        if not self._closing.is_set():
            self.ended += 1
            code = worker.process.returncode
            how = f"by signal {-code}" if code < 0 else f"with {code}"
            _log.warning("worker %s ended %s; another is started", worker.pid, how)
        worker.end()

    # Versions -----------------------------------------------------------------------------------

    def load(
        self,
        file: io.FileIO,
        name: str,
        number: int,
        signature: str | None,
        numerics: str,
        sizes: Sequence[Mapping[str, int]],
    ) -> tuple[int, float]:
        """Load and try a version in all workers: its key, and its seconds per row.

        The file is closed when the version is dropped. Raises a worker's error, and CrashedError
        where the version crashes workers.
        """
        version = Loaded(self._number(), file, name, number, signature, numerics, sizes)
        seconds = 0.0
        lost = 0
        try:
            with ThreadPoolExecutor(self.settings.total) as pool:
                while missing := self._without(version):
                    for found in pool.map(partial(self._tried, version), missing):
                        lost += found is None
                        seconds = found or seconds
                    if lost >= self.settings.attempts:
                        raise CrashedError(
                            "the version ended the processes that tried it",
                            op=name,
                            received=f"{lost} of them",
                        )
        except BaseException:
            self.drop(version.key)
            raise
        return version.key, seconds

    def file(self, key: int) -> io.FileIO:
        """The file of a version, opened once more."""
        return io.FileIO(os.dup(self._versions[key].file.fileno()))

    def _tried(self, version: Loaded, worker: Worker) -> float | None:
        """The seconds per row in a worker that has loaded a version; None if the worker ended."""
        try:
            return worker.load(version)
        except EOFError:
            with self._changed:  # it is ending, and a replacement will start
                self._changed.wait_for(lambda: worker not in self._there, self.START_SECONDS)
            return None

    def _without(self, version: Loaded) -> list[Worker]:
        """The workers that lack a version; if none does, later ones will load it too."""
        with self._changed:
            settled = self._changed.wait_for(
                lambda: self._there or not self._starting or self._closing.is_set(),
                self.START_SECONDS,
            )
            if not self._there:
                raise UnavailableError(
                    "no worker has started",
                    op="serve",
                    argument="workers",
                    received=(self._problem if settled else "they take too long") or None,
                )
            missing = [worker for worker in self._there if version.key not in worker.keys]
            if not missing:
                self._versions[version.key] = version
            return missing

    def drop(self, key: int) -> None:
        """Drop a version in all workers; returns when they have done so."""
        with self._changed:
            version = self._versions.pop(key, None)
            having = [worker for worker in self._there if key in worker.keys]
        for worker in having:
            with suppress(EOFError):
                worker.drop(key)
        if version is not None:
            version.file.close()

    # Computing ----------------------------------------------------------------------------------

    def compute(self, key: int, inputs: Sequence[Any], outputs: Sequence[int]) -> list[Any]:
        """The outputs at these positions, by the next idle worker.

        A worker that ends meanwhile counts as an attempt; CrashedError after the last attempt.
        """
        for _ in range(self.settings.attempts):
            worker = self._taken()
            try:
                found = worker.compute(key, inputs, outputs)
            except EOFError:
                worker.kill()
                continue
            except Exception:
                self._give_back(worker)
                raise
            self._give_back(worker)
            return found
        raise CrashedError(
            "the process that computed the request ended, each time it was begun",
            received=f"{self.settings.attempts} times",
        )

    def _taken(self) -> Worker:
        """Wait for an idle worker; UnavailableError if none is running for long."""
        end = time.monotonic() + self.START_SECONDS
        with self._changed:
            while True:
                self._changed.wait_for(
                    lambda: self._idle or self._closing.is_set(), end - time.monotonic()
                )
                if not self._idle or self._closing.is_set():
                    raise UnavailableError("no worker is there", received=self._problem or None)
                worker = self._idle.pop()
                if worker.is_there:
                    return worker

    def _give_back(self, worker: Worker) -> None:
        with self._changed:
            if worker in self._there:
                self._idle.append(worker)
                self._changed.notify()

    def close(self) -> None:
        """End all workers."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
            there = list(self._there)
        for worker in there:
            worker.end(5.0)
        for keeper in self._keepers:
            keeper.join()
        for version in self._versions.values():
            version.file.close()
        self._versions.clear()
