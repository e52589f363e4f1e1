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


def ufunc(reduction: str) -> Any:
    """NumPy's function that makes one of two arrays of partial results."""
    return getattr(np, JOINS[reduction])
