"""Connections over HTTP: taken as long as there are places, refused with an answer beyond them."""

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

BACKLOG = 2048  # connections that the system keeps until they are taken
PAUSE_SECONDS = 0.2  # after a connection could not be taken, for want of files
FARE_WELL_SECONDS = 1.0  # for a client to read why it is refused
FARE_WELLS = 128  # clients that have this time at once; others are let go at once
OWN_FILES = 128  # that are left for models, workers and what else a process opens
RETRY_SECONDS = 1
WHY = {
    "server": "the server has as many connections as it may",
    "client": "this address has as many connections as one may",
}
_log = logging.getLogger("eagerflow.serving")


class Listener:
    """Takes the connections of a socket that listens, each with a protocol of its own.

    ``protocols`` makes one, whose ``ended`` it sets: to be called when its connection has ended.
    ``files`` are how many files connections may have; by default what the process may open, less
    what it needs itself. ``refused`` is called for each that has no place, with what is short.
    Belongs to the event loop that calls it.
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
        """Take connections from now on."""
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def close(self) -> None:
        """Take no more; those that are there stay."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        self._listening.close()

    async def _accept(self) -> None:
        """Take connections, one after the other."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                made, address = await loop.sock_accept(self._listening)
            except ConnectionError:
                continue
            except OSError as error:  # they wait until files are closed
                _log.error("a connection could not be taken: %s", error)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            self._take(made, str(address[0]))
            await asyncio.sleep(0)  # where many wait, others have their turn too

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
        """Let a protocol have a connection, after the handshake of TLS where there is one."""
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
            if not isinstance(error, OSError):  # of the client's, as a failed handshake is
                raise

    # Refusals -----------------------------------------------------------------------------------

    def _refuse(self, made: socket.socket, why: str) -> None:
        """Tell a client why it is refused, where that needs no handshake, and let it go."""
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
        """Close a connection when the client has read its answer.

        What the client had sent, and was not read, would take the answer away from it.
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
