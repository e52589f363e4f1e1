"""Reductions and cumulative ops over elements that are not NaN."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.dtypes import BOOL, FLOATS, INEXACT, NUMERIC, REAL, is_complex, real_dtype
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import greater, isnan, logical_not
from eagerflow.ops.elementwise.complexes import conj, real
from eagerflow.ops.elementwise.powers import sqrt, square
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.operands import floating, real_numbers, wide
from eagerflow.ops.reductions.cumulative import cumulative_prod, cumulative_sum
from eagerflow.ops.reductions.sums import INDEX_RESULT, argmax, argmin
from eagerflow.ops.reductions.sums import all as every
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.reductions.sums import min as smallest
from eagerflow.ops.reductions.sums import prod as product
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.tensor import Tensor

__all__ = [
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
]


def _cleared(x: Any, neutral: Any) -> Any:
    return where(isnan(x), neutral, x) if x.dtype in INEXACT else x


@composed(dtypes=NUMERIC | BOOL)
def nansum(x: Any, /, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sum of the elements over axes that are not NaN.

    ``x`` is a tensor of any dtype, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1; with ``dtype`` the elements are cast to it first.
    Raises ShapeError for an axis that does not exist.

    >>> ef.nansum(ef.tensor([1.0, ef.nan, 2.0]))
    Tensor(3., float32, cpu:0)
    """
    return total(_cleared(x, 0), axis=axis, keepdims=keepdims, dtype=dtype)


@composed(dtypes=NUMERIC | BOOL)
def nanprod(x: Any, /, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Product of the elements over axes that are not NaN.

    ``x`` is a tensor of any dtype, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1; with ``dtype`` the elements are cast to it first.
    Raises ShapeError for an axis that does not exist.

    >>> ef.nanprod(ef.tensor([3.0, ef.nan, 2.0]))
    Tensor(6., float32, cpu:0)
    """
    return product(_cleared(x, 1), axis=axis, keepdims=keepdims, dtype=dtype)


# Means and spreads --------------------------------------------------------------------------------


def _counted(x: Any, axis: Any, dtype: Any) -> Any:
    """The number of elements that are not NaN; the reduced axes are kept."""
    return total(astype(logical_not(isnan(x)), dtype), axis=axis, keepdims=True)


def _mean(x: Any, axis: Any) -> Any:
    count = _counted(x, axis, "int64")
    return divide(total(_cleared(x, 0), axis=axis, keepdims=True), astype(count, x.dtype))


def _without(y: Any, axis: Any, keepdims: bool) -> Any:
    """A result with kept reduced axes."""
    return y if keepdims else total(y, axis=axis)


@composed(dtypes=NUMERIC | BOOL)
def nanmean(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Mean of the elements over axes that are not NaN; NaN if there are none.

    ``x`` is a tensor of any dtype, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. Integers and bools give float32. Raises ShapeError
    for an axis that does not exist.

    >>> ef.nanmean(ef.tensor([1.0, ef.nan, 2.0]))
    Tensor(1.5, float32, cpu:0)
    """
    return _without(wide(_mean, floating(x, "x", INEXACT), axis=axis), axis, keepdims)


def _variance(x: Any, axis: Any, correction: float) -> Any:
    far = where(isnan(x), 0, subtract(x, _mean(x, axis)))
    free = subtract(astype(_counted(x, axis, "int64"), real_dtype(far.dtype)), correction)
    power = real(multiply(far, conj(far))) if is_complex(far.dtype) else square(far)
    squares = total(power, axis=axis, keepdims=True)
    return divide(squares, astype(where(greater(free, 0), free, math.nan), squares.dtype))


@composed(dtypes=NUMERIC)
def nanvar(x: Any, /, axis: Any = None, keepdims: bool = False, correction: float = 0.0) -> Tensor:
    """Variance of the elements over axes that are not NaN.

    ``x`` is a tensor of numbers, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. The sum of squared deviations, of complex numbers
    of their magnitudes, is divided by the number of elements less ``correction``; NaN if that is
    not positive. Raises ShapeError for an axis that does not exist.

    >>> ef.nanvar(ef.tensor([1.0, ef.nan, 3.0]))
    Tensor(1., float32, cpu:0)
    """
    found = wide(_variance, floating(x, "x", INEXACT), axis=axis, correction=correction)
    return _without(found, axis, keepdims)


@composed(dtypes=NUMERIC)
def nanstd(x: Any, /, axis: Any = None, keepdims: bool = False, correction: float = 0.0) -> Tensor:
    """Standard deviation of the elements over axes that are not NaN: the root of ``ef.nanvar``.

    Raises the same errors.

    >>> ef.nanstd(ef.tensor([1.0, ef.nan, 3.0]))
    Tensor(1., float32, cpu:0)
    """
    found = wide(_variance, floating(x, "x", INEXACT), axis=axis, correction=correction)
    return _without(sqrt(found), axis, keepdims)


# Extremes, and where they are ---------------------------------------------------------------------


def _extreme(reduce: Any, worst: float, x: Any, axis: Any, keepdims: bool) -> Any:
    if real_numbers(x).dtype not in FLOATS:
        return reduce(x, axis=axis, keepdims=keepdims)
    missing = isnan(x)
    found = reduce(where(missing, worst, x), axis=axis, keepdims=keepdims)
    return where(every(missing, axis=axis, keepdims=keepdims), math.nan, found)


@composed(dtypes=REAL | BOOL)
def nanmax(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest element over axes that is not NaN; NaN if there is none.

    ``x`` is a real tensor, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. Raises ShapeError where a reduced axis has size 0,
    DTypeError for complex numbers.

    >>> ef.nanmax(ef.tensor([1.0, ef.nan, 2.0]))
    Tensor(2., float32, cpu:0)
    """
    return _extreme(largest, -math.inf, x, axis, keepdims)


@composed(dtypes=REAL | BOOL)
def nanmin(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The smallest element over axes that is not NaN; NaN if there is none.

    ``x`` is a real tensor, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. Raises ShapeError where a reduced axis has size 0,
    DTypeError for complex numbers.

    >>> ef.nanmin(ef.tensor([1.0, ef.nan, 2.0]))
    Tensor(1., float32, cpu:0)
    """
    return _extreme(smallest, math.inf, x, axis, keepdims)


@composed(dtypes=REAL | BOOL, gradient=INDEX_RESULT)
def nanargmax(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Index of the largest element along an axis that is not NaN; 0 if there is none.

    ``x`` is a real tensor, ``axis`` an integer, or None for the index into all elements in
    row-major order; ``keepdims`` keeps the reduced axes with size 1. The result is int64. Raises
    ShapeError where there is nothing to search.

    >>> ef.nanargmax(ef.tensor([1.0, ef.nan, 2.0]))
    Tensor(2, int64, cpu:0)
    """
    return argmax(_cleared(real_numbers(x), -math.inf), axis=axis, keepdims=keepdims)


@composed(dtypes=REAL | BOOL, gradient=INDEX_RESULT)
def nanargmin(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Index of the smallest element along an axis that is not NaN; 0 if there is none.

    ``x`` is a real tensor, ``axis`` an integer, or None for the index into all elements in
    row-major order; ``keepdims`` keeps the reduced axes with size 1. The result is int64. Raises
    ShapeError where there is nothing to search.

    >>> ef.nanargmin(ef.tensor([1.0, ef.nan, 2.0]))
    Tensor(0, int64, cpu:0)
    """
    return argmin(_cleared(real_numbers(x), math.inf), axis=axis, keepdims=keepdims)


# Running totals -----------------------------------------------------------------------------------


def _flat(x: Any, axis: Any) -> tuple[Any, Any]:
    return (reshape(x, (-1,)), 0) if axis is None else (x, axis)


@composed(dtypes=NUMERIC | BOOL)
def nancumsum(x: Any, /, axis: Any = None, dtype: Any = None) -> Tensor:
    """Sums of all elements up to each one along an axis, with NaN taken as 0.

    ``x`` is a tensor of any dtype; without ``axis`` it is flattened; with ``dtype`` the elements
    are cast to it first. Raises ShapeError for an axis that does not exist.

    >>> ef.nancumsum(ef.tensor([1.0, ef.nan, 2.0]))
    Tensor([1., 1., 3.], float32, cpu:0)
    """
    x, axis = _flat(_cleared(x, 0), axis)
    return cumulative_sum(x, axis=axis, dtype=dtype)


@composed(dtypes=NUMERIC | BOOL)
def nancumprod(x: Any, /, axis: Any = None, dtype: Any = None) -> Tensor:
    """Products of all elements up to each one along an axis, with NaN taken as 1.

    ``x`` is a tensor of any dtype; without ``axis`` it is flattened; with ``dtype`` the elements
    are cast to it first. Raises ShapeError for an axis that does not exist.

    >>> ef.nancumprod(ef.tensor([3.0, ef.nan, 2.0]))
    Tensor([3., 3., 6.], float32, cpu:0)
    """
    x, axis = _flat(_cleared(x, 1), axis)
    return cumulative_prod(x, axis=axis, dtype=dtype)
