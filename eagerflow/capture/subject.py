"""What users mean by a graph: one itself, a captured function, or a model."""

from __future__ import annotations

from typing import Any

from eagerflow.capture.function import Function
from eagerflow.errors import ArgumentError, short_repr
from eagerflow.graph.graph import Graph


def graph_of(what: Any, op: str) -> Graph:
    """The graph of what the function ``op`` is given; ArgumentError where it has none, or many."""
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
