"""What it takes to send between two tasks."""

from __future__ import annotations

import itertools
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

import numpy as np

from eagerflow.cluster.transport import PING, Transport
from eagerflow.errors import TaskLostError

__all__ = ["round_trips"]

SECONDS = 10.0  # for one answer
WARM_UP = 3
_numbers = itertools.count(1)


def round_trips(transport: Transport, peer: str, size: int, count: int) -> list[float]:
    """Seconds that it takes to send so many bytes to a task and to hear that they are there.

    The first ones, which make connections and memory, do not count. TaskLostError where it does
    not answer.
    """
    array = np.zeros(size, np.uint8)
    found = []
    for _ in range(WARM_UP + count):
        number, done = next(_numbers), SimpleQueue[Any]()
        transport.receive((-number,), done.put)
        begin = perf_counter()
        transport.send(peer, (PING, transport.name, -number), [array])
        try:
            done.get(timeout=SECONDS)
        except Empty:
            raise TaskLostError(f"{peer} has not answered for {SECONDS:g} s") from None
        found.append(perf_counter() - begin)
        transport.forget(-number)
    return found[WARM_UP:]
