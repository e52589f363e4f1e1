"""Similarity of vectors: angles and distances, and losses based on them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS, DType
from eagerflow.errors import AxisError, ShapeError
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.attributes import Axes
from eagerflow.ops.composition import composed
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import equal
from eagerflow.ops.elementwise.selection import maximum, minimum, where
from eagerflow.ops.nn.loss_reduction import check_same, reduced, reduced_reference
from eagerflow.ops.reductions.norms import vector_norm
from eagerflow.ops.reductions.sums import sum
from eagerflow.ops.samples import make
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


def _vectors(count: int, **attributes: Any) -> Any:
    """Samples of functions of ``count`` arrays of vectors along the last axis."""

    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        shapes: tuple[tuple[int, ...], ...] = ((4,), (2, 3), (3, 2), (2, 2, 3), (1, 5), (3, 1))
        found = [
            Sample(tuple(make(rng, dtype, shape) for _ in range(count)), attributes if i else {})
            for i, shape in enumerate(shapes)
        ]
        wide = [make(rng, dtype, (4, 6)) for _ in range(count)]
        return [*found, Sample(tuple(x[::2, ::-1] for x in wide), {})]

    return samples


def _length(row: Any) -> float:
    return math.sqrt(math.fsum(v * v for v in row.tolist()))


def _by_rows(function: Any) -> Any:
    """A reference that computes one number from the vectors of several arrays at one position."""

    def reference(*args: Any, axis: int = -1, **more: Any) -> Any:
        lines = [np.moveaxis(x.astype(float), axis, -1) for x in args]
        out = np.empty(lines[0].shape[:-1])
        for at in np.ndindex(out.shape):
            out[at] = function(*(x[at] for x in lines), **more)
        return out

    return reference


def _cosine_of(a: Any, b: Any, eps: float = 1e-8) -> float:
    return float(a @ b) / max(_length(a), eps) / max(_length(b), eps)


@composed(
    samples=_vectors(2),
    reference=_by_rows(_cosine_of),
    dtypes=FLOATS,
    errors=lambda rng: [
        ErrorSample((np.ones(2), np.ones(3)), {}, ShapeError, "broadcast"),
        ErrorSample((np.ones(2), np.ones(2), 1), {}, AxisError, "axis 1 does not exist"),
    ],
)
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


def _distance_of(a: Any, b: Any, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Any:
    gaps = [abs(v + eps) for v in (a - b).tolist()]
    return max(gaps) if p == math.inf else math.fsum(g**p for g in gaps) ** (1 / p)


@composed(samples=_vectors(2, p=3.0), reference=_by_rows(_distance_of), dtypes=FLOATS)
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


def _embedding_of(a: Any, b: Any, t: float, margin: float) -> float:
    cosine = _cosine_of(a, b)
    return 1 - cosine if t == 1 else max(0.0, cosine - margin)


def _cosine_pairs(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    found = []
    for i, (x1, x2) in enumerate(s.args for s in _vectors(2)(rng, dtype)):
        sides = np.where(rng.random(x1.shape[:-1]) < 0.5, 1, -1)
        more = {"margin": 0.3} if i else {}
        found.append(Sample((x1, x2, sides), {"reduction": ("none", "mean", "sum")[i % 3], **more}))
    return found


def _cosine_reference(x1: Any, x2: Any, target: Any, margin: float, reduction: str) -> Any:
    out = np.empty(target.shape)
    for at in np.ndindex(target.shape):
        out[at] = _embedding_of(x1[at].astype(float), x2[at].astype(float), target[at], margin)
    return reduced_reference(out, reduction)


@composed(
    samples=_cosine_pairs,
    reference=_cosine_reference,
    dtypes=FLOATS,
    errors=lambda rng: [
        ErrorSample((np.ones((2, 3)),) * 3, {}, ShapeError, "not one for each number")
    ],
)
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


def _triplets(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    return [
        s._replace(
            attributes={"reduction": ("none", "mean", "sum")[i % 3], "swap": i % 2 == 1}
            | ({"margin": 0.5, "p": 3.0} if i > 3 else {})
        )
        for i, s in enumerate(_vectors(3)(rng, dtype))
    ]


def _triplet_reference(
    a: Any, b: Any, c: Any, margin: float, p: float, eps: float, swap: bool, reduction: str
) -> Any:
    out = np.empty(a.shape[:-1])
    for at in np.ndindex(out.shape):
        rows = [x[at].astype(float) for x in (a, b, c)]
        near, far, other = (
            _distance_of(rows[i], rows[j], p, eps) for i, j in ((0, 1), (0, 2), (1, 2))
        )
        out[at] = max(near - (min(far, other) if swap else far) + margin, 0)
    return reduced_reference(out, reduction)


@composed(
    samples=_triplets,
    reference=_triplet_reference,
    dtypes=FLOATS,
    errors=lambda rng: [
        ErrorSample((np.ones((2, 3)), np.ones((2, 3)), np.ones(2)), {}, ShapeError, "broadcast")
    ],
)
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
