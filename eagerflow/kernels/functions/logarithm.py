"""Logarithms.

x = 2^n m with m next to 1; log m is a minimax polynomial in m - 1 (float32), or one in
s = (m - 1) / (m + 1) as in fdlibm's e_log.c (float64). The coefficients were found with Remez's
algorithm, each rounded before the next ones were fitted.
"""

from __future__ import annotations

import math
from typing import Any

from eagerflow.kernels.functions.parts import frexp_near_one, horner

__all__ = ["BOUNDS", "log"]

BOUNDS = {"log": (1.0, 1.0)}

# (log(1 + f) - f) / f^2, |f| <= 1/3
_LOG32 = (
    -0.5, 0.33333215, -0.24999797, 0.20010404, -0.16680479,
    0.14005895, -0.12184387, 0.13984302, -0.12891123,
)  # fmt: skip
# fdlibm: (log(1 + f) / s - 2) / s^2 in powers of s^2, s = f / (2 + f)
_LOG64 = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
    2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
    1.479819860511658591e-01,
)  # fmt: skip
# ln 2 with so few bits that n times it needs no rounding, and the rest.
_LN2_SHORT = (6.93147180369123816490e-01, 1.90821492927058770002e-10)


def _log_of_product(s: Any, n: Any, f: Any) -> Any:
    """The logarithm of 2^n (1 + f), for a reduced f."""
    if f.dtype == "float32":
        curved = s.fma(s.multiply(f, f), horner(s, f, _LOG32), f)
        return s.fma(n, math.log(2), curved)
    high, low = _LN2_SHORT
    half_square = s.multiply(s.multiply(f, 0.5), f)
    q = s.divide(f, s.add(f, 2))
    z = s.multiply(q, q)
    tail = s.multiply(z, horner(s, z, _LOG64))
    tail = s.fma(q, s.add(half_square, tail), s.multiply(n, low))
    whole = s.multiply(n, high)
    total = s.add(whole, f)
    lost = s.add(s.subtract(whole, total), f)
    return s.add(total, s.add(lost, s.subtract(tail, half_square)))


def _with_borders(s: Any, x: Any, inside: Any) -> Any:
    """A logarithm: -inf at 0, NaN below, infinity at infinity, NaN of NaN."""
    outside = s.select(s.equal(x, 0), s.constant(-math.inf, x.dtype), math.nan)
    inside = s.select(s.equal(x, math.inf), x, inside)
    return s.select(s.greater(x, 0), inside, outside)


def log(s: Any, x: Any) -> Any:
    """The natural logarithm, within 1 unit in the last place."""
    n, m = frexp_near_one(s, x, 2 / 3 if x.dtype == "float32" else math.sqrt(0.5))
    return _with_borders(s, x, _log_of_product(s, n, s.subtract(m, 1)))
