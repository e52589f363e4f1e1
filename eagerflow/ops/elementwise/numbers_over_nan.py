"""The larger and the smaller of two elements, one of which may be missing (NaN)."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import REAL
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import subtract
from eagerflow.ops.elementwise.comparison import equal, greater, isnan, less, logical_or
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import ufunc
from eagerflow.spec import Array, Namespace
from eagerflow.tensor import Tensor

__all__ = ["fmax", "fmin"]


def _choosing(wins: Any, function: Any) -> Any:
    """A choice between two elements; ``wins(a, b)`` is true where the first one is taken."""

    def share(y: Any, a: Any, b: Any) -> Any:
        """1 where the result is the first element, 1/2 where both are equal, 0 elsewhere."""
        dtype = (a if isinstance(a, Tensor) else b).dtype
        return where(equal(a, b), 0.5, astype(logical_or(wins(a, b), isnan(b)), dtype))

    def body(s: Any, a: Any, b: Any) -> Any:
        found = s.maximum(a, b) if function is max else s.minimum(a, b)
        return s.select(s.not_equal(a, a), b, s.select(s.not_equal(b, b), a, found))

    return ufunc(
        partials=(share, lambda y, a, b: subtract(1, share(y, a, b))),
        saves="x1 x2",
        singular=True,
        dtypes=REAL,
        scalar=body,
    )


@_choosing(greater, max)
def fmax(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """The larger of two elements; the other one where one of them is NaN.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast. Where
    they are equal, each gets half of the gradient. Raises ShapeError where the shapes do
    not broadcast, DTypeError for bools and complex.

    >>> ef.fmax(ef.tensor([1.0, ef.nan, 3.0]), 2)
    Tensor([2., 2., 3.], float32, cpu:0)
    """
    larger = xp.where(x1 > x2, x1, x2)
    return xp.where(x2 != x2, x1, larger)


@_choosing(less, min)
def fmin(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """The smaller of two elements; the other one where one of them is NaN.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast. Where
    they are equal, each gets half of the gradient. Raises ShapeError where the shapes do
    not broadcast, DTypeError for bools and complex.

    >>> ef.fmin(ef.tensor([1.0, ef.nan, 3.0]), 2)
    Tensor([1., 2., 2.], float32, cpu:0)
    """
    smaller = xp.where(x1 < x2, x1, x2)
    return xp.where(x2 != x2, x1, smaller)
