"""Heartbeat: a task that is silent for too long is given up, be it stopped or cut off.

A process that has ended is noticed at once, by the end of its connection. One that hangs, or to
which the network swallows everything, is not: so a thread asks at the other ends of connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from time import monotonic

from eagerflow.cluster.connections import Connection

__all__ = ["Heartbeat"]

BEATS = 5  # looks at each connection in the time after which it is given up


class Heartbeat:
    """A thread that closes those connections whose other ends have owed an answer for too long.

    ``connections`` gives those to look at, ``seconds`` are the time that each has.
    """

    def __init__(self, connections: Callable[[], Iterable[Connection]], seconds: float) -> None:
        self._connections, self._seconds = connections, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="eagerflow heartbeat", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        pause = self._seconds / BEATS
        since = before = monotonic()
        while not self._over.wait(pause):
            now = monotonic()
            if now - before > 2 * pause:
                since = now  # this process has slept itself, and what came is not read yet
            before = now
            for connection in self._connections():
                if connection.is_open and connection.silence(now, since) > self._seconds:
                    connection.give_up(self._seconds)

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()
