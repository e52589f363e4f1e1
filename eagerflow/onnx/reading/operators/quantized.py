"""Quantized tensors: small integers or 8-bit floats, times a scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow import ops
from eagerflow.dtypes import FLOAT8, DType, as_dtype
from eagerflow.onnx.reading.calls import Call, operator
from eagerflow.onnx.reading.element_types import dtype_of
from eagerflow.ops.linear_algebra.integer_products import BYTES, integer_product
from eagerflow.ops.nn.quantization import QUANTIZED, STORED

_WIDE_FLOATS = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
"""The largest finite values of 8-bit floats."""


def without_zero_point(x: Any, zero: Any, dtype: str) -> Any:
    """``x - zero`` in a dtype that represents all differences."""
    x = ops.astype(x, dtype)
    return x if zero is None else x - ops.astype(zero, dtype)


def saturated(x: Any, zero: Any, dtype: DType) -> Any:
    """Floats rounded to integers (half to even), ``zero`` added, clipped to the dtype's range."""
    if dtype in FLOAT8:
        limit = _WIDE_FLOATS[dtype.name]
        return ops.astype(ops.clip(x, -limit, limit), dtype)
    limits = np.iinfo(dtype)
    if x.dtype != as_dtype("float64"):
        x = ops.astype(x, "float32")
    x = ops.round(x)
    if zero is not None:
        x = x + ops.astype(zero, x.dtype)
    return ops.astype(ops.clip(x, limits.min, limits.max), dtype)


def requantized(y: Any, scale: Any, zero: Any) -> Any:
    """Exact sums ``y`` in float64, times ``scale``, in the dtype of the zero point ``zero``."""
    return saturated(y * ops.astype(scale, "float64"), zero, zero.dtype)


# Scales ------------------------------------------------------------------------------------------


def _along(call: Call, scale: Any, x: Any, axis: int, block: int) -> Any:
    """A scale or zero point, per tensor, per axis or per block, broadcast against ``x``."""
    if scale is None or scale.ndim == 0 or (scale.ndim == 1 and scale.shape[0] == 1 and not block):
        return scale if scale is None else ops.reshape(scale, ())
    if not -x.ndim <= axis < x.ndim:
        call.refuse(f"the tensor of {x.ndim} axes has no axis {axis}")
    axis %= x.ndim
    if block and scale.ndim == x.ndim and scale.shape[axis] == 1:
        return scale  # a single block
    if block:
        wide = ops.repeat(scale, int(block), axis=axis)
        part = [slice(None)] * x.ndim
        part[axis] = slice(0, x.shape[axis])
        return wide if wide.shape == x.shape else wide[tuple(part)]
    if scale.ndim != 1:
        call.refuse(f"a scale of {scale.ndim} axes without a block_size")
    return ops.reshape(scale, (*[1] * axis, -1, *[1] * (x.ndim - axis - 1)))


@operator("QuantizeLinear")
def quantize_linear(
    call: Call,
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    saturate: int = 1,
    output_dtype: int = 0,
    precision: int = 0,
) -> Any:
    """``round(x / scale) + zero``, clipped to the dtype's range."""
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype or 2)
    if dtype not in FLOAT8 and dtype.kind not in "iu":
        call.refuse(f"quantized tensors of {dtype.name}")
    scale = _along(call, scale, x, axis, block_size)
    if dtype in QUANTIZED and x.dtype == scale.dtype == "float32" and not precision:
        return ops.quantize(x, scale, _along(call, zero, x, axis, block_size), dtype=dtype)
    if precision:
        x, scale = (ops.astype(t, dtype_of(precision)) for t in (x, scale))
    elif x.dtype.kind in "iu":
        x, scale = ops.astype(x, "float64"), ops.astype(scale, "float64")
    y = x / scale
    if dtype in FLOAT8:
        return saturated(y, None, dtype) if saturate else ops.astype(y, dtype)
    return saturated(y, _along(call, zero, x, axis, block_size), dtype)


@operator("DequantizeLinear", pure=False)
def dequantize_linear(
    call: Call,
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    """``(x - zero) * scale``."""
    dtype = dtype_of(output_dtype) if output_dtype else scale.dtype
    wide = _along(call, scale, x, axis, block_size)
    if x.dtype in STORED:
        zero = _along(call, zero, x, axis, block_size)
        return ops.astype(ops.dequantize(x, ops.astype(wide, "float32"), zero), dtype)
    # The zero point of 8-bit floats is 0.
    zero = None if x.dtype in FLOAT8 else _along(call, zero, x, axis, block_size)
    y = without_zero_point(x, zero, "float32") * ops.astype(wide, "float32")
    return ops.astype(y, dtype)


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(call: Call, x: Any) -> Any:
    """A tensor as uint8, with the scale and the zero point for its range."""
    return ops.dynamic_quantize(x)


# Products ----------------------------------------------------------------------------------------


def _per_row(zero: Any) -> Any:
    """A zero point for each row of a matrix, as a column."""
    if zero is None or zero.ndim != 1:
        return zero
    return ops.reshape(zero, ()) if zero.shape[0] == 1 else ops.expand_dims(zero, -1)


def _per_column(zero: Any) -> Any:
    """A zero point of a matrix, or one for each column."""
    return ops.reshape(zero, ()) if zero is not None and zero.shape == (1,) else zero


def _exact(a: Any, b: Any, a_zero: Any, b_zero: Any, dtype: str) -> Any:
    """The product of quantized matrices, from exact sums."""
    if a.dtype in BYTES and b.dtype in BYTES:
        return ops.astype(integer_product(a, b, _per_row(a_zero), _per_column(b_zero)), dtype)
    left = without_zero_point(a, _per_row(a_zero), dtype)
    return left @ without_zero_point(b, b_zero, dtype)


@operator("MatMulInteger")
def matmul_integer(call: Call, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """A matrix product of small integers, in int32."""
    return _exact(a, b, a_zero, b_zero, "int32")


@operator("QLinearMatMul")
def qlinear_matmul(
    call: Call,
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    y_scale: Any,
    y_zero: Any,
) -> Any:
    """A matrix product of quantized tensors, with a quantized result."""
    if a.dtype in FLOAT8:
        a_zero = b_zero = None
    y = _exact(a, b, a_zero, b_zero, "float64")
    scale = ops.astype(_per_row(a_scale), "float64") * ops.astype(b_scale, "float64")
    scale = scale / ops.astype(_per_row(y_scale), "float64")
    return requantized(y, scale, _per_row(y_zero))
