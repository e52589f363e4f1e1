"""Arguments that mean a graph: a graph, a captured function, or a model."""

from __future__ import annotations

from typing import Any

from eagerflow.capture.function import Function
from eagerflow.errors import ArgumentError, short_repr
from eagerflow.graph.graph import Graph


def graph_of(what: Any, op: str) -> Graph:
    """The graph of an argument of the function ``op``; ArgumentError if it has none, or several."""
    if isinstance(what, Graph):
        return what
    if isinstance(what, Function):
        if what.input_signature is not None:
            return what.graph()
        if len(what.graphs) == 1:
            return what.graphs[0]
        raise ArgumentError(
            f"the function has {len(what.graphs)} graphs",
            op=op,
            argument="graph",
            expected="one graph",
            hint=f"{op}(f.graph(ef.TensorSpec(...)), ...)",
        )
    if hasattr(what, "prediction_graph"):
        found: Graph = what.prediction_graph()
        return found
    raise ArgumentError(
        f"{short_repr(what)} is no graph",
        op=op,
        argument="graph",
        expected="a Graph, an ef.function or an ef.nn model",
    )
