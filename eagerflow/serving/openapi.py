"""The OpenAPI 3.1 description of the HTTP interface, made from the table of routes.

Source: the OpenAPI Specification, version 3.1.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from eagerflow.serving.protocols.arrays import NPY, NPZ
from eagerflow.serving.protocols.inference import server

__all__ = ["OPERATIONS", "Operation", "description"]

_Schema = dict[str, Any]
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string"}},
    "required": ["error"],
}
_TEXT: _Schema = {"type": "string"}
_COUNT: _Schema = {"type": "integer", "minimum": 0}


def _object(required: str = "", /, **properties: _Schema) -> _Schema:
    return {"type": "object", "properties": properties, "required": required.split()}


def _list(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


_TENSOR = _object("name shape datatype", name=_TEXT, shape=_list(_COUNT), datatype=_TEXT)
_SPEC = _object("name shape datatype", name=_TEXT, shape=_list({"type": "integer"}), datatype=_TEXT)
_VALUES: _Schema = {"description": "numbers, in nested lists, or an object with those of each name"}
_EXAMPLES = _object(
    "examples",
    examples=_list({"type": "object"}),
    context={"type": "object"},
    signature_name=_TEXT,
)
_GENERATION = _object(
    "tokens",
    tokens=_list(_COUNT),
    max_tokens=_COUNT,
    temperature={"type": "number"},
    top_k={"type": ["integer", "null"]},
    top_p={"type": ["number", "null"]},
    seed={"type": ["integer", "null"]},
    stop={"type": "array"},
    parameters={"type": "object"},
    id=_TEXT,
)
_GENERATED = _object("model_name model_version tokens finish_reason", tokens=_list(_COUNT))
_RESULTS = _object("results", results={"type": "array"})
_STATISTICS = _object("model_stats", model_stats=_list({"type": "object"}))
_TRAFFIC = _object(
    pinned={"type": ["integer", "null"]},
    labels={"type": ["object", "null"]},
    split={"type": ["object", "null"]},
    key={"type": ["string", "null"]},
    shadow={"type": ["object", "null"]},
    roll_back={"const": True},
)
_READY = _object("ready", ready={"type": "boolean"})


class Operation(NamedTuple):
    """A route's summary and the schemas of its JSON bodies; ``other`` are other media types."""

    summary: str
    answer: _Schema | None = None
    body: _Schema | None = None
    other: tuple[str, ...] = ()


OPERATIONS = {
    "predict": Operation(
        "Predictions, in TensorFlow Serving's form",
        {"type": "object"},
        _object("", instances=_list({}), inputs=_VALUES, signature_name=_TEXT),
    ),
    "classify": Operation("A score for each class of examples", _RESULTS, _EXAMPLES),
    "regress": Operation("A number for each example", _RESULTS, _EXAMPLES),
    "metadata": Operation(
        "Inputs and outputs by signature", _object("model_spec metadata", metadata={})
    ),
    "status": Operation(
        "The states of versions", _object("model_version_status", model_version_status=_list({}))
    ),
    "page": Operation("The page for browsers", None, None, ("text/html",)),
    "figures": Operation("Figures of models and versions for the page", {"type": "object"}),
    "metrics": Operation("Numbers for Prometheus", None, None, ("text/plain",)),
    "openapi": Operation("This description", _object("openapi paths", openapi=_TEXT)),
    "server": Operation("Name, version and extensions", _object("name version extensions")),
    "live": Operation("Whether the server lives", _object("live", live={"type": "boolean"})),
    "ready": Operation("Whether every model answers", _READY),
    "index": Operation(
        "All versions of all models",
        _list(_object("name version state reason", name=_TEXT, version=_TEXT, state=_TEXT)),
        _object("", ready={"type": "boolean"}),
    ),
    "load": Operation("Load a model", _object()),
    "unload": Operation("Unload a model", _object()),
    "traffic": Operation("The versions that serve a model", _object("model current labels split")),
    "direct": Operation(
        "Change the versions that serve a model", _object("model current labels split"), _TRAFFIC
    ),
    "infer": Operation(
        "Outputs for tensors, in the form of the Open Inference Protocol",
        _object(
            "model_name model_version outputs",
            model_name=_TEXT,
            model_version=_TEXT,
            outputs=_list(_TENSOR),
        ),
        _object(
            "inputs",
            inputs=_list(_TENSOR),
            outputs=_list(_object("name", name=_TEXT)),
            parameters={"type": "object"},
            id=_TEXT,
        ),
        (NPY, NPZ, "application/octet-stream"),
    ),
    "generate": Operation("Tokens after a prompt", _GENERATED, _GENERATION),
    "generate_stream": Operation(
        "Tokens after a prompt, as Server-Sent Events", None, _GENERATION, ("text/event-stream",)
    ),
    "model_ready": Operation("Whether a model answers", _READY),
    "config": Operation(
        "How a model is served",
        _object("name max_batch_size input output", max_batch_size=_COUNT, input=_list({})),
    ),
    "statistics": Operation("Statistics of a model", _STATISTICS),
    "all_statistics": Operation("Statistics of all models", _STATISTICS),
    "model_metadata": Operation(
        "Versions, inputs and outputs",
        _object(
            "name versions inputs outputs",
            versions=_list(_TEXT),
            inputs=_list(_SPEC),
            outputs=_list(_SPEC),
        ),
    ),
}
"""By the name of the route's handler."""


def description(routes: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """The description of routes, each a method, a path and a name of ``OPERATIONS``.

    >>> from eagerflow.serving.openapi import description
    >>> list(description([("GET", "/v2/models/{model}", "model_metadata")])["paths"])
    ['/v2/models/{model}']
    """
    paths: dict[str, dict[str, Any]] = {}
    for method, path, name in routes:
        paths.setdefault(path, {})[method.lower()] = _described(OPERATIONS[name], path, name)
    told = server()
    return {
        "openapi": "3.1.0",
        "info": {"title": told["name"], "version": told["version"]},
        "paths": paths,
    }


def _described(operation: Operation, path: str, name: str) -> dict[str, Any]:
    forms = {} if operation.answer is None else {"application/json": {"schema": operation.answer}}
    forms |= {form: {} for form in operation.other}
    found: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": re.sub(r"\W+", "_", f"{name}{path}").strip("_"),
        "parameters": [
            {"name": part, "in": "path", "required": True, "schema": _TEXT}
            for part in re.findall(r"\{(\w+)\}", path)
        ],
        "responses": {
            "200": {"description": "the answer", "content": forms},
            "default": {
                "description": "the error, by status: 4XX for the request",
                "content": {"application/json": {"schema": _ERROR}},
            },
        },
    }
    if operation.body is not None:
        content = {"application/json": {"schema": operation.body}}
        content |= {form: {} for form in operation.other if form != "application/octet-stream"}
        found["requestBody"] = {"required": True, "content": content}
    return found
