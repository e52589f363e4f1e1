"""Margin losses: of numbers from a decision boundary, and of the right class from other classes."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import FLOATS
from eagerflow.ops.composition import composed
from eagerflow.ops.elementwise.activation import softplus
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, negative, subtract
from eagerflow.ops.elementwise.comparison import equal, less, logical_and, logical_not
from eagerflow.ops.elementwise.selection import maximum, where
from eagerflow.ops.indexing.gathering import take, take_along_axis
from eagerflow.ops.indexing.scattering import one_hot
from eagerflow.ops.nn.loss_reduction import check_same, reduced
from eagerflow.ops.nn.losses import sigmoid_cross_entropy
from eagerflow.ops.reductions.cumulative import cumulative_sum
from eagerflow.ops.reductions.statistics import mean
from eagerflow.ops.reductions.sums import any, sum
from eagerflow.ops.shapes.reshaping import expand_dims
from eagerflow.tensor import Tensor

__all__ = [
    "hinge_embedding_loss",
    "hinge_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "soft_margin_loss",
]


# Of numbers ---------------------------------------------------------------------------------------


@composed(dtypes=FLOATS)
def hinge_loss(x: Any, target: Any, /, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """The hinge loss: max(margin - t x, 0).

    ``x`` and ``target`` are real tensors of one shape, targets are -1 or 1; ``reduction`` is
    ``"mean"``, ``"sum"`` or ``"none"``. Raises ShapeError where the shapes differ, ArgumentError
    for another reduction.

    >>> ef.hinge_loss(ef.tensor([-2.0, 0.5]), ef.tensor([-1.0, 1.0]))
    Tensor(0.25, float32, cpu:0)
    """
    check_same(x, target)
    return reduced(maximum(subtract(margin, multiply(target, x)), 0), reduction)


@composed(dtypes=FLOATS)
def soft_margin_loss(x: Any, target: Any, /, reduction: str = "mean") -> Tensor:
    """Smooth form of ``hinge_loss``: log(1 + exp(-t x)).

    Arguments and errors are those of ``hinge_loss``.

    >>> ef.soft_margin_loss(ef.tensor([0.0, 1000.0]), ef.tensor([1.0, 1.0]), "none")
    Tensor([0.6931, 0.    ], float32, cpu:0)
    """
    check_same(x, target)
    return reduced(softplus(negative(multiply(target, x))), reduction)


@composed(dtypes=FLOATS)
def hinge_embedding_loss(
    x: Any, target: Any, /, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Distances of similar pairs, and the distance of dissimilar ones to a margin.

    ``x`` holds distances, ``target`` 1 for pairs that are alike and -1 for others. Arguments and
    errors are those of ``hinge_loss``.

    >>> ef.hinge_embedding_loss(ef.tensor([0.5, 0.25]), ef.tensor([1, -1]), reduction="none")
    Tensor([0.5 , 0.75], float32, cpu:0)
    """
    check_same(x, target)
    return reduced(where(equal(target, 1), x, maximum(subtract(margin, x), 0)), reduction)


@composed(dtypes=FLOATS)
def margin_ranking_loss(
    x1: Any, x2: Any, target: Any, /, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """The distance to a ranking of two numbers with a margin.

    ``x1`` and ``x2`` are real tensors of one shape, ``target`` holds 1 where ``x1`` is to be
    larger, and -1 where ``x2`` is. Errors are those of ``hinge_loss``.

    >>> ef.margin_ranking_loss(ef.tensor([1.0]), ef.tensor([3.0]), ef.tensor([1]))
    Tensor(2., float32, cpu:0)
    """
    check_same(x1, x2, "x2")
    check_same(x1, target)
    gap = multiply(target.astype(x1.dtype), subtract(x1, x2))
    return reduced(maximum(subtract(margin, gap), 0), reduction)


# Of classes ---------------------------------------------------------------------------------------


@composed(tensors=3, dtypes=FLOATS)
def multi_margin_loss(
    x: Any,
    target: Any,
    weight: Any = None,
    p: int = 1,
    margin: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """The distance of the right class to a margin over each other class, averaged over classes.

    ``x`` holds scores with classes along the last axis, ``target`` class numbers in the shape of
    the other axes. Gaps are raised to the power ``p``; ``weight`` has a factor for each class
    that is right. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``. Raises ShapeError where
    the shapes do not fit, IndexRangeError for a class that does not exist.

    >>> ef.multi_margin_loss(ef.tensor([[0.5, 1.0]]), ef.tensor([1]))
    Tensor(0.25, float32, cpu:0)
    """
    places = expand_dims(target, axis=-1)
    check_same(x[..., 0], target)
    gaps = maximum(add(subtract(margin, take_along_axis(x, places, axis=-1)), x), 0)
    others = logical_not(one_hot(target, x.shape[-1], dtype="bool"))
    values = divide(sum(where(others, gaps**p, 0), axis=-1), x.shape[-1])
    return reduced(
        values if weight is None else multiply(values, take(weight, target, 0)), reduction
    )


@composed(dtypes=FLOATS)
def multilabel_margin_loss(x: Any, target: Any, /, reduction: str = "mean") -> Tensor:
    """The distance of right classes to a margin of 1 over all others, averaged over classes.

    ``x`` holds scores with classes along the last axis; ``target``, of the same shape, the numbers
    of the right classes, followed by -1. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``.
    Raises ShapeError where the shapes differ, IndexRangeError for a class that does not exist.

    >>> ef.multilabel_margin_loss(ef.tensor([0.5, 1.0, 0.0]), ef.tensor([1, -1, -1]))
    Tensor(0.1667, float32, cpu:0)
    """
    check_same(x, target)
    counts = equal(cumulative_sum(less(target, 0).astype("int64"), axis=-1), 0)
    labels = where(counts, target, 0)
    marked = logical_and(one_hot(labels, x.shape[-1], dtype="bool"), expand_dims(counts, axis=-1))
    wrong = logical_not(any(marked, axis=-2))
    right = expand_dims(take_along_axis(x, labels, axis=-1), axis=-1)
    gaps = maximum(add(subtract(1, right), expand_dims(x, axis=-2)), 0)
    pairs = logical_and(expand_dims(counts, axis=-1), expand_dims(wrong, axis=-2))
    total = sum(where(pairs, gaps, 0), axis=(-2, -1))
    return reduced(divide(total, x.shape[-1]), reduction)


@composed(tensors=3, dtypes=FLOATS)
def multilabel_soft_margin_loss(
    x: Any, target: Any, weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """The mean over independent binary classes of their cross-entropies.

    ``x`` holds logits with classes along the last axis, ``target`` zeros and ones in the same
    shape, ``weight`` a factor for each class. ``reduction`` is ``"mean"``, ``"sum"`` or
    ``"none"``. Raises ShapeError where the shapes do not fit.

    >>> ef.multilabel_soft_margin_loss(ef.tensor([[0.0, 1000.0]]), ef.tensor([[1.0, 1.0]]))
    Tensor(0.3466, float32, cpu:0)
    """
    check_same(x, target)
    each = sigmoid_cross_entropy(x, target)
    return reduced(mean(each if weight is None else multiply(each, weight), axis=-1), reduction)
