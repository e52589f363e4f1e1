"""Things that are noted once, and who hears of each time that one is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Noted(Generic[T]):
    """Things in the order in which they came; ``hear`` are called whenever one comes, or again.

    >>> ops = Noted()
    >>> ops.hear.append(print)
    >>> ops.note("sin")
    sin
    >>> list(ops.things)
    ['sin']
    """

    def __init__(self) -> None:
        self.things: dict[T, None] = {}
        self.hear: list[Callable[[T], None]] = []

    def note(self, thing: T) -> None:
        """Note something, and tell who wants to hear of it."""
        self.things[thing] = None
        for heard in self.hear.copy():
            heard(thing)


learned: Noted[Any] = Noted()
"""The ops that have kernels in their tables, by which calls find them."""
