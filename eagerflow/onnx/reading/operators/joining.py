"""Operators that concatenate and split tensors."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from eagerflow import ops
from eagerflow.onnx.reading.calls import Call, known_list, known_number, operator
from eagerflow.onnx.reading.sizing import with_sizes
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

MAX_PARTS = 2**16
"""The limit of a sequence, as each element is a node of the graph."""


@operator("Concat", takes_sizes=True)
@with_sizes(lambda *xs, axis: np.concatenate(xs, axis))
def concat(call: Call, *xs: Any, axis: int) -> Any:
    """The tensors concatenated along an axis."""
    return ops.concat(xs, axis=axis) if len(xs) > 1 else xs[0]


def cut(call: Call, x: Tensor, parts: list[int], axis: int) -> tuple[Tensor, ...]:
    """A tensor split into parts of these sizes."""
    if sum(parts) != x.shape[axis] or min(parts, default=0) < 0:
        call.refuse(f"parts of {parts} for an axis of {x.shape[axis]}")
    if len(parts) == 1:
        return (x,)
    return tuple(ops.split(x, tuple(accumulate(parts[:-1])), axis=axis))


@operator("Split", takes_sizes=False)
def split(
    call: Call, x: Any, split: Any = None, axis: int = 0, num_outputs: int | None = None
) -> tuple[Tensor, ...]:
    """Parts of given sizes, or equal parts, one for each output."""
    axis = normalize_axis(axis, x.ndim)
    parts = known_list(split)
    if parts is None:
        count = len(call.outputs)
        if num_outputs not in (None, count):
            call.refuse(f"{num_outputs} parts for {count} outputs")
        whole = x.shape[axis]
        each = whole // count if num_outputs is None else -(-whole // count)
        if num_outputs is None and each * count != whole:
            call.refuse(f"{count} equal parts of an axis of {whole}")
        parts = [each] * (count - 1) + [whole - each * (count - 1)]
    return cut(call, x, parts, axis)


@operator("SplitToSequence")
def split_to_sequence(
    call: Call, x: Any, split: Any = None, axis: int = 0, keepdims: int = 1
) -> list[Tensor]:
    """The parts of a tensor as a sequence; a single number is the size of all but the last."""
    axis = normalize_axis(axis, x.ndim)
    whole = x.shape[axis]
    if whole > MAX_PARTS:
        call.refuse(f"a sequence of up to {whole} parts")
    if split is None:
        parts = [1] * int(whole)
    elif getattr(split, "ndim", 1) == 0:
        each = int(known_number(split))
        if each < 1:
            call.refuse(f"parts of {each}")
        parts = [min(each, whole - at) for at in range(0, whole, each)]
    else:
        parts = known_list(split)
    found = list(cut(call, x, parts, axis)) if parts else []
    return found if keepdims or split is not None else [ops.squeeze(p, (axis,)) for p in found]


@operator("ConcatFromSequence")
def concat_from_sequence(call: Call, xs: list[Any], axis: int, new_axis: int = 0) -> Any:
    """The tensors of a sequence, concatenated along an axis or stacked along a new one."""
    if not xs:
        call.refuse("a sequence without tensors")
    if new_axis:
        return ops.stack(xs, axis=axis)
    return ops.concat(xs, axis=axis) if len(xs) > 1 else xs[0]
