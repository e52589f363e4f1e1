"""Addition and assignment at possibly repeated positions, by fast paths and by the standard.

NumPy and CuPy index with arrays and have ``ufunc.at``. For namespaces with only the Array API
standard, an index becomes flat positions, and writes are sequential.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from eagerflow.dims import product
from eagerflow.dtypes import NARROW
from eagerflow.ops.indexing.indices import ALL, check_values, expanded, layout, unmasked
from eagerflow.spec import Namespace

__all__ = [
    "add_at",
    "combine_at",
    "flat_positions",
    "native",
    "one_by_one",
    "positions",
    "runs",
    "summed_at",
    "taken_at",
]

MAX_DIRECT_UPDATES = 500
"""Number of updates up to which computing their flat positions does not pay."""


def native(xp: Namespace) -> bool:
    """Whether arrays of the namespace take all of NumPy's indices, and ufuncs have ``at``."""
    return xp is np or hasattr(xp, "ufunc")


# With ufunc.at ------------------------------------------------------------------------------------


def add_at(xp: Namespace, out: Any, index: Any, updates: Any, ufunc: str = "add") -> Any:
    """``out`` with ``updates`` added at an index that may repeat positions; changes ``out``.

    ``out`` is contiguous; ``ufunc`` names the operation in place of addition. For many updates,
    leading index arrays are turned into flat positions: adding at one flat array is up to ten times
    faster than at other indices.
    """
    combine = getattr(xp, ufunc)
    items = index if type(index) is tuple else (index,)
    lead = [i for i in items if not isinstance(i, slice) and i is not Ellipsis]
    if native(xp) and (updates.size < MAX_DIRECT_UPDATES or not _flattens(items, len(lead))):
        combine_at(xp, combine, out, index, updates)
        return out
    flat = flat_positions(xp, lead, out.shape)
    updates = stretched(xp, updates, (*flat.shape[:-1], *out.shape[len(lead) :]))
    if not native(xp):
        whole = xp.reshape(flat, updates.shape)
        return one_by_one(out, whole, updates, combine, xp)
    combine.at(out.reshape(-1), flat.reshape(-1), updates.reshape(-1))
    return out


def _flattens(items: Sequence[Any], lead: int) -> bool:
    """Whether all that an index holds are integers and arrays of them, and then whole axes."""
    return all(
        i is not None and i.__class__ is not bool and str(getattr(i, "dtype", "")) != "bool"
        for i in items[:lead]
    ) and all(i.__class__ is slice and i == ALL for i in items[lead:])


def combine_at(xp: Namespace, ufunc: Any, out: Any, index: Any, values: Any) -> None:
    """``ufunc.at``, which must not be given values of another shape: NumPy 2.4 may crash."""
    ufunc.at(out, index, stretched(xp, values, out[index].shape))


def stretched(xp: Namespace, values: Any, shape: Any) -> Any:
    """``values`` broadcast to a shape; as in assignments, leading axes of size 1 may go."""
    extra = values.ndim - len(shape)
    if extra > 0:
        values = xp.reshape(values, values.shape[extra:])
    return values if values.shape == shape else xp.broadcast_to(values, shape)


def summed_at(xp: Namespace, shape: Any, index: Any, updates: Any) -> Any:
    """Zeros of a shape with ``updates`` added at an index; 16-bit floats are added in float32."""
    dtype = updates.dtype
    if dtype not in NARROW:
        return add_at(xp, xp.zeros(shape, dtype=dtype), index, updates)
    wide = add_at(xp, xp.zeros(shape, dtype=xp.float32), index, updates.astype(xp.float32))
    return wide.astype(dtype)


# Flat positions -----------------------------------------------------------------------------------


def flat_positions(xp: Namespace, lead: Any, shape: Any) -> Any:
    """Flat positions of rows: one for each element of the arrays, and of a row as last axis."""
    rows = xp.zeros((), dtype=xp.int64)
    for axis, item in enumerate(lead):
        rows = rows * shape[axis] + _from_start(xp, xp.asarray(item), axis, shape[axis])
    width = int(product(shape[len(lead) :]))
    return rows[..., None] * width + xp.arange(width)


def _from_start(xp: Namespace, ids: Any, axis: int, size: int) -> Any:
    """Indices of an axis, with negative ones counted from the end; IndexRangeError."""
    ends = check_values(xp, ids, axis, size)
    if ends is None or ends[0] < 0:
        ids = xp.where(ids < 0, ids + size, ids)
    return xp.astype(ids, xp.int64)


def positions(xp: Namespace, index: Any, shape: Any, arrays: Sequence[Any]) -> Any:
    """Flat positions, in a tensor of a shape, of all that an index in recorded form selects."""
    index, arrays = unmasked(index, arrays, lambda m: list(xp.nonzero(m)) if m.ndim else [])
    return placing(xp, index, shape, [a.shape for a in arrays])(*arrays)


def placing(
    xp: Namespace, index: Any, shape: Any, arrays: Sequence[Any], row: int = 1, first: int = 0
) -> Callable[..., Any]:
    """A function from index arrays of these shapes, without masks, to positions.

    The positions are those of elements ``row`` apart, the first of which is at ``first``.
    """
    plan = layout(index, shape, arrays)
    rank = len(plan.sizes) + plan.rank
    fixed = xp.zeros((1,) * rank, dtype=xp.int64) + first
    own = []  # axis and size that each array is for, its stride, and its shape among the result's
    rest = iter(arrays)
    axis, basic = 0, 0
    for item in expanded(index, len(shape), [*map(len, arrays)]):
        if item is None or item is Ellipsis or item.__class__ is bool:
            basic += item is None
            continue
        size, stride = shape[axis], int(product(shape[axis + 1 :])) * row
        if item.__class__ is slice:
            line = _line(xp, range(*item.indices(size)))
            at = basic if basic < plan.at else basic + plan.rank
            line = xp.reshape(line, (1,) * at + line.shape + (1,) * (rank - 1 - at))
            fixed = fixed + line * stride
            basic += 1
        elif item.__class__ is str:
            met = next(rest)
            before = plan.at + plan.rank - len(met)
            behind = rank - plan.at - plan.rank
            own.append((axis, size, stride, (1,) * before + tuple(met) + (1,) * behind))
        else:
            fixed = fixed + int(item) % size * stride
        axis += 1

    def found(*arrays: Any) -> Any:
        places = fixed
        for ids, (axis, size, stride, met) in zip(arrays, own, strict=True):
            places = places + xp.reshape(_from_start(xp, ids, axis, size), met) * stride
        return places if places.shape == plan.shape else xp.broadcast_to(places, plan.shape)

    return found


def _line(xp: Namespace, places: range) -> Any:
    first = places.start if len(places) else 0
    return xp.arange(len(places), dtype=xp.int64) * places.step + first


def runs(index: Any, shape: Any, arrays: Sequence[Any]) -> Callable[..., tuple[Any, Any]]:
    """A function that returns the runs of elements that ``x[index] = value`` overwrites, on NumPy.

    It takes the value and the index arrays, which have these shapes, and returns the starts of the
    runs in flattened x, and a row of values for each, in the order of writing; both are contiguous.
    Masks are not supported.
    """
    items = expanded(index, len(shape), [*map(len, arrays)])
    axis, first = len(shape), 0
    while items and (items[-1] is Ellipsis or (type(items[-1]) is slice and items[-1] == ALL)):
        axis -= items.pop() is not Ellipsis
    row = shape[axis:]
    if items and type(items[-1]) is slice and items[-1].step in (None, 1):
        axis -= 1
        line = range(*items.pop().indices(shape[axis]))
        first, row = line.start * prod(row), (len(line), *row)
    size = prod(row)
    place = placing(np, tuple(items), shape[:axis], arrays, prod(shape[axis:]), first)

    def found(value: Any, *ids: Any) -> tuple[Any, Any]:
        places = place(*ids)
        values = stretched(np, value, (*places.shape, *row))
        return places.ravel(), np.ascontiguousarray(values).reshape(places.size, size)

    return found


def taken_at(xp: Namespace, x: Any, places: Any) -> Any:
    """The elements of ``x`` at flat positions."""
    flat = xp.take(xp.reshape(x, (-1,)), xp.reshape(places, (-1,)), axis=0)
    return xp.reshape(flat, places.shape)


def one_by_one(
    x: Any, places: Any, values: Any, combine: Callable[[Any, Any], Any], xp: Any
) -> Any:
    """``x`` with ``combine(element, value)`` at flat positions, in order."""
    flat = xp.asarray(xp.reshape(x, (-1,)), copy=True)
    values = xp.reshape(stretched(xp, values, places.shape), (-1,))
    where = xp.reshape(places, (-1,))
    for i in range(where.shape[0]):
        at = int(where[i])
        flat[at] = combine(flat[at], values[i])
    return xp.reshape(flat, x.shape)
