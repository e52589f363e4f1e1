"""Walks over what graphs hold: nested graphs, nodes, values, and what goes in and out by name."""

from __future__ import annotations

from collections.abc import Iterator

from eagerflow.graph.ir import Graph, Node, Value

__all__ = ["all_nodes", "named_inputs", "named_outputs", "nested", "own_values"]


def nested(node: Node) -> Iterator[tuple[str, Graph]]:
    """The graphs among the attributes of a node, as for a branch or a loop, with their names."""
    for name, value in node.attributes.items():
        if isinstance(value, Graph):
            yield name, value
        elif isinstance(value, tuple):
            for i, part in enumerate(value):
                if isinstance(part, Graph):
                    yield f"{name}[{i}]", part


def own_values(graph: Graph) -> Iterator[Value]:
    """Every value of a graph: what is given, constants, and what nodes make."""
    yield from graph.all_inputs()
    yield from graph.constants
    for node in graph.nodes:
        yield from node.outputs


def all_nodes(*graphs: Graph) -> Iterator[Node]:
    """The nodes of some graphs and of all graphs nested in them."""
    waiting = list(graphs)
    while waiting:
        for node in waiting.pop().nodes:
            yield node
            waiting += [body for _, body in nested(node)]


def named_inputs(graph: Graph) -> Iterator[tuple[str, str, Value]]:
    """What a graph reads: ``input``, ``variable`` or ``constant``, the name, and the value."""
    for name, value in zip(graph.inputs.names, graph.inputs, strict=True):
        yield "input", name, value
    for cell in graph.cells:
        yield "variable", cell.name, cell.value
    for value in graph.constants:
        yield "constant", value.name, value


def named_outputs(graph: Graph) -> Iterator[tuple[str, str, Value]]:
    """What a graph computes: ``return`` or ``assign``, the name, and the value."""
    for name, value in zip(graph.outputs.names, graph.outputs, strict=True):
        yield "return", name, value
    for cell in graph.cells:
        if cell.assigned is not None:
            yield "assign", cell.name, cell.assigned
