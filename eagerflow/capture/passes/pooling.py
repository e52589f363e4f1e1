"""Pooling: a relu before a max pooling moves behind it, where there are fewer elements.

A relu does not change which element of a window is the largest. It can thus be applied to the
pooled values, and in the gradient as well: ``max_pool_gradient(relu(x), g)`` and the relu's
gradient behind it become one of ``x``, of a gradient zeroed before. An element set to 0 by a relu
gets no gradient, at any position of its window. (If a window holds NaN, as the result then
does, its gradient is 0.)
"""

from __future__ import annotations

from collections import defaultdict

from eagerflow.capture.passes.rewriting import Rewrite, Sweep, swept
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.ops.elementwise.activation import relu, relu_gradient
from eagerflow.ops.nn.pooling import max_pool, max_pool_gradient


def with_relus_behind(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph with relus behind max poolings that are the only readers of their results.

    >>> f = lambda x: ef.max_pool(ef.relu(x), 2)
    >>> graph = ef.capture.trace(f, ef.TensorSpec((1, 4, 4, 3), "float32"))
    >>> [node.op.name for node in with_relus_behind(graph)[0].nodes]
    ['relu', 'max_pool', 'relu']
    >>> [node.op.name for node in graph.optimized().nodes]
    ['max_pool', 'relu']
    """
    return swept("pooling", graph, {}, _Behind)


class _Behind(Sweep):
    """A sweep over relus, poolings and their gradients."""

    def run(self) -> Graph:
        self.users: defaultdict[Value, list[Node | None]] = defaultdict(list)
        for node in self.graph.nodes:
            for x in node.values():
                self.users[x].append(node)
        for value in self.graph.all_outputs():
            self.users[value].append(None)
        self.moved = {
            node.outputs[0]
            for node in self.graph.nodes
            if node.op.call is relu and self._moves(node.outputs[0])
        }
        return super().run() if self.moved or self.bodies else self.graph

    def look(self, node: Node) -> bool:
        call, x = node.op.call, node.inputs[0] if node.inputs else None
        if type(x) is not Value or self._before(x) not in self.moved:
            return False
        self.root = node
        (value,) = node.outputs
        whole = x.node.inputs[0]  # type: ignore[union-attr]
        if call is max_pool:
            found = self.make(relu, self.make(max_pool, whole, **node.attributes))
            self.note("max_pool(relu(x)) -> relu(max_pool(x))", node)
        elif call is max_pool_gradient:
            pooled = self.make(max_pool, whole, **node.attributes)
            g = self.make(relu_gradient, pooled, node.inputs[1])
            found = self.make(max_pool_gradient, whole, g, **node.attributes)
        elif call is relu_gradient:
            found = node.inputs[1]
        else:
            return False
        self.replace(value, found)
        return True

    def _moves(self, y: Value) -> bool:
        """Whether a relu's result is only read by poolings and their gradients, on its device."""
        if not y.shape or y.dtype.kind != "f" or y.node is None:
            return False
        poolings = 0
        for node in self.users[y]:
            if node is None or node.device != y.node.device or node.inputs[0] is not y:
                return False
            if node.op.call is max_pool:
                poolings += 1
            elif node.op.call is max_pool_gradient:
                if node.inputs[1] is y or not self._ends_in_relu(node.outputs[0], y):
                    return False
            elif node.op.call is relu_gradient:
                g = node.inputs[1]
                if type(g) is not Value or g.node is None or self.users[g] != [node]:
                    return False
                if g.node.op.call is not max_pool_gradient or g.node.inputs[0] is not y:
                    return False
            else:
                return False
        return poolings > 0

    def _ends_in_relu(self, g: Value, y: Value) -> bool:
        """Whether only the gradient of the preceding relu reads the gradient of a pooling."""
        node = self.users[g][0] if len(self.users[g]) == 1 else None
        return node is not None and node.op.call is relu_gradient and node.inputs == (y, g)

    def _before(self, x: Value) -> Value:
        return self._old.get(x, x)
