"""A bounded cache that keeps what was used last.

Graphs by signature, and plans by sizes, are kept so that they need not be made again. What a
program uses no more would be kept for good, so there is a bound, and what was not used lately
goes first. A hit costs one attribute: every item has a mark, and the eldest item without a mark
is the one that goes (known as the clock, or second-chance, replacement).
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from eagerflow.errors import ArgumentError

DEFAULT_MAX_ITEMS = 256
"""Graphs of one function, and plans of one graph, that are kept unless another bound is given."""


class Marked(Protocol):
    """What can be kept: finding it in ``items`` sets ``used``."""

    used: bool

    def release(self) -> None:
        """Give memory back that is only kept for speed."""


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
    """At most ``bound`` items by key; ``dropped`` counts those that had to go.

    Single operations on ``items`` are safe in all threads and in finalizers; ``add`` is called
    by one thread at a time.
    """

    __slots__ = ("bound", "dropped", "items")

    def __init__(self, bound: int = DEFAULT_MAX_ITEMS) -> None:
        self.bound = bound
        self.dropped = 0
        self.items: dict[Any, T] = {}

    def add(self, key: Any, item: T) -> list[T]:
        """Keep ``item``, and give what is kept no longer because of it.

        The others give their buffers back: where new items come again and again, old ones are
        hardly used, and where none come, each has its own.
        """
        items = self.items
        for other in list(items.values()):
            other.release()
        item.used = False  # until it is found: what comes once is the first to go
        before = items.pop(key, None)
        items[key] = item
        gone = [] if before is None else [before]
        while len(items) > self.bound:
            eldest = next(iter(items))
            found = items.pop(eldest, None)
            if found is None:  # a finalizer was faster
                continue
            if found.used or found is item:
                found.used = False
                items[eldest] = found
            else:
                self.dropped += 1
                gone.append(found)
        return gone
