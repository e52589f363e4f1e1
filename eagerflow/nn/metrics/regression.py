"""Metrics of regression that are not losses: RMSE, R2, and cosine similarity."""

from __future__ import annotations

from typing import Annotated, Any

from eagerflow import ops
from eagerflow.display import summary
from eagerflow.errors import ShapeError
from eagerflow.nn.arguments import TensorLike, choice, is_count, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.alignment import EPSILON, in_precision, same_shape, weight_for
from eagerflow.nn.losses.loss import Precision
from eagerflow.nn.losses.regression import cosine_similarity
from eagerflow.nn.metrics.metric import Metric
from eagerflow.nn.metrics.reduction import FunctionMetric
from eagerflow.recorder import unrecorded
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = [
    "ConcordanceCorrelation",
    "CosineSimilarity",
    "PearsonCorrelation",
    "R2Score",
    "RootMeanSquaredError",
]


def _squared_error(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    y_true, y_pred = same_shape("root_mean_squared_error", y_true, y_pred)
    return ops.square(y_pred - y_true)


class RootMeanSquaredError(FunctionMetric):
    """The square root of the mean of the squared differences.

    >>> ef.nn.metrics.RootMeanSquaredError()([[0.0], [0.0]], [[1.0], [7.0]])
    Tensor(5., float32, cpu:0)
    """

    function = staticmethod(_squared_error)

    def result(self) -> Tensor:
        return ops.sqrt(super().result())


def _cosine(y_true: TensorLike, y_pred: TensorLike, axis: int = -1) -> Tensor:
    return ops.negative(cosine_similarity(y_true, y_pred, axis))


def _correlation(y_true: TensorLike, y_pred: TensorLike, axis: int = -1) -> Tensor:
    y_true, y_pred = same_shape("pearson_correlation", y_true, y_pred)
    a, b = (y - y.mean(axis=axis, keepdims=True) for y in (y_true, y_pred))
    a, b = (y / ops.std(y, axis=axis, keepdims=True) for y in (a, b))
    return ops.mean(a * b, axis=axis)


def _concordance(y_true: TensorLike, y_pred: TensorLike, axis: int = -1) -> Tensor:
    y_true, y_pred = same_shape("concordance_correlation", y_true, y_pred)
    means = [y.mean(axis=axis, keepdims=True) for y in (y_true, y_pred)]
    a, b = y_true - means[0], y_pred - means[1]
    spread = ops.mean(a * a + b * b, axis=axis) + ops.squeeze((means[0] - means[1]) ** 2, axis=axis)
    return 2.0 * ops.mean(a * b, axis=axis) / (spread + EPSILON)


class CosineSimilarity(FunctionMetric):
    """The mean cosine of the angle between targets and predictions along ``axis``.

    >>> ef.nn.metrics.CosineSimilarity()([[0.0, 1.0], [1.0, 1.0]], [[0.0, 2.0], [1.0, -1.0]])
    Tensor(0.5, float32, cpu:0)
    """

    function = staticmethod(_cosine)
    axis: int

    @arguments
    def __init__(
        self, name: str | None = None, dtype: Precision = None, axis: int = -1
    ) -> None: ...


class PearsonCorrelation(FunctionMetric):
    """The mean of the linear correlations of targets and predictions along ``axis``.

    Source: Pearson, 1895.

    >>> ef.nn.metrics.PearsonCorrelation()([[0.0, 1.0, 2.0]], [[1.0, 3.0, 5.0]])
    Tensor(1., float32, cpu:0)
    """

    function = staticmethod(_correlation)
    axis: int

    @arguments
    def __init__(
        self, name: str | None = None, dtype: Precision = None, axis: int = -1
    ) -> None: ...


class ConcordanceCorrelation(FunctionMetric):
    """The concordance correlation of targets and predictions along ``axis``, averaged.

    Source: Lin, 1989.

    >>> ef.nn.metrics.ConcordanceCorrelation()([[0.0, 1.0, 2.0]], [[1.0, 2.0, 3.0]])
    Tensor(0.5714, float32, cpu:0)
    """

    function = staticmethod(_concordance)
    axis: int

    @arguments
    def __init__(
        self, name: str | None = None, dtype: Precision = None, axis: int = -1
    ) -> None: ...


Aggregation = Annotated[
    str | None,
    choice("not an aggregation", None, "uniform_average", "variance_weighted_average"),
]


def _regressors(value: Any) -> int:
    require(is_count(value, 0), value, "out of range", expected="an integer from 0")
    return int(value)


class R2Score(Metric):
    """The share of the variance of the targets that predictions explain; at best 1.

    Targets and predictions have shape (batch, outputs). ``class_aggregation`` is
    ``"uniform_average"`` of the outputs, ``"variance_weighted_average"``, or None for the number of
    each. ``num_regressors`` selects the score adjusted for that number of inputs, if there are more
    samples than that. Raises ShapeError for other shapes.

    >>> ef.nn.metrics.R2Score()([[1.0], [4.0], [3.0]], [[2.0], [4.0], [4.0]])
    Tensor(0.5714, float32, cpu:0)
    """

    class_aggregation: str | None
    num_regressors: int
    sum: Variable
    squared_sum: Variable
    total_mse: Variable
    count: Variable

    @arguments
    def __init__(
        self,
        class_aggregation: Aggregation = "uniform_average",
        num_regressors: Annotated[int, _regressors] = 0,
        name: str | None = None,
        dtype: Precision = None,
    ) -> None:
        self.num_samples = self.add_variable(name="num_samples")

    def _build(self, outputs: int) -> None:
        self.squared_sum = self.add_variable((outputs,), name="squared_sum")
        self.sum = self.add_variable((outputs,), name="sum")
        self.total_mse = self.add_variable((outputs,), name="residual")
        self.count = self.add_variable((outputs,), name="count")

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None
    ) -> None:
        """Take in the targets and predictions of a batch."""
        y_true, y_pred = same_shape(self.name, y_true, in_precision(y_pred, self.dtype))
        if y_pred.ndim != 2:
            raise ShapeError(
                "the predictions do not have two axes",
                op=self.name,
                received=summary(y_pred),
                expected="shape (batch, outputs)",
            )
        if len(self.variables) == 1:
            unrecorded(f"state of {self.name!r}", self._build, y_pred.shape[-1])
        weight: Any = weight_for(y_true, 1.0 if sample_weight is None else sample_weight, self.name)
        self.sum.assign_add(ops.sum(y_true * weight, axis=0))
        self.squared_sum.assign_add(ops.sum(y_true * y_true * weight, axis=0))
        self.total_mse.assign_add(ops.sum((y_true - y_pred) ** 2 * weight, axis=0))
        self.count.assign_add(ops.sum(weight, axis=0))
        self.num_samples.assign_add(y_true.shape[0] * y_true.shape[1])  # numbers, as in Keras

    def result(self) -> Tensor:
        sums: Any = self.sum.value
        total: Any = self.squared_sum - sums * sums / self.count
        score: Any = 1.0 - self.total_mse / total
        score = ops.where(ops.isinf(score), 0.0, score)
        if self.class_aggregation == "uniform_average":
            score = score.mean()
        elif self.class_aggregation == "variance_weighted_average":
            score = (total * score).sum() / total.sum()
        if self.num_regressors:
            numbers: Any = self.num_samples.value
            more = numbers - (self.num_regressors + 1.0)
            enough = ops.greater(more, 0.0)
            free = ops.where(enough, more, 1.0)
            adjusted = 1.0 - (1.0 - score) * (numbers - 1.0) / free
            score = ops.where(enough, adjusted, score)
        return score
