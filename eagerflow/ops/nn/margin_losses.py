"""Margin losses: of numbers from a decision boundary, and of the right class from other classes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS, DType
from eagerflow.errors import IndexRangeError, ShapeError
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.composition import composed
from eagerflow.ops.elementwise.activation import softplus
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, negative, subtract
from eagerflow.ops.elementwise.comparison import equal, less, logical_and, logical_not
from eagerflow.ops.elementwise.selection import maximum, where
from eagerflow.ops.indexing.gathering import take, take_along_axis
from eagerflow.ops.indexing.scattering import one_hot
from eagerflow.ops.nn.loss_reduction import check_same, loss_facts, reduced, reduced_reference
from eagerflow.ops.nn.losses import sigmoid_cross_entropy
from eagerflow.ops.reductions.cumulative import cumulative_sum
from eagerflow.ops.reductions.statistics import mean
from eagerflow.ops.reductions.sums import any, sum
from eagerflow.ops.samples import make
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


@composed(**loss_facts(lambda x, t, margin: max(margin - t * x, 0), (-2, 2), (-1, 1), margin=0.6))
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


@composed(**loss_facts(lambda x, t: math.log(1 + math.exp(-t * x)), (-2, 2), (-1, 1)))
def soft_margin_loss(x: Any, target: Any, /, reduction: str = "mean") -> Tensor:
    """Smooth form of ``hinge_loss``: log(1 + exp(-t x)).

    Arguments and errors are those of ``hinge_loss``.

    >>> ef.soft_margin_loss(ef.tensor([0.0, 1000.0]), ef.tensor([1.0, 1.0]), "none")
    Tensor([0.6931, 0.    ], float32, cpu:0)
    """
    check_same(x, target)
    return reduced(softplus(negative(multiply(target, x))), reduction)


def _sided(loss: Any) -> Any:
    """Samples with targets, the last argument, that are only -1 and 1."""

    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        return [
            s._replace(args=(*s.args[:-1], np.where(s.args[-1] < 0, -1, 1).astype(np.int64)))
            for s in loss["samples"](rng, dtype)
        ]

    return loss | {"samples": samples}


def _embedding_of(x: float, t: float, margin: float) -> float:
    return x if t == 1 else max(0, margin - x)


@composed(**_sided(loss_facts(_embedding_of, (0.1, 2), (-1, 1), margin=1.5)))
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


def _ranking_of(a: float, b: float, t: float, margin: float) -> float:
    return max(0, margin - t * (a - b))


@composed(**_sided(loss_facts(_ranking_of, (-2, 2), (-2, 2), (-1, 1), margin=0.3)))
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


def _example_shapes(rng: np.random.Generator, dtype: DType) -> Any:
    """Scores of classes along the last axis, and reductions."""
    shapes: tuple[tuple[int, ...], ...] = ((4,), (2, 3), (3, 4), (2, 2, 3), (1, 5), (3, 1), (2, 6))
    for i, shape in enumerate(shapes):
        yield make(rng, dtype, shape), {"reduction": ("mean", "none", "sum")[i % 3]}


def _classed(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    found = []
    for i, (x, more) in enumerate(_example_shapes(rng, dtype)):
        labels = np.asarray(rng.integers(0, x.shape[-1], x.shape[:-1]))
        weight = make(rng, dtype, x.shape[-1:], 0.5, 2) if i % 2 else None
        found.append(Sample((x, labels, weight), more | ({"p": 2, "margin": 0.8} if i > 2 else {})))
    return found


def _multi_reference(
    x: Any, target: Any, weight: Any, p: int, margin: float, reduction: str
) -> Any:
    out = np.empty(target.shape)
    for at in np.ndindex(target.shape):
        row, y = x[at].tolist(), int(target[at])
        gaps = [max(0, margin - row[y] + v) ** p for j, v in enumerate(row) if j != y]
        out[at] = math.fsum(gaps) / len(row) * (1 if weight is None else float(weight[y]))
    return reduced_reference(out, reduction)


@composed(
    tensors=3,
    samples=_classed,
    reference=_multi_reference,
    dtypes=FLOATS,
    errors=lambda rng: [
        ErrorSample((np.ones((2, 3)), np.array([0, 3])), {}, IndexRangeError, "index 3"),
        ErrorSample((np.ones((2, 3)), np.array([0, 1, 2])), {}, ShapeError, "each number"),
    ],
)
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


def _listed(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    found = []
    for x, more in _example_shapes(rng, dtype):
        labels = np.full(x.shape, -1)
        for at in np.ndindex(x.shape[:-1]):
            count = int(rng.integers(0, x.shape[-1] + 1))
            labels[at][:count] = rng.permutation(x.shape[-1])[:count]
        found.append(Sample((x, labels), more))
    return found


def _multilabel_reference(x: Any, target: Any, reduction: str) -> Any:
    out = np.empty(x.shape[:-1])
    for at in np.ndindex(out.shape):
        row, given = x[at].tolist(), target[at].tolist()
        right = given[: given.index(-1)] if -1 in given else given
        gaps = [max(0, 1 - row[j] + v) for j in right for i, v in enumerate(row) if i not in right]
        out[at] = math.fsum(gaps) / len(row)
    return reduced_reference(out, reduction)


@composed(
    samples=_listed,
    reference=_multilabel_reference,
    dtypes=FLOATS,
    errors=lambda rng: [
        ErrorSample((np.ones((2, 3)), np.array([0, 2])), {}, ShapeError, "each number"),
    ],
)
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


def _marked(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    found = []
    for i, (x, more) in enumerate(_example_shapes(rng, dtype)):
        weight = make(rng, dtype, x.shape[-1:], 0.5, 2) if i % 2 else None
        found.append(Sample((x, (rng.random(x.shape) < 0.5).astype(dtype), weight), more))
    return found


def _soft_reference(x: Any, target: Any, weight: Any, reduction: str) -> Any:
    p = 1 / (1 + np.exp(-x.astype(float)))
    each = -(target * np.log(p) + (1 - target) * np.log(1 - p))
    out = (each if weight is None else each * weight).mean(-1)
    return reduced_reference(out, reduction)


@composed(
    tensors=3,
    samples=_marked,
    reference=_soft_reference,
    dtypes=FLOATS,
    errors=lambda rng: [ErrorSample((np.ones((2, 3)), np.ones(3)), {}, ShapeError, "each number")],
)
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
