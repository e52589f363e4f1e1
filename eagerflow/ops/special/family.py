"""The family of special functions: computed in float64, tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.errors import DTypeError
from eagerflow.ops.family import FLOATS, Missing, elementwise
from eagerflow.primitives.special.pieces import on_numpy

__all__ = ["MANY_TERMS", "checked_order", "special"]

MOST_ORDERS = 10_000

MANY_TERMS = Missing("a sum of many terms, as many as its arguments need")


def special(function: Callable[..., Any], **facts: Any) -> Any:
    """An op on each element; ``function(xp, *xs)`` computes it on float64 arrays of one shape."""
    own: dict[str, Any] = {
        "overrides": {"numpy": on_numpy(function)},
        "dtypes": FLOATS,
        "aliases": False,
        "scalar": Missing("several formulas, by where its arguments lie"),
    }
    return elementwise(**own | facts)


def checked_order(n: Any) -> int:
    """An order: an integer from 0 on. Each costs a step of a recurrence."""
    if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n <= MOST_ORDERS:
        raise DTypeError(
            f"{n!r} is not an order",
            argument="n",
            expected=f"an integer, 0 to {MOST_ORDERS}",
            hint="the tensor first: f(x, n)",
        )
    return n
