"""Lanes: paths from a GPU of one task to a GPU of another, without host memory.

A lane has one direction, and a thread at each end, the only one to use the communicator. It is
opened by the first transfer; until it is open, and if that fails,
arrays go through host memory. Announcements of arrays on a lane use the sender's ordinary
connection, so that duplicate, late and lost messages are handled as without lanes:
a message has the number of its arrays on the lane, and both ends process them in the order of
these numbers, independently. Announced arrays are always sent and
received, even if their run has been cancelled meanwhile. So both ends always match.

A kernel that waits for the other end can delay other work of its GPU, and calls that wait for
all of it, such as freeing memory. So the GPU with the higher name starts first, and
notifies the other, which starts then. The sender states which that is when it opens the lane. A
GPU therefore only waits for lower ones, and there is no cycle of waiting GPUs.
Both ends start the first byte of a lane, which connects them, without a notification.

With its connection a lane ends at both ends, and the next connection has new ones. A lane that
fails by itself stays closed: announced arrays are lost, which is reported to the client, as for
an ended connection; from then on arrays go through the hosts. A thread that waits for a task
that died while the two connected may wait for the lifetime of the process, blocking nothing.

The logic has run on an emulation of CuPy's NCCL, and on no GPU yet.
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
EAGER_LOOKS = 200  # polls without a pause; with pauses afterwards
PAUSE_SECONDS = 5e-5
NONE = "another kind of device"
_log = logging.getLogger("eagerflow.cluster")
Facts = dict[str, dict[str, Any]]
"""By type of device of a task: the library for lanes, and the devices' identities."""


def refused(own: Facts, other: Facts, source: Device, index: int) -> str:
    """Why two tasks have no lane between devices of the same type; "" if they can have one."""
    here, there = own.get(source.type), other.get(source.type)
    if here is None or there is None:
        return NONE
    if here["missing"] or there["missing"]:
        return str(here["missing"] or there["missing"])
    if here["library"] != there["library"]:
        return f"{here['library']} here, {there['library']} there"
    return "both are one GPU" if here["places"][source.index] == there["places"][index] else ""


class OnLane(NamedTuple):
    """An array to be sent over a lane: copied, so that the original may change."""

    lane: _SendingEnd
    staged: Any


class _LaneClosedError(Exception):
    """The lane has been closed."""


# A single lane -----------------------------------------------------------------------------------


class End:
    """One end of a lane; both ends exchange messages about it over its connection.

    ``leads`` says whether this end starts each transfer. ``failed`` is called with a
    message if the lane fails by itself, ``lost`` if the connection has ended.
    """

    sends = False

    def __init__(
        self,
        token: str,
        link: Connection,
        leads: bool,
        failed: Callable[[End, str], None],
        lost: Callable[[Connection], None],
    ) -> None:
        self.token, self.link = token, link
        self.is_open = False
        self.fate = ""
        """The reason for its end, "" while it is open."""
        self._leads, self._failed, self._lost = leads, failed, lost
        self._orders: dict[int, Any] = {}
        self._next = 1  # the number of the next transfer to start
        self._begun = 0  # the last transfer started by the other end, if that leads
        self._change = threading.Condition()

    def start(self, connect: Callable[[], Any]) -> None:
        """Connect with a call that returns the end of a communicator, and run transfers."""
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
                self._carry(end, self.taken())
        except _LaneClosedError:
            pass
        except raised_here(EOFError):
            self._lost(self.link)
        except raised_here(Exception) as error:  # an error of the library, or out of memory
            _log.debug("a lane has failed", exc_info=True)
            self._failed(self, f"{type(error).__name__}: {error}")
        finally:
            self.is_open = False
            if end is not None:
                end.abort()

    def taken(self) -> Any:
        """Wait for the next transfer that is requested and may start."""
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
        """Send the other end a message; EOFError if it is closed."""
        self.link.send(message | {"lane": self.token})

    def _begin(self, end: Any, order: Any) -> Callable[[], None]:
        """Start a transfer; returns a function to call at its end."""
        raise NotImplementedError

    def _wait(self, end: Any) -> None:
        """Return when the started work has ended."""
        looks = 0
        while not end.is_done():
            if self.fate:
                raise _LaneClosedError
            looks += 1
            time.sleep(0.0 if looks < EAGER_LOOKS else PAUSE_SECONDS)
        if self.fate:  # an aborted communicator ends its work, too
            raise _LaneClosedError

    def begun(self, number: int) -> None:
        """Note that the other end has started a transfer, and all before it."""
        with self._change:
            self._begun = max(self._begun, number)
            self._change.notify_all()

    def close(self, fate: str) -> bool:
        """End the lane, if it has not ended; returns whether data may be lost."""
        with self._change:
            lost = not self.fate and (self.is_open or bool(self._orders))
            self.fate, self.is_open = self.fate or fate, False
            self._orders.clear()
            self._change.notify_all()
            return lost


class _SendingEnd(End):
    """The sending end."""

    sends = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._last = 0
        self.sent_bytes = 0

    def announce(self, arrays: list[Any], link: Connection) -> int:
        """Send the staged arrays of a message over a connection; returns their number here."""
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


class ReceivingEnd(End):
    """The receiving end."""

    def expect(
        self, number: int, specs: Sequence[Any], call: Callable[[Sequence[Any]], None]
    ) -> bool:
        """Receive arrays of these shapes and dtypes, once, for a call; False if it is closed."""
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
    """The arrays of a message, some of them pending."""

    def __init__(self, arrays: list[Any], count: int, call: Callable[[list[Any]], None]) -> None:
        self._arrays, self._missing, self._call = arrays, count, call
        self._lock = threading.Lock()

    def put(self, positions: Sequence[int], arrays: Sequence[Any]) -> None:
        """Add the arrays received on one lane."""
        with self._lock:
            for at, array in zip(positions, arrays, strict=True):
                self._arrays[at] = array
            self._missing -= 1
            last = not self._missing
        if last:
            self._call(self._arrays)


# All lanes of a task -----------------------------------------------------------------------------


class Lanes:
    """The lanes of a task, ``name``, to and from others.

    ``broken`` is called with the name of a task and a message if a lane has failed.
    """

    def __init__(self, name: str, broken: Callable[[str, str], None]) -> None:
        self._name, self._broken = name, broken
        self.own: Facts = {}
        self.peers: dict[str, Facts] = {}
        self._out: dict[tuple[str, Device, int], _SendingEnd] = {}
        self._ends: dict[Connection, dict[str, End]] = {}
        """All ends of each open connection, including closed ones."""
        self._lock = threading.Lock()

    # Available libraries -----------------------------------------------------------------------

    def begin(self, counts: Mapping[str, int], machine: str, near: bool) -> Facts:
        """Find libraries for lanes, for the given number of devices of each type.

        ``near`` says that no other machine needs to reach this task.
        """
        if near:
            set_unless_said("NCCL_SOCKET_IFNAME", "lo")
        for kind, count in counts.items():
            try:
                backend = as_device(f"{kind}:0").backend
            except EagerflowError:
                continue  # reported to the user of such a device
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
        """Why no lane can go from a device to that of a task with an index; "" if one can."""
        why = refused(self.own, self.peers.get(peer, {}), source, index)
        found = self._out.get((peer, source, index))
        if why or found is None or not found.fate:
            return why
        return f"{self.own[source.type]['library']}: {found.fate}"

    def ways(self) -> list[tuple[str, str, str, str, int]]:
        """From each device to each of other tasks with a library: its name, or the reason against
        it, and the bytes sent.
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
        """An array staged for a lane; None if it must go through the host."""
        if not array.size:
            return None
        lane = self._out.get((link.peer, source, index)) or self._opened(link, source, index)
        if lane is None or not lane.is_open:
            return None
        return OnLane(lane, source.backend.peers.staged(array, dtype))

    def announced(self, link: Connection, arrays: Sequence[Any]) -> list[Any]:
        """Send the arrays of a message that use lanes; returns their announcements.

        TaskLostError if a lane has been closed.
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
        """A new lane, still to be opened."""
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
        """Handle a message about a lane from its other end."""
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
        """Open the receiving end of a new lane, at a device of this task."""
        lane = ReceivingEnd(token, link, leads, self._fail, self.lose)
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
        """Call a function with all arrays of a message, once those on lanes have arrived, too.

        False if one of these lanes is closed, so that they will never arrive.
        """
        for at in sorted(at for row in rows for at in row[2]):
            arrays.insert(at, None)
        gathering = _Gathering(arrays, len(rows), call)
        whole = True
        for token, number, positions, specs in rows:
            lane = self._ends.get(link, {}).get(token)
            wanted = [(tuple(shape), as_dtype(name)) for name, shape in specs]
            put = partial(gathering.put, positions)
            whole &= isinstance(lane, ReceivingEnd) and lane.expect(number, wanted, put)
        return whole

    # Closing -----------------------------------------------------------------------------------

    def _fail(self, lane: End, words: str) -> None:
        """Handle the failure of a lane: its pending arrays are lost, and it stays closed."""
        lost = lane.close(words)
        with suppress(EOFError):  # the connection has ended, which its thread notices
            lane.tell({"closed": words})
        if lost:
            self._broken(lane.link.peer, f"sends no more from GPU to GPU: {words}")

    def lose(self, link: Connection) -> None:
        """Handle the end of a connection: its lanes end, and others may be opened."""
        with self._lock:
            ends = self._ends.pop(link, {})
            self._out = {key: lane for key, lane in self._out.items() if lane.link is not link}
        for lane in ends.values():
            lane.close("the connection has ended")

    def close(self) -> None:
        """End all lanes."""
        for link in list(self._ends):
            self.lose(link)
