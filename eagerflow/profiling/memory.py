"""Memory allocated while a profile is open: time, line, and when it is freed.

The memory of an array counts from its creation until it has no owner any more, that is until the
last view is freed. Small arrays are left out: recording one costs as much as filling it.
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
    """A change of the bytes held by a line, in nanoseconds; negative if freed."""

    time: int
    bytes: int
    since: int
    """When the memory was allocated."""
    site: Any
    detail: Any
    """``site.facts(detail)`` describes its creation."""


class _Held(weakref.ref[Any]):
    """A weak reference to the array that owns some memory."""

    __slots__ = ("change", "key")

    change: tuple[int, int, int, Any, Any]
    key: int


changes: list[tuple[int, int, int, Any, Any]] = []
"""All memory changes since the first open profile was opened, with the fields of
``Change``."""

_held: dict[int, _Held] = {}


def watch(out: Any, time: int, site: Any, detail: Any) -> None:
    """Record the memory of a result, unless it was recorded before."""
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
    """Record that the memory is freed: called by the weak reference."""
    if _held.pop(held.key, None) is held:
        since, size, _, site, detail = held.change
        changes.append((clock(), -size, since, site, detail))


class Memory:
    """The switch of memory recording, which needs no other forms."""

    def on(self) -> None:
        """Do nothing: writers of events record results."""

    def off(self) -> None:
        """Stop recording existing memory."""
        _held.clear()
        changes.clear()


class Holding(NamedTuple):
    """The memory of a line: bytes at the total peak, and at the end."""

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
        """The peak number of bytes."""
        return max(self.totals, default=0)

    def lines(self) -> list[Holding]:
        """The memory of each line at the peak, the most first."""
        top = self.totals.index(self.peak) if self.totals else -1
        found: dict[tuple[str, str], list[int]] = {}
        for number, change in enumerate(self._changes):
            facts = change.site.facts(change.detail)
            both = found.setdefault((facts.place, facts.name), [0, 0])
            both[0] += change.bytes if number <= top else 0
            both[1] += change.bytes
        rows = [Holding(*key, *both) for key, both in found.items() if both[0] or both[1]]
        return sorted(rows, key=lambda row: -row.bytes)
