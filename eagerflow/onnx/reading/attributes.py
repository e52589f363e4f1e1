"""Attributes of nodes as Python values, and the schemas that define them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from eagerflow.convert import as_tensor
from eagerflow.onnx.package import onnx_package
from eagerflow.onnx.reading.calls import Refused
from eagerflow.onnx.reading.tensors import array_of, dense_of, fail

# The values of AttributeProto.AttributeType.
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = 1, 2, 3, 4, 5, 6, 7, 8
GRAPHS, SPARSE, TYPE = 10, 11, 13


class Schema(NamedTuple):
    """The standard's definition of an operator at an opset version."""

    proto: Any
    defaults: dict[str, Any]
    known: frozenset[str]
    required: tuple[str, ...]
    inputs: tuple[int, int]
    """The smallest and the largest number of inputs."""
    since: int


@lru_cache(2048)
def schema_of(domain: str, name: str, version: int) -> Schema | None:
    """The schema of an operator at an opset version; None if there is none."""
    defs = onnx_package().defs
    try:
        found = defs.get_schema(name, max_inclusive_version=version, domain=domain)
    except defs.SchemaError:
        return None
    defaults = {
        key: value_of(attribute.default_value, None)
        for key, attribute in found.attributes.items()
        if attribute.default_value.type
    }
    required = tuple(key for key, a in found.attributes.items() if a.required)
    bounds = found.min_input, found.max_input
    return Schema(
        found, defaults, frozenset(found.attributes), required, bounds, found.since_version
    )


def value_of(attribute: Any, folder: Path | None) -> Any:
    """The value of an attribute: a number, a text, a tuple of them, a Tensor, or a TypeProto."""
    kind = attribute.type
    if kind == FLOAT:
        return float(attribute.f)
    if kind == INT:
        return int(attribute.i)
    if kind == STRING:
        return _text(attribute.s)
    if kind == TENSOR:
        return as_tensor(array_of(attribute.t, folder))
    if kind == FLOATS:
        return tuple(map(float, attribute.floats))
    if kind == INTS:
        return tuple(map(int, attribute.ints))
    if kind == STRINGS:
        return tuple([_text(x) for x in attribute.strings])
    if kind == SPARSE:
        return as_tensor(dense_of(attribute.sparse_tensor, folder))
    if kind == TYPE:
        return attribute.tp
    raise Refused(f"the attribute {attribute.name} of type {kind}")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def attributes_of(node: Any, schema: Schema | None, folder: Path | None) -> dict[str, Any]:
    """The attributes of a node, without subgraphs, with the schema's defaults."""
    found = dict(schema.defaults) if schema else {}
    seen: set[str] = set()
    for attribute in node.attribute:
        if attribute.name in seen:
            fail(f"the attribute {attribute.name} comes twice", received=node.op_type)
        seen.add(attribute.name)
        if schema and attribute.name not in schema.known:
            raise Refused(f"there is no attribute {attribute.name!r}")
        if schema and attribute.type != int(schema.proto.attributes[attribute.name].type):
            raise Refused(f"the attribute {attribute.name} is of another type")
        if attribute.type not in (GRAPH, GRAPHS):
            found[attribute.name] = value_of(attribute, folder)
    missing = [name for name in schema.required if name not in seen] if schema else []
    if missing:
        raise Refused(f"the attribute {missing[0]} is missing")
    return found
