"""Common parts of sums, products and cumulative ones: the dtype of the computation."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.dtypes import BOOL, INTEGERS, as_dtype, is_complex
from eagerflow.errors import EagerflowError
from eagerflow.handlers import raised_here
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.complexes import conj

__all__ = ["accumulator", "cast_first", "conjugate", "part_of", "wide_dtype"]


def wide_dtype(dtype: Any) -> Any:
    """Sums of bools and of small integers are 64 bits wide, as the standard has it."""
    if dtype not in BOOL | INTEGERS:
        return dtype
    return np.dtype("uint64" if dtype.kind == "u" else "int64")


def cast_first(x: Any, *args: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with ``dtype``: the elements are cast before they are reduced.

    So the gradient is cast back by ``astype``, and float16 is never summed in float16.
    """
    dtype = named.get("dtype")
    if dtype is not None:
        try:
            wanted = as_dtype(dtype)
        except raised_here(EagerflowError):  # reported when the attributes are bound
            return (x, *args), named
        if getattr(x, "dtype", None) != wanted:
            x = astype(x, wanted)
    return (x, *args), named


def accumulator(dtype: Any) -> Any:
    """``dtype`` for the library's function: only non-floats depart from their own."""
    return dtype if dtype in BOOL | INTEGERS else None


def conjugate(x: Any) -> Any:
    """The factor of a gradient rule: conjugated if it is complex."""
    return conj(x) if is_complex(x.dtype) else x


def part_of(x: Any, axis: int, start: int | None, stop: int | None) -> Any:
    """``x[start:stop]`` along one axis."""
    return x[(slice(None),) * axis + (slice(start, stop),)]
