"""Reductions: sum and its relatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dtypes import BOOL, INTEGERS, STANDARD
from eagerflow.op import Onnx
from eagerflow.ops.family import expand_reduced, reduction
from eagerflow.ops.samples import reduced
from eagerflow.ops.shape import broadcast_to
from eagerflow.spec import normalize_axes

__all__ = ["sum"]


def sum_dtype(dtype: Any) -> Any:
    """Sums of bools and of small integers are 64 bits wide, as the standard has it."""
    if dtype not in BOOL | INTEGERS:
        return dtype
    return np.dtype("uint64" if dtype.kind == "u" else "int64")


def along(function: Any) -> Any:
    """A reference that applies ``function`` of a list of Python numbers to each reduced row."""

    def reference(x: Any, axis: Any, keepdims: bool, **more: Any) -> Any:
        axes = normalize_axes(axis, x.ndim)
        kept = [i for i in range(x.ndim) if i not in axes]
        rows = x.transpose(kept + list(axes)).reshape(
            *(x.shape[i] for i in kept), math.prod(x.shape[i] for i in axes)
        )
        out = np.empty(rows.shape[:-1], object)
        for at in np.ndindex(out.shape):
            out[at] = function(rows[at].tolist())
        if keepdims:
            out = out.reshape([1 if i in axes else n for i, n in enumerate(x.shape)])
        return out.astype(np.result_type(*out.ravel().tolist()) if out.size else x.dtype)

    return reference


@reduction(
    dtypes=STANDARD,
    result=sum_dtype,
    combine="add",
    direct=lambda xp: xp.add.reduce,
    vjp=(
        lambda g, y, x, axis, keepdims: broadcast_to(expand_reduced(g, x, axis, keepdims), x.shape),
    ),
    jvp="linear",
    onnx=Onnx("ReduceSum"),
    samples=reduced(),
    reference=along(sum),
)
def sum(xp: Any, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Sum of the elements over axes.

    ``x`` is a tensor of any shape, ``axis`` an integer, a tuple of integers or None for all
    axes; ``keepdims`` keeps reduced axes with size 1. Integers and bools are summed in 64
    bits; the sum of nothing is 0. Raises ShapeError for an axis that does not exist.

    >>> ef.sum(ef.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=-1, keepdims=True)
    Tensor([[3.],
            [7.]], shape=(2, 1), float32, cpu:0)
    """
    return xp.sum(x, axis=axis, keepdims=keepdims)
