"""The largest and the smallest element so far, and logarithms of running sums of exponentials."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from eagerflow.dtypes import BOOL, INEXACT, REAL
from eagerflow.ops.attributes import Axis
from eagerflow.ops.creation.filled import zeros_like
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import multiply, subtract
from eagerflow.ops.elementwise.comparison import equal, logical_or, not_equal
from eagerflow.ops.elementwise.exponential import complex_logaddexp, exp
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import Batch, define, split_others
from eagerflow.ops.indexing.gathering import scatter_along_axis, take_along_axis
from eagerflow.ops.reductions.accumulation import conjugate, part_of
from eagerflow.ops.reductions.cumulative import linear_recurrence, scan_axis
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["cummax", "cummin", "logcumsumexp"]


def _spec(x: TensorSpec, axis: Any = None, reverse: bool = False) -> TensorSpec:
    scan_axis(x.ndim, axis)
    return x


def _numpy_scan(ufunc: Any) -> Callable[..., Any]:
    """A NumPy ufunc accumulated over elements, also from the end."""

    def kernel(x: Any, axis: Any = None, reverse: bool = False) -> Any:
        at = scan_axis(x.ndim, axis)
        if not reverse:
            return ufunc.accumulate(x, at)
        backwards = (*(slice(None),) * at, slice(None, None, -1))
        out = np.empty(x.shape, x.dtype)
        ufunc.accumulate(x[backwards], at, None, out[backwards])
        return out

    return kernel


def _by_doubling(join: Any, xp: Namespace, x: Any, axis: Any, reverse: bool) -> Any:
    """Spans of doubled length joined in each pass, for libraries without such a function."""
    at, far = scan_axis(x.ndim, axis), 1
    while far < x.shape[at]:
        joined = join(part_of(x, at, far, None), part_of(x, at, None, -far))
        ends = [joined, part_of(x, at, -far, None)] if reverse else [part_of(x, at, 0, far), joined]
        x = xp.concat(ends, axis=at)
        far *= 2
    return x


def _running(ufunc: Any, *, on_complex: Any = None, **facts: Any) -> Any:
    """An op of a ufunc of NumPy's, with the kernel of complex numbers, which that does not take."""
    fast = _numpy_scan(ufunc)
    of_complex = {} if on_complex is None else {"complex": on_complex}
    own: dict[str, Any] = {
        "infer": _spec,
        "trusted": True,  # the kernels look at the axis themselves
        "direct": lambda xp: fast if xp is np else None,
        "overrides": {"numpy": lambda xp, x, **attributes: fast(x, **attributes), **of_complex},
        "aliases": False,
        "batch": Batch(
            lambda call, args, batched, size, axis, **more: call(
                args[0], axis=scan_axis(args[0].ndim - 1, axis) + 1, **more
            )
        ),
        "split": split_others,
    } | facts
    return define("scan", **own)


# Extremes ----------------------------------------------------------------------------------------


def _places(y: Any, x: Any, at: int, reverse: bool) -> Any:
    """The index of each extreme: the nearest position at which it occurs."""
    size = x.shape[at]
    places = reshape(arange(size, device=str(x.device)), (size, *(1,) * (x.ndim - 1 - at)))
    met = logical_or(equal(x, y), not_equal(x, x))
    if reverse:
        return cummin(where(met, places, size - 1), axis=at, reverse=True)
    return cummax(where(met, places, 0), axis=at)


def _extreme_rule(g: Any, y: Any, x: Any, axis: Any, reverse: bool) -> Any:
    at = scan_axis(x.ndim, axis)
    return scatter_along_axis(g, _places(y, x, at, reverse), x.shape, at)


def _extreme_jvp(tangents: Any, y: Any, x: Any, axis: Any, reverse: bool) -> Any:
    at = scan_axis(x.ndim, axis)
    return take_along_axis(tangents[0], _places(y, x, at, reverse), at)


_EXTREME: dict[str, Any] = {
    "dtypes": REAL | BOOL,
    "vjp": (_extreme_rule,),
    "jvp": _extreme_jvp,
    "saves": "x y",
}


@_running(np.maximum, **_EXTREME)
def cummax(xp: Namespace, x: Array, /, *, axis: Axis = None, reverse: bool = False) -> Array:
    """The largest element up to each one along an axis; NaN from the first one on.

    ``x`` is a real tensor with at least one axis, ``axis`` an integer that is optional if there is
    only one; ``reverse`` begins at the end. The gradient goes to the nearest of equal largest
    elements. Raises ShapeError for an axis that does not exist, DTypeError for complex.

    >>> ef.cummax(ef.tensor([1.0, 3.0, 2.0, 4.0]))
    Tensor([1., 3., 3., 4.], float32, cpu:0)
    """
    return _by_doubling(_extreme_of(xp, "maximum"), xp, x, axis, reverse)


@_running(np.minimum, **_EXTREME)
def cummin(xp: Namespace, x: Array, /, *, axis: Axis = None, reverse: bool = False) -> Array:
    """The smallest element up to each one along an axis; NaN from the first one on.

    ``x`` is a real tensor with at least one axis, ``axis`` an integer that is optional if there is
    only one; ``reverse`` begins at the end. The gradient goes to the nearest of equal smallest
    elements. Raises ShapeError for an axis that does not exist, DTypeError for complex.

    >>> ef.cummin(ef.tensor([3.0, 1.0, 2.0, 0.0]))
    Tensor([3., 1., 1., 0.], float32, cpu:0)
    """
    return _by_doubling(_extreme_of(xp, "minimum"), xp, x, axis, reverse)


def _extreme_of(xp: Namespace, name: str) -> Callable[[Any, Any], Any]:
    """The function of the standard, extended from numbers to bools."""
    logical = {"maximum": "logical_or", "minimum": "logical_and"}[name]
    return lambda a, b: getattr(xp, logical if a.dtype == xp.bool else name)(a, b)


# Sums of exponentials ----------------------------------------------------------------------------


def _share(numerator: Any, denominator: Any) -> Any:
    """exp(numerator - denominator), which is at most 1; two equal infinities give 1."""
    return exp(where(equal(numerator, denominator), 0, subtract(numerator, denominator)))


def _exponential_rule(g: Any, y: Any, x: Any, axis: Any, reverse: bool) -> Any:
    """The sum over later i of g[i] exp(x[j] - y[i]), as a recurrence whose factors are below 1."""
    at = scan_axis(x.ndim, axis)
    earlier, later = part_of(y, at, None, -1), part_of(y, at, 1, None)
    first = zeros_like(part_of(y, at, None, 1))
    ratios = _share(later, earlier) if reverse else _share(earlier, later)
    # y[t] = a[t] y[t-1] + b[t], and from the end y[t] = a[t+1] y[t+1] + b[t].
    factors = conjugate(concat([first, ratios], axis=at))
    total = linear_recurrence(factors, g, axis=at, reverse=not reverse)
    return multiply(conjugate(_share(x, y)), total)


def _complex_logcumsumexp(xp: Namespace, x: Any, axis: Any = None, reverse: bool = False) -> Any:
    alone = complex_logaddexp(xp, x, xp.full_like(x, -math.inf))  # with a principal logarithm
    return _by_doubling(partial(complex_logaddexp, xp), xp, alone, axis, reverse)


@_running(
    np.logaddexp,
    dtypes=INEXACT,
    vjp=(in_float32(_exponential_rule),),
    saves="x y",
    on_complex=_complex_logcumsumexp,
)
def logcumsumexp(xp: Namespace, x: Array, /, *, axis: Axis = None, reverse: bool = False) -> Array:
    """Logarithm of the sum of the exponentials of all elements up to each one, along an axis.

    ``x`` is a tensor with at least one axis, integers are taken as float32; ``axis`` is optional if
    there is only one; ``reverse`` begins at the end. There is no intermediate overflow. Of complex
    numbers it is the principal logarithm, with an imaginary part from -π to π. Raises ShapeError
    for an axis that does not exist, DTypeError for non-numeric dtypes.

    >>> ef.logcumsumexp(ef.tensor([0.0, 0.0, 0.0]))
    Tensor([0.    , 0.6931, 1.0986], float32, cpu:0)
    """
    return _by_doubling(xp.logaddexp, xp, x, axis, reverse)
