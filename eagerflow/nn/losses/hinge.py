"""Hinge losses: a prediction is to be on the right side with a margin of 1."""

from __future__ import annotations

from eagerflow import ops
from eagerflow.nn.arguments import TensorLike
from eagerflow.nn.losses.alignment import same_shape
from eagerflow.nn.losses.loss import FunctionLoss, last_mean
from eagerflow.tensor import Tensor

__all__ = [
    "CategoricalHinge",
    "Hinge",
    "SquaredHinge",
    "categorical_hinge",
    "hinge",
    "squared_hinge",
]


def _shortfall(name: str, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """The distance of each prediction to the margin; targets are -1 and 1, or 0 and 1."""
    y_true, y_pred = same_shape(name, y_true, y_pred)
    binary = ops.all(ops.logical_or(ops.equal(y_true, 0.0), ops.equal(y_true, 1.0)))
    sides = ops.where(binary, y_true * 2.0 - 1.0, y_true)
    return ops.hinge_loss(y_pred, sides, reduction="none")


def hinge(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Mean over the last axis of ``max(1 - y_true * y_pred, 0)``.

    ``y_true`` holds -1 and 1, or 0 and 1 alone, in the shape of ``y_pred``. Raises ShapeError
    where the shapes differ.

    >>> ef.nn.losses.hinge([[0.0, 1.0]], [[-2.0, 0.5]])
    Tensor([0.25], float32, cpu:0)
    """
    return last_mean(_shortfall("hinge", y_true, y_pred))


def squared_hinge(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Mean over the last axis of ``max(1 - y_true * y_pred, 0) ** 2``.

    ``y_true`` holds -1 and 1, or 0 and 1 alone, in the shape of ``y_pred``. Raises ShapeError
    where the shapes differ.

    >>> ef.nn.losses.squared_hinge([[-1.0, 1.0]], [[-2.0, 0.5]])
    Tensor([0.125], float32, cpu:0)
    """
    return last_mean(ops.square(_shortfall("squared_hinge", y_true, y_pred)))


def categorical_hinge(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """The distance of the right class to a margin of 1 over other classes, along the last axis.

    ``y_true`` is one-hot, in the shape (..., classes) of ``y_pred``. Raises ShapeError where
    the shapes differ.

    >>> ef.nn.losses.categorical_hinge([[0.0, 1.0, 0.0]], [[0.5, 1.0, 0.0]])
    Tensor([0.5], float32, cpu:0)
    """
    y_true, y_pred = same_shape("categorical_hinge", y_true, y_pred)
    right = (y_true * y_pred).sum(axis=-1)
    wrong = ops.max((1.0 - y_true) * y_pred, axis=-1)
    return ops.maximum(wrong - right + 1.0, 0.0)


class Hinge(FunctionLoss):
    """Mean of ``max(1 - y_true * y_pred, 0)``, with targets -1 and 1, or 0 and 1.

    >>> ef.nn.losses.Hinge()([[0.0], [1.0]], [[-2.0], [0.5]])
    Tensor(0.25, float32, cpu:0)
    """

    function = staticmethod(hinge)


class SquaredHinge(FunctionLoss):
    """Mean of ``max(1 - y_true * y_pred, 0) ** 2``, with targets -1 and 1, or 0 and 1.

    >>> ef.nn.losses.SquaredHinge()([[0.0], [1.0]], [[-2.0], [0.5]])
    Tensor(0.125, float32, cpu:0)
    """

    function = staticmethod(squared_hinge)


class CategoricalHinge(FunctionLoss):
    """Mean distance of the right class to a margin of 1 over others; Crammer and Singer, 2001.

    >>> ef.nn.losses.CategoricalHinge()([[0.0, 1.0]], [[0.5, 1.0]])
    Tensor(0.5, float32, cpu:0)
    """

    function = staticmethod(categorical_hinge)
