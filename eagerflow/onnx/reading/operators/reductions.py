"""Operators along axes: reductions, cumulative sums, and softmax functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow import ops
from eagerflow.dtypes import BOOL, FLOATS
from eagerflow.onnx.reading.calls import Call, known_list, known_number, operator
from eagerflow.onnx.reading.element_types import converted
from eagerflow.onnx.reading.operators.shapes import axes_of
from eagerflow.onnx.reading.sizing import with_sizes
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

# Reductions ---------------------------------------------------------------------------------------


def _l1(x: Tensor, **how: Any) -> Any:
    return ops.sum(ops.abs(x), **how)


def _l2(x: Tensor, **how: Any) -> Any:
    return ops.sqrt(_squares(_as_float(x), **how))


def _squares(x: Tensor, **how: Any) -> Any:
    return ops.sum(ops.square(x), **how)


def _log_sum(x: Tensor, **how: Any) -> Any:
    return ops.log(ops.sum(_as_float(x), **how))


def _log_sum_exp(x: Tensor, **how: Any) -> Any:
    if not math.prod(x.shape):
        return ops.log(ops.sum(ops.exp(_as_float(x)), **how))
    return ops.logsumexp(_as_float(x), **how)


def _mean(x: Tensor, **how: Any) -> Any:
    return ops.mean(_as_float(x), **how)


def _as_float(x: Tensor) -> Any:
    return x if x.dtype in FLOATS else ops.astype(x, "float64")


def _largest(x: Tensor, **how: Any) -> Any:
    return _extreme(x, ops.max, ops.any, -np.inf, **how)


def _smallest(x: Tensor, **how: Any) -> Any:
    return _extreme(x, ops.min, ops.all, np.inf, **how)


def _extreme(x: Tensor, of_numbers: Any, of_bools: Any, nothing: float, **how: Any) -> Any:
    """The largest or smallest element; of none, an infinity or the bound of the dtype."""
    if x.dtype in BOOL:
        return of_bools(x, **how)
    if 0 not in x.shape:
        return of_numbers(x, **how)
    if x.dtype not in FLOATS:
        limits = np.iinfo(x.dtype)
        nothing = limits.min if nothing < 0 else limits.max
    kept = [1 if i in how["axis"] else size for i, size in enumerate(x.shape)]
    shape = kept if how["keepdims"] else [s for i, s in enumerate(kept) if i not in how["axis"]]
    return ops.full(tuple(shape), nothing, dtype=x.dtype)


_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _largest,
    "ReduceMean": _mean,
    "ReduceMin": _smallest,
    "ReduceProd": ops.prod,
    "ReduceSum": ops.sum,
    "ReduceSumSquare": _squares,
}
_OF_SIZES: dict[str, Callable[..., Any]] = {
    "ReduceProd": math.prod,
    "ReduceSum": sum,
}


def _register_reduction(name: str, reduced: Callable[..., Tensor]) -> None:
    def of_sizes(
        data: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Any:
        found = _OF_SIZES[name](data.tolist())
        return [found] if keepdims else found

    def reduction(
        call: Call, data: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Any:
        empty = axes is None or not known_list(axes)
        where = tuple(range(data.ndim)) if empty else axes_of(axes, data.ndim)
        if empty and noop_with_empty_axes:
            where = ()
        found = reduced(data, axis=where, keepdims=bool(keepdims))
        return converted(found, data.dtype)

    takes_sizes = name in _OF_SIZES
    if takes_sizes:
        reduction = with_sizes(of_sizes)(reduction)
    operator(name, takes_sizes=takes_sizes)(reduction)


for _name, _reduced in _REDUCTIONS.items():
    _register_reduction(_name, _reduced)


# Running sums -------------------------------------------------------------------------------------


def _running(call: Call, op: Any, x: Any, axis: Any, exclusive: int, reverse: int) -> Any:
    where = normalize_axis(int(known_number(axis)), x.ndim)
    if x.ndim == 0:
        call.refuse("a tensor without axes")
    if reverse:
        x = ops.flip(x, axis=where)
    found = op(x, axis=where, include_initial=bool(exclusive))
    if exclusive:
        found = found[(slice(None),) * where + (slice(0, -1),)]
    found = converted(found, x.dtype)
    return ops.flip(found, axis=where) if reverse else found


@operator("CumSum")
def cumulative_sum(call: Call, x: Any, axis: Any, exclusive: int = 0, reverse: int = 0) -> Any:
    """Cumulative sums, without the element itself if ``exclusive``."""
    return _running(call, ops.cumulative_sum, x, axis, exclusive, reverse)


@operator("CumProd")
def cumulative_prod(call: Call, x: Any, axis: Any, exclusive: int = 0, reverse: int = 0) -> Any:
    """Cumulative products, without the element itself if ``exclusive``."""
    return _running(call, ops.cumulative_prod, x, axis, exclusive, reverse)


# Softmax and its like -----------------------------------------------------------------------------


def _by_rows(call: Call, function: Callable[..., Any], x: Tensor, axis: int) -> Any:
    """A function along one axis; before version 13, along all axes from one on, flattened."""
    axis = normalize_axis(axis, x.ndim) if x.ndim else 0
    if axis == x.ndim - 1:
        return function(x, axis=-1)
    if call.version >= 13:
        return function(x, axis=axis)
    flat = ops.reshape(x, (*x.shape[:axis], math.prod(x.shape[axis:])))
    return ops.reshape(function(flat, axis=-1), x.shape)


def _hardmax(x: Tensor, axis: int) -> Any:
    count = x.shape[axis]
    places = [1] * x.ndim
    places[axis] = count
    numbers = ops.reshape(ops.arange(count, dtype="int64"), tuple(places))
    first = ops.argmax(x, axis=axis, keepdims=True)
    return converted(ops.equal(first, numbers), x.dtype)


@operator("Softmax")
def softmax(call: Call, x: Any, axis: int = -1) -> Any:
    """Softmax."""
    return _by_rows(call, ops.softmax, x, axis)


@operator("LogSoftmax")
def log_softmax(call: Call, x: Any, axis: int = -1) -> Any:
    """The logarithm of softmax."""
    return _by_rows(call, ops.log_softmax, x, axis)


@operator("Hardmax")
def hardmax(call: Call, x: Any, axis: int = -1) -> Any:
    """1 at the first maximum, else 0."""
    return _by_rows(call, _hardmax, x, axis)
