"""Dead code: nodes that no output and no assigned Variable needs are left out."""

from __future__ import annotations

from eagerflow.capture.passes.rewriting import Rewrite, Sweep, swept
from eagerflow.graph.graph import Graph
from eagerflow.graph.walk import needed

_EFFECTS = "communication"  # the family of ops called for their effect


def without_dead_code(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph and its bodies without unneeded nodes, and these nodes.

    Inputs and Variables are kept even if unused. A node that would have
    raised an error, and whose results are not used, raises none after this.

    >>> f = lambda x: [ef.exp(x), ef.tanh(x)][1]
    >>> graph = ef.capture.trace(f, ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['exp', 'tanh']
    >>> [node.op.name for node in ef.capture.passes.dead_code(graph).nodes]
    ['tanh']
    """
    return swept("dead_code", graph, {}, _Needed)


class _Needed(Sweep):
    def run(self) -> Graph:
        nodes = self.graph.nodes
        effects = [v for node in nodes if node.op.family == _EFFECTS for v in node.outputs]
        kept = needed(nodes, [*self.graph.all_outputs(), *effects])
        if len(kept) < len(nodes):
            self.graph = self.graph.like(kept, {})
            alive = set(kept)
            for node in nodes:
                if node not in alive:
                    self.note(f"{node.name} is not needed", node)
        return super().run() if self.bodies else self.graph
