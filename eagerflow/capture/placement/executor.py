"""The executor: one thread and one ready queue for each device, and dependency counts.

A program is a list of tasks: pieces of a graph without waits in between, and transfers.
A task is put into its device's queue when the last of its predecessors has ended, or has
published the needed value, so no thread ever waits for another device, and nothing can
deadlock. Among ready tasks, those of earlier runs come first, then those with the most
remaining work after them.

A logical CPU device is a share of the machine's cores. If there are several, pieces run
side by side with their own share of threads and BLAS at one thread. The bits of products depend
on the number of BLAS threads; so pieces that must match eager calls bit for bit run
``alone``: no other piece of any program runs meanwhile, and they use all cores.
"""

from __future__ import annotations

import heapq
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from queue import SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple

from eagerflow.devices import Device, device
from eagerflow.guard import ScopeGuard
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.runtime import blas, threads

ALONE, SHARED, FREE = "alone", "shared", "free"
"""Modes of core usage: all of them, a device's share, or any."""


@dataclass(eq=False, slots=True)
class Task:
    """A unit of work of a device: computes the arrays of its outputs from those of its inputs."""

    label: str
    device: Device
    call: Callable[[Sequence[Any]], Sequence[Any]]
    inputs: tuple[Hashable, ...]
    outputs: tuple[Hashable, ...]
    mode: str = SHARED
    priority: float = 0.0
    """Seconds of work from its start to the end of the run; larger values run earlier."""
    transfer: bool = False
    nodes: tuple[str, ...] = ()
    """Names of the nodes that it computes."""
    quick: bool = False
    """Whether it is shorter than a switch to its device's thread: any thread may run it."""
    published: tuple[Hashable, ...] = ()
    """Values passed on before the end of the task: its call then gets, as first argument, a
    function to call with the index of such a value and its array."""


class Event(NamedTuple):
    """The time of a task's run, in seconds on the clock of ``time.perf_counter``."""

    task: int
    begin: float
    end: float


# Cores -------------------------------------------------------------------------------------------


def share_of(place: Device) -> int:
    """The number of cores of a device: all, or the share of a logical one.

    >>> share_of(ef.devices("cpu")[0]) >= 1
    True
    """
    if not place.backend.host:
        return threads.thread_count()
    return max(1, threads.thread_count() // max(1, place.sharers))


def cores_of(place: Device) -> set[int]:
    """The cores of a logical device: its share of those that the process may use.

    All of them if there is only one device, if the system does not report them, and for a task of
    a cluster, as its index among the tasks of its machine is unknown.
    """
    if not place.backend.host or place.task or not hasattr(os, "sched_getaffinity"):
        return set()
    cores = sorted(os.sched_getaffinity(os.getpid()))  # a worker is limited to its own cores
    share = share_of(place)
    own = cores[place.index * share : (place.index + 1) * share]
    return set(own if place.sharers > 1 and len(own) == share else cores)


def mode_of(place: Device) -> str:
    """The mode of pieces on a device if bits do not matter."""
    return SHARED if place.backend.host and place.sharers > 1 else FREE


class _SharedLock:
    """A shared or exclusive lock that gives priority to new shared holders."""

    def __init__(self) -> None:
        self._change = threading.Condition(threading.Lock())
        self._holders = 0
        self._alone = False
        self._waiting_alone = 0

    @property
    def is_exclusive(self) -> bool:
        """Whether a thread holds the lock exclusively, or waits to."""
        return self._alone or self._waiting_alone > 0

    @contextmanager
    def held(self, alone: bool) -> Iterator[None]:
        """Hold the lock as the only one, or together with others."""
        with self._change:
            self._waiting_alone += alone
            try:
                self._change.wait_for(
                    lambda: not (self._alone or (self._holders if alone else self._waiting_alone))
                )
            finally:
                self._waiting_alone -= alone
            self._alone = alone
            self._holders += 1
        try:
            yield
        finally:
            with self._change:
                self._alone = False
                self._holders -= 1
                if not self._holders:
                    self._change.notify_all()


_cores = _SharedLock()


def run_at(mode: str, share: int, call: Callable[..., Any], *args: Any) -> Any:
    """``call(*args)`` with the cores of a mode and a share."""
    if mode == FREE:
        return call(*args)
    alone = mode == ALONE
    # Kernels called by this thread use this many cores, and BLAS one.
    own = threads.Alone() if share == 1 else blas.single_threaded()
    with _cores.held(alone), nullcontext() if alone else own:
        return call(*args)


# Workers -----------------------------------------------------------------------------------------


class _Worker:
    """The thread of a device, or of the transfers to it: runs ready tasks by priority."""

    def __init__(self, name: str, place: Device) -> None:
        self.place = place
        self._inbox: SimpleQueue[Any] = SimpleQueue()  # lock-free, for signal handlers
        self._count = count()
        self._closed = False
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self.thread.start()

    def put(self, run: Any, number: int, priority: float) -> bool:
        """Add a ready task; False if the thread is about to end, and may not run it."""
        if not self._closed:
            self._inbox.put((run.order, -priority, next(self._count), run, number))
        return not self._closed

    def _serve(self) -> None:
        if cores := cores_of(self.place):
            threads.bind(0, cores)  # the system may leave two threads on one core for milliseconds
        heap: list[tuple[int, float, int, Any, int]] = []
        with device(self.place):
            while heap or not self._closed or not self._inbox.empty():
                while not heap or not self._inbox.empty():
                    entry = self._inbox.get()
                    if entry is None:
                        break
                    heapq.heappush(heap, entry)
                    del entry
                if heap:
                    run, number = heapq.heappop(heap)[3:]
                    run.do(number)
                    del run  # release its arrays

    def stop(self) -> None:
        """End the thread once its queue is empty."""
        self._closed = True
        self._inbox.put(None)


_workers: dict[tuple[Device, bool], _Worker] = {}
_starting = reentrant_lock()
_orders = count()


def worker_of(place: Device, transfer: bool) -> _Worker:
    """The thread of a device, for its computations or for its transfers."""
    key = place, transfer
    found = _workers.get(key)
    if found is None:
        with Locked(_starting):
            found = _workers.get(key)
            if found is None:
                name = f"eagerflow {place}{' transfers' if transfer else ''}"
                found = _workers[key] = _Worker(name, place)
    return found


def shutdown() -> None:
    """End the threads of all devices when their queues are empty; later runs start new ones."""
    with Locked(_starting):
        found = list(_workers.values())
        _workers.clear()
    for worker in found:
        worker.stop()
    for worker in found:
        worker.thread.join()


def _after_fork() -> None:
    # Only the forking thread lives on in the child.
    global _cores
    _cores = _SharedLock()
    _workers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# Programs and runs -------------------------------------------------------------------------------


class Program:
    """A set of tasks with dependencies by the values that they read and make.

    ``entries`` are the values passed in, ``finals`` the values requested; a value is
    any key shared by the tasks. ``arrivals`` are values supplied externally during a run, each at
    its own time. Several threads may run a program at once.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        entries: Sequence[Hashable],
        finals: Sequence[Hashable],
        arrivals: Sequence[Hashable] = (),
    ) -> None:
        self.tasks = tuple(tasks)
        self.entries = tuple(entries)
        self.finals = tuple(finals)
        self.arrivals = tuple(arrivals)
        self.makers = {x: number for number, task in enumerate(tasks) for x in task.outputs}
        others = [*arrivals, *(x for task in tasks for x in task.published)]
        self.makers |= {x: number for number, x in enumerate(others, len(tasks))}
        self.follows: list[list[int]] = [[] for _ in (*tasks, *others)]
        self.waits: list[int] = []
        for number, task in enumerate(tasks):
            after = {self.makers[x] for x in task.inputs if x in self.makers}
            self.waits.append(len(after))
            for before in after:
                self.follows[before].append(number)
        self.first = [number for number, waits in enumerate(self.waits) if not waits]
        self.readers = dict.fromkeys(self.makers, 0)
        self.readers.update(Counter([*(x for task in tasks for x in task.inputs), *self.finals]))
        self.shares = {task.device: share_of(task.device) for task in tasks}

    def run(self, arrays: Sequence[Any]) -> tuple[list[Any], list[Event]]:
        """The arrays of the finals from those of the entries, and the time of each task.

        The first error of a task is raised once all started tasks have ended; no further tasks
        are started.
        """
        if len(self.tasks) == 1 and self.tasks[0].mode == FREE:
            return self._alone(arrays)
        with Run(self, arrays) as one:
            pass
        if one.error is not None:
            try:
                raise one.error
            finally:
                one.error = None  # its traceback refers to the run
        found = [one.values[x] for x in self.finals]
        one.values.clear()  # a thread may not have released the run yet
        return found, one.events

    def _alone(self, arrays: Sequence[Any]) -> tuple[list[Any], list[Event]]:
        """Run the only task in the calling thread: there is nothing to overlap."""
        (task,) = self.tasks
        values = dict(zip(self.entries, arrays, strict=True))
        given = [values[x] for x in task.inputs]
        begin = perf_counter()
        with device(task.device):
            found = run_at(task.mode, self.shares[task.device], task.call, given)
        event = Event(0, begin, perf_counter())
        values.update(zip(task.outputs, found, strict=True))
        return [values[x] for x in self.finals], [event]


class Run(ScopeGuard):
    """One run of a program: the arrays computed so far, and the pending counts of its tasks.

    Entering it as a context starts the run, and leaving waits until all work has ended. A
    program with arrivals is started by ``acquire`` alone; ``ended`` is called when it is over.
    """

    def __init__(self, program: Program, arrays: Sequence[Any]) -> None:
        self._program = program
        self.values = dict(zip(program.entries, arrays, strict=True))
        self._waits = list(program.waits)
        self._readers = program.readers.copy()
        # Number of queued and running tasks, and pending arrivals.
        self._going = len(program.first) + len(program.arrivals)
        self._first = deque(program.first)  # tasks possibly not yet in their queues
        self._taken: dict[int, object] = {}  # an interrupt may enqueue a task twice
        self._stopped = False
        self._lock = threading.Lock()  # shared by the devices' threads
        self._done: SimpleQueue[None] = SimpleQueue()
        self.order = next(_orders)
        self.error: BaseException | None = None
        self.events: list[Event] = []

    def acquire(self) -> None:
        """Begin."""
        while self._first:
            self._enqueue(self._first[0])
            self._first.popleft()

    def release(self) -> None:
        """Return when all work has ended: until then arrays are in use."""
        while self._going:
            try:
                if self._first:  # an exception interrupted the start: start nothing more
                    self._stopped = True
                    self.acquire()
                self._done.get()
            except BaseException as error:  # Ctrl-C
                self.error = self.error or error

    def _enqueue(self, number: int) -> None:
        """Put a ready task into its device's queue, or run it if it is quick."""
        task = self._program.tasks[number]
        if task.quick and not _cores.is_exclusive:
            with device(task.device):
                self.do(number)
            return
        while not worker_of(task.device, task.transfer).put(self, number, task.priority):
            pass  # that thread is ending; a new one replaces it

    def do(self, number: int) -> None:
        """Run a ready task, and enqueue the tasks that become ready."""
        mine = object()
        if self._taken.setdefault(number, mine) is not mine:
            return
        task = self._program.tasks[number]
        found: Sequence[Any] | None = None
        begin = end = 0.0
        if self.error is None and not self._stopped:
            try:
                given = [self.values[x] for x in task.inputs]
                if task.published:
                    given.insert(0, partial(self._publish, task))
                begin = perf_counter()
                found = run_at(task.mode, self._program.shares[task.device], task.call, given)
                end = perf_counter()
                del given
            except BaseException as error:
                self._fail(error)
        self._pass_on([] if found is None else self._finish(task, found, Event(number, begin, end)))

    def _publish(self, task: Task, position: int, array: Any) -> None:
        """Pass on a value of a running task; starts tasks that waited for it alone."""
        value = task.published[position]
        with self._lock:
            if self._readers[value]:
                self.values[value] = array
            ready = [] if self.error is not None else self._made_ready(self._program.makers[value])
            self._going += bool(ready)  # the publishing task is still running
        for following in ready:
            self._enqueue(following)

    def arrive(self, value: Hashable, array: Any) -> None:
        """Supply an external value; starts tasks that waited for it alone."""
        number, mine = self._program.makers[value], object()
        if self._taken.setdefault(number, mine) is mine:
            with self._lock:
                if self._readers[value]:
                    self.values[value] = array
                ready = [] if self.error is not None else self._made_ready(number)
            self._pass_on(ready)

    def cancel(self, error: BaseException) -> None:
        """End the run with this error: start no further tasks, and wait for no arrivals."""
        self._fail(error)

    def ended(self) -> None:
        """Signal the end of the run: called once, by the last task or arrival."""
        self._done.put(None)

    def _pass_on(self, ready: list[int]) -> None:
        for following in ready:
            self._enqueue(following)
        if not ready:
            self._leave()

    def _finish(self, task: Task, found: Sequence[Any], event: Event) -> list[int]:
        """Store the results of a task; returns the tasks that are ready now."""
        with self._lock:
            for x, array in zip(task.outputs, found, strict=True):
                if self._readers[x]:
                    self.values[x] = array
            for x in task.inputs:
                self._readers[x] -= 1
                if not self._readers[x]:
                    del self.values[x]  # free its memory
            self.events.append(event)
            return self._made_ready(event.task)

    def _made_ready(self, maker: int) -> list[int]:
        """The tasks that become ready through this maker; the lock is held."""
        ready = []
        for number in self._program.follows[maker]:
            self._waits[number] -= 1
            if not self._waits[number]:
                ready.append(number)
        if ready:
            self._going += len(ready) - 1
        return ready

    def _fail(self, error: BaseException) -> None:
        """Record the first error; stop waiting for pending arrivals."""
        with self._lock:
            if self.error is None:
                self.error = error
        mine = object()
        for value in self._program.arrivals:
            if self._taken.setdefault(self._program.makers[value], mine) is mine:
                self._leave()

    def _leave(self) -> None:
        """Count the end of a task that made no other task ready."""
        with self._lock:
            self._going -= 1
            over = not self._going
        if over:
            self.ended()
