"""``numpy.pad``: with values for each side, with statistics of the axis, with ramps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dtypes import INTEGERS, is_complex
from eagerflow.errors import KeywordError, ShapeError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import full
from eagerflow.ops.creation.ranges import linspace
from eagerflow.ops.elementwise.arithmetic import add, multiply, subtract
from eagerflow.ops.elementwise.rounding import floor, round
from eagerflow.ops.reductions.accumulation import part_of
from eagerflow.ops.reductions.quantiles import median
from eagerflow.ops.reductions.statistics import mean
from eagerflow.ops.reductions.sums import max, min
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.padding import MODES, flip, pad, pad_widths
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape

__all__ = ["FUNCTIONS"]

_STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": max,
    "mean": mean,
    "median": median,
    "minimum": min,
}


def _pad(
    array: Any,
    pad_width: Any,
    mode: Any = "constant",
    stat_length: Any = None,
    constant_values: Any = None,
    end_values: Any = None,
    reflect_type: Any = None,
) -> Any:
    x = as_tensor(array)
    given = {
        "constant_values": constant_values,
        "end_values": end_values,
        "reflect_type": reflect_type,
        "stat_length": stat_length,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if not isinstance(pad_width, int | tuple | list):
        pad_width = np.asarray(pad_width).tolist()
    if mode == "empty":
        return pad(x, pad_width)
    if mode in _STATISTICS:
        lengths = _for_each_side(options, "stat_length", None, x.ndim)
        return _by_sides(x, pad_width, lengths, _statistic(_STATISTICS[mode]))
    if mode == "linear_ramp":
        ends = _for_each_side(options, "end_values", 0, x.ndim)
        return _by_sides(x, pad_width, ends, _ramp)
    if mode == "constant" and isinstance(constant_values, tuple | list | np.ndarray):
        values = _for_each_side(options, "constant_values", 0, x.ndim)
        return _by_sides(x, pad_width, values, _constant)
    if mode not in MODES:
        raise KeywordError(
            f"{short_repr(mode)} is not taken",
            op="pad",
            argument="mode",
            expected="one of " + ", ".join(sorted((*MODES, *_STATISTICS, "empty", "linear_ramp"))),
        )
    if options.get("reflect_type") == "even":
        del options["reflect_type"]
    _check_left(options, ("constant_values",))
    return pad(x, pad_width, mode, **options)


def _check_left(options: dict[str, Any], known: tuple[str, ...]) -> None:
    for name, value in options.items():
        if name not in known:
            raise KeywordError(f"{short_repr(value)} is not taken", op="pad", argument=name)


def _for_each_side(options: dict[str, Any], name: str, default: Any, rank: int) -> Any:
    """A pair for each axis, of an option in all forms that NumPy takes."""
    _check_left(options, (name,))
    given = np.asarray(options.get(name, default))
    try:
        return np.broadcast_to(given, (rank, 2)).tolist()
    except raised_here(ValueError):
        raise ShapeError(
            f"shape {given.shape} does not give a pair for each of {rank} axes",
            op="pad",
            argument=name,
        ) from None


def _by_sides(x: Any, pad_width: Any, given: Any, block: Callable[..., Any]) -> Any:
    """Each axis in turn with ``block(x, at, ahead, width, option)`` before and after it."""
    for at, (widths, options) in enumerate(zip(pad_widths(pad_width, x.ndim), given, strict=True)):
        if any(widths) and x.shape[at] == 0 and block is not _constant:
            raise ShapeError(f"axis {at} has no elements to pad with", op="pad", argument="array")
        sides = zip((True, False), widths, options, strict=True)
        before, behind = (
            [block(x, at, ahead, width, option)] if width else [] for ahead, width, option in sides
        )
        x = concat([*before, x, *behind], axis=at)
    return x


def _constant(x: Any, at: int, ahead: bool, width: int, value: Any) -> Any:
    shape = (*x.shape[:at], width, *x.shape[at + 1 :])
    return full(shape, value, x.dtype, str(x.device))


def _statistic(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Blocks of a statistic of the ``length`` elements that are nearest, or of all."""

    def block(x: Any, at: int, ahead: bool, width: int, length: Any) -> Any:
        if length is not None and (type(length) is not int or length < 1):
            raise KeywordError(
                f"{short_repr(length)} is not a number of elements",
                op="pad",
                argument="stat_length",
            )
        near = x if length is None else _end(x, at, ahead, length)
        return _repeated(_like(reduce(near, axis=at, keepdims=True), x, round), at, width)

    return block


def _ramp(x: Any, at: int, ahead: bool, width: int, last: Any) -> Any:
    """Steps from the value at the end to the element that is nearest."""
    wide = "complex128" if is_complex(x.dtype) else "float64"
    shares = linspace(0, 1, width, endpoint=False, dtype="float64", device=str(x.device))
    shares = reshape(shares if ahead else flip(shares), (width, *(1,) * (x.ndim - 1 - at)))
    edge = astype(_end(x, at, ahead, 1), wide)
    return _like(add(multiply(subtract(edge, last), shares), last), x, floor)


def _end(x: Any, at: int, ahead: bool, length: int) -> Any:
    return part_of(x, at, None, length) if ahead else part_of(x, at, -length, None)


def _repeated(x: Any, at: int, width: int) -> Any:
    return broadcast_to(x, (*x.shape[:at], width, *x.shape[at + 1 :]))


def _like(y: Any, x: Any, whole: Callable[..., Any]) -> Any:
    """In the dtype of ``x``; ``whole`` rounds other numbers to integers."""
    if y.dtype == x.dtype:
        return y
    return astype(whole(y) if x.dtype in INTEGERS else y, x.dtype)


FUNCTIONS: dict[str, Callable[..., Any]] = {"pad": _pad}
