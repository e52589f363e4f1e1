"""Slots: bound the number of sequences that are generated at once."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from eagerflow.serving.errors import BusyError, LateError

__all__ = ["Slots"]


class Slots:
    """A bounded number of slots for generations; others wait by priority and arrival."""

    def __init__(self, count: int, max_waiting: int) -> None:
        self._free = count
        self._max_waiting = max_waiting
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._number = itertools.count().__next__

    async def take(self, name: str, timeout: float | None = None, priority: int = 0) -> None:
        """Wait for a slot; BusyError if the queue is full, LateError after ``timeout`` seconds."""
        if self._free:
            self._free -= 1
            return
        if len(self._waiting) >= self._max_waiting:  # some waiters may be cancelled
            self._waiting = [entry for entry in self._waiting if not entry[2].done()]
            heapq.heapify(self._waiting)
        if len(self._waiting) >= self._max_waiting:
            raise BusyError(
                f"too many sequences wait for {name!r}",
                received=f"{len(self._waiting)} are waiting",
                hint="send the request again, later",
            )
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, self._number(), future))
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            self._pass_on(future)
            raise LateError(
                "the deadline passed before the first token was begun", op=name
            ) from None
        except asyncio.CancelledError:
            self._pass_on(future)
            raise

    def _pass_on(self, future: asyncio.Future[None]) -> None:
        """Give back a slot that was assigned after its request stopped waiting."""
        if future.done() and not future.cancelled():
            self.give_back()
        future.cancel()

    def give_back(self) -> None:
        """Give the slot to the next waiter."""
        while self._waiting:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
