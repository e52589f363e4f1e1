"""Functions whose errors say what an argument of another library is called here."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from eagerflow.errors import KeywordError
from eagerflow.handlers import raised_here

__all__ = ["explains_arguments"]

P = ParamSpec("P")
R = TypeVar("R")


def explains_arguments(**answers: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator by which unknown arguments raise KeywordError, with these answers as hints.

    It is not for functions that run in a microsecond, as the call in between takes a tenth of that.

    >>> @explains_arguments(dim="axis")
    ... def total(x, axis=0):
    ...     return ef.sum(x, axis)
    >>> total(ef.ones(3), dim=0)
    Traceback (most recent call last):
    ...
    eagerflow.errors.KeywordError: total: there is no argument 'dim'
      expected: total(x, axis)
      try: axis
    """

    def explained(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except raised_here(TypeError) as error:
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise  # in the function, not of its call
                known = [x for x in inspect.signature(function).parameters if x != "self"]
                unknown = next((name for name in kwargs if name not in known), None)
                if unknown is None:
                    raise
                close = difflib.get_close_matches(unknown, known, 1)
                raise KeywordError(
                    f"there is no argument {unknown!r}",
                    op=getattr(function, "__name__", None),
                    expected=f"{getattr(function, '__name__', '')}({', '.join(known)})",
                    hint=answers.get(unknown) or (close[0] if close else None),
                ) from None

        return call

    return explained
