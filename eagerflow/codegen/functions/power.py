"""x^y, as 2 to the power y log2 x, with the logarithm as a sum of two numbers."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.codegen.functions.exponential import EXP2
from eagerflow.codegen.functions.parts import (
    FORMATS,
    at_least,
    at_most,
    frexp_near_one,
    horner,
    nearest,
    quick_two_sum,
    scaled,
    two_product,
)

__all__ = ["BOUNDS", "power"]

BOUNDS = {"power": (2.0, 2.0)}

# (atanh(q) / q - 1 - q^2 / 3) / q^4 in powers of q^2, |q| <= 0.172; by Remez's algorithm.
_ATANH = {
    "float32": (0.20000076, 0.14273545, 0.117098354),
    "float64": (
        0.1999999999999999,
        0.14285714285721926,
        0.1111111110889265,
        0.09090909422342887,
        0.07692279186909072,
        0.06668133412610212,
        0.05837864955625923,
        0.05991100477156786,
    ),
}
# 1 / 3 and 2 / ln 2, each as the nearest number of the type and the rest.
_THIRD = {
    "float32": (0.3333333432674408, -9.934107462565104e-09),
    "float64": (0.3333333333333333, 1.850371707708594e-17),
}
_SCALE = {
    "float32": (2.885390043258667, 3.851925982253235e-08),
    "float64": (2.8853900817779268, 4.0710547481862066e-17),
}
# Exponents of 2 beyond these give 0 and infinity.
_RANGE = {"float32": (-152.0, 129.0), "float64": (-1077.0, 1025.0)}

_Pair = tuple[Any, Any]


def _product(s: Any, a: _Pair, b: _Pair) -> _Pair:
    """The product of two sums of two numbers (Dekker 1971)."""
    high, low = two_product(s, a[0], b[0])
    return high, s.fma(a[0], b[1], s.fma(a[1], b[0], low))


def _quotient(s: Any, f: Any, m: Any) -> _Pair:
    """The quotient f / (m + 1) with its error, where f = m - 1."""
    divisor = s.add(m, 1)
    lost = s.subtract(m, s.subtract(divisor, 1))
    inverse = s.divide(s.constant(1, m.dtype), divisor)
    high = s.multiply(f, inverse)
    rest = s.fma(s.negative(high), divisor, f)
    rest = s.fma(s.negative(high), lost, rest)
    return high, s.multiply(rest, inverse)


def log2_pair(s: Any, x: Any) -> _Pair:
    """The logarithm to base 2 of a positive number as a sum, accurate to about 10 more bits.

    log m = 2 (q + q^3 / 3 + q^5 / 5 + ...) with q = (m - 1) / (m + 1); the terms up to the third
    are computed with twice the digits.
    """
    n, m = frexp_near_one(s, x, math.sqrt(0.5))
    q = _quotient(s, s.subtract(m, 1), m)
    square = _product(s, q, q)
    third, third_low = _THIRD[x.dtype]
    tail = s.multiply(square[0], horner(s, square[0], _ATANH[x.dtype]))
    factor, lost = quick_two_sum(s, s.constant(third, x.dtype), tail)
    cubic = _product(s, _product(s, q, square), (factor, s.add(lost, third_low)))
    high, lost = quick_two_sum(s, q[0], cubic[0])
    scale, scale_low = (s.constant(part, x.dtype) for part in _SCALE[x.dtype])
    high, low = _product(s, (high, s.add(lost, s.add(q[1], cubic[1]))), (scale, scale_low))
    high, lost = quick_two_sum(s, n, high)
    return high, s.add(lost, low)


def _magnitude(s: Any, size: Any, y: Any) -> Any:
    """|x|^y; 0, infinity and NaN as for their logarithms."""
    high, low = log2_pair(s, size)
    high = s.select(s.less(size, math.inf), high, size)
    high = s.select(s.equal(size, 0), -math.inf, high)
    # Larger ones do not matter, but infinity times log 1 would be NaN.
    y = at_most(s, at_least(s, y, -(2.0**80)), 2.0**80)
    exponent, rest = two_product(s, y, high)
    rest = s.fma(y, low, rest)
    lowest, highest = _RANGE[size.dtype]
    rest = s.select(s.less(s.abs(exponent), 2 * highest), rest, 0)
    exponent = at_most(s, at_least(s, exponent, lowest), highest)
    n, bits = nearest(s, exponent, 1, 2 * FORMATS[size.dtype].bias)
    r = s.add(s.subtract(exponent, n), rest)
    p = s.fma(r, horner(s, r, EXP2[size.dtype]), 1)
    return scaled(s, p, n, bits)


def power(s: Any, x: Any, y: Any) -> Any:
    """x^y, within 2 units in the last place, with the special cases of C99 (F.9.4.4)."""
    size = s.abs(x)
    result = _magnitude(s, size, y)
    half = s.multiply(y, 0.5)
    whole = s.equal(s.floor(y), y)
    odd = s.logical_and(whole, s.not_equal(s.floor(half), half))
    result = s.select(odd, s.copysign(result, x), result)
    # Negative numbers, except -0 and -inf, only have powers with integer exponents.
    finite_negative = s.logical_and(s.less(x, 0), s.less(size, math.inf))
    undefined = s.logical_and(finite_negative, s.logical_not(whole))
    result = s.select(undefined, math.nan, result)
    one = s.logical_or(s.equal(x, 1), s.equal(y, 0))
    return s.select(one, 1, result)
