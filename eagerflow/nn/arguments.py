"""Types of the arguments of layers, losses and metrics, with checks of their values."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from operator import index
from typing import Annotated, Any

from eagerflow.errors import ArgumentError
from eagerflow.handlers import raised_here

__all__ = [
    "Count",
    "Float",
    "Nest",
    "TensorLike",
    "choice",
    "count",
    "is_count",
    "number",
    "require",
    "require_counts",
]

Check = Callable[[Any], Any]
"""Converts an argument's value to an attribute, or raises ArgumentError."""

TensorLike = Any
"""A Tensor or Variable, an array, a number, or nested lists of numbers."""
Nest = Any
"""A tensor, or nested tuples, lists and dicts of tensors."""


def require(
    ok: bool,
    value: Any,
    wrong: str,
    op: str | None = None,
    argument: str | None = None,
    expected: str | None = None,
) -> None:
    """Raise ArgumentError unless ``ok``: the value of an argument is, say, "not a padding"."""
    if not ok:
        raise ArgumentError(f"{value!r} is {wrong}", op=op, argument=argument, expected=expected)


def is_count(value: Any, least: int = 1) -> bool:
    """Whether a value is an integer, of Python's or NumPy's, of at least ``least``.

    >>> from eagerflow.nn.arguments import is_count
    >>> is_count(np.int64(2)), is_count(0), is_count(True), is_count(1.0)
    (True, False, False, False)
    """
    try:
        return not isinstance(value, bool) and index(value) >= least
    except raised_here(TypeError):
        return False


def require_strategy(op: str, strategy: Any) -> None:
    """Raise ArgumentError unless it is None or has a strategy's methods.

    >>> require_strategy("fit", None)
    """
    fits = strategy is None or (hasattr(strategy, "batch_step") and not isinstance(strategy, type))
    expected = "such as ef.cluster.DataParallel(cluster)"
    require(fits, strategy, "not a strategy", op, "strategy", expected)


def require_counts(op: str, least: int, **values: Any) -> None:
    """Raise ArgumentError unless each value is None or an integer of at least ``least``."""
    for name, value in values.items():
        fits = value is None or is_count(value, least)
        require(fits, value, "not a count", op, name, f"an integer of at least {least}")


def count(value: Any) -> int:
    """``value`` as an integer of at least 1; ArgumentError for other values."""
    require(is_count(value), value, "out of range", expected="an integer of at least 1")
    return int(value)


Count = Annotated[int, count]
"""An integer from 1 on, of Python's or NumPy's."""
Float = Annotated[float, float]
"""A number, which becomes a float."""


def number(accepts: Callable[[Any], bool], wrong: str, expected: str | None = None) -> Check:
    """The check of a number in a range, which converts it to a float."""

    def check(value: Any) -> float:
        ok = isinstance(value, Real) and accepts(value)
        require(ok, value, wrong, expected=expected)
        return float(value)

    return check


def choice(wrong: str, *choices: Any, expected: str | None = None) -> Check:
    """The check of a value that is one of a few."""
    words = expected or "one of " + ", ".join(map(repr, choices))

    def check(value: Any) -> Any:
        require(value in choices, value, wrong, expected=words)
        return value

    return check
