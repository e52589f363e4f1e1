"""Machines for predictions: devices, links, prices, variation, and failure rates."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Self

from eagerflow.capture.placement.calibration import calibrate
from eagerflow.capture.placement.cost_model import CostModel, Rates
from eagerflow.errors import ArgumentError, short_repr

_ENDLESS = 50.0  # mean times between failures in one piece of work: it would never end


def require_number(
    op: str, name: str, value: Any, least: float = 0.0, beyond: bool = False, count: bool = False
) -> None:
    """Raise ArgumentError unless a value is a finite number of at least, or above, ``least``."""
    kind = "an integer" if count else "a finite number"
    fits = isinstance(value, Integral if count else Real) and not isinstance(value, bool)
    if fits and least <= value <= sys.float_info.max and not (beyond and value == least):
        return
    raise ArgumentError(
        f"{short_repr(value)} is out of range",
        op=op,
        argument=name,
        expected=f"{kind} above {least:g}" if beyond else f"{kind} of at least {least:g}",
    )


_NVLINK, _PCIE, _NETWORK = 1.18e-5, 1.41e-5, 2.24e-5  # latencies: 8.4 µs, and 3.4, 5.7 and 14 more
_TYPICAL = {
    "NVLink 3": (_NVLINK, 12 * 20e9),
    "NVLink 4": (_NVLINK, 18 * 20.6e9),
    "NVLink 5": (_NVLINK, 18 * 40.1e9),
    "PCIe 3": (_PCIE, 12e9),
    "PCIe 4": (_PCIE, 24e9),
    "PCIe 5": (_PCIE, 48e9),
    "100 Gb/s": (_NETWORK, 12e9),
}


@dataclass(frozen=True)
class Link:
    """The link between machines, or between the devices of one.

    ``latency`` is in seconds for a message, ``bandwidth`` in bytes per second and direction. Each
    end has a port of its own, all of them usable at once; on a ``bus`` all share one. Traffic
    between arbitrary ends, rather than neighbours, is ``oversubscription`` times
    slower if all send at once.

    Raises ArgumentError for invalid numbers.

    >>> ef.cluster.Link(latency=5e-5, bandwidth=1.25e9).seconds(1_250_000)
    0.00105
    """

    latency: float = 5e-5
    bandwidth: float = 1.25e9
    bus: bool = False
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        require_number("Link", "latency", self.latency)
        require_number("Link", "bandwidth", self.bandwidth, beyond=True)
        require_number("Link", "oversubscription", self.oversubscription, 1.0)

    @classmethod
    def typical(cls, name: str) -> Self:
        """Typical links of GPUs, by NCCL's own cost model; an alternative to a
        measurement with ``Cluster.link``.

        ``name`` is ``"NVLink 3"`` (A100), ``"NVLink 4"`` (H100), ``"NVLink 5"`` (B200), all links
        of a GPU together, ``"PCIe 3"``, ``"PCIe 4"`` or ``"PCIe 5"`` with 16 lanes, or
        ``"100 Gb/s"``, a network. Raises ArgumentError for others. Source: NCCL, latencies of rings
        with the protocol Simple in ``src/graph/tuning.cc``, and bandwidths in ``src/graph/topo.h``.

        >>> ef.cluster.Link.typical("NVLink 4").bandwidth
        370800000000.0
        """
        found = _TYPICAL.get(name) if isinstance(name, str) else None
        if found is None:
            raise ArgumentError(
                f"there are no figures of {short_repr(name)}",
                op="Link.typical",
                argument="name",
                expected="one of " + ", ".join(_TYPICAL),
            )
        return cls(*found)

    def seconds(self, size: float) -> float:
        """Seconds for a single message of ``size`` bytes."""
        return self.latency + size / self.bandwidth

    def each(self, users: int) -> float:
        """Bytes per second of each of ``users`` neighbours that all send at once."""
        return self.bandwidth / users if self.bus else self.bandwidth


@dataclass(frozen=True)
class Failures:
    """The rate of machine failures, and their cost in synchronous work.

    ``mean_time`` is the mean number of seconds between failures of one machine, ``restart`` the
    seconds until all work again, ``checkpoint`` those for writing one, and ``interval``
    those from one to the next, by default the best one (Young's square root of twice the
    checkpoint times the mean time of all).

    Raises ArgumentError for invalid numbers. Source: J. Daly, "A higher order estimate of
    the optimum checkpoint interval for restart dumps" (2006).

    >>> failures = ef.cluster.Failures(mean_time=30 * 86400.0, restart=300.0, checkpoint=60.0)
    >>> round(failures.factor(1000), 3)
    1.404
    """

    mean_time: float
    restart: float = 300.0
    checkpoint: float = 60.0
    interval: float | None = None

    def __post_init__(self) -> None:
        require_number("Failures", "mean_time", self.mean_time, beyond=True)
        require_number("Failures", "restart", self.restart)
        require_number("Failures", "checkpoint", self.checkpoint, beyond=True)
        if self.interval is not None:
            require_number("Failures", "interval", self.interval, beyond=True)

    def between(self, count: int) -> float:
        """Seconds of work between the checkpoints of ``count`` machines."""
        return self.interval or math.sqrt(2 * self.checkpoint * self.mean_time / count)

    def factor(self, count: int) -> float:
        """The slowdown of work on ``count`` machines if each failure stops all.

        The expectation for failures at random times, which also hit checkpoints and restarts.
        """
        mean, work = self.mean_time / count, self.between(count)
        if (work + self.checkpoint + self.restart) / mean > _ENDLESS:
            return math.inf
        tries = math.expm1((work + self.checkpoint) / mean)
        return mean * math.exp(self.restart / mean) * tries / work


@dataclass(frozen=True)
class Machines:
    """A cluster described by numbers: ``count`` equal machines.

    ``flops`` are operations per second of matrix products of one device and ``memory_bandwidth``
    its bytes per second; ``rates``, as of ``ef.capture.calibrate``, replace both.
    ``memory`` are the bytes of a device (None: not compared). ``link`` joins machines, ``inner``
    the devices of one. ``price`` is that of a machine per hour. The time of a device for a
    step varies by ``jitter``, the standard deviation of its logarithm, and is ``crowd`` times
    longer while other devices compute as well. A step of several machines takes an additional
    ``run`` seconds and ``task`` seconds for each machine, servers included, for the requests and
    answers of all. ``failures`` is how often a machine fails (None: never).

    Raises ArgumentError for invalid numbers.

    >>> machines = ef.cluster.Machines(8, devices_per_machine=4, flops=1e13)
    >>> machines.devices
    32
    """

    count: int
    devices_per_machine: int = 1
    flops: float = 1e12
    memory_bandwidth: float = 1e11
    memory: float | None = None
    link: Link = Link()
    inner: Link = Link(5e-6, 1.2e10)
    price: float = 0.0
    jitter: float = 0.0
    crowd: float = 1.0
    run: float = 0.0
    task: float = 0.0
    failures: Failures | None = None
    rates: Rates | None = None

    def __post_init__(self) -> None:
        for name in ("count", "devices_per_machine"):
            require_number("Machines", name, getattr(self, name), 1, count=True)
        for name in ("flops", "memory_bandwidth", "memory"):
            if name != "memory" or self.memory is not None:
                require_number("Machines", name, getattr(self, name), beyond=True)
        for name in ("price", "jitter", "crowd", "run", "task"):
            require_number("Machines", name, getattr(self, name), float(name == "crowd"))
        for name, kind in (("link", Link), ("inner", Link), ("failures", Failures | None)):
            if not isinstance(getattr(self, name), kind):
                raise ArgumentError(
                    f"{short_repr(getattr(self, name))} is none",
                    op="Machines",
                    argument=name,
                    expected="ef.cluster.Failures" if name == "failures" else "ef.cluster.Link",
                )

    @property
    def devices(self) -> int:
        """The devices of all machines."""
        return self.count * self.devices_per_machine

    def together(self, servers: int = 0) -> float:
        """Additional seconds of a step, with ``servers`` servers on machines of their own."""
        count = self.count + servers
        return self.run + self.task * count if count > 1 else 0.0

    def of(self, count: int) -> Self:
        """``count`` machines like these."""
        return replace(self, count=count)

    def costs(self) -> CostModel:
        """The costs of a graph's steps on one of the devices."""
        own = self.rates or Rates(products=self.flops, memory=self.memory_bandwidth)
        return CostModel({"*": own})

    @classmethod
    def measured(cls, count: int, **others: Any) -> Self:
        """Machines like this one, with its measured ``cpu:0`` as a device.

        >>> ef.cluster.Machines.measured(2).rates.call > 0
        True
        """
        return cls(count, rates=calibrate(["cpu:0"]).rates("cpu:0"), **others)
