"""Operators that order elements: top k, and unique elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow import ops
from eagerflow.onnx.reading.calls import Call, known, known_number, operator
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor


def _register_arg(name: str, op: Any) -> None:
    @operator(name)
    def where(
        call: Call, x: Any, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Any:
        axis = normalize_axis(axis, x.ndim)
        if not select_last_index:
            return op(x, axis=axis, keepdims=bool(keepdims))
        found = op(ops.flip(x, axis=axis), axis=axis, keepdims=bool(keepdims))
        return x.shape[axis] - 1 - found


_register_arg("ArgMax", ops.argmax)
_register_arg("ArgMin", ops.argmin)


@operator("TopK")
def top_k(
    call: Call,
    x: Any,
    k: Any,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements along an axis, in order, and their indices."""
    count = int(known_number(k))
    axis = normalize_axis(axis, x.ndim)
    if largest:
        return ops.top_k(x, count, axis=axis)
    part = (slice(None),) * axis + (slice(0, count),)
    if isinstance(x.shape[axis], int) and not 0 <= count <= x.shape[axis]:
        call.refuse(f"{count} elements of an axis of {x.shape[axis]}")
    places = ops.argsort(x, axis=axis)[part]
    return ops.take_along_axis(x, places, axis=axis), places


@operator("Unique")
def unique(call: Call, x: Any, axis: int | None = None, sorted: int = 1) -> tuple[Any, ...]:
    """The unique elements or slices, their first indices, the inverse indices, and the counts."""
    values = known(x)
    found, first, inverse, counts = np.unique(
        values, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        found = np.take(found, order, axis=axis or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return found, first.astype("int64"), inverse.astype("int64"), counts.astype("int64")
