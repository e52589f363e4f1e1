"""The bill in advance: the time of a step by each method, compared with one machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from eagerflow.capture.placement.report import WORTHWHILE_RATIO
from eagerflow.cluster.simulation.data_parallel import AllReduce, ParameterServers
from eagerflow.cluster.simulation.machines import Machines
from eagerflow.cluster.simulation.result import Estimate, machines_text, memory_text, step_text
from eagerflow.cluster.simulation.simulate import estimate, require_batch
from eagerflow.cluster.simulation.workload import Workload
from eagerflow.graph.text import aligned_columns, bytes_text

WAYS = {
    "all-reduce": AllReduce(),
    "parameter servers": ParameterServers(),
}


class Bill(NamedTuple):
    """The cost of a step on all machines, by each method, and on one of them.

    ``one`` is the Estimate for one machine, ``ways`` those for all by name, ``limit`` the memory
    of a device.

    >>> work = ef.cluster.Workload(compute_seconds=0.004, gradients=[4e6], batch=32)
    >>> ef.cluster.bill(work, ef.cluster.Machines(2)).worth
    False
    """

    name: str
    examples: float
    one: Estimate
    ways: dict[str, Estimate]
    limit: float | None = None

    @property
    def best(self) -> str:
        """The method with the shortest time."""
        return min(self.ways, key=lambda name: self.ways[name].seconds)

    @property
    def worth(self) -> bool:
        """Whether all machines are faster than one of them."""
        return self.ways[self.best].seconds < WORTHWHILE_RATIO * self.one.seconds

    def __str__(self) -> str:
        found = self.ways[self.best]
        times = [(machines_text(1), step_text(self.one.seconds), "")]
        times += [
            (
                f"{machines_text(row.machines)}, {name}",
                step_text(row.seconds),
                f"{_sent(row)} sent, most time for {row.bottleneck}",
            )
            for name, row in self.ways.items()
        ]
        lines = [f"bill of {self.name}, {self.examples:,.6g} examples a step"]
        lines += [f"  {line}".rstrip() for line in aligned_columns(times, "<><")]
        lines.append(
            f"  memory of a device: {memory_text(found.memory, self.limit)}, "
            f"{bytes_text(self.one.memory)} with one machine"
        )
        against = f"{step_text(self.one.seconds)} against {step_text(found.seconds)}"
        if found.machines == 1:
            lines.append("  one machine: there is nothing to win")
        elif self.worth:
            faster = self.one.seconds / found.seconds
            lines.append(f"  worth it: {faster:.3g} times as fast as one machine ({against})")
        else:
            lines.append(f"  not worth it: one machine would do: {against}")
        return "\n".join(lines)


def _sent(row: Estimate) -> str:
    return bytes_text(sum(row.traffic.values()))


def bill(
    step_or_model: Any,
    machines: Machines,
    *,
    batch: float | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Bill:
    """Whether training on several machines is worth it, before anything runs.

    ``step_or_model`` is as for ``simulate``. Its batch, or ``batch`` examples, is processed by
    one machine, or divided among the devices of all; ``sizes`` are numbers for named dimensions.
    Raises ArgumentError for an invalid step, and if there are more devices than examples.

    >>> work = ef.cluster.Workload(compute_seconds=0.0041, gradients=[1e6, 6e6], batch=64)
    >>> print(ef.cluster.bill(work, ef.cluster.Machines(2)))
    bill of step, 64 examples a step
      one machine                     4.1 ms
      2 machines, all-reduce         7.75 ms  6.7 MiB sent, most time for link between machines
      2 machines, parameter servers  7.75 ms  6.7 MiB sent, most time for link between machines
      memory of a device: 13.4 MiB, 13.4 MiB with one machine
      not worth it: one machine would do: 4.1 ms against 7.75 ms
    """
    work = Workload.of(step_or_model, machines, sizes)
    examples = work.batch if batch is None else batch
    require_batch("bill", examples, machines)
    one = estimate(work, machines.of(1), AllReduce(), examples)
    ways = {name: estimate(work, machines, way, examples) for name, way in WAYS.items()}
    return Bill(work.name, examples, one, ways, machines.memory)
