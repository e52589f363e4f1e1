"""Functions of a few instructions: signs, tests, roots and integer division."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.codegen.functions.parts import at_least
from eagerflow.codegen.instructions import is_float

__all__ = [
    "BOUNDS",
    "floor_divide",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "nextafter",
    "reciprocal",
    "remainder",
    "rsqrt",
    "sign",
    "signbit",
    "square",
]

BOUNDS = {"hypot": (2.0, 2.0), "reciprocal": (0.5, 0.5), "rsqrt": (1.0, 1.0)}


def _bits(s: Any, x: Any) -> tuple[Any, str]:
    """The bits of a float, and the type that holds them."""
    kind = "int64" if x.dtype == "float64" else "int32"
    return s.bitcast(x, kind), kind


def square(s: Any, x: Any) -> Any:
    """x²."""
    return s.multiply(x, x)


def reciprocal(s: Any, x: Any) -> Any:
    """1 / x, correctly rounded."""
    return s.divide(s.constant(1, x.dtype), x)


def rsqrt(s: Any, x: Any) -> Any:
    """1 / sqrt(x), within 1 unit in the last place.

    sqrt(1 / x) halves the error of the quotient, while 1 / sqrt(x) keeps that of the root. Powers
    of 4 keep the quotient of very small and large numbers in the normal range.
    """
    x = at_least(s, x, -1)  # for -inf, whose reciprocal has a root
    low = s.less(x, 1)
    shift, back = (
        s.select(low, s.constant(2.0**power, x.dtype), 2.0**-power)
        for power in ((24, 12) if x.dtype == "float32" else (54, 27))
    )
    quotient = s.divide(s.constant(1, x.dtype), s.multiply(x, shift))
    root = s.multiply(s.sqrt(quotient), back)
    return s.select(s.equal(x, 0), quotient, root)


def sign(s: Any, x: Any) -> Any:
    """-1, 0 or 1; NaN stays."""
    zero = s.constant(0, x.dtype)
    one = s.constant(1, x.dtype)
    above = s.select(s.greater(x, 0), one, zero if not is_float(x.dtype) else x)
    if x.dtype.startswith("u"):
        return above
    if x.dtype == "bool":
        return x
    # A float that is neither above nor below zero is ±0 or NaN, and NumPy gives +0 for -0.
    middle = s.select(s.equal(x, 0), zero, above) if is_float(x.dtype) else above
    return s.select(s.less(x, 0), s.constant(-1, x.dtype), middle)


def isnan(s: Any, x: Any) -> Any:
    """Whether it is NaN."""
    return s.not_equal(x, x)


def isinf(s: Any, x: Any) -> Any:
    """Whether it is infinite."""
    return s.equal(s.abs(x), float("inf"))


def isfinite(s: Any, x: Any) -> Any:
    """Whether it is neither infinite nor NaN."""
    return s.less(s.abs(x), float("inf"))


def signbit(s: Any, x: Any) -> Any:
    """Whether the sign bit is set, as in -0."""
    bits, _ = _bits(s, x)
    return s.less(bits, 0)


def hypot(s: Any, x: Any, y: Any) -> Any:
    """sqrt(x^2 + y^2), within 2 units in the last place.

    Large and small numbers are scaled, so that no square overflows or is denormal; infinity if one
    of them is infinite, even if the other one is NaN.
    """
    high, low, shift = (60, -40, 90) if x.dtype == "float32" else (500, -400, 700)
    x, y = s.abs(x), s.abs(y)
    swapped = s.less(x, y)
    larger, smaller = s.select(swapped, y, x), s.select(swapped, x, y)
    huge, tiny = s.greater(larger, 2.0**high), s.less(larger, 2.0**low)
    one = s.constant(1, x.dtype)
    scale = s.select(huge, 2.0**-shift, s.select(tiny, 2.0**shift, one))
    back = s.select(huge, 2.0**shift, s.select(tiny, 2.0**-shift, one))
    larger, smaller = s.multiply(larger, scale), s.multiply(smaller, scale)
    root = s.sqrt(s.fma(larger, larger, s.multiply(smaller, smaller)))
    infinite = s.logical_or(s.equal(x, math.inf), s.equal(y, math.inf))
    return s.select(infinite, math.inf, s.multiply(root, back))


def nextafter(s: Any, x: Any, y: Any) -> Any:
    """The next number after x in the direction of y; y if they are equal."""
    bits, kind = _bits(s, x)
    # The bits of floats of one sign are ordered like their magnitudes.
    inward = s.not_equal(s.less(x, y), s.greater(x, 0))
    step = s.select(inward, s.constant(-1, kind), 1)
    moved = s.bitcast(s.add(bits, step), x.dtype)
    least = s.bitcast(s.constant(1, kind), x.dtype)
    moved = s.select(s.equal(x, 0), s.copysign(least, y), moved)
    undefined = s.logical_or(s.isnan(x), s.isnan(y))
    return s.select(undefined, s.add(x, y), s.select(s.equal(x, y), y, moved))


def _both(s: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands, one of which may be a Python number."""
    if isinstance(a, (int, float)):
        return s.constant(a, b.dtype), b
    if isinstance(b, (int, float)):
        return a, s.constant(b, a.dtype)
    return a, b


def _against(s: Any, rest: Any, divisor: Any) -> Any:
    """Whether a remainder is not 0 and its sign differs from that of the divisor."""
    differ = s.not_equal(s.less(rest, 0), s.less(divisor, 0))
    return s.logical_and(s.not_equal(rest, 0), differ)


def floor_divide(s: Any, a: Any, b: Any) -> Any:
    """The quotient a / b rounded down, as in NumPy: by 0 it is a / b of floats, 0 of integers."""
    a, b = _both(s, a, b)
    if not is_float(b.dtype):
        quotient = s.quotient(a, b)
        rest = s.subtract(a, s.multiply(quotient, b))
        down = s.select(_against(s, rest, b), s.subtract(quotient, 1), quotient)
        return s.select(s.equal(b, 0), 0, down)
    rest = s.fmod(a, b)
    ratio = s.divide(a, b)
    whole = s.divide(s.subtract(a, rest), b)
    whole = s.select(_against(s, rest, b), s.subtract(whole, 1), whole)
    # It is an integer up to rounding.
    down = s.floor(whole)
    down = s.select(s.greater(s.subtract(whole, down), 0.5), s.add(down, 1), down)
    zero = s.copysign(s.constant(0, b.dtype), ratio)
    down = s.select(s.equal(whole, 0), zero, down)
    return s.select(s.equal(b, 0), ratio, down)


def remainder(s: Any, a: Any, b: Any) -> Any:
    """The remainder of floor_divide, with the sign of b: by 0, NaN for floats, 0 for integers."""
    a, b = _both(s, a, b)
    if not is_float(b.dtype):
        rest = s.subtract(a, s.multiply(s.quotient(a, b), b))
        rest = s.select(_against(s, rest, b), s.add(rest, b), rest)
        return s.select(s.equal(b, 0), 0, rest)
    rest = s.fmod(a, b)
    zero = s.copysign(s.constant(0, b.dtype), b)
    rest = s.select(_against(s, rest, b), s.add(rest, b), rest)
    return s.select(s.equal(rest, 0), zero, rest)
