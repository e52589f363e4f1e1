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


def ended(found: Sequence[Started]) -> list[Event]:
    """Events of work that was started, when all of it is done."""
    ends: dict[Device, tuple[int, Any]] = {}
    for device in {work.device for work in found}:
        with device.backend.on(device.index):
            mark = device.backend.mark()
            device.backend.synchronize()
            ends[device] = clock(), mark
    events = []
    for work in found:
        between = work.device.backend.seconds_between
        now, mark = ends[work.device]
        end = now - round(between(work.last, mark) * 1e9)
        begin = end - round(between(work.first, work.last) * 1e9)
        events.append(Event(begin, end, _track(work.device), work.site, work.detail))
    return events


class DeviceEvents:
    """The switch of marks, which are made by those who write events."""

    def on(self) -> None:
        """There is nothing to put in place."""

    def off(self) -> None:
        """Forget all marks."""
        started.clear()
