"""Exponential integrals, and Hurwitz' zeta function."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.codegen.numpy import special
from eagerflow.primitives.special.gamma import gamma_positive
from eagerflow.primitives.special.incomplete_gamma import fraction
from eagerflow.primitives.special.pieces import CHECKED_EVERY, any_of, choose, largest, polynomial

_EULER = 0.5772156649015329
_SERIES_ENDS = 2.0
_ASYMPTOTIC = 40.0
# (-1)^(k + 1) / (k k!), from k = 1 on.
_SERIES = tuple(-((-1) ** k) / (k * math.factorial(k)) for k in range(1, 28))


def exp1(xp: Any, x: Any) -> Any:
    """The integral of exp(-t)/t from x to infinity, for x >= 0."""

    def near(xp: Any, x: Any) -> Any:
        return x * polynomial(_SERIES, x) - _EULER - xp.log(x)

    def far(xp: Any, x: Any) -> Any:
        # As in the incomplete gamma function, of shape 0.
        bounded = xp.where(x < 800, x, xp.full_like(x, 800.0))
        return xp.exp(-bounded) / fraction(xp, xp.zeros_like(x), bounded)

    pieces = [
        ((x > 0) & (x < _SERIES_ENDS), near, (1.0,)),
        (x > 0, far, (3.0,)),
        (x == 0, lambda xp, x: xp.full_like(x, math.inf), (1.0,)),
        (None, lambda xp, x: x * math.nan, (1.0,)),
    ]
    return choose(xp, pieces, x)


def _expi_series(xp: Any, x: Any) -> Any:
    term, total = x, x
    for k in range(2, 150):
        term = term * (x / k)
        total = total + term / k
        if k % CHECKED_EVERY == 0 and not any_of(xp, term > 1e-17 * total):
            break
    return xp.log(x) + _EULER + total


def _expi_far(xp: Any, x: Any) -> Any:
    inverse = 1 / x
    total = xp.ones_like(x)
    for k in range(38, 0, -1):
        total = total * inverse * k + 1
    half = xp.exp(0.5 * xp.where(x < 800, x, xp.full_like(x, 1600.0)))
    return half * (total * inverse) * half


def expi(xp: Any, x: Any) -> Any:
    """The principal value of the integral of exp(t)/t from -infinity to x."""
    pieces = [
        (x < 0, lambda xp, x: -exp1(xp, -x), (-1.0,)),
        ((x > 0) & (x < _ASYMPTOTIC), _expi_series, (1.0,)),
        ((x > 0) & xp.isfinite(x), _expi_far, (_ASYMPTOTIC,)),
        (None, lambda xp, x: xp.where(x == 0, xp.full_like(x, -math.inf), x), (1.0,)),
    ]
    return choose(xp, pieces, x)


# Zeta ---------------------------------------------------------------------------------------------

_STEPS = 10
_MOST_STEPS = 10_000


def _hurwitz(xp: Any, s: Any, q: Any, steps: int = _STEPS) -> Any:
    """Euler and Maclaurin's sum (DLMF 25.11.5)."""
    total = xp.zeros_like(s)
    for k in range(steps):
        total = total + (q + float(k)) ** -s
    end = q + float(steps)
    power = end**-s
    total = total + end ** (1 - s) / (s - 1) + power * 0.5
    rising = power * s / end
    rest = xp.zeros_like(s)
    for k, weight in enumerate(special.BERNOULLI_OVER_FACTORIAL, start=1):
        rest = rest + weight * rising
        rising = rising * ((s + (2 * k - 1)) / end * ((s + 2 * k) / end))
    return total + xp.where(power > 0, rest, xp.zeros_like(s))


def _hurwitz_below(xp: Any, s: Any, q: Any) -> Any:
    """For negative q and integers s: a sum from q up to the start of the other one."""
    steps = _STEPS + math.ceil(min(largest(xp, -q, 0.0), _MOST_STEPS))
    near = q > -_MOST_STEPS
    y = _hurwitz(xp, s, xp.where(near, q, xp.full_like(q, -0.5)), steps)
    return xp.where(near, y, xp.full_like(y, math.nan))


def zeta(xp: Any, s: Any, q: Any) -> Any:
    """Hurwitz' zeta function, the sum of (q + k)^-s."""

    def edges(xp: Any, s: Any, q: Any) -> Any:
        y = xp.where(
            (s == 1) | (s > 1) & (q <= 0) & (xp.round(q) == q), xp.full_like(s, math.inf), s * 0
        )
        # For an infinite exponent only the first term remains.
        limit = xp.where(q < 1, xp.full_like(q, math.inf), xp.where(q == 1, q, xp.zeros_like(q)))
        y = xp.where(xp.isinf(s) & (q > 0), limit, y)
        bad = (s < 1) | xp.isnan(s) | (s != 1) & (xp.isnan(q) | (q < 0) & (xp.round(q) != q))
        return xp.where(bad, s * math.nan, y)

    inside = (s > 1) & xp.isfinite(s) & xp.isfinite(q)
    below = inside & (q < 0) & (xp.round(q) != q) & (xp.round(s) == s)
    pieces = [
        (inside & (q > 0), _hurwitz, (2.0, 1.0)),
        (below, _hurwitz_below, (2.0, -0.5)),
        (None, edges, (2.0, 1.0)),
    ]
    return choose(xp, pieces, s, q)


def _riemann_left(xp: Any, x: Any) -> Any:
    """The functional equation (DLMF 25.4.1), for x below 0."""
    s = 1 - x
    # sin(πx/2), exactly 0 at even numbers.
    half = x * 0.5
    fraction = half - xp.round(half)
    odd = xp.round(half) % 2 == 1
    wave = xp.sin(math.pi * fraction) * xp.where(odd, -xp.ones_like(x), xp.ones_like(x))
    bounded = xp.where(s < 171, s, xp.full_like(s, 171.0))
    power = (2 * math.pi) ** -bounded * gamma_positive(xp, bounded)
    rest = xp.where(s < 171, xp.ones_like(s), s * math.inf)
    y = 2 * power * wave * _hurwitz(xp, s, xp.ones_like(s)) * rest
    return xp.where(wave == 0, xp.zeros_like(y), y)


def riemann(xp: Any, x: Any) -> Any:
    """Riemann's zeta function of any real number."""
    pieces = [
        ((x >= 0) & (x != 1) & xp.isfinite(x), lambda xp, x: _hurwitz(xp, x, x * 0 + 1), (2.0,)),
        ((x < 0) & xp.isfinite(x), _riemann_left, (-1.5,)),
        (x == 1, lambda xp, x: xp.full_like(x, math.inf), (1.0,)),
        (None, lambda xp, x: xp.where(x > 0, xp.ones_like(x), x * math.nan), (1.0,)),
    ]
    return choose(xp, pieces, x)
