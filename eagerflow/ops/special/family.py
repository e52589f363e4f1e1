"""The family of special functions: computed in float64, tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.ops.family import FLOATS, Missing, elementwise
from eagerflow.primitives.special.pieces import on_numpy

__all__ = ["MANY_TERMS", "special"]

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
