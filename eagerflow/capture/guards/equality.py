"""Equality of values from the point of view of a function that reads them.

Values are compared by type and state and never by their own ``==``, for which 1 equals True,
as do equal instants in different time zones, and decimals with different numbers of digits.
"""

from __future__ import annotations

import struct
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.capture.guards.categories import is_value_class
from eagerflow.handlers import raised_here


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Any = _Absent()
"""Stands for a missing name, attribute or item."""


def same(a: Any, b: Any) -> bool:
    """Whether replacing ``b`` with ``a`` cannot change the result of a function."""
    if a is b:
        return True
    cls = type(a)
    if cls is not type(b):
        return False
    compare = _COMPARED.get(cls)
    if compare is not None:
        return compare(a, b)
    if issubclass(cls, np.void):
        return False  # its fields can change
    if issubclass(cls, np.generic):
        return same(a.dtype, b.dtype) and a.tobytes() == b.tobytes()
    if issubclass(cls, np.dtype) or is_value_class(cls):
        return _same_state(a, b)
    return False


def _same_state(a: Any, b: Any) -> bool:
    """Whether two values have the same pickle, which contains their whole state."""
    try:
        return _alike(a.__reduce_ex__(4), b.__reduce_ex__(4))
    except raised_here(Exception):  # it cannot be pickled
        return False


def _alike(a: Any, b: Any) -> bool:
    if type(a) is type(b) and type(a) in (tuple, list):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b, strict=True))
    if type(a) is type(b) is dict:
        return _alike(list(a.items()), list(b.items()))
    return same(a, b)


def _same_parts(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


_COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    **dict.fromkeys((bool, int, str, bytes), lambda a, b: bool(a == b)),
    # By their bits: zeros have signs, and NaN has more than one form.
    float: lambda a, b: struct.pack("=d", a) == struct.pack("=d", b),
    complex: lambda a, b: struct.pack("=dd", a.real, a.imag) == struct.pack("=dd", b.real, b.imag),
    **dict.fromkeys((tuple, frozenset), _same_parts),
    **dict.fromkeys((slice, range), lambda a, b: _same_parts(_limits(a), _limits(b))),
    types.MethodType: lambda a, b: a.__self__ is b.__self__ and a.__func__ is b.__func__,
}


def _limits(value: Any) -> tuple[Any, ...]:
    return value.start, value.stop, value.step


class WeakValue:
    """An object that was read, or a method bound to it, without keeping the object alive."""

    __slots__ = ("function", "referent")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        bound = type(value) is types.MethodType
        self.function = value.__func__ if bound else None
        self.referent = weakref.ref(value.__self__ if bound else value)

    def __eq__(self, now: object) -> bool:
        if self.function is None:
            return now is not None and now is self.referent()
        return (
            type(now) is types.MethodType
            and now.__func__ is self.function
            and now.__self__ is self.referent()
        )

    def __repr__(self) -> str:
        return repr(self.referent() if self.function is None else self.function)
