"""What devices do after a call has returned: between two marks in their own order of work.

When a profile ends, it waits for its devices, and asks how long before that moment each mark was
passed. Each device has a track of its own. The logic has run on a look-alike of CuPy, and on no GPU
yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from eagerflow.devices import Device
from eagerflow.profiling.log import MAX_EVENTS, Event, Thread, clock, leave_out


class Started(NamedTuple):
    """Work that a device does between two marks."""

    first: Any
    last: Any
    device: Device
    site: Any
    detail: Any


SYNCHRONIZATIONS = 5

started: list[Started] = []
"""All that was started since the first profile was opened that is open now."""


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
    """A mark that a device without work has passed, and the time of that by Python's clock.

    The thread may be held up between a mark and the look at the clock: of several marks the one
    that was passed in the shortest time counts (Cristian 1989, Probabilistic clock
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
    """Events of work that was started, when all of it is done."""
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
    """The switch of marks, which are made by the writers of events."""

    def on(self) -> None:
        """There is nothing to put in place."""

    def off(self) -> None:
        """Forget all marks."""
        started.clear()
