"""The executor: one thread and one ready queue for each device, and dependency counts.

A program is a list of tasks: pieces of a graph that wait for nothing in between, and transfers.
A task is put into its device's queue when the last task that it waits for has ended, or has
published what it waits for, so no thread ever waits for another device, and nothing can block for
good. Of the tasks that are ready, those of earlier runs come first, then those with the most work
behind them.

A logical CPU device is its share of the machine's cores. Where there are several, pieces run
side by side with their own share of threads and BLAS at one thread. Products have other bits
with other numbers of BLAS threads; so pieces whose bits have to be those of eager calls run
``alone``: no other piece of any program runs meanwhile, and they have all cores.
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
"""How a piece uses cores: all of them, a device's share, or as it likes."""


@dataclass(eq=False, slots=True)
class Task:
    """One thing that a device does: from the arrays of some values it makes those of others."""

    label: str
    device: Device
    call: Callable[[Sequence[Any]], Sequence[Any]]
    inputs: tuple[Hashable, ...]
    outputs: tuple[Hashable, ...]
    mode: str = SHARED
    priority: float = 0.0
    """Seconds of work from its begin to the end of the run: the more, the earlier."""
    transfer: bool = False
    nodes: tuple[str, ...] = ()
    """Names of the nodes that it computes."""
    quick: bool = False
    """Whether it takes less time than a switch to its device's thread: others may run it too."""
    published: tuple[Hashable, ...] = ()
    """What it makes besides its outputs, and tells of on the way: the first that it is given then
    is a function that takes the position of such a value and its array."""


class Event(NamedTuple):
    """When a task ran: seconds on the clock of ``time.perf_counter``."""

    task: int
    begin: float
    end: float


# Cores -------------------------------------------------------------------------------------------


def share_of(place: Device) -> int:
    """How many of the machine's cores a device has: all, or the share of a logical one.

    >>> share_of(ef.devices("cpu")[0]) >= 1
    True
    """
    if not place.backend.host:
        return threads.thread_count()
    return max(1, threads.thread_count() // max(1, place.sharers))


def cores_of(place: Device) -> set[int]:
    """The cores that a logical device is: its share of those that the process may use.

    All of them where there is one device, where the system does not tell, and for a task of a
    cluster, whose number among those of its machine is not known.
    """
    if not place.backend.host or place.task or not hasattr(os, "sched_getaffinity"):
        return set()
    cores = sorted(os.sched_getaffinity(os.getpid()))  # a worker started by one has its cores alone
    share = share_of(place)
    own = cores[place.index * share : (place.index + 1) * share]
    return set(own if place.sharers > 1 and len(own) == share else cores)


def mode_of(place: Device) -> str:
    """How pieces use the cores of a device where bits do not matter."""
    return SHARED if place.backend.host and place.sharers > 1 else FREE


class _SharedLock:
    """A lock for several threads together or one exclusively, which new sharers let pass first."""

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
    """``call(*args)`` with the cores that a mode and a share stand for."""
    if mode == FREE:
        return call(*args)
    alone = mode == ALONE
    # Kernels that this thread calls use that many cores, and BLAS one.
    own = threads.Alone() if share == 1 else blas.single_threaded()
    with _cores.held(alone), nullcontext() if alone else own:
        return call(*args)


# Workers -----------------------------------------------------------------------------------------


class _Worker:
    """The thread of a device, or of the transfers to it: it takes what is ready, by priority."""

    def __init__(self, name: str, place: Device) -> None:
        self.place = place
        self._inbox: SimpleQueue[Any] = SimpleQueue()  # without locks, for threads with signals
        self._count = count()
        self._closed = False
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self.thread.start()

    def put(self, run: Any, number: int, priority: float) -> bool:
        """Add a task that is ready; False where the thread is to end, and may not do it."""
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
                    del run  # it holds arrays

    def stop(self) -> None:
        """Let the thread end once its queue is empty."""
        self._closed = True
        self._inbox.put(None)


_workers: dict[tuple[Device, bool], _Worker] = {}
_starting = reentrant_lock()
_orders = count()


def _worker(place: Device, transfer: bool) -> _Worker:
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
    """Tasks, each of which waits for those that make what it reads.

    ``entries`` are the values that are given, ``finals`` those that are asked for; a value is
    whatever tasks agree on. ``arrivals`` are values that others bring during a run, each at a
    moment of its own. Several threads may run a program at once.
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
        """The arrays of the finals from those of the entries, and when each task ran.

        The first error of a task is raised when all tasks that had begun have ended; those that
        had not are not begun.
        """
        if len(self.tasks) == 1 and self.tasks[0].mode == FREE:
            return self._alone(arrays)
        with Run(self, arrays) as one:
            pass
        if one.error is not None:
            try:
                raise one.error
            finally:
                one.error = None  # its traceback holds the run
        found = [one.values[x] for x in self.finals]
        one.values.clear()  # a thread may still have to let go of the run
        return found, one.events

    def _alone(self, arrays: Sequence[Any]) -> tuple[list[Any], list[Event]]:
        """A run of the only task, in the thread that asks for it: there is nothing to overlap."""
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
    """One run of a program: the arrays that there are, and how many tasks each still waits for.

    As a context it begins when it is entered, and is left when nothing is at work any more. A
    program with arrivals is begun by ``acquire`` alone; then ``ended`` is called when it is over.
    """

    def __init__(self, program: Program, arrays: Sequence[Any]) -> None:
        self._program = program
        self.values = dict(zip(program.entries, arrays, strict=True))
        self._waits = list(program.waits)
        self._readers = program.readers.copy()
        # Tasks in queues and at work, and arrivals.
        self._going = len(program.first) + len(program.arrivals)
        self._first = deque(program.first)  # of which some are not in their queues yet
        self._taken: dict[int, object] = {}  # an interrupt may put a task into its queue twice
        self._stopped = False
        self._lock = threading.Lock()  # of the devices' threads
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
        """Return when nothing is at work any more: until then arrays are in use."""
        while self._going:
            try:
                if self._first:  # an exception came in between: nothing more is to begin
                    self._stopped = True
                    self.acquire()
                self._done.get()
            except BaseException as error:  # Ctrl-C
                self.error = self.error or error

    def _enqueue(self, number: int) -> None:
        """Put a task that is ready into its device's queue, or run it if it is quick."""
        task = self._program.tasks[number]
        if task.quick and not _cores.is_exclusive:
            with device(task.device):
                self.do(number)
            return
        while not _worker(task.device, task.transfer).put(self, number, task.priority):
            pass  # that thread ends, and a new one takes its place

    def do(self, number: int) -> None:
        """Run a task that is ready, and put those into their queues that have waited for it."""
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
        """A task has made a value, and goes on: those begin that have waited for it alone."""
        value = task.published[position]
        with self._lock:
            if self._readers[value]:
                self.values[value] = array
            ready = [] if self.error is not None else self._made_ready(self._program.makers[value])
            self._going += bool(ready)  # this task is still at work
        for following in ready:
            self._enqueue(following)

    def arrive(self, value: Hashable, array: Any) -> None:
        """An arrival is there: those tasks begin that have waited for it alone."""
        number, mine = self._program.makers[value], object()
        if self._taken.setdefault(number, mine) is mine:
            with self._lock:
                if self._readers[value]:
                    self.values[value] = array
                ready = [] if self.error is not None else self._made_ready(number)
            self._pass_on(ready)

    def cancel(self, error: BaseException) -> None:
        """Begin nothing more, and wait for no arrival: the run ends with this error."""
        self._fail(error)

    def ended(self) -> None:
        """Nothing is at work any more: called once, by the last one."""
        self._done.put(None)

    def _pass_on(self, ready: list[int]) -> None:
        for following in ready:
            self._enqueue(following)
        if not ready:
            self._leave()

    def _finish(self, task: Task, found: Sequence[Any], event: Event) -> list[int]:
        """Keep what a task has made; the numbers of the tasks that are ready now."""
        with self._lock:
            for x, array in zip(task.outputs, found, strict=True):
                if self._readers[x]:
                    self.values[x] = array
            for x in task.inputs:
                self._readers[x] -= 1
                if not self._readers[x]:
                    del self.values[x]  # its memory is free
            self.events.append(event)
            return self._made_ready(event.task)

    def _made_ready(self, maker: int) -> list[int]:
        """The tasks that have waited for this maker as the last one; the lock is held."""
        ready = []
        for number in self._program.follows[maker]:
            self._waits[number] -= 1
            if not self._waits[number]:
                ready.append(number)
        if ready:
            self._going += len(ready) - 1
        return ready

    def _fail(self, error: BaseException) -> None:
        """Note the first error; arrivals that are not there yet are waited for no more."""
        with self._lock:
            if self.error is None:
                self.error = error
        mine = object()
        for value in self._program.arrivals:
            if self._taken.setdefault(self._program.makers[value], mine) is mine:
                self._leave()

    def _leave(self) -> None:
        """A task has ended that made no other one ready."""
        with self._lock:
            self._going -= 1
            over = not self._going
        if over:
            self.ended()
