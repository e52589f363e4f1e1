"""Graphs for TensorBoard's graph view: a GraphDef with paths of scopes for names.

Inputs, Variables and constants are nodes of their own, ``name/assign`` assigns a Variable, and
outputs with names other than those of their nodes are nodes too. The graphs of a branch or a loop
are scopes within its node, connected to it by control edges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from eagerflow.devices import current_device
from eagerflow.dims import Dim
from eagerflow.errors import short_repr
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.names import FreeNames
from eagerflow.graph.walk import named_bodies
from eagerflow.summary.board import message

_STRANGE = re.compile(r"[^A-Za-z0-9_.\-/]+")
_FULL = "/job:local/task:0/device:"
_TYPES = {"float16": "HALF", "float32": "FLOAT", "float64": "DOUBLE"}  # other dtypes have one name


def graph_def(graph: Graph) -> bytes:
    """The GraphDef of a graph, serialised. The time is proportional to its size."""
    drawing = _Drawing()
    drawing.whole(graph)
    versions = message("versions", "VersionDef")(producer=22)
    made = message("graph", "GraphDef")(node=drawing.nodes, versions=versions)
    serialised: bytes = made.SerializeToString()
    return serialised


class _Drawing:
    """The nodes so far, and the names of values in them."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self._free = FreeNames().take
        self._names: dict[Value, str] = {}
        self._device = str(current_device())
        self._node_def = message("node_def", "NodeDef")

    def whole(self, graph: Graph) -> None:
        """Add the graph, with its inputs and outputs."""
        for name, value in zip(graph.inputs.names, graph.inputs, strict=True):
            self._entry(name, "Placeholder", value)
        for cell in graph.cells:
            self._entry(cell.name, "Variable", cell.value)
        self._inside(graph, "")
        for name, value in zip(graph.outputs.names, graph.outputs, strict=True):
            if name != value.name:
                self._add(self._label(name), "Output", [self._names[value]], [value])
        for cell in graph.cells:
            if cell.assigned is not None:
                given = [self._names[cell.value], self._names[cell.assigned]]
                self._add(self._label(f"{cell.name}/assign"), "Assign", given, [cell.value])

    def _label(self, name: str) -> str:
        """A unique name for a node, derived from this one."""
        return self._free(_plain(name))

    def _inside(self, graph: Graph, scope: str) -> None:
        for value in graph.constants:
            self._entry(scope + value.name, "Const", value)
        for node in graph.nodes:
            self._call(node, scope)

    def _entry(self, name: str, op: str, value: Value, given: Iterable[str] = ()) -> None:
        label = self._names[value] = self._label(name)
        self._add(label, op, given, [value], value.device)

    def _call(self, node: Node, scope: str) -> None:
        given = [self._names[v] for v in node.values()]
        name = self._label(scope + node.name)
        for label, body in named_bodies(node.attributes):
            given += self._body(node, body, f"{name}/{_plain(label)}/")
        facts = {node.op.argument(i): x for i, x in enumerate(node.inputs) if _is_number(x)}
        facts |= {key: x for key, x in node.attributes.items() if not _holds_graphs(x)}
        if node.place:
            facts["source"] = node.place
        self._add(name, node.op.name, given, node.outputs, node.device, facts)
        for i, value in enumerate(node.outputs):
            self._names[value] = f"{name}:{i}" if i else name

    def _body(self, node: Node, body: Graph, scope: str) -> list[str]:
        """Draw a body; returns the control edges from its results to the node that it belongs to.

        A body takes the operands of its node, without the first if that selects the branch.
        """
        operands = node.inputs[len(node.inputs) - len(body.inputs) :]
        for value, operand in zip(body.inputs, operands, strict=True):
            given = [self._names[operand]] if type(operand) is Value else []
            self._entry(scope + value.name, "Input", value, given)
        self._inside(body, scope)
        ends = dict.fromkeys(self._names[v].partition(":")[0] for v in body.outputs)
        return [f"^{name}" for name in ends]

    def _add(
        self,
        label: str,
        op: str,
        given: Iterable[str],
        outputs: Sequence[Value],
        device: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        place = device or self._device
        made = self._node_def(
            name=label,
            op=op,
            input=given,
            device=place if place.startswith("/") else _FULL + place,
        )
        made.attr["_output_shapes"].CopyFrom(_shapes(outputs))
        if outputs:
            made.attr["dtype"].CopyFrom(_attribute(outputs[0].dtype))
        for key, value in (facts or {}).items():
            made.attr[key].CopyFrom(_attribute(value))
        self.nodes.append(made)


def _plain(name: str) -> str:
    """A name in TensorFlow's character set; slashes separate scopes."""
    found = _STRANGE.sub("_", name).strip("/")
    return found if found[:1].isalnum() or found[:1] == "." else f".{found}"


def _is_number(x: Any) -> bool:
    return x is not None and type(x) is not Value


def _holds_graphs(value: Any) -> bool:
    return any(named_bodies({"": value}))


def _shapes(values: Iterable[Value]) -> Any:
    """The shapes of values; named dimensions are -1."""
    shape = message("tensor_shape", "TensorShapeProto")
    attribute = message("attr_value", "AttrValue")
    shapes = [
        shape(dim=[shape.Dim(size=-1 if isinstance(n, Dim) else n) for n in value.shape])
        for value in values
    ]
    return attribute(list=attribute.ListValue(shape=shapes))


def _attribute(value: Any) -> Any:
    """The attribute of a node; values without a form of their own become text."""
    attribute = message("attr_value", "AttrValue")
    if isinstance(value, bool):
        return attribute(b=value)
    if isinstance(value, int) and abs(value) < 1 << 63:
        return attribute(i=value)
    if isinstance(value, float):
        return attribute(f=value)
    if isinstance(value, np.dtype):
        types = message("types", "DataType")
        number = types.DESCRIPTOR.values_by_name.get(
            "DT_" + _TYPES.get(value.name, value.name.upper())
        )
        if number is not None:
            return attribute(type=number.number)
    words = value if isinstance(value, str) else short_repr(value)
    return attribute(s=words.encode("utf-8", "replace"))
