"""Values combined at repeated indices, with or without the old value; bags of embeddings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS, NARROW, REAL, DType, is_floating
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.op import ErrorSample, Missing, Sample
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
from eagerflow.ops.samples import distinct, make
from eagerflow.ops.shapes.reshaping import expand_dims, reshape
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

__all__ = ["embedding_bag", "index_reduce", "scatter_reduce", "segment_mean"]

# Means of segments --------------------------------------------------------------------------------


def _segmented(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    rows = (((5,), 3), ((4, 3), 2), ((3,), 1), ((2, 3, 2), 4), ((0, 2), 2), ((6, 2), 6))
    return [
        Sample(
            (make(rng, dtype, shape), np.asarray(rng.integers(0, count, shape[:1]))),
            {"num_segments": count},
        )
        for shape, count in rows
    ]


def _means(x: Any, segment_ids: Any, num_segments: int) -> Any:
    found = np.zeros((num_segments, *x.shape[1:]))
    for k in range(num_segments):
        if (segment_ids == k).any():
            found[k] = x[segment_ids == k].astype(float).mean(0)
    return found


@composed(
    samples=_segmented,
    reference=_means,
    dtypes=FLOATS,
    errors=lambda rng: [
        ErrorSample((np.ones(2), np.array([0]), 1), {}, ShapeError, "do not fit x"),
    ],
)
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

_WRITING = {
    "sum": (index_add, "add"),
    "mean": (index_add, "add"),
    "prod": (index_multiply, "multiply"),
    "amax": (index_max, "maximum"),
    "amin": (index_min, "minimum"),
}


def reduced_at(x: Any, values: Any, index: Any, reduce: str, include_self: bool) -> Any:
    """A copy of ``x`` with values combined at an index, with or without the old ones."""
    if reduce not in _WRITING:
        raise ArgumentError(
            f"{reduce!r} is not a reduction",
            argument="reduce",
            expected="'sum', 'mean', 'prod', 'amax' or 'amin'",
        )
    write, ufunc = _WRITING[reduce]
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


def _scattered(rng: np.random.Generator, dtype: DType, rows: bool) -> list[Sample]:
    found = []
    for i, (shape, count, axis) in enumerate(
        (((4,), 6, 0), ((3, 4), 5, 1), ((3, 4), 2, 0), ((2, 3, 2), 4, -2), ((4,), 0, 0))
    ):
        for j, reduce in enumerate(_WRITING):
            if i < 2 or j == i - 2:
                at = axis % len(shape)
                whole = (*shape[:at], count, *shape[at + 1 :])
                places = rng.integers(0, shape[at], (count,) if rows else whole)
                args = (distinct(rng, dtype, shape), places, distinct(rng, dtype, whole))
                more = {"axis": axis, "reduce": reduce, "include_self": (i + j) % 2 == 0}
                found.append(Sample(args, more))
    return found


def _scatter_reference(
    x: Any, indices: Any, updates: Any, axis: int, reduce: str, include_self: bool
) -> Any:
    at = axis % x.ndim
    if indices.ndim < x.ndim:  # one index for each row
        rows = (len(indices), *(1,) * (x.ndim - 1 - at))
        indices = np.broadcast_to(indices.reshape(rows), updates.shape)
    found: dict[Any, list[float]] = {place: [] for place in np.ndindex(x.shape)}
    for source in np.ndindex(indices.shape):
        found[(*source[:at], int(indices[source]), *source[at + 1 :])].append(
            float(updates[source])
        )
    of: Any = {"sum": math.fsum, "mean": math.fsum, "prod": math.prod, "amax": max, "amin": min}
    out = np.array(x, float)
    for place, values in found.items():
        if values:
            values += [float(x[place])] if include_self else []
            out[place] = of[reduce](values) / (len(values) if reduce == "mean" else 1)
    return np.floor(out) if x.dtype.kind in "iu" else out


def _refused(rng: np.random.Generator) -> list[ErrorSample]:
    x = rng.random((2, 3))
    more = {"axis": 1, "reduce": "median"}
    return [
        ErrorSample((x, np.zeros((2, 3), int), x), more, ArgumentError, "'median' is not"),
        ErrorSample((x, np.zeros((2, 3), int), x[:1]), {"axis": 1}, ShapeError, ""),
        ErrorSample((x, x, x), {"axis": 1}, DTypeError, "cannot be indices"),
    ]


def _within(size: Any, limit: Any) -> bool:
    """Whether a size is not above another; free sizes have to be the same."""
    return size == limit or (type(size) is type(limit) is int and size < limit)


def _scattered_parts(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    """Samples with fewer indices than rows of ``x``, or than updates."""
    x, updates = distinct(rng, dtype, (3, 4)), distinct(rng, dtype, (5, 3))
    cases = (((2, 2), "sum"), ((5, 3), "mean"), ((1, 3), "amax"))
    return [
        Sample(
            (x, rng.integers(0, 3, size), updates),
            {"axis": 0, "reduce": reduce, "include_self": reduce != "mean"},
        )
        for size, reduce in cases
    ]


@composed(
    samples=lambda rng, dtype: [
        *_scattered(rng, dtype, False),
        *_scattered_parts(rng, dtype),
    ],
    reference=_scatter_reference,
    dtypes=REAL,
    singular=True,
    errors=_refused,
)
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


@composed(
    samples=lambda rng, dtype: _scattered(rng, dtype, True),
    reference=_scatter_reference,
    dtypes=REAL,
    singular=True,
    errors=lambda rng: [
        ErrorSample((np.ones(3), np.array([[0]]), np.ones(1)), {}, ShapeError, "one axis"),
    ],
)
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


def _bags(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    found = []
    for i, mode in enumerate(("sum", "mean", "max") * 2):
        table = distinct(rng, dtype, (5, 3))
        weights = make(rng, dtype, (2, 4), 0.5, 2) if mode == "sum" and i > 2 else None
        ids = rng.integers(0, 5, (2, 4))
        found.append(Sample((table, ids, None, weights), {"mode": mode}))
        offsets = np.array([0, 2, 2, 5]) if i > 2 else np.array([0])
        weights = make(rng, dtype, (7,), 0.5, 2) if mode == "sum" else None
        found.append(Sample((table, rng.integers(0, 5, 7), offsets, weights), {"mode": mode}))
    return [*found, Sample((table, ids), {"mode": "mean", "padding_id": int(ids[0, 0])})]


def _bag_reference(
    table: Any, ids: Any, offsets: Any, weights: Any, mode: str, padding_id: Any
) -> Any:
    if ids.ndim == 2:
        bags = [list(enumerate(row, i * ids.shape[1])) for i, row in enumerate(ids.tolist())]
    else:
        ends = [*offsets.tolist()[1:], ids.size]
        places = list(enumerate(ids.tolist()))
        bags = [places[a:b] for a, b in zip(offsets.tolist(), ends, strict=True)]
    out = np.zeros((len(bags), table.shape[1]))
    factors = None if weights is None else weights.ravel().astype(float)
    for k, bag in enumerate(bags):
        rows = [
            table[i].astype(float) * (1 if factors is None else factors[at])
            for at, i in bag
            if i != padding_id
        ]
        if rows:
            out[k] = getattr(np, mode)(rows, axis=0)
    return out


@composed(
    tensors=4,
    samples=_bags,
    reference=_bag_reference,
    dtypes=FLOATS,
    batch=Missing("the bags of examples have different lengths"),
    errors=lambda rng: [
        ErrorSample((np.ones((3, 2)), np.zeros(2, int)), {}, ShapeError, "offsets"),
        ErrorSample(
            (np.ones((3, 2)), np.zeros((1, 2), int)), {"mode": "min"}, ArgumentError, "min"
        ),
        ErrorSample(
            (np.ones((3, 2)), np.zeros((1, 2), int), None, np.ones((1, 2))),
            {"mode": "max"},
            ArgumentError,
            "weights",
        ),
    ],
)
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
