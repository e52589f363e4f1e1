"""Pipelining: the graph of a step for several micro-batches, over the devices of its stages.

This converts a step captured for a replica (``nn/replicas.py``) to one graph, in which each
micro-batch has separate nodes for values that depend on it, on the devices of their stages. Means
over replicas are sums in the order of the micro-batches, accumulated as these pass. A Variable
changed by one micro-batch is read by the next one, as if each had been a batch. A stage takes
micro-batches in turn, and may delay one until an earlier one has returned: ``after`` expresses
this in the graph, with an additional value to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from eagerflow.cluster.copying import Copying
from eagerflow.cluster.replication import MEAN, Replicated
from eagerflow.cluster.stages import Positions, Stages
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.graph.names import FreeNames
from eagerflow.graph.walk import needed
from eagerflow.ops.communication.order import after
from eagerflow.ops.elementwise.arithmetic import add, multiply

__all__ = ["pipelined"]


def pipelined(
    graphs: Sequence[Graph],
    devices: Sequence[str],
    positions: Positions,
    stages: Stages,
    windows: Sequence[int],
) -> Replicated:
    """The graph of a step for several micro-batches.

    ``graphs`` are the step for each of them, which differ in sizes only; ``positions`` and
    ``stages`` are those of the first one, ``devices`` have a stage each, and ``windows`` are
    the numbers of pending micro-batches allowed for each stage.
    """
    return _Pipelining(graphs, devices, positions, stages, windows).made()


class _Pipelining(Copying):
    """Converts a step to a graph of micro-batches; see ``pipelined``.

    Values of the first graph represent those of all.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        devices: Sequence[str],
        positions: Positions,
        stages: Stages,
        windows: Sequence[int],
    ) -> None:
        super().__init__(devices)
        self.graphs, self.first = graphs, positions.graph
        self.positions, self.stages, self.windows = positions, stages, windows
        self.shared: dict[Value, Value] = {}  # values shared by all micro-batches
        self.own: dict[Value, Value] = {}  # of the current micro-batch, or from the previous
        self.held: dict[tuple[Value, int], Value] = {}  # the same, as read by a stage in its turn
        self.ends: list[dict[tuple[int, bool], dict[Value, None]]] = []
        """For each micro-batch, by the stage and direction: the last values."""
        self.turns: dict[tuple[int, int], Value | None] = {}

    def made(self) -> Replicated:
        """The graph."""
        cells = [Cell(c.name, c.variable, self._entry(c.value, c.name)) for c in self.first.cells]
        for before, cell in zip(self.first.cells, cells, strict=True):
            known = self.own if before.value in self.positions.varying else self.shared
            known[before.value] = cell.value
        self._rest(late=False)
        inputs: dict[str, Value] = {}
        results = []
        for k in range(len(self.graphs)):
            inputs |= self._micro_batch(k)
            results.append([self.own.get(v, v) for v in self.first.outputs])
        self._rest(late=True)
        rows = [
            [own[i] for own in results] if v in self.positions.varying else [self._read(v)]
            for i, v in enumerate(self.first.outputs)
        ]
        for before, cell in zip(self.first.cells, cells, strict=True):
            cell.assigned = None if before.assigned is None else self._read(before.assigned)
        return self._graph(inputs, rows, cells)

    def _graph(
        self, inputs: dict[str, Value], rows: list[list[Value]], cells: list[Cell]
    ) -> Replicated:
        asked, free = [v for row in rows for v in row], FreeNames().take
        graph = Graph(
            f"{self.first.name} for {len(self.graphs)} micro-batches",
            Values(inputs.values(), inputs),
            needed(self.nodes, [*asked, *(c.assigned for c in cells if c.assigned is not None)]),
            Values(asked, [free(v.name) for v in asked]),
            cells,
        )
        position = iter(range(len(asked)))
        return Replicated(graph, [[next(position) for _ in row] for row in rows])

    # Nodes -------------------------------------------------------------------------------------

    def _rest(self, late: bool) -> None:
        """Add nodes shared by all micro-batches: those before them, or those after their means."""
        for node in self.first.nodes:
            other = node.op is MEAN or self.positions.varies(node)
            if not other and self.positions.is_late(node) == late:
                inputs = [self._read(x) for x in node.inputs]
                made = self.copy(node, inputs, self.stages.nodes[node], node.name)
                self.shared.update(zip(node.outputs, made.outputs, strict=True))

    def _micro_batch(self, k: int) -> dict[str, Value]:
        """Add the nodes of a micro-batch; returns its inputs."""
        graph = self.graphs[k]
        inputs = [
            self._entry(v, f"micro_batch_{k}/{name}", before)
            for name, before, v in zip(
                graph.inputs.names, self.first.inputs, graph.inputs, strict=True
            )
        ]
        if k:
            self.own |= self._handed(k, inputs[0])
        self.own.update(zip(self.first.inputs, inputs, strict=True))
        self.held.clear()
        self.ends.append({})
        for node, mine in zip(self.first.nodes, graph.nodes, strict=True):
            if node.op is MEAN:
                self._add(node, mine, k)
            elif self.positions.varies(node):
                self._copy(node, mine, k)
        return {v.name: v for v in inputs}

    def _handed(self, k: int, begin: Value) -> dict[Value, Value]:
        """Values passed on from the previous micro-batch, in place of values of Variables."""
        found = {}
        for cell in self.first.cells:
            if cell.value in self.positions.varying and cell.assigned is not None:
                stage, name = self.stages.entries[cell.value], f"micro_batch_{k}/{cell.name}"
                # Not in one kernel with the previous one, which would wait for this one.
                given = self._read(cell.assigned), begin
                found[cell.value] = self.call(cell.value, after, given, stage, name)
        return found

    def _copy(self, node: Node, mine: Node, k: int) -> None:
        inputs = [  # numbers and constants may depend on its sizes
            y if type(y) is not Value or y.constant is not None else self._in_turn(x, node, k)
            for x, y in zip(node.inputs, mine.inputs, strict=True)
        ]
        stage = self.stages.nodes[node]
        made = self.copy(mine, inputs, stage, f"micro_batch_{k}/{mine.name}")
        self.own.update(zip(node.outputs, made.outputs, strict=True))
        self._note(made, stage, node in self.positions.backward)

    def _add(self, node: Node, mine: Node, k: int) -> None:
        """Add this micro-batch's contribution to a mean to the previous sum."""
        (mean,), stage = node.outputs, self.stages.nodes[node]

        def call(op: Any, inputs: tuple[Any, ...], name: str) -> Value:
            made = self.call(mean, op, inputs, stage, f"micro_batch_{k}/{node.name}{name}")
            self._note(made.node, stage, True)
            return made

        part = call(multiply, (self._read(node.inputs[0]), mine.attributes["share"]), "")
        before = self.shared.get(mean)
        if before is None:
            self.shared[mean] = part
        else:
            # Not in one kernel with earlier parts, which would wait for this one.
            before = call(after, (before, part), "/before")
            self.shared[mean] = call(add, (before, part), "/sum")

    def _note(self, made: Node | None, stage: int, back: bool) -> None:
        """Note a node as the last one of a stage, until another one there reads its result."""
        assert made is not None
        ends = self.ends[-1].setdefault((stage, back), {})
        for x in made.values():
            ends.pop(x, None)
        ends.update(dict.fromkeys(made.outputs))

    # Values ------------------------------------------------------------------------------------

    def _entry(self, v: Value, name: str, first: Value | None = None) -> Value:
        made = v.like(None, self.names.take(name))
        made.device = self.devices[self.stages.entries[first or v]]
        return made

    def _read(self, x: Any) -> Any:
        """The current replacement of a value."""
        if type(x) is not Value:
            return x
        found = self.own.get(x)
        return self.shared.get(x, x) if found is None else found

    def _in_turn(self, x: Value, node: Node, k: int) -> Value:
        """A value as read by a node of a micro-batch: in its turn, if it comes from elsewhere."""
        stage = self.stages.nodes[node]
        found = self._read(x)
        inside = x.node is not None and self.stages.nodes[x.node] == stage
        if inside or x not in self.positions.varying:
            return found
        held = self.held.get((x, stage))
        if held is None and node not in self.positions.backward:
            turn = self._turn(k, stage)
            if turn is not None:
                name = f"micro_batch_{k}/{x.name}/turn"
                held = self.held[x, stage] = self.call(found, after, (found, turn), stage, name)
        return found if held is None else held

    def _turn(self, k: int, stage: int) -> Value | None:
        """The value that lets a stage take a micro-batch; None if it may from the start."""
        if (k, stage) not in self.turns:
            waits: list[Value] = []
            for before, back in ((k - 1, False), (k - self.windows[stage], True)):
                if before >= 0:
                    waits += self.ends[before].get((stage, back), ())
            name = f"micro_batch_{k}/stage_{stage}"
            self.turns[k, stage] = (
                reduce(lambda x, y: self.call(x, after, (x, y), stage, name), waits)
                if waits
                else None
            )
        return self.turns[k, stage]
