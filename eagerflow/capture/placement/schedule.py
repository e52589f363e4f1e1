"""List scheduling: a schedule in which each device runs its ready task of highest priority."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class Schedule(NamedTuple):
    """A predicted schedule: task numbers in order of start, start and end times, and the total."""

    order: list[int]
    begins: list[float]
    ends: list[float]
    seconds: float


def list_schedule(
    devices: Sequence[int],
    seconds: Sequence[float],
    priorities: Sequence[float],
    follows: Sequence[Mapping[int, float]],
    arrivals: Sequence[float],
    alone: Container[int] = (),
) -> Schedule:
    """The schedule: one task at a time per device, after its predecessors.

    ``follows`` lists the successors of each task, with the seconds from its end until
    they can start; none can start before its entry in ``arrivals``. While a task in ``alone``
    runs, no other device works. The running time is that of sorting the tasks.
    """
    total, places = len(devices), range(max(devices, default=0) + 1)
    begins, ends, arrivals = [0.0] * total, [0.0] * total, list(arrivals)
    waits = [0] * total
    for after in follows:
        for i in after:
            waits[i] += 1
    ready: list[list[tuple[float, int]]] = [[] for _ in places]  # by priority
    coming: list[list[tuple[float, int]]] = [[] for _ in places]  # by arrival
    for i, k in enumerate(devices):
        if not waits[i]:
            coming[k].append((arrivals[i], i))
    for heap in coming:
        heapify(heap)
    order: list[int] = []
    free_at = [0.0 for _ in places]
    clock: list[tuple[float, int]] = [(0.0, k) for k in places]
    while len(order) < total:
        now, k = heappop(clock)
        if now < free_at[k]:
            continue
        while coming[k] and coming[k][0][0] <= now:
            i = heappop(coming[k])[1]
            heappush(ready[k], (-priorities[i], i))
        if not ready[k]:
            if coming[k]:
                heappush(clock, (coming[k][0][0], k))
            continue
        i = heappop(ready[k])[1]
        if i in alone and max(free_at) > now:
            heappush(coming[k], (max(free_at), i))
            heappush(clock, (now, k))
            continue
        begins[i], ends[i] = now, now + seconds[i]
        order.append(i)
        for place in places if i in alone else (k,):
            free_at[place] = ends[i]
            heappush(clock, (ends[i], place))
        for reader, delay in follows[i].items():
            arrivals[reader] = max(arrivals[reader], ends[i] + delay)
            waits[reader] -= 1
            if not waits[reader]:
                target = devices[reader]
                heappush(coming[target], (arrivals[reader], reader))
                heappush(clock, (max(arrivals[reader], free_at[target]), target))
    return Schedule(order, begins, ends, max(ends, default=0.0))
