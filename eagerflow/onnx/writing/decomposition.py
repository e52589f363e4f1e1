"""Decomposition: ops without an ONNX operator are replaced by their bodies.

See ``capture/op_bodies.py``: bodies are traced with eagerflow's own ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.capture.control.scans import scan
from eagerflow.capture.op_bodies import OpsBackend, OpsLibrary
from eagerflow.capture.trace import Trace
from eagerflow.errors import CaptureError, EagerflowError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node
from eagerflow.graph.run import interpret
from eagerflow.graph.walk import inside_out, nodes_within, with_bodies
from eagerflow.handlers import raised_here
from eagerflow.onnx.writing import linear_algebra
from eagerflow.onnx.writing.formulas import FORMULAS
from eagerflow.onnx.writing.random_numbers import DRAWS
from eagerflow.op import Missing

MAX_STEPS = 8  # the depth of nested bodies

HasOperator = Callable[[Node], bool]


class _Library(OpsLibrary):
    """The ops, and the results of those that ONNX has."""

    linalg = linear_algebra
    scan = staticmethod(scan)


LIBRARY = _Library()
_ops = OpsBackend(LIBRARY)


class _Rewriting(Trace):
    """A trace of a graph's nodes, or of the bodies of their ops."""

    def __init__(self, graph: Graph, has_operator: HasOperator, bodies: dict[int, Graph]) -> None:
        super().__init__(graph.name)
        self.graph, self.has_operator, self.bodies = graph, has_operator, bodies
        self.node: Node | None = None  # the node in progress
        self.whole = True  # whether it is kept as it is
        self.changed = False
        take = self.unique
        for value in (*graph.all_inputs(), *graph.constants):
            take(value.name)
        self.unique = lambda base: take(self._named(base))

    def _named(self, base: str) -> str:
        if self.node is None:
            return base
        return self.node.name if self.whole else f"{self.node.name}/{base.rpartition('/')[2]}"

    def run(self) -> Graph:
        """The graph of the ops that its nodes, or their bodies, call."""
        graph = self.graph
        given = [v.like(None, None) for v in graph.all_inputs()]
        for value in given:
            value.owner = self
        with self:
            found = interpret(graph, [self.symbol(v) for v in given], self._called)
        new = dict(zip(graph.all_inputs(), given, strict=True))
        ends = [self.value_of(x) for x in found]
        new.update(zip(graph.all_outputs(), ends, strict=True))
        self.is_open = False
        return graph.like(self.nodes, new)

    def _called(self, node: Node, args: list[Any]) -> Any:
        self.node, attributes = node, self._attributes(node)
        self.whole = self.has_operator(node)
        if self.whole:
            return node.op.call(*args, **attributes)
        if isinstance(node.op.onnx, Missing):
            raise _no_operator(node, node.op.onnx.reason)
        self.changed = True
        dtype = next(v.dtype for v in (*node.values(), *node.outputs))
        try:
            made = self._body(node, dtype)(*args, **attributes)
        except EagerflowError as error:  # reported for the op of the graph, with the user's line
            error.op, error.at = error.op or node.op.name, node.place or error.at
            raise
        except raised_here(Exception) as error:
            raise _no_operator(node, f"its body needs arrays: {error}") from error
        return tuple(made) if isinstance(made, list) else made

    def _body(self, node: Node, dtype: Any) -> Callable[..., Any]:
        """The decomposition of an op: its formula, if it has one, or its kernel."""
        op = node.op
        if op.name in DRAWS:
            return DRAWS[op.name]
        return _ops.body(op, dtype, FORMULAS.get(op.name))

    def _attributes(self, node: Node) -> dict[str, Any]:
        return with_bodies(node.attributes, lambda body: self.bodies.get(id(body), body))


def _no_operator(node: Node, reason: str) -> CaptureError:
    words = f"it cannot be exported to ONNX: {reason}"
    return CaptureError(words, op=node.op.name, at=node.place or None)


def decomposed(graph: Graph, has_operator: HasOperator) -> Graph:
    """A graph in which ``has_operator`` is true for all nodes.

    Other nodes are replaced by the bodies of their ops, repeatedly; names of new nodes begin with
    the name of the original one. Raises CaptureError if a body calls the op itself, as for
    functions of the array library, or needs the values of arrays.
    """

    def change(one: Graph, bodies: dict[int, Graph]) -> Graph:
        for _ in range(MAX_STEPS):
            rewriting = _Rewriting(one, has_operator, bodies)
            one = rewriting.run()
            if not rewriting.changed:
                return one
        left = next(node for node in one.nodes if not has_operator(node))
        raise _no_operator(left, "it is a function of array libraries")

    while True:  # bodies may call ops that have bodies
        graph = inside_out(graph, change)
        if all(has_operator(x) for x in nodes_within(graph)):
            return graph
