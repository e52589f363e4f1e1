"""Choosing, ordering and asking, with NumPy's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dtypes import BOOL, FLOATS, INEXACT, INTEGERS, as_dtype, is_complex, promote
from eagerflow.errors import DTypeError, IndexRangeError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import zeros_like
from eagerflow.ops.elementwise.arithmetic import abs as size_of
from eagerflow.ops.elementwise.arithmetic import remainder, signbit
from eagerflow.ops.elementwise.closeness import array_equal
from eagerflow.ops.elementwise.comparison import isinf, less, logical_and, logical_not, not_equal
from eagerflow.ops.elementwise.complexes import angle, imag, real
from eagerflow.ops.elementwise.formulas import rad2deg
from eagerflow.ops.elementwise.selection import clip
from eagerflow.ops.elementwise.selection import where as select
from eagerflow.ops.family import as_operands
from eagerflow.ops.indexing.flat_places import ravel_multi_index, unravel_index
from eagerflow.ops.indexing.gathering import take, take_along_axis
from eagerflow.ops.indexing.scattering import nonzero
from eagerflow.ops.inspection import finfo
from eagerflow.ops.numpy_names.shapes import flattened
from eagerflow.ops.operands import chosen, whole_number
from eagerflow.ops.reductions.sets import isin
from eagerflow.ops.reductions.sorting import argsort, sort
from eagerflow.ops.reductions.sums import all as every
from eagerflow.ops.reductions.unique import unique
from eagerflow.ops.shapes.joining import stack
from eagerflow.ops.shapes.reshaping import broadcast_arrays, reshape
from eagerflow.spec import normalize_axis

__all__ = ["FUNCTIONS"]

Call = Callable[..., Any]


# Order --------------------------------------------------------------------------------------------


def _ordered(ours: Call) -> Call:
    """A function of sorted elements; a full sort is a valid partition, too."""

    def call(a: Any, axis: Any = -1, stable: Any = None, kth: Any = None) -> Any:
        a, axis = flattened(a, axis)
        if kth is not None:
            _check_places(kth, a.shape[normalize_axis(axis, a.ndim)])
        return ours(a, axis=axis)

    return call


def _check_places(kth: Any, size: Any) -> None:
    for place in [whole_number(place, "kth") for place in np.ravel(kth).tolist()]:
        if not -size <= place < size:
            raise IndexRangeError(
                f"{place} is out of range for an axis of size {size}",
                op="partition",
                argument="kth",
            )


def _lexsort(keys: Any, axis: int = -1) -> Any:
    rows = broadcast_arrays(*keys) if isinstance(keys, list | tuple) else list(as_tensor(keys))
    order = argsort(rows[0], axis=axis)
    for row in rows[1:]:
        finer = argsort(take_along_axis(row, order, axis), axis=axis)
        order = take_along_axis(order, finer, axis)
    return order


def _sort_complex(a: Any) -> Any:
    a = as_tensor(a)
    a = (
        a
        if is_complex(a.dtype)
        else astype(a, "complex64" if a.dtype.itemsize < 8 else "complex128")
    )
    return take_along_axis(a, _lexsort([imag(a), real(a)]), -1)


# Choices ------------------------------------------------------------------------------------------


def _limited(indices: Any, size: Any, mode: str) -> Any:
    """Indices that are counted around, or limited, or as they are."""
    chosen(mode, "mode", ("raise", "wrap", "clip"))
    if mode == "raise":
        return indices
    return remainder(indices, size) if mode == "wrap" else clip(indices, 0, size - 1)


def _take(a: Any, indices: Any, axis: Any = None, mode: str = "raise") -> Any:
    a, axis = flattened(a, axis)
    size = a.shape[normalize_axis(axis, a.ndim)]
    indices = as_tensor(indices)
    indices = astype(indices, "int64") if indices.size == 0 else indices
    return take(a, _limited(indices, size, mode), axis=axis)


def _take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    arr, axis = flattened(arr, axis)
    return take_along_axis(arr, indices, axis)


def _choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    items = list(choices) if isinstance(choices, list | tuple) else list(as_tensor(choices))
    a = as_tensor(a)
    if a.dtype not in INTEGERS | BOOL:
        raise DTypeError(f"dtype {a.dtype.name} is not taken", op="choose", argument="a")
    places = _limited(astype(a, "int64"), len(items), mode)
    places, *parts = broadcast_arrays(places, *as_operands(*items))
    whole = reshape(places, (1, *places.shape))
    return reshape(take_along_axis(stack(parts, axis=0), whole, 0), places.shape)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return nonzero(condition)
    condition = as_tensor(condition)
    return select(condition if condition.dtype in BOOL else not_equal(condition, 0), x, y)


def _piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    x = as_tensor(x)
    many = isinstance(condlist, list | tuple)
    conditions = [as_tensor(c) for c in (condlist if many else [condlist])]
    if many and conditions and conditions[0].ndim == 0 and x.ndim:
        conditions = [as_tensor(condlist)]
    functions = list(funclist)
    if len(functions) == len(conditions) + 1:
        found = _piece(functions[-1], x, args, kw)
    elif len(functions) == len(conditions):
        found = zeros_like(x)
    else:
        raise ShapeError(
            f"{len(functions)} functions for {len(conditions)} conditions",
            op="piecewise",
            argument="funclist",
        )
    for condition, function in zip(conditions, functions, strict=False):
        found = select(condition, astype(_piece(function, x, args, kw), x.dtype), found)
    return found


def _piece(function: Any, x: Any, args: Any, kw: Any) -> Any:
    return as_tensor(function(x, *args, **kw) if callable(function) else function)


# Questions ----------------------------------------------------------------------------------------


def _is_infinite(negative: bool) -> Call:
    def call(x: Any) -> Any:
        x = as_tensor(x)
        if x.dtype not in FLOATS:
            return (
                isinf(x)
                if x.dtype not in INEXACT
                else logical_and(isinf(real(x)), signbit(real(x)))
            )
        sign = signbit(x)
        return logical_and(isinf(x), sign if negative else logical_not(sign))

    return call


def _imaginary(x: Any) -> Any:
    x = as_tensor(x)
    return not_equal(imag(x), 0) if is_complex(x.dtype) else zeros_like(x, dtype="bool")


def _angle(z: Any, deg: bool = False) -> Any:
    return rad2deg(angle(z)) if deg else angle(z)


def _real_if_close(a: Any, tol: float = 100) -> Any:
    """Its dtype depends on values, so it cannot be captured: reading them raises."""
    a = as_tensor(a)
    if not is_complex(a.dtype):
        return a
    limit = tol * finfo(a.dtype).eps if tol > 1 else tol
    return real(a) if bool(every(less(size_of(imag(a)), limit))) else a


def _isin(
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
) -> Any:
    return isin(element, test_elements, invert=invert)


def _equivalent(a1: Any, a2: Any) -> Any:
    a1, a2 = as_operands(a1, a2)
    try:
        return array_equal(*broadcast_arrays(a1, a2))  # type: ignore[arg-type]
    except raised_here(ShapeError):
        return zeros_like(as_tensor(True))


def _dtype_of(x: Any) -> Any:
    return as_tensor(x).dtype


def _common_type(*arrays: Any) -> Any:
    found = as_dtype("float16")
    for x in arrays:
        dtype = _dtype_of(x)
        found = promote(found, dtype if dtype in INEXACT else as_dtype("float64"))
    return found.type


def _unravel(indices: Any, shape: Any, order: str = "C") -> Any:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if order == "F":
        return unravel_index(indices, sizes[::-1])[::-1]
    return unravel_index(indices, sizes)


def _ravel_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    parts, sizes = tuple(multi_index), (dims,) if isinstance(dims, int) else tuple(dims)
    if order == "F":
        modes = mode if isinstance(mode, str) else tuple(mode)[::-1]
        return ravel_multi_index(parts[::-1], sizes[::-1], modes)
    return ravel_multi_index(parts, sizes, mode)


def _unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    return unique(ar, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)


FUNCTIONS: dict[str, Call] = {
    "angle": _angle,
    "argpartition": _ordered(argsort),
    "argsort": _ordered(argsort),
    "array_equiv": _equivalent,
    "choose": _choose,
    "common_type": _common_type,
    "iscomplex": _imaginary,
    "iscomplexobj": lambda x: is_complex(_dtype_of(x)),
    "in1d": lambda ar1, ar2, assume_unique=False, invert=False: isin(
        reshape(as_tensor(ar1), (-1,)), ar2, invert=invert
    ),
    "isin": _isin,
    "isneginf": _is_infinite(True),
    "isposinf": _is_infinite(False),
    "isreal": lambda x: logical_not(_imaginary(x)),
    "isrealobj": lambda x: not is_complex(_dtype_of(x)),
    "lexsort": _lexsort,
    "min_scalar_type": lambda a, /: np.min_scalar_type(np.asarray(a)),
    "partition": _ordered(sort),
    "piecewise": _piecewise,
    "ravel_multi_index": _ravel_index,
    "real_if_close": _real_if_close,
    "sort": _ordered(sort),
    "sort_complex": _sort_complex,
    "take": _take,
    "take_along_axis": _take_along_axis,
    "unique": _unique,
    "unravel_index": _unravel,
    "where": _where,
}
