"""Load generator for a running server, open-loop: requests do not wait for responses.

A client that waits for a response before it sends the next request measures a slow server at its
best: the requests that would have arrived meanwhile are left out (coordinated omission). Here
requests are due at times drawn beforehand (a Poisson process), and latency counts from the due
time.

Source: Schroeder, Wierman, Harchol-Balter, "Open versus closed: a cautionary tale", NSDI 2006.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from eagerflow import extras
from eagerflow.errors import ArgumentError

__all__ = ["Load", "LoadResult", "Question", "apply_load", "rows_of"]

_SPIN_SECONDS = 0.002  # resolution of event loop timers: the rest of a wait is polled
LATE_SECONDS = 0.01  # a request that leaves later than this was held up by the client


class Question(NamedTuple):
    """A request to send repeatedly: the address, the body, further headers, and TLS.

    ``context`` is the TLS context of ``https`` addresses; None trusts the system's certificates.
    """

    url: str
    body: bytes
    headers: Mapping[str, str] = {}
    context: ssl.SSLContext | None = None

    def encoded(self) -> bytes:
        """The bytes of the request, for a keep-alive connection."""
        place = urlsplit(self.url)
        fields = {
            "host": place.netloc.rpartition("@")[2],
            "content-type": "application/json",
            **{name.lower(): value for name, value in self.headers.items()},
            "content-length": str(len(self.body)),
        }
        lines = [f"POST {place.path or '/'} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items())]
        if any("\r" in line or "\n" in line for line in lines):
            raise ArgumentError("a header has a line break", op="apply_load", argument="headers")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


class Load(NamedTuple):
    """A load: requests a second, duration in seconds, and number of connections.

    ``timeout`` is how many seconds a response may take; ``seed`` is that of the due times.
    """

    rate: float
    seconds: float = 5.0
    connections: int = 64
    timeout: float = 10.0
    seed: int = 0

    def times(self) -> np.ndarray[Any, Any]:
        """The times at which requests are due, in seconds from the beginning.

        >>> from eagerflow.serving.load import Load
        >>> len(Load(rate=1000.0, seconds=2.0).times())
        2000
        """
        count = max(round(self.rate * self.seconds), 1)
        found = np.sort(np.random.default_rng(self.seed).uniform(0.0, self.seconds, count))
        return found - found[0]

    def checked(self) -> Load:
        """This load, validated; ArgumentError for a number out of range."""
        for name, value in self._asdict().items():
            least = 0 if name == "seed" else 1 if name == "connections" else 1e-3
            if not isinstance(value, int | float) or not least <= value < 1e9:
                raise ArgumentError(
                    f"{value!r} is not such a number",
                    op="apply_load",
                    argument=name,
                    expected=f"at least {least}",
                )
        return self


class LoadResult(NamedTuple):
    """The result of a load.

    ``latencies`` are the seconds of each response with status 200, from the time at which its
    request was due; ``statuses`` counts the responses by status, and requests without one by the
    reason; ``refusals`` are the seconds of responses with another status. ``seconds`` is the time
    until the last response, ``late`` the number of requests that the client itself sent late.
    """

    load: Load
    seconds: float
    latencies: np.ndarray[Any, Any]
    refusals: np.ndarray[Any, Any]
    statuses: Counter[str]
    late: int

    @property
    def goodput(self) -> float:
        """Responses with status 200 per second."""
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        """The latency quantile of the successful responses; NaN without any."""
        return float(np.quantile(self.latencies, share)) if len(self.latencies) else float("nan")


async def apply_load(question: Question, load: Load) -> LoadResult:
    """Send a request at the rate of a load, and return the result.

    Raises ArgumentError for numbers out of range, OSError where no server listens.
    """
    run = _Run(question, load.checked())
    return await run.result()


class _Run:
    """One load: connections, and requests that are due, in flight or answered."""

    def __init__(self, question: Question, load: Load) -> None:
        place = urlsplit(question.url)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ArgumentError(
                f"{question.url[:100]!r} is not an address",
                op="apply_load",
                argument="url",
                expected="http://HOST:PORT/PATH",
            )
        self.load = load
        self.bytes = question.encoded()
        self.host, self.port = place.hostname, place.port or (443 if place.scheme[4:] else 80)
        self.context = None
        if place.scheme == "https":
            self.context = question.context or ssl.create_default_context()
        self.opened: set[_Connection] = set()
        self.free: deque[_Connection] = deque()
        self.due: deque[float] = deque()  # requests waiting for a connection
        self.loop = asyncio.get_running_loop()
        self.left = 0
        self.done = asyncio.Event()
        self.late = 0
        self.statuses: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.refusals: list[float] = []

    async def result(self) -> LoadResult:
        times = self.load.times()
        self.left = len(times)
        try:
            await asyncio.gather(*(self.open() for _ in range(self.load.connections)))
            begin = self.loop.time()
            for due in (times + begin).tolist():
                await self.until(due)
                self.late += self.loop.time() - due > LATE_SECONDS
                self.due.append(due)
                self.send()
            await self.done.wait()
        finally:
            self.done.set()
            for connection in self.opened:
                connection.transport.close()
        return LoadResult(
            self.load,
            self.loop.time() - begin,
            np.asarray(self.latencies),
            np.asarray(self.refusals),
            self.statuses,
            self.late,
        )

    async def until(self, due: float) -> None:
        while (wait := due - self.loop.time()) > 0:
            await asyncio.sleep(wait - _SPIN_SECONDS if wait > _SPIN_SECONDS else 0)

    async def open(self) -> None:
        _, made = await self.loop.create_connection(
            lambda: _Connection(self), self.host, self.port, ssl=self.context
        )
        self.opened.add(made)
        self.free.append(made)

    def send(self) -> None:
        """Send due requests over the free connections."""
        while self.due and self.free:
            self.free.popleft().ask(self.due.popleft())

    def answered(self, connection: _Connection, due: float, status: int) -> None:
        seconds = self.loop.time() - due
        (self.latencies if status == 200 else self.refusals).append(seconds)
        self.count(str(status))
        if connection.is_open:
            self.free.append(connection)
            self.send()

    def count(self, outcome: str) -> None:
        self.statuses[outcome] += 1
        self.left -= 1
        if not self.left:
            self.done.set()

    def lost(self, connection: _Connection, due: float | None, reason: str) -> None:
        """Replace a lost connection; its request in flight, if any, has failed."""
        self.opened.discard(connection)
        if connection in self.free:
            self.free.remove(connection)
        if self.done.is_set():
            return
        if due is not None:
            self.count(reason)
        if not self.done.is_set():
            self.loop.create_task(self.reopen())

    async def reopen(self) -> None:
        try:
            await self.open()
        except OSError:
            # No server listens: due requests fail, unless another connection is open.
            while self.due and not self.free:
                self.due.popleft()
                self.count("not connected")
            await asyncio.sleep(0.05)
            if not self.done.is_set():
                self.loop.create_task(self.reopen())
            return
        self.send()


class _Connection(asyncio.Protocol):
    """A keep-alive connection, with at most one request in flight."""

    def __init__(self, run: _Run) -> None:
        self.run = run
        self.asked: float | None = None
        self.is_open = False
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.is_open = True
        self.parser = _parsers().HttpResponseParser(self)

    def ask(self, due: float) -> None:
        self.asked = due
        self.timer = self.run.loop.call_later(self.run.load.timeout, self.transport.abort)
        self.transport.write(self.run.bytes)

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except _parsers().HttpParserError:
            self.transport.abort()

    def on_message_complete(self) -> None:
        due, status = self.asked, self.parser.get_status_code()
        if due is None:
            self.transport.abort()  # a response without a request
            return
        self.is_open = self.is_open and bool(self.parser.should_keep_alive())
        self.settle()
        self.run.answered(self, due, status)
        if not self.is_open:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        timed_out = self.timer is not None and self.timer.when() <= self.run.loop.time()
        due = self.asked
        self.settle()
        self.run.lost(self, due, "no answer in time" if timed_out else "connection lost")

    def settle(self) -> None:
        self.asked = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _parsers() -> Any:
    return extras.load("httptools", "serving", "eagerflow bench-serve")


def rows_of(results: Iterable[LoadResult]) -> list[list[str]]:
    """A table with a title: rates, latencies in milliseconds, and failed requests."""
    rows = [["requests/s", "good/s", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms", "others"]]
    for result in results:
        others = [f"{n} {why}" for why, n in sorted(result.statuses.items()) if why != "200"]
        if result.late:
            others.append(f"{result.late} sent late")
        rows.append(
            [
                f"{result.load.rate:,.0f}",
                f"{result.goodput:,.0f}",
                *(f"{result.quantile(q) * 1e3:.2f}" for q in (0.5, 0.9, 0.99, 0.999, 1.0)),
                ", ".join(others) or "-",
            ]
        )
    return rows
