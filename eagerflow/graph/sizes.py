"""Sizes of graphs: values of named dimensions in a call, and graphs with concrete sizes."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from eagerflow.dims import Dim
from eagerflow.errors import EagerflowError
from eagerflow.graph.cache import kept
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.walk import renewed

_KEPT = 8
"""The number of sets of sizes for which a body's concrete forms are cached."""


LATE: set[str] = set()
"""Ops with result sizes known only after a run; modules add their own."""


class Sizes(dict[str, Any]):
    """Sizes by name; a missing name stands for itself."""

    def __missing__(self, name: str) -> Dim:
        return Dim(name)


def bind(sizes: MutableMapping[str, Any], said: tuple[Any, ...], came: tuple[Any, ...]) -> bool:
    """Bind names in the shape ``said`` to the sizes in ``came``; False if they do not fit."""
    if len(said) != len(came):
        return False
    later = []
    for wanted, size in zip(said, came, strict=True):
        if not isinstance(wanted, Dim):
            if wanted != size:
                return False
        elif repr(wanted).isidentifier() and repr(wanted) not in sizes:
            sizes[repr(wanted)] = size
        else:
            later.append((wanted, size))
    return all(wanted.evaluate(sizes) == size for wanted, size in later)


def is_symbolic(item: Any) -> bool:
    """Whether there is a named dimension in a shape or an attribute, or anywhere in a graph."""
    cls = type(item)
    if cls is tuple:
        for part in item:
            kind = type(part)
            if kind is Dim or (kind is not int and is_symbolic(part)):
                return True
        return False
    if cls is slice:
        return any(type(part) is Dim for part in (item.start, item.stop, item.step))
    return cls is Dim or (isinstance(item, Graph) and has_names(item))


@kept
def has_names(graph: Graph) -> bool:
    """Whether there is a named dimension anywhere in a graph."""
    return (
        any(is_symbolic(v.shape) for v in graph.all_inputs())
        or any(is_symbolic(v.shape) for node in graph.nodes for v in node.outputs)
        or any(is_symbolic(a) for node in graph.nodes for a in node.attributes.values())
    )


def concrete(graph: Graph, sizes: Mapping[str, Any]) -> Graph:
    """The same graph with numbers in place of named dimensions, also in attributes and bodies.

    ``sizes`` gives the number of each name that occurs, or another size; with ``Sizes``, missing
    names stay. Names, places and pins stay; a graph without named dimensions is returned
    unchanged. Raises ShapeError for a name without a size. The time is proportional to the number
    of nodes.

    >>> graph = ef.capture.trace(lambda x: x.sum(axis=0), ef.TensorSpec(("batch", 3), "float32"))
    >>> concrete(graph, {"batch": 5}).inputs[0].shape
    (5, 3)
    """
    return _Filling(sizes).graph(graph) if has_names(graph) else graph


def with_sizes(item: Any, sizes: Sizes) -> Any:
    """A size, a shape or an attribute with known sizes filled in.

    Graphs are cached by sizes.
    """
    if not isinstance(item, Graph):
        return _Filling(sizes).item(item)
    if not has_names(item) or all(size == Dim(name) for name, size in sizes.items()):
        return item
    known = _concrete_forms(item)
    key = tuple(sorted((name, repr(size)) for name, size in sizes.items()))
    if key not in known:
        if len(known) >= _KEPT:
            known.clear()
        known[key] = concrete(item, sizes)
    return known[key]


@kept
def _concrete_forms(graph: Graph) -> dict[Any, Graph]:
    return {}


class _Filling:
    """One walk through a graph and its bodies: the numbers found so far, and the new values."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        # By identity: the graph keeps the objects alive, and comparing Dims is slow.
        self.numbers: dict[int, int] = {}
        self.graphs: dict[int, Graph] = {}

    def item(self, item: Any) -> Any:
        """A size, an attribute or a part of one, with numbers; itself if nothing changes."""
        cls = type(item)
        if cls is Dim:
            number = self.numbers.get(id(item))
            if number is None:
                number = self.numbers[id(item)] = item.evaluate(self.sizes)
            return number
        if cls is tuple:
            for part in item:
                if type(part) is not int and is_symbolic(part):
                    return tuple([self.item(part) for part in item])
        elif cls is slice and is_symbolic(item):
            return slice(self.item(item.start), self.item(item.stop), self.item(item.step))
        elif isinstance(item, Graph) and has_names(item):
            return self.graph(item)
        return item

    def shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """A shape with numbers; itself if it has them already."""
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

    def node(self, node: Node, new: dict[Value, Value]) -> Node:
        """The new node for a node; itself if nothing changes."""
        attributes = node.attributes
        for item in attributes.values():
            if item.__class__ not in _PLAIN and is_symbolic(item):
                attributes = {name: self.item(x) for name, x in attributes.items()}
                break
        return renewed(node, new, attributes, shapes=[self.shape(v.shape) for v in node.outputs])

    def graph(self, graph: Graph) -> Graph:
        """The new graph for a graph; unchanged parts are shared."""
        known = self.graphs.get(id(graph))
        if known is not None:
            return known
        new: dict[Value, Value] = {}
        for value in graph.all_inputs():
            shape = self.shape(value.shape)
            if shape is not value.shape:
                new[value] = value.like(value.node, None, shape)
        nodes = []
        for node in graph.nodes:
            try:
                nodes.append(self.node(node, new))
            except EagerflowError as error:
                error.at = error.at or node.place or None
                raise
        found = self.graphs[id(graph)] = graph.like(nodes, new)
        return found


_PLAIN = frozenset({int, bool, float, str, type(None)})
