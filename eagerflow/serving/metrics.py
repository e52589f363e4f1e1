"""What a server counts, for Prometheus: requests, their times, batches, queues, refusals."""

from __future__ import annotations

from typing import Any

from eagerflow import extras
from eagerflow.serving.refusals import status_of

__all__ = ["Metrics", "VersionMetrics"]

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_ROWS = tuple(1 << i for i in range(11))


class Metrics:
    """The numbers of one server, in a registry of its own; MissingExtraError without the extra."""

    def __init__(self) -> None:
        self._client = client = extras.load("prometheus_client", "serving", "ef.serving")
        self.registry = client.CollectorRegistry()
        labels = ("model", "version")
        self.seconds = client.Histogram(
            "eagerflow_request_seconds",
            "Seconds from when a request was read to its answer",
            labels,
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.rows = client.Histogram(
            "eagerflow_batch_rows",
            "Rows of the batches that were computed",
            labels,
            buckets=_ROWS,
            registry=self.registry,
        )
        self.refused = client.Counter(
            "eagerflow_refused_requests",
            "Requests that had an error for an answer, by its HTTP status",
            ("model", "status"),
            registry=self.registry,
        )
        self.waiting = client.Gauge(
            "eagerflow_waiting_requests",
            "Requests that wait or are computed now",
            labels,
            registry=self.registry,
        )

        self.sequences = client.Gauge(
            "eagerflow_active_sequences",
            "Sequences whose state is kept now",
            labels,
            registry=self.registry,
        )
        self.tokens = client.Counter(
            "eagerflow_generated_tokens",
            "Tokens that were generated",
            labels,
            registry=self.registry,
        )
        self.first_token = client.Histogram(
            "eagerflow_first_token_seconds",
            "Seconds from when a request was read to the first token that is generated",
            labels,
            buckets=_SECONDS,
            registry=self.registry,
        )

    def refuse(self, model: str, error: BaseException) -> None:
        """Count an answer that is an error; names that no model has are counted as one."""
        self.refused.labels(model, status_of(error)).inc()

    def text(self) -> bytes:
        """All numbers, in Prometheus' text format."""
        return bytes(self._client.generate_latest(self.registry))

    @property
    def content_type(self) -> str:
        """The type of ``text``."""
        return str(self._client.CONTENT_TYPE_LATEST)


class VersionMetrics:
    """The numbers of one version, found once."""

    def __init__(self, metrics: Metrics, model: str, version: int) -> None:
        labels = model, str(version)
        self._of: list[Any] = [metrics.seconds, metrics.rows, metrics.waiting]
        self._metrics = metrics
        self._labels = labels
        self.answered = metrics.seconds.labels(*labels).observe
        self.computed = metrics.rows.labels(*labels).observe
        self._waiting = metrics.waiting.labels(*labels)

    def watch(self, running: Any) -> None:
        """Let ``running()`` tell how many requests are under way, when somebody asks."""
        self._waiting.set_function(running)

    def watch_sequences(self, active: Any) -> None:
        """Let ``active()`` tell how many sequences there are; they may generate tokens."""
        of = self._metrics
        of.sequences.labels(*self._labels).set_function(active)
        self.generated = of.tokens.labels(*self._labels).inc
        self.first_token = of.first_token.labels(*self._labels).observe
        self._of += [of.sequences, of.tokens, of.first_token]

    def forget(self) -> None:
        """The version has left: its numbers go with it."""
        for metric in self._of:
            metric.remove(*self._labels)
