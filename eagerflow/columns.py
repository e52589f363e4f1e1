"""Data frames, tables and series of pandas, polars and Arrow as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from eagerflow.errors import DTypeError

_MARKS = "isna", "null_count", "itercolumns"
"""What these classes have, and arrays have not: pandas, polars and Arrow, Arrow's tables."""
_SHOWN = 6  # columns in an error


def _has_columns(cls: type) -> bool:
    """Whether objects of a class are data frames, tables or series."""
    return hasattr(cls, "__array__") and any(hasattr(cls, mark) for mark in _MARKS)


has_columns: Callable[[type], bool] = lru_cache(256)(_has_columns)


def array_of_columns(obj: Any) -> np.ndarray[Any, Any]:
    """The values of a data frame, a table or a series; columns are the last axis.

    The dtype is NumPy's for these columns. Raises DTypeError with the names and dtypes of columns
    that hold no numbers, that lack values, or that have no dtype in common.
    """
    columns = list(_columns(obj))
    lacking = [f"{_named(n, c)}, {k} of {len(c)}" for n, c in columns if (k := _missing(c))]
    if lacking:
        raise DTypeError(
            "values are missing",
            received=_listed(lacking),
            expected="a number in each row; NaN of NumPy's float dtypes is one",
            hint=f".{'fillna' if hasattr(obj, 'fillna') else 'fill_null'}(0), or leave these "
            "rows out",
        )
    array = np.asarray(obj)
    if array.dtype.kind in "biufc":
        return array
    parts = [np.asarray(column) for _, column in columns]
    kinds = {part.dtype.kind for part in parts}
    if len(parts) == array.shape[-1] and (kinds <= set("iufc") or kinds == {"b"}):
        return np.stack(parts, axis=1)  # pandas makes objects of its own and Arrow's dtypes
    texts = [x for x, part in zip(columns, parts, strict=True) if part.dtype.kind not in "biufc"]
    raise DTypeError(
        "columns hold no numbers" if texts else "columns of bools and of numbers are mixed",
        received=_listed([_named(*column) for column in texts or columns]),
        expected="columns of numbers, or all of bools",
        hint="choose columns; ef.nn.StringLookup makes numbers of texts, .astype('float32') of "
        "Python's objects"
        if texts
        else ".astype('float32')",
    )


def _columns(obj: Any) -> Iterable[tuple[Any, Any]]:
    """Names and series."""
    if hasattr(obj, "iter_columns"):  # polars
        return ((column.name, column) for column in obj.iter_columns())
    if hasattr(obj, "itercolumns"):  # Arrow
        return zip(obj.column_names, obj.itercolumns(), strict=True)
    if hasattr(obj, "columns"):  # pandas
        found: Iterable[tuple[Any, Any]] = obj.items()
        return found
    return [(getattr(obj, "name", None), obj)]


def _missing(column: Any) -> int:
    """The number of missing values; NaN in NumPy's dtypes is a value."""
    if hasattr(column, "null_count"):
        count = column.null_count
        return int(count() if callable(count) else count)
    return 0 if isinstance(column.dtype, np.dtype) else int(column.isna().sum())


def _named(name: Any, column: Any) -> str:
    dtype = column.dtype if hasattr(column, "dtype") else column.type
    return f"a series: {dtype}" if name is None else f"{name!r}: {dtype}"


def _listed(parts: list[str]) -> str:
    more = f"; and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return "; ".join(parts[:_SHOWN]) + more
