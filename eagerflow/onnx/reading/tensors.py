"""Tensors of ONNX files as arrays: every size is checked against the available bytes."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from eagerflow.dtypes import DType
from eagerflow.errors import FileFormatError
from eagerflow.handlers import raised_here
from eagerflow.onnx.reading.element_types import NAMES, dtype_of
from eagerflow.spec import MAX_RANK

MAX_SPARSE = 2**24
"""The limit of dense elements of a sparse tensor of a few bytes."""

_IN_INT32 = frozenset({"uint8", "int8", "uint16", "int16", "bool"})
_AS_BITS = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"})
_PAIRS = {"complex64": "float_data", "complex128": "double_data"}
_FIELDS = {
    "float32": "float_data",
    "int32": "int32_data",
    "int64": "int64_data",
    "float64": "double_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}


def fail(problem: str, **facts: Any) -> NoReturn:
    """Raise FileFormatError for an inconsistent file."""
    raise FileFormatError(problem, op="import_onnx", **facts)


def checked_shape(name: str, dims: Any) -> tuple[int, ...]:
    """The shape of a tensor in a file, checked for negative sizes."""
    shape = tuple(map(int, dims))
    if len(shape) > MAX_RANK or any(size < 0 for size in shape):
        fail(f"the tensor {name!r} has an impossible shape", received=str(shape[:MAX_RANK]))
    return shape


def array_of(proto: Any, folder: Path | None) -> np.ndarray[Any, Any]:
    """The values of a TensorProto; ``folder`` is that of the model's file, None for bytes.

    Raises FileFormatError if the number of bytes does not match the shape, and for data outside of
    the folder; Refused for element types that eagerflow does not have.
    """
    shape = checked_shape(proto.name, proto.dims)
    dtype = dtype_of(proto.data_type)
    if proto.HasField("segment"):
        fail(f"the tensor {proto.name!r} is one segment of a tensor")
    count = math.prod(shape)
    if proto.data_location == proto.EXTERNAL:
        data = _external(proto, folder, count * dtype.itemsize)
        flat = np.frombuffer(data, dtype.newbyteorder("<"))
    elif proto.HasField("raw_data"):
        if len(proto.raw_data) != count * dtype.itemsize:
            _misfit(proto, shape, dtype, f"{len(proto.raw_data)} bytes")
        flat = np.frombuffer(proto.raw_data, dtype.newbyteorder("<"))
    else:
        flat = _typed(proto, dtype)
        if flat.size != count:
            _misfit(proto, shape, dtype, f"{flat.size} numbers")
    if dtype.name == "bool":
        flat = flat.view("uint8") != 0  # bytes of a file may have any value
    try:
        return flat.astype(dtype).reshape(shape)
    except raised_here(ValueError):  # an empty tensor with sizes whose product overflows in NumPy
        fail(f"the tensor {proto.name!r} has an impossible shape", received=str(shape))


FOUR_BITS = frozenset({"int4", "uint4"})


def four_bits_of(proto: Any, folder: Path | None) -> np.ndarray[Any, Any]:
    """The values of a TensorProto of FOUR_BITS as int8 or uint8; else as ``array_of``."""
    shape = checked_shape(proto.name, proto.dims)
    count = math.prod(shape)
    needed = -(-count // 2)
    if proto.data_location == proto.EXTERNAL:
        data = _external(proto, folder, needed)
    elif proto.HasField("raw_data"):
        data = proto.raw_data
    else:
        data = np.array(proto.int32_data, np.int32).astype(np.uint8).tobytes()
    name = NAMES[proto.data_type]
    if proto.HasField("segment") or len(data) != needed:
        fail(
            f"the tensor {proto.name!r} does not hold what its shape says",
            received=f"{len(data)} bytes",
            expected=f"{count} numbers of {name} for {shape}",
        )
    packed = np.frombuffer(data, np.uint8)
    found = np.stack([packed & 15, packed >> 4], axis=-1).ravel()[:count]
    if name == "int4":
        found = (found ^ 8).astype(np.int8) - np.int8(8)
    return found.reshape(shape)


def _misfit(proto: Any, shape: tuple[int, ...], dtype: DType, came: str) -> NoReturn:
    fail(
        f"the tensor {proto.name!r} does not hold what its shape says",
        received=came,
        expected=f"{math.prod(shape)} numbers of {dtype.name} for {shape}",
    )


def _typed(proto: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """The numbers in the field for the element type."""
    name = NAMES[proto.data_type]
    if name in _PAIRS:
        field = getattr(proto, _PAIRS[name])
        pairs = np.array(field, dtype="float32" if name == "complex64" else "float64")
        return pairs.view(dtype) if pairs.size % 2 == 0 else pairs
    if name in _FIELDS:
        return np.array(getattr(proto, _FIELDS[name])).astype(dtype)
    bits = np.array(proto.int32_data, dtype="int32")
    if name in _AS_BITS:
        return bits.astype(f"uint{8 * dtype.itemsize}").view(dtype)
    assert name in _IN_INT32, name
    return (bits != 0) if name == "bool" else bits.astype(dtype)


# Data in other files ------------------------------------------------------------------------------


def _external(proto: Any, folder: Path | None, wanted: int) -> bytes:
    entries = {entry.key: entry.value for entry in proto.external_data}
    if folder is None:
        fail(
            f"the data of the tensor {proto.name!r} is in another file",
            received=repr(entries.get("location")),
            hint="import_onnx(path): the folder of the model is needed",
        )
    path = _inside(folder, entries.get("location", ""), proto.name)
    offset = _number(entries.get("offset", "0"), proto.name)
    length = _number(entries.get("length", str(wanted)), proto.name)
    there = path.stat().st_size
    if length != wanted or offset + length > there:
        fail(
            f"the external data of the tensor {proto.name!r} does not fit its shape",
            received=f"{length} bytes from {offset} on, in a file of {there}",
            expected=f"{wanted} bytes",
        )
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)


def _inside(folder: Path, location: str, name: str) -> Path:
    """A file of this name below the folder, without links and ``..``."""
    parts = location.replace("\\", "/").split("/")
    path = folder.joinpath(*parts)
    root = folder.resolve()
    unsafe = (
        not location
        or "\0" in location
        or os.path.isabs(location)
        or ":" in parts[0]
        or ".." in parts
        or any(folder.joinpath(*parts[: i + 1]).is_symlink() for i in range(len(parts)))
        or root not in path.resolve().parents
    )
    if unsafe or not path.is_file():
        fail(
            f"the external data of the tensor {name!r} is not a file within the model's folder",
            received=repr(location),
        )
    return path


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        fail(f"the external data of the tensor {name!r} has no place", received=repr(text))
    return int(text)


# Sparse tensors -----------------------------------------------------------------------------------


def dense_of(proto: Any, folder: Path | None) -> np.ndarray[Any, Any]:
    """The values of a SparseTensorProto as a dense array."""
    name = proto.values.name
    shape = checked_shape(name, proto.dims)
    values, indices = array_of(proto.values, folder), array_of(proto.indices, folder)
    if math.prod(shape) > max(MAX_SPARSE, 64 * values.size):
        fail(f"the sparse tensor {name!r} is too large", received=str(shape))
    found = np.zeros(math.prod(shape), values.dtype)
    if indices.dtype.kind not in "iu" or values.ndim != 1:
        fail(f"the sparse tensor {name!r} has no places for its values")
    if indices.ndim == 2 and indices.shape == (values.size, len(shape)):
        inside = bool((indices >= 0).all() and (indices < np.array(shape)).all())
        places = np.ravel_multi_index(tuple(indices.T), shape) if inside else None
    else:
        inside = indices.shape == values.shape and bool(
            ((indices >= 0) & (indices < found.size)).all()
        )
        places = indices
    if not inside:
        fail(f"the sparse tensor {name!r} has values outside of its shape")
    found[places] = values
    return found.reshape(shape)
