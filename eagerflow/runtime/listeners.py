"""A log with listeners."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Noted(Generic[T]):
    """A weak set of things; ``hear`` is a list of listeners, called at each ``note``.

    >>> kernels = Noted()
    >>> kernels.hear.append(print)
    >>> kernels.note(ef.sin.op)
    <Op sin>
    >>> ef.sin.op in kernels.things
    True
    """

    def __init__(self) -> None:
        self.things: weakref.WeakSet[Any] = weakref.WeakSet()
        self.hear: list[Callable[[T], None]] = []

    def note(self, thing: T) -> None:
        """Add a thing, and call the listeners."""
        self.things.add(thing)
        for heard in self.hear.copy():
            heard(thing)


learned: Noted[Any] = Noted()
"""The ops with kernels in their tables, where calls look them up."""
