"""Dead code: nodes that no output and no assigned Variable needs are left out."""

from __future__ import annotations

from eagerflow.capture.passes.rewriting import Rewrite, Sweep
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node
from eagerflow.graph.walk import inside_out

NAME = "dead_code"
_EFFECTS = "communication"  # the family of ops that are called for what they do


def without_dead_code(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph and its bodies without the nodes that nothing needs, and those nodes.

    Inputs and Variables stay, also where nothing reads them any more. A node that would have
    raised an error, and whose results nobody wants, raises none after this.

    >>> f = lambda x: [ef.exp(x), ef.tanh(x)][1]
    >>> graph = ef.capture.trace(f, ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['exp', 'tanh']
    >>> [node.op.name for node in ef.capture.passes.dead_code(graph).nodes]
    ['tanh']
    """
    rewrites: list[Rewrite] = []

    def change(graph: Graph, bodies: dict[int, Graph]) -> Graph:
        kept, dead = _divided(graph)
        if dead:
            graph = graph.like(kept, {})
            rewrites.extend(Rewrite(NAME, f"{node.name} is not needed", node) for node in dead)
        return Sweep(NAME, graph, {}, bodies).run() if bodies else graph

    return inside_out(graph, change), rewrites


def _divided(graph: Graph) -> tuple[list[Node], list[Node]]:
    """The nodes that are needed, and those that are not, in order."""
    needed = set(graph.all_outputs())
    kept: list[Node] = []
    dead: list[Node] = []
    for node in reversed(graph.nodes):
        for value in node.outputs:
            if value in needed:
                break
        else:
            if node.op.family != _EFFECTS:
                dead.append(node)
                continue
        kept.append(node)
        needed.update(node.inputs)
    return kept[::-1], dead[::-1]
