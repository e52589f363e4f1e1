"""Slices of tensors, read and updated at static or computed positions.

The signatures are Keras's, which compares them, so they lack annotations.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import eagerflow as ef
from eagerflow.keras.backend.tensors import convert_to_tensor
from eagerflow.keras.sparse import is_concrete

__all__ = ["scatter", "scatter_update", "slice", "slice_update", "unstack"]

_METHODS = {None: "set", "add": "add", "max": "max", "min": "min", "mul": "multiply"}


def scatter(indices, values, shape):
    """Zeros of this shape with ``values`` added at ``indices``, whose last axis is a position."""
    values = convert_to_tensor(values)
    zeros = ef.zeros(tuple(int(n) for n in shape), dtype=values.dtype)
    return _updated(zeros, indices, values, "add")


def scatter_update(inputs, indices, updates, reduction=None):
    """``inputs`` with ``updates`` assigned, or combined by ``reduction``, at ``indices``."""
    if reduction not in _METHODS:
        raise ValueError(f"Unsupported reduction: {reduction}")
    inputs = convert_to_tensor(inputs)
    return _updated(inputs, indices, convert_to_tensor(updates, inputs.dtype), _METHODS[reduction])


def _updated(x: ef.Tensor, indices: Any, updates: ef.Tensor, method: str) -> ef.Tensor:
    indices = convert_to_tensor(indices)
    index = tuple(indices[..., i] for i in range(indices.shape[-1]))
    found: ef.Tensor = getattr(x.at[index], method)(updates)
    return found


def slice(inputs, start_indices, shape):
    """The slice of this shape that begins at ``start_indices``; a size of -1 is the remainder.

    As in JAX, a slice that would exceed the end begins earlier.
    """
    x = convert_to_tensor(inputs)
    starts, sizes = list(_parts(start_indices)), [int(n) for n in shape]
    if len(starts) != len(sizes):
        raise ValueError(
            "Length of `start_indices` must match length of `shape`. "
            f"Received: start_indices={start_indices}, shape={shape}"
        )
    sizes = [x.shape[i] - starts[i] if n == -1 else n for i, n in enumerate(sizes)]
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if isinstance(start, int):
            begin = min(start, x.shape[axis] - size) if start >= 0 else start
            stop = begin + size if begin >= 0 or begin + size < 0 else None
            x = x[(builtins.slice(None),) * axis + (builtins.slice(begin, stop),)]
        elif size != x.shape[axis]:
            x = ef.take(x, _places(start, size, x.shape[axis]), axis=axis)
    return x


def slice_update(inputs, start_indices, updates):
    """``inputs`` with the slice that begins at ``start_indices`` replaced by ``updates``."""
    x = convert_to_tensor(inputs)
    new = convert_to_tensor(updates, x.dtype)
    starts = list(_parts(start_indices))
    if all(isinstance(start, int) for start in starts):
        firsts = [min(s, n - k) for s, n, k in zip(starts, x.shape, new.shape, strict=True)]
        index: Any = tuple(builtins.slice(s, s + k) for s, k in zip(firsts, new.shape, strict=True))
    else:
        index = tuple(
            ef.reshape(
                _places(start, size, length), (1,) * axis + (size,) + (1,) * (x.ndim - axis - 1)
            )
            for axis, (start, size, length) in enumerate(
                zip(starts, new.shape, x.shape, strict=True)
            )
        )
    found: ef.Tensor = x.at[index].set(new)
    return found


def _parts(starts: Any) -> Sequence[Any]:
    """One start for each axis: Python integers if they are known, otherwise tensors."""
    if hasattr(starts, "shape"):
        starts = convert_to_tensor(starts, "int64")
        starts = [starts[i] for i in range(starts.shape[0])]
    return [_known(start) for start in starts]


def _known(start: Any) -> Any:
    if not hasattr(start, "shape"):
        return int(start)
    tensor = ef.reshape(convert_to_tensor(start, "int64"), ())
    return int(tensor) if is_concrete(tensor) else tensor


def _places(start: Any, size: int, length: int) -> ef.Tensor:
    """Consecutive positions from ``start`` on, shifted to lie within an axis."""
    first = ef.clip(convert_to_tensor(start, "int64"), 0, length - size)
    found: ef.Tensor = first + ef.arange(size, dtype="int64")
    return found


def unstack(x, num=None, axis=0):
    """The slices of ``x`` along an axis, which is removed."""
    x = convert_to_tensor(x)
    axis = axis + x.ndim if axis < 0 else axis
    before = (builtins.slice(None),) * axis
    return [x[(*before, i)] for i in range(x.shape[axis])]
