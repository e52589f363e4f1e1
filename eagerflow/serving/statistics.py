"""What a version has done, in sums: requests, rows, batches, and where their time went."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, fields

__all__ = ["Statistics"]


@dataclass(slots=True)
class Statistics:
    """Sums since a version was loaded: numbers, and seconds.

    ``success`` and ``fail`` are requests that had an answer or an error, with the seconds from when
    they came; ``queue`` are the seconds that they waited, ``compute`` those of the batches that
    they were in. ``last`` is when the last batch was computed, in seconds since 1970.
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
        """Count a batch of so many rows, whose requests have ``waited`` so long together."""
        self.rows += rows
        self.batches += 1
        self.queue_seconds += waited
        self.compute_seconds += seconds
        self.last = time.time()

    def ended(self, seconds: float, failed: bool) -> None:
        """Count a request that has its answer, or an error."""
        if failed:
            self.fail += 1
            self.fail_seconds += seconds
        else:
            self.success += 1
            self.success_seconds += seconds

    @classmethod
    def of(cls, parts: Iterable[Statistics]) -> Statistics:
        """The sums of several."""
        given = list(parts)
        sums = {f.name: sum(getattr(part, f.name) for part in given) for f in fields(cls)}
        return cls(**sums | {"last": max((part.last for part in given), default=0.0)})
