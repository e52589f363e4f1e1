"""What it takes to send between two tasks."""

from __future__ import annotations

import itertools
from queue import Empty, SimpleQueue
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from eagerflow.cluster.transport import PING, Transport
from eagerflow.errors import TaskLostError

__all__ = ["measure", "round_trips"]

SECONDS = 10.0  # for one answer
SMALL_BYTES, LARGE_BYTES = 64, 1 << 20
_numbers = itertools.count(1)


def round_trips(transport: Transport, peer: str, size: int, count: int) -> list[float]:
    """Seconds that it takes to send so many bytes to a task and to hear that they are there.

    TaskLostError where it does not answer.
    """
    array = np.zeros(size, np.uint8)
    found = []
    for _ in range(count):
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
    return found


def measure(transport: Transport, peer: str) -> list[float]:
    """Latency in seconds one way, and bytes a second."""
    round_trips(transport, peer, LARGE_BYTES, 3)  # memory and connections are made
    small = median(round_trips(transport, peer, SMALL_BYTES, 20))
    large = median(round_trips(transport, peer, LARGE_BYTES, 5))
    return [small / 2, LARGE_BYTES / max(large - small, 1e-6)]
