"""Similarity of vectors: angles and distances, and losses based on them."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import FLOATS
from eagerflow.ops.attributes import Axes
from eagerflow.ops.composition import composed
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import equal
from eagerflow.ops.elementwise.selection import maximum, minimum, where
from eagerflow.ops.nn.loss_reduction import check_same, reduced
from eagerflow.ops.reductions.norms import vector_norm
from eagerflow.ops.reductions.sums import sum
from eagerflow.ops.shapes.reshaping import broadcast_to
from eagerflow.spec import broadcast
from eagerflow.tensor import Tensor

__all__ = [
    "cosine_embedding_loss",
    "cosine_similarity",
    "pairwise_distance",
    "triplet_margin_loss",
]


def unit(x: Any, axis: Axes = -1, epsilon: float = 1e-7) -> Any:
    """The vectors along ``axis`` divided by their lengths, or by ``epsilon`` if these are shorter.

    >>> from eagerflow.ops.nn.similarity import unit
    >>> unit(ef.tensor([[3.0, 4.0], [0.0, 0.0]]))
    Tensor([[0.6, 0.8],
            [0. , 0. ]], shape=(2, 2), float32, cpu:0)
    """
    lengths = vector_norm(x, axis=axis, keepdims=True)
    return divide(x, maximum(lengths, epsilon))


@composed(dtypes=FLOATS)
def cosine_similarity(x1: Any, x2: Any, /, axis: int = -1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along ``axis``.

    ``x1`` and ``x2`` are real tensors of shapes that broadcast; lengths count as ``eps`` at
    least. Raises ShapeError where the shapes do not fit.

    >>> ef.cosine_similarity(ef.tensor([[0.0, 1.0], [1.0, 1.0]]), ef.tensor([0.0, 2.0]))
    Tensor([1.    , 0.7071], float32, cpu:0)
    """
    shape = broadcast(x1.shape, x2.shape)
    first, second = (unit(broadcast_to(x, shape), axis, eps) for x in (x1, x2))
    return sum(multiply(first, second), axis=axis)


@composed(dtypes=FLOATS)
def pairwise_distance(
    x1: Any, x2: Any, /, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False
) -> Tensor:
    """The distance of each vector of ``x1``, along the last axis, from that of ``x2``.

    ``x1`` and ``x2`` are real tensors of shapes that broadcast. The distance is the p-norm of the
    difference plus ``eps``, so that there is a gradient at 0. ``keepdims`` keeps the axis with size
    1. Raises ShapeError where the shapes do not fit.

    >>> ef.pairwise_distance(ef.tensor([[3.0, 4.0]]), ef.tensor([0.0, 0.0]))
    Tensor([5.], float32, cpu:0)
    """
    gap = add(subtract(x1, x2), eps)
    return vector_norm(gap, axis=-1, ord=p, keepdims=keepdims)


@composed(dtypes=FLOATS)
def cosine_embedding_loss(
    x1: Any, x2: Any, target: Any, /, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """The cosine embedding loss of similar and dissimilar pairs of vectors.

    ``x1`` and ``x2`` are real tensors with vectors along the last axis, ``target`` holds 1 for
    similar pairs, with a loss of 1 minus their cosine, and -1 for dissimilar ones, with the excess
    of their cosine over ``margin``. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``. Raises
    ShapeError where the shapes do not fit.

    >>> x = ef.tensor([[0.0, 1.0], [0.0, 1.0]])
    >>> ef.cosine_embedding_loss(x, x, ef.tensor([1, -1]), margin=0.5)
    Tensor(0.25, float32, cpu:0)
    """
    cosine = cosine_similarity(x1, x2)
    check_same(cosine, target)
    alike, apart = subtract(1, cosine), maximum(subtract(cosine, margin), 0)
    return reduced(where(equal(target, 1), alike, apart), reduction)


@composed(dtypes=FLOATS)
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    /,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """The triplet loss: anchors should be closer to positives than to negatives, by a margin.

    The arguments are real tensors with vectors along the last axis; distances are those of
    ``pairwise_distance``. With ``swap`` the distance of ``negative`` from ``positive`` is used if
    it is less than that from the anchor. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``.
    Raises ShapeError where the shapes do not fit. Source: Schroff et al., arXiv:1503.03832.

    >>> a = ef.tensor([[0.0, 0.0]])
    >>> ef.triplet_margin_loss(a, a + 1.0, a + 2.0)
    Tensor(0., float32, cpu:0)
    """
    far = pairwise_distance(anchor, negative, p=p, eps=eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p=p, eps=eps))
    near = pairwise_distance(anchor, positive, p=p, eps=eps)
    return reduced(maximum(add(subtract(near, far), margin), 0), reduction)
