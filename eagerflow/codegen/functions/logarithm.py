"""Logarithms.

x = 2^n m with m near 1; log m is a minimax polynomial in f = m - 1 (float32), or one in
q = f / (2 + f) as in fdlibm's e_log.c (float64). The polynomials for float32 were found with
Remez's algorithm, each coefficient rounded before the next ones were fitted.
"""

from __future__ import annotations

import math
from typing import Any

from eagerflow.codegen.functions.parts import (
    FORMATS,
    frexp_near_one,
    horner,
    quick_two_sum,
    two_product,
)

__all__ = ["BOUNDS", "log", "log10", "log1p", "log2"]

BOUNDS = {"log": (1.0, 1.0), "log10": (1.0, 1.0), "log1p": (2.0, 2.0), "log2": (1.0, 1.0)}

# (log(1 + f) - f) / f^2, for the natural logarithm and for those to other bases; 1 + f is from
# sqrt(1/2) to sqrt(2).
_LOG32 = (
    -0.49999988,
    0.33333325,
    -0.25001583,
    0.20001973,
    -0.16609086,
    0.14181834,
    -0.13242969,
    0.12904374,
    -0.076217435,
)
_OTHER32 = {
    2: (
        -0.72134733,
        0.4808982,
        -0.36069867,
        0.28857142,
        -0.23956767,
        0.20448683,
        -0.19138806,
        0.18708515,
        -0.11025933,
    ),
    10: (
        -0.21714719,
        0.14476478,
        -0.108580895,
        0.08686867,
        -0.07212275,
        0.06155965,
        -0.05756629,
        0.056278992,
        -0.033263624,
    ),
}
# fdlibm: (log(1 + f) / q - 2) / q^2 + ... in powers of q^2
_LOG64 = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
# The least m: with it, no sum n log 2 + log m suffers from cancellation.
_LOWEST = math.sqrt(0.5)
# ln 2 with so few bits that n times it is exact, and the remainder.
_LN2_SHORT = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
# log10(2) likewise.
_LOG10_2_SHORT = {
    "float32": (0.301025390625, 4.605038981195214e-06),
    "float64": (3.01029995663611771306e-01, 3.69423907715893078616e-13),
}
# 1 / ln(base): the nearest number of the type, and the remainder.
_SCALES = {
    (2, "float32"): (1.4426950216293335, 1.9259629911266175e-08),
    (2, "float64"): (1.4426950408889634, 2.0355273740931033e-17),
    (10, "float32"): (0.4342944920063019, -1.0103050052231683e-08),
    (10, "float64"): (0.4342944819032518, 1.098319650216765e-17),
}


def _reduced(s: Any, x: Any) -> tuple[Any, Any]:
    """Numbers n and f with x = 2^n (1 + f)."""
    n, m = frexp_near_one(s, x, _LOWEST)
    return n, s.subtract(m, 1)


def _tail(s: Any, f: Any) -> tuple[Any, Any]:
    """log(1 + f) = f - h + t with h = f^2 / 2, for float64: h and t."""
    half_square = s.multiply(s.multiply(f, 0.5), f)
    q = s.divide(f, s.add(f, 2))
    z = s.multiply(q, q)
    inner = s.fma(z, horner(s, z, _LOG64), half_square)
    return half_square, s.multiply(q, inner)


def _log_of_product(s: Any, n: Any, f: Any, f_low: Any = None) -> Any:
    """The logarithm of 2^n (1 + f + f_low), for a reduced f."""
    if f.dtype == "float32":
        curved = horner(s, f, _LOG32)
        square = s.multiply(f, f)
        if f_low is None:
            return s.fma(n, math.log(2), s.fma(square, curved, f))
        return s.fma(n, math.log(2), s.add(f, s.fma(square, curved, f_low)))
    high, low = _LN2_SHORT
    half_square, tail = _tail(s, f)
    total, lost = quick_two_sum(s, s.multiply(n, high), f)
    if f_low is not None:
        lost = s.add(lost, f_low)
    return s.add(total, s.add(lost, s.subtract(s.fma(n, low, tail), half_square)))


def _with_borders(s: Any, x: Any, inside: Any, least: float = 0) -> Any:
    """Special cases of a logarithm: -inf at the lower bound, NaN below, and infinity and NaN."""
    outside = s.select(s.equal(x, least), s.constant(-math.inf, x.dtype), math.nan)
    inside = s.select(s.equal(x, math.inf), x, inside)
    return s.select(s.greater(x, least), inside, outside)


def log(s: Any, x: Any) -> Any:
    """The natural logarithm, within 1 unit in the last place."""
    return _with_borders(s, x, _log_of_product(s, *_reduced(s, x)))


def log2(s: Any, x: Any) -> Any:
    """The logarithm to base 2, within 1 unit in the last place."""
    return _log_to_base(s, x, 2)


def log10(s: Any, x: Any) -> Any:
    """The logarithm to base 10, within 1 unit in the last place."""
    return _log_to_base(s, x, 10)


def _log_to_base(s: Any, x: Any, base: int) -> Any:
    """The sum of n log(2) and log(1 + f), the latter and 1 / ln(base) as sums of two numbers."""
    n, f = _reduced(s, x)
    high, low = _SCALES[base, x.dtype]
    if x.dtype == "float32":
        product, rest = two_product(s, f, s.constant(high, x.dtype))
        square, square_low = two_product(s, f, f)
        curved = horner(s, f, _OTHER32[base])
        rest = s.fma(square_low, curved, s.fma(f, low, rest))
        rest = s.fma(square, curved, rest)
    else:
        half_square, tail = _tail(s, f)
        first, lost = quick_two_sum(s, f, s.negative(half_square))
        second = s.add(lost, tail)
        product, rest = two_product(s, first, s.constant(high, x.dtype))
        rest = s.fma(second, high, s.fma(first, low, rest))
    if base != 2:
        two, two_low = _LOG10_2_SHORT[x.dtype]
        rest = s.fma(n, two_low, rest)
        n = s.multiply(n, two)
    total, lost = quick_two_sum(s, n, product)
    return _with_borders(s, x, s.add(total, s.add(lost, rest)))


def log1p(s: Any, x: Any) -> Any:
    """log(1 + x), within 2 units in the last place."""
    inside = s.copysign(log_one_plus(s, x), x)
    return _with_borders(s, x, inside, -1)


def log_one_plus(s: Any, x: Any, rest: Any = None, doublings: Any = None) -> Any:
    """log(1 + x + rest) + doublings * ln 2, for finite x above -1; for -0 it is 0.

    The rounding error of 1 + x is added to the reduced f, as in fdlibm's s_log1p.c.
    """
    form = FORMATS[x.dtype]
    total = s.add(x, 1)
    lost = s.subtract(x, s.subtract(total, 1))
    n, m = frexp_near_one(s, total, _LOWEST, denormal=False)
    n = n if doublings is None else s.add(n, doublings)
    # 4 / 2^n, from the change of the exponent's bits: 1 / 2^n can underflow.
    moved = s.subtract(s.bitcast(m, form.unsigned), s.bitcast(total, form.unsigned))
    scale = s.bitcast(s.add(moved, (form.bias + 2) << form.bits), x.dtype)
    if rest is None:
        return _log_of_product(s, n, s.fma(s.multiply(lost, scale), 0.25, s.subtract(m, 1)))
    lost = s.multiply(s.multiply(s.add(lost, rest), scale), 0.25)
    return _log_of_product(s, n, *quick_two_sum(s, s.subtract(m, 1), lost))
