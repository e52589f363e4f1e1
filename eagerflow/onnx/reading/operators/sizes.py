"""Operators that read sizes, create tensors from them, and change dtypes."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.dims import Dim
from eagerflow.dtypes import FLOAT8, NARROW, DType, is_complex
from eagerflow.onnx.reading.calls import (
    Call,
    SizeVector,
    as_sizes,
    is_known,
    known,
    known_number,
    operator,
    sizes,
)
from eagerflow.onnx.reading.calls import size as size_of
from eagerflow.onnx.reading.element_types import dtype_of
from eagerflow.onnx.reading.folding import as_plain
from eagerflow.tensor import Tensor


@operator("Shape", takes_sizes=True)
def shape(call: Call, x: Any, start: int = 0, end: int | None = None) -> Any:
    """The sizes of a tensor, or some of them."""
    return as_sizes(list(x.shape)[start:end])


@operator("Size", takes_sizes=True)
def size(call: Call, x: Any) -> Any:
    """The number of elements."""
    return as_sizes(math.prod(x.shape))


@operator("Constant")
def constant(
    call: Call,
    value: Any = None,
    sparse_value: Any = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
    value_string: Any = None,
    value_strings: Any = None,
) -> Any:
    """The tensor, number or numbers in the node's attributes."""
    if value_string is not None or value_strings is not None:
        call.refuse("string tensors")
    for number, dtype in (
        (value_float, "float32"),
        (value_floats, "float32"),
        (value_int, "int64"),
        (value_ints, "int64"),
    ):
        if number is not None:
            return as_tensor(np.array(number, dtype))
    found = value if value is not None else sparse_value
    if found is None:
        call.refuse("there is no value")
    return found


@operator("ConstantOfShape", takes_sizes=True)
def constant_of_shape(call: Call, shape: Any, value: Any = None) -> Any:
    """A constant tensor, 0 by default."""
    if value is None:
        return ops.zeros(sizes(shape), dtype="float32")
    number = known(value).reshape(())
    return ops.full(sizes(shape), number.item(), dtype=value.dtype)


@operator("Range", takes_sizes=True)
def range_(call: Call, start: Any, limit: Any, delta: Any, stash_type: int = 0) -> Any:
    """Numbers from a start to a limit; ``stash_type`` is the dtype of the computation."""
    if isinstance(limit, SizeVector) and is_known([start, delta]):
        first, step = known_number(start), known_number(delta)
        if first == 0 and step == 1:
            return ops.cumulative_sum(ops.ones((size_of(limit),), dtype="int64")) - 1
    start, limit, delta = (as_plain(x) for x in (start, limit, delta))
    first, last, step = (known_number(x) for x in (start, limit, delta))
    if step == 0:
        call.refuse("a step of 0")
    count = max(math.ceil((last - first) / step), 0)
    dtype = start.dtype
    made_in = dtype_of(stash_type) if stash_type and dtype in NARROW else dtype
    numbers = ops.astype(ops.arange(count, dtype="int64"), made_in)
    start, delta = (ops.reshape(ops.astype(x, made_in), ()) for x in (start, delta))
    return ops.astype(numbers * delta + start, dtype)


@operator("EyeLike")
def eye_like(call: Call, x: Any, dtype: int | None = None, k: int = 0) -> Any:
    """Ones on a diagonal of a matrix like x."""
    rows, columns = x.shape
    wanted = x.dtype if dtype is None else dtype_of(dtype)
    if isinstance(rows, Dim) or isinstance(columns, Dim):
        down = ops.cumulative_sum(ops.ones((rows, 1), dtype="int64"), axis=0)
        along = ops.cumulative_sum(ops.ones((1, columns), dtype="int64"), axis=1)
        return ops.astype(ops.equal(along - down, k), wanted)
    return ops.astype(ops.eye(rows, columns, k, dtype="float32"), wanted)


# Dtypes -------------------------------------------------------------------------------------------


def cast_to(x: Tensor, wanted: DType, saturate: int = 1) -> Any:
    """X in another dtype; numbers beyond the range of 8-bit floats saturate."""
    if x.dtype == wanted:
        return x
    if is_complex(x.dtype) and not is_complex(wanted):
        x = ops.real(x)
    if wanted in FLOAT8:
        x = x if x.dtype.kind == "f" or x.dtype in FLOAT8 else ops.astype(x, "float32")
        if saturate:
            x = _saturated(ops.astype(x, "float32") if x.dtype in FLOAT8 else x, wanted)
    elif x.dtype in FLOAT8:
        x = ops.astype(x, "float32")
    if wanted.kind == "b":
        return ops.not_equal(x, 0)
    return ops.astype(x, wanted)


def _saturated(x: Tensor, wanted: DType) -> Any:
    last = float(ml_dtypes.finfo(wanted).max)
    return ops.clip(x, -last, last)


@operator("Cast", takes_sizes=True)
def cast(call: Call, x: Any, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    """X in another dtype."""
    wanted = dtype_of(to)
    if isinstance(x, SizeVector) and wanted.kind in "iu":
        return x
    return cast_to(as_plain(x), wanted, saturate)


@operator("CastLike", takes_sizes=True)
def cast_like(call: Call, x: Any, like: Any, saturate: int = 1, round_mode: str = "up") -> Any:
    """X in the dtype of another tensor."""
    if isinstance(x, SizeVector) and like.dtype.kind in "iu":
        return x
    return cast_to(as_plain(x), like.dtype, saturate)


@operator("BitCast")
def bit_cast(call: Call, x: Any, to: int) -> Any:
    """The bits of x as numbers of another dtype of the same width."""
    wanted = dtype_of(to)
    if wanted.itemsize != x.dtype.itemsize:
        call.refuse(f"{x.dtype.name} as {wanted.name}, which is of another width")
    return known(x).view(wanted)
