"""Small whole powers as products: one rule for graphs and for regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["SMALL_POWERS", "small_power"]

SMALL_POWERS = (-2, -1, 1, 2, 3, 4)


def small_power(make: Callable[..., Any], x: Any, n: Any) -> Any:
    """``x ** n`` of one of SMALL_POWERS; ``make(name, *operands)`` is a step.

    The reciprocal comes first: the square of a large number would be infinite, and that of a
    small one lose its digits, where the result is neither.
    """
    if n < 0:
        x = make("reciprocal", x)
    if n in (1, -1):
        return x
    square = make("square", x)
    if n == 3:
        return make("multiply", square, x)
    return make("square", square) if n == 4 else square
