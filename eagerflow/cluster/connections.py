"""Connections between tasks and their client, with authentication.

Each task listens: on Linux on a socket name that is local to this machine and ends
with the process, elsewhere and between machines on a port. Both ends prove that they have the
cluster's token, which is never sent itself (HMAC, RFC 2104, over fresh nonces).
Until then messages are short and hold no arrays.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

from eagerflow.dtypes import as_dtype
from eagerflow.handlers import raised_here, suppress
from eagerflow.runtime import shared_memory
from eagerflow.runtime.channel import Channel

__all__ = ["Connection", "Listener", "connect", "is_near", "machine_name"]

GREETING_SECONDS = 10.0
SEND_SECONDS = 60
MAX_GREETING_BYTES = 2048
MAX_GREETINGS = 64  # concurrent handshakes
ENDED = "has ended, or cannot be reached"
_SIGN, _ASK, _ANSWER = "sign", 0, 1  # a sign of life: a separate message
_log = logging.getLogger("eagerflow.cluster")
Handler = Callable[["Connection", dict[str, Any], list[Any]], None]


class Connection:
    """One end of an open connection: a thread passes received messages to ``handle``.

    ``ended`` is called once, when the other end is closed or ``close`` was called. Several threads
    may send. Large arrays go through shared memory if both ends are on one machine; arrays
    received this way are read-only, and must be copied with ``settled`` if they are long-lived.

    The end that has opened it may request signs of life, with ``silence``. The other one sends
    them in the thread that receives messages, and never requests any: if both sent from there, they
    could block each other.
    """

    def __init__(self, channel: Channel, peer: str, shares: bool) -> None:
        self.channel = channel
        self.peer = peer
        self.is_open = True
        self.fate = ENDED
        """The reason for the end of the connection, once it has ended."""
        self.gave_up = False
        self._asked: float | None = None  # time of an unanswered request
        self.sent_bytes = self.received_bytes = 0
        self._shares = shares
        self._outgoing = shared_memory.Outgoing(_process_of(channel) if shares else 0)
        self._incoming = shared_memory.Incoming()
        self._sending = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, handle: Handler, ended: Callable[[Connection], None]) -> None:
        """Start receiving messages."""
        name = f"eagerflow connection with {self.peer}"
        self._thread = threading.Thread(
            target=self._serve, args=(handle, ended), name=name, daemon=True
        )
        self._thread.start()

    def send(self, message: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
        """Send a message with arrays; EOFError if the other end is closed."""
        size = sum([x.nbytes for x in arrays])
        try:
            with self._sending:
                self.sent_bytes += size
                if not self._shares or size < shared_memory.MIN_BYTES:
                    self.channel.send(message, arrays)
                else:
                    self._send_shared(message, arrays)
        except BaseException:
            self.close()  # nothing can follow a partial message
            raise

    def _send_shared(self, message: dict[str, Any], arrays: Sequence[Any]) -> None:
        plain, rows = [], []
        for position, array in enumerate(arrays):
            if array.nbytes < shared_memory.MIN_BYTES:
                plain.append(array)
            else:
                place = self._outgoing.put(array)
                rows.append([position, place, array.dtype.name, array.shape])
        new = self._outgoing.file()
        more: dict[str, Any] = {"shared": rows}
        if new is not None:
            more["memory"] = new[1]
        self.channel.send(message | more, plain)
        if new is not None:
            self.channel.send_file(new[0])

    def _receive(self) -> tuple[dict[str, Any], list[Any]]:
        message, arrays = self.channel.receive()
        size = message.pop("memory", None)
        if size is not None:
            self._incoming.map(self.channel.receive_file(), size)
        for position, place, name, shape in message.pop("shared", ()):
            place = shared_memory.Place(*place)
            arrays.insert(position, self._incoming.array(place, shape, as_dtype(name)))
        self.received_bytes += sum([x.nbytes for x in arrays])
        return message, arrays

    def _serve(self, handle: Handler, ended: Callable[[Connection], None]) -> None:
        try:
            while True:
                message, arrays = self._receive()
                sign = message.get(_SIGN)
                if sign is None:
                    handle(self, message, arrays)
                elif sign == _ASK:
                    self.send({_SIGN: _ANSWER})
                else:
                    self._asked = None
                del message, arrays  # the next message may come much later
        except raised_here(EOFError, OSError):
            pass
        except raised_here(Exception):  # an invalid message
            _log.exception("the connection with %s ends", self.peer)
        finally:
            self.is_open = False
            self.close()
            with self._sending:
                self.channel.close()  # no longer used
                self._outgoing.close()
            ended(self)

    def silence(self, now: float, since: float) -> float:
        """Seconds for which the other end has owed a sign of life; requests one.

        ``now`` is on the clock of ``time.monotonic``; times before ``since`` do not count.
        During a long send, it is the time since the system has accepted a part of it.
        """
        channel = self.channel
        begin = self._asked
        if begin is None:
            if self._ask(now):
                return 0.0
            begin = channel.sent_at
        return now - max(begin, channel.received_at, since)

    def _ask(self, now: float) -> bool:
        """Request a sign of life, if nothing is being sent, and without waiting."""
        if not self._sending.acquire(blocking=False):
            return False
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.channel.socket, selectors.EVENT_WRITE)
                if not selector.select(0):
                    return False
            self._asked = now
            self.channel.send({_SIGN: _ASK})
        except raised_here(EOFError, OSError, ValueError):
            pass  # it has ended, which its thread notices
        finally:
            self._sending.release()
        return True

    def give_up(self, seconds: float) -> None:
        """End the connection after a silence of ``seconds``."""
        self.fate, self.gave_up = f"has not answered for {seconds:g} s", True
        self.close()

    def close(self) -> None:
        """End the connection; both ends notice it."""
        with suppress(OSError):
            self.channel.socket.shutdown(socket.SHUT_RDWR)

    def join(self, seconds: float) -> None:
        """Wait for the end of its thread."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)


def _process_of(channel: Channel) -> int:
    """The process at the other end of a connection within this machine."""
    told = channel.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    found: int = struct.unpack("3i", told)[0]
    return found


# Greetings ---------------------------------------------------------------------------------------


def _proof(token: bytes, role: str, *words: str) -> str:
    text = "\n".join([role, *words]).encode()
    return hmac.new(token, text, hashlib.sha256).hexdigest()


def _greeting(channel: Channel) -> dict[str, Any]:
    return channel.receive(MAX_GREETING_BYTES)[0]


def _proves(message: dict[str, Any], proof: str) -> bool:
    return hmac.compare_digest(str(message.get("proof")).encode(), proof.encode())


def _accepted(channel: Channel, token: bytes) -> str:
    """The name of the peer that connected; EOFError if it does not have the token."""
    own = secrets.token_hex(16)
    channel.send({"number": own})
    message = _greeting(channel)
    name, theirs = str(message.get("name")), str(message.get("number"))
    if not _proves(message, _proof(token, "connects", own, theirs, name)):
        raise EOFError("it does not have the token")
    channel.send({"proof": _proof(token, "accepts", own, theirs, name)})
    return name


def _introduced(channel: Channel, token: bytes, name: str) -> None:
    """Send the peer this end's name; EOFError if the peer does not know the token."""
    theirs, own = str(_greeting(channel).get("number")), secrets.token_hex(16)
    proof = _proof(token, "connects", theirs, own, name)
    channel.send({"name": name, "number": own, "proof": proof})
    if not _proves(_greeting(channel), _proof(token, "accepts", theirs, own, name)):
        raise EOFError("it does not have the token")


def machine_name() -> str:
    """An identifier of the machine, and of the network namespace on it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.stat('/proc/self/ns/net').st_ino}"
    except raised_here(OSError):
        return f"{socket.gethostname()} {os.getppid()}"


class Listener:
    """A listening socket with its ``address``. ``greet`` is called with each connected peer.

    With a ``host`` it also listens on a port of that address, for other machines.
    """

    def __init__(self, token: bytes, host: str | None, greet: Callable[[Connection], None]) -> None:
        self._token, self._greet = token, greet
        self._pending = threading.Semaphore(MAX_GREETINGS)
        self._sockets: list[tuple[socket.socket, bool]] = []
        self.address: dict[str, Any] = {"machine": machine_name()}
        if shared_memory.are_there() and hasattr(socket, "AF_UNIX"):
            name = f"\0eagerflow-{secrets.token_hex(16)}"
            found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            found.bind(name)
            self.address["name"] = name
            self._sockets.append((found, True))
        if host is not None or not self._sockets:
            found = socket.create_server((host or "127.0.0.1", 0))
            self.address["host"], self.address["port"] = found.getsockname()[:2]
            self._sockets.append((found, False))
        for one, near in self._sockets:
            one.listen(128)
            threading.Thread(
                target=self._serve, args=(one, near), name="eagerflow listener", daemon=True
            ).start()

    def _serve(self, listening: socket.socket, near: bool) -> None:
        with suppress(OSError):  # it was closed
            while True:
                found, _ = listening.accept()
                self._pending.acquire()
                threading.Thread(target=self._meet, args=(found, near), daemon=True).start()

    def _meet(self, found: socket.socket, near: bool) -> None:
        channel = Channel(found)
        try:
            found.settimeout(GREETING_SECONDS)
            name = _accepted(channel, self._token)
            _prepare(found, near)
        except raised_here(EOFError, OSError):
            channel.close()
            return
        finally:
            self._pending.release()
        self._greet(Connection(channel, name, near))

    def close(self) -> None:
        """Accept no more connections."""
        for found, _ in self._sockets:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
            found.close()


def _prepare(found: socket.socket, near: bool) -> None:
    found.settimeout(None)
    # A peer that does not read for this long must not block others.
    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
    if not near:
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def is_near(address: dict[str, Any]) -> bool:
    """Whether a task with this address is on this machine."""
    return "name" in address and address["machine"] == machine_name()


def connect(address: dict[str, Any], token: bytes, name: str, peer: str) -> Connection:
    """A connection to a task; EOFError if it cannot be reached or does not know the token."""
    near = is_near(address)
    try:
        if near:
            found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            found.settimeout(GREETING_SECONDS)
            found.connect(address["name"])
        else:
            place = address["host"], address["port"]
            found = socket.create_connection(place, GREETING_SECONDS)
    except raised_here(OSError, KeyError):
        raise EOFError(f"{peer} cannot be reached") from None
    channel = Channel(found)
    try:
        _introduced(channel, token, name)
        _prepare(found, near)
    except raised_here(EOFError, OSError):
        channel.close()
        raise EOFError(f"{peer} cannot be reached") from None
    return Connection(channel, peer, near)
