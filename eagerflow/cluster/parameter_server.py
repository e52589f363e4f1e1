"""Parameter servers: servers keep the weights, and workers compute gradients for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from eagerflow import tree
from eagerflow.cluster.backup_workers import BackedStep, BackupWorkers
from eagerflow.cluster.data_parallel import (
    MIN_SHARD_BYTES,
    CapturedStep,
    DataParallel,
    arrays_of,
    devices_of,
)
from eagerflow.cluster.pushing import Parts, parts_of_step
from eagerflow.cluster.schedule import Event, events_of, in_turn, schedule_ended
from eagerflow.cluster.snapshots import Snapshot
from eagerflow.devices import Device, as_device
from eagerflow.errors import ArgumentError, SessionError, TaskLostError
from eagerflow.graph.graph import Graph
from eagerflow.masks import opened
from eagerflow.nn.arguments import is_count
from eagerflow.variable import Variable

__all__ = ["ParameterServer"]

PARTS = 3  # of a step: pull, compute and push
QUEUE = 2  # pending batches of a worker, before the caller has to wait


class ParameterServer(DataParallel):
    """Trains with the weights on servers, to which workers send their gradients.

    ``cluster`` has tasks of the jobs ``worker`` and ``ps``; or ``devices`` and ``servers`` name
    devices of this process. With ``mode="synchronous"`` each batch is split over the workers, and
    the servers add up their gradients, in order: the numbers are those of DataParallel. With
    ``"asynchronous"`` each batch goes to one worker, and its gradients change the weights on
    arrival; ``staleness`` is how many steps a worker may be ahead of the slowest busy one,
    None for no limit. ``min_shard_bytes`` is as for DataParallel: large tables are divided over
    the servers by rows. ``schedule`` lists Events, from ``strategy.schedule`` of another
    training: the same steps then run in the same order, and give the same bits.

    With ``backup_workers=k`` a synchronous step waits for all workers but k, and drops the
    gradients of late ones, with their counts: it is a step on the examples
    of the others. ``strategy.schedule`` has the workers that counted, ``strategy.dropped`` how
    often each was late. Source: Chen and others, "Revisiting distributed synchronous SGD", 2016.

    Steps of asynchronous training return None, and run in the background; ``merge``, which
    ``fit`` calls after each epoch, waits for them, and raises the first error of a worker. Changes
    by the program between two merges are visible after the second one. Values lost with a server
    are restored from the last checkpoint saved with the strategy, if there is one, with a
    warning; a lost worker's step is repeated. Source: Ho and others,
    "More effective distributed ML via a stale synchronous parallel parameter server", 2013.

    >>> ef.set_logical_devices("cpu", 2)
    >>> w, optimizer = ef.Variable(4.0), ef.nn.optimizers.SGD(0.25)
    >>> def step(x):
    ...     with ef.GradientTape() as tape:
    ...         loss = (x * w * w).mean()
    ...     optimizer.apply(tape.gradient(loss, [w]), [w])
    >>> strategy = ef.cluster.ParameterServer(
    ...     devices=["cpu:0"], servers=["cpu:1"], mode="asynchronous", staleness=0
    ... )
    >>> own = strategy.step(step)
    >>> own(ef.ones((2,))), own(ef.ones((2,))), strategy.merge()
    (None, None, None)
    >>> len(strategy.schedule)
    4
    """

    def __init__(
        self,
        cluster: Any = None,
        *,
        mode: str = "synchronous",
        staleness: int | None = None,
        backup_workers: int = 0,
        schedule: Iterable[Event] | None = None,
        devices: Sequence[Any] | None = None,
        servers: Sequence[Any] | None = None,
        loss: str = "mean",
        numerics: str = "fast",
        transfer: str | None = None,
        retries: int = 3,
        min_shard_bytes: int = MIN_SHARD_BYTES,
    ) -> None:
        _check_mode(mode, staleness)
        super().__init__(
            cluster,
            devices=devices,
            loss=loss,
            numerics=numerics,
            transfer=transfer,
            retries=retries,
            min_shard_bytes=min_shard_bytes,
        )
        _check_backups(backup_workers, self.replicas, mode, schedule is not None)
        self._backups = None
        if backup_workers:
            self._backups = BackupWorkers(self.replicas, backup_workers, schedule)
        own = devices_of(cluster, servers, "ps", "ParameterServer", "servers")
        self.devices += own
        self.homes = range(self.replicas, len(self.devices))
        self.mode, self.staleness = mode, staleness
        self._order = _Order(self.replicas, staleness, None if backup_workers else schedule)
        self._workers: list[_Worker] = []
        self._local: dict[Variable, None] = {}
        self._pulled: dict[Variable, None] = {}
        self._workers_own: dict[Variable, None] = {}
        self._graphs: list[Graph] = []
        self._is_fresh = True

    @property
    def schedule(self) -> tuple[Event, ...]:
        """The order of events so far: of asynchronous training, or of workers with backups."""
        return tuple((self._backups or self._order).past)

    @property
    def dropped(self) -> dict[str, int]:
        """The number of times each worker was too late to count, by its device."""
        counts = self._backups.dropped if self._backups else [0] * self.replicas
        return dict(zip(self.devices[: self.replicas], counts, strict=True))

    @property
    def graphs(self) -> list[Graph]:
        """As for DataParallel; steps that workers make for themselves are three each: pull,
        compute, push, with backup workers a push for each set of workers that counted together.
        """
        return super().graphs + (self._backups.graphs if self._backups else self._graphs)

    def step(self, f: Callable[..., Any]) -> Any:
        """A function that makes a step of the workers, from one that makes a step on a batch."""
        if self._backups is not None:
            return BackedStep(self, f, self._backups)
        return super().step(f) if self.mode == "synchronous" else _Step(self, f)

    def steps_made(self) -> Sequence[int] | None:
        """As for DataParallel: some workers may have been late more often than others."""
        counted = self._backups.counted if self._backups else []
        return counted if any(counted) else None

    def merge(self) -> None:
        """Wait for all steps, and merge the values into the users' Variables."""
        if self.mode == "synchronous":
            super().merge()
            if self._backups is not None:
                self._backups.count_anew()
            return
        try:
            self._end()
        finally:
            if self.cluster is not None:
                self.pull([*self._pulled, *self.shadows.all_of(self._local)])
            self.shadows.merge(self._local)
            self.tables.merge()
        self._order.raise_error()

    def _end(self) -> None:
        """Wait for all steps."""
        try:
            with self._order.ending():
                for worker in self._workers:
                    worker.wait()
        finally:
            self._is_fresh = True

    def submit(self, parts: _Planned, inputs: Sequence[Any], worker: int) -> None:
        """Queue a step of a worker; waits while its queue is full."""
        self._order.raise_error()
        if self._is_fresh:  # no work is active
            self._is_fresh = False
            self.shadows.push(self._local, self._pulled)
            self.tables.push()
        while len(self._workers) < self.replicas:
            self._workers.append(_Worker(len(self._workers), self._order, self))
        self._workers[worker].put(parts, inputs)

    def use(self, parts: Parts) -> None:
        """Include a step's graphs in ``merge`` and ``graphs``."""
        self._local.update(dict.fromkeys(parts.local))
        self._graphs += parts[:3]
        self._pulled.update((cell.variable, None) for cell in parts.push.cells)
        self._workers_own.update((cell.variable, None) for cell in parts.compute.cells)

    # Checkpoints and losses ------------------------------------------------------------------

    def changed_by_replicas(self) -> list[Variable]:
        """The Variables that replicas change separately."""
        return super().changed_by_replicas() if self.mode == "synchronous" else [*self._local]

    def snapshot(
        self, variables: Mapping[str, Variable], here: Collection[str], folder: str, prefix: str
    ) -> Snapshot:
        """The current merged values of Variables: of asynchronous steps between two pushes.

        Once they are a checkpoint, asynchronous training restores values lost by a server from it.
        """
        with self._order.changed:  # held by each pull and push
            made = super().snapshot(variables, here, folder, prefix)
            steps = sum(self._order.steps)
        made.saved = lambda path: self._restoring.note(path, variables, steps)
        return made

    def pull(self, variables: Sequence[Variable]) -> None:
        """Copy the newest values of Variables from the tasks, or replacements of lost ones."""
        try:
            super().pull(variables)
        except TaskLostError:
            if not self.restored():
                raise
            super().pull(variables)

    def is_replaceable(self, place: Device) -> bool:
        """As for DataParallel: of synchronous workers, not of servers.

        Others have no separate state that pushes do not change, or it is restored.
        """
        in_step = self.mode == "synchronous" and self._backups is None
        return in_step and str(place) in self.devices[: self.replicas]

    def restored(self) -> bool:
        """Whether asynchronous training can continue after a loss: all lost values are replaced.

        A training that repeats a schedule cannot, as its numbers would differ.
        """
        if self.cluster is None or self.mode == "synchronous" or self._order.repeats:
            return False
        with self._order.changed:
            servers = [v for v in self._pulled if v not in self._workers_own]
            steps = sum(self._order.steps)
            client = self.cluster.client
            return self._restoring.restore(client, servers, self._workers_own, steps)

    def losses(self, worker: int) -> int:
        """The number of times a worker has lost its separate state."""
        return self._restoring.losses[as_device(self.devices[worker]).task]

    def give_up(self) -> None:
        """Drop pending steps, as training continues from another state."""
        if self._backups is not None:
            self._backups.count_anew()
        if self.mode == "asynchronous":
            self._end()
            self._order.forget_error()
            if self.cluster is not None:
                self._restoring.renew(self.cluster.client, self._workers_own)


def _check_mode(mode: str, staleness: int | None) -> None:
    """Raise ArgumentError for invalid modes and bounds."""
    if mode not in ("synchronous", "asynchronous"):
        raise ArgumentError(
            f"{mode!r} is not a choice",
            op="ParameterServer",
            argument="mode",
            expected="'synchronous' or 'asynchronous'",
        )
    if staleness is not None and not (is_count(staleness) or staleness == 0):
        raise ArgumentError(
            f"{staleness!r} is not a number of steps",
            op="ParameterServer",
            argument="staleness",
            expected="an integer from 0, or None",
        )
    if staleness is not None and mode == "synchronous":
        raise ArgumentError(
            "no worker is ahead of another in step",
            op="ParameterServer",
            argument="staleness",
            received=str(staleness),
            hint="mode='asynchronous'",
        )


def _check_backups(count: int, workers: int, mode: str, repeats: bool) -> None:
    """Raise ArgumentError for an invalid number of backups, or an impossible repetition."""
    if repeats and mode == "synchronous" and count == 0:
        raise ArgumentError(
            "all workers run in a fixed order in each step: there is nothing to repeat",
            op="ParameterServer",
            argument="schedule",
            hint="mode='asynchronous', or backup_workers",
        )
    problem = None
    if not (is_count(count) or count == 0) or count >= workers:
        problem = f"{count!r} is not a number of backup workers among {workers}"
    elif count and mode != "synchronous":
        problem = "asynchronous workers do not wait for each other, and need no backups"
    if problem is not None:
        raise ArgumentError(
            problem,
            op="ParameterServer",
            argument="backup_workers",
            expected=f"an integer from 0 to {workers - 1}, with mode='synchronous'",
        )


class _Planned(NamedTuple):
    """The runners for the parts of a worker's step."""

    pull: Any
    compute: Any
    push: Any
    pulled_by: Sequence[int]


class _Order:
    """Decides when workers may pull and push: at once, within a bound, or by a schedule."""

    def __init__(
        self, workers: int, staleness: int | None, schedule: Iterable[Event] | None
    ) -> None:
        self.past: list[Event] = []
        self.changed = threading.Condition()
        self.steps = [0] * workers
        self.waiting = [0] * workers
        """Batches given to each worker, and not yet pushed."""
        self._staleness = staleness
        self._future = None if schedule is None else events_of(schedule, workers)
        if self._future is not None:
            in_turn(self._future, workers)
        self._error: BaseException | None = None
        self._is_ending = False

    @contextmanager
    def ending(self) -> Iterator[None]:
        """A block without new batches."""
        try:
            with self.changed:
                self._is_ending = True
                self.changed.notify_all()
            yield
        finally:
            self._is_ending = False

    def fail(self, error: BaseException) -> None:
        """Start nothing more; the error is re-raised in the training thread."""
        with self.changed:
            self._error = self._error or error
            self.changed.notify_all()

    def raise_error(self) -> None:
        """Raise the first error, once."""
        with self.changed:
            error, self._error = self._error, None
        if error is not None:
            raise error

    def forget_error(self) -> None:
        """Drop the error, which is unrelated to later work."""
        self._error = None

    @property
    def repeats(self) -> bool:
        """Whether a schedule decides the order."""
        return self._future is not None

    @property
    def waits_for_idle(self) -> bool:
        """Whether a schedule waits for an idle worker."""
        future = self._future
        return future is not None and len(future) > 0 and not self.waiting[future[0].worker]

    def idle_error(self) -> SessionError:
        """The error of a schedule that waits for a worker without further batches."""
        assert self._future
        return SessionError(
            f"the schedule waits for worker {self._future[0].worker}, which has nothing to do",
            op="ParameterServer",
            argument="schedule",
            received=f"{sum(self.steps)} batches, and no more until they are merged",
            hint="as many batches between two merges as were recorded",
        )

    def take_back(self, worker: int) -> None:
        """Undo the worker's last pull, as it pulls again."""
        with self.changed:
            own = [i for i, event in enumerate(self.past) if event.worker == worker]
            if own and self.past[own[-1]].what == "pull":
                del self.past[own[-1]]

    @property
    def has_failed(self) -> bool:
        """Whether a worker has failed."""
        return self._error is not None

    def moment(self, what: str, worker: int, run: Callable[[], Any]) -> bool:
        """Run exclusively when it is due; False if training has failed."""
        event = Event(what, worker)
        with self.changed:
            self.changed.wait_for(lambda: self.has_failed or self._is_due(event))
            if self.has_failed:
                return False
            run()
            self.past.append(event)
            if self._future is not None:
                self._future.popleft()
            if what == "push":
                self.steps[worker] += 1
            self.changed.notify_all()
        return True

    def _is_due(self, event: Event) -> bool:
        if self._future is not None:
            if not self._future:
                raise schedule_ended(self.past)
            is_due = self._future[0] == event
            if self._is_ending and self.waits_for_idle:
                raise self.idle_error()
            return is_due
        if event.what == "push" or self._staleness is None:
            return True
        busy = [n for n, left in zip(self.steps, self.waiting, strict=True) if left]
        return self.steps[event.worker] - min(busy) <= self._staleness


class _Worker:
    """A worker's thread, which runs its steps."""

    def __init__(self, number: int, order: _Order, strategy: ParameterServer) -> None:
        self._number, self._order, self._strategy = number, order, strategy
        self._tasks: deque[tuple[_Planned, Sequence[Any]]] = deque()
        self._thread: threading.Thread | None = None

    def put(self, parts: _Planned, inputs: Sequence[Any]) -> None:
        """Queue a step, when there is space."""
        order = self._order
        with order.changed:
            order.changed.wait_for(
                lambda: len(self._tasks) < QUEUE or order.has_failed or order.waits_for_idle
            )
            if order.has_failed:
                return
            if len(self._tasks) >= QUEUE:  # the next caller waits as well
                order.fail(order.idle_error())
                return
            self._tasks.append((parts, inputs))
            order.waiting[self._number] += 1
            order.changed.notify_all()
            if self._thread is None:  # it ends when it is idle
                name = f"eagerflow worker {self._number}"
                self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Return when all steps are made, or training has failed."""
        with self._order.changed:
            self._order.changed.wait_for(lambda: self._thread is None)

    def _serve(self) -> None:
        order = self._order
        while True:
            with order.changed:
                if not self._tasks or order.has_failed:
                    order.waiting[self._number] = 0
                    self._tasks.clear()
                    self._thread = None
                    order.changed.notify_all()
                    return
                parts, inputs = self._tasks.popleft()
                order.changed.notify_all()
            try:
                self._make(parts, inputs)
            except BaseException as error:
                order.fail(error)

    def _make(self, parts: _Planned, inputs: Sequence[Any]) -> None:
        """Make one step; parts lost with a task are repeated."""
        left, done = self._strategy.retries, 0
        known = self._strategy.losses(self._number)
        while done < PARTS:
            try:
                if not self._part(parts, inputs, done, known):
                    return
                done += 1
            except TaskLostError:
                if not left or not self._strategy.restored():
                    raise
                left -= 1
            losses = self._strategy.losses(self._number)
            if losses != known and done < PARTS:
                known, done = losses, 0
                self._order.take_back(self._number)

    def _part(self, parts: _Planned, inputs: Sequence[Any], number: int, losses: int) -> bool:
        """Pull, compute or push; False if training has failed."""
        if number == 0:
            asked = [inputs[i] for i in parts.pulled_by]
            return self._order.moment("pull", self._number, lambda: parts.pull.run(asked))
        if number == 1:
            parts.compute.run(inputs)
            return True
        return self._order.moment("push", self._number, lambda: self._push(parts, losses))

    def _push(self, parts: _Planned, losses: int) -> None:
        if self._strategy.losses(self._number) != losses:
            raise TaskLostError(f"the gradients of worker {self._number} were lost")
        parts.push.run([])
        self._order.waiting[self._number] -= 1


class _Step:
    """A step that workers make independently; made by ``strategy.step``."""

    def __init__(self, strategy: ParameterServer, f: Callable[..., Any]) -> None:
        self._strategy = strategy
        self._captured = CapturedStep(strategy, f)
        self._planned: dict[tuple[int, int], tuple[Graph, _Planned]] = {}
        self._next = 0

    def __call__(self, *args: Any) -> None:
        """Give a batch to the next worker."""
        graph = self._captured.graph(1, 1, True, args)
        worker = self._next
        self._next = (worker + 1) % self._strategy.replicas
        self._strategy.submit(
            self._made(graph, worker), arrays_of(tree.flatten(opened(args))[0]), worker
        )

    def _made(self, graph: Graph, worker: int) -> _Planned:
        found = self._planned.get((id(graph), worker))
        if found is None:
            own = self._strategy
            own.merge()  # new shadows copy the current values of Variables
            assert own.homes is not None
            (step,) = own.tables.arranged([graph], own.homes)
            assert step is not None
            tables = own.tables.places
            parts = parts_of_step(step, worker, own.devices, own.shadows, own.homes, tables)
            own.use(parts)
            pull, compute, push = [own.partition(x) for x in parts[:3]]
            planned = _Planned(pull, compute, push, parts.pulled_by)
            found = self._planned[id(graph), worker] = graph, planned
        return found[1]
