"""The regularized incomplete gamma functions, and their derivatives with respect to the shape.

Four ways, by region: the power series, the continued fraction (Abramowitz and Stegun 6.5.29,
6.5.31), for small shapes the series of the upper one's remainder, and from shape 20 on, near the
middle, N. M. Temme's uniform expansion (DLMF 8.12), whose rational coefficients are computed by
recurrence. Derivatives by the shape are those of the same formulas.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

from eagerflow.codegen.numpy import special
from eagerflow.primitives.special.errors import erfcx
from eagerflow.primitives.special.gamma import gamma_positive, lgamma1p, log1pmx, stirling_remainder
from eagerflow.primitives.special.pieces import CHECKED_EVERY, any_of, choose, largest, polynomial

_LARGE = 20.0  # shapes from which Temme's expansion is used
_LOWEST, _HIGHEST = 0.3018, 2.3577  # bounds of x over shape, where its variable is -1 and 1
_ORDERS = 12
_EPSILON = 1e-17
_SERIES_TERMS = 128
_FRACTION_ENDS = 2.0  # up to this x the continued fraction converges too slowly


# x^a e^-x / gamma(a + 1) -------------------------------------------------------------------------


def _factor_small(xp: Any, a: Any, x: Any) -> Any:
    # A power is exact to its last digit, and of shape 20 and less none overflows; from 2000 on
    # the exponential is 0.
    x = xp.where(x < 2000, x, xp.full_like(x, 2000.0))
    root = xp.exp(-0.5 * x)
    one = xp.ones_like(a)
    below = gamma_positive(xp, xp.where(a < 1, a + 1, a)) * xp.where(a < 1, one, a)
    return x**a * root / below * root


def _factor_large(xp: Any, a: Any, x: Any) -> Any:
    exponent = a * log1pmx(xp, (x - a) / a) - stirling_remainder(a)
    return xp.exp(exponent) / xp.sqrt(2 * math.pi * a)


def factor(xp: Any, a: Any, x: Any) -> Any:
    """x^a e^-x / gamma(a + 1)."""
    pieces = [
        (a < _LARGE, _factor_small, (1.0, 1.0)),
        (None, _factor_large, (_LARGE, _LARGE)),
    ]
    return choose(xp, pieces, a, x)


# The series ---------------------------------------------------------------------------------------


def _series(xp: Any, a: Any, x: Any) -> Any:
    """The lower function divided by its factor: the sum of x^n / ((a + 1) ... (a + n))."""
    term = xp.ones_like(x)
    total = term + 0
    for n in range(1, _SERIES_TERMS + 1):
        term = term * (x / (a + n))
        total = total + term
        if n % CHECKED_EVERY == 0 and not any_of(xp, term > _EPSILON * total):
            break
    return total


def _series_and_slope(xp: Any, a: Any, x: Any) -> tuple[Any, Any]:
    """The series, and its negated derivative by the shape."""
    term = xp.ones_like(x)
    total = term + 0
    harmonic = xp.zeros_like(x)
    slope = xp.zeros_like(x)
    for n in range(1, _SERIES_TERMS + 1):
        inverse = 1 / (a + n)
        term = term * x * inverse
        harmonic = harmonic + inverse
        total = total + term
        slope = slope + term * harmonic
        if n % CHECKED_EVERY == 0 and not any_of(xp, term * harmonic > _EPSILON * slope):
            break
    return total, slope


def _upper_series(xp: Any, a: Any, x: Any) -> Any:
    """The upper function for shapes below 1 and x below 2, accurate also near 0."""
    term = xp.ones_like(x)
    total = xp.zeros_like(x)
    for n in range(1, 26):
        term = term * x * (-1 / n)
        total = total + term / (a + n)
    start = a * xp.log(x) - lgamma1p(xp, a)
    return -xp.expm1(start) - xp.exp(start) * a * total


# The continued fraction ---------------------------------------------------------------------------


def _fraction_terms(xp: Any, x: Any) -> int:
    """The number of terms that suffices for all x: errors fall like exp(-4 √(n·x))."""
    return math.ceil(95 / max(-largest(xp, -x, -_FRACTION_ENDS), _FRACTION_ENDS)) + 8


def fraction(xp: Any, a: Any, x: Any) -> Any:
    """The divisor of x^a e^-x / gamma(a) for the upper function; for x >= 2."""
    terms = _fraction_terms(xp, x)
    base = x - a
    value = base + float(2 * terms + 1)
    for n in range(terms, 0, -1):
        value = base + float(2 * n - 1) - (n - a) * float(n) / value
    return value


def _fraction_and_slope(xp: Any, a: Any, x: Any) -> tuple[Any, Any]:
    """The continued fraction, and its derivative by the shape."""
    terms = _fraction_terms(xp, x)
    base = x - a
    value = base + float(2 * terms + 1)
    slope = -xp.ones_like(x)
    for n in range(terms, 0, -1):
        share = (n - a) * float(n) / value
        slope = (float(n) + share * slope) / value - 1
        value = base + float(2 * n - 1) - share
    return value, slope


# Temme's expansion --------------------------------------------------------------------------------


@cache
def _temme_coefficients() -> tuple[tuple[float, ...], ...]:
    """For each order k, the coefficients of c_k in powers of η (DLMF 8.12.9 to 8.12.12).

    μ follows from μ μ' = η (1 + μ), the reciprocal of μ/η from that, and c_k from
    η c_k = c_{k-1}' + g_k η / μ, where g_k makes the right side vanish at 0.
    """
    count = 28 + 2 * _ORDERS
    mu = [Fraction(0), Fraction(1)]
    for n in range(2, count + 3):
        # The coefficient of η^n in μ μ' is (n + 1)/2 · Σ μ_i μ_(n+1-i).
        inner = sum(mu[i] * mu[n + 1 - i] for i in range(2, n))
        mu.append((mu[n - 1] * 2 / (n + 1) - inner) / 2)
    inverse = [Fraction(1)]  # of μ/η
    for n in range(1, count + 2):
        inverse.append(-sum((mu[i + 1] * inverse[n - i] for i in range(1, n + 1)), Fraction(0)))
    series = inverse[1:]  # 1/μ - 1/η
    rows = []
    for k in range(_ORDERS):
        small = 1e-19 * _LARGE**k
        kept = [float(c) for c in series]
        while len(kept) > 2 and abs(kept[-1]) < small:
            kept.pop()
        rows.append(tuple(kept))
        slope = [n * c for n, c in enumerate(series)][1:]
        g = -slope[0]
        series = [c + g * i for c, i in zip(slope, inverse, strict=False)][1:]
    return tuple(rows)


def _temme_parts(xp: Any, a: Any, x: Any) -> tuple[Any, Any, Any]:
    """X over shape minus 1, the exponent's rate a·φ, and the expansion's variable η."""
    mu = (x - a) / a
    phi = -log1pmx(xp, mu)
    root = xp.sqrt(2 * phi)
    return mu, phi, xp.where(mu < 0, -root, root)


def _temme_sum(xp: Any, a: Any, eta: Any) -> Any:
    """Σ c_k(η) / a^k."""
    total = None
    for row in reversed(_temme_coefficients()):
        value = polynomial(row, eta)
        total = value if total is None else total / a + value
    return total


def _temme(xp: Any, a: Any, x: Any, sign: float) -> Any:
    """The upper function if ``sign`` is 1, the lower one if it is -1; below a half."""
    _, phi, eta = _temme_parts(xp, a, x)
    tail = 0.5 * erfcx(xp, sign * eta * xp.sqrt(0.5 * a))
    rest = _temme_sum(xp, a, eta) / xp.sqrt(2 * math.pi * a)
    return xp.exp(-a * phi) * (tail + sign * rest)


def _temme_slope(xp: Any, a: Any, x: Any) -> Any:
    """The derivative of the upper function by the shape, divided by the density."""
    mu, _, eta = _temme_parts(xp, a, x)
    ratio = xp.where(eta == 0, xp.ones_like(eta), mu / xp.where(eta == 0, 1 + 0 * eta, eta))
    total, slope = xp.zeros_like(a), xp.zeros_like(a)
    rows = _temme_coefficients()
    for k in range(len(rows) - 1, -1, -1):
        row = rows[k]
        by_eta = polynomial([n * c for n, c in enumerate(row)][1:], eta)
        value = polynomial(row, eta)
        slope = slope / a - by_eta * ratio - k * value
        total = total / a + value
    whole = ratio - 0.5 * eta + total * (xp.log1p(mu) - 0.5 / a) + slope / a
    return whole * xp.exp(stirling_remainder(a)) * (1 + mu)


# The functions ------------------------------------------------------------------------------------


def _regions(xp: Any, a: Any, x: Any) -> tuple[Any, Any]:
    """Temme's expansion where applicable, elsewhere the series."""
    ratio = x / a
    middle = (a >= _LARGE) & (ratio > _LOWEST) & (ratio < _HIGHEST)
    return middle, (x < _FRACTION_ENDS) | (x < a + 1)


def _by_series(xp: Any, a: Any, x: Any) -> Any:
    y = factor(xp, a, x) * _series(xp, a, x)
    return xp.where(y < 1, y, xp.ones_like(y))


def _by_fraction(xp: Any, a: Any, x: Any) -> Any:
    return factor(xp, a, x) * a / fraction(xp, a, x)


def _lower_inside(xp: Any, a: Any, x: Any) -> Any:
    middle, series = _regions(xp, a, x)
    pieces = [
        (middle & (x < a), lambda xp, a, x: _temme(xp, a, x, -1.0), (_LARGE, _LARGE)),
        (middle, lambda xp, a, x: 1 - _temme(xp, a, x, 1.0), (_LARGE, _LARGE)),
        (series, _by_series, (1.0, 1.0)),
        (None, lambda xp, a, x: 1 - _by_fraction(xp, a, x), (1.0, 3.0)),
    ]
    return choose(xp, pieces, a, x)


def _upper_inside(xp: Any, a: Any, x: Any) -> Any:
    middle, series = _regions(xp, a, x)
    pieces = [
        (middle & (x < a), lambda xp, a, x: 1 - _temme(xp, a, x, -1.0), (_LARGE, _LARGE)),
        (middle, lambda xp, a, x: _temme(xp, a, x, 1.0), (_LARGE, _LARGE)),
        (series & (a < 1), _upper_series, (0.5, 1.0)),
        (series, lambda xp, a, x: 1 - _by_series(xp, a, x), (1.0, 1.0)),
        (None, _by_fraction, (1.0, 3.0)),
    ]
    return choose(xp, pieces, a, x)


def _at_edges(inside: Any, at_zero: float) -> Any:
    """The function for positive finite shape and x, and at the ends of the domain."""

    def function(xp: Any, a: Any, x: Any) -> Any:
        def edges(xp: Any, a: Any, x: Any) -> Any:
            zero, one = xp.full_like(a, at_zero), xp.full_like(a, 1 - at_zero)
            nan = xp.full_like(a, math.nan)
            y = xp.where((x == 0) & (a > 0) | xp.isinf(a) & (x >= 0), zero, nan)
            y = xp.where((x > 0) & ((a == 0) | xp.isinf(x) & (a >= 0)), one, y)
            return xp.where(xp.isinf(a) & xp.isinf(x) | (a < 0) | (x < 0), nan, y)

        finite = (a > 0) & (x > 0) & xp.isfinite(a) & xp.isfinite(x)
        return choose(xp, [(finite, inside, (1.0, 1.0)), (None, edges, (0.0, 0.0))], a, x)

    return function


gammainc = _at_edges(_lower_inside, 0.0)
gammaincc = _at_edges(_upper_inside, 1.0)


def gamma_density(xp: Any, a: Any, x: Any) -> Any:
    """x^(a-1) e^-x / gamma(a), the derivative of the lower function by x."""

    def inside(xp: Any, a: Any, x: Any) -> Any:
        large = x > 1e-290  # below, dividing by the factor may overflow
        at = xp.where(large, x, xp.ones_like(x))
        y = factor(xp, a, at) * (a / at)
        small = xp.where(large, xp.ones_like(x), x) ** (a - 1) / gamma_positive(xp, a)
        return xp.where(large, y, small)

    def edges(xp: Any, a: Any, x: Any) -> Any:
        nan = xp.full_like(a, math.nan)
        y = xp.where((a > 0) & xp.isinf(x) & (x > 0), xp.zeros_like(a), nan)
        at_zero = xp.where(a < 1, xp.full_like(a, math.inf), xp.zeros_like(a))
        at_zero = xp.where(a == 1, xp.ones_like(a), at_zero)
        return xp.where((a > 0) & (x == 0), at_zero, y)

    finite = (a > 0) & (x > 0) & xp.isfinite(a) & xp.isfinite(x)
    return choose(xp, [(finite, inside, (1.0, 1.0)), (None, edges, (0.0, 0.0))], a, x)


def _slope_by_series(xp: Any, a: Any, x: Any) -> Any:
    total, slope = _series_and_slope(xp, a, x)
    return (slope - (xp.log(x) - special.digamma(xp, a + 1)) * total) * (x / a)


def _slope_by_fraction(xp: Any, a: Any, x: Any) -> Any:
    value, slope = _fraction_and_slope(xp, a, x)
    return x * (xp.log(x) - special.digamma(xp, a) - slope / value) / value


def gamma_sample_gradient(xp: Any, a: Any, x: Any) -> Any:
    """The derivative of x, at fixed gammainc(a, x), with respect to the shape a."""

    def inside(xp: Any, a: Any, x: Any) -> Any:
        middle, series = _regions(xp, a, x)
        pieces = [
            (middle, _temme_slope, (_LARGE, _LARGE)),
            (series, _slope_by_series, (1.0, 1.0)),
            (None, _slope_by_fraction, (1.0, 3.0)),
        ]
        return choose(xp, pieces, a, x)

    def edges(xp: Any, a: Any, x: Any) -> Any:
        zero = (x == 0) & (a > 0)
        return xp.where(zero, xp.zeros_like(a), xp.full_like(a, math.nan))

    finite = (a > 0) & (x > 0) & xp.isfinite(a) & xp.isfinite(x)
    return choose(xp, [(finite, inside, (1.0, 1.0)), (None, edges, (0.0, 0.0))], a, x)
