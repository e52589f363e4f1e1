"""Server-Sent Events: streamed responses, and disconnected clients.

Source: the HTML standard, section "Server-sent events".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from eagerflow.serving.http import ClientGoneError
from eagerflow.serving.json_bodies import dumps

__all__ = ["EventStream", "event", "unless_gone"]

Receive = Callable[[], Awaitable[Any]]
T = TypeVar("T")

_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # proxies pass each event on at once
}


def event(data: Any, kind: str | None = None) -> bytes:
    r"""An event with JSON for its data; ``kind`` is its name, unless it is "message".

    >>> from eagerflow.serving.protocols.events import event
    >>> event({"token": 7}), event({"error": "late"}, "error")
    (b'data: {"token":7}\n\n', b'event: error\ndata: {"error":"late"}\n\n')
    """
    name = b"" if kind is None else b"event: %s\n" % kind.encode()
    return name + b"data: %s\n\n" % dumps(data)


async def _gone(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """The result of the work; it is cancelled, with ClientGoneError, if the client disconnects.

    The body of the request must have been read.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        await _cancel(task, gone)


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, Exception):
            await task


class EventStream:
    """A response of events, as an ASGI application.

    Events are made whether the client reads them or not, so that a slow reader blocks nothing.
    ``close`` is called once, after the last event or when the client has disconnected; after
    ``heartbeat`` seconds without an event a comment is sent.
    """

    def __init__(
        self, events: AsyncIterator[bytes], close: Callable[[], None], heartbeat: float
    ) -> None:
        self._events = events
        self._close = close
        self._heartbeat = heartbeat

    async def __call__(self, scope: Any, receive: Receive, send: Any) -> None:
        """Send the response."""
        made: asyncio.Queue[bytes | None] = asyncio.Queue()
        making = asyncio.ensure_future(self._make(made))
        gone = asyncio.ensure_future(_gone(receive))
        sending = asyncio.ensure_future(self._send(made, send))
        try:
            await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(sending, making, gone)
            self._close()

    async def _make(self, made: asyncio.Queue[bytes | None]) -> None:
        try:
            async for part in self._events:
                made.put_nowait(part)
        finally:
            self._close()
            made.put_nowait(None)

    async def _send(self, made: asyncio.Queue[bytes | None], send: Any) -> None:
        headers = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        part: bytes | None = b""
        while part is not None:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            try:
                async with asyncio.timeout(self._heartbeat):
                    part = await made.get()
            except TimeoutError:
                part = b":\n\n"
        await send({"type": "http.response.body", "body": b""})
