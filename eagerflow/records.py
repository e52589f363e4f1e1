"""Records: classes that list their attributes, like data classes, without cost at import.

The standard library generates and compiles the methods of each data class when it is defined, half
a millisecond for one. Classes loaded by ``import eagerflow`` inherit the methods here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, dataclass_transform

__all__ = ["Frozen", "Record", "fresh"]


class _Fresh:
    """The factory of a default, and whether copies of a record share the value."""

    def __init__(self, make: Callable[[], Any], copied: bool) -> None:
        self.make, self.copied = make, copied


def fresh(*, default_factory: Callable[[], Any], init: bool = True) -> Any:
    """A default created for each record; without ``init`` also for each copy of one."""
    return _Fresh(default_factory, init)


class _Annotated:
    """Has the attributes that a class annotates, in order, given by position or by name.

    A value assigned in the class is the default.
    """

    _names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__()
        own = [n for n, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")]
        cls._names = *cls._names, *own
        cls._defaults = cls._defaults | {n: vars(cls)[n] for n in own if n in vars(cls)}

    def __init__(self, *values: Any, **named: Any) -> None:
        names, own = self._names, vars(self)
        own.update(zip(names, values, strict=False))
        own.update(named)
        for name, value in self._defaults.items():
            if name not in own:
                own[name] = value.make() if type(value) is _Fresh else value
        if len(own) != len(names) or len(values) + len(named) > len(names):
            wrong = sorted(set(own) ^ set(names)) or names[: len(values)]
            raise TypeError(f"{type(self).__name__} has other attributes: {', '.join(wrong)}")

    def replaced(self, **changes: Any) -> Self:
        """A copy with some attributes changed."""
        anew = {n for n, x in self._defaults.items() if type(x) is _Fresh and not x.copied}
        given = {name: vars(self)[name] for name in self._names if name not in anew}
        return type(self)(**given | changes)

    def __repr__(self) -> str:
        parts = [f"{name}={vars(self)[name]!r}" for name in self._names]
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass_transform(eq_default=False, field_specifiers=(fresh,))
class Record(_Annotated):
    """A mutable record, compared by identity."""


@dataclass_transform(frozen_default=True, eq_default=True, field_specifiers=(fresh,))
class Frozen(_Annotated):
    """An immutable record, equal to others of its class with equal attributes."""

    def __setattr__(self, name: str, value: Any = None) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: {name}")

    __delattr__ = __setattr__

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))
