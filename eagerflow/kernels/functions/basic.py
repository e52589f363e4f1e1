"""Functions that are a few instructions: signs, tests, roots and integer division."""

from __future__ import annotations

from typing import Any

from eagerflow.kernels.functions.parts import at_least
from eagerflow.kernels.scalar import is_float

__all__ = [
    "BOUNDS", "isfinite", "isinf", "isnan", "reciprocal", "rsqrt", "sign", "signbit", "square",
]  # fmt: skip

BOUNDS = {"reciprocal": (0.5, 0.5), "rsqrt": (1.0, 1.0)}


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
    """Whether it is no number."""
    return s.not_equal(x, x)


def isinf(s: Any, x: Any) -> Any:
    """Whether it is infinite."""
    return s.equal(s.abs(x), float("inf"))


def isfinite(s: Any, x: Any) -> Any:
    """Whether it is neither infinite nor NaN."""
    return s.less(s.abs(x), float("inf"))


def signbit(s: Any, x: Any) -> Any:
    """Whether the sign is set, as it is in -0."""
    bits, _ = _bits(s, x)
    return s.less(bits, 0)
