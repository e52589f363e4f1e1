"""JSON bodies: parsed with limits, written with arrays in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from eagerflow import extras
from eagerflow.dims import Dim
from eagerflow.errors import ArgumentError, DTypeError

__all__ = ["dumps", "example", "loads", "plain"]

_orjson = extras.load_if_there("orjson")
_NATIVE = frozenset(
    map(np.dtype, "float64 float32 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool".split())
)


def loads(body: bytes | bytearray | memoryview) -> Any:
    """Parse a JSON text; ArgumentError for invalid JSON.

    NaN and Infinity are accepted, as by TensorFlow Serving.

    >>> from eagerflow.serving.json_bodies import loads
    >>> loads(b'{"instances": [1.0, NaN]}')
    {'instances': [1.0, nan]}
    """
    data = bytes(body)
    try:
        if _orjson is not None and b"NaN" not in data and b"Infinity" not in data:
            return _orjson.loads(data)
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(
            f"the body is not JSON: {str(error)[:200]}", received=repr(data[:60])
        ) from None


def dumps(value: Any, arrays: Iterable[Any] = ()) -> bytes:
    """Write a nest with ``arrays`` in it as JSON; each number round-trips exactly.

    NaN and infinity are written as Python writes them, since JSON cannot represent them.

    >>> from eagerflow.serving.json_bodies import dumps
    >>> y = np.asarray([0.1, 2.0], "float32")
    >>> dumps({"y": y}, [y])
    b'{"y":[0.1,2.0]}'
    """
    if _orjson is not None and all(map(_is_native, arrays)):
        text = bytes(_orjson.dumps(value, option=_orjson.OPT_SERIALIZE_NUMPY))
        if b"null" not in text:  # which orjson writes for NaN and infinity too
            return text
    return json.dumps(value, default=plain, separators=(",", ":")).encode()


def _is_native(array: Any) -> bool:
    """Whether orjson can write the finite numbers of an array; it does not take scalars."""
    return array.ndim > 0 and array.dtype in _NATIVE and array.flags.c_contiguous


def plain(value: Any) -> Any:
    """An array as nested lists, float32 numbers in their shortest round-trip form."""
    if not isinstance(value, np.ndarray):
        raise DTypeError(f"a {type(value).__name__} cannot be written as JSON")
    if value.dtype.kind == "c":
        raise DTypeError("JSON has no complex numbers", received=str(value.dtype))
    if value.dtype.kind not in "biuf":
        value = value.astype(np.float32)
    if value.dtype.kind == "f" and value.dtype.itemsize < 8:
        texts = np.vectorize(lambda x: float(str(x)), otypes=[object])
        return texts(value).tolist() if value.size else value.tolist()
    return value.tolist()


def example(specs: Mapping[str, Any]) -> dict[str, Any]:
    """Zeros for each input, of one row, as nested lists: an example request.

    >>> from eagerflow.serving.json_bodies import example
    >>> example({"x": ef.TensorSpec(("batch", 2), "float32")})
    {'x': [[0.0, 0.0]]}
    """
    found = {}
    for name, spec in specs.items():
        shape = [1 if isinstance(size, Dim) else size for size in spec.shape]
        dtype = "int64" if spec.dtype.kind in "iu" else "bool" if spec.dtype.kind == "b" else float
        found[name] = np.zeros(shape, dtype).tolist()
    return found
