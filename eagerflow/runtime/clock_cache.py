"""A bounded cache with approximate least-recently-used replacement.

Graphs by signature, and plans by sizes, are cached for reuse. Entries that a program no longer
uses would stay forever, so there is a bound, and entries not used recently
are dropped first. A hit costs one attribute: every item has a mark, and the eldest item without a
mark is dropped (known as the clock, or second-chance, replacement).
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from eagerflow.errors import ArgumentError

DEFAULT_MAX_ITEMS = 256
"""Default number of cached graphs of a function, and of plans of a graph."""


class Marked(Protocol):
    """An item of a cache; finding it in ``items`` sets ``used``."""

    used: bool

    def release(self) -> None:
        """Release memory that is only kept for speed."""


T = TypeVar("T", bound=Marked)


def checked_bound(bound: Any, op: str, argument: str) -> int:
    """``bound``; ArgumentError unless it is a whole number of at least 1."""
    if isinstance(bound, bool) or not isinstance(bound, int) or bound < 1:
        raise ArgumentError(
            f"{bound!r} is not a bound",
            op=op,
            argument=argument,
            expected="a whole number of at least 1",
        )
    return bound


class ClockCache(Generic[T]):
    """At most ``bound`` items by key; ``dropped`` counts evicted ones.

    Single operations on ``items`` are safe in all threads and in finalizers; ``add`` is called
    by one thread at a time.
    """

    __slots__ = ("bound", "dropped", "items")

    def __init__(self, bound: int = DEFAULT_MAX_ITEMS) -> None:
        self.bound = bound
        self.dropped = 0
        self.items: dict[Any, T] = {}

    def add(self, key: Any, item: T) -> list[T]:
        """Add ``item``, and return the items removed because of it.

        All others release their buffers: if new items keep coming, old ones are
        hardly used, and if none come, each has its own.
        """
        items = self.items
        for other in list(items.values()):
            other.release()
        item.used = False  # until it is found: items used once are dropped first
        before = items.pop(key, None)
        items[key] = item
        gone = [] if before is None else [before]
        while len(items) > self.bound:
            eldest = next(iter(items))
            found = items.pop(eldest, None)
            if found is None:  # removed by a finalizer
                continue
            if found.used or found is item:
                found.used = False
                items[eldest] = found
            else:
                self.dropped += 1
                gone.append(found)
        return gone
