"""Medians, quantiles and percentiles, interpolated between sorted elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from eagerflow.convert import as_tensor, number_type
from eagerflow.dims import product
from eagerflow.dtypes import REAL
from eagerflow.errors import ArgumentError, ShapeError, short_repr
from eagerflow.number import Number
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype, stop_gradient
from eagerflow.ops.creation.filled import ones
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, remainder, subtract
from eagerflow.ops.elementwise.comparison import equal, isnan, less, logical_not
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.rounding import ceil, floor, round
from eagerflow.ops.elementwise.selection import maximum, minimum, where
from eagerflow.ops.indexing.gathering import take, take_along_axis
from eagerflow.ops.operands import floating
from eagerflow.ops.reductions.accumulation import part_of
from eagerflow.ops.reductions.cumulative import cumulative_sum
from eagerflow.ops.reductions.sorting import argsort, sort
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.reshaping import (
    broadcast_to,
    expand_dims,
    moveaxis,
    permute_dims,
    reshape,
)
from eagerflow.spec import reduced_axes
from eagerflow.tensor import Operators, Tensor

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]

# How the methods of Hyndman and Fan ("Sample quantiles in statistical packages", 1996) that
# interpolate place the q-th quantile of n sorted elements: at n q + a + q (1 - a - b) - 1.
PLOTTING = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}


def _step(place: Any, at_step: Any) -> Any:
    """The element after a position, and the weight ``at_step`` if the position is exact."""
    low = floor(place)
    return add(low, where(equal(place, low), at_step, 1.0))


def _middle(place: Any) -> Any:
    return divide(add(floor(place), ceil(place)), 2)


# Those that choose, or meet halfway; ``last`` is the last index, ``q`` the share below.
CHOICES: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda last, q: multiply(last, q),
    "lower": lambda last, q: floor(multiply(last, q)),
    "higher": lambda last, q: ceil(multiply(last, q)),
    "midpoint": lambda last, q: _middle(multiply(last, q)),
    "nearest": lambda last, q: round(multiply(last, q)),
    "inverted_cdf": lambda last, q: _step(_before(last, q), 0.0),
    "averaged_inverted_cdf": lambda last, q: _step(_before(last, q), 0.5),
    # Of two that are equally near, the one that is even when counted from 1.
    "closest_observation": lambda last, q: _nearest_even(subtract(_before(last, q), 0.5)),
}


def _before(last: Any, q: Any) -> Any:
    return subtract(multiply(add(last, 1), q), 1)


def _nearest_even(place: Any) -> Any:
    stays = equal(remainder(floor(place), 2), 1)
    return _step(place, astype(logical_not(stays), place.dtype))


def _places(method: Any, last: Any, q: Any) -> Any:
    """The positions of quantiles among the sorted elements, clipped to their range."""
    if method in CHOICES:
        found = CHOICES[method](last, q)
    elif method in PLOTTING:
        a, b = PLOTTING[method]
        found = add(_before(last, q), add(multiply(q, 1 - a - b), a))
    else:
        raise ArgumentError(
            f"{short_repr(method)} is not a method",
            argument="method",
            expected="one of " + ", ".join(sorted({*CHOICES, *PLOTTING})),
        )
    return maximum(minimum(found, last), 0)


# What quantiles share ----------------------------------------------------------------------------


def _shares(q: Any, x: Any, hundred: bool = False) -> Any:
    """Probabilities in float64, in which positions among many elements are exact; with ``x``."""
    found = as_tensor(q, "float64", None if isinstance(q, Operators) else x.device)
    most = 100 if hundred else 1
    if type(q) is Number and q.assumptions is not None:  # other numbers are traced by themselves
        q.assumptions.limit(q.index, 0, most)
    elif number_type(q) is not None and not isinstance(q, Operators):
        numbers = found.numpy()
        low, high = numbers.min(initial=0), numbers.max(initial=0)
        if not 0 <= low <= high <= most:
            raise ArgumentError(
                f"{short_repr(q)} is out of range", argument="q", expected=f"from 0 to {most}"
            )
    return divide(found, 100) if hundred else found


def _rows(x: Any, axis: Any) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """``x`` with the reduced axes as its last one; the shapes of results without and with them."""
    x = floating(x)
    axes = reduced_axes(axis, x.ndim)
    if any(type(x.shape[i]) is int and x.shape[i] == 0 for i in axes):
        raise ShapeError("nothing to reduce: an axis has size 0", expected="non-empty axes")
    kept = [i for i in range(x.ndim) if i not in axes]
    rest = tuple(x.shape[i] for i in kept)
    whole = tuple(1 if i in axes else size for i, size in enumerate(x.shape))
    rows = reshape(permute_dims(x, (*kept, *axes)), (*rest, product(x.shape[i] for i in axes)))
    return rows, rest, whole


def _last(rows: Any, ignored: bool) -> Any:
    """The index of the last element, in float64; ``ignored``: of the last one that is not NaN."""
    if ignored:
        numbers = astype(logical_not(isnan(rows)), "float64")
        return subtract(total(numbers, axis=-1, keepdims=True), 1)
    size = rows.shape[-1]
    if type(size) is int:
        return as_tensor(size - 1, "float64", rows.device)
    return subtract(total(ones((size,), "float64", str(rows.device))), 1)


def _between(ordered: Any, places: Any) -> Any:
    """Elements of sorted rows, interpolated at fractional positions."""
    where_low = floor(stop_gradient(places))
    low, high = (astype(place, "int64") for place in (where_low, ceil(stop_gradient(places))))
    if places.ndim == 1:
        first, after = take(ordered, low, axis=-1), take(ordered, high, axis=-1)
    else:
        first, after = take_along_axis(ordered, low, -1), take_along_axis(ordered, high, -1)
    part = astype(subtract(places, where_low), ordered.dtype)
    way = where(equal(first, after), 0, subtract(after, first))  # also between two infinities
    return where(
        less(part, 0.5),
        add(first, multiply(way, part)),
        subtract(after, multiply(way, subtract(1, part))),
    )


def _by_weight(rows: Any, weights: Any, q: Any, method: Any) -> Any:
    """The sorted rows, and the positions where shares of the total weight are reached."""
    if method != "inverted_cdf":
        raise ArgumentError(
            f"{short_repr(method)} takes no weights", argument="method", expected="'inverted_cdf'"
        )
    order = argsort(rows, axis=-1)
    ordered = take_along_axis(rows, order, -1)
    summed = cumulative_sum(astype(take_along_axis(weights, order, -1), "float64"), axis=-1)
    reached = divide(summed, part_of(summed, rows.ndim - 1, -1, None))
    reached = where(equal(reached, 0), -1, reached)  # elements without weight are skipped
    before = less(expand_dims(reached, -1), q)
    places = total(astype(before, "float64"), axis=-2)
    return ordered, minimum(places, _last(rows, False))


def _weights(weights: Any, x: Any, axis: Any) -> Any:
    """Weights of the shape of ``x``: as they are, or those along its one axis."""
    weights = as_tensor(weights)
    if weights.ndim == 1 and x.ndim > 1 and isinstance(axis, int):
        at = reduced_axes(axis, x.ndim)[0]
        weights = reshape(weights, tuple(-1 if i == at else 1 for i in range(x.ndim)))
    return _rows(broadcast_to(weights, x.shape), axis)[0]


def _quantiles(
    x: Any, q: Any, axis: Any, method: Any, keepdims: bool, weights: Any, ignored: bool
) -> Any:
    rows, rest, whole = _rows(x, axis)
    flat = reshape(q, (-1,))
    if weights is not None:
        weights = _weights(weights, x, axis)
        if ignored:
            weights = where(isnan(rows), 0, weights)
        ordered, places = _by_weight(rows, weights, flat, method)
    else:
        ordered = sort(rows, axis=-1)
        places = _places(method, _last(rows, ignored), flat)
    found = in_float32(_between)(ordered, places)
    if not ignored:
        found = where(isnan(part_of(ordered, rows.ndim - 1, -1, None)), math.nan, found)
    return reshape(moveaxis(found, -1, 0), (*q.shape, *(whole if keepdims else rest)))


# The functions ------------------------------------------------------------------------------------


@composed(dtypes=REAL)
def median(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The middle one of the sorted elements over axes, or the mean of the middle two.

    ``x`` is a real tensor, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. Integers and bools give float32; NaN if an element
    is NaN. Raises ShapeError where a reduced axis has size 0, DTypeError for complex numbers.

    >>> ef.median(ef.tensor([[1.0, 9.0, 2.0], [4.0, 3.0, 8.0]]), axis=1)
    Tensor([2., 4.], float32, cpu:0)
    """
    return _quantiles(x, _shares(0.5, x), axis, "linear", keepdims, None, False)


@composed(dtypes=REAL)
def nanmedian(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The median over axes of those elements that are not NaN.

    ``x`` is a real tensor, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. NaN where no element is left. Raises ShapeError
    where a reduced axis has size 0, DTypeError for complex numbers.

    >>> ef.nanmedian(ef.tensor([1.0, ef.nan, 2.0, 6.0]))
    Tensor(2., float32, cpu:0)
    """
    return _quantiles(x, _shares(0.5, x), axis, "linear", keepdims, None, True)


@composed(dtypes=REAL)
def quantile(
    x: Any,
    /,
    q: Any,
    axis: Any = None,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> Tensor:
    """The quantiles ``q`` of the elements over axes.

    ``x`` is a real tensor, ``q`` a number from 0 to 1 or a tensor of them, whose axes come first in
    the result; ``axis`` is an integer, a tuple of integers or None for all axes; ``keepdims`` keeps
    reduced axes with size 1. ``method`` is one of those of Hyndman and Fan ("Sample quantiles in
    statistical packages", 1996), as NumPy calls them, or "lower", "higher", "midpoint", "nearest".
    ``weights``, of the shape of ``x`` or along its one ``axis``, are for ``"inverted_cdf"``.
    Integers give float32; NaN if an element is NaN. Raises ShapeError where a reduced axis has size
    0, ArgumentError for other methods and shares.

    >>> ef.quantile(ef.tensor([1.0, 2.0, 4.0, 8.0]), [0.25, 0.5])
    Tensor([1.75, 3.  ], float32, cpu:0)
    """
    return _quantiles(x, _shares(q, x), axis, method, keepdims, weights, False)


@composed(dtypes=REAL)
def percentile(
    x: Any,
    /,
    q: Any,
    axis: Any = None,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> Tensor:
    """The percentiles ``q`` of the elements over axes: ``ef.quantile`` of ``q / 100``.

    Raises the same errors.

    >>> ef.percentile(ef.tensor([1.0, 2.0, 4.0, 8.0]), 50)
    Tensor(3., float32, cpu:0)
    """
    return _quantiles(x, _shares(q, x, hundred=True), axis, method, keepdims, weights, False)


@composed(dtypes=REAL)
def nanquantile(
    x: Any,
    /,
    q: Any,
    axis: Any = None,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> Tensor:
    """The quantiles over axes of those elements that are not NaN: see ``ef.quantile``.

    NaN where no element is left. Raises the same errors.

    >>> ef.nanquantile(ef.tensor([1.0, ef.nan, 4.0, 8.0]), 0.5)
    Tensor(4., float32, cpu:0)
    """
    return _quantiles(x, _shares(q, x), axis, method, keepdims, weights, True)


@composed(dtypes=REAL)
def nanpercentile(
    x: Any,
    /,
    q: Any,
    axis: Any = None,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> Tensor:
    """The percentiles over axes of those elements that are not NaN: see ``ef.quantile``.

    NaN where no element is left. Raises the same errors.

    >>> ef.nanpercentile(ef.tensor([1.0, ef.nan, 4.0, 8.0]), 50)
    Tensor(4., float32, cpu:0)
    """
    return _quantiles(x, _shares(q, x, hundred=True), axis, method, keepdims, weights, True)
