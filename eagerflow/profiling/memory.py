"""Memory that is made while a profile is open: when, by which line, and when it is given back.

What an array holds begins with it and ends when its memory has no owner any more, that is with the
last view of it. Small arrays are left out: to note one costs as much as to fill it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from eagerflow.backends.numpy import owner_of
from eagerflow.profiling.log import MAX_EVENTS, clock

MIN_WATCHED_BYTES = 1 << 16


class Change(NamedTuple):
    """At a time, in nanoseconds, a line begins to hold so many bytes more; or less, below 0."""

    time: int
    bytes: int
    since: int
    """When it began to hold what this is about."""
    site: Any
    detail: Any
    """``site.facts(detail)`` tells what made it."""


class _Held(weakref.ref[Any]):
    """Dies with the array that owns some memory."""

    __slots__ = ("change", "key")

    change: tuple[int, int, int, Any, Any]
    key: int


changes: list[tuple[int, int, int, Any, Any]] = []
"""Of all memory, since the first profile was opened that is open now: of each what ``Change`` has
names for."""

_held: dict[int, _Held] = {}


def watch(out: Any, time: int, site: Any, detail: Any) -> None:
    """Note the memory of a result, if it is none that was noted before."""
    if out.__class__ is not np.ndarray:
        if out.__class__ is tuple or out.__class__ is list:
            for part in out:
                if getattr(part, "nbytes", 0) >= MIN_WATCHED_BYTES:
                    watch(part, time, site, detail)
        return  # other libraries count their memory themselves
    base = out.base
    owner = out if base is None else owner_of(out)
    key = id(owner)
    if key in _held or len(changes) >= MAX_EVENTS:
        return
    size = owner.nbytes
    _held[key] = held = _Held(owner, _given_back)
    held.key = key
    held.change = change = (time, size, time, site, detail)
    changes.append(change)


def _given_back(held: _Held) -> None:
    """The memory has no owner any more: called by the weak reference."""
    if _held.pop(held.key, None) is held:
        since, size, _, site, detail = held.change
        changes.append((clock(), -size, since, site, detail))


class Memory:
    """The switch of what is watched, which needs no other form of anything."""

    def on(self) -> None:
        """Results are watched by the writers of events."""

    def off(self) -> None:
        """Watch nothing of what there is any more."""
        _held.clear()
        changes.clear()


class Holding(NamedTuple):
    """What a line holds: bytes at the moment when all of them were most, and at the end."""

    place: str
    name: str
    bytes: int
    left: int


class Timeline:
    """Bytes over time: ``times`` in nanoseconds, and ``totals`` from each of them on."""

    def __init__(self, found: Iterable[Change]) -> None:
        self._changes = sorted(found, key=lambda change: change.time)
        self.times = [change.time for change in self._changes]
        self.totals: list[int] = []
        total = 0
        for change in self._changes:
            total += change.bytes
            self.totals.append(total)

    @property
    def peak(self) -> int:
        """The most bytes at once."""
        return max(self.totals, default=0)

    def lines(self) -> list[Holding]:
        """What each line holds at the peak, the most first."""
        top = self.totals.index(self.peak) if self.totals else -1
        found: dict[tuple[str, str], list[int]] = {}
        for number, change in enumerate(self._changes):
            facts = change.site.facts(change.detail)
            both = found.setdefault((facts.place, facts.name), [0, 0])
            both[0] += change.bytes if number <= top else 0
            both[1] += change.bytes
        rows = [Holding(*key, *both) for key, both in found.items() if both[0] or both[1]]
        return sorted(rows, key=lambda row: -row.bytes)
