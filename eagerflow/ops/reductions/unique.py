"""The unique values of a tensor, whose number depends on the values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eagerflow.convert import as_tensor, from_array
from eagerflow.dtypes import FLOATS
from eagerflow.ops.indexing.gathering import take
from eagerflow.ops.plain import plain
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

__all__ = ["unique", "unique_all", "unique_counts", "unique_inverse", "unique_values"]


class UniqueAll(NamedTuple):
    """Unique values, their first indices, the inverse indices, and the counts."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Unique values, and their counts."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Different values, and which of them each element is."""

    values: Tensor
    inverse_indices: Tensor


def _unique(name: str, x: Any) -> UniqueAll:
    """All about the different values of ``x``.

    This is not an op: the shape of the result depends on values, so it cannot be captured, and
    reading the values raises. For the same reason there is no gradient.
    """
    x = as_tensor(x)
    array = x._values(name)
    # NumPy cannot detect NaN in bfloat16; float32 represents all of its numbers.
    wide = array.astype(np.float32) if x.dtype in FLOATS and x.dtype.itemsize == 2 else array
    values, first, inverse, counts = np.unique(
        wide, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    parts = (
        values.astype(x.dtype),
        first.astype(np.int64),
        inverse.reshape(x.shape).astype(np.int64),
        counts.astype(np.int64),
    )
    return UniqueAll(*(from_array(part, x.device) for part in parts))


def unique_all(x: Any) -> UniqueAll:
    """The different values in ascending order, with all that is known of them.

    ``x`` is a tensor of any shape. The result has the fields ``values``, ``indices`` (of the
    first occurrence, in row-major order), ``inverse_indices`` (in the shape of ``x``: which
    value each element is) and ``counts``, the last three int64. Each NaN is a value of its
    own. Raises CaptureError while a graph is captured, since the shapes depend on values.

    >>> ef.unique_all(ef.tensor([3, 1, 3])).inverse_indices
    Tensor([1, 0, 1], int64, cpu:0)
    """
    return _unique("unique_all", x)


def unique_counts(x: Any) -> UniqueCounts:
    """The unique values in ascending order, and their counts.

    ``x`` is a tensor of any shape. The result has the fields ``values`` and ``counts``
    (int64). Each NaN is a value of its own. Raises CaptureError while a graph is captured,
    since the shapes depend on values.

    >>> ef.unique_counts(ef.tensor([3, 1, 3])).counts
    Tensor([1, 2], int64, cpu:0)
    """
    found = _unique("unique_counts", x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Any) -> UniqueInverse:
    """The different values in ascending order, and which of them each element is.

    ``x`` is a tensor of any shape. The result has the fields ``values`` and
    ``inverse_indices`` (int64, in the shape of ``x``). Each NaN is a value of its own.
    Raises CaptureError while a graph is captured, since the shapes depend on values.

    >>> values, inverse = ef.unique_inverse(ef.tensor([3, 1, 3]))
    >>> values[inverse]
    Tensor([3, 1, 3], int64, cpu:0)
    """
    found = _unique("unique_inverse", x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Any) -> Tensor:
    """The different values in ascending order.

    ``x`` is a tensor of any shape. Each NaN is a value of its own. Raises CaptureError while
    a graph is captured, since the shape depends on values.

    >>> ef.unique_values(ef.tensor([3, 1, 3]))
    Tensor([1, 3], int64, cpu:0)
    """
    return _unique("unique_values", x).values


@plain
def unique(
    x: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
) -> Any:
    """The different values of a tensor in ascending order, or its different slices along an axis.

    ``x`` is a tensor; without ``axis`` it is flattened. With ``return_index``, ``return_inverse``
    and ``return_counts`` the first indices, the inverse indices and the counts are returned, in
    this order: int64. NaN equals itself with ``equal_nan``. The gradient goes to the first of equal
    ones. Raises CaptureError while a graph is captured, since the shape depends on values, and
    ShapeError for an axis that does not exist.

    >>> ef.unique(ef.tensor([3, 1, 3]), return_counts=True)
    (Tensor([1, 3], int64, cpu:0), Tensor([1, 2], int64, cpu:0))
    >>> ef.unique(ef.tensor([[1, 2], [0, 5], [1, 2]]), axis=0).tolist()
    [[0, 5], [1, 2]]
    """
    x = as_tensor(x)
    at = None if axis is None else normalize_axis(axis, x.ndim)
    array = x._values("unique")
    wide = array.astype(np.float32) if x.dtype in FLOATS and x.dtype.itemsize == 2 else array
    _, first, inverse, counts = np.unique(
        wide,
        return_index=True,
        return_inverse=True,
        return_counts=True,
        axis=at,
        equal_nan=equal_nan,
    )
    places, number, often = (
        from_array(part.astype(np.int64), x.device)
        for part in (first, inverse.reshape(x.shape if at is None else (-1,)), counts)
    )
    values = take(x, places, axis=at)
    wanted = (return_index, places), (return_inverse, number), (return_counts, often)
    more = [part for asked, part in wanted if asked]
    return (values, *more) if more else values
