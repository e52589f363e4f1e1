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

from math import prod
from typing import Any

from eagerflow.capture.plan.clusters import CLASSES, Cluster, Member
from eagerflow.capture.plan.regions_rules import (
    CREATIONS,
    FREE,
    Axes,
    Walk,
    cost,
    narrow,
    number_of,
    walk,
)
from eagerflow.graph import Graph, Node, Value
from eagerflow.ops.family import Rows

__all__ = ["BORDER", "grow"]

BORDER = 1 << 12
"""Elements from which one call of a region costs less than the calls of its nodes."""

STATEMENTS = 120  # at most, in one region: beyond, compiling takes long
STREAMS = 24  # arrays at most that one region reads
SHARED = 1 << 16  # elements from which threads share a region's work
BY_ADDRESS = {"random_keep": 0, **dict.fromkeys(CLASSES, 1)}
"""Ops with an argument that has to be in memory before a region begins, and its position."""
NEAR = 128  # nodes between two that are brought together only because they read the same


class _Growing:
    """A region in the making: its members, and where each of their values lies."""

    __slots__ = (
        "along", "columns", "complete", "device", "draws", "last", "maps", "members", "number",
        "read", "rows", "sizes", "statements",
    )  # fmt: skip

    def __init__(self, number: int, sizes: tuple[int, ...], device: str | None) -> None:
        self.number = number
        self.sizes = sizes
        self.device = device
        self.members: list[Member] = []
        self.maps: dict[Value, Axes] = {}  # of each value that it makes
        self.along: dict[Value, frozenset[int]] = {}  # the axes along which they really vary
        self.complete: set[Value] = set()  # values that can be read at the end alone
        self.read: dict[Value, Axes] = {}  # values from outside, as they were read last
        self.rows: Axes = ()
        self.columns: list[frozenset[int]] = []
        self.draws = False  # random numbers, counted along all axes
        self.statements = 0
        self.last = 0

    # Whether a node fits -------------------------------------------------------------------------

    def member(self, node: Node, place: Walk, numbers: Any, siblings: bool) -> Member | None:
        """The node as a member of this region, None where it cannot be one."""
        if node.op.name in BY_ADDRESS and node.inputs[BY_ADDRESS[node.op.name]] in self.maps:
            return None
        axes = self._axes(node, place)
        if axes is None:
            return None
        if siblings and tuple(n for n in place.sizes if n != 1) != self.sizes:
            return None
        new = {x for x in node.values() if x not in self.maps and x not in numbers}
        if len(self.read.keys() | new) > STREAMS:
            return None
        kind = ""
        if place.reduced is not None:
            found = self._kind(node, place, axes)
            if found is None:
                return None
            kind = found
        elif node.op.name == "random_keep" and (
            self.rows != self._last(len(self.rows))
            or tuple([a for a in axes if a >= 0]) != tuple(self._all())
        ):
            return None  # its numbers are counted along all axes, in their order in memory
        return Member(node, place, axes, kind)

    def _all(self) -> range:
        return range(len(self.sizes))

    def _last(self, count: int) -> Axes:
        return tuple(self._all())[len(self.sizes) - count :]

    def _axes(self, node: Node, place: Walk) -> Axes | None:
        """The region's axis for each of a walk, -1 for those of size 1."""
        found: list[int | None] = [None if n != 1 else -1 for n in place.sizes]
        for x, lies in zip(node.inputs, place.inputs, strict=True):
            if type(x) is not Value or x not in self.maps:
                continue
            if x in self.complete:
                return None
            for own, axis in zip(self.maps[x], lies, strict=True):
                if axis >= 0:
                    if found[axis] is None:
                        found[axis] = own
                    elif found[axis] != own:
                        return None
        hinted = found[:]
        if self._hint(node, place, hinted):
            filled = self._fill(hinted, place.sizes)
            if filled is not None:
                return filled
        return self._fill(found, place.sizes)

    def _hint(self, node: Node, place: Walk, found: list[int | None]) -> bool:
        """Where arrays from outside lie as they did before; whether that is possible."""
        for x, lies in zip(node.inputs, place.inputs, strict=True):
            own = self.read.get(x) if type(x) is Value else None
            if own is not None and len(own) == len(lies):
                for axis, old in zip(lies, own, strict=True):
                    if axis >= 0:
                        if found[axis] is None:
                            found[axis] = old
                        elif found[axis] != old:
                            return False
        return True

    def _fill(self, found: list[int | None], sizes: tuple[int, ...]) -> Axes | None:
        """The axes that nothing tells yet, from the last one on; all in the region's order."""
        result = list(found)
        before = len(self.sizes)
        for i in range(len(sizes) - 1, -1, -1):
            axis = result[i]
            if axis == -1:
                continue
            if axis is None:
                axis = before - 1
                while axis >= 0 and self.sizes[axis] != sizes[i]:
                    axis -= 1
                if axis < 0:
                    return None
                result[i] = axis
            if axis >= before:
                return None
            before = axis
        return tuple([a for a in result if a is not None])

    def _kind(self, node: Node, place: Walk, axes: Axes) -> str | None:
        """How a node of rows works here: by "row", by "column", by "both", or not at all."""
        own = tuple([axes[a] for a in place.reduced or ()])
        whole = frozenset(a for a in axes if a >= 0)
        for x, lies in zip(node.inputs, place.inputs, strict=True):
            # Only what varies along an axis can be reduced along it.
            inside = type(x) is Value and x in self.maps and len(lies) == len(place.sizes)
            if inside and not self.along[x] >= frozenset(own):
                return None
        rule = node.op.scalar
        columns = []
        if isinstance(rule, Rows) and "n" in rule.gives:
            columns.append(whole - frozenset(own))
        if not own or own == self.rows:
            return "row" if self._fits(self.rows, columns) else None
        reducible = isinstance(rule, Rows) and rule.columns
        rest = frozenset(own) - frozenset(self.rows)
        if reducible and self.rows and rest and self._fits(self.rows, [rest]):
            if len(rest) == len(own):
                return "column"
            return "both" if len(rest) + len(self.rows) == len(own) else None
        if self.rows:
            return None
        first = own == tuple(range(len(own))) and len(own) < len(self.sizes)
        if reducible and first:
            return "column"
        return "row" if self._fits(own, columns) else None

    def _fits(self, rows: Axes, columns: list[frozenset[int]]) -> bool:
        """Whether rows along some axes go together with all column reductions."""
        if rows and rows != tuple(range(rows[0], rows[0] + len(rows))):
            return False
        if self.draws and rows != self._last(len(rows)):
            return False
        order = [a for a in self._all() if a not in rows] or [*self._all()]
        last = frozenset(rows or order[-1:])
        return all(
            not c & last and c == frozenset(order[: len(c)]) for c in (*self.columns, *columns)
        )

    # Taking it in --------------------------------------------------------------------------------

    def add(self, member: Member, statements: int, at: int, numbers: Any) -> None:
        """Take a member in."""
        node, place, axes, kind = member
        self.members.append(member)
        self.statements += statements
        self.last = at
        reduced = frozenset(axes[a] for a in place.reduced or ())
        if kind == "row" and reduced:
            self.rows = tuple(sorted(reduced))
        elif kind in ("column", "both"):
            self.columns.append(reduced - frozenset(self.rows))
        varies: frozenset[int] = frozenset()
        for x, lies in zip(node.inputs, place.inputs, strict=True):
            if type(x) is not Value or x in numbers:
                continue
            if x in self.maps:
                varies |= self.along[x]
            else:
                self.read[x] = tuple([axes[a] if a >= 0 else -1 for a in lies])
                varies |= frozenset(a for a in self.read[x] if a >= 0)
        rule = node.op.scalar
        for value, lies in zip(node.outputs, place.outputs, strict=True):
            own = self.maps[value] = tuple([axes[a] if a >= 0 else -1 for a in lies])
            along = frozenset(a for a in own if a >= 0)
            if node.op.name == "random_keep":
                self.draws, varies = True, along
            self.along[value] = varies & along
            late = kind in ("column", "both") or (node.op.name == "astype" and narrow(value.dtype))
            if isinstance(rule, Rows) and not rule.columns and "n" in rule.gives:
                # Sums over the rows.
                late = late or rule.gives[value.index] == "n"
                if late and place.reduced:
                    self.columns.append(frozenset(a for a in axes if a >= 0) - reduced)
            if late:
                self.complete.add(value)

    # Whether it pays -----------------------------------------------------------------------------

    def pays(self, border: int) -> bool:
        """Whether one call of a kernel costs less than those of the nodes."""
        size = prod(self.sizes)
        real = [m.node for m in self.members if m.node.op.name not in FREE]
        if not size or not real:
            return False
        if size < border:
            return len(real) >= 4 and size * 8 >= border
        if len(real) > 1 or size >= SHARED:
            return True
        op = real[0].op
        # What is one call of NumPy stays one; what is several becomes one.
        return op.name != "astype" and callable(op.scalar) and op.ufunc is None


class _Garden:
    """All regions of a graph in the making."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.homes: dict[Value, _Growing] = {}
        self.readers: dict[Value, _Growing] = {}  # the last region that reads a value
        self.levels: dict[Value, int] = {}
        self.numbers: dict[Value, Any] = {}  # what is one number everywhere
        self.regions: list[_Growing] = []

    def plant(self) -> None:
        """Give each node that a region can hold its region."""
        for at, node in enumerate(self.graph.nodes):
            if node.op.name in CREATIONS:
                self.numbers[node.outputs[0]] = number_of(node)
                level = 0
            else:
                level = self._settle(node, at)
            for value in node.outputs:
                self.levels[value] = level

    def _settle(self, node: Node, at: int) -> int:
        """Find a node's region; the level of what it makes."""
        top = max([self.levels.get(x, 0) for x in node.values()], default=0)
        place = walk(node)
        if place is None:
            return top
        numbers = {} if place.reduced is not None else self.numbers
        if numbers and all(x in numbers for x in node.values()):
            return top
        statements = cost(node, place, numbers)
        if statements is None:
            return top
        for region, sibling in self._choices(node, top, at):
            if region.statements + statements > STATEMENTS or region.device != node.device:
                continue
            if any(
                x not in region.maps and self.levels.get(x, 0) >= region.number
                for x in node.values()
            ):
                continue
            member = region.member(node, place, numbers, sibling)
            if member is not None:
                return self._take(region, member, statements, at, numbers)
        if node.op.name in FREE:
            return top
        sizes = tuple([n for n in place.sizes if n != 1])
        region = _Growing(len(self.regions) + 1, sizes, node.device)
        member = region.member(node, place, numbers, False)
        if member is None:
            return top
        self.regions.append(region)
        return self._take(region, member, statements, at, numbers)

    def _choices(self, node: Node, top: int, at: int) -> list[tuple[_Growing, bool]]:
        """Regions that make what a node reads, then ones that read the same; the last first."""
        homes = {self.homes[x] for x in node.values() if x in self.homes}
        found = [(r, False) for r in homes if r.number >= top]
        if node.op.name in FREE:
            return found
        others = {self.readers[x] for x in node.values() if x.shape and x in self.readers} - homes
        near = [r for r in others if r.number >= top and at - r.last <= NEAR]
        return found + [(r, True) for r in sorted(near, key=lambda r: -r.number)]

    def _take(
        self, region: _Growing, member: Member, statements: int, at: int, numbers: Any
    ) -> int:
        region.add(member, statements, at, numbers)
        for value in member.node.outputs:
            self.homes[value] = region
        for x in member.node.values():
            if x not in region.maps and x.shape:
                self.readers[x] = region
        return region.number


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
    finals = graph.finals()
    needed = set(finals)
    for node in graph.nodes:
        if node not in inside and node.op.name not in CREATIONS:
            needed.update(node.values())
    for region in kept:
        needed.update(region.read)
    outside = []
    for node in reversed(graph.nodes):
        free = node in inside and node.op.name in FREE
        if free or node.op.name in CREATIONS:
            if any(v in needed for v in node.outputs):
                outside.append(node)
                needed.update(node.values())
        elif node not in inside:
            outside.append(node)
    clusters: dict[_Growing, Cluster] = {}
    for region in kept:
        values = [
            v for m in region.members if m.node.op.name not in FREE
            for v in m.node.outputs if v in needed
        ]  # fmt: skip
        if values:
            clusters[region] = Cluster(
                region.sizes, region.rows, region.members, values, garden.numbers
            )
    return _ordered(graph, outside, list(clusters.values()))


def _ordered(graph: Graph, nodes: list[Node], clusters: list[Cluster]) -> list[Node | Cluster]:
    """Steps in an order in which they can run, each as late as its last node stands."""
    makers: dict[Value, Any] = {v: c for c in clusters for v in c.outputs}
    makers |= {v: n for n in nodes for v in n.outputs}
    ends: dict[Node, Any] = {n: n for n in nodes}
    ends |= {c.nodes[-1]: c for c in clusters if c.nodes[-1] not in ends}
    found: list[Node | Cluster] = []
    done: set[Any] = set()
    for end in (*graph.nodes, *clusters):
        step = end if type(end) is Cluster else ends.get(end)  # type: ignore[arg-type]
        todo = [] if step is None or step in done else [step]
        while todo:
            own = todo[-1]
            given = own.inputs if type(own) is Cluster else own.values()
            waiting = [
                makers[x] for x in given if x in makers and makers[x] not in done
            ]  # fmt: skip
            if waiting and own not in done:
                todo += waiting
                continue
            todo.pop()
            if own not in done:
                done.add(own)
                found.append(own)
    return found
