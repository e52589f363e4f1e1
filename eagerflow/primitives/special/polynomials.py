"""Orthogonal polynomials, by their recurrences (DLMF 18.9.1, Table 18.9.1)."""

from __future__ import annotations

from typing import Any


def _recurrence(xp: Any, x: Any, n: int, first: Any, step: Any) -> Any:
    """The n-th polynomial from 1, ``first``, and ``step(k, last, before)`` for k >= 2."""
    before, last = xp.ones_like(x), first
    for k in range(2, n + 1):
        last, before = step(k, last, before), last
    return last if n else before


def chebyshev_first(xp: Any, x: Any, n: int) -> Any:
    """T_n."""
    twice = x + x
    return _recurrence(xp, x, n, x, lambda k, last, before: twice * last - before)


def gegenbauer(xp: Any, x: Any, n: int, alpha: float) -> Any:
    """C_n of the parameter alpha."""

    def step(k: int, last: Any, before: Any) -> Any:
        up, down = 2 * (k + alpha - 1) / k, (k + 2 * alpha - 2) / k
        return x * last * up - before * down

    return _recurrence(xp, x, n, x * (2 * alpha), step)


def hermite(xp: Any, x: Any, n: int) -> Any:
    """H_n, of the physicists."""
    twice = x + x
    return _recurrence(
        xp, x, n, twice, lambda k, last, before: twice * last - before * float(2 * k - 2)
    )


def hermite_norm(xp: Any, x: Any, n: int) -> Any:
    """He_n, of the probabilists."""
    return _recurrence(xp, x, n, x, lambda k, last, before: x * last - before * float(k - 1))


def jacobi(xp: Any, x: Any, n: int, alpha: float, beta: float) -> Any:
    """P_n of the parameters alpha and beta."""
    both, apart = alpha + beta, alpha * alpha - beta * beta

    def step(k: int, last: Any, before: Any) -> Any:
        middle = 2 * k + both
        below = 2 * k * (k + both) * (middle - 2)
        up, shift = (middle - 1) * middle * (middle - 2) / below, (middle - 1) * apart / below
        down = 2 * (k + alpha - 1) * (k + beta - 1) * middle / below
        return last * (x * up + shift) - before * down

    return _recurrence(xp, x, n, (x - 1) * (0.5 * (both + 2)) + (alpha + 1), step)


def laguerre(xp: Any, x: Any, n: int, alpha: float) -> Any:
    """L_n of the parameter alpha."""

    def step(k: int, last: Any, before: Any) -> Any:
        return (last * (2 * k - 1 + alpha - x) - before * (k - 1 + alpha)) / k

    return _recurrence(xp, x, n, 1 + alpha - x, step)
