"""``keras.ops.unique``: the unique values of a tensor, or unique slices along an axis.

Its sizes depend on values, so it needs concrete ones, as in Keras's other compiling backends.
"""

import math

import eagerflow as ef
from eagerflow.keras.backend.tensors import cast, convert_to_tensor

__all__ = [
    "unique",
]


def unique(
    x,
    sorted=True,
    return_index=False,
    return_inverse=False,
    return_counts=False,
    axis=None,
    size=None,
    fill_value=None,
):
    x = convert_to_tensor(x)
    at = 0 if axis is None else axis + x.ndim if axis < 0 else axis
    values, index, inverse, counts = _different(x) if axis is None else _slices(x, at)
    if size is not None:
        first = ef.take(values, ef.arange(min(1, values.shape[at])), axis=at)
        fill = first if fill_value is None else ef.full_like(first, fill_value)
        values = _sized(values, size, at, fill)
        index = _sized(index, size, 0, index[:1])
        counts = _sized(counts, size, 0, ef.zeros_like(counts[:1]))
    wanted = ((return_index, index), (return_inverse, inverse), (return_counts, counts))
    found = [values, *(cast(t, "int32") for is_wanted, t in wanted if is_wanted)]
    return found[0] if len(found) == 1 else tuple(found)


def _different(x):
    found = ef.unique_all(x)
    return found.values, found.indices, found.inverse_indices, found.counts


def _slices(x, axis):
    """The unique slices in lexicographic order, with the results of ``unique_all``."""
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    rows = ef.reshape(ef.moveaxis(x, axis, 0), (x.shape[axis], math.prod(rest)))
    order = ef.arange(rows.shape[0])
    for column in reversed(range(rows.shape[1])):
        order = ef.take(order, ef.argsort(ef.take(rows[:, column], order)))
    ordered = ef.take(rows, order, axis=0)
    differs = ef.any(ef.not_equal(ordered[1:], ordered[:-1]), axis=1)
    is_first = ef.concat(ef.ones((min(1, rows.shape[0]),), dtype="bool"), differs)
    number = ef.cumulative_sum(cast(is_first, "int64"), axis=0) - 1
    index = ef.take(order, ef.nonzero(is_first)[0])
    inverse = ef.take(number, ef.argsort(order))
    counts = ef.segment_sum(ef.ones_like(number), number, index.shape[0])
    return ef.take(x, index, axis=axis), index, inverse, counts


def _sized(x, size, axis, fill):
    """The first ``size`` slices of ``x``, padded with ``fill``."""
    count = x.shape[axis]
    if count >= size:
        return ef.take(x, ef.arange(size), axis=axis)
    return ef.concat([x, ef.repeat(fill, size - count, axis=axis)], axis=axis)
