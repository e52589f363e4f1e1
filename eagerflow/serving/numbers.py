"""Numbers of requests, converted to arrays of an input's dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.errors import DTypeError

__all__ = ["array_of"]


def array_of(data: Any, dtype: Any, argument: str, op: str | None = None) -> Any:
    """Nested lists of Python numbers as an array; DTypeError if they do not fit the dtype.

    >>> from eagerflow.serving.numbers import array_of
    >>> array_of([[1, 2.0]], np.dtype("int64"), "x")
    array([[1, 2]])
    """
    try:
        array = np.asarray(data)
    except (ValueError, OverflowError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" and array.size:
        raise DTypeError(
            "the values are not numbers, or their lists differ in length",
            op=op,
            argument=argument[:80],
            received=str(data)[:80],
            expected=f"numbers of {dtype.name}",
        )
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):
        made = array.astype(dtype)
    if dtype.kind in "biu" and not bool((made == array).all()):
        raise DTypeError(
            f"a number does not fit {dtype.name}",
            op=op,
            argument=argument[:80],
            received=str(data)[:80],
        )
    return made
