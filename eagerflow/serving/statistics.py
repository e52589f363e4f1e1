"""Cumulative statistics of a version: requests, rows, batches, and times."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, fields

__all__ = ["Statistics"]


@dataclass(slots=True)
class Statistics:
    """Counts, and sums of seconds, since a version was loaded.

    ``success`` and ``fail`` count requests with a result or an error, with the seconds since their
    arrival; ``queue`` are the seconds in the queue, ``compute`` those of their batches. ``last`` is
    when the last batch was computed, in seconds since 1970.
    """

    success: int = 0
    success_seconds: float = 0.0
    fail: int = 0
    fail_seconds: float = 0.0
    rows: int = 0
    batches: int = 0
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    last: float = 0.0

    def computed(self, rows: int, waited: float, seconds: float) -> None:
        """Count a batch of ``rows``; its requests have ``waited`` so many seconds in total."""
        self.rows += rows
        self.batches += 1
        self.queue_seconds += waited
        self.compute_seconds += seconds
        self.last = time.time()

    def ended(self, seconds: float, failed: bool) -> None:
        """Count a request that has its result, or an error."""
        if failed:
            self.fail += 1
            self.fail_seconds += seconds
        else:
            self.success += 1
            self.success_seconds += seconds

    @classmethod
    def of(cls, parts: Iterable[Statistics]) -> Statistics:
        """The sums over several."""
        given = list(parts)
        sums = {f.name: sum(getattr(part, f.name) for part in given) for f in fields(cls)}
        return cls(**sums | {"last": max((part.last for part in given), default=0.0)})
