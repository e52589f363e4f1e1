"""Common subexpressions: equal computations are done once."""

from __future__ import annotations

from typing import Any

from eagerflow.capture.control.bodies import exact
from eagerflow.capture.passes.rewriting import Rewrite, Sweep, swept
from eagerflow.capture.passes.shared_constants import is_lent
from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value

MAX_COMPARED_BYTES = 1024  # limit for constants compared by content


def merged(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph with one node in place of several equal ones, and small equal constants as one.

    Nodes are equal if they have the same op, inputs, attributes and pin; 1, 1.0
    and True are different, and so are 0.0 and -0.0. Ops are pure, random ones too, since their
    state is an input. The first of the nodes stays, with its name and line.

    >>> graph = ef.capture.trace(lambda x: ef.exp(x) + ef.exp(x), ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['exp', 'exp', 'add']
    >>> [node.op.name for node in ef.capture.passes.subexpressions(graph).nodes]
    ['exp', 'add']
    """
    return swept("subexpressions", graph, {}, _Merging)


class _Merging(Sweep):
    def run(self) -> Graph:
        self._known: dict[Any, Node] = {}
        constants: dict[Any, Value] = {}
        for value in self.graph.constants:
            small = nbytes(value) <= MAX_COMPARED_BYTES
            if small and not is_lent(value.constant):
                first = constants.setdefault(_content(value), value)
                if first is not value:
                    self.new[value] = first
        return super().run()

    def look(self, node: Node) -> bool:
        inputs: Any = node.inputs
        for x in inputs:
            if type(x) is not Value:
                inputs = tuple([x if type(x) is Value else exact(x) for x in inputs])
                break
        attributes = node.attributes
        key = (
            node.op,
            inputs,
            node.device,
            tuple([(n, exact(x)) for n, x in attributes.items()]) if attributes else None,
        )
        first = self._known.setdefault(key, node)
        if first is node or node.op.family == "communication":
            return False
        for value, found in zip(node.outputs, first.outputs, strict=True):
            self.replace(value, found)
        self.note(f"{node.name} is {first.name}", node)
        return True


def _content(value: Value) -> Any:
    tensor = value.constant
    array = tensor.numpy()
    return tensor.device, value.device, value.dtype, array.shape, array.strides, array.tobytes()
