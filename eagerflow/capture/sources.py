"""What exporters take: a graph, a captured function, or a model."""

from __future__ import annotations

from typing import Any

from eagerflow.capture.function import Function
from eagerflow.errors import ArgumentError, short_repr
from eagerflow.graph.graph import Graph


def graph_of(what: Any, exporter: str) -> Graph:
    """The graph of a Graph, of an ``ef.function`` with one graph, or of an ``ef.nn`` model.

    Raises ArgumentError, which names the ``exporter``, for all else.
    """
    if isinstance(what, Graph):
        return what
    if isinstance(what, Function):
        if what.input_signature is not None:
            return what.graph()
        if len(what.graphs) == 1:
            return what.graphs[0]
        raise ArgumentError(
            f"the function has {len(what.graphs)} graphs",
            op=exporter,
            argument="graph",
            expected="one graph",
            hint=f"{exporter}(f.graph(ef.TensorSpec(...)), path)",
        )
    if hasattr(what, "prediction_graph"):
        found: Graph = what.prediction_graph()
        return found
    raise ArgumentError(
        f"{short_repr(what)} is no graph",
        op=exporter,
        argument="graph",
        expected="a Graph, an ef.function or an ef.nn model",
    )
