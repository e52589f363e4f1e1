"""Backup workers: a step uses the gradients of the workers that finish first.

Each worker computes its part in a thread that waits for it, with the weights at the
start of the step. When enough have finished, one push for exactly these changes the weights.
Results of the others are staged (``staging.py``) and never pushed. A late worker runs to its end:
its results cannot be mistaken for its next part, a hanging task is sent no more than one part, and
its time is measured like that of any other. Until then steps go on without it.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from eagerflow import tree
from eagerflow.cluster.data_parallel import (
    MAX_KEPT_GRAPHS,
    CapturedStep,
    DataParallel,
    arrays_of,
    joined,
    split_over,
)
from eagerflow.cluster.replication import Replicated, first_of
from eagerflow.cluster.row_access import looked_up
from eagerflow.cluster.schedule import Event, events_of, schedule_ended
from eagerflow.cluster.staging import StagedCompute, joint_push
from eagerflow.dispatch import user_frame
from eagerflow.errors import SessionError, TaskLostError
from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.handlers import raised_here
from eagerflow.variable import Variable, assign_together

__all__ = ["BackedStep", "BackupWorkers"]

_log = logging.getLogger("eagerflow.cluster")
MIN_TABLE_BYTES, MANY_TIMES = 1 << 20, 10  # thresholds of the warning about tables


class BackupWorkers:
    """The number of workers that may be late in a step, and past late ones.

    ``schedule`` lists the workers that must count, in the format of ``past`` of another training.
    """

    def __init__(self, workers: int, count: int, schedule: Iterable[Event] | None) -> None:
        self.count = count
        self.past: list[Event] = []
        self.dropped = [0] * workers
        self.counted = [0] * workers
        """The number of steps in which each worker has counted since the last merge."""
        self.graphs: list[Graph] = []
        self.threads = Threads()
        self._future = None if schedule is None else events_of(schedule, workers)

    def count_anew(self) -> None:
        """Restart counting: the workers' values are merged, or dropped."""
        self.counted = [0] * len(self.counted)

    def enough(self, active: Sequence[int]) -> int:
        """The number of workers to wait for, of those with examples."""
        return max(1, len(active) - self.count)

    def asked(self, active: Sequence[int]) -> Sequence[int]:
        """The workers that compute: all with examples, or those of the schedule."""
        if self._future is None:
            return active
        count = self.enough(active)
        events = list(islice(self._future, count))
        if len(events) < count:
            raise schedule_ended(self.past)
        workers = {event.worker for event in events if event.what == "push"}
        if len(workers) < count or not workers <= set(active):
            raise SessionError(
                "the schedule is that of another training",
                op="ParameterServer",
                argument="schedule",
                received=", ".join(f"{what} of {worker}" for what, worker in events),
                expected=f"pushes of {count} of the workers {[*active]}",
                hint="the same batches, workers and backup_workers as were recorded",
            )
        return sorted(workers)

    def note(self, workers: Iterable[int], active: Iterable[int]) -> None:
        """Record the workers that counted in a step, and those with examples."""
        late = set(active)
        for worker in workers:
            self.past.append(Event("push", worker))
            self.counted[worker] += 1
            late.discard(worker)
            if self._future is not None:
                self._future.popleft()
        for worker in late:
            self.dropped[worker] += 1


class Threads:
    """A thread for each busy worker, with one pending call: the latest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[int, Callable[[], None]] = {}
        self._serving: dict[int, object] = {}

    def give(self, worker: int, call: Callable[[], None]) -> None:
        """Set the next call of a worker; an earlier pending one is dropped."""
        with self._lock:
            self._next[worker] = call
            if worker in self._serving:
                return
            mark = self._serving[worker] = object()
            name = f"eagerflow worker {worker}"
            thread = threading.Thread(
                target=self._serve, args=(worker, mark), name=name, daemon=True
            )
            try:
                thread.start()
            except BaseException:  # Ctrl-C: the thread may have started, and finds no work then
                del self._serving[worker]
                raise

    def _serve(self, worker: int, mark: object) -> None:
        while True:
            with self._lock:
                if self._serving.get(worker) is not mark:
                    return
                call = self._next.pop(worker, None)
                if call is None:
                    del self._serving[worker]
                    return
            call()


class _Part:
    """A worker's part of a step, for a certain number of examples."""

    def __init__(self, strategy: DataParallel, graph: Graph, worker: int) -> None:
        graphs: list[Graph | None] = [None] * strategy.replicas
        graphs[worker] = graph
        assert strategy.homes is not None
        own = StagedCompute(graphs, strategy.devices, strategy.shadows, strategy.homes)
        compute = own.made().graph
        self.computed = own
        self.graphs = own.pull(), compute
        self.varies = [v in own.varying for v in graph.outputs]
        self.local = [cell.variable for cell in own.local]
        self._pull, self._compute = [strategy.partition_once(x) for x in self.graphs]

    def run(self, inputs: Sequence[Any]) -> Any:
        """The outputs; gradients and the worker's own values are staged."""
        try:
            self._pull.run([])
            return self._compute.run(inputs)
        except TaskLostError:
            self.renew()
            raise

    def renew(self) -> None:
        """Replace staged values, which may be lost, by local ones that need no recovery."""
        cells = [c for graph in self.graphs for c in graph.cells if c.assigned is not None]
        assign_together({c.variable: np.asarray(c.variable.current) for c in cells})


class Try:
    """One attempt at a step: collects the outputs of the workers that finish first."""

    def __init__(self, asked: int, enough: int) -> None:
        self._left, self._enough = asked, enough
        self._changed = threading.Condition()
        self._outputs: dict[int, Any] = {}
        self._error: Exception | None = None
        self._is_over = False

    def lead(self, worker: int, part: _Part, inputs: Sequence[Any]) -> None:
        """Run the part of a worker, if it may still count."""
        if self._is_over:
            return
        try:
            outputs = part.run(inputs)
        except raised_here(Exception) as error:
            self._failed(worker, error)
            return
        with self._changed:
            if self._error is None and len(self._outputs) < self._enough and not self._is_over:
                self._outputs[worker] = outputs
                self._changed.notify_all()

    def _failed(self, worker: int, error: Exception) -> None:
        """Treat a lost worker as a late one; any other error would recur, and ends the attempt."""
        _log.debug("worker %d has failed in a step", worker, exc_info=error)
        with self._changed:
            self._left -= 1
            if self._left < self._enough or not isinstance(error, TaskLostError):
                self._error = self._error or error
            self._changed.notify_all()

    def first(self) -> dict[int, Any]:
        """Wait until enough workers have finished, or cannot finish any more."""
        with self._changed:
            try:
                self._changed.wait_for(
                    lambda: self._error is not None or len(self._outputs) == self._enough
                )
            finally:
                self._is_over = True
        if self._error is not None and len(self._outputs) < self._enough:
            raise self._error
        return self._outputs


class _Prepared(NamedTuple):
    """A step for parts of some sizes: the workers' parts, and the push of those that count.

    ``local`` are the Variables that each worker changes for itself, ``joint`` is the push's graph.
    """

    graphs: list[Graph | None]
    parts: dict[int, _Part]
    local: list[Variable]
    joint: Replicated
    push: Any


class BackedStep:
    """A step that uses the workers that finish first; made by ``strategy.step``."""

    def __init__(
        self, strategy: DataParallel, f: Callable[..., Any], backups: BackupWorkers
    ) -> None:
        self._strategy, self._backups = strategy, backups
        self._captured = CapturedStep(strategy, f)
        self._kept: dict[tuple[int, ...], _Prepared] = {}
        self._warned: set[Variable] = set()

    def __call__(self, *args: Any) -> Any:
        """Make a step on a batch; returns its results on the examples that have counted."""
        own = self._strategy
        sizes, given, structure = split_over(args, own.replicas)
        graphs = [
            self._captured.graph(1, 1, False, tree.unflatten(structure, leaves)) if n else None
            for leaves, n in zip(given, sizes, strict=True)
        ]
        prepared = self._ready(graphs)
        inputs = {r: arrays_of(given[r]) for r in prepared.parts}
        outputs = own.again(lambda: self._step(prepared, inputs, sizes))
        counted = sorted(outputs)
        rows = [outputs[r] for r in counted]
        part = prepared.parts[counted[0]]
        found = [
            joined([row[i] for row in rows], [sizes[r] for r in counted]) if varies else rows[0][i]
            for i, varies in enumerate(part.varies)
        ]
        return part.computed.first.nest(found)

    def _step(
        self, prepared: _Prepared, inputs: Mapping[int, Any], sizes: Sequence[int]
    ) -> dict[int, Any]:
        """Attempt a step; returns the outputs of the workers that have counted."""
        shadows, backups, parts = self._strategy.shadows, self._backups, prepared.parts
        shadows.push(prepared.local, prepared.joint.mirrored)
        asked = backups.asked([*parts])
        this = Try(len(asked), backups.enough([*parts]))
        for r in asked:
            backups.threads.give(r, partial(this.lead, r, parts[r], inputs[r]))
        outputs = this.first()
        try:
            prepared.push.run(self._shares(parts, outputs, sizes))
        except TaskLostError:
            for part in parts.values():
                part.renew()
            raise
        shadows.note(prepared.local)
        shadows.note(prepared.joint.mirrored)
        backups.note(sorted(outputs), parts)
        return outputs

    def _shares(
        self, parts: Iterable[int], counted: Collection[int], sizes: Sequence[int]
    ) -> list[Any]:
        """The shares of the workers in the mean, zero for those that do not count."""
        total = sum(sizes[r] for r in counted)
        is_mean = self._strategy.loss == "mean"
        each = {r: sizes[r] / total if is_mean else 1.0 for r in counted}
        return [np.array(each.get(r, 0.0)) for r in parts]

    def _ready(self, graphs: list[Graph | None]) -> _Prepared:
        """The compiled step for these parts."""
        own = self._strategy
        key = tuple(map(id, graphs))
        found = self._kept.get(key)
        if found is None:
            own.merge()  # new shadows copy the current values of Variables
            while len(self._kept) >= MAX_KEPT_GRAPHS:
                self._forget(self._kept.pop(next(iter(self._kept))))
            found = self._kept[key] = self._made(graphs)
        return found

    def _made(self, graphs: list[Graph | None]) -> _Prepared:
        own = self._strategy
        self._warn_of_tables(first_of(graphs))
        parts = {r: _Part(own, graph, r) for r, graph in enumerate(graphs) if graph is not None}
        assert own.homes is not None
        computed = {r: part.computed for r, part in parts.items()}
        joint = joint_push(computed, own.devices, own.shadows, own.homes)
        own.remember(joint)
        local = dict.fromkeys(v for part in parts.values() for v in part.local)
        self._backups.graphs += [graph for part in parts.values() for graph in part.graphs]
        return _Prepared(graphs, parts, [*local], joint, own.partition_once(joint.graph))

    def _warn_of_tables(self, graph: Graph) -> None:
        """Warn, once for each, of tables that are sent whole for a few rows."""
        for cell, rows in looked_up(graph).items():
            whole = nbytes(cell.value)
            if whole < max(MIN_TABLE_BYTES, MANY_TIMES * rows) or cell.variable in self._warned:
                continue
            self._warned.add(cell.variable)
            words = (
                f"ParameterServer(backup_workers={self._backups.count}) sends {cell.name!r} whole, "
                f"to each worker and back in each step: {whole:,} bytes, of which it looks up "
                f"{rows:,}; without backup workers a table with a sparse gradient is not sent"
            )
            frame = user_frame(sys._getframe(1))
            place = frame.f_code.co_filename, frame.f_lineno
            warnings.warn_explicit(words, UserWarning, *place)

    def _forget(self, prepared: _Prepared) -> None:
        self._strategy.forget(prepared.joint)
        gone = {id(graph) for part in prepared.parts.values() for graph in part.graphs}
        graphs = self._backups.graphs
        graphs[:] = [graph for graph in graphs if id(graph) not in gone]
