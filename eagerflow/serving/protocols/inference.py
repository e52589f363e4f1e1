"""The Open Inference Protocol (version 2) over REST, with tensors as binary data.

Sources: the Open Inference Protocol's REST specification, and the binary tensor data extension
of Triton Inference Server.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from eagerflow.dims import Dim
from eagerflow.dtypes import as_dtype
from eagerflow.errors import ArgumentError, DTypeError, EagerflowError, ShapeError
from eagerflow.serving.signature import Signature
from eagerflow.serving.texts import dumps, loads

__all__ = ["HEADER", "Request", "answer", "datatype", "error", "metadata", "request"]

HEADER = "inference-header-content-length"
MAX_RANK = 64

_NAMES = {
    "BOOL": "bool",
    **{f"UINT{n}": f"uint{n}" for n in (8, 16, 32, 64)},
    **{f"INT{n}": f"int{n}" for n in (8, 16, 32, 64)},
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BF16": "bfloat16",
}
_DATATYPES = {name: datatype for datatype, name in _NAMES.items()}


class Request(NamedTuple):
    """What is asked for: an array for each input, names of outputs (None: all), and how.

    ``binary`` are the outputs that come as bytes; ``id`` goes back with the answer.
    """

    inputs: dict[str, Any]
    outputs: list[str] | None
    binary: frozenset[str]
    id: str | None
    parameters: dict[str, Any]


def datatype(dtype: Any) -> str:
    """The protocol's name of a dtype; DTypeError where it has none."""
    found = _DATATYPES.get(as_dtype(dtype).name)
    if found is None:
        raise DTypeError(
            f"the Open Inference Protocol has no name for {as_dtype(dtype).name}",
            expected="one of " + ", ".join(_DATATYPES),
        )
    return found


def request(body: bytes, header_size: str | None, signature: Signature) -> Request:
    """The request of a body: JSON, and behind it the bytes of tensors where ``header_size`` says.

    ``header_size`` is the value of the header Inference-Header-Content-Length, or None.
    """
    size = len(body) if header_size is None else _size(header_size, "the header's length", len(body))
    view = memoryview(body)
    told, rest = loads(view[:size]), view[size:]
    if not isinstance(told, dict):
        raise ArgumentError("the body is a JSON object", received=type(told).__name__)
    parameters = _object(told, "parameters")
    inputs = {}
    for given in _list(told, "inputs"):
        name = _text(given, "name")
        if name in inputs:
            raise ArgumentError("the input came twice", argument=name[:80])
        inputs[name], rest = _tensor(given, name, rest)
    if len(rest):
        raise ArgumentError(
            f"{len(rest)} bytes behind the tensors belong to none",
            expected="binary_data_size in the parameters of each input that comes as bytes",
        )
    wanted = _list(told, "outputs") if "outputs" in told else None
    names = None if wanted is None else [_text(output, "name") for output in wanted]
    every = parameters.get("binary_data_output") is True
    binary = {
        _text(output, "name")
        for output in wanted or ()
        if _object(output, "parameters").get("binary_data", every) is True
    }
    if every and names is None:
        binary = set(signature.outputs)
    id = told.get("id")
    return Request(inputs, names, frozenset(binary), None if id is None else str(id), parameters)


def _tensor(given: Any, name: str, rest: memoryview) -> tuple[Any, memoryview]:
    """The array of an input, and the bytes behind it."""
    dtype = _dtype(given, name)
    shape = _shape(given, name)
    count = 1
    for n in shape:
        count *= n
    size = _object(given, "parameters").get("binary_data_size")
    if size is None:
        return _from_json(given.get("data"), dtype, shape, count, name), rest
    if type(size) is not int or size != count * dtype.itemsize or size > len(rest):
        raise ShapeError(
            "the number of bytes is another than shape and datatype say, or than there are",
            argument=name[:80],
            received=f"binary_data_size {size!r:.40}, {len(rest)} bytes left",
            expected=f"{count * dtype.itemsize} bytes",
        )
    array = np.frombuffer(rest[:size], np.uint8).view(dtype)  # little-endian, as the protocol says
    if sys.byteorder == "big":
        array = array.byteswap()
    return array.reshape(shape), rest[size:]


def _from_json(data: Any, dtype: Any, shape: tuple[int, ...], count: int, name: str) -> Any:
    """Numbers, in nested lists or in one, as an array."""
    if not isinstance(data, list):
        raise ArgumentError("the tensor has no data", argument=name[:80], expected="a list")
    try:
        array = np.asarray(data)
    except (ValueError, OverflowError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" and array.size:
        raise DTypeError(
            "the data are no numbers, or their lists differ in length", argument=name[:80]
        )
    if array.size != count:
        raise ShapeError(
            "there are more or fewer numbers than the shape says",
            argument=name[:80],
            received=f"{array.size} numbers",
            expected=f"{count} for {list(shape)}",
        )
    with np.errstate(all="ignore"):
        made = array.astype(dtype)
    if dtype.kind in "biu" and not bool((made == array).all()):
        raise DTypeError(f"a number does not fit {dtype.name}", argument=name[:80])
    return made.reshape(shape)


def _dtype(given: Any, name: str) -> Any:
    told = _text(given, "datatype")
    if told not in _NAMES:
        raise DTypeError(
            f"there is no datatype {told[:40]!r} here",
            argument=name[:80],
            expected="one of " + ", ".join(_NAMES),
        )
    return as_dtype(_NAMES[told])


def _shape(given: Any, name: str) -> tuple[int, ...]:
    shape = given.get("shape")
    fits = isinstance(shape, list) and len(shape) <= MAX_RANK
    if not fits or not all(type(n) is int and 0 <= n < 1 << 48 for n in shape):
        raise ShapeError(
            "a shape is a list of sizes", argument=name[:80], received=repr(shape)[:80]
        )
    return tuple(shape)


def _size(text: str, what: str, most: int) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or int(text) > most:
        raise ArgumentError(f"{what} is {text[:40]!r}", expected=f"an integer up to {most}")
    return int(text)


def _list(told: Any, key: str) -> list[Any]:
    found = told.get(key)
    if not isinstance(found, list) or not all(isinstance(x, dict) for x in found):
        raise ArgumentError(f"{key!r} is a list of objects", received=type(found).__name__)
    return found


def _object(told: Any, key: str) -> dict[str, Any]:
    found = told.get(key, {})
    if not isinstance(found, dict):
        raise ArgumentError(f"{key!r} is an object", received=type(found).__name__)
    return found


def _text(told: Any, key: str) -> str:
    found = told.get(key)
    if not isinstance(found, str) or not found:
        raise ArgumentError(f"{key!r} is a text", received=type(found).__name__)
    return found


# Answers ------------------------------------------------------------------------------------------


def answer(
    asked: Request, model: str, version: int, outputs: Mapping[str, Any]
) -> tuple[bytes, int | None]:
    """The body of an answer, and how long its JSON part is where bytes follow."""
    told: list[Any] = []
    parts: list[Any] = []
    arrays = []
    for name, array in outputs.items():
        row: dict[str, Any] = {
            "name": name,
            "datatype": datatype(array.dtype),
            "shape": list(array.shape),
        }
        if name in asked.binary:
            data = np.ascontiguousarray(array)
            row["parameters"] = {"binary_data_size": data.nbytes}
            parts.append((data if sys.byteorder == "little" else data.byteswap()).tobytes())
        else:
            row["data"] = np.ascontiguousarray(array).reshape(-1)
            arrays.append(row["data"])
        told.append(row)
    body: dict[str, Any] = {"model_name": model, "model_version": str(version), "outputs": told}
    if asked.id is not None:
        body["id"] = asked.id
    text = dumps(body, arrays)
    return b"".join([text, *parts]), len(text) if parts else None


def metadata(model: str, versions: list[int], signature: Signature) -> Any:
    """The body that tells the inputs and outputs of a model; free sizes are -1."""
    return {
        "name": model,
        "versions": [str(n) for n in sorted(versions)],
        "platform": "eagerflow_graph",
        "inputs": _described(signature.inputs),
        "outputs": _described(signature.outputs),
    }


def _described(specs: Mapping[str, Any]) -> list[Any]:
    return [
        {
            "name": name,
            "datatype": datatype(spec.dtype),
            "shape": [-1 if isinstance(n, Dim) else n for n in spec.shape],
        }
        for name, spec in specs.items()
    ]


def error(problem: BaseException) -> Any:
    """The body of an answer that is an error."""
    known = isinstance(problem, EagerflowError)
    return {"error": str(problem) if known else "the server failed; its log has the details"}
