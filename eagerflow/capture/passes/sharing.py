"""Scans and branches: shared computations run once, unused results are dropped.

The gradient of a scan runs it again, with residuals of each step as additional rows. A
captured program contains both runs, and the longer one can replace both.
"""

from __future__ import annotations

from typing import Any

from eagerflow.capture.control.bodies import Body
from eagerflow.capture.passes.rewriting import Rewrite, Sweep, swept
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.walk import is_closed, with_bodies


def new_node(like: Node, inputs: tuple[Any, ...], attributes: dict[str, Any], outs: Any) -> Node:
    """A node in place of ``like``, with results like ``outs``."""
    node = Node(like.op, inputs, attributes, like.name, like.origin, like.device)
    several = f"{like.name}:{{}}" if len(outs) != 1 else like.name
    node.outputs = tuple(
        Value(several.format(i), v.shape, v.dtype, v.owner, node, i, None, v.device)
        for i, v in enumerate(outs)
    )
    return node


# Equal scans --------------------------------------------------------------------------------------


def with_shared_scans(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph with one scan in place of two, if one computes all results of the other.

    This requires the same operands, and that the results of one body are the first results
    of the other. All bits stay the same.

    >>> f = lambda x: ef.scan(lambda c, _: (ef.sin(c), None), x, length=3)[0]
    >>> graph = ef.capture.trace(f, ef.TensorSpec((), "float32")).gradient("output", "x")
    >>> [node.op.name for node in graph.nodes].count("scan")
    3
    >>> [node.op.name for node in with_shared_scans(graph)[0].nodes].count("scan")
    2
    """
    return swept("shared_scans", graph, {}, _Sharing)


class _Sharing(Sweep):
    def run(self) -> Graph:
        self._longer = _longer_scans(self.graph)
        self._made: dict[str, tuple[Value, ...]] = {}
        return super().run() if self._longer or self.bodies else self.graph

    def look(self, node: Node) -> bool:
        whole = self._longer.get(node.name)
        if whole is None and node.name not in self._made:
            return False
        if whole is not None and whole.name not in self._made:
            made = new_node(node, node.inputs, self.attributes(whole), whole.outputs)
            self.nodes.append(made)
            self._made[whole.name] = made.outputs
        outs = self._made[node.name if whole is None else whole.name]
        for value, found in zip(node.outputs, outs, strict=False):
            self.replace(value, found)
        if whole is not None:
            self.note(f"{whole.name} serves for {node.name}", node)
        return True


def _longer_scans(graph: Graph) -> dict[str, Node]:
    """For scans by name, a later one that gives the same results and additional ones."""
    groups: dict[Any, list[Node]] = {}
    for node in graph.nodes:
        if node.op.name == "scan":
            facts = [str(value) for name, value in node.attributes.items() if name != "body"]
            groups.setdefault((node.inputs, node.device, *facts), []).append(node)
    found: dict[str, Node] = {}
    for nodes in groups.values():
        whole = max(nodes, key=lambda node: len(node.outputs))
        for node in nodes:
            before = nodes.index(node) < nodes.index(whole)
            if before and _begins_with(whole.attributes["body"], node.attributes["body"]):
                found[node.name] = whole
    return found


def _begins_with(whole: Graph, part: Graph) -> bool:
    """Whether the first results of a body equal those of another body."""
    first = Body(part.name, whole.inputs, whole.nodes, whole.outputs[: len(part.outputs)])
    return first == Body(part.name, part.inputs, part.nodes, part.outputs)


# Tape-recorded scans ------------------------------------------------------------------------------


def opened(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph with tape-recorded scans converted to ordinary scans.

    >>> def f(x):
    ...     with ef.GradientTape() as tape:
    ...         tape.watch(x)
    ...         y = ef.scan(lambda c, _: (ef.sin(c), None), x, length=3)[0]
    ...     return tape.gradient(y, x)
    >>> graph = ef.capture.trace(f, ef.TensorSpec((), "float32"))
    >>> scans = [node for node in opened(graph)[0].nodes if node.op.name == "scan"]
    >>> [node.attributes["compiled"] for node in scans]
    [False, False]
    """
    return swept("recorded_scans", graph, {}, _Opening)


class _Opening(Sweep):
    def look(self, node: Node) -> bool:
        if not is_closed(node):
            return False
        made = new_node(node, node.inputs, node.attributes | {"compiled": False}, node.outputs)
        self.nodes.append(made)
        for before, after in zip(node.outputs, made.outputs, strict=True):
            self.replace(before, after)
        self.note(f"{node.name} is a scan like any other", node)
        return True


# Unused results -----------------------------------------------------------------------------------


def without_unused_results(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph without unused rows of scans and results of branches.

    Carries and the states of loops stay, since the next iteration reads them.

    >>> f = lambda x: ef.scan(lambda c, _: (ef.sin(c), ef.exp(c)), x, length=3)[0]
    >>> graph = ef.capture.trace(f, ef.TensorSpec((), "float32"))
    >>> [len(node.outputs) for node in without_unused_results(graph)[0].nodes]
    [1]
    """
    return swept("unused_results", graph, {}, _Pruning)


class _Pruning(Sweep):
    def run(self) -> Graph:
        self._used = set(self.graph.all_outputs())
        for node in self.graph.nodes:
            self._used.update(node.values())
        return super().run()

    def look(self, node: Node) -> bool:
        if node.op.name not in ("scan", "cond", "switch") or is_closed(node):
            return False
        fixed = node.attributes["carries"] if node.op.name == "scan" else 0
        before = [self._old.get(v, v) for v in node.outputs]
        kept = [i for i, v in enumerate(before) if i < fixed or v in self._used]
        if len(kept) == len(before) or not kept:  # otherwise the whole node is dead code
            return False
        attributes = with_bodies(node.attributes, lambda body: _cut(body, kept))
        made = new_node(node, node.inputs, attributes, [node.outputs[i] for i in kept])
        self.nodes.append(made)
        for i, found in zip(kept, made.outputs, strict=True):
            self.replace(node.outputs[i], found)
        gone = len(before) - len(kept)
        self.note(f"{gone} results of {node.name} are not used", node)
        return True


def _cut(body: Graph, kept: list[int]) -> Body:
    """A body that returns these results only."""
    return Body(body.name, body.inputs, body.nodes, [body.outputs[i] for i in kept])


# Unused gradients ---------------------------------------------------------------------------------


def without_custom_gradients(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph without nodes that only define gradients; for graphs that need none any more.

    >>> clipped = ef.custom_gradient(lambda x: (x * 2.0, lambda g: ef.clip(g, -1.0, 1.0)))
    >>> graph = ef.capture.trace(clipped, ef.TensorSpec((), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['multiply', 'custom_gradient']
    >>> [node.op.name for node in without_custom_gradients(graph)[0].nodes]
    ['multiply']
    """
    return swept("custom_gradients", graph, {}, _Plain)


class _Plain(Sweep):
    def look(self, node: Node) -> bool:
        if node.op.name != "custom_gradient":
            return False
        first = node.attributes["arguments"]
        for i, value in enumerate(node.outputs):
            self.replace(value, node.inputs[first + i])
        self.note(f"{node.name} is not asked for", node)
        return True
