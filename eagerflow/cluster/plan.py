"""A graph over the tasks of a cluster: placed, cut, registered once, then run by number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from eagerflow.capture.placement.communication import recv, send
from eagerflow.capture.placement.cost_model import CostModel
from eagerflow.capture.placement.cutting import Division
from eagerflow.capture.placement.partition import Partition
from eagerflow.capture.run_order import Turn, written_by
from eagerflow.cluster.client import Client
from eagerflow.cluster.job import Job
from eagerflow.cluster.parts import Part, parts_of
from eagerflow.convert import from_array
from eagerflow.devices import HOST_TYPE, Device, as_device, current_device
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.ops.creation.cast import to_device
from eagerflow.tensor import Tensor

__all__ = ["ClusterPlan"]


class _Ready(NamedTuple):
    """A graph in parts for given sizes."""

    division: Division
    parts: list[Part]
    places: list[Device]
    twins: dict[int, int]


_COPIES = {op.op for op in (send, recv, to_device)}  # type: ignore[attr-defined]


def twins_of(cells: Sequence[Cell], places: Sequence[Device]) -> dict[int, int]:
    """Cells with new values, by position: a cell of another task with the same new value."""
    same: dict[Any, list[int]] = {}
    for i, cell in enumerate(cells):
        value = cell.assigned
        while value is not None and value.node is not None and value.node.op in _COPIES:
            value = next(value.node.values())
        if value is not None:
            same.setdefault(value, []).append(i)
    found = {}
    for own in same.values():
        for at, i in enumerate(own):
            following = [*own[at + 1 :], *own[:at]]
            twin = next((k for k in following if places[k].task != places[i].task), None)
            if twin is not None:
                found[i] = twin
    return found


Follows = Callable[[Cell, Device], bool]
"""Whether a cell's new value is copied to the client after each run if it is small."""
FOLLOWING_BYTES = 64 << 10  # per task and run: small beside the gradients in a cluster


def following_of(
    cells: Sequence[Cell],
    places: Sequence[Device],
    twins: Mapping[int, int],
    follows: Follows | None,
) -> set[int]:
    """The positions of the cells with new values to copy to the client after each run.

    These are states of random generators, and of the cells selected by ``follows`` that no other
    task has, the smallest ones of each task up to ``FOLLOWING_BYTES``.
    """
    written = [i for i, cell in enumerate(cells) if cell.assigned is not None]
    found = {i for i in written if cells[i].variable.is_random_state}
    left: dict[str, int] = {}
    for i in sorted(written, key=lambda i: cells[i].variable.current.nbytes):
        if i in found or i in twins or follows is None or not follows(cells[i], places[i]):
            continue
        task = places[i].task
        left[task] = left.get(task, FOLLOWING_BYTES) - cells[i].variable.current.nbytes
        if left[task] >= 0:
            found.add(i)
    return found


class ClusterPlan:
    """A graph over the tasks of a cluster, for one combination of fetches and feeds.

    ``plan`` is the partition it is based on: its listing, bill and reasons. ``follows`` selects
    the Variables with new values that are also sent to the client with each run if they are small.
    """

    def __init__(
        self,
        client: Client,
        graph: Graph,
        devices: Sequence[Any],
        numerics: str,
        costs: CostModel | None,
        transfer: str | None,
        follows: Follows | None = None,
    ) -> None:
        self._client, self._transfer, self._follows = client, transfer, follows
        self.plan = Partition(graph, devices, numerics, costs=costs)
        self._ready_for: dict[tuple[int, ...], _Ready] = {}
        self._written = written_by(graph.cells)
        self._making = reentrant_lock()

    def ready(self, sizes: dict[str, int]) -> _Ready:
        """The parts for these sizes of the graph's named dimensions."""
        key = tuple(sizes.values())
        with Locked(self._making):
            found = self._ready_for.get(key)
            if found is None:
                division = self.plan.divided(sizes)
                cells = division.graph.cells
                places = [self.plan.devices[division.places[c.value]] for c in cells]
                twins = {} if self._transfer else twins_of(cells, places)
                following = following_of(cells, places, twins, self._follows)
                parts = parts_of(division, self.plan.devices, self._transfer, following)
                found = self._ready_for[key] = _Ready(division, parts, places, twins)
        return found

    def run(self, inputs: Sequence[Any]) -> list[Tensor]:
        """The outputs for these Tensors or arrays; afterwards the tasks' Variables have new values.

        ``inputs`` must fit the graph's inputs: they are not checked. If a task fails, all
        Variables keep their values.
        """
        graph = self.plan.graph
        arrays = [x.device.backend.to_numpy(x._array) if type(x) is Tensor else x for x in inputs]
        sizes = self.plan.sizes
        if sizes:
            held = [cell.variable.current._array for cell in graph.cells]
            sizes = self.plan.sizes_of([*arrays, *held])
        ready = self.ready(sizes)
        count = len(graph.outputs)
        job = Job(ready.parts, graph.cells, ready.places, arrays, count, ready.twins)
        with Turn(self._written) if self._written else nullcontext():
            self._client.run(job)
        place = current_device()
        if place.task:  # fetched values come to this process
            place = as_device(f"{HOST_TYPE}:0")
        found = []
        for i, value in enumerate(ready.division.graph.outputs):
            array = job.outputs.get(i)
            array = value.constant.numpy() if array is None else array.copy()
            found.append(from_array(array, place))
        return found
