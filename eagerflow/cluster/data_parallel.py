"""Data parallelism: each batch is split over replicas, which make one step together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from eagerflow import tree
from eagerflow.capture.function import Function
from eagerflow.capture.history import NUMBERS
from eagerflow.capture.placement.cost_model import TYPICAL
from eagerflow.capture.placement.partition import partition
from eagerflow.cluster.cluster import Cluster
from eagerflow.cluster.replication import Replicated, replicated, rows_fit
from eagerflow.cluster.restoring import Restoring
from eagerflow.cluster.retries import Retried, retried
from eagerflow.cluster.shadows import Shadows
from eagerflow.cluster.snapshots import Snapshot, parts_in
from eagerflow.cluster.tables import Tables
from eagerflow.convert import as_tensor
from eagerflow.devices import Device, as_device
from eagerflow.dtypes import is_inexact
from eagerflow.errors import ArgumentError, ShapeError, short_repr
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell
from eagerflow.masks import opened
from eagerflow.nn.arguments import is_count
from eagerflow.nn.replicas import as_replica, joining_rows
from eagerflow.variable import Variable

__all__ = ["DataParallel", "ReplicatedStep"]

MAX_KEPT_GRAPHS = 32  # graphs of a step kept for parts of other sizes
COSTS = replace(TYPICAL, latency=5e-4, bandwidth=1e10)
"""The cost model for cutting strategies' graphs, equal on all machines: all nodes have their
devices, and bits depend on which nodes share a kernel, and so on where pieces end."""
MIN_SHARD_BYTES = 16 << 20  # each shard gets all indices, so few shards are best


class DataParallel:
    """Trains on several devices at once: each has a replica of the step, and a part of the batch.

    ``cluster`` is a Cluster, with a replica on each device of ``job``; or ``devices``
    names them, such as ``["cpu:0", "cpu:1"]`` without a cluster. Gradients become their means over
    all examples, added in the order of the replicas, so that the result does not depend on
    timing; the optimizer's state of each weight is kept by one replica. ``loss`` says whether the
    loss of a step is the ``"mean"`` over its examples or their ``"sum"``. ``numerics`` is as for
    ``ef.function``, ``transfer`` as for ``ef.capture.Session``. A step in which a task was lost is
    repeated when another process has replaced it, ``retries`` times. Small state that only that
    task had, such as counts of metrics, is also kept here, unchanged; larger state, such as an
    optimizer's, is as after the last ``merge``, with a warning, unless the Cluster is
    ``redundant``. Weights that no other task has raise TaskLostError. A table with only row
    accesses in steps is kept on one device, or divided over several, with ``min_shard_bytes`` at
    least on each: rows are sent instead of it, and a divided one has its values after ``merge``.

    Variables that replicas change separately, such as counts of metrics, are merged by ``merge``,
    which ``fit`` calls after each epoch. Raises DeviceError for devices that do not exist,
    SessionError for a cluster outside of its with-block, and ArgumentError for other objects.

    >>> w = ef.Variable([1.0, 2.0])
    >>> optimizer = ef.nn.optimizers.SGD(0.5)
    >>> def step(x):
    ...     with ef.GradientTape() as tape:
    ...         loss = (x * w).sum(axis=1).mean()
    ...     optimizer.apply(tape.gradient(loss, [w]), [w])
    ...     return loss
    >>> ef.set_logical_devices("cpu", 3)
    >>> strategy = ef.cluster.DataParallel(devices=["cpu:0", "cpu:1"])
    >>> strategy.step(step)(ef.tensor([[1.0, 0.0], [3.0, 4.0]]))
    Tensor(6., float32, cpu:0)
    >>> strategy.merge(), w.value
    (None, Tensor([0., 1.], float32, cpu:0))
    """

    joins_rows = True
    """Whether sparse gradients stay sparse when those of all replicas are joined."""

    def __init__(
        self,
        cluster: Any = None,
        *,
        devices: Sequence[Any] | None = None,
        job: str = "worker",
        loss: str = "mean",
        numerics: str = "fast",
        transfer: str | None = None,
        retries: int = 3,
        min_shard_bytes: int = MIN_SHARD_BYTES,
    ) -> None:
        if not (is_count(retries) or retries == 0):
            raise ArgumentError(
                f"{retries!r} is not a number of times",
                op="DataParallel",
                argument="retries",
                expected="an integer from 0",
            )
        if loss not in ("mean", "sum"):
            raise ArgumentError(
                f"{loss!r} is not a choice",
                op="DataParallel",
                argument="loss",
                expected="'mean' or 'sum', as the loss is over its examples",
            )
        if not is_count(min_shard_bytes):
            raise ArgumentError(
                f"{min_shard_bytes!r} is not a number of bytes",
                op="DataParallel",
                argument="min_shard_bytes",
                expected="an integer from 1",
            )
        self.cluster = cluster
        self.devices = devices_of(cluster, devices, job, type(self).__name__)
        self.loss, self.numerics, self.transfer = loss, numerics, transfer
        self.retries = retries
        self.shadows = Shadows(self.devices)
        self.tables = Tables(min_shard_bytes)
        self.replicas = len(self.devices)
        self.homes: Sequence[int] | None = None
        """The indices of the devices that add up gradients, unless these are the replicas'."""
        self._used: dict[int, Replicated] = {}
        self._restoring = Restoring(self.shadows, self.tables)
        self._goes_back = False

    def step(self, f: Callable[..., Any]) -> ReplicatedStep:
        """A function that makes a step on all replicas, from one that makes a step on a batch.

        Array arguments with as many rows as the first one are split over the
        replicas; everything else is sent to each of them. Results with a row for each example are
        joined, numbers are averaged over the examples.
        """
        return ReplicatedStep(self, f)

    def batch_step(self, model: Any) -> tuple[ReplicatedStep, bool]:
        """The training step of a model, and whether it returns additional numbers."""
        f, own = model.python_step("train")
        return self.step(f), own

    @contextmanager
    def merging(self, goes_back: bool = False) -> Iterator[None]:
        """A block after which the values are merged, even if it ends early.

        ``goes_back`` says that the program returns to a saved state after a loss:
        then nothing is reinitialized.
        """
        self._goes_back = goes_back
        try:
            yield
        finally:
            self._goes_back = False
            self.merge()

    def merge(self) -> None:
        """Merge all values made by the steps into the users' Variables."""
        self.shadows.merge(self.bring(), self.steps_made())
        self.tables.merge()

    def bring(self) -> list[Variable]:
        """Copy all values here, unmerged; returns the Variables that replicas change separately."""
        used = list(self._used.values())
        # Changes by the program itself reach the shadows with the next step, as they are.
        local = self.changed_by_replicas()
        mirrored = self.shadows.unchanged(v for one in used for v in one.mirrored)
        if self.cluster is not None:
            cells = [c for one in used for c in one.graph.cells if c.assigned is not None]
            self.pull(list({c.variable: None for c in cells}))
        self.shadows.note(local)
        self.shadows.note(mirrored)
        return local

    def steps_made(self) -> Sequence[int] | None:
        """The steps of each replica since the last merge; None if equally many."""
        return None

    def replicated(self, graphs: Sequence[Graph | None]) -> Replicated:
        """The graph for all devices, from those of the replicas."""
        arranged = self.tables.arranged(graphs, self.homes or range(self.replicas))
        places = self.tables.places
        return replicated(arranged, self.devices, self.shadows, self.homes, places)

    def planned(self, found: Replicated) -> Any:
        """A runner for the graph of a step; ``merge`` fetches its values."""
        self.remember(found)
        return self.partition(found.graph)

    def remember(self, found: Replicated) -> None:
        """Include the values of a step's graph in ``merge``."""
        self._used[id(found)] = found

    def forget(self, found: Replicated) -> None:
        """Drop the graph of a step after merging its values."""
        del self._used[id(found)]

    def partition(self, graph: Graph) -> Any:
        """A runner for a graph over the devices, which repeats a run if a task is lost."""
        made = self.partition_once(graph)
        return made if self.cluster is None else Retried(made, self.again)

    def partition_once(self, graph: Graph) -> Any:
        """A runner for a graph over the devices; TaskLostError if a task is lost."""
        if self.cluster is None:
            return partition(graph, self.devices, numerics=self.numerics, costs=COSTS)
        return self.cluster.partition(
            graph, self.devices, self.numerics, self.transfer, COSTS, self._follows
        )

    def _follows(self, cell: Cell, place: Device) -> bool:
        return self.is_replaceable(place) and cell.variable not in self.tables.places

    def is_replaceable(self, place: Device) -> bool:
        """Whether training can continue without data held only by the task of this device."""
        return True

    def pull(self, variables: Sequence[Variable]) -> None:
        """Copy the newest values of Variables from the tasks."""
        self.again(lambda: self.cluster.pull(variables))

    def again(self, call: Callable[[], Any]) -> Any:
        """The result of a call, which is repeated if a task is lost during it."""
        if self.cluster is None:
            return call()
        return retried(self.cluster, self.retries, call, self._renew)

    def _renew(self) -> None:
        """Reset state that was lost with a task to its value after the last merge.

        TaskLostError for weights, and if the program returns to a saved state.
        """
        cells = (c for one in self._used.values() for c in one.graph.cells)
        used = list(dict.fromkeys(c.variable for c in cells))
        client = self.cluster.client
        for held in client.lost_of(used):
            variable = held.variable()
            is_weight = variable is not None and (
                variable.trainable or variable in self.tables.places
            )
            if self._goes_back or is_weight or not self.is_replaceable(held.place):
                raise held.loss()
        self._restoring.tell_renewed(self._restoring.renew(client, used))

    def snapshot(
        self, variables: Mapping[str, Variable], here: Collection[str], folder: str, prefix: str
    ) -> Snapshot:
        """The current merged values of Variables, for a checkpoint; see Snapshot."""
        client = None if self.cluster is None else self.cluster.client
        wholes = self.shadows.unmerged(self.changed_by_replicas(), self.steps_made())
        wholes |= self.tables.unmerged()
        return Snapshot(client, variables, wholes, here, folder, prefix, lambda path: None)

    def go_on(self, variables: Mapping[str, Variable], arrays: Mapping[str, Any]) -> None:
        """Restore the separate values of each replica for Variables that were restored.

        Both are by the names of the checkpoint. If it lacks those of some replica, they
        start as after a merge.
        """
        self.shadows.begin_with(parts_in(variables, arrays, self.replicas))

    def changed_by_replicas(self) -> list[Variable]:
        """The Variables that replicas change separately."""
        return self.shadows.unchanged(v for one in self._used.values() for v in one.local)

    def give_up(self) -> None:
        """Drop pending steps, as training continues from another state."""

    @property
    def graphs(self) -> list[Graph]:
        """The graphs of steps so far, a separate one for each size of a batch.

        They name the device of each node; ``ef.capture.partition(graph, strategy.devices)`` shows
        the transfers between these.
        """
        return [one.graph for one in self._used.values()]

    def __repr__(self) -> str:
        return f"<DataParallel over {', '.join(self.devices)}>"


def devices_of(
    cluster: Any, devices: Sequence[Any] | None, job: str, op: str, argument: str = "devices"
) -> list[str]:
    """The names of devices, or of those of a job's tasks in a cluster.

    ArgumentError for an invalid cluster or list of devices, DeviceError for a device of this
    process that does not exist, and SessionError outside of the cluster's with-block.
    """
    if cluster is not None and not isinstance(cluster, Cluster):
        raise ArgumentError(
            f"{short_repr(cluster)} is not a cluster",
            op=op,
            argument="cluster",
            expected="ef.cluster.Cluster({...}), or devices=['cpu:0', 'cpu:1'] without one",
        )
    if isinstance(devices, str):
        raise ArgumentError(
            f"{devices!r} is not a list of devices",
            op=op,
            argument=argument,
            expected="such as ['cpu:0', 'cpu:1']",
        )
    if devices is not None:
        found = [str(d) for d in devices]
    elif cluster is not None:
        cluster.client  # noqa: B018 (raises an error if there are no tasks)
        found = [str(d) for d in cluster.devices() if d.task.startswith(f"/job:{job}/")]
    else:
        found = []
    if not found:
        has_job = devices is None and cluster is not None
        raise ArgumentError(
            "there are no devices",
            op=op,
            argument="cluster" if has_job else argument,
            received=f"no task of the job {job!r} in {cluster}" if has_job else None,
            expected=f"a cluster with tasks of the job {job!r}, or {argument}=['cpu:0', 'cpu:1']",
        )
    for name in found if cluster is None else ():
        as_device(name)  # DeviceError if it does not exist
    return found


class _Prepared(NamedTuple):
    """A step for parts of some sizes, over its devices."""

    found: Replicated
    graphs: list[Graph | None]
    plan: Any


class CapturedStep:
    """The step of a single replica."""

    def __init__(self, strategy: DataParallel, f: Callable[..., Any]) -> None:
        def replica(share: float, rows: int | None, *args: Any) -> Any:
            return f(*args)

        replica.__name__ = getattr(f, "__name__", "step")
        own = ("share", "rows")  # graphs differ in these besides their arguments
        self._function = Function(replica, static=own, numerics=strategy.numerics)
        self._is_mean = strategy.loss == "mean"
        self._shares: dict[tuple[int, int], tuple[float, Fraction]] = {}

    def graph(self, n: int, rows: int, joins: bool, args: Any) -> Graph:
        """The step of a replica with ``n`` of ``rows`` examples.

        ``joins`` says whether sparse gradients stay sparse over all replicas.
        """
        known = self._shares.get((n, rows))
        if known is None:  # reuse the same objects in each step, as a trace compares identities
            weight = n / rows if self._is_mean else 1.0
            known = self._shares[n, rows] = weight, Fraction(rows, n)
        weight, times = known
        make, own = self._function.graph, (weight, rows if joins else None)
        found: Graph = as_replica(weight, joining_rows, times if joins else None, make, *own, *args)
        return found


class ReplicatedStep:
    """A step made by several replicas together; made by ``strategy.step``."""

    def __init__(self, strategy: DataParallel, f: Callable[..., Any]) -> None:
        self._strategy = strategy
        self._captured = CapturedStep(strategy, f)
        self._dense: set[tuple[int, ...]] = set()
        """Sizes of parts with gradient rows that cannot be joined."""
        self._prepared: dict[tuple[int, ...], _Prepared] = {}

    def __call__(self, *args: Any) -> Any:
        """Make a step on a batch; returns the step's results, joined over the replicas."""
        sizes, given, structure = split_over(args, self._strategy.replicas)
        graphs = self._graphs([tree.unflatten(structure, own) for own in given], tuple(sizes))
        prepared = self._made(graphs)
        inputs = [x for own, n in zip(given, sizes, strict=True) if n for x in arrays_of(own)]
        strategy, found = self._strategy, prepared.found
        strategy.shadows.push(found.local, found.mirrored)
        strategy.tables.push()
        outputs = prepared.plan.run(inputs)
        strategy.shadows.note(found.local)
        strategy.shadows.note(found.mirrored)
        counts = [n for n in sizes if n]
        merged = [joined([outputs[i] for i in row], counts) for row in found.outputs]
        first = next(graph for graph in graphs if graph is not None)
        return first.nest(merged)

    def _graphs(self, args: Sequence[Any], sizes: tuple[int, ...]) -> list[Graph | None]:
        """The step of each replica, for its arguments and number of examples."""
        joins = self._strategy.joins_rows and sizes not in self._dense
        rows = sum(sizes)
        found = [
            self._captured.graph(n, rows, joins, own) if n else None
            for own, n in zip(args, sizes, strict=True)
        ]
        if joins and tuple(map(id, found)) not in self._prepared and not rows_fit(found):
            self._dense.add(sizes)
            return self._graphs(args, sizes)
        return found

    def _made(self, graphs: list[Graph | None]) -> _Prepared:
        key = tuple(map(id, graphs))
        found = self._prepared.get(key)
        if found is None:
            own = self._strategy
            own.bring()  # new shadows copy the current values of Variables
            made = own.replicated(graphs)
            while len(self._prepared) >= MAX_KEPT_GRAPHS:
                own.merge()
                own.forget(self._prepared.pop(next(iter(self._prepared))).found)
            found = self._prepared[key] = _Prepared(made, graphs, own.planned(made))
        return found


def split_over(args: Any, count: int) -> tuple[list[int], list[list[Any]], Any]:
    """A batch in ``count`` parts: their numbers of examples, their leaves, and their nest."""
    leaves, structure = tree.flatten(opened(args))
    rows, split = _rows(leaves)
    sizes = _parts(rows, count)
    begins = [sum(sizes[:r]) for r in range(len(sizes))]
    given = [
        [x[b : b + n] if i in split else x for i, x in enumerate(leaves)]
        for b, n in zip(begins, sizes, strict=True)
    ]
    return sizes, given, structure


def _rows(leaves: Sequence[Any]) -> tuple[int, set[int]]:
    """The number of examples of a batch, and the leaves with a row for each."""
    shapes = [np.shape(x) if hasattr(x, "shape") else () for x in leaves]
    rows = next((shape[0] for shape in shapes if shape), 0)
    if not rows:
        raise ShapeError(
            "there are no examples to split over replicas",
            op="DataParallel.step",
            received=", ".join(short_repr(x) for x in leaves[:4]) or "no arguments",
            expected="an array with a row for each example",
        )
    return rows, {i for i, shape in enumerate(shapes) if shape and shape[0] == rows}


def _parts(rows: int, count: int) -> list[int]:
    """The number of rows of each replica: as equal as possible, the first ones one more."""
    return [rows // count + (r < rows % count) for r in range(count)]


def arrays_of(leaves: Sequence[Any]) -> list[Any]:
    """The leaves that are inputs of a graph."""
    return [as_tensor(x) for x in leaves if hasattr(x, "shape") or type(x) in NUMBERS]


def joined(values: Sequence[Any], counts: Sequence[int]) -> Any:
    """One result joined from those of all replicas, with ``counts`` examples each."""
    first = values[0]
    if len(values) == 1:
        return first
    parts = [v.numpy() for v in values]
    if all(p.ndim and p.shape[0] == n for p, n in zip(parts, counts, strict=True)):
        return as_tensor(np.concatenate(parts))
    if is_inexact(first.dtype):
        shares = [n / sum(counts) for n in counts]
        total = sum(p * s for p, s in zip(parts, shares, strict=True))
        return as_tensor(np.asarray(total), first.dtype)
    return first
