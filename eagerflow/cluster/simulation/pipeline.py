"""Pipelines: stages on devices, micro-batches through them, and replicas of the whole.

If all forward passes go first (fill-drain), stages and the links between them are machines of
a flow shop with equal jobs: m jobs take the sum of all, and m - 1 times the longest. One forward,
one backward keeps fewer activations and is scheduled task by task.
Sources: Huang et al., "GPipe" (2019); Narayanan et al., "PipeDream" (2019).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from eagerflow.capture.placement.schedule import list_schedule
from eagerflow.cluster.simulation.collectives import all_reduce
from eagerflow.cluster.simulation.data_parallel import computing
from eagerflow.cluster.simulation.machines import Machines, require_number
from eagerflow.cluster.simulation.step import (
    BUBBLE,
    COMPUTE,
    INNER,
    LATENCY,
    LINK,
    RUN,
    SLOWEST,
    UNEVEN,
    UPDATE,
    Step,
)
from eagerflow.cluster.simulation.workload import Cut, Workload
from eagerflow.errors import ArgumentError

SCHEDULES = ("fill-drain", "one-forward-one-backward")
MAX_TASKS = 100_000  # maximum size of a detailed schedule


class Stage(NamedTuple):
    """One stage: seconds of a micro-batch in each direction, and until its result is sent."""

    forward: float
    backward: float
    sending: float = 0.0
    latency: float = 0.0


class Pipeline(NamedTuple):
    """A step cut into ``stages`` (default: one on each device), fed with ``microbatches``."""

    stages: int | None = None
    microbatches: int = 4
    schedule: str = "one-forward-one-backward"

    def checked(self, machines: Machines) -> Pipeline:
        """These options, after a check; ArgumentError if they are invalid."""
        require_number("simulate", "microbatches", self.microbatches, 1, count=True)
        stages = machines.devices if self.stages is None else self.stages
        require_number("simulate", "stages", stages, 1, count=True)
        if self.schedule not in SCHEDULES:
            raise ArgumentError(
                f"there is no {self.schedule!r}",
                op="simulate",
                argument="schedule",
                expected="one of " + ", ".join(SCHEDULES),
            )
        if machines.devices % stages:
            raise ArgumentError(
                f"{machines.devices} devices are no whole number of pipelines",
                op="simulate",
                argument="stages",
                received=f"{stages}",
                expected="a divisor of the number of devices",
            )
        return self._replace(stages=stages)

    def step(self, work: Workload, machines: Machines, batch: float) -> Step:
        """A step with ``batch`` examples per device on average."""
        count, m = self.stages or machines.devices, self.microbatches
        replicas = machines.devices // count
        crowd = 1 + (machines.crowd - 1) * company(count, m, replicas)
        alone, slow = computing(work, replace(machines, crowd=crowd), batch * count)
        slower = slow / alone
        alone += work.overhead * (m - 1)  # each micro-batch has the overhead of calls
        cuts = balanced(work, count)
        sizes = [c.size * batch * count / work.batch / m for c in cuts[:-1]]
        stages = _stages(work.forward, machines, alone * slower / m, cuts, sizes)
        whole, uneven, bubble = (
            makespan(self.schedule, some, m) for some in (stages, _apart(stages), _even(stages))
        )
        uneven = min(uneven, whole)  # a slightly better order of tasks by chance
        bubble = min(bubble, uneven)
        busy = sum(s.forward + s.backward for s in stages) / count * m
        largest = max(_weights(cuts)) / (cuts[-1].weights or 1.0)
        across = Machines(replicas, link=machines.link if machines.count > 1 else machines.inner)
        reduced = all_reduce("ring", work.size * largest, across)  # at the end
        sent = sum(s.sending for s in stages)
        name = LINK if machines.count > 1 else INNER
        parts = {
            COMPUTE: alone / count,
            SLOWEST: max(busy - alone / count, 0.0),
            BUBBLE: bubble - busy,
            UNEVEN: uneven - bubble,
            name: (whole - uneven) * (sent > 0) + reduced.link_seconds + reduced.inner_seconds,
            LATENCY: (whole - uneven) * (sent == 0) + reduced.latency,
            UPDATE: work.update / count,
            RUN: machines.together(),
        }
        traffic = {name: 2 * m * max(sizes, default=0.0) + reduced.link_bytes + reduced.inner_bytes}
        held = work.activations * batch / work.batch
        if self.schedule != SCHEDULES[0]:
            held *= min(count / m, 1.0)
        memory = (work.kept + work.size) * largest + held
        sizes_by_link = {name: size for name, size in traffic.items() if size}
        return Step(parts, batch * machines.devices, memory, sizes_by_link)


def company(stages: int, microbatches: int, replicas: int) -> float:
    """The average fraction of other devices that compute while one does.

    In the bubble of a pipeline there are few, and a busy machine is slowed down less.
    """
    p, m = stages, microbatches
    busy = [replicas * min(t + 1, p, m, p + m - 1 - t) for t in range(p + m - 1)]
    others = replicas * p - 1
    return sum(b * (b - 1) for b in busy) / (replicas * p * m * others) if others else 0.0


def _stages(
    forward: float,
    machines: Machines,
    seconds: float,
    cuts: Sequence[Cut],
    sizes: Sequence[float],
) -> list[Stage]:
    """The stages of a pipeline with this total time of a micro-batch."""
    found, before = [], 0.0
    for k, cut in enumerate(cuts):
        own = (cut.share - before) * seconds
        before = cut.share
        crosses = (k + 1) % machines.devices_per_machine == 0
        link = machines.link if crosses else machines.inner
        last = k + 1 == len(cuts)
        sending = 0.0 if last else sizes[k] / link.bandwidth
        latency = 0.0 if last else link.latency
        found.append(Stage(own * forward, own * (1 - forward), sending, latency))
    return found


def balanced(work: Workload, count: int) -> list[Cut]:
    """The ends of stages of about equal time; ArgumentError if there are too few cuts."""
    end = Cut(1.0, 0.0, max((c.weights for c in work.cuts), default=work.size))
    if not work.cuts:
        return [
            *(Cut(k / count, work.boundary, work.size * k / count) for k in range(1, count)),
            end,
        ]
    if count > len(work.cuts) + 1:
        raise ArgumentError(
            f"{work.name} cannot be cut into so many stages",
            op="simulate",
            argument="stages",
            received=f"{count}",
            expected=f"at most {len(work.cuts) + 1}",
        )
    found: list[Cut] = []
    shares, first = [c.share for c in work.cuts], 0
    for k in range(1, count):
        last = len(shares) - (count - 1 - k)  # leave as many as later stages need
        best = min(max(bisect_left(shares, k / count), first), last - 1)
        near = [i for i in (best - 1, best) if i >= first]
        # Closest to the ideal position; of two, the one with less data to send.
        chosen = min(near, key=lambda i: (abs(shares[i] - k / count), work.cuts[i].size))
        found.append(work.cuts[chosen])
        first = chosen + 1
    return [*found, end]


def makespan(schedule: str, stages: Sequence[Stage], microbatches: int) -> float:
    """Seconds until all micro-batches have passed all stages, forward and backward."""
    tasks = 4 * len(stages) * microbatches
    if schedule == SCHEDULES[0] or tasks > MAX_TASKS:
        total = 0.0
        for times in ([s.forward for s in stages], [s.backward for s in stages]):
            stations = [*times, *(s.sending for s in stages)]
            total += sum(stations) + (microbatches - 1) * max(stations)
        return total + 2 * sum(s.latency for s in stages)
    return laid_out(schedule, stages, microbatches)


def laid_out(schedule: str, stages: Sequence[Stage], microbatches: int) -> float:
    """The same by the order of tasks on each device and link."""
    p, m = len(stages), microbatches
    # For each micro-batch: forward 0 .. p - 1, their sends, backward 0 .. p - 1, their sends.
    number = lambda kind, stage, j: (j * 4 + kind) * p + stage
    total = 4 * p * m
    devices, seconds, priorities = [0] * total, [0.0] * total, [0.0] * total
    follows: list[dict[int, float]] = [{} for _ in range(total)]
    for j in range(m):
        for i, stage in enumerate(stages):
            before = stages[i - 1] if i else Stage(0.0, 0.0)
            own = (
                (i, stage.forward, 0.0),
                (p + i, stage.sending, 0.0),
                (i, stage.backward, 1.0),
                (2 * p + i, before.sending, 0.0),
            )
            for kind, (device, taken, backward) in enumerate(own):
                k = number(kind, i, j)
                devices[k], seconds[k] = device, taken
                priorities[k] = backward * m - j
            follows[number(0, i, j)][number(1, i, j)] = 0.0
            follows[number(2, i, j)][number(3, i, j)] = 0.0
            if i + 1 < p:
                follows[number(1, i, j)][number(0, i + 1, j)] = stage.latency
            else:
                follows[number(1, i, j)][number(2, i, j)] = 0.0
            if i:
                follows[number(3, i, j)][number(2, i - 1, j)] = before.latency
            if schedule == SCHEDULES[0]:
                follows[number(0, i, m - 1)][number(2, i, j)] = 0.0
            elif j + p - i < m:  # as many are active as there are later stages
                follows[number(2, i, j)][number(0, i, j + p - i)] = 0.0
    return list_schedule(devices, seconds, priorities, follows, [0.0] * total).seconds


def _apart(stages: Sequence[Stage]) -> list[Stage]:
    """The stages as if sending took no time."""
    return [Stage(s.forward, s.backward) for s in stages]


def _even(stages: Sequence[Stage]) -> list[Stage]:
    """As many stages of equal time."""
    count = len(stages)
    mean = Stage(sum(s.forward for s in stages) / count, sum(s.backward for s in stages) / count)
    return [mean] * count


def _weights(cuts: Sequence[Cut]) -> list[float]:
    """Bytes of the weights of each stage."""
    ends = [0.0, *(c.weights for c in cuts)]
    return [b - a for a, b in pairwise(ends)]
