"""HTTP requests over ASGI: paths, headers, bodies with limits, responses.

Source: the ASGI specification, HTTP and lifespan protocols (asgi.readthedocs.io).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from eagerflow.serving.errors import LateError, TooLargeError

__all__ = ["JSON", "ClientGoneError", "Deadline", "HttpRequest", "Router", "lifespan", "respond"]

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

JSON = {"content-type": "application/json"}
_JSON = (b"content-type", b"application/json")
MAX_KEPT_PATH = 200  # longer paths are not cached
MAX_KEPT_PATHS = 1024
MAX_DIGITS = 20  # of a Content-Length


class ClientGoneError(Exception):
    """The client has closed the connection: there is no reader of the response."""


class Deadline:
    """Cancels reads of bodies that take longer than ``seconds``; one timer serves all of them."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until: dict[asyncio.Task[Any], float] = {}  # the earliest first
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> asyncio.Task[Any]:
        """Start the time limit of the running task, until ``end``."""
        task = asyncio.current_task()
        assert task is not None
        self._until[task] = time.monotonic() + self.seconds
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.seconds, self._look)
        return task

    def end(self, task: asyncio.Task[Any]) -> bool:
        """End the time limit of a task; returns whether it was cancelled for being late."""
        self._until.pop(task, None)
        if task not in self._late:
            return False
        self._late.discard(task)
        return task.uncancel() == 0

    def _look(self) -> None:
        now = time.monotonic()
        self._timer = None
        for task, until in list(self._until.items()):
            if until > now:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(until - now, self._look)
                return
            del self._until[task]
            self._late.add(task)
            task.cancel()


class HttpRequest:
    """A request: its method and path, the path's parameters, its headers, and its body.

    ``receive`` is ASGI's receive callable.
    """

    __slots__ = ("_headers", "_query", "method", "named", "path", "receive", "size")

    def __init__(self, scope: Mapping[str, Any], receive: Receive, named: Mapping[str, str]):
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.named = named
        self.receive = receive
        self._headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
        self._query: bytes = scope.get("query_string", b"")
        told = self.header("content-length")
        is_number = told is not None and told.isdecimal() and len(told) < MAX_DIGITS
        self.size = int(told) if told is not None and is_number else None
        """Bytes of the body according to Content-Length; None without the header."""

    def header(self, name: str) -> str | None:
        """The value of the first header of this name, in lower case; None without one."""
        wanted = name.encode("latin-1")
        for key, value in self._headers:
            if key == wanted:
                return value.decode("latin-1")
        return None

    @property
    def query(self) -> dict[str, str]:
        """The query parameters, the last value of each name."""
        return dict(parse_qsl(self._query.decode("latin-1"), keep_blank_values=True))

    async def body(self, most: int, deadline: Deadline) -> bytes:
        """The whole body; TooLargeError or LateError for one beyond the limits.

        ``most`` is the largest size in bytes. ClientGoneError where the client disconnects
        meanwhile.
        """
        if self.size is not None and self.size > most:
            raise _too_large(most)
        parts: list[bytes] = []
        size, more = 0, True
        task = deadline.begin()
        try:
            while more:
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                more = message.get("more_body", False)
                if size > most:
                    raise _too_large(most)
        except asyncio.CancelledError:
            if not deadline.end(task):
                raise
            raise LateError(
                "the body took too long to arrive",
                received=f"{size} bytes in {deadline.seconds:g} s",
            ) from None
        finally:
            deadline.end(task)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(
        "the body is too large",
        expected=f"{most:,} bytes at most",
    )


async def respond(send: Send, body: bytes, headers: Mapping[str, str], status: int = 200) -> None:
    """Send a complete response."""
    rows = (
        [_JSON]
        if headers is JSON
        else [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()]
    )
    rows.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": rows})
    await send({"type": "http.response.body", "body": body})


async def lifespan(receive: Receive, send: Send) -> None:
    """Acknowledge ASGI lifespan events."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


# Paths --------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """The result of routing a path: the target, and the path parameters.

    Without a target, ``allowed`` are the methods that the path supports.
    """

    target: Any
    named: Mapping[str, str]
    allowed: tuple[str, ...] = ()


class _Branch:
    """A node of the router's trie: branches by the next part, and targets of complete patterns."""

    def __init__(self) -> None:
        self.literals: dict[str, _Branch] = {}
        self.verbs: dict[str, tuple[str, _Branch]] = {}
        self.name: tuple[str, _Branch] | None = None
        self.targets: dict[str, Any] = {}

    def grown(self, part: str) -> _Branch:
        """The branch for one more part of a pattern: a literal, ``{name}`` or ``{name}:verb``."""
        if not part.startswith("{"):
            return self.literals.setdefault(part, _Branch())
        name, _, verb = part[1:].partition("}")
        if verb:
            return self.verbs.setdefault(verb[1:], (name, _Branch()))[1]
        if self.name is None:
            self.name = name, _Branch()
        return self.name[1]


class Router:
    """Finds the target of a method and a path; ``routes`` are methods, patterns and targets.

    A pattern's parts between slashes are literals, ``{name}`` for any text, or ``{name}:verb``. GET
    stands for HEAD too, and a slash at the end makes no difference.

    >>> from eagerflow.serving.http import Router
    >>> router = Router([("POST", "/v1/models/{model}:predict", 1), ("GET", "/v2", 2)])
    >>> router.find("POST", "/v1/models/digits:predict")
    Found(target=1, named={'model': 'digits'}, allowed=())
    >>> router.find("POST", "/v2").allowed
    ('GET', 'HEAD')
    """

    def __init__(self, routes: Iterable[tuple[str, str, Any]]) -> None:
        self._root = _Branch()
        for method, pattern, target in routes:
            branch = self._root
            for part in _parts(pattern):
                branch = branch.grown(part)
            branch.targets[method] = target
            if method == "GET":
                branch.targets["HEAD"] = target
        self._kept = lru_cache(MAX_KEPT_PATHS)(self._look)

    def find(self, method: str, path: str) -> Found:
        """The target, parameters and allowed methods for a method and a path."""
        return (self._kept if len(path) <= MAX_KEPT_PATH else self._look)(method, path)

    def _look(self, method: str, path: str) -> Found:
        named: dict[str, str] = {}
        targets = _matched(self._root, _parts(path), named)
        target = targets.get(method)
        return Found(target, named, () if target is not None else tuple(targets))


def _matched(branch: _Branch, parts: Sequence[str], named: dict[str, str]) -> dict[str, Any]:
    """The targets of the pattern that matches the path; ``named`` receives its parameters."""
    if not parts:
        return branch.targets
    part, rest = parts[0], parts[1:]
    text, _, verb = part.rpartition(":")
    ways: list[tuple[str, str, _Branch]] = []
    if part in branch.literals:
        ways.append(("", "", branch.literals[part]))
    if text and verb in branch.verbs:
        name, after = branch.verbs[verb]
        ways.append((name, text, after))
    if part and branch.name is not None:
        name, after = branch.name
        ways.append((name, part, after))
    for name, value, after in ways:
        found = _matched(after, rest, named)
        if found:
            if name:
                named[name] = value
            return found
    return {}


def _parts(path: str) -> list[str]:
    return path.rstrip("/").split("/")[1:]
