"""Hyperbolic functions and their inverses, from e^x - 1 and log(1 + x)."""

from __future__ import annotations

from typing import Any

from eagerflow.kernels.functions.exponential import scaled_expm1
from eagerflow.kernels.functions.parts import at_most

__all__ = ["BOUNDS", "tanh"]

BOUNDS = {"tanh": (2.0, 2.0)}


def tanh(s: Any, x: Any) -> Any:
    """The hyperbolic tangent, within 2 units in the last place: q = m / (m + 2), m = e^2|x| - 1.

    For small x, it is m / 2 - (m / 2) q: there the rounding errors of q hardly matter.
    """
    away = s.abs(x)
    # From 10 or 20 on the result rounds to 1.
    double = at_most(s, s.add(away, away), 20.0 if x.dtype == "float32" else 40.0)
    m = scaled_expm1(s, double, 0)
    quotient = s.divide(m, s.add(m, 2))
    half = s.multiply(m, 0.5)
    near = s.fma(s.negative(half), quotient, half)
    return s.copysign(s.select(s.less(away, 0.5), near, quotient), x)
