"""Properties that are computed once, without holding a lock."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801
        """A property that is computed once for an object.

        That of Python 3.11 holds a lock meanwhile, on which a forked child would block
        forever. Two concurrent threads both compute it, as with that of Python 3.12.

        >>> from eagerflow.runtime.properties import cached_property
        >>> class Circle:
        ...     radius = 2.0
        ...     area = cached_property(lambda self: 3.14 * self.radius**2)
        >>> circle = Circle()
        >>> circle.area, vars(circle)
        (12.56, {'area': 12.56})
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            found = instance.__dict__[self.attrname] = self.func(instance)
            return found
