"""The regularized incomplete beta function.

By the continued fraction of A. R. DiDonato and A. H. Morris, Algorithm 708, ACM TOMS 18 (1992), its
even form, on the side of the mean where it converges; its factor in three forms that are accurate
for large parameters.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.codegen.numpy import special
from eagerflow.primitives.special.gamma import (
    FAR,
    beta,
    gamma_positive,
    log1pmx,
    log_rising,
    stirling_remainder,
)
from eagerflow.primitives.special.pieces import CHECKED_EVERY, any_of, choose

_EPSILON = 5e-16
_TERMS = 20_000  # sufficient for parameters up to 1e8
_TERMS_FOR_ALL = 400  # if all elements take the same number


def _factor_small(xp: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    return x**a * y**b / beta(xp, a, b)


def _factor_mixed(xp: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    swap = a > b
    low, high = xp.where(swap, b, a), xp.where(swap, a, b)
    near, far = xp.where(swap, y, x), xp.where(swap, x, y)
    log_far = xp.where(far < 0.5, xp.log(far), xp.log1p(-near))
    power = (near * (low + high)) ** low
    return power * xp.exp(high * log_far + log_rising(xp, high, low)) / gamma_positive(xp, low)


def _growth(xp: Any, a: Any, ratio: Any, apart: Any) -> Any:
    """A · (log(ratio) - ratio + 1), where ``apart`` over a is ratio - 1."""
    t = apart / a
    near = xp.abs(t) < 0.5
    far = xp.where(near, xp.ones_like(a), ratio)
    close = log1pmx(xp, xp.where(near, t, xp.zeros_like(a)))
    return a * xp.where(near, close, xp.log(far) - t)


def _factor_large(xp: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    apart = b * x - a * y
    whole = a + b
    exponent = _growth(xp, a, x / a * whole, apart) + _growth(xp, b, y / b * whole, -apart)
    rest = stirling_remainder(whole) - stirling_remainder(a) - stirling_remainder(b)
    return xp.exp(exponent + rest) * xp.sqrt(a / whole * b / (2 * math.pi))


def factor(xp: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    """x^a y^b / B(a, b), where y is 1 - x."""
    pieces = [
        ((a < FAR) & (b < FAR), _factor_small, (1.0, 1.0, 0.5, 0.5)),
        ((a < FAR) | (b < FAR), _factor_mixed, (1.0, FAR, 0.5, 0.5)),
        (None, _factor_large, (FAR, FAR, 0.5, 0.5)),
    ]
    return choose(xp, pieces, a, b, x, y)


def _lentz(m: int, given: Any, above: Any, below: Any) -> tuple[Any, Any]:
    """The m-th step of Lentz's method: its factors of the fraction's value."""
    a, b, x, y = given
    end = a + float(2 * m - 1)
    share = (b - float(m)) * float(m) * x / end
    top = (a + float(m - 1)) / end * (a + b + float(m - 1)) * x * share
    apart = a * y - b * x + 1 + float(m) * (1 + y)
    bottom = share + float(m) + (a + float(m)) / (end + 2) * apart
    return bottom + top / above, 1 / (bottom + top * below)


def _fraction(xp: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    """The divisor of the factor; for x up to the mean."""
    value = a * (a * y - b * x + 1) / (a + 1)
    above, below = value, xp.zeros_like(x)
    if type(x) is np.ndarray:
        return _fraction_of_each((a, b, x, y), value, above, below)
    moving = xp.ones_like(x) == 1
    for m in range(1, _TERMS_FOR_ALL + 1):
        above, below = _lentz(m, (a, b, x, y), above, below)
        step = above * below
        value = xp.where(moving, value * step, value)
        moving = moving & (xp.abs(step - 1) > _EPSILON)
        if m % CHECKED_EVERY == 0 and not any_of(xp, moving):
            break
    return value


def _fraction_of_each(given: Any, value: Any, above: Any, below: Any) -> Any:
    """The fraction, iterated until each element has converged."""
    result, at = value.copy(), np.arange(value.size)
    for m in range(1, _TERMS + 1):
        above, below = _lentz(m, given, above, below)
        step = above * below
        value = value * step
        if m % CHECKED_EVERY == 0:
            moving = np.abs(step - 1) > _EPSILON
            if not moving.all():
                result[at] = value
                at, value, above, below = (z[moving] for z in (at, value, above, below))
                given = [z[moving] for z in given]
                if not at.size:
                    break
    result[at] = value
    return result


def _below_mean(xp: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    return factor(xp, a, b, x, y) / _fraction(xp, a, b, x, y)


def _inside(xp: Any, a: Any, b: Any, x: Any) -> Any:
    y = 1 - x
    swap = a * y < b * x
    low, high = xp.where(swap, b, a), xp.where(swap, a, b)
    small, large = xp.where(swap, y, x), xp.where(swap, x, y)
    part = _below_mean(xp, low, high, small, large)
    return xp.where(swap, 1 - part, part)


def betainc(xp: Any, a: Any, b: Any, x: Any) -> Any:
    """I_x(a, b), for nonnegative parameters and x from 0 to 1."""

    def edges(xp: Any, a: Any, b: Any, x: Any) -> Any:
        # The distribution is concentrated at 0 if a is 0 or b infinite, at 1 in the reverse case.
        left, right = (a == 0) | xp.isinf(b), (b == 0) | xp.isinf(a)
        y = xp.where(left, xp.ones_like(x), xp.zeros_like(x))
        y = xp.where((x == 0) | (x == 1), x, y)
        good = (a >= 0) & (b >= 0) & (x >= 0) & (x <= 1) & ~(left & right)
        return xp.where(good, y, xp.full_like(x, math.nan))

    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & xp.isfinite(a) & xp.isfinite(b)
    pieces = [(inside, _inside, (1.0, 1.0, 0.5)), (None, edges, (1.0, 1.0, 0.0))]
    return choose(xp, pieces, a, b, x)


# By a parameter -----------------------------------------------------------------------------------

_STEP = 1e-30  # of a parameter, relative and along the imaginary axis: no cancellation
_MORE = 0.4  # the derivative takes this share of additional terms


def _fraction_slope(xp: Any, a: Any, b: Any, x: Any, y: Any, second: bool) -> Any:
    """The derivative of the logarithm of the fraction by a parameter.

    All steps are arithmetic, also for complex parameters (W. Squire and G. Trapp, Using complex
    variables to estimate derivatives of real functions, 1998).
    """
    moved = (b if second else a) * (1 + 1j * _STEP)
    given = (a, moved, x, y) if second else (moved, b, x, y)
    last = 0
    above = given[0] * (given[0] * y - given[1] * x + 1) / (given[0] + 1)
    value, below = above / xp.real(above), 0 * above
    for m in range(1, _TERMS + 1):
        above, below = _lentz(m, given, above, below)
        step = above * below
        value = value * step
        value = value / xp.real(value)
        if m == last:
            break
        if not last and m % CHECKED_EVERY == 0:
            # In a trace, where values are unknown, so many terms of complex numbers are refused.
            moving = bool(xp.any(xp.abs(xp.real(step) - 1) > _EPSILON))
            last = 0 if moving else m + math.ceil(_MORE * m)
    return xp.imag(value) / (_STEP * (b if second else a))


def _slope_below_mean(xp: Any, a: Any, b: Any, x: Any, y: Any, second: bool) -> Any:
    by_factor = xp.log(y) if second else xp.log(x)
    digamma = special.digamma
    by_factor = by_factor - digamma(xp, b if second else a) + digamma(xp, a + b)
    return _below_mean(xp, a, b, x, y) * (by_factor - _fraction_slope(xp, a, b, x, y, second))


def betainc_slope(xp: Any, a: Any, b: Any, x: Any, second: bool = False) -> Any:
    """The derivative of I_x(a, b) with respect to a, or to b if ``second``."""

    def below(xp: Any, a: Any, b: Any, x: Any) -> Any:
        return _slope_below_mean(xp, a, b, x, 1 - x, second)

    def beyond(xp: Any, a: Any, b: Any, x: Any) -> Any:
        return -_slope_below_mean(xp, b, a, 1 - x, x, not second)

    def edges(xp: Any, a: Any, b: Any, x: Any) -> Any:
        good = (a > 0) & (b > 0) & xp.isfinite(a) & xp.isfinite(b) & ((x == 0) | (x == 1))
        return xp.where(good, xp.zeros_like(x), xp.full_like(x, math.nan))

    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & xp.isfinite(a) & xp.isfinite(b)
    pieces = [
        (inside & (a * (1 - x) >= b * x), below, (1.0, 1.0, 0.5)),
        (inside, beyond, (1.0, 1.0, 0.5)),
        (None, edges, (1.0, 1.0, 0.0)),
    ]
    return choose(xp, pieces, a, b, x)


def beta_density(xp: Any, a: Any, b: Any, x: Any) -> Any:
    """x^(a-1) (1-x)^(b-1) / B(a, b)."""

    def inner(xp: Any, a: Any, b: Any, x: Any) -> Any:
        return factor(xp, a, b, x, 1 - x) / (x * (1 - x))

    def edges(xp: Any, a: Any, b: Any, x: Any) -> Any:
        good = (a > 0) & (b > 0) & xp.isfinite(a) & xp.isfinite(b) & ((x == 0) | (x == 1))
        own, other = xp.where(x == 0, a, b), xp.where(x == 0, b, a)
        y = xp.where(own < 1, xp.full_like(x, math.inf), xp.zeros_like(x))
        return xp.where(good, xp.where(own == 1, other, y), xp.full_like(x, math.nan))

    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & xp.isfinite(a) & xp.isfinite(b)
    pieces = [(inside, inner, (1.0, 1.0, 0.5)), (None, edges, (1.0, 1.0, 0.0))]
    return choose(xp, pieces, a, b, x)
