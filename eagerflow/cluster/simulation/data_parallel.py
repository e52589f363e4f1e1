"""Synchronous data parallel training: all-reduce, and synchronous parameter servers."""

from __future__ import annotations

from typing import NamedTuple

from eagerflow.cluster.simulation.collectives import (
    ALGORITHMS,
    Transfer,
    all_reduce,
    require_algorithm,
)
from eagerflow.cluster.simulation.machines import Machines, require_number
from eagerflow.cluster.simulation.step import (
    COMPUTE,
    INNER,
    LATENCY,
    LINK,
    RUN,
    SERVERS,
    SLOWEST,
    UPDATE,
    Step,
    bucketed,
    exposed,
    slowest,
)
from eagerflow.cluster.simulation.workload import Workload
from eagerflow.errors import ArgumentError

BUCKET = 25 * 2**20  # bytes
MODES = ("synchronous", "asynchronous")


class AllReduce(NamedTuple):
    """Gradients summed by all devices: ``algorithm`` (None: the fastest), bytes of a ``bucket``.

    With ``overlap`` they are sent while the backward pass runs. If the optimizer's state is
    ``sharded``, each device updates a part of the weights.
    """

    algorithm: str | None = None
    bucket: float = BUCKET
    overlap: bool = True
    sharded: bool = False

    def checked(self, machines: Machines) -> AllReduce:
        """These options, after a check; ArgumentError if they are invalid."""
        require_number("simulate", "bucket", self.bucket)
        if self.algorithm is not None:
            require_algorithm("simulate", self.algorithm)
        return self

    def step(self, work: Workload, machines: Machines, batch: float) -> Step:
        """A step with ``batch`` examples on each device."""
        found = [
            self._step(name, work, machines, batch)
            for name in ([self.algorithm] if self.algorithm else ALGORITHMS)
        ]
        return min(found, key=lambda step: step.seconds)

    def _step(self, name: str, work: Workload, machines: Machines, batch: float) -> Step:
        alone, compute = computing(work, machines, batch)
        buckets = bucketed(work.made(), self.bucket, self.overlap)
        left = exposed(buckets, compute, [lambda size: all_reduce(name, size, machines)])
        made = in_step(work, machines, batch, alone, compute, left)
        parts = dict(made.parts)
        if self.sharded:
            parts[UPDATE] /= machines.devices
        return made._replace(parts=parts, algorithm=name)


class ParameterServers(NamedTuple):
    """Gradients pushed to servers, weights pulled from them.

    ``servers`` is their number, by default that of the machines; they run on these, unless
    ``own_machines``. Without ``backup_workers`` a step waits for all machines. In asynchronous mode
    it waits for none, except by the bound on ``staleness``. With ``overlap`` gradients are sent
    while the backward pass runs.
    """

    servers: int | None = None
    mode: str = "synchronous"
    staleness: int | None = None
    backup_workers: int = 0
    own_machines: bool = False
    bucket: float = BUCKET
    overlap: bool = True

    def checked(self, machines: Machines) -> ParameterServers:
        """These options, after a check; ArgumentError if they are invalid."""
        require_number("simulate", "bucket", self.bucket)
        if self.servers is not None:
            require_number("simulate", "servers", self.servers, 1, count=True)
        if self.staleness is not None:
            require_number("simulate", "staleness", self.staleness, count=True)
        require_number("simulate", "backup_workers", self.backup_workers, count=True)
        wrong = {
            "mode": self.mode not in MODES,
            "staleness": self.staleness is not None and self.mode == "synchronous",
            "backup_workers": self.backup_workers
            and (self.mode == "asynchronous" or self.backup_workers >= machines.count),
        }
        for name in (name for name, bad in wrong.items() if bad):
            raise ArgumentError(
                f"{getattr(self, name)!r} does not fit the mode {self.mode!r}",
                op="simulate",
                argument=name,
                expected={
                    "mode": "one of " + ", ".join(MODES),
                    "staleness": "None: in synchronous training nothing is stale",
                    "backup_workers": "fewer than machines, in synchronous training",
                }[name],
            )
        return self

    def shards(self, machines: Machines) -> int:
        """The number of servers."""
        count = machines.count if self.servers is None else self.servers
        return count if self.own_machines else min(count, machines.count)

    def busiest(self, size: float, machines: Machines) -> tuple[float, float, float]:
        """Bytes received by a server's port for ``size`` pushed, sent by a worker's, and in all.

        A pull is the same in the other direction.
        """
        n, s = machines.count, self.shards(machines)
        far = n if self.own_machines else n - 1  # workers on other machines than a server
        near = 0.0 if self.own_machines or s < n else 1 / s  # part of a worker's traffic
        return size / s * far, size * (1 - near) if far else 0.0, size * far

    def port_seconds(self, size: float, machines: Machines) -> tuple[float, float, float]:
        """Seconds for ``size`` bytes pushed or pulled by all: of a server, a worker, the net."""
        link, (server, worker, whole) = machines.link, self.busiest(size, machines)
        ports = machines.count + (self.shards(machines) if self.own_machines else 0)
        fabric = whole if link.bus else whole * link.oversubscription / ports
        return server / link.bandwidth, worker / link.bandwidth, fabric / link.bandwidth

    def moved(self, size: float, machines: Machines) -> Transfer:
        """``size`` bytes pushed by all machines at once, or pulled."""
        if not self.busiest(size, machines)[2]:
            return Transfer()
        sent = max(self.busiest(size, machines)[:2])
        seconds = max(self.port_seconds(size, machines))
        return Transfer(machines.link.latency, seconds, link_bytes=sent)

    def step(self, work: Workload, machines: Machines, batch: float) -> Step:
        """A synchronous step: pushed while the backward pass runs, then updated and pulled."""
        alone, compute = computing(work, machines, batch, self.backup_workers)
        ways = [lambda size: summed(size, machines), lambda size: self.moved(size, machines)]
        left = exposed(bucketed(work.made(), self.bucket, self.overlap), compute, ways)
        left += self.moved(work.size, machines) + summed(work.size, machines)
        server, *others = self.port_seconds(work.size, machines)
        made = in_step(work, machines, batch, alone, compute, left)
        parts = dict(made.parts)
        if server > max(others):
            parts[SERVERS] = parts.pop(LINK)
        parts[UPDATE] /= self.shards(machines)
        part = 1 - self.backup_workers / machines.count
        servers = self.shards(machines) if self.own_machines else 0
        parts[RUN] = machines.together(servers)
        return made._replace(parts=parts, examples=made.examples * part, servers=servers)


def summed(size: float, machines: Machines) -> Transfer:
    """``size`` bytes of each device summed within their machine, or distributed."""
    d, link = machines.devices_per_machine, machines.inner
    if d == 1:
        return Transfer()
    inner = size * d if link.bus else size
    return Transfer(link.latency, inner_seconds=inner / link.bandwidth, inner_bytes=size * d)


def computing(
    work: Workload, machines: Machines, batch: float, backup_workers: int = 0
) -> tuple[float, float]:
    """Seconds of both passes on one device, and until all required devices have done them."""
    crowd = machines.crowd if machines.devices > 1 else 1.0
    alone = work.seconds(batch) * crowd
    late = backup_workers * machines.devices_per_machine
    return alone, alone * slowest(machines.devices, machines.jitter, late)


def in_step(
    work: Workload,
    machines: Machines,
    batch: float,
    alone: float,
    compute: float,
    left: Transfer,
) -> Step:
    """A step: both passes, then the rest of the exchange, and the update."""
    parts = {
        COMPUTE: min(alone, compute),
        SLOWEST: max(compute - alone, 0.0),
        LATENCY: left.latency,
        LINK: left.link_seconds,
        INNER: left.inner_seconds,
        UPDATE: work.update,
        RUN: machines.together(),
    }
    traffic = {LINK: left.link_bytes, INNER: left.inner_bytes}
    return Step(
        parts,
        batch * machines.devices,
        memory(work, batch),
        {k: v for k, v in traffic.items() if v},
    )


def memory(work: Workload, batch: float) -> float:
    """Bytes of a device with all weights: these, their gradients, and activations."""
    return work.kept + work.size + work.activations * batch / work.batch
