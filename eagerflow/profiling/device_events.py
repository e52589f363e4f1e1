"""Asynchronous work of devices: timed between two marks in their own order of work.

When a profile ends, it waits for its devices, and reads how long before that each mark was
passed. Each device has a track of its own. The logic has run on an emulation of CuPy, and on no GPU
yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from eagerflow.devices import Device
from eagerflow.profiling.log import MAX_EVENTS, Event, Thread, clock, leave_out


class Started(NamedTuple):
    """Work of a device between two marks."""

    first: Any
    last: Any
    device: Device
    site: Any
    detail: Any


SYNCHRONIZATIONS = 5

started: list[Started] = []
"""All work started since the first open profile was opened."""


@cache
def _track(device: Device) -> Thread:
    return Thread(str(device))


def start(device: Device, site: Any, detail: Any, call: Callable[..., Any], *args: Any) -> Any:
    """``call(*args)``, which starts work on a device."""
    own = device.backend
    with own.on(device.index):
        first = own.mark()
        found = call(*args)
        if len(started) < MAX_EVENTS:
            started.append(Started(first, own.mark(), device, site, detail))
        else:
            leave_out()
    return found


def _synchronized(device: Device) -> tuple[int, Any]:
    """A mark passed by an idle device, and its time on Python's clock.

    The thread may be delayed between a mark and reading the clock: of several marks the one
    passed in the shortest time counts (Cristian 1989, Probabilistic clock
    synchronization, Distributed Computing 3).
    """
    own = device.backend
    with own.on(device.index):
        own.synchronize()
        tries = []
        for number in range(SYNCHRONIZATIONS):
            begin, mark = clock(), own.mark()
            own.synchronize()
            end = clock()
            tries.append((end - begin, number, (begin + end) // 2, mark))
        return min(tries)[2:]


def ended(found: Sequence[Started]) -> list[Event]:
    """Events of started work, after all of it is done."""
    ends = {device: _synchronized(device) for device in {work.device for work in found}}
    events = []
    for work in found:
        between = work.device.backend.seconds_between
        now, mark = ends[work.device]
        end = now - round(between(work.last, mark) * 1e9)
        begin = end - round(between(work.first, work.last) * 1e9)
        events.append(Event(begin, end, _track(work.device), work.site, work.detail))
    return events


class DeviceEvents:
    """The switch of marks; the writers of events make them."""

    def on(self) -> None:
        """Do nothing."""

    def off(self) -> None:
        """Drop all marks."""
        started.clear()
