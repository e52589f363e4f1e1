"""Pipelines: each device has a part of the model, and parts of a batch pass through them."""

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
    other, so that all stages work in parallel; the results are those of the whole batch.
    ``cluster``, ``devices``, ``job``, ``loss``, ``numerics`` and ``transfer`` are as for
    DataParallel: the devices are the stages, in order. Code in ``with ef.device(...)``
    belongs to that stage, with everything that follows from it; without any, the step is cut into
    stages of about equal time, by ``costs``, a CostModel, measured if not given.

    With the ``schedule`` ``"one-forward-one-backward"`` stage i of n has at most n - i
    pending micro-batches; with ``"fill-drain"`` it takes all that come.

    Raises the errors of DataParallel, and ArgumentError for invalid numbers. Sources: Huang
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

    joins_rows = False  # gradients of micro-batches are added sequentially

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
        """The graph for all devices, from those of the micro-batches."""
        first = first_of(graphs)
        pins = pins_of(first, self.devices)
        positions = Positions(first, varying_in(first)[0], pins)
        stages = positions.stages(range(1, len(self.devices)) if pins else self._cut(positions))
        own = [graph for graph in graphs if graph is not None]
        return pipelined(own, self.devices, positions, stages, self._windows())

    def is_replaceable(self, place: Device) -> bool:
        """Training cannot continue without a stage, which no other task has."""
        return False

    def _windows(self) -> list[int]:
        """The number of pending micro-batches that each stage may have."""
        count = len(self.devices)
        if self.schedule == "fill-drain":
            return [self.replicas] * (count - 1) + [1]  # at the last one they return at once
        return [count - stage for stage in range(count)]

    def _cut(self, positions: Positions) -> list[int]:
        """The first positions of stages; batches of other sizes are cut at the same ones."""
        key = tuple(node.op.name for node in positions.graph.nodes)
        if key not in self._cuts:
            model = self._costs or self._measured()
            self._cuts[key] = cuts_by_costs(positions, self.devices, model, self.replicas)
        return self._cuts[key]

    def _measured(self) -> CostModel:
        """The costs of this process's devices, also used for a cluster's."""
        if self.cluster is None:
            return calibrate(self.devices)
        place = current_device()
        return CostModel({"*": calibrate([place]).rates(str(place))})

    def __repr__(self) -> str:
        return f"<Pipeline of {', '.join(self.devices)}, {self.replicas} micro-batches>"
