"""Growing regions: groups of a graph's nodes that one generated kernel computes.

Nodes are looked at once, in their order. A node that a region can hold joins the region that
made what it reads, or one that reads the same arrays, and else begins one of its own. Regions
are numbered as they begin, and every value has a *level*: the highest number of a region that
it depends on. A node may join a region only if all that comes from outside of it has a lower
level. So regions depend on ones with lower numbers alone, and no cycle can arise.

All values of a region lie along axes of one index space, that of the node it began with.
Results along its last axes, or along some that are next to each other, are reduced row by row
and may be used again in the row; those along its first axes are complete only when the region
ends, as are values that are to be rounded to a small float.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from eagerflow.fusion.growth import STATEMENTS, Growing
from eagerflow.fusion.kernels import Cluster
from eagerflow.fusion.lowering import (
    Axes,
    Walk,
    cost,
    number_of,
    walk,
)
from eagerflow.graph.ir import Graph, Node, Value
from eagerflow.op import ops

__all__ = ["BORDER", "grow"]

BORDER = 1 << 12
"""Elements from which one call of a region costs less than the calls of its nodes."""

NEAR = 128  # nodes between two that are brought together though neither needs the other


class _Garden:
    """All regions of a graph in the making."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.homes: dict[Value, Growing] = {}
        self.readers: dict[Value, Growing] = {}  # the last region that reads a value
        self.levels: dict[Value, int] = {}
        self.numbers: dict[Value, Any] = {}  # what is one number everywhere
        self.regions: list[Growing] = []
        self.last = 0  # the highest number of a region

    def plant(self) -> None:
        """Give each node that a region can hold its region."""
        for at, node in enumerate(self.graph.nodes):
            if node.op.fills:
                # It reads nothing: see _without_inputs.
                self.numbers[node.outputs[0]] = number_of(node)
            elif node.op.views == "all" and node.inputs[0] in self.numbers:
                self.numbers[node.outputs[0]] = self.numbers[node.inputs[0]]
            elif not self._settle(node, at):
                level = max([self.level(x) for x in node.values()], default=0)
                for value in node.outputs:
                    self.levels[value] = level
                for x in node.values():
                    if x in self.homes:
                        self.homes[x].escapes.add(None)

    def level(self, value: Value) -> int:
        """The highest number of a region that a value depends on."""
        home = self.homes.get(value)
        return self.levels.get(value, 0) if home is None else home.number

    def _settle(self, node: Node, at: int) -> bool:
        """Find a region for a node, or begin one; whether there is one."""
        place = walk(node)
        if place is None:
            return False
        numbers = {} if place.reduced is not None else self.numbers
        if numbers and all(x in numbers for x in node.values()):
            return False
        statements = cost(node, place, numbers)
        if statements is None:
            return False
        parents = {self.homes[x]: None for x in node.values() if x in self.homes}
        given = node, place, numbers, statements, at
        for region in sorted(parents, key=lambda r: (-prod(r.sizes), -r.number)):
            if self._join(region, parents, False, *given):
                return True
        if node.op.views == "all":
            return False
        readers = {self.readers[x]: None for x in node.values() if x.shape and x in self.readers}
        for region in readers:
            near = region not in parents and at - region.last <= NEAR
            if near and self._join(region, parents, True, *given):
                return True
        sizes = tuple([n for n in place.sizes if n != 1])
        region = Growing(self.last + 1, sizes, node.device)
        if self._join(region, parents, False, *given):
            self.regions.append(region)
            return True
        return False

    def _join(
        self,
        region: Growing,
        parents: Iterable[Growing],
        sibling: bool,
        node: Node,
        place: Walk,
        numbers: Any,
        statements: int,
        at: int,
    ) -> bool:
        """Make a node a member of a region, together with what others made for it."""
        if region.statements + statements > STATEMENTS or region.device != node.device:
            return False
        member = region.member(node, place, numbers, sibling, at)
        if member is None:
            return False
        others = [r for r in parents if r is not region and at - r.last <= NEAR]
        tables = region.joinable(others, member, statements) if others else {}
        while (number := self._number({region, *tables}, node, sibling)) is None:
            if not tables:
                return False
            tables.popitem()
        for other, table in tables.items():
            self._merge(region, other, table)
        region.number = number
        self.last = max(self.last, number)
        region.add(member, statements, numbers)
        for value in node.outputs:
            self.homes[value] = region
        for x in node.values():
            home = self.homes.get(x)
            if home is not region and x not in numbers:
                if home is not None:
                    home.escapes.add(region)
                if x.shape:
                    self.readers[x] = region
        return True

    def _number(self, group: set[Growing], node: Node, sibling: bool) -> int | None:
        """The number of regions that become one with a node; None where that makes a cycle.

        A region's number can rise as long as nothing else depends on it: what does may be what
        the others depend on.
        """
        outside = [self.level(x) for x in node.values() if self.homes.get(x) not in group]
        number = max(r.number for r in group)
        if max(outside, default=0) >= number:
            number = self.last + 1
        for region in group:
            if region.number < number and (sibling or not region.escapes <= group):
                return None
        return number

    def _merge(self, region: Growing, other: Growing, table: Axes) -> None:
        region.join(other, table)
        for value in other.maps:
            self.homes[value] = region
        for x in other.read:
            if self.readers.get(x) is other:
                self.readers[x] = region
            home = self.homes.get(x)
            if home is not None:
                home.escapes.discard(other)
                if home is not region:
                    home.escapes.add(region)


def grow(graph: Graph, border: int = BORDER) -> list[Node | Cluster]:
    """The nodes of a graph whose sizes are all known, some of them as regions, in running order.

    ``border`` is the number of elements from which regions pay. Views of what a region makes
    and numbers that only regions read come as nodes where something outside reads them. Time
    and memory are linear in the number of nodes.
    """
    garden = _Garden(graph)
    garden.plant()
    kept = [r for r in garden.regions if r.pays(border)]
    inside = {m.node: r for r in kept for m in r.members}
    numbers = garden.numbers
    needed = set(graph.all_outputs())
    for node in graph.nodes:
        if node not in inside and not (node.outputs and node.outputs[0] in numbers):
            needed.update(node.values())
    for region in kept:
        needed.update(region.read)
    outside = []
    for node in reversed(graph.nodes):
        if node.op.fills:
            if node.outputs[0] in needed:
                outside.append(_without_inputs(node))
        elif node.op.views == "all" and (node in inside or node.outputs[0] in numbers):
            if node.outputs[0] in needed:
                outside.append(node)
                needed.update(node.values())
        elif node not in inside:
            outside.append(node)
    clusters: dict[Growing, Cluster] = {}
    for region in kept:
        values = [
            v
            for m in region.members
            if m.node.op.views != "all"
            for v in m.node.outputs
            if v in needed
        ]
        if values:
            clusters[region] = Cluster(region.sizes, region.rows, region.members, values, numbers)
    return _ordered(graph, outside, list(clusters.values()))


def _without_inputs(node: Node) -> Node:
    """A creation that does not read the array whose shape it has."""
    if not node.inputs:
        return node
    (value,) = node.outputs
    attributes = {"shape": value.shape, "dtype": value.dtype, "device": None}
    made = Node(
        ops[node.op.name.removesuffix("_like")], (), attributes, node.name, node.origin, node.device
    )
    made.outputs = node.outputs
    return made


def _ordered(graph: Graph, nodes: list[Node], clusters: list[Cluster]) -> list[Node | Cluster]:
    """Steps in an order in which they can run, each as late as its last node stands."""
    makers: dict[Value, Any] = {v: c for c in clusters for v in c.outputs}
    makers |= {v: n for n in nodes for v in n.outputs}
    ends: dict[Value, Any] = {c.nodes[-1].outputs[0]: c for c in clusters}
    ends |= {n.outputs[0]: n for n in nodes if n.outputs}
    found: list[Node | Cluster] = []
    done: set[Any] = set()
    steps = [ends.get(n.outputs[0]) if n.outputs else n for n in graph.nodes]
    for step in (*steps, *clusters):
        todo: list[Any] = [] if step is None or step in done else [step]
        while todo:
            own = todo[-1]
            given = own.values() if isinstance(own, Node) else own.inputs
            waiting = [makers[x] for x in given if x in makers and makers[x] not in done]
            if waiting and own not in done:
                todo += waiting
                continue
            todo.pop()
            if own not in done:
                done.add(own)
                found.append(own)
    return found
