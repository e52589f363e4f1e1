"""Asynchronous parameter servers, event by event: queues at the servers, bounded staleness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from eagerflow.cluster.simulation.data_parallel import ParameterServers, computing, memory, summed
from eagerflow.cluster.simulation.machines import Machines
from eagerflow.cluster.simulation.step import (
    COMPUTE,
    INNER,
    LATENCY,
    LINK,
    SERVERS,
    SLOWEST,
    STALENESS,
    UPDATE,
    Step,
    slowest,
)
from eagerflow.cluster.simulation.workload import Workload

STEPS = 10_000, 100_000  # of all workers together: minimum and maximum
ROUNDS = 6, 40  # steps of each worker, minimum and, without staleness, maximum


class Begin(NamedTuple):
    """The start of a step: time, worker, its number, and that of the slowest worker."""

    seconds: float
    worker: int
    step: int
    slowest: int


class Asynchronous:
    """Workers that pull, compute and push independently; ``run`` fills ``log`` and ``spent``.

    A worker starts its step c when the slowest one has ended at least c - staleness. Servers
    are one queue in each direction, since each worker talks to all of them.
    """

    def __init__(
        self, options: ParameterServers, work: Workload, machines: Machines, batch: float, seed: int
    ) -> None:
        self.workers = machines.count
        some = min(max(STEPS[0] // self.workers, ROUNDS[0]), ROUNDS[1])
        # A bound only has an effect once workers have had time to drift that far apart.
        enough = min(4 * ((options.staleness or 0) + 1), STEPS[1] // self.workers)
        self.rounds = max(some, enough)
        self.staleness = options.staleness
        self.jitter = machines.jitter
        self.far = bool(options.busiest(work.size, machines)[2])
        self.latency = machines.link.latency if self.far else 0.0
        # The time for all at once; one worker's share of it is when the next one can start.
        server, self.own, fabric = options.port_seconds(work.size, machines)
        self.turn = max(server, fabric) / self.workers
        self.update = work.update / options.shards(machines)
        self.inner = summed(work.size, machines).seconds
        self.alone = computing(work, machines, batch)[0]
        self.compute = self.alone * slowest(machines.devices_per_machine, machines.jitter)
        self.log: list[Begin] = []
        self.spent = dict.fromkeys((SERVERS, STALENESS), 0.0)
        self._random = np.random.default_rng(seed)

    def run(self) -> None:
        """Simulate until all workers together have made their steps."""
        self._events: list[tuple[float, int, bool]] = []
        self._clocks = [0] * self.workers
        self._counts = Counter({0: self.workers})
        self._slowest = 0
        self._waiting: list[tuple[float, int]] = []
        self._free = [0.0, 0.0]
        self._factors: Iterator[float] = iter(())
        for worker in range(self.workers):
            self._begin(0.0, worker)
        for _ in range(2 * self.workers * self.rounds):
            now, worker, computed = heappop(self._events)
            if computed:
                end = self._pass(now, worker, 1, self.update)
                heappush(self._events, (end, worker, False))
            else:
                self._arrive(now, worker)

    def _begin(self, now: float, worker: int) -> None:
        step = self._clocks[worker]
        if self.staleness is not None and step - self._slowest > self.staleness:
            self._waiting.append((now, worker))
            return
        self.log.append(Begin(now, worker, step, self._slowest))
        pulled = self._pass(now, worker, 0, 0.0) + self.inner
        ended = pulled + self.compute * self._factor() + self.inner
        heappush(self._events, (ended, worker, True))

    def _pass(self, now: float, worker: int, way: int, update: float) -> float:
        """The time when a pull or push has passed the servers and the worker's own port."""
        begin = max(now, self._free[way])
        self._free[way] = begin + self.turn + update
        end = max(self._free[way], begin + self.own + update)
        if self._counts_in(worker):
            self.spent[SERVERS] += end - now - self.own - update
        return end + self.latency

    def _counts_in(self, worker: int) -> bool:
        """Whether a step counts: the first ones all start together, unlike later ones."""
        return self._clocks[worker] >= self.rounds // 4

    def _arrive(self, now: float, worker: int) -> None:
        step = self._clocks[worker]
        self._clocks[worker] = step + 1
        self._counts[step] -= 1
        self._counts[step + 1] += 1
        while not self._counts[self._slowest]:
            self._slowest += 1
            waiting, self._waiting = self._waiting, []
            for since, other in waiting:
                if self._counts_in(other):
                    self.spent[STALENESS] += now - since
                self._begin(now, other)
        self._begin(now, worker)

    def _factor(self) -> float:
        """The duration of a step relative to the mean."""
        if not self.jitter:
            return 1.0
        factor = next(self._factors, None)
        if factor is None:
            drawn = self._random.lognormal(-(self.jitter**2) / 2, self.jitter, 4096)
            self._factors = iter(drawn.tolist())
            factor = next(self._factors)
        return factor


def asynchronous_step(
    options: ParameterServers, work: Workload, machines: Machines, batch: float, seed: int
) -> Step:
    """The mean step of a worker, during which all workers make one."""
    events = Asynchronous(options, work, machines, batch, seed)
    events.run()
    counted = sum(begin.step >= events.rounds // 4 for begin in events.log) or 1
    parts = {
        COMPUTE: events.alone,
        SLOWEST: events.compute - events.alone,
        LATENCY: 2 * events.latency,
        LINK: 2 * events.own,
        INNER: 2 * events.inner,
        SERVERS: events.spent[SERVERS] / counted,
        STALENESS: events.spent[STALENESS] / counted,
        UPDATE: events.update,
    }
    traffic = {LINK: 2 * max(options.busiest(work.size, machines)[:2])}
    if events.inner:
        traffic[INNER] = 2 * summed(work.size, machines).inner_bytes
    return Step(
        parts,
        batch * machines.devices,
        memory(work, batch),
        {name: size for name, size in traffic.items() if size},
        options.shards(machines) if options.own_machines else 0,
    )
