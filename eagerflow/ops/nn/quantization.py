"""Quantization: numbers as small integers times a scale, and back.

The formulas are those of ONNX's QuantizeLinear and DequantizeLinear. Scales and zero points
broadcast: one number serves a whole tensor, and numbers of the shape (..., 1, ...) its axes or,
where a tensor was reshaped to groups, its groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.codegen.instructions import value_type
from eagerflow.dtypes import FLOATS, INTEGERS, DType, as_dtype
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.op import Cost, Missing
from eagerflow.ops.attributes import DTypeLike
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import multiply, subtract
from eagerflow.ops.elementwise.comparison import equal
from eagerflow.ops.elementwise.rounding import round as rounded
from eagerflow.ops.elementwise.selection import clip, maximum, minimum, where
from eagerflow.ops.family import Batch, batch_elementwise, define, elements, split_elementwise
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.reductions.sums import min as smallest
from eagerflow.ops.shapes.reshaping import unbroadcast
from eagerflow.spec import TensorSpec, broadcast
from eagerflow.tensor import Tensor

__all__ = ["dequantize", "dynamic_quantize", "quantize"]

QUANTIZED = frozenset(as_dtype(x) for x in ("int8", "uint8", "int16", "uint16"))
"""Dtypes that floats are quantized to."""
STORED = QUANTIZED | {as_dtype("int32")}
"""Dtypes of ``dequantize``: sums, and biases, have 32 bits."""
WIDENING = frozenset({"dequantize", "unpack_int4"})
"""Ops that are not folded, as their results are larger than their stored form."""
BLOCKED_OPSET = 21  # of ONNX, from which groups have separate scales


def _like_first(x: TensorSpec, *others: TensorSpec | None) -> None:
    """Refuse scales and zero points that do not broadcast to a tensor."""
    for name, other in zip(("scale", "zero_point"), others, strict=True):
        if other is not None and broadcast(x.shape, other.shape) != x.shape:
            raise ShapeError(
                f"{name} of shape {other.shape} does not broadcast to {x.shape}",
                argument=name,
                expected="a number, or sizes that are 1 or those of x, from the last axis on",
            )


def _target(dtype: Any, zero_point: Any) -> DType:
    """The dtype of the result: the requested one, that of the zero point, or int8."""
    if dtype is None:
        dtype = "int8" if zero_point is None else str(zero_point.dtype)
    return as_dtype(dtype)


def _quantized_spec(
    x: TensorSpec, scale: TensorSpec, zero_point: TensorSpec | None = None, *, dtype: Any
) -> TensorSpec:
    _like_first(x, scale, zero_point)
    wanted = _target(dtype, zero_point)
    if wanted not in QUANTIZED:
        raise DTypeError(
            f"{wanted.name} is not for quantized numbers",
            argument="dtype",
            expected=", ".join(sorted(d.name for d in QUANTIZED)),
        )
    return x.like(dtype=wanted)


def _dequantized_spec(
    x: TensorSpec, scale: TensorSpec, zero_point: TensorSpec | None = None
) -> TensorSpec:
    _like_first(x, scale, zero_point)
    return x.like(dtype=scale.dtype)


def _split(*specs: TensorSpec | None, **attributes: Any) -> Any:
    return split_elementwise(*[0 if spec is None else spec for spec in specs])


def _batched(call: Any, args: Any, batched: Any, size: int, **attributes: Any) -> Any:
    x, *rest = args
    if not batched[0]:  # the result is like it
        x = x.broadcast_to((size, *x.shape))
    return batch_elementwise(call, (x, *rest), (True, *batched[1:]), size, **attributes)


def _cost(*specs: Any, **attributes: Any) -> Cost:
    return elements(*specs, flops=4)


# ONNX --------------------------------------------------------------------------------------------


def _placed(w: Any, x: Any, scale: Any, *others: Any) -> tuple[list[Any], dict[str, Any]] | None:
    """Scales in ONNX's form: of a tensor, of an axis, of blocks; None for other shapes."""
    shape = (1,) * (x.ndim - scale.ndim) + scale.shape
    shapes = {(1,) * (x.ndim - y.ndim) + y.shape for y in others if y is not None}
    if shapes - {shape}:
        return None
    axes = [i for i, n in enumerate(shape) if n != 1]
    alone = [i for i, n in enumerate(shape) if n == 1 != x.shape[i]]
    form: tuple[Any, ...]
    if not axes:
        form, where = (), {}
    elif len(axes) == 1 and shape[axes[0]] == x.shape[axes[0]]:
        form, where = (shape[axes[0]],), {"axis": axes[0]}
    elif len(alone) == 1 and isinstance(x.shape[alone[0]], int) and w.opset >= BLOCKED_OPSET:
        form, where = shape, {"axis": alone[0], "block_size": x.shape[alone[0]]}
    else:
        return None
    found = [y if y is None else w.reshaped(y, form) for y in (scale, *others)]
    return found, where


def _quantize_operator(w: Any, x: Any, scale: Any, zero: Any = None, *, dtype: Any) -> Any:
    wanted = _target(dtype, zero)
    if zero is None:
        zero = w.constant(np.zeros(scale.shape, wanted))
    zero = w.cast(zero, wanted)
    found = _placed(w, x, scale, zero)
    if x.dtype == "float32" and found is not None and _is_common(w, wanted):
        (scale, zero), where = found
        return w.QuantizeLinear(x, scale, zero, dtype=wanted, **where)
    kind = w.computable(x).dtype
    x, scale, zero = (w.cast(y, kind) for y in (x, scale, zero))
    y = w.Add(w.Round(w.Div(x, scale)), zero)
    limits = np.iinfo(wanted)
    low, high = (w.constant(n, kind) for n in (limits.min, limits.max))
    y = w.Where(w.Greater(y, low, dtype="bool"), y, low, dtype=kind)  # the low end for NaN
    return w.cast(w.Min(y, high), wanted)


def _dequantize_operator(w: Any, x: Any, scale: Any, zero: Any = None) -> Any:
    if zero is not None:
        zero = w.cast(zero, x.dtype)
    found = _placed(w, x, scale, zero)
    common = _is_common(w, x.dtype) or (x.dtype == "int32" and zero is None)
    if scale.dtype == "float32" and found is not None and common:
        (scale, zero), where = found
        return w.DequantizeLinear(w.narrow(x), scale, zero, dtype=scale.dtype, **where)
    kind = w.computable(scale).dtype
    y = w.cast(x, kind)
    if zero is not None:
        y = w.Sub(y, w.cast(zero, kind))
    return w.Mul(y, w.cast(scale, kind))


def _is_common(w: Any, dtype: DType) -> bool:
    """Whether ONNX's operators support a dtype; 16 bits were added with blocks."""
    return dtype.itemsize == 1 or (dtype.itemsize == 2 and w.opset >= BLOCKED_OPSET)


# The ops -----------------------------------------------------------------------------------------


def _kind(x: Any) -> str:
    """The type that numbers of a type are computed in."""
    return value_type(str(x.dtype))


def _op(**facts: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An op defined by its formula, in scalar instructions."""

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        own: dict[str, Any] = {"batch": Batch(_batched), "split": _split, "cost": _cost}
        more: dict[str, Any] = {"aliases": False, "keeps_order": True, "scalar": body}
        return define("quantization", **own, **more, **facts)(body)

    return decorate


@_op(
    dtypes=(FLOATS, FLOATS, INTEGERS),
    together=(0, 1),
    infer=_quantized_spec,
    vjp=Missing("integers have no gradient"),
    onnx=_quantize_operator,
)
def quantize(
    s: Any, x: Any, scale: Any, zero_point: Any = None, /, *, dtype: DTypeLike = None
) -> Any:
    """``round(x / scale) + zero_point`` as small integers, clipped to their range.

    ``x`` is a float tensor. ``scale``, floats above 0, and ``zero_point``, integers in the range of
    ``dtype``, or None for 0, broadcast to it. ``dtype`` is int8, uint8, int16 or uint16; by default
    that of the zero point, and int8 without one. Halves are rounded to the even number; NaN becomes
    the smallest one. Raises ShapeError where scales do not broadcast, DTypeError for other dtypes.
    ONNX's QuantizeLinear.

    >>> ef.quantize(ef.tensor([-9.0, 0.25, 0.75, 1.0]), 0.5)
    Tensor([-18,   0,   2,   2], int8, cpu:0)
    """
    wanted = _target(dtype, zero_point)
    limits = np.iinfo(wanted)
    y = s.round(s.divide(x, scale))
    if zero_point is not None:
        y = s.add(y, s.convert(zero_point, _kind(x)))
    low, high = float(limits.min), float(limits.max)
    y = s.select(s.greater(y, low), y, low)
    return s.convert(s.minimum(y, high), wanted.name)


def _to_scale(g: Any, y: Any, x: Any, scale: Any, zero_point: Any) -> Any:
    steps = astype(x, scale.dtype)
    if zero_point is not None:
        steps = subtract(steps, astype(zero_point, scale.dtype))
    return unbroadcast(multiply(g, steps), scale.shape)


@_op(
    dtypes=(STORED, FLOATS, STORED),
    together=(),
    infer=_dequantized_spec,
    vjp=(lambda *_: None, _to_scale, lambda *_: None),
    saves="x zero_point",
    onnx=_dequantize_operator,
)
def dequantize(s: Any, x: Any, scale: Any, zero_point: Any = None, /) -> Any:
    """``(x - zero_point) * scale``, in the dtype of the scale.

    ``x`` is a tensor of int8, uint8, int16, uint16 or int32. ``scale``, floats, and
    ``zero_point``, integers like those of ``x``, or None for 0, broadcast to it. Raises ShapeError
    where they do not, DTypeError for other dtypes. ONNX's DequantizeLinear.

    >>> ef.dequantize(ef.tensor([-128, 0, 127], "int8"), 0.5, ef.tensor(-128, "int8"))
    Tensor([  0. ,  64. , 127.5], float32, cpu:0)
    """
    kind = _kind(scale)
    y = s.convert(x, kind)
    if zero_point is not None:
        y = s.subtract(y, s.convert(zero_point, kind))
    return s.convert(s.multiply(y, s.convert(scale, kind)), str(scale.dtype))


def needed_scale(low: Any, high: Any) -> tuple[Any, Any]:
    """The scale and the zero point with which uint8 holds all between two numbers, and 0."""
    low, high = minimum(low, 0), maximum(high, 0)
    scale = where(equal(high, low), 1, subtract(high, low)) / 255
    return scale, astype(rounded(clip(-low / scale, 0, 255)), "uint8")


def symmetric_scale(low: Any, high: Any) -> Any:
    """The scale with which int8, without a zero point, holds all between two numbers."""
    most = maximum(high, -low)
    return where(equal(most, 0), 1, most) / 127


def dynamic_quantize(x: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A float tensor as uint8, and the scale and the zero point that its range, with 0, needs.

    ``x`` is a float tensor with at least one element. Returns three tensors: ``quantize(x, scale,
    zero_point, dtype="uint8")``, ``scale`` and ``zero_point``, which have no axes. ONNX's
    DynamicQuantizeLinear. Raises ShapeError where ``x`` is empty.

    >>> ef.dynamic_quantize(ef.tensor([-1.0, 0.0, 1.55]))
    (Tensor([  0, 100, 255], uint8, cpu:0), Tensor(0.01, float32, cpu:0), \
Tensor(100, uint8, cpu:0))
    """
    scale, zero = needed_scale(smallest(x), largest(x))
    return quantize(x, scale, zero, dtype="uint8"), scale, zero
