"""Parts: the work of each task of a cluster for a graph that was cut.

A part is data: its pieces as saved graphs, and a text that lists by numbers the values they read
and make, and the values to send and receive. A task makes a program of it, for the
executor of one machine; received values make its tasks ready, and no thread waits for them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eagerflow.capture.placement.cost_model import TYPICAL, shares_memory
from eagerflow.capture.placement.cutting import Cut, Division, Piece
from eagerflow.capture.placement.executor import FREE, Program, Task
from eagerflow.capture.placement.partition import piece_task
from eagerflow.capture.saving.file import decode, encode
from eagerflow.devices import Device, as_device
from eagerflow.dtypes import as_dtype
from eagerflow.graph.costs import nbytes
from eagerflow.graph.ir import Value
from eagerflow.handlers import raised_here
from eagerflow.op import Missing
from eagerflow.runtime import shared_memory

__all__ = ["LoadedPart", "Part", "load", "parts_of"]

INLINE_BYTES = 1 << 15  # larger values are not sent by the thread that has made them
BUCKET_BYTES = 4 << 20  # a message of several values takes no more from this size
QUICK_SECONDS = 3e-5  # of a piece that the thread of a connection may run itself
RUN = "run"
"""The entry of a part's program that is the run itself: messages carry its number."""


class Part(NamedTuple):
    """The work of one task, and its relation to the whole.

    ``feeds`` are the indices of the graph's inputs that it gets, ``variables`` those of the
    cells on it, ``finals`` those of the outputs that it returns, followed by the cells
    whose new values it also returns, ``assigned`` those of all cells that it assigns.
    ``text`` and ``arrays`` are sent to the task.
    """

    task: str
    text: dict[str, Any]
    arrays: list[Any]
    feeds: list[int]
    variables: list[int]
    finals: list[int]
    assigned: list[int]
    hash: str


class _Making:
    """A part under construction."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.arrays: list[Any] = []
        self.positions: dict[str, list[int]] = {
            name: [] for name in ("feeds", "variables", "finals", "assigned")
        }
        self.rows: dict[str, list[Any]] = {
            name: []
            for name in (
                "pieces",
                "moves",
                "constants",
                "sends",
                "receives",
                *self.positions,
            )
        }

    def made(self) -> Part:
        """The part, with a hash of all data sent to the task."""
        data = hashlib.blake2b(json.dumps(self.rows, sort_keys=True).encode())
        for array in self.arrays:
            data.update(f"{array.dtype} {array.shape}".encode())
            data.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return Part(self.task, self.rows, self.arrays, **self.positions, hash=data.hexdigest())


@dataclass
class _Bucket:
    """Values sent as one message: as named at the one end, and at the other."""

    sent: list[Any]
    received: list[Any]
    bytes: int = 0


class _Dividing:
    """Converts a graph in pieces to parts."""

    def __init__(
        self,
        division: Division,
        devices: Sequence[Device],
        transfer: str | None,
        following: Collection[int],
    ) -> None:
        self.division, self.devices, self.transfer = division, devices, transfer
        self.following = following
        self.places = {str(d): d for d in devices}
        self.made = {d.task: _Making(d.task) for d in devices}
        self.numbers: dict[Value, int] = {}
        graph = division.graph
        self.fed = {v: i for i, v in enumerate(graph.inputs)}
        self.makers = {v: p.number for p in division.pieces for v in p.graph.outputs}
        self.published = {v for p in division.pieces for v in p.published}
        self.buckets: dict[Any, _Bucket] = {}
        self.read = {v for p in division.pieces for v in p.graph.inputs}
        self.assigned = [cell.assigned for cell in graph.cells if cell.assigned is not None]
        self.returned: dict[Value, Value] = {}  # by received value to return: the sent value

    def number(self, value: Value) -> int:
        """A value's number, the same in all parts."""
        return self.numbers.setdefault(value, len(self.numbers))

    def device(self, value: Value) -> Device:
        """The device of a value."""
        return self.devices[self.division.places[value]]

    def parts(self) -> list[Part]:
        """The parts of all tasks with work."""
        graph = self.division.graph
        for piece in self.division.pieces:
            self._piece(piece)
        for i, cut in self._in_order_of_making():
            self._cut(i, cut.given, cut.arrived, self.places[cut.source], self.places[cut.target])
        needed = {*self.read, *graph.all_outputs(), *self.returned.values()}
        for i, value in enumerate(graph.inputs):
            if value in needed:
                self._entry("feeds", i, value, self.device(value))
        for i, cell in enumerate(graph.cells):
            own = self.device(cell.value)
            self._entry("variables", i, cell.value, own)
            if cell.assigned is not None:
                self._final("assigned", i, cell.assigned, own)
                if i in self.following:
                    self._final("finals", len(graph.outputs) + i, cell.assigned, own)
        for i, value in enumerate(graph.outputs):
            if value.constant is None:
                sent = self.returned.get(value, value)
                self._final("finals", i, sent, self.device(sent))
        busy = [m for m in self.made.values() if m.rows["pieces"] or any(m.positions.values())]
        return [making.made() for making in busy]

    def _in_order_of_making(self) -> list[tuple[int, Cut]]:
        """The cuts with their numbers: messages hold values made consecutively."""
        made = [v for p in self.division.pieces for v in p.graph.outputs]
        order = {v: i for i, v in enumerate(made)}
        cuts = enumerate(self.division.cuts)
        return sorted(cuts, key=lambda numbered: order.get(numbered[1].given, -1))

    def _piece(self, piece: Piece) -> None:
        making = self.made[piece.device.task]
        making.arrays.append(np.frombuffer(encode(piece.graph), np.uint8))
        making.rows["pieces"].append(
            [
                piece.number,
                str(piece.device),
                piece.exact,
                piece.alone,
                piece.late,
                piece.priority,
                [self.number(v) for v in piece.graph.inputs],
                [self.number(v) for v in piece.graph.outputs],
                [self.number(v) for v in piece.published],
            ]
        )

    def _cut(self, i: int, given: Value, arrived: Value, source: Device, target: Device) -> None:
        """Handle a value that crosses devices: within a task, between tasks, or with the client."""
        if arrived not in self.read and arrived not in self.assigned:
            self.returned[arrived] = given  # the client gets it from its own device
            return
        if given in self.fed:
            self._entry("feeds", self.fed[given], arrived, target)
            return
        ends = [self.number(given), self.number(arrived)]
        if source.task == target.task:
            self.made[source.task].rows["moves"].append([*ends, str(source), str(target)])
            return
        dtype = given.dtype.name
        sent_as = self.transfer if self.transfer and dtype == "float32" else dtype
        bucket = self._bucket(i, given, source.task, target.task)
        bucket.sent.append([ends[0], str(source), sent_as, target.type, target.index])
        bucket.received.append([ends[1], str(target), dtype])

    def _bucket(self, i: int, value: Value, source: str, target: str) -> _Bucket:
        """The message of a value: that of other values of its piece, while it has space."""
        size, maker = nbytes(value), self.makers.get(value)
        small = size <= INLINE_BYTES
        early = value in self.published
        key = source, target, maker, small, early
        found = self.buckets.get(key)
        alone = early if small else maker is None  # small values leave early to arrive early
        if found is None or found.bytes >= BUCKET_BYTES or alone:
            found = self.buckets[key] = _Bucket([], [])
            inline = small and not early
            self.made[source].rows["sends"].append([i, target, inline, found.sent])
            self.made[target].rows["receives"].append([i, found.received])
        found.bytes += size
        return found

    def _entry(self, kind: str, position: int, value: Value, place: Device) -> None:
        making = self.made[place.task]
        making.positions[kind].append(position)
        making.rows[kind].append([self.number(value), str(place)])

    def _final(self, kind: str, position: int, value: Value, place: Device) -> None:
        making = self.made[place.task]
        making.positions[kind].append(position)
        making.rows[kind].append(self.number(value))
        known = {number for number, _ in making.rows["constants"]}
        if value.constant is not None and self.number(value) not in known:
            making.rows["constants"].append([self.number(value), str(place)])
            making.arrays.append(value.constant.numpy())


def parts_of(
    division: Division,
    devices: Sequence[Device],
    transfer: str | None = None,
    following: Collection[int] = (),
) -> list[Part]:
    """The parts of a graph in pieces; ``transfer`` is the dtype in which float32 is sent.

    The new values of the cells at the positions ``following`` are returned to the client.
    """
    return _Dividing(division, devices, transfer, following).parts()


# In a task ---------------------------------------------------------------------------------------


class Receive(NamedTuple):
    """A message from another task: its number, and its values with their dtypes."""

    number: int
    values: list[tuple[Any, Any]]


class LoadedPart(NamedTuple):
    """A part as the program run by a task."""

    program: Program
    receives: list[Receive]
    constants: list[Any]
    finals: list[Any]
    assigned: list[Any]


class _Loading:
    """Converts a part to a program."""

    def __init__(
        self, text: Mapping[str, Any], arrays: Sequence[Any], is_near: Callable[[str], bool]
    ) -> None:
        self.text, self.is_near = text, is_near
        count = len(text["pieces"])
        self.graphs, self.constants = arrays[:count], arrays[count:]
        self.tasks: list[Task] = []
        self.entries: list[Any] = [RUN]
        self.same: dict[Any, Any] = {}  # by moved value: the value with its memory
        self.published = {x for *_, own in text["pieces"] for x in own}
        self.sent = {x for *_, rows in text["sends"] for x, *_ in rows}

    def find(self, value: Any) -> Any:
        """The value that owns the memory of a value."""
        while value in self.same:
            value = self.same[value]
        return value

    def loaded(self) -> LoadedPart:
        """The program, with the data it needs for a run."""
        text = self.text
        for given, arrived, source, target in text["moves"]:
            self._move(given, arrived, as_device(source), as_device(target))
        for value, place in (*text["feeds"], *text["variables"]):
            self.entries.append(self._landing(value, as_device(place)))
        constants = []
        for (value, place), array in zip(text["constants"], self.constants, strict=True):
            self.entries.append(value)
            constants.append(_received(as_device(place), [array])[0])
        receives = [
            Receive(
                number,
                [(self._landing(v, as_device(place)), as_dtype(dtype)) for v, place, dtype in rows],
            )
            for number, rows in text["receives"]
        ]
        sends: dict[Any, list[Send]] = {}
        for number, peer, inline, rows in text["sends"]:
            values = [self.find(value) for value, *_ in rows]
            ends = [_sent_from(*row) for _, *row in rows]
            # A message about data read in place is sent faster than another thread is woken.
            inline = inline or (self.is_near(peer) and all(end.place.backend.host for end in ends))
            sends.setdefault(values[0], []).append(Send(number, peer, inline, values, ends))
        for row, data in zip(text["pieces"], self.graphs, strict=True):
            self._piece(row, data, sends)
        for rest in sends.values():
            for one in rest:
                place = one.ends[0].place
                self._transfer("send", partial(_send, one), (RUN, *one.values), (), place)
        finals = [self.find(x) for x in text["finals"]]
        assigned = [self.find(x) for x in text["assigned"]]
        program = Program(
            self.tasks,
            self.entries,
            [*finals, *assigned],
            [value for one in receives for value, _ in one.values],
        )
        return LoadedPart(program, receives, constants, finals, assigned)

    def _move(self, given: Any, arrived: Any, source: Device, target: Device) -> None:
        if shares_memory(source, target):
            self.same[arrived] = given
        else:
            self._transfer("move", partial(_received, target), (given,), (arrived,), target)

    def _transfer(self, label: str, call: Any, given: Any, made: Any, place: Device) -> None:
        task = Task(label, place, call, given, made, FREE, float("inf"), transfer=True)
        self.tasks.append(task)

    def _landing(self, value: Any, place: Device) -> Any:
        """The value under which an external one arrives: in host memory first."""
        if place.backend.host:
            return value
        landing = f"{value} on the host"
        self._transfer("receive", partial(_received, place), (landing,), (value,), place)
        return landing

    def _piece(self, row: Sequence[Any], data: Any, sends: dict[Any, list[Send]]) -> None:
        number, place, exact, alone, late, priority, inputs, outputs, published = row
        graph = decode(bytes(data))
        nodes = list(graph.nodes)
        piece = Piece(number, as_device(place), exact, alone, late, nodes, priority=priority)
        piece.graph = graph
        values = dict(zip(outputs, graph.outputs, strict=True))
        piece.published = tuple([values[x] for x in published])
        sent = [v for x, v in values.items() if x in self.sent]
        large = [v for v in sent if nbytes(v) >= shared_memory.MIN_BYTES]
        piece.memory = dict.fromkeys(large, shared_memory.empty)
        task = piece_task(piece, tuple([self.find(x) for x in inputs]), tuple(outputs))
        made = (*task.outputs, *task.published)
        own = [one for x in made for one in sends.get(x, ()) if one.inline]
        # Threads that receive messages send none to tasks: they could block each other. And work
        # that waits for a part of another piece is not run there.
        held_up = alone or own or published or not self.published.isdisjoint(task.inputs)
        task.quick = not held_up and _is_quick(piece)
        if own:
            early = [one for one in own if one.values[0] in task.published]
            late = [one for one in own if one.values[0] not in task.published]
            at_end, on_the_way = _places(late, task.outputs), _places(early, task.published)
            task.call = partial(_run_and_send, task.call, at_end, on_the_way)
            task.inputs = (*task.inputs, RUN)
            for one in own:
                sends[one.values[0]].remove(one)
        self.tasks.append(task)


def _is_quick(piece: Piece) -> bool:
    """Whether a piece is certainly short: its work is known by its sizes, and small."""
    known = all(n.op.views or not isinstance(n.op.scalar, Missing) for n in piece.nodes)
    return known and piece.seconds(TYPICAL) < QUICK_SECONDS


class SentFrom(NamedTuple):
    """How a value is sent: from which device and as which dtype, and the index of the ``target`` if
    that is a device of the same type, which may be reachable without host memory.
    """

    place: Device
    dtype: Any
    target: int | None


def _sent_from(source: str, dtype: str, kind: str, index: int) -> SentFrom:
    place = as_device(source)
    alike = place.backend.peers is not None and place.type == kind
    return SentFrom(place, as_dtype(dtype), index if alike else None)


class Send(NamedTuple):
    """A message to another task: its number, its values, and how each of them is sent."""

    number: int
    peer: str
    inline: bool
    values: list[Any]
    ends: list[SentFrom]


_Placed = list[tuple[Send, list[int]]]
"""Messages, with the indices of their values among a piece's results."""


def _places(sends: Iterable[Send], values: Sequence[Any]) -> _Placed:
    at = {x: i for i, x in enumerate(values)}
    return [(one, [at[x] for x in one.values]) for one in sends]


def _run_and_send(
    call: Callable[..., Any], at_end: _Placed, on_the_way: _Placed, given: Sequence[Any]
) -> Sequence[Any]:
    """Run a piece, and send its results: as soon as they are published, or at its end."""
    *arrays, run = given
    failed: list[Exception] = []
    if on_the_way:
        arrays[0] = partial(_publish_and_send, arrays[0], run, on_the_way, {}, failed)
    found: Sequence[Any] = call(arrays)
    if failed:
        raise failed[0]
    for one, places in at_end:
        _send(one, (run, *[found[i] for i in places]))
    return found


def _publish_and_send(
    publish: Callable[[int, Any], None],
    run: Any,
    sends: _Placed,
    made: dict[int, Any],
    failed: list[Exception],
    position: int,
    array: Any,
) -> None:
    """Send the messages completed by this value; an error is not that of its op."""
    made[position] = array
    for one, places in sends:
        if position in places and all(i in made for i in places):
            try:
                _send(one, (run, *[made[i] for i in places]))
            except raised_here(Exception) as error:
                failed.append(error)
    publish(position, array)


def _send(one: Send, given: Sequence[Any]) -> tuple[Any, ...]:
    run, *arrays = given
    sent = [_as_sent(run, one.peer, x, end) for x, end in zip(arrays, one.ends, strict=True)]
    run.send(one.peer, one.number, sent)
    return ()


def _as_sent(run: Any, peer: str, array: Any, end: SentFrom) -> Any:
    if end.target is not None:
        found = run.past_host(peer, end.place, end.target, array, end.dtype)
        if found is not None:
            return found
    found = end.place.backend.to_numpy(array)
    return found if found.dtype == end.dtype else found.astype(end.dtype)


def _received(place: Device, arrays: Sequence[Any]) -> list[Any]:
    """Copies of arrays on a device."""
    return [place.backend.receive(x, place.index) for x in arrays]


def load(
    text: Mapping[str, Any], arrays: Sequence[Any], is_near: Callable[[str], bool]
) -> LoadedPart:
    """A part as a program; FileFormatError for an invalid saved graph.

    ``is_near`` says whether a task shares memory with this one.
    """
    return _Loading(text, arrays, is_near).loaded()
