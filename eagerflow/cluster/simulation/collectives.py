"""All-reduce: time and traffic by closed formulas.

With b bytes over N devices, a latency of A seconds and B bytes a second, a ring takes
2 (N - 1) (A + b / (N B)); a tree, to its root and back, 2 ceil(log2 N) (A + b / B); halving and
doubling sends the bytes of a ring in as many messages as a tree. The hierarchical way sums within
machines first, so that each byte passes a machine's port once, and between them by a ring.
Source: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
MPICH" (2005).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from eagerflow.cluster.simulation.machines import Link, Machines
from eagerflow.errors import ArgumentError, short_repr

ALGORITHMS = ("hierarchical", "halving", "ring", "tree")


def require_algorithm(op: str, name: str) -> None:
    """Raise ArgumentError unless there is an all-reduce of that name."""
    if name not in ALGORITHMS:
        raise ArgumentError(
            f"there is no {short_repr(name)}",
            op=op,
            argument="algorithm",
            expected="one of " + ", ".join(ALGORITHMS),
        )


class Transfer(NamedTuple):
    """The cost of an exchange: seconds of latency and on each link, and the bytes on each.

    ``link_bytes`` are sent by a machine to others, ``inner_bytes`` between its devices,
    in total.
    """

    latency: float = 0.0
    link_seconds: float = 0.0
    inner_seconds: float = 0.0
    link_bytes: float = 0.0
    inner_bytes: float = 0.0

    @property
    def seconds(self) -> float:
        """The total time."""
        return self.latency + self.link_seconds + self.inner_seconds

    def __add__(self, other: Transfer) -> Transfer:  # type: ignore[override]
        return Transfer(*(a + b for a, b in zip(self, other, strict=True)))


def all_reduce(algorithm: str, size: float, machines: Machines) -> Transfer:
    """The exchange that gives all devices the sum of ``size`` bytes of each."""
    n, d = machines.count, machines.devices_per_machine
    if n * d == 1:
        return Transfer()
    if n == 1:
        return _within(algorithm, size, machines.inner, d)
    if d == 1:
        return _between(algorithm, size, machines.link, n)
    if algorithm in ("hierarchical", "halving"):
        # Half of it within machines before, half after: each device has its part in between.
        inner = _within(algorithm, size, machines.inner, d)
        return inner + _between(algorithm, size, machines.link, n)
    return _flat(algorithm, size, machines)


def _between(algorithm: str, size: float, link: Link, n: int) -> Transfer:
    steps, moved = _amounts(algorithm, size, n)
    rate = _rate(algorithm, link, n)
    return Transfer(steps * link.latency, moved / rate, link_bytes=_sent(algorithm, size, n))


def _within(algorithm: str, size: float, link: Link, d: int) -> Transfer:
    steps, moved = _amounts(algorithm, size, d)
    sent = d * _sent(algorithm, size, d)
    return Transfer(steps * link.latency, inner_seconds=moved / link.each(d), inner_bytes=sent)


def _flat(algorithm: str, size: float, machines: Machines) -> Transfer:
    """All devices in one ring or tree, with neighbours in one machine if possible.

    Each step lasts as long as the slowest of its messages.
    """
    n, d, total = machines.count, machines.devices_per_machine, machines.devices
    steps, moved = _amounts(algorithm, size, total)
    outer, inner = moved / machines.link.each(n), moved / machines.inner.each(d)
    sent = _sent(algorithm, size, total)
    latency = steps * max(machines.link.latency, machines.inner.latency)
    slow_link = outer >= inner
    return Transfer(
        latency,
        outer if slow_link else 0.0,
        0.0 if slow_link else inner,
        sent,
        sent * (d - 1),
    )


def _amounts(algorithm: str, size: float, count: int) -> tuple[float, float]:
    """The number of sequential messages, and their total bytes."""
    levels = 2.0 * math.ceil(math.log2(count))
    if algorithm == "tree":
        return levels, levels * size
    sent = _sent(algorithm, size, count)
    return levels if algorithm == "halving" else 2.0 * (count - 1), sent


def _rate(algorithm: str, link: Link, count: int) -> float:
    """Bytes per second of each of ``count`` machines; halving is not between neighbours."""
    rate = link.each(count)
    return rate / link.oversubscription if algorithm == "halving" else rate


def _sent(algorithm: str, size: float, count: int) -> float:
    """Bytes sent by each one, on average."""
    return 2.0 * (count - 1) / count * size
