"""Graphs for given sizes: every named dimension becomes the number that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eagerflow.dims import Dim
from eagerflow.errors import EagerflowError
from eagerflow.graph.ir import Cell, Graph, Node, Value, Values

__all__ = ["concrete"]

_new = object.__new__


def concrete(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The same graph with numbers in place of named dimensions, also in attributes and bodies.

    ``sizes`` gives the number of each name that occurs, or another size. Names, places and pins
    stay; a graph without named dimensions is returned as it is. Raises ShapeError for a name
    without a size.
    The time is proportional to the number of nodes.

    >>> graph = ef.capture.trace(lambda x: x.sum(axis=0), ef.TensorSpec(("batch", 3), "float32"))
    >>> concrete(graph, {"batch": 5}).inputs[0].shape
    (5, 3)
    """
    return _Filling(sizes).graph(graph) if _is_symbolic(graph) else graph


def _is_symbolic(graph: Graph) -> bool:
    """Whether a named dimension occurs anywhere; found once for each graph."""
    known: bool | None = graph.learned.get("symbolic")
    if known is None:
        known = graph.learned["symbolic"] = (
            any(map(_has_dims, (v.shape for v in graph.all_inputs())))
            or any(map(_has_dims, (v.shape for node in graph.nodes for v in node.outputs)))
            or any(_has_dims(a) for node in graph.nodes for a in node.attributes.values())
        )
    return known


def _has_dims(item: Any) -> bool:
    cls = type(item)
    if cls is tuple:
        for part in item:
            kind = type(part)
            if kind is Dim or (kind is not int and _has_dims(part)):
                return True
        return False
    if cls is slice:
        return any(type(part) is Dim for part in (item.start, item.stop, item.step))
    return cls is Dim or (isinstance(item, Graph) and _is_symbolic(item))


class _Filling:
    """One walk through a graph and its bodies: the numbers found so far, and the new values."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        # By identity: the graph holds the objects meanwhile, and equality of Dims takes long.
        self.numbers: dict[int, int] = {}
        self.graphs: dict[int, Graph] = {}

    def item(self, item: Any) -> Any:
        """A size, an attribute or a part of one, with numbers; itself where nothing changes."""
        cls = type(item)
        if cls is Dim:
            number = self.numbers.get(id(item))
            if number is None:
                number = self.numbers[id(item)] = item.evaluate(self.sizes)
            return number
        if cls is tuple:
            for part in item:
                if type(part) is not int and _has_dims(part):
                    return tuple([self.item(part) for part in item])
        elif cls is slice and _has_dims(item):
            return slice(self.item(item.start), self.item(item.stop), self.item(item.step))
        elif isinstance(item, Graph) and _is_symbolic(item):
            return self.graph(item)
        return item

    def shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """A shape with numbers; itself where it has them already."""
        numbers = self.numbers
        for size in shape:
            if size.__class__ is Dim:
                break
        else:
            return shape
        found = []
        for size in shape:
            if size.__class__ is Dim:
                number = numbers.get(id(size))
                size = self.item(size) if number is None else number
            found.append(size)
        return tuple(found)

    def entry(self, value: Value, new: dict[Value, Value]) -> Value:
        """The value for one that is given; itself where nothing changes."""
        shape = self.shape(value.shape)
        if shape is value.shape:
            return value
        found = new[value] = _copy(value, shape, value.node)
        return found

    def node(self, node: Node, new: dict[Value, Value]) -> Node:
        """The node for a node; itself where nothing changes."""
        attributes = node.attributes
        for item in attributes.values():
            if item.__class__ not in _PLAIN and _has_dims(item):
                attributes = {name: self.item(x) for name, x in attributes.items()}
                break
        before = node.inputs
        inputs = tuple([new.get(x, x) for x in before])
        if attributes is node.attributes and inputs == before:
            for value in node.outputs:
                if self.shape(value.shape) is not value.shape:
                    break
            else:
                return node
        found = _new(Node)
        found.op = node.op
        found.inputs = inputs
        found.attributes = attributes
        found.name = node.name
        found.origin = node.origin
        found.device = node.device
        outputs = []
        for value in node.outputs:
            new[value] = made = _copy(value, self.shape(value.shape), found)
            outputs.append(made)
        found.outputs = tuple(outputs)
        return found

    def graph(self, graph: Graph) -> Graph:
        """The graph for a graph, which shares what does not change."""
        known = self.graphs.get(id(graph))
        if known is not None:
            return known
        new: dict[Value, Value] = {}
        inputs = Values([self.entry(v, new) for v in graph.inputs], graph.inputs.names)
        cells = [self.cell(cell, new) for cell in graph.cells]
        nodes = []
        for node in graph.nodes:
            try:
                nodes.append(self.node(node, new))
            except EagerflowError as error:
                error.at = error.at or node.place or None
                raise
        for cell, before in zip(cells, graph.cells, strict=True):
            if cell is not before and before.assigned is not None:
                cell.assigned = new.get(before.assigned, before.assigned)
        outputs = Values([new.get(v, v) for v in graph.outputs], graph.outputs.names)
        results = tuple([new.get(x, x) if type(x) is Value else x for x in graph.results])
        found = self.graphs[id(graph)] = _new(type(graph))  # bodies have a class of their own
        Graph.__init__(
            found,
            graph.name,
            inputs,
            nodes,
            outputs,
            cells,
            graph.argument_structure,
            graph.structure,
            results,
        )
        found.learned["symbolic"] = any(isinstance(size, Dim) for size in self.sizes.values())
        return found

    def cell(self, cell: Cell, new: dict[Value, Value]) -> Cell:
        """A cell of its own, which is told later what is assigned."""
        return Cell(cell.name, cell.variable, self.entry(cell.value, new))


def _copy(value: Value, shape: tuple[Any, ...], node: Node | None) -> Value:
    found = _new(Value)
    found.name = value.name
    found.shape = shape
    found.dtype = value.dtype
    found.owner = value.owner
    found.node = node
    found.index = value.index
    found.constant = value.constant
    found.device = value.device
    return found


_PLAIN = frozenset({int, bool, float, str, type(None)})
