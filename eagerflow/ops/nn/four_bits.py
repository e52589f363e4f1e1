"""Four bits: two numbers from -8 to 7 in each byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.dtypes import as_dtype
from eagerflow.errors import ShapeError
from eagerflow.op import Missing
from eagerflow.ops.family import batch_along_axis, define, split_others
from eagerflow.ops.nn.quantization import BLOCKED_OPSET
from eagerflow.spec import TensorSpec, normalize_axis

__all__ = ["pack_int4", "unpack_int4"]


def _packed_spec(x: TensorSpec, axis: int) -> TensorSpec:
    at = normalize_axis(axis, x.ndim)
    size = x.shape[at]
    if isinstance(size, int) and size % 2:
        raise ShapeError(
            f"{size} numbers along axis {axis} are no pairs",
            argument="x",
            expected="an even number of them",
        )
    return x.like((*x.shape[:at], size // 2, *x.shape[at + 1 :]), "uint8")


def _unpacked_spec(x: TensorSpec, axis: int) -> TensorSpec:
    at = normalize_axis(axis, x.ndim)
    return x.like((*x.shape[:at], 2 * x.shape[at], *x.shape[at + 1 :]), "int8")


def _unpack_operator(w: Any, x: Any, *, axis: int) -> Any:
    known = w.array_of(x)
    if known is None or w.opset < BLOCKED_OPSET:
        return w.traced(lambda x: _unpacked(w.xp, x, axis), x)
    return w.unpacked(x, _unpacked(np, known, axis))


def _unpacked(xp: Any, x: Any, axis: int) -> Any:
    at = normalize_axis(axis, x.ndim)
    pairs = xp.stack([x & 15, x // 16], axis=at + 1)
    pairs = xp.reshape(pairs, (*x.shape[:at], 2 * x.shape[at], *x.shape[at + 1 :]))
    return (pairs ^ 8).astype(np.int8) - 8  # the highest of the four bits counts -8


def _bits(**facts: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An op that packs, or unpacks, along an axis."""
    return define(
        "quantization",
        vjp=Missing("integers have no gradient"),
        batch=batch_along_axis,
        split=split_others,
        **facts,
    )


@_bits(dtypes=frozenset({as_dtype("int8")}), infer=_packed_spec)
def pack_int4(xp: Any, x: Any, /, axis: int = -1) -> Any:
    """Numbers of 4 bits, from -8 to 7, two in each byte.

    ``x`` is an int8 tensor with an even number of elements along ``axis``; the result, of uint8,
    has half as many: the first of each two is in the lower bits. Higher bits of larger numbers
    are lost. Raises ShapeError for an odd number.

    >>> ef.pack_int4(ef.tensor([1, -1, 7, -8], "int8"))
    Tensor([241, 135], uint8, cpu:0)
    """
    at = normalize_axis(axis, x.ndim)
    pairs = xp.reshape(x, (*x.shape[:at], x.shape[at] // 2, 2, *x.shape[at + 1 :])).astype(np.uint8)
    low, high = (pairs[(*[slice(None)] * (at + 1), i)] for i in (0, 1))
    return (low & 15) + (high & 15) * 16


@_bits(dtypes=frozenset({as_dtype("uint8")}), infer=_unpacked_spec, onnx=_unpack_operator)
def unpack_int4(xp: Any, x: Any, /, axis: int = -1) -> Any:
    """The numbers that ``pack_int4`` has packed.

    ``x`` is a uint8 tensor; the result, of int8, has twice as many elements along ``axis``.

    >>> ef.unpack_int4(ef.tensor([241, 135], "uint8"))
    Tensor([ 1, -1,  7, -8], int8, cpu:0)
    """
    return _unpacked(xp, x, axis)
