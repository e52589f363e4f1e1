"""Losses of regression: how far numbers are from numbers, or directions from directions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

from eagerflow import ops
from eagerflow.nn.arguments import Float, TensorLike
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.alignment import EPSILON, same_shape
from eagerflow.nn.losses.loss import FunctionLoss, LossOptions, Precision, Reduction, last_mean
from eagerflow.ops.nn.mean_differences import (
    mean_absolute_difference,
    mean_huber_difference,
    mean_squared_difference,
)
from eagerflow.tensor import Tensor

__all__ = [
    "CosineSimilarity",
    "Huber",
    "LogCosh",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "cosine_similarity",
    "huber",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
]


def _mean(of: Callable[..., Any], y_pred: Any, y_true: Any, **attributes: float) -> Tensor:
    """The mean of differences along the last axis, or that of the numbers themselves."""
    pair = (y_pred, y_true) if y_pred.ndim else (y_pred.reshape((1,)), y_true.reshape((1,)))
    mean: Tensor = of(*pair, **attributes)
    return mean


def mean_squared_error(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Mean over the last axis of the squared differences.

    ``y_true`` and ``y_pred`` have equal shapes. Raises ShapeError otherwise.

    >>> ef.nn.losses.mean_squared_error([[0.0, 1.0]], [[0.0, 3.0]])
    Tensor([2.], float32, cpu:0)
    """
    y_true, y_pred = same_shape("mean_squared_error", y_true, y_pred)
    return _mean(mean_squared_difference, y_pred, y_true)


def mean_absolute_error(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Mean over the last axis of the absolute differences.

    ``y_true`` and ``y_pred`` have equal shapes. Raises ShapeError otherwise.

    >>> ef.nn.losses.mean_absolute_error([[0.0, 1.0]], [[0.0, 3.0]])
    Tensor([1.], float32, cpu:0)
    """
    y_true, y_pred = same_shape("mean_absolute_error", y_true, y_pred)
    return _mean(mean_absolute_difference, y_pred, y_true)


def mean_absolute_percentage_error(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Mean over the last axis of the absolute differences, in percent of the targets.

    ``y_true`` and ``y_pred`` have equal shapes; targets nearer to 0 than 1e-7 count as that.
    Raises ShapeError where the shapes differ.

    >>> ef.nn.losses.mean_absolute_percentage_error([[2.0, 4.0]], [[1.0, 4.0]])
    Tensor([25.], float32, cpu:0)
    """
    y_true, y_pred = same_shape("mean_absolute_percentage_error", y_true, y_pred)
    share = ops.abs((y_true - y_pred) / ops.maximum(ops.abs(y_true), EPSILON))
    return last_mean(share * 100.0)


def mean_squared_logarithmic_error(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Mean over the last axis of the squared differences of ``log(1 + y)``.

    ``y_true`` and ``y_pred`` have equal shapes; smaller values than 1e-7 are replaced by it. Raises
    ShapeError where the shapes differ.

    >>> ef.nn.losses.mean_squared_logarithmic_error([[0.0, 1.0]], [[0.0, 3.0]])
    Tensor([0.2402], float32, cpu:0)
    """
    y_true, y_pred = same_shape("mean_squared_logarithmic_error", y_true, y_pred)
    logs = [ops.log1p(ops.maximum(y, EPSILON)) for y in (y_pred, y_true)]
    return _mean(mean_squared_difference, *logs)


def huber(y_true: TensorLike, y_pred: TensorLike, delta: float = 1.0) -> Tensor:
    """Mean over the last axis: half the square of small differences, linear beyond ``delta``.

    ``y_true`` and ``y_pred`` have equal shapes. Raises ShapeError otherwise. Source: Huber, 1964.

    >>> ef.nn.losses.huber([[0.0, 0.0]], [[1.0, 3.0]])
    Tensor([1.5], float32, cpu:0)
    """
    y_true, y_pred = same_shape("huber", y_true, y_pred)
    return _mean(mean_huber_difference, y_pred, y_true, delta=delta)


def log_cosh(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Mean over the last axis of ``log(cosh(y_pred - y_true))``, which does not overflow.

    ``y_true`` and ``y_pred`` have equal shapes. Raises ShapeError otherwise.

    >>> ef.nn.losses.log_cosh([[0.0, 0.0]], [[0.0, 1000.0]])
    Tensor([499.6534], float32, cpu:0)
    """
    y_true, y_pred = same_shape("log_cosh", y_true, y_pred)
    difference = y_pred - y_true
    return last_mean(difference + ops.softplus(difference * -2.0) - math.log(2.0))


def cosine_similarity(y_true: TensorLike, y_pred: TensorLike, axis: int = -1) -> Tensor:
    """The cosine of the angle between targets and predictions along ``axis``, negated.

    ``y_true`` and ``y_pred`` have equal shapes; the result is -1 for equal directions. Raises
    ShapeError where the shapes differ.

    >>> ef.nn.losses.cosine_similarity([[0.0, 1.0], [1.0, 1.0]], [[0.0, 2.0], [1.0, -1.0]])
    Tensor([-1., -0.], float32, cpu:0)
    """
    y_true, y_pred = same_shape("cosine_similarity", y_true, y_pred)
    return ops.negative(ops.cosine_similarity(y_true, y_pred, axis=axis, eps=EPSILON))


# Classes --------------------------------------------------------------------------------------


class MeanSquaredError(FunctionLoss):
    """Mean of the squared differences.

    >>> ef.nn.losses.MeanSquaredError()([[0.0], [1.0]], [[0.0], [3.0]])
    Tensor(2., float32, cpu:0)
    """

    function = staticmethod(mean_squared_error)


class MeanAbsoluteError(FunctionLoss):
    """Mean of the absolute differences.

    >>> ef.nn.losses.MeanAbsoluteError()([[0.0], [1.0]], [[0.0], [3.0]])
    Tensor(1., float32, cpu:0)
    """

    function = staticmethod(mean_absolute_error)


class MeanAbsolutePercentageError(FunctionLoss):
    """Mean of the absolute differences, in percent of the targets.

    >>> ef.nn.losses.MeanAbsolutePercentageError()([[2.0], [4.0]], [[1.0], [4.0]])
    Tensor(25., float32, cpu:0)
    """

    function = staticmethod(mean_absolute_percentage_error)


class MeanSquaredLogarithmicError(FunctionLoss):
    """Mean of the squared differences of ``log(1 + y)``.

    >>> ef.nn.losses.MeanSquaredLogarithmicError()([[0.0], [1.0]], [[0.0], [3.0]])
    Tensor(0.2402, float32, cpu:0)
    """

    function = staticmethod(mean_squared_logarithmic_error)


class Huber(FunctionLoss):
    """Squared error near the target and absolute error beyond ``delta``; Huber, 1964.

    >>> ef.nn.losses.Huber()([[0.0, 0.0]], [[1.0, 3.0]])
    Tensor(1.5, float32, cpu:0)
    """

    function = staticmethod(huber)
    delta: float

    @arguments
    def __init__(
        self,
        delta: Float = 1.0,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "huber_loss",
        dtype: Precision = None,
    ) -> None: ...


class LogCosh(FunctionLoss):
    """Mean of ``log(cosh(y_pred - y_true))``: like the squared error, and linear far away.

    >>> ef.nn.losses.LogCosh()([[0.0, 0.0]], [[0.0, 1.0]])
    Tensor(0.2169, float32, cpu:0)
    """

    function = staticmethod(log_cosh)


class CosineSimilarity(FunctionLoss):
    """The cosine of the angle between targets and predictions along ``axis``, negated.

    >>> ef.nn.losses.CosineSimilarity()([[0.0, 1.0]], [[0.0, 2.0]])
    Tensor(-1., float32, cpu:0)
    """

    function = staticmethod(cosine_similarity)
    axis: int

    @arguments
    def __init__(self, axis: int = -1, **options: Unpack[LossOptions]) -> None: ...
