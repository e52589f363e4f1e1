"""Losses of segmentation: how little two regions overlap."""

from __future__ import annotations

from eagerflow import ops
from eagerflow.nn.arguments import Float, TensorLike
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.alignment import EPSILON, same_shape
from eagerflow.nn.losses.loss import FunctionLoss, Precision, Reduction
from eagerflow.ops.attributes import Axes
from eagerflow.tensor import Tensor

__all__ = ["Dice", "Tversky", "dice", "tversky"]


def dice(y_true: TensorLike, y_pred: TensorLike, axis: Axes = None) -> Tensor:
    """1 less twice the overlap of two regions, as a share of their sizes.

    ``y_true`` and ``y_pred`` have equal shapes and are the membership in a region, from 0 to 1; a
    region extends along ``axis``, an axis, several, or None for all. Raises ShapeError where the
    shapes differ. Source: Dice, 1945.

    >>> ef.nn.losses.dice([[0.0, 1.0], [1.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]], axis=1)
    Tensor([0.    , 0.3333], float32, cpu:0)
    """
    y_true, y_pred = same_shape("dice", y_true, y_pred)
    both = ops.sum(y_true * y_pred, axis=axis)
    sizes = ops.sum(y_true, axis=axis) + ops.sum(y_pred, axis=axis)
    return 1.0 - both * 2.0 / (sizes + EPSILON)


def tversky(
    y_true: TensorLike,
    y_pred: TensorLike,
    alpha: float = 0.5,
    beta: float = 0.5,
    axis: Axes = None,
) -> Tensor:
    """1 minus the overlap of two regions, as a share of it and of their weighted differences.

    False negatives have the weight ``alpha``, false positives ``beta``; other arguments are those
    of ``dice``. Raises ShapeError where the shapes differ. Source: Salehi et al., 2017,
    https://arxiv.org/abs/1706.05721.

    >>> ef.nn.losses.tversky([[0.0, 1.0, 1.0]], [[0.0, 1.0, 0.0]], alpha=1.0)
    Tensor(0.5, float32, cpu:0)
    """
    y_true, y_pred = same_shape("tversky", y_true, y_pred)
    both = ops.sum(y_true * y_pred, axis=axis)
    missed = ops.sum(y_true * (1.0 - y_pred), axis=axis)
    surplus = ops.sum(y_pred * (1.0 - y_true), axis=axis)
    return 1.0 - both / (both + missed * alpha + surplus * beta + EPSILON)


class Dice(FunctionLoss):
    """1 less twice the overlap of two regions, as a share of their sizes; Dice, 1945.

    >>> ef.nn.losses.Dice()([[1.0], [1.0]], [[0.0], [1.0]])
    Tensor(0.3333, float32, cpu:0)
    """

    function = staticmethod(dice)
    axis: Axes

    @arguments
    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = None,
        axis: Axes = None,
        dtype: Precision = None,
    ) -> None: ...


class Tversky(FunctionLoss):
    """Like ``Dice``, with weights for false negatives and false positives.

    Source: Salehi et al., 2017, https://arxiv.org/abs/1706.05721.

    >>> ef.nn.losses.Tversky(alpha=1.0)([[1.0], [1.0]], [[0.0], [1.0]])
    Tensor(0.5, float32, cpu:0)
    """

    function = staticmethod(tversky)
    alpha: float
    beta: float
    axis: Axes

    @arguments
    def __init__(
        self,
        alpha: Float = 0.5,
        beta: Float = 0.5,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = None,
        axis: Axes = None,
        dtype: Precision = None,
    ) -> None: ...
