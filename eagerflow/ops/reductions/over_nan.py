"""Reductions and cumulative ops over elements that are not NaN."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.dtypes import BOOL, FLOATS, INEXACT, NUMERIC, REAL, DType, is_complex, real_dtype
from eagerflow.errors import AxisError, DTypeError
from eagerflow.op import ErrorSample, Missing, Sample
from eagerflow.ops.composition import P, R, composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import greater, isnan, logical_not
from eagerflow.ops.elementwise.complexes import conj, real
from eagerflow.ops.elementwise.powers import sqrt, square
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.operands import floating, real_numbers, wide
from eagerflow.ops.reductions.cumulative import cumulative_prod, cumulative_sum
from eagerflow.ops.reductions.sums import all as every
from eagerflow.ops.reductions.sums import along, argmax, argmin
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.reductions.sums import min as smallest
from eagerflow.ops.reductions.sums import prod as product
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.samples import distinct, make
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


def _with_nan(rng: np.random.Generator, dtype: DType, shape: Any) -> Any:
    x = distinct(rng, dtype, shape) if dtype.kind != "c" else make(rng, dtype, shape)
    if dtype.kind not in "bui" and x.size > 2:
        x = x.copy()
        x.ravel()[1 :: max(x.size // 2, 2)] = np.nan
    return x


def _samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    found = [
        Sample((_with_nan(rng, dtype, shape),), {"axis": axis, "keepdims": keepdims})
        for shape, axis in (((5,), None), ((3, 4), 0), ((2, 5), -1), ((2, 3, 4), (0, 2)))
        for keepdims in (False, True)
    ]
    return [
        *found,
        Sample((make(rng, dtype, ()),)),
        Sample((make(rng, dtype, (2, 3)),), {"axis": 1}),
    ]


def _numbers(function: Any) -> Any:
    return lambda row: function([value for value in row if value == value])


def _reduced(
    function: Any, dtypes: Any = NUMERIC | BOOL, dtype: Any = None, **facts: Any
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def errors(rng: np.random.Generator) -> list[ErrorSample]:
        return [
            ErrorSample((np.ones((2, 3)),), {"axis": 2}, AxisError, "axis 2 does not exist"),
            ErrorSample(("text",), {}, DTypeError, "str"),
        ]

    own: dict[str, Any] = {
        "samples": _samples,
        "errors": errors,
        "reference": lambda x, axis=None, keepdims=False, **more: along(_numbers(function), dtype)(
            x, axis, keepdims
        ),
        "dtypes": dtypes,
    }
    return composed(**own | facts)


def _cleared(x: Any, neutral: Any) -> Any:
    return where(isnan(x), neutral, x) if x.dtype in INEXACT else x


@_reduced(sum)
def nansum(x: Any, /, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sum of the elements over axes that are not NaN.

    ``x`` is a tensor of any dtype, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1; with ``dtype`` the elements are cast to it first.
    Raises ShapeError for an axis that does not exist.

    >>> ef.nansum(ef.tensor([1.0, ef.nan, 2.0]))
    Tensor(3., float32, cpu:0)
    """
    return total(_cleared(x, 0), axis=axis, keepdims=keepdims, dtype=dtype)


@_reduced(math.prod)
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


def _mean_of(row: list[Any]) -> Any:
    return sum(row) / len(row) if row else math.nan


def _counted(x: Any, axis: Any, dtype: Any) -> Any:
    """The number of elements that are not NaN; the reduced axes are kept."""
    return total(astype(logical_not(isnan(x)), dtype), axis=axis, keepdims=True)


def _mean(x: Any, axis: Any) -> Any:
    count = _counted(x, axis, "int64")
    return divide(total(_cleared(x, 0), axis=axis, keepdims=True), astype(count, x.dtype))


def _without(y: Any, axis: Any, keepdims: bool) -> Any:
    """A result with kept reduced axes."""
    return y if keepdims else total(y, axis=axis)


@_reduced(_mean_of)
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


def _variance_of(row: list[Any]) -> float:
    if not any(isinstance(value, complex) for value in row):
        return statistics.pvariance(row) if row else math.nan
    center = sum(row) / len(row)
    return math.fsum(abs(value - center) ** 2 for value in row) / len(row)


@_reduced(_variance_of, NUMERIC, np.float64)
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


@_reduced(lambda row: math.sqrt(_variance_of(row)), NUMERIC, np.float64)
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


_REAL: dict[str, Any] = {"dtypes": REAL | BOOL}


@_reduced(max, **_REAL)
def nanmax(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest element over axes that is not NaN; NaN if there is none.

    ``x`` is a real tensor, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. Raises ShapeError where a reduced axis has size 0,
    DTypeError for complex numbers.

    >>> ef.nanmax(ef.tensor([1.0, ef.nan, 2.0]))
    Tensor(2., float32, cpu:0)
    """
    return _extreme(largest, -math.inf, x, axis, keepdims)


@_reduced(min, **_REAL)
def nanmin(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The smallest element over axes that is not NaN; NaN if there is none.

    ``x`` is a real tensor, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. Raises ShapeError where a reduced axis has size 0,
    DTypeError for complex numbers.

    >>> ef.nanmin(ef.tensor([1.0, ef.nan, 2.0]))
    Tensor(1., float32, cpu:0)
    """
    return _extreme(smallest, math.inf, x, axis, keepdims)


def _place_of(function: Any) -> Any:
    def place(row: list[Any]) -> int:
        return row.index(function([value for value in row if value == value]))

    return place


def _places(function: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    return _reduced(
        function,
        **_REAL,
        samples=lambda rng, dtype: [
            s for s in _samples(rng, dtype) if s.attributes.get("axis") != (0, 2)
        ],
        reference=lambda x, axis=None, keepdims=False: along(_place_of(function), "int64")(
            x, axis, keepdims
        ),
        gradient=Missing("the result is an index, which does not change smoothly"),
    )


@_places(max)
def nanargmax(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Index of the largest element along an axis that is not NaN; 0 if there is none.

    ``x`` is a real tensor, ``axis`` an integer, or None for the index into all elements in
    row-major order; ``keepdims`` keeps the reduced axes with size 1. The result is int64. Raises
    ShapeError where there is nothing to search.

    >>> ef.nanargmax(ef.tensor([1.0, ef.nan, 2.0]))
    Tensor(2, int64, cpu:0)
    """
    return argmax(_cleared(real_numbers(x), -math.inf), axis=axis, keepdims=keepdims)


@_places(min)
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


def _running(function: Any, neutral: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        cases: tuple[Any, ...] = (((5,), None), ((3, 4), 0), ((2, 5), -1), ((2, 3), None))
        cases += (((2, 3, 2), 1), ((0, 3), 0), ((1,), 0))
        return [Sample((_with_nan(rng, dtype, shape),), {"axis": axis}) for shape, axis in cases]

    def reference(x: Any, axis: Any, dtype: Any) -> Any:
        cleared = np.where(np.isnan(x), x.dtype.type(neutral), x)
        rows = cleared.ravel() if axis is None else np.moveaxis(cleared, axis, -1)
        out = np.empty(rows.shape, np.int64 if x.dtype.kind in "bi" else x.dtype)
        for at in np.ndindex(rows.shape[:-1]):
            out[at] = list(itertools.accumulate(rows[at].tolist(), function))
        return out if axis is None else np.moveaxis(out, -1, axis)

    return composed(samples=samples, reference=reference, dtypes=NUMERIC | BOOL)


def _flat(x: Any, axis: Any) -> tuple[Any, Any]:
    return (reshape(x, (-1,)), 0) if axis is None else (x, axis)


@_running(lambda a, b: a + b, 0)
def nancumsum(x: Any, /, axis: Any = None, dtype: Any = None) -> Tensor:
    """Sums of all elements up to each one along an axis, with NaN taken as 0.

    ``x`` is a tensor of any dtype; without ``axis`` it is flattened; with ``dtype`` the elements
    are cast to it first. Raises ShapeError for an axis that does not exist.

    >>> ef.nancumsum(ef.tensor([1.0, ef.nan, 2.0]))
    Tensor([1., 1., 3.], float32, cpu:0)
    """
    x, axis = _flat(_cleared(x, 0), axis)
    return cumulative_sum(x, axis=axis, dtype=dtype)


@_running(lambda a, b: a * b, 1)
def nancumprod(x: Any, /, axis: Any = None, dtype: Any = None) -> Tensor:
    """Products of all elements up to each one along an axis, with NaN taken as 1.

    ``x`` is a tensor of any dtype; without ``axis`` it is flattened; with ``dtype`` the elements
    are cast to it first. Raises ShapeError for an axis that does not exist.

    >>> ef.nancumprod(ef.tensor([3.0, ef.nan, 2.0]))
    Tensor([3., 3., 6.], float32, cpu:0)
    """
    x, axis = _flat(_cleared(x, 1), axis)
    return cumulative_prod(x, axis=axis, dtype=dtype)
