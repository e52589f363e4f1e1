"""Groups: nodes that are placed together, as one generated kernel computes them.

Regions are formed as in plans. A region may hold nodes that are unrelated except
that they read the same array; these need not be on one device, so each connected part of a
region is a separate group. All other nodes stand alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from eagerflow.capture.placement.cost_model import CostModel, Work, work_of
from eagerflow.fusion.groups import fuse
from eagerflow.fusion.kernels import FusedKernel
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value

NEGLIGIBLE_RATIO = 16  # a value smaller than a region's largest by this factor is ignored


class Group(NamedTuple):
    """Nodes by index, their inputs from other groups, their results, and their costs.

    ``costs`` are seconds on each device.
    """

    nodes: list[int]
    given: list[Value]
    made: list[Value]
    costs: list[float]


def groups_of(graph: Graph, model: CostModel, names: Sequence[str], fused: bool) -> list[Group]:
    """The groups of a graph, in topological order.

    ``names`` are those of the devices; without ``fused`` each node stands alone. The running time
    is that of forming the regions.
    """
    works: dict[Any, Work] = {}  # by similar node
    numbers = {node: i for i, node in enumerate(graph.nodes)}
    grouped: set[int] = set()
    found: list[tuple[list[int], list[float]]] = []  # nodes of groups, and their costs
    for step in fuse(graph) if fused else ():
        if not isinstance(step, FusedKernel):
            continue
        own = [node for node in step.nodes if numbers[node] not in grouped]
        whole = [model.kernel(step, name) for name in names]
        parts = [half for part in _parts(own) for half in _peeled(part)]
        weights = [
            sum(model.seconds(work_of(n, works), n, names[0], True) for n in p) for p in parts
        ]
        for part, weight in zip(parts, weights, strict=True):
            positions = [numbers[node] for node in part]
            grouped.update(positions)
            found.append((positions, [seconds * weight / sum(weights) for seconds in whole]))
    alike: dict[object, list[float]] = {}
    for i, node in enumerate(graph.nodes):
        if i not in grouped:
            work = work_of(node, works)
            costs = alike.get((node.op.name, work))
            if costs is None:
                merged = fused and not work.flops
                costs = [model.seconds(work, node, name, merged) for name in names]
                alike[node.op.name, work] = costs
            found.append(([i], costs))
    groups = []
    for positions, costs in found:
        nodes = [graph.nodes[i] for i in positions]
        made = [v for node in nodes for v in node.outputs]
        inside = set(made) if len(nodes) > 1 else ()
        given = dict.fromkeys(
            x for node in nodes for x in node.values() if x.constant is None and x not in inside
        )
        groups.append(Group(positions, list(given), made, costs))
    return _ordered(groups)


def _parts(nodes: Sequence[Node]) -> list[list[Node]]:
    """The connected parts of some nodes, by data dependencies."""
    above: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while (up := above.get(node)) is not None:
            node = up
        return node

    own = set(nodes)
    for node in nodes:
        for x in node.values():
            if x.node in own:
                one, other = root(node), root(x.node)
                if one is not other:
                    above[one] = other
    parts: dict[Node, list[Node]] = {}
    for node in nodes:
        parts.setdefault(root(node), []).append(node)
    return list(parts.values())


def _peeled(part: list[Node]) -> list[list[Node]]:
    """A part, with small final nodes split off if they wait for results of other parts.

    Otherwise two chains that are reduced and then added, say, would have to run sequentially.
    """
    own = {v for node in part for v in node.outputs}
    large = max(v.size for v in own)
    late: dict[Value, None] = {}
    ends = []
    for node in part:
        given = list(node.values())
        if any(x in late or (x not in own and x.node is not None) for x in given):
            small = all(v.size * NEGLIGIBLE_RATIO <= large for v in node.outputs)
            if small and all(x.size * NEGLIGIBLE_RATIO <= large for x in given):
                late.update(dict.fromkeys(node.outputs))
                ends.append(node)
            elif any(x in late for x in given):
                return [part]
    return [[node for node in part if node not in ends], ends] if ends else [part]


def _ordered(groups: list[Group]) -> list[Group]:
    """Groups in a valid order of execution, as close to that of their first nodes as possible."""
    makers = {v: i for i, group in enumerate(groups) for v in group.made}
    waits = [0] * len(groups)
    readers: list[list[int]] = [[] for _ in groups]
    for i, group in enumerate(groups):
        before = {makers[x] for x in group.given if x in makers}
        waits[i] = len(before)
        for k in before:
            readers[k].append(i)
    ready = [(group.nodes[0], i) for i, group in enumerate(groups) if not waits[i]]
    heapify(ready)
    found = []
    while ready:
        _, i = heappop(ready)
        found.append(groups[i])
        for k in readers[i]:
            waits[k] -= 1
            if not waits[k]:
                heappush(ready, (groups[k].nodes[0], k))
    assert len(found) == len(groups), "groups wait for each other in a circle"
    return found
