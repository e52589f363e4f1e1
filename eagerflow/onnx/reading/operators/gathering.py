"""Operators that gather and scatter elements by indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow import ops
from eagerflow.onnx.reading.calls import Call, known, known_number, operator
from eagerflow.onnx.reading.sizing import with_sizes
from eagerflow.spec import normalize_axis


def _gathered_sizes(data: Any, indices: Any, axis: int = 0) -> Any:
    return np.take(data, indices.astype("int64"), axis)


@operator("Gather", takes_sizes=True)
@with_sizes(_gathered_sizes)
def gather(call: Call, data: Any, indices: Any, axis: int = 0) -> Any:
    """Slices of a tensor along an axis, by index."""
    return ops.take(data, indices, axis=axis)


@operator("GatherElements")
def gather_elements(call: Call, data: Any, indices: Any, axis: int = 0) -> Any:
    """One element for each index along an axis, with matching indices on the other axes."""
    axis = normalize_axis(axis, data.ndim)
    part = tuple(
        slice(None) if i == axis or size == own else slice(0, size)
        for i, (size, own) in enumerate(zip(indices.shape, data.shape, strict=True))
    )
    return ops.take_along_axis(data[part], indices, axis=axis)


def grid(shape: tuple[Any, ...], count: int) -> list[Any]:
    """The indices along the first axes of a shape, broadcastable against each other."""
    found = []
    for axis in range(count):
        sizes = [1] * len(shape)
        sizes[axis] = shape[axis]
        found.append(ops.reshape(ops.arange(shape[axis], dtype="int64"), tuple(sizes)))
    return found


@operator("GatherND")
def gather_nd(call: Call, data: Any, indices: Any, batch_dims: int = 0) -> Any:
    """Slices of a tensor at positions given by rows of indices."""
    if not batch_dims:
        return ops.gather_nd(data, indices)
    if batch_dims >= min(data.ndim, indices.ndim) or batch_dims < 0:
        call.refuse(f"{batch_dims} axes of a batch")
    around = grid(indices.shape[:-1], batch_dims)
    along = [indices[..., i] for i in range(indices.shape[-1])]
    return data[(*around, *along)]


_REDUCTIONS = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}


def _updated(call: Call, data: Any, index: tuple[Any, ...], updates: Any, reduction: str) -> Any:
    if reduction not in _REDUCTIONS:
        call.refuse(f"the reduction {reduction!r}")
    if data.dtype == bool and reduction != "none":
        call.refuse("reductions of bools")
    return getattr(data.at[index], _REDUCTIONS[reduction])(updates)


@operator("ScatterElements", "Scatter")
def scatter_elements(
    call: Call, data: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "none"
) -> Any:
    """Elements scattered to positions along an axis, with matching indices on the other axes."""
    axis = normalize_axis(axis, data.ndim)
    index = grid(indices.shape, indices.ndim)
    index[axis] = indices
    return _updated(call, data, tuple(index), updates, reduction)


@operator("ScatterND")
def scatter_nd(call: Call, data: Any, indices: Any, updates: Any, reduction: str = "none") -> Any:
    """Slices scattered to positions given by rows of indices."""
    index = tuple(indices[..., i] for i in range(indices.shape[-1]))
    return _updated(call, data, index, updates, reduction)


@operator("TensorScatter")
def tensor_scatter(
    call: Call,
    past_cache: Any,
    update: Any,
    write_indices: Any = None,
    axis: int = -2,
    mode: str = "linear",
) -> Any:
    """Slices written into a cache from a position on, separate for each example of a batch."""
    axis = normalize_axis(axis, past_cache.ndim)
    batch, length = update.shape[0], update.shape[axis]
    starts = ops.zeros((batch,), dtype="int64") if write_indices is None else write_indices
    places = ops.reshape(starts, (batch, 1)) + ops.arange(length, dtype="int64")
    if mode == "circular":
        places = ops.remainder(places, past_cache.shape[axis])
    moved = ops.moveaxis(past_cache, axis, 1)
    rows = ops.reshape(ops.arange(batch, dtype="int64"), (batch, 1))
    written = moved.at[rows, places].set(ops.moveaxis(update, axis, 1))
    return ops.moveaxis(written, 1, axis)


@operator("OneHot")
def one_hot(call: Call, indices: Any, depth: Any, values: Any, axis: int = -1) -> Any:
    """A new axis with one value at the index, and another elsewhere."""
    count = int(known_number(depth))
    axis = normalize_axis(axis, indices.ndim + 1)
    places = [1] * (indices.ndim + 1)
    places[axis] = count
    indices = ops.expand_dims(indices, axis)
    at = ops.where(indices < 0, indices + count, indices)
    numbers = ops.astype(ops.reshape(ops.arange(count, dtype="int64"), tuple(places)), at.dtype)
    return ops.where(ops.equal(at, numbers), values[1], values[0])


@operator("Compress")
def compress(call: Call, x: Any, condition: Any, axis: int | None = None) -> Any:
    """The slices for which a condition is true."""
    places = np.flatnonzero(known(condition))
    return ops.take(x if axis is not None else ops.reshape(x, (-1,)), places, axis=axis or 0)


@operator("NonZero")
def non_zero(call: Call, x: Any) -> Any:
    """The positions of all nonzero elements, one per column."""
    values = known(x)
    found = np.nonzero(np.atleast_1d(values))
    return np.stack(found).astype("int64")[: values.ndim]


@operator("ReverseSequence")
def reverse_sequence(
    call: Call, x: Any, sequence_lens: Any, batch_axis: int = 1, time_axis: int = 0
) -> Any:
    """Each example with its first steps reversed."""
    axes = (batch_axis, time_axis)
    rows = ops.moveaxis(x, axes, (0, 1))
    steps = ops.arange(rows.shape[1], dtype="int64")
    lengths = ops.reshape(sequence_lens, (-1, 1))
    places = ops.where(steps < lengths, lengths - 1 - steps, steps)
    batch = ops.reshape(ops.arange(rows.shape[0], dtype="int64"), (-1, 1))
    return ops.moveaxis(rows[batch, places], (0, 1), axes)
