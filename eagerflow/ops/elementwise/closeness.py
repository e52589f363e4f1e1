"""Whether tensors are equal, or nearly so."""

from __future__ import annotations

from typing import Any

from eagerflow.dims import symbolic
from eagerflow.dtypes import INEXACT, NUMERIC
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import zeros
from eagerflow.ops.elementwise.arithmetic import abs, add, multiply, subtract
from eagerflow.ops.elementwise.comparison import (
    equal,
    isfinite,
    isnan,
    less_equal,
    logical_and,
    logical_or,
)
from eagerflow.ops.reductions.sums import all as every
from eagerflow.tensor import Tensor

__all__ = ["allclose", "array_equal", "isclose"]

_TRUTH = Missing("the result is a truth value")


def _isclose(x1: Any, x2: Any, rtol: Any, atol: Any, equal_nan: bool) -> Any:
    same = equal(x1, x2)
    # For integers, differences are computed in a dtype that represents them.
    x1, x2 = (x if x.dtype in INEXACT else astype(x, "float64") for x in (x1, x2))
    limit = add(atol, multiply(rtol, abs(x2)))
    near = logical_and(less_equal(abs(subtract(x1, x2)), limit), isfinite(x2))
    found = logical_or(same, near)
    return logical_or(found, logical_and(isnan(x1), isnan(x2))) if equal_nan else found


@composed(
    dtypes=NUMERIC,
    gradient=_TRUTH,
)
def isclose(
    x1: Any, x2: Any, /, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Whether the elements of two tensors differ by ``atol + rtol * abs(x2)`` at most.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast; ``rtol`` and ``atol``
    are numbers or tensors that broadcast with them; infinities are close to themselves alone, and
    so is NaN with ``equal_nan``. Raises ShapeError where the shapes do not broadcast.

    >>> ef.isclose(ef.tensor([1.0, 2.0]), ef.tensor([1.000001, 2.1]))
    Tensor([ True, False], bool, cpu:0)
    """
    return _isclose(x1, x2, rtol, atol, equal_nan)


@composed(
    dtypes=NUMERIC,
    gradient=_TRUTH,
)
def allclose(
    x1: Any, x2: Any, /, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Whether all elements of two tensors are close: see ``ef.isclose``.

    The result is a tensor without axes. Raises ShapeError where the shapes do not broadcast.

    >>> ef.allclose(ef.tensor([1.0, 2.0]), ef.tensor([1.000001, 2.0]))
    Tensor(True, bool, cpu:0)
    """
    return every(_isclose(x1, x2, rtol, atol, equal_nan))


@composed(
    dtypes=NUMERIC,
    gradient=_TRUTH,
)
def array_equal(x1: Any, x2: Any, /, equal_nan: bool = False) -> Tensor:
    """Whether two tensors have the same shape and equal elements.

    ``x1`` and ``x2`` are tensors, arrays or numbers; with ``equal_nan`` NaN equals itself. The
    result is a tensor without axes.

    >>> ef.array_equal(ef.tensor([1, 2]), ef.tensor([1.0, 2.0]))
    Tensor(True, bool, cpu:0)
    """
    if x1.ndim != x2.ndim or (not symbolic((*x1.shape, *x2.shape)) and x1.shape != x2.shape):
        return zeros((), "bool", str(x1.device))
    same = equal(x1, x2)
    if equal_nan:
        same = logical_or(same, logical_and(isnan(x1), isnan(x2)))
    return every(same)
