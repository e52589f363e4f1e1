"""Attributes that are missing, and say what to use in their place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from inspect import getattr_static
from typing import Any

__all__ = ["Absent", "absent", "explain"]


def absent(obj: Any, name: str, what: str, answer: str | None) -> AttributeError:
    """The AttributeError of a name that ``obj`` does not have; Python adds names that are alike."""
    told = f"; here it is {answer}" if answer else ""
    return AttributeError(f"{what} has no attribute {name!r}{told}", name=name, obj=obj)


class Absent:
    """A missing attribute that raises; ``__getattr__`` would slow down all other attributes."""

    __slots__ = ("_answer", "_name")

    def __init__(self, name: str, answer: str | Callable[[Any], str]) -> None:
        self._name = name
        self._answer = answer

    def __get__(self, obj: Any, cls: type) -> Any:
        answer = self._answer
        if not isinstance(answer, str):
            answer = answer(sys._getframe(1))
        raise absent(cls if obj is None else obj, self._name, cls.__name__.lstrip("_"), answer)


class _AbsentSlot(Absent):
    """A missing attribute of objects without a ``__dict__``, where it cannot be set either."""

    __slots__ = ()

    def __set__(self, obj: Any, value: Any) -> None:
        self.__get__(obj, type(obj))


def explain(cls: Any, answers: Mapping[str, str | Callable[[Any], str]]) -> None:
    """Let the missing attributes of a class and of its objects say what to use instead.

    An answer that is a function is called with the frame in which the attribute was asked for.
    ``dir`` shows neither; nor does that of the class, if it has a metaclass of its own.
    """
    kind = Absent if cls.__dictoffset__ else _AbsentSlot
    for name, answer in answers.items():
        if name not in vars(cls):
            setattr(cls, name, kind(name, answer))
    cls.__dir__ = lambda self: _listed(self, object.__dir__(self))
    if type(cls) is not type:
        meta: Any = type(cls)
        meta.__dir__ = lambda self: _listed(self, type.__dir__(self))


def _listed(obj: Any, names: Iterable[str]) -> list[str]:
    return [name for name in names if not isinstance(getattr_static(obj, name, None), Absent)]
