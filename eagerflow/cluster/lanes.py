"""Lanes: ways from a GPU of one task to a GPU of another, past the memory of the hosts.

A lane goes one way, and has at each end a thread, which alone touches the communicator. It is
opened when something is to be sent for the first time; until it is open, and where it cannot be,
arrays go as those of the host. What tells of arrays on a lane goes over the connection over which
the sender sends all else, so that double, late and lost messages are what they are without lanes:
a message has the number that its arrays have on the lane, and both ends take them in the order of
these numbers, each for itself. What has been announced is sent, and what has been announced is
received, also when its run has been cancelled meanwhile. So each of two ends finds the other one.

A kernel that waits for its other end can hold up what else its GPU does, and calls that wait for
all of it, as freeing memory does. So of two GPUs the one with the higher name begins first, and
tells; the other begins then. The sender says which that is when it opens the lane. A GPU therefore
waits for lower ones alone, and there can be no ring of GPUs of which each waits for the next one.
The first byte of a lane, with which both ends connect, both begin unasked.

With its connection a lane ends at both ends, and the next connection has new ones. A lane that
fails by itself stays closed: what was announced on it is lost, which the client is told, as where a
connection has ended; from then on arrays go by way of the hosts. A thread that waits for a task
that has died while the two connected may wait as long as the process lives, and nothing for it.

The logic has run on a look-alike of CuPy's NCCL, and on no GPU yet.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from eagerflow.cluster.connections import Connection
from eagerflow.devices import Device, as_device
from eagerflow.dtypes import as_dtype
from eagerflow.errors import EagerflowError, TaskLostError
from eagerflow.handlers import raised_here, suppress
from eagerflow.settings import set_unless_said, switched_off

__all__ = ["SETTING", "Facts", "Lanes", "OnLane", "refused"]

SETTING = "EAGERFLOW_NCCL"
EAGER_LOOKS = 200  # whether something is over, one right after the other; then with pauses
PAUSE_SECONDS = 5e-5
NONE = "another kind of device"
_log = logging.getLogger("eagerflow.cluster")
Facts = dict[str, dict[str, Any]]
"""Of the types of devices of a task: the library that goes past the host, and where they are."""


def refused(own: Facts, other: Facts, source: Device, index: int) -> str:
    """Why two tasks have no lane from a device to one of the same type; "" where they may."""
    here, there = own.get(source.type), other.get(source.type)
    if here is None or there is None:
        return NONE
    if here["missing"] or there["missing"]:
        return str(here["missing"] or there["missing"])
    if here["library"] != there["library"]:
        return f"{here['library']} here, {there['library']} there"
    return "both are one GPU" if here["places"][source.index] == there["places"][index] else ""


class OnLane(NamedTuple):
    """An array that goes over a lane: staged, so that the original may change."""

    lane: _SendingEnd
    staged: Any


class _LaneClosedError(Exception):
    """The lane has been closed."""


# One lane ----------------------------------------------------------------------------------------


class _End:
    """One end of a lane, over whose connection both ends tell what they do.

    ``leads`` says whether this end begins each transfer. ``failed`` is called with what has
    happened where the lane fails by itself, ``lost`` where the connection has ended.
    """

    sends = False

    def __init__(
        self,
        token: str,
        link: Connection,
        leads: bool,
        failed: Callable[[_End, str], None],
        lost: Callable[[Connection], None],
    ) -> None:
        self.token, self.link = token, link
        self.is_open = False
        self.fate = ""
        """Why it has been closed, "" while it has not."""
        self._leads, self._failed, self._lost = leads, failed, lost
        self._orders: dict[int, Any] = {}
        self._next = 1  # the number of the transfer that is the next one to begin
        self._begun = 0  # the last one that the other end has begun, where it leads
        self._change = threading.Condition()

    def start(self, connect: Callable[[], Any]) -> None:
        """Connect by a call that returns the end of a communicator, and carry what is ordered."""
        name = f"eagerflow lane with {self.link.peer}"
        threading.Thread(target=self._serve, args=(connect,), name=name, daemon=True).start()

    def _serve(self, connect: Callable[[], Any]) -> None:
        end = None
        try:
            end = connect()
            end.meet(self.sends)
            self._wait(end)
            with self._change:
                self.is_open = not self.fate
            while True:
                self._carry(end, self._taken())
        except _LaneClosedError:
            pass
        except raised_here(EOFError):
            self._lost(self.link)
        except raised_here(Exception) as error:  # of the library, or no memory
            _log.debug("a lane has failed", exc_info=True)
            self._failed(self, f"{type(error).__name__}: {error}")
        finally:
            self.is_open = False
            if end is not None:
                end.abort()

    def _taken(self) -> Any:
        """The next order, when it is there and may begin."""
        with self._change:
            while not self.fate:
                number = self._next
                if number in self._orders and (self._leads or self._begun >= number):
                    self._next += 1
                    return self._orders.pop(number)
                self._change.wait()
        raise _LaneClosedError

    def _carry(self, end: Any, order: Any) -> None:
        number = self._next - 1
        done = self._begin(end, order)
        if self._leads:
            self.tell({"begun": number})
        self._wait(end)
        done()

    def tell(self, message: dict[str, Any]) -> None:
        """Tell the other end; EOFError where it has gone."""
        self.link.send(message | {"lane": self.token})

    def _begin(self, end: Any, order: Any) -> Callable[[], None]:
        """Begin a transfer; what to call when it is over."""
        raise NotImplementedError

    def _wait(self, end: Any) -> None:
        """Return when what was begun is over."""
        looks = 0
        while not end.is_done():
            if self.fate:
                raise _LaneClosedError
            looks += 1
            time.sleep(0.0 if looks < EAGER_LOOKS else PAUSE_SECONDS)
        if self.fate:  # a communicator that was aborted ends what it does, too
            raise _LaneClosedError

    def begun(self, number: int) -> None:
        """The other end has begun a transfer, and all before it."""
        with self._change:
            self._begun = max(self._begun, number)
            self._change.notify_all()

    def close(self, fate: str) -> bool:
        """End the lane, if it has not ended; whether something may be lost so."""
        with self._change:
            lost = not self.fate and (self.is_open or bool(self._orders))
            self.fate, self.is_open = self.fate or fate, False
            self._orders.clear()
            self._change.notify_all()
            return lost


class _SendingEnd(_End):
    """The end at which arrays go in."""

    sends = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._last = 0
        self.sent_bytes = 0

    def announce(self, arrays: list[Any], link: Connection) -> int:
        """Send arrays, which are staged, of a message over a connection; their number here."""
        with self._change:
            fate = self.fate or ("" if link is self.link else "the connection was replaced")
            if fate:
                raise TaskLostError(f"the way to {link.peer} has failed", received=fate)
            self._last += 1
            self._orders[self._last] = arrays
            self.sent_bytes += sum(x.array.size * x.array.dtype.itemsize for x in arrays)
            self._change.notify_all()
            return self._last

    def _begin(self, end: Any, order: Any) -> Callable[[], None]:
        end.send(order)
        return lambda: None


class _ReceivingEnd(_End):
    """The end at which arrays come out."""

    def expect(
        self, number: int, specs: Sequence[Any], call: Callable[[Sequence[Any]], None]
    ) -> bool:
        """Receive arrays of these shapes and dtypes, once, for a call; False where it is closed."""
        with self._change:
            if not self.fate and number >= self._next:
                self._orders.setdefault(number, (specs, call))
                self._change.notify_all()
            return not self.fate

    def _begin(self, end: Any, order: Any) -> Callable[[], None]:
        specs, call = order
        arrays = end.receive(specs)
        return lambda: call(arrays)


class _Gathering:
    """The arrays of a message, of which some are still to come."""

    def __init__(self, arrays: list[Any], count: int, call: Callable[[list[Any]], None]) -> None:
        self._arrays, self._missing, self._call = arrays, count, call
        self._lock = threading.Lock()

    def put(self, positions: Sequence[int], arrays: Sequence[Any]) -> None:
        """Those of one lane are there."""
        with self._lock:
            for at, array in zip(positions, arrays, strict=True):
                self._arrays[at] = array
            self._missing -= 1
            last = not self._missing
        if last:
            self._call(self._arrays)


# All lanes of a task -----------------------------------------------------------------------------


class Lanes:
    """The lanes of a task, ``name``, with others.

    ``broken`` is called with the name of a task and what has happened where a lane has failed.
    """

    def __init__(self, name: str, broken: Callable[[str, str], None]) -> None:
        self._name, self._broken = name, broken
        self.own: Facts = {}
        self.peers: dict[str, Facts] = {}
        self._out: dict[tuple[str, Device, int], _SendingEnd] = {}
        self._ends: dict[Connection, dict[str, _End]] = {}
        """All ends of each connection that has not ended, also closed ones."""
        self._lock = threading.Lock()

    # What there is -----------------------------------------------------------------------------

    def begin(self, counts: Mapping[str, int], machine: str, near: bool) -> Facts:
        """Look for libraries that go past the host, for so many devices of each type.

        ``near`` says that no other machine is to reach this task.
        """
        if near:
            set_unless_said("NCCL_SOCKET_IFNAME", "lo")
        for kind, count in counts.items():
            try:
                backend = as_device(f"{kind}:0").backend
            except EagerflowError:
                continue  # the user of such a device is told
            if backend.peers is None:
                continue
            missing = backend.peers.missing
            if switched_off(SETTING):
                missing = f"{SETTING} is off in {self._name}"
            places = (
                [] if missing else [f"{machine} {backend.peers.place(i)}" for i in range(count)]
            )
            self.own[kind] = {
                "count": count,
                "library": backend.peers.version,
                "missing": missing,
                "places": places,
            }
        return self.own

    def refusal(self, peer: str, source: Device, index: int) -> str:
        """Why no lane can go from a device to that of a task with an index; "" where one can."""
        why = refused(self.own, self.peers.get(peer, {}), source, index)
        found = self._out.get((peer, source, index))
        if why or found is None or not found.fate:
            return why
        return f"{self.own[source.type]['library']}: {found.fate}"

    def ways(self) -> list[tuple[str, str, str, str, int]]:
        """From each device to each of other tasks that has a library: its name, or why not, and
        the bytes that have gone.
        """
        rows = []
        others = {peer: facts for peer, facts in self.peers.items() if peer != self._name}
        for kind, own in self.own.items():
            for peer, facts in others.items():
                for i in range(own["count"]):
                    source = as_device(f"{self._name}/device:{kind}:{i}")
                    for j in range(facts.get(kind, {}).get("count", 0)):
                        why = self.refusal(peer, source, j)
                        lane = self._out.get((peer, source, j))
                        ends = str(source), f"{peer}/device:{kind}:{j}"
                        sent = 0 if lane is None else lane.sent_bytes
                        rows.append((*ends, "" if why else own["library"], why, sent))
        return rows

    @property
    def traffic(self) -> dict[str, int]:
        """Bytes sent over lanes to each task."""
        found: dict[str, int] = {}
        for (peer, _, _), lane in list(self._out.items()):
            found[peer] = found.get(peer, 0) + lane.sent_bytes
        return found

    # Sending -----------------------------------------------------------------------------------

    def staged(
        self, link: Connection, source: Device, index: int, array: Any, dtype: Any
    ) -> OnLane | None:
        """An array on its way over a lane; None where it is to go by way of the host."""
        if not array.size:
            return None
        lane = self._out.get((link.peer, source, index)) or self._opened(link, source, index)
        if lane is None or not lane.is_open:
            return None
        return OnLane(lane, source.backend.peers.staged(array, dtype))

    def announced(self, link: Connection, arrays: Sequence[Any]) -> list[Any]:
        """Send those of a message's arrays that go over lanes; what tells of them.

        TaskLostError where a lane has been closed.
        """
        found: dict[_SendingEnd, list[int]] = {}
        for at, one in enumerate(arrays):
            if isinstance(one, OnLane):
                found.setdefault(one.lane, []).append(at)
        rows = []
        for lane, positions in found.items():
            staged = [arrays[at].staged for at in positions]
            specs = [[x.array.dtype.name, x.array.shape] for x in staged]
            rows.append([lane.token, lane.announce(staged, link), positions, specs])
        return rows

    def _opened(self, link: Connection, source: Device, index: int) -> _SendingEnd | None:
        """A new lane, which is not open yet."""
        if self.refusal(link.peer, source, index):
            return None
        key = link.peer, source, index
        own, other = self.own[source.type], self.peers[link.peer][source.type]
        leads = own["places"][source.index] > other["places"][index]
        lane = _SendingEnd(secrets.token_hex(16), link, leads, self._fail, self.lose)
        with self._lock:
            if self._out.setdefault(key, lane) is not lane:
                return None
            self._ends.setdefault(link, {})[lane.token] = lane

        def connect() -> Any:
            library = source.backend.peers
            unique_id = library.unique_id()
            lane.tell({"open": [source.type, index, not leads, unique_id.hex()]})
            return library.end(source.index, unique_id, 0)

        lane.start(connect)
        return lane

    # Receiving ---------------------------------------------------------------------------------

    def handle(self, link: Connection, message: dict[str, Any]) -> None:
        """What the other end of a lane says over its connection."""
        token = message["lane"]
        lane = self._ends.get(link, {}).get(token)
        if "open" in message and lane is None:
            self._open(link, token, *message["open"])
        elif "begun" in message and lane is not None:
            lane.begun(message["begun"])
        elif "closed" in message and lane is not None:
            lane.close(message["closed"])

    def _open(
        self, link: Connection, token: str, kind: str, own: int, leads: bool, key: str
    ) -> None:
        """Be the other end of a new lane, at a device of this task."""
        lane = _ReceivingEnd(token, link, leads, self._fail, self.lose)
        with self._lock:
            self._ends.setdefault(link, {})[token] = lane
        library = as_device(f"{self._name}/device:{kind}:{own}").backend.peers
        lane.start(lambda: library.end(own, bytes.fromhex(key), 1))

    def expect(
        self,
        link: Connection,
        rows: Sequence[Any],
        arrays: list[Any],
        call: Callable[[list[Any]], None],
    ) -> bool:
        """Call a function with all arrays of a message, when those of lanes are there, too.

        False where one of these lanes is closed, so that they will never be.
        """
        for at in sorted(at for row in rows for at in row[2]):
            arrays.insert(at, None)
        gathering = _Gathering(arrays, len(rows), call)
        whole = True
        for token, number, positions, specs in rows:
            lane = self._ends.get(link, {}).get(token)
            wanted = [(tuple(shape), as_dtype(name)) for name, shape in specs]
            put = partial(gathering.put, positions)
            whole &= isinstance(lane, _ReceivingEnd) and lane.expect(number, wanted, put)
        return whole

    # The end -----------------------------------------------------------------------------------

    def _fail(self, lane: _End, words: str) -> None:
        """A lane has failed by itself: what it was to carry is lost, and it stays closed."""
        lost = lane.close(words)
        with suppress(EOFError):  # the connection has ended, which its thread notices
            lane.tell({"closed": words})
        if lost:
            self._broken(lane.link.peer, f"sends no more from GPU to GPU: {words}")

    def lose(self, link: Connection) -> None:
        """A connection has ended: its lanes end, and others may be opened."""
        with self._lock:
            ends = self._ends.pop(link, {})
            self._out = {key: lane for key, lane in self._out.items() if lane.link is not link}
        for lane in ends.values():
            lane.close("the connection has ended")

    def close(self) -> None:
        """End all lanes."""
        for link in list(self._ends):
            self.lose(link)
