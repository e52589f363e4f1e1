"""Right and wrong alarms by thresholds: counts, precision, recall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Unpack

import numpy as np

from eagerflow import ops
from eagerflow.errors import ShapeError
from eagerflow.nn.arguments import Count, TensorLike, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.alignment import in_precision, same_shape, weight_for
from eagerflow.nn.metrics.metric import Metric, MetricOptions, ratio
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = [
    "ConfusionTables",
    "FalseNegatives",
    "FalsePositives",
    "Precision",
    "Recall",
    "TrueNegatives",
    "TruePositives",
]


def tables(
    y_true: Any, places: Any, weight: Any, thresholds: int, by_label: bool = False
) -> dict[str, Any]:
    """The four weighted counts, one for each threshold, and for each label with ``by_label``.

    ``places`` is the number of thresholds below each prediction. One pass over the predictions
    fills a bucket for each; reverse cumulative sums give the counts above each threshold.
    """
    yes = ops.astype(ops.not_equal(y_true, 0.0), weight.dtype) * weight
    both = ops.stack([yes, weight - yes], axis=-1)
    labels = y_true.shape[-1] if by_label else 1
    at = places * labels + ops.arange(labels) if by_label else places
    buckets = ops.segment_sum(both.reshape((-1, 2)), at.reshape(-1), (thresholds + 1) * labels)
    buckets = buckets.reshape((thresholds + 1, labels, 2) if by_label else (thresholds + 1, 2))
    sums = ops.flip(ops.cumulative_sum(ops.flip(buckets, axis=0), axis=0), axis=0)
    above, below = sums[1:], sums[:1] - sums[1:]
    return {
        "true_positives": above[..., 0],
        "false_positives": above[..., 1],
        "true_negatives": below[..., 1],
        "false_negatives": below[..., 0],
    }


class ConfusionTables(Metric):
    """Base of metrics with some of the four counts at each threshold as state."""

    counts: tuple[str, ...]
    true_positives: Variable
    false_positives: Variable
    true_negatives: Variable
    false_negatives: Variable

    def start(self, thresholds: Sequence[float], *labels: int) -> None:
        """Create the state for these thresholds, and for each label if there are several."""
        order = np.argsort(thresholds, kind="stable")
        self._sorted = [thresholds[i] for i in order]
        self._order = None if np.array_equal(order, range(len(order))) else np.argsort(order)
        for name in self.counts:
            setattr(self, name, self.add_variable((len(thresholds), *labels), name=name))

    def take_in(self, y_true: Any, y_pred: Any, weight: Any, by_label: bool = False) -> None:
        """Add the counts of a batch of targets, predictions and weights of one shape."""
        bounds = np.asarray(self._sorted, "float32")
        self.count(y_true, ops.searchsorted(bounds, y_pred), weight, by_label)

    def count(self, y_true: Any, places: Any, weight: Any, by_label: bool = False) -> None:
        """Add the counts; ``places`` are the numbers of thresholds that predictions exceed."""
        found = tables(y_true, places, weight, len(self._sorted), by_label)
        for name in self.counts:
            new = found[name]
            if self._order is not None:
                new = ops.take(new, self._order, axis=0)
            getattr(self, name).assign_add(new)

    def aligned(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike
    ) -> tuple[Any, Any, Any]:
        """Targets, predictions and weights in the dtype of the state and of one shape."""
        y_true, y_pred = same_shape(self.name, y_true, in_precision(y_pred, self.dtype))
        weight = 1.0 if sample_weight is None else sample_weight
        return y_true, y_pred, weight_for(y_pred, weight, self.name)


def _thresholds(value: Any) -> list[float]:
    found = [float(t) for t in np.atleast_1d(np.asarray(value, "float64"))]
    ok = bool(found) and all(0 <= t <= 1 for t in found)
    require(ok, value, "out of range", expected="numbers from 0 to 1")
    return found


Thresholds = Annotated[Any, lambda value: None if value is None else _thresholds(value)]
"""A number from 0 to 1 or several; predictions above are positive."""


def _one_or_all(values: Any) -> Tensor:
    """The number of the only threshold, or those of all."""
    return values[0] if values.shape[0] == 1 else values


class _Counts(ConfusionTables):
    """Base of the four counts; ``thresholds`` is 0.5, or a number from 0 to 1, or several."""

    thresholds: list[float]

    @arguments
    def __init__(self, thresholds: Thresholds = None, **options: Unpack[MetricOptions]) -> None:
        self.thresholds = self.thresholds or [0.5]
        self.start(self.thresholds)

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None
    ) -> None:
        """Take in targets of zeros and ones and predictions from 0 to 1."""
        self.take_in(*self.aligned(y_true, y_pred, sample_weight))

    def result(self) -> Tensor:
        return _one_or_all(getattr(self, self.counts[0]).value)


class TruePositives(_Counts):
    """The number of right alarms: targets of 1 with a prediction above the threshold.

    ``thresholds`` is one, 0.5 if not given, or several, and then there are as many numbers.

    >>> ef.nn.metrics.TruePositives()([0, 1, 1, 1], [0.1, 0.9, 0.8, 0.2])
    Tensor(2., float32, cpu:0)
    """

    counts = ("true_positives",)


class FalsePositives(_Counts):
    """The number of false alarms: targets of 0 with a prediction above the threshold.

    ``thresholds`` is one, 0.5 if not given, or several, and then there are as many numbers.

    >>> ef.nn.metrics.FalsePositives()([0, 1, 0, 0], [0.9, 0.9, 0.8, 0.2])
    Tensor(2., float32, cpu:0)
    """

    counts = ("false_positives",)


class TrueNegatives(_Counts):
    """The number of right silences: targets of 0 without a prediction above the threshold.

    ``thresholds`` is one, 0.5 if not given, or several, and then there are as many numbers.

    >>> ef.nn.metrics.TrueNegatives()([0, 1, 0, 0], [0.9, 0.9, 0.8, 0.2])
    Tensor(1., float32, cpu:0)
    """

    counts = ("true_negatives",)


class FalseNegatives(_Counts):
    """The number of targets missed: those of 1 without a prediction above the threshold.

    ``thresholds`` is one, 0.5 if not given, or several, and then there are as many numbers.

    >>> ef.nn.metrics.FalseNegatives()([0, 1, 1, 1], [0.1, 0.9, 0.8, 0.2])
    Tensor(1., float32, cpu:0)
    """

    counts = ("false_negatives",)


class _Rate(ConfusionTables):
    """Base of the share of true positives in these and another count."""

    thresholds: list[float]
    top_k: int | None
    class_id: int | None

    @arguments
    def __init__(
        self,
        thresholds: Thresholds = None,
        top_k: Count | None = None,
        class_id: int | None = None,
        **options: Unpack[MetricOptions],
    ) -> None:
        # Of the largest predictions each counts, however small, unless a threshold is given.
        self.thresholds = self.thresholds or [0.5 if top_k is None else -np.inf]
        self.start(self.thresholds)

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None
    ) -> None:
        """Take in targets of zeros and ones and predictions from 0 to 1, of one shape."""
        y_true, y_pred, weight = self.aligned(y_true, y_pred, sample_weight)
        places = ops.searchsorted(np.asarray(self._sorted, "float32"), y_pred)
        if self.top_k is not None:
            largest = ops.one_hot(ops.top_k(y_pred, self.top_k)[1], y_pred.shape[-1])
            places = places * ops.astype(ops.sum(largest, axis=-2), places.dtype)
        if self.class_id is not None:
            if y_pred.ndim < 2:
                raise ShapeError(
                    "the predictions have no axis of classes",
                    op=self.name,
                    expected="shape (batch, classes), as class_id is given",
                )
            own = slice(self.class_id, self.class_id + 1)
            y_true, places, weight = (x[..., own] for x in (y_true, places, weight))
        self.count(y_true, places, weight)

    def result(self) -> Tensor:
        hits, others = (getattr(self, name).value for name in self.counts)
        return _one_or_all(ratio(hits, hits + others))


class Precision(_Rate):
    """The share of right alarms in all alarms: true positives in all that is predicted.

    ``thresholds`` is one, 0.5 if not given, or several, and then there are as many numbers. With
    ``top_k`` only the largest predictions of each example are positive; ``class_id`` looks at one
    class alone.

    >>> ef.nn.metrics.Precision()([0, 1, 1, 1], [0.9, 0.9, 0.8, 0.2])
    Tensor(0.6667, float32, cpu:0)
    """

    counts = ("true_positives", "false_positives")


class Recall(_Rate):
    """The share of targets that were found: true positives in all that is true.

    Arguments are those of ``Precision``.

    >>> ef.nn.metrics.Recall()([0, 1, 1, 1], [0.9, 0.9, 0.2, 0.3])
    Tensor(0.3333, float32, cpu:0)
    """

    counts = ("true_positives", "false_negatives")
