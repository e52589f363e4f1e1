"""Graphs without ``ef.print``: gradients repeat computations, whose values were shown before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.graph.cache import kept
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.walk import needed, nodes_within, renewed, with_bodies

if TYPE_CHECKING:
    from eagerflow.graph.graph import Graph

ORDER = "ef.print"
"""The name of the Variable that keeps calls in order."""


def silent(nodes: Iterable[Node], new: dict[Value, Value] | None = None) -> list[Node]:
    """The nodes without prints, also in bodies; ``new`` receives the values for replaced ones."""
    new = {} if new is None else new
    found = []
    for node in nodes:
        if node.op.name == "print":
            order = node.inputs[0]
            new[node.outputs[0]] = new.get(order, order)
        else:
            found.append(renewed(node, new, with_bodies(node.attributes, silent_body)))
    return found


@kept
def silent_body(graph: Graph) -> Graph:
    """The same body without prints; itself if it has none."""
    if not shows(graph):
        return graph
    new: dict[Value, Value] = {}
    nodes = silent(graph.nodes, new)
    return type(graph)(graph.name, graph.inputs, nodes, graph.outputs.replaced(new))


@kept
def shows(graph: Graph) -> bool:
    """Whether a graph, or a graph nested in it, prints."""
    return any(node.op.name == "print" for node in nodes_within(graph))


def without_prints(graph: Graph) -> Graph:
    """The same graph for other libraries: it prints nothing, and has no Variable for the order."""
    if not shows(graph):
        return graph
    new: dict[Value, Value] = {}
    cells = []
    for cell in graph.cells:
        if cell.name == ORDER:
            order = as_tensor(np.int64(0))
            new[cell.value] = Value(ORDER, (), order.dtype, constant=order)
        else:
            cells.append(cell)
    nodes = silent(graph.nodes, new)
    cells = [cell.replaced(new) for cell in cells]
    outputs = graph.outputs.replaced(new)
    ends = [*outputs, *(c.assigned for c in cells if c.assigned is not None)]
    return type(graph)(
        graph.name,
        graph.inputs,
        needed(nodes, ends),
        outputs,
        cells,
        graph.argument_structure,
        graph.structure,
        tuple(new.get(x, x) if type(x) is Value else x for x in graph.results),
    )
