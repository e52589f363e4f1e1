"""Links: measured performance of the devices of tasks, and of transfers between them.

Links between GPUs of two tasks that a library connects (``lanes.py``) have separate rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from eagerflow.capture.placement.calibration import as_rates
from eagerflow.capture.placement.cost_model import CostModel, Rates
from eagerflow.cluster.client import Client
from eagerflow.cluster.lanes import refused
from eagerflow.cluster.simulation.machines import Link
from eagerflow.devices import Device

__all__ = ["link_between", "measured"]

SMALL_BYTES, LARGE_BYTES, COUNT = 64, 1 << 20, 9
LARGE_LANE_BYTES = 1 << 24  # large enough for reliable timing at 400 GB per second
_known: dict[tuple[str, ...], Link | None] = {}
"""By the machines of two tasks, and the library for lanes; None for the ordinary path."""


def measured(client: Client, devices: Sequence[Device]) -> CostModel:
    """The costs of ops and transfers on devices of tasks.

    Equal tasks of one machine are measured once: their rates by the task itself, which caches them
    on disk, links between two tasks of each pair of machines by sending back and forth.
    """
    machines = {name: task.address["machine"] for name, task in client.tasks.items()}
    rates: dict[str, Rates] = {}
    done: dict[tuple[str, str], dict[str, Rates]] = {}
    for place in devices:
        key = machines[place.task], place.type
        if key not in done:
            answer, _ = client.ask(
                client.tasks[place.task], {"do": "calibrate", "device": str(place)}
            )
            done[key] = {n: as_rates(found) for n, found in answer["rates"].items()}
        for suffix, own in done[key].items():
            rates[f"{place}{suffix}"] = own
    links = {
        (str(source), str(target)): link_between(client, source, target)
        for source in devices
        for target in devices
        if source.task != target.task
    }
    bandwidth = {ends: link.bandwidth for ends, link in links.items()}
    slowest = max([link.latency for link in links.values()], default=3e-5)
    return CostModel(rates, slowest, bandwidth, run=2 * slowest)


def link_between(client: Client, source: Device, target: Device) -> Link:
    """The link between two devices of different tasks: a library for GPUs, or else the hosts."""
    tasks = client.tasks[source.task], client.tasks[target.task]
    machines = [task.address["machine"] for task in tasks]
    hosts = measured_link(client, source, target, *machines)
    assert hosts is not None
    own, other = [task.past_host for task in tasks]
    if source.type != target.type or refused(own, other, source, target.index):
        return hosts
    library = own[source.type]["library"]
    return measured_link(client, source, target, *machines, library) or hosts


def measured_link(client: Client, source: Device, target: Device, *key: str) -> Link | None:
    if key not in _known:
        past_host = len(key) > 2
        _known[key] = _lane(client, source, target) if past_host else _hosts(client, source, target)
    return _known[key]


def _hosts(client: Client, source: Device, target: Device) -> Link:
    small, large = times_of(client, source, target, LARGE_BYTES, None)
    return Link(small / 2, LARGE_BYTES / max(large - small, 1e-6))


def _lane(client: Client, source: Device, target: Device) -> Link | None:
    """The direct path from GPU to GPU; the answer goes through the hosts."""
    back = _hosts(client, target, source).latency
    ends = [str(source), target.index]
    times = times_of(client, source, target, LARGE_LANE_BYTES, ends)
    if len(times) < 2:
        return None
    small, large = times
    rate = LARGE_LANE_BYTES / max(large - small, 1e-6)
    return Link(max(small - back, 1e-6), rate)


def times_of(client: Client, source: Device, target: Device, large: int, ends: Any) -> list[float]:
    """Seconds for few bytes and for many, there and back; incomplete if the lane is not open."""
    message = {
        "do": "measure",
        "peer": target.task,
        "sizes": [SMALL_BYTES, large],
        "count": COUNT,
        "ends": ends,
    }
    answer, _ = client.ask(client.tasks[source.task], message)
    return [median(taken) for taken in answer["seconds"] if taken]
