"""Bessel functions of orders 0 and 1, and spherical ones of integer order."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.primitives.special import bessel_tables as tables
from eagerflow.primitives.special.pieces import choose, polynomial

_NEAR = 8.0
_NEAR_K = 2.0
_J = (tables.J0_NEAR, tables.J1_NEAR)
_Y = (tables.Y0_NEAR, tables.Y1_NEAR)
_P = (tables.P0, tables.P1)
_Q = (tables.Q0, tables.Q1)
_I = (tables.I0_FAR, tables.I1_FAR)
_K = (tables.K0_FAR, tables.K1_FAR)
_TERMS = 26


def _infinite(xp: Any, x: Any, value: float) -> Any:
    return xp.where(xp.isinf(x), xp.full_like(x, value), xp.full_like(x, math.nan))


# J and Y ------------------------------------------------------------------------------------------


def _j_near(x: Any, order: int) -> Any:
    y = polynomial(_J[order], x * x * 0.03125 - 1)
    return y * x if order else y


def _waves(xp: Any, x: Any, order: int) -> tuple[Any, Any]:
    """J and Y for x >= 8, by amplitude and phase."""
    inverse = 8 / x
    z = inverse * inverse * 2 - 1
    p, q = polynomial(_P[order], z), polynomial(_Q[order], z) / x
    sine, cosine = xp.sin(x), xp.cos(x)
    # Of χ, √2 times the cosine and the sine.
    across, along = sine + cosine, sine - cosine
    if order:
        across, along = along, -across
    scale = xp.sqrt((1 / math.pi) / x)
    return (p * across - q * along) * scale, (p * along + q * across) * scale


def _j(order: int) -> Any:
    def function(xp: Any, x: Any) -> Any:
        size = xp.abs(x)
        pieces = [
            (size < _NEAR, lambda xp, x: _j_near(x, order), (1.0,)),
            (xp.isfinite(x), lambda xp, x: _waves(xp, x, order)[0], (_NEAR,)),
            (None, lambda xp, x: _infinite(xp, x, 0.0), (1.0,)),
        ]
        y = choose(xp, pieces, size)
        return xp.where(x < 0, -y, y) if order else y

    return function


def _y(order: int) -> Any:
    def near(xp: Any, x: Any) -> Any:
        rest = polynomial(_Y[order], x * x * 0.03125 - 1)
        wave = xp.log(x) * _j_near(x, order)
        if order:
            return (wave - 1 / x) * (2 / math.pi) + rest * x
        return wave * (2 / math.pi) + rest

    def function(xp: Any, x: Any) -> Any:
        pieces = [
            ((x > 0) & (x < _NEAR), near, (1.0,)),
            ((x > 0) & xp.isfinite(x), lambda xp, x: _waves(xp, x, order)[1], (_NEAR,)),
            (x == 0, lambda xp, x: xp.full_like(x, -math.inf), (1.0,)),
            (None, lambda xp, x: xp.where(x > 0, 1 / x, x * math.nan), (1.0,)),
        ]
        return choose(xp, pieces, x)

    return function


j0, j1, y0, y1 = _j(0), _j(1), _y(0), _y(1)


# I and K ------------------------------------------------------------------------------------------

# (x/2)^(2k) / (k! (k + order)!), in powers of x².
_I_SERIES = tuple(
    tuple(
        1 / (math.factorial(k) * math.factorial(k + order) * 4**k * 2**order) for k in range(_TERMS)
    )
    for order in (0, 1)
)


def _i_near(x: Any, order: int) -> Any:
    y = polynomial(_I_SERIES[order], x * x)
    return y * x if order else y


def _i_far(xp: Any, x: Any, order: int) -> Any:
    """I exp(-x) for x >= 8."""
    return polynomial(_I[order], 16 / x - 1) / xp.sqrt(x)


def _i(order: int, scaled: bool) -> Any:
    def near(xp: Any, x: Any) -> Any:
        return _i_near(x, order) * xp.exp(-x) if scaled else _i_near(x, order)

    def far(xp: Any, x: Any) -> Any:
        if scaled:
            return _i_far(xp, x, order)
        half = xp.exp(0.5 * xp.where(x < 800, x, xp.full_like(x, 1600.0)))
        return half * _i_far(xp, x, order) * half

    def function(xp: Any, x: Any) -> Any:
        size = xp.abs(x)
        pieces = [
            (size < _NEAR, near, (1.0,)),
            (xp.isfinite(x), far, (_NEAR,)),
            (None, lambda xp, x: _infinite(xp, x, 0.0 if scaled else math.inf), (1.0,)),
        ]
        y = choose(xp, pieces, size)
        return xp.where(x < 0, -y, y) if order else y

    return function


i0, i1, i0e, i1e = _i(0, False), _i(1, False), _i(0, True), _i(1, True)


def _harmonics(order: int) -> tuple[float, ...]:
    """K without its logarithmic term: Σ (ψ(k + 1) + ψ(k + order + 1))/2 · the terms of I."""
    found, first = [], -0.5772156649015329
    for k, term in enumerate(_I_SERIES[order][:18]):
        psi = first + math.fsum(1 / i for i in range(1, k + 1))
        more = 1 / (2 * (k + 1)) if order else 0.0
        found.append((psi + more) * term)
    return tuple(found)


_K_SERIES = (_harmonics(0), _harmonics(1))


def _k(order: int, scaled: bool) -> Any:
    def near(xp: Any, x: Any) -> Any:
        wave = xp.log(0.5 * x) * _i_near(x, order)
        rest = polynomial(_K_SERIES[order], x * x)
        y = 1 / x + (wave - rest * x) if order else rest - wave
        return y * xp.exp(x) if scaled else y

    def far(xp: Any, x: Any) -> Any:
        y = polynomial(_K[order], 4 / x - 1) / xp.sqrt(x)
        return y if scaled else y * xp.exp(-x)

    def function(xp: Any, x: Any) -> Any:
        pieces = [
            ((x > 0) & (x < _NEAR_K), near, (1.0,)),
            (x > 0, far, (_NEAR_K,)),
            (x == 0, lambda xp, x: xp.full_like(x, math.inf), (1.0,)),
            (None, lambda xp, x: x * math.nan, (1.0,)),
        ]
        return choose(xp, pieces, x)

    return function


k0, k1, k0e, k1e = _k(0, False), _k(1, False), _k(0, True), _k(1, True)


# Spherical ----------------------------------------------------------------------------------------


def _spherical_up(xp: Any, x: Any, n: int) -> Any:
    """By the recurrence from j0 and j1, for x >= n."""
    now = xp.sin(x) / x
    after = (now - xp.cos(x)) / x
    for k in range(1, n + 1):
        now, after = after, after * ((2 * k + 1) / x) - now
    return now


def _spherical_series(xp: Any, x: Any, n: int) -> Any:
    """By the power series (DLMF 10.53.1), for x <= √(n + 2), where it does not cancel."""
    square = -0.5 * x * x
    total = xp.ones_like(x)
    for k in range(24, 0, -1):
        total = total * square / (k * (2 * n + 2 * k + 1)) + 1
    for k in range(n):  # sequentially, so that nothing overflows
        total = total * (x / (2 * k + 3))
    return total


def _spherical_down(xp: Any, x: Any, n: int) -> Any:
    """By the backward recurrence (J. C. P. Miller), scaled by the larger of j0 and j1."""
    start = n + 20 + math.isqrt(40 * n)
    after, now, wanted = xp.zeros_like(x), xp.full_like(x, 1e-280), xp.zeros_like(x)
    for k in range(start, 0, -1):
        now, after = now * ((2 * k + 1) / x) - after, now
        if k - 1 == n:
            wanted = now
        if k % 8 == 0:
            large = xp.abs(now) > 1e150
            factor = xp.where(large, xp.full_like(x, 1e-150), xp.ones_like(x))
            now, after, wanted = now * factor, after * factor, wanted * factor
    zero = xp.sin(x) / x
    one = (zero - xp.cos(x)) / x
    pick = xp.abs(zero) > xp.abs(one)
    return wanted * (xp.where(pick, zero, one) / xp.where(pick, now, after))


def spherical_jn(xp: Any, x: Any, n: int) -> Any:
    """The spherical Bessel function of the first kind of order n."""
    size = xp.abs(x)
    pieces = [
        (size * size < n + 2, lambda xp, x: _spherical_series(xp, x, n), (0.5,)),
        (size < n, lambda xp, x: _spherical_down(xp, x, n), (float(max(n, 2)),)),
        (xp.isfinite(x), lambda xp, x: _spherical_up(xp, x, n), (float(n + 2),)),
        (None, lambda xp, x: _infinite(xp, x, 0.0), (1.0,)),
    ]
    y = choose(xp, pieces, size)
    return xp.where(x < 0, -y, y) if n % 2 else y
