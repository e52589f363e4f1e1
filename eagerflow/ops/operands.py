"""Checks and conversions of arguments of functions made of ops."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from eagerflow.dtypes import BOOL, FLOATS, INTEGERS, NARROW, REAL, default_dtype
from eagerflow.dtypes import float32 as single
from eagerflow.errors import ArgumentError, CaptureError, DTypeError, ShapeError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.ops.creation.cast import astype

__all__ = [
    "as_wide_integers",
    "chosen",
    "floating",
    "real_numbers",
    "vector",
    "whole_number",
    "wide",
]


def _refuse(x: Any, argument: str, allowed: Any) -> None:
    raise DTypeError(
        f"dtype {x.dtype.name} is not taken",
        argument=argument,
        expected="one of " + ", ".join(sorted(t.name for t in allowed)),
        hint=f"{argument}.astype(...)",
    )


def as_wide_integers(x: Any) -> Any:
    """Integers of fewer than 64 bits, and bools, as int64, which holds their differences."""
    narrow = x.dtype in BOOL | INTEGERS and x.dtype.itemsize < default_dtype(int).itemsize
    return astype(x, default_dtype(int)) if narrow else x


def floating(x: Any, argument: str = "x", allowed: Any = FLOATS) -> Any:
    """A tensor of floats, converted from integers and bools; DTypeError for other dtypes."""
    if x.dtype in allowed:
        return x
    if x.dtype not in BOOL | INTEGERS:
        _refuse(x, argument, allowed)
    return astype(x, default_dtype(float))


def real_numbers(x: Any, argument: str = "x", allowed: Any = REAL | BOOL) -> Any:
    """A tensor of one of the allowed dtypes, unchanged; DTypeError for other dtypes."""
    if x.dtype not in allowed:
        _refuse(x, argument, allowed)
    return x


def wide(function: Callable[..., Any], *tensors: Any, **attributes: Any) -> Any:
    """``function`` on tensors with 16-bit floats cast to float32; its result is cast back.

    Otherwise each step would round.
    """
    small = next((x.dtype for x in tensors if x is not None and x.dtype in NARROW), None)
    if small is None:
        return function(*tensors, **attributes)
    given = [astype(x, single) if x is not None and x.dtype in NARROW else x for x in tensors]
    found = function(*given, **attributes)
    if type(found) is tuple:
        return tuple(astype(y, small) if y.dtype == single else y for y in found)
    return astype(found, small) if found.dtype == single else found


def vector(x: Any, argument: str = "x") -> Any:
    """A tensor with one axis; ShapeError for other ranks."""
    if x.ndim != 1:
        raise ShapeError(f"{x.ndim} axes, where one is needed", argument=argument)
    return x


def whole_number(value: Any, argument: str, least: int | None = None) -> int:
    """A Python integer; ArgumentError for other values, and for one below the ``least``."""
    try:
        found = None if isinstance(value, bool) else index(value)
    except CaptureError:
        raise  # unknown values during tracing raise their own error
    except raised_here(TypeError):
        found = None
    if found is None or (least is not None and found < least):
        raise ArgumentError(
            f"{short_repr(value)} is not taken",
            argument=argument,
            expected="an integer" if least is None else f"an integer from {least} on",
        )
    return found


def chosen(value: Any, argument: str, choices: Any) -> Any:
    """One of some words or integers; ArgumentError for other values."""
    if type(value) not in (str, int) or value not in choices:
        raise ArgumentError(
            f"{short_repr(value)} is not one of them",
            argument=argument,
            expected=", ".join(repr(choice) for choice in choices),
        )
    return value
