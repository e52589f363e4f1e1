"""Links: what the devices of tasks can do, and what it costs to send between them, by timing."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from eagerflow.capture.placement.calibration import as_rates
from eagerflow.capture.placement.cost_model import CostModel, Rates
from eagerflow.cluster.client import Client
from eagerflow.devices import Device

__all__ = ["measured"]

SMALL_BYTES, LARGE_BYTES, COUNT = 64, 1 << 20, 9
_known: dict[tuple[str, ...], list[float]] = {}
"""Latency in seconds and bytes a second, by the machines of two tasks."""


def measured(client: Client, devices: Sequence[Device]) -> CostModel:
    """What ops and transfers cost on devices of tasks.

    Alike tasks of one machine are measured once: their rates by the task itself, which keeps them
    on disk, links between two tasks of each two machines by sending back and forth.
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
    latency, bandwidth = [], {}
    for source in devices:
        for target in devices:
            if source.task == target.task:
                continue
            pair = machines[source.task], machines[target.task]
            if pair not in _known:
                _known[pair] = _link(client, source.task, target.task)
            latency.append(_known[pair][0])
            bandwidth[str(source), str(target)] = _known[pair][1]
    slowest = max(latency, default=3e-5)
    return CostModel(rates, slowest, bandwidth, run=2 * slowest)


def _link(client: Client, source: str, target: str) -> list[float]:
    """Latency and bytes a second from one task to another."""
    sizes = [SMALL_BYTES, LARGE_BYTES]
    message = {"do": "measure", "peer": target, "sizes": sizes, "count": COUNT}
    answer, _ = client.ask(client.tasks[source], message)
    small, large = map(median, answer["seconds"])
    return [small / 2, LARGE_BYTES / max(large - small, 1e-6)]
