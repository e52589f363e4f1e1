"""Request logging: a log line for each request, and spans for OpenTelemetry.

Bodies and tokens are never logged. Without a journal a request costs one lookup of a context
variable.
"""

from __future__ import annotations

import logging
import re
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from eagerflow import extras
from eagerflow.errors import printable
from eagerflow.serving.json_bodies import dumps

__all__ = ["FORMS", "HEADER", "Journal", "Record", "current", "written"]

HEADER = "x-request-id"
FORMS = ("off", "text", "json", "logging")
_MAX_PATH = 200
_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_LOG = "eagerflow.serving"
_log = logging.getLogger(f"{_LOG}.requests")


class Record:
    """The log record of one request; times are in seconds.

    ``queue`` and ``compute`` are the times of waiting and computation; for a request that was
    split, the longest wait and the sum.
    """

    def __init__(self, id: str, method: str, path: str) -> None:
        self.id = id
        self.method = method
        self.path = path[:_MAX_PATH]
        self.model: str | None = None
        self.version: int | None = None
        self.status: int | None = None
        self.rows = 0
        self.queue = 0.0
        self.compute = 0.0
        self.bytes = 0
        self.begun = time.monotonic()
        self.seconds = 0.0

    def computed(self, model: str, version: int, rows: int, times: tuple[float, float]) -> None:
        """Add rows that were computed, with their waiting and computation times."""
        self.model, self.version = model, version
        self.rows += rows
        self.queue = max(self.queue, times[0])
        self.compute += times[1]

    def fields(self) -> dict[str, Any]:
        """All fields by name, rounded to microseconds."""
        found = {name: value for name, value in vars(self).items() if name != "begun"}
        return {n: round(x, 6) if isinstance(x, float) else x for n, x in found.items()}


current: ContextVar[Record | None] = ContextVar("current", default=None)
"""The request of the running task, if there is a journal."""


class Journal:
    """Logs requests, and with ``trace`` exports them to OpenTelemetry.

    Raises MissingExtraError for ``trace`` without the extra ``otel``.
    """

    def __init__(self, trace: bool = False) -> None:
        self._spans = _Spans() if trace else None

    @contextmanager
    def noting(self, method: str, path: str, headers: Mapping[str, str]) -> Iterator[Record]:
        """Context manager around the handling of a request, with a Record to fill in."""
        given = headers.get(HEADER, "")
        record = Record(given if _ID.fullmatch(given) else secrets.token_hex(16), method, path)
        before = current.set(record)
        try:
            yield record
        finally:
            record.seconds = time.monotonic() - record.begun
            _log.info("%s %s %s", record.method, record.path, record.status, extra={"of": record})
            current.reset(before)
            if self._spans is not None:
                self._spans.add(record, headers)

    def around(self, application: Any) -> Any:
        """Wrap an ASGI application: requests are logged, and responses carry request ids."""

        async def noted(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
            if scope["type"] != "http":
                await application(scope, receive, send)
                return
            headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
            with self.noting(scope["method"], scope["path"], headers) as record:

                async def sending(message: Any) -> None:
                    if message["type"] == "http.response.start":
                        record.status = message["status"]
                        own = HEADER.encode(), record.id.encode()
                        message = message | {"headers": [*message.get("headers", ()), own]}
                    record.bytes += len(message.get("body", b""))
                    await send(message)

                await application(scope, receive, sending)

        return noted


class _Spans:
    """Spans of finished requests, each with child spans for queueing and computation."""

    def __init__(self) -> None:
        self._trace = extras.load("opentelemetry.trace", "otel", "tracing in ef.serving")
        self._propagate = extras.load("opentelemetry.propagate", "otel", "tracing in ef.serving")
        self._tracer = self._trace.get_tracer(_LOG)

    def add(self, record: Record, headers: Mapping[str, str]) -> None:
        """Export the spans of a request, as children of the context in the traceparent header."""
        begin = time.time_ns() - int(record.seconds * 1e9)
        span = self._tracer.start_span(
            f"{record.method} {record.path}",
            context=self._propagate.extract(headers),
            kind=self._trace.SpanKind.SERVER,
            start_time=begin,
            attributes={
                f"eagerflow.{name}": value
                for name, value in record.fields().items()
                if value is not None
            },
        )
        within = self._trace.set_span_in_context(span)
        computed = begin + int((record.seconds - record.compute) * 1e9)
        if record.rows:
            for name, start, seconds in (
                ("queue", computed - int(record.queue * 1e9), record.queue),
                ("compute", computed, record.compute),
            ):
                part = self._tracer.start_span(name, context=within, start_time=start)
                part.end(start + int(seconds * 1e9))
        span.end(begin + int(record.seconds * 1e9))


# The log ------------------------------------------------------------------------------------------


class _Text(logging.Formatter):
    """A line for human readers."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname} {super().format(record)}"
        told = _fields(record)
        shown = (f" {n}={told[n]}" for n in told if n not in ("method", "path", "status"))
        line += "".join(shown)
        return "\n    ".join(map(printable, line.splitlines()))


class _Json(logging.Formatter):
    """One line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"time": self.formatTime(record), "level": record.levelname}
        if not hasattr(record, "of"):
            told["message"] = super().format(record)
        return dumps(told | _fields(record)).decode()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a log line: all for a finished request, only its id before."""
    if hasattr(record, "of"):
        found: dict[str, Any] = record.of.fields()
        return found
    running = current.get()
    return {} if running is None else {"id": running.id}


@contextmanager
def written(form: str) -> Iterator[None]:
    """Context manager that sends a server's log to standard error, as text or JSON.

    ``logging`` leaves it to the program's own handlers, and ``off`` logs warnings alone.
    """
    if form in ("off", "logging"):
        yield
        return
    log, handler = logging.getLogger(_LOG), logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before
