"""NumPy's elementwise functions without an op, and the ufunc methods of all of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor, number_type
from eagerflow.dtypes import FLOATS, INEXACT, as_dtype
from eagerflow.errors import IndexRangeError, ShapeError
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise import formulas
from eagerflow.ops.elementwise.arithmetic import (
    abs,
    copysign,
    floor_divide,
    nextafter,
    remainder,
    subtract,
)
from eagerflow.ops.elementwise.complexes import conj
from eagerflow.ops.elementwise.powers import power
from eagerflow.ops.family import as_operands
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.numpy_names.reductions import FUNCTIONS as REDUCTIONS
from eagerflow.ops.operands import floating
from eagerflow.ops.reductions.accumulation import part_of
from eagerflow.ops.reductions.cumulative import cumulative_prod, cumulative_sum
from eagerflow.ops.reductions.running_extremes import cummax, cummin, logcumsumexp
from eagerflow.ops.reductions.softmax import logsumexp
from eagerflow.ops.shapes.joining import concat, stack, unstack
from eagerflow.ops.shapes.reshaping import expand_dims, reshape
from eagerflow.spec import normalize_axis, reduced_axes

__all__ = ["ACCUMULATIONS", "FUNCTIONS", "METHODS", "REDUCTIONS_OF"]

Call = Callable[..., Any]


def _float_power(x1: Any, x2: Any) -> Any:
    given = (x if number_type(x) else floating(as_tensor(x), "x", INEXACT) for x in (x1, x2))
    return power(*as_operands(*given))


def _spacing(x: Any) -> Any:
    x = floating(as_tensor(x), "x", FLOATS)
    size = abs(x)
    return copysign(subtract(nextafter(size, math.inf), size), x)


def _matvec(x1: Any, x2: Any) -> Any:
    a, b = as_operands(x1, x2)
    return matmul(a, expand_dims(b, -1))[..., 0]


def _vecmat(x1: Any, x2: Any) -> Any:
    a, b = as_operands(x1, x2)
    return matmul(conj(expand_dims(a, -2)), b)[..., 0, :]


FUNCTIONS: dict[str, Call] = {
    "bitwise_count": formulas.bitwise_count,
    "deg2rad": formulas.deg2rad,
    "degrees": formulas.rad2deg,
    "divmod": lambda x1, x2: (floor_divide(x1, x2), remainder(x1, x2)),
    "fabs": lambda x: abs(floating(as_tensor(x))),
    "float_power": _float_power,
    "heaviside": formulas.heaviside,
    "logaddexp2": formulas.logaddexp2,
    "matvec": _matvec,
    "modf": formulas.modf,
    "rad2deg": formulas.rad2deg,
    "radians": formulas.deg2rad,
    "spacing": _spacing,
    "vecmat": _vecmat,
}


# Methods ------------------------------------------------------------------------------------------

REDUCTIONS_OF: dict[str, Call] = {
    "add": REDUCTIONS["sum"],
    "fmax": REDUCTIONS["nanmax"],
    "fmin": REDUCTIONS["nanmin"],
    "logical_and": REDUCTIONS["all"],
    "logical_or": REDUCTIONS["any"],
    "maximum": REDUCTIONS["max"],
    "minimum": REDUCTIONS["min"],
    "multiply": REDUCTIONS["prod"],
}
ACCUMULATIONS: dict[str, Call] = {
    "add": cumulative_sum,
    "logaddexp": logcumsumexp,
    "maximum": cummax,
    "minimum": cummin,
    "multiply": cumulative_prod,
}


def _reduce(
    name: str,
    call: Call,
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Any:
    array = as_tensor(array) if dtype is None else astype(array, as_dtype(dtype))
    if name in REDUCTIONS_OF:
        more = {} if initial is None or initial is np._NoValue else {"initial": initial}
        more |= {} if where is True else {"where": where}
        return REDUCTIONS_OF[name](array, axis=axis, keepdims=keepdims, **more)
    if name == "logaddexp" and initial is None and where is True:
        return logsumexp(array, axis=axis, keepdims=keepdims)
    axes = reduced_axes(axis, array.ndim)
    found = array
    for at in sorted(axes, reverse=True):
        parts = unstack(found, axis=at)
        if initial is not None:
            parts = [as_tensor(initial, found.dtype), *parts]
        if not parts:
            raise ShapeError("nothing to reduce: an axis has size 0", op=name, argument="array")
        found = reduce(call, parts)
    if keepdims:
        found = reshape(found, tuple(1 if i in axes else n for i, n in enumerate(array.shape)))
    return found


def _accumulate(name: str, call: Call, array: Any, axis: int = 0, dtype: Any = None) -> Any:
    array = as_tensor(array) if dtype is None else astype(array, as_dtype(dtype))
    if name in ACCUMULATIONS:
        return ACCUMULATIONS[name](array, axis=axis)
    parts = list(unstack(array, axis=axis))
    for i in range(1, len(parts)):
        parts[i] = call(parts[i - 1], parts[i])
    return stack(parts, axis=axis) if parts else array


def _outer(name: str, call: Call, x1: Any, x2: Any, dtype: Any = None) -> Any:
    a, b = as_operands(x1, x2)
    if dtype is not None:
        a, b = astype(a, as_dtype(dtype)), astype(b, as_dtype(dtype))
    return call(reshape(a, (*a.shape, *(1,) * b.ndim)), b)


def _reduceat(
    name: str, call: Call, array: Any, indices: Any, axis: int = 0, dtype: Any = None
) -> Any:
    array = as_tensor(array)
    at = normalize_axis(axis, array.ndim)
    starts = [int(i) for i in as_tensor(indices).tolist()]  # type: ignore[attr-defined]
    for start in starts:
        if not 0 <= start < array.shape[at]:
            raise IndexRangeError(
                f"{start} is out of range for an axis of size {array.shape[at]}",
                op=f"{name}.reduceat",
                argument="indices",
            )
    ends = [*starts[1:], array.shape[at]]
    parts = [
        _reduce(
            name, call, part_of(array, at, first, max(end, first + 1)), at, dtype, keepdims=True
        )
        for first, end in zip(starts, ends, strict=True)
    ]
    return concat(parts, axis=at)


METHODS: dict[str, Call] = {
    "accumulate": _accumulate,
    "outer": _outer,
    "reduce": _reduce,
    "reduceat": _reduceat,
}
