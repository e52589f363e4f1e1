"""Walks over graphs: the bodies of nodes, all values, and the nodes needed for values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any

from eagerflow.dims import Shape
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value, Values
from eagerflow.op import Op


def named_bodies(attributes: Mapping[str, Any]) -> Iterator[tuple[str, Graph]]:
    """The graphs among the attributes of a node, as for a branch or a loop, with their names."""
    for name, value in attributes.items():
        if isinstance(value, Graph):
            yield name, value
        elif type(value) is tuple:
            for i, part in enumerate(value):
                if isinstance(part, Graph):
                    yield f"{name}[{i}]", part


def bodies_of(attributes: Mapping[str, Any]) -> list[Graph]:
    """The graphs among the attributes of a node."""
    return [body for _, body in named_bodies(attributes)]


def with_bodies(attributes: dict[str, Any], change: Callable[[Graph], Graph]) -> dict[str, Any]:
    """Attributes with ``change`` applied to the graphs among them; the same if none changes."""
    changed: dict[str, Any] = {}
    for name, item in attributes.items():
        if isinstance(item, Graph):
            changed[name] = change(item)
        elif type(item) is tuple and any(isinstance(part, Graph) for part in item):
            parts = tuple([change(x) if isinstance(x, Graph) else x for x in item])
            changed[name] = item if all(map(is_, parts, item)) else parts
    same = all(found is attributes[name] for name, found in changed.items())
    return attributes if same else attributes | changed


def is_closed(node: Node) -> bool:
    """Whether a node is computed as a whole, so that its bodies must not be changed."""
    return node.attributes.get("compiled") is True


def bodies_in(graph: Graph, closed: bool = True) -> Iterator[Graph]:
    """The bodies of the nodes of a graph, with or without those of ``closed`` ones.

    An op holds graphs in all of its nodes, or in none.
    """
    holders: dict[Op, bool] = {}
    for node in graph.nodes:
        holds = holders.get(node.op)
        if holds is None:
            holds = holders[node.op] = bool(bodies_of(node.attributes))
        if holds and (closed or not is_closed(node)):
            yield from bodies_of(node.attributes)


def inside_out(
    graph: Graph, change: Callable[[Graph, dict[int, Graph]], Graph], closed: bool = True
) -> Graph:
    """``change`` applied to the bodies in a graph, innermost first, and then to the graph.

    ``change`` takes a graph and the replacements of bodies so far, by id. Bodies of
    ``closed`` nodes are included, or skipped.
    """
    bodies: dict[int, Graph] = {}
    done: set[int] = set()

    def visit(one: Graph) -> None:
        done.add(id(one))
        for body in bodies_in(one, closed):
            if id(body) not in done:
                visit(body)
        found = change(one, bodies)
        if found is not one:
            bodies[id(one)] = found

    visit(graph)
    return bodies.get(id(graph), graph)


def nodes_within(*graphs: Graph) -> Iterator[Node]:
    """The nodes of some graphs and of all their bodies."""
    waiting = list(graphs)
    while waiting:
        for node in waiting.pop().nodes:
            yield node
            waiting += bodies_of(node.attributes)


def all_values(graph: Graph) -> Iterator[Value]:
    """Every value of a graph: entries, constants, and results of nodes."""
    yield from graph.all_inputs()
    yield from graph.constants
    for node in graph.nodes:
        yield from node.outputs


def named_inputs(graph: Graph) -> Iterator[tuple[str, str, Value]]:
    """The values that a graph reads: ``input``, ``variable`` or ``constant``, name, and value."""
    for name, value in zip(graph.inputs.names, graph.inputs, strict=True):
        yield "input", name, value
    for cell in graph.cells:
        yield "variable", cell.name, cell.value
    for value in graph.constants:
        yield "constant", value.name, value


def named_outputs(graph: Graph) -> Iterator[tuple[str, str, Value]]:
    """The values that a graph computes: ``return`` or ``assign``, the name, and the value."""
    for name, value in zip(graph.outputs.names, graph.outputs, strict=True):
        yield "return", name, value
    for cell in graph.cells:
        if cell.assigned is not None:
            yield "assign", cell.name, cell.assigned


def returned(graph: Graph) -> Values:
    """The outputs in the nest of the result; tapped outputs follow them."""
    count = sum(type(x) is Value for x in graph.results)
    return Values(graph.outputs[:count], graph.outputs.names[:count])


def needed(nodes: Sequence[Node], values: Iterable[Value]) -> list[Node]:
    """The nodes needed to compute these values, in order."""
    waiting: set[Any] = set(values)
    found = []
    for node in reversed(nodes):
        if not waiting.isdisjoint(node.outputs):
            found.append(node)
            waiting.update(node.inputs)
    return found[::-1]


def as_inputs(values: Iterable[Value]) -> dict[Value, Value]:
    """New values without nodes, to replace results that become inputs of a graph."""
    return {v: v.like() for v in values if v.node is not None}


def substituted(nodes: Iterable[Node], new: dict[Value, Value]) -> list[Node]:
    """The nodes with ``new`` values substituted in their inputs; adds new results to ``new``."""
    return [renewed(node, new) for node in nodes]


def renewed(
    node: Node,
    new: dict[Value, Value],
    attributes: dict[str, Any] | None = None,
    name: str | None = None,
    shapes: Sequence[Shape] | None = None,
) -> Node:
    """The node with ``new`` values among its inputs, and with the other facts given.

    It is the same node if nothing changes; else its results are added to ``new``.
    """
    inputs = node.inputs
    for x in inputs:
        if x in new:
            inputs = tuple([new.get(x, x) for x in inputs])
            break
    else:
        if (
            (attributes is None or attributes is node.attributes)
            and (name is None or name == node.name)
            and (shapes is None or all(map(is_, shapes, (v.shape for v in node.outputs))))
        ):
            return node
    made = node.like(inputs, attributes, name, shapes)
    for before, after in zip(node.outputs, made.outputs, strict=True):
        new[before] = after
    return made
