"""Values combined at repeated indices, with or without the old value; bags of embeddings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS, NARROW, REAL, is_floating
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import ones, zeros
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import divide, floor_divide, multiply
from eagerflow.ops.elementwise.comparison import equal, not_equal
from eagerflow.ops.elementwise.selection import maximum, where
from eagerflow.ops.indexing.gathering import gather
from eagerflow.ops.indexing.indices import ALL
from eagerflow.ops.indexing.segments import identity_of, segment_max, segment_sum
from eagerflow.ops.indexing.updating import (
    as_value,
    index_add,
    index_max,
    index_min,
    index_multiply,
    index_set,
)
from eagerflow.ops.operands import as_wide_integers, wide
from eagerflow.ops.reductions.sorting import searchsorted
from eagerflow.ops.shapes.reshaping import expand_dims, reshape
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

__all__ = ["embedding_bag", "index_reduce", "scatter_reduce", "segment_mean"]

# Means of segments --------------------------------------------------------------------------------


@composed(dtypes=FLOATS)
def segment_mean(x: Any, segment_ids: Any, /, num_segments: Any = None) -> Tensor:
    """Means of the rows of a tensor that have the same number.

    Arguments and errors are those of ``segment_sum``; rows without a number are 0.

    >>> ef.segment_mean(ef.tensor([1.0, 2.0, 4.0]), [0, 1, 0], 3)
    Tensor([2.5, 2. , 0. ], float32, cpu:0)
    """
    return wide(_segment_mean, x, segment_ids, num_segments=num_segments)


def _segment_mean(x: Any, segment_ids: Any, num_segments: Any) -> Any:
    total = segment_sum(x, segment_ids, num_segments)
    one = ones(segment_ids.shape, dtype=_counts(x), device=str(x.device))
    count = maximum(segment_sum(one, segment_ids, num_segments), 1)
    count = reshape(count, (count.shape[0], *(1,) * (total.ndim - 1)))
    return divide(total, count).astype(total.dtype)


def _for_sums(x: Any) -> Any:
    """The values in a dtype that holds their sum, where means alone would fit into their own."""
    return astype(x, "float32") if x.dtype in NARROW else as_wide_integers(x)


def _counts(x: Any) -> str:
    """A dtype with exact counts of values that promotes with ``x`` like its own kind."""
    if not is_floating(x.dtype):
        return "int64"
    return "float32" if x.dtype.itemsize < 4 else x.dtype.name


# Reductions at places -----------------------------------------------------------------------------

WRITING = {
    "sum": (index_add, "add"),
    "mean": (index_add, "add"),
    "prod": (index_multiply, "multiply"),
    "amax": (index_max, "maximum"),
    "amin": (index_min, "minimum"),
}


def reduced_at(x: Any, values: Any, index: Any, reduce: str, include_self: bool) -> Any:
    """A copy of ``x`` with values combined at an index, with or without the old ones."""
    if reduce not in WRITING:
        raise ArgumentError(
            f"{reduce!r} is not a reduction",
            argument="reduce",
            expected="'sum', 'mean', 'prod', 'amax' or 'amin'",
        )
    write, ufunc = WRITING[reduce]
    dtype = x.dtype
    if reduce == "mean":
        x, values = _for_sums(x), _for_sums(as_value(values, x, "index_add"))
    if not include_self:
        blank = np.asarray(identity_of(ufunc, x.dtype), x.dtype)
        x = index_set(x, blank, index)
    found = write(x, values, index)
    if reduce != "mean":
        return found
    kind = _counts(x)
    count = zeros(x.shape, dtype=kind, device=str(x.device))
    count = index_add(count, ones((), dtype=kind, device=str(x.device)), index)
    count = count + 1 if include_self else maximum(count, 1)
    share = divide if is_floating(x.dtype) else floor_divide
    return share(found, count).astype(dtype)


def _within(size: Any, limit: Any) -> bool:
    """Whether a size is not above another; free sizes have to be the same."""
    return size == limit or (type(size) is type(limit) is int and size < limit)


@composed(dtypes=REAL, singular=True)
def scatter_reduce(
    x: Any,
    indices: Any,
    updates: Any,
    /,
    axis: int = -1,
    reduce: str = "sum",
    include_self: bool = True,
) -> Tensor:
    """A copy of a tensor in which each update is combined with an element along an axis.

    ``x`` and ``updates`` are real tensors, ``indices`` integers: positions along ``axis``, one for
    each update. If there are fewer of them along an axis than in ``x`` or ``updates``, only their
    first elements are used. ``reduce`` is ``"sum"``, ``"mean"``, ``"prod"``, ``"amax"`` or
    ``"amin"``; without ``include_self`` the old value is ignored where there is an update. Means of
    integers are rounded down. Raises ShapeError where the shapes do not fit, IndexRangeError for
    indices out of range, ArgumentError for another reduction.

    >>> x, updates = ef.tensor([1.0, 1.0, 1.0]), ef.tensor([2.0, 4.0, 6.0])
    >>> ef.scatter_reduce(x, [0, 0, 2], updates, reduce="mean", include_self=False)
    Tensor([3., 1., 6.], float32, cpu:0)
    """
    at = normalize_axis(axis, x.ndim)
    own = (*indices.shape[:at], x.shape[at], *indices.shape[at + 1 :])
    for shape, other, name in ((own, x, "x"), (indices.shape, updates, "updates")):
        if indices.ndim != other.ndim or not all(
            _within(n, most) for n, most in zip(shape, other.shape, strict=True)
        ):
            raise ShapeError(
                f"the places do not fit {name}",
                argument="indices",
                expected=f"not more than {tuple(other.shape)}"
                + (f" apart from axis {at}" if other is x else ""),
            )
    if indices.shape != updates.shape:
        updates = updates[tuple(slice(size) for size in indices.shape)]
    device = str(x.device)
    index = tuple(
        indices
        if i == at
        else reshape(arange(size, device=device), (size, *(1,) * (x.ndim - 1 - i)))
        for i, size in enumerate(indices.shape)
    )
    return reduced_at(x, updates, index, reduce, include_self)


@composed(dtypes=REAL, singular=True)
def index_reduce(
    x: Any,
    indices: Any,
    updates: Any,
    /,
    axis: int = 0,
    reduce: str = "sum",
    include_self: bool = True,
) -> Tensor:
    """A copy of a tensor in which each slice of updates is combined with a slice along an axis.

    ``indices`` is a tensor of integers with one axis: the positions of the slices of ``updates``
    along ``axis``. Other arguments and errors are those of ``scatter_reduce``.

    >>> ef.index_reduce(ef.ones((3,)), [0, 0], ef.tensor([2.0, 4.0]), reduce="prod")
    Tensor([8., 1., 1.], float32, cpu:0)
    """
    at = normalize_axis(axis, x.ndim)
    if indices.ndim != 1:
        raise ShapeError(
            f"{indices.ndim} axes given", argument="indices", expected="one axis of places"
        )
    return reduced_at(x, updates, (*(ALL,) * at, indices), reduce, include_self)


# Bags of embeddings -------------------------------------------------------------------------------


@composed(tensors=4, dtypes=FLOATS, batch=Missing("the bags of examples have different lengths"))
def embedding_bag(
    table: Any,
    ids: Any,
    offsets: Any = None,
    weights: Any = None,
    mode: str = "mean",
    padding_id: int | None = None,
) -> Tensor:
    """Sums, means or maxima of the rows of a table selected by bags of indices.

    ``table`` is a tensor of rows, shape (rows, width). ``ids`` holds integers: with two axes each
    row is a bag; with one axis a bag begins at each of ``offsets``, the first of which is 0, and
    ends where the next begins. ``weights``, in the shape of ``ids``, multiply rows before sums.
    ``mode`` is ``"sum"``, ``"mean"`` or ``"max"``; rows of ``padding_id`` are ignored, and an empty
    bag gives zeros. The result has shape (bags, width). Raises ShapeError where the shapes do not
    fit, ArgumentError for another mode or weights of it, IndexRangeError for numbers without a row.

    >>> table = ef.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> ef.embedding_bag(table, [0, 2, 1], offsets=[0, 2])
    Tensor([[3., 4.],
            [3., 4.]], shape=(2, 2), float32, cpu:0)
    """
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(
            f"{mode!r} is not a mode", argument="mode", expected="'sum', 'mean' or 'max'"
        )
    if weights is not None and mode != "sum":
        raise ArgumentError("weights are for sums", argument="weights", expected="mode='sum'")
    bag_of, count = _bags_of(ids, offsets)
    numbers = reshape(ids, (-1,))
    rows = gather(table, numbers, axis=0)
    if weights is not None:
        rows = multiply(rows, expand_dims(reshape(weights, (-1,)), axis=-1))
    if padding_id is not None:  # into a separate bag, which is dropped
        bag_of = where(not_equal(numbers, padding_id), bag_of, count)
    if mode == "max":
        found = segment_max(rows, bag_of, count + 1)
        found = where(equal(found, -math.inf), 0, found)
    else:
        of = segment_mean if mode == "mean" else segment_sum
        found = of(rows, bag_of, count + 1)
    return found[:count]


def _bags_of(ids: Any, offsets: Any) -> tuple[Any, Any]:
    """The bag of each integer, and the number of bags."""
    device = str(ids.device)
    if ids.ndim == 2 and offsets is None:
        count, length = ids.shape
        return arange(count * length, device=device) // length, count
    if ids.ndim != 1 or offsets is None or offsets.ndim != 1:
        raise ShapeError(
            "they are not bags",
            argument="offsets",
            expected="ids of two axes and no offsets, or of one axis, and offsets of one",
        )
    at = arange(ids.shape[0], device=device)
    return searchsorted(offsets, at, side="right") - 1, offsets.shape[0]
