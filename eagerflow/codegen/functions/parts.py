"""Parts of elementary functions: polynomials, clamps, and decompositions of numbers.

All are straight-line code of a few scalar instructions. Adding 1.5 * 2^p (p: the stored bits of the
significand) to a number of small magnitude rounds it to an integer, and leaves that integer in the
low bits of the sum: so rounding and conversion cost one addition each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "FORMATS",
    "LN2",
    "Format",
    "at_least",
    "at_most",
    "frexp_near_one",
    "horner",
    "nearest",
    "power_of_two",
    "quick_two_sum",
    "scaled",
    "two_powers",
    "two_product",
    "two_sum",
]


class Format(NamedTuple):
    """A format of IEEE 754: stored bits of the significand, exponent bias, integers of its size."""

    bits: int
    bias: int
    integer: str
    unsigned: str

    @property
    def shifter(self) -> float:
        """1.5 * 2^bits; adding it rounds to an integer."""
        return 1.5 * 2.0**self.bits

    @property
    def smallest_normal(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)


FORMATS = {
    "float32": Format(23, 127, "int32", "uint32"),
    "float64": Format(52, 1023, "int64", "uint64"),
}

# ln 2 as the sum of the nearest number of the type and a correction.
LN2 = {
    "float32": (0.693147182464599609375, -1.904654299957768e-09),
    "float64": (0.6931471805599453, 2.3190468138462996e-17),
}


def horner(s: Any, x: Any, coefficients: Sequence[float]) -> Any:
    """The polynomial with these coefficients, the constant one first."""
    *rest, second, first = coefficients
    total = s.fma(x, first, second)
    for coefficient in reversed(rest):
        total = s.fma(total, x, coefficient)
    return total


def at_least(s: Any, x: Any, low: float) -> Any:
    """The larger of x and a constant; NaN stays. One instruction, unlike ``maximum``."""
    return s.select(s.less(x, low), low, x)


def at_most(s: Any, x: Any, high: float) -> Any:
    """The smaller of x and a constant; NaN stays."""
    return s.select(s.greater(x, high), high, x)


def two_product(s: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """A product and its rounding error."""
    high = s.multiply(a, b)
    return high, s.fma(a, b, s.negative(high))


def quick_two_sum(s: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """A sum and its rounding error, where |a| is at least |b|, or a is 0 (Dekker 1971)."""
    high = s.add(a, b)
    return high, s.add(s.subtract(a, high), b)


def two_sum(s: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """A sum and its rounding error, in any order of magnitude (Knuth, TAOCP volume 2, 4.2.2)."""
    total = s.add(a, b)
    other = s.subtract(total, a)
    return total, s.add(s.subtract(a, s.subtract(total, other)), s.subtract(b, other))


def nearest(s: Any, x: Any, factor: float, offset: int) -> tuple[Any, Any]:
    """The integer n nearest to x * factor, and an unsigned one with n + offset in its low bits."""
    shifter = FORMATS[x.dtype].shifter + offset
    shifted = s.add(x, shifter) if factor == 1 else s.fma(x, factor, shifter)
    return s.subtract(shifted, shifter), s.bitcast(shifted, FORMATS[x.dtype].unsigned)


def power_of_two(s: Any, bits: Any, dtype: str) -> Any:
    """2^n, from low bits that hold n + bias."""
    return s.bitcast(s.bitwise_left_shift(bits, FORMATS[dtype].bits), dtype)


def two_powers(s: Any, bits: Any, dtype: str) -> tuple[Any, Any]:
    """Two numbers with the product 2^n, from low bits that hold n + 2 * bias.

    Neither overflows nor is denormal if n is the exponent of a number of the type, so that only the
    second of two multiplications rounds.
    """
    half = s.bitwise_right_shift(bits, 1)
    return power_of_two(s, half, dtype), power_of_two(s, s.subtract(bits, half), dtype)


def scaled(s: Any, y: Any, n: Any, bits: Any) -> Any:
    """The number y * 2^n, rounded once; n is given as a float, and as low bits that hold n + 2 *
    bias.

    Some processors have an instruction for it, with the same bits.
    """
    scale = getattr(s, "scale", None)
    found = None if scale is None else scale(y, n)
    if found is not None:
        return found
    first, second = two_powers(s, bits, y.dtype)
    return s.multiply(s.multiply(y, first), second)


def frexp_near_one(s: Any, x: Any, low: float, denormal: bool = True) -> tuple[Any, Any]:
    """A positive number as 2^n * m with m in [low, 2 * low): n as a float, and m.

    ``low`` is between 1/2 and 1; ``denormal`` is whether x can be denormal. For 0, negative
    numbers, infinity and NaN the result is arbitrary.
    """
    form = FORMATS[x.dtype]
    grow, offset = form.bits + 1, form.bias + form.bits + 10
    first = _bits_of(low, x.dtype)
    by: Any = (offset << form.bits) - first
    if denormal:
        small = s.less(x, form.smallest_normal)
        x = s.select(small, s.multiply(x, 2.0**grow), x)
        less = s.constant(by - (grow << form.bits), form.unsigned)
        by = s.select(small, less, by)
    moved = s.add(s.bitcast(x, form.unsigned), by)
    # An integer in the low bits of the shifter, read as a float: converted by one subtraction.
    exponent = s.bitwise_right_shift(moved, form.bits)
    exponent = s.bitwise_or(exponent, _bits_of(form.shifter, x.dtype))
    n = s.subtract(s.bitcast(exponent, x.dtype), form.shifter + offset)
    significand = s.add(s.bitwise_and(moved, (1 << form.bits) - 1), first)
    return n, s.bitcast(significand, x.dtype)


def _bits_of(value: float, dtype: str) -> int:
    return int(np.array(value, dtype).view(FORMATS[dtype].unsigned))
