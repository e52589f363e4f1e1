"""Four bits: two numbers from -8 to 7 in each byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.dtypes import DType, as_dtype
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.op import ErrorSample, Missing, Sample
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


def _pairs(step: int) -> Callable[..., list[Sample]]:
    """Samples of tensors with an axis of ``step`` times some size."""

    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        limits = np.iinfo(dtype)
        found = []
        for shape, axis in ((4,), 0), ((2, 3), 0), ((3, 2, 5), -2), ((0, 2), 0), ((2, 0), 1):
            sizes = list(shape)
            sizes[axis] *= step
            low, high = (-8, 7) if step == 2 else (limits.min, limits.max)
            x = rng.integers(low, high, sizes, endpoint=True).astype(dtype)
            found.append(Sample((x,), {"axis": axis}))
        x = rng.integers(-8, 7, (4, 6), endpoint=True).astype(np.int8).view(dtype)
        return [*found, Sample((x.T[:, ::-1],), {"axis": 0})]

    return samples


def _packed_reference(x: Any, axis: int) -> Any:
    """Pair by pair, in Python's integers."""
    x = np.moveaxis(x, axis, 0)
    out = np.zeros((len(x) // 2, *x.shape[1:]), np.uint8)
    for at in np.ndindex(*out.shape):
        low, high = (int(x[(2 * at[0] + i, *at[1:])]) % 16 for i in (0, 1))
        out[at] = low + 16 * high
    return np.moveaxis(out, 0, axis)


def _unpacked_reference(x: Any, axis: int) -> Any:
    x = np.moveaxis(x, axis, 0)
    out = np.zeros((2 * len(x), *x.shape[1:]), np.int8)
    for at in np.ndindex(*x.shape):
        for i, four in enumerate((int(x[at]) % 16, int(x[at]) // 16)):
            out[(2 * at[0] + i, *at[1:])] = four - 16 * (four > 7)
    return np.moveaxis(out, 0, axis)


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
    own: dict[str, Any] = {"vjp": Missing("integers have no gradient"), "batch": batch_along_axis}
    return define("quantization", split=split_others, errors=_axis_errors, **own, **facts)


def _axis_errors(rng: np.random.Generator) -> list[ErrorSample]:
    x = rng.integers(0, 7, (2, 4))
    return [ErrorSample((x * 0.5,), {"axis": 0}, DTypeError, "float")]


@_bits(
    dtypes=frozenset({as_dtype("int8")}),
    infer=_packed_spec,
    samples=_pairs(2),
    reference=_packed_reference,
)
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


@_bits(
    dtypes=frozenset({as_dtype("uint8")}),
    infer=_unpacked_spec,
    onnx=_unpack_operator,
    samples=_pairs(1),
    reference=_unpacked_reference,
)
def unpack_int4(xp: Any, x: Any, /, axis: int = -1) -> Any:
    """The numbers that ``pack_int4`` has packed.

    ``x`` is a uint8 tensor; the result, of int8, has twice as many elements along ``axis``.

    >>> ef.unpack_int4(ef.tensor([241, 135], "uint8"))
    Tensor([ 1, -1,  7, -8], int8, cpu:0)
    """
    return _unpacked(xp, x, axis)
