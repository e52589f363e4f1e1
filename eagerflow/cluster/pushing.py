"""Steps in three parts: a worker pulls the weights, computes gradients, and pushes them.

Servers keep the weights and the optimizer's state. A worker has copies of the weights
and a Variable for each gradient; of a table it has the rows that its batch looks up. Pulls and
pushes are short and run one after the other; the computation between them runs in parallel
with that of other workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from eagerflow.cluster.copying import Copying
from eagerflow.cluster.replication import OVER_REPLICAS, Replication, Shadow
from eagerflow.cluster.row_access import accesses_rows, rows_read
from eagerflow.cluster.shadows import owned
from eagerflow.errors import CaptureError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.graph.walk import needed
from eagerflow.ops.creation.filled import zeros
from eagerflow.variable import Variable

__all__ = ["Compute", "Parts", "Push", "parts_of_step"]


class Parts(NamedTuple):
    """The graphs of a worker's step: ``compute`` has its inputs and outputs.

    ``local`` are the Variables that workers change separately, ``pulled_by`` the positions of
    the inputs of ``pull``: those that select the rows to look up.
    """

    pull: Graph
    compute: Graph
    push: Graph
    local: list[Variable]
    pulled_by: list[int]


def parts_of_step(
    graph: Graph,
    worker: int,
    devices: Sequence[str],
    shadow: Shadow,
    homes: Sequence[int],
    tables: Mapping[Variable, int] | None = None,
) -> Parts:
    """The step of a replica, for the worker with this index among the devices.

    ``homes`` are the indices of the servers, after those of all workers, ``tables`` those of
    tables. Raises CaptureError if a worker needs values that depend on the means over all of them.
    """
    graphs: list[Graph | None] = [None] * (len(devices) - len(homes))
    graphs[worker] = graph
    compute = Compute(graphs, devices, shadow, homes, tables)
    computed = compute.made().graph
    push = Push(graphs, devices, shadow, homes, compute.gradients, tables)
    local = [cell.variable for cell in compute.local]
    return Parts(compute.pull(), computed, push.made().graph, local, compute.pulled_by())


class Compute(Replication):
    """The local computation of a worker: means over workers are gradients that it keeps."""

    def __init__(
        self,
        graphs: Sequence[Graph | None],
        devices: Sequence[str],
        shadow: Shadow,
        homes: Sequence[int],
        tables: Mapping[Variable, int] | None = None,
    ) -> None:
        super().__init__(graphs, devices, shadow, homes, tables)
        (self._worker,) = self.active
        self.gradients: dict[Value, Variable] = {}
        self.kept: list[Cell] = []
        self._looked_up = _known_look_ups(self.first, self.tables)
        self._rows: dict[Node, Cell] = {}
        self._lies = self.tables
        self.tables = {}  # rows with indices that depend on more than inputs come from a copy

    def _node(self, i: int, node: Node) -> None:
        if node not in self._looked_up:
            super()._node(i, node)
            return
        (rows,) = node.outputs
        self._rows[node] = cell = self._between(rows, f"{node.name}/rows", self._worker)
        self.own[self._worker][rows] = cell.value

    def _between(self, like: Value, name: str, place: int) -> Cell:
        """A Variable of the worker, for a value between two of its graphs."""
        device = self.devices[place]
        name = self.names.take(f"replica_{self._worker}/{name}")
        variable = owned(Variable(zeros(like.shape, like.dtype), name, False, device=device))
        cell = Cell(name, variable, like.like(None, name))
        cell.value.device = device
        return cell

    def _sum(self, i: int, node: Node) -> None:
        (mean,) = node.outputs
        cell = self.keep(mean, f"{node.name}/gradient", self._at(self._worker, node.inputs[0]))
        self.gradients[mean] = cell.variable
        self.shared[mean] = cell.value

    def keep(self, like: Value, name: str, value: Value) -> Cell:
        """Keep a value in a Variable made for it."""
        cell = self._between(like, name, self._keeps(like))
        cell.assigned = value
        self.kept.append(cell)
        return cell

    _join = _sum  # with a single worker

    def _keeps(self, like: Value) -> int:
        """The index of the device that keeps a value."""
        return self._worker

    def _cells(self, asked: Iterable[Value]) -> tuple[list[Cell], list[Node]]:
        local = [c for c in self.first.cells if c in self.local and c.assigned is not None]
        known = [*asked, *(self._assign(cell, self._worker) for cell in local)]
        known += [cell.assigned for cell in self.kept if cell.assigned is not None]
        nodes = needed(self.nodes, known)
        used = {v for node in nodes for v in node.values()} | set(known)
        if not used.isdisjoint(self.shared.values()):
            raise CaptureError(
                "the step continues from a mean over all workers, so each would have to wait",
                op=self.first.name,
                hint="mode='synchronous' without backups; or layers with synchronized=False, and "
                "a step that only returns values of its own examples",
            )
        self.copies = {key: c for key, c in self.copies.items() if c.value in used or c.assigned}
        self._rows = {node: cell for node, cell in self._rows.items() if cell.value in used}
        return [*self.copies.values(), *self.kept, *self._rows.values()], nodes

    def _primary(self, cell: Cell) -> int:
        found = self._lies.get(cell.value)
        return super()._primary(cell) if found is None else found

    def _ids(self) -> list[Node]:
        """The nodes that compute the rows to look up from inputs."""
        return needed(self.first.nodes, [node.inputs[1] for node in self._rows])

    def pulled_by(self) -> list[int]:
        """The positions of the inputs that select the rows to look up."""
        used = {v for node in (*self._ids(), *self._rows) for v in node.values()}
        return [i for i, v in enumerate(self.first.inputs) if v in used]

    def pull(self) -> Graph:
        """The graph that copies the servers' values to the worker: weights, and rows."""
        held: dict[Cell, Cell] = {}
        copies = []
        for (cell, _), own in self.copies.items():
            if cell not in self.local and own.variable is not cell.variable:
                copies.append(_assigned(own, self._at_home(cell, held).value))
        places = self.pulled_by()
        names = [self.first.inputs.names[i] for i in places]
        given = {self.first.inputs[i]: self.first.inputs[i].like() for i in places}
        for v in given.values():
            v.device = self.devices[self._worker]
        new = dict(given)
        pulled = Copying(self.devices)
        for node in self._ids():
            made = pulled.copy(node, [new.get(x, x) for x in node.inputs], self._worker, node.name)
            new.update(zip(node.outputs, made.outputs, strict=True))
        for node, rows in self._rows.items():
            table, ids = node.inputs
            inputs = self._at_home(self.cells[table], held).value, new.get(ids, ids)
            made = pulled.copy(node, inputs, self._lies[table], node.name)
            copies.append(_assigned(rows, made.outputs[0]))
        cells = [*held.values(), *copies]
        asked = Values(given.values(), names)
        return Graph(f"{self.first.name}, pulled", asked, pulled.nodes, Values([]), cells)

    def _at_home(self, cell: Cell, held: dict[Cell, Cell]) -> Cell:
        """A Variable as held by its server, once for all readers."""
        if cell not in held:
            held[cell] = Cell(cell.name, cell.variable, cell.value.like())
            held[cell].value.device = self.devices[self._primary(cell)]
        return held[cell]


class Push(Replication):
    """The servers' update from the gradients of a worker."""

    def __init__(
        self,
        graphs: Sequence[Graph | None],
        devices: Sequence[str],
        shadow: Shadow,
        homes: Sequence[int],
        gradients: dict[Value, Variable],
        tables: Mapping[Variable, int] | None = None,
    ) -> None:
        super().__init__(graphs, devices, shadow, homes, tables)
        self.workers, self.active = self.active, []
        self._gradients = gradients
        self._kept: list[Cell] = []
        step = self.first
        self.first = Graph(f"{step.name}, pushed", step.inputs, step.nodes, Values([]), step.cells)

    def _sum(self, i: int, node: Node) -> None:
        (mean,) = node.outputs
        (worker,) = self.workers
        self.shared[mean] = self.read_kept(mean, self._gradients[mean], worker)

    def read_kept(self, like: Value, variable: Variable, place: int) -> Value:
        """The value of a Variable kept for a worker on a device."""
        cell = Cell(variable.name, variable, like.like(None, variable.name))
        cell.value.device = self.devices[place]
        self._kept.append(cell)
        return cell.value

    _join = _sum

    def _places(self, cell: Cell) -> Sequence[int]:
        return () if cell in self.local else (self._primary(cell),)

    def _cells(self, asked: Iterable[Value]) -> tuple[list[Cell], list[Node]]:
        cells, nodes = super()._cells(asked)
        return [*self._kept, *cells], nodes


def _assigned(cell: Cell, value: Value) -> Cell:
    """A Variable of another graph of the step, as assigned by this graph."""
    made = Cell(cell.name, cell.variable, cell.value.like())
    made.assigned = value
    return made


def _known_look_ups(graph: Graph, tables: Mapping[Value, int]) -> set[Node]:
    """Nodes that take rows of tables by indices that depend on inputs only."""
    known = set(graph.inputs)
    found = set()
    for node in graph.nodes:
        if accesses_rows(node, tables):
            ids = node.inputs[1]
            if rows_read(node) and (ids in known or ids.constant is not None):
                found.add(node)
        elif node.op not in OVER_REPLICAS and all(
            v in known or v.constant is not None for v in node.values()
        ):
            known.update(node.outputs)
    return found
