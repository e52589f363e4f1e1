"""Replication: the graph of a step for several parts of a batch, one on each device.

This converts a step captured for a replica (``nn/replicas.py``) to one graph. Nodes that depend
on a part of the batch are copied for each replica. Each mean over replicas becomes a sum, in the
order of the replicas, on one device, the home of that mean. Values that only depend on means are
computed once, at the home of the largest of them: so each device keeps the optimizer's state for
a part of the weights, and sends their new values to the others. Everything else of it is ordinary:
the partitioner puts Send and Recv where values cross devices, and a run changes all Variables or
none. Sums have a fixed order, so bits do not depend on timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from eagerflow.cluster.copying import Copying
from eagerflow.cluster.row_access import accesses_rows, led_to
from eagerflow.errors import ArgumentError
from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.graph.names import FreeNames
from eagerflow.graph.walk import needed
from eagerflow.ops.communication.replicas import replica_concat, replica_mean
from eagerflow.ops.elementwise.arithmetic import add, multiply
from eagerflow.ops.shapes.joining import concat
from eagerflow.variable import Variable

__all__ = ["MEAN", "Replicated", "first_of", "replicated", "rows_fit", "varying_in"]

MEAN = replica_mean.op  # type: ignore[attr-defined]
JOIN = replica_concat.op  # type: ignore[attr-defined]
OVER_REPLICAS = (MEAN, JOIN)
Shadow = Callable[[Variable, int], Variable]
"""Returns the Variable for a replica that is not the home of the original."""


@dataclass
class Replicated:
    """A graph over replicas: its inputs are those of the replicas, in order.

    ``outputs`` has the values of each output of the step in the graph's own, one for each replica
    with examples, or the only one. ``local`` are the Variables that replicas change
    separately, ``mirrored`` those that are the same on all, and have shadows.
    """

    graph: Graph
    outputs: list[list[int]]
    local: dict[Variable, None] = field(default_factory=dict)
    mirrored: dict[Variable, None] = field(default_factory=dict)


def replicated(
    graphs: Sequence[Graph | None],
    devices: Sequence[str],
    shadow: Shadow,
    homes: Sequence[int] | None = None,
    tables: Mapping[Variable, int] | None = None,
) -> Replicated:
    """The graph of a step on several devices.

    ``graphs`` are the step of each replica, None for one without examples: they differ in
    sizes only. They are on the first of the ``devices``; ``homes`` are the indices of those that
    add up means and keep the optimizer's state, the replicas' own if none are given. ``tables``
    are on one device each: their rows are read and written there, without copies. Raises
    ArgumentError if the graphs differ otherwise.
    """
    return Replication(graphs, devices, shadow, homes, tables).made()


class Replication(Copying):
    """Converts a step to a graph over devices; see ``replicated``.

    Values of the first graph represent those of all; ``varying`` are those that may differ
    between replicas, ``home`` the index of the device for values that depend on means.
    """

    def __init__(
        self,
        graphs: Sequence[Graph | None],
        devices: Sequence[str],
        shadow: Shadow,
        homes: Sequence[int] | None = None,
        tables: Mapping[Variable, int] | None = None,
    ) -> None:
        super().__init__(devices)
        self.graphs = list(graphs)
        self.active = [r for r, graph in enumerate(graphs) if graph is not None]
        self.shadow = shadow
        self.first = first_of(graphs)
        self.cells = {cell.value: cell for cell in self.first.cells}
        self.varying, self.local = varying_in(self.first)
        self.read = _read_by_replicas(self.first, self.varying)
        places = homes or range(len(graphs))
        known = tables or {}
        self.tables = {
            cell.value: known[cell.variable]
            for cell in self.first.cells
            if cell.variable in known and cell not in self.local
        }
        self.home = _homes(self.first, self.varying, places, self.tables)
        self.default = places[0]
        self.shared: dict[Value, Value] = {}
        self.own: list[dict[Value, Value]] = [{} for _ in devices]
        self.copies: dict[tuple[Cell, int], Cell] = {}

    def made(self) -> Replicated:
        """The graph."""
        inputs = [self._inputs(r) for r in self.active]
        for i, node in enumerate(self.first.nodes):
            self._node(i, node)
        outputs: list[list[Value]] = [
            [self.own[r].get(v, v) for r in self.active]
            if v in self.varying
            else [self._anywhere(v)]
            for v in self.first.outputs
        ]
        asked = [v for row in outputs for v in row]
        cells, nodes = self._cells(asked)
        free = FreeNames().take
        labels = [free(v.name) for v in asked]
        names = [name for given in inputs for name in given]
        flat = [v for given in inputs for v in given.values()]
        graph = Graph(
            f"{self.first.name} on {len(self.devices)} replicas",
            Values(flat, names),
            nodes,
            Values(asked, labels),
            cells,
        )
        position = iter(range(len(asked)))
        found = Replicated(graph, [[next(position) for _ in row] for row in outputs])
        for (cell, r), _ in self.copies.items():
            if cell in self.local:
                found.local[cell.variable] = None
            elif r != self._primary(cell):
                found.mirrored[cell.variable] = None
        return found

    # Values ------------------------------------------------------------------------------------

    def _inputs(self, r: int) -> dict[str, Value]:
        graph = self.graphs[r]
        assert graph is not None
        found = {}
        for name, before, v in zip(
            graph.inputs.names, self.first.inputs, graph.inputs, strict=True
        ):
            label = self.names.take(f"replica_{r}/{name}")
            made = found[label] = self.own[r][before] = v.like(None, label)
            made.device = self.devices[r]
        return found

    def _node(self, i: int, node: Node) -> None:
        """Add copies of a node of the first graph; unneeded ones are removed at the end."""
        if node.op in OVER_REPLICAS:
            (self._sum if node.op is MEAN else self._join)(i, node)
            return
        varies = any(v in self.varying for v in node.outputs)
        for r in self.active if varies else range(len(self.devices)):
            self._copy(i, node, r)
        if node.outputs[0] in self.home:
            home = self.home[node.outputs[0]]
            inputs = [
                self.shared[x] if x in self.shared else self._at(home, x) for x in node.inputs
            ]
            self._add(node, inputs, home, node.name, self.shared)

    def _copy(self, i: int, node: Node, r: int) -> None:
        graph = self.graphs[r] if r < len(self.graphs) else None
        own = (graph or self.first).nodes[i]
        inputs = [  # numbers and constants may depend on its sizes
            y if type(y) is not Value or y.constant is not None else self._at(r, x)
            for x, y in zip(node.inputs, own.inputs, strict=True)
        ]
        place = self.tables[node.inputs[0]] if accesses_rows(node, self.tables) else r
        self._add(own, inputs, place, f"replica_{r}/{own.name}", self.own[r], node)

    def _add(
        self,
        node: Node,
        inputs: Sequence[Any],
        r: int,
        name: str,
        known: dict[Value, Value],
        like: Node | None = None,
    ) -> None:
        made = self.copy(node, inputs, r, name)
        known.update(zip((like or node).outputs, made.outputs, strict=True))

    def _at(self, r: int, x: Any) -> Any:
        """A value as read by a node on a replica."""
        if type(x) is not Value or x.constant is not None:
            return x
        if x in self.cells:
            return self._cell(self.cells[x], self.tables.get(x, r)).value
        found = self.own[r].get(x)
        return self.shared[x] if found is None else found

    def _anywhere(self, v: Value) -> Any:
        found = self.shared.get(v)
        return self._at(self.active[0], v) if found is None else found

    def _cell(self, cell: Cell, r: int) -> Cell:
        """A Variable as held by a replica."""
        found = self.copies.get((cell, r))
        if found is None:
            variable = cell.variable
            if r != self._primary(cell):
                variable = self.shadow(variable, r)
            name = self.names.take(cell.name if r == self._primary(cell) else variable.name)
            found = Cell(name, variable, cell.value.like(None, name))
            found.value.device = self.devices[r]
            self.copies[cell, r] = found
        return found

    def _primary(self, cell: Cell) -> int:
        """The index of the device of the user's own Variable."""
        if cell in self.local:
            return 0
        if cell.value in self.tables:
            return self.tables[cell.value]
        new = cell.assigned
        return self.default if new is None else self.home.get(new, self.default)

    def _sum(self, i: int, node: Node) -> None:
        """Add a mean over replicas: the contributions, added in their order."""
        (mean,) = node.outputs
        home = self.home[mean]
        parts = []
        for r in self.active:
            graph = self.graphs[r]
            assert graph is not None
            share = graph.nodes[i].attributes["share"]
            # On the adding device: in one kernel, and a gradient is sent as soon as it is computed.
            parts.append(self._call(mean, multiply, (self._at(r, node.inputs[0]), share), home))
        self.shared[mean] = reduce(lambda x, y: self._call(mean, add, (x, y), home), parts)

    def _join(self, i: int, node: Node) -> None:
        """Add the rows of all replicas, in their order."""
        (whole,) = node.outputs
        parts = tuple(self._at(r, node.inputs[0]) for r in self.active)
        self.shared[whole] = self._call(whole, concat, parts, self.home[whole], axis=0)

    def _call(self, like: Value, op: Any, inputs: tuple[Any, ...], r: int, **more: Any) -> Value:
        """The value of a new node, with the facts of an existing value."""
        node = like.node
        assert node is not None
        return self.call(like, op, inputs, r, f"replica_{r}/{node.name}", **more)

    # Variables ---------------------------------------------------------------------------------

    def _cells(self, asked: Iterable[Value]) -> tuple[list[Cell], list[Node]]:
        """The Variables of all replicas that are needed, with their assigned values."""
        known = list(asked)
        for cell in self.first.cells:
            if cell.assigned is not None:
                known += [self._assign(cell, r) for r in self._places(cell)]
        while True:
            nodes = needed(self.nodes, known)
            used = {v for node in nodes for v in node.values()} | set(known)
            late = [
                (cell, r)
                for (cell, r), own in self.copies.items()
                if own.value in used and cell.assigned is not None and own.assigned is None
            ]
            if not late:
                break
            for cell, r in late:
                known.append(self._assign(cell, r))
        cells = [c for c in self.copies.values() if c.value in used or c.assigned is not None]
        kept = set(cells)
        self.copies = {key: c for key, c in self.copies.items() if c in kept}
        return cells, nodes

    def _places(self, cell: Cell) -> Iterable[int]:
        """Devices on which a Variable is always updated; others that read it update it as well."""
        if cell in self.local:
            return self.active
        if cell.value not in self.read or cell.value in self.tables:
            return (self._primary(cell),)
        # Replicas without examples this time need it next time.
        return {*range(len(self.graphs)), self._primary(cell)}

    def _assign(self, cell: Cell, r: int) -> Value:
        """Assign the new value of a replica's Variable: its own, or one that is sent."""
        own, new = self._cell(cell, r), cell.assigned
        assert new is not None
        value = self._anywhere(new) if new in self.shared else self._at(r, new)
        own.assigned = value
        return value


# Differences between replicas --------------------------------------------------------------------


def rows_fit(graphs: Sequence[Graph | None]) -> bool:
    """Whether the rows to join are those of all replicas together.

    They are not if look-ups do not grow with the batch, and parts differ in size.
    """
    joins = [[n for n in g.nodes if n.op is JOIN] for g in graphs if g is not None]
    if any(len(own) != len(joins[0]) for own in joins):
        return False
    return all(
        {sum(n.inputs[0].shape[0] for n in row)} == {n.attributes["rows"] for n in row}
        for row in zip(*joins, strict=True)
    )


def first_of(graphs: Sequence[Graph | None]) -> Graph:
    """The first graph; the others are copies for other sizes."""
    first, *others = [graph for graph in graphs if graph is not None]
    forms = [[(n.op, len(n.inputs), len(n.outputs)) for n in g.nodes] for g in (first, *others)]
    variables = [[cell.variable for cell in g.cells] for g in (first, *others)]
    if any(form != forms[0] for form in forms) or any(own != variables[0] for own in variables):
        raise ArgumentError(
            "the step does other things for parts of other sizes",
            op=first.name,
            received=", ".join(f"{len(g.nodes)} nodes" for g in (first, *others)),
            hint="batches that the number of replicas divides",
        )
    return first


def varying_in(graph: Graph) -> tuple[set[Value], set[Cell]]:
    """The values that may differ between replicas, and the Variables with separate values."""
    local = {
        c for c in graph.cells if c.variable.is_random_state or c.variable.aggregation == "sum"
    }
    while True:
        found = set(graph.inputs) | {c.value for c in local}
        for node in graph.nodes:
            if node.op not in OVER_REPLICAS and any(v in found for v in node.values()):
                found.update(node.outputs)
        more = {c for c in graph.cells if c.assigned in found} - local
        if not more:
            return found, local
        local |= more


def _read_by_replicas(graph: Graph, varying: set[Value]) -> set[Value]:
    """Values that every replica reads to compute its own, except results of means."""
    found: set[Value] = set()
    for node in reversed(graph.nodes):
        if node.op in OVER_REPLICAS or any(v in varying or v in found for v in node.outputs):
            found.update(node.values())
    return found


def _homes(
    graph: Graph, varying: set[Value], places: Sequence[int], tables: Mapping[Value, int]
) -> dict[Value, int]:
    """The device index for values that depend on means and are equal on all replicas.

    Means are spread by their bytes, the largest first; dependents follow their largest operand.
    Joined rows of all replicas are on the device of the table that they are written to, and values
    computed from a table's rows stay with these: so they keep their precision, and stay there.
    """
    load = dict.fromkeys(places, 0)
    for value, place in tables.items():
        load[place] += nbytes(value)
    homes: dict[Value, int] = {}
    led = led_to(graph, tables)
    means = [node for node in graph.nodes if node.op in OVER_REPLICAS]
    for node in sorted(means, key=lambda n: -_weight(n)):
        (value,) = node.outputs
        home = led.get(value) if node.op is JOIN else None
        homes[value] = min(load, key=load.__getitem__) if home is None else home
        load[homes[value]] += _weight(node)
    of_tables: set[Value] = set()
    for node in graph.nodes:
        given = [v for v in node.values() if v in homes]
        if not given or node.op in OVER_REPLICAS or any(v in varying for v in node.outputs):
            continue
        rows = [v for v in given if v in of_tables]
        if accesses_rows(node, tables):
            home = tables[node.inputs[0]]
        else:
            home = homes[max(rows or given, key=nbytes)]
        if rows or accesses_rows(node, tables):
            of_tables.update(node.outputs)
        homes |= dict.fromkeys(node.outputs, home)
    return homes


def _weight(node: Node) -> Any:
    """The bytes of a mean; of rows those of one, so that homes are the same for all batches."""
    (value,) = node.outputs
    return nbytes(value) // max(1, value.shape[0]) if node.op is JOIN else nbytes(value)
