"""The semantics of reductions: the combination of two parts, and the result of an empty one."""

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
"""From reductions to the scalar instruction that combines two partial results."""

ADDED_IN_TURN = 32
"""Vectors of a row that are added sequentially: their sums are added in the same way.

The rounding error of a sum of n numbers is thus that of about 32 + n / 32 additions, not of n.
"""
ROWS_OF_A_LINE = 256
"""Rows that are summed in one line of a column reduction, and lines that are combined at once.

Fewer would round less, but the memory of the lines is this share of the data.
"""


def identity(reduction: str, dtype: str) -> Any:
    """The result of an empty reduction, as a Python number."""
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
    """Whether reducing in groups decreases the rounding error."""
    return reduction == "sum" and is_float(dtype)


def ufunc(reduction: str) -> Any:
    """NumPy's function that combines two arrays of partial results."""
    return getattr(np, JOINS[reduction])


def joined(reduction: str, parts: Any, out: Any = None) -> Any:
    """Partial results (parts, ...), combined in groups and then the groups, in ``out``."""
    function = ufunc(reduction)
    if len(parts) > ROWS_OF_A_LINE:
        starts = np.arange(0, len(parts), ROWS_OF_A_LINE)
        parts = function.reduceat(parts, starts, 0, parts.dtype)
    return function.reduce(parts, 0, parts.dtype, out)
