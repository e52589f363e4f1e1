"""Activation functions by short formulas of other functions."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import FLOATS
from eagerflow.errors import ShapeError
from eagerflow.op import Missing
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


@composed(dtypes=FLOATS)
def threshold(x: Any, /, threshold: float, value: float) -> Tensor:
    """Each element that is above ``threshold``, and ``value`` for other elements.

    ``x`` is a real tensor of any shape, ``threshold`` and ``value`` are numbers.

    >>> ef.threshold(ef.tensor([0.5, 2.0]), 1.0, -1.0)
    Tensor([-1.,  2.], float32, cpu:0)
    """
    return where(greater(x, threshold), x, value)


@composed(dtypes=FLOATS)
def hard_tanh(x: Any, /, min: float = -1.0, max: float = 1.0) -> Tensor:
    """Each element, cut off at ``min`` and ``max``.

    ``x`` is a real tensor of any shape.

    >>> ef.hard_tanh(ef.tensor([-2.0, 0.5, 2.0]))
    Tensor([-1. ,  0.5,  1. ], float32, cpu:0)
    """
    return clip(x, min, max)


@composed(dtypes=FLOATS)
def hard_shrink(x: Any, /, threshold: float = 0.5) -> Tensor:
    """Each element that is farther than ``threshold`` from 0, and 0 for other elements.

    ``x`` is a real tensor of any shape.

    >>> ef.hard_shrink(ef.tensor([-2.0, 0.25, 2.0]))
    Tensor([-2.,  0.,  2.], float32, cpu:0)
    """
    return where(greater(abs(x), threshold), x, 0)


@composed(dtypes=FLOATS)
def soft_shrink(x: Any, /, threshold: float = 0.5) -> Tensor:
    """Each element moved towards 0 by ``threshold``, at most up to 0.

    ``x`` is a real tensor of any shape.

    >>> ef.soft_shrink(ef.tensor([-2.0, 0.25, 2.0]))
    Tensor([-1.5,  0. ,  1.5], float32, cpu:0)
    """
    return subtract(x, clip(x, -threshold, threshold))


@composed(dtypes=FLOATS)
def sparse_sigmoid(x: Any, /) -> Tensor:
    """A line from 0 at -1 to 1 at 1, and flat beyond.

    ``x`` is a real tensor of any shape.

    >>> ef.sparse_sigmoid(ef.tensor([-2.0, 0.5, 2.0]))
    Tensor([0.  , 0.75, 1.  ], float32, cpu:0)
    """
    return clip(multiply(add(x, 1), 0.5), 0, 1)


@composed(dtypes=FLOATS)
def prelu(x: Any, slope: Any, /) -> Tensor:
    """Each positive element, and ``slope`` times other elements.

    ``x`` and ``slope`` are real tensors of shapes that broadcast. Raises ShapeError where they
    do not. Source: He et al., arXiv:1502.01852.

    >>> ef.prelu(ef.tensor([-2.0, 3.0]), ef.tensor(0.25))
    Tensor([-0.5,  3. ], float32, cpu:0)
    """
    return where(greater(x, 0), x, multiply(slope, x))


# Smooth -------------------------------------------------------------------------------------------


@composed(dtypes=FLOATS)
def celu(x: Any, /, alpha: float = 1.0) -> Tensor:
    """Exponential linear unit of slope 1 at 0: alpha·(exp(x / alpha) - 1) for negative numbers.

    ``x`` is a real tensor of any shape, ``alpha`` a nonzero number. Source: Barron,
    arXiv:1704.07483.

    >>> ef.celu(ef.tensor([-1.0, 2.0]), 0.5)
    Tensor([-0.4323,  2.    ], float32, cpu:0)
    """
    return where(greater(x, 0), x, multiply(elu(divide(x, alpha)), alpha))


@composed(dtypes=FLOATS)
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


@composed(dtypes=FLOATS)
def sparse_plus(x: Any, /) -> Tensor:
    """0 up to -1, x from 1 on, and the parabola (x + 1)² / 4 between them.

    ``x`` is a real tensor of any shape.

    >>> ef.sparse_plus(ef.tensor([-2.0, 0.0, 2.0]))
    Tensor([0.  , 0.25, 2.  ], float32, cpu:0)
    """
    above = maximum(add(x, 1), 0)
    return where(less(x, 1), multiply(multiply(above, above), 0.25), x)


@composed(dtypes=FLOATS)
def tanh_shrink(x: Any, /) -> Tensor:
    """Each element less its hyperbolic tangent.

    ``x`` is a real tensor of any shape.

    >>> ef.tanh_shrink(ef.tensor([0.0, 2.0]))
    Tensor([0.   , 1.036], float32, cpu:0)
    """
    return subtract(x, tanh(x))


# Of rows ------------------------------------------------------------------------------------------


@composed(dtypes=FLOATS, sizes=Missing("whether an axis has two halves has to be known"))
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


@composed(dtypes=FLOATS)
def softmin(x: Any, /, axis: int = -1) -> Tensor:
    """Shares that sum to 1 along ``axis``, largest for the smallest element: softmax of -x.

    ``x`` is a real tensor.

    >>> ef.softmin(ef.tensor([0.0, 0.0]))
    Tensor([0.5, 0.5], float32, cpu:0)
    """
    return softmax(negative(x), axis=axis)


@composed(dtypes=FLOATS)
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
