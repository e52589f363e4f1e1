"""HTTP listener: accepts connections up to the limits, and refuses others with a response."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from eagerflow.serving.limits import Limits, Places, open_files

__all__ = ["Listener"]

BACKLOG = 2048  # connections that the system queues until they are accepted
PAUSE_SECONDS = 0.2  # after an accept that failed for lack of file descriptors
FARE_WELL_SECONDS = 1.0  # for a client to read why it is refused
FARE_WELLS = 128  # refused clients that have this time at once; others are closed immediately
OWN_FILES = 128  # reserved for models, workers and other files of the process
RETRY_SECONDS = 1
WHY = {
    "server": "the server has as many connections as it may",
    "client": "this address has as many connections as one may",
}
_log = logging.getLogger("eagerflow.serving")


class Listener:
    """Accepts the connections of a listening socket, each with a protocol of its own.

    ``protocols`` makes one; its attribute ``ended`` is set to a callback for the end of the
    connection. ``files`` is how many files connections may use: by default the process's limit,
    less a reserve. ``refused`` is called for each refused connection, with the limit that it
    exceeds. Belongs to the event loop that calls it.
    """

    def __init__(
        self,
        listening: socket.socket,
        protocols: Callable[[], Any],
        limits: Callable[[], Limits],
        transport: ssl.SSLContext | None = None,
        files: float | None = None,
        refused: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._listening = listening
        self._protocols = protocols
        self._limits = limits
        self._transport = transport
        most = max(1, open_files() - OWN_FILES) if files is None else files
        self.places = Places(limits, most)
        self._refused = refused
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving = 0
        self._accepting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to accept connections."""
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def close(self) -> None:
        """Stop accepting; open connections stay."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        self._listening.close()

    async def _accept(self) -> None:
        """Accept connections, one after the other."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                made, address = await loop.sock_accept(self._listening)
            except ConnectionError:
                continue
            except OSError as error:  # they stay queued until files are closed
                _log.error("a connection could not be taken: %s", error)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            self._take(made, str(address[0]))
            await asyncio.sleep(0)  # so that other tasks run while many connections are queued

    def _take(self, made: socket.socket, client: str) -> None:
        why = self.places.refusal(client)
        if why is None:
            self.places.enter(client)
            self._begin(self._connect(made, partial(self.places.leave, client)))
        else:
            self._refused(why)
            self._refuse(made, why)

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, made: socket.socket, leave: Callable[[], None]) -> None:
        """Hand a connection to a protocol, after the TLS handshake if there is one."""
        protocol = None
        seconds = None if self._transport is None else self._limits().body_seconds
        try:
            protocol = self._protocols()
            protocol.ended = leave
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, made, ssl=self._transport, ssl_handshake_timeout=seconds
            )
        except BaseException as error:
            made.close()
            if protocol is not None:
                protocol.ended = None
            leave()
            if not isinstance(error, OSError):  # caused by the client, such as a failed handshake
                raise

    # Refusals -----------------------------------------------------------------------------------

    def _refuse(self, made: socket.socket, why: str) -> None:
        """Refuse a connection, with a response if that needs no handshake."""
        if self._transport is not None:
            made.close()
            return
        with suppress(OSError):
            made.send(_ANSWERS[why])
            made.shutdown(socket.SHUT_WR)
        if self._leaving < FARE_WELLS:
            self._leaving += 1
            self._begin(self._fare_well(made))
        else:
            made.close()

    async def _fare_well(self, made: socket.socket) -> None:
        """Close a connection when the client has read its response.

        Unread bytes from the client would reset the connection and discard the response.
        """
        try:
            async with asyncio.timeout(FARE_WELL_SECONDS):
                while await asyncio.get_running_loop().sock_recv(made, 1 << 16):
                    pass
        except (OSError, TimeoutError):
            pass
        finally:
            self._leaving -= 1
            made.close()


def _answer(why: str) -> bytes:
    body = json.dumps({"error": WHY[why]}).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable",
        "content-type: application/json",
        f"content-length: {len(body)}",
        f"retry-after: {RETRY_SECONDS}",
        "connection: close",
    )
    return "\r\n".join([*head, "", ""]).encode() + body


_ANSWERS = {why: _answer(why) for why in WHY}
