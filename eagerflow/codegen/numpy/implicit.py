"""Derivatives of random numbers by a parameter of their distribution, at a fixed probability.

Figurnov, Mohamed and Mnih, "Implicit reparameterization gradients" (2018): a number x with the
distribution function F and the density f moves by ``-(dF/da) / f`` with the parameter a. That is an
integral of a smooth function that decays, taken here from 1 to e^-37 by the rule of Gauss and
Legendre with 32 points. Below the median it is the integral from below, above it the one from
above, without differences of large numbers. Within 1e-10, relative, of the true derivative.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from eagerflow.codegen.numpy import special

_POINTS = 32
_DECAY = 37.0  # e^-37 is less than a rounding error


@cache
def _rule() -> tuple[Any, Any]:
    """Points from 0 to 1 and their weights."""
    points, weights = np.polynomial.legendre.leggauss(_POINTS)
    return (points + 1) / 2, weights / 2


def _integral(xp: Any, f: Any, end: Any) -> Any:
    """The integral of ``f`` from 0 to ``end``, for each element."""
    points, weights = (xp.asarray(row) for row in _rule())
    v = end[..., None] * points
    return end * xp.sum(f(v) * weights, axis=-1)


def _beyond(xp: Any, v: Any) -> Any:
    """exp(v) - 1 - v."""
    series = v * v * (0.5 + v * (1 / 6 + v * (1 / 24 + v * (1 / 120 + v / 720))))
    return xp.where(xp.abs(v) < 0.01, series, xp.expm1(v) - v)


def gamma_slope(xp: Any, shape: Any, number: Any, log: bool) -> Any:
    """Derivatives d log x / d shape of numbers x of the gamma distribution; of float64.

    With x = exp(l): the integral over v from 0 of ``(psi(a) - l + v) exp(x (1 - exp(-v)) - a v)``,
    and from above that of ``(l + v - psi(a)) exp(a v - x (exp(v) - 1))``.
    """
    with np.errstate(all="ignore"):
        logs = number if log else xp.log(number)
        small = shape < 1
        a = xp.where(small, shape + 1, shape)
        x = xp.exp(logs)
        below = x <= a
        gap = xp.abs(a - x)
        # The decay is gap v + v² x / 2 at first, then linear below and exponential above.
        first = 2 * _DECAY / (gap + xp.sqrt(gap * gap + 2 * _DECAY * x))
        end = xp.where(below, first, xp.minimum(first, xp.log1p(2 * _DECAY / x + 0.4)))
        sign = xp.where(below, -1.0, 1.0)
        for _ in range(3):  # Newton's steps to where it is so small that nothing is left
            decay = gap * end + x * _beyond(xp, sign * end) - _DECAY
            end = end - decay / (gap + x * xp.abs(xp.expm1(sign * end)))
        start = sign * (logs - special.digamma(xp, a))
        g, w, s = (y[..., None] for y in (gap, x, sign))
        body = lambda v: (start[..., None] + v) * xp.exp(-g * v - w * _beyond(xp, s * v))
        found = _integral(xp, body, end)
        # From shape + 1 down to shape, by the recurrence of the incomplete gamma function.
        lower = (x * found + special.digamma(xp, a) - logs) / shape
        found = xp.where(small, lower, found)
        # As far as Cornish and Fisher's expansion goes, where the integrand is that narrow.
        off = (x - a) / a
        normal = (1 + off / 2 + (1 - off * off * a) / (6 * a)) / (1 + off)
        return xp.where(shape > 1e9, normal / shape, found)


def von_mises_slope(xp: Any, concentration: Any, angle: Any) -> Any:
    """Derivatives d angle / d concentration of numbers of the von Mises distribution; of float64.

    With k and A = I1(k) / I0(k), for an angle x below 0: minus the integral of
    ``(cos(x - v) - A) exp(k (cos(x - v) - cos(x)))`` over v from 0 to x + pi.
    """
    with np.errstate(all="ignore"):
        k, size = concentration, xp.abs(angle)
        whole = math.pi - size
        # The decay is k (cos x - cos(x + v)) = 2 k sin(v / 2) sin(x + v / 2).
        slope, bend = k * xp.sin(size), k * xp.cos(size)
        bend = xp.maximum(bend, k / 8)
        first = 2 * _DECAY / (slope + xp.sqrt(slope * slope + 2 * _DECAY * bend))
        end = xp.minimum(whole, xp.where(k > 0, first * 1.5, whole))
        mean = bessel_ratio(xp, k)
        at, c, m = size[..., None], k[..., None], mean[..., None]
        decay = lambda v: 2 * c * xp.sin(v / 2) * xp.sin(at + v / 2)
        body = lambda v: (m - xp.cos(at + v)) * xp.exp(-decay(v))
        return xp.sign(angle) * -_integral(xp, body, end)


def bessel_ratio(xp: Any, k: Any) -> Any:
    """I1(k) / I0(k), by the integrals that define both."""
    end = xp.minimum(math.pi + 0 * k, xp.sqrt(2 * _DECAY / xp.maximum(k, 1.0)) * 2)
    half = lambda v: xp.exp(-2 * k[..., None] * xp.sin(v / 2) ** 2)
    low = _integral(xp, lambda v: 2 * xp.sin(v / 2) ** 2 * half(v), end)
    return 1 - low / _integral(xp, half, end)
