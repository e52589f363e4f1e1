"""The rules of ONNX for indexed reads and writes: Slice, Gather and Scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eagerflow.dims import product
from eagerflow.ops.indexing.indices import ALL, Layout, expanded, layout

FAR = np.iinfo(np.int64)


def select_rule(w: Any, x: Any, *arrays: Any, index: Any) -> Any:
    """The operators of ``x[index]``: slices first, then arrays, then the axes into their order."""
    plan = layout(index, x.shape, [a.shape for a in arrays])
    x, items, sizes = _one_for_each_axis(w, x, arrays, index)
    x = _sliced(w, x, [item for item in items if item is not None], sizes)
    basic = [item for item in items if item is None or type(item) is slice]
    axes = [item for item in items if item is not None and type(item) is not int]
    along = [i for i, item in enumerate(axes) if type(item) is not slice]
    if along:
        met = [size for size, item in zip(plan.sizes, basic, strict=True) if item is not None]
        own = [size for size, item in zip(sizes, _axes(items), strict=True) if _is_array(item)]
        x = _gathered(w, x, along, [axes[i] for i in along], own, met)
    # Now the arrays' axes are where the first array was, or in front of all.
    front = along[0] if len(along) == 1 else 0
    at = sum(item is not None for item in basic[: plan.at])
    x = _moved(w, x, front, at, plan.rank if along else 0, len(axes) - len(along))
    lead = [i + (plan.rank if i >= plan.at else 0) for i, it in enumerate(basic) if it is None]
    return w.Unsqueeze(x, w.integers(lead)) if lead else x


def _axes(items: Sequence[Any]) -> list[Any]:
    return [item for item in items if item is not None]


def _is_array(item: Any) -> bool:
    return type(item) not in (int, slice)


def _one_for_each_axis(w: Any, x: Any, arrays: Any, index: Any) -> tuple[Any, list[Any], list[Any]]:
    """The tensor, an integer, slice or array for each of its axes, None for new ones, and sizes.

    A bool is an array of one index, or of none, along a new axis.
    """
    rest, sizes = iter(arrays), iter(x.shape)
    items: list[Any] = []
    own: list[Any] = []
    new: list[int] = []
    for item in expanded(index, x.ndim, [a.ndim for a in arrays]):
        if item is None:
            items.append(None)
        elif item.__class__ is bool:
            new.append(len(own))
            items.append(w.integers([0] * item))
            own.append(1)
        elif item.__class__ is str:
            found = [next(rest)] if item == "array" else _places(w, next(rest))
            new += [len(own)] if item == "mask" and len(found) == 0 else []
            items += found
            own += [next(sizes) for _ in found]
        elif item is not Ellipsis:
            items.append(item)
            own.append(next(sizes))
    return (w.Unsqueeze(x, w.integers(new)) if new else x), items, own


def _places(w: Any, mask: Any) -> list[Any]:
    """Where a mask is true: one array for each of its axes."""
    rows = w.NonZero(mask, dtype="int64")
    return [w.Gather(rows, w.constant(i, "int64"), axis=0) for i in range(mask.ndim)]


def _sliced(w: Any, x: Any, items: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """The tensor with slices and integers, one or an array for each axis, carried out."""
    cut = [i for i, item in enumerate(items) if type(item) is int or _cuts(item)]
    if not cut:
        return x
    parts = [_bounds(items[i], sizes[i]) for i in cut]
    starts, ends, steps = zip(*parts, strict=True)
    x = w.Slice(x, w.shape(starts), w.shape(ends), w.integers(cut), w.integers(steps))
    single = [i for i in cut if type(items[i]) is int]
    return w.Squeeze(x, w.integers(single)) if single else x


def _cuts(item: Any) -> bool:
    return type(item) is slice and item not in (ALL, slice(None, None, 1))


def _bounds(item: Any, size: Any) -> tuple[Any, Any, int]:
    """Start, end and step of an integer or a slice, as ONNX has them."""
    if type(item) is int:
        return item, FAR.max if item == -1 else item + 1, 1
    step = 1 if item.step is None else item.step
    first, last = (0, FAR.max) if step > 0 else (FAR.max, FAR.min)
    return (
        first if item.start is None else item.start,
        last if item.stop is None else item.stop,
        step,
    )


def _gathered(
    w: Any, x: Any, along: Sequence[int], arrays: Sequence[Any], own: Sequence[Any], met: Any
) -> Any:
    """Elements at the positions given by arrays, along some axes of ``own`` sizes.

    The axes of several arrays come to the front; ``met`` are the remaining sizes.
    """
    if len(along) == 1:
        return w.Gather(x, w.index(arrays[0]), axis=along[0])
    rank = len(along) + len(met)
    others = [i for i in range(rank) if i not in along]
    if [*along, *others] != list(range(rank)):
        x = w.Transpose(x, perm=[*along, *others])
    x = w.Reshape(x, w.shape([product(own), *met]), allowzero=1)
    return w.Gather(x, _flat_places(w, arrays, own), axis=0)


def _flat_places(w: Any, arrays: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """The flat indices of arrays, one for each of some axes, among all elements of these axes."""
    total = None
    for array, size in zip(arrays, sizes, strict=True):
        places, own = w.cast(array, "int64"), w.number(size)
        negative = w.Less(places, w.constant(0, "int64"), dtype=bool)
        places = w.Where(negative, w.Add(places, own), places, dtype="int64")
        total = places if total is None else w.Add(w.Mul(total, own), places)
    return total


def _moved(w: Any, x: Any, front: int, at: int, count: int, others: int) -> Any:
    """The tensor with ``count`` axes from ``front`` on among ``others`` moved to ``at``."""
    if front == at or not count:
        return x
    met = list(range(front, front + count))
    rest = [i for i in range(others + count) if i not in met]
    return w.Transpose(x, perm=[*rest[:at], *met, *rest[at:]])


# Writing -----------------------------------------------------------------------------------------


def write_rule(reduction: str, w: Any, x: Any, value: Any, *arrays: Any, index: Any) -> Any:
    """The operators that write values at an index, or add them to the old ones.

    If arrays come first and whole axes follow, rows are written; otherwise flat elements.
    """
    x = w.computable(x)
    value = w.cast(value, x.dtype)
    plan = layout(index, x.shape, [a.shape for a in arrays])
    items = expanded(index, x.ndim, [a.ndim for a in arrays])
    lead, behind = items[: len(arrays)], items[len(arrays) :]
    by_rows = lead == ["array"] * len(arrays) and all(i is Ellipsis or i == ALL for i in behind)
    if arrays and by_rows:
        values = _stretched(w, value, plan, None)
        return w.ScatterND(x, _rows(w, arrays, plan), values, reduction=reduction)
    zero, one = (w.constant(n, "int64") for n in (0, 1))
    numbers = w.Range(zero, w.number(product(x.shape)), one)
    numbers = w.Reshape(numbers, w.shape(x.shape), allowzero=1)
    numbers.shape = x.shape
    places = select_rule(w, numbers, *arrays, index=index)
    values = w.flat(_stretched(w, value, plan, places))
    flat = w.ScatterElements(w.flat(x), w.flat(places), values, axis=0, reduction=reduction)
    return w.Reshape(flat, w.shape(x.shape), allowzero=1)


def _rows(w: Any, arrays: Sequence[Any], plan: Layout) -> Any:
    """The combined positions of index arrays, as rows of a last axis."""
    meet = plan.meet
    found = []
    for array in arrays:
        own = w.cast(array, "int64")
        own = own if array.shape == meet else w.Expand(own, w.shape(meet))
        found.append(w.Unsqueeze(own, w.integers([plan.rank])))
    return w.Concat(*found, axis=plan.rank) if len(found) > 1 else found[0]


def _stretched(w: Any, value: Any, plan: Layout, places: Any) -> Any:
    """Values in the shape of an index's selection; leading axes of size 1 may be dropped.

    The shape for a mask depends on its values: it is then that of ``places``.
    """
    rank = len(plan.sizes) + plan.rank
    if value.ndim > rank:
        value = w.Reshape(value, w.shape(value.shape[value.ndim - rank :]), allowzero=1)
    if plan.meet is None:
        return w.Expand(value, w.Shape(places, dtype="int64"))
    return value if value.shape == plan.shape else w.Expand(value, w.shape(plan.shape))
