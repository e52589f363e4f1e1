"""Scales and zero points of small integers, and ranges of data.

Activations become uint8 with a zero point, weights int8 or int4 without one: then a zero
point only needs sums of weights, which are known in advance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

METHODS = ("minmax", "percentile", "mse")
LEVELS = 255  # steps of uint8
MAX_SAMPLES = 1 << 14  # sampled elements of a batch, in addition to its range
SHARES = np.linspace(0.3, 1.0, 71)
"""Fractions of a range that are tried for the least error."""


class Range(NamedTuple):
    """The least and the largest representable number; 0 lies between them."""

    low: float
    high: float

    @property
    def scale(self) -> np.float32:
        """The step size of uint8."""
        return np.float32((self.high - self.low) / LEVELS or 1.0)

    @property
    def zero_point(self) -> np.uint8:
        """The integer for 0, which is exact."""
        return np.uint8(np.clip(np.rint(-self.low / self.scale), 0, LEVELS))


class Observer:
    """Collects statistics of a value over batches of data."""

    def __init__(self) -> None:
        self.low = self.high = 0.0
        self.is_finite = True  # whether all numbers were
        self._samples: list[Any] = []

    def add(self, array: Any) -> None:
        """Add the value in one batch."""
        if not array.size:
            return
        low, high = float(array.min()), float(array.max())
        self.is_finite &= bool(np.isfinite(low) and np.isfinite(high))
        self.low, self.high = min(self.low, low), max(self.high, high)
        step = -(-array.size // MAX_SAMPLES)
        self._samples.append(array.ravel()[::step].astype(np.float32))

    def range(self, method: str, percentile: float) -> Range:
        """The range for these data; see ``quantize`` for the ways to find it."""
        if method == "minmax" or not self._samples:
            return Range(self.low, self.high)
        found = np.concatenate(self._samples)
        if method == "percentile":
            low, high = np.percentile(found, [100 - percentile, percentile])
            return Range(min(float(low), 0.0), max(float(high), 0.0))
        return min(self._tried(found), key=lambda pair: pair[0])[1]

    def _tried(self, samples: Any) -> Any:
        """Mean squared errors for parts of the range, and the ranges."""
        for share in SHARES:
            found = Range(self.low * share, self.high * share)
            whole = np.rint(samples / found.scale) + float(found.zero_point)
            back = (np.clip(whole, 0, LEVELS) - float(found.zero_point)) * found.scale
            yield float(np.mean(np.square(back - samples))), found


# Weights -----------------------------------------------------------------------------------------


class Weights(NamedTuple):
    """Weights as small integers: ``integers * scale`` approximates them."""

    integers: Any
    scale: Any


def steps_of(array: Any, axes: tuple[int, ...], bits: int) -> Weights:
    """Weights without a zero point, with one scale for all elements along some axes."""
    most = (1 << (bits - 1)) - 1
    scale = np.abs(array).max(axis=axes, keepdims=True, initial=0.0) / np.float32(most)
    scale = np.where(scale == 0, 1, scale).astype(np.float32)
    return Weights(np.clip(np.rint(array / scale), -most, most).astype(np.int8), scale)


def of_matrix(array: Any, per_channel: bool) -> Weights:
    """A matrix, with a scale for each column, as int8."""
    return steps_of(array, (0,) if per_channel else (0, 1), 8)


def of_filters(array: Any, per_channel: bool) -> Weights:
    """Filters (*window, channels, filters), with a scale for each filter, as int8."""
    axes = tuple(range(array.ndim - per_channel))
    return steps_of(array, axes, 8)


def of_groups(array: Any, bits: int, size: int) -> Weights:
    """A matrix as (groups, rows of each, columns), with a scale for each group and column."""
    rows, columns = array.shape
    return steps_of(array.reshape(rows // size, size, columns), (1,), bits)
