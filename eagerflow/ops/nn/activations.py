"""Activation functions by short formulas of other functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS, DType
from eagerflow.errors import AxisError, ShapeError
from eagerflow.op import ErrorSample, Missing, Sample
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.filled import ones_like
from eagerflow.ops.elementwise.activation import elu, relu, sigmoid
from eagerflow.ops.elementwise.arithmetic import abs, add, divide, multiply, negative, subtract
from eagerflow.ops.elementwise.comparison import greater, greater_equal, less
from eagerflow.ops.elementwise.powers import sqrt
from eagerflow.ops.elementwise.selection import clip, maximum, where
from eagerflow.ops.elementwise.trigonometric import tanh
from eagerflow.ops.operands import wide
from eagerflow.ops.reductions.cumulative import cumulative_sum
from eagerflow.ops.reductions.softmax import softmax
from eagerflow.ops.reductions.sorting import sort
from eagerflow.ops.reductions.sums import sum
from eagerflow.ops.samples import clear_of, distinct, each, make, moved_from, pairs
from eagerflow.ops.shapes.joining import split
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

__all__ = [
    "celu",
    "glu",
    "hard_shrink",
    "hard_tanh",
    "prelu",
    "soft_shrink",
    "softmin",
    "sparse_plus",
    "sparse_sigmoid",
    "sparsemax",
    "squareplus",
    "tanh_shrink",
    "threshold",
]

# Of straight pieces -------------------------------------------------------------------------------


@composed(
    samples=clear_of((0.3,), -2, 2, threshold=0.3, value=-1.5),
    reference=each(lambda x, threshold, value: x if x > threshold else value),
    dtypes=FLOATS,
)
def threshold(x: Any, /, threshold: float, value: float) -> Tensor:
    """Each element that is above ``threshold``, and ``value`` for other elements.

    ``x`` is a real tensor of any shape, ``threshold`` and ``value`` are numbers.

    >>> ef.threshold(ef.tensor([0.5, 2.0]), 1.0, -1.0)
    Tensor([-1.,  2.], float32, cpu:0)
    """
    return where(greater(x, threshold), x, value)


@composed(
    samples=clear_of((-1.0, 1.0), -2, 2),
    reference=each(lambda x, min, max: min if x < min else max if x > max else x),
    dtypes=FLOATS,
)
def hard_tanh(x: Any, /, min: float = -1.0, max: float = 1.0) -> Tensor:
    """Each element, cut off at ``min`` and ``max``.

    ``x`` is a real tensor of any shape.

    >>> ef.hard_tanh(ef.tensor([-2.0, 0.5, 2.0]))
    Tensor([-1. ,  0.5,  1. ], float32, cpu:0)
    """
    return clip(x, min, max)


@composed(
    samples=clear_of((-0.5, 0.5), -2, 2),
    reference=each(lambda x, threshold: 0 if -threshold <= x <= threshold else x),
    dtypes=FLOATS,
)
def hard_shrink(x: Any, /, threshold: float = 0.5) -> Tensor:
    """Each element that is farther than ``threshold`` from 0, and 0 for other elements.

    ``x`` is a real tensor of any shape.

    >>> ef.hard_shrink(ef.tensor([-2.0, 0.25, 2.0]))
    Tensor([-2.,  0.,  2.], float32, cpu:0)
    """
    return where(greater(abs(x), threshold), x, 0)


@composed(
    samples=clear_of((-0.5, 0.5), -2, 2),
    reference=each(lambda x, threshold: math.copysign(max(math.fabs(x) - threshold, 0), x)),
    dtypes=FLOATS,
)
def soft_shrink(x: Any, /, threshold: float = 0.5) -> Tensor:
    """Each element moved towards 0 by ``threshold``, at most up to 0.

    ``x`` is a real tensor of any shape.

    >>> ef.soft_shrink(ef.tensor([-2.0, 0.25, 2.0]))
    Tensor([-1.5,  0. ,  1.5], float32, cpu:0)
    """
    return subtract(x, clip(x, -threshold, threshold))


@composed(
    samples=clear_of((-1.0, 1.0), -2, 2),
    reference=each(lambda x: min(max((x + 1) / 2, 0), 1)),
    dtypes=FLOATS,
)
def sparse_sigmoid(x: Any, /) -> Tensor:
    """A line from 0 at -1 to 1 at 1, and flat beyond.

    ``x`` is a real tensor of any shape.

    >>> ef.sparse_sigmoid(ef.tensor([-2.0, 0.5, 2.0]))
    Tensor([0.  , 0.75, 1.  ], float32, cpu:0)
    """
    return clip(multiply(add(x, 1), 0.5), 0, 1)


def _off_zero(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    return [s._replace(args=(moved_from(0, s.args[0]), s.args[1])) for s in pairs()(rng, dtype)]


@composed(
    samples=_off_zero,
    reference=each(lambda x, slope: x if x > 0 else slope * x),
    dtypes=FLOATS,
)
def prelu(x: Any, slope: Any, /) -> Tensor:
    """Each positive element, and ``slope`` times other elements.

    ``x`` and ``slope`` are real tensors of shapes that broadcast. Raises ShapeError where they
    do not. Source: He et al., arXiv:1502.01852.

    >>> ef.prelu(ef.tensor([-2.0, 3.0]), ef.tensor(0.25))
    Tensor([-0.5,  3. ], float32, cpu:0)
    """
    return where(greater(x, 0), x, multiply(slope, x))


# Smooth -------------------------------------------------------------------------------------------


@composed(
    samples=clear_of((0.0,), -2, 2, alpha=0.5),
    reference=each(lambda x, alpha: x if x > 0 else alpha * math.expm1(x / alpha)),
    dtypes=FLOATS,
)
def celu(x: Any, /, alpha: float = 1.0) -> Tensor:
    """Exponential linear unit of slope 1 at 0: alpha·(exp(x / alpha) - 1) for negative numbers.

    ``x`` is a real tensor of any shape, ``alpha`` a nonzero number. Source: Barron,
    arXiv:1704.07483.

    >>> ef.celu(ef.tensor([-1.0, 2.0]), 0.5)
    Tensor([-0.4323,  2.    ], float32, cpu:0)
    """
    return where(greater(x, 0), x, multiply(elu(divide(x, alpha)), alpha))


@composed(
    samples=clear_of((), -2, 2),
    reference=each(lambda x, b: (x + math.sqrt(x * x + b)) / 2),
    dtypes=FLOATS,
)
def squareplus(x: Any, /, b: float = 4.0) -> Tensor:
    """Smooth form of max(x, 0) without exponentials: (x + sqrt(x² + b)) / 2.

    ``x`` is a real tensor of any shape, ``b`` a number from 0 on. Source: Barron,
    arXiv:2112.11687.

    >>> ef.squareplus(ef.tensor([0.0, 3.0, -1000.0]))
    Tensor([1.0000e+00, 3.3028e+00, 1.0000e-03], float32, cpu:0)
    """
    root = sqrt(add(multiply(x, x), b))
    above = multiply(add(x, root), 0.5)
    below = divide(b / 2, add(root, abs(x)))  # the same, without cancellation
    return where(greater_equal(x, 0), above, below)


@composed(
    samples=clear_of((-1.0, 1.0), -2, 2),
    reference=each(lambda x: x if x >= 1 else (x + 1) ** 2 / 4 if x > -1 else 0),
    dtypes=FLOATS,
)
def sparse_plus(x: Any, /) -> Tensor:
    """0 up to -1, x from 1 on, and the parabola (x + 1)² / 4 between them.

    ``x`` is a real tensor of any shape.

    >>> ef.sparse_plus(ef.tensor([-2.0, 0.0, 2.0]))
    Tensor([0.  , 0.25, 2.  ], float32, cpu:0)
    """
    above = maximum(add(x, 1), 0)
    return where(less(x, 1), multiply(multiply(above, above), 0.25), x)


@composed(
    samples=clear_of((), -2, 2),
    reference=each(lambda x: x - math.tanh(x)),
    dtypes=FLOATS,
)
def tanh_shrink(x: Any, /) -> Tensor:
    """Each element less its hyperbolic tangent.

    ``x`` is a real tensor of any shape.

    >>> ef.tanh_shrink(ef.tensor([0.0, 2.0]))
    Tensor([0.   , 1.036], float32, cpu:0)
    """
    return subtract(x, tanh(x))


# Of rows ------------------------------------------------------------------------------------------


def _rows(rng: np.random.Generator, dtype: DType, values: Any = make) -> list[Sample]:
    shapes = (((4,), -1), ((2, 6), 1), ((2, 6), 0), ((2, 4, 3), 1), ((4, 3), 0), ((0, 2), -1))
    base = values(rng, dtype, (4, 6))
    found = [Sample((values(rng, dtype, shape),), {"axis": axis}) for shape, axis in shapes]
    return [*found, Sample((base[::2, ::-1],), {}), Sample((base.T,), {"axis": 0})]


def _gated(x: Any, axis: int) -> Any:
    values, gates = np.split(x, 2, axis)
    return values / (1 + np.exp(-gates.astype(float)))


@composed(
    samples=_rows,
    reference=_gated,
    dtypes=FLOATS,
    sizes=Missing("whether an axis has two halves has to be known"),
    errors=lambda rng: [
        ErrorSample((np.ones(3),), {}, ShapeError, "3 elements have no two halves"),
        ErrorSample((np.ones(2), 1), {}, AxisError, "axis 1 does not exist"),
    ],
)
def glu(x: Any, /, axis: int = -1) -> Tensor:
    """The first half along ``axis``, times the sigmoid of the second.

    ``x`` is a real tensor. Raises ShapeError for an odd size. Source: Dauphin et al.,
    arXiv:1612.08083.

    >>> ef.glu(ef.tensor([2.0, 4.0, 0.0, 0.0]))
    Tensor([1., 2.], float32, cpu:0)
    """
    size = x.shape[normalize_axis(axis, x.ndim)]
    if isinstance(size, int) and size % 2:
        raise ShapeError(
            f"{size} elements have no two halves",
            argument="x",
            expected=f"an even size along axis {axis}",
        )
    values, gates = split(x, 2, axis)
    return multiply(values, sigmoid(gates))


def _softmin_of(x: Any, axis: int) -> Any:
    powers = np.exp(-x.astype(float))
    return powers / powers.sum(axis, keepdims=True)


@composed(samples=_rows, reference=_softmin_of, dtypes=FLOATS)
def softmin(x: Any, /, axis: int = -1) -> Tensor:
    """Shares that sum to 1 along ``axis``, largest for the smallest element: softmax of -x.

    ``x`` is a real tensor.

    >>> ef.softmin(ef.tensor([0.0, 0.0]))
    Tensor([0.5, 0.5], float32, cpu:0)
    """
    return softmax(negative(x), axis=axis)


def _nearest_distribution(x: Any, axis: int) -> Any:
    """By bisection of the threshold that is subtracted from every element."""
    rows = np.moveaxis(x.astype(float), axis, -1)
    out = np.empty(rows.shape)
    for at in np.ndindex(rows.shape[:-1]):
        row = rows[at].tolist()
        low, high = max(row) - 1, max(row)
        for _ in range(60):
            middle = (low + high) / 2
            enough = math.fsum(max(v - middle, 0) for v in row) >= 1
            low, high = (middle, high) if enough else (low, middle)
        out[at] = [max(v - low, 0) for v in row]
    return np.moveaxis(out, -1, axis)


@composed(
    samples=lambda rng, dtype: _rows(rng, dtype, distinct),
    reference=_nearest_distribution,
    dtypes=FLOATS,
)
def sparsemax(x: Any, /, axis: int = -1) -> Tensor:
    """The nearest point to each vector that is a distribution; small elements become 0.

    ``x`` is a real tensor with vectors along ``axis``. Source: Martins and Astudillo,
    arXiv:1602.02068.

    >>> ef.sparsemax(ef.tensor([2.0, 1.5, -1.0]))
    Tensor([0.75, 0.25, 0.  ], float32, cpu:0)
    """
    return wide(_sparsemax, x, axis=axis)


def _sparsemax(x: Any, axis: int) -> Any:
    falling = sort(x, axis=axis, descending=True)
    sums = cumulative_sum(falling, axis=axis)
    ranks = cumulative_sum(ones_like(falling), axis=axis)
    inside = greater(add(multiply(falling, ranks), 1), sums)
    total = sum(where(inside, falling, 0), axis=axis, keepdims=True)
    number = sum(inside.astype(falling.dtype), axis=axis, keepdims=True)
    return relu(subtract(x, divide(subtract(total, 1), number)))
