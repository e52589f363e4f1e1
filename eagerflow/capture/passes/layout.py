"""Layout: transposes that undo each other across element-wise ops are taken out.

Images lie channels last here. Code that was written for channels first puts transposes around
each layer, and what is between them then works on strided views, which element-wise kernels read
more slowly. Where an element-wise op stands between a transpose and its inverse, the transpose
moves behind the op, so that the two meet and cancel. Other transposes stay where they are: they
are views, and products read them as well as anything else.
"""

from __future__ import annotations

from typing import Any

from eagerflow.capture.passes.algebra import order_of
from eagerflow.capture.passes.rewriting import Rewrite, Sweep, swept
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.ops.shapes.reshaping import permute_dims, reshape


def untransposed(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph with transposes moved to where their inverses are; ``no_ops`` cancels them.

    >>> f = lambda x: ef.tanh(x.T).T
    >>> graph = ef.capture.trace(f, ef.TensorSpec((3, 2), "float32"))
    >>> [node.op.name for node in graph.optimized().nodes]
    ['tanh']
    """
    return swept("layout", graph, {}, _Sinking)


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([order.index(i) for i in range(len(order))])


class _Sinking(Sweep):
    def run(self) -> Graph:
        self.wanted = _wanted(self.graph)
        return super().run() if self.wanted or self.bodies else self.graph

    def look(self, node: Node) -> bool:
        if node.op.family != "elementwise":
            return False
        (value,) = node.outputs
        order = self.wanted.get(self._old.get(value, value))
        if order is None:
            return False
        self.root = node
        inputs = self._turned(node, _inverse(order))
        if inputs is None:
            return False
        inner = self.make(node.op.call, *inputs, **node.attributes)
        found = self.make(permute_dims, inner, axes=_inverse(order))
        self.replace(value, found)
        self.note(f"a transpose and its inverse around {node.op.name} -> none", node)
        return True

    def _turned(self, node: Node, order: tuple[int, ...]) -> list[Any] | None:
        """The inputs as they are before a transpose of ``order``; None if some are not behind one.

        What is repeated along axes is small: it is turned instead.
        """
        shape = node.outputs[0].shape
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
            elif x.shape == shape:
                return None
            else:
                x = self.make(reshape, x, shape=(1,) * (len(shape) - len(x.shape)) + x.shape)
                found.append(self.make(permute_dims, x, axes=_inverse(order)))
        return found if some else None


def _wanted(graph: Graph) -> dict[Any, tuple[int, ...]]:
    """The transpose that waits behind values that stand behind its inverse."""
    behind = _behind(graph)
    found: dict[Any, tuple[int, ...]] = {}
    for node in reversed(graph.nodes if behind else ()):
        x = node.inputs[0] if node.inputs else None
        if node.op.call is permute_dims:
            order = order_of(node)
            if behind.get(x) == _inverse(order):
                found[x] = order
        elif node.op.family == "elementwise" and node.outputs[0] in found:
            (value,) = node.outputs
            for x in node.inputs:
                if x in behind and x.shape == value.shape:
                    found.setdefault(x, found[value])
    return found


def _behind(graph: Graph) -> dict[Any, tuple[int, ...]]:
    """The transpose that values stand behind, with element-wise ops at most in between."""
    found: dict[Any, tuple[int, ...]] = {}
    for node in graph.nodes:
        if node.op.call is permute_dims:
            order = order_of(node)
            if order != tuple(range(len(order))):
                found[node.outputs[0]] = order
        elif found and node.op.family == "elementwise":
            (value,) = node.outputs
            whole = [x for x in node.inputs if type(x) is Value and x.shape == value.shape]
            orders = {found.get(x) for x in whole}
            common = orders.pop() if len(orders) == 1 else None
            if common is not None:
                found[value] = common
    return found
