"""What reductions are, for all ways of running regions: how two parts join, and what none gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.codegen.instructions import is_float

JOINS = {
    "sum": "add",
    "product": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}
"""Reduction to the scalar instruction that makes one of two partial results."""

ADDED_IN_TURN = 32
"""Vectors of a row that are added one after the other: their sums are added up in the same way.

The rounding error of a sum of n numbers is so that of some 32 + n / 32 additions, not of n.
"""
ROWS_OF_A_LINE = 256
"""Rows that are added up in one line of a column reduction, and lines that are joined at once.

Fewer would round less, but what the lines need is this part of the data.
"""


def identity(reduction: str, dtype: str) -> Any:
    """What a reduction of nothing gives, as a Python number."""
    if reduction in ("sum", "product"):
        return int(reduction == "product")
    if reduction in ("any", "all"):
        return reduction == "all"
    if is_float(dtype):
        return float("-inf" if reduction == "max" else "inf")
    if dtype == "bool":
        return reduction == "min"
    limits = np.iinfo(dtype)
    return int(limits.min if reduction == "max" else limits.max)


def rounds(reduction: str, dtype: str) -> bool:
    """Whether less rounding adds up where the numbers are reduced in groups."""
    return reduction == "sum" and is_float(dtype)


def ufunc(reduction: str) -> Any:
    """NumPy's function that makes one of two arrays of partial results."""
    return getattr(np, JOINS[reduction])


def joined(reduction: str, parts: Any, out: Any = None) -> Any:
    """The result of partial results (parts, ...), joined in groups and then these, in ``out``."""
    function = ufunc(reduction)
    if len(parts) > ROWS_OF_A_LINE:
        starts = np.arange(0, len(parts), ROWS_OF_A_LINE)
        parts = function.reduceat(parts, starts, 0, parts.dtype)
    return function.reduce(parts, 0, parts.dtype, out)
