"""The Open Inference Protocol (version 2) over REST, with tensors as binary data.

Sources: the Open Inference Protocol's REST specification, and the binary tensor data extension
of Triton Inference Server.
"""

from __future__ import annotations

import importlib.metadata
import math
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from eagerflow.dims import Dim
from eagerflow.dtypes import as_dtype
from eagerflow.errors import ArgumentError, DTypeError, EagerflowError, ShapeError
from eagerflow.serving.json_bodies import dumps, loads
from eagerflow.serving.model import ModelVersion
from eagerflow.serving.numbers import array_of
from eagerflow.serving.repository import Repository
from eagerflow.serving.routes import Answering
from eagerflow.serving.sequences import Step
from eagerflow.serving.signature import Signature
from eagerflow.serving.stepping import SequenceBatcher

__all__ = [
    "HEADER",
    "Request",
    "answer",
    "array_of_bytes",
    "array_of_numbers",
    "bytes_of",
    "datatype",
    "dtype_of",
    "error",
    "index",
    "infer",
    "metadata",
    "number",
    "object_of",
    "request",
    "server",
    "shape_of",
    "timing",
]

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
    """A parsed request: an array for each input, names of outputs (None: all), and parameters.

    ``binary`` are the outputs to send as bytes (None: all); ``id`` is returned with the response.
    """

    inputs: dict[str, Any]
    outputs: list[str] | None
    binary: frozenset[str] | None
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


def request(body: bytes, header_size: str | None) -> Request:
    """Parse a body: JSON, followed by the bytes of tensors from ``header_size`` on.

    ``header_size`` is the value of the header Inference-Header-Content-Length, or None.
    """
    size = (
        len(body) if header_size is None else _size(header_size, "the header's length", len(body))
    )
    view = memoryview(body)
    told, rest = loads(view[:size]), view[size:]
    if not isinstance(told, dict):
        raise ArgumentError("the body is a JSON object", received=type(told).__name__)
    parameters = object_of(told, "parameters")
    inputs = {}
    for given in _list(told, "inputs"):
        name = _text(given, "name")
        if name in inputs:
            raise ArgumentError("the input was given twice", argument=name[:80])
        inputs[name], rest = _tensor(given, name, rest)
    if len(rest):
        raise ArgumentError(
            f"{len(rest)} bytes behind the tensors belong to none",
            expected="binary_data_size in the parameters of each input that comes as bytes",
        )
    wanted = _list(told, "outputs") if "outputs" in told else None
    names = None if wanted is None else [_text(output, "name") for output in wanted]
    every = parameters.get("binary_data_output") is True
    binary: frozenset[str] | None = frozenset(
        _text(output, "name")
        for output in wanted or ()
        if object_of(output, "parameters").get("binary_data", every) is True
    )
    if every and names is None:
        binary = None
    id = told.get("id")
    return Request(inputs, names, binary, None if id is None else str(id), parameters)


def _tensor(given: Any, name: str, rest: memoryview) -> tuple[Any, memoryview]:
    """The array of an input, and the remaining bytes."""
    dtype = dtype_of(_text(given, "datatype"), name)
    shape = shape_of(given.get("shape"), name)
    size = object_of(given, "parameters").get("binary_data_size")
    if size is None:
        data = given.get("data")
        if not isinstance(data, list):
            raise ArgumentError("the tensor has no data", argument=name[:80], expected="a list")
        return array_of_numbers(data, dtype, shape, name), rest
    if type(size) is not int or not 0 <= size <= len(rest):
        raise ArgumentError(
            f"binary_data_size is {size!r:.40}",
            argument=name[:80],
            expected=f"an integer up to {len(rest)}, the bytes that are left",
        )
    return array_of_bytes(rest[:size], dtype, shape, name), rest[size:]


def dtype_of(told: str, name: str) -> Any:
    """The dtype with this name in the protocol; DTypeError, which names the input, if unknown."""
    if told not in _NAMES:
        raise DTypeError(
            f"there is no datatype {told[:40]!r} here",
            argument=name[:80],
            expected="one of " + ", ".join(_NAMES),
        )
    return as_dtype(_NAMES[told])


def shape_of(sizes: Any, name: str) -> tuple[int, ...]:
    """A list of sizes as a shape; ShapeError for other values."""
    fits = isinstance(sizes, list) and len(sizes) <= MAX_RANK
    if not fits or not all(type(n) is int and 0 <= n < 1 << 48 for n in sizes):
        raise ShapeError(
            "a shape is a list of sizes", argument=name[:80], received=repr(sizes)[:80]
        )
    return tuple(sizes)


def array_of_bytes(data: Any, dtype: Any, shape: tuple[int, ...], name: str) -> Any:
    """Bytes, little-endian and row by row, as an array; it shares their memory."""
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ShapeError(
            "the number of bytes does not match shape and datatype",
            argument=name[:80],
            received=f"{len(data)} bytes",
            expected=f"{math.prod(shape) * dtype.itemsize} for {dtype.name}{list(shape)}",
        )
    array = np.frombuffer(data, np.uint8).view(dtype)
    return _turned(array).reshape(shape)


def _turned(array: Any) -> Any:
    """Convert between this machine's byte order and the protocol's."""
    return array if sys.byteorder == "little" else array.byteswap()


def array_of_numbers(data: Any, dtype: Any, shape: tuple[int, ...], name: str) -> Any:
    """Numbers, in nested or flat lists, as an array; DTypeError if they do not fit the dtype."""
    array = array_of(data, dtype, name)
    if array.size != math.prod(shape):
        raise ShapeError(
            "the number of values does not match the shape",
            argument=name[:80],
            received=f"{array.size} numbers",
            expected=f"{math.prod(shape)} for {list(shape)}",
        )
    return array.reshape(shape)


def number(text: str) -> int:
    """Parse the number of a version; ArgumentError for other text."""
    return _size(text, "the number of the version", 10**18)


def _size(text: str, what: str, most: int) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or int(text) > most:
        raise ArgumentError(f"{what} is {text[:40]!r}", expected=f"an integer up to {most}")
    return int(text)


def _list(told: Any, key: str) -> list[Any]:
    found = told.get(key)
    if not isinstance(found, list) or not all(isinstance(x, dict) for x in found):
        raise ArgumentError(f"{key!r} is a list of objects", received=type(found).__name__)
    return found


def object_of(told: Any, key: str) -> dict[str, Any]:
    """An object in a JSON object; an empty one if missing."""
    found = told.get(key, {})
    if not isinstance(found, dict):
        raise ArgumentError(f"{key!r} is an object", received=type(found).__name__)
    return found


def _text(told: Any, key: str) -> str:
    found = told.get(key)
    if not isinstance(found, str) or not found:
        raise ArgumentError(f"{key!r} is a text", received=type(found).__name__)
    return found


async def infer(
    asked: Request, batcher: Answering, is_named: bool = False
) -> tuple[ModelVersion, dict[str, Any]]:
    """The version that computed a request, and the requested outputs by name.

    Of its parameters, ``signature_name`` selects a signature, ``timeout`` limits the microseconds
    in the queue (0: no limit), and a smaller ``priority`` goes first; those of sequences are
    explained at ``Step``. ``is_named`` means that the request names the version.
    """
    timeout, priority = timing(asked.parameters)
    step = Step.of(asked.parameters)
    how: Any = {"timeout": timeout, "priority": priority}
    batcher = batcher.by_signature(asked.parameters.get("signature_name"))
    if isinstance(batcher, SequenceBatcher):
        return await batcher.answer(asked.inputs, asked.outputs, step, is_named=is_named, **how)
    if step is not None:
        raise ArgumentError(
            f"{batcher.version.name!r} has no state that a sequence could hand on",
            argument="sequence_id",
            hint="graph.save(path, state=...) declares it",
        )
    return batcher.version, await batcher.run(asked.inputs, asked.outputs, **how)


def timing(parameters: Mapping[str, Any]) -> tuple[float | None, int]:
    """The timeout of a request in seconds, and its priority, from its parameters."""
    numbers = {}
    for name in ("timeout", "priority"):
        numbers[name] = value = parameters.get(name, 0)
        if type(value) is not int or (name == "timeout" and value < 0):
            raise ArgumentError(
                f"the parameter {name} is {value!r:.40}", argument=name, expected="an integer"
            )
    return numbers["timeout"] / 1e6 or None, numbers["priority"]


# Answers ------------------------------------------------------------------------------------------


def answer(
    asked: Request, model: str, version: int, outputs: Mapping[str, Any]
) -> tuple[bytes, int | None]:
    """The body of a response, and the length of its JSON part where bytes follow."""
    told: list[Any] = []
    parts: list[Any] = []
    arrays = []
    for name, array in outputs.items():
        row: dict[str, Any] = {
            "name": name,
            "datatype": datatype(array.dtype),
            "shape": list(array.shape),
        }
        if asked.binary is None or name in asked.binary:
            parts.append(bytes_of(array))
            row["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            row["data"] = np.ascontiguousarray(array).reshape(-1)
            arrays.append(row["data"])
        told.append(row)
    body: dict[str, Any] = {"model_name": model, "model_version": str(version), "outputs": told}
    if asked.id is not None:
        body["id"] = asked.id
    text = dumps(body, arrays)
    return b"".join([text, *parts]), len(text) if parts else None


def bytes_of(array: Any) -> bytes:
    """An array's numbers as bytes, little-endian and row by row."""
    return bytes(_turned(array).tobytes())


def server() -> dict[str, Any]:
    """The server's metadata."""
    version = importlib.metadata.version("eagerflow")
    return {
        "name": "eagerflow",
        "version": version,
        "extensions": [
            "binary_tensor_data",
            "model_repository",
            "model_configuration",
            "statistics",
            "sequence",
            "generate",
        ],
    }


def index(repository: Repository, ready: bool = False) -> list[dict[str, str]]:
    """An entry for each version of each model; with ``ready``, only for those that are ready."""
    rows = []
    for model in repository.models.values():
        states = dict.fromkeys(model.ready, ("READY", ""))
        if not ready:
            states |= dict.fromkeys(model.loading - states.keys(), ("LOADING", ""))
            states |= {n: ("UNAVAILABLE", told) for n, told in model.broken.items()}
        rows += [
            {"name": model.name, "version": str(n), "state": state, "reason": told}
            for n, (state, told) in sorted(states.items())
        ]
    return rows


def metadata(model: str, versions: list[int], signature: Signature) -> Any:
    """The metadata of a model: its inputs and outputs; free sizes are -1."""
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
    """The body of an error response."""
    known = isinstance(problem, EagerflowError)
    return {"error": str(problem) if known else "the server failed; its log has the details"}
