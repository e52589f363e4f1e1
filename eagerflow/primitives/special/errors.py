"""The scaled complementary error function, inverses, and the normal distribution."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.codegen.numpy import special
from eagerflow.primitives.special.pieces import choose, polynomial

_ROOT_HALF = math.sqrt(0.5)
_MEETS_0 = 27.5  # where erfc is 0 in float64, and exp(x²) nearly infinite


def erfcx(xp: Any, x: Any) -> Any:
    """exp(x²) erfc(x), which falls like 1/(x √π)."""

    def centre(xp: Any, x: Any) -> Any:
        return xp.exp(x * x) * (1 - special.erf(xp, x))

    def negative(xp: Any, x: Any) -> Any:
        bounded = xp.where(x > -_MEETS_0, x, xp.full_like(x, -_MEETS_0))
        return 2 * special.exp_of_square(xp, bounded, 1.0) - special.erfcx_outside(xp, -bounded)

    pieces = [
        (x > special.CENTRE_ENDS, special.erfcx_outside, (1.0,)),
        (x < -special.CENTRE_ENDS, negative, (-1.0,)),
        (None, centre, (0.0,)),
    ]
    return choose(xp, pieces, x)


# A starting value with an error of 5e-4: Abramowitz and Stegun 26.2.23.
_START = (2.515517, 0.802853, 0.010328)
_START_BELOW = (1.0, 1.432788, 0.189269, 0.001308)


def _erfcinv_small(xp: Any, z: Any) -> Any:
    """The inverse for numbers from 0 to 1/2: Newton's method on the logarithm of erfc."""
    log = xp.log(z)
    t = xp.sqrt(2 * (math.log(2) - log))
    y = (t - polynomial(_START, t) / polynomial(_START_BELOW, t)) * _ROOT_HALF
    for _ in range(3):
        scaled = special.erfcx_outside(xp, y)
        y = y + (xp.log(scaled) - y * y - log) * scaled * (math.sqrt(math.pi) / 2)
    return y


def erfcinv(xp: Any, z: Any) -> Any:
    """Inverse of erfc; infinite at 0 and 2, NaN beyond."""
    pieces = [
        ((z > 0) & (z < 0.5), _erfcinv_small, (0.25,)),
        (z == 0, lambda xp, z: xp.full_like(z, math.inf), (0.0,)),
        (None, lambda xp, z: special.erfinv(xp, 1 - z), (1.0,)),
    ]
    return choose(xp, pieces, z)


def ndtri(xp: Any, p: Any) -> Any:
    """The quantile function of the normal distribution."""
    return -math.sqrt(2) * erfcinv(xp, 2 * p)


def _normal_tail(xp: Any, size: Any) -> Any:
    """The probability that a normal number exceeds ``size``, which is at least 0.67."""
    bounded = xp.where(size < 40, size, xp.full_like(size, 40.0))
    decay = special.exp_of_square(xp, bounded, -0.5)
    return 0.5 * decay * special.erfcx_outside(xp, bounded * _ROOT_HALF)


def ndtr(xp: Any, x: Any) -> Any:
    """The cumulative distribution function of the normal distribution."""
    pieces = [
        (x < -0.67, lambda xp, x: _normal_tail(xp, -x), (-1.0,)),
        (x > 0.67, lambda xp, x: 1 - _normal_tail(xp, x), (1.0,)),
        (None, lambda xp, x: 0.5 + 0.5 * special.erf(xp, x * _ROOT_HALF), (0.0,)),
    ]
    return choose(xp, pieces, x)


def log_ndtr(xp: Any, x: Any) -> Any:
    """The logarithm of the normal cumulative distribution function."""

    def negative(xp: Any, x: Any) -> Any:
        return xp.log(0.5 * special.erfcx_outside(xp, -x * _ROOT_HALF)) - 0.5 * x * x

    pieces = [
        (x < -1, negative, (-2.0,)),
        (None, lambda xp, x: xp.log1p(-ndtr(xp, -x)), (0.0,)),
    ]
    return choose(xp, pieces, x)
