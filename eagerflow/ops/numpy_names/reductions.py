"""Reductions with NumPy's ``where``, ``initial`` and ``dtype``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dtypes import BOOL, INEXACT, as_dtype
from eagerflow.errors import ArgumentError, KeywordError
from eagerflow.handlers import raised_here
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import ones_like
from eagerflow.ops.elementwise.arithmetic import abs, add, divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import (
    greater,
    isnan,
    logical_and,
    logical_not,
    logical_or,
    not_equal,
)
from eagerflow.ops.elementwise.numbers_over_nan import fmax, fmin
from eagerflow.ops.elementwise.powers import sqrt, square
from eagerflow.ops.elementwise.selection import maximum, minimum
from eagerflow.ops.elementwise.selection import where as select
from eagerflow.ops.operands import floating, wide
from eagerflow.ops.reductions import over_nan, statistics, sums
from eagerflow.ops.reductions.histograms import histogram as counted
from eagerflow.ops.reductions.histograms import histogram_bin_edges as edges_of
from eagerflow.ops.reductions.moments import average as weighted
from eagerflow.ops.reductions.moments import cov
from eagerflow.ops.shapes.reshaping import broadcast_to

__all__ = ["FUNCTIONS"]

Call = Callable[..., Any]


def _reduced(ours: Call, neutral: Any, join: Any) -> Call:
    """A reduction that takes NumPy's ``where`` and ``initial`` as well."""

    def call(
        a: Any,
        /,
        axis: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
        dtype: Any = None,
    ) -> Any:
        options = {} if dtype is None else {"dtype": as_dtype(dtype)}
        if where is not True:
            fill = neutral if neutral is not None else initial
            if fill is None:
                raise KeywordError(
                    "nothing may be left of an axis",
                    op=ours.__name__,
                    argument="where",
                    hint="initial=..., the result of an empty reduction",
                )
            a = select(where, a, fill)
        y = ours(a, axis=axis, keepdims=keepdims, **options)
        return y if initial is None or join is None else join(y, initial)

    call.plain = ours  # type: ignore[attr-defined]
    return call


def _truth(ours: Call, neutral: bool, join: Call) -> Call:
    """``all`` or ``any``; only ``reduce`` passes ``initial``."""

    def call(
        a: Any, /, axis: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
    ) -> Any:
        a = as_tensor(a)
        a = a if a.dtype in BOOL else not_equal(a, 0)
        y = ours(a if where is True else select(where, a, neutral), axis=axis, keepdims=keepdims)
        return y if initial is None else join(y, bool(initial))

    call.plain = ours  # type: ignore[attr-defined]
    return call


def _masked(a: Any, where: Any) -> Any:
    """Elements excluded by a condition as NaN, for the functions over NaN."""
    a = floating(as_tensor(a), "a", INEXACT)
    return a if where is True else select(where, a, math.nan)


def _chosen_mean(a: Any, where: Any, axis: Any, keepdims: bool) -> Any:
    count = sums.sum(select(where, ones_like(a), 0), axis=axis, keepdims=keepdims)
    return divide(sums.sum(select(where, a, 0), axis=axis, keepdims=keepdims), count)


def _mean(ours: Call) -> Call:
    def call(
        a: Any, /, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = True
    ) -> Any:
        a = as_tensor(a) if dtype is None else astype(a, dtype)
        if where is True:
            return ours(a, axis=axis, keepdims=keepdims)
        if ours is over_nan.nanmean:
            return ours(_masked(a, where), axis=axis, keepdims=keepdims)
        return wide(_chosen_mean, a, as_tensor(where), axis=axis, keepdims=keepdims)

    call.plain = ours  # type: ignore[attr-defined]
    return call


def _spread(ours: Call, root: bool, over_nan_too: bool = False) -> Call:
    """A variance, or its root, of chosen elements or around a mean that is known."""

    def call(
        a: Any,
        /,
        axis: Any = None,
        dtype: Any = None,
        keepdims: bool = False,
        correction: Any = 0,
        where: Any = True,
        mean: Any = None,
    ) -> Any:
        a = as_tensor(a) if dtype is None else astype(a, dtype)
        if mean is None and where is True:
            return ours(a, axis=axis, keepdims=keepdims, correction=correction)
        a = floating(a, "a", INEXACT)
        chosen = broadcast_to(as_tensor(where), a.shape)
        if over_nan_too:
            chosen = logical_and(chosen, logical_not(isnan(a)))
        count = sums.sum(astype(chosen, "int64"), axis=axis, keepdims=True)
        if mean is None:
            mean = divide(sums.sum(select(chosen, a, 0), axis=axis, keepdims=True), count)
        squares = square(abs(select(chosen, subtract(a, mean), 0)))
        total = sums.sum(squares, axis=axis, keepdims=True)
        free = subtract(astype(count, total.dtype), correction)
        free = select(greater(free, 0), free, math.nan if over_nan_too else 0)
        found = divide(total, free)
        found = found if keepdims else sums.sum(found, axis=axis)
        return sqrt(found) if root else found

    call.plain = ours  # type: ignore[attr-defined]
    return call


def _over_nan(ours: Call, join: Call) -> Call:
    """An extreme of non-NaN elements, of selected elements, or including an initial number."""

    def call(
        a: Any, /, axis: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
    ) -> Any:
        a = a if where is True else _masked(a, where)
        y = ours(a, axis=axis, keepdims=keepdims)
        return y if initial is None else join(y, initial)

    call.plain = ours  # type: ignore[attr-defined]
    return call


def _average(
    a: Any, /, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    return weighted(a, weights, axis=axis, returned=returned, keepdims=keepdims)


def _histogram(
    a: Any, /, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    if isinstance(bins, str):
        bins = _edges_by_rule(a, bins, range, weights)
    return counted(a, weights, bins=bins, range=range, density=bool(density))


def _bin_edges(a: Any, /, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    if isinstance(bins, str):
        return _edges_by_rule(a, bins, range, weights)
    return edges_of(a, bins=bins, range=range)  # which do not depend on weights


def _edges_by_rule(a: Any, bins: str, range: Any, weights: Any) -> Any:
    """The edges by one of NumPy's rules; their number depends on the values."""
    if weights is not None:
        raise ArgumentError("rules for bins know no weights", op="histogram", argument="weights")
    a = floating(as_tensor(a), "a")
    try:
        found = np.histogram_bin_edges(a._values("a"), bins, range)
    except raised_here(ValueError) as error:
        # an unknown rule, infinite values
        raise ArgumentError(str(error), op="histogram", argument="bins") from None
    return as_tensor(found, a.dtype, a.device)


def _cov(
    m: Any,
    /,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    dtype: Any = None,
) -> Any:
    m, y = (x if x is None or dtype is None else astype(x, dtype) for x in (m, y))
    return cov(m, y, rowvar, bias, ddof, fweights, aweights)


_max, _min = _reduced(sums.max, None, maximum), _reduced(sums.min, None, minimum)

FUNCTIONS: dict[str, Call] = {
    "all": _truth(sums.all, True, logical_and),
    "amax": _max,
    "amin": _min,
    "any": _truth(sums.any, False, logical_or),
    "average": _average,
    "cov": _cov,
    "histogram": _histogram,
    "histogram_bin_edges": _bin_edges,
    "max": _max,
    "mean": _mean(statistics.mean),
    "min": _min,
    "nanmax": _over_nan(over_nan.nanmax, fmax),
    "nanmean": _mean(over_nan.nanmean),
    "nanmin": _over_nan(over_nan.nanmin, fmin),
    "nanprod": _reduced(over_nan.nanprod, 1, multiply),
    "nanstd": _spread(over_nan.nanstd, True, True),
    "nansum": _reduced(over_nan.nansum, 0, add),
    "nanvar": _spread(over_nan.nanvar, False, True),
    "prod": _reduced(sums.prod, 1, multiply),
    "std": _spread(statistics.std, True),
    "sum": _reduced(sums.sum, 0, add),
    "var": _spread(statistics.var, False),
}
