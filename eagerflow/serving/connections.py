"""uvicorn connections with a callback at their end and a timeout for request heads.

A request that is refused as the queue is full costs a third if it is answered right here: under
overload, time spent on refusals is lost for computation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from http import HTTPStatus
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

__all__ = ["connection_class", "end_silent"]

_LOOK_SECONDS = 0.01, 1.0  # seconds between two checks, at least and at most


def connection_class(protocol: type[Any], refusal: Callable[[bytes], bytes | None]) -> type[Any]:
    """A protocol class of uvicorn; its connections call ``ended`` once, when they are closed.

    ``refusal`` returns the body of the response to a POST for a path that is refused for overload,
    and None for any other. It is called before the request is read, where uvicorn's parser is
    httptools' and nothing about the request is unusual.
    """

    class Connection(protocol):  # type: ignore[misc]
        ended: Callable[[], None] | None = None

        def connection_lost(self, error: Exception | None) -> None:
            super().connection_lost(error)
            if self.ended is not None:
                self.ended()
                self.ended = None

    class Refusing(Connection):
        has_refused = False

        def on_headers_complete(self) -> None:
            body = refusal(self.url) if _is_plain(self) else None
            if body is None:
                super().on_headers_complete()
            else:  # the request is already answered when its body arrives, which is dropped
                self.has_refused = True
                self.transport.write(_busy(body, self.server_state.default_headers))

        def on_message_complete(self) -> None:
            super().on_message_complete()
            if self.has_refused:
                self.has_refused = False
                self.on_response_complete()

    return Refusing if hasattr(protocol, "on_headers_complete") else Connection


def _is_plain(connection: Any) -> bool:
    """Whether the request, of which the head has arrived, may be answered at once.

    It must follow another request, so that uvicorn's state of the connection is complete.
    """
    parser, before = connection.parser, connection.cycle
    return (
        before is not None
        and before.response_complete
        and parser.get_method() == b"POST"
        and parser.get_http_version() == "1.1"
        and parser.should_keep_alive()
        and not parser.should_upgrade()
        and not connection.expect_100_continue
    )


def _busy(body: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The response to a request that is refused for overload."""
    status = HTTPStatus.TOO_MANY_REQUESTS
    rows = [
        b"HTTP/1.1 %d %s" % (status, status.phrase.encode()),
        *(b"%s: %s" % header for header in headers),
        b"content-type: application/json",
        b"content-length: %d" % len(body),
    ]
    return b"\r\n".join([*rows, b"", body])


class _Waiting(NamedTuple):
    """The number of requests that a connection had answered, and the time of that observation."""

    answered: Any
    since: float


async def end_silent(connections: Set[Any], seconds: Callable[[], float]) -> None:
    """Close connections on which the head of a request takes longer than ``seconds()``.

    ``connections`` are the open ones, as uvicorn keeps them; runs until it is cancelled. uvicorn
    itself has a timeout for idle connections after a response, but none for incomplete heads, or
    for the first one.
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
    """Whether the connection waits for the head of a request, and no timer but this one runs.

    uvicorn has a cycle for each request with a complete head, and a timer while a connection is
    idle after a response.
    """
    if connection.timeout_keep_alive_task is not None:
        return False
    return connection.cycle is None or connection.cycle.response_complete
