"""The log: what ran, when and in which thread, while a profile is open.

Code that runs kernels has a second form that also writes an event for each of them. A ``Switch``
installs these forms when the first profile is opened, and the plain ones when the last
one is closed: without a profile there is no overhead. All open profiles share one
log, and each takes its part; so an inner one costs nothing more.

It holds plain tuples (begin, end, thread, site, detail), the fields of ``Event``.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

from eagerflow.locks import Locked, reentrant_lock

MAX_EVENTS = 1_000_000
"""The maximum length of the log; later events are counted but not stored."""

clock = perf_counter_ns


class Switch(Protocol):
    """Replaces functions by forms that write events, and restores them.

    Each may be called again when it is done already, or was interrupted.
    """

    def on(self) -> None:
        """Install the forms that write events."""

    def off(self) -> None:
        """Restore the plain forms."""


class Forms:
    """The switch of attributes with a second form: owner, name, and both forms."""

    def __init__(self, *forms: tuple[Any, str, Any, Any]) -> None:
        self._forms = forms

    def on(self) -> None:
        """Install the forms that write events."""
        for owner, name, _, timed in self._forms:
            setattr(owner, name, timed)

    def off(self) -> None:
        """Restore the plain forms."""
        for owner, name, plain, _ in self._forms:
            setattr(owner, name, plain)


class Thread:
    """A thread with events, or another sequential track."""

    __slots__ = ("name", "number")
    _numbers = itertools.count()

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = next(self._numbers)


class _Here(threading.local):
    """``here.thread`` is the current thread."""

    def __init__(self) -> None:
        self.thread = Thread(threading.current_thread().name)


here = _Here()


class Event(NamedTuple):
    """An event from ``begin`` to ``end``, in nanoseconds on the clock of ``perf_counter_ns``.

    ``site.facts(detail)`` describes it.
    """

    begin: int
    end: int
    thread: Thread
    site: Any
    detail: Any

    def within(self, begin: int, end: int) -> Event:
        """The part of the event between two times."""
        if self.begin >= begin and self.end <= end:
            return self
        first = min(max(self.begin, begin), end)
        return self._replace(begin=first, end=max(first, min(self.end, end)))


events: list[tuple[int, int, Thread, Any, Any]] = []
"""All events since the first open profile was opened."""

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
    """Count an event that exceeds the maximum."""
    global _left_out
    _left_out += 1  # concurrent threads may count one for two


def left_out() -> int:
    """The approximate number of events not stored so far."""
    return _left_out


def offer(switch: Switch) -> None:
    """Register a switch to follow profiles from now on."""
    with Locked(_lock):
        _switches.append(switch)
        if _open:
            switch.on()


def begin(profile: Any) -> int:
    """Start writing events for a profile; returns the number of existing events."""
    with Locked(_lock):
        _open.add(profile)
        for switch in _switches:
            switch.on()
        return len(events)


def end(profile: Any) -> None:
    """Stop writing events for this profile."""
    with Locked(_lock):
        _open.discard(profile)
        if not _open:
            for switch in _switches:
                switch.off()
            events.clear()


def while_open(f: Callable[..., Any], *args: Any) -> None:
    """Call ``f(...)`` if a profile is open, none of which is closed meanwhile."""
    with Locked(_lock):
        if _open:
            f(*args)
