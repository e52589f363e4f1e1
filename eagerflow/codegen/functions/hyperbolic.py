"""Hyperbolic functions and their inverses, from e^x - 1 and log(1 + x)."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.codegen.functions.exponential import reduced_exp, scaled_expm1
from eagerflow.codegen.functions.logarithm import log_one_plus
from eagerflow.codegen.functions.parts import FORMATS, at_most, power_of_two, quick_two_sum

__all__ = ["BOUNDS", "acosh", "asinh", "atanh", "cosh", "sinh", "tanh"]

BOUNDS = dict.fromkeys(("acosh", "asinh", "atanh", "cosh", "sinh", "tanh"), (2.0, 2.0))

# From here on sinh and cosh overflow; a quarter of e^x does not yet.
_LIMIT = {"float32": 89.5, "float64": 710.6}
# Beyond these, x^2 + 1 rounds to x^2, with a wide margin.
_LARGE = {"float32": 2.0**28, "float64": 2.0**60}


def tanh(s: Any, x: Any) -> Any:
    """The hyperbolic tangent, within 2 units in the last place: q = m / (m + 2), m = e^2|x| - 1.

    For small x, it is m / 2 - (m / 2) q: there the rounding errors of q are negligible.
    """
    away = s.abs(x)
    # From 10 or 20 on the result rounds to 1.
    double = at_most(s, s.add(away, away), 20.0 if x.dtype == "float32" else 40.0)
    m = scaled_expm1(s, double, 0)
    quotient = s.divide(m, s.add(m, 2))
    half = s.multiply(m, 0.5)
    near = s.fma(s.negative(half), quotient, half)
    return s.copysign(s.select(s.less(away, 0.5), near, quotient), x)


def sinh(s: Any, x: Any) -> Any:
    """The hyperbolic sine, within 2 units in the last place: 2 (h + q), q = h / (4 h + 1).

    h is a quarter of e^|x| - 1, so that it overflows only if the result does. For small x it
    is 2 (2 h - 4 h q): there the rounding errors of q hardly matter.
    """
    size = s.abs(x)
    quarter = scaled_expm1(s, at_most(s, size, _LIMIT[x.dtype]), 2)
    quotient = s.divide(quarter, s.fma(quarter, 4, 1))
    near = s.fma(s.multiply(quarter, -4), quotient, s.add(quarter, quarter))
    half = s.select(s.less(size, 0.4), near, s.add(quarter, quotient))
    total = s.copysign(s.add(half, half), x)
    return s.select(s.less(size, 2.0**-40), x, total)


def cosh(s: Any, x: Any) -> Any:
    """The hyperbolic cosine, within 2 units in the last place: 2 (p + 1 / 16 p), p = e^|x| / 4."""
    size = at_most(s, s.abs(x), _LIMIT[x.dtype])
    p, _, bits = reduced_exp(s, size, FORMATS[x.dtype].bias - 2)
    quarter = s.multiply(p, power_of_two(s, bits, x.dtype))
    total = s.add(quarter, s.divide(s.constant(0.0625, x.dtype), quarter))
    return s.add(total, total)


def asinh(s: Any, x: Any) -> Any:
    """The inverse of sinh, within 2 units in the last place: log(1 + |x| + (sqrt(x^2 + 1) - 1)).

    sqrt(x^2 + 1) - 1 is x^2 / (1 + sqrt(x^2 + 1)); for large x it is log|x| + log 2.
    """
    size = s.abs(x)
    large = s.greater(size, _LARGE[x.dtype])
    square = s.multiply(size, size)
    rest = s.divide(square, s.add(s.sqrt(s.add(square, 1)), 1))
    argument = s.select(large, size, s.add(size, rest))
    doublings = s.select(large, s.constant(1, x.dtype), 0)
    result = log_one_plus(s, argument, doublings=doublings)
    return s.copysign(s.select(s.less(size, math.inf), result, size), x)


def acosh(s: Any, x: Any) -> Any:
    """The inverse of cosh, within 2 units in the last place: log(1 + t + sqrt(2 t + t^2)).

    t is x - 1; for large x it is log(1 + t) + log 2. NaN below 1.
    """
    large = s.greater(x, _LARGE[x.dtype])
    t = s.subtract(x, 1)
    root = s.sqrt(s.fma(t, t, s.add(t, t)))
    argument, rest = quick_two_sum(s, root, t)
    argument, rest = s.select(large, t, argument), s.select(large, 0, rest)
    doublings = s.select(large, s.constant(1, x.dtype), 0)
    result = log_one_plus(s, argument, rest, doublings)
    result = s.select(s.less(x, 1), math.nan, result)
    return s.select(s.less(x, math.inf), result, x)


def atanh(s: Any, x: Any) -> Any:
    """The inverse of tanh, within 2 units in the last place: log(1 + 2 (a + a^2 / (1 - a))) / 2.

    a is |x|. Infinite at -1 and 1, NaN beyond.
    """
    size = s.abs(x)
    double = s.add(size, size)
    argument = s.fma(double, s.divide(size, s.subtract(1, size)), double)
    result = s.multiply(log_one_plus(s, argument), 0.5)
    border = s.select(s.equal(size, 1), s.constant(math.inf, x.dtype), math.nan)
    return s.copysign(s.select(s.less(size, 1), result, border), x)
