"""Whether the rows of a graph are computed apart, so that calls can be joined along them.

``split`` says of each op along which axes its work may be cut. Followed from the inputs to the
outputs, it proves that row ``i`` of every result depends on row ``i`` of the inputs alone.
"""

from __future__ import annotations

from typing import Any

from eagerflow.dims import Dim
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.op import Missing

__all__ = ["mixing"]

_SHAPES = ("broadcast_to", "reshape")  # whose attribute is the shape itself


def mixing(graph: Graph, size: str) -> str | None:
    """Why rows may depend on each other along the dimension of this name; None if they do not.

    The inputs whose first size it is have rows; all else is the same for every row.

    >>> rows = ef.TensorSpec(("batch", 3), "float32")
    >>> from eagerflow.graph.rows import mixing
    >>> mixing(ef.capture.trace(lambda x: ef.softmax(x, axis=1), rows), "batch")
    >>> print(mixing(ef.capture.trace(lambda x: ef.softmax(x, axis=0), rows), "batch"))
    softmax (...) needs all rows at once
    """
    rows = Dim(size)
    axes: dict[Value, int | str] = {
        v: 0 for v in graph.inputs if v.shape and v.shape[0] == rows
    }  # or why a value has something of several rows
    for node in graph.nodes:
        axis = _axis_after(node, axes, rows)
        if axis is not None:
            axes |= dict.fromkeys(node.outputs, axis)
    for name, value in zip(graph.outputs.names, graph.outputs, strict=True):
        axis = axes.get(value)
        if axis != 0:
            return axis if isinstance(axis, str) else f"the output {name} does not begin with rows"
    assigned = [cell.name for cell in graph.cells if cell.assigned is not None]
    return f"the Variable {assigned[0]} is assigned" if assigned else None


def _axis_after(node: Node, axes: dict[Value, int | str], rows: Dim) -> int | str | None:
    """The axis of the rows in a node's results, None if there is none; why, if they are mixed."""
    own = [axes.get(x) if type(x) is Value else None for x in node.inputs]
    if node.op.fills or all(axis is None for axis in own):
        return _axis_made(node, rows)
    mixed = [axis for axis in own if isinstance(axis, str)]
    if mixed:
        return mixed[0]
    (first, *_), made = node.outputs, f"{_told(node)} needs all rows at once"
    if node.op.name in _SHAPES:
        return 0 if own[0] == 0 and first.shape and first.shape[0] == rows else made
    if isinstance(node.op.split, Missing):
        return made
    specs = [x.spec if type(x) is Value else x for x in node.inputs]
    for way in node.op.split(*specs, **node.attributes):
        cuts = [a if a is None else a % s.ndim for a, s in zip(way.inputs, specs, strict=True)]
        if way.combine == "concat" and way.axis is not None and cuts == own:
            return int(way.axis % len(first.shape))
    return made


def _axis_made(node: Node, rows: Dim) -> int | str | None:
    """The axis of the rows in what is made of nothing that has rows: all are the same there."""
    (made, *_) = node.outputs
    if not any(_counts(rows, v) for v in node.outputs):
        return None
    if (node.op.fills or node.op.name in _SHAPES) and rows in made.shape:
        return made.shape.index(rows)
    return f"{_told(node)} depends on how many rows there are"


def _counts(rows: Dim, value: Value) -> bool:
    """Whether a shape depends on the number of rows."""
    name = str(rows)
    return any(isinstance(size, Dim) and name in _words(size) for size in value.shape)


def _words(size: Any) -> set[str]:
    """The names in a size, those within quotients too."""
    return set("".join(c if c.isalnum() or c == "_" else " " for c in str(size)).split())


def _told(node: Node) -> str:
    return f"{node.name} ({node.place})" if node.origin is not None else node.name
