"""The log: what ran, when and in which thread, while some profile is open.

Whatever runs kernels has a second form that also writes an event for each of them. A ``Switch``
puts these forms in place when the first profile is opened, and the plain ones back when the last
one is closed: without a profile, nothing asks whether there is one. All open profiles share one
log, of which each takes its part; so an inner one costs nothing more.

It holds plain tuples (begin, end, thread, site, detail), of which ``Event`` has the names.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

from eagerflow.locks import Locked, reentrant_lock

MAX_EVENTS = 1_000_000
"""Of the log; those that come later are counted and not kept."""

clock = perf_counter_ns


class Switch(Protocol):
    """What puts forms that write events in the place of those that do not, and back.

    Each may be called again when it is done already, or was cut short.
    """

    def on(self) -> None:
        """Put the forms that write events in place."""

    def off(self) -> None:
        """Put the plain forms back."""


class Forms:
    """The switch of attributes that have a second form: of what, by which name, and both forms."""

    def __init__(self, *forms: tuple[Any, str, Any, Any]) -> None:
        self._forms = forms

    def on(self) -> None:
        """Let them write events."""
        for owner, name, _, timed in self._forms:
            setattr(owner, name, timed)

    def off(self) -> None:
        """Let them be as they are."""
        for owner, name, plain, _ in self._forms:
            setattr(owner, name, plain)


class Thread:
    """A thread of which there are events, or what else does one thing after the other."""

    __slots__ = ("name", "number")
    _numbers = itertools.count()

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = next(self._numbers)


class _Here(threading.local):
    """``here.thread`` stands for the thread that runs."""

    def __init__(self) -> None:
        self.thread = Thread(threading.current_thread().name)


here = _Here()


class Event(NamedTuple):
    """What ran from ``begin`` to ``end``, in nanoseconds on the clock of ``perf_counter_ns``.

    ``site.facts(detail)`` tells what it was.
    """

    begin: int
    end: int
    thread: Thread
    site: Any
    detail: Any

    def within(self, begin: int, end: int) -> Event:
        """It as far as it lies between two times."""
        if self.begin >= begin and self.end <= end:
            return self
        first = min(max(self.begin, begin), end)
        return self._replace(begin=first, end=max(first, min(self.end, end)))


events: list[tuple[int, int, Thread, Any, Any]] = []
"""All that was written since the first profile was opened that is open now."""

_left_out = 0
_open: set[Any] = set()
_switches: list[Switch] = []
_lock = reentrant_lock()


def write(begin: int, end: int, site: Any, detail: Any = None) -> None:
    """Append an event of this thread."""
    if len(events) < MAX_EVENTS:
        events.append((begin, end, here.thread, site, detail))
    else:
        leave_out()


def leave_out() -> None:
    """Count an event for which there is no room."""
    global _left_out
    _left_out += 1  # threads that meet here may count one for two


def left_out() -> int:
    """About how many events there was no room for so far."""
    return _left_out


def offer(switch: Switch) -> None:
    """Let a switch follow profiles from now on."""
    with Locked(_lock):
        _switches.append(switch)
        if _open:
            switch.on()


def begin(profile: Any) -> int:
    """Write events for a profile from now on; how many there are already."""
    with Locked(_lock):
        _open.add(profile)
        for switch in _switches:
            switch.on()
        return len(events)


def end(profile: Any) -> None:
    """Write no events for this profile any more."""
    with Locked(_lock):
        _open.discard(profile)
        if not _open:
            for switch in _switches:
                switch.off()
            events.clear()


def while_open(f: Callable[..., Any], *args: Any) -> None:
    """Call ``f(...)`` if there is a profile, none of which is closed meanwhile."""
    with Locked(_lock):
        if _open:
            f(*args)
