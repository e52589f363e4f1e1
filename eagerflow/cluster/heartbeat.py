"""Heartbeat: a task that is silent for too long is considered lost, stopped or unreachable.

A process that has ended is noticed at once, by the end of its connection. One that hangs, or that
a network failure isolates, is not: so a thread polls the other ends of connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from time import monotonic

from eagerflow.cluster.connections import Connection

__all__ = ["Heartbeat"]

BEATS = 5  # checks of each connection before it is given up


class Heartbeat:
    """A thread that closes connections with an overdue answer.

    ``connections`` returns those to check, ``seconds`` is the time limit of each.
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
                since = now  # this process was suspended, and received data are not read yet
            before = now
            for connection in self._connections():
                if connection.is_open and connection.silence(now, since) > self._seconds:
                    connection.give_up(self._seconds)

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()
