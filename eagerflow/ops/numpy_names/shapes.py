"""Joining, reordering, inserting and deleting, with NumPy's arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import index as integer
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dims import product
from eagerflow.dtypes import BOOL, as_dtype
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import full, full_like, ones, ones_like, zeros, zeros_like
from eagerflow.ops.elementwise.arithmetic import abs as size_of
from eagerflow.ops.elementwise.arithmetic import add, remainder, subtract
from eagerflow.ops.elementwise.comparison import equal, greater, less, logical_and
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import as_operands
from eagerflow.ops.indexing.flat_places import flatnonzero
from eagerflow.ops.indexing.gathering import take
from eagerflow.ops.indexing.scattering import nonzero
from eagerflow.ops.linear_algebra.contraction import outer
from eagerflow.ops.operands import floating
from eagerflow.ops.reductions.accumulation import part_of
from eagerflow.ops.reductions.cumulative import cumulative_prod, cumulative_sum, diff
from eagerflow.ops.reductions.sums import sum
from eagerflow.ops.shapes import stacking
from eagerflow.ops.shapes.diagonal_matrices import diag_indices, tril_indices, triu_indices
from eagerflow.ops.shapes.diagonals import diagonal
from eagerflow.ops.shapes.joining import concat, split, stack
from eagerflow.ops.shapes.repeating import tile
from eagerflow.ops.shapes.reshaping import broadcast_to, expand_dims, moveaxis, reshape
from eagerflow.recorder import recorder_state
from eagerflow.spec import as_shape, normalize_axis
from eagerflow.tensor import Operators

__all__ = ["FUNCTIONS", "flattened"]

Call = Callable[..., Any]


def flattened(a: Any, axis: Any) -> tuple[Any, int]:
    """A tensor and an axis; for a None axis, the flattened tensor."""
    a = as_tensor(a)
    return (reshape(a, (-1,)), 0) if axis is None else (a, axis)


# Joining ------------------------------------------------------------------------------------------


def _cast(arrays: Any, dtype: Any) -> Any:
    return arrays if dtype is None else [astype(as_tensor(x), as_dtype(dtype)) for x in arrays]


def _concatenate(arrays: Any, axis: Any = 0, dtype: Any = None) -> Any:
    return concat(list(_cast(arrays, dtype)), axis=axis)


_concatenate.plain = concat  # type: ignore[attr-defined]


def _joined(ours: Call) -> Call:
    return lambda arrays, dtype=None: ours(_cast(arrays, dtype))


def _at_least(ours: Call, theirs: Call) -> Call:
    """A conversion to arrays, as ``np.array`` is, except under a tape, a trace or ``vmap``.

    Libraries such as SciPy make arrays of the results of users' functions with it, and write there.
    """

    def converted(*arrays: Any) -> Any:
        if recorder_state()[1] is not None:
            return ours(*arrays)
        return theirs(*(np.array(x) if isinstance(x, Operators) else x for x in arrays))

    return converted


def _like(ours: Call, of_shape: Call) -> Call:
    """A creation like a tensor, or, where a shape is given, with its dtype and device alone."""

    def call(a: Any, dtype: Any = None, shape: Any = None) -> Any:
        a = as_tensor(a)
        if shape is None:
            return ours(a, dtype=dtype)
        return of_shape(as_shape(shape), dtype=as_dtype(dtype or a.dtype), device=str(a.device))

    return call


def _full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    ours, of_shape = partial(full_like, fill_value=fill_value), partial(full, fill_value=fill_value)
    return _like(ours, of_shape)(a, dtype, shape)


def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Equal parts, or parts with arbitrary starts, also beyond the end."""
    ours = split if isinstance(indices_or_sections, int) else stacking.array_split
    return ours(ary, indices_or_sections, axis=axis)


# Inserting and deleting ---------------------------------------------------------------------------


def _places(obj: Any) -> Any:
    """Indices in NumPy's form; they determine shapes, so they have to be known."""
    if isinstance(obj, slice):
        return obj
    found = as_tensor(obj)._values("places") if not isinstance(obj, int) else np.asarray(obj)
    return found if found.dtype.kind != "f" else found.astype(int)


def _delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    arr, axis = flattened(arr, axis)
    size = arr.shape[normalize_axis(axis, arr.ndim)]
    try:
        kept = np.delete(np.arange(size), _places(obj))
    except raised_here(IndexError, ValueError) as error:
        raise ArgumentError(str(error), op="delete", argument="obj") from None
    return take(arr, kept, axis=axis)


def _insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    arr, axis = flattened(arr, axis)
    at = normalize_axis(axis, arr.ndim)
    arr, values = as_operands(arr, values)
    values = astype(values, arr.dtype)
    places, size = _places(obj), arr.shape[at]
    count = (
        len(range(size)[places])
        if isinstance(places, slice)
        else int(np.sum(places))
        if (places.dtype == bool)
        else places.size
    )
    single = not isinstance(places, slice) and places.ndim == 0
    if values.ndim < arr.ndim:
        values = reshape(values, (*(1,) * (arr.ndim - values.ndim), *values.shape))
    if single:
        values = moveaxis(values, 0, at)
        count = values.shape[at]
    values = broadcast_to(values, (*arr.shape[:at], count, *arr.shape[at + 1 :]))
    try:
        order = np.insert(np.arange(size), places, np.arange(size, size + count))
    except raised_here(IndexError, ValueError) as error:
        raise ArgumentError(str(error), op="insert", argument="obj") from None
    return take(concat([arr, values], axis=at), order, axis=at)


def _trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    filt = as_tensor(filt)
    axes = range(filt.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    places = nonzero(filt)
    for at in [normalize_axis(axis, filt.ndim) for axis in axes]:
        own = places[at]
        first = (int(own.min()) if own.size else filt.shape[at]) if "f" in trim.lower() else 0
        last = (int(own.max()) + 1 if own.size else first) if "b" in trim.lower() else None
        filt = part_of(filt, at, first, last)
    return filt


def _resize(a: Any, new_shape: Any) -> Any:
    a, shape = reshape(as_tensor(a), (-1,)), as_shape(new_shape)
    wanted = product(shape)
    if a.size == 0:
        return broadcast_to(zeros_like(a).sum(dtype=a.dtype), shape)
    times = -(-wanted // a.size)
    return reshape(tile(a, (times,))[:wanted], shape)


def _reshape(a: Any, shape: Any, order: str = "C") -> Any:
    a = as_tensor(a)
    if order != "F":  # "A" and "K" mean row-major, the order of tensors
        return reshape(a, shape)
    # Counted column by column: the axes are reversed before and after.
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return reshape(a.T, sizes[::-1]).T  # type: ignore[attr-defined]


_reshape.plain = reshape  # type: ignore[attr-defined]


def _ravel(a: Any, order: str = "C") -> Any:
    return _reshape(a, (-1,), order)


# Axes ---------------------------------------------------------------------------------------------


def _rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    a = as_tensor(a)
    at = normalize_axis(axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    return moveaxis(a, at, start - 1 if at < start else start)


def _ix(*args: Any) -> Any:
    found = []
    for i, x in enumerate([as_tensor(x) for x in args]):
        if x.ndim != 1:
            raise ShapeError(f"{x.ndim} axes, where one is needed", op="ix_", argument=f"args[{i}]")
        places = flatnonzero(x) if x.dtype in BOOL else x
        places = astype(places, "int64") if places.size == 0 else places
        found.append(reshape(places, tuple(-1 if i == at else 1 for at in range(len(args)))))
    return tuple(found)


def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return diagonal(a, offset, axis1, axis2)


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return sum(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def _outer(a: Any, b: Any) -> Any:
    return outer(*(reshape(x, (-1,)) for x in as_operands(a, b)))


def _square_indices(arr: Any) -> Any:
    arr = as_tensor(arr)
    if arr.ndim < 2 or len(set(arr.shape)) != 1:
        raise ShapeError("the axes differ in size", op="diag_indices_from", argument="arr")
    return diag_indices(arr.shape[0], arr.ndim)


def _triangle(ours: Call) -> Call:
    def call(arr: Any, k: int = 0) -> Any:
        rows, columns = as_tensor(arr).shape
        return ours(rows, k, columns)

    return call


# Along axes ---------------------------------------------------------------------------------------


def _running(ours: Call) -> Call:
    def call(a: Any, axis: Any = None, dtype: Any = None) -> Any:
        a, axis = flattened(a, axis)
        return ours(a, axis=axis, dtype=None if dtype is None else as_dtype(dtype))

    return call


def _apply_along_axis(func1d: Call, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    arr = as_tensor(arr)
    at = normalize_axis(axis, arr.ndim)
    rows = moveaxis(arr, at, -1)
    shape = rows.shape[:-1]
    flat = reshape(rows, (product(shape), rows.shape[-1]))
    parts = [as_tensor(func1d(flat[i], *args, **kwargs)) for i in range(integer(flat.shape[0]))]
    if not parts:
        raise ShapeError("there is nothing to apply it to", op="apply_along_axis", argument="arr")
    found = stack(parts, axis=0)
    found = reshape(found, (*shape, *parts[0].shape))
    return moveaxis(
        found, tuple(range(len(shape), found.ndim)), tuple(range(at, at + parts[0].ndim))
    )


def _apply_over_axes(func: Call, a: Any, axes: Any) -> Any:
    found = as_tensor(a)
    rank = found.ndim
    for axis in (axes,) if isinstance(axes, int) else axes:
        at = normalize_axis(axis, rank)
        given = as_tensor(func(found, at))
        found = given if given.ndim == rank else expand_dims(given, at)
    return found


def _unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi) -> Any:
    p = floating(as_tensor(p), "p")
    at = normalize_axis(axis, p.ndim)
    step, half = diff(p, axis=at), period / 2
    turned = subtract(remainder(add(step, half), period), half)
    turned = where(logical_and(equal(turned, -half), greater(step, 0)), half, turned)
    change = subtract(turned, step)
    change = where(less(size_of(step), half if discont is None else discont), 0, change)
    later = add(part_of(p, at, 1, None), cumulative_sum(change, axis=at))
    return concat([part_of(p, at, 0, 1), later], axis=at)


def _round(a: Any, decimals: int = 0) -> Any:
    return as_tensor(a).round(decimals)  # type: ignore[attr-defined]


FUNCTIONS: dict[str, Call] = {
    "apply_along_axis": _apply_along_axis,
    "apply_over_axes": _apply_over_axes,
    "around": _round,
    "atleast_1d": _at_least(stacking.atleast_1d, np.atleast_1d),
    "atleast_2d": _at_least(stacking.atleast_2d, np.atleast_2d),
    "atleast_3d": _at_least(stacking.atleast_3d, np.atleast_3d),
    "concatenate": _concatenate,
    "cumprod": _running(cumulative_prod),
    "cumsum": _running(cumulative_sum),
    "delete": _delete,
    "diag_indices_from": _square_indices,
    "diagonal": _diagonal,
    "dstack": _joined(stacking.dstack),
    "empty_like": _like(zeros_like, zeros),
    "full_like": _full_like,
    "hstack": _joined(stacking.hstack),
    "insert": _insert,
    "ix_": _ix,
    "ndim": lambda a, /: as_tensor(a).ndim,
    "ones_like": _like(ones_like, ones),
    "outer": _outer,
    "ravel": _ravel,
    "reshape": _reshape,
    "resize": _resize,
    "rollaxis": _rollaxis,
    "round": _round,
    "shape": lambda a, /: as_tensor(a).shape,
    "size": lambda a, /, axis=None: as_tensor(a).size if axis is None else as_tensor(a).shape[axis],
    "split": _split,
    "stack": lambda arrays, axis=0, dtype=None: stack(list(_cast(arrays, dtype)), axis=axis),
    "trace": _trace,
    "tril_indices_from": _triangle(tril_indices),
    "trim_zeros": _trim_zeros,
    "triu_indices_from": _triangle(triu_indices),
    "unwrap": _unwrap,
    "vstack": _joined(stacking.vstack),
    "zeros_like": _like(zeros_like, zeros),
}
