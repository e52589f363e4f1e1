"""Layout: transposes that undo each other across the ops between them are taken out.

Images are channels-last here. Code written for channels-first puts transposes around
each layer, and ops between them then work on strided views, which kernels read more slowly.
If an elementwise op, or one along axes, is between a transpose and its inverse, the
transpose moves behind the op, so that the two meet and cancel; reductions absorb them. Other
transposes stay in place: they are views, and products read them at full speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.capture.passes.algebra import order_of
from eagerflow.capture.passes.rewriting import Rewrite, Sweep, swept
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.op import Op, ops
from eagerflow.ops.family import op_of
from eagerflow.ops.reductions.softmax import log_softmax, logsumexp, softmax
from eagerflow.ops.reductions.statistics import mean, std, var
from eagerflow.ops.reductions.sums import all, any, max, min, prod, sum
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.padding import pad_widths
from eagerflow.ops.shapes.reshaping import permute_dims, reshape
from eagerflow.spec import normalize_axes, normalize_axis


def untransposed(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph with transposes moved to their inverses; ``no_ops`` cancels them.

    >>> f = lambda x: ef.tanh(x.T).T
    >>> graph = ef.capture.trace(f, ef.TensorSpec((3, 2), "float32"))
    >>> [node.op.name for node in graph.optimized().nodes]
    ['tanh']
    """
    return swept("layout", graph, {}, _Sinking)


Order = tuple[int, ...]


def _inverse(order: Order) -> Order:
    return tuple([order.index(i) for i in range(len(order))])


# Ops along axes ----------------------------------------------------------------------------------


def _with_axis(node: Node, order: Order) -> dict[str, Any]:
    """The attributes for inputs before a transpose of ``order``."""
    axis = normalize_axis(node.attributes["axis"], len(order))
    return node.attributes | {"axis": order[axis]}


def _with_width(node: Node, order: Order) -> dict[str, Any]:
    widths = pad_widths(node.attributes["pad_width"], len(order))
    return node.attributes | {"pad_width": tuple(widths[i] for i in _inverse(order))}


_ALONG: dict[Op, Callable[[Node, Order], dict[str, Any]]] = {
    op_of(concat): _with_axis,
    op_of(log_softmax): _with_axis,
    ops["pad"]: _with_width,  # ef.pad is no op itself
    op_of(softmax): _with_axis,
}
"""Ops independent of the order of axes, and their attributes for another order."""
_REDUCTIONS = frozenset(
    op_of(x) for x in (all, any, logsumexp, max, mean, min, prod, std, sum, var)
)


def _alike(node: Node) -> list[Value]:
    """The inputs with the same axes as the result; none for ops that depend on their order."""
    if node.op.family == "elementwise":
        shape = node.outputs[0].shape
        return [x for x in node.values() if x.shape == shape]
    return list(node.values()) if node.op in _ALONG else []


def _kept(node: Node, order: Order) -> tuple[Order, bool]:
    """The axes of a reduction behind a transpose, in terms of the transpose's input.

    Also whether the remaining axes keep their order.
    """
    axis = node.attributes["axis"]
    axes = tuple(range(len(order))) if axis is None else normalize_axes(axis, len(order))
    left = [order[i] for i in range(len(order)) if i not in axes]
    return tuple(sorted([order[i] for i in axes])), left == sorted(left)


# The pass ----------------------------------------------------------------------------------------


class _Sinking(Sweep):
    def run(self) -> Graph:
        self.wanted = _wanted(self.graph)
        return super().run() if self.wanted or self.bodies else self.graph

    def look(self, node: Node) -> bool:
        self.root = node
        if node.op in _REDUCTIONS:
            return self._reduction(node)
        if not _alike(node):
            return False
        (value,) = node.outputs
        wanted = self.wanted.get(self._old.get(value, value))
        if wanted is None:
            return False
        order = _inverse(wanted)
        inputs = self._turned(node, order)
        if inputs is None:
            return False
        along = _ALONG.get(node.op)
        attributes = node.attributes if along is None else along(node, order)
        inner = self.make(node.op.call, *inputs, **attributes)
        found = self.make(permute_dims, inner, axes=order)
        self.replace(value, found)
        self.note(f"a transpose and its inverse around {node.op.name} -> none", node)
        return True

    def _reduction(self, node: Node) -> bool:
        inner = self.maker(node.inputs[0], permute_dims)
        if inner is None or self._old.get(node.inputs[0], node.inputs[0]) not in self.wanted:
            return False
        axes, in_order = _kept(node, order_of(inner))
        if not in_order:
            return False
        (value,) = node.outputs
        attributes = node.attributes | {"axis": axes, "keepdims": False}
        found = self.make(node.op.call, inner.inputs[0], **attributes)
        if found.shape != value.shape:
            found = self.make(reshape, found, shape=value.shape)
        self.replace(value, found)
        self.note(f"{node.op.name}(permute_dims(x)) -> {node.op.name}(x)", node)
        return True

    def _turned(self, node: Node, order: Order) -> list[Any] | None:
        """The inputs before a transpose of ``order``; None if some are not behind one.

        Operands that are broadcast are small: they are transposed instead.
        """
        rank = len(order)
        alike = set(_alike(node))
        found: list[Any] = []
        some = False
        for x in node.inputs:
            if type(x) is not Value or not x.shape:
                found.append(x)
                continue
            inner = self.maker(x, permute_dims)
            if inner is not None and order_of(inner) == order:
                found.append(inner.inputs[0])
                some = True
            elif x in alike:
                return None
            else:
                x = self.make(reshape, x, shape=(1,) * (rank - len(x.shape)) + x.shape)
                found.append(self.make(permute_dims, x, axes=_inverse(order)))
        return found if some else None


def _wanted(graph: Graph) -> dict[Any, Order]:
    """The pending transpose for each value that is behind its inverse."""
    behind = _behind(graph)
    found: dict[Any, Order] = {}
    for node in reversed(graph.nodes if behind else ()):
        x = node.inputs[0] if node.inputs else None
        if node.op.call is permute_dims:
            order = order_of(node)
            if behind.get(x) == _inverse(order):
                found[x] = order
        elif node.op in _REDUCTIONS and x in behind:
            if _kept(node, behind[x])[1]:
                found.setdefault(x, _inverse(behind[x]))
        elif node.outputs[0] in found:
            for x in _alike(node):
                if x in behind:
                    found.setdefault(x, found[node.outputs[0]])
    return found


def _behind(graph: Graph) -> dict[Any, Order]:
    """The transpose before each value, with only order-independent ops in between."""
    found: dict[Any, Order] = {}
    for node in graph.nodes:
        if node.op.call is permute_dims:
            order = order_of(node)
            if order != tuple(range(len(order))):
                found[node.outputs[0]] = order
        elif found:
            orders = {found.get(x) for x in _alike(node)}
            common = orders.pop() if len(orders) == 1 else None
            if common is not None:
                found[node.outputs[0]] = common
    return found
