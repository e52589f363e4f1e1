"""Dataclasses and attrs classes as nests: which of their objects are, and of what parts."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

__all__ = ["fields_of", "held_fields"]


@lru_cache(256)
def fields_of(cls: Any) -> tuple[str, ...]:
    """The names of the fields of a dataclass or an attrs class, empty for other classes.

    Also empty for classes with a ``__new__`` of their own, such as enumerations and exceptions, and
    for those whose objects say by ``_is_leaf`` that their identity matters, such as layers.
    """
    if cls.__new__ is not object.__new__ or hasattr(cls, "_is_leaf"):
        return ()
    known = fields(cls) if is_dataclass(cls) else getattr(cls, "__attrs_attrs__", ())
    return tuple([field.name for field in known])


def held_fields(value: Any) -> dict[str, Any] | None:
    """The fields of an object that is a nest, since there is a tensor or an array inside.

    None for all others: settings and state of Python are told apart by identity.
    """
    cls: Any = type(value)
    names = fields_of(cls)
    if not names or not _has_arrays(value):
        return None
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _has_arrays(value: Any) -> bool:
    waiting, known = [value], set()
    while waiting:
        x = waiting.pop()
        cls: Any = type(x)
        if hasattr(cls, "shape") and not hasattr(cls, "assign"):  # a Variable is state
            return True
        if id(x) in known:
            continue
        known.add(id(x))
        if isinstance(x, list | tuple | dict):
            waiting += x.values() if isinstance(x, dict) else x
        else:
            waiting += [getattr(x, name, None) for name in fields_of(cls)]
    return False
