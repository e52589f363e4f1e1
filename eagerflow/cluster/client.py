"""The client's side: tasks, requests to them, and runs over all of them.

One thread sends all messages to the tasks, in one order: so a run sees the Variables of all
tasks in the state between two other runs, and an interrupt of the user's thread truncates no
message. The threads of the connections only dispatch received messages.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any
from weakref import WeakSet

from eagerflow.cluster.connections import ENDED, Connection, connect, machine_name
from eagerflow.cluster.heartbeat import Heartbeat
from eagerflow.cluster.job import Job
from eagerflow.cluster.lanes import SETTING, Facts
from eagerflow.cluster.parts import Part
from eagerflow.cluster.pending import Question, Questions
from eagerflow.cluster.server import CLIENT
from eagerflow.cluster.shadows import is_owned
from eagerflow.cluster.status import TaskStatus
from eagerflow.cluster.variables import Held, HeldVariables, by_task
from eagerflow.devices import Device, add_task, as_device, remove_task
from eagerflow.errors import SessionError, TaskLostError
from eagerflow.handlers import raised_here, suppress
from eagerflow.runtime import threads
from eagerflow.runtime.channel import as_error
from eagerflow.settings import switched_off
from eagerflow.variable import Variable, read_together

__all__ = ["Client", "RemoteTask"]

_log = logging.getLogger("eagerflow.cluster")
STARTING, READY, LOST, DRAINED = "starting", "ready", "lost", "drained"
BEGIN_SECONDS = 60.0
STATUS_SECONDS = 5.0
PULL_SECONDS = 60.0
CLOSE_SECONDS = 5.0
TIMED_RUNS, MIN_TIMED_RUNS = 32, 5  # recent runs, for the detection of slow tasks
MAX_PARTS = 1024  # parts cached by a task; the least recently used one is dropped


class RemoteTask:
    """A task of a cluster, as its client sees it.

    ``job`` and ``index`` are its name, ``pid`` and ``node`` its process. ``state`` is
    ``"starting"``, ``"ready"``, ``"lost"`` until another process has replaced it, or
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
        """The number of processes of this task so far."""
        self.address: dict[str, Any] = {}
        self.past_host: Facts = {}
        self.connection: Connection | None = None
        self.parts: dict[str, int] = {}
        self.times: deque[float] = deque(maxlen=TIMED_RUNS)
        """Seconds of work in each of the last runs, without waiting."""
        self.hangs = False
        """Whether its last process was given up, but may still exist."""

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


class Client:
    """Tasks by their names, and pending requests to them.

    ``own`` says whether they have separate processes. One that has not answered for
    ``silence`` seconds is lost. ``redundant`` says whether new values of Variables are kept by
    two tasks each.
    """

    def __init__(self, token: bytes, own: bool, silence: float, redundant: bool) -> None:
        self.tasks: dict[str, RemoteTask] = {}
        self.variables = HeldVariables()
        self.lost: Callable[[RemoteTask, list[Held]], None] = lambda task, risk: None
        """Called when a task is lost, with the Variables that have only one copy of their newest
        value left; by a thread that must not wait."""
        self._token, self._own = token, own
        self._silence, self._redundant = silence, redundant
        self._jobs: dict[int, Job] = {}
        self._questions = Questions(lambda: self._thread.is_alive())
        self.snapshots: WeakSet[Any] = WeakSet()
        """Snapshots that are still being written."""
        self.changed = threading.Condition()
        """Notified when a task joins or is lost, or a snapshot is written."""
        self.changes = 0
        self._numbers = itertools.count(1)
        self._closed = False
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="eagerflow cluster", daemon=True)
        self._thread.start()
        self._heartbeat = Heartbeat(self._connections, silence)

    def _connections(self) -> list[Connection]:
        there = [t for t in list(self.tasks.values()) if t.state == READY]
        return [t.connection for t in there if t.connection is not None]

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            self._make(call)
            del call
        self._closed = True
        self._make_rest()

    def _make(self, call: Callable[[], None]) -> None:
        try:
            call()
        except raised_here(Exception):
            _log.exception("a call of the cluster failed")

    def _make_rest(self) -> None:
        """Make calls that came too late: they fail without tasks, but nothing waits for them."""
        with suppress(Empty):
            while True:
                call = self._calls.get_nowait()
                if call is not None:
                    self._make(call)

    def put(self, call: Callable[[], None]) -> None:
        """Queue a call for the sending thread."""
        self._calls.put(call)
        if self._closed:
            self._make_rest()

    def wait(self, call: Callable[[], Any]) -> Any:
        """The result of a call in the sending thread."""
        done: SimpleQueue[Any] = SimpleQueue()
        self.put(partial(_call, call, done))
        return _result(done)

    def note_change(self) -> None:
        """Notify waiters that a task has joined or is lost, or a snapshot is written."""
        with self.changed:
            self.changes += 1
            self.changed.notify_all()

    def wait_for_change(self, seen: int, seconds: float) -> bool:
        """Wait until ``changes`` differs from ``seen``; False after ``seconds``."""
        with self.changed:
            return self.changed.wait_for(lambda: self.changes != seen, seconds)

    # Tasks -----------------------------------------------------------------------------------

    def join(self, task: RemoteTask, address: dict[str, Any]) -> None:
        """Connect to a started task; EOFError if it cannot be reached."""
        connection = connect(address, self._token, CLIENT, task.name)
        connection.start(self._handle, lambda own: self.put(partial(self._gone, task, own)))
        begin = {
            "do": "begin",
            "own": self._own,
            "threads": threads.thread_count(),
            "machine": machine_name(),
            "silence": self._silence,
            "devices": task.device_counts,
            "past_host": not switched_off(SETTING),
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
        task.past_host = answer["past_host"]
        task.parts = {}
        task.times.clear()
        task.hangs = False
        task.lives += 1
        task.state = READY
        self.tasks[task.name] = task
        self._introduce()
        self.note_change()

    def _introduce(self) -> None:
        """Send all tasks the list of tasks."""
        there = list(self.tasks.values())  # including those that will be restarted
        machines = [t.address["machine"] for t in there]
        rows: dict[str, dict[str, Any]] = {
            t.name: {
                "address": t.address,
                "devices": t.device_counts,
                "sharing": machines.count(t.address["machine"]),
                "past_host": t.past_host,
            }
            for t in there
        }
        for task in there:
            add_task(task.name, task.device_counts, rows[task.name]["sharing"])
        for task in there:
            with suppress(TaskLostError):  # a lost task gets the list when it is restarted
                self._tell(task, {"do": "peers", "tasks": rows, "own": self._own})

    def leave(self, task: RemoteTask) -> None:
        """Disconnect a task, after its newest values were copied to the client."""
        self.rescue(self.wait(partial(self._left, task)))

    def _left(self, task: RemoteTask) -> list[Held]:
        task.state = DRAINED
        self.tasks.pop(task.name, None)
        risk = self.variables.lose(task.name)
        remove_task(task.name)
        if task.connection is not None:
            task.connection.close()
        self._introduce()
        self.note_change()
        return risk

    def _gone(self, task: RemoteTask, connection: Connection) -> None:
        """Handle the end of a task's connection: its runs fail, other runs go on."""
        if task.connection is not connection or task.state != READY:
            return
        task.state = LOST
        task.hangs = connection.gave_up
        risk = self.variables.lose(task.name)
        for job in list(self._jobs.values()):
            if task.name in job.tasks:
                self._fail(job, self._loss(task))
        self.note_change()
        self.lost(task, risk)

    def _cut(self, task: str, peer: str, fate: str) -> None:
        """Handle the loss of a connection between two tasks: runs of both may be affected."""
        for job in list(self._jobs.values()):
            if {task, peer} <= job.tasks:
                lost = self.tasks.get(peer)
                where = f"pid {lost.pid} on {lost.node}" if lost else peer
                self._fail(job, _lost(f"{peer} has gone, as {task} sees it", f"{where} {fate}"))

    def _loss(self, task: RemoteTask) -> TaskLostError:
        fate = ENDED if task.connection is None else task.connection.fate
        return _lost(f"{task.name} has gone", f"pid {task.pid} on {task.node} {fate}")

    def _tell(self, task: RemoteTask, message: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
        """Send a message; TaskLostError if the task is lost."""
        if task.state != READY or task.connection is None:
            raise self._loss(task)
        try:
            task.connection.send(message, arrays)
        except raised_here(EOFError):
            raise self._loss(task) from None

    # Questions ---------------------------------------------------------------------------------

    def ask(
        self,
        task: RemoteTask,
        message: dict[str, Any],
        arrays: Sequence[Any] = (),
        seconds: float | None = None,
    ) -> tuple[dict[str, Any], list[Any]]:
        """The answer of a task; its error, or TaskLostError if it is lost before it has answered.

        TimeoutError if it has not answered after ``seconds``.
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
        question = self._questions.to(connection)
        self.put(partial(question.send, message, arrays))
        return question.answer(seconds)

    def question(self, name: str) -> Question:
        """A question to a task, for the sending thread; TaskLostError if it is lost."""
        task = self.tasks[name]
        if task.connection is None or task.state != READY:
            raise self._loss(task)
        return self._questions.to(task.connection)

    def _handle(self, connection: Connection, message: dict[str, Any], arrays: list[Any]) -> None:
        """Handle a message from a task: an answer, or the end of a run."""
        if "answers" in message:
            self._questions.answered(message, arrays)
        elif "computed" in message:
            job = self._jobs.get(message["computed"])
            if job is not None:
                self._computed(job, connection.peer, message["seconds"], arrays)
        elif "kept" in message:
            job = self._jobs.get(message["kept"])
            if job is not None:
                self._done(job, ("copies", message["of"]))
        elif "cut" in message:
            self.put(partial(self._cut, connection.peer, message["cut"], message["fate"]))
        elif "failed" in message:
            job = self._jobs.get(message["failed"])
            if job is not None:
                self.put(partial(self._fail, job, as_error(message["error"])))

    # Runs ------------------------------------------------------------------------------------

    def run(self, job: Job) -> None:
        """Run a job on its tasks, all or none; raises the first error of a task."""
        self.put(partial(self._begin, job))
        interrupt: BaseException | None = None
        while not job.ended:  # Ctrl-C may discard a received item
            try:
                job.done.get()
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
        self._forget()
        try:
            if self._redundant and job.assigns:
                self._begin_copies(job)
            job.begin()
            for part in job.parts:
                self._begin_part(job, part)
            if not job.parts:
                self._settle(job)
        except raised_here(Exception) as error:
            self._fail(job, error)

    def _begin_copies(self, job: Job) -> None:
        """Tell tasks to keep copies of the new values of others."""
        job.plan_copies(self._holder)
        job.copies_number = next(self._numbers)  # their messages outlast the holder's own part
        for holder, tasks in job.kept_by().items():
            message = {
                "do": "keep",
                "run": job.number,
                "number": job.copies_number,
                "of": tasks,
                "oldest": self._oldest(),
            }
            self._tell(self.tasks[holder], message)

    def _oldest(self) -> int:
        """The oldest active run."""
        return min(list(self._jobs))  # other threads remove finished runs

    def _holder(self, task: str) -> str | None:
        """The task that keeps copies of a task's values: the next, on another machine if any."""
        names = sorted(self.tasks)
        at = names.index(task)
        following = [self.tasks[name] for name in names[at + 1 :] + names[:at]]
        there = [t for t in following if t.state == READY]
        if not there:
            return None
        machine = self.tasks[task].address["machine"]
        return next((t.name for t in there if t.address["machine"] != machine), there[0].name)

    def _begin_part(self, job: Job, part: Part) -> None:
        task = self.tasks.get(part.task)
        if task is None:
            raise SessionError(f"{part.task} is no longer a task of the cluster", op="Session.run")
        number = self._registered(task, part)
        held = self._stored(task, job, part.variables)
        job.held.update(zip(part.variables, held, strict=True))
        message = {
            "do": "run",
            "run": job.number,
            "oldest": self._oldest(),
            "part": number,
            "variables": [one.key for one in held],
        }
        copies = job.copies.get(task.name)
        if copies is not None:
            own = [(at, job.held[part.assigned[at]]) for at in copies.positions]
            fit = [(at, one.is_copied_by(copies.holder)) for at, one in own]
            message["copied"] = [copies.holder, job.copies_number, fit]
        self._tell(task, message, [job.inputs[i] for i in part.feeds])

    def _registered(self, task: RemoteTask, part: Part) -> int:
        """The number of a part in a task, sent to it if it is missing."""
        number = task.parts.pop(part.hash, None)
        if number is None:
            number = next(self._numbers)
            message = {"do": "register", "part": number, "text": part.text}
            self._tell(task, message, part.arrays)
        task.parts[part.hash] = number  # now the most recently used
        if len(task.parts) > MAX_PARTS:
            oldest = task.parts.pop(next(iter(task.parts)))
            self._tell(task, {"do": "forget", "parts": [oldest], "variables": []})
        return number

    def _forget(self) -> None:
        """Make tasks drop the values of deleted Variables."""
        gone = self.variables.gone()
        for name, own in by_task(gone).items():
            message = {"do": "forget", "parts": [], "variables": [held.key for held in own]}
            self._tell_if_there(name, message)
        self._forget_copies((held.holder, held.key) for held in gone)

    def _forget_copies(self, some: Iterable[tuple[str | None, int]]) -> None:
        """Make tasks drop copies of Variables with these keys."""
        found: dict[str, list[int]] = {}
        for name, key in some:
            if name is not None:
                found.setdefault(name, []).append(key)
        for name, keys in found.items():
            self._tell_if_there(name, {"do": "forget copies", "variables": keys})

    def _tell_if_there(self, name: str, message: dict[str, Any]) -> None:
        task = self.tasks.get(name)
        if task is not None:
            with suppress(TaskLostError):
                self._tell(task, message)

    def _stored(self, task: RemoteTask, job: Job, cells: Sequence[int]) -> list[Held]:
        """Variables held by a task, updated with the client's values where these are newer."""
        variables = [job.cells[i].variable for i in cells]
        current = read_together(variables)
        found, stale = [], []
        for i, variable, tensor in zip(cells, variables, current, strict=True):
            place = job.places[i]
            held = self.variables.get(variable)
            if held is not None and held.place is not place:
                if (held.newer and held.known is tensor) or self._is_written(held):
                    raise SessionError(
                        f"the Variable {variable.name!r} lies on {held.place}, and not on {place}",
                        op="Session.run",
                        hint="read session.variables in between, or pin it with ef.device",
                    )
                held = None
            held = held or self.variables.add(variable, place)
            held.check(tensor)
            if held.known is not tensor or held.absent:
                stale.append((held, tensor))
            found.append(held)
        if stale:
            rows = [[held.key, str(held.place)] for held, _ in stale]
            arrays = [
                t.device.backend.to_numpy(t._array) if held.known is not t else held.kept
                for held, t in stale
            ]
            self._tell(task, {"do": "store", "variables": rows}, arrays)
            for held, tensor in stale:
                held.stored(tensor)
        return found

    def _is_written(self, held: Held) -> bool:
        """Whether an active run assigns a Variable."""
        return any(held in job.written() for job in list(self._jobs.values()))

    def _computed(self, job: Job, name: str, seconds: float, arrays: list[Any]) -> None:
        """Handle the end of a task's part; called by the thread of its connection."""
        task = self.tasks.get(name)
        if task is not None and seconds:
            task.times.append(seconds)
        with job.lock:
            if name not in job.waiting:
                return
            part = next(p for p in job.parts if p.task == name)
            for i, array in zip(part.finals, arrays, strict=True):
                (job.outputs if i < job.count else job.states)[i] = array
        self._done(job, name)

    def _done(self, job: Job, what: Any) -> None:
        """Note that an awaited event of a run has occurred."""
        with job.lock:
            last = what in job.waiting and len(job.waiting) == 1
            job.waiting.discard(what)
        if last and job.assigns:
            self.put(partial(self._settle, job))
        elif last:
            self._settle(job)

    def _settle(self, job: Job) -> None:
        """Commit a run after all tasks have done their parts: new values become valid."""
        with job.lock:
            if job.over:
                return
            job.over = True
        self._jobs.pop(job.number, None)
        try:
            if job.copies:
                self._commit_copies(job)
            for part in job.parts if job.assigns else ():
                if part.assigned:
                    self._commit(job, part)
            for i, array in job.states.items():
                held = job.held[i - job.count]
                if job.cells[i - job.count].variable.is_random_state:
                    held.take(array.copy())
                else:
                    held.keep(job.number, array.copy())
        finally:
            job.end()

    def _commit_copies(self, job: Job) -> None:
        """Commit copies of new values in the tasks that keep them."""
        keys: dict[str, dict[str, list[int]]] = {}
        left = []
        for part in job.parts:
            own = job.copies.get(part.task)
            copied = {part.assigned[at] for at in own.positions} if own else set()
            for i in part.assigned:
                held = job.held[i]
                holder = own.holder if own and i in copied else None
                if held.holder != holder:
                    left.append((held.holder, held.key))
                held.holder, held.copy_fits = holder, holder is not None
                if own and i in copied:
                    keys.setdefault(own.holder, {}).setdefault(part.task, []).append(held.key)
        for name, rows in keys.items():
            message = {"do": "commit copies", "number": job.copies_number, "keys": rows}
            self._tell_if_there(name, message)
        self._forget_copies(left)

    def _commit(self, job: Job, part: Part) -> None:
        held = [job.held[i] for i in part.assigned]
        try:
            message = {"do": "commit", "run": job.number, "variables": [one.key for one in held]}
            self._tell(self.tasks[part.task], message)
        except TaskLostError:
            pass  # its values are handled by ``_gone``
        for i, one in zip(part.assigned, held, strict=True):
            one.made(job.number)
            one.twin = job.held[job.twins[i]] if i in job.twins else None

    def _fail(self, job: Job, error: BaseException) -> None:
        """End a run with an error, if it has not ended yet: all of its results are dropped."""
        with job.lock:
            if job.over:
                return
            job.over = True
        self._jobs.pop(job.number, None)
        job.error = error
        for part in job.parts:
            self._tell_if_there(part.task, {"do": "cancel", "run": job.number})
        for holder in job.kept_by():
            self._tell_if_there(holder, {"do": "drop copies", "number": job.copies_number})
        job.end()

    # Variables ---------------------------------------------------------------------------------

    def pull(
        self, variables: Sequence[Variable] | None = None, seconds: float = PULL_SECONDS
    ) -> None:
        """Copy the newest values of Variables, or of all, from tasks to the client.

        TaskLostError if one was lost, TimeoutError if a task does not answer for
        ``seconds``: after all others are copied. With all, those of strategies may be lost.
        """
        newer = self.wait(partial(self.variables.newer, variables))
        elsewhere = self.wait(partial(_take_kept, newer))
        problem = self._fetch(elsewhere, _take, seconds)
        for held in newer:
            variable = held.variable()
            if variable is not None and (variables is not None or not is_owned(variable)):
                held.check(variable.current)
        if problem is not None:
            raise problem

    def rescue(self, risk: Sequence[Held]) -> None:
        """Copy values of Variables with only one copy left after the loss of a task.

        They are kept here until runs make new ones; values that cannot be fetched are lost.
        """
        problem = self._fetch(risk, _keep, PULL_SECONDS)
        while isinstance(problem, TaskLostError):  # its values may be in a third task
            problem = self._fetch(self.wait(partial(_not_kept, risk)), _keep, PULL_SECONDS)
        if problem is not None:
            _log.warning("copies of Variables could not be had: %s", problem)
        self.wait(partial(_give_up, risk))

    def _fetch(
        self, some: Sequence[Held], use: Callable[[Held, int, Any], None], seconds: float
    ) -> Exception | None:
        """Apply ``use`` to the newest values of Variables.

        Returns the error of a task, a lost one if there is any.
        """
        problem: Exception | None = None
        for (name, what), own in self.wait(partial(_sources, some)).items():
            message = {"do": what, "variables": [key for _, _, key in own]}
            try:
                _, arrays = self.ask(self.tasks[name], message, seconds=seconds)
            except raised_here(KeyError, TaskLostError, TimeoutError) as error:
                problem = error if isinstance(error, TaskLostError) else problem or error
                continue
            self.wait(partial(_use, use, own, [x.copy() for x in arrays]))
        return problem

    def finish_snapshots(self, seconds: float) -> None:
        """Return when no task writes for a checkpoint any more, or after ``seconds``."""
        with self.changed:
            self.changed.wait_for(lambda: not self.snapshots, seconds)

    def lost_of(self, variables: Sequence[Variable]) -> list[Held]:
        """Those of some Variables with a newest value that is lost."""
        found: list[Held] = self.wait(partial(self.variables.lost, variables))
        return found

    def held_by(self, task: RemoteTask) -> list[Variable]:
        """The Variables that a task holds."""
        return list(self.wait(partial(self.variables.held_by, task.name)))

    def status(self, task: RemoteTask) -> TaskStatus:
        """The status of a task; only its state if it is not ready."""
        facts = task.name, task.state, task.pid, task.node
        # Tasks with a local address share memory with the others of their machine.
        memory = task.address["machine"] if "name" in task.address else task.name
        connection = task.connection
        try:
            answer, _ = self.ask(task, {"do": "status"}, seconds=STATUS_SECONDS)
        except raised_here(TaskLostError, TimeoutError):
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
            median(task.times) if len(task.times) >= MIN_TIMED_RUNS else None,
            memory=memory,
            past_host=[tuple(row) for row in answer["past_host"]],
        )

    # Closing ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Disconnect all tasks; active runs fail."""
        self._heartbeat.close()
        for task in list(self.tasks.values()):
            if task.connection is not None:
                task.connection.close()  # this also ends a send that a task does not read
        self._calls.put(self._close)
        self._calls.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _close(self) -> None:
        for job in list(self._jobs.values()):
            self._fail(job, SessionError("the cluster has been closed"))
        for task in list(self.tasks.values()):
            task.state = DRAINED
            remove_task(task.name)
        self.note_change()


def _call(call: Callable[[], Any], done: SimpleQueue[Any]) -> None:
    try:
        done.put(call())
    except BaseException as error:
        done.put(error)


def _result(done: SimpleQueue[Any]) -> Any:
    found = done.get()
    if isinstance(found, BaseException):
        raise found
    return found


def _lost(problem: str, received: str) -> TaskLostError:
    hint = "run again: another process replaces it"
    return TaskLostError(problem, received=received, hint=hint)


Wanted = tuple[Held, int, int]
"""A Variable, the run that made its value, and its key for the request."""


def _sources(some: Sequence[Held]) -> dict[tuple[str, str], list[Wanted]]:
    """Requests by task for the newest values of Variables."""
    found: dict[tuple[str, str], list[Wanted]] = {}
    for held in some:
        source = held.source()
        if source is not None:
            found.setdefault(source[:2], []).append((held, held.run, source[2]))
    return found


def _use(
    use: Callable[[Held, int, Any], None], some: Sequence[Wanted], arrays: Sequence[Any]
) -> None:
    for (held, run, _), array in zip(some, arrays, strict=True):
        use(held, run, array)


def _take(held: Held, run: int, array: Any) -> None:
    held.take(array)
    held.newer = held.newer or held.run != run  # another thread's run has ended meanwhile


def _take_kept(some: Sequence[Held]) -> list[Held]:
    """Take values that the client has kept already; returns the others."""
    for held in some:
        if held.kept is not None:
            held.take(held.kept)
    return [held for held in some if held.newer]


def _not_kept(some: Sequence[Held]) -> list[Held]:
    return [held for held in some if held.kept is None]


def _give_up(some: Sequence[Held]) -> None:
    for held in some:
        held.give_up()


def _keep(held: Held, run: int, array: Any) -> None:
    held.keep(run, array)
