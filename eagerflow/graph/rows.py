"""Whether the rows of a graph are independent, so that calls can be batched along them.

``split`` of each op states along which axes its work may be divided. Followed from the inputs
to the outputs, it proves that row ``i`` of every result depends only on row ``i`` of the inputs.
"""

from __future__ import annotations

from typing import Any

from eagerflow.dims import Dim
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.op import Missing

__all__ = ["mixing"]

_SHAPES = ("broadcast_to", "reshape")  # ops with the shape itself as an attribute


def mixing(graph: Graph, size: str) -> str | None:
    """Why rows may depend on each other along the dimension of this name; None if they do not.

    The inputs with this first size have rows; everything else is the same for every row.

    >>> rows = ef.TensorSpec(("batch", 3), "float32")
    >>> from eagerflow.graph.rows import mixing
    >>> mixing(ef.capture.trace(lambda x: ef.softmax(x, axis=1), rows), "batch")
    >>> print(mixing(ef.capture.trace(lambda x: ef.softmax(x, axis=0), rows), "batch"))
    softmax (...) needs all rows at once
    """
    rows = Dim(size)
    axes: dict[Value, int | str] = {
        v: 0 for v in graph.inputs if v.shape and v.shape[0] == rows
    }  # or the reason why a value mixes rows
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
    """The axis of the rows in a node's results, None if there is none; a reason if mixed."""
    own = [axes.get(x) if type(x) is Value else None for x in node.inputs]
    if node.op.fills or all(axis is None for axis in own):
        return _axis_made(node, rows)
    mixed = [axis for axis in own if isinstance(axis, str)]
    if mixed:
        return mixed[0]
    first, made = node.outputs[0], f"{_told(node)} needs all rows at once"
    axis = _axis_of_shape(node, own[0], rows) if node.op.name in _SHAPES else _axis_cut(node, own)
    others = [n for i, n in enumerate(first.shape) if i != axis]
    return made if axis is None or any(_counts(rows, n) for n in others) else axis


def _axis_of_shape(node: Node, own: Any, rows: Dim) -> int | None:
    """The axis of the rows after a change of shape; ``own`` is the axis before."""
    before, after = node.inputs[0].shape, node.outputs[0].shape
    if node.op.name == "broadcast_to":
        return int(len(after) - len(before) + own)
    # Elements keep their order: rows stay rows if all axes before them have size 1.
    at = next((i for i, n in enumerate(after) if n != 1), 0)
    apart = all(n == 1 for n in before[:own])
    return at if apart and after and after[at] == rows else None


def _axis_cut(node: Node, own: list[Any]) -> int | None:
    """The axis of the rows in the result of an op that can be divided along them."""
    if isinstance(node.op.split, Missing):
        return None
    specs = [x.spec if type(x) is Value else x for x in node.inputs]
    for way in node.op.split(*specs, **node.attributes):
        cuts = [a if a is None else a % s.ndim for a, s in zip(way.inputs, specs, strict=True)]
        if way.combine == "concat" and way.axis is not None and cuts == own:
            return int(way.axis % len(node.outputs[0].shape))
    return None


def _axis_made(node: Node, rows: Dim) -> int | str | None:
    """The axis of the rows in a result without row operands: all of its rows are the same."""
    (made, *_) = node.outputs
    if not any(_counts(rows, n) for v in node.outputs for n in v.shape):
        return None
    if (node.op.fills or node.op.name in _SHAPES) and rows in made.shape:
        return made.shape.index(rows)
    return f"{_told(node)} depends on how many rows there are"


def _counts(rows: Dim, size: Any) -> bool:
    """Whether a size depends on the number of rows."""
    return isinstance(size, Dim) and str(rows) in _words(size)


def _words(size: Any) -> set[str]:
    """The names in a size, including those in quotients."""
    return set("".join(c if c.isalnum() or c == "_" else " " for c in str(size)).split())


def _told(node: Node) -> str:
    return f"{node.name} ({node.place})" if node.origin is not None else node.name
