"""Pipelines: each device has a part of the model, through which parts of a batch pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eagerflow.capture.placement.calibration import calibrate
from eagerflow.capture.placement.cost_model import CostModel
from eagerflow.cluster.data_parallel import DataParallel
from eagerflow.cluster.pipelining import pipelined
from eagerflow.cluster.replication import Replicated, first_of, varying_in
from eagerflow.cluster.stages import Positions, cuts_by_costs, pins_of
from eagerflow.devices import Device, current_device
from eagerflow.errors import ArgumentError
from eagerflow.graph.graph import Graph
from eagerflow.nn.arguments import is_count

__all__ = ["Pipeline"]

SCHEDULES = ("fill-drain", "one-forward-one-backward")


class Pipeline(DataParallel):
    """Trains with a part of the model on each device, its stage, and batches in micro-batches.

    Each batch is split into ``microbatches`` parts, which pass through the stages one after the
    other, so that all stages are at work at once; the results are those of the whole batch.
    ``cluster``, ``devices``, ``job``, ``loss``, ``numerics`` and ``transfer`` are as for
    DataParallel: the devices are the stages, in their order. What stands in ``with ef.device(...)``
    is of that stage, and what follows with it; where nothing is, the step is cut where the stages
    take about the same time, by ``costs``, a CostModel, measured if not given.

    With the ``schedule`` ``"one-forward-one-backward"`` stage i of n has at most n - i
    micro-batches on their way; with ``"fill-drain"`` it takes all that come.

    Raises what DataParallel raises, and ArgumentError for numbers that are none. Sources: Huang
    and others, "GPipe", 2019; Narayanan and others, "PipeDream", 2019.

    >>> ef.set_logical_devices("cpu", 3)
    >>> a, b = ef.Variable([[2.0]]), ef.Variable([[3.0]])
    >>> optimizer = ef.nn.optimizers.SGD(0.5)
    >>> def step(x):
    ...     with ef.GradientTape() as tape:
    ...         loss = (x @ a @ b).mean()
    ...     optimizer.apply(tape.gradient(loss, [a, b]), [a, b])
    ...     return loss
    >>> strategy = ef.cluster.Pipeline(devices=["cpu:0", "cpu:1"], microbatches=2)
    >>> strategy.step(step)(ef.tensor([[1.0], [3.0]]))
    Tensor(12., float32, cpu:0)
    >>> strategy.merge(), a.value.item(), b.value.item()
    (None, -1.0, 1.0)
    """

    joins_rows = False  # gradients of micro-batches are added up one after the other

    def __init__(
        self,
        cluster: Any = None,
        *,
        microbatches: int = 4,
        schedule: str = "one-forward-one-backward",
        devices: Sequence[Any] | None = None,
        job: str = "worker",
        loss: str = "mean",
        numerics: str = "fast",
        transfer: str | None = None,
        costs: CostModel | None = None,
    ) -> None:
        if not is_count(microbatches):
            raise ArgumentError(
                f"{microbatches!r} is not a number of micro-batches",
                op="Pipeline",
                argument="microbatches",
                expected="an integer from 1",
            )
        if schedule not in SCHEDULES:
            raise ArgumentError(
                f"{schedule!r} is not a choice",
                op="Pipeline",
                argument="schedule",
                expected=" or ".join(map(repr, SCHEDULES)),
            )
        super().__init__(
            cluster, devices=devices, job=job, loss=loss, numerics=numerics, transfer=transfer
        )
        self.replicas = microbatches
        self.schedule = schedule
        self._costs = costs
        self._cuts: dict[tuple[str, ...], list[int]] = {}

    def replicated(self, graphs: Sequence[Graph | None]) -> Replicated:
        """The graph for all devices, of those of the micro-batches."""
        first = first_of(graphs)
        pins = pins_of(first, self.devices)
        positions = Positions(first, varying_in(first)[0], pins)
        stages = positions.stages(range(1, len(self.devices)) if pins else self._cut(positions))
        own = [graph for graph in graphs if graph is not None]
        return pipelined(own, self.devices, positions, stages, self._windows())

    def is_replaceable(self, place: Device) -> bool:
        """Training does not go on without a stage, which no other task has."""
        return False

    def _windows(self) -> list[int]:
        """How many micro-batches that have not come back each stage may have."""
        count = len(self.devices)
        if self.schedule == "fill-drain":
            return [self.replicas] * (count - 1) + [1]  # from the last one they come back at once
        return [count - stage for stage in range(count)]

    def _cut(self, positions: Positions) -> list[int]:
        """Where stages begin; batches of other sizes are cut at the same places."""
        key = tuple(node.op.name for node in positions.graph.nodes)
        if key not in self._cuts:
            model = self._costs or self._measured()
            self._cuts[key] = cuts_by_costs(positions, self.devices, model, self.replicas)
        return self._cuts[key]

    def _measured(self) -> CostModel:
        """The costs of this process's devices, which stand for those of a cluster's."""
        if self.cluster is None:
            return calibrate(self.devices)
        place = current_device()
        return CostModel({"*": calibrate([place]).rates(str(place))})

    def __repr__(self) -> str:
        return f"<Pipeline of {', '.join(self.devices)}, {self.replicas} micro-batches>"
