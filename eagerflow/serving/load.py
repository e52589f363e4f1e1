"""Load for a server that runs: requests at times that do not depend on its answers.

A client that waits for an answer before it sends the next request measures a slow server at its
best: the requests that would have come meanwhile are left out (coordinated omission). Here they are
due at times that are drawn beforehand (a Poisson process), and their time counts from then on.

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

_SPIN_SECONDS = 0.002  # timers of event loops are that coarse: the rest of a wait is looked at
LATE_SECONDS = 0.01  # a request that leaves later than this was held up by the client


class Question(NamedTuple):
    """A request to send again and again: the address, the body, further headers, and TLS.

    ``context`` is that of ``https`` addresses; None trusts what the system trusts.
    """

    url: str
    body: bytes
    headers: Mapping[str, str] = {}
    context: ssl.SSLContext | None = None

    def encoded(self) -> bytes:
        """The request as it is sent over a connection that stays open."""
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
    """How many requests are due a second, for how many seconds, over how many connections.

    ``timeout`` is how many seconds an answer may take; ``seed`` draws the times.
    """

    rate: float
    seconds: float = 5.0
    connections: int = 64
    timeout: float = 10.0
    seed: int = 0

    def times(self) -> np.ndarray[Any, Any]:
        """When the requests are due, in seconds from the beginning.

        >>> from eagerflow.serving.load import Load
        >>> len(Load(rate=1000.0, seconds=2.0).times())
        2000
        """
        count = max(round(self.rate * self.seconds), 1)
        found = np.sort(np.random.default_rng(self.seed).uniform(0.0, self.seconds, count))
        return found - found[0]

    def checked(self) -> Load:
        """These numbers; ArgumentError for one that cannot be."""
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
    """What came of a load.

    ``latencies`` are the seconds of each answer with status 200, from when its request was due;
    ``statuses`` counts the answers by status, and what had none by the reason; ``refusals`` are
    the seconds of answers with another status. ``seconds`` is the time until the last answer,
    ``late`` how many requests the client itself sent late.
    """

    load: Load
    seconds: float
    latencies: np.ndarray[Any, Any]
    refusals: np.ndarray[Any, Any]
    statuses: Counter[str]
    late: int

    @property
    def goodput(self) -> float:
        """Answers with status 200 a second."""
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        """The time that this share of the good answers took at most; NaN without any."""
        return float(np.quantile(self.latencies, share)) if len(self.latencies) else float("nan")


async def apply_load(question: Question, load: Load) -> LoadResult:
    """Send a request at the rate of a load, and tell what came back.

    Raises ArgumentError for numbers that cannot be, OSError where no server listens.
    """
    run = _Run(question, load.checked())
    return await run.result()


class _Run:
    """One load: connections, and requests that are due, under way or answered."""

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
        self.due: deque[float] = deque()  # what waits for a connection
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
        """Send what is due over the connections that are free."""
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
        """A connection has gone, with the request that was under way, if any; open another."""
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
            # No server listens: what is due has no answer, unless another connection is there.
            while self.due and not self.free:
                self.due.popleft()
                self.count("not connected")
            await asyncio.sleep(0.05)
            if not self.done.is_set():
                self.loop.create_task(self.reopen())
            return
        self.send()


class _Connection(asyncio.Protocol):
    """A connection that stays open, with one request under way at most."""

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
            self.transport.abort()  # an answer without a request
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
    """A table with a title: rates, times in milliseconds, and what was not answered well."""
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
