"""The client's side: tasks, what is asked of them, and runs that all of them take part in.

One thread sends all that goes to the tasks, in one order: so a run sees the Variables of all
tasks as they were between two others, and an interrupt of the user's thread cuts no message
short. The threads of the connections only pass on what comes.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from eagerflow.cluster.connections import Connection, connect, machine_name
from eagerflow.cluster.parts import Part
from eagerflow.cluster.server import CLIENT
from eagerflow.cluster.status import TaskStatus
from eagerflow.cluster.variables import Held, HeldVariables, by_task
from eagerflow.devices import Device, add_task, as_device, remove_task
from eagerflow.errors import SessionError, TaskLostError
from eagerflow.graph.ir import Cell
from eagerflow.runtime import threads
from eagerflow.runtime.channel import as_error
from eagerflow.variable import Variable, read_together

__all__ = ["Client", "Job", "RemoteTask"]

_log = logging.getLogger("eagerflow.cluster")
STARTING, READY, LOST, DRAINED = "starting", "ready", "lost", "drained"
BEGIN_SECONDS = 60.0
STATUS_SECONDS = 5.0
PULL_SECONDS = 60.0
CLOSE_SECONDS = 5.0
MAX_PARTS = 1024  # that a task keeps; the one that was not used for longest goes


class RemoteTask:
    """A task of a cluster, as its client sees it.

    ``job`` and ``index`` are its name, ``pid`` and ``node`` where it runs. ``state`` is
    ``"starting"``, ``"ready"``, ``"lost"`` until another process has taken its place, or
    ``"drained"``.

    >>> with ef.cluster.Cluster({"worker": 1}, local=True) as cluster:
    ...     task = cluster.tasks[0]
    ...     task.job, task.index, task.state, task.lives
    ('worker', 0, 'ready', 1)
    """

    def __init__(self, job: str, index: int, devices: dict[str, int]) -> None:
        self.job, self.index = job, index
        self.name = f"/job:{job}/task:{index}"
        self.device_counts = devices
        self.pid: int | None = None
        self.node: str | None = None
        self.state = STARTING
        self.lives = 0
        """How many processes have been the task so far."""
        self.address: dict[str, Any] = {}
        self.connection: Connection | None = None
        self.parts: dict[str, int] = {}

    @property
    def devices(self) -> list[Device]:
        """Its devices."""
        return [
            as_device(f"{self.name}/device:{kind}:{i}")
            for kind, count in self.device_counts.items()
            for i in range(count)
        ]

    def __repr__(self) -> str:
        where = f", pid {self.pid} on {self.node}" if self.pid else ""
        return f"<Task {self.name}: {self.state}{where}>"


class Job:
    """One run over several tasks, from its begin to the answer.

    ``parts`` are those of a graph with ``cells``, whose Variables lie in ``places``; ``inputs``
    are arrays. ``outputs`` gets those of the graph's outputs that are computed, by position.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        cells: Sequence[Cell],
        places: Sequence[Device],
        inputs: Sequence[Any],
        count: int,
    ) -> None:
        self.parts, self.cells, self.places, self.inputs = parts, cells, places, inputs
        self.count = count
        self.outputs: dict[int, Any] = {}
        self.assigns = any(part.assigned for part in parts)
        self.number = 0
        self.waiting: set[str] = set()
        self.states: dict[int, Any] = {}
        self.error: BaseException | None = None
        self.done: SimpleQueue[None] = SimpleQueue()
        self.over = False
        self.lock = threading.Lock()


class Client:
    """Tasks by their names, and what was asked of them."""

    def __init__(self, token: bytes, own: bool) -> None:
        self.tasks: dict[str, RemoteTask] = {}
        self.variables = HeldVariables()
        self.lost: Callable[[RemoteTask], None] = lambda task: None
        """Called when a task has gone, by a thread that must not wait."""
        self._token, self._own = token, own
        self._jobs: dict[int, Job] = {}
        self._asked: dict[int, SimpleQueue[Any]] = {}
        self._numbers = itertools.count(1)
        self._closed = False
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="eagerflow cluster", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            self._make(call)
            del call
        self._closed = True
        self._make_rest()

    def _make(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            _log.exception("a call of the cluster failed")

    def _make_rest(self) -> None:
        """Make the calls that came too late: they fail, as there are no tasks, but none waits."""
        with suppress(Empty):
            while True:
                call = self._calls.get_nowait()
                if call is not None:
                    self._make(call)

    def put(self, call: Callable[[], None]) -> None:
        """Let the thread that sends make a call, after those that were put before."""
        self._calls.put(call)
        if self._closed:
            self._make_rest()

    def wait(self, call: Callable[[], Any]) -> Any:
        """The result of a call of the thread that sends."""
        done: SimpleQueue[Any] = SimpleQueue()
        self.put(partial(_call, call, done))
        return _result(done)

    # Tasks -----------------------------------------------------------------------------------

    def join(self, task: RemoteTask, address: dict[str, Any]) -> None:
        """Connect to a task that has started; EOFError where it cannot be reached."""
        connection = connect(address, self._token, CLIENT, task.name)
        connection.start(self._handle, lambda own: self.put(partial(self._gone, task, own)))
        begin = {
            "do": "begin",
            "own": self._own,
            "threads": threads.thread_count(),
            "machine": machine_name(),
        }
        answer, _ = self._answer(connection, begin, (), BEGIN_SECONDS)
        self.wait(partial(self._joined, task, connection, address, answer))

    def _joined(
        self,
        task: RemoteTask,
        connection: Connection,
        address: dict[str, Any],
        answer: dict[str, Any],
    ) -> None:
        if not connection.is_open:
            raise EOFError(f"{task.name} has gone again")
        task.connection, task.address = connection, address
        task.pid, task.node = answer["pid"], answer["node"]
        task.parts = {}
        task.lives += 1
        task.state = READY
        self.tasks[task.name] = task
        self._introduce()

    def _introduce(self) -> None:
        """Tell all tasks who is there."""
        there = list(self.tasks.values())  # also those that come back soon
        machines = [t.address["machine"] for t in there]
        rows: dict[str, dict[str, Any]] = {
            t.name: {
                "address": t.address,
                "devices": t.device_counts,
                "sharing": machines.count(t.address["machine"]),
            }
            for t in there
        }
        for task in there:
            add_task(task.name, task.device_counts, rows[task.name]["sharing"])
        for task in there:
            with suppress(TaskLostError):  # who has gone is told when it is back
                self._tell(task, {"do": "peers", "tasks": rows, "own": self._own})

    def leave(self, task: RemoteTask) -> None:
        """Part from a task, whose newest values the client has already."""
        self.wait(partial(self._left, task))

    def _left(self, task: RemoteTask) -> None:
        task.state = DRAINED
        self.tasks.pop(task.name, None)
        self.variables.lose(task.name)
        remove_task(task.name)
        if task.connection is not None:
            task.connection.close()
        self._introduce()

    def _gone(self, task: RemoteTask, connection: Connection) -> None:
        """A task's connection has ended: runs that it is part of fail, the others go on."""
        if task.connection is not connection or task.state != READY:
            return
        task.state = LOST
        self.variables.lose(task.name)
        for job in list(self._jobs.values()):
            if any(part.task == task.name for part in job.parts):
                self._fail(job, self._loss(task))
        self.lost(task)

    def _loss(self, task: RemoteTask) -> TaskLostError:
        return TaskLostError(
            f"{task.name} has gone",
            received=f"pid {task.pid} on {task.node} has ended, or cannot be reached",
            hint="run again: another process takes its place",
        )

    def _tell(self, task: RemoteTask, message: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
        """Send a message; TaskLostError where the task has gone."""
        if task.state != READY or task.connection is None:
            raise self._loss(task)
        try:
            task.connection.send(message, arrays)
        except EOFError:
            raise self._loss(task) from None

    # Questions ---------------------------------------------------------------------------------

    def ask(
        self,
        task: RemoteTask,
        message: dict[str, Any],
        arrays: Sequence[Any] = (),
        seconds: float | None = None,
    ) -> tuple[dict[str, Any], list[Any]]:
        """The answer of a task; its error, or TaskLostError where it goes before it has answered.

        TimeoutError where it has not answered after so many ``seconds``.
        """
        connection = task.connection
        if connection is None or task.state != READY:
            raise self._loss(task)
        return self._answer(connection, message, arrays, seconds)

    def _answer(
        self,
        connection: Connection,
        message: dict[str, Any],
        arrays: Sequence[Any],
        seconds: float | None,
    ) -> tuple[dict[str, Any], list[Any]]:
        number, done = next(self._numbers), SimpleQueue[Any]()
        self._asked[number] = done
        try:
            self.put(partial(_ask, connection, message | {"ask": number}, arrays, done))
            while True:
                try:
                    return _result(done, 0.2 if seconds is None else min(seconds, 0.2))
                except Empty:
                    if not (connection.is_open and self._thread.is_alive()):
                        raise TaskLostError(f"{connection.peer} has gone") from None
                    if seconds is not None and (seconds := seconds - 0.2) <= 0:
                        raise TimeoutError(f"{connection.peer} does not answer") from None
        finally:
            del self._asked[number]

    def _handle(self, connection: Connection, message: dict[str, Any], arrays: list[Any]) -> None:
        """What comes from a task: answers, and ends of runs."""
        if "answers" in message:
            done = self._asked.get(message.pop("answers"))
            if done is not None:
                failed = "error" in message
                done.put(as_error(message["error"]) if failed else (message, arrays))
        elif "computed" in message:
            job = self._jobs.get(message["computed"])
            if job is not None:
                self._computed(job, connection.peer, arrays)
        elif "failed" in message:
            job = self._jobs.get(message["failed"])
            if job is not None:
                self.put(partial(self._fail, job, as_error(message["error"])))

    # Runs ------------------------------------------------------------------------------------

    def run(self, job: Job) -> None:
        """Let tasks do their parts of a run, all or none; the first error of a task."""
        self.put(partial(self._begin, job))
        interrupt: BaseException | None = None
        while True:
            try:
                job.done.get()
                break
            except BaseException as error:  # Ctrl-C
                interrupt = interrupt or error
                self.put(partial(self._fail, job, error))
        if job.error is not None:
            raise job.error
        if interrupt is not None:
            raise interrupt

    def _begin(self, job: Job) -> None:
        job.number = next(self._numbers)
        self._jobs[job.number] = job
        job.waiting = {part.task for part in job.parts}
        self._forget()
        try:
            for part in job.parts:
                self._begin_part(job, part)
            if not job.parts:
                self._settle(job)
        except Exception as error:
            self._fail(job, error)

    def _begin_part(self, job: Job, part: Part) -> None:
        task = self.tasks.get(part.task)
        if task is None:
            raise SessionError(f"{part.task} is no task of the cluster any more", op="Session.run")
        number = self._registered(task, part)
        held = self._stored(task, job, part.variables)
        message = {
            "do": "run",
            "run": job.number,
            "oldest": min(list(self._jobs)),  # other threads take away what is over
            "part": number,
            "variables": [one.key for one in held],
        }
        self._tell(task, message, [job.inputs[i] for i in part.feeds])

    def _registered(self, task: RemoteTask, part: Part) -> int:
        """The number of a part in a task, which gets it if it does not have it."""
        number = task.parts.pop(part.hash, None)
        if number is None:
            number = next(self._numbers)
            message = {"do": "register", "part": number, "text": part.text}
            self._tell(task, message, part.arrays)
        task.parts[part.hash] = number  # as the one that was used last
        if len(task.parts) > MAX_PARTS:
            oldest = task.parts.pop(next(iter(task.parts)))
            self._tell(task, {"do": "forget", "parts": [oldest], "variables": []})
        return number

    def _forget(self) -> None:
        """Let tasks drop the values of Variables that nobody has any more."""
        for name, own in by_task(self.variables.gone()).items():
            task = self.tasks.get(name)
            keys = [held.key for held in own]
            if task is not None:
                with suppress(TaskLostError):
                    self._tell(task, {"do": "forget", "parts": [], "variables": keys})

    def _stored(self, task: RemoteTask, job: Job, cells: Sequence[int]) -> list[Held]:
        """Variables as a task holds them, to which the client's values go where they are newer."""
        variables = [job.cells[i].variable for i in cells]
        current = read_together(variables)
        found, stale = [], []
        for i, variable, tensor in zip(cells, variables, current, strict=True):
            place = job.places[i]
            held = self.variables.get(variable)
            if held is not None and held.place is not place:
                if held.newer and held.known is tensor:
                    raise SessionError(
                        f"the Variable {variable.name!r} lies on {held.place}, and not on {place}",
                        op="Session.run",
                        hint="read session.variables in between, or pin it with ef.device",
                    )
                held = None
            held = held or self.variables.add(variable, place)
            held.check(tensor)
            if held.known is not tensor:
                stale.append((held, tensor))
            found.append(held)
        if stale:
            rows = [[held.key, str(held.place)] for held, _ in stale]
            arrays = [t.device.backend.to_numpy(t._array) for _, t in stale]
            self._tell(task, {"do": "store", "variables": rows}, arrays)
            for held, tensor in stale:
                held.known, held.newer, held.lost = tensor, False, False
        return found

    def _computed(self, job: Job, task: str, arrays: list[Any]) -> None:
        """A task has done its part; called by the thread of its connection."""
        with job.lock:
            if task not in job.waiting:
                return
            job.waiting.discard(task)
            part = next(p for p in job.parts if p.task == task)
            for i, array in zip(part.finals, arrays, strict=True):
                (job.outputs if i < job.count else job.states)[i] = array
            last = not job.waiting
        if last and job.assigns:
            self.put(partial(self._settle, job))
        elif last:
            self._settle(job)

    def _settle(self, job: Job) -> None:
        """All tasks have done their parts: new values are valid from now on."""
        with job.lock:
            if job.over:
                return
            job.over = True
        self._jobs.pop(job.number, None)
        try:
            for part in job.parts if job.assigns else ():
                if part.assigned:
                    self._commit(job, part)
            for i, array in job.states.items():
                state = self.variables.get(job.cells[i - job.count].variable)
                if state is not None:
                    state.take(array.copy())
        finally:
            job.done.put(None)

    def _commit(self, job: Job, part: Part) -> None:
        held = [self.variables.get(job.cells[i].variable) for i in part.assigned]
        keys = [one.key for one in held if one is not None]
        try:
            message = {"do": "commit", "run": job.number, "variables": keys}
            self._tell(self.tasks[part.task], message)
        except TaskLostError:
            pass  # with its values, as ``_gone`` will say
        for one in held:
            if one is not None:
                one.newer = True

    def _fail(self, job: Job, error: BaseException) -> None:
        """A run ends with an error, if it has not ended yet: nothing of it stays anywhere."""
        with job.lock:
            if job.over:
                return
            job.over = True
        self._jobs.pop(job.number, None)
        job.error = error
        for part in job.parts:
            try:
                self._tell(self.tasks[part.task], {"do": "cancel", "run": job.number})
            except (KeyError, TaskLostError):
                pass  # it has gone itself
        job.done.put(None)

    # Variables ---------------------------------------------------------------------------------

    def pull(
        self, variables: Sequence[Variable] | None = None, seconds: float = PULL_SECONDS
    ) -> None:
        """Bring the newest values of Variables, or of all, from tasks into the client.

        TaskLostError where one was lost, TimeoutError where a task does not answer for so many
        ``seconds``: when the others are there.
        """
        newer = self.wait(partial(self.variables.newer, variables))
        there = [held for held in newer if not held.lost]
        problem: Exception | None = None
        for name, own in by_task(there).items():
            message = {"do": "fetch", "variables": [held.key for held in own]}
            try:
                _, arrays = self.ask(self.tasks[name], message, seconds=seconds)
            except (TaskLostError, TimeoutError) as error:
                problem = problem or error
                continue
            self.wait(partial(_take, own, [x.copy() for x in arrays]))
        for held in newer:
            variable = held.variable()
            if variable is not None:
                held.check(variable.current)
        if problem is not None:
            raise problem

    def held_by(self, task: RemoteTask) -> list[Variable]:
        """The Variables that a task holds."""
        return list(self.wait(partial(self.variables.held_by, task.name)))

    def status(self, task: RemoteTask) -> TaskStatus:
        """What a task is doing; of one that is not ready, that alone."""
        facts = task.name, task.state, task.pid, task.node
        connection = task.connection
        try:
            answer, _ = self.ask(task, {"do": "status"}, seconds=STATUS_SECONDS)
        except (TaskLostError, TimeoutError):
            return TaskStatus(*facts)
        assert connection is not None
        return TaskStatus(
            *facts,
            answer["runs"],
            answer["variables"],
            answer["bytes"],
            connection.sent_bytes,
            connection.received_bytes,
            answer["sent"],
        )

    # The end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Part from all tasks; runs that are under way fail."""
        for task in list(self.tasks.values()):
            if task.connection is not None:
                task.connection.close()  # which ends a message that a task does not take
        self._calls.put(self._close)
        self._calls.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _close(self) -> None:
        for job in list(self._jobs.values()):
            self._fail(job, SessionError("the cluster has been closed"))
        for task in list(self.tasks.values()):
            task.state = DRAINED
            remove_task(task.name)


def _ask(
    connection: Connection,
    message: dict[str, Any],
    arrays: Sequence[Any],
    done: SimpleQueue[Any],
) -> None:
    try:
        connection.send(message, arrays)
    except EOFError:
        done.put(TaskLostError(f"{connection.peer} has gone"))


def _call(call: Callable[[], Any], done: SimpleQueue[Any]) -> None:
    try:
        done.put(call())
    except BaseException as error:
        done.put(error)


def _result(done: SimpleQueue[Any], seconds: float | None = None) -> Any:
    found = done.get(timeout=seconds)
    if isinstance(found, BaseException):
        raise found
    return found


def _take(held: Sequence[Held], arrays: Sequence[Any]) -> None:
    for one, array in zip(held, arrays, strict=True):
        one.take(array)
