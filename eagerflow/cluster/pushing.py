"""Steps in three parts: a worker pulls the weights, computes gradients, and pushes them.

Weights lie with the servers, and so does the optimizer's state. A worker has copies of the weights
and a Variable for each gradient. Pulls and pushes take a moment each and come one after the other;
what is computed between them runs beside that of other workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eagerflow.cluster.replication import Replication, Shadow
from eagerflow.errors import CaptureError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.graph.walk import needed
from eagerflow.ops.creation.filled import zeros
from eagerflow.variable import Variable

__all__ = ["Compute", "Parts", "Push", "parts_of_step"]


class Parts(NamedTuple):
    """The graphs of a worker's step: ``compute`` takes its inputs and gives its outputs.

    ``local`` are the Variables that each worker changes for itself.
    """

    pull: Graph
    compute: Graph
    push: Graph
    local: list[Variable]


def parts_of_step(
    graph: Graph, worker: int, devices: Sequence[str], shadow: Shadow, homes: Sequence[int]
) -> Parts:
    """The step of a replica, for the worker of this place among the devices.

    ``homes`` are the places of the servers, behind those of all workers. Raises CaptureError where
    a worker needs what follows from the means over all of them.
    """
    graphs: list[Graph | None] = [None] * (len(devices) - len(homes))
    graphs[worker] = graph
    compute = Compute(graphs, devices, shadow, homes)
    computed = compute.made().graph
    push = Push(graphs, devices, shadow, homes, compute.gradients)
    return Parts(
        compute.pull(), computed, push.made().graph, [cell.variable for cell in compute.local]
    )


class Compute(Replication):
    """What a worker computes by itself: means over workers are gradients that it keeps."""

    def __init__(
        self,
        graphs: Sequence[Graph | None],
        devices: Sequence[str],
        shadow: Shadow,
        homes: Sequence[int],
    ) -> None:
        super().__init__(graphs, devices, shadow, homes)
        (self._worker,) = self.active
        self.gradients: dict[Value, Variable] = {}
        self.kept: list[Cell] = []

    def _sum(self, i: int, node: Node) -> None:
        (mean,) = node.outputs
        cell = self.keep(mean, f"{node.name}/gradient", self._at(self._worker, node.inputs[0]))
        self.gradients[mean] = cell.variable
        self.shared[mean] = cell.value

    def keep(self, like: Value, name: str, value: Value) -> Cell:
        """Let a value stay with the worker, in a Variable that is made for it."""
        place = self.devices[self._worker]
        name = self.names.take(f"replica_{self._worker}/{name}")
        variable = Variable(zeros(like.shape, like.dtype), name, False, device=place)
        cell = Cell(name, variable, like.like(None, name))
        cell.value.device = place
        cell.assigned = value
        self.kept.append(cell)
        return cell

    def _cells(self, asked: Iterable[Value]) -> tuple[list[Cell], list[Node]]:
        local = [c for c in self.first.cells if c in self.local and c.assigned is not None]
        known = [*asked, *(self._assign(cell, self._worker) for cell in local)]
        known += [cell.assigned for cell in self.kept if cell.assigned is not None]
        nodes = needed(self.nodes, known)
        used = {v for node in nodes for v in node.values()} | set(known)
        if not used.isdisjoint(self.shared.values()):
            raise CaptureError(
                "the step goes on from a mean over all workers, for which each would have to wait",
                op=self.first.name,
                hint="mode='synchronous' without backups; or layers with synchronized=False, and "
                "a step that returns what follows from its own examples",
            )
        self.copies = {key: c for key, c in self.copies.items() if c.value in used or c.assigned}
        return [*self.copies.values(), *self.kept], nodes

    def pull(self) -> Graph:
        """The graph that gives the worker's copies of weights the servers' values."""
        cells = []
        for (cell, _), own in self.copies.items():
            if cell in self.local or own.variable is cell.variable:
                continue
            home = self.devices[self._primary(cell)]
            held = Cell(cell.name, cell.variable, cell.value.like())
            held.value.device = home
            copy = Cell(own.name, own.variable, own.value.like())
            copy.assigned = held.value
            cells += [held, copy]
        return Graph(f"{self.first.name}, pulled", Values([]), (), Values([]), cells)


class Push(Replication):
    """What servers make of the gradients that a worker has."""

    def __init__(
        self,
        graphs: Sequence[Graph | None],
        devices: Sequence[str],
        shadow: Shadow,
        homes: Sequence[int],
        gradients: dict[Value, Variable],
    ) -> None:
        super().__init__(graphs, devices, shadow, homes)
        self.workers, self.active = self.active, []
        self._gradients = gradients
        self._kept: list[Cell] = []
        step = self.first
        self.first = Graph(f"{step.name}, pushed", step.inputs, step.nodes, Values([]), step.cells)

    def _sum(self, i: int, node: Node) -> None:
        (mean,) = node.outputs
        (worker,) = self.workers
        self.shared[mean] = self.read_kept(mean, self._gradients[mean], worker)

    def read_kept(self, like: Value, variable: Variable, worker: int) -> Value:
        """The value of a Variable that a worker keeps."""
        cell = Cell(variable.name, variable, like.like(None, variable.name))
        cell.value.device = self.devices[worker]
        self._kept.append(cell)
        return cell.value

    def _places(self, cell: Cell) -> Sequence[int]:
        return () if cell in self.local else (self._primary(cell),)

    def _cells(self, asked: Iterable[Value]) -> tuple[list[Cell], list[Node]]:
        cells, nodes = super()._cells(asked)
        return [*self._kept, *cells], nodes
