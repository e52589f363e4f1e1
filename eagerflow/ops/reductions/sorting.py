"""Sorting along an axis, top k, and search in sorted values."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from eagerflow.codegen.numpy.rows import add_up
from eagerflow.convert import as_tensor
from eagerflow.dims import Dim, product
from eagerflow.dispatch import with_context
from eagerflow.dtypes import BOOL, INTEGERS, REAL
from eagerflow.errors import ShapeError
from eagerflow.handlers import raised_here
from eagerflow.op import Missing, spec_of
from eagerflow.ops.family import batch_along_axis, define, op_of, split_others
from eagerflow.ops.indexing.gathering import scatter_along_axis, take_along_axis
from eagerflow.ops.indexing.indices import extremes
from eagerflow.ops.reductions.accumulation import part_of
from eagerflow.ops.reductions.sums import INDEX_RESULT
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axis
from eagerflow.tensor import Tensor

__all__ = ["argsort", "searchsorted", "sort", "top_k"]

ORDERED = REAL | BOOL


# Sorting -----------------------------------------------------------------------------------------


def _backwards(at: int) -> tuple[slice, ...]:
    return (*(slice(None),) * at, slice(None, None, -1))


def _distinguishable(x: Any) -> bool:
    """Whether some elements are equal and not the same, which takes the slower sort."""
    return x.dtype.kind == "f" and bool(np.any(np.signbit(x) & (x == 0)))


def argsort_kernel(xp: Namespace, x: Any, axis: int, descending: bool, stable: bool) -> Any:
    at = normalize_axis(axis, x.ndim)
    if xp is not np:
        return xp.argsort(x, axis=at, descending=descending, stable=stable)
    kind: Any = "stable" if stable else None
    if not descending:
        return np.argsort(x, at, kind)
    flip = _backwards(at)
    return (x.shape[at] - 1 - np.argsort(x[flip], at, kind))[flip]


def _sort_spec(
    x: TensorSpec, axis: int = -1, descending: bool = False, stable: bool = True
) -> TensorSpec:
    normalize_axis(axis, x.ndim)
    return x


def _unsorted(g: Any, y: Any, x: Any, axis: int, descending: bool, stable: bool) -> Any:
    places = argsort(x, axis=axis, descending=descending, stable=stable)
    return scatter_along_axis(g, places, x.shape, axis)


def _in_order(w: Any, x: Any, axis: int, descending: bool, stable: bool) -> Any:
    """Elements in order, and their indices, by ONNX: the first ones of all."""
    at = normalize_axis(axis, x.ndim)
    count = w.shape([x.shape[at]])
    return w.TopK(x, count, axis=at, largest=int(descending), dtypes=(x.dtype, "int64"))


_SORT: dict[str, Any] = {
    "dtypes": ORDERED,
    "batch": batch_along_axis,
    "split": split_others,
}


@define(
    "sorting",
    **_SORT,
    infer=_sort_spec,
    vjp=(_unsorted,),
    saves="x",
    onnx=lambda w, x, **order: _in_order(w, x, **order)[0],
)
def sort(
    xp: Namespace, x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Array:
    """The elements in order along an axis.

    ``x`` is a real tensor with at least one axis; ``descending`` puts the largest first;
    ``stable`` keeps the order of elements that are equal (0.0 and -0.0). NaN counts as
    largest. Raises ShapeError for an axis that does not exist, DTypeError for complex
    numbers.

    >>> ef.sort(ef.tensor([3.0, 1.0, 2.0]), descending=True)
    Tensor([3., 2., 1.], float32, cpu:0)
    """
    at = normalize_axis(axis, x.ndim)
    if xp is not np:
        return xp.sort(x, axis=at, descending=descending, stable=stable)
    kind: Any = "stable" if stable and _distinguishable(x) else None
    if not descending:
        return np.sort(x, at, kind)
    # Backwards before and after: equal elements keep their order.
    flip = _backwards(at)
    return np.sort(x[flip], at, kind)[flip]


@define(
    "sorting",
    **_SORT,
    infer=lambda x, **attributes: _sort_spec(x, **attributes).like(dtype="int64"),
    vjp=INDEX_RESULT,
    onnx=lambda w, x, **order: _in_order(w, x, **order)[1],
)
def argsort(
    xp: Namespace, x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Array:
    """The indices that bring the elements into order along an axis.

    ``x`` is a real tensor with at least one axis; ``descending`` puts the largest first;
    ``stable`` keeps the order of elements that are equal. NaN counts as largest. The result
    is int64 and fits ``take_along_axis``. Raises ShapeError for an axis that does not exist,
    DTypeError for complex numbers.

    >>> ef.argsort(ef.tensor([3.0, 1.0, 2.0]))
    Tensor([1, 2, 0], int64, cpu:0)
    """
    return argsort_kernel(xp, x, axis, descending, stable)


# The largest elements ----------------------------------------------------------------------------


def _top_spec(x: TensorSpec, k: int, axis: int = -1) -> tuple[TensorSpec, TensorSpec]:
    at = normalize_axis(axis, x.ndim)
    size = x.shape[at]
    known = not isinstance(size, Dim)
    if type(k) is not int or k < 0 or (known and k > size):
        raise ShapeError(
            f"{k!r} elements cannot be taken",
            argument="k",
            expected=f"an integer from 0 to {size}" if known else "an integer of at least 0",
        )
    found = x.like((*x.shape[:at], k, *x.shape[at + 1 :]))
    return found, found.like(dtype="int64")


def _top_numpy(xp: Namespace, x: Any, k: int, axis: int) -> tuple[Any, Any]:
    at = normalize_axis(axis, x.ndim)
    rows = np.moveaxis(x, at, -1)
    places = top_places(rows, k) if 0 < k < rows.shape[-1] else _descending(rows)[..., :k]
    values = np.take_along_axis(rows, places, -1)
    return _moved_back(values, at), _moved_back(places, at)


def _moved_back(rows: Any, at: int) -> Any:
    return np.ascontiguousarray(np.moveaxis(rows, -1, at))


def _descending(rows: Any) -> Any:
    return argsort_kernel(np, rows, -1, True, True)


def top_places(rows: Any, k: int) -> Any:
    """Indices of the k largest: all above the k-th, and the first ones that equal it."""
    size = rows.shape[-1]
    if not rows.size or (rows.dtype.kind == "f" and np.isnan(rows).any()):
        return _descending(rows)[..., :k]
    bound = np.partition(rows, size - k, -1)[..., size - k, None]
    above, equal = rows > bound, rows == bound
    wanted = k - add_up(above, -1, None, None, True)
    chosen = above | equal
    if (add_up(equal, -1, None, None, True) > wanted).any():
        chosen = above | (equal & (np.add.accumulate(equal, -1, np.int32) <= wanted))
    places = np.nonzero(chosen)[-1].reshape(*rows.shape[:-1], k)
    order = _descending(np.take_along_axis(rows, places, -1))
    return np.take_along_axis(places, order, -1)


@define(
    "sorting",
    dtypes=ORDERED,
    outputs=2,
    infer=_top_spec,
    vjp=lambda g, y, x, k, axis: (scatter_along_axis(g[0], y[1], x.shape, axis),),
    jvp=lambda tangents, y, x, k, axis: (take_along_axis(tangents[0], y[1], axis), None),
    saves="y",
    batch=batch_along_axis,
    overrides={"numpy": _top_numpy},
    onnx=lambda w, x, *, k, axis: w.TopK(x, w.integers([k]), axis=axis, dtypes=(x.dtype, "int64")),
)
def _top_k(xp: Namespace, x: Array, /, k: int, axis: int = -1) -> Any:
    """The ``k`` largest elements along an axis, largest first, and their indices."""
    at = normalize_axis(axis, x.ndim)
    order = xp.argsort(x, axis=at, descending=True, stable=True)
    places = order[(*(slice(None),) * at, slice(0, k), ...)]
    return xp.take_along_axis(x, places, axis=at), places


def top_k(x: Any, /, k: int, axis: int = -1, *, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The ``k`` largest elements along an axis, largest first, and their indices.

    ``x`` is a real tensor with at least ``k`` elements along ``axis``; with ``largest=False`` it is
    the smallest ones, smallest first. The results are ``(values, indices)``; of equal elements the
    first come first; the indices are int64. NaN counts as largest. Raises ShapeError where there
    are fewer than ``k`` elements.

    >>> ef.top_k(ef.tensor([1.0, 5.0, 3.0, 5.0]), 3)
    (Tensor([5., 5., 3.], float32, cpu:0), Tensor([1, 3, 2], int64, cpu:0))
    >>> ef.top_k(ef.tensor([1.0, 5.0, 3.0]), 2, largest=False)[0]
    Tensor([1., 3.], float32, cpu:0)
    """
    if largest:
        return _top_k(x, k, axis)
    x = as_tensor(x)
    try:
        _top_spec(spec_of(x), k, axis)
    except raised_here(ShapeError) as error:
        raise with_context(error, op_of(_top_k), (x,)) from None
    places = part_of(argsort(x, axis=axis), normalize_axis(axis, x.ndim), 0, k)
    return take_along_axis(x, places, axis), places


# Places in sorted values -------------------------------------------------------------------------


def _places_spec(
    x1: TensorSpec, x2: TensorSpec, sorter: TensorSpec | None = None, side: str = "left"
) -> TensorSpec:
    if not x1.ndim:
        raise ShapeError("x1 has no axes", argument="x1", expected="an axis of sorted values")
    if x1.ndim > 1 and (x2.ndim != x1.ndim or x2.shape[:-1] != x1.shape[:-1]):
        raise ShapeError(
            f"there are not values for each of the rows of x1, shape {x1.shape}",
            argument="x2",
            expected=f"shape {(*x1.shape[:-1], 'any')}",
        )
    if sorter is not None and sorter.shape != x1.shape:
        raise ShapeError("sorter and x1 differ in shape", argument="sorter")
    if side not in ("left", "right"):
        raise ShapeError(f"{side!r} is not a side", argument="side", expected="'left' or 'right'")
    return x2.like(dtype="int64")


def _batched_places(args: Any, batched: Any, size: int, side: str) -> Any:
    x1, x2, sorter = args
    own = batched[0] or (sorter is not None and batched[2])
    if not own and x1.ndim == 1:
        return searchsorted(x1, x2, sorter, side=side)
    x1, x2, sorter = (
        x if x is None or flag else broadcast_to(x, (size, *x.shape))
        for x, flag in zip(args, batched, strict=True)
    )
    shape = x2.shape
    if x1.ndim == 2:  # values of any shape for each row
        x2 = reshape(x2, (size, product(shape[1:])))
    return reshape(searchsorted(x1, x2, sorter, side=side), shape)


def _check_sorter(xp: Namespace, sorter: Any) -> None:
    size = sorter.shape[-1]
    low, high = extremes(xp, sorter) or (0, -1)
    if low < 0 or high >= size:
        raise ShapeError(
            "sorter holds indices that x1 does not have",
            argument="sorter",
            expected="the result of ef.argsort(x1)",
        )


def _places_operator(w: Any, values: Any, points: Any, sorter: Any, *, side: str) -> Any:
    """The rule of ONNX: the number of values below each point."""
    if sorter is not None:
        shape = values.shape
        values = w.GatherElements(values, w.index(sorter), axis=len(shape) - 1)
        values.shape = shape
    if values.ndim > 1:
        values = w.Unsqueeze(values, w.axes(-2))
    compare = w.Less if side == "left" else w.LessOrEqual
    below = compare(values, w.Unsqueeze(points, w.axes(-1)), dtype=bool)
    return w.ReduceSum(w.cast(below, "int64"), w.axes(points.ndim), keepdims=0)


@define(
    "sorting",
    dtypes=(ORDERED, ORDERED, INTEGERS),
    together=(0, 1),
    infer=_places_spec,
    vjp=INDEX_RESULT,
    batch=_batched_places,
    split=Missing("x1 may not be cut, and x2 is small"),
    fails=True,
    onnx=_places_operator,
)
def searchsorted(
    xp: Namespace,
    x1: Array,
    x2: Array,
    sorter: Array = None,
    /,
    *,
    side: Literal["left", "right"] = "left",
) -> Array:
    """Where values would have to be put to keep sorted values in order.

    ``x1`` is a tensor in ascending order along its last axis, or sorted by the indices in
    ``sorter``; ``x2`` has the values: of any shape if ``x1`` has one axis, otherwise some for each
    of its rows, shape (..., values). ``side`` is the position relative to equal ones: ``"left"`` or
    ``"right"``. The result is int64. Raises ShapeError where shapes do not fit.

    >>> ef.searchsorted(ef.tensor([1.0, 2.0, 4.0]), ef.tensor([2.0, 9.0]))
    Tensor([1, 3], int64, cpu:0)
    """
    if sorter is not None:
        _check_sorter(xp, sorter)
        x1 = xp.take_along_axis(x1, sorter, axis=-1)
    if x1.ndim == 1:
        return xp.searchsorted(x1, x2, side=side)
    return _places_in_rows(xp, x1, x2, side)


def _places_in_rows(xp: Namespace, rows: Any, points: Any, side: str) -> Any:
    """Binary search in all rows at once; NaN counts as largest."""
    size = rows.shape[-1]
    low = xp.zeros(points.shape, dtype=xp.int64)
    high = xp.full(points.shape, size, dtype=xp.int64)
    for _ in range(size.bit_length()):
        middle = (low + high) // 2
        known = xp.where(middle < size, middle, xp.full_like(middle, size - 1))
        value = xp.take_along_axis(rows, known, axis=-1)
        if side == "left":
            before = (value < points) | ((points != points) & (value == value))
        else:
            before = (value <= points) | (points != points)
        open_ = low < high
        low = xp.where(before & open_, middle + 1, low)
        high = xp.where(before | ~open_, high, middle)
    return low
