"""The server of a task, which executes the requests of a client; in a Ray process or in this one.

The client has one connection to each task, for parts of graphs, values of
Variables and runs, in an order that is the same for all tasks. A run computes new values of
Variables and keeps them aside until the client confirms that all tasks have done their part; then
they replace the old ones.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from eagerflow.capture.placement.calibration import rates_of
from eagerflow.capture.placement.executor import Run
from eagerflow.cluster.connections import Connection, Listener
from eagerflow.cluster.copies import Copies, packed
from eagerflow.cluster.heartbeat import Heartbeat
from eagerflow.cluster.parts import LoadedPart, Receive, load
from eagerflow.cluster.transport import Transport
from eagerflow.cluster.transport_timing import lane_round_trips, round_trips
from eagerflow.devices import Device, add_task, as_device, device_of, remove_task
from eagerflow.errors import FileFormatError, SessionError
from eagerflow.handlers import raised_here, suppress
from eagerflow.nn import shards
from eagerflow.plan.part_writes import PartWrite, copied, written
from eagerflow.recorder import with_recorder
from eagerflow.runtime import blas, threads
from eagerflow.runtime.channel import described
from eagerflow.runtime.shared_memory import settled

__all__ = ["CLIENT", "TaskServer"]

CLIENT = "client"
"""The name that a client introduces itself with."""
_LONG = {"calibrate", "measure"}  # takes seconds, so it runs beside other messages
_log = logging.getLogger("eagerflow.cluster")
Answer = tuple[dict[str, Any], Sequence[Any]]
Later = Callable[[], Answer]
"""Slow work, after a consistent state has been captured: runs beside other messages."""
_Begin = Callable[["LoadedPart | Exception"], None]


class TaskRun(Run):
    """One run of a part. Its results are passed to ``finish`` at the end of all work.

    ``copied`` is the task that gets copies of new values, with their number and indices,
    and for each whether the copy there equals the previous value.
    """

    def __init__(
        self,
        part: LoadedPart,
        number: int,
        arrays: Sequence[Any],
        transport: Transport,
        finish: Callable[[TaskRun], None],
        copied: tuple[str, int, list[tuple[int, bool]]] | None,
    ) -> None:
        super().__init__(part.program, [self, *arrays])
        self.part, self.number = part, number
        self._copied = copied
        self._transport, self._finish_with = transport, finish

    def begin(self) -> None:
        """Put ready tasks into the devices' queues, and register receivers of messages."""
        for one in self.part.receives:
            self._transport.receive((self.number, one.number), partial(self._arrived, one))
        self.acquire()
        if not self.part.program.tasks and not self.part.receives:
            self.ended()

    def _arrived(self, one: Receive, arrays: list[Any]) -> None:
        for (value, dtype), array in zip(one.values, arrays, strict=True):
            self.arrive(value, array if array.dtype == dtype else _cast(array, dtype))

    def send(self, peer: str, number: int, arrays: Sequence[Any]) -> None:
        """Send a message with values to another task."""
        self._transport.send(peer, (self.number, number), arrays)

    def past_host(self, peer: str, place: Device, index: int, array: Any, dtype: Any) -> Any:
        """An array of a device prepared for a direct transfer to a device of another task."""
        return self._transport.past_host(peer, place, index, array, dtype)

    def send_copies(self) -> None:
        """Send copies of new values to the task that keeps them."""
        if self._copied is not None:
            peer, number, rows = self._copied
            values = [self._copy(self.values[self.part.assigned[i]], fits) for i, fits in rows]
            self._transport.send(peer, (number, self._transport.name), packed(values))

    def _copy(self, value: Any, fits: bool) -> Any:
        """The data to send for a new value: a partial write, if the copy fits."""
        part = fits and type(value) is PartWrite and value.nbytes < value.array.nbytes
        return value if part else _on_host(copied(value))

    @property
    def busy_seconds(self) -> float:
        """The time in which its pieces were running, without waits."""
        tasks = self._program.tasks
        return sum(e.end - e.begin for e in self.events if not tasks[e.task].transfer)

    def ended(self) -> None:
        self._finish_with(self)


class TaskServer:
    """One task of a cluster: its devices, parts of graphs, Variables and connections.

    ``name`` is ``"/job:worker/task:0"``. ``address`` is its address. ``ended`` is
    called when its client has disconnected, or has told it to end.
    """

    def __init__(
        self,
        name: str,
        token: bytes,
        host: str | None = None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.transport = Transport(name, token, self._cut)
        self.copies = Copies(self.transport, self._tell)
        self.variables: dict[int, Any] = {}
        self._parts: dict[int, LoadedPart | Exception | list[_Begin]] = {}
        """Loaded parts; while a part is loading, the runs that wait for it."""
        self._due: set[int] = set()  # waiting runs that are not cancelled
        self._runs: dict[int, TaskRun] = {}
        self._staged: dict[int, list[Any]] = {}
        self._lock = threading.Lock()
        self._ended = ended
        self._known: set[str] = set()
        self._client: Connection | None = None
        self._heartbeat: Heartbeat | None = None
        self._handlers: dict[str, Callable[[dict[str, Any], list[Any]], Answer | Later | None]] = {
            "begin": self._begin,
            "peers": self._peers,
            "register": self._register,
            "store": self._store,
            "fetch": self._fetch,
            "forget": self._forget,
            "save": self._save,
            "run": self._run,
            "commit": self._commit,
            "cancel": self._cancel,
            "ping": self._ping,
            "calibrate": self._calibrate,
            "measure": self._measure,
            "status": self._status,
            "keep": self.copies.keep,
            "commit copies": self._commit_copies,
            "drop copies": self.copies.drop,
            "fetch copies": self.copies.fetch,
            "forget copies": self.copies.forget,
        }
        self._listener = Listener(token, host, self._greet)
        self.address = self._listener.address

    def close(self) -> None:
        """End all connections, and active work as soon as possible."""
        self._listener.close()
        if self._heartbeat is not None:
            self._heartbeat.close()
        self.transport.close()
        if self._client is not None:
            self._client.close()
        self._cancel_all("the task has been closed")

    @property
    def has_client(self) -> bool:
        """Whether its client has ever connected."""
        return self._client is not None

    # The client ------------------------------------------------------------------------------

    def _greet(self, connection: Connection) -> None:
        if connection.peer != CLIENT:
            self.transport.accept(connection)
        elif self._client is None:
            self._client = connection
            connection.start(self._handle, self._client_gone)
        else:
            connection.close()  # there is one already

    def _client_gone(self, connection: Connection) -> None:
        self._cancel_all("the client has gone")
        if self._ended is not None:
            self._ended()

    def _cancel_all(self, words: str) -> None:
        for run in list(self._runs.values()):
            run.cancel(SessionError(words))

    def _handle(self, connection: Connection, message: dict[str, Any], arrays: list[Any]) -> None:
        if message["do"] in _LONG:
            threading.Thread(
                target=self._answer, args=(connection, message, arrays), daemon=True
            ).start()
        else:
            self._answer(connection, message, arrays)

    def _answer(self, connection: Connection, message: dict[str, Any], arrays: list[Any]) -> None:
        asked = message.get("ask")
        self._give(connection, asked, lambda: self._handlers[message["do"]](message, arrays))

    def _give(self, connection: Connection, asked: int | None, call: Callable[[], Any]) -> None:
        """Answer a question with the result of a call, now or later, or with its error."""
        try:
            answer = with_recorder(None, call)
        except raised_here(Exception) as error:
            _log.debug("a message could not be handled", exc_info=True)
            answer = {"error": self._told(error)}, ()
        if callable(answer):
            args = connection, asked, answer
            threading.Thread(target=self._give, args=args, daemon=True).start()
        elif asked is not None:
            found, more = answer or ({}, ())
            with suppress(EOFError):  # disconnected; noticed by the connection's thread
                connection.send(found | {"answers": asked}, more)

    def _told(self, error: BaseException) -> dict[str, Any]:
        """An error as data for a message, with the task and its machine."""
        if not isinstance(error, Exception):
            error = SessionError(f"it was interrupted: {type(error).__name__}")
        told = described(error)
        told["problem"] = f"{told['problem']} (in {self.name} on {socket.gethostname()})"
        return told

    def _tell(self, message: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
        try:
            if self._client is not None:
                self._client.send(message, arrays)
        except raised_here(EOFError):
            pass  # disconnected; noticed by the connection's thread

    def _cut(self, peer: str, fate: str) -> None:
        """Handle the end of a connection to another task: its last data may be lost."""
        self._tell({"cut": peer, "fate": fate})

    # Requests ----------------------------------------------------------------------------------

    def _begin(self, message: dict[str, Any], arrays: list[Any]) -> Answer:
        """Handle the first message. A separate process uses the client's number of threads, which
        the bits of products depend on, if both are on one machine.
        """
        if message["own"]:
            if message["machine"] == self.address["machine"]:
                threads.set_thread_count(message["threads"])
            functions = blas.thread_functions()
            if functions is not None:
                functions[0](threads.thread_count())
        self._heartbeat = Heartbeat(lambda: self.transport.links, message["silence"])
        past_host = {}
        if message["own"] and message["past_host"]:
            near = "port" not in self.address
            machine = self.address["machine"]
            past_host = self.transport.lanes.begin(message["devices"], machine, near)
        found = {"pid": os.getpid(), "node": socket.gethostname(), "past_host": past_host}
        return found, ()

    def _peers(self, message: dict[str, Any], arrays: list[Any]) -> None:
        """Take the list of all tasks, with their addresses and devices."""
        tasks = message["tasks"]
        self.transport.move({name: task["address"] for name, task in tasks.items()})
        self.transport.lanes.peers = {name: task["past_host"] for name, task in tasks.items()}
        if not message["own"]:
            return  # the client is in this process, and has registered them
        for name, task in tasks.items():
            add_task(name, task["devices"], task["sharing"], name == self.name)
        for name in self._known - tasks.keys():
            remove_task(name)
        self._known = set(tasks)

    def _register(self, message: dict[str, Any], arrays: list[Any]) -> None:
        """Load a part in the background: large graphs take seconds."""
        self._parts[message["part"]] = []
        kept = [settled(x) for x in arrays]
        args = message["part"], message["text"], kept
        threading.Thread(target=self._load, args=args, daemon=True).start()

    def _load(self, number: int, text: dict[str, Any], arrays: list[Any]) -> None:
        """Load a part, and start the runs that wait for it; an error is reported by each run."""
        try:
            part: LoadedPart | Exception = load(text, arrays, self.transport.is_near)
        except raised_here(Exception) as error:
            part = error
        with self._lock:
            waiting = self._parts.get(number)
            if waiting is not None:  # it has not been dropped
                self._parts[number] = part
        for begin in waiting if isinstance(waiting, list) else ():
            begin(part)

    def _store(self, message: dict[str, Any], arrays: list[Any]) -> None:
        """Store values of Variables from the client."""
        for (key, place), array in zip(message["variables"], arrays, strict=True):
            device = as_device(place)
            self.variables[key] = device.backend.receive(settled(array), device.index)

    def _fetch(self, message: dict[str, Any], arrays: list[Any]) -> Answer:
        """Return the values of Variables."""
        return {}, [_on_host(self.variables[key]) for key in message["variables"]]

    def _forget(self, message: dict[str, Any], arrays: list[Any]) -> None:
        """Drop unneeded parts and Variables."""
        for key in message["variables"]:
            self.variables.pop(key, None)
        for number in message["parts"]:
            self._parts.pop(number, None)

    def _save(self, message: dict[str, Any], arrays: list[Any]) -> Later:
        """Write the current values of Variables into a shard of a checkpoint."""
        folder, name = message["folder"], message["file"]
        if not os.path.isabs(folder) or not shards.is_name(name):
            raise FileFormatError("this is not the name of a shard", argument=f"{folder}/{name}")
        held = [self.variables[key] for key in message["variables"]]

        def write() -> Answer:
            values = dict(zip(message["names"], [_on_host(x) for x in held], strict=True))
            seal = shards.write(Path(folder, name), values, "Checkpoint.save")
            return {"seal": list(seal)}, ()

        return write

    def _ping(self, message: dict[str, Any], arrays: list[Any]) -> Answer:
        return {}, arrays

    def _calibrate(self, message: dict[str, Any], arrays: list[Any]) -> Answer:
        """Return the rates of a device of this task."""
        found = rates_of(as_device(message["device"]))
        return {"rates": {suffix: asdict(own) for suffix, own in found.items()}}, ()

    def _measure(self, message: dict[str, Any], arrays: list[Any]) -> Answer:
        """Time the transfer of numbers of bytes to another task, with its confirmation.

        Between ``ends``, a device and the index of one there, host memory is bypassed.
        """
        to, count, ends = (self.transport, message["peer"]), message["count"], message["ends"]
        if ends is None:
            taken = [round_trips(*to, size, count) for size in message["sizes"]]
        else:
            place, index = as_device(ends[0]), ends[1]
            sizes = message["sizes"]
            taken = [lane_round_trips(*to, place, index, size, count) for size in sizes]
        return {"seconds": taken}, ()

    def _status(self, message: dict[str, Any], arrays: list[Any]) -> Answer:
        """Return active runs, held values, and bytes sent to each task."""
        with self._lock:
            runs = sorted(self._runs)
        held = sum([x.nbytes for x in self.variables.values()]) + self.copies.nbytes
        sent = self.transport.traffic
        found = {"runs": runs, "variables": len(self.variables), "bytes": held, "sent": sent}
        return found | {"past_host": self.transport.lanes.ways()}, ()

    # Runs ------------------------------------------------------------------------------------

    def _run(self, message: dict[str, Any], arrays: list[Any]) -> None:
        number = message["run"]
        self.transport.forget_before(message["oldest"])
        try:
            held = [self.variables[key] for key in message["variables"]]
            begin = partial(self._begin_run, number, [*arrays, *held], message.get("copied"))
            with self._lock:
                part = self._parts[message["part"]]
                self._due.add(number)
                if isinstance(part, list):
                    part.append(begin)
                    return
        except raised_here(Exception) as error:
            self._run_failed(number, error)
            return
        begin(part)

    def _begin_run(
        self, number: int, given: list[Any], copied: Any, part: LoadedPart | Exception
    ) -> None:
        try:
            if isinstance(part, Exception):
                raise part
            arrays = [*given, *part.constants]
            run = TaskRun(part, number, arrays, self.transport, self._finished, copied)
        except raised_here(Exception) as error:
            self._run_failed(number, error)
            return
        with self._lock:
            if number not in self._due:  # it was cancelled before
                return
            self._due.remove(number)
            self._runs[number] = run
        with_recorder(None, run.begin)

    def _run_failed(self, number: int, error: Exception) -> None:
        """Report that a run cannot start."""
        self._due.discard(number)
        self._tell({"failed": number, "error": self._told(error)})
        self.transport.forget(number)

    def _finished(self, run: TaskRun) -> None:
        """Handle the end of a run; new values wait for the client's commit."""
        number, part = run.number, run.part
        error = run.error
        found: list[Any] = []
        if error is None:
            found = [run.values[x] for x in (*part.finals, *part.assigned)]
            try:
                run.send_copies()
            except raised_here(Exception) as problem:  # the task that keeps them is lost
                error = problem
        count = len(part.finals)
        with self._lock:
            cancelled = self._runs.pop(number, None) is None
            if error is None and not cancelled:
                self._staged[number] = found[count:]
        run.values.clear()
        self.transport.forget(number)
        if cancelled:
            return
        if error is None:
            message = {"computed": number, "seconds": run.busy_seconds}
            self._tell(message, [_on_host(x) for x in found[:count]])
        else:
            self._tell({"failed": number, "error": self._told(error)})

    def _commit(self, message: dict[str, Any], arrays: list[Any]) -> None:
        """Commit a run, after all tasks have done their part: its new values become valid.

        Only this thread returns values to others, so that none gets a reference to one while it is
        written. A task without memory for that ends, as it would keep outdated values.
        """
        staged = self._staged.pop(message["run"])
        try:
            new = written(staged)
        except raised_here(MemoryError):
            self.close()
            raise
        self.variables.update(zip(message["variables"], new, strict=True))

    def _commit_copies(self, message: dict[str, Any], arrays: list[Any]) -> None:
        """The same for copies: a task that cannot keep copies its client relies on ends."""
        try:
            self.copies.commit(message, arrays)
        except raised_here(Exception):
            self.close()
            raise

    def _cancel(self, message: dict[str, Any], arrays: list[Any]) -> None:
        """Cancel a run, and drop its results."""
        number = message["run"]
        with self._lock:
            run = self._runs.pop(number, None)
            self._due.discard(number)
            self._staged.pop(number, None)
        self.transport.forget(number)
        if run is not None:
            run.cancel(SessionError("the run was cancelled"))


def _cast(array: Any, dtype: Any) -> Any:
    place = device_of(array)
    with nullcontext() if place is None else place.backend.on(place.index):
        return array.astype(dtype)


def _on_host(array: Any) -> Any:
    """The elements of an array of any library."""
    place = device_of(array)
    return array if place is None else place.backend.to_numpy(array)
