"""Scopes of names in graphs, in nested graphs, and in functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.onnx.package import onnx_package
from eagerflow.onnx.reading.attributes import Schema
from eagerflow.onnx.reading.calls import Refused
from eagerflow.onnx.reading.element_types import element_type_of
from eagerflow.onnx.reading.model import NEWEST, domain_of, opsets_of
from eagerflow.onnx.reading.tensors import fail

MAX_LEVELS = 32
"""The nesting depth of functions and bodies."""


class Scope:
    """Names and their values; missing names are looked up in the enclosing scope.

    ``attributes`` are those of the function that is expanded, ``calls`` the stack of enclosing
    functions; ``sizes`` are the names of free sizes.
    """

    def __init__(self, opsets: dict[str, int], sizes: set[str]) -> None:
        self.opsets = opsets
        self.sizes = sizes
        self.values: dict[str, Any] = {}
        self.attributes: dict[str, Any] = {}
        self.calls: tuple[Any, ...] = ()
        self.is_body = False
        self.level = 0
        self._outer: Scope | None = None

    def _below(self, opsets: dict[str, int]) -> Scope:
        inner = Scope(opsets, self.sizes)
        inner.level = self.level + 1
        if inner.level > MAX_LEVELS:
            fail("functions and bodies are nested too deeply", expected=f"{MAX_LEVELS} levels")
        return inner

    def inside(self) -> Scope:
        """The scope of a graph within a node of this scope."""
        inner = self._below(self.opsets)
        inner.attributes, inner.calls = self.attributes, self.calls
        inner.is_body, inner._outer = True, self
        return inner

    def of_function(self, body: Any, node: Any) -> Scope:
        """The scope of a function called by a node of this scope."""
        key = domain_of(body.domain), body.name, body.overload
        if key in self.calls:
            fail(f"the function {body.name!r} calls itself")
        inner = self._below(opsets_of(body.opset_import) or self.opsets)
        inner.calls = (*self.calls, key)
        inner.is_body = self.is_body
        given = {a.name: a for a in node.attribute}
        inner.attributes = {a.name: a for a in body.attribute_proto} | given
        return inner

    def get(self, name: str) -> Any:
        """The value of a name; None if it is not defined."""
        around: Scope | None = self
        while around is not None:
            if name in around.values:
                return around.values[name]
            around = around._outer
        return None

    def find(self, name: str, reader: str) -> Any:
        """The value of a name; FileFormatError if it is not computed before."""
        around: Scope | None = self
        while around is not None:
            if name in around.values:
                return around.values[name]
            around = around._outer
        fail(
            f"there is no value {name!r} where it is read",
            received=reader,
            expected="an input, an initializer, or an output of an earlier node",
        )

    def bind(self, node: Any, found: Any, broken: Any) -> None:
        """Bind the names of a node's outputs to its results."""
        for i, name in enumerate(node.output):
            if not name:
                continue
            if name in self.values:
                fail(f"there are two values named {name!r}")
            self.values[name] = broken if found is broken else found[i]


def resolved(node: Any, around: Scope) -> Any:
    """A node of a function, with attributes that refer to the function's own resolved."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    copy = type(node)()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.append(attribute)
            continue
        given = around.attributes.get(attribute.ref_attr_name)
        if given is not None:
            own = copy.attribute.add()
            own.CopyFrom(given)
            own.name = attribute.name
    return copy


def body_of(schema: Schema, node: Any, version: int, given: list[Any]) -> Any:
    """The function by which the standard defines an operator, or None."""
    proto, data = schema.proto, None
    if proto.has_function:
        data = proto.get_function_with_opset_version(version)
    elif proto.has_context_dependent_function:
        types = [_type_of(x) for x in given]
        data = proto.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), types
        )
    if not data:
        return None
    body = onnx_package().FunctionProto()
    body.ParseFromString(data)
    body.name = body.name or proto.name
    for name, attribute in proto.attributes.items():
        if attribute.default_value.type and name in body.attribute:
            body.attribute_proto.append(attribute.default_value)
    if not any(domain_of(entry.domain) == "" for entry in body.opset_import):
        own = body.opset_import.add()  # an operator of another domain, defined by the latest ones
        own.version = NEWEST
    return body


def _type_of(x: Any) -> bytes:
    """The type of a value, in ONNX's notation."""
    proto = onnx_package().TypeProto()
    if isinstance(x, list):
        kind = proto.sequence_type.elem_type
        x = x[0] if x else None
    else:
        kind = proto
    if x is not None:
        if not hasattr(x, "dtype"):
            raise Refused("an input of this kind")
        kind.tensor_type.elem_type = element_type_of(np.dtype(x.dtype))
        for size in x.shape:
            dim = kind.tensor_type.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
    return bytes(proto.SerializeToString())
