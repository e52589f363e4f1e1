"""Stop_gradient: ops that matter to gradients alone are left out where none will be asked for."""

from __future__ import annotations

from typing import Any

from eagerflow.capture.passes.rewriting import Rewrite, Sweep, by_op, rule, swept
from eagerflow.graph.ir import Graph, Node

__all__ = ["without_stop_gradients"]

NAME = "stop_gradients"


def without_stop_gradients(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph without stop_gradient: it runs alike, and its gradients are others.

    >>> f = lambda x: ef.tanh(ef.stop_gradient(x))
    >>> graph = ef.capture.trace(f, ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['stop_gradient', 'tanh']
    >>> [node.op.name for node in ef.capture.passes.stop_gradients(graph).nodes]
    ['tanh']
    """
    return swept(NAME, graph, _RULES)


@rule(NAME, "stop_gradient", "stop_gradient(x) -> x")
def _stopped(sweep: Sweep, node: Node) -> Any:
    return node.inputs[0]


_RULES = by_op(NAME)
