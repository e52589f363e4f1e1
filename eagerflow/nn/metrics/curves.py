"""Metrics of whole curves: the area below, or the best of one rate that another allows."""

from __future__ import annotations

from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.nn.arguments import Count, TensorLike, choice, is_count, number, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.alignment import EPSILON, in_precision
from eagerflow.nn.losses.loss import Precision
from eagerflow.nn.metrics.confusion import ConfusionTables
from eagerflow.nn.metrics.metric import MetricOptions, ratio
from eagerflow.recorder import unrecorded
from eagerflow.tensor import Tensor

__all__ = [
    "AUC",
    "PrecisionAtRecall",
    "RecallAtPrecision",
    "SensitivityAtSpecificity",
    "SpecificityAtSensitivity",
]

Share = Annotated[float, number(lambda x: 0 <= x <= 1, "out of range", "a number from 0 to 1")]


def _inner(number: int) -> list[float]:
    """Thresholds between 0 and 1, evenly apart, that with these two are ``number``."""
    return [(i + 1) / (number - 1) for i in range(number - 2)]


class _Curve(ConfusionTables):
    """Base of metrics with all four counts, of predictions that are taken as from 0 to 1."""

    counts = ("true_positives", "false_positives", "true_negatives", "false_negatives")

    def rate(self, hits: str, others: str) -> Any:
        """The share of one count in it and another, at each threshold."""
        found, rest = getattr(self, hits).value, getattr(self, others).value
        return ratio(found, found + rest)


class _BestUnder(_Curve):
    """Base of metrics that maximize one rate subject to a lower bound of another."""

    class_id: int | None
    wanted: tuple[str, str]
    given: tuple[str, str]

    @arguments
    def __init__(
        self,
        num_thresholds: Count = 200,
        class_id: int | None = None,
        **options: Unpack[MetricOptions],
    ) -> None:
        whole = [0.0, *_inner(num_thresholds), 1.0]
        self.start([0.5] if num_thresholds == 1 else whole)

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None
    ) -> None:
        """Take in targets of zeros and ones and predictions from 0 to 1, of one shape."""
        found = self.aligned(y_true, y_pred, sample_weight)
        if self.class_id is not None:
            found = tuple(x[..., self.class_id] for x in found)
        y_true, y_pred, weight = found
        self.take_in(y_true, ops.clip(y_pred, 0.0, 1.0), weight)

    def best(self, least: float) -> Tensor:
        """The largest of the wanted rates at thresholds where the given rate is that large."""
        ok = ops.greater_equal(self.rate(*self.given), least)
        return ops.max(ops.where(ok, self.rate(*self.wanted), 0.0))


_SENSITIVITY = ("true_positives", "false_negatives")
_SPECIFICITY = ("true_negatives", "false_positives")
_PRECISION = ("true_positives", "false_positives")


class SensitivityAtSpecificity(_BestUnder):
    """The best sensitivity at which the specificity is at least the given value.

    ``specificity`` is from 0 to 1; ``num_thresholds`` are tried; ``class_id`` looks at one
    class alone.

    >>> metric = ef.nn.metrics.SensitivityAtSpecificity(0.5)
    >>> metric([0, 0, 0, 1, 1], [0.0, 0.3, 0.8, 0.3, 0.8])
    Tensor(0.5, float32, cpu:0)
    """

    wanted, given = _SENSITIVITY, _SPECIFICITY
    specificity: float

    @arguments
    def __init__(
        self,
        specificity: Share,
        num_thresholds: Count = 200,
        class_id: int | None = None,
        **options: Unpack[MetricOptions],
    ) -> None: ...

    def result(self) -> Tensor:
        return self.best(self.specificity)


class SpecificityAtSensitivity(_BestUnder):
    """The best specificity at which the sensitivity is at least the given value.

    ``sensitivity`` is from 0 to 1; other arguments are those of ``SensitivityAtSpecificity``.

    >>> metric = ef.nn.metrics.SpecificityAtSensitivity(0.5)
    >>> metric([0, 0, 0, 1, 1], [0.0, 0.3, 0.8, 0.3, 0.8])
    Tensor(0.6667, float32, cpu:0)
    """

    wanted, given = _SPECIFICITY, _SENSITIVITY
    sensitivity: float

    @arguments
    def __init__(
        self,
        sensitivity: Share,
        num_thresholds: Count = 200,
        class_id: int | None = None,
        **options: Unpack[MetricOptions],
    ) -> None: ...

    def result(self) -> Tensor:
        return self.best(self.sensitivity)


class PrecisionAtRecall(_BestUnder):
    """The best precision at which recall is at least ``recall``, from 0 to 1.

    Other arguments are those of ``SensitivityAtSpecificity``.

    >>> metric = ef.nn.metrics.PrecisionAtRecall(0.5)
    >>> metric([0, 0, 0, 1, 1], [0.0, 0.3, 0.8, 0.3, 0.8])
    Tensor(0.5, float32, cpu:0)
    """

    wanted, given = _PRECISION, _SENSITIVITY
    recall: float

    @arguments
    def __init__(
        self,
        recall: Share,
        num_thresholds: Count = 200,
        class_id: int | None = None,
        **options: Unpack[MetricOptions],
    ) -> None: ...

    def result(self) -> Tensor:
        return self.best(self.recall)


class RecallAtPrecision(_BestUnder):
    """The best recall at which precision is at least ``precision``, from 0 to 1.

    Other arguments are those of ``SensitivityAtSpecificity``.

    >>> metric = ef.nn.metrics.RecallAtPrecision(0.8)
    >>> metric([0, 0, 1, 1], [0.0, 0.5, 0.3, 0.9])
    Tensor(0.5, float32, cpu:0)
    """

    wanted, given = _SENSITIVITY, _PRECISION
    precision: float

    @arguments
    def __init__(
        self,
        precision: Share,
        num_thresholds: Count = 200,
        class_id: int | None = None,
        **options: Unpack[MetricOptions],
    ) -> None: ...

    def result(self) -> Tensor:
        return self.best(self.precision)


def _at_least_two(value: Any) -> int:
    require(is_count(value, 2), value, "out of range", expected="an integer of at least 2")
    return int(value)


def _curve(value: Any) -> str:
    name = value.upper() if isinstance(value, str) else value
    require(name in _CURVES, value, "not a curve", expected="one of " + ", ".join(_CURVES))
    return str(name)


_CURVES = ("ROC", "PR", "PRGAIN")


class AUC(_Curve):
    """The area under a curve of rates at many thresholds, ``"ROC"``, ``"PR"`` or ``"PRGAIN"``.

    ROC is recall over the false positive rate, PR precision over recall, PRGAIN the same as gains
    over always predicting positive. There are ``num_thresholds`` evenly spaced ones, or
    ``thresholds`` with two at the ends. ``summation_method`` is ``"interpolation"`` (in PR as Davis
    and Goadrich, 2006, do it), ``"minoring"`` (too small) or ``"majoring"`` (too large). With
    ``multi_label`` predictions have shape (batch, labels), each label has a curve, and the result
    is the mean of their areas, weighted by ``label_weights``; without it these are weights of the
    columns. ``from_logits`` means that predictions are logits.

    >>> ef.nn.metrics.AUC(num_thresholds=3)([0, 0, 1, 1], [0.0, 0.5, 0.3, 0.9])
    Tensor(0.75, float32, cpu:0)
    """

    curve: str
    summation_method: str
    multi_label: bool
    label_weights: Tensor | None
    from_logits: bool

    @arguments
    def __init__(
        self,
        num_thresholds: Annotated[int, _at_least_two] = 200,
        curve: Annotated[str, _curve] = "ROC",
        summation_method: Annotated[
            str, choice("not a method", "interpolation", "minoring", "majoring")
        ] = "interpolation",
        name: str | None = None,
        dtype: Precision = None,
        thresholds: Any = None,
        multi_label: bool = False,
        num_labels: int | None = None,
        label_weights: Any = None,
        from_logits: bool = False,
    ) -> None:
        inner = _inner(num_thresholds) if thresholds is None else sorted(thresholds)
        self.thresholds = [-EPSILON, *inner, 1.0 + EPSILON]
        self.label_weights = None if label_weights is None else as_tensor(label_weights, self.dtype)
        if num_labels and not multi_label:
            raise ArgumentError(
                "there are no labels to count without multi_label=True",
                op=self.name,
                argument="num_labels",
            )
        if not multi_label:
            self.start(self.thresholds)
        elif num_labels:
            self.start(self.thresholds, num_labels)

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None
    ) -> None:
        """Take in targets of zeros and ones and predictions of one shape."""
        y_pred = in_precision(y_pred, self.dtype)
        if self.from_logits:
            y_pred = ops.sigmoid(y_pred)
        y_true, y_pred, weight = self.aligned(y_true, y_pred, sample_weight)
        if self.multi_label and y_pred.ndim != 2:
            raise ShapeError(
                "the predictions have no axis of labels",
                op=self.name,
                received=summary(y_pred),
                expected="shape (batch, labels), as multi_label is given",
            )
        if not self.variables:
            unrecorded(f"state of {self.name!r}", self.start, self.thresholds, y_pred.shape[-1])
        if self.label_weights is not None and not self.multi_label:
            weight = weight * self.label_weights
        self.take_in(y_true, ops.clip(y_pred, 0.0, 1.0), weight, self.multi_label)

    def result(self) -> Tensor:
        if self.curve == "PR" and self.summation_method == "interpolation":
            areas = self._interpolated()
        else:
            x, y = self._points()
            left, right = y[:-1], y[1:]
            heights = {
                "interpolation": (left + right) / 2.0,
                "minoring": ops.minimum(left, right),
                "majoring": ops.maximum(left, right),
            }
            areas = (x[:-1] - x[1:]) * heights[self.summation_method]
        area = areas.sum(axis=0)
        if not self.multi_label:
            return area
        if self.label_weights is None:
            return area.mean()
        return ratio((area * self.label_weights).sum(), self.label_weights.sum())

    def _points(self) -> tuple[Any, Any]:
        """Where the curve is at each threshold."""
        recall = self.rate(*_SENSITIVITY)
        if self.curve == "ROC":
            return self.rate("false_positives", "true_negatives"), recall
        if self.curve == "PR":
            return recall, self.rate(*_PRECISION)
        hits, false, silent, missed = (getattr(self, name).value for name in self.counts)
        odds = ratio(hits + missed, silent + false)
        none = ops.equal(hits, 0.0)
        x = ops.where(none, 0.0, 1.0 - odds * ratio(missed, hits))
        y = ops.where(none, 1.0, 1.0 - odds * ratio(false, hits))
        return ops.maximum(x, 0.0), y

    def _interpolated(self) -> Any:
        """Areas between thresholds of the PR curve, where counts grow evenly between them."""
        hits: Any = self.true_positives.value
        missed, false = self.false_negatives.value, self.false_positives.value
        alarms = hits + false
        steps = hits[:-1] - hits[1:]
        slope = ratio(steps, ops.maximum(alarms[:-1] - alarms[1:], 0.0))
        start = hits[1:] - slope * alarms[1:]
        grown = ops.logical_and(ops.greater(alarms[:-1], 0.0), ops.greater(alarms[1:], 0.0))
        times = ops.where(grown, ratio(alarms[:-1], alarms[1:]), 1.0)
        area = slope * (steps + start * ops.log(times))
        return ratio(area, hits[1:] + missed[1:])
