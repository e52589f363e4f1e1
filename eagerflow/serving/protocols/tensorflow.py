"""TensorFlow Serving's REST API, version 1: predict, classify, regress, status and metadata.

Source: TensorFlow Serving, RESTful API (tensorflow.org/tfx/serving/api_rest).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from eagerflow.dims import Dim
from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.serving.batching import DEFAULT_SIGNATURE, Batcher
from eagerflow.serving.repository import Model
from eagerflow.serving.routes import Answering
from eagerflow.serving.signature import Signature

__all__ = [
    "Request",
    "error",
    "example_answer",
    "examples",
    "metadata",
    "asked_for",
    "predict",
    "prediction",
    "status",
]


class Request(NamedTuple):
    """A parsed request: an array or nested lists for each input, by row or in columns."""

    inputs: dict[str, Any]
    by_row: bool


def asked_for(body: Any, batcher: Answering) -> Answering:
    """The batcher of the signature that a body names."""
    _check_body(body)
    return batcher.by_signature(body.get("signature_name"))


def predict(body: Any, signature: Signature) -> Request:
    """Parse the body of ``:predict``, in the row or the column format."""
    _check_body(body)
    if ("instances" in body) == ("inputs" in body):
        raise ArgumentError(
            "a body has either 'instances' (by row) or 'inputs' (in columns)",
            op="predict",
            received=", ".join(map(str, body))[:80],
        )
    if "inputs" in body:
        given = body["inputs"]
        if not isinstance(given, dict) or "b64" in given:
            given = {signature.only_input(): given}
        return Request({name: _decoded(x) for name, x in given.items()}, False)
    return Request(_columns(body["instances"], signature), True)


def examples(body: Any, signature: Signature) -> Request:
    """Parse the body of ``:classify`` or ``:regress``: examples, and features that they share."""
    _check_body(body)
    given, context = body.get("examples"), body.get("context", {})
    if not isinstance(given, list) or not all(isinstance(x, dict) for x in [*given, context]):
        raise ArgumentError(
            "'examples' is a list of objects with a value for each feature", op="classify"
        )
    return Request(_columns([context | example for example in given], signature), True)


def _check_body(body: Any) -> None:
    if not isinstance(body, dict):
        raise ArgumentError("the body is a JSON object", received=type(body).__name__)


def _columns(rows: Any, signature: Signature) -> dict[str, Any]:
    """A list of rows as one value for each input."""
    if not isinstance(rows, list) or not rows:
        raise ArgumentError(
            "'instances' is a list of one row at least", op="predict", argument="instances"
        )
    if not isinstance(rows[0], dict) or "b64" in rows[0]:
        return {signature.only_input(): [_decoded(row) for row in rows]}
    columns: dict[str, Any] = {name: [] for name in rows[0]}
    for position, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != columns.keys():
            raise ArgumentError(
                f"row {position} has other names than row 0",
                op="predict",
                argument="instances",
                received=", ".join(map(str, row))[:80] if isinstance(row, dict) else repr(row)[:80],
                expected=", ".join(columns),
            )
        for name, column in columns.items():
            column.append(_decoded(row[name]))
    return columns


def _decoded(value: Any) -> Any:
    """Replace each ``{"b64": text}`` in a value by its bytes: numbers from 0 to 255."""
    if isinstance(value, dict):
        text = value.get("b64")
        if len(value) != 1 or not isinstance(text, str):
            raise ArgumentError(
                'an object in place of numbers is {"b64": text}', received=repr(value)[:80]
            )
        try:
            return np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
        except ValueError as problem:  # letters of other scripts too
            raise ArgumentError(f"the text is not base64: {problem}") from None
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_decoded(part) for part in value]
    return value


def prediction(outputs: Mapping[str, Any], by_row: bool) -> Any:
    """The body of a response to ``:predict``, in the format of the request."""
    if not by_row:
        return {"outputs": next(iter(outputs.values())) if len(outputs) == 1 else dict(outputs)}
    if any(not array.ndim for array in outputs.values()):
        raise ArgumentError(
            "a result of this model has no rows", op="predict", hint="ask with 'inputs'"
        )
    if len(outputs) == 1:
        return {"predictions": next(iter(outputs.values()))}
    rows = zip(*outputs.values(), strict=True)
    return {"predictions": [dict(zip(outputs, row, strict=True)) for row in rows]}


def example_answer(outputs: Mapping[str, Any], kind: str) -> Any:
    """The body of a response to ``:classify`` (labels with scores) or ``:regress`` (numbers)."""
    found = outputs.get("scores") if kind == "classify" else None
    array = next(iter(outputs.values())) if found is None else found
    if kind == "regress":
        if array.ndim > 2 or (array.ndim == 2 and array.shape[1] != 1) or not array.ndim:
            raise ArgumentError(
                "a model for regression gives one number for each example",
                op="regress",
                received=str(array.shape),
            )
        return {"results": array.reshape(-1)}
    if array.ndim != 2:
        raise ArgumentError(
            "a model for classification gives a score for each class and example",
            op="classify",
            received=str(array.shape),
        )
    return {"results": [[[str(i), score] for i, score in enumerate(row)] for row in array.tolist()]}


# Models -------------------------------------------------------------------------------------------


def status(model: Model, version: int | None) -> Any:
    """The body with the states of a model's versions."""
    states: dict[int, tuple[str, str | None]] = dict.fromkeys(model.loading, ("LOADING", None))
    states |= {n: ("END", told) for n, told in model.broken.items()}
    states |= dict.fromkeys(model.ready, ("AVAILABLE", None))
    if version is not None:
        if version not in states:
            model.batcher(version)
        states = {version: states[version]}
    return {
        "model_version_status": [
            {
                "version": str(number),
                "state": state,
                "status": {
                    "error_code": "OK" if told is None else "UNKNOWN",
                    "error_message": told or "",
                },
            }
            for number, (state, told) in sorted(states.items(), reverse=True)
        ]
    }


_DTYPES = {
    "bool": "DT_BOOL",
    "float16": "DT_HALF",
    "bfloat16": "DT_BFLOAT16",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "complex64": "DT_COMPLEX64",
    "complex128": "DT_COMPLEX128",
}


def metadata(batcher: Batcher) -> Any:
    """The body with the inputs and outputs of a version, by signature."""
    version = batcher.version
    parts = {DEFAULT_SIGNATURE: batcher, **batcher.signatures}
    described = {name: _described(part.version.signature) for name, part in parts.items()}
    return {
        "model_spec": {"name": version.name, "signature_name": "", "version": str(version.number)},
        "metadata": {"signature_def": {"signature_def": described}},
    }


def _described(signature: Signature) -> Any:
    return {
        "inputs": {name: _tensor_info(name, spec) for name, spec in signature.inputs.items()},
        "outputs": {name: _tensor_info(name, spec) for name, spec in signature.outputs.items()},
        "method_name": "tensorflow/serving/predict",
    }


def _tensor_info(name: str, spec: Any) -> Any:
    sizes = [
        {
            "size": "-1" if isinstance(n, Dim) else str(n),
            "name": str(n) if isinstance(n, Dim) else "",
        }
        for n in spec.shape
    ]
    return {
        "dtype": _DTYPES.get(spec.dtype.name, f"DT_{spec.dtype.name.upper()}"),
        "tensor_shape": {"dim": sizes, "unknown_rank": False},
        "name": f"{name}:0",
    }


def error(problem: BaseException) -> Any:
    """The body of an error response."""
    known = isinstance(problem, EagerflowError)
    return {"error": str(problem) if known else "the server failed; its log has the details"}
