"""The mapping between ONNX's element types and dtypes."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.dtypes import DType, as_dtype
from eagerflow.onnx.reading.calls import Refused

NAMES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1",
    24: "float8_e8m0",
    25: "uint2",
    26: "int2",
}
"""By the values of ``TensorProto.DataType``."""

REFUSED = frozenset(
    {
        "string",
        "uint2",
        "int2",
        "uint4",
        "int4",
        "float4_e2m1",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e8m0",
    }
)
"""Element types without a dtype in eagerflow."""


def dtype_of(element_type: Any) -> DType:
    """The dtype of an ONNX element type; Refused, by name, for an unsupported one."""
    name = NAMES.get(int(element_type))
    if name is None:
        raise Refused(f"the element type {int(element_type)} does not exist")
    if name in REFUSED:
        raise Refused(f"{name} tensors")
    return as_dtype(name)


def element_type_of(dtype: DType) -> int:
    """ONNX's number of a dtype."""
    return next(number for number, name in NAMES.items() if name == dtype.name)


def converted(x: Any, dtype: DType) -> Any:
    """A tensor in a dtype; itself if it has that dtype."""
    return x if x.dtype == dtype else ops.astype(x, dtype)
