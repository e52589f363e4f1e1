"""A step of training as parts of its time, and shared functions of all kinds of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from eagerflow.cluster.simulation.collectives import Transfer

# The parts of a step's time, and the names of bottlenecks.
COMPUTE = "compute"
UPDATE = "update of the weights"
SLOWEST = "waiting for the slowest device"
LINK = "link between machines"
INNER = "link within machines"
LATENCY = "latency of messages"
SERVERS = "ports of the servers"
STALENESS = "waiting for the bound on staleness"
UNEVEN = "uneven stages"
BUBBLE = "bubble of the pipeline"
RUN = "sending run requests"
FAILURES = "failures and checkpoints"


class Step(NamedTuple):
    """A predicted step: its sequential parts in seconds, and its requirements.

    ``examples`` is its number of examples, ``memory`` bytes of a device, ``traffic`` bytes by
    link, ``servers`` the number of machines besides those that compute, ``algorithm`` the
    name of the exchange if there is a choice.
    """

    parts: Mapping[str, float]
    examples: float
    memory: float
    traffic: Mapping[str, float]
    servers: int = 0
    algorithm: str = ""

    @property
    def seconds(self) -> float:
        """The total time."""
        return sum(self.parts.values())


class Bucket(NamedTuple):
    """Gradients that are sent together: the fraction of both passes before, and their bytes."""

    ready: float
    size: float


def bucketed(made: Iterable[tuple[float, float]], limit: float, overlap: bool) -> list[Bucket]:
    """Gradients in order, as buckets of at least ``limit`` bytes, except the last."""
    found: list[Bucket] = []
    ready = size = 0.0
    for ready, part in made:
        size += part
        if size >= limit:
            found.append(Bucket(ready if overlap else 1.0, size))
            size = 0.0
    if size:
        found.append(Bucket(ready if overlap else 1.0, size))
    return found


def exposed(
    buckets: Iterable[Bucket], compute: float, stages: Iterable[Callable[[float], Transfer]]
) -> Transfer:
    """The time of the exchanges of buckets after the passes have ended, by its kinds.

    Each bucket passes the ``stages`` in order, and each stage handles one bucket at a time.
    """
    ways = list(stages)
    free = [0.0] * len(ways)
    end, whole = compute, Transfer()
    for bucket in buckets:
        now = bucket.ready * compute
        for k, way in enumerate(ways):
            moved = way(bucket.size)
            now = free[k] = max(now, free[k]) + moved.seconds
            whole += moved
        end = max(end, now)
    part = (end - compute) / whole.seconds if whole.seconds else 0.0
    latency, link, inner = (part * seconds for seconds in whole[:3])
    return whole._replace(latency=latency, link_seconds=link, inner_seconds=inner)


_POINTS = np.linspace(-9.0, 9.0, 6001)  # deviations; the rest has a probability below 10^-18
_ABOVE = np.array(
    [math.erfc(z / math.sqrt(2)) / 2 for z in _POINTS]
)  # the fraction of slower devices


@cache
def slowest(count: int, jitter: float, dropped: int = 0) -> float:
    """The mean time of the slowest of ``count`` devices, without the ``dropped`` slowest ones.

    Their times are independent and log-normal with mean 1. It is the mean of an order statistic,
    by its density.
    """
    if not jitter:
        return 1.0
    density = (count - dropped - 1) * np.log(_ABOVE[::-1]) - _POINTS**2 / 2
    density += dropped * np.log(_ABOVE)
    weights = np.exp(density - density.max())
    times = np.exp(jitter * _POINTS - jitter**2 / 2)
    return float((weights * times).sum() / weights.sum())


def with_failures(step: Step, factor: float) -> Step:
    """The step with its share of the cost of failures."""
    if factor == 1.0:
        return step
    lost = step.seconds * (factor - 1.0) if math.isfinite(factor) else math.inf
    return step._replace(parts={**step.parts, FAILURES: lost})
