"""The gamma and beta functions, and parts of them for the incomplete functions."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.codegen.numpy import special
from eagerflow.primitives.special.pieces import choose, polynomial

FAR = 10.5  # from here on the asymptotic series has 17 digits
OVERFLOW = 171.7

# 1/gamma((3 + z) / 2) for z from -1 to 1, interpolated at Chebyshev points with 45 digits;
# in float64 the relative error is below 1.4e-16.
_RECIPROCAL_GAMMA = (
    1.1283791670955126,
    -0.02058726322264155,
    -0.13166360888138617,
    0.021887753255491794,
    0.0031854287654827,
    -0.0013173490427663696,
    0.00010332652853554406,
    1.6568214392791072e-05,
    -4.338790023175905e-06,
    2.9757348575235576e-07,
    2.476086975259896e-08,
    -6.785564183706895e-09,
    5.265033028381591e-10,
    7.08866291456305e-12,
    -5.494526824267024e-12,
    5.131033939660537e-13,
)


def stirling_remainder(x: Any) -> Any:
    """lgamma(x) minus Stirling's formula, for x >= 10.5 (Abramowitz and Stegun 6.1.41)."""
    return polynomial(special.STIRLING, 1 / (x * x)) / x


def _gamma_near(xp: Any, x: Any) -> Any:
    """Gamma of numbers from 0 to 10.5, by recurrence from the interval [1, 2]."""
    product = xp.ones_like(x)
    rest = x + 0
    for _ in range(9):
        step = rest >= 2
        rest = xp.where(step, rest - 1, rest)
        product = xp.where(step, product * rest, product)
    low = x < 1
    at = xp.where(low, x + 1, rest)
    inverse = polynomial(_RECIPROCAL_GAMMA, (at - 1.5) * 2) * xp.where(low, x, xp.ones_like(x))
    return product / inverse


def gamma_halves(xp: Any, x: Any) -> tuple[Any, Any]:
    """``(w, r)`` with gamma(x) = w·r·w, for x from 10.5 to 360, without overflow."""
    rest = xp.exp(-x) * xp.exp(stirling_remainder(x)) * math.sqrt(2 * math.pi)
    return x ** (0.5 * x - 0.25), rest


def _gamma_far(xp: Any, x: Any) -> Any:
    bounded = xp.where(x < OVERFLOW, x, xp.full_like(x, 2 * OVERFLOW))
    half, rest = gamma_halves(xp, bounded)
    return half * rest * half


def gamma_positive(xp: Any, x: Any) -> Any:
    """Gamma of nonnegative numbers."""
    pieces = [(x < FAR, _gamma_near, (1.0,)), (None, _gamma_far, (FAR,))]
    return choose(xp, pieces, x)


def _gamma_negative(xp: Any, x: Any) -> Any:
    """gamma(x) · gamma(-x) = -π / (x · sin πx), for x below 0."""
    size = -x
    fraction = size - xp.round(size)
    odd = xp.round(size) % 2 == 1
    wave = xp.sin(math.pi * fraction) * xp.where(odd, -xp.ones_like(x), xp.ones_like(x))

    def near(xp: Any, size: Any, wave: Any) -> Any:
        # Near 0, a squared magnitude would underflow.
        return -math.pi / wave / (size * _gamma_near(xp, size))

    def far(xp: Any, size: Any, wave: Any) -> Any:
        bounded = xp.where(size < 360, size, xp.full_like(size, 360.0))
        half, rest = gamma_halves(xp, bounded)
        return -math.pi / (wave * size) / half / rest / half

    pieces = [(size < FAR, near, (1.5, -1.0)), (None, far, (FAR, -1.0))]
    y = choose(xp, pieces, size, wave)
    return xp.where(fraction == 0, xp.full_like(x, math.nan), y)


def gamma(xp: Any, x: Any) -> Any:
    """The gamma function; infinite at 0 and -0, NaN at -1, -2 and so on."""
    pieces = [
        (x > 0, gamma_positive, (1.0,)),
        ((x < 0) & xp.isfinite(x), _gamma_negative, (-1.5,)),
        (x == 0, lambda xp, x: 1 / x, (1.0,)),
        (None, lambda xp, x: x * math.nan, (1.0,)),
    ]
    return choose(xp, pieces, x)


def lgamma1p(xp: Any, a: Any) -> Any:
    """lgamma(1 + a) for a from 0 to 1, accurate also near its zeros."""
    low = a < 0.5
    z = xp.where(low, a, a - 1)
    around = z * polynomial(special.LGAMMA_AT_2, z)
    return around - xp.where(low, xp.log1p(a), xp.zeros_like(a))


def log1pmx(xp: Any, x: Any) -> Any:
    """log(1 + x) - x for x >= -1, accurate also near 0.

    With r = x/(2 + x), log(1 + x) is 2 artanh(r), and x - 2r is x·r.
    """

    def near(xp: Any, x: Any) -> Any:
        r = x / (2 + x)
        square = r * r
        series = polynomial([2 / (2 * k + 3) for k in range(17)], square)
        return r * (square * series - x)

    pieces = [
        ((x > -0.5) & (x < 1), near, (0.0,)),
        (None, lambda xp, x: xp.log1p(x) - x, (1.0,)),
    ]
    return choose(xp, pieces, x)


# Beta --------------------------------------------------------------------------------------------


def _beta_factor(xp: Any, a: Any, b: Any) -> Any:
    """B(a, b) · a / (1 + a/b) for numbers from 0 to 10.5."""
    return gamma_positive(xp, a + 1) * gamma_positive(xp, b + 1) / gamma_positive(xp, a + b + 1)


def _betaln_both_far(xp: Any, a: Any, b: Any) -> Any:
    whole = a + b
    rest = stirling_remainder(a) + stirling_remainder(b) - stirling_remainder(whole)
    start = 0.5 * math.log(2 * math.pi) - 0.5 * xp.log(b) + rest
    ratio = xp.where(xp.isinf(b), xp.zeros_like(a), a / b)
    return start + (a - 0.5) * xp.log(ratio / (1 + ratio)) - b * xp.log1p(ratio)


def log_rising(xp: Any, b: Any, a: Any) -> Any:
    """lgamma(b + a) - lgamma(b) - a·log(b + a), for b >= 10.5 and a <= b."""
    rest = stirling_remainder(b + a) - stirling_remainder(b)
    return (b - 0.5) * xp.log1p(a / b) - a + rest


def _betaln_one_far(xp: Any, a: Any, b: Any) -> Any:
    return special.lgamma(xp, a) - a * xp.log(a + b) - log_rising(xp, b, a)


def _ordered(function: Any, a: Any, b: Any, xp: Any) -> Any:
    return function(xp, xp.where(a < b, a, b), xp.where(a < b, b, a))


def _betaln_positive(xp: Any, low: Any, high: Any) -> Any:
    def near(xp: Any, a: Any, b: Any) -> Any:
        return xp.log1p(a / b) - xp.log(a) + xp.log(_beta_factor(xp, a, b))

    pieces = [
        (high < FAR, near, (1.0, 1.0)),
        ((low < FAR) & xp.isfinite(high), _betaln_one_far, (1.0, FAR)),
        (xp.isfinite(high), _betaln_both_far, (FAR, FAR)),
        (None, lambda xp, a, b: xp.full_like(a, -math.inf), (1.0, 1.0)),
    ]
    return choose(xp, pieces, low, high)


def betaln(xp: Any, a: Any, b: Any) -> Any:
    """Logarithm of the absolute value of the beta function."""

    def others(xp: Any, a: Any, b: Any) -> Any:
        return special.lgamma(xp, a) + special.lgamma(xp, b) - special.lgamma(xp, a + b)

    pieces = [
        ((a > 0) & (b > 0), lambda xp, a, b: _ordered(_betaln_positive, a, b, xp), (1.0, 1.0)),
        (None, others, (1.5, 1.5)),
    ]
    return choose(xp, pieces, a, b)


def beta(xp: Any, a: Any, b: Any) -> Any:
    """The beta function gamma(a) gamma(b) / gamma(a + b)."""

    def near(xp: Any, a: Any, b: Any) -> Any:
        return (1 + a / b) / a * _beta_factor(xp, a, b)

    def positive(xp: Any, low: Any, high: Any) -> Any:
        pieces = [
            (high < FAR, near, (1.0, 1.0)),
            (None, lambda xp, a, b: xp.exp(_betaln_positive(xp, a, b)), (FAR, FAR)),
        ]
        return choose(xp, pieces, low, high)

    def others(xp: Any, a: Any, b: Any) -> Any:
        y = gamma(xp, a) * gamma(xp, b) / gamma(xp, a + b)
        poles = (a <= 0) & (xp.round(a) == a) | (b <= 0) & (xp.round(b) == b)
        return xp.where(poles & ~xp.isnan(a + b), xp.full_like(a, math.inf), y)

    pieces = [
        ((a > 0) & (b > 0), lambda xp, a, b: _ordered(positive, a, b, xp), (1.0, 1.0)),
        (None, others, (1.5, 1.5)),
    ]
    return choose(xp, pieces, a, b)
