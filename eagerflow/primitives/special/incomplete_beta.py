"""The regularized incomplete beta function.

By the continued fraction of A. R. DiDonato and A. H. Morris, Algorithm 708, ACM TOMS 18 (1992),
its even form, on that side of the mean on which it converges; its factor in three ways that
keep their digits for large parameters.
"""

from __future__ import annotations

import math
from typing import Any

from eagerflow.primitives.special.gamma import (
    FAR,
    beta,
    gamma_positive,
    log1pmx,
    log_rising,
    stirling_remainder,
)
from eagerflow.primitives.special.pieces import CHECKED_EVERY, any_of, choose

_EPSILON = 2e-17
_TERMS = 20_000  # serve parameters to 1e8; others end before
_TRACED_TERMS = 200


def _factor_small(xp: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    return x**a * y**b / beta(xp, a, b)


def _factor_mixed(xp: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    swap = a > b
    low, high = xp.where(swap, b, a), xp.where(swap, a, b)
    near, far = xp.where(swap, y, x), xp.where(swap, x, y)
    log_far = xp.where(far < 0.5, xp.log(far), xp.log1p(-near))
    power = (near * (low + high)) ** low
    return power * xp.exp(high * log_far + log_rising(xp, high, low)) / gamma_positive(xp, low)


def _factor_large(xp: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    apart = a * y - b * x
    exponent = a * log1pmx(xp, -apart / a) + b * log1pmx(xp, apart / b)
    rest = stirling_remainder(a + b) - stirling_remainder(a) - stirling_remainder(b)
    return xp.exp(exponent + rest) * xp.sqrt(a / (a + b) * b / (2 * math.pi))


def factor(xp: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    """x^a y^b / B(a, b), where y is 1 - x."""
    pieces = [
        ((a < FAR) & (b < FAR), _factor_small, (1.0, 1.0, 0.5, 0.5)),
        ((a < FAR) | (b < FAR), _factor_mixed, (1.0, FAR, 0.5, 0.5)),
        (None, _factor_large, (FAR, FAR, 0.5, 0.5)),
    ]
    return choose(xp, pieces, a, b, x, y)


def _fraction(xp: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    """What the factor is divided by, by W. J. Lentz' method; for x up to the mean."""
    apart = a * y - b * x + 1
    value = a * apart / (a + 1)
    above, below = value, xp.zeros_like(x)
    for m in range(1, _TERMS + 1):
        end = a + float(2 * m - 1)
        share = (b - float(m)) * float(m) * x / end
        top = (a + float(m - 1)) / end * (a + b + float(m - 1)) * x * share
        bottom = share + float(m) + (a + float(m)) / (end + 2) * (apart + float(m) * (1 + y))
        below = 1 / (bottom + top * below)
        above = bottom + top / above
        step = above * below
        value = value * step
        if m % CHECKED_EVERY == 0 and not any_of(xp, xp.abs(step - 1) > 1e-15):
            break
    return value


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
    """I_x(a, b), for positive parameters and x from 0 to 1."""

    def edges(xp: Any, a: Any, b: Any, x: Any) -> Any:
        good = (a > 0) & (b > 0) & xp.isfinite(a) & xp.isfinite(b)
        return xp.where(good & ((x == 0) | (x == 1)), x, xp.full_like(x, math.nan))

    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & xp.isfinite(a) & xp.isfinite(b)
    pieces = [(inside, _inside, (1.0, 1.0, 0.5)), (None, edges, (1.0, 1.0, 0.0))]
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
