"""Limits on clients: bytes and seconds of a request, connections, and each client's share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from eagerflow import extras

__all__ = ["Limits", "Places", "allow_more_files", "open_files"]


class Limits(NamedTuple):
    """Limits on the resources that clients may use.

    ``max_body`` bounds the bytes of a request's body, ``body_seconds`` the time in which its head,
    then its body must arrive. ``heartbeat`` is the longest silence of an event stream in seconds.
    ``max_connections`` may be open at once over HTTP, and as many over gRPC, with as many calls in
    flight; ``client_connections`` of them from one address (None: three quarters). A stream or a
    connection of gRPC is closed after ``idle_seconds`` without a message.

    >>> ef.serving.Limits(max_connections=1000).of_client
    750
    """

    max_body: int = 64 << 20
    body_seconds: float = 30.0
    heartbeat: float = 15.0
    max_connections: int = 4096
    client_connections: int | None = None
    idle_seconds: float = 300.0

    @property
    def of_client(self) -> int:
        """The largest number of connections from one address."""
        if self.client_connections is not None:
            return self.client_connections
        return max(1, self.max_connections * 3 // 4)


class Places:
    """Counts the places that each client takes of a bounded number; belongs to one event loop.

    ``limits`` gives the current bounds, ``most`` a lower one for all.

    >>> from eagerflow.serving.limits import Limits, Places
    >>> places = Places(lambda: Limits(max_connections=3))
    >>> places.refusal("a"), places.enter("a"), places.enter("a")
    (None, None, None)
    >>> places.refusal("a"), places.refusal("b")
    ('client', None)
    """

    def __init__(self, limits: Callable[[], Limits], most: float = float("inf")) -> None:
        self._limits = limits
        self.most = most
        self.taken = 0
        self._of: Counter[str] = Counter()

    def refusal(self, client: str) -> str | None:
        """The limit that refuses a client: ``"server"``, ``"client"`` (its share), or None."""
        limits = self._limits()
        if self.taken >= min(limits.max_connections, self.most):
            return "server"
        return "client" if self._of[client] >= limits.of_client else None

    def enter(self, client: str) -> None:
        """Take a place for a client."""
        self.taken += 1
        self._of[client] += 1

    def leave(self, client: str) -> None:
        """Give back a place of a client."""
        self.taken -= 1
        self._of[client] -= 1
        if not self._of[client]:
            del self._of[client]


def open_files() -> float:
    """The limit of open files of the process; infinity where it is unknown."""
    resource = extras.load_if_there("resource")
    if resource is None:
        return float("inf")
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if soft == resource.RLIM_INFINITY else float(soft)


def allow_more_files() -> None:
    """Raise the process's limit of open files to the system's: nothing here uses select."""
    resource = extras.load_if_there("resource")
    if resource is not None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
