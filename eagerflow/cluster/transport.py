"""Transport: arrays between tasks, by keys.

A key is a tuple that begins with the number of a run. A message that arrives before it is expected
is kept; a duplicate, or one that arrives after its run has ended, is dropped: a network may delay
and duplicate messages. A receiver passes a function that is called with the arrays, in the thread
of the connection, so it must be fast.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from eagerflow.cluster.connections import Connection, connect, is_near
from eagerflow.cluster.lanes import Lanes, OnLane
from eagerflow.devices import Device
from eagerflow.errors import TaskLostError
from eagerflow.handlers import raised_here

__all__ = ["Key", "Transport"]

PING = 0
"""In place of a run's number: the rest of the key is the requesting task and the key of the
answer, which is sent at once. Negative numbers belong to such questions."""
Key = tuple[Any, ...]
"""The number of a run, and an identifier of its message: integers and texts."""
Arrived = Callable[[list[Any]], None]


class Transport:
    """A task's messages to and from other tasks.

    ``peers`` are the addresses of tasks by their names. Arrays from the same machine
    are in memory of the sender: they must be dropped soon or copied.
    ``broken`` is called with the name of a task and a reason if a connection to it has
    ended by itself: it is unknown how much of the sent data has arrived.
    """

    def __init__(
        self, name: str, token: bytes, broken: Callable[[str, str], None] = lambda peer, fate: None
    ) -> None:
        self.name = name
        self._broken = broken
        self.lanes = Lanes(name, broken)
        self.peers: dict[str, dict[str, Any]] = {}
        self._token = token
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._links: dict[str, Connection] = {}
        self._taken_in: list[Connection] = []
        self._waiting: dict[int, dict[Key, Arrived]] = {}
        self._early: dict[int, dict[Key, list[Any]]] = {}
        self._seen: dict[int, set[Key]] = {}
        self._oldest = 0  # earlier runs have ended
        self._ended: set[int] = set()  # later runs that have ended

    # Sending ---------------------------------------------------------------------------------

    def send(self, peer: str, key: Key, arrays: Sequence[Any]) -> None:
        """Send arrays to a task, which may be this one; TaskLostError if it is lost.

        They may be changed as soon as this returns. Results of ``past_host`` go over lanes.
        """
        if peer == self.name:
            self.arrived(key, [x.copy() for x in arrays])
            return
        message: dict[str, Any] = {"key": key}
        link = self._reached(peer)
        if any(isinstance(x, OnLane) for x in arrays):
            message["lanes"] = self.lanes.announced(link, arrays)
            arrays = [x for x in arrays if not isinstance(x, OnLane)]
        try:
            link.send(message, arrays)
        except raised_here(EOFError):
            raise self._gone(peer) from None

    def is_near(self, peer: str) -> bool:
        """Whether another task reads sent arrays in place."""
        return peer != self.name and is_near(self.peers.get(peer, {}))

    def past_host(self, peer: str, place: Device, index: int, array: Any, dtype: Any) -> Any:
        """An array of a device, prepared for a transfer to a device of another task without host
        memory; None if that is impossible, or not yet possible.
        """
        return self.lanes.staged(self._reached(peer), place, index, array, dtype)

    def _reached(self, peer: str) -> Connection:
        try:
            return self._link(peer)
        except raised_here(EOFError, KeyError):
            raise self._gone(peer) from None

    def _gone(self, peer: str) -> TaskLostError:
        return TaskLostError(f"{peer} has gone while {self.name} was sending to it")

    def _link(self, peer: str) -> Connection:
        found = self._links.get(peer)
        if found is None or not found.is_open:
            with self._opening:
                found = self._links.get(peer)
                if found is None or not found.is_open:
                    found = connect(self.peers[peer], self._token, self.name, peer)
                    found.start(self._answered, self._closed)
                    self._links[peer] = found
        return found

    def _answered(self, link: Connection, message: dict[str, Any], arrays: list[Any]) -> None:
        """Handle a peer's message on our connection, about lanes; others use a separate one."""
        self.lanes.handle(link, message)

    def _closed(self, link: Connection) -> None:
        self.lanes.lose(link)
        with self._opening:
            broken = self._links.get(link.peer) is link
            if broken:
                del self._links[link.peer]
        if broken:
            self._broken(link.peer, link.fate)

    @property
    def links(self) -> list[Connection]:
        """The connections used for sending."""
        return list(self._links.values())

    def move(self, peers: dict[str, dict[str, Any]]) -> None:
        """Set the tasks and their addresses."""
        old, self.peers = self.peers, peers
        for peer, link in list(self._links.items()):
            if old.get(peer) != peers.get(peer):
                self._links.pop(peer, None)
                link.close()

    # Receiving -------------------------------------------------------------------------------

    def accept(self, connection: Connection) -> None:
        """Receive messages from a task that has connected."""
        self._taken_in.append(connection)
        connection.start(self._handle, self._left)

    def _left(self, link: Connection) -> None:
        self._taken_in.remove(link)
        self.lanes.lose(link)

    def _handle(self, link: Connection, message: dict[str, Any], arrays: list[Any]) -> None:
        if "lane" in message:
            self.lanes.handle(link, message)
            return
        key = tuple(message["key"])
        call = partial(self.arrived, key)
        if "lanes" not in message:
            call(arrays)
        elif not (self.lanes.expect(link, message["lanes"], arrays, call) or self._is_over(key[0])):
            self._broken(link.peer, "has sent over a lane that is closed")

    def arrived(self, key: Key, arrays: list[Any]) -> None:
        """Pass arrays to the pending receiver, or keep them for a later one."""
        run = key[0]
        if run == PING:
            self.send(key[1], key[2:], [])
            return
        with self._lock:
            if self._is_over(run) or key in self._seen.setdefault(run, set()):
                return
            self._seen[run].add(key)
            call = self._waiting.get(run, {}).pop(key, None)
            if call is None:
                self._early.setdefault(run, {})[key] = arrays
        if call is not None:
            call(arrays)

    def receive(self, key: Key, call: Arrived) -> None:
        """Call a function once with the arrays of a key: now, or when they arrive.

        It is not called after the run has been forgotten.
        """
        run = key[0]
        with self._lock:
            arrays = self._early.get(run, {}).pop(key, None)
            if arrays is None:
                self._waiting.setdefault(run, {})[key] = call
        if arrays is not None:
            call(arrays)

    def forget(self, run: int) -> None:
        """Mark a run as ended: its later messages are dropped."""
        with self._lock:
            if run > 0:
                self._ended.add(run)
            self._drop(run)

    def forget_before(self, run: int) -> None:
        """Mark all runs before this one as ended."""
        with self._lock:
            if run <= self._oldest:
                return
            self._oldest = run
            self._ended = {r for r in self._ended if r >= run}
            for old in [r for r in (*self._seen, *self._waiting) if 0 < r < run]:
                self._drop(old)

    def _drop(self, run: int) -> None:
        for table in (self._seen, self._early, self._waiting):
            table.pop(run, None)  # type: ignore[attr-defined]

    def _is_over(self, run: int) -> bool:
        return 0 < run < self._oldest or run in self._ended

    # Closing ---------------------------------------------------------------------------------

    @property
    def traffic(self) -> dict[str, int]:
        """Bytes of arrays sent to each task."""
        past = self.lanes.traffic
        return {p: link.sent_bytes + past.get(p, 0) for p, link in list(self._links.items())}

    def close(self) -> None:
        """End all connections."""
        links = self.links
        self.lanes.close()
        self._links.clear()  # their ends are expected
        for link in [*links, *self._taken_in]:
            link.close()
