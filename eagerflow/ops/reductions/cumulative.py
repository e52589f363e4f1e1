"""Running sums and products, the recurrence of their gradients, and differences of neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import BOOL, INEXACT, STANDARD
from eagerflow.errors import ArgumentError, ShapeError, short_repr
from eagerflow.ops.attributes import Axis, DTypeLike
from eagerflow.ops.creation.filled import zeros_like
from eagerflow.ops.elementwise.arithmetic import subtract
from eagerflow.ops.elementwise.comparison import not_equal
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import Batch, as_operand, batch_along_axis, define, split_others
from eagerflow.ops.reductions.accumulation import (
    accumulator,
    cast_first,
    conjugate,
    part_of,
    wide_dtype,
)
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import broadcast_to
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axis
from eagerflow.tensor import Tensor

__all__ = ["cumulative_prod", "cumulative_sum", "diff", "linear_recurrence"]


def scan_axis(rank: int, axis: Any) -> int:
    """The axis of a cumulative op; optional for tensors of one axis."""
    if axis is None and rank != 1:
        raise ShapeError(
            f"axis is needed, since x has {rank} axes",
            argument="axis",
            expected="an integer" if rank else "x with at least one axis",
        )
    return normalize_axis(0 if axis is None else axis, rank)


def _scan_spec(
    x: TensorSpec,
    axis: Any = None,
    include_initial: bool = False,
    reverse: bool = False,
    dtype: Any = None,
) -> TensorSpec:
    at = scan_axis(x.ndim, axis)
    size = x.shape[at] + 1 if include_initial else x.shape[at]
    return x.like((*x.shape[:at], size, *x.shape[at + 1 :]), dtype or wide_dtype(x.dtype))


def _scan_kernel(name: str, first: int) -> Callable[..., Any]:
    """A kernel that also supports ``reverse`` and an initial ``first``."""

    def kernel(
        xp: Namespace, x: Any, axis: Any, include_initial: bool, reverse: bool, dtype: Any
    ) -> Any:
        at = scan_axis(x.ndim, axis)
        there = (slice(None),) * at
        backwards = (*there, slice(None, None, -1))
        total = getattr(xp, name, None) or getattr(xp, name.replace("ulative_", ""))
        source = x[backwards] if reverse else x
        if dtype == "bool":  # the standard's functions add numbers alone
            ones = xp.astype(xp.astype(source, xp.bool), xp.int64)
            result = xp.astype(total(ones, axis=at), xp.bool)
        else:
            result = total(source, axis=at, dtype=accumulator(dtype))
        if include_initial:
            one = (*x.shape[:at], 1, *x.shape[at + 1 :])
            result = xp.concat([xp.full(one, first, dtype=result.dtype), result], axis=at)
        return result[backwards] if reverse else result

    return kernel


def _numpy_scan(ufunc: Any, first: int) -> Callable[..., Any]:
    """The same with NumPy's ufunc, which writes straight into the result."""

    def kernel(
        x: Any,
        axis: Any = None,
        include_initial: bool = False,
        reverse: bool = False,
        dtype: Any = None,
    ) -> Any:
        at = scan_axis(x.ndim, axis)
        if not include_initial and not reverse:
            return ufunc.accumulate(x, at, accumulator(dtype) or _wide[x.dtype])
        shape = list(x.shape)
        shape[at] += include_initial
        out = np.empty(shape, accumulator(dtype) or _wide[x.dtype])
        there = (slice(None),) * at
        rest = out
        if include_initial:
            out[(*there, -1 if reverse else 0)] = first
            rest = out[(*there, slice(None, -1) if reverse else slice(1, None))]
        if reverse:
            backwards = (*there, slice(None, None, -1))
            x, rest = x[backwards], rest[backwards]
        ufunc.accumulate(x, at, out.dtype, rest)
        return out

    return kernel


_wide = {dtype: wide_dtype(dtype) for dtype in STANDARD}


def _scan(ufunc: Any, first: int, **facts: Any) -> Any:
    fast = _numpy_scan(ufunc, first)

    def own_dtype(
        x: Any, axis: Any = None, include_initial: bool = False, reverse: bool = False
    ) -> Any:
        # A call with dtype takes the general path, through cast_first.
        return fast(x, axis, include_initial, reverse)

    own: dict[str, Any] = {
        "dtypes": STANDARD,
        "infer": _scan_spec,
        "trusted": True,  # the kernels look at the axis themselves
        "arrange": cast_first,
        "direct": lambda xp: own_dtype if xp is np else None,
        "overrides": {"numpy": lambda xp, x, **attributes: fast(x, **attributes)},
        "batch": Batch(
            lambda call, args, batched, size, axis, **more: call(
                args[0], axis=scan_axis(args[0].ndim - 1, axis) + 1, **more
            )
        ),
        "split": split_others,
    } | facts
    return define("scan", **own)


def _inner_gradient(g: Any, at: int, include_initial: bool, reverse: bool) -> Any:
    """The gradient without that of the initial element, which is constant."""
    if not include_initial:
        return g
    return part_of(g, at, None, -1) if reverse else part_of(g, at, 1, None)


def _sum_rule(
    g: Any, y: Any, x: Any, axis: Any, include_initial: bool, reverse: bool, dtype: Any
) -> Any:
    at = scan_axis(x.ndim, axis)
    g = _inner_gradient(g, at, include_initial, reverse)
    return cumulative_sum(g, axis=at, reverse=not reverse)


def _sum_operator(
    w: Any, x: Any, *, axis: Any, include_initial: bool, reverse: bool, dtype: Any
) -> Any:
    at, x = scan_axis(x.ndim, axis), w.wide(x)
    if include_initial:
        shape = (*x.shape[:at], 1, *x.shape[at + 1 :])
        zeros = w.filled(0, shape, x.dtype)
        x = w.joined((x, zeros) if reverse else (zeros, x), at)
    return w.CumSum(x, w.constant(at, "int64"), reverse=int(reverse))


@_scan(np.add, 0, vjp=(_sum_rule,), jvp="linear", onnx=_sum_operator)
def cumulative_sum(
    xp: Namespace,
    x: Array,
    /,
    *,
    axis: Axis = None,
    include_initial: bool = False,
    reverse: bool = False,
    dtype: DTypeLike = None,
) -> Array:
    """Sums of all elements up to each one, along an axis.

    ``x`` is a tensor with at least one axis, ``axis`` an integer that is optional if there is only
    one. ``include_initial`` prepends a 0, which makes the result one element longer; ``reverse``
    sums from the end. Integers and bools are summed in 64 bits; with ``dtype`` the elements are
    cast to it first. Raises ShapeError for an axis that does not exist.

    >>> ef.cumulative_sum(ef.tensor([1.0, 2.0, 3.0]), include_initial=True)
    Tensor([0., 1., 3., 6.], float32, cpu:0)
    """
    return _scan_kernel("cumulative_sum", 0)(xp, x, axis, include_initial, reverse, dtype)


def _prod_rule(
    g: Any, y: Any, x: Any, axis: Any, include_initial: bool, reverse: bool, dtype: Any
) -> Any:
    """For each element, the product of those before it times a recurrence over those after.

    d/dx[j] of the running products is before[j] * s[j], where s[j] = g[j] + x[j+1] s[j+1].
    There is no division, so zeros are fine.
    """
    at = scan_axis(x.ndim, axis)
    g = _inner_gradient(g, at, include_initial, reverse)
    others = cumulative_prod(x, axis=at, include_initial=True, reverse=reverse)
    if reverse:
        rest = linear_recurrence(conjugate(_delayed(x, at)), g, axis=at)
        return conjugate(part_of(others, at, 1, None)) * rest
    rest = linear_recurrence(conjugate(x), g, axis=at, reverse=True)
    return conjugate(part_of(others, at, None, -1)) * rest


def _delayed(x: Any, axis: int) -> Any:
    """Each element's predecessor, 0 for the first."""
    first = zeros_like(part_of(x, axis, None, 1))
    return concat([first, part_of(x, axis, None, -1)], axis=axis)


def _product_operator(
    w: Any, x: Any, *, axis: Any, include_initial: bool, reverse: bool, dtype: Any
) -> Any:
    """The rule of ONNX: each round multiplies elements twice as far apart."""
    at, x = scan_axis(x.ndim, axis), w.wide(x)

    def ones(count: int) -> Any:
        return w.filled(1, (*x.shape[:at], count, *x.shape[at + 1 :]), x.dtype)

    def joined(first: Any, second: Any) -> Any:
        return w.joined((second, first) if reverse else (first, second), at)

    size = x.shape[at] + int(include_initial)
    found = joined(ones(1), x) if include_initial else x
    far = 1
    while far < size:
        ends = (far, size) if reverse else (0, size - far)
        part = w.Slice(found, w.integers(ends[:1]), w.integers(ends[1:]), w.axes(at))
        found = w.Mul(found, joined(ones(far), part))
        far *= 2
    return found


@_scan(np.multiply, 1, vjp=(in_float32(_prod_rule),), saves="x", onnx=_product_operator)
def cumulative_prod(
    xp: Namespace,
    x: Array,
    /,
    *,
    axis: Axis = None,
    include_initial: bool = False,
    reverse: bool = False,
    dtype: DTypeLike = None,
) -> Array:
    """Products of all elements up to each one, along an axis.

    ``x`` is a tensor with at least one axis, ``axis`` an integer that is optional if there is only
    one. ``include_initial`` prepends a 1, which makes the result one element longer; ``reverse``
    multiplies from the end. Integers and bools are multiplied in 64 bits; with ``dtype`` the
    elements are cast to it first. Gradients are right where elements are zero. Raises ShapeError
    for an axis that does not exist.

    >>> ef.cumulative_prod(ef.tensor([1.0, 2.0, 3.0]), reverse=True)
    Tensor([6., 6., 3.], float32, cpu:0)
    """
    return _scan_kernel("cumulative_prod", 1)(xp, x, axis, include_initial, reverse, dtype)


# The recurrence ----------------------------------------------------------------------------------


def _recurrence_spec(
    a: TensorSpec, b: TensorSpec, axis: int = -1, reverse: bool = False
) -> TensorSpec:
    normalize_axis(axis, b.ndim)
    if a.shape != b.shape:
        raise ShapeError("the shapes of a and b differ", expected="equal shapes")
    return b


def _by_doubling(xp: Namespace, a: Any, b: Any) -> Any:
    """Along axis 0: spans of doubled length joined in each pass (Blelloch 1990)."""
    span = 1
    while span < b.shape[0]:
        b = xp.concat([b[:span, ...], b[span:, ...] + a[span:, ...] * b[:-span, ...]], axis=0)
        a = xp.concat([a[:span, ...], a[span:, ...] * a[:-span, ...]], axis=0)
        span *= 2
    return b


def _step_by_step(xp: Namespace, a: Any, b: Any) -> Any:
    """Along axis 0: one step after the other, which costs least where each step is long."""
    if b[:1].size < 32:  # then the calls would cost more than the passes of doubling
        return _by_doubling(xp, a, b)
    out = np.array(b)
    for step in range(1, out.shape[0]):
        out[step] += a[step] * out[step - 1]
    return out


def _recur(solve: Any, xp: Any, a: Any, b: Any, axis: int, reverse: bool) -> Any:
    a, b = xp.moveaxis(a, axis, 0), xp.moveaxis(b, axis, 0)
    if b.shape[0] < 2:
        out = xp.asarray(b, copy=True)
    elif reverse:
        a, b = xp.flip(a, axis=0), xp.flip(b, axis=0)
        out = xp.flip(solve(xp, xp.concat([a[:1, ...], a[:-1, ...]], axis=0), b), axis=0)
    else:
        out = solve(xp, a, b)
    return xp.moveaxis(out, 0, axis)


def _recurrence_rules(g: Any, y: Any, a: Any, b: Any, axis: int, reverse: bool) -> tuple[Any, Any]:
    at = normalize_axis(axis, b.ndim)
    moved = linear_recurrence(conjugate(a), g, axis=at, reverse=not reverse)
    y = conjugate(y)
    of_a = _delayed(moved, at) * y if reverse else moved * _delayed(y, at)
    return of_a, moved


@define(
    "scan",
    dtypes=INEXACT,
    infer=_recurrence_spec,
    vjp=_recurrence_rules,
    saves="a y",
    batch=batch_along_axis,
    split=split_others,
    overrides={
        "numpy": lambda xp, a, b, axis, reverse: _recur(_step_by_step, xp, a, b, axis, reverse)
    },
)
def linear_recurrence(
    xp: Namespace, a: Array, b: Array, /, *, axis: int = -1, reverse: bool = False
) -> Array:
    """The sequence y[t] = a[t] y[t-1] + b[t] along an axis, starting from 0.

    ``a`` and ``b`` are floating-point tensors of one shape, ``axis`` is the axis of time.
    ``reverse`` runs the transposed recurrence y[t] = a[t+1] y[t+1] + b[t] from the end.
    Exponential averages and linear state spaces are such sequences. Raises ShapeError where
    the shapes differ. (G. Blelloch, "Prefix sums and their applications", 1990.)

    >>> ef.linear_recurrence(ef.tensor([0.5, 0.5, 0.5]), ef.tensor([1.0, 1.0, 1.0]))
    Tensor([1.  , 1.5 , 1.75], float32, cpu:0)
    """
    return _recur(_by_doubling, xp, a, b, axis, reverse)


# Differences --------------------------------------------------------------------------------------


def diff(
    x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Tensor:
    """Each element minus the one before it along an axis, ``n`` times over.

    ``x`` is a tensor with at least one axis; for bools, whether neighbors differ. ``prepend`` and
    ``append`` are added at the ends of ``axis`` first: tensors of the sizes of ``x`` along the
    other axes, or numbers. The result is ``n`` shorter than that, or empty; ``n=0`` gives ``x``
    itself. Raises ShapeError for axes and sizes that do not fit, ArgumentError for ``n`` below 0.

    >>> ef.diff(ef.tensor([1, 4, 9, 16]))
    Tensor([3, 5, 7], int64, cpu:0)
    >>> ef.diff(ef.tensor([1, 4, 9, 16]), prepend=0)
    Tensor([1, 3, 5, 7], int64, cpu:0)
    """
    x = as_tensor(x)
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ArgumentError(
            f"{short_repr(n)} is not a number of times",
            op="diff",
            argument="n",
            expected="an integer from 0 on",
        )
    try:
        axis = normalize_axis(axis, x.ndim)
    except ShapeError as error:
        error.op, error.received = "diff", summary(x)
        raise
    if n == 0:
        return x
    before, after = _edge(prepend, "prepend", x, axis), _edge(append, "append", x, axis)
    if before is not None or after is not None:
        x = concat([part for part in (before, x, after) if part is not None], axis=axis)
    minus = not_equal if x.dtype in BOOL else subtract
    whole = (slice(None),) * axis
    for _ in range(n):
        if x.shape[axis] == 0:
            break  # empty, and it stays so
        x = minus(x[(*whole, slice(1, None))], x[(*whole, slice(None, -1))])
    return x


def _edge(value: Any, argument: str, x: Any, axis: int) -> Any:
    """The values for one end of ``x``, with the same number of axes."""
    if value is None:
        return None
    value = as_operand(value, x)
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    if value.ndim == 0:
        return broadcast_to(value, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    if value.ndim != x.ndim or (*value.shape[:axis], *value.shape[axis + 1 :]) != rest:
        raise ShapeError(
            f"the shapes differ in more than axis {axis}",
            op="diff",
            argument=argument,
            received=f"x {summary(x)}, {argument} {summary(value)}",
            expected="a number, or the sizes of x along the other axes",
        )
    return value
