"""Plain functions over ops, which are neither ops nor composed functions.

They take lists, or the shapes of their results depend on values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from eagerflow.dispatch import foreign_error
from eagerflow.errors import EagerflowError
from eagerflow.handlers import raised_here

__all__ = ["plain"]

Function = TypeVar("Function", bound=Callable[..., Any])


def plain(function: Function, name: str | None = None) -> Function:
    """Convert errors of Python and NumPy about bad arguments to ours, with the function's name.

    Ops and composed functions do so themselves; a function that calls its user's must not.
    """

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except EagerflowError:
            raise
        except raised_here(
            ArithmeticError, IndexError, RecursionError, TypeError, ValueError
        ) as error:
            found = foreign_error(error)
            found.op = name or function.__name__
            raise found from error

    return call  # type: ignore[return-value]
