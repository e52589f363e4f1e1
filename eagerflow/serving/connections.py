"""Connections on which no request comes: they are ended, so that others find a place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

__all__ = ["end_silent"]

_LOOK_SECONDS = 0.01, 1.0  # between two looks, at least and at most


class _Waiting(NamedTuple):
    """That a connection had answered these requests, and since when."""

    answered: Any
    since: float


async def end_silent(connections: Set[Any], seconds: Callable[[], float]) -> None:
    """End connections on which the head of a request takes longer than so many seconds.

    ``connections`` are the open ones, as uvicorn keeps them; runs until it is cancelled. uvicorn
    itself has a time for connections that say nothing after an answer, but none for heads that are
    begun, or for the first one.
    """
    waiting: WeakKeyDictionary[Any, _Waiting] = WeakKeyDictionary()
    loop = asyncio.get_running_loop()
    while True:
        most = seconds()
        await asyncio.sleep(min(max(most / 4, _LOOK_SECONDS[0]), _LOOK_SECONDS[1]))
        now = loop.time()
        for connection in list(connections):
            if not _awaits_head(connection):
                waiting.pop(connection, None)
            elif connection not in waiting or waiting[connection].answered is not connection.cycle:
                waiting[connection] = _Waiting(connection.cycle, now)
            elif now - waiting[connection].since > most:
                connection.transport.close()


def _awaits_head(connection: Any) -> bool:
    """Whether nothing but the head of a request can come next, and nobody else looks at the time.

    uvicorn has a cycle for each request whose head has come, and a timer while a connection says
    nothing after an answer.
    """
    if connection.timeout_keep_alive_task is not None:
        return False
    return connection.cycle is None or connection.cycle.response_complete
