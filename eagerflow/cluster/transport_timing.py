"""Timing of transfers between two tasks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter, sleep
from typing import Any

import numpy as np

from eagerflow.cluster.transport import PING, Transport
from eagerflow.devices import Device
from eagerflow.errors import TaskLostError

__all__ = ["lane_round_trips", "round_trips"]

SECONDS = 10.0  # for one answer
OPENING_SECONDS = 10.0  # for a lane to open
WARM_UP = 3
_numbers = itertools.count(1)


def round_trips(transport: Transport, peer: str, size: int, count: int) -> list[float]:
    """Seconds to send ``size`` bytes to a task and receive its confirmation.

    The first ones, which set up connections and memory, do not count. TaskLostError if it does
    not answer.
    """
    array = np.zeros(size, np.uint8)
    return _timed(transport, peer, lambda: array, count)


def lane_round_trips(
    transport: Transport, peer: str, source: Device, index: int, size: int, count: int
) -> list[float]:
    """The same for bytes on a device, to that of a task with an index, without host memory.

    Empty if that path has not opened in time, or has closed.
    """
    array = source.backend.receive(np.zeros(size, np.uint8), source.index)

    def sent() -> Any:
        return transport.past_host(peer, source, index, array, array.dtype)

    end = monotonic() + OPENING_SECONDS
    while sent() is None:
        if monotonic() > end:
            return []
        sleep(0.001)
    return _timed(transport, peer, sent, count)


def _timed(transport: Transport, peer: str, sent: Callable[[], Any], count: int) -> list[float]:
    found = []
    for _ in range(WARM_UP + count):
        number, done = next(_numbers), SimpleQueue[Any]()
        transport.receive((-number,), done.put)
        begin = perf_counter()
        array = sent()
        if array is None:
            return []
        transport.send(peer, (PING, transport.name, -number), [array])
        try:
            done.get(timeout=SECONDS)
        except Empty:
            raise TaskLostError(f"{peer} has not answered for {SECONDS:g} s") from None
        found.append(perf_counter() - begin)
        transport.forget(-number)
    return found[WARM_UP:]
