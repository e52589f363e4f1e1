"""Prometheus metrics of a server: requests, their times, batches, queues, refusals."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from eagerflow import extras
from eagerflow.serving.errors import status_of
from eagerflow.serving.limits import Places
from eagerflow.serving.workers import Workers

__all__ = ["Metrics", "VersionMetrics"]

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_OF_VERSION = ("model", "version")
_ROWS = tuple(1 << i for i in range(11))


class _Histogram:
    """A histogram; belongs to the event loop, so that nothing is locked."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, number: float) -> None:
        """Count a number."""
        self._counts[bisect_left(self._bounds, number)] += 1
        self._sum += number

    def told(self) -> tuple[list[tuple[str, float]], float]:
        """The cumulative count of each bucket, by its bound, and the sum of all numbers."""
        names = [*map(str, self._bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True)), self._sum


class _Histograms:
    """A histogram for each model and version, as a collector of the client's registry."""

    def __init__(self, registry: Any, name: str, told: str, bounds: Sequence[float]) -> None:
        core = extras.load("prometheus_client.core", "serving", "ef.serving")
        self._family = core.HistogramMetricFamily
        self._about = name, told
        self._bounds = bounds
        self._of: dict[tuple[str, ...], _Histogram] = {}
        registry.register(self)

    def labels(self, *labels: str) -> _Histogram:
        """The histogram of a model and a version."""
        return self._of.setdefault(labels, _Histogram(self._bounds))

    def remove(self, *labels: str) -> None:
        """Remove the histogram of a model and a version."""
        self._of.pop(labels, None)

    def collect(self) -> list[Any]:
        """All histograms in the client library's form."""
        family = self._family(*self._about, labels=_OF_VERSION)
        for labels, histogram in self._of.items():
            family.add_metric(labels, *histogram.told())
        return [family]


class Metrics:
    """The metrics of one server, in a registry of its own; MissingExtraError without the extra."""

    def __init__(self) -> None:
        self._client = client = extras.load("prometheus_client", "serving", "ef.serving")
        self.registry = registry = client.CollectorRegistry()

        def made(kind: Any, name: str, told: str, labels: Any = _OF_VERSION) -> Any:
            return kind(f"eagerflow_{name}", told, labels, registry=registry)

        def histograms(name: str, told: str, bounds: Sequence[float]) -> _Histograms:
            return _Histograms(registry, f"eagerflow_{name}", told, bounds)

        self.seconds = histograms(
            "request_seconds", "Seconds from when a request was read to its answer", _SECONDS
        )
        self.rows = histograms("batch_rows", "Rows of the batches that were computed", _ROWS)
        self.refused = made(
            client.Counter,
            "refused_requests",
            "Requests that had an error for an answer, by its HTTP status",
            ("model", "status"),
        )
        self._refused_connections = made(
            client.Counter,
            "refused_connections",
            "Connections and calls that had no place, for all (server) or for their address",
            ("limit",),
        )
        self.waiting = made(
            client.Gauge, "waiting_requests", "Requests that wait or are computed now"
        )
        self.cached = made(
            client.Counter,
            "cache_requests",
            "Requests that asked the cache, by whether the answer was there, or under way",
            ("model", "outcome"),
        )
        self._shadows = made(
            client.Counter,
            "shadow_answers",
            "Answers that a shadow has computed again, by how it differed",
            (*_OF_VERSION, "outcome"),
        )
        self._differences = made(
            client.Gauge,
            "shadow_largest_difference",
            "The largest difference of a shadow's numbers from those that were answered",
        )
        self.sequences = made(client.Gauge, "active_sequences", "Sequences with state kept now")
        self.tokens = made(client.Counter, "generated_tokens", "Tokens that were generated")
        self.first_token = histograms(
            "first_token_seconds",
            "Seconds from when a request was read to the first token that is generated",
            _SECONDS,
        )

    def watch(self, workers: Workers) -> None:
        """Export the number of workers, and of those that have ended unexpectedly."""
        for name, told, count in (
            (
                "eagerflow_workers",
                "Processes that compute, spare ones too",
                lambda: len(workers.pids),
            ),
            ("eagerflow_workers_ended", "Processes that ended unasked", lambda: workers.ended),
        ):
            self._client.Gauge(name, told, registry=self.registry).set_function(count)

    def count_places(self, name: str, told: str, places: Places) -> None:
        """Export the number of places that are taken."""
        gauge = self._client.Gauge(f"eagerflow_{name}", told, registry=self.registry)
        gauge.set_function(lambda: places.taken)

    def refuse_connection(self, limit: str) -> None:
        """Count a refused connection or call."""
        self._refused_connections.labels(limit).inc()

    def shadowed(self, model: str, version: str, outcome: str, largest: float) -> None:
        """Count a shadow's result, and note the largest difference until now."""
        self._shadows.labels(model, version, outcome).inc()
        self._differences.labels(model, version).set(largest)

    def refuse(self, model: str, error: BaseException) -> None:
        """Count an error response; unknown model names are counted as one."""
        self.refused.labels(model, status_of(error)).inc()

    def text(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        return bytes(self._client.generate_latest(self.registry))

    @property
    def content_type(self) -> str:
        """The content type of ``text``."""
        return str(self._client.CONTENT_TYPE_LATEST)


class VersionMetrics:
    """The metrics of one version, looked up once."""

    def __init__(self, metrics: Metrics, model: str, version: int) -> None:
        labels = model, str(version)
        self._of: list[Any] = [metrics.seconds, metrics.rows, metrics.waiting]
        self._metrics = metrics
        self._labels = labels
        self._running: list[Any] = []
        self.answered = metrics.seconds.labels(*labels).observe
        self.computed = metrics.rows.labels(*labels).observe
        self._waiting = metrics.waiting.labels(*labels)

    def watch(self, running: Any) -> None:
        """Export ``running()`` as the number of requests in flight.

        The numbers of several callbacks are added.
        """
        self._running.append(running)
        self._waiting.set_function(lambda: sum(told() for told in self._running))

    def watch_sequences(self, active: Any) -> None:
        """Export ``active()`` as the number of sequences; they may generate tokens."""
        of = self._metrics
        of.sequences.labels(*self._labels).set_function(active)
        self.generated = of.tokens.labels(*self._labels).inc
        self.first_token = of.first_token.labels(*self._labels).observe
        self._of += [of.sequences, of.tokens, of.first_token]

    def forget(self) -> None:
        """Remove the metrics of a version that was unloaded."""
        for metric in self._of:
            metric.remove(*self._labels)
