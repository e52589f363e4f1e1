"""Methods: captured functions by instance.

A captured method has separate graphs for each instance. They are stored on the instance, so
that they are freed with it, even if the two refer to each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.locks import Locked, reentrant_lock
from eagerflow.runtime.clock_cache import ClockCache

PLACE = "captured methods"  # where an instance stores them, in its ``__dict__``


class Methods:
    """The captured methods of one instance, by the functions in its class.

    A copy of the instance may hold them too, through ``copy.copy`` or ``__dict__.update``, so
    a lookup compares their owner. Deep copies and pickles are empty.
    """

    __slots__ = ("bound", "owner", "used")

    def __init__(self, owner: Any = None) -> None:
        self.owner = owner
        self.bound: dict[Any, Any] = {}
        self.used = True

    def release(self) -> None:
        """Does nothing: there are no caches to drop."""

    def __reduce__(self) -> Any:
        return Methods, ()

    def __deepcopy__(self, memo: Any) -> Methods:
        return Methods()


class Bindings:
    """The methods made of one function, by instance."""

    def __init__(self) -> None:
        self._slotted: ClockCache[Methods] = ClockCache()  # for instances without a ``__dict__``
        self._lock = reentrant_lock()

    def find(self, function: Any, instance: Any, make: Callable[[], Any]) -> Any:
        """The method of an instance, made by ``make`` at first use."""
        held: Any = getattr(instance, "__dict__", None)
        plain = type(held) is dict
        # An entry stored here holds the instance, so that its ``id`` stays unique.
        table, key = (held, PLACE) if plain else (self._slotted.items, id(instance))
        methods = table.get(key)
        if methods is None or methods.owner is not instance:
            with Locked(self._lock):
                methods = table.get(key)
                if methods is None or methods.owner is not instance:
                    methods = Methods(instance)
                    if plain:
                        held[key] = methods
                    else:
                        self._slotted.add(key, methods)
        methods.used = True
        found = methods.bound.get(function)
        return found or methods.bound.setdefault(function, make())
