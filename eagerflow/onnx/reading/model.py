"""ONNX files: parsed, and validated before they are used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from eagerflow.dims import Dim
from eagerflow.dtypes import DType
from eagerflow.handlers import raised_here
from eagerflow.onnx.package import PRODUCER, onnx_package
from eagerflow.onnx.reading.calls import Refused
from eagerflow.onnx.reading.element_types import NAMES, dtype_of
from eagerflow.onnx.reading.tensors import FOUR_BITS, array_of, dense_of, fail, four_bits_of
from eagerflow.runtime.properties import cached_property

OLDEST, NEWEST = 7, 28
"""The supported opset versions of ONNX's own domain; older ones for unchanged operators."""
MAX_DEPTH = 24
"""The nesting depth of graphs."""

Functions = dict[tuple[str, str, str], Any]


def domain_of(name: str) -> str:
    """The canonical form of a domain: ONNX's own has two names."""
    return "" if name == "ai.onnx" else name


class Model:
    """A parsed model: its graph, its functions by domain, name and overload, and its opsets."""

    def __init__(self, source: Any) -> None:
        self.folder: Path | None = None
        self.label = "model.onnx"
        if isinstance(source, bytes | bytearray | memoryview):
            data = bytes(source)
        else:
            path = Path(os.fspath(source))
            self.folder, self.label = path.parent, path.name
            data = path.read_bytes()
        self.size = len(data)
        self.proto = _parsed(data)
        _check_texts(self.proto)
        self.graph = self.proto.graph
        self.is_ours = self.proto.producer_name == PRODUCER
        self.opsets = opsets_of(self.proto.opset_import)
        self.functions: Functions = {}
        for function in self.proto.functions:
            key = domain_of(function.domain), function.name, function.overload
            if key in self.functions:
                fail(f"the function {function.name!r} comes twice")
            self.functions[key] = function
        self._check()

    def _check(self) -> None:
        version = self.opsets.get("")
        if version is not None and version > NEWEST:
            fail(
                "the model is of another version",
                received=f"opset {version}",
                expected=f"opset {OLDEST} to {NEWEST}",
                hint="onnx.version_converter.convert_version(model, ...)",
            )
        for graph in (self.graph, *self.functions.values()):
            _check_depth(graph, 0)

    def array(self, proto: Any) -> Any:
        """The values of an initializer.

        4-bit numbers are stored as bytes where only their values matter.
        """
        if hasattr(proto, "indices"):
            return dense_of(proto, self.folder)
        if NAMES.get(proto.data_type) in FOUR_BITS and proto.name not in self._read_as_they_are:
            return four_bits_of(proto, self.folder)
        return array_of(proto, self.folder)

    @cached_property
    def _read_as_they_are(self) -> set[str]:
        """Names that have other uses than dequantization."""
        found, waiting = set[str](), [self.graph]
        while waiting:
            graph = waiting.pop()
            found.update(info.name for info in graph.output)
            for node in graph.node:
                waiting += graphs_in(node).values()
                values = node.op_type == "DequantizeLinear" and not domain_of(node.domain)
                found.update(n for i, n in enumerate(node.input) if not values or i == 1)
        return found


def _parsed(data: bytes) -> Any:
    model = onnx_package().ModelProto()
    try:
        model.ParseFromString(data)
    except raised_here(Exception) as error:
        # protobuf's classes differ between versions
        fail("this is not an ONNX model, or a damaged one", received=str(error))
    if not model.HasField("graph"):
        fail("the model has no graph")
    if not model.opset_import:
        fail("the model does not say which operators it means", expected="opset_import")
    return model


def opsets_of(imports: Any) -> dict[str, int]:
    """The opset version of each domain."""
    found: dict[str, int] = {}
    for entry in imports:
        domain = domain_of(entry.domain)
        if found.setdefault(domain, entry.version) != entry.version:
            fail(f"there are two versions of the domain {entry.domain!r}")
        if not 0 < entry.version < 2**31:
            fail(f"the version of the domain {entry.domain!r} is {entry.version}")
    return found


def graphs_in(node: Any) -> dict[str, Any]:
    """The subgraphs of a node by the names of their attributes."""
    return {a.name: a.g for a in node.attribute if a.HasField("g")}


def _check_texts(proto: Any) -> None:
    """Check that all texts are texts: protobuf returns bytes for invalid UTF-8."""
    waiting = [proto]
    while waiting:
        for field, value in waiting.pop().ListFields():
            if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
                continue
            several = hasattr(value, "append") or hasattr(value, "add")
            parts = list(value) if several else [value]
            if field.type == field.TYPE_MESSAGE:
                waiting += parts
            elif not all(isinstance(part, str) for part in parts):
                fail(f"a {field.name} is not a text", received=repr(value)[:100])


def _check_depth(graph: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        fail("graphs are nested too deeply", expected=f"at most {MAX_DEPTH} levels")
    for node in graph.node:
        for inner in graphs_in(node).values():
            _check_depth(inner, depth + 1)


# Types --------------------------------------------------------------------------------------------


def tensor_type(info: Any) -> Any:
    """The tensor type of a ValueInfoProto; Refused for sequences, maps and sparse tensors.

    An optional tensor is assumed to be present.
    """
    kind = info.type
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if kind.HasField("tensor_type"):
        return kind.tensor_type
    what = kind.WhichOneof("value")
    if what is None:
        raise Refused("it has no type")
    raise Refused(f"a {what.removesuffix('_type').replace('_', ' ')} as an input or output")


def dtype_and_shape(info: Any, named: Any) -> tuple[DType, tuple[int | Dim, ...] | None]:
    """The dtype and shape of a ValueInfoProto; the shape is None if the rank is unknown.

    ``named(name)`` returns the size with a name; unnamed sizes are named after the value.
    """
    kind = tensor_type(info)
    dtype = dtype_of(kind.elem_type)
    if not kind.HasField("shape"):
        return dtype, None
    sizes = []
    for i, dim in enumerate(kind.shape.dim):
        if dim.HasField("dim_value"):
            sizes.append(int(dim.dim_value))
        else:
            sizes.append(named(dim.dim_param or f"{info.name}_dim{i}"))
    if any(isinstance(size, int) and size < 0 for size in sizes):
        fail(f"{info.name!r} has an impossible shape", received=str(tuple(sizes)))
    return dtype, tuple(sizes)
