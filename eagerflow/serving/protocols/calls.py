"""gRPC calls in flight: limits on their number, and on the time of their messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from eagerflow import extras
from eagerflow.errors import ArgumentError
from eagerflow.serving.errors import BusyError, LateError
from eagerflow.serving.limits import Limits, Places

__all__ = ["Calls", "connection_options"]

PING_SECONDS = 60.0  # a connection silent for so long is pinged


def connection_options(limits: Limits) -> list[tuple[str, int]]:
    """The channel options of gRPC that bound connections, and close idle ones.

    gRPC does not report a connection before its first call, so the share of an address bounds its
    calls, not its connections.
    """

    def milliseconds(seconds: float) -> int:
        return min(max(1, int(seconds * 1e3)), (1 << 31) - 1)

    return [
        ("grpc.max_receive_message_length", limits.max_body),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        ("grpc.max_concurrent_streams", limits.of_client),
        ("grpc.server_handshake_timeout_ms", milliseconds(limits.body_seconds)),
        ("grpc.max_connection_idle_ms", milliseconds(limits.idle_seconds)),
        ("grpc.keepalive_time_ms", milliseconds(PING_SECONDS)),
    ]


class Calls:
    """Admits calls up to the limits and reads their messages; belongs to one event loop.

    ``limits`` gives the current limits; ``refused`` is called for each refused call, with the limit
    that it exceeds.
    """

    def __init__(
        self,
        limits: Callable[[], Limits],
        refused: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._limits = limits
        self._refused = refused
        self._end = extras.load("grpc.aio", "serving", "gRPC in ef.serving").EOF
        self.places = Places(limits)

    @contextmanager
    def place(self, context: Any) -> Iterator[None]:
        """Context manager that holds a place for a call; BusyError where none is free."""
        client = context.peer().rpartition(":")[0]
        why = self.places.refusal(client)
        if why is not None:
            self._refused(why)
            raise BusyError(
                "too many calls are under way"
                if why == "server"
                else "too many calls of this address are under way",
                hint="send the request again, later",
            )
        self.places.enter(client)
        try:
            yield
        finally:
            self.places.leave(client)

    async def message(self, context: Any) -> Any:
        """The only message of a call; LateError where it takes too long."""
        found = await self._read(context, self._limits().body_seconds)
        if found is self._end:
            raise ArgumentError("the call ended without a message")
        return found

    async def messages(self, context: Any) -> AsyncIterator[Any]:
        """The messages of a stream; LateError where one takes too long."""
        found = await self._read(context, self._limits().body_seconds)
        while found is not self._end:
            yield found
            found = await self._read(context, self._limits().idle_seconds)

    async def _read(self, context: Any, seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await context.read()
        except TimeoutError:
            raise LateError(
                "the message took too long to arrive", received=f"nothing whole in {seconds:g} s"
            ) from None
